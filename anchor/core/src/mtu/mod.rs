//! How large a packet each peer's path takes, found by probes and never by ICMP (RFC 8899 in
//! spirit). Sizes are those of the packet inside a frame, so that a probe and a data frame of one
//! size are alike on the wire. The plane drives it and puts the probes into PROBE frames, padded;
//! cutting packets to the limit, and telling hosts, is not done here.
//!
//! A new path carries [`BASE_BYTES`], which every underlay of 1280 bytes does. At once, probes of
//! all usual sizes go out side by side, so a common path is known after one round trip. Between
//! the largest answered and the smallest lost, further rounds narrow the gap to [`GRAIN_BYTES`].
//! A size is lost when `path::SEARCH_TRIES` probes of it are, unless those of the base size are as
//! well: then the search counts for nothing. Those go last, and their echo tells at once what else
//! of the try is lost. A late echo still counts while the search goes on. Once large packets are
//! sent, a search that counted for nothing is repeated after `path::AGAIN_AFTER`, one that ended
//! below the ceiling after `path::RAISE_AFTER`.
//!
//! While large packets are sent, a probe of the limit's size confirms it every
//! `path::CONFIRM_EVERY`, with a small one behind it. Three large ones lost and a small one answered
//! means that the path has shrunk: back to the base, and search. An answer to the small one tells
//! at once that the large one before it is lost, however slow the path is; without any answer the
//! path is down, which is liveness's to judge. So a path that shrinks under traffic is noticed
//! within 0.6 s and four round trips, as long as small probes come through. Where nothing large is
//! sent no timer runs.
//!
//! A frame that this machine's own interface refuses lowers the limit without any wait.

mod ladder;
mod path;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

pub use self::ladder::{GRAIN_BYTES, Underlay};
use self::path::{PathMtu, Tools};
use crate::ids::PeerIx;
use crate::table::{self, Map};
use crate::time::Mono;

/// What any path takes: 1280 bytes of underlay without 40 of IPv6, 8 of UDP and 32 of a frame.
pub const BASE_BYTES: usize = 1280 - 40 - 8 - 32;

/// The largest ceiling: 9216 bytes of underlay, the most that common switches pass.
pub const MAX_BYTES: usize = 9216 - 40 - 8 - 32;

/// Entries of the heap per peer, and beside that, before those out of date are thrown away.
const STALE_PER_PEER: usize = 4;
const STALE_BESIDE: usize = 64;

/// A probe to send now: its frame is to be as long as a data frame of `bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeProbe {
    /// To whom, by the path in use.
    pub peer: PeerIx,
    /// What the echo will carry.
    pub id: u64,
    /// Plaintext bytes; the id comes first.
    pub bytes: usize,
}

/// The path sizes of all peers. Memory: under 400 bytes per peer, of which the owner caps the
/// number; calls that name a peer not started do nothing.
#[derive(Debug)]
pub struct Mtu {
    peers: Map<PeerIx, Box<PathMtu>>,
    deadlines: BinaryHeap<Reverse<(Mono, PeerIx)>>,
    probes: VecDeque<SizeProbe>,
    ids: fastrand::Rng,
    ceiling_bytes: u16,
}

impl Mtu {
    /// Returns a table without peers. `ceiling_bytes` is the largest packet worth finding a path
    /// for, that is the interface's MTU; `seed` makes the probe ids.
    pub fn new(seed: u64, ceiling_bytes: usize) -> Self {
        Self {
            peers: table::map(seed),
            deadlines: BinaryHeap::new(),
            probes: VecDeque::new(),
            ids: fastrand::Rng::with_seed(seed),
            ceiling_bytes: ceiling(ceiling_bytes),
        }
    }

    /// A peer can be sent to by a path that is new, or newly in use: whatever was known of its
    /// size is forgotten, and the search begins. `rtt` is the round-trip time, where known.
    pub fn start(&mut self, now: Mono, peer: PeerIx, underlay: Underlay, rtt: Option<Duration>) {
        let path = PathMtu::new(now, underlay, self.ceiling_bytes, rtt);
        self.peers.insert(peer, Box::new(path));
        self.change(peer, |path, tools| path.search(now, tools));
    }

    /// Forgets a peer.
    pub fn remove_peer(&mut self, peer: PeerIx) {
        self.peers.remove(&peer);
    }

