//! What an anchor that starts anew in the same process goes on with: what it knows of its realm,
//! who has which number, and the packet way's state machine with its flows, connections and keys.
//! Interface, sockets and QUIC connections are made anew. Peers notice closed connections, and no
//! goodbye.

use std::collections::BTreeMap;
use std::time::Duration;

use conflux_core::identity::Identity;
use conflux_core::ids::PeerIx;
use conflux_core::membership::Membership;
use conflux_core::plane::Plane;
use conflux_core::time::Mono;
use conflux_proto::api::Reloaded;
use conflux_proto::id::AnchorKey;
use ipnet::Ipv4Net;

use super::Anchor;
use super::clones::Clones;
use super::peers::Peers;
use super::standing::Standing;
use crate::api::{Refusal, Reply};
use crate::clock;

/// Peers are told within this time that connections close; those that are not notice later.
const CLOSE_WITHIN: Duration = Duration::from_millis(50);

/// Whoever asked for a change and is to be told once it works, or does not.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(super) reply: Reply<Reloaded>,
    pub(super) reloaded: Reloaded,
}

impl Asked {
    /// Tells the outcome; who hung up meanwhile misses it.
    pub(crate) fn tell(self, outcome: Result<(), Refusal>) {
        let _ = self.reply.send(outcome.map(|()| self.reloaded));
    }
}

/// The past of an anchor.
pub(crate) struct Carried {
    pub(super) plane: Option<Plane>,
    pub(super) membership: Membership,
    pub(super) peers: Peers,
    pub(super) remembered: BTreeMap<PeerIx, AnchorKey>,
    pub(super) epoch: u64,
    pub(super) started: Mono,
    /// The check kept the shared address from others.
    pub(super) withdrawn: bool,
    pub(super) was_reached: bool,
    pub(super) clones: Clones,
    pub(super) skewed: BTreeMap<AnchorKey, i64>,
    pub(super) saved_leases: u64,
    pub(super) handshakes: u32,
}

impl Carried {
    /// Returns the past of an anchor that has none.
    pub(super) fn none(
        standing: &Standing,
        identity: &Identity,
        epoch: u64,
        seed: u64,
        now: Mono,
    ) -> Self {
        let identity = Identity::from_seed(identity.seed());
        Self {
            plane: None,
            membership: Membership::new(standing.realm_key, identity, epoch, seed),
            peers: Peers::default(),
            remembered: BTreeMap::new(),
            epoch,
            started: now,
            withdrawn: false,
            was_reached: false,
            clones: Clones::default(),
            skewed: BTreeMap::new(),
            saved_leases: 0,
            handshakes: 0,
        }
    }

    /// Returns the state machine, if it still fits: client addresses of another range do not.
    pub(super) fn take_plane(&mut self, range: Ipv4Net) -> Option<Plane> {
        self.plane
            .take()
            .filter(|plane| plane.clients().range() == range)
    }
}

impl Anchor {
    /// Lets go of interface, sockets and connections, and returns the rest.
    pub(super) async fn end(mut self) -> Carried {
        let withdrawn = self.is_withdrawn();
        self.save().await;
        self.quic
            .shut_down("starting anew with other settings", CLOSE_WITHIN)
            .await;
        self.peers.disconnect(clock::now().mono);
        Carried {
            plane: self.data.stop(),
            membership: self.membership,
            peers: self.peers,
            remembered: self.remembered,
            epoch: self.epoch,
            started: self.started,
            withdrawn,
            was_reached: self.was_reached,
            clones: self.clones,
            skewed: self.skewed,
            saved_leases: self.saved_leases,
            handshakes: self.handshakes,
        }
    }
}
