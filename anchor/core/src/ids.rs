//! Small handles that modules of `core` use for things another module owns.

use std::net::IpAddr;

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
