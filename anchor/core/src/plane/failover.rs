//! What happens to flows when a holder leaves, fails or may not be used any more: the one place
//! where flows move (SPEC section 5). Resets and SYN replays follow from `connections`.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use smallvec::SmallVec;

use super::timers::network_of;
use super::{Event, Output, Plane};
use crate::ids::{FlowId, PeerIx};
use crate::liveness::{Surroundings, Verdict, judge};
use crate::reason::Reason;
use crate::routes::{Route, Routes};
use crate::time::{Mono, Now};

/// Peers outside the group that are asked when a holder is suspected: enough to tell a dead
/// holder from a dead uplink, few enough to cost nothing.
const WITNESSES: usize = 8;

impl Plane {
    /// Takes a new snapshot of routes; flows on holders that no longer hold their destination, or
    /// may not exchange data any more, move at once.
    pub fn set_routes(&mut self, now: Now, routes: Arc<Routes>) {
        let before = std::mem::replace(&mut self.routes, routes);
        self.left.clear();
        for holder in self.flows.holders() {
            if holds_the_same(&before, &self.routes, holder) {
                continue;
            }
            let reason = match self.routes.peer(holder) {
                Some(facts) if !facts.may_exchange => Reason::Taint,
                Some(_) | None => Reason::Left,
            };
            self.move_flows(now, holder, reason, None, |plane, flow| {
                !plane.holds_flow(flow, holder)
            });
        }
        self.tell_all(now.mono, &before);
    }

    /// A peer said goodbye: all its flows move now, and it is forgotten.
    pub fn handle_left(&mut self, now: Now, peer: PeerIx) {
        self.liveness.remove_peer(peer);
        if !self.left.contains(&peer) {
            self.left.push(peer);
        }
        self.move_flows(now, peer, Reason::Left, None, |_, _| true);
        self.forget(peer);
    }

    /// Acts on a deadline: judges, and moves or keeps.
    pub(super) fn handle_deadline(&mut self, now: Now, peer: PeerIx, asked: Mono) {
        if self.is_local_fault(peer, asked) {
            self.counters.local_faults += 1;
            self.liveness.restart(now.mono, peer);
            self.outputs
                .push_back(Output::Event(Event::LocalFault(peer)));
            return;
        }
        self.fail(now, peer, asked);
    }

    /// Says whether nobody but this machine can be at fault: others are known and none of them
    /// has answered since `asked`. One that failed before this is no witness by its silence: where
    /// holders die one after another the last of them has failed too.
    pub(super) fn is_local_fault(&self, peer: PeerIx, asked: Mono) -> bool {
        let others = self.paths.keys().copied().filter(|&other| other != peer);
        let known: SmallVec<[PeerIx; 16]> = others
            .filter(|&other| self.sessions.can_send(other))
            .filter(|&other| {
                !self.liveness.is_failed(other) || self.liveness.answered_since(other, asked)
            })
            .collect();
        let answering = known
            .iter()
            .filter(|&&other| self.liveness.answered_since(other, asked))
            .count();
        let around = Surroundings {
            // Every answering peer is a witness; whether it is of the group decides where flows
            // go, not whether the holder has failed.
            others_in_group_answering: 0,
            others_in_group: 0,
            other_peers_known: known.len(),
            other_peers_answering: answering,
        };
        judge(&around) == Verdict::Local
    }

    /// Marks a holder as failed and moves its flows to those that answered since `asked`.
    pub(super) fn fail(&mut self, now: Now, peer: PeerIx, asked: Mono) {
        if self.liveness.is_failed(peer) {
            return;
        }
        // One never met fails too, or it would be drawn again and again.
        self.liveness.add_peer(peer);
        self.liveness.fail(now.mono, peer);
        self.tell_use(now.mono, peer);
        self.counters.holder_failures += 1;
        self.move_flows(now, peer, Reason::Failed, Some(asked), |_, _| true);
    }

    /// Asks the rest of the groups of a suspect, and some other peers.
    pub(super) fn handle_suspect(&mut self, now: Now, peer: PeerIx) {
        let mut asked = SmallVec::<[PeerIx; 16]>::new();
        let mut networks = SmallVec::<[IpAddr; 8]>::new();
        let mut next = self.flows.first_on_holder(peer);
        while let Some(id) = next {
            next = self.flows.next_on_holder(id);
            let Some(flow) = self.flows.get(id) else {
                continue;
            };
            if networks.contains(&flow.key.destination) || networks.len() >= 64 {
                continue;
            }
            networks.push(flow.key.destination);
            let Ok((_, candidates)) = self.candidates(flow.key.destination) else {
                continue;
            };
            for candidate in candidates {
                if candidate != peer && !asked.contains(&candidate) {
                    asked.push(candidate);
                }
            }
        }
        for other in asked {
            self.liveness.probe_now(now.mono, other);
        }
        self.ask_others(now, peer);
    }

