//! Notices, per peer, that what this anchor sends no longer arrives, within two seconds (SPEC
//! section 5); says when a failed peer may be used again; and, for peers that send to us, when
//! a keepalive is due. Not for who left (membership), nor for what a failure moves: the plane
//! drives it, and decides by [`judge`] what a deadline means.
//!
//! The oldest packet without proof of receipt starts a peer's count. Proof is an echo, which
//! proves what was sent before its probe, or a keepalive, which proves what its counter covers;
//! whatever else is heard proves nothing about the way there. While the count runs, probes go
//! out by `count::PROBE_AT_MILLIS`; the first one missed raises [`Event::Suspect`], and
//! `count::DEADLINE` after its start comes [`Event::Deadline`]. A probe sent because a watched
//! peer is silent counts like a packet.
//!
//! Guards, each of which starts every count anew: a timer more than `LATE` late, a suspend, and the
//! first frame from anybody after a local fault. They share one point in time before which no
//! count starts, so that they cost nothing per peer.
//!
//! Deadlines lie in a heap, at most a few per peer, and are cleaned as they come up: a packet
//! costs one hash lookup, and only the first unanswered one touches the heap.

mod count;
mod judge;
mod marks;
mod opening;
mod peer;
mod probes;
mod readmission;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

pub use judge::{Surroundings, Verdict, judge};

use self::count::Wish;
use self::peer::{Fired, Peer};
use self::probes::ProbeIds;
use crate::ids::PeerIx;
use crate::table::{self, Map};
use crate::time::{Mono, Now};

/// A timer this late, or a suspend this long, means that this process was not running: proofs
/// may lie unread. SPEC section 5.
pub(crate) const LATE: Duration = Duration::from_millis(500);

/// Entries of the heap per peer, and beside that, before those out of date are thrown away.
const STALE_PER_PEER: usize = 4;
const STALE_BESIDE: usize = 64;

/// The first refresh of a peer newly in use is put off by up to this many milliseconds.
const SPREAD_MILLIS: u64 = 250;

/// A position in our outgoing DATA counters towards one peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sent {
    /// Grows by one with each new set of keys.
    pub generation: u32,
    /// The frame counter under those keys.
    pub counter: u64,
}

/// What the plane has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Send a PROBE now. The same id may come twice in a row: send it twice.
    Probe {
        /// To whom.
        peer: PeerIx,
        /// What the echo will carry.
        id: u64,
        /// Whether to send one over each known path instead of the current one.
        all_paths: bool,
    },
    /// The first probe was missed: ask the rest of its groups and some other peers by
    /// [`Liveness::probe_now`], so that a deadline can be judged.
    Suspect {
        /// Who does not answer.
        peer: PeerIx,
    },
    /// The deadline has passed: answer by [`Liveness::fail`] or [`Liveness::restart`].
    Deadline {
        /// Who does not answer.
        peer: PeerIx,
        /// When the oldest unanswered packet was sent.
        since: Mono,
        /// When [`Event::Suspect`] was raised; others answer now when
        /// [`Liveness::answered_since`] holds for this point.
        asked: Mono,
    },
    /// A failed peer may be used for new flows again.
    Returned {
        /// Who.
        peer: PeerIx,
    },
    /// Send a KEEPALIVE with the highest DATA counter received now.
    Keepalive {
        /// To whom.
        peer: PeerIx,
    },
}

/// The failure detector of all peers. Memory: under 4 KiB per peer, of which the owner caps the
/// number; calls that name a peer not added do nothing.
#[derive(Debug)]
pub struct Liveness {
    peers: Map<PeerIx, Box<Peer>>,
    deadlines: BinaryHeap<Reverse<(Mono, PeerIx)>>,
    events: VecDeque<Event>,
    ids: ProbeIds,
    /// The latest point told.
    now: Mono,
    /// No count starts before this.
    anew: Mono,
    /// How far CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC; grows by each suspend.
    suspended: Option<Duration>,
    is_fault_local: bool,
}

