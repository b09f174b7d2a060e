//! Where log lines go and how they look: stderr or the journal, or a rotated file for a daemon
//! that no service manager runs. What is logged at which level is each module's business; lines
//! that a remote can cause go through a [`RateLimit`].

mod limit;
mod rotate;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::reload;
use tracing_subscriber::{Registry, fmt};

use crate::files::settings::{LogFormat, LogLevel};

pub use limit::RateLimit;
pub(crate) use rotate::open_append;
pub use rotate::{KEPT_FILES, MAX_LOG_BYTES, RotatingFile, log_files};

/// Our own crates log at the chosen level, libraries only what an operator should look at.
const OWN_CRATES: [&str; 4] = ["conflux", "conflux_anchor", "conflux_core", "conflux_proto"];

static LEVEL: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Where lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Standard error, which a service manager hands to its journal.
    Stderr,
    /// A file of our own, rotated.
    File(PathBuf),
}

/// Starts logging. To be called once, before anything is logged.
///
/// # Errors
///
/// When the file cannot be opened, or logging runs already.
pub fn start(level: LogLevel, format: LogFormat, target: &Target) -> io::Result<()> {
    let (writer, colour) = match target {
        Target::Stderr => (BoxMakeWriter::new(io::stderr), io::stderr().is_terminal()),
        Target::File(path) => (
            BoxMakeWriter::new(Mutex::new(RotatingFile::open(path)?)),
            false,
        ),
    };
    let lines = fmt::layer()
        .with_ansi(colour)
        .with_target(false)
        .with_writer(writer);
    // The journal writes the time of each line itself.
    let in_journal = *target == Target::Stderr && std::env::var_os("JOURNAL_STREAM").is_some();
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text if in_journal => lines.without_time().boxed(),
        LogFormat::Text => lines.boxed(),
    };
    let (filter, handle) = reload::Layer::new(filter(level));
    let subscriber = Registry::default().with(lines.with_filter(filter));
    tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)?;
    // The subscriber could be set only once, so this is the first time here too.
    let _ = LEVEL.set(handle);
    Ok(())
}

/// Changes the level of a running daemon; without logging there is nothing to change.
pub fn set_level(level: LogLevel) {
    if let Some(handle) = LEVEL.get()
        && let Err(error) = handle.reload(filter(level))
    {
        tracing::warn!(%error, "the log level cannot be changed");
    }
}

fn filter(level: LogLevel) -> Targets {
    let own = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(own.min(LevelFilter::WARN))
        .with_targets(OWN_CRATES.map(|name| (name, own)))
}
