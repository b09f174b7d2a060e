//! What is told to whom: adverts and goodbyes, by `core::membership`. This carries its messages to
//! connections and its events to the rest of the loop.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use conflux_core::ids::PeerIx;
use conflux_core::membership::{DIGEST_INTERVAL, Event, LeaveOutcome, Outcome, Own, Spread};
use conflux_core::time::Mono;
use conflux_proto::advert::{Leave, Reach, SignedAdvert};
use conflux_proto::control::{Adverts, Digest, Message};
use conflux_proto::id::AnchorKey;
use conflux_proto::signed::Signed;
use tracing::{debug, info, warn};

use super::link::frame_of;
use super::{Anchor, SAVE_NEWS_WITHIN, Seed};
use crate::clock;
use crate::files::StateFile;
use crate::quic::{ConnId, NotDelivered};

/// Names of seeds are looked up again this often while nobody is connected.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

impl Anchor {
    /// Says anew what this anchor is, when that has changed and it is a member.
    pub(super) fn readvertise(&mut self, now: Mono) {
        let Some(credential) = self.standing.credential().cloned() else {
            return;
        };
        let own = Own {
            endpoints: self.endpoints(),
            ipv4: self
                .config
                .ipv4
                .as_ref()
                .filter(|choice| choice.advertised)
                .map(|choice| choice.address),
            networks: self.config.subnets.clone(),
            taints: self.standing.taints(&self.config),
            reach: if self.was_reached {
                Reach::Public
            } else {
                Reach::Unknown
            },
            aes: self.aes,
            credential,
        };
        self.membership.set_own(now, own);
        self.run_membership(now);
    }

    /// Lets membership act on what is due, and carries out what it wants.
    pub(super) fn run_membership(&mut self, now: Mono) {
        if self.membership.poll_timeout().is_some_and(|at| now >= at) {
            self.membership.handle_timeout(now);
        }
        if now >= self.digest_at {
            self.digest_at = now + DIGEST_INTERVAL;
            self.send_digest_to_one();
        }
        let mut changed = false;
        while let Some(event) = self.membership.poll_event() {
            changed |= self.handle_membership(now, event);
        }
        if changed {
            self.adverts_changed = true;
            self.save_at = self.save_at.min(now + SAVE_NEWS_WITHIN);
            self.rebuild(now);
        }
    }

    /// Carries out one event; true when routes follow from it.
    fn handle_membership(&mut self, now: Mono, event: Event) -> bool {
        match event {
            Event::Changed(key) => {
                let peer = self.peers.number(key, now);
                self.hurry(now, peer);
                self.begin_if_partner(now, peer);
                true
            }
            Event::Left(key) => {
                info!(anchor = %key.id().short(), "an anchor left");
                self.drop_peer(&key, "you said goodbye");
                true
            }
            Event::Expired(key) => {
                info!(anchor = %key.id().short(), "an anchor has not been heard of for too long");
                self.drop_peer(&key, "your advert has expired");
                true
            }
            Event::Flood {
                message,
                except,
                spread,
            } => {
                self.flood(&message, except, spread);
                false
            }
            Event::Tell { to, message } => {
                let own = self.identity.key();
                let conn = self
                    .peers
                    .known(&to)
                    .and_then(|peer| self.peers.in_use(peer, &own))
                    .map(|conn| conn.id);
                if let Some(conn) = conn {
                    self.tell(conn, &message);
                }
                false
            }
            Event::OwnAhead(edition) => {
                self.catch_up(now, edition.epoch);
                false
            }
        }
    }

    /// Others have later statements by this anchor's key than its own: its state was rolled back,
    /// or another machine has its key. Going on with a later epoch makes it heard again.
    fn catch_up(&mut self, now: Mono, seen: u64) {
        self.cloned = true;
        warn!(
            "others know later statements of this anchor: its state was rolled back, or another \
             machine uses its identity"
        );
        while self.epoch <= seen {
            match self.state.next_epoch() {
                Ok(epoch) if epoch > self.epoch => self.epoch = epoch,
                Ok(_) => self.epoch = seen + 1,
                Err(error) => {
                    warn!(%error, "the boot epoch could not be written down");
                    self.epoch = seen + 1;
                }
            }
        }
        self.membership.set_epoch(now, self.epoch);
    }

