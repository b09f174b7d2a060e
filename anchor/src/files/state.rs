//! The state directory: secrets, the boot epoch, and what membership and clients want to find
//! again. Only its owner may look inside; a directory of another user is refused, because
//! whoever owns it could swap the identity.
//!
//! Each file starts with a line `conflux NAME VERSION`. One daemon at a time holds the
//! [`InstallLock`]; the CLI writes here only what a daemon takes up at its next start.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use conflux_proto::id::RealmKey;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use zeroize::Zeroizing;

use super::atomic::{self, Mode};
use super::layout::Layout;

/// The version of every state file's format.
const VERSION: u32 = if cfg!(feature = "next") { 2 } else { 1 };

/// The adverts of 10,000 anchors at about 3 kB each fit twice.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// The only mode the directory may have.
const DIRECTORY_MODE: u32 = 0o700;

/// The most that a file in it may allow.
const FILE_MODE: u32 = 0o600;

/// The files of the state directory that other modules fill; the bytes are theirs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateFile {
    /// The seed of the identity key.
    Identity,
    /// The seed of the realm key, on the realm's first machine.
    RealmSecret,
    /// The realm's public key.
    Realm,
    /// This anchor's credential.
    Credential,
    /// The last boot epoch used.
    Epoch,
    /// Client mappings ([`super::SavedLease`]).
    Leases,
    /// Signed adverts to start from ([`State::read_list`]).
    Adverts,
    /// Every revocation known ([`State::read_list`]).
    Revocations,
    /// What the tickets made here grant, without their keys ([`State::read_list`]).
    Tickets,
    /// A ticket that has not been used yet, or by which nobody is known yet.
    Ticket,
    /// Left by the command line once it has told how the next machine joins.
    JoinTold,
    /// There while this anchor drains: since when, in seconds since 1970.
    Draining,
}

/// Why the state cannot be used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Somebody else's directory or file.
    #[error(
        "{path} belongs to user {owner}, not to user {us}: its owner could replace this \
         machine's identity; remove it or give it to user {us}"
    )]
    Foreign {
        /// The directory, or the file in it.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// Another daemon runs on this directory.
    #[error("another conflux daemon runs on {path}; `conflux down` stops it")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A newer version wrote a file.
    #[error(
        "{path} has format version {found}, this conflux knows {VERSION}: it was left as it is; \
         install a newer conflux"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A file is not what it should be.
    #[error("{path} is damaged ({why}); it was left as it is")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// An open state directory.
#[derive(Clone, Debug)]
pub struct State {
    directory: PathBuf,
}

/// Held by the one daemon of an installation; given back when dropped, also by a crash.
#[derive(Debug)]
pub struct InstallLock {
    _file: Flock<File>,
}

impl StateFile {
    /// Every file.
    const ALL: [Self; 11] = [
        Self::Identity,
        Self::RealmSecret,
        Self::Realm,
        Self::Credential,
        Self::Epoch,
        Self::Leases,
        Self::Adverts,
        Self::Revocations,
        Self::Tickets,
        Self::Ticket,
        Self::JoinTold,
    ];

    /// Returns the file's name inside the directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity.seed",
            Self::RealmSecret => "realm.seed",
            Self::Realm => "realm.key",
            Self::Credential => "credential",
            Self::Epoch => "epoch",
            Self::Leases => "leases",
            Self::Adverts => "adverts",
            Self::Revocations => "revocations",
            Self::Tickets => "tickets",
            Self::Ticket => "join.ticket",
            Self::JoinTold => "join.told",
            Self::Draining => "draining",
        }
    }
}

