//! What this anchor knows of the realm: every anchor's latest advert, each believed for its
//! lifetime and no longer, and its own, signed anew on schedule. Facts come from their authors'
//! signatures only; nobody declares another dead.
//!
//! How facts spread: what is new or changed is flooded, to all connected peers; a refresh that
//! changes nothing goes to a few ([`REFRESH_FANOUT`]); what that misses is reconciled by digests,
//! which the owner sends to a peer on connecting and to one at random every [`DIGEST_INTERVAL`].
//! A store keeps, for anchors that left or expired, how far they had come, so that
//! replayed adverts do not bring them back.
//!
//! Time: an advert's age travels with it, the receiver adds its own waiting. A carrier that lies
//! about the age can delay an expiry once per receiver, by one lifetime at most; what is known
//! already is not made younger.
//!
//! The owner drains [`Membership::poll_event`] after every call, and calls
//! [`Membership::handle_timeout`] when [`Membership::poll_timeout`] is due.

mod check;
mod fingerprint;
mod gone;
mod neighbours;
mod own;
mod pace;
mod reconcile;
mod revoked;

pub use check::AdvertRefused;
pub use neighbours::{Candidate, FULL_MESH, NEIGHBOURS, neighbours};
pub use own::{Own, refresh_interval};
pub use revoked::RevocationOutcome;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use conflux_proto::advert::{Advert, Edition, Leave, SignedAdvert};
use conflux_proto::control::{Adverts, AgedAdvert, Message};
use conflux_proto::credential::Credential;
use conflux_proto::id::{AnchorKey, RealmKey};
use conflux_proto::signed::Signed;

use self::fingerprint::Fingerprints;
use self::gone::Gone;
use self::own::OwnStatement;
use self::pace::Paces;
use crate::credential::{Member, Revocations};
use crate::identity::Identity;
use crate::time::{Mono, UnixTime};

/// The store of adverts, and this anchor's own.
#[derive(Debug)]
pub struct Membership {
    realm: RealmKey,
    identity: Identity,
    edition: Edition,
    own: Option<OwnStatement>,
    ahead: Option<Edition>,
    live: BTreeMap<AnchorKey, Entry>,
    expiries: BTreeSet<(Mono, AnchorKey)>,
    gone: Gone,
    revocations: Revocations,
    /// Where the next digest of revocations begins.
    next_stretch: u64,
    fingerprints: Fingerprints,
    paces: Paces,
    events: VecDeque<Event>,
    random: fastrand::Rng,
    counts: Counts,
}

/// Another anchor's latest advert, checked.
#[derive(Clone, Debug)]
pub struct Entry {
    advert: Signed<Advert>,
    credential: Credential,
    member: Member,
    received: Mono,
    age: Duration,
    expires: Mono,
    /// The first edition seen with this credential: who knows a later one has the credential.
    credential_since: Edition,
}

/// What became of an advert.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Its anchor was not known.
    New,
    /// It replaces an earlier one.
    Updated {
        /// Whether it says more than that the anchor is still there.
        changed: bool,
    },
    /// It was known.
    Known,
    /// A later one is known, or its anchor has left or expired since. From the anchor itself this
    /// means that its state was rolled back.
    Stale {
        /// The edition known.
        known: Edition,
    },
    /// Another statement of the same edition is known: two machines sign with one key.
    Conflicting,
    /// It names a credential that is not here: a digest to the sender brings it.
    NeedsCredential,
    /// It is this anchor's own, later than any it made: its state was rolled back, or another
    /// machine has its key. [`Event::OwnAhead`] says so once.
    OwnAhead,
    /// Its anchor says too much; what stands when it is quiet again comes with a digest.
    TooOften,
    /// It does not hold.
    Refused(AdvertRefused),
}

/// What became of a leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaveOutcome {
    /// The anchor is gone.
    Left,
    /// Nothing to remove: it was gone, has come back since, or was never here.
    Ignored,
    /// It does not hold.
    Refused(AdvertRefused),
}

/// Something for the owner to act on.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// An anchor is new or says something else now.
    Changed(AnchorKey),
    /// An anchor said goodbye.
    Left(AnchorKey),
    /// An anchor's advert has expired.
    Expired(AnchorKey),
    /// An anchor was revoked.
    Revoked(AnchorKey),
    /// A message for connected peers.
    Flood {
        /// The message.
        message: Box<Message>,
        /// Whom it came from.
        except: Option<AnchorKey>,
        /// How many of the others it is for.
        spread: Spread,
    },
    /// A message for one peer: the goodbye that voids an advert it offered.
    Tell {
        /// The peer.
        to: AnchorKey,
        /// The message.
        message: Box<Message>,
    },
    /// There are statements by this anchor's key later than its own, up to this edition.
    OwnAhead(Edition),
}

/// How many peers a message is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// All that are connected.
    All,
    /// This many, drawn at random.
    Few(usize),
}

/// What was turned away, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Adverts and leaves that did not hold.
    pub refused: u64,
    /// Adverts of an edition of which another is known.
    pub conflicting: u64,
    /// Adverts without a credential that was needed.
    pub without_credential: u64,
    /// Adverts of anchors that said too much.
    pub too_often: u64,
}