    /// An advert came that may allow data with a connected peer.
    pub(super) fn begin_if_partner(&mut self, now: Mono, peer: PeerIx) {
        let own = self.identity.key();
        let has_keys = self.peers.get(peer).is_some_and(|peer| peer.has_keys);
        let conn = self.peers.in_use(peer, &own).map(|conn| conn.id);
        if let Some(conn) = conn.filter(|_| !has_keys) {
            self.shake_hands(now, peer, conn);
        }
    }

    fn drop_peer(&mut self, key: &AnchorKey, words: &str) {
        let Some(peer) = self.peers.known(key) else {
            return;
        };
        self.data
            .run(move |plane, now| plane.handle_left(now, peer));
        let conns = self
            .peers
            .get(peer)
            .map(|peer| peer.conns.clone())
            .unwrap_or_default();
        for conn in conns {
            self.quic.close(conn, words);
        }
        self.remembered.remove(&peer);
        if let Some(entry) = self.peers.get_mut(peer) {
            entry.was_connected = false;
            entry.has_keys = false;
        }
    }

    fn flood(&mut self, message: &Message, except: Option<AnchorKey>, spread: Spread) {
        let Some(frame) = frame_of(message) else {
            return;
        };
        let own = self.identity.key();
        let mut conns: Vec<ConnId> = self
            .peers
            .neighbours(&own)
            .into_iter()
            .filter(|(peer, _)| {
                self.peers
                    .get(*peer)
                    .is_some_and(|peer| Some(peer.key) != except)
            })
            .map(|(_, conn)| conn)
            .collect();
        if let Spread::Few(few) = spread {
            self.random.shuffle(&mut conns);
            conns.truncate(few);
        }
        for conn in conns {
            if let Err(error) = self.quic.send(conn, frame.clone()) {
                debug!(%error, "a message could not be queued");
                self.quic.close(conn, "does not read");
            }
        }
    }

    /// Begins reconciling with a peer that has just been accepted.
    pub(super) fn greet(&mut self, now: Mono, conn: ConnId) {
        if let Some(own) = self.membership.own() {
            let advert = conflux_proto::control::AgedAdvert {
                advert: own,
                age_millis: 0,
            };
            let adverts = Adverts {
                adverts: vec![advert],
                more: false,
            };
            self.tell(conn, &Message::Adverts(adverts));
        }
        self.tell(conn, &Message::Digest(self.membership.digest()));
        self.run_membership(now);
    }

    fn send_digest_to_one(&mut self) {
        let own = self.identity.key();
        let neighbours = self.peers.neighbours(&own);
        if neighbours.is_empty() {
            return;
        }
        let (_, conn) = neighbours[self.random.usize(..neighbours.len())];
        self.tell(conn, &Message::Digest(self.membership.digest()));
    }

    pub(super) fn answer_digest(&mut self, now: Mono, conn: ConnId, digest: &Digest) {
        for message in self.membership.handle_digest(now, digest) {
            self.tell(conn, &message);
        }
    }

    pub(super) fn take_adverts(
        &mut self,
        now: Mono,
        conn: ConnId,
        from: AnchorKey,
        adverts: Adverts,
    ) {
        for aged in &adverts.adverts {
            self.take_advert(
                now,
                &aged.advert,
                Duration::from_millis(aged.age_millis),
                from,
            );
        }
        if adverts.more {
            self.tell(conn, &Message::Digest(self.membership.digest()));
        }
    }

    pub(super) fn take_advert(
        &mut self,
        now: Mono,
        advert: &SignedAdvert,
        age: Duration,
        from: AnchorKey,
    ) {
        let unix = clock::unix();
        let outcome = self
            .membership
            .handle_advert(now, unix, advert, age, Some(from));
        match outcome {
            Outcome::Refused(error) => {
                debug!(from = %from.id().short(), %error, "an advert was refused");
            }
            Outcome::Conflicting => {
                let anchor = advert.advert.claimed().key.id().short();
                warn!(%anchor, "two machines use one identity");
                self.conflicting.insert(advert.advert.claimed().key);
            }
            Outcome::New
            | Outcome::Updated { .. }
            | Outcome::Known
            | Outcome::Stale { .. }
            | Outcome::NeedsCredential
            | Outcome::OwnAhead => {}
        }
        self.run_membership(now);
    }

