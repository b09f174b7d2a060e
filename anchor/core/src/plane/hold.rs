//! First packets that wait for an answer: a flow drawn to a holder not heard from lately does not
//! risk the two seconds of a failure (SPEC section 4). All holders of the group are asked; the
//! packet goes to the drawn one when that answers, else, after a while, to the first that did.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Head, Output, Plane};
use crate::ids::{FlowId, PeerIx};
use crate::liveness::LATE;
use crate::packet::Offload;
use crate::plane::counters::DropReason;
use crate::plane::outbound::Placed;
use crate::table::{Map, map};
use crate::time::{Mono, Now};

/// A holder heard from within this long takes a new flow without being asked.
const FRESH: Duration = Duration::from_secs(10);
/// The drawn holder is waited for at least this long before another one is taken.
const PATIENCE: Duration = Duration::from_millis(200);
/// With no answer from anybody the packets are given up: as long as a failure takes.
const GIVE_UP: Duration = Duration::from_secs(2);
/// Packets held for one flow; a first packet is seldom followed by many before its answer.
const PACKETS_PER_FLOW: usize = 16;
/// Bytes held for all flows together.
const BYTES: usize = 8 << 20;
/// Flows that wait at a time; more are sent on unasked.
const FLOWS: usize = 4096;

/// Packets as they came from the interface.
pub(super) type Waiting = Vec<(Vec<u8>, Offload)>;

struct Hold {
    flow: FlowId,
    drawn: PeerIx,
    group: SmallVec<[PeerIx; 8]>,
    first_to_answer: Option<PeerIx>,
    since: Mono,
    fallback_at: Mono,
    packets: Waiting,
}

/// The flows that wait.
pub(super) struct Holds {
    waiting: Vec<Hold>,
    /// Places in `waiting`, since every packet asks whether its flow waits.
    places: Map<FlowId, usize>,
    bytes: usize,
}

impl Holds {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            waiting: Vec::new(),
            places: map(seed),
            bytes: 0,
        }
    }

    pub(super) fn contains(&self, flow: FlowId) -> bool {
        self.places.contains_key(&flow)
    }

    /// Takes what waits for `flow`.
    pub(super) fn take_flow(&mut self, flow: FlowId) -> Option<Waiting> {
        let at = *self.places.get(&flow)?;
        Some(self.take(at).packets)
    }

    pub(super) fn poll_timeout(&self) -> Option<Mono> {
        self.waiting
            .iter()
            .map(|hold| match hold.first_to_answer {
                Some(_) => hold.fallback_at,
                None => hold.since + GIVE_UP,
            })
            .min()
    }

    fn take(&mut self, at: usize) -> Hold {
        let hold = self.waiting.swap_remove(at);
        self.places.remove(&hold.flow);
        if let Some(moved) = self.waiting.get(at) {
            self.places.insert(moved.flow, at);
        }
        self.bytes -= hold
            .packets
            .iter()
            .map(|(packet, _)| packet.len())
            .sum::<usize>();
        hold
    }

    fn keep(&mut self, at: usize, packet: &[u8], offload: Offload) -> Result<(), DropReason> {
        let hold = &mut self.waiting[at];
        if hold.packets.len() >= PACKETS_PER_FLOW || self.bytes + packet.len() > BYTES {
            return Err(DropReason::HoldFull);
        }
        self.bytes += packet.len();
        hold.packets.push((packet.to_vec(), offload));
        Ok(())
    }
}

#[cfg(test)]
impl Holds {
    /// Panics unless each hold is its flow's only one and on its holder, and bytes add up.
    pub(super) fn check(&self, flows: &crate::flows::Flows) {
        let bytes = |hold: &Hold| {
            hold.packets
                .iter()
                .map(|(packet, _)| packet.len())
                .sum::<usize>()
        };
        assert_eq!(self.places.len(), self.waiting.len());
        assert_eq!(self.waiting.iter().map(bytes).sum::<usize>(), self.bytes);
        for (at, hold) in self.waiting.iter().enumerate() {
            assert_eq!(self.places.get(&hold.flow), Some(&at));
            assert_eq!(
                flows.get(hold.flow).and_then(|flow| flow.holder),
                Some(hold.drawn)
            );
        }
    }
}

impl Plane {
    /// Says whether a holder was heard from lately enough, and can be sent to.
    pub(super) fn is_fresh(&self, now: Now, holder: PeerIx) -> bool {
        self.sessions.can_send(holder)
            && !self.liveness.is_suspect(holder)
            && self
                .liveness
                .last_heard(holder)
                .is_some_and(|heard| now.mono.since(heard) < FRESH)
    }

    /// Has the packets of a flow wait and asks every holder of its group; false when too many
    /// flows wait already, so that this one goes unasked.
    pub(super) fn hold(
        &mut self,
        now: Now,
        flow: FlowId,
        drawn: PeerIx,
        candidates: &[PeerIx],
    ) -> bool {
        if self.holds.waiting.len() >= FLOWS {
            return false;
        }
        let patience = self
            .costs
            .rtt(drawn)
            .map_or(PATIENCE, |rtt| (rtt * 3).max(PATIENCE));
        self.holds.places.insert(flow, self.holds.waiting.len());
        self.holds.waiting.push(Hold {
            flow,
            drawn,
            group: SmallVec::from_slice(candidates),
            first_to_answer: None,
            since: now.mono,
            fallback_at: now.mono + patience,
            packets: Vec::new(),
        });
        self.ask_group(now, candidates);
        self.ask_others(now, drawn);
        true
    }

