//! Direct paths: what peers say of this anchor's addresses, how it can be reached by that, and
//! trying each other's addresses at one moment while a relay carries.

use std::net::SocketAddr;
use std::time::Duration;

use conflux_core::ids::{PeerIx, Relayed};
use conflux_core::paths::{Way, canonical};
use conflux_core::plane::Path;
use conflux_core::reach::Class;
use conflux_core::time::Mono;
use conflux_proto::advert::Reach;
use conflux_proto::control::{Meet, Message, Seen, Try};
use conflux_proto::id::AnchorKey;
use tracing::debug;

use super::Anchor;
use crate::quic::ConnId;

/// Between two adverts that say how this anchor is reached: what others say may change at their will.
pub(super) const REACH_GAP: Duration = Duration::from_secs(5);

/// Addresses of a peer that are tried; the data thread limits the probes of all.
const MAX_TRIED: usize = 6;

impl Anchor {
    /// Tells a peer that has just connected directly where it is seen.
    pub(super) fn tell_seen(&self, conn: ConnId, remote: SocketAddr) {
        if Relayed::from_address(&remote).is_none() {
            let address = canonical(remote);
            self.tell(conn, &Message::Meet(Meet::Seen(Seen { address })));
        }
    }

    /// Tells a peer that is now heard by another path where that is.
    pub(super) fn tell_seen_anew(&self, peer: PeerIx, remote: SocketAddr) {
        let conn = self.peers.in_use(peer, &self.identity.key());
        if let Some(conn) = conn.map(|conn| conn.id) {
            self.tell_seen(conn, remote);
        }
    }

    /// The data thread tries the paths of a peer: the peer is to try ours now.
    pub(super) fn ask_to_try(&mut self, peer: PeerIx) {
        self.peers.note_sought(peer);
        let own = self.own_endpoints();
        let mut candidates = self.observations.outside(&own);
        candidates.extend(own);
        candidates.truncate(MAX_TRIED);
        let conn = self.peers.in_use(peer, &self.identity.key());
        if let Some(conn) = conn.map(|conn| conn.id) {
            self.tell(conn, &Message::Meet(Meet::Try(Try { candidates })));
        }
    }

    pub(super) fn handle_meet(&mut self, now: Mono, conn: ConnId, key: AnchorKey, said: &Meet) {
        let (Some(peer), Some(known)) = (self.peers.known(&key), self.peers.conn(conn)) else {
            return;
        };
        let (remote, outgoing) = (known.remote, known.outgoing);
        match said {
            Meet::Seen(seen) => {
                let address = canonical(seen.address);
                if Relayed::from_address(&remote).is_some() || !self.may_be_ours(address) {
                    return;
                }
                let own = self.own_endpoints();
                // By a NAT's address it got here unasked, or because we had sent there before.
                let dialled = !outgoing
                    && (own.contains(&address)
                        || self.peers.get(peer).is_some_and(|peer| !peer.was_sought));
                self.observations.note(peer, remote.ip(), address, dialled);
                self.reach_changes.note(now);
            }
            Meet::Try(wanted) => {
                let usable = self.usable_and_counted(&wanted.candidates);
                let paths: Vec<Path> = usable
                    .into_iter()
                    .take(MAX_TRIED)
                    .filter_map(|at| self.path_to(Way::to(at)))
                    .collect();
                self.peers.note_sought(peer);
                self.data
                    .run(move |plane, now| plane.try_paths(now.mono, peer, &paths));
            }
        }
    }

    /// Tells others how this anchor is reached when that has changed.
    pub(super) fn follow_reach(&mut self, now: Mono) {
        if !self.reach_changes.take(now) {
            return;
        }
        let class = self.observations.class(&self.own_endpoints());
        if class != Class::Unknown {
            self.was_reached = class == Class::Public;
        }
        debug!(?class, "how others say that this anchor can be reached");
        self.readvertise(now);
    }

    /// Returns how this anchor can be reached, as far as is known.
    pub(super) fn reach(&self) -> Reach {
        match self.observations.class(&self.own_endpoints()) {
            Class::Public => Reach::Public,
            Class::NatCone => Reach::NatCone,
            Class::NatSymmetric => Reach::NatSymmetric,
            Class::Nat => Reach::Unknown,
            // Of this machine's last peers one had dialled it.
            Class::Unknown if self.was_reached => Reach::Public,
            Class::Unknown => Reach::Unknown,
        }
    }
}
