//! Anchors under test: the built binary, run in a host as a user would run it, asked through its
//! command line. Everything it keeps is on the host's own `/run`, so it goes with the host; when a
//! test fails, what it knew last and the end of its log are printed.

mod answers;
mod binary;

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

pub use answers::{FlowRow, PeerRow, RouteRow};
pub use binary::{binary, next_binary};

use crate::host::{Answer, Host, HostCommand, Program};
use crate::wait;

/// A start takes a second or two; this is for a machine that builds something meanwhile.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Longer than any command may take (5 s on a stuck daemon), so that a hang is told as one.
const COMMAND_LIMIT: Duration = Duration::from_secs(8);

/// Lines of the log a failed test prints.
const LOG_TAIL: usize = 60;

/// How an anchor is to be started.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// The flags of `run`, as a user would type them.
    pub flags: Vec<String>,
    /// The ticket to join with; it is handed over in a file.
    pub join: Option<String>,
    /// A name for its directory, for a second anchor on one host.
    pub name: Option<String>,
    /// Variables of its environment.
    pub env: Vec<(String, String)>,
    /// The program to run; none: the binary under test.
    pub binary: Option<PathBuf>,
}

/// A running anchor.
pub struct Anchor {
    host: Host,
    options: Options,
    directory: String,
    program: Option<Program>,
    id: String,
    overlay: Ipv6Addr,
}

impl Options {
    /// Returns options with these flags, split at spaces.
    pub fn of(flags: &str) -> Self {
        Self {
            flags: flags.split_whitespace().map(str::to_owned).collect(),
            ..Self::default()
        }
    }

    /// Adds the ticket to join with.
    #[must_use]
    pub fn joining(mut self, ticket: &str) -> Self {
        self.join = Some(ticket.to_owned());
        self
    }

    /// Names another program to run.
    #[must_use]
    pub fn of_binary(mut self, binary: PathBuf) -> Self {
        self.binary = Some(binary);
        self
    }

    /// Adds variables to the environment.
    #[must_use]
    pub fn with_env(mut self, env: Vec<(String, String)>) -> Self {
        self.env = env;
        self
    }

    fn directory(&self) -> String {
        format!("/run/{}", self.name.as_deref().unwrap_or("anchor"))
    }
}

impl Anchor {
    /// Starts an anchor and waits until its addresses can be bound.
    ///
    /// # Panics
    ///
    /// When it does not start; with its log.
    pub fn start(host: &Host, options: &Options) -> Self {
        let mut anchor = Self {
            host: host.clone(),
            directory: options.directory(),
            options: options.clone(),
            program: None,
            id: String::new(),
            overlay: Ipv6Addr::UNSPECIFIED,
        };
        anchor.run();
        anchor
    }

