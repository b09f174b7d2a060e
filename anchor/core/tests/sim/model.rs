//! The reference: what SPEC sections 3 to 5 say must be true, written from the contract and not
//! from the code. It is told what happens on wires and interfaces, and looks at the flow tables.
//!
//! Each invariant has a number by which reports of its breach begin:
//!
//! | | |
//! |---|---|
//! | 1 | no flow moves unless its holder left, may not be used any more, failed, or it was idle for 15 minutes |
//! | 2 | no flow rests on a holder that said goodbye or whose taints forbid it |
//! | 3 | a holder that does not answer is left within two seconds (4 round trips when these are long) and a tick, if anybody else answers |
//! | 4 | no holder is left that answered a round trip, over any path, within that time |
//! | 5 | a fault is called local only when nobody else answers, and a holder failed only when somebody does |
//! | 6 | whatever an application is answered comes from its flow's holder |
//! | 7 | no client address goes to another client before it was idle for 16 minutes |
//! | 8 | tables never pass their caps |
//! | 9 | everything converges after the last fault (checked by the schedule) |

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use conflux_core::flows::FlowKey;
use conflux_core::plane::{FlowView, PeerView, Sizes};
use conflux_core::time::Mono;
use conflux_proto::id::AnchorKey;
use conflux_proto::taint::TaintSet;

use crate::book::Book;
use crate::machine::Who;

/// SPEC section 5.
const DEADLINE: Duration = Duration::from_secs(2);
const LONG_ROUND_TRIP: Duration = Duration::from_millis(500);
const DEADLINE_ROUND_TRIPS: u32 = 4;
/// After a proof, however late, a peer is asked for at least the rest of the deadline.
const HEAD_START: Duration = Duration::from_millis(1_100);
/// What "one tick" is: packets this close together may count as one (the grain of what a detector
/// remembers of millions of packets).
const TICK: Duration = Duration::from_millis(50);
/// With round trips that stretch the deadline, the grain is this part of it.
const TICKS_PER_DEADLINE: u32 = 40;
/// From a suspicion to the deadline there are at least this many ms: who answers what was sent
/// after the suspicion is a witness.
const WITNESSED_FOR: Duration = Duration::from_millis(850);
/// A timer that is later has every count start anew, one that is not may judge by older answers.
const LATE: Duration = Duration::from_millis(500);
const IDLE: Duration = Duration::from_secs(15 * 60);
const REUSE_IDLE: Duration = Duration::from_secs(16 * 60);

/// A breach of an invariant.
#[derive(Debug)]
pub(crate) struct Breach(pub(crate) String);

/// Whether all that was looked at holds.
pub(crate) type Checked = Result<(), Breach>;

/// What the reference knows of one anchor.
#[derive(Debug)]
pub(crate) struct Model {
    key: AnchorKey,
    number: usize,
    pub(crate) book: Book,
    peers: Vec<Peer>,
    pins: BTreeMap<FlowKey, Pin>,
    /// Every count of unanswered packets starts here or later.
    anew: Mono,
    is_fault_local: bool,
    has_slept: bool,
    /// Who has each client address here, and when it was used last.
    pool: BTreeMap<IpAddr, (Who, Mono)>,
    /// Breaches that were noticed while something else was going on.
    breaches: Vec<Breach>,
}

/// One peer as this anchor's packets find it.
#[derive(Debug, Default)]
struct Peer {
    key: Option<AnchorKey>,
    /// Data without proof of receipt: when each was sent.
    unproven: VecDeque<Mono>,
    /// Everything sent until then is proven: a round trip that began then was completed.
    proven: Option<Mono>,
    /// When the last proof came.
    proof_came: Mono,
    failed: Option<Mono>,
    /// It has not returned since.
    is_out: bool,
    /// Of the peer's data: when the latest that came here was sent.
    received: Option<Mono>,
}

#[derive(Clone, Copy, Debug)]
struct Pin {
    holder: Option<usize>,
    /// The last packet in either direction, by the time that runs during a suspend.
    last: Mono,
    /// Something of the flow was sent to this holder.
    is_used: bool,
}

