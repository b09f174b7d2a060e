//! First packets that wait for an answer: a flow drawn to a holder not heard from lately does not
//! risk the two seconds of a failure (SPEC section 4). All holders of the group are asked; the
//! packet goes to the drawn one when that answers, else, after a while, to the first that did.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Head, Output, Plane};
use crate::ids::{FlowId, PeerIx};
use crate::packet::Offload;
use crate::plane::counters::DropReason;
use crate::plane::outbound::Placed;
use crate::reason::Reason;
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

struct Hold {
    flow: FlowId,
    drawn: PeerIx,
    group: SmallVec<[PeerIx; 8]>,
    first_to_answer: Option<PeerIx>,
    since: Mono,
    fallback_at: Mono,
    packets: Vec<(Vec<u8>, Offload)>,
}

/// The flows that wait.
pub(super) struct Holds {
    waiting: Vec<Hold>,
    bytes: usize,
}

impl Holds {
    pub(super) const fn new() -> Self {
        Self { waiting: Vec::new(), bytes: 0 }
    }

    pub(super) fn contains(&self, flow: FlowId) -> bool {
        self.waiting.iter().any(|hold| hold.flow == flow)
    }

    /// Drops what waits for `flow`.
    pub(super) fn remove(&mut self, flow: FlowId) {
        if let Some(at) = self.waiting.iter().position(|hold| hold.flow == flow) {
            self.take(at);
        }
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
        self.bytes -= hold.packets.iter().map(|(packet, _)| packet.len()).sum::<usize>();
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

    /// Holds the first packet of a flow and asks every holder of its group.
    pub(super) fn hold(
        &mut self,
        now: Now,
        flow: FlowId,
        drawn: PeerIx,
        candidates: &[PeerIx],
        head: &mut Head<'_>,
        offload: &Offload,
    ) -> Result<(), DropReason> {
        if self.holds.waiting.len() >= FLOWS {
            return Err(DropReason::HoldFull);
        }
        let patience = self.costs.rtt(drawn).map_or(PATIENCE, |rtt| (rtt * 3).max(PATIENCE));
        self.holds.waiting.push(Hold {
            flow,
            drawn,
            group: SmallVec::from_slice(candidates),
            first_to_answer: None,
            since: now.mono,
            fallback_at: now.mono + patience,
            packets: Vec::new(),
        });
        for &candidate in candidates {
            if self.sessions.can_send(candidate) {
                self.liveness.probe_now(now.mono, candidate);
            } else {
                self.ask_for_session(now.mono, candidate);
            }
        }
        self.ask_others(now, drawn);
        let at = self.holds.waiting.len() - 1;
        self.holds.keep(at, head.packet(), *offload)
    }

    /// Another packet of a flow that waits.
    pub(super) fn hold_more(
        &mut self,
        flow: FlowId,
        head: &mut Head<'_>,
        offload: &Offload,
    ) -> Result<Placed, DropReason> {
        let at = self.holds.waiting.iter().position(|hold| hold.flow == flow);
        let at = at.ok_or(DropReason::HoldFull)?;
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
            match hold.first_to_answer {
                Some(first) if now.mono >= hold.fallback_at => {
                    let hold = self.holds.take(at);
                    self.release(now, hold, first);
                }
                None if now.mono >= hold.since + GIVE_UP => {
                    let hold = self.holds.take(at);
                    self.give_up(now, hold);
                }
                Some(_) | None => at += 1,
            }
        }
    }

    fn release(&mut self, now: Now, hold: Hold, holder: PeerIx) {
        if let Some(flow) = self.flows.get(hold.flow)
            && flow.holder != Some(holder)
        {
            let reason = flow.reason;
            self.flows.set_holder(now.boot, hold.flow, Some(holder), reason);
        }
        for (packet, offload) in hold.packets {
            self.outputs.push_back(Output::FromHost { packet, offload });
        }
    }

    /// Nobody of the group answered. When other peers do, those holders have failed and the
    /// packets are answered as for a group without holders; else the fault is this machine's own
    /// network, and the packets are given to the drawn holder for what it is worth.
    fn give_up(&mut self, now: Now, hold: Hold) {
        let is_local = self.is_local_fault(hold.drawn, hold.since);
        if is_local && self.sessions.can_send(hold.drawn) {
            let drawn = hold.drawn;
            self.release(now, hold, drawn);
            return;
        }
        if !is_local {
            for &holder in &hold.group {
                if !self.liveness.answered_since(holder, hold.since) {
                    self.fail(now, holder);
                }
            }
        }
        if self.flows.get(hold.flow).is_some_and(|flow| flow.holder.is_some()) {
            self.flows.set_holder(now.boot, hold.flow, None, Reason::Failed);
        }
        for (packet, offload) in hold.packets {
            self.outputs.push_back(Output::FromHost { packet, offload });
        }
    }
}