    /// Asks a few peers whether anybody answers at all.
    pub(super) fn ask_others(&mut self, now: Now, peer: PeerIx) {
        let mut others: SmallVec<[PeerIx; 16]> = self
            .paths
            .keys()
            .copied()
            .filter(|&other| other != peer && self.sessions.can_send(other))
            .collect();
        others.sort_unstable();
        self.random.shuffle(&mut others);
        for &other in others.iter().take(WITNESSES) {
            self.liveness.probe_now(now.mono, other);
        }
    }

    /// Moves those flows of `holder` that `wanted` names, each drawn for itself; after a failure
    /// to those that answered since `asked`.
    fn move_flows(
        &mut self,
        now: Now,
        holder: PeerIx,
        reason: Reason,
        asked: Option<Mono>,
        wanted: impl Fn(&Self, FlowId) -> bool,
    ) {
        let (mut moved, mut stranded) = (0, 0);
        let mut next = self.flows.first_on_holder(holder);
        while let Some(id) = next {
            next = self.flows.next_on_holder(id);
            if !wanted(self, id) {
                continue;
            }
            if self.move_flow(now, id, holder, reason, asked) {
                moved += 1;
            } else {
                stranded += 1;
            }
        }
        if reason == Reason::Failed {
            self.outputs.push_back(Output::Event(Event::Failed {
                peer: holder,
                moved,
                stranded,
            }));
        } else if moved + stranded > 0 {
            let event = Event::Left {
                peer: holder,
                reason,
                moved,
                stranded,
            };
            self.outputs.push_back(Output::Event(event));
        }
    }

    /// Moves one flow away from `old`; false when nobody is left for it.
    pub(super) fn move_flow(
        &mut self,
        now: Now,
        id: FlowId,
        old: PeerIx,
        reason: Reason,
        asked: Option<Mono>,
    ) -> bool {
        let Some(flow) = self.flows.get(id).copied() else {
            return false;
        };
        let (prefix_len, mut candidates) = self
            .candidates(flow.key.destination)
            .unwrap_or_else(|_| (flow.prefix_len, SmallVec::new()));
        candidates.retain(|candidate| *candidate != old);
        let is_answering = |&candidate: &PeerIx| match asked {
            Some(asked) => self.liveness.answered_since(candidate, asked),
            None => self.is_fresh(now, candidate),
        };
        let mut answering: SmallVec<[PeerIx; 8]> =
            candidates.iter().copied().filter(is_answering).collect();
        self.spare_draining(&mut answering);
        self.spare_draining(&mut candidates);
        let mut drawn = self.draw(now, &answering);
        if drawn.is_none() && asked.is_none() {
            // Nobody was asked yet: one of them is, while packets wait.
            drawn = self.draw(now, &candidates);
        }
        if drawn.is_none() {
            self.want_group(now, flow.key.destination);
        } else {
            self.set_network(now.mono, id, prefix_len);
        }
        self.counters.choose(reason);
        let waiting = self.holds.take_flow(id);
        self.repin(now, id, drawn, reason);
        self.wait_on(
            now,
            id,
            drawn.filter(|_| answering.is_empty()),
            &candidates,
            waiting,
        );
        drawn.is_some()
    }

    /// Puts a flow on another holder, or on none, and has its connections reset.
    pub(super) fn repin(&mut self, now: Now, id: FlowId, to: Option<PeerIx>, reason: Reason) {
        self.watch(now, id, false);
        self.flows.set_holder(now.boot, id, to, reason);
        self.connections.move_flow(now, id);
    }

    /// Keeps asking the failed holders of a destination that somebody wants.
    pub(super) fn want_group(&mut self, now: Now, destination: IpAddr) {
        let Some(Route::Group(group)) = self.routes.lookup(destination) else {
            return;
        };
        let holders: SmallVec<[PeerIx; 8]> = group.holders.iter().copied().collect();
        for holder in holders {
            if self.liveness.is_failed(holder) {
                self.want(now.mono, holder);
            }
            if !self.sessions.can_send(holder) {
                self.ask_for_session(now.mono, holder);
            }
        }
    }

    /// Says whether `holder` is in the group of a flow's destination.
    fn holds_flow(&self, id: FlowId, holder: PeerIx) -> bool {
        let Some(flow) = self.flows.get(id) else {
            return false;
        };
        self.routes
            .holds(holder, network_of(flow.key.destination, flow.prefix_len))
    }
}

/// Says whether a peer holds the same networks for us in both snapshots.
fn holds_the_same(before: &Routes, after: &Routes, peer: PeerIx) -> bool {
    match (before.peer(peer), after.peer(peer)) {
        (Some(old), Some(new)) if old == new => {
            let subnets = new.networks.iter().map(|claim| claim.network);
            let address = new
                .ipv4
                .iter()
                .map(|claim| IpNet::from(IpAddr::V4(claim.network)));
            subnets
                .chain(address)
                .all(|network| before.holds(peer, network) == after.holds(peer, network))
        }
        (Some(_), Some(_) | None) | (None, Some(_)) => false,
        (None, None) => true,
    }
}
