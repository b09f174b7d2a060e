//! What one anchor must know of the others, as the contract has it (SPEC sections 5 to 7): of each
//! its latest statement that came here, until it leaves or its lifetime is over. A plain register
//! per anchor, fed with every message that arrives.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use conflux_core::time::Mono;
use conflux_proto::advert::{Edition, Leave, SignedAdvert};
use conflux_proto::id::AnchorKey;
use conflux_proto::taint::TaintSet;
use ipnet::IpNet;

/// The registers of one anchor.
#[derive(Debug, Default)]
pub(crate) struct Book {
    entries: BTreeMap<AnchorKey, Entry>,
}

#[derive(Debug)]
struct Entry {
    edition: Edition,
    said: Option<Said>,
    has_left: bool,
}

/// The latest statement of an anchor.
#[derive(Debug)]
struct Said {
    networks: Vec<IpNet>,
    taints: TaintSet,
    expires: Mono,
}

impl Book {
    /// An advert came, signed `age` ago.
    pub(crate) fn hear(&mut self, now: Mono, signed: &SignedAdvert, age: Duration) {
        let advert = signed.advert.claimed();
        let lifetime = Duration::from_secs(u64::from(advert.lifetime_secs));
        if age >= lifetime {
            return;
        }
        let known = self.entries.get(&advert.key);
        if known.is_some_and(|known| known.edition >= advert.edition) {
            return;
        }
        let is_live =
            known.is_some_and(|known| known.said.as_ref().is_some_and(|said| said.expires > now));
        // A refresh comes without the credential, which only whoever knew the anchor has.
        if signed.credential.is_none() && !is_live {
            return;
        }
        let address = advert.ipv4.map(|address| IpNet::from(IpAddr::V4(address)));
        let said = Said {
            networks: advert.networks.iter().copied().chain(address).collect(),
            taints: advert.taints.clone(),
            expires: now + lifetime.saturating_sub(age),
        };
        let entry = Entry {
            edition: advert.edition,
            said: Some(said),
            has_left: false,
        };
        self.entries.insert(advert.key, entry);
    }

    /// A goodbye came.
    pub(crate) fn part(&mut self, leave: &Leave) {
        let Some(known) = self.entries.get_mut(&leave.key) else {
            return;
        };
        if leave.edition > known.edition {
            *known = Entry {
                edition: leave.edition,
                said: None,
                has_left: true,
            };
        }
    }

    /// Says whether an anchor has said goodbye and not come back.
    pub(crate) fn has_left(&self, key: &AnchorKey) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.has_left)
    }

    /// Says whether its taints and ours forbid data, as far as it is known.
    pub(crate) fn forbids(&self, own: &TaintSet, key: &AnchorKey) -> bool {
        self.said(key)
            .is_some_and(|said| !may_exchange(own, &said.taints))
    }

    /// Says whether an anchor may be used as the holder of `address`.
    pub(crate) fn holds(
        &self,
        now: Mono,
        own: &TaintSet,
        key: &AnchorKey,
        address: IpAddr,
    ) -> bool {
        self.said(key).is_some_and(|said| {
            said.expires > now
                && may_exchange(own, &said.taints)
                && said
                    .networks
                    .iter()
                    .any(|network| network.contains(&address))
        })
    }

    fn said(&self, key: &AnchorKey) -> Option<&Said> {
        self.entries.get(key)?.said.as_ref()
    }
}

/// SPEC section 6, word by word: both have at least one, and one set contains the other.
fn may_exchange(one: &TaintSet, two: &TaintSet) -> bool {
    let labels = |set: &TaintSet| -> Vec<String> {
        let taints = set.iter().map(|taint| taint.as_str().to_owned());
        taints.collect()
    };
    let (one, two) = (labels(one), labels(two));
    let contains = |set: &[String], other: &[String]| other.iter().all(|label| set.contains(label));
    !one.is_empty() && !two.is_empty() && (contains(&one, &two) || contains(&two, &one))
}
