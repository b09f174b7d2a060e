//! Deadlines and effects: when the plane wants to be called, what it does then, and what the
//! parts want sent. Also the upkeep of what liveness is told about flows: which holders have open
//! connections to watch, which groups are in use.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use conflux_proto::frame::{FrameType, Probe};
use ipnet::IpNet;
use smallvec::SmallVec;

use super::{Output, Path, Plane};
use crate::connections::Action;
use crate::flows::IDLE_AFTER;
use crate::ids::{FlowId, PeerIx};
use crate::liveness::Event as LivenessEvent;
use crate::packet::{Offload, build_reset};
use crate::routes::Route;
use crate::time::{Mono, Now};
use crate::translate::spelled;

/// How often idle flows are looked for while there are any.
const EXPIRY_EVERY: Duration = Duration::from_secs(15);
/// Flows looked at in one go, so that packets never wait for the upkeep of a large table.
const EXPIRY_BATCH: usize = 4096;

impl Plane {
    /// Returns when [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Mono> {
        [
            self.liveness.poll_timeout(),
            self.connections.poll_timeout(),
            self.holds.poll_timeout(),
            self.next_expiry,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Acts on everything due by `now`.
    pub fn handle_timeout(&mut self, now: Now) {
        self.liveness.handle_timeout(now);
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
            LivenessEvent::Probe { peer, id, all_paths } => {
                let Some(entry) = self.paths.get(&peer) else { return };
                let paths: SmallVec<[Path; 4]> = if all_paths {
                    entry.all.clone()
                } else {
                    entry.current.into_iter().collect()
                };
                let payload = Probe { id }.encode();
                self.send_frame(peer, FrameType::Probe, &payload, &paths);
                if !self.sessions.can_send(peer) {
                    self.ask_for_session(now.mono, peer);
                }
            }
            LivenessEvent::Suspect { peer } => self.handle_suspect(now, peer),
            LivenessEvent::Deadline { peer, asked, .. } => self.handle_deadline(now, peer, asked),
            LivenessEvent::Returned { peer } => {
                self.outputs.push_back(Output::Event(super::Event::Returned(peer)));
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
            Action::Reset { key, origin, sequence } => {
                let Some(flow) = self.flows.get(key.flow) else { return };
                let far = match (origin, flow.key.destination) {
                    (IpAddr::V6(_), IpAddr::V4(far)) => spelled(far).into(),
                    (_, far) => far,
                };
                let mut reset = Vec::new();
                let from = SocketAddr::new(far, key.far_port);
                let to = SocketAddr::new(origin, key.host_port);
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
        let mut looked_at = 0;
        while looked_at < EXPIRY_BATCH {
            let Some(id) = self.flows.longest_unparked() else { break };
            let Some(flow) = self.flows.get(id) else { break };
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
        let busy = looked_at >= EXPIRY_BATCH;
        self.next_expiry = (!self.flows.is_empty() || !self.connections.is_empty())
            .then(|| now.mono + if busy { Duration::from_millis(10) } else { EXPIRY_EVERY });
    }

    /// Makes a place for one more flow.
    pub(super) fn make_room(&mut self, now: Now) {
        if self.next_expiry.is_none() {
            self.next_expiry = Some(now.mono + EXPIRY_EVERY);
        }
        while self.flows.is_full() {
            let Some(id) = self.flows.longest_idle() else { return };
            self.counters.flows_evicted += 1;
            self.remove_flow(now, id);
        }
    }

    fn remove_flow(&mut self, now: Now, id: FlowId) {
        self.watch(now, id, false);
        self.holds.remove(id);
        self.connections.remove_flow(id);
        let Some(flow) = self.flows.remove(id) else { return };
        let network = network_of(flow.key.destination, flow.prefix_len);
        let Some(count) = self.used.get_mut(&network) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.used.remove(&network);
        for holder in self.group_of(flow.key.destination) {
            let is_used = self
                .used
                .keys()
                .any(|network| self.routes.holds(holder, *network));
            self.liveness.set_used(now.mono, holder, is_used);
        }
    }

    /// Notes that a new flow uses its network.
    pub(super) fn note_network(&mut self, now: Now, id: FlowId) {
        let Some(flow) = self.flows.get(id).copied() else { return };
        let network = network_of(flow.key.destination, flow.prefix_len);
        let count = self.used.entry(network).or_insert(0);
        *count += 1;
        if *count > 1 {
            return;
        }
        for holder in self.group_of(flow.key.destination) {
            self.liveness.set_used(now.mono, holder, true);
        }
    }

    /// Tells liveness when the first flow of a holder got an open connection or the last one lost
    /// it. A flow counts once, whichever holder it is on.
    pub(super) fn watch(&mut self, now: Now, id: FlowId, is_open: bool) {
        let Some(holder) = self.flows.get(id).and_then(|flow| flow.holder) else { return };
        if self.flows.set_watched(id, is_open) == is_open {
            return;
        }
        let count = self.watched.entry(holder).or_insert(0);
        let before = *count;
        *count = if is_open { before + 1 } else { before.saturating_sub(1) };
        if (before == 0) != (*count == 0) {
            self.liveness.set_watched(now.mono, holder, is_open);
        }
        if self.watched.get(&holder) == Some(&0) {
            self.watched.remove(&holder);
        }
    }

    fn group_of(&self, destination: IpAddr) -> SmallVec<[PeerIx; 8]> {
        match self.routes.lookup(destination) {
            Some(Route::Group(group)) => group.holders.iter().copied().collect(),
            Some(Route::Local | Route::Refused(_)) | None => SmallVec::new(),
        }
    }
}

pub(super) fn network_of(destination: IpAddr, prefix_len: u8) -> IpNet {
    IpNet::new(destination, prefix_len)
        .expect("a matched prefix fits its address")
        .trunc()
}
