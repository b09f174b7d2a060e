//! Control connections: the hello that begins each, admission of joiners, and the messages after
//! it. Who is a member is `core::credential`'s to say; nothing but a Hello is taken from a
//! connection before its key has been shown to be one.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use conflux_core::credential::{self, Member, Refused};
use conflux_core::ids::{PeerIx, Relayed};
use conflux_core::time::Mono;
use conflux_proto::control::{
    Admitted, Decoded, Hello, Message, PROTOCOL_VERSION, Refusal, RefusalCode,
};
use conflux_proto::id::AnchorKey;
use tracing::{debug, info, warn};

use super::Anchor;
use super::discover::{Insist, LONGEST_INSISTING_PAUSE};
use super::peers::Conn;
use crate::clock;
use crate::quic::{ConnId, Connected, DialError, DialTarget, Frame, QuicEvent, readable};

/// Differences between two machines' clocks above this are told in `status` (SPEC section 7).
const SKEW_TOLD_SECS: u64 = 600;
/// Longest pause between two tries of one seed.
const LONGEST_SEED_PAUSE: Duration = Duration::from_secs(30);

impl Anchor {
    pub(super) fn handle_quic(&mut self, now: Mono, event: QuicEvent) {
        match event {
            QuicEvent::Connected(connected) => self.begin(now, connected),
            QuicEvent::Frame { conn, frame } => self.handle_frame(now, conn, &frame),
            QuicEvent::Closed { conn, key, reason } => {
                debug!(anchor = %key.id().short(), %reason, "connection closed");
                if let Some(gone) = self.peers.remove_conn(conn, now) {
                    self.note_closed(&gone, &reason.to_string());
                    if let Some(peer) = self.peers.known(&key)
                        && !self.peers.is_connected(peer)
                    {
                        self.lose_relay(now, peer);
                        self.observations.forget(peer);
                    }
                }
            }
            QuicEvent::DialFailed { target, error } => match target {
                DialTarget::Peer { peer, .. } => {
                    debug!(anchor = %self.short(peer), %error, "dial failed");
                    let spread = self.random.f64();
                    self.peers.end_dial(peer, now, false, spread);
                    if let Some(entry) = self.peers.get_mut(peer) {
                        entry.dials_v6 = !entry.dials_v6;
                    }
                    self.refresh_paths(peer);
                }
                DialTarget::Address(address) => {
                    self.note_seed_failed(now, address, &error);
                }
            },
        }
    }

    /// A connection stands: both sides say who they are.
    fn begin(&mut self, now: Mono, connected: Connected) {
        let Connected {
            conn,
            key,
            dialled,
            way,
            psk,
        } = connected;
        let outgoing = dialled.is_some();
        match dialled {
            Some(DialTarget::Peer { peer, .. }) => self.peers.end_dial(peer, now, true, 0.0),
            Some(DialTarget::Address(address)) => {
                if let Some(seed) = self.seeds.get_mut(&address) {
                    seed.under_way = false;
                    seed.insist = Insist::No;
                    seed.at = now + seed.pause;
                }
            }
            None => {}
        }
        if key == self.identity.key() {
            self.clones.note_own(now);
            warn!("another machine uses this anchor's identity: one of the two must be removed");
            self.quic
                .close(conn, "this is my own identity: it was cloned");
            return;
        }
        // Seeds of a ticket are often several addresses of one anchor. The first to answer serves:
        // the names under which QUIC knows a peer have one way at a time.
        if matches!(dialled, Some(DialTarget::Address(_))) && self.peers.has_dialled(&key) {
            self.quic.close(conn, "connected already");
            return;
        }
        let remote = way.remote;
        let conn_entry = Conn {
            id: conn,
            key,
            outgoing,
            psk,
            remote,
            accepted: false,
            epoch: 0,
            member: None,
        };
        self.peers.add_conn(conn_entry);
        match self.hello() {
            Some(hello) => self.tell(conn, &Message::Hello(Box::new(hello))),
            None => self.quic.close(conn, "not ready yet"),
        }
        #[cfg(feature = "next")]
        if let Err(error) = self.quic.send(conn, conflux_proto::next::message().into()) {
            debug!(%error, "a message of a later release could not be queued");
        }
    }

