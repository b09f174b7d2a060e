//! Programs inside a host: a command that ends, with its output and a time limit, and one that
//! runs along. Output goes to files, never to pipes, so that a daemon left behind by a command
//! cannot keep its caller waiting.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Host, spawner};

/// How often a running program is asked whether it has ended.
const ASK: Duration = Duration::from_millis(2);

/// A command to be run in a host.
pub struct HostCommand {
    host: Host,
    command: Command,
    input: Option<Vec<u8>>,
    scope: Scope,
}

/// How much of the host a command sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// All of its namespaces.
    Whole,
    /// Its network only, with the lab's own `/proc`: for setting links up.
    Network,
}

/// What a command said and how it ended.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The exit code; 128 and the signal's number when one ended it.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
}

/// A program that runs along; killed when dropped.
pub struct Program {
    child: Child,
}

impl HostCommand {
    pub(super) fn new(host: Host, program: &OsStr, scope: Scope) -> Self {
        Self {
            host,
            command: Command::new(program),
            input: None,
            scope,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Gives the command its standard input; none otherwise.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Runs the command to its end.
    ///
    /// # Panics
    ///
    /// When it cannot be started or has not ended after `limit`.
    pub fn answer_within(mut self, limit: Duration) -> Answer {
        let what = format!("{:?}", self.command);
        let mut stdout = tempfile::tempfile().expect("a temporary file can be made");
        let mut stderr = tempfile::tempfile().expect("a temporary file can be made");
        self.command
            .stdout(stdout.try_clone().expect("a file can be shared"))
            .stderr(stderr.try_clone().expect("a file can be shared"));
        let began = Instant::now();
        let mut program = self
            .start()
            .unwrap_or_else(|error| panic!("{what} did not start: {error}"));
        let ended = program.wait_within(limit);
        let took = began.elapsed();
        let (stdout, stderr) = (text(&mut stdout), text(&mut stderr));
        let Some(status) = ended else {
            panic!("{what} has not ended after {limit:?}\n{stdout}{stderr}");
        };
        Answer {
            code: code(status),
            stdout,
            stderr,
            took,
        }
    }

    /// Runs the command to its end within 10 seconds.
    ///
    /// # Panics
    ///
    /// As [`Self::answer_within`].
    pub fn answer(self) -> Answer {
        self.answer_within(Duration::from_secs(10))
    }

    /// Runs the command to its end and returns its output.
    ///
    /// # Panics
    ///
    /// As [`Self::answer`], and when its exit code is not 0.
    pub fn must(self) -> String {
        let what = format!("{:?} in {}", self.command, self.host.name());
        let answer = self.answer();
        assert!(
            answer.code == 0,
            "{what} ended with {}:\n{}{}",
            answer.code,
            answer.stdout,
            answer.stderr
        );
        answer.stdout
    }

    /// Starts the command to run along, both outputs appended to `log`.
    ///
    /// # Errors
    ///
    /// When the log cannot be opened or the program not be started.
    pub fn spawn(mut self, log: &Path) -> io::Result<Program> {
        let log = File::options().create(true).append(true).open(log)?;
        self.command.stdout(log.try_clone()?).stderr(log);
        self.start()
    }

    fn start(mut self) -> io::Result<Program> {
        let stdin = match self.input.take() {
            Some(bytes) => {
                let mut file = tempfile::tempfile()?;
                file.write_all(&bytes)?;
                file.rewind()?;
                Stdio::from(file)
            }
            None => Stdio::null(),
        };
        self.command.stdin(stdin);
        spawner::run(move || {
            let namespaces = &self.host.inner.cradle;
            let entered: Vec<RawFd> = match self.scope {
                Scope::Whole => [&namespaces.net, &namespaces.uts, &namespaces.mount]
                    .map(AsRawFd::as_raw_fd)
                    .to_vec(),
                Scope::Network => vec![namespaces.net.as_raw_fd()],
            };
            // SAFETY: setns and the error's making are async-signal-safe; the descriptors stay
            // open until the child has run them, since `self` outlives the spawn.
            unsafe {
                self.command.pre_exec(move || {
                    entered.iter().try_for_each(|fd| match libc::setns(*fd, 0) {
                        0 => Ok(()),
                        _ => Err(io::Error::last_os_error()),
                    })
                });
            }
            let child = match self.scope {
                Scope::Whole => {
                    inside_pid_namespace(namespaces.pid.as_fd(), || self.command.spawn())
                }
                Scope::Network => self.command.spawn(),
            }?;
            Ok(Program { child })
        })
    }
}

impl Program {
    /// Sends a signal; a program that has ended already is left alone.
    pub fn signal(&self, signal: Signal) {
        // Fails only when the process has been reaped.
        let _ = kill(self.pid(), signal);
    }

    /// Kills the program and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only when it has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until the program has ended, at most `limit`.
    pub fn wait_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            thread::sleep(ASK);
        }
    }

    /// Returns its process id, as the lab sees it.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Forks inside `namespace`: the calling thread's next children belong to it, the thread does not.
fn inside_pid_namespace<T>(
    namespace: impl AsFd,
    fork: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let own = File::open("/proc/self/ns/pid")?;
    setns(namespace, CloneFlags::CLONE_NEWPID)?;
    let forked = fork();
    setns(own, CloneFlags::CLONE_NEWPID)?;
    forked
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .expect("a temporary file can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}

fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
