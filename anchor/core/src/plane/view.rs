//! What `flows`, `peers`, `routes` and `metrics` ask of the packet way, copied out by value.

use std::time::Duration;

use super::{Path, Plane};
use crate::flows::Flow;
use crate::ids::{FlowId, PeerIx};
use crate::time::{Mono, Now};

/// One flow as the `flows` table shows it.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// The table's entry.
    pub flow: Flow,
    /// How long it has been on its holder.
    pub age: Duration,
    /// How long since its last packet in either direction.
    pub idle: Duration,
    /// Open TCP connections.
    pub connections: u32,
    /// Its holder drains: once at rest the flow moves.
    pub holder_drains: bool,
}

/// One peer as the packet way sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerView {
    /// Data can be sealed for it.
    pub has_session: bool,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// It failed for this client and has not returned.
    pub is_failed: bool,
    /// The path in use.
    pub path: Option<Path>,
    /// The largest packet this path carries in one frame, in bytes, as far as is known.
    pub limit_bytes: Option<usize>,
    /// Time since its last authentic frame.
    pub silent: Option<Duration>,
}

impl Plane {
    /// Returns at most `limit` flows, sorted by destination, then client host.
    pub fn view_flows(&self, now: Now, limit: usize) -> Vec<FlowView> {
        let mut flows: Vec<FlowView> = self
            .flows
            .iter()
            .filter_map(|(id, _)| self.view_flow(now, id))
            .collect();
        flows.sort_by_key(|view| (view.flow.key.destination, view.flow.key.host));
        flows.truncate(limit);
        flows
    }

    /// Returns one flow as tables show it.
    pub(super) fn view_flow(&self, now: Now, id: FlowId) -> Option<FlowView> {
        let flow = *self.flows.get(id)?;
        Some(FlowView {
            flow,
            age: now.boot.since(flow.since),
            idle: now.boot.since(flow.last),
            connections: self.connections.open_count(id),
            holder_drains: self.is_on_draining(flow.holder),
        })
    }

    /// Returns what is known of a peer.
    pub fn view_peer(&self, now: Mono, peer: PeerIx) -> PeerView {
        PeerView {
            has_session: self.sessions.can_send(peer),
            rtt: self.costs.rtt(peer),
            is_failed: self.liveness.is_failed(peer),
            path: self.paths.get(&peer).and_then(|paths| paths.current),
            limit_bytes: self
                .sizes
                .is_started(peer)
                .then(|| self.sizes.limit_bytes(peer)),
            silent: self.liveness.last_heard(peer).map(|heard| now.since(heard)),
        }
    }

    /// Returns how many accepted networks at least two answering holders offer.
    pub fn answering_groups(&self) -> usize {
        self.routes
            .groups()
            .iter()
            .filter(|group| {
                group
                    .holders
                    .iter()
                    .filter(|&&holder| !self.liveness.is_failed(holder))
                    .count()
                    >= 2
            })
            .count()
    }

    /// Returns how many flows, connection notes and client addresses there are.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            flows: self.flows.len(),
            connections: self.connections.len(),
            clients: self.clients.len(),
        }
    }
}

/// How full the tables are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Flows.
    pub flows: usize,
    /// Connection notes.
    pub connections: usize,
    /// Client addresses given out.
    pub clients: usize,
}