    fn hello(&self) -> Option<Hello> {
        Some(Hello {
            version: PROTOCOL_VERSION,
            realm: self.standing.realm,
            credential: self.standing.shown()?.clone(),
            epoch: self.epoch,
            advert: self.membership.own(),
            software: conflux_proto::SOFTWARE.to_owned(),
            unix_time: clock::unix().0,
        })
    }

    fn handle_frame(&mut self, now: Mono, conn: ConnId, frame: &Frame) {
        let message = match Message::decode(frame.bytes()) {
            Ok(Decoded::Message(message)) => message,
            Ok(Decoded::Unknown { kind }) => {
                debug!(kind, "skipped a message of a later release");
                return;
            }
            Err(error) => {
                self.refuse(conn, RefusalCode::Protocol, &error.to_string());
                return;
            }
        };
        let Some(known) = self.peers.conn(conn) else {
            return;
        };
        let (key, accepted) = (known.key, known.accepted);
        self.watch_connection(now, conn, key);
        match message {
            Message::Hello(hello) if !accepted => self.handle_hello(now, conn, key, *hello),
            Message::Refused(refusal) => self.note_refusal(now, key, &refusal),
            message if accepted => self.handle_message(now, conn, key, message),
            Message::Hello(_)
            | Message::Admitted(_)
            | Message::Adverts(_)
            | Message::Digest(_)
            | Message::Leave(_)
            | Message::Noise1(_)
            | Message::Noise2(_)
            | Message::Ping(_)
            | Message::Pong(_)
            | Message::Resting(_)
            | Message::Revocations(_)
            | Message::RevocationDigest(_)
            | Message::Relay(_)
            | Message::Meet(_) => {
                self.refuse(conn, RefusalCode::Protocol, "a Hello must come first");
            }
        }
    }

    fn handle_hello(&mut self, now: Mono, conn: ConnId, key: AnchorKey, hello: Hello) {
        if hello.version != PROTOCOL_VERSION {
            let text = format!(
                "control protocol {} is spoken here, not {}",
                PROTOCOL_VERSION, hello.version
            );
            self.refuse(conn, RefusalCode::Version, &text);
            return;
        }
        if hello.realm != self.standing.realm {
            let text = format!("this is realm {}, not {}", self.standing.realm, hello.realm);
            self.refuse(conn, RefusalCode::Realm, &text);
            return;
        }
        let unix = clock::unix();
        let judged = credential::verify(&hello.credential, &self.standing.realm_key, unix)
            .and_then(|member| {
                let revocations = self.membership.revocations();
                revocations.judge(&member).map(|()| member)
            });
        match judged {
            Ok(member) if member.key == key => {
                self.accept(now, conn, member.clone(), &hello);
                self.offer_renewal(now, conn, key, &hello.credential, &member);
            }
            Ok(_) => self.refuse(
                conn,
                RefusalCode::Credential,
                "the credential is of another anchor",
            ),
            Err(Refused::NotAdmitted(_)) => self.admit(now, conn, key, &hello),
            Err(refused) => {
                if let Some(unsaid) = self.remote_lines.admit(now) {
                    let anchor = key.id().short();
                    warn!(%anchor, reason = %refused, unsaid, "refused an anchor");
                }
                self.refuse(conn, refused.code(), &refused.to_string());
            }
        }
    }

    /// Countersigns a joiner's credential when its ticket still holds.
    fn admit(&mut self, now: Mono, conn: ConnId, key: AnchorKey, hello: &Hello) {
        let anchor = key.id().short();
        let Some(own) = self.standing.credential() else {
            self.refuse(
                conn,
                RefusalCode::Busy,
                "no member yet either: ask another anchor",
            );
            return;
        };
        let unix = clock::unix();
        let joiner = credential::verify_join(&hello.credential, &self.standing.realm_key, unix);
        if joiner.as_ref().is_ok_and(|joiner| joiner.key != key) {
            self.refuse(
                conn,
                RefusalCode::Credential,
                "the ticket was used for another anchor",
            );
            return;
        }
        let revocations = self.membership.revocations();
        let revoked = joiner.and_then(|joiner| revocations.judge_joiner(&joiner.lineage));
        if let Err(refused @ Refused::Revoked(_)) = revoked {
            if let Some(unsaid) = self.remote_lines.admit(now) {
                warn!(%anchor, reason = %refused, unsaid, "refused a joiner");
            }
            self.refuse(conn, refused.code(), &refused.to_string());
            return;
        }
        let admitted = credential::admit(
            &hello.credential,
            &self.identity,
            own,
            &self.standing.realm_key,
            unix,
        );
        let credential = match admitted {
            Ok(credential) => credential,
            Err(error) => {
                if let Some(unsaid) = self.remote_lines.admit(now) {
                    warn!(%anchor, reason = %error, unsaid, "refused a joiner");
                }
                let code = match &error {
                    credential::AdmitRefused::Joiner(refused) => refused.code(),
                    credential::AdmitRefused::Admitter(_) | credential::AdmitRefused::Chain(_) => {
                        RefusalCode::Busy
                    }
                    _ => RefusalCode::Credential,
                };
                self.refuse(conn, code, &error.to_string());
                return;
            }
        };
        let member = match credential::verify(&credential, &self.standing.realm_key, unix) {
            Ok(member) => member,
            Err(error) => {
                self.refuse(conn, error.code(), &error.to_string());
                return;
            }
        };
        info!(%anchor, "admitted a new anchor");
        self.tell(
            conn,
            &Message::Admitted(Admitted {
                credential: credential.clone(),
            }),
        );
        self.accept(now, conn, member.clone(), hello);
        self.offer_renewal(now, conn, key, &credential, &member);
    }

