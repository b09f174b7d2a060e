//! Where peers are: which real addresses stand behind the made-up address by which QUIC knows a
//! peer, so that a path may change beneath a connection. Not for data packets (the data thread has
//! its own copy of a path), nor whom to dial. Driven by the QUIC socket and the control loop.
//!
//! The law:
//! - A peer has at most one *current* way: the one over which it last authenticated itself.
//!   Everything for its made-up address goes there.
//! - A real address belongs to one owner: the peer confirmed there, else the one being dialled
//!   there. An authenticated owner ends a dialled one and a former authenticated one.
//! - While a peer is dialled and has no current way, packets for it go to all its candidates,
//!   until one of them is heard from; then to that one only, for [`ANSWER_HOLDS`] at a time, so
//!   that the far end sees one source. A dial takes only candidates nobody else owns and from
//!   which no stranger was heard lately: the peer may be dialling us, under the name it has.
//! - An address at which another than the peer has answered is left out of its dials for
//!   [`SHUN_FOR`], while it has others.
//! - A source without an owner stays itself. The far end of such a connection moves to its
//!   made-up address (a QUIC migration) once it is confirmed.
//! - A source that loses its owner while packets come from it keeps its name until they cease:
//!   QUIC drops what it is sent in the middle of a handshake under another one.
//! - An address dialled without knowing whose it is (a ticket's) has a made-up address of its
//!   own, which becomes one more name of the peer that turns out to live there.

mod dial;
mod heard;
mod moved;
mod names;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use smallvec::SmallVec;
use thiserror::Error;

use crate::ids::PeerIx;
use crate::table::{self, Map};
use crate::time::Mono;
pub use dial::{ANSWER_HOLDS, SHUN_FOR};
use dial::{Dial, Shunned};
use heard::Heard;
pub use names::is_made_up;
use names::{Name, UnknownIx, made_up, name_of};

/// Candidates kept for one peer; the rest of a longer list is ignored. Each costs one copy of
/// the first flight of a dial, and hosts rarely have more addresses that differ in reach.
pub const MAX_CANDIDATES: usize = 8;

/// Addresses dialled at once without knowing whose they are; a ticket names a handful.
pub const MAX_UNKNOWN_DIALS: usize = 64;

/// Peers known at once; the realms simulated hold 10,000 anchors.
pub const MAX_PEERS: usize = 65_536;

/// One way to a peer: its address, and the local one that is its counterpart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Way {
    /// The peer's real address.
    pub remote: SocketAddr,
    /// The local address its packets arrive at, to be kept as source; the kernel's choice if none.
    pub local: Option<IpAddr>,
}

impl Way {
    /// Returns the way to an address whose local end the kernel chooses.
    pub const fn to(remote: SocketAddr) -> Self {
        Self {
            remote,
            local: None,
        }
    }
}

/// Ways a packet is to be sent by.
pub type Ways = SmallVec<[Way; MAX_CANDIDATES]>;

/// Why a dial cannot start. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CannotDial {
    /// No candidate is known.
    #[error("none of its addresses is known")]
    NoCandidates,
    /// Other peers are connected or being dialled at all the candidates; try later.
    #[error("another anchor is connected or being dialled at each of its addresses")]
    Taken,
    /// The address cannot be anybody's.
    #[error("not an address that can be dialled")]
    Unusable,
    /// A dial is under way, or a table is full.
    #[error("too many dials are under way")]
    TooMany,
}

/// The table of ways. Limits: [`MAX_PEERS`], [`MAX_CANDIDATES`] each, [`MAX_UNKNOWN_DIALS`];
/// sources without an owner leave no trace.
pub struct Paths {
    peers: Map<PeerIx, Peer>,
    unknown: Map<UnknownIx, Unknown>,
    owners: Map<SocketAddr, Owner>,
    heard: Heard,
    next_unknown: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Confirmed(PeerIx),
    Dialled(PeerIx),
    Unknown(UnknownIx),
}

