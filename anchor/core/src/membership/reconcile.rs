//! Anti-entropy: two stores tell each other what they know and send what the other lacks.
//!
//! A small store lists its editions at once; a large one sends fingerprints, and the other lists
//! the buckets that differ. Who gets a list sends what it has and the list lacks, and, on the
//! first turn, lists its own where it lacks something. Three messages at most, then adverts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use conflux_proto::advert::{Advert, Edition, SignedAdvert};
use conflux_proto::control::{Adverts, AgedAdvert, Digest, DigestEntry, Message, Turn};
use conflux_proto::credential::Credential;
use conflux_proto::id::AnchorKey;
use conflux_proto::signed::Signed;

use super::Membership;
use crate::time::Mono;

/// One advert this store can send, its own anchor's or another's.
struct Offer<'a> {
    advert: &'a Signed<Advert>,
    credential: &'a Credential,
    credential_since: Edition,
    age: Duration,
}

impl Membership {
    /// Returns what is known here, to be sent to a peer.
    pub fn digest(&self) -> Digest {
        if self.live.len() < LISTED_AT_ONCE {
            let editions = self.editions(|_| true).collect();
            return Digest::Editions {
                turn: Turn::Ask,
                buckets: Vec::new(),
                editions,
            };
        }
        Digest::Fingerprints(self.fingerprints.all().to_vec())
    }

    /// Returns what to send to the peer whose digest this is.
    pub fn handle_digest(&self, now: Mono, digest: &Digest) -> Vec<Message> {
        match digest {
            Digest::Fingerprints(theirs) => {
                let differs = |bucket: &u8| {
                    let bucket = usize::from(*bucket);
                    theirs.get(bucket) != self.fingerprints.all().get(bucket)
                };
                let buckets: Vec<u8> = (0..=u8::MAX).filter(differs).collect();
                self.list(buckets, Turn::Ask).into_iter().collect()
            }
            Digest::Editions {
                turn,
                buckets,
                editions,
            } => {
                let theirs: BTreeMap<AnchorKey, Edition> = editions
                    .iter()
                    .map(|entry| (entry.key, entry.edition))
                    .collect();
                let mut messages = self.what_lacks(now, buckets, &theirs);
                if *turn == Turn::Ask {
                    messages.extend(self.list(self.lacking(&theirs), Turn::Answer));
                }
                messages
            }
        }
    }

    /// Lists as many of `buckets` as fit a message; the next digest brings the others.
    fn list(&self, mut buckets: Vec<u8>, turn: Turn) -> Option<Message> {
        if buckets.is_empty() {
            return None;
        }
        let mut sizes = [0_usize; Digest::BUCKETS];
        for entry in self.editions(|_| true) {
            sizes[usize::from(Digest::bucket_of(&entry.key))] += 1;
        }
        let mut listed = 0;
        let mut is_first = true;
        buckets.retain(|bucket| {
            listed += sizes[usize::from(*bucket)];
            std::mem::take(&mut is_first) || listed <= MAX_LISTED
        });
        let wanted: BTreeSet<u8> = buckets.iter().copied().collect();
        // A single bucket above the limit is cut: the other side then sends what it need not.
        let editions = self
            .editions(|bucket| wanted.contains(&bucket))
            .take(MAX_LISTED)
            .collect();
        Some(Message::Digest(Digest::Editions {
            turn,
            buckets,
            editions,
        }))
    }

    /// Returns the buckets in which the other side is ahead.
    fn lacking(&self, theirs: &BTreeMap<AnchorKey, Edition>) -> Vec<u8> {
        let is_ahead = |(key, edition): &(&AnchorKey, &Edition)| {
            let ours = if **key == self.identity.key() {
                Some(self.edition)
            } else {
                let known = self.live.get(*key).map(|entry| entry.advert().edition);
                known.or_else(|| self.gone.edition(key))
            };
            ours.is_none_or(|ours| ours < **edition)
        };
        let ahead = theirs.iter().filter(is_ahead);
        let buckets: BTreeSet<u8> = ahead.map(|(key, _)| Digest::bucket_of(key)).collect();
        buckets.into_iter().collect()
    }

