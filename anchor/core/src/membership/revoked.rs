//! Revocations as this store keeps and spreads them: what is new is flooded, what a flood missed
//! is found by digests, on connecting and with every [`DIGEST_INTERVAL`](super::DIGEST_INTERVAL).
//! Whoever is revoked is forgotten at once. What a revocation is worth is `credential`'s.

use std::collections::BTreeSet;

use conflux_proto::control::{self, Message, RevocationDigest, Turn};
use conflux_proto::id::AnchorKey;
use conflux_proto::revocation::SignedRevocation;

use super::{Event, Membership, Spread};
use crate::credential::{RevocationRefused, Revocations};
use crate::time::Mono;

/// What became of revocations that came together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RevocationOutcome {
    /// How many were new; the owner writes [`Membership::revocations`] down when any was.
    pub added: usize,
    /// Why others were refused.
    pub refused: Vec<RevocationRefused>,
}

impl Membership {
    /// Takes revocations that came from peer `from` (none: made here, or read from a file of
    /// ours). Anchors they put out are gone afterwards, each with an [`Event::Revoked`].
    pub fn handle_revocations(
        &mut self,
        now: Mono,
        revocations: &[SignedRevocation],
        from: Option<AnchorKey>,
    ) -> RevocationOutcome {
        let mut outcome = RevocationOutcome::default();
        let mut new = Vec::new();
        for signed in revocations {
            match self.revocations.insert(signed) {
                Ok(true) => new.push(signed.clone()),
                Ok(false) => {}
                Err(refused) => {
                    self.counts.refused += 1;
                    outcome.refused.push(refused);
                }
            }
        }
        outcome.added = new.len();
        if new.is_empty() {
            return outcome;
        }
        for message in messages(new) {
            self.events.push_back(Event::Flood {
                message: Box::new(message),
                except: from,
                spread: Spread::All,
            });
        }
        let is_out = |(_, entry): &(&AnchorKey, &super::Entry)| {
            self.revocations.judge(entry.member()).is_err()
        };
        let out: Vec<AnchorKey> = self
            .live
            .iter()
            .filter(is_out)
            .map(|(key, _)| *key)
            .collect();
        for key in out {
            if let Some(entry) = self.remove(&key) {
                let edition = entry.advert().edition;
                self.gone.insert(now, key, edition, None);
                self.events.push_back(Event::Revoked(key));
            }
        }
        outcome
    }

    /// Returns the revocations held here.
    pub fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// Returns what is held here, to be sent to a peer: all of it, or the next stretch when that
    /// is too much for a message.
    pub fn revocation_digest(&mut self) -> Message {
        let digest = self.list_revocations(Turn::Ask, self.next_stretch, u64::MAX);
        self.next_stretch = digest.last.wrapping_add(1);
        Message::RevocationDigest(digest)
    }

    /// Returns what to send to the peer whose digest this is.
    pub fn handle_revocation_digest(&self, digest: &RevocationDigest) -> Vec<Message> {
        let theirs: BTreeSet<u64> = digest.places().collect();
        let ours = || self.revocations.between(digest.first, digest.last);
        let mut bytes = 0;
        let lacking = ours()
            .filter(|(place, _)| !theirs.contains(place))
            .map(|(_, signed)| signed.clone())
            .take_while(|signed| {
                bytes += signed.to_bytes().len();
                bytes <= MAX_ANSWER_BYTES
            });
        let mut answers = messages(lacking.collect());
        if digest.turn == Turn::Ask {
            let known: BTreeSet<u64> = ours().map(|(place, _)| place).collect();
            if theirs.iter().any(|place| !known.contains(place)) {
                let ours = self.list_revocations(Turn::Answer, digest.first, digest.last);
                answers.push(Message::RevocationDigest(ours));
            }
        }
        answers
    }

    fn list_revocations(&self, turn: Turn, first: u64, last: u64) -> RevocationDigest {
        let mut places: Vec<u64> = self
            .revocations
            .between(first, last)
            .map(|(place, _)| place)
            .take(MAX_LISTED + 1)
            .collect();
        // A list that is cut says how far it goes.
        let cut = if places.len() > MAX_LISTED {
            places.pop()
        } else {
            None
        };
        let last = cut.map_or(last, |next| next.saturating_sub(1));
        RevocationDigest::new(turn, first, last, places)
    }
}

/// Packs revocations into messages.
fn messages(revocations: Vec<SignedRevocation>) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut open = control::Revocations::default();
    let mut open_bytes = 0;
    for signed in revocations {
        let bytes = signed.to_bytes().len();
        if open_bytes + bytes > BATCH_BYTES && !open.revocations.is_empty() {
            messages.push(Message::Revocations(std::mem::take(&mut open)));
            open_bytes = 0;
        }
        open_bytes += bytes;
        open.revocations.push(signed);
    }
    if !open.revocations.is_empty() {
        messages.push(Message::Revocations(open));
    }
    messages
}

/// Places of eight bytes: 32 KiB, half of a message.
const MAX_LISTED: usize = 4096;

/// The longest revocation (17 KiB) fits beside others; below the limit of a message.
const BATCH_BYTES: usize = 40 << 10;

/// What one digest can make us send; more takes several rounds.
const MAX_ANSWER_BYTES: usize = 512 << 10;