impl Model {
    /// Returns the model of anchor `number` among those with these keys.
    pub(crate) fn new(number: usize, keys: &[AnchorKey]) -> Self {
        let peers = keys.iter().map(|key| Peer {
            key: Some(*key),
            ..Peer::default()
        });
        Self {
            key: keys[number],
            number,
            book: Book::default(),
            peers: peers.collect(),
            pins: BTreeMap::new(),
            anew: Mono::default(),
            is_fault_local: false,
            has_slept: false,
            pool: BTreeMap::new(),
            breaches: Vec::new(),
        }
    }

    /// The daemon starts again: it keeps client addresses alone.
    pub(crate) fn restart(&mut self) {
        let keys: Vec<AnchorKey> = self.peers.iter().filter_map(|peer| peer.key).collect();
        let pool = std::mem::take(&mut self.pool);
        *self = Self {
            pool,
            ..Self::new(self.number, &keys)
        };
    }

    /// Data went out to a peer. To one that has failed only resets go; no flow rests on those.
    pub(crate) fn data_sent(&mut self, mono: Mono, peer: usize) {
        let peer = &mut self.peers[peer];
        if !peer.is_out {
            peer.unproven.push_back(mono);
        }
    }

    /// A peer that had failed may be used again.
    pub(crate) fn returned(&mut self, peer: usize) {
        self.peers[peer].is_out = false;
    }

    /// Something authentic came from a peer.
    pub(crate) fn heard(&mut self, mono: Mono) {
        if self.is_fault_local {
            self.is_fault_local = false;
            self.anew = mono;
        }
    }

    /// Data of a peer came, sent by its clock at `sent`.
    pub(crate) fn data_came(&mut self, peer: usize, sent: Mono) {
        let received = &mut self.peers[peer].received;
        *received = (*received).max(Some(sent));
    }

    /// Returns what an echo or keepalive to `peer` proves: all data until then came.
    pub(crate) fn received(&self, peer: usize) -> Option<Mono> {
        self.peers[peer].received
    }

    /// Proof came that what was sent to `peer` until `sent` had arrived, or something sent then.
    pub(crate) fn proof_came(&mut self, mono: Mono, peer: usize, sent: Mono) {
        let peer = &mut self.peers[peer];
        peer.proof_came = mono;
        peer.proven = peer.proven.max(Some(sent));
        while peer.unproven.front().is_some_and(|at| *at <= sent) {
            peer.unproven.pop_front();
        }
    }

    /// A new session with a peer that has restarted: what it had received under the old keys
    /// proves nothing more.
    pub(crate) fn peer_restarted(&mut self, peer: usize) {
        self.peers[peer].received = None;
    }

    /// A peer was forgotten: it left, or its advert has expired.
    pub(crate) fn forgotten(&mut self, peer: usize) {
        let key = self.peers[peer].key;
        self.peers[peer] = Peer {
            key,
            ..Peer::default()
        };
    }

    /// Every count starts anew: a timer was late, or the machine slept.
    pub(crate) fn start_anew(&mut self, mono: Mono) {
        self.anew = self.anew.max(mono);
    }

    /// The machine has slept: that is noticed by the timers that fire next.
    pub(crate) fn sleep_ended(&mut self) {
        self.has_slept = true;
    }

    /// Timers fire.
    pub(crate) fn timers_fire(&mut self, mono: Mono) {
        if std::mem::take(&mut self.has_slept) {
            self.start_anew(mono);
        }
    }

    /// The anchor judged a peer as failed.
    pub(crate) fn failed(&mut self, mono: Mono, peer: usize, rtt: Duration, others: &[PeerView]) {
        let window = deadline(rtt);
        let state = &mut self.peers[peer];
        state.failed = Some(mono);
        state.is_out = true;
        state.unproven.clear();
        let proven = state.proven;
        if proven.is_some_and(|proven| proven > mono - window) {
            let text = format!(
                "4: {} left {peer}, which answered what was sent {:?} ago (deadline {window:?})",
                self.number,
                proven.map(|at| mono.since(at))
            );
            self.breaches.push(Breach(text));
        }
        let witnesses = self.witnesses(peer, others);
        // One that has failed tells nothing by its silence, but by its answer.
        let is_witnessed = self.peers.iter().enumerate().any(|(other, state)| {
            let proven = state.proven.filter(|_| other != peer);
            proven.is_some_and(|proven| proven + window + LATE >= mono)
        });
        if !witnesses.is_empty() && !is_witnessed {
            let text = format!(
                "5: {} left {peer} though none of {witnesses:?} answers either",
                self.number
            );
            self.breaches.push(Breach(text));
        }
    }