    /// Returns the adverts and goodbyes the other side lacks in the buckets it listed.
    fn what_lacks(
        &self,
        now: Mono,
        buckets: &[u8],
        theirs: &BTreeMap<AnchorKey, Edition>,
    ) -> Vec<Message> {
        let listed: BTreeSet<u8> = buckets.iter().copied().collect();
        let leaves = theirs
            .iter()
            .filter_map(|(key, edition)| self.gone.leave(key, *edition))
            .map(|leave| Message::Leave(leave.clone()));
        let mut messages: Vec<Message> = leaves.collect();
        let mut batches = Batches::default();
        for offer in self.offers(now) {
            let advert = offer.advert.claimed();
            let is_listed = listed.is_empty() || listed.contains(&Digest::bucket_of(&advert.key));
            let known = theirs.get(&advert.key);
            if !is_listed || known.is_some_and(|known| *known >= advert.edition) {
                continue;
            }
            let has_credential = known.is_some_and(|known| *known >= offer.credential_since);
            let credential = (!has_credential).then(|| offer.credential.clone());
            let advert = SignedAdvert {
                advert: offer.advert.clone(),
                credential,
            };
            let age_millis = u64::try_from(offer.age.as_millis()).unwrap_or(u64::MAX);
            if !batches.push(AgedAdvert { advert, age_millis }) {
                break;
            }
        }
        messages.extend(batches.finish());
        messages
    }

    fn offers(&self, now: Mono) -> impl Iterator<Item = Offer<'_>> {
        let own = self.own.iter().map(move |own| Offer {
            advert: &own.advert,
            credential: &own.said.credential,
            credential_since: own.credential_since,
            age: now.since(own.signed_at),
        });
        let others = self.live.values().map(move |entry| Offer {
            advert: &entry.advert,
            credential: &entry.credential,
            credential_since: entry.credential_since,
            age: entry.age(now),
        });
        own.chain(others)
    }

    fn editions(&self, wants: impl Fn(u8) -> bool) -> impl Iterator<Item = DigestEntry> {
        let own = self.own.iter().map(|own| &own.advert);
        let others = self.live.values().map(|entry| &entry.advert);
        own.chain(others)
            .map(|advert| advert.claimed())
            .filter(move |advert| wants(Digest::bucket_of(&advert.key)))
            .map(|advert| DigestEntry {
                key: advert.key,
                edition: advert.edition,
            })
    }
}

/// Adverts, packed into messages up to a limit in all.
#[derive(Default)]
struct Batches {
    done: Vec<Adverts>,
    open: Adverts,
    open_bytes: usize,
    total_bytes: usize,
    count: usize,
    is_full: bool,
}

impl Batches {
    /// Takes an advert, or returns false when the limit is reached.
    fn push(&mut self, aged: AgedAdvert) -> bool {
        let credential = aged.advert.credential.as_ref();
        let bytes = aged.advert.advert.size_bytes()
            + credential.map_or(0, |credential| credential.to_bytes().len())
            + MARGIN_BYTES;
        if self.total_bytes + bytes > MAX_ANSWER_BYTES {
            self.is_full = true;
            return false;
        }
        if self.open_bytes + bytes > BATCH_BYTES {
            self.done.push(std::mem::take(&mut self.open));
            self.open_bytes = 0;
        }
        self.open.adverts.push(aged);
        self.open_bytes += bytes;
        self.total_bytes += bytes;
        self.count += 1;
        true
    }

    fn finish(mut self) -> impl Iterator<Item = Message> {
        if !self.open.adverts.is_empty() {
            self.done.push(self.open);
        }
        if let Some(last) = self.done.last_mut() {
            last.more = self.is_full || self.count >= MANY;
        }
        self.done.into_iter().map(Message::Adverts)
    }
}

/// Up to this many editions cost about what the fingerprints do, and save a round.
const LISTED_AT_ONCE: usize = 64;

/// An edition takes at most 55 bytes, so a list stays below 58 KiB.
const MAX_LISTED: usize = 1024;

/// The longest credential and advert (24 KiB) fit beside others; below the limit of a message.
const BATCH_BYTES: usize = 48 << 10;

/// What one digest can make us send: a whole realm of 800; a larger one takes several rounds.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Who lacks this many may lack more than fitted the list: it asks again at once, and when it lacks
/// nothing more that costs one message.
const MANY: usize = 256;

/// Map and array heads, and the age, around an advert and its credential.
const MARGIN_BYTES: usize = 40;