#[derive(Default)]
struct Peer {
    candidates: SmallVec<[SocketAddr; MAX_CANDIDATES]>,
    current: Option<Way>,
    /// The way used last, for the farewell of a connection that lost its way.
    last: Option<Way>,
    dial: Option<Dial>,
    shunned: Shunned,
    /// The further name under which QUIC dialled this peer, while that connection lives.
    alias: Option<UnknownIx>,
}

struct Unknown {
    remote: SocketAddr,
    heard: Option<Way>,
    peer: Option<PeerIx>,
}

impl Paths {
    /// Returns an empty table.
    pub fn new(seed: u64) -> Self {
        Self {
            peers: table::map(seed),
            unknown: table::map(seed ^ 1),
            owners: table::map(seed ^ 2),
            heard: Heard::new(seed ^ 3),
            next_unknown: 0,
        }
    }

    /// Replaces the addresses at which `peer` may be dialled, best first. Unusable ones are left
    /// out, as are those past [`MAX_CANDIDATES`]; a dial under way keeps those it began with.
    pub fn set_candidates(&mut self, peer: PeerIx, candidates: &[SocketAddr]) {
        let mut kept = SmallVec::new();
        for candidate in candidates.iter().copied().map(canonical).filter(is_usable) {
            if kept.len() < MAX_CANDIDATES && !kept.contains(&candidate) {
                kept.push(candidate);
            }
        }
        if let Some(peer) = self.entry(peer) {
            peer.candidates = kept;
        }
    }

    /// Returns the made-up address to dial `peer` at, and sends what is meant for it to its
    /// candidates until [`Self::end_dial`] or [`Self::confirm`]. A peer with a current way is
    /// dialled there.
    ///
    /// # Errors
    /// See [`CannotDial`].
    pub fn start_dial(&mut self, now: Mono, peer: PeerIx) -> Result<SocketAddr, CannotDial> {
        let entry = self.peers.get(&peer).ok_or(CannotDial::NoCandidates)?;
        if entry.dial.is_some() {
            return Err(CannotDial::TooMany);
        }
        if entry.current.is_some() {
            return Ok(made_up(Name::Peer(peer)));
        }
        if entry.candidates.is_empty() {
            return Err(CannotDial::NoCandidates);
        }
        let mut remotes: SmallVec<[SocketAddr; MAX_CANDIDATES]> = entry
            .candidates
            .iter()
            .copied()
            .filter(|at| self.is_free(now, at))
            .collect();
        entry.shunned.leave_out(now, &mut remotes);
        if remotes.is_empty() {
            return Err(CannotDial::Taken);
        }
        for remote in &remotes {
            self.owners.insert(*remote, Owner::Dialled(peer));
        }
        if let Some(entry) = self.peers.get_mut(&peer) {
            entry.dial = Some(Dial {
                remotes,
                heard: None,
            });
        }
        Ok(made_up(Name::Peer(peer)))
    }

    /// Adds an address to a dial under way that has reached nobody yet, if it is free and there is
    /// room: a way by a relay that has been found meanwhile.
    pub fn widen_dial(&mut self, now: Mono, peer: PeerIx, remote: SocketAddr) {
        if !is_usable(&remote) || !self.is_free(now, &remote) {
            return;
        }
        let Some(entry) = self
            .peers
            .get_mut(&peer)
            .filter(|entry| entry.current.is_none())
        else {
            return;
        };
        if let Some(dial) = &mut entry.dial
            && dial.remotes.len() < MAX_CANDIDATES
        {
            dial.remotes.push(remote);
            self.owners.insert(remote, Owner::Dialled(peer));
        }
    }

    /// Ends a dial, whatever came of it. What was meant for the candidates goes nowhere, or to
    /// the way that has been confirmed meanwhile.
    pub fn end_dial(&mut self, peer: PeerIx) {
        let Some(dial) = self
            .peers
            .get_mut(&peer)
            .and_then(|entry| entry.dial.take())
        else {
            return;
        };
        for remote in dial.remotes {
            self.disown(remote, Owner::Dialled(peer));
        }
    }

