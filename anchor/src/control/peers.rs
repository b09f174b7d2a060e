//! The peers as the control loop keeps them: their numbers, their connections, and when each is
//! to be dialled next. Plain bookkeeping with time passed in; sending is the loop's.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use conflux_core::credential::Member;
use conflux_core::endpoints::UnfitCounts;
use conflux_core::ids::PeerIx;
use conflux_core::redial::Redial;
use conflux_core::session::Initiator;
use conflux_core::time::Mono;
use conflux_proto::id::AnchorKey;
use smallvec::SmallVec;

use crate::quic::{ConnId, Psk};

/// A handshake that got no answer for this long is given up: its connection is reliable, so the
/// answer is either under way or will not come.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// What an earlier start of a machine still had under way has come by then: the same machine ends
/// before it starts again.
const LATE: Duration = Duration::from_secs(5);

/// One each way, and those that a restart or a changed network has left to time out.
const MAX_CONNS: usize = 4;

/// A control connection that stands.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) key: AnchorKey,
    /// We dialled it.
    pub(super) outgoing: bool,
    pub(super) psk: Psk,
    pub(super) remote: SocketAddr,
    /// The peer's Hello was accepted: it is a member, or was admitted by us.
    pub(super) accepted: bool,
    /// How often the peer had started when it said hello; later, when it went on as a later start
    /// on this very connection.
    pub(super) epoch: u64,
    /// The rights it showed, once it is accepted.
    pub(super) member: Option<Member>,
}

/// A handshake begun by us.
#[derive(Debug)]
pub(super) struct Handshake {
    pub(super) conn: ConnId,
    pub(super) number: u32,
    pub(super) initiator: Initiator,
    pub(super) started: Mono,
}

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) key: AnchorKey,
    pub(super) conns: SmallVec<[ConnId; 2]>,
    pub(super) handshake: Option<Handshake>,
    /// This start of ours has sent something to it of its own accord, so that a NAT lets it in.
    pub(super) was_sought: bool,
    /// There was a connection once.
    pub(super) was_connected: bool,
    /// The next dial goes to IPv6 endpoints where there are both.
    pub(super) dials_v6: bool,
    /// Data keys were agreed on since it was last gone.
    pub(super) has_keys: bool,
    /// How often the data thread asked for new keys since the last ones.
    pub(super) rotations_asked: u32,
    renewal_offered: Option<Mono>,
    /// Packets wanted keys for it while there was no connection.
    pub(super) is_needed: bool,
    /// The latest start heard of, from itself or in an advert, and when that was first.
    last_start: (u64, Mono),
    redial: Redial,
}

impl Peer {
    fn note_start(&mut self, epoch: u64, now: Mono) {
        if epoch > self.last_start.0 {
            self.last_start = (epoch, now);
        }
    }
}

/// All peers and connections.
#[derive(Debug, Default)]
pub(super) struct Peers {
    numbers: HashMap<AnchorKey, PeerIx>,
    peers: BTreeMap<PeerIx, Peer>,
    conns: HashMap<ConnId, Conn>,
    next: u32,
    /// Addresses they named that are of no use.
    pub(super) unfit: UnfitCounts,
}

impl Peers {
    /// Returns the number of a peer, giving it one at the first meeting.
    pub(super) fn number(&mut self, key: AnchorKey, now: Mono) -> PeerIx {
        if let Some(&peer) = self.numbers.get(&key) {
            return peer;
        }
        let peer = PeerIx(self.next);
        self.next += 1;
        self.numbers.insert(key, peer);
        self.peers.insert(
            peer,
            Peer {
                key,
                conns: SmallVec::new(),
                handshake: None,
                was_sought: false,
                was_connected: false,
                has_keys: false,
                dials_v6: false,
                rotations_asked: 0,
                renewal_offered: None,
                is_needed: false,
                last_start: (0, now),
                redial: Redial::new(now),
            },
        );
        peer
    }

    /// Forgets all connections, whose transport has ended, but not who has which number.
    pub(super) fn disconnect(&mut self, now: Mono) {
        self.conns.clear();
        for peer in self.peers.values_mut() {
            peer.conns.clear();
            peer.handshake = None;
            peer.has_keys = false;
            peer.redial = Redial::new(now);
        }
    }

    pub(super) fn known(&self, key: &AnchorKey) -> Option<PeerIx> {
        self.numbers.get(key).copied()
    }

