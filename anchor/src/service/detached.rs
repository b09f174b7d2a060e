//! The daemon as a detached process, for machines without a service manager: its own session, no
//! terminal, standard streams in the log file, which also tells why a start failed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::files::Layout;
use crate::logging::open_append;

/// Log lines shown when a start fails.
const SHOWN_LINES: usize = 15;

/// As much of a log as is looked at for them.
const SHOWN_BYTES: u64 = 16 * 1024;

/// A daemon that was just started.
#[derive(Debug)]
pub struct Detached {
    child: Child,
    log: PathBuf,
    log_start_bytes: u64,
}

/// Starts the installation's daemon. The caller watches it until it is ready.
///
/// # Errors
///
/// When the log cannot be opened or the process not be started.
pub fn spawn(layout: &Layout, binary: &Path) -> io::Result<Detached> {
    let log = open_append(&layout.log)?;
    let log_start_bytes = log.metadata()?.len();
    let mut command = Command::new(binary);
    if let Some(root) = layout.root() {
        command.arg("--dir").arg(root);
    } else {
        command.env_remove("CONFLUX_DIR");
    }
    let child = command
        .args(["run", "--detached"])
        .env_remove("CONFLUX_JOIN_FILE")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    Ok(Detached {
        child,
        log: layout.log.clone(),
        log_start_bytes,
    })
}

/// Leaves the terminal's session, so that closing the terminal does not stop the daemon.
pub fn detach_from_terminal() {
    // Fails only for the leader of a process group, which a spawned child is not.
    if let Err(error) = nix::unistd::setsid() {
        tracing::warn!(%error, "the daemon stays in its starter's session");
    }
}

impl Detached {
    /// Returns how the daemon ended, or none while it runs.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Returns the last lines this start has logged.
    pub fn last_lines(&self) -> String {
        let text = read_from(&self.log, self.log_start_bytes).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

fn read_from(path: &Path, start_bytes: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    // A file shorter than before was rotated meanwhile: all of it is new.
    let start = if length < start_bytes { 0 } else { start_bytes };
    file.seek(SeekFrom::Start(
        start.max(length.saturating_sub(SHOWN_BYTES)),
    ))?;
    let mut bytes = Vec::new();
    file.take(SHOWN_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_fails_tells_its_own_last_lines_only() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::below(directory.path()).unwrap();
        std::fs::create_dir_all(layout.log.parent().unwrap()).unwrap();
        std::fs::write(&layout.log, "of an earlier start\n").unwrap();

        // `echo` says the daemon's arguments and ends.
        let mut failed = spawn(&layout, Path::new("/bin/echo")).unwrap();
        failed.child.wait().unwrap();

        let told = failed.last_lines();
        assert_eq!(
            told,
            format!("--dir {} run --detached", directory.path().display())
        );
        assert!(failed.ended().unwrap().is_some());
    }

    #[test]
    fn only_the_end_of_a_long_log_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let text: String = (0..5000).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&path, text).unwrap();

        let end = read_from(&path, 0).unwrap();

        assert!(end.ends_with("line 4999\n") && end.len() as u64 <= SHOWN_BYTES);
        assert!(
            read_from(&path, 10_000_000)
                .unwrap()
                .ends_with("line 4999\n")
        );
    }
}
