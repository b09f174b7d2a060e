//! Relays: an anchor that two others of its realm reach carries their datagrams, QUIC's and data
//! frames alike, when they cannot reach each other.
//!
//! A *lease* is the right to have datagrams carried between two anchors, for [`LEASE`]. It has two
//! *legs*, one between the relay and each end, each with two keys of its own that came by the
//! control connection. What crosses a leg has the outer header of `conflux_proto::relay`, whose tag
//! covers the header alone: what is inside protects itself end to end, and the relay can neither
//! read nor change it. The relay checks the tag, writes the other leg's header over it, and sends
//! the datagram on where it lies.
//!
//! Loops cannot be: a datagram inside an outer header has none itself, and legs run over direct
//! paths only.
//!
//! [`Links`] has the legs and is the data thread's (`plane`); [`Desk`] decides for whom this anchor
//! carries, [`Seeker`] whom it asks to carry for it, both for the control loop; [`prefer`] says when
//! one way takes over from another.

mod desk;
mod leg;
mod limit;
mod links;
mod prefer;
mod seek;

use std::time::Duration;

pub use desk::{Answer, Desk, Granted, Side};
pub use leg::{Leg, LegKeys, LegSealer, Role};
pub use limit::Limit;
pub use links::{Links, NotCarried, Passed};
pub use prefer::{Measured, prefer};
pub use seek::{Candidate, Seeker, Want};

/// How long a lease lasts unless it is asked for again: an end that is gone holds a place for two
/// minutes at most, and a pair that stays costs three small messages a minute.
pub const LEASE: Duration = Duration::from_secs(120);

/// When an end that still wants a lease asks again: one lost connection may be dialled anew before
/// the lease ends.
pub const RENEW_AFTER: Duration = Duration::from_secs(60);
