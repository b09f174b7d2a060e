//! Which anchors hold which network, as this anchor sees it: the judgement of every advertised
//! network, the groups that remain, and the longest-prefix lookup of the data thread. The control
//! loop builds a [`Routes`] whenever an accepted fact has changed and hands it over as an
//! immutable snapshot. Whether a holder is answering is not known here; the plane filters
//! groups by that.
//!
//! A claim is judged by its network first (too wide, reserved, public), then by its maker's grant,
//! then by what is connected here ([`Why`] keeps that order). A refused claim takes no part in
//! lookups, so that nobody can take addresses out of a group by claiming what they may not.
//! Anchors that may not exchange data with this one contribute nothing, not even a refused row.

mod build;
mod claims;
mod ipv4;
mod name;
mod ranges;
mod sources;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use conflux_proto::id::AnchorKey;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::joint::JointPrefixMap;

pub use build::build;
pub use claims::{Claimant, Standing};
pub use ipv4::{
    ClientRangeRefused, DEFAULT_CLIENT_RANGE, Ipv4Choice, Ipv4Refused, check_client_range,
    check_ipv4,
};
pub use name::{NetworkName, spelled_network};
pub use ranges::{fault, is_public, reserved_range};

use crate::ids::PeerIx;
use sources::Sources;

/// The address every client machine has as its source on the wire (RFC 7335).
pub const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);

/// Something an anchor advertises, and whether its credential grants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim<N> {
    /// The address or network.
    pub network: N,
    /// The anchor's credential allows the claim.
    pub granted: bool,
}

/// What this anchor knows of another, from its advert and credential.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerFacts {
    /// Its number in this process.
    pub peer: PeerIx,
    /// Its identity.
    pub key: AnchorKey,
    /// Its overlay address.
    pub overlay: Ipv6Addr,
    /// Its own IPv4 address.
    pub ipv4: Option<Claim<Ipv4Addr>>,
    /// The subnets behind it.
    pub networks: Vec<Claim<IpNet>>,
    /// Its taints and ours allow data between us.
    pub may_exchange: bool,
    /// It asks for no new flows.
    pub draining: bool,
}

/// What this anchor knows of itself and its machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnFacts {
    /// Its identity.
    pub key: AnchorKey,
    /// Its overlay address; the first 48 bits are those of every anchor of the realm.
    pub overlay: Ipv6Addr,
    /// Its own IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The address is in this anchor's advert.
    pub ipv4_advertised: bool,
    /// The subnets behind it.
    pub networks: Vec<IpNet>,
    /// What is connected to this machine on other interfaces than ours.
    pub local_networks: Vec<IpNet>,
    /// Where clients get their addresses from.
    pub client_range: Ipv4Net,
}

/// Why a network is not used as it was advertised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Why {
    /// Wider than /8, or than /32 in IPv6.
    TooWide,
    /// It meets a range with a meaning of its own.
    ReservedRange,
    /// It is IPv4 that belongs to somebody on the Internet.
    PublicAddress,
    /// The credential of its advertiser does not allow it.
    NotGranted,
    /// It is equal to or inside of a network connected to this machine.
    OverlapsLocal(IpNet),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooWide => f.pad("too wide"),
            Self::ReservedRange => f.pad("reserved range"),
            Self::PublicAddress => f.pad("public address"),
            Self::NotGranted => f.pad("not granted"),
            Self::OverlapsLocal(network) => f.pad(&format!("overlaps local network {network}")),
        }
    }
}

/// What became of a network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Its holders are reached through the overlay.
    Accepted,
    /// This anchor answers itself.
    Served,
    /// Nobody who advertises it is believed.
    Refused,
    /// It is this machine's own, and others are not told.
    Unadvertised,
}

impl State {
    /// Returns the word shown in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Served => "served",
            Self::Refused => "refused",
            Self::Unadvertised => "unadvertised",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One row of `conflux routes`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The network, without host bits; [`NetworkName`] shows it.
    pub network: IpNet,
    /// Every accepted advertiser, sorted by anchor id; empty when this anchor answers itself.
    pub via: Vec<AnchorKey>,
    /// What became of it.
    pub state: State,
    /// Why it was refused or is unadvertised.
    pub why: Option<Why>,
}

/// The accepted advertisers of one network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The network, without host bits.
    pub network: IpNet,
    /// Its holders, sorted by anchor id; never empty.
    pub holders: Vec<PeerIx>,
}

/// Where a destination lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route<'a> {
    /// This anchor serves it itself.
    Local,
    /// One of these holds it.
    Group(&'a Group),
    /// It was advertised, but nobody who did is believed.
    Refused(Why),
}

/// What a destination's longest match leads to.
#[derive(Clone, Copy, Debug)]
enum Target {
    Local,
    /// A place in [`Routes::groups`].
    Group(usize),
    /// The client range: its addresses are given out here and belong to no group.
    Clients,
}

/// A peer and what came of its claims.
#[derive(Debug)]
struct Known {
    facts: PeerFacts,
    /// The networks whose holder it is; sorted once built.
    held: Vec<IpNet>,
    /// The claims that were not believed.
    refused: Vec<(IpNet, Why)>,
    /// The networks its packets may come from, its overlay address and [`CLIENT_ADDRESS`] aside.
    sources: Sources,
}