impl State {
    /// Opens the installation's state directory, making it (mode 0700) when there is none.
    ///
    /// # Errors
    ///
    /// [`StateError::Foreign`], or what the system says.
    pub fn open(layout: &Layout) -> Result<Self, StateError> {
        let path = &layout.state;
        let told = |source| StateError::Io {
            path: path.clone(),
            source,
        };
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)
                .map_err(told)?;
        }
        match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(told(error)),
            Ok(()) | Err(_) => {}
        }
        Self::check(path)
    }

    /// Opens the state directory when there is one.
    ///
    /// # Errors
    ///
    /// As [`State::open`].
    pub fn open_if_present(layout: &Layout) -> Result<Option<Self>, StateError> {
        if layout.state.exists() {
            Self::check(&layout.state).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Takes the installation's lock.
    ///
    /// # Errors
    ///
    /// [`StateError::Locked`] while another daemon has it.
    pub fn lock(&self) -> Result<InstallLock, StateError> {
        let path = self.directory.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|source| StateError::Io {
                path: path.clone(),
                source,
            })?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(InstallLock { _file: file }),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Err(StateError::Locked {
                path: self.directory.clone(),
            }),
            Err((_, errno)) => Err(StateError::Io {
                path,
                source: errno.into(),
            }),
        }
    }

    /// Returns whether a daemon holds the lock now.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn is_locked(&self) -> Result<bool, StateError> {
        match self.lock() {
            Ok(_) => Ok(false),
            Err(StateError::Locked { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns a file's content without its first line, or none when there is no such file.
    ///
    /// # Errors
    ///
    /// `Newer`, `Damaged`, or what the system says.
    pub fn read(&self, file: StateFile) -> Result<Option<Zeroizing<Vec<u8>>>, StateError> {
        let path = self.path(file);
        let bytes = atomic::read(&path, MAX_FILE_BYTES)
            .map_err(|source| StateError::Io {
                path: path.clone(),
                source,
            })?
            .map(Zeroizing::new);
        let Some(bytes) = bytes else { return Ok(None) };
        let damaged = |why: &str| StateError::Damaged {
            path: path.clone(),
            why: why.to_owned(),
        };
        let end = bytes
            .iter()
            .position(|b| *b == b'\n')
            .ok_or_else(|| damaged("no first line"))?;
        let version = std::str::from_utf8(&bytes[..end])
            .ok()
            .and_then(|line| line.strip_prefix("conflux ")?.strip_prefix(file.name()))
            .and_then(|rest| rest.strip_prefix(' ')?.parse::<u32>().ok())
            .ok_or_else(|| damaged("its first line is not ours"))?;
        if version > VERSION {
            return Err(StateError::Newer {
                path,
                found: version,
            });
        }
        Ok(Some(Zeroizing::new(bytes[end + 1..].to_vec())))
    }

    /// Writes a file at one stroke, mode 0600, and waits until it is on the disk. A file of a
    /// newer version stays.
    ///
    /// # Errors
    ///
    /// `Newer`, or what the system says; the file is as before then.
    pub fn write(&self, file: StateFile, content: &[u8]) -> Result<(), StateError> {
        if let Err(error @ StateError::Newer { .. }) = self.read(file) {
            return Err(error);
        }
        let head = format!("conflux {} {VERSION}\n", file.name());
        // In one piece: a buffer that grows leaves copies of secrets behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(head.len() + content.len()));
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(content);
        let path = self.path(file);
        atomic::write(&path, &bytes, Mode::Secret).map_err(|source| StateError::Io { path, source })
    }

    /// Removes a file; none there is fine.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn remove(&self, file: StateFile) -> Result<(), StateError> {
        let path = self.path(file);
        atomic::remove(&path).map_err(|source| StateError::Io { path, source })
    }

    /// Returns the 32 bytes of a seed or key file.
    ///
    /// # Errors
    ///
    /// As [`State::read`], and `Damaged` when it has another length.
    pub fn read_key(&self, file: StateFile) -> Result<Option<Zeroizing<[u8; 32]>>, StateError> {
        let Some(content) = self.read(file)? else {
            return Ok(None);
        };
        match <[u8; 32]>::try_from(content.as_slice()) {
            Ok(key) => Ok(Some(Zeroizing::new(key))),
            Err(_) => Err(self.damaged(file, "it does not hold 32 bytes")),
        }
    }

    /// Returns the realm this anchor belongs to, once it does.
    ///
    /// # Errors
    ///
    /// As [`State::read_key`].
    pub fn realm(&self) -> Result<Option<RealmKey>, StateError> {
        Ok(self.read_key(StateFile::Realm)?.map(|key| RealmKey(*key)))
    }

    /// Returns a list of byte strings as [`State::write_list`] wrote it; empty when there is no
    /// such file.
    ///
    /// # Errors
    ///
    /// As [`State::read`].
    pub fn read_list(&self, file: StateFile) -> Result<Vec<Vec<u8>>, StateError> {
        let Some(content) = self.read(file)? else {
            return Ok(Vec::new());
        };
        let mut rest = content.as_slice();
        let mut list = Vec::new();
        while !rest.is_empty() {
            let entry = rest.split_first_chunk::<4>().and_then(|(length, tail)| {
                tail.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
            });
            let Some((entry, tail)) = entry else {
                return Err(self.damaged(file, "it ends inside an entry"));
            };
            list.push(entry.to_vec());
            rest = tail;
        }
        Ok(list)
    }

    /// Writes a list of byte strings.
    ///
    /// # Errors
    ///
    /// As [`State::write`].
    pub fn write_list<'a>(
        &self,
        file: StateFile,
        list: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), StateError> {
        let mut content = Vec::new();
        for entry in list {
            let length = u32::try_from(entry.len())
                .map_err(|_| self.damaged(file, "an entry has more than 4 GiB"))?;
            content.extend_from_slice(&length.to_be_bytes());
            content.extend_from_slice(entry);
        }
        self.write(file, &content)
    }

    /// Returns the ticket that waits to be used, or was used by a member that knows nobody yet.
    ///
    /// # Errors
    ///
    /// As [`State::read`].
    pub fn ticket(&self) -> Result<Option<Zeroizing<String>>, StateError> {
        let Some(content) = self.read(StateFile::Ticket)? else {
            return Ok(None);
        };
        match std::str::from_utf8(&content) {
            Ok(text) => Ok(Some(Zeroizing::new(text.trim().to_owned()))),
            Err(_) => Err(self.damaged(StateFile::Ticket, "it is not text")),
        }
    }

    /// Returns the boot epoch of this start, greater than every one before it, on disk before it
    /// is used. It also follows the wall clock where that is ahead, so that a machine rolled back
    /// to an old disk does not repeat an epoch. A damaged file counts from the clock alone.
    ///
    /// # Errors
    ///
    /// `Newer`, or what the system says.
    pub fn next_epoch(&self) -> Result<u64, StateError> {
        let last = match self.read(StateFile::Epoch) {
            Ok(content) => content
                .and_then(|bytes| std::str::from_utf8(&bytes).ok()?.trim().parse::<u64>().ok())
                .unwrap_or(0),
            Err(StateError::Damaged { .. }) => 0,
            Err(error) => return Err(error),
        };
        let clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |past| past.as_secs());
        let epoch = last.saturating_add(1).max(clock);
        self.write(StateFile::Epoch, epoch.to_string().as_bytes())?;
        Ok(epoch)
    }

    fn check(path: &Path) -> Result<Self, StateError> {
        let told = |source| StateError::Io {
            path: path.to_owned(),
            source,
        };
        let metadata = fs::symlink_metadata(path).map_err(told)?;
        if !metadata.is_dir() {
            return Err(told(io::Error::from(io::ErrorKind::NotADirectory)));
        }
        let us = geteuid().as_raw();
        if metadata.uid() != us {
            return Err(StateError::Foreign {
                path: path.to_owned(),
                owner: metadata.uid(),
                us,
            });
        }
        if metadata.permissions().mode() & 0o777 != DIRECTORY_MODE {
            fs::set_permissions(path, fs::Permissions::from_mode(DIRECTORY_MODE)).map_err(told)?;
        }
        let state = Self {
            directory: path.to_owned(),
        };
        for file in StateFile::ALL {
            check_file(&state.path(file), us)?;
        }
        Ok(state)
    }

    fn path(&self, file: StateFile) -> PathBuf {
        self.directory.join(file.name())
    }

    pub(super) fn damaged(&self, file: StateFile, why: &str) -> StateError {
        StateError::Damaged {
            path: self.path(file),
            why: why.to_owned(),
        }
    }
}

/// Refuses a file that somebody else could change or has put there, and takes back rights that
/// others have been given; the directory has kept them out so far.
fn check_file(path: &Path, us: u32) -> Result<(), StateError> {
    let told = |source| StateError::Io {
        path: path.to_owned(),
        source,
    };
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(told)?,
    };
    if !metadata.is_file() {
        return Err(StateError::Damaged {
            path: path.to_owned(),
            why: "it is not a plain file".to_owned(),
        });
    }
    if metadata.uid() != us {
        return Err(StateError::Foreign {
            path: path.to_owned(),
            owner: metadata.uid(),
            us,
        });
    }
    if metadata.permissions().mode() & !FILE_MODE & 0o7777 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(FILE_MODE)).map_err(told)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