impl Membership {
    /// Returns an empty store for an anchor that has started `epoch` times.
    pub fn new(realm: RealmKey, identity: Identity, epoch: u64, seed: u64) -> Self {
        Self {
            realm,
            identity,
            edition: Edition { epoch, sequence: 0 },
            own: None,
            ahead: None,
            live: BTreeMap::new(),
            expiries: BTreeSet::new(),
            gone: Gone::default(),
            revocations: Revocations::new(realm),
            next_stretch: 0,
            fingerprints: Fingerprints::default(),
            paces: Paces::default(),
            events: VecDeque::new(),
            random: fastrand::Rng::with_seed(seed),
            counts: Counts::default(),
        }
    }

    /// Judges an advert that came from peer `from` (none: from a file of ours), signed `age` ago.
    pub fn handle_advert(
        &mut self,
        now: Mono,
        unix: UnixTime,
        signed: &SignedAdvert,
        age: Duration,
        from: Option<AnchorKey>,
    ) -> Outcome {
        let outcome = self.judge(now, unix, signed, age);
        match &outcome {
            Outcome::New | Outcome::Updated { changed: true } => {
                let key = signed.advert.claimed().key;
                self.events.push_back(Event::Changed(key));
                self.flood(now, &key, from, Spread::All);
            }
            Outcome::Updated { changed: false } => {
                let key = signed.advert.claimed().key;
                self.flood(now, &key, from, Spread::Few(REFRESH_FANOUT));
            }
            Outcome::Refused(_) => self.counts.refused += 1,
            Outcome::Conflicting => self.counts.conflicting += 1,
            Outcome::NeedsCredential => self.counts.without_credential += 1,
            Outcome::TooOften => self.counts.too_often += 1,
            Outcome::Stale { .. } => {
                let advert = signed.advert.claimed();
                if let (Some(to), Some(leave)) =
                    (from, self.gone.leave(&advert.key, advert.edition))
                {
                    let message = Box::new(Message::Leave(leave.clone()));
                    self.events.push_back(Event::Tell { to, message });
                }
            }
            Outcome::Known | Outcome::OwnAhead => {}
        }
        outcome
    }

    /// Judges a goodbye that came from peer `from`. One about an anchor that is not known is
    /// ignored: there is nothing to remove, and strangers must not fill the store.
    pub fn handle_leave(
        &mut self,
        now: Mono,
        signed: &Signed<Leave>,
        from: Option<AnchorKey>,
    ) -> LeaveOutcome {
        let leave = match check::leave(signed, &self.realm) {
            Ok(leave) => leave.clone(),
            Err(refused) => {
                self.counts.refused += 1;
                return LeaveOutcome::Refused(refused);
            }
        };
        if leave.key == self.identity.key() {
            self.note_ahead(leave.edition);
            return LeaveOutcome::Ignored;
        }
        let is_later = |entry: &Entry| leave.edition > entry.advert.claimed().edition;
        if !self.live.get(&leave.key).is_some_and(is_later) {
            return LeaveOutcome::Ignored;
        }
        self.remove(&leave.key);
        self.paces.note(now, leave.key);
        self.gone
            .insert(now, leave.key, leave.edition, Some(signed.clone()));
        self.events.push_back(Event::Left(leave.key));
        let message = Box::new(Message::Leave(signed.clone()));
        self.events.push_back(Event::Flood {
            message,
            except: from,
            spread: Spread::All,
        });
        LeaveOutcome::Left
    }

    /// Expires what is due, and signs anew when that is.
    pub fn handle_timeout(&mut self, now: Mono) {
        while let Some(&(at, key)) = self.expiries.first()
            && at <= now
        {
            if let Some(entry) = self.remove(&key) {
                self.gone
                    .insert(now, key, entry.advert.claimed().edition, None);
                self.events.push_back(Event::Expired(key));
            }
        }
        self.gone.expire(now);
        if let Some(own) = &self.own
            && own.refresh_at <= now
        {
            self.publish(now, own.said.clone());
        }
    }

    /// Returns the next thing to act on.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        let expiry = self.expiries.first().map(|(at, _)| *at);
        let refresh = self.own.as_ref().map(|own| own.refresh_at);
        [expiry, refresh, self.gone.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns what is known of an anchor.
    pub fn get(&self, key: &AnchorKey) -> Option<&Entry> {
        self.live.get(key)
    }

    /// Returns all other anchors known, in the order of their keys.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&AnchorKey, &Entry)> {
        self.live.iter()
    }

    /// Returns how many anchors are known, this one included.
    pub fn realm_size(&self) -> usize {
        self.live.len() + 1
    }