impl Liveness {
    /// Returns a detector without peers; `seed` makes the probe ids.
    pub fn new(seed: u64) -> Self {
        Self {
            peers: table::map(seed),
            deadlines: BinaryHeap::new(),
            events: VecDeque::new(),
            ids: ProbeIds::new(seed),
            now: Mono::default(),
            anew: Mono::default(),
            suspended: None,
            is_fault_local: false,
        }
    }

    /// Starts to follow a peer; nothing changes for one already followed.
    pub fn add_peer(&mut self, peer: PeerIx) {
        self.peers
            .entry(peer)
            .or_insert_with(|| Box::new(Peer::new()));
    }

    /// Forgets a peer, its failures included (it left, or its advert expired).
    pub fn remove_peer(&mut self, peer: PeerIx) {
        self.peers.remove(&peer);
    }

    /// A session with the peer started: three quick probes measure its round-trip time, and more
    /// follow over every path, up to 5 s apart, until one is echoed or 10 minutes are over. Their echoes also prove what
    /// was sent before, under older keys too.
    pub fn handle_session(&mut self, now: Mono, peer: PeerIx) {
        self.change(now, peer, |state, now, _| state.handle_session(now));
    }

    /// The session with the peer has new keys: the peer is asked until it is known to have them,
    /// for a deadline's time or, if it never answered under those of before, as in a new session.
    pub fn handle_keys(&mut self, now: Mono, peer: PeerIx) {
        self.change(now, peer, |state, now, _| state.handle_keys(now));
        self.fire_due(self.now);
    }

    /// DATA up to `highest` went out. Once per batch is enough; O(1), allocates nothing.
    pub fn handle_sent(&mut self, now: Mono, peer: PeerIx, highest: Sent) {
        self.now = self.now.max(now);
        let anew = self.anew;
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        if state.handle_sent(now, highest, anew) {
            self.schedule(peer);
        }
    }

    /// A keepalive or an echo named the highest DATA counter received.
    pub fn handle_proof(&mut self, now: Mono, peer: PeerIx, received: Sent) {
        self.handle_heard(now, peer);
        let anew = self.anew;
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        if state.handle_proof(now, received, anew) {
            self.schedule(peer);
        }
    }

    /// Returns when a probe went out that has not been echoed; not for probes of sizes.
    pub fn asked_at(&self, peer: PeerIx, probe: u64) -> Option<Mono> {
        self.peers.get(&peer)?.asked_at(probe)
    }

    /// An echo arrived. Returns the round-trip time; `None` when the probe is unknown, was
    /// echoed before, or the time would mislead: the probe was out while a guard struck, a newer
    /// one was sent since, or the peer has failed. A holder that was stopped and goes on echoes
    /// all it was asked meanwhile, and only the last of it is near a round trip.
    pub fn handle_echo(&mut self, now: Mono, peer: PeerIx, probe: u64) -> Option<Duration> {
        self.handle_heard(now, peer);
        let anew = self.anew;
        let echoed = self.peers.get_mut(&peer)?.handle_echo(now, probe, anew)?;
        if echoed.is_back {
            self.events.push_back(Event::Returned { peer });
        }
        self.schedule(peer);
        (echoed.is_measure && echoed.sent_at >= anew).then(|| now.since(echoed.sent_at))
    }

    /// A probe of a packet size went out, with an id of its owner's; the same one may go out again.
    pub fn note_size_probe(&mut self, now: Mono, peer: PeerIx, probe: u64) {
        self.now = self.now.max(now);
        if let Some(state) = self.peers.get_mut(&peer) {
            state.note_size_probe(now, probe);
        }
    }

    /// The echo of a size probe arrived: what was sent before it is proven, as by any probe.
    pub fn handle_size_echo(&mut self, now: Mono, peer: PeerIx, probe: u64) {
        self.handle_heard(now, peer);
        let anew = self.anew;
        if let Some(state) = self.peers.get_mut(&peer) {
            state.handle_size_echo(now, probe, anew);
            self.schedule(peer);
        }
    }

