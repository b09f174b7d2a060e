//! What a holder says of itself when it steps back: draining by the operator's wish, withdrawn by
//! its own check.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The body of `POST /v1/drain`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DrainRequest {
    /// [`super::VERSION`].
    pub version: u32,
    /// True: take no new flows; false: take them again.
    pub draining: bool,
}

/// The answer to `GET` and `POST /v1/drain`, and a part of [`super::Status`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Drain {
    /// [`super::VERSION`].
    pub version: u32,
    /// Whether this anchor drains.
    pub draining: bool,
    /// Seconds since it was told to, across restarts.
    pub since_seconds: u64,
    /// Whether nothing rests here any more: it can be stopped and nobody notices.
    pub empty: bool,
    /// Flows that rest here still, as far as clients have told.
    pub flows: u64,
    /// The clients it waits for, sorted by anchor id.
    pub waits_for: Vec<DrainWait>,
}

/// A client that a draining anchor waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DrainWait {
    /// Full id.
    pub anchor: String,
    /// How many of its flows rest here; absent when it has not told, as one of an older release
    /// never does: it is waited for until it has been silent for 15 minutes.
    pub flows: Option<u64>,
}

/// The check of this anchor's own service, a part of [`super::Status`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// As it was configured.
    pub spec: String,
    /// What it has come to.
    pub state: CheckState,
    /// Whether others are not told of the shared address because of it.
    pub withdrawn: bool,
    /// Seconds since the state last changed.
    pub since_seconds: u64,
    /// Runs that failed since this anchor started.
    pub failures: u64,
    /// Why the last run failed; absent after one that did not.
    pub last_error: Option<String>,
}

/// What a check has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    /// It has not succeeded yet since this anchor started.
    Starting,
    /// The service answers.
    Passing,
    /// The service fails it.
    Failing,
    /// There is no shared address to withdraw, so it is not run.
    Idle,
    /// A value of a newer daemon.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for CheckState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Starting => "starting",
            Self::Passing => "passing",
            Self::Failing => "failing",
            Self::Idle => "idle",
            Self::Unknown => "unknown",
        })
    }
}