    /// Starts it again after its end, with the flags of the first start.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    pub fn run(&mut self) {
        let mut command = self.command().arg("run").args(&self.options.flags);
        if let Some(ticket) = &self.options.join {
            let file = format!("{}.ticket", self.directory);
            fs::write(self.host.outside_path(&file), ticket).expect("a host's /run is writable");
            command = command.arg("--join").arg(format!("@{file}"));
        }
        for (name, value) in &self.options.env {
            command = command.env(name, value);
        }
        let program = command.spawn(&self.log_path());
        self.program = Some(program.expect("the binary can be started"));
        wait::until(
            START_LIMIT,
            &format!("{} to answer `status`", self.host.name()),
            || {
                let program = self.program.as_mut().expect("just started");
                if let Some(ended) = program.wait_within(Duration::ZERO) {
                    panic!(
                        "the anchor of {} ended: {ended}\n{}",
                        self.host.name(),
                        self.log_tail()
                    );
                }
                self.cli(["status"]).code == 0
            },
        );
        let status = self.json("status");
        self.id = answers::text(&status, "anchor");
        self.overlay = answers::text(&status, "overlay")
            .parse()
            .expect("an IPv6 address");
    }

    /// Runs one command of its command line.
    ///
    /// # Panics
    ///
    /// When the command hangs.
    pub fn cli<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> Answer {
        let args: Vec<String> = args
            .into_iter()
            .map(|arg| arg.as_ref().to_owned())
            .collect();
        self.command().args(args).answer_within(COMMAND_LIMIT)
    }

    /// Runs one command that has to succeed and returns what it printed.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn say<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let args: Vec<String> = args
            .into_iter()
            .map(|arg| arg.as_ref().to_owned())
            .collect();
        let answer = self.cli(&args);
        assert!(
            answer.code == 0,
            "`conflux {}` on {} ended with {}:\n{}{}",
            args.join(" "),
            self.host.name(),
            answer.code,
            answer.stdout,
            answer.stderr
        );
        answer.stdout
    }

    /// Returns a fresh ticket, `flags` being those of `invite`.
    pub fn invite(&self, flags: &str) -> String {
        let ticket = self.say(std::iter::once("invite").chain(flags.split_whitespace()));
        ticket.trim().to_owned()
    }

    /// Says goodbye and waits until the process has ended.
    ///
    /// # Panics
    ///
    /// When the command fails or the process stays.
    pub fn down(&mut self) -> Answer {
        let answer = self.cli(["down"]);
        assert!(answer.code == 0, "`conflux down` ended with {answer:?}");
        let mut program = self.program.take().expect("it runs");
        let ended = program.wait_within(Duration::from_secs(5));
        assert!(
            ended.is_some(),
            "the anchor of {} is still there after `down`",
            self.host.name()
        );
        answer
    }

    /// Kills it, as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut program) = self.program.take() {
            program.kill();
        }
    }

    /// Sends its process a signal.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn signal(&self, signal: Signal) {
        self.program.as_ref().expect("it runs").signal(signal);
    }

    /// Waits for its process to end by itself; its exit code.
    pub fn ended_within(&mut self, limit: Duration) -> Option<i32> {
        let status = self.program.as_mut()?.wait_within(limit)?;
        self.program = None;
        status.code()
    }

    /// Waits for a signal to end its process; whether that dumped core.
    pub fn ended_by_signal_within(&mut self, limit: Duration) -> Option<bool> {
        use std::os::unix::process::ExitStatusExt;

        let status = self.program.as_mut()?.wait_within(limit)?;
        self.program = None;
        status.signal().map(|_| status.core_dumped())
    }

    /// Returns the number of its process, as the machine that runs the tests sees it.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn pid(&self) -> nix::unistd::Pid {
        self.program.as_ref().expect("it runs").pid()
    }

    /// Returns the resident memory of its process in bytes.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn resident_bytes(&self) -> u64 {
        let pid = self.pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        kilobytes
            .and_then(|text| text.parse::<u64>().ok())
            .expect("Linux tells VmRSS")
            * 1024
    }

    /// Returns how many descriptors its process has open.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn descriptors(&self) -> usize {
        let pid = self.program.as_ref().expect("it runs").pid();
        fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("it runs")
            .count()
    }

    /// Returns its full id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns its overlay address.
    pub fn overlay(&self) -> Ipv6Addr {
        self.overlay
    }

    /// Returns the host it runs on.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns whether its process runs.
    pub fn is_running(&self) -> bool {
        self.program.is_some()
    }

    /// Returns the directory given with `--dir`, as the host sees it.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Returns all of its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Returns a command line of this anchor without a verb.
    pub fn command(&self) -> HostCommand {
        self.command_of(&self.options.binary.clone().unwrap_or_else(binary))
    }

    /// As [`Self::command`], with the command line of another binary.
    pub fn command_of(&self, binary: &Path) -> HostCommand {
        self.host
            .command(binary)
            .env("CONFLUX_DIR", &self.directory)
            .env("RUST_BACKTRACE", "1")
    }

    fn log_path(&self) -> PathBuf {
        self.host.outside_path(&format!("{}.log", self.directory))
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
    }
}

impl Drop for Anchor {
    #[expect(
        clippy::print_stderr,
        reason = "a failed test tells what its anchors knew"
    )]
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        eprintln!("\n===== anchor of {} ({})", self.host.name(), self.id);
        if self.is_running() {
            for table in ["status", "routes", "peers", "flows"] {
                let answer = self.command().arg(table).answer_within(COMMAND_LIMIT);
                eprintln!(
                    "--- {table} ({})\n{}{}",
                    answer.code, answer.stdout, answer.stderr
                );
            }
        }
        eprintln!("--- the end of its log\n{}", self.log_tail());
    }
}
