//! Spreads the actions after a move over time: all of them within [`SPREAD`], however many, and
//! a few at once, so that neither the host nor the new holder gets them in one burst.

use std::collections::VecDeque;
use std::time::Duration;

use super::ConnectionKey;
use crate::time::Mono;

/// The longest an action waits: SPEC section 5 allows a reset 200 ms.
pub(super) const SPREAD: Duration = Duration::from_millis(200);

/// The longest pause between two actions: with few of them none waits noticeably, and 4,000 just
/// fill [`SPREAD`].
const LONGEST_PAUSE: Duration = Duration::from_micros(50);

/// Connections waiting for their turn, in order. The caller pushes none that waits already, so the
/// table's limit is this queue's, but for those that are gone before their turn within [`SPREAD`].
#[derive(Debug, Default)]
pub(super) struct Pace {
    waiting: VecDeque<(Mono, ConnectionKey)>,
    last_due: Mono,
}

impl Pace {
    /// Appends `key`; at most `total` are to go out in this spread, those waiting included.
    pub(super) fn push(&mut self, now: Mono, key: ConnectionKey, total: usize) {
        let share = SPREAD / u32::try_from(total.max(1)).unwrap_or(u32::MAX);
        let paced = self.last_due + share.min(LONGEST_PAUSE);
        let due = paced.max(now).min(now + SPREAD);

        self.waiting.push_back((due, key));
        self.last_due = due;
    }

    /// Takes the next one whose time has come.
    pub(super) fn pop(&mut self, now: Mono) -> Option<ConnectionKey> {
        let (_, key) = self.waiting.pop_front_if(|(due, _)| *due <= now)?;
        Some(key)
    }

    /// Returns when the next one may go.
    pub(super) fn due(&self) -> Option<Mono> {
        self.waiting.front().map(|(due, _)| *due)
    }

    /// Returns how many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::WireKey;
    use crate::ids::{FlowId, FlowTag};

    #[test]
    fn few_go_at_once_and_many_are_spread_over_the_whole_time() {
        for count in [1usize, 10, 1_000, 20_000, 200_000] {
            let now = Mono::from_nanos(5_000_000_000);
            let mut pace = Pace::default();
            for _ in 0..count {
                pace.push(now, key(), count);
            }

            let last = pace.waiting.back().unwrap().0;

            assert_eq!(
                pace.due(),
                Some(now),
                "{count}: the first waits for nothing"
            );
            assert!(last <= now + SPREAD, "{count}: {:?}", last.since(now));
            if count > 4_000 {
                assert!(last >= now + SPREAD / 2, "{count}: {:?}", last.since(now));
            }
        }
    }

    #[test]
    fn nothing_goes_before_its_time() {
        let now = Mono::from_nanos(5_000_000_000);
        let mut pace = Pace::default();
        pace.push(now, key(), 2);
        pace.push(now, key(), 2);

        assert!(pace.pop(now).is_some());
        assert!(pace.pop(now).is_none());
        assert_eq!(pace.due(), Some(now + LONGEST_PAUSE));
        assert!(pace.pop(now + LONGEST_PAUSE).is_some());
        assert_eq!(pace.len(), 0);
    }

    fn key() -> ConnectionKey {
        let wire = WireKey {
            tag: FlowTag(1),
            protocol: 6,
            host_port: 2,
            far_port: 3,
        };
        wire.in_flow(FlowId(1))
    }
}
