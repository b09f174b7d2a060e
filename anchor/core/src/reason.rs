//! The closed list of reasons why a flow is on its holder: one list for flows, logs, metrics and
//! flow records (SPEC section 10).

use std::fmt;

/// Why a flow's holder was chosen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The flow is new and was drawn among several holders.
    New,
    /// The flow was idle for 15 minutes and was drawn again.
    Idle,
    /// Its holder said goodbye, no longer advertises the network, or drains and the flow had come
    /// to rest.
    Left,
    /// Its holder failed for this client.
    Failed,
    /// Its holder and this anchor may no longer exchange data.
    Taint,
    /// There was one holder to choose from.
    Single,
}

impl Reason {
    /// Every reason, in the order of metrics and docs.
    pub const ALL: [Self; 6] = [
        Self::New,
        Self::Idle,
        Self::Left,
        Self::Failed,
        Self::Taint,
        Self::Single,
    ];

    /// Returns the reason to note when a draw for this reason had `candidates` to choose from:
    /// [`Reason::Single`] instead of `New` or `Idle` when there was one; a move keeps its cause.
    #[must_use]
    pub const fn among(self, candidates: usize) -> Self {
        match self {
            Self::New | Self::Idle if candidates == 1 => Self::Single,
            Self::New | Self::Idle | Self::Left | Self::Failed | Self::Taint | Self::Single => self,
        }
    }

    /// Returns the word that flows, logs, metrics and records show.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Idle => "idle",
            Self::Left => "left",
            Self::Failed => "failed",
            Self::Taint => "taint",
            Self::Single => "single",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
