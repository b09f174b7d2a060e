//! How a command ends: the exit codes of `docs/operating.md`, and the errors that carry them.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use conflux_anchor::files::{ConfigError, StateError};

/// The class of a failure, which is what scripts see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// It was tried and did not work.
    Failed,
    /// It was asked for wrongly; nothing was written.
    Usage,
    /// Only root may do this.
    NeedsRoot,
    /// There is no daemon to ask.
    NotRunning,
    /// There is no configuration, or none that can be read.
    NotConfigured,
}

/// A failure with its class.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Exit {
    /// Returns a failure of this class with a message.
    pub(crate) fn because(self, message: impl fmt::Display) -> Failure {
        Failure {
            exit: self,
            error: anyhow::anyhow!("{message}"),
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NeedsRoot => 13,
            Self::NotRunning => 69,
            Self::NotConfigured => 78,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self {
            exit: Exit::Failed,
            error,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self {
            exit: Exit::Failed,
            error: error.into(),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let exit = match &error {
            ConfigError::Missing { .. }
            | ConfigError::Newer { .. }
            | ConfigError::Writable { .. }
            | ConfigError::Faulty { .. } => Exit::NotConfigured,
            ConfigError::Io { source, .. } => of_io(source),
        };
        Self {
            exit,
            error: error.into(),
        }
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        let exit = match &error {
            StateError::Io { source, .. } => of_io(source),
            StateError::Foreign { .. }
            | StateError::Locked { .. }
            | StateError::Newer { .. }
            | StateError::Damaged { .. } => Exit::Failed,
        };
        Self {
            exit,
            error: error.into(),
        }
    }
}

/// Writes an answer to stdout. A reader that has gone (`| head -1`) is no failure.
pub(crate) fn answer(text: &str) -> Outcome {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Tells the operator something that is not the answer.
#[expect(
    clippy::print_stderr,
    reason = "this is where the command line speaks besides answers"
)]
pub(crate) fn note(text: impl fmt::Display) {
    eprintln!("{text}");
}

fn of_io(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::PermissionDenied {
        Exit::NeedsRoot
    } else {
        Exit::Failed
    }
}