/// An immutable snapshot of all routes.
#[derive(Debug)]
pub struct Routes {
    /// Every network that leads somewhere.
    targets: JointPrefixMap<IpNet, Target>,
    /// The networks that were refused.
    refusals: JointPrefixMap<IpNet, Why>,
    /// The groups of networks, in the order of the rows.
    groups: Vec<Group>,
    /// One group for each peer with whom data may be exchanged, sorted by overlay address.
    overlays: Vec<(Ipv6Addr, Group)>,
    rows: Vec<Row>,
    /// Sorted by number.
    peers: Vec<Known>,
    /// Places in `peers` by number.
    numbers: Vec<u32>,
    own_overlay: Ipv6Addr,
    realm: Ipv6Net,
    /// The networks this anchor serves, its overlay address aside.
    served: Vec<IpNet>,
    /// Some peer with whom data may be exchanged drains.
    has_draining: bool,
}

impl Routes {
    /// Returns where `destination` lies, by longest prefix; an address in 64:ff9b:1::/96 is looked
    /// up as the IPv4 address it spells. `None` when nobody advertises it.
    pub fn lookup(&self, destination: IpAddr) -> Option<Route<'_>> {
        let destination = match destination {
            IpAddr::V4(_) => destination,
            IpAddr::V6(address) if self.realm.contains(&address) => return self.overlay(address),
            IpAddr::V6(address) => name::unspell(address).map_or(destination, IpAddr::V4),
        };
        let host = IpNet::from(destination);
        match self.targets.get_lpm(&host) {
            Some((_, Target::Local)) => Some(Route::Local),
            Some((_, &Target::Group(place))) => Some(Route::Group(&self.groups[place])),
            Some((_, Target::Clients)) => Some(Route::Refused(Why::ReservedRange)),
            None => self
                .refusals
                .get_lpm(&host)
                .map(|(_, &why)| Route::Refused(why)),
        }
    }

    /// Returns the rows of `conflux routes`, sorted numerically, IPv4 first.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the groups of accepted networks, sorted numerically; overlay addresses and networks
    /// this anchor serves itself are not among them.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the group of exactly `network`; for a /128 in the realm, its anchor alone.
    pub fn group(&self, network: IpNet) -> Option<&Group> {
        let network = network.trunc();
        if let Ok(place) = self
            .groups
            .binary_search_by_key(&network, |group| group.network)
        {
            return Some(&self.groups[place]);
        }
        let IpAddr::V6(address) = network.addr() else {
            return None;
        };
        self.overlay_group(address)
            .filter(|group| group.network == network)
    }

    /// Returns whether packets from `peer` may carry `source`: the client address, the peer's
    /// overlay address, its accepted IPv4, its accepted subnets. An IPv4 subnet that is also
    /// connected here is allowed as a source, since the source is mapped before any host sees it.
    pub fn may_send(&self, peer: PeerIx, source: IpAddr) -> bool {
        let Some(known) = self.known(peer) else {
            return false;
        };
        if !known.facts.may_exchange {
            return false;
        }
        source == IpAddr::V4(CLIENT_ADDRESS)
            || source == IpAddr::V6(known.facts.overlay)
            || known.sources.contains(source)
    }

    /// Returns whether packets from peers may go to `destination` here: the own overlay address,
    /// the own IPv4 when advertised, the own subnets.
    pub fn serves(&self, destination: IpAddr) -> bool {
        destination == IpAddr::V6(self.own_overlay)
            || self
                .served
                .iter()
                .any(|network| network.contains(&destination))
    }

    /// Returns whether `peer` is an accepted advertiser of exactly `network`, or `network` is its
    /// overlay address and data may be exchanged with it.
    pub fn holds(&self, peer: PeerIx, network: IpNet) -> bool {
        let Some(known) = self.known(peer) else {
            return false;
        };
        known.held.binary_search(&network.trunc()).is_ok()
            || known.facts.may_exchange && network == IpNet::from(IpAddr::V6(known.facts.overlay))
    }

    /// Returns whether `peer` asks for no new flows.
    pub fn is_draining(&self, peer: PeerIx) -> bool {
        self.known(peer).is_some_and(|known| known.facts.draining)
    }

    /// Returns whether any peer that could hold something for this anchor drains: cheap enough to
    /// ask for each packet.
    pub const fn has_draining(&self) -> bool {
        self.has_draining
    }

    /// Returns the facts about `peer`.
    pub fn peer(&self, peer: PeerIx) -> Option<&PeerFacts> {
        self.known(peer).map(|known| &known.facts)
    }

    /// Returns the facts about every peer, sorted by number.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = &PeerFacts> {
        self.peers.iter().map(|known| &known.facts)
    }

    fn overlay(&self, address: Ipv6Addr) -> Option<Route<'_>> {
        if address == self.own_overlay {
            return Some(Route::Local);
        }
        self.overlay_group(address).map(Route::Group)
    }

    fn overlay_group(&self, address: Ipv6Addr) -> Option<&Group> {
        let place = self
            .overlays
            .binary_search_by_key(&address, |(overlay, _)| *overlay)
            .ok()?;
        Some(&self.overlays[place].1)
    }

    fn known(&self, peer: PeerIx) -> Option<&Known> {
        let place = *self.numbers.get(peer.0 as usize)?;
        self.peers.get(place as usize)
    }
}

#[cfg(test)]
mod tests;