    /// The far end is a member: connect it with the rest.
    fn accept(&mut self, now: Mono, conn: ConnId, member: Member, hello: &Hello) {
        let key = member.key;
        let Some((peer, surplus)) = self.peers.accept(conn, member, hello.epoch, now) else {
            return;
        };
        self.watch_starts(now, peer, key, hello.epoch);
        self.quic.bind(conn, peer);
        if let Some(surplus) = surplus {
            self.quic.close(surplus, "you have newer connections");
        }
        let Some(entry) = self.peers.conn(conn) else {
            return;
        };
        let (outgoing, remote) = (entry.outgoing, entry.remote);
        let anchor = key.id().short();
        match Relayed::from_address(&remote) {
            None => info!(%anchor, %remote, outgoing, "connected"),
            Some(way) => {
                info!(%anchor, relay = %self.short(way.relay), outgoing, "connected by a relay");
            }
        }
        self.note_clock(key, hello.unix_time);
        if let Some(advert) = &hello.advert {
            self.take_advert(now, advert, Duration::ZERO, (conn, key));
        }
        self.greet(now, conn);
        self.tell_seen(conn, remote);
        self.refresh_paths(peer);
        if outgoing {
            self.shake_hands(now, peer, conn);
        }
        self.rebuild(now);
    }

    /// A member has admitted this anchor, or renewed its credential.
    fn take_admission(&mut self, now: Mono, admitted: Admitted) {
        if self.standing.credential() == Some(&admitted.credential) {
            return;
        }
        if let Err(error) = self.refuse_lesser(&admitted.credential) {
            warn!(error, "a credential that was offered is of no use");
            return;
        }
        let was_member = self.standing.member().is_some();
        let taken = self.standing.take_credential(
            &self.state,
            &self.identity,
            admitted.credential,
            clock::unix(),
        );
        match taken {
            Ok(()) if was_member => info!("this anchor's credential was renewed"),
            Ok(()) => info!(realm = %self.standing.realm, "this anchor is a member now"),
            Err(error) => {
                warn!(%error, "a credential that was offered is of no use");
                return;
            }
        }
        self.last_join_error = None;
        self.readvertise(now);
        self.rebuild(now);
        // Connections that waited for this can go on.
        let waiting: Vec<_> = self
            .peers
            .accepted()
            .map(|conn| (conn.id, conn.key))
            .collect();
        for (conn, key) in waiting {
            self.greet(now, conn);
            if let Some(peer) = self.peers.known(&key) {
                self.begin_if_partner(now, peer);
            }
        }
    }

    fn handle_message(&mut self, now: Mono, conn: ConnId, key: AnchorKey, message: Message) {
        match message {
            Message::Adverts(adverts) => self.take_adverts(now, conn, key, adverts),
            Message::Digest(digest) => self.answer_digest(now, conn, &digest),
            Message::Leave(leave) => self.take_leave(now, &leave, key),
            Message::Noise1(noise) => self.answer_handshake(now, conn, key, &noise),
            Message::Noise2(noise) => self.finish_handshake(conn, &noise),
            Message::Admitted(admitted) => self.take_admission(now, admitted),
            Message::Ping(number) => self.tell(conn, &Message::Pong(number)),
            Message::Resting(resting) => self.take_resting(key, resting),
            Message::Revocations(said) => self.take_revocations(now, key, &said),
            Message::RevocationDigest(digest) => self.answer_revocation_digest(conn, &digest),
            Message::Relay(said) => self.handle_relay(now, conn, key, &said),
            Message::Meet(said) => self.handle_meet(now, conn, key, &said),
            // A second Hello says nothing new; refusals were handled before.
            Message::Hello(_) | Message::Pong(_) | Message::Refused(_) => {}
        }
    }

