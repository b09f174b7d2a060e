//! Who may ask the local socket. The socket's mode keeps others from connecting at all; this is
//! the second look, by the credentials the kernel vouches for.

use std::ffi::CString;

use nix::unistd::{Gid, Group, Uid, User, geteuid, getgrouplist};

/// The group whose members may read.
const GROUP: &str = "conflux";

/// What one connection may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Access {
    /// Nothing.
    Nothing,
    /// Ask for tables.
    Read,
    /// Everything.
    Change,
}

impl Access {
    /// Judges a connection by its peer's credentials: root and the daemon's own user may change
    /// things, members of the group may read. Looks into the system's user database for others
    /// than root, which may block.
    pub fn of(uid: Uid, gid: Gid) -> Self {
        if uid.is_root() || uid == geteuid() {
            return Self::Change;
        }
        let Some(group) = conflux_group() else {
            return Self::Nothing;
        };
        if gid == group || is_member(uid, group) {
            Self::Read
        } else {
            Self::Nothing
        }
    }
}

/// Returns the id of the group `conflux`, where the system has one.
pub(crate) fn conflux_group() -> Option<Gid> {
    Group::from_name(GROUP)
        .ok()
        .flatten()
        .map(|group| group.gid)
}

/// Returns whether the system has the group whose members may read.
pub fn has_group() -> bool {
    conflux_group().is_some()
}

fn is_member(uid: Uid, group: Gid) -> bool {
    let Ok(Some(user)) = User::from_uid(uid) else {
        return false;
    };
    let Ok(name) = CString::new(user.name) else {
        return false;
    };
    getgrouplist(&name, user.gid).is_ok_and(|groups| groups.contains(&group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_daemons_own_user_may_change_things() {
        assert_eq!(
            Access::of(Uid::from_raw(0), Gid::from_raw(0)),
            Access::Change
        );
        assert_eq!(Access::of(geteuid(), Gid::from_raw(12345)), Access::Change);
    }

    #[test]
    fn a_stranger_may_do_nothing() {
        let stranger = Uid::from_raw(3_999_999_999);

        assert_eq!(
            Access::of(stranger, Gid::from_raw(3_999_999_999)),
            Access::Nothing
        );
    }

    #[test]
    fn changing_includes_reading() {
        assert!(Access::Change > Access::Read && Access::Read > Access::Nothing);
    }
}