    /// Any authenticated frame arrived.
    pub fn handle_heard(&mut self, now: Mono, peer: PeerIx) {
        self.now = self.now.max(now);
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        state.handle_heard(now);
        if self.is_fault_local {
            self.is_fault_local = false;
            self.start_anew(now);
        }
    }

    /// Starts every count anew, at once and not at its next timer: that of one which is overdue may
    /// be a second away.
    fn start_anew(&mut self, now: Mono) {
        self.anew = self.anew.max(now);
        let mut counting = Vec::new();
        for (peer, state) in &mut self.peers {
            if state.start_anew(now, self.anew) {
                counting.push(*peer);
            }
        }
        for peer in counting {
            self.schedule(peer);
        }
    }

    /// DATA from the peer arrived: a keepalive is due 200 ms after the first not yet reported.
    pub fn handle_data_received(&mut self, now: Mono, peer: PeerIx) {
        self.handle_heard(now, peer);
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        if state.handle_data_received(now) {
            self.schedule(peer);
        }
    }

    /// An ECHO with our counters went out to the peer: it serves as the keepalive due.
    pub fn handle_echo_sent(&mut self, now: Mono, peer: PeerIx) {
        self.now = self.now.max(now);
        if let Some(state) = self.peers.get_mut(&peer) {
            state.handle_echo_sent();
        }
    }

    /// Sets the smoothed round-trip time; above 500 ms it stretches deadline and schedule.
    pub fn set_rtt(&mut self, peer: PeerIx, rtt: Duration) {
        self.change(self.now, peer, |state, _, _| state.set_rtt(rtt));
    }

    /// Says whether a flow on the peer has an open TCP connection: while it has, a silence of
    /// 5 s is probed, and unanswered probes lead to a deadline.
    pub fn set_watched(&mut self, now: Mono, peer: PeerIx, open_tcp: bool) {
        self.change(now, peer, |state, now, anew| {
            state.set_watched(now, open_tcp, anew)
        });
    }

    /// Says whether flows want this peer's network should it have failed: it is then probed,
    /// and [`Event::Returned`] comes once it answers.
    pub fn set_wanted(&mut self, now: Mono, peer: PeerIx, wanted: bool) {
        self.change(now, peer, |state, now, _| state.set_wanted(now, wanted));
    }

    /// A packet found no holder but this one and others that have failed too: it is wanted, and
    /// its first answers in a row bring it back, however often it has flapped.
    pub fn handle_stranded(&mut self, now: Mono, peer: PeerIx) {
        self.change(now, peer, |state, now, _| state.handle_stranded(now));
    }

    /// Says whether flows of a group the peer is in exist: its round-trip time is then measured
    /// every 15 s.
    pub fn set_used(&mut self, now: Mono, peer: PeerIx, used: bool) {
        let spread = Duration::from_millis(self.ids.next() % SPREAD_MILLIS);
        self.change(now, peer, |state, now, _| state.set_used(now, used, spread));
    }

    /// Asks the peer now, and every 200 ms until it answers or a deadline's time is over. That
    /// it does not answer has no consequence but [`Liveness::answered_since`].
    pub fn probe_now(&mut self, now: Mono, peer: PeerIx) {
        self.change(now, peer, |state, now, _| state.ask(now));
        self.fire_due(self.now);
    }

    /// Answers a deadline: the peer has failed, by SPEC section 5 (a) or (b).
    pub fn fail(&mut self, now: Mono, peer: PeerIx) {
        self.change(now, peer, |state, now, _| state.fail(now));
    }

    /// Answers a deadline: the fault is local, by SPEC section 5 (c). Probing goes on, and every
    /// count starts anew when anybody is heard.
    pub fn restart(&mut self, now: Mono, peer: PeerIx) {
        self.now = self.now.max(now);
        if self.peers.contains_key(&peer) {
            self.is_fault_local = true;
        }
    }

    /// Acts on everything due by `now`.
    pub fn handle_timeout(&mut self, now: Now) {
        let boot = Duration::from_nanos(now.boot.as_nanos());
        let suspended = boot.saturating_sub(Duration::from_nanos(now.mono.as_nanos()));
        let was_suspended = self.suspended.replace(suspended);
        if was_suspended.is_some_and(|before| suspended > before + LATE) {
            self.start_anew(now.mono);
        }
        self.now = self.now.max(now.mono);
        self.fire_due(self.now);
    }

