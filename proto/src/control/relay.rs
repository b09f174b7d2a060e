//! How two anchors that a third one reaches get it to carry their datagrams.
//!
//! Each end asks the relay for the other ([`RelayAsk`]), with the index at which it wants to
//! receive. Where only one has asked, the relay tells the other ([`RelayWanted`]), which asks in
//! turn if it is willing. Then both get a [`RelayGrant`]. Asking again with the same index before
//! the lease ends makes it last longer. Who may not have one gets [`RelayRefused`].

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use super::numbered::numbered;
use crate::id::AnchorKey;

/// Bytes of [`RelayGrant::keys`]: two keys.
pub const RELAY_KEYS_BYTES: usize = 64;

/// What ends and relays tell each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Relay {
    /// To a relay: carry for me.
    Ask(RelayAsk),
    /// From a relay: somebody asks for the receiver.
    Wanted(RelayWanted),
    /// From a relay: it carries.
    Grant(RelayGrant),
    /// From a relay: it does not carry.
    Refused(RelayRefused),
}

/// To a relay: carry datagrams between the sender and this anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct RelayAsk {
    /// The other end.
    #[n(0)]
    pub far: AnchorKey,
    /// Where the sender wants to receive what the relay carries from there.
    #[n(1)]
    pub index: u32,
}

/// From a relay: this anchor has asked for the receiver of this message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct RelayWanted {
    /// Who asks.
    #[n(0)]
    pub far: AnchorKey,
}

/// From a relay: it carries datagrams between the receiver and this anchor.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct RelayGrant {
    /// The other end.
    #[n(0)]
    pub far: AnchorKey,
    /// The index of the ask that is granted.
    #[n(1)]
    pub index: u32,
    /// The index to send to.
    #[n(2)]
    pub receiver: u32,
    /// How long the lease lasts from now.
    #[n(3)]
    pub seconds: u32,
    /// The key for what is sent to the relay, and the key for what comes from it, 32 bytes each;
    /// none when only the end of a lease has moved.
    #[n(4)]
    pub keys: Option<ByteVec>,
    /// The relay's round-trip time to the other end in microseconds, where it knows it.
    #[n(5)]
    pub rtt_micros: Option<u64>,
}

/// From a relay: it will not carry datagrams to this anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct RelayRefused {
    /// The other end.
    #[n(0)]
    pub far: AnchorKey,
    /// Why.
    #[n(1)]
    pub why: RelayRefusal,
}

/// Why a relay does not carry; one of a later release is kept as its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RelayRefusal {
    /// It carries for nobody.
    Off,
    /// It has no direct path to the other end.
    NotReached,
    /// It carries as much as it may.
    Full,
    /// Known to later releases.
    Other(u32),
}

numbered!(RelayRefusal {
    Off = 1,
    NotReached = 2,
    Full = 3,
});
