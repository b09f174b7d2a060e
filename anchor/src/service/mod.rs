//! Starting, stopping and registering the daemon from outside of it: by systemd where that runs,
//! else as a detached process. Driven by the CLI; the daemon itself only reports with
//! [`notify_ready`] and [`notify_stopping`].

mod detached;
mod systemd;

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::files::{Config, Layout};

pub use detached::{Detached, detach_from_terminal, spawn};
pub use systemd::Unit;

/// Who keeps the daemon running.
#[derive(Debug)]
pub enum Manager {
    /// systemd, by this unit.
    Systemd(Unit),
    /// Nobody: it runs detached and does not return at boot.
    Nobody(NobodyWhy),
}

/// Why no service manager is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NobodyWhy {
    /// The operator asked for that.
    NotWanted,
    /// systemd is not the first process here.
    NoneRuns,
    /// It is, but in another network namespace than ours.
    OtherNetwork,
}

impl NobodyWhy {
    /// Returns the reason as the beginning of a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotWanted => "No boot service is wanted",
            Self::NoneRuns => "No service manager runs here",
            Self::OtherNetwork => "The service manager runs in another network namespace",
        }
    }
}

/// Returns who keeps this installation's daemon running.
pub fn manager(layout: &Layout, config: &Config) -> Manager {
    if !config.boot_service {
        return Manager::Nobody(NobodyWhy::NotWanted);
    }
    if !Path::new("/run/systemd/system").is_dir() {
        return Manager::Nobody(NobodyWhy::NoneRuns);
    }
    if !in_managers_network() {
        return Manager::Nobody(NobodyWhy::OtherNetwork);
    }
    Manager::Systemd(Unit::of(layout))
}

/// Tells the service manager, when one waits for it, that addresses can be bound.
pub fn notify_ready() {
    notify(&[sd_notify::NotifyState::Ready]);
}

/// Tells the service manager that the daemon says goodbye.
pub fn notify_stopping() {
    notify(&[sd_notify::NotifyState::Stopping]);
}

/// Returns whether this process may do what only root may.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Ends a daemon that no longer answers.
///
/// # Errors
///
/// What the system says; a process that is gone already is fine.
pub fn end(pid: i32) -> io::Result<()> {
    match kill(Pid::from_raw(pid), Signal::SIGKILL) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}

fn in_managers_network() -> bool {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
    match (network("self"), network("1")) {
        (Ok(ours), Ok(managers)) => ours == managers,
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}