    /// Returns what was turned away.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn judge(
        &mut self,
        now: Mono,
        unix: UnixTime,
        signed: &SignedAdvert,
        age: Duration,
    ) -> Outcome {
        let claimed = signed.advert.claimed();
        let key = claimed.key;
        let edition = claimed.edition;
        if key == self.identity.key() {
            return self.judge_own(&signed.advert);
        }
        let known = self.live.get(&key);
        let floor = known
            .map(|entry| entry.advert.claimed().edition)
            .or_else(|| self.gone.edition(&key));
        if floor.is_some_and(|floor| edition < floor) || (known.is_none() && floor == Some(edition))
        {
            return floor.map_or(Outcome::Known, |known| Outcome::Stale { known });
        }
        if known.is_some_and(|entry| entry.advert == signed.advert) {
            return Outcome::Known;
        }
        if !self.paces.permits(now, &key) {
            return Outcome::TooOften;
        }
        if let Err(refused) = check::advert(&signed.advert, &self.realm, age) {
            return Outcome::Refused(refused);
        }
        if floor == Some(edition) {
            return Outcome::Conflicting;
        }
        if known.is_none() && self.live.len() >= MAX_ANCHORS {
            return Outcome::Refused(AdvertRefused::Full);
        }
        let (member, credential) = match check::membership(signed, known, &self.realm, unix) {
            Ok(Some(rights)) => rights,
            Ok(None) => return Outcome::NeedsCredential,
            Err(refused) => return Outcome::Refused(refused),
        };
        if let Err(revoked) = self.revocations.judge(&member) {
            return Outcome::Refused(revoked.into());
        }
        let outcome = match known {
            None => Outcome::New,
            Some(entry) => Outcome::Updated {
                changed: says_more(claimed, entry.advert.claimed()),
            },
        };
        let credential_since = known
            .filter(|entry| entry.advert.claimed().credential == claimed.credential)
            .map_or(edition, |entry| entry.credential_since);
        let lifetime = Duration::from_secs(u64::from(claimed.lifetime_secs));
        self.paces.note(now, key);
        self.insert(
            key,
            Entry {
                advert: signed.advert.clone(),
                credential,
                member,
                received: now,
                age,
                expires: now + lifetime.saturating_sub(age),
                credential_since,
            },
        );
        outcome
    }

    fn flood(&mut self, now: Mono, key: &AnchorKey, except: Option<AnchorKey>, spread: Spread) {
        let Some(entry) = self.live.get(key) else {
            return;
        };
        let is_fresh = entry.credential_since == entry.advert.claimed().edition;
        let advert = SignedAdvert {
            advert: entry.advert.clone(),
            credential: is_fresh.then(|| entry.credential.clone()),
        };
        let message = Box::new(one_advert(advert, entry.age(now)));
        self.events.push_back(Event::Flood {
            message,
            except,
            spread,
        });
    }

    fn insert(&mut self, key: AnchorKey, entry: Entry) {
        self.remove(&key);
        self.gone.remove(&key);
        self.fingerprints
            .insert(&key, entry.advert.claimed().edition);
        self.expiries.insert((entry.expires, key));
        self.live.insert(key, entry);
    }

    fn remove(&mut self, key: &AnchorKey) -> Option<Entry> {
        let entry = self.live.remove(key)?;
        self.expiries.remove(&(entry.expires, *key));
        self.fingerprints
            .remove(key, entry.advert.claimed().edition);
        Some(entry)
    }
}

impl Entry {
    /// Returns what the anchor says.
    pub fn advert(&self) -> &Advert {
        self.advert.claimed()
    }

    /// Returns its rights.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Returns what makes it a member.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Returns when it will be forgotten unless it says something.
    pub fn expires(&self) -> Mono {
        self.expires
    }

    /// Returns how long ago it was signed, as far as its carriers told.
    pub fn age(&self, now: Mono) -> Duration {
        self.age.saturating_add(now.since(self.received))
    }

    /// Returns the advert as it is passed on, credential included.
    pub fn signed(&self) -> SignedAdvert {
        SignedAdvert {
            advert: self.advert.clone(),
            credential: Some(self.credential.clone()),
        }
    }
}

/// Whether an advert says more than a new edition and lifetime.
fn says_more(new: &Advert, old: &Advert) -> bool {
    let unchanged = Advert {
        edition: old.edition,
        lifetime_secs: old.lifetime_secs,
        ..new.clone()
    };
    unchanged != *old
}

fn one_advert(advert: SignedAdvert, age: Duration) -> Message {
    let age_millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    Message::Adverts(Adverts {
        adverts: vec![AgedAdvert { advert, age_millis }],
        more: false,
    })
}

/// With five random neighbours per receiver a flood of refreshes reaches 99 % of a realm
/// (r = 1 - e^(-5r)); digests bring the rest well within the lifetime.
pub const REFRESH_FANOUT: usize = 5;

/// How often the owner sends [`Membership::digest`] to a connected peer at random: as often as a
/// small realm refreshes, so that a lost advert is made good before its predecessor expires.
pub const DIGEST_INTERVAL: Duration = Duration::from_secs(30);

/// Holds the largest realm promised (10,000) with room. An entry with an ordinary credential of
/// two links takes about 3.5 KiB: 35 MB for 10,000. Above it new anchors are refused, known ones
/// go on.
pub const MAX_ANCHORS: usize = 16_384;

#[cfg(test)]
mod tests;
