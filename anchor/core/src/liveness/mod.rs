//! Notices, per peer, that what this anchor sends no longer arrives, within two seconds (SPEC
//! section 5); says when a failed peer may be used again; and, for peers that send to us, when
//! a keepalive is due.

mod judge;

use std::time::Duration;

pub use judge::{Surroundings, Verdict, judge};

use crate::ids::PeerIx;
use crate::time::{Mono, Now};

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

/// The failure detector of all peers.
#[derive(Debug)]
pub struct Liveness {}

impl Liveness {
    /// Returns a detector without peers; `seed` makes the probe ids.
    pub fn new(seed: u64) -> Self {
        let _ = seed;
        Self {}
    }

    /// Starts to follow a peer; nothing changes for one already followed.
    pub fn add_peer(&mut self, _peer: PeerIx) {}

    /// Forgets a peer (it left, or its session is gone for good).
    pub fn remove_peer(&mut self, _peer: PeerIx) {}

    /// A session with the peer started: three quick probes measure its round-trip time.
    pub fn handle_session(&mut self, _now: Mono, _peer: PeerIx) {}

    /// DATA up to `highest` went out.
    pub fn handle_sent(&mut self, _now: Mono, _peer: PeerIx, _highest: Sent) {}

    /// A keepalive or an echo named the highest DATA counter received.
    pub fn handle_proof(&mut self, _now: Mono, _peer: PeerIx, _received: Sent) {}

    /// An echo arrived; returns the round-trip time when the probe is known and not yet answered.
    pub fn handle_echo(&mut self, _now: Mono, _peer: PeerIx, _probe: u64) -> Option<Duration> {
        None
    }

    /// Any authenticated frame arrived.
    pub fn handle_heard(&mut self, _now: Mono, _peer: PeerIx) {}

    /// DATA from the peer arrived: a keepalive is due within 200 ms.
    pub fn handle_data_received(&mut self, _now: Mono, _peer: PeerIx) {}

    /// An ECHO with our counters went out to the peer: it serves as the keepalive due.
    pub fn handle_echo_sent(&mut self, _now: Mono, _peer: PeerIx) {}

    /// Sets the smoothed round-trip time.
    pub fn set_rtt(&mut self, _peer: PeerIx, _rtt: Duration) {}

    /// Says whether a flow on the peer has an open TCP connection.
    pub fn set_watched(&mut self, _now: Mono, _peer: PeerIx, _open_tcp: bool) {}

    /// Says whether flows want this peer although it failed.
    pub fn set_wanted(&mut self, _now: Mono, _peer: PeerIx, _wanted: bool) {}

    /// Says whether flows of a group the peer is in exist: its round-trip time is kept fresh.
    pub fn set_used(&mut self, _now: Mono, _peer: PeerIx, _used: bool) {}

    /// Asks the peer now, and again until it answers or a deadline's time is over.
    pub fn probe_now(&mut self, _now: Mono, _peer: PeerIx) {}

    /// Answers a deadline: the peer has failed.
    pub fn fail(&mut self, _now: Mono, _peer: PeerIx) {}

    /// Answers a deadline: the fault is local.
    pub fn restart(&mut self, _now: Mono, _peer: PeerIx) {}

    /// Acts on everything due by `now`.
    pub fn handle_timeout(&mut self, _now: Now) {}

    /// Returns the next thing to do.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// Returns when [`Liveness::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Mono> {
        None
    }

    /// Returns when any authenticated frame last came from the peer.
    pub fn last_heard(&self, _peer: PeerIx) -> Option<Mono> {
        None
    }

    /// Returns whether the peer has failed and not returned.
    pub fn is_failed(&self, _peer: PeerIx) -> bool {
        false
    }

    /// Returns whether the peer has missed its first probe of a running count.
    pub fn is_suspect(&self, _peer: PeerIx) -> bool {
        false
    }

    /// Returns whether the peer proved receipt of something sent at or after `point`.
    pub fn answered_since(&self, _peer: PeerIx, _point: Mono) -> bool {
        false
    }
}
