//! How often one anchor is heard: each thing it says is carried to everybody, so a member that
//! says something new all the time would have the whole realm work for it. What comes too soon is
//! not taken; the next digest brings what stands by then.

use std::collections::BTreeMap;
use std::time::Duration;

use conflux_proto::id::AnchorKey;

use crate::time::Mono;

/// Who has said much of late.
#[derive(Debug, Default)]
pub(super) struct Paces {
    /// When each would be heard without having to wait, had it kept to [`EVERY`]. Those of whom
    /// that is past are forgotten.
    due: BTreeMap<AnchorKey, Mono>,
}

impl Paces {
    /// Says whether `key` may be heard now.
    pub(super) fn permits(&self, now: Mono, key: &AnchorKey) -> bool {
        self.due
            .get(key)
            .is_none_or(|due| due.since(now) <= EVERY * (BURST - 1))
    }

    /// Notes that `key` was heard.
    pub(super) fn note(&mut self, now: Mono, key: AnchorKey) {
        if self.due.len() >= FORGET_ABOVE {
            self.due.retain(|_, due| *due > now);
        }
        let due = self.due.entry(key).or_insert(now);
        *due = (*due).max(now) + EVERY;
    }
}

/// An anchor says something new when it starts, stops, roams or is configured, and refreshes
/// every 27 s at the most often: one a second is far above all of them.
const EVERY: Duration = Duration::from_secs(1);

/// A start with a late network, an address taken and given back: several changes within a second.
const BURST: u32 = 10;

/// Sweeps are rare, and the table stays within the number of anchors that were heard within
/// [`EVERY`] times [`BURST`].
const FORGET_ABOVE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const START: Mono = Mono::from_nanos(1_000_000_000_000);

    #[test]
    fn a_burst_is_heard_and_then_one_a_second() {
        let key = AnchorKey([1; 32]);
        let mut paces = Paces::default();
        let mut heard = 0;
        for millis in 0..60_000 {
            let now = START + Duration::from_millis(millis);
            if paces.permits(now, &key) {
                paces.note(now, key);
                heard += 1;
            }
        }

        assert_eq!(heard, 10 + 59);
        assert!(paces.permits(START, &AnchorKey([2; 32])));
    }

    #[test]
    fn those_who_are_quiet_again_are_forgotten() {
        let mut paces = Paces::default();
        for number in 0..10_000_u32 {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            let now = START + Duration::from_millis(u64::from(number) * 50);
            paces.note(now, AnchorKey(bytes));
        }

        assert!(paces.due.len() <= FORGET_ABOVE, "{}", paces.due.len());
    }
}
