//! How far anchors had come that left or expired: what they said up to then is void, whoever
//! repeats it. A goodbye is kept too, for those who still list its anchor.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use conflux_proto::advert::{Edition, Leave};
use conflux_proto::id::AnchorKey;
use conflux_proto::signed::Signed;

use crate::time::Mono;

#[derive(Debug, Default)]
pub(super) struct Gone {
    floors: BTreeMap<AnchorKey, Floor>,
    order: BTreeSet<(Mono, AnchorKey)>,
}

#[derive(Debug)]
struct Floor {
    edition: Edition,
    leave: Option<Signed<Leave>>,
    since: Mono,
}

impl Gone {
    /// Notes that `key` is gone; above the limit, the one gone longest is forgotten.
    pub(super) fn insert(
        &mut self,
        now: Mono,
        key: AnchorKey,
        edition: Edition,
        leave: Option<Signed<Leave>>,
    ) {
        self.remove(&key);
        if self.floors.len() >= MAX_GONE
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.floors.remove(&oldest);
        }
        self.order.insert((now, key));
        self.floors.insert(
            key,
            Floor {
                edition,
                leave,
                since: now,
            },
        );
    }

    pub(super) fn remove(&mut self, key: &AnchorKey) {
        if let Some(floor) = self.floors.remove(key) {
            self.order.remove(&(floor.since, *key));
        }
    }

    /// Forgets those gone for [`KEPT`].
    pub(super) fn expire(&mut self, now: Mono) {
        while let Some(&(since, key)) = self.order.first()
            && since + KEPT <= now
        {
            self.remove(&key);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Mono> {
        self.order.first().map(|(since, _)| *since + KEPT)
    }

    /// Returns the edition up to which statements of `key` are void.
    pub(super) fn edition(&self, key: &AnchorKey) -> Option<Edition> {
        self.floors.get(key).map(|floor| floor.edition)
    }

    /// Returns the goodbye that voids `edition` of `key`.
    pub(super) fn leave(&self, key: &AnchorKey, edition: Edition) -> Option<&Signed<Leave>> {
        let floor = self.floors.get(key)?;
        floor.leave.as_ref().filter(|_| edition < floor.edition)
    }
}

/// Twelve of the longest lifetimes an honest anchor gives (2 h): by then only a liar can still
/// offer the advert.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Twice the anchors of a full store; about 400 bytes each, 13 MiB.
const MAX_GONE: usize = 2 * super::MAX_ANCHORS;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> AnchorKey {
        AnchorKey([number; 32])
    }

    fn edition(sequence: u64) -> Edition {
        Edition { epoch: 1, sequence }
    }

    #[test]
    fn one_that_is_gone_is_forgotten_after_a_day() {
        let mut gone = Gone::default();
        let start = Mono::from_nanos(5);
        gone.insert(start, key(1), edition(3), None);

        gone.expire(start + KEPT - Duration::from_nanos(1));
        assert_eq!(gone.edition(&key(1)), Some(edition(3)));
        assert_eq!(gone.poll_timeout(), Some(start + KEPT));
        gone.expire(start + KEPT);

        assert_eq!(gone.edition(&key(1)), None);
        assert_eq!(gone.poll_timeout(), None);
    }

    #[test]
    fn a_full_store_forgets_the_one_gone_longest() {
        let mut gone = Gone::default();
        for number in 0..=u32::try_from(MAX_GONE).unwrap() {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            let now = Mono::from_nanos(u64::from(number));
            gone.insert(now, AnchorKey(bytes), edition(1), None);
        }

        assert_eq!(gone.floors.len(), MAX_GONE);
        assert_eq!(gone.order.len(), MAX_GONE);
        assert_eq!(gone.edition(&AnchorKey([0; 32])), None);
    }
}