    /// After a move: what waited for the old holder goes on, or waits for `drawn` with all that
    /// follows when that one is still to be asked.
    pub(super) fn wait_on(
        &mut self,
        now: Now,
        flow: FlowId,
        drawn: Option<PeerIx>,
        candidates: &[PeerIx],
        waiting: Option<Waiting>,
    ) {
        if let Some(drawn) = drawn {
            self.hold(now, flow, drawn, candidates);
        }
        self.send_again(waiting.unwrap_or_default());
    }

    /// Another packet of a flow that waits.
    pub(super) fn hold_more(
        &mut self,
        flow: FlowId,
        head: &mut Head<'_>,
        offload: &Offload,
    ) -> Result<Placed, DropReason> {
        let at = *self.holds.places.get(&flow).ok_or(DropReason::HoldFull)?;
        self.holds.keep(at, head.packet(), *offload)?;
        Ok(Placed::Held)
    }

    /// A peer has answered: flows drawn to it go on, others remember who was first.
    pub(super) fn release_holds(&mut self, now: Now, peer: PeerIx) {
        let mut at = 0;
        while at < self.holds.waiting.len() {
            let hold = &mut self.holds.waiting[at];
            if hold.drawn == peer {
                let hold = self.holds.take(at);
                self.release(now, hold, peer);
                continue;
            }
            if hold.first_to_answer.is_none() && hold.group.contains(&peer) {
                hold.first_to_answer = Some(peer);
            }
            at += 1;
        }
    }

    /// Acts on the flows that have waited long enough.
    pub(super) fn expire_holds(&mut self, now: Now) {
        let mut at = 0;
        while at < self.holds.waiting.len() {
            let hold = &self.holds.waiting[at];
            if now.mono >= hold.fallback_at && hold.first_to_answer.is_some() {
                let usable = self.usable(hold);
                self.holds.waiting[at].first_to_answer = usable;
                if let Some(first) = usable {
                    let hold = self.holds.take(at);
                    self.release(now, hold, first);
                    continue;
                }
            }
            let hold = &self.holds.waiting[at];
            let deadline = hold.since + GIVE_UP;
            if hold.first_to_answer.is_none() && now.mono >= deadline {
                if now.mono.since(deadline) <= LATE {
                    let hold = self.holds.take(at);
                    self.give_up(now, hold);
                    continue;
                }
                self.ask_anew(now, at);
            }
            at += 1;
        }
    }

    /// This process was not running when time was up: answers may lie unread, so the group is asked
    /// once more and the wait starts anew (SPEC section 5).
    fn ask_anew(&mut self, now: Now, at: usize) {
        let hold = &mut self.holds.waiting[at];
        hold.since = now.mono;
        let (drawn, group) = (hold.drawn, hold.group.clone());
        self.ask_group(now, &group);
        self.ask_others(now, drawn);
    }

    fn ask_group(&mut self, now: Now, group: &[PeerIx]) {
        for &holder in group {
            if self.sessions.can_send(holder) {
                self.liveness.probe_now(now.mono, holder);
            } else {
                self.ask_for_session(now.mono, holder);
            }
        }
    }

    /// Returns the first that answered, or another that did when it has left meanwhile.
    fn usable(&self, hold: &Hold) -> Option<PeerIx> {
        let flow = self.flows.get(hold.flow)?;
        let (_, candidates) = self.candidates(flow.key.destination).ok()?;
        let answered = |holder: &PeerIx| self.liveness.answered_since(*holder, hold.since);
        let others = hold.group.iter().copied().filter(answered);
        hold.first_to_answer
            .into_iter()
            .chain(others)
            .find(|holder| candidates.contains(holder))
    }

    fn release(&mut self, now: Now, hold: Hold, holder: PeerIx) {
        if let Some(&flow) = self.flows.get(hold.flow)
            && flow.holder != Some(holder)
        {
            self.repin(now, hold.flow, Some(holder), flow.reason);
        }
        self.send_again(hold.packets);
    }

    /// Nobody of the group answered. When other peers do, those holders have failed, and the
    /// packets are answered as for a group without holders; else the fault is this machine's own
    /// network, and the packets are given to the drawn holder for what it is worth.
    fn give_up(&mut self, now: Now, hold: Hold) {
        if !self.is_local_fault(hold.drawn, hold.since) {
            for &holder in &hold.group {
                if !self.liveness.answered_since(holder, hold.since) {
                    self.fail(now, holder, hold.since);
                }
            }
            self.send_again(hold.packets);
            return;
        }
        let drawn = hold.drawn;
        if self.sessions.can_send(drawn) {
            self.release(now, hold, drawn);
            return;
        }
        for _ in hold.packets {
            self.counters.drop_packet(DropReason::HoldExpired);
        }
    }

    fn send_again(&mut self, packets: Waiting) {
        for (packet, offload) in packets {
            self.outputs.push_back(Output::FromHost { packet, offload });
        }
    }
}