    /// Returns a made-up address to dial `remote` at, to be given back by [`Self::release`] when
    /// the connection is over.
    ///
    /// # Errors
    /// See [`CannotDial`].
    pub fn start_unknown_dial(&mut self, remote: SocketAddr) -> Result<SocketAddr, CannotDial> {
        let remote = canonical(remote);
        if !is_usable(&remote) {
            return Err(CannotDial::Unusable);
        }
        if self.owners.contains_key(&remote) {
            return Err(CannotDial::Taken);
        }
        if self.unknown.len() >= MAX_UNKNOWN_DIALS {
            return Err(CannotDial::TooMany);
        }
        let index = UnknownIx(self.next_unknown);
        self.next_unknown = self.next_unknown.wrapping_add(1);
        self.owners.insert(remote, Owner::Unknown(index));
        self.unknown.insert(
            index,
            Unknown {
                remote,
                heard: None,
                peer: None,
            },
        );
        Ok(made_up(Name::Unknown(index)))
    }

    /// Tells that the far end of a connection dialled by [`Self::start_unknown_dial`] is `peer`:
    /// its way is confirmed, and `address` is one more name of the peer from now on.
    pub fn adopt(&mut self, address: SocketAddr, peer: PeerIx) {
        let Some(Name::Unknown(index)) = name_of(address) else {
            return;
        };
        let Some(unknown) = self.unknown.get_mut(&index) else {
            return;
        };
        let lent_to = unknown.peer.replace(peer);
        let way = unknown.heard.unwrap_or(Way {
            remote: unknown.remote,
            local: None,
        });
        if let Some(other) = lent_to {
            self.take_alias(other, index);
        }
        self.confirm(peer, way);
        if let Some(entry) = self.peers.get_mut(&peer) {
            entry.alias = Some(index);
        }
    }

    /// Gives a made-up address of [`Self::start_unknown_dial`] back; others do nothing.
    pub fn release(&mut self, address: SocketAddr) {
        let Some(Name::Unknown(index)) = name_of(address) else {
            return;
        };
        let Some(gone) = self.unknown.remove(&index) else {
            return;
        };
        self.disown(gone.remote, Owner::Unknown(index));
        if let Some(peer) = gone.peer {
            self.take_alias(peer, index);
        }
    }

    /// Makes `way` the current way of `peer`, which has authenticated itself there. Whoever
    /// owned the address loses it.
    pub fn confirm(&mut self, peer: PeerIx, way: Way) {
        let way = Way {
            remote: canonical(way.remote),
            ..way
        };
        if !is_usable(&way.remote) || self.entry(peer).is_none() {
            return;
        }
        self.demote(peer);
        let former = self.owners.insert(way.remote, Owner::Confirmed(peer));
        match former {
            Some(Owner::Confirmed(other)) => self.lose_current(other),
            Some(Owner::Dialled(other)) => self.lose_candidate(other, way.remote),
            Some(Owner::Unknown(index)) => self.lend_alias(index, peer),
            None => {}
        }
        if let Some(entry) = self.peers.get_mut(&peer) {
            entry.current = Some(way);
            entry.last = Some(way);
        }
    }

