//! The encrypted association with a peer: the Noise handshake, the keys it yields, their
//! rotation, and the replay window.
//!
//! Handshake messages travel inside the QUIC control stream, so they are reliable and ordered;
//! their pre-shared key is taken from that connection's TLS exporter, which makes the data keys
//! hybrid post-quantum too. Data frames use the raw split of the handshake with an AEAD of
//! `aws-lc-rs`. Either side may start a handshake at any time: every pair of keys stays good for
//! receiving until it is pushed out, and sending uses the newest pair that the peer is known to
//! have ([`Sessions::install`]).
//!
//! Not here: which path a frame takes and what a packet means (`plane`), and who begins the next
//! handshake once [`Sessions::wants_rotation`] says so (the control loop).

mod keys;
mod noise;
mod replay;
mod sessions;
#[cfg(test)]
mod tests;

pub use keys::{MAX_FRAME_OVERHEAD, Suite};
pub use noise::{HandshakeFailed, Initiator, Local, Remote, SessionKeys, respond};
pub(crate) use replay::Window;
pub use sessions::{OpenFailed, Opened, Received, Sealer, SentAt, Sessions};
