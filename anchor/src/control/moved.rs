//! What follows when the machine's network has changed: an address, an interface or a route to the
//! outside came or went. The kernel says so at once; no timeout has to pass. Which paths then work
//! is found by `core::plane`, and told back as it is found.

use std::time::Duration;

use conflux_core::ids::PeerIx;
use conflux_core::time::Mono;
use conflux_proto::control::Message;
use tracing::info;

use super::{Anchor, Seed};

/// Between two rounds of asking: a network that comes up changes several times within less, and
/// each round costs a frame for each peer and path. A quarter of the two seconds there are.
pub(super) const GAP: Duration = Duration::from_millis(500);

impl Anchor {
    /// Acts on a change of the machine's network that is due.
    pub(super) fn follow_moves(&mut self, now: Mono) {
        if !self.moves.take(now) {
            return;
        }
        info!("this machine's network changed: its peers are asked by which paths they answer");
        self.paths.lock().handle_moved();
        self.data.run(|plane, now| plane.handle_moved(now.mono));
        let peers: Vec<PeerIx> = self.peers.iter().map(|(peer, _)| peer).collect();
        for peer in peers {
            // Tells peers that dialled us where we are now, and finds those that have given us up.
            self.nudge(peer);
            self.hurry(now, peer);
        }
        for seed in self.seeds.values_mut().filter(|seed| !seed.under_way) {
            *seed = Seed {
                insist: seed.insist,
                ..Self::new_seed(now)
            };
        }
        if self.needs_seeds() {
            // Other networks have other name servers.
            self.seeds_resolve_at = Some(now);
        }
    }

    /// Sends something over the connections of a peer, which must answer. One that has restarted
    /// does not know them any more and says so at once, and is dialled anew; one whose path was
    /// replaced gets over it the packets lost before. Otherwise the next keepalive, or a timer
    /// that has been doubled several times, would do that seconds later.
    pub(super) fn nudge(&self, peer: PeerIx) {
        let conns = self.peers.get(peer).map(|peer| peer.conns.clone());
        for conn in conns.into_iter().flatten() {
            self.tell(conn, &Message::Ping(0));
        }
    }
}