    /// The anchor judged that its own network is at fault, not the peer.
    pub(crate) fn fault_was_local(&mut self, mono: Mono, peer: usize, others: &[PeerView]) {
        self.is_fault_local = true;
        let witnesses = self.witnesses(peer, others);
        let answering = witnesses.into_iter().find(|other| {
            self.peers[*other]
                .proven
                .is_some_and(|proven| proven + WITNESSED_FOR >= mono)
        });
        if let Some(other) = answering {
            let text = format!(
                "5: {} takes {peer}'s silence for a local fault though {other} answers",
                self.number
            );
            self.breaches.push(Breach(text));
        }
    }

    /// Something of a flow went to its holder.
    pub(crate) fn flow_sent(&mut self, boot: Mono, key: FlowKey) {
        if let Some(pin) = self.pins.get_mut(&key) {
            pin.last = boot;
            pin.is_used = true;
        }
    }

    /// A packet of a flow waits for a holder to answer.
    pub(crate) fn flow_held(&mut self, boot: Mono, key: FlowKey) {
        if let Some(pin) = self.pins.get_mut(&key) {
            // After 15 minutes it begins anew, on the same holder too.
            pin.is_used &= boot.since(pin.last) < IDLE;
            pin.last = boot;
        }
    }

    /// Something of a flow came from `server`, whoever that was.
    pub(crate) fn flow_answered(&mut self, boot: Mono, key: FlowKey, server: usize) {
        let Some(pin) = self.pins.get_mut(&key) else {
            let text = format!("6: {} was answered without a flow: {key:?}", self.number);
            self.breaches.push(Breach(text));
            return;
        };
        pin.last = boot;
        if pin.holder != Some(server) {
            let text = format!(
                "6: {} was answered by {server} in a flow on {:?}",
                self.number, pin.holder
            );
            self.breaches.push(Breach(text));
        }
    }

    /// A client's host came to this holder as `client`.
    pub(crate) fn served(&mut self, boot: Mono, client: IpAddr, who: Who) {
        let last = self.pool.insert(client, (who, boot));
        if let Some((before, last)) = last
            && before != who
            && boot.since(last) < REUSE_IDLE
        {
            let text = format!(
                "7: {client} went from {before:?} to {who:?} on {} after {:?}",
                self.number,
                boot.since(last)
            );
            self.breaches.push(Breach(text));
        }
    }

    /// This holder sent something to a client.
    pub(crate) fn answered_client(&mut self, boot: Mono, client: IpAddr) {
        if let Some((_, last)) = self.pool.get_mut(&client) {
            *last = boot;
        }
    }

    /// Compares the flow table with what was known of it before; to be called after everything
    /// that can change it.
    pub(crate) fn check_flows(
        &mut self,
        mono: Mono,
        boot: Mono,
        own: &TaintSet,
        views: &[FlowView],
        flows_cap: usize,
    ) -> Checked {
        if let Some(breach) = self.breaches.pop() {
            return Err(breach);
        }
        let mut seen = 0;
        for view in views {
            let key = view.flow.key;
            let holder = view.flow.holder.map(|holder| holder.0 as usize);
            if let Some(holder) = holder {
                self.check_rest(own, key, holder)?;
            }
            let Some(pin) = self.pins.get(&key).copied() else {
                let pin = Pin {
                    holder,
                    last: boot,
                    is_used: false,
                };
                self.pins.insert(key, pin);
                seen += 1;
                continue;
            };
            seen += 1;
            if pin.holder == holder {
                continue;
            }
            self.check_move(mono, boot, own, key, pin)?;
            let moved = Pin {
                holder,
                is_used: false,
                ..pin
            };
            self.pins.insert(key, moved);
        }
        if seen < self.pins.len() {
            self.check_forgotten(boot, views, flows_cap)?;
        }
        Ok(())
    }

