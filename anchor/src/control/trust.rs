//! Revocations: taken from peers and from the operator, written down before they are told of, and
//! carried out on connections. What they are worth is `core::credential`'s, how they spread
//! `core::membership`'s.

use conflux_core::credential::{Member, Refused, RevokeRefused, revoke};
use conflux_core::time::Mono;
use conflux_proto::api::{MemberKind, RevokeRequest, Revoked, VERSION};
use conflux_proto::control::{Message, RefusalCode, RevocationDigest, Revocations};
use conflux_proto::credential::Serial;
use conflux_proto::id::{AnchorId, AnchorKey};
use conflux_proto::revocation::{SignedRevocation, Target};
use conflux_proto::ticket::Ticket;
use tracing::{debug, info, warn};

use super::Anchor;
use crate::api::Refusal;
use crate::clock;
use crate::files::StateFile;
use crate::quic::ConnId;

/// A shorter beginning of an id is more likely a slip than a name.
const SHORTEST_NAME: usize = 4;

impl Anchor {
    /// Takes revocations that a peer passed on.
    pub(super) fn take_revocations(&mut self, now: Mono, from: AnchorKey, said: &Revocations) {
        let outcome = self
            .membership
            .handle_revocations(now, &said.revocations, Some(from));
        for error in &outcome.refused {
            debug!(from = %from.id().short(), %error, "a revocation was refused");
        }
        if outcome.added > 0 {
            // The log has told of a disk that did not take them; they hold all the same.
            let _ = self.carry_out_revocations(now);
        }
    }

    pub(super) fn answer_revocation_digest(&self, conn: ConnId, digest: &RevocationDigest) {
        for message in self.membership.handle_revocation_digest(digest) {
            self.tell(conn, &message);
        }
    }

    /// Says whether this anchor's own membership was revoked, and by what.
    pub(super) fn own_revocation(&self) -> Option<Refused> {
        let member = self.standing.member()?;
        self.membership.revocations().judge(member).err()
    }

    /// Revokes what the operator named.
    pub(super) fn revoke(
        &mut self,
        now: Mono,
        request: &RevokeRequest,
    ) -> Result<Revoked, Refusal> {
        let target = self.named(&request.target)?;
        self.refuse_slips(target)?;
        let granter = self.standing.granter(&self.identity).ok_or_else(|| {
            Refusal::Unavailable("this anchor is no member of a realm yet".to_owned())
        })?;
        let signed = revoke(granter, target, request.with_anchors, clock::unix())
            .map_err(|error| Refusal::Invalid(error.to_string()))?;
        self.refuse_powerless(target, &signed)?;
        let before: Vec<AnchorKey> = self.membership.entries().map(|(key, _)| *key).collect();
        let told = self.peers.neighbours(&self.identity.key()).len();
        let outcome = self
            .membership
            .handle_revocations(now, std::slice::from_ref(&signed), None);
        if let Some(error) = outcome.refused.first() {
            return Err(Refusal::Failed(error.to_string()));
        }
        let warnings = self.carry_out_revocations(now).err().into_iter().collect();
        let mut anchors: Vec<String> = before
            .iter()
            .filter(|key| self.membership.get(key).is_none())
            .map(|key| key.id().to_string())
            .collect();
        anchors.sort();
        let (kind, id) = match target {
            Target::Anchor(id) => (MemberKind::Anchor, id.to_string()),
            Target::Ticket(serial) => (MemberKind::Ticket, serial.to_string()),
        };
        info!(%kind, id, with_anchors = request.with_anchors, "revoked");
        Ok(Revoked {
            version: VERSION,
            kind,
            id,
            anchors,
            told,
            warnings,
        })
    }

    /// Reads the revocations of earlier runs; those that cannot be read are told of, and come
    /// again from peers.
    pub(super) fn load_revocations(&mut self, now: Mono) {
        let saved = match self.state.read_list(StateFile::Revocations) {
            Ok(saved) => saved,
            Err(error) => {
                warn!(%error, "revocations of the last run are missing until peers tell of them");
                return;
            }
        };
        let mut known: Vec<SignedRevocation> = Vec::with_capacity(saved.len());
        for bytes in saved {
            match SignedRevocation::from_bytes(&bytes) {
                Ok(signed) => known.push(signed),
                Err(error) => warn!(%error, "a saved revocation is damaged"),
            }
        }
        let outcome = self.membership.handle_revocations(now, &known, None);
        for error in outcome.refused {
            warn!(%error, "a saved revocation does not hold");
        }
        if let Some(revoked) = self.own_revocation() {
            warn!(reason = %revoked, "this anchor was revoked");
        }
    }

