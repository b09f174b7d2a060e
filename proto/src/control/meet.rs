//! How anchors help each other to find direct paths: each tells the others how it sees them, and
//! two that a relay brings together try each other's addresses at one moment.

use std::net::SocketAddr;

use minicbor::{Decode, Encode};

/// What anchors tell each other about addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Meet {
    /// Where the receiver is, as the sender sees it.
    Seen(Seen),
    /// The receiver's addresses are being tried.
    Try(Try),
}

/// To a peer that is reached directly: its address as seen from here. Told when the connection
/// stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Seen {
    /// Its address and port.
    #[n(0)]
    pub address: SocketAddr,
}

/// To a peer that a relay reaches: probes to its addresses leave now, and the same is asked of it.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Try {
    /// Where the sender may be reached, best first; the receiver tries a few of them.
    #[n(0)]
    pub candidates: Vec<SocketAddr>,
}