    pub(super) fn get(&self, peer: PeerIx) -> Option<&Peer> {
        self.peers.get(&peer)
    }

    pub(super) fn get_mut(&mut self, peer: PeerIx) -> Option<&mut Peer> {
        self.peers.get_mut(&peer)
    }

    pub(super) fn conn(&self, conn: ConnId) -> Option<&Conn> {
        self.conns.get(&conn)
    }

    /// Adds a connection. Its key gets no number by that: strangers bring as many as they like.
    pub(super) fn add_conn(&mut self, conn: Conn) {
        if let Some(peer) = self
            .known(&conn.key)
            .and_then(|peer| self.peers.get_mut(&peer))
        {
            peer.conns.push(conn.id);
        }
        self.conns.insert(conn.id, conn);
    }

    /// Makes a connection its peer's, whose number it returns, and names a connection that is one
    /// too many.
    pub(super) fn accept(
        &mut self,
        conn: ConnId,
        member: Member,
        epoch: u64,
        now: Mono,
    ) -> Option<(PeerIx, Option<ConnId>)> {
        let key = self.conns.get(&conn)?.key;
        let number = self.number(key, now);
        let entry = self.conns.get_mut(&conn)?;
        entry.accepted = true;
        entry.epoch = epoch;
        entry.member = Some(member);
        let outgoing = entry.outgoing;
        let peer = self.peers.get_mut(&number)?;
        peer.was_connected = true;
        peer.redial.handle_connected(now);
        peer.was_sought |= outgoing;
        if !peer.conns.contains(&conn) {
            peer.conns.push(conn);
        }
        let oldest = peer.conns.iter().copied().min();
        Some((number, oldest.filter(|_| peer.conns.len() > MAX_CONNS)))
    }