    /// Returns the next thing to do; to be asked until `None` after each call that changes
    /// something.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when [`Liveness::handle_timeout`] wants to be called; at times sooner than needed.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.deadlines.peek().map(|Reverse((at, _))| *at)
    }

    /// Returns when any authenticated frame last came from the peer.
    pub fn last_heard(&self, peer: PeerIx) -> Option<Mono> {
        self.peers.get(&peer).and_then(|state| state.last_heard())
    }

    /// Returns whether the peer has failed and not returned.
    pub fn is_failed(&self, peer: PeerIx) -> bool {
        self.peers.get(&peer).is_some_and(|state| state.is_failed())
    }

    /// Returns whether the peer has missed the first probe of a count that still runs.
    pub fn is_suspect(&self, peer: PeerIx) -> bool {
        self.peers
            .get(&peer)
            .is_some_and(|state| state.is_suspect(self.anew))
    }

    /// Returns whether the peer proved receipt of something sent at or after `point`.
    pub fn answered_since(&self, peer: PeerIx, point: Mono) -> bool {
        self.peers
            .get(&peer)
            .and_then(|state| state.proven_until())
            .is_some_and(|until| until >= point)
    }

    fn change(&mut self, now: Mono, peer: PeerIx, change: impl FnOnce(&mut Peer, Mono, Mono)) {
        self.now = self.now.max(now);
        if let Some(state) = self.peers.get_mut(&peer) {
            change(state, now, self.anew);
            self.schedule(peer);
        }
    }

    /// Puts the peer's earliest timer into the heap unless an earlier entry is there.
    fn schedule(&mut self, peer: PeerIx) {
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        let Some(due) = state.due() else { return };
        // Never in the past: that would look like a timer that came late.
        let due = due.max(self.now);
        if state.queued.is_some_and(|at| at <= due) {
            return;
        }
        state.queued = Some(due);
        self.deadlines.push(Reverse((due, peer)));
        if self.deadlines.len() > STALE_PER_PEER * self.peers.len() + STALE_BESIDE {
            let peers = &self.peers;
            self.deadlines.retain(|Reverse((at, peer))| {
                peers
                    .get(peer)
                    .is_some_and(|state| state.queued == Some(*at))
            });
        }
    }

    fn fire_due(&mut self, now: Mono) {
        if self.poll_timeout().is_some_and(|due| now.since(due) > LATE) {
            self.start_anew(now);
        }
        while let Some(Reverse((at, peer))) = self.deadlines.peek().copied() {
            if at > now {
                return;
            }
            self.deadlines.pop();
            let Some(state) = self.peers.get_mut(&peer) else {
                continue;
            };
            if state.queued != Some(at) {
                continue;
            }
            state.queued = None;
            let fired = state.handle_timeout(now, self.anew);
            self.announce(now, peer, &fired);
            self.schedule(peer);
        }
    }

    fn announce(&mut self, now: Mono, peer: PeerIx, fired: &Fired) {
        if fired.is_keepalive_due {
            self.events.push_back(Event::Keepalive { peer });
        }
        let copies = match fired.wish {
            Wish::None => 0,
            Wish::One | Wish::AllPaths => 1,
            Wish::AllPathsTwice => 2,
        };
        if copies > 0 {
            let id = self.ids.next();
            if let Some(state) = self.peers.get_mut(&peer) {
                state.note_probe(now, id);
            }
            let all_paths = fired.wish >= Wish::AllPaths;
            let probe = Event::Probe {
                peer,
                id,
                all_paths,
            };
            self.events.extend(std::iter::repeat_n(probe, copies));
        }
        if fired.count.is_suspect {
            self.events.push_back(Event::Suspect { peer });
        }
        if let (Some(since), Some(asked)) = (fired.since, fired.count.asked) {
            self.events
                .push_back(Event::Deadline { peer, since, asked });
        }
    }
}
