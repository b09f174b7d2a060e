//! Made-up addresses: what QUIC takes for the address of a peer.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::ids::PeerIx;

/// `fd7f:636f:6e66:6c78::/64`, never on a wire: the upper half of every made-up address.
const MADE_UP_PREFIX: u64 = 0xfd7f_636f_6e66_6c78;

/// The port of every made-up address.
const MADE_UP_PORT: u16 = 1;

/// Set in the lower half of made-up addresses of dialled addresses, clear in those of peers.
const UNKNOWN_BIT: u64 = 1 << 32;

/// A dialled address whose owner was not known when the dial began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct UnknownIx(pub(super) u32);

/// What a made-up address stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Name {
    Peer(PeerIx),
    Unknown(UnknownIx),
}

/// Returns whether `address` is one of ours that no wire may carry.
pub fn is_made_up(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V6(ip) => (u128::from(ip) >> 64) as u64 == MADE_UP_PREFIX,
        IpAddr::V4(_) => false,
    }
}

pub(super) fn made_up(name: Name) -> SocketAddr {
    let low = match name {
        Name::Peer(peer) => u64::from(peer.0),
        Name::Unknown(index) => UNKNOWN_BIT | u64::from(index.0),
    };
    let ip = Ipv6Addr::from((u128::from(MADE_UP_PREFIX) << 64) | u128::from(low));
    SocketAddr::new(ip.into(), MADE_UP_PORT)
}

pub(super) fn name_of(address: SocketAddr) -> Option<Name> {
    let IpAddr::V6(ip) = address.ip() else {
        return None;
    };
    if !is_made_up(address) {
        return None;
    }
    let low = u128::from(ip) as u64;
    let index = low as u32;
    Some(if low & UNKNOWN_BIT == 0 {
        Name::Peer(PeerIx(index))
    } else {
        Name::Unknown(UnknownIx(index))
    })
}
