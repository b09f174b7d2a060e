//! The daemon's local socket: HTTP/1.1 with JSON over a Unix socket, for the CLI and for
//! `curl --unix-socket`. This side checks who asks and what; the control loop answers
//! [`Request`]s, which it takes from a bounded channel and owes exactly one reply each.
//!
//! | request | asks | may ask |
//! |---|---|---|
//! | `GET /v1/status`, `/v1/routes`, `/v1/peers`, `/v1/flows`, `/v1/drain`, `/v1/members` | [`conflux_proto::api`] | root, group `conflux` |
//! | `GET /v1/explain?address=A[&from=HOST]` | [`conflux_proto::api::Explain`] | root, group `conflux` |
//! | `GET /v1/metrics` | Prometheus text | root, group `conflux` |
//! | `POST /v1/invite`, `/v1/revoke`, `/v1/drain`, `/v1/reload`, `/v1/shutdown` | [`conflux_proto::api`] | root |

mod access;
mod server;
mod socket;

use std::net::IpAddr;

use conflux_proto::api::{
    Drain, DrainRequest, Explain, Flows, Invite, InviteRequest, Members, Peers, Reloaded,
    RevokeRequest, Revoked, Routes, Status, Stopping,
};
use tokio::sync::oneshot;

pub(crate) use access::conflux_group;
pub use access::{Access, has_group};
pub use server::serve;
pub use socket::{LocalSocket, SocketPath};

/// Requests that wait for the control loop; more are answered "busy" at once.
pub const QUEUE_LENGTH: usize = 64;

/// Where the control loop puts its answer. Whoever asked may have hung up: a failed send is fine.
pub type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// What a client of the local socket wants of the control loop.
#[derive(Debug)]
pub enum Request {
    /// One screen about this anchor.
    Status(Reply<Status>),
    /// The networks.
    Routes(Reply<Routes>),
    /// The known anchors.
    Peers(Reply<Peers>),
    /// The flows.
    Flows(Reply<Flows>),
    /// Why a flow is where it is.
    Explain(ExplainQuery, Reply<Explain>),
    /// How far draining has come.
    Drain(Reply<Drain>),
    /// Begin or end draining.
    SetDrain(DrainRequest, Reply<Drain>),
    /// All series in Prometheus text, with HELP and TYPE.
    Metrics(Reply<String>),
    /// The credentials known here.
    Members(Reply<Members>),
    /// A ticket for other machines.
    Invite(InviteRequest, Reply<Invite>),
    /// End a membership or a ticket.
    Revoke(RevokeRequest, Reply<Revoked>),
    /// Read the configuration again and apply what changed. A refusal means that nothing was
    /// applied.
    Reload(Reply<Reloaded>),
    /// Say goodbye and stop; the reply goes out once the goodbyes were delivered or their time
    /// is over.
    Shutdown(Reply<Stopping>),
}

/// What `explain` is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExplainQuery {
    /// The destination.
    pub address: IpAddr,
    /// The client host; this machine when absent.
    pub from: Option<IpAddr>,
}

/// Why the control loop did not do what was asked: a sentence for the operator.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// What was asked for makes no sense here; asking again will not help.
    #[error("{0}")]
    Invalid(String),
    /// What was asked about is not known here.
    #[error("{0}")]
    Unknown(String),
    /// It cannot be done now.
    #[error("{0}")]
    Unavailable(String),
    /// It was tried and failed.
    #[error("{0}")]
    Failed(String),
}