    /// Moves a peer that has a current way to `way`, where an authenticated packet came from.
    /// Returns whether anything changed.
    pub fn roam(&mut self, peer: PeerIx, way: Way) -> bool {
        match self.current(peer) {
            Some(current) if current != way => {
                self.confirm(peer, way);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Takes the current way from a peer whose last connection has ended, so that the next dial
    /// tries every candidate.
    pub fn demote(&mut self, peer: PeerIx) {
        let Some(way) = self
            .peers
            .get_mut(&peer)
            .and_then(|entry| entry.current.take())
        else {
            return;
        };
        self.disown(way.remote, Owner::Confirmed(peer));
    }

    /// Drops all that is known of `peer`.
    pub fn forget(&mut self, peer: PeerIx) {
        self.demote(peer);
        self.end_dial(peer);
        self.peers.remove(&peer);
    }

    /// Returns the address QUIC is to see as the source of a packet, none if the packet must be
    /// dropped because its source pretends to be made up.
    pub fn handle_inbound(&mut self, now: Mono, way: Way) -> Option<SocketAddr> {
        let way = Way {
            remote: canonical(way.remote),
            ..way
        };
        if is_made_up(way.remote) {
            return None;
        }
        let name = match self.owners.get(&way.remote).copied() {
            None => {
                let name = self.former_name(now, way);
                self.heard.note(now, &way.remote, name);
                return Some(name.map_or(way.remote, made_up));
            }
            Some(Owner::Confirmed(peer)) => {
                let entry = self.peers.get_mut(&peer)?;
                entry.current = Some(way);
                entry.name(peer)
            }
            Some(Owner::Dialled(peer)) => {
                let entry = self.peers.get_mut(&peer)?;
                if let Some(dial) = &mut entry.dial {
                    dial.hear(now, way);
                }
                entry.name(peer)
            }
            Some(Owner::Unknown(index)) => {
                self.unknown.get_mut(&index)?.heard = Some(way);
                Name::Unknown(index)
            }
        };
        self.heard.note(now, &way.remote, Some(name));
        Some(made_up(name))
    }

    /// Returns by which ways a packet of QUIC for `to` goes: none drops it, several mean one
    /// copy each. A real address stands for itself.
    pub fn ways(&self, now: Mono, to: SocketAddr) -> Ways {
        let peer = match name_of(to) {
            None => {
                return SmallVec::from_iter([Way {
                    remote: to,
                    local: None,
                }]);
            }
            Some(Name::Peer(peer)) => peer,
            Some(Name::Unknown(index)) => match self.unknown.get(&index) {
                None => return SmallVec::new(),
                Some(Unknown {
                    peer: Some(peer), ..
                }) => *peer,
                Some(Unknown { remote, heard, .. }) => {
                    return SmallVec::from_iter([heard.unwrap_or(Way {
                        remote: *remote,
                        local: None,
                    })]);
                }
            },
        };
        let Some(entry) = self.peers.get(&peer) else {
            return SmallVec::new();
        };
        match (&entry.current, &entry.dial) {
            (Some(way), _) => SmallVec::from_iter([*way]),
            (None, Some(dial)) => dial.ways(now),
            (None, None) => entry.last.into_iter().collect(),
        }
    }

    /// Returns the way `peer` authenticated itself over last, if that still stands.
    pub fn current(&self, peer: PeerIx) -> Option<Way> {
        self.peers.get(&peer)?.current
    }

    /// Returns the addresses at which `peer` may be dialled, best first.
    pub fn candidates(&self, peer: PeerIx) -> &[SocketAddr] {
        self.peers.get(&peer).map_or(&[], |entry| &entry.candidates)
    }

    /// Returns the peer that authenticated itself at a real address.
    pub fn confirmed_at(&self, remote: SocketAddr) -> Option<PeerIx> {
        match self.owners.get(&canonical(remote))? {
            Owner::Confirmed(peer) => Some(*peer),
            Owner::Dialled(_) | Owner::Unknown(_) => None,
        }
    }

    /// Returns the one way behind an address QUIC uses: the current one, or the one heard from
    /// in a dial.
    pub fn behind(&self, address: SocketAddr) -> Option<Way> {
        match name_of(address) {
            None => Some(Way {
                remote: canonical(address),
                local: None,
            }),
            Some(Name::Peer(peer)) => {
                let entry = self.peers.get(&peer)?;
                let heard = entry
                    .dial
                    .as_ref()
                    .and_then(|dial| dial.heard)
                    .map(|(way, _)| way);
                entry.current.or(heard).or(entry.last)
            }
            Some(Name::Unknown(index)) => {
                let unknown = self.unknown.get(&index)?;
                match unknown.peer {
                    Some(peer) => self.behind(made_up(Name::Peer(peer))),
                    None => unknown.heard,
                }
            }
        }
    }

    fn entry(&mut self, peer: PeerIx) -> Option<&mut Peer> {
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&peer) {
            return None;
        }
        Some(self.peers.entry(peer).or_default())
    }

    /// Says whether a dial may take an address: nobody owns it, and no stranger who was heard from
    /// there lately would get a name by that.
    fn is_free(&self, now: Mono, at: &SocketAddr) -> bool {
        !self.owners.contains_key(at) && self.heard.recent(now, at) != Some(None)
    }

    /// Returns the name a source without an owner had when it was last heard from, if that was
    /// lately and the name still stands: it lost its owner in the middle of a handshake, as when
    /// an anchor dials again while the connections of its former life end.
    fn former_name(&mut self, now: Mono, way: Way) -> Option<Name> {
        let name = self.heard.recent(now, &way.remote)??;
        match name {
            Name::Peer(peer) => {
                let entry = self.peers.get_mut(&peer)?;
                let is_other = entry.shunned.contains(now, &way.remote);
                if let Some(dial) = entry.dial.as_mut().filter(|_| !is_other) {
                    dial.hear(now, way);
                }
            }
            Name::Unknown(index) => {
                self.unknown.get(&index)?;
            }
        }
        Some(name)
    }

    fn disown(&mut self, remote: SocketAddr, owner: Owner) {
        if self.owners.get(&remote) == Some(&owner) {
            self.owners.remove(&remote);
        }
    }

    fn lose_current(&mut self, peer: PeerIx) {
        if let Some(entry) = self.peers.get_mut(&peer) {
            entry.current = None;
        }
    }

    fn lose_candidate(&mut self, peer: PeerIx, remote: SocketAddr) {
        let Some(dial) = self
            .peers
            .get_mut(&peer)
            .and_then(|entry| entry.dial.as_mut())
        else {
            return;
        };
        dial.remotes.retain(|candidate| *candidate != remote);
        dial.heard = dial.heard.filter(|(way, _)| way.remote != remote);
    }

    /// The address being dialled has turned out, by another connection, to be `peer`'s: packets
    /// from it keep the name the dial knows, lest its answers be taken for somebody else's.
    fn lend_alias(&mut self, index: UnknownIx, peer: PeerIx) {
        if let Some(unknown) = self.unknown.get_mut(&index) {
            unknown.peer = Some(peer);
        }
        if let Some(entry) = self.peers.get_mut(&peer) {
            entry.alias = entry.alias.or(Some(index));
        }
    }

    /// Takes a name from a peer. Two connections may have been dialled to it: the name of the
    /// other one takes the place.
    fn take_alias(&mut self, peer: PeerIx, index: UnknownIx) {
        let other = self
            .unknown
            .iter()
            .filter(|(_, unknown)| unknown.peer == Some(peer))
            .map(|(index, _)| *index)
            .max_by_key(|index| index.0);
        if let Some(entry) = self.peers.get_mut(&peer)
            && entry.alias == Some(index)
        {
            entry.alias = other;
        }
    }
}

impl Peer {
    fn name(&self, own: PeerIx) -> Name {
        self.alias.map_or(Name::Peer(own), Name::Unknown)
    }
}

/// Returns the address with IPv4 in its own spelling and without a flow label, so that one
/// place has one spelling.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = address.ip().to_canonical();
    match (ip, address) {
        (IpAddr::V6(ip), SocketAddr::V6(v6)) => {
            SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()).into()
        }
        (IpAddr::V4(_), SocketAddr::V4(_) | SocketAddr::V6(_))
        | (IpAddr::V6(_), SocketAddr::V4(_)) => SocketAddr::new(ip, address.port()),
    }
}

fn is_usable(address: &SocketAddr) -> bool {
    let ip = address.ip();
    let broadcast = match ip {
        IpAddr::V4(ip) => ip.is_broadcast(),
        IpAddr::V6(_) => false,
    };
    address.port() != 0
        && !ip.is_unspecified()
        && !ip.is_multicast()
        && !broadcast
        && !is_made_up(*address)
}

#[cfg(test)]
mod tests;