    /// This anchor sends something to a peer that has not asked for it.
    pub(super) fn note_sought(&mut self, peer: PeerIx) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.was_sought = true;
        }
    }

    /// Notes which start of a peer has said hello; true when a later one was heard of before, which
    /// the same machine does not undo.
    pub(super) fn goes_back(&mut self, peer: PeerIx, epoch: u64, now: Mono) -> bool {
        let Some(peer) = self.peers.get_mut(&peer) else {
            return false;
        };
        let goes_back = epoch < peer.last_start.0;
        peer.note_start(epoch, now);
        goes_back
    }

    /// Notes the start that a believed advert is of, which came by `conn`. On a connection of its
    /// own a peer says by that that it goes on as this start, on all connections of the former one.
    pub(super) fn note_advert(&mut self, conn: ConnId, of: &AnchorKey, epoch: u64, now: Mono) {
        let speaking = self.conns.get(&conn).filter(|conn| conn.key == *of);
        if let Some(before) = speaking.map(|conn| conn.epoch) {
            let same = |conn: &&mut Conn| conn.key == *of && conn.epoch == before;
            for conn in self.conns.values_mut().filter(same) {
                conn.epoch = before.max(epoch);
            }
        }
        if let Some(peer) = self.known(of).and_then(|peer| self.peers.get_mut(&peer)) {
            peer.note_start(epoch, now);
        }
    }

    /// Says whether a connection speaks for an earlier start than one that was heard of well before
    /// now: then there are two machines, for one ends before it starts again.
    pub(super) fn speaks_from_before(&self, conn: ConnId, now: Mono) -> bool {
        let Some(conn) = self.conns.get(&conn) else {
            return false;
        };
        let peer = self.known(&conn.key).and_then(|peer| self.peers.get(&peer));
        peer.is_some_and(|peer| {
            let (last, since) = peer.last_start;
            conn.accepted && conn.epoch < last && now.since(since) >= LATE
        })
    }

    /// Says whether a renewal may be offered now, and notes that it was.
    pub(super) fn may_offer(&mut self, key: &AnchorKey, now: Mono, every: Duration) -> bool {
        let Some(peer) = self.known(key).and_then(|peer| self.peers.get_mut(&peer)) else {
            return false;
        };
        let is_due = peer
            .renewal_offered
            .is_none_or(|last| now.since(last) >= every);
        if is_due {
            peer.renewal_offered = Some(now);
        }
        is_due
    }

    /// Forgets a connection; the peer is dialled again soon when it was the last one.
    pub(super) fn remove_conn(&mut self, conn: ConnId, now: Mono) -> Option<Conn> {
        let gone = self.conns.remove(&conn)?;
        if let Some(peer) = self
            .known(&gone.key)
            .and_then(|peer| self.peers.get_mut(&peer))
        {
            peer.conns.retain(|other| *other != conn);
            if peer
                .handshake
                .as_ref()
                .is_some_and(|handshake| handshake.conn == conn)
            {
                peer.handshake = None;
            }
            if peer.conns.is_empty() {
                peer.redial.handle_lost(now);
            }
        }
        Some(gone)
    }

    /// Returns the accepted connection in use with a peer: the one that the anchor with the
    /// smaller key dialled when there are two, so that both sides use the same.
    pub(super) fn in_use(&self, peer: PeerIx, own: &AnchorKey) -> Option<&Conn> {
        let peer = self.peers.get(&peer)?;
        let own_is_smaller = *own < peer.key;
        peer.conns
            .iter()
            .filter_map(|conn| self.conns.get(conn))
            .filter(|conn| conn.accepted)
            .min_by_key(|conn| (conn.outgoing != own_is_smaller, conn.id))
    }

    /// Says whether a connection that we dialled stands with this anchor.
    pub(super) fn has_dialled(&self, key: &AnchorKey) -> bool {
        self.conns
            .values()
            .any(|conn| conn.outgoing && conn.key == *key)
    }

    /// Returns all accepted connections.
    pub(super) fn accepted(&self) -> impl Iterator<Item = &Conn> {
        self.conns.values().filter(|conn| conn.accepted)
    }

    /// Returns one accepted connection per peer, the one in use.
    pub(super) fn neighbours(&self, own: &AnchorKey) -> Vec<(PeerIx, ConnId)> {
        self.peers
            .keys()
            .filter_map(|&peer| Some((peer, self.in_use(peer, own)?.id)))
            .collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerIx, &Peer)> {
        self.peers.iter().map(|(&ix, peer)| (ix, peer))
    }

    pub(super) fn is_connected(&self, peer: PeerIx) -> bool {
        self.peers.get(&peer).is_some_and(|peer| {
            peer.conns
                .iter()
                .any(|conn| self.conns.get(conn).is_some_and(|conn| conn.accepted))
        })
    }

    /// Says whether a dial to the peer is due now, and marks it as under way; `addresses` says at how
    /// many it will be.
    pub(super) fn take_dial(
        &mut self,
        peer: PeerIx,
        now: Mono,
        addresses: impl FnOnce() -> usize,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(&peer) else {
            return false;
        };
        let is_due = peer.conns.is_empty()
            && peer.redial.due().is_some_and(|at| at <= now)
            && peer.redial.take(now, addresses());
        peer.was_sought |= is_due;
        is_due
    }

    /// Says whether a dial to the peer is under way.
    pub(super) fn is_dialling(&self, peer: PeerIx) -> bool {
        let peer = self.peers.get(&peer);
        peer.is_some_and(|peer| peer.redial.is_under_way())
    }

    /// Returns when the next of `wanted` is to be dialled.
    pub(super) fn next_dial(&self, wanted: impl Iterator<Item = PeerIx>) -> Option<Mono> {
        wanted
            .filter_map(|peer| self.peers.get(&peer))
            .filter(|peer| peer.conns.is_empty())
            .filter_map(|peer| peer.redial.due())
            .min()
    }

    /// Notes the outcome of a dial. `spread` in 0..1 keeps a realm's restarts apart.
    pub(super) fn end_dial(&mut self, peer: PeerIx, now: Mono, succeeded: bool, spread: f64) {
        let Some(peer) = self.peers.get_mut(&peer) else {
            return;
        };
        if succeeded {
            peer.redial.end_reached(now);
        } else {
            peer.redial.end_failed(now, spread);
        }
    }

    /// Lets the peer be dialled soon: there is news of it, or traffic for it.
    pub(super) fn hurry(&mut self, peer: PeerIx, now: Mono) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.redial.hurry(now);
        }
    }

    /// Says whether a handshake of ours with the peer still waits for its answer.
    pub(super) fn is_shaking_hands(&self, peer: PeerIx, now: Mono) -> bool {
        self.peers
            .get(&peer)
            .and_then(|peer| peer.handshake.as_ref())
            .is_some_and(|handshake| now.since(handshake.started) < HANDSHAKE_WITHIN)
    }
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
