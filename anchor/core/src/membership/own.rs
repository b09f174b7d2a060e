//! This anchor's own part: what it says, when it says it again, and what it does about
//! statements by its key that it did not make.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use conflux_proto::advert::{Advert, Edition, Leave, Reach, SignedAdvert};
use conflux_proto::credential::Credential;
use conflux_proto::signed::{Signed, Version1};
use conflux_proto::taint::TaintSet;
use ipnet::IpNet;

use super::{Event, Membership, Outcome, Spread, one_advert};
use crate::time::Mono;

/// What this anchor says about itself; keys, address, edition and lifetime are added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// Underlay addresses, best first.
    pub endpoints: Vec<SocketAddr>,
    /// The IPv4 address it answers at.
    pub ipv4: Option<Ipv4Addr>,
    /// The subnets behind it.
    pub networks: Vec<IpNet>,
    /// Its taints.
    pub taints: TaintSet,
    /// How it can be reached.
    pub reach: Reach,
    /// Whether its CPU has AES instructions.
    pub aes: bool,
    /// What makes it a member.
    pub credential: Credential,
    /// Whether it asks for no new flows.
    pub draining: bool,
}

#[derive(Debug)]
pub(super) struct OwnStatement {
    pub(super) said: Own,
    pub(super) advert: Signed<Advert>,
    pub(super) signed_at: Mono,
    pub(super) refresh_at: Mono,
    pub(super) credential_since: Edition,
}

impl Membership {
    /// Says `own` from now on: signs and floods it unless it is what was said last.
    pub fn set_own(&mut self, now: Mono, own: Own) {
        if self.own.as_ref().is_none_or(|last| last.said != own) {
            self.publish(now, own);
        }
    }

    /// Goes on as start `epoch`, after [`Event::OwnAhead`]: later statements win again.
    pub fn set_epoch(&mut self, now: Mono, epoch: u64) {
        self.edition = self.edition.max(Edition { epoch, sequence: 0 });
        self.ahead = None;
        if let Some(own) = &self.own {
            self.publish(now, own.said.clone());
        }
    }

    /// Takes back what this anchor said, and returns its goodbye; the owner delivers it.
    pub fn leave(&mut self) -> Signed<Leave> {
        if let Some(own) = self.own.take() {
            self.fingerprints
                .remove(&self.identity.key(), own.advert.claimed().edition);
        }
        self.edition = self.edition.next();
        let leave = Leave {
            version: Version1,
            realm: self.realm.id(),
            key: self.identity.key(),
            edition: self.edition,
        };
        Signed::sign(leave, self.identity.signing())
    }

    /// Returns this anchor's own advert with its credential, for a hello.
    pub fn own(&self) -> Option<SignedAdvert> {
        self.own.as_ref().map(|own| SignedAdvert {
            advert: own.advert.clone(),
            credential: Some(own.said.credential.clone()),
        })
    }

    /// Returns the last edition this anchor used.
    pub fn edition(&self) -> Edition {
        self.edition
    }

    pub(super) fn judge_own(&mut self, advert: &Signed<Advert>) -> Outcome {
        let edition = advert.claimed().edition;
        if edition < self.edition {
            return Outcome::Stale {
                known: self.edition,
            };
        }
        if self.own.as_ref().is_some_and(|own| own.advert == *advert) {
            return Outcome::Known;
        }
        match advert.verify(&self.identity.key().0) {
            Err(bad) => Outcome::Refused(bad.into()),
            Ok(_) if edition == self.edition => Outcome::Conflicting,
            Ok(_) => {
                self.note_ahead(edition);
                Outcome::OwnAhead
            }
        }
    }

    pub(super) fn note_ahead(&mut self, edition: Edition) {
        if edition > self.edition && self.ahead.is_none_or(|known| edition > known) {
            self.ahead = Some(edition);
            self.events.push_back(Event::OwnAhead(edition));
        }
    }

    pub(super) fn publish(&mut self, now: Mono, said: Own) {
        let key = self.identity.key();
        self.edition = self.edition.next();
        let interval = refresh_interval(self.realm_size());
        let advert = Advert {
            version: Version1,
            realm: self.realm.id(),
            key,
            edition: self.edition,
            lifetime_secs: u32::try_from(interval.as_secs()).unwrap_or(u32::MAX)
                * LIFETIME_REFRESHES,
            overlay: key.overlay(&self.realm.id()),
            noise_key: self.identity.noise_key(),
            endpoints: said.endpoints.clone(),
            ipv4: said.ipv4,
            networks: said.networks.clone(),
            taints: said.taints.clone(),
            reach: said.reach,
            aes: said.aes,
            credential: said.credential.hash(),
            draining: said.draining,
        };
        let advert = Signed::sign(advert, self.identity.signing());
        let last = self.own.take();
        if let Some(last) = &last {
            self.fingerprints
                .remove(&key, last.advert.claimed().edition);
        }
        self.fingerprints.insert(&key, self.edition);
        let same_credential = last
            .as_ref()
            .filter(|last| last.said.credential == said.credential);
        let credential_since = same_credential.map_or(self.edition, |last| last.credential_since);
        let credential = same_credential.is_none().then(|| said.credential.clone());
        // Up to a tenth early, so that anchors started together do not stay in step.
        let early = interval.mul_f64(self.random.f64() / 10.0);
        self.events.push_back(Event::Flood {
            message: Box::new(one_advert(
                SignedAdvert {
                    advert: advert.clone(),
                    credential,
                },
                Duration::ZERO,
            )),
            except: None,
            spread: Spread::All,
        });
        self.own = Some(OwnStatement {
            said,
            advert,
            signed_at: now,
            refresh_at: now + interval.saturating_sub(early),
            credential_since,
        });
    }
}

/// Returns how often an anchor of a realm of `size` signs anew: 30 s for each 50 anchors, within
/// 30 s and 30 min (SPEC section 5).
pub fn refresh_interval(size: usize) -> Duration {
    let per_anchor_millis = 30_000 / 50;
    let millis = u64::try_from(size)
        .unwrap_or(u64::MAX)
        .saturating_mul(per_anchor_millis);
    Duration::from_millis(millis).clamp(MIN_REFRESH, MAX_REFRESH)
}

/// SPEC section 5: the refresh of a small realm; four of them are the 2 minutes for which a
/// dead holder stays listed.
const MIN_REFRESH: Duration = Duration::from_secs(30);

/// SPEC section 5; reached at 3,000 anchors. 10,000 then make 5.6 refreshes a second, each about
/// 300 bytes.
const MAX_REFRESH: Duration = Duration::from_secs(30 * 60);

/// SPEC section 5: an advert outlives three lost refreshes.
const LIFETIME_REFRESHES: u32 = 4;
