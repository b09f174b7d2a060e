//! Deadlines and effects: when the plane wants to be called, what it does then, and what the
//! parts want sent. Also the upkeep of what liveness is told about flows: which holders have open
//! connections to watch, which groups are in use.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use conflux_proto::frame::{FrameType, Probe};
use ipnet::IpNet;
use smallvec::SmallVec;

use super::{DropReason, Output, Plane};
use crate::connections::Action;
use crate::flows::IDLE_AFTER;
use crate::ids::{FlowId, PeerIx};
use crate::liveness::Event as LivenessEvent;
use crate::packet::{Offload, build_reset};
use crate::routes::Routes;
use crate::time::{Mono, Now};
use crate::translate::spelled;

/// How often idle flows are looked for while there are any.
const EXPIRY_EVERY: Duration = Duration::from_secs(15);
/// Flows looked at in one go, so that packets never wait for the upkeep of a large table.
const EXPIRY_BATCH: usize = 4096;
/// A failed holder is probed for this long after a packet that no holder could take: until Linux
/// has given up on a SYN.
const WANTED_FOR: Duration = Duration::from_secs(127);

impl Plane {
    /// Returns when [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Mono> {
        [
            self.liveness.poll_timeout(),
            self.connections.poll_timeout(),
            self.holds.poll_timeout(),
            self.sizes.poll_timeout(),
            self.links.poll_timeout(),
            self.trials.poll_timeout(),
            self.next_expiry,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Acts on everything due by `now`.
    pub fn handle_timeout(&mut self, now: Now) {
        self.liveness.handle_timeout(now);
        self.sizes.handle_timeout(now.mono);
        self.links.handle_timeout(now.mono);
        self.start_trials(now.mono);
        self.expire_holds(now);
        if self.next_expiry.is_some_and(|at| now.mono >= at) {
            self.expire(now);
        }
    }

    /// Returns the next thing to do; call it until it returns `None` after each input.
    pub fn poll_output(&mut self, now: Now) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            if let Some(event) = self.liveness.poll_event() {
                self.handle_liveness(now, event);
                continue;
            }
            if let Some(probe) = self.sizes.poll_probe() {
                self.send_size_probe(now.mono, probe);
                continue;
            }
            if let Some(change) = self.connections.poll_change() {
                self.watch(now, change.flow, change.has_open);
                continue;
            }
            let action = self.connections.poll_action(now)?;
            self.handle_action(action);
        }
    }

    fn handle_liveness(&mut self, now: Now, event: LivenessEvent) {
        match event {
            LivenessEvent::Probe {
                peer,
                id,
                all_paths,
            } => {
                self.send_probe(now.mono, peer, Probe { id }, all_paths);
                if !self.sessions.can_send(peer) {
                    self.ask_for_session(now.mono, peer);
                }
                if self.liveness.is_suspect(peer) || self.liveness.is_failed(peer) {
                    self.outputs
                        .push_back(Output::Event(super::Event::Unanswered(peer)));
                }
            }
            LivenessEvent::Suspect { peer } => {
                self.sizes.handle_suspect(now.mono, peer);
                self.handle_suspect(now, peer);
            }
            LivenessEvent::Deadline { peer, asked, .. } => self.handle_deadline(now, peer, asked),
            LivenessEvent::Returned { peer } => {
                self.outputs
                    .push_back(Output::Event(super::Event::Returned(peer)));
            }
            LivenessEvent::Keepalive { peer } => {
                let Some(path) = self.paths.get(&peer).and_then(|paths| paths.current) else {
                    return;
                };
                let payload = self.progress(peer).encode();
                self.send_frame(peer, FrameType::Keepalive, &payload, &[path]);
            }
        }
    }

    fn handle_action(&mut self, action: Action) {
        match action {
            Action::Reset {
                key,
                origin,
                sequence,
            } => {
                let Some(flow) = self.flows.get(key.flow) else {
                    return;
                };
                let far = match (origin, flow.key.destination) {
                    (IpAddr::V6(_), IpAddr::V4(far)) => spelled(far).into(),
                    (_, far) => far,
                };
                let mut reset = Vec::new();
                let from = SocketAddr::new(far, key.wire.far_port);
                let to = SocketAddr::new(origin, key.wire.host_port);
                if build_reset(&mut reset, from, to, sequence, None).is_ok() {
                    self.counters.resets += 1;
                    self.outputs.push_back(Output::ToHost(reset));
                }
            }
            Action::ReplaySyn { syn, .. } => {
                self.counters.syn_replays += 1;
                let (packet, offload) = (syn.as_bytes().to_vec(), Offload::PLAIN);
                self.outputs.push_back(Output::FromHost { packet, offload });
            }
        }
    }

    /// Removes what has been idle for long enough.
    fn expire(&mut self, now: Now) {
        self.connections.expire(now);
        self.expire_wishes(now.mono);
        let mut looked_at = 0;
        while looked_at < EXPIRY_BATCH {
            let Some(id) = self.flows.longest_unparked() else {
                break;
            };
            let Some(flow) = self.flows.get(id) else {
                break;
            };
            if now.boot.since(flow.last) < IDLE_AFTER {
                break;
            }
            looked_at += 1;
            if self.connections.has_open(id) {
                self.flows.park(id);
            } else {
                self.remove_flow(now, id);
            }
        }
        let mut next = self.flows.longest_parked();
        while let Some(id) = next.filter(|&id| !self.connections.has_open(id)) {
            self.remove_flow(now, id);
            next = self.flows.longest_parked();
        }
        let has_more = self
            .connections
            .poll_expiry()
            .is_some_and(|at| now.boot >= at);
        let busy = looked_at >= EXPIRY_BATCH || has_more;
        let is_empty =
            self.flows.is_empty() && self.connections.is_empty() && self.wanted.is_empty();
        self.next_expiry = (!is_empty).then(|| {
            now.mono
                + if busy {
                    Duration::from_millis(10)
                } else {
                    EXPIRY_EVERY
                }
        });
    }

    /// Makes a place for one more flow.
    pub(super) fn make_room(&mut self, now: Now) {
        self.schedule_expiry(now.mono);
        while self.flows.is_full() {
            let Some(id) = self.flows.longest_idle() else {
                return;
            };
            self.counters.flows_evicted += 1;
            self.remove_flow(now, id);
        }
    }

    fn remove_flow(&mut self, now: Now, id: FlowId) {
        self.watch(now, id, false);
        for _ in self.holds.take_flow(id).unwrap_or_default() {
            self.counters.drop_packet(DropReason::HoldExpired);
        }
        self.connections.remove_flow(id);
        let Some(flow) = self.flows.remove(id) else {
            return;
        };
        self.leave_network(now.mono, network_of(flow.key.destination, flow.prefix_len));
    }

    /// Notes that a new flow uses its network.
    pub(super) fn note_network(&mut self, now: Now, id: FlowId) {
        let Some(flow) = self.flows.get(id).copied() else {
            return;
        };
        self.use_network(now.mono, network_of(flow.key.destination, flow.prefix_len));
    }

    /// Notes that a flow's destination is found by another prefix now.
    pub(super) fn set_network(&mut self, now: Mono, id: FlowId, prefix_len: u8) {
        let Some(flow) = self.flows.get(id).copied() else {
            return;
        };
        if flow.prefix_len != prefix_len {
            self.flows.set_prefix_len(id, prefix_len);
            self.use_network(now, network_of(flow.key.destination, prefix_len));
            self.leave_network(now, network_of(flow.key.destination, flow.prefix_len));
        }
    }

    fn use_network(&mut self, now: Mono, network: IpNet) {
        let count = self.used.entry(network).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.tell_group(now, network);
        }
    }

    fn leave_network(&mut self, now: Mono, network: IpNet) {
        let Some(count) = self.used.get_mut(&network) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.used.remove(&network);
            self.tell_group(now, network);
        }
    }

    fn tell_group(&mut self, now: Mono, network: IpNet) {
        let group = self
            .routes
            .group(network)
            .map(|group| group.holders.clone());
        for holder in group.unwrap_or_default() {
            self.tell_use(now, holder);
        }
    }

    /// Tells liveness what flows need of a peer.
    pub(super) fn tell_use(&mut self, now: Mono, holder: PeerIx) {
        let is_used = self
            .used
            .keys()
            .any(|network| self.routes.holds(holder, *network));
        self.tell_used(now, holder, is_used);
        self.liveness
            .set_watched(now, holder, self.watched.contains_key(&holder));
    }

    /// Tells liveness of every peer whether flows use its networks, after routes have changed.
    pub(super) fn tell_all(&mut self, now: Mono, before: &Routes) {
        let groups = self
            .used
            .keys()
            .filter_map(|network| self.routes.group(*network));
        let mut used: Vec<PeerIx> = groups
            .flat_map(|group| group.holders.iter().copied())
            .collect();
        used.sort_unstable();
        let known = self.routes.peers().chain(before.peers());
        let mut peers: Vec<PeerIx> = known.map(|facts| facts.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        for peer in peers {
            self.tell_used(now, peer, used.binary_search(&peer).is_ok());
        }
    }

    fn tell_used(&mut self, now: Mono, holder: PeerIx, is_used: bool) {
        self.liveness.set_used(now, holder, is_used);
        let is_wanted = is_used || self.wanted.contains_key(&holder);
        self.liveness.set_wanted(now, holder, is_wanted);
    }

    /// Notes that a packet would have gone to this failed holder.
    pub(super) fn want(&mut self, now: Mono, holder: PeerIx) {
        self.wanted.insert(holder, now);
        self.liveness.handle_stranded(now, holder);
        self.schedule_expiry(now);
    }

    fn expire_wishes(&mut self, now: Mono) {
        let over: SmallVec<[PeerIx; 8]> = self
            .wanted
            .iter()
            .filter(|(_, last)| now.since(**last) >= WANTED_FOR)
            .map(|(holder, _)| *holder)
            .collect();
        for holder in over {
            self.wanted.remove(&holder);
            self.tell_use(now, holder);
        }
    }

    fn schedule_expiry(&mut self, now: Mono) {
        self.next_expiry.get_or_insert(now + EXPIRY_EVERY);
    }

    /// Tells liveness when the first flow of a holder got an open connection or the last one lost
    /// it. A flow counts once, whichever holder it is on.
    pub(super) fn watch(&mut self, now: Now, id: FlowId, is_open: bool) {
        let Some(holder) = self.flows.get(id).and_then(|flow| flow.holder) else {
            return;
        };
        if self.flows.set_watched(id, is_open) == is_open {
            return;
        }
        let count = self.watched.entry(holder).or_insert(0);
        let before = *count;
        *count = if is_open {
            before + 1
        } else {
            before.saturating_sub(1)
        };
        if (before == 0) != (*count == 0) {
            self.liveness.set_watched(now.mono, holder, is_open);
        }
        if self.watched.get(&holder) == Some(&0) {
            self.watched.remove(&holder);
        }
    }
}

pub(super) fn network_of(destination: IpAddr, prefix_len: u8) -> IpNet {
    IpNet::new(destination, prefix_len)
        .expect("a matched prefix fits its address")
        .trunc()
}
