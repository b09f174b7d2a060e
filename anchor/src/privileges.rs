//! What the daemon may still do once it has started: nothing but what CAP_NET_ADMIN allows, and,
//! where a program checks its service, to start that as `nobody` and to kill it. The boot service
//! starts it so; this is for all other starts, and for a unit that somebody wrote. Whoever takes the daemon over is then root by name only: it cannot read other users' files,
//! become another user, load modules or trace processes, and nothing it starts can do more.
//! Its memory, with its keys, is in no core dump.

use anyhow::Context;
use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;
use nix::unistd::setgroups;
use tracing::debug;

use crate::api::conflux_group;

/// Interface, addresses, routes, large socket buffers.
const KEPT: [Capability; 1] = [Capability::CAP_NET_ADMIN];

/// Kept besides where programs are run: to become `nobody` between fork and exec, and to kill what
/// runs as `nobody`.
const FOR_PROGRAMS: [Capability; 3] = [
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
    Capability::CAP_KILL,
];

/// Gives up everything else, for this thread and those it starts: called before there are others.
///
/// # Errors
/// When the kernel does not let go of a capability that the process has.
pub(crate) fn give_up(runs_programs: bool) -> anyhow::Result<()> {
    prctl::set_dumpable(false).context("cannot keep keys out of core dumps")?;
    prctl::set_no_new_privs().context("cannot rule out new privileges")?;
    keep_one_group();
    keep_capabilities(runs_programs).context("cannot give up capabilities")
}

/// The local socket is given to the group, which takes being in it or a capability.
fn keep_one_group() {
    let groups: Vec<_> = conflux_group().into_iter().collect();
    if let Err(error) = setgroups(&groups) {
        // Whoever may not change groups was put into the right ones by who started it.
        debug!(%error, "groups stay as they are");
    }
}

/// Says whether programs can be run: once given up, that right comes back only by another start.
pub(crate) fn may_run_programs() -> bool {
    FOR_PROGRAMS
        .iter()
        .all(|it| caps::has_cap(None, CapSet::Effective, *it).unwrap_or(false))
}

fn keep_capabilities(runs_programs: bool) -> Result<(), CapsError> {
    let is_kept = |it: &Capability| KEPT.contains(it) || runs_programs && FOR_PROGRAMS.contains(it);
    for capability in caps::all() {
        // An older kernel does not know the latest ones.
        if !is_kept(&capability)
            && caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false)
        {
            // Without the right to, what is not permitted cannot be gained either, by no_new_privs.
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    let permitted = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = permitted.into_iter().filter(is_kept).collect();
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        let only = match set {
            CapSet::Effective | CapSet::Permitted => kept.clone(),
            CapSet::Inheritable | CapSet::Bounding | CapSet::Ambient => CapsHashSet::new(),
        };
        // Under the boot service nothing is left to give up, and the call is forbidden.
        if caps::read(None, set)? != only {
            caps::set(None, set, &only)?;
        }
    }
    Ok(())
}
