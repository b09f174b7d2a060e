//! What is told to whom: adverts and goodbyes, by `core::membership`. This carries its messages to
//! connections and its events to the rest of the loop.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use conflux_core::ids::PeerIx;
use conflux_core::membership::{DIGEST_INTERVAL, Event, LeaveOutcome, Outcome, Own, Spread};
use conflux_core::time::Mono;
use conflux_proto::advert::{Leave, SignedAdvert};
use conflux_proto::control::{Adverts, AgedAdvert, Digest, Message};
use conflux_proto::id::AnchorKey;
use conflux_proto::revocation::Target;
use conflux_proto::signed::Signed;
use tracing::{debug, info, warn};

use super::discover::Insist;
use super::link::frame_of;
use super::{Anchor, SAVE_NEWS_WITHIN, Seed};
use crate::clock;
use crate::files::StateFile;
use crate::quic::{ConnId, NotDelivered};

/// Names of seeds are looked up again this often while nobody is connected.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

/// Refreshes wait this long for others to go with: in a realm of a hundred several come within a
/// second, and each packet sent wakes two machines twice. Small beside the two minutes and more
/// that an advert lives.
const REFRESHES_WAIT: Duration = Duration::from_secs(2);

/// Refreshes that do not wait any longer, and the most that go together: some 30 KiB.
const MANY_REFRESHES: usize = 64;

/// Adverts that say nothing new, to be passed on together.
#[derive(Debug, Default)]
pub(super) struct Refreshes {
    /// Each with the time it was queued.
    adverts: Vec<(Mono, AgedAdvert)>,
    few: usize,
}

impl Refreshes {
    /// Returns when they are to be passed on.
    pub(super) fn due(&self) -> Option<Mono> {
        self.adverts
            .first()
            .map(|(since, _)| *since + REFRESHES_WAIT)
    }

    fn push(&mut self, now: Mono, adverts: Vec<AgedAdvert>, few: usize) {
        self.few = few;
        self.adverts
            .extend(adverts.into_iter().map(|advert| (now, advert)));
    }

    /// Takes what is due, to be sent to so many; ages include the wait.
    fn take(&mut self, now: Mono) -> Option<(Message, usize)> {
        let is_due = self.due().is_some_and(|at| now >= at);
        if !is_due && self.adverts.len() < MANY_REFRESHES {
            return None;
        }
        let count = self.adverts.len().min(MANY_REFRESHES);
        let adverts = self.adverts.drain(..count).map(|(since, mut aged)| {
            let waited = u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
            aged.age_millis = aged.age_millis.saturating_add(waited);
            aged
        });
        let adverts = Adverts {
            adverts: adverts.collect(),
            more: false,
        };
        Some((Message::Adverts(adverts), self.few))
    }
}

impl Anchor {
    /// Says anew what this anchor is, when that has changed and it is a member.
    pub(super) fn readvertise(&mut self, now: Mono) {
        let Some(credential) = self.standing.credential().cloned() else {
            return;
        };
        let own = Own {
            endpoints: self.endpoints(),
            ipv4: self.shared_address().filter(|_| !self.is_withdrawn()),
            networks: self.config.subnets.clone(),
            taints: self.standing.taints(&self.config),
            reach: self.reach(),
            aes: self.aes,
            credential,
            draining: self.drain.is_some(),
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
            self.renew_due(now);
        }
        self.catch_up(now);
        if let Some((message, few)) = self.refreshes.take(now) {
            self.flood(&message, None, Spread::Few(few));
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
                self.count_endpoints(&key);
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
                match (*message, spread) {
                    (Message::Adverts(adverts), Spread::Few(few)) => {
                        self.refreshes.push(now, adverts.adverts, few);
                    }
                    (message, spread) => self.flood(&message, except, spread),
                }
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
            Event::Revoked(key) => {
                self.put_out(&key, "this anchor was revoked");
                true
            }
            Event::OwnAhead(edition) => {
                self.clones.note_ahead(now, edition.epoch);
                self.catch_up(now);
                false
            }
        }
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

    pub(super) fn drop_peer(&mut self, key: &AnchorKey, words: &str) {
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
            entry.is_needed = false;
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
            let advert = AgedAdvert {
                advert: own,
                age_millis: 0,
            };
            let adverts = Adverts {
                adverts: vec![advert],
                more: false,
            };
            self.tell(conn, &Message::Adverts(adverts));
        }
        self.tell_digests(conn);
        self.run_membership(now);
    }