    /// Writes the revocations down and ends what they forbid; the error says what was not kept.
    fn carry_out_revocations(&mut self, now: Mono) -> Result<(), String> {
        let all: Vec<Vec<u8>> = self
            .membership
            .revocations()
            .iter()
            .map(SignedRevocation::to_bytes)
            .collect();
        let written = self
            .state
            .write_list(StateFile::Revocations, all.iter().map(Vec::as_slice));
        let written = written.map_err(|error| {
            warn!(%error, "a revocation could not be written down");
            format!("it holds until this daemon stops, for it could not be written down: {error}")
        });
        self.run_membership(now);
        // A peer may be connected without an advert that is known.
        let revocations = self.membership.revocations();
        let out: Vec<(AnchorKey, Refused)> = self
            .peers
            .accepted()
            .filter_map(|conn| {
                let member = conn.member.as_ref()?;
                Some((conn.key, revocations.judge(member).err()?))
            })
            .collect();
        for (key, revoked) in out {
            self.put_out(&key, &revoked.to_string());
        }
        if let Some(revoked) = self.own_revocation() {
            warn!(reason = %revoked, "this anchor was revoked");
        }
        self.rebuild(now);
        written
    }

    /// Ends everything with a revoked anchor, and tells it why.
    pub(super) fn put_out(&mut self, key: &AnchorKey, why: &str) {
        info!(anchor = %key.id().short(), why, "an anchor was put out");
        let conns = self
            .peers
            .known(key)
            .and_then(|peer| self.peers.get(peer))
            .map(|peer| peer.conns.clone());
        for conn in conns.into_iter().flatten() {
            self.refuse(conn, RefusalCode::Revoked, why);
        }
        self.drop_peer(key, "you were revoked");
    }

    /// Returns what an operator's words name.
    fn named(&self, words: &str) -> Result<Target, Refusal> {
        let words = words.trim();
        if words.starts_with("conflux") {
            let ticket: Ticket = words
                .parse()
                .map_err(|error| Refusal::Invalid(format!("{error}")))?;
            if ticket.realm() != self.standing.realm {
                return Err(Refusal::Invalid(format!(
                    "the ticket is of realm {}, this is realm {}",
                    ticket.realm(),
                    self.standing.realm
                )));
            }
            return Ok(Target::Ticket(ticket.grant().claimed().serial));
        }
        let words = words.to_ascii_lowercase();
        if words.len() < SHORTEST_NAME {
            return Err(Refusal::Invalid(format!(
                "\"{words}\" is too short: at least {SHORTEST_NAME} letters of an id, as \
                 `conflux members` shows them"
            )));
        }
        let (anchors, tickets) = self.known_ids();
        let mut found: Vec<Target> = anchors
            .into_iter()
            .filter(|id| id.to_string().starts_with(&words))
            .map(Target::Anchor)
            .chain(
                tickets
                    .into_iter()
                    .filter(|serial| serial.to_string().starts_with(&words))
                    .map(Target::Ticket),
            )
            .collect();
        match (found.pop(), found.is_empty()) {
            (Some(target), true) => Ok(target),
            (Some(_), false) => Err(Refusal::Invalid(format!(
                "\"{words}\" is the beginning of {} ids: give more letters; `conflux members \
                 --json` has them all",
                found.len() + 1
            ))),
            (None, _) => unknown_but_whole(&words),
        }
    }

    /// The machine that holds the realm's key is not revoked from its own command line.
    fn refuse_slips(&self, target: Target) -> Result<(), Refusal> {
        let is_own = target == Target::Anchor(self.identity.key().id());
        if is_own && self.standing.has_realm_key() {
            return Err(Refusal::Invalid(
                "that is this machine, which holds the realm's key: nothing was revoked; \
                 `conflux realm export` hands the key on, `conflux uninstall` leaves"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// A revocation that would have no effect on the one it names is not made.
    fn refuse_powerless(&self, target: Target, signed: &SignedRevocation) -> Result<(), Refusal> {
        if signed.authority.is_none() {
            return Ok(());
        }
        let author = self.standing.member();
        let revocations = self.membership.revocations();
        let members = || {
            let others = self.membership.entries().map(|(_, entry)| entry.member());
            others.chain(author)
        };
        let is_about = |member: &&Member| {
            Target::Anchor(member.key.id()) == target
                || member.ticket().map(Target::Ticket) == Some(target)
        };
        let mut about = members().filter(is_about).peekable();
        if about.peek().is_some()
            && !about.any(|member| revocations.would_reach(author, target, member))
        {
            let name = match target {
                Target::Anchor(id) => format!("anchor {}", id.short()),
                Target::Ticket(serial) => format!("ticket {serial}"),
            };
            return Err(Refusal::Invalid(RevokeRefused::Powerless(name).to_string()));
        }
        Ok(())
    }
}

/// Returns the target of a whole id that nobody here knows.
fn unknown_but_whole(words: &str) -> Result<Target, Refusal> {
    if let Ok(id) = words.parse::<AnchorId>() {
        return Ok(Target::Anchor(id));
    }
    if let Ok(serial) = words.parse::<Serial>() {
        return Ok(Target::Ticket(serial));
    }
    Err(Refusal::Invalid(format!(
        "no anchor or ticket known here begins with \"{words}\": `conflux members` lists them; \
         one that is not known is named by its whole id, or by the ticket itself"
    )))
}

impl Anchor {
    /// Sends what this anchor has to a peer that was just accepted, or was drawn to reconcile.
    pub(super) fn tell_digests(&mut self, conn: ConnId) {
        let revocations = self.membership.revocation_digest();
        self.tell(conn, &revocations);
        self.tell(conn, &Message::Digest(self.membership.digest()));
    }
}
