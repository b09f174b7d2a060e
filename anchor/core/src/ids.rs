//! Small handles that modules of `core` use for things another module owns.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A peer as this process numbers it: given once per anchor key, never given to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerIx(pub u32);

/// A flow's place in the flow table; reused after the flow has been removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u32);

/// The hash of a flow's key by the flow table's seed: known before the flow has been found, and
/// the same for as long as the table lives. Two flows may share one, though nobody who does not
/// know the seed can arrange for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowTag(pub u32);

/// A client host, as this anchor sees those it speaks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Host {
    /// This machine, whichever of its own addresses was used.
    Own,
    /// A host behind this machine, one of `--subnet`'s, by its LAN address.
    Behind(IpAddr),
}

/// A way to a peer through another one. Tables that know ways by a socket address know it by
/// [`Self::address`], which stays the same however often the lease behind it is renewed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Relayed {
    /// Who carries.
    pub relay: PeerIx,
    /// The peer at the other end.
    pub far: PeerIx,
}

/// `fd7f:636f:6e66:6c79::/64`, never on a wire: the upper half of the addresses of relayed ways.
const RELAYED_PREFIX: u64 = 0xfd7f_636f_6e66_6c79;

/// The port of the addresses of relayed ways.
const RELAYED_PORT: u16 = 1;

impl Relayed {
    /// Returns the address that stands for this way.
    pub fn address(self) -> SocketAddr {
        let low = u64::from(self.relay.0) << 32 | u64::from(self.far.0);
        let ip = Ipv6Addr::from(u128::from(RELAYED_PREFIX) << 64 | u128::from(low));
        SocketAddr::new(ip.into(), RELAYED_PORT)
    }

    /// Returns the way an address stands for, none for an address of the network's.
    pub fn from_address(address: &SocketAddr) -> Option<Self> {
        let IpAddr::V6(ip) = address.ip() else {
            return None;
        };
        let bits = u128::from(ip);
        let (high, low) = ((bits >> 64) as u64, bits as u64);
        (high == RELAYED_PREFIX).then_some(Self {
            relay: PeerIx((low >> 32) as u32),
            far: PeerIx(low as u32),
        })
    }
}