    fn send_digest_to_one(&mut self) {
        let own = self.identity.key();
        let neighbours = self.peers.neighbours(&own);
        if neighbours.is_empty() {
            return;
        }
        let (_, conn) = neighbours[self.random.usize(..neighbours.len())];
        self.tell_digests(conn);
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
                (conn, from),
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
        (conn, from): (ConnId, AnchorKey),
    ) {
        let unix = clock::unix();
        let (of, epoch) = {
            let claimed = advert.advert.claimed();
            (claimed.key, claimed.edition.epoch)
        };
        let outcome = self
            .membership
            .handle_advert(now, unix, advert, age, Some(from));
        match outcome {
            Outcome::Refused(error) => {
                debug!(from = %from.id().short(), %error, "an advert was refused");
            }
            Outcome::Conflicting => {
                self.note_clone(now, of);
            }
            Outcome::New | Outcome::Updated { .. } | Outcome::Known => {
                self.peers.note_advert(conn, &of, epoch, now);
            }
            Outcome::Stale { .. }
            | Outcome::NeedsCredential
            | Outcome::TooOften
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
                && !self
                    .membership
                    .revocations()
                    .mentions(Target::Anchor(advert.key.id()))
                && signed.advert.verify(&advert.key.0).is_ok();
            if is_ours {
                let peer = self.peers.number(advert.key, now);
                let usable = self.usable(&advert.endpoints);
                self.paths.lock().set_candidates(peer, &usable);
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
            Err(error) => {
                warn!(%error, "the known peers could not be written down");
                return;
            }
        }
        if !adverts.is_empty()
            && let Err(error) = self.standing.forget_ticket(&self.state)
        {
            warn!(%error, "the ticket that was used could not be removed");
        }
    }

    /// Looks up the names of `--peer` and of the ticket; the addresses come back as seeds.
    pub(super) fn resolve_seeds(&mut self, now: Mono) {
        self.seeds_resolve_at = self.needs_seeds().then(|| now + RESOLVE_EVERY);
        let from_ticket = self.standing.introduced().to_vec();
        let named = self.config.peers.iter().cloned();
        let endpoints: Vec<_> = named
            .map(|endpoint| (endpoint, Insist::UntilMet))
            .chain(from_ticket.into_iter().map(|one| (one, Insist::No)))
            .collect();
        if endpoints.is_empty() {
            self.seeds_resolve_at = None;
            return;
        }
        let resolver = self.resolver.clone();
        tokio::spawn(async move {
            let mut found: Vec<(SocketAddr, Insist)> = Vec::new();
            for (endpoint, insist) in endpoints {
                match tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port)).await {
                    Ok(addresses) => found.extend(addresses.map(|address| (address, insist))),
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
            insist: Insist::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use conflux_core::identity::Identity;
    use conflux_proto::advert::{Advert, Edition, Reach};
    use conflux_proto::credential::CredentialHash;
    use conflux_proto::id::RealmId;
    use conflux_proto::signed::Version1;

    use super::*;

    fn aged(sequence: u64) -> AgedAdvert {
        let identity = Identity::from_seed(&[7; 32]);
        let realm = RealmId([7; 32]);
        let advert = Advert {
            version: Version1,
            realm,
            key: identity.key(),
            edition: Edition { epoch: 1, sequence },
            lifetime_secs: 120,
            overlay: identity.key().overlay(&realm),
            noise_key: identity.noise_key(),
            endpoints: Vec::new(),
            ipv4: None,
            networks: Vec::new(),
            taints: Default::default(),
            reach: Reach::Unknown,
            aes: true,
            credential: CredentialHash([8; 32]),
            draining: false,
        };
        AgedAdvert {
            advert: SignedAdvert {
                advert: Signed::sign(advert, identity.signing()),
                credential: None,
            },
            age_millis: 100,
        }
    }

    fn taken(message: Message) -> Vec<u64> {
        let Message::Adverts(adverts) = message else {
            panic!("{message:?}")
        };
        let ages = adverts.adverts.iter().map(|aged| aged.age_millis);
        ages.collect()
    }

    #[test]
    fn refreshes_go_together_and_their_wait_counts_as_age() {
        let start = Mono::from_nanos(0);
        let mut refreshes = Refreshes::default();
        refreshes.push(start, vec![aged(1)], 5);
        refreshes.push(start + Duration::from_millis(500), vec![aged(2)], 5);

        assert!(
            refreshes
                .take(start + Duration::from_millis(1999))
                .is_none()
        );
        assert_eq!(refreshes.due(), Some(start + REFRESHES_WAIT));
        let (message, few) = refreshes.take(start + REFRESHES_WAIT).unwrap();

        assert_eq!((taken(message), few), (vec![2100, 1600], 5));
        assert_eq!(refreshes.due(), None);
    }

    #[test]
    fn many_refreshes_go_at_once_in_messages_of_a_bounded_size() {
        let start = Mono::from_nanos(0);
        let mut refreshes = Refreshes::default();
        let many = (0..MANY_REFRESHES as u64 + 1).map(aged).collect();
        refreshes.push(start, many, 5);

        let (first, _) = refreshes.take(start).unwrap();
        assert!(first.encode().unwrap().len() < crate::quic::MAX_FRAME_BYTES);
        assert_eq!(taken(first).len(), MANY_REFRESHES);
        assert!(refreshes.take(start).is_none(), "one is not many");
        assert!(refreshes.take(start + REFRESHES_WAIT).is_some());
    }
}