    /// Checks that no flow has stayed for too long on a holder that does not answer.
    pub(crate) fn check_deadlines(
        &self,
        mono: Mono,
        lag: Duration,
        view_of: impl Fn(usize) -> PeerView,
    ) -> Checked {
        if self.is_fault_local || self.has_slept {
            return Ok(());
        }
        for (number, peer) in self.peers.iter().enumerate() {
            let Some(&oldest) = peer.unproven.front() else {
                continue;
            };
            // A proof that comes late says that the peer lives: it has its chance to answer then.
            let chance = peer.proof_came - HEAD_START;
            let age = mono.since(oldest.max(self.anew).max(chance));
            if age < DEADLINE {
                continue;
            }
            let deadline = deadline(view_of(number).rtt.unwrap_or_default());
            let tick = TICK.max(deadline / TICKS_PER_DEADLINE) + lag;
            let is_pinned = |pin: &Pin| pin.is_used && pin.holder == Some(number);
            if age > deadline + tick && self.pins.values().any(is_pinned) {
                return Err(Breach(format!(
                    "3: {} stays on {number}, which has not answered for {age:?} (deadline {deadline:?}, oldest {:?} ago, anew {:?} ago, proof {:?} ago)",
                    self.number,
                    mono.since(oldest),
                    mono.since(self.anew),
                    mono.since(peer.proof_came)
                )));
            }
        }
        Ok(())
    }

    /// Checks the sizes of tables.
    pub(crate) fn check_sizes(
        &self,
        sizes: Sizes,
        flows_cap: usize,
        connections_cap: usize,
        clients_cap: usize,
    ) -> Checked {
        let is_within = sizes.flows <= flows_cap
            && sizes.connections <= connections_cap
            && sizes.clients <= clients_cap;
        if is_within {
            return Ok(());
        }
        Err(Breach(format!(
            "8: {} has {sizes:?}, caps are {flows_cap}, {connections_cap}, {clients_cap}",
            self.number
        )))
    }

    fn check_rest(&self, own: &TaintSet, key: FlowKey, holder: usize) -> Checked {
        let Some(holder_key) = self.peers[holder].key else {
            return Ok(());
        };
        let what = if self.book.has_left(&holder_key) {
            "said goodbye"
        } else if self.book.forbids(own, &holder_key) {
            "may not be used: taints forbid it"
        } else {
            return Ok(());
        };
        Err(Breach(format!(
            "2: {}'s flow to {} rests on {holder}, which {what}",
            self.number, key.destination
        )))
    }

    fn check_move(
        &self,
        mono: Mono,
        boot: Mono,
        own: &TaintSet,
        key: FlowKey,
        pin: Pin,
    ) -> Checked {
        let Some(old) = pin.holder else {
            return Ok(());
        };
        let peer = &self.peers[old];
        let is_allowed = !pin.is_used
            || boot.since(pin.last) >= IDLE
            || peer.failed == Some(mono)
            || peer.key.is_some_and(|old| {
                !self.book.holds(mono, own, &old, key.destination) && old != self.key
            });
        if is_allowed {
            return Ok(());
        }
        Err(Breach(format!(
            "1: {}'s flow to {} left {old} without a cause; it was idle for {:?}",
            self.number,
            key.destination,
            boot.since(pin.last)
        )))
    }

    fn check_forgotten(&mut self, boot: Mono, views: &[FlowView], cap: usize) -> Checked {
        let number = self.number;
        let mut breach = None;
        self.pins.retain(|key, pin| {
            if views.iter().any(|view| view.flow.key == *key) {
                return true;
            }
            if boot.since(pin.last) < IDLE && views.len() < cap && pin.is_used {
                breach = Some(Breach(format!(
                    "1: {number} forgot its flow to {} after {:?} of idleness",
                    key.destination,
                    boot.since(pin.last)
                )));
            }
            false
        });
        breach.map_or(Ok(()), Err)
    }

    /// Returns the peers whose silence or answers tell about this machine's own network.
    fn witnesses(&self, but: usize, others: &[PeerView]) -> Vec<usize> {
        let all = others.iter().enumerate();
        all.filter(|(number, view)| {
            *number != but && *number != self.number && view.has_session && !view.is_failed
        })
        .map(|(number, _)| number)
        .collect()
    }
}

/// SPEC section 5: two seconds, above a round trip of 500 ms four of these.
fn deadline(rtt: Duration) -> Duration {
    if rtt > LONG_ROUND_TRIP {
        rtt * DEADLINE_ROUND_TRIPS
    } else {
        DEADLINE
    }
}