    /// Queues a message; a connection that takes no more is closed.
    pub(super) fn tell(&self, conn: ConnId, message: &Message) {
        let Some(frame) = frame_of(message) else {
            return;
        };
        if let Err(error) = self.quic.send(conn, frame) {
            debug!(%error, "a message could not be queued");
            self.quic.close(conn, "does not read");
        }
    }

    pub(super) fn refuse(&mut self, conn: ConnId, code: RefusalCode, text: &str) {
        let text = text.to_owned();
        self.tell(
            conn,
            &Message::Refused(Refusal {
                code,
                text: text.clone(),
            }),
        );
        self.quic.close(conn, &text);
    }

    /// A peer told why it will not have us.
    fn note_refusal(&mut self, now: Mono, key: AnchorKey, refusal: &Refusal) {
        let anchor = key.id().short();
        let reason = readable(refusal.text.as_bytes());
        if let Some(unsaid) = self.remote_lines.admit(now) {
            warn!(%anchor, reason, unsaid, "refused by an anchor");
        }
        match refusal.code {
            RefusalCode::Credential | RefusalCode::Expired | RefusalCode::Revoked => {
                self.refused = Some((now, format!("anchor {anchor} refuses this one: {reason}")));
            }
            RefusalCode::Version
            | RefusalCode::Realm
            | RefusalCode::TicketExpired
            | RefusalCode::Protocol
            | RefusalCode::Busy
            | RefusalCode::Other(_) => {}
        }
        if self.standing.joining().is_some() {
            self.last_join_error = Some(format!("anchor {anchor} refused: {reason}"));
        }
    }

    fn note_closed(&mut self, gone: &Conn, reason: &str) {
        if !gone.accepted {
            if self.standing.joining().is_some() && self.last_join_error.is_none() {
                self.last_join_error = Some(reason.to_owned());
            }
            // Not accepted: no sooner than the next turn of the back-off.
            if let Some(peer) = self.peers.known(&gone.key) {
                let spread = self.random.f64();
                let now = super::routing::now();
                self.peers.end_dial(peer, now, false, spread);
            }
        }
    }

    fn note_seed_failed(&mut self, now: Mono, address: SocketAddr, error: &DialError) {
        debug!(%address, %error, "an endpoint could not be reached");
        if self.standing.joining().is_some() {
            self.last_join_error = Some(format!("{address}: {error}"));
        }
        let longest = if self.needs_seeds() {
            LONGEST_SEED_PAUSE
        } else {
            LONGEST_INSISTING_PAUSE
        };
        if let Some(seed) = self.seeds.get_mut(&address) {
            seed.under_way = false;
            seed.at = now + seed.pause;
            seed.pause = (seed.pause * 2).min(longest);
            // One configuration for many machines names this one too.
            seed.insist = if matches!(error, DialError::Own) {
                Insist::No
            } else {
                seed.insist.after_failure()
            };
        }
    }

    fn note_clock(&mut self, key: AnchorKey, theirs: u64) {
        let ours = clock::unix().0;
        if ours.abs_diff(theirs) > SKEW_TOLD_SECS {
            let ahead = i64::try_from(ours).unwrap_or(0) - i64::try_from(theirs).unwrap_or(0);
            self.skewed.insert(key, ahead);
        } else {
            self.skewed.remove(&key);
        }
    }

    /// Lets a peer be dialled at once.
    pub(super) fn hurry(&mut self, now: Mono, peer: PeerIx) {
        self.peers.hurry(peer, now);
    }
}

/// Returns a message as the transport takes it; one of ours that is too long is a fault of ours
/// and is told in the log.
pub(super) fn frame_of(message: &Message) -> Option<Bytes> {
    match message.encode() {
        Ok(bytes) => Some(bytes.into()),
        Err(error) => {
            warn!(%error, "a message could not be written");
            None
        }
    }
}
