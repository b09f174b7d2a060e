//! Runs a program as a check: as the user `nobody`, with no capability and no way to gain one, in
//! a process group of its own that is killed as a whole when the run ends, however it ends. The
//! caller bounds the time by dropping the future.
//!
//! How privileges go: the thread sets `no_new_privs` on itself, which every program it starts
//! inherits and nobody can take back; from root to another user the kernel clears all capabilities.
//!
//! What the program writes is read up to [`OUTPUT_BYTES`]; then the pipe is closed, so that one
//! that floods is ended by its next write, and costs nothing.

use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::future::join;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, User};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

/// What is read of a program's output; then its pipe is closed.
const OUTPUT_BYTES: u64 = 64 * 1024;
/// What a program has written is read for this long after its end.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// What of it is shown: its beginning, in one line.
const SHOWN_LETTERS: usize = 200;
/// Linux's overflow ids, which are `nobody`'s wherever no user database says otherwise.
const NOBODY: u32 = 65_534;

/// Kills what is left of a run.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // Nobody left is the usual case. The number is free for others only once the whole group
        // has gone, and is not given out again for as long as thousands of processes take to start.
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}

/// Runs the program once.
pub(super) async fn run(
    program: &str,
    arguments: &[String],
    address: &Ipv4Addr,
) -> Result<(), String> {
    set_no_new_privs().map_err(|errno| format!("privileges cannot be given up: {errno}"))?;
    let (user, group) = unprivileged();
    let spawned = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("CONFLUX_IPV4", address.to_string())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // With a user of its own and none named, the supplementary groups are dropped too.
        .uid(user)
        .gid(group)
        .process_group(0)
        .spawn();
    let mut child = spawned.map_err(|error| cannot_run(program, &error))?;
    let group = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .map(|id| Group(Pid::from_raw(id)));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let ended = {
        let reading = join(
            beginning(child.stdout.take(), &mut stdout),
            beginning(child.stderr.take(), &mut stderr),
        );
        tokio::pin!(reading);
        tokio::select! {
            _ = &mut reading => child.wait().await,
            ended = child.wait() => {
                // Whoever it left behind goes too, and with them the other ends of the pipes. One
                // that got away by a session of its own must not hold the run up.
                drop(group);
                let _ = timeout(LAST_WORDS, reading).await;
                ended
            }
        }
    };
    let status = ended.map_err(|error| format!("{program}: {error}"))?;
    if status.success() {
        return Ok(());
    }
    let said = if stderr.is_empty() { stdout } else { stderr };
    Err(told(program, status, &said))
}

fn unprivileged() -> (u32, u32) {
    match User::from_name("nobody") {
        Ok(Some(user)) => (user.uid.as_raw(), user.gid.as_raw()),
        Ok(None) | Err(_) => (NOBODY, NOBODY),
    }
}

/// Reads what is to be kept and closes the pipe.
async fn beginning(pipe: Option<impl AsyncRead + Unpin>, bytes: &mut Vec<u8>) {
    if let Some(pipe) = pipe {
        // What came before an error is shown all the same.
        let _ = pipe.take(OUTPUT_BYTES).read_to_end(bytes).await;
    }
}

fn cannot_run(program: &str, error: &io::Error) -> String {
    let hint = if error.kind() == io::ErrorKind::PermissionDenied {
        ": it must be executable for everybody, its folders too, and the daemon must be root with \
         CAP_SETUID, CAP_SETGID and CAP_KILL"
    } else {
        ""
    };
    format!("{program} cannot be run as nobody: {error}{hint}")
}

fn told(program: &str, status: ExitStatus, said: &[u8]) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(signal) => format!("ended by {signal}"),
            Err(_) => format!("ended by signal {signal}"),
        },
        (None, None) => "it did not end well".to_owned(),
    };
    let said = String::from_utf8_lossy(said);
    let line: String = said
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|letter| !letter.is_control())
        .take(SHOWN_LETTERS)
        .collect();
    if line.is_empty() {
        format!("{program}: {how}")
    } else {
        format!("{program}: {how}: {line}")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::Instant;

    use super::*;

    // To become another user takes root. Without it these tests say nothing, and those of the
    // namespaces, which always have it, say the rest.

    #[test]
    fn ends_are_told_in_one_line() {
        let told = |raw, said: &str| told("/x", ExitStatus::from_raw(raw), said.as_bytes());

        assert_eq!(told(3 << 8, ""), "/x: exit code 3");
        assert_eq!(
            told(1 << 8, "no\n  \u{1b}[31mdatabase\n"),
            "/x: exit code 1: no [31mdatabase"
        );
        assert_eq!(told(9, ""), "/x: ended by SIGKILL");
        assert!(told(1 << 8, &"a".repeat(10_000)).len() < 300);
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_told() {
        let refused = run("/nowhere/check", &[], &Ipv4Addr::LOCALHOST).await;

        assert!(
            refused
                .unwrap_err()
                .contains("/nowhere/check cannot be run")
        );
    }

    #[tokio::test]
    async fn the_outcome_is_the_exit_code() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let (yes, _kept) = script("exit 0");
        let (no, _kept_too) = script("echo out; echo why >&2; exit 7");

        assert_eq!(run(&yes, &[], &Ipv4Addr::LOCALHOST).await, Ok(()));
        let why = run(&no, &[], &Ipv4Addr::LOCALHOST).await.unwrap_err();
        assert!(why.ends_with("exit code 7: why"), "{why}");
    }

    #[tokio::test]
    async fn one_that_leaves_somebody_behind_ends_when_it_ends() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let (path, _kept) = script("sleep 60 & exit 0");
        let began = Instant::now();

        let outcome = run(&path, &[], &Ipv4Addr::LOCALHOST).await;

        assert_eq!(outcome, Ok(()));
        assert!(began.elapsed() < Duration::from_secs(3));
    }

    fn script(body: &str) -> (String, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path: PathBuf = directory.path().join("check");
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (path.to_string_lossy().into_owned(), directory)
    }
}
