//! What makes an advert or a leave believable. Pure functions of the statement and what is
//! known already.

use std::time::Duration;

use conflux_proto::advert::{Advert, Leave, MAX_ENDPOINTS, MAX_NETWORKS, SignedAdvert};
use conflux_proto::credential::Credential;
use conflux_proto::id::RealmKey;
use conflux_proto::signed::{BadSignature, Signed};
use thiserror::Error;

use super::Entry;
use crate::credential::{self, Member};
use crate::time::UnixTime;

/// Why an advert or leave is not believed. Nothing known has changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AdvertRefused {
    /// About another realm.
    #[error("it is about another realm")]
    Realm,
    /// Not signed by the anchor it is about.
    #[error(transparent)]
    Signature(#[from] BadSignature),
    /// An overlay address that does not follow from the key.
    #[error("its overlay address does not follow from its key")]
    Overlay,
    /// A list longer than allowed.
    #[error("it lists too many {0}")]
    TooMany(&'static str),
    /// A lifetime nobody is meant to give.
    #[error("its lifetime of {0} s is out of bounds")]
    Lifetime(u32),
    /// A session key of all zeros.
    #[error("it has no session key")]
    SessionKey,
    /// Older than its lifetime.
    #[error("it has expired")]
    Expired,
    /// A credential that does not hold.
    #[error(transparent)]
    Credential(#[from] credential::Refused),
    /// A credential of another anchor, or another than the one it names.
    #[error("its credential is another's")]
    OtherCredential,
    /// Taints beyond its credential, or none.
    #[error("its taints are not those of its credential")]
    Taints,
    /// No room for another anchor.
    #[error("no room for another anchor")]
    Full,
}

/// Checks the statement alone: signature, names that follow from the key, bounds.
pub(super) fn advert(
    signed: &Signed<Advert>,
    realm: &RealmKey,
    age: Duration,
) -> Result<(), AdvertRefused> {
    if signed.claimed().realm != realm.id() {
        return Err(AdvertRefused::Realm);
    }
    let advert = signed.verify(&signed.claimed().key.0)?;
    if advert.overlay != advert.key.overlay(&advert.realm) {
        return Err(AdvertRefused::Overlay);
    }
    if advert.endpoints.len() > MAX_ENDPOINTS {
        return Err(AdvertRefused::TooMany("endpoints"));
    }
    if advert.networks.len() > MAX_NETWORKS {
        return Err(AdvertRefused::TooMany("networks"));
    }
    if !LIFETIME_SECS.contains(&advert.lifetime_secs) {
        return Err(AdvertRefused::Lifetime(advert.lifetime_secs));
    }
    if advert.noise_key == [0; 32] {
        return Err(AdvertRefused::SessionKey);
    }
    if age >= Duration::from_secs(u64::from(advert.lifetime_secs)) {
        return Err(AdvertRefused::Expired);
    }
    Ok(())
}

/// Returns the rights behind an advert, by the credential beside it or, when it names the same
/// one, by what is known; none when the credential it names is not at hand.
pub(super) fn membership(
    signed: &SignedAdvert,
    known: Option<&Entry>,
    realm: &RealmKey,
    unix: UnixTime,
) -> Result<Option<(Member, Credential)>, AdvertRefused> {
    let advert = signed.advert.claimed();
    let same = known.filter(|entry| entry.advert().credential == advert.credential);
    let (member, credential) = match (same, &signed.credential) {
        (Some(entry), _) => {
            entry.member.check_at(unix)?;
            (entry.member.clone(), entry.credential.clone())
        }
        (None, Some(credential)) => {
            if credential.hash() != advert.credential {
                return Err(AdvertRefused::OtherCredential);
            }
            (
                credential::verify(credential, realm, unix)?,
                credential.clone(),
            )
        }
        (None, None) => return Ok(None),
    };
    if member.key != advert.key {
        return Err(AdvertRefused::OtherCredential);
    }
    if advert.taints.is_empty() || !member.taints.contains_all(&advert.taints) {
        return Err(AdvertRefused::Taints);
    }
    Ok(Some((member, credential)))
}

/// Checks a goodbye.
pub(super) fn leave<'a>(
    signed: &'a Signed<Leave>,
    realm: &RealmKey,
) -> Result<&'a Leave, AdvertRefused> {
    if signed.claimed().realm != realm.id() {
        return Err(AdvertRefused::Realm);
    }
    Ok(signed.verify(&signed.claimed().key.0)?)
}

/// Four refreshes of 30 s to 30 min (SPEC section 5); half of the least and twice the most are
/// let through, for releases that choose otherwise.
const LIFETIME_SECS: std::ops::RangeInclusive<u32> = 60..=4 * 3600;