    pub(super) fn take_leave(&mut self, now: Mono, leave: &Signed<Leave>, from: AnchorKey) {
        match self.membership.handle_leave(now, leave, Some(from)) {
            LeaveOutcome::Left | LeaveOutcome::Ignored => {}
            LeaveOutcome::Refused(error) => {
                debug!(from = %from.id().short(), %error, "a goodbye was refused");
            }
        }
        self.run_membership(now);
    }

    /// Returns the deliveries of this anchor's goodbye, one per connected peer.
    pub(super) fn send_leaves(
        &mut self,
        within: Duration,
    ) -> Vec<impl Future<Output = Result<(), NotDelivered>> + use<>> {
        if self.standing.member().is_none() {
            return Vec::new();
        }
        let leave = Message::Leave(self.membership.leave());
        let Some(frame) = frame_of(&leave) else {
            return Vec::new();
        };
        let own = self.identity.key();
        self.peers
            .neighbours(&own)
            .into_iter()
            .map(|(_, conn)| {
                let (quic, frame) = (self.quic.clone(), frame.clone());
                async move { quic.send_and_wait_acked(conn, frame, within).await }
            })
            .collect()
    }

    /// Returns the peers that this anchor knew when it last ran and has not heard of since.
    pub(super) fn remembered(&self) -> impl Iterator<Item = PeerIx> {
        self.remembered.keys().copied()
    }

    /// Reads whom this anchor knew when it last ran: where to knock first.
    pub(super) fn load_adverts(&mut self, now: Mono) {
        let saved = match self.state.read_list(StateFile::Adverts) {
            Ok(saved) => saved,
            Err(error) => {
                warn!(%error, "the peers of the last run are not used");
                return;
            }
        };
        for bytes in saved {
            let Ok(signed) = minicbor::decode::<SignedAdvert>(&bytes) else {
                continue;
            };
            let advert = signed.advert.claimed();
            let is_ours = advert.realm == self.standing.realm
                && advert.key != self.identity.key()
                && signed.advert.verify(&advert.key.0).is_ok();
            if is_ours {
                let peer = self.peers.number(advert.key, now);
                self.paths.lock().set_candidates(peer, &advert.endpoints);
                self.remembered.insert(peer, advert.key);
            }
        }
    }

    pub(super) fn save_adverts(&mut self) {
        if !self.adverts_changed {
            return;
        }
        let adverts: Vec<Vec<u8>> = self
            .membership
            .entries()
            .filter_map(|(_, entry)| minicbor::to_vec(entry.signed()).ok())
            .collect();
        match self
            .state
            .write_list(StateFile::Adverts, adverts.iter().map(Vec::as_slice))
        {
            Ok(()) => self.adverts_changed = false,
            Err(error) => warn!(%error, "the known peers could not be written down"),
        }
    }

    /// Looks up the names of `--peer` and of the ticket; the addresses come back as seeds.
    pub(super) fn resolve_seeds(&mut self, now: Mono) {
        self.seeds_resolve_at = self.needs_seeds().then(|| now + RESOLVE_EVERY);
        let from_ticket = self
            .standing
            .joining()
            .map(|joining| joining.ticket.endpoints().to_vec())
            .unwrap_or_default();
        let endpoints: Vec<_> = self
            .config
            .peers
            .iter()
            .cloned()
            .chain(from_ticket)
            .collect();
        if endpoints.is_empty() {
            self.seeds_resolve_at = None;
            return;
        }
        let resolver = self.resolver.clone();
        tokio::spawn(async move {
            let mut found: Vec<SocketAddr> = Vec::new();
            for endpoint in endpoints {
                match tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port)).await {
                    Ok(addresses) => found.extend(addresses),
                    Err(error) => debug!(host = endpoint.host, %error, "cannot look up a peer"),
                }
            }
            // The anchor may have ended meanwhile.
            let _ = resolver.send(found).await;
        });
    }

    pub(super) fn new_seed(now: Mono) -> Seed {
        Seed {
            at: now,
            pause: Duration::from_secs(1),
            under_way: false,
        }
    }
}
