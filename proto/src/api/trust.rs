//! Members, tickets and revocations, as the local socket tells of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The answer to `GET /v1/members`: anchors first, then tickets, each sorted by id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Members {
    /// [`VERSION`](super::VERSION).
    pub version: u32,
    /// As in [`Status::id_letters`](super::Status::id_letters), tickets counted too.
    pub id_letters: usize,
    /// One row per credential known here, this anchor's own included.
    pub members: Vec<MemberRow>,
}

/// One credential in [`Members`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberRow {
    /// An anchor's or a ticket's.
    pub kind: MemberKind,
    /// The anchor's full id, or the ticket's.
    pub id: String,
    /// Whether this is the anchor that answers.
    pub own: bool,
    /// The taints granted, sorted; empty for a revoked one of which no more is known.
    pub taints: Vec<String>,
    /// What may be advertised: `any`, `none`, or parts joined by commas.
    pub advertise: Option<String>,
    /// Whether it may invite, renew and revoke, or lets those who join do so.
    pub issuer: bool,
    /// The full id of the anchor that granted it; absent for the realm key.
    pub issued_by: Option<String>,
    /// The ticket an anchor joined by.
    pub ticket: Option<String>,
    /// When the membership, or the joining, ends, in seconds since 1970.
    pub valid_until_unix: Option<u64>,
    /// Whether it holds.
    pub state: MemberState,
}

/// Whose credential it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberKind {
    /// An anchor.
    Anchor,
    /// A ticket, for whoever holds it.
    Ticket,
    /// A value of a newer daemon.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for MemberKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Anchor => "anchor",
            Self::Ticket => "ticket",
            Self::Unknown => "unknown",
        })
    }
}

/// Whether a credential holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberState {
    /// It does.
    Valid,
    /// It does, and is due for renewal by the next issuer met.
    Ending,
    /// It has ended.
    Expired,
    /// It was revoked.
    Revoked,
    /// A value of a newer daemon.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Valid => "valid",
            Self::Ending => "ending",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Unknown => "unknown",
        })
    }
}

/// The body of `POST /v1/revoke`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RevokeRequest {
    /// [`VERSION`](super::VERSION).
    pub version: u32,
    /// An anchor's or a ticket's id, whole or enough of its beginning to name it alone, or a
    /// ticket's text.
    pub target: String,
    /// Whether those who joined by the ticket, or whom the anchor let in, go too.
    #[serde(default)]
    pub with_anchors: bool,
}

/// The answer to `POST /v1/revoke`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Revoked {
    /// [`VERSION`](super::VERSION).
    pub version: u32,
    /// What was revoked.
    pub kind: MemberKind,
    /// Its full id.
    pub id: String,
    /// Full ids of the known anchors that are out by it.
    pub anchors: Vec<String>,
    /// How many connected anchors were told at once; they pass it on.
    pub told: usize,
    /// What the operator should know, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
}