    /// Takes the interface's new MTU. Limits above it fall at once; paths that may have more room
    /// now are searched again when large packets are sent on them.
    pub fn set_ceiling(&mut self, now: Mono, ceiling_bytes: usize) {
        let bytes = ceiling(ceiling_bytes);
        if bytes == self.ceiling_bytes {
            return;
        }
        self.ceiling_bytes = bytes;
        for path in self.peers.values_mut() {
            path.set_ceiling(now, bytes);
        }
    }

    /// Packets of up to `largest_bytes` went out. Once per super-packet is enough; O(1), and
    /// allocates nothing unless a search begins.
    pub fn handle_sent(&mut self, now: Mono, peer: PeerIx, largest_bytes: usize) {
        let Some(path) = self.peers.get(&peer) else {
            return;
        };
        if path.is_due(now, largest_bytes) {
            self.change(peer, |path, tools| path.act_on_traffic(now, tools));
        }
    }

    /// This machine's own interface refused a frame with a packet or probe of `bytes`.
    pub fn handle_refused(&mut self, now: Mono, peer: PeerIx, bytes: usize) {
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        self.change(peer, |path, tools| path.handle_refused(now, bytes, tools));
    }

    /// Liveness misses a peer's answers: large packets may be all that is lost.
    pub fn handle_suspect(&mut self, now: Mono, peer: PeerIx) {
        self.change(peer, |path, tools| path.confirm(now, tools));
    }

    /// An echo arrived. Returns whether its probe was one of these.
    pub fn handle_echo(&mut self, now: Mono, peer: PeerIx, id: u64) -> bool {
        self.change(peer, |path, tools| path.handle_echo(now, id, tools))
            .unwrap_or(false)
    }

    /// Acts on everything due by `now`.
    pub fn handle_timeout(&mut self, now: Mono) {
        while let Some(Reverse((at, peer))) = self.deadlines.peek().copied() {
            if at > now {
                return;
            }
            self.deadlines.pop();
            let Some(path) = self.peers.get_mut(&peer) else {
                continue;
            };
            if path.queued != Some(at) {
                continue;
            }
            path.queued = None;
            self.change(peer, |path, tools| path.handle_timeout(now, tools));
        }
    }

    /// Returns the next probe to send; to be asked until `None` after each call that changes
    /// something.
    pub fn poll_probe(&mut self) -> Option<SizeProbe> {
        self.probes.pop_front()
    }

    /// Returns when [`Mtu::handle_timeout`] wants to be called; at times sooner than needed.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.deadlines.peek().map(|Reverse((at, _))| *at)
    }

    /// Returns the largest packet, in bytes, that the peer's path is known to take.
    pub fn limit_bytes(&self, peer: PeerIx) -> usize {
        self.peers
            .get(&peer)
            .map_or(BASE_BYTES, |path| path.limit_bytes())
    }

    /// Returns whether the peer was started.
    pub fn is_started(&self, peer: PeerIx) -> bool {
        self.peers.contains_key(&peer)
    }

    fn change<T>(
        &mut self,
        peer: PeerIx,
        change: impl FnOnce(&mut PathMtu, &mut Tools<'_>) -> T,
    ) -> Option<T> {
        let path = self.peers.get_mut(&peer)?;
        let mut tools = Tools {
            peer,
            ids: &mut self.ids,
            probes: &mut self.probes,
        };
        let answer = change(path, &mut tools);
        self.schedule(peer);
        Some(answer)
    }

    /// Puts the path's earliest timer into the heap unless an earlier entry is there.
    fn schedule(&mut self, peer: PeerIx) {
        let Some(path) = self.peers.get_mut(&peer) else {
            return;
        };
        let Some(due) = path.due() else { return };
        if path.queued.is_some_and(|at| at <= due) {
            return;
        }
        path.queued = Some(due);
        self.deadlines.push(Reverse((due, peer)));
        if self.deadlines.len() > STALE_PER_PEER * self.peers.len() + STALE_BESIDE {
            let peers = &self.peers;
            self.deadlines.retain(|Reverse((at, peer))| {
                peers.get(peer).is_some_and(|path| path.queued == Some(*at))
            });
        }
    }
}

fn ceiling(bytes: usize) -> u16 {
    u16::try_from(bytes.clamp(BASE_BYTES, MAX_BYTES)).expect("the largest ceiling has 16 bits")
}
