//! What was sent and not yet proven received, as a few marks in a fixed ring: when the oldest
//! unanswered packet went out, to within [`MARK_SPACING`], without a note per packet.

use std::time::Duration;

use super::Sent;
use crate::time::Mono;

/// Packets sent this close together share a mark. It is how much a failure may be noticed later
/// than its deadline when proof stopped in the middle of a mark, so it stays small beside 2 s.
const MARK_SPACING: Duration = Duration::from_millis(50);

/// With long round trips marks lie further apart: a deadline's worth of them must fit [`MARKS`].
const MARKS_PER_DEADLINE: u32 = 40;

/// A deadline's worth plus some room; when a local fault fills it, the two oldest become one: no count
/// starts as far back as they lie.
const MARKS: usize = 48;

/// The unanswered part of what was sent to one peer, oldest first.
#[derive(Debug)]
pub(super) struct Marks {
    ring: [Mark; MARKS],
    start: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    first: Sent,
    last: Sent,
    first_at: Mono,
    last_at: Mono,
}

impl Marks {
    pub(super) const fn new() -> Self {
        let zero = Sent {
            generation: 0,
            counter: 0,
        };
        let unused = Mark {
            first: zero,
            last: zero,
            first_at: Mono::from_nanos(0),
            last_at: Mono::from_nanos(0),
        };
        Self {
            ring: [unused; MARKS],
            start: 0,
            len: 0,
        }
    }

    /// Notes that everything up to `highest` went out; `deadline` sets how far marks lie apart.
    pub(super) fn note(&mut self, now: Mono, highest: Sent, deadline: Duration) {
        if self.len > 0 {
            let newest = &mut self.ring[(self.start + self.len - 1) % MARKS];
            let spacing = MARK_SPACING.max(deadline / MARKS_PER_DEADLINE);
            if now.since(newest.first_at) < spacing {
                newest.last = newest.last.max(highest);
                newest.last_at = newest.last_at.max(now);
                return;
            }
        }
        if self.len == MARKS {
            let oldest = self.ring[self.start];
            self.drop_oldest();
            let second = &mut self.ring[self.start];
            second.first = oldest.first;
            second.first_at = oldest.first_at;
        }
        self.ring[(self.start + self.len) % MARKS] = Mark {
            first: highest,
            last: highest,
            first_at: now,
            last_at: now,
        };
        self.len += 1;
    }

    /// Drops what `received` covers; returns when the newest packet so proven was sent, `None`
    /// when that was known already.
    pub(super) fn prove_received(&mut self, received: Sent) -> Option<Mono> {
        let mut proven = None;
        while let Some(oldest) = self.oldest_mark() {
            if oldest.last <= received {
                proven = Some(oldest.last_at);
                self.drop_oldest();
                continue;
            }
            if oldest.first <= received {
                proven = Some(oldest.first_at);
                oldest.shrink();
            }
            break;
        }
        proven
    }

    /// Drops what was sent at or before `at`.
    pub(super) fn prove_until(&mut self, at: Mono) {
        while let Some(oldest) = self.oldest_mark() {
            if oldest.last_at <= at {
                self.drop_oldest();
                continue;
            }
            if oldest.first_at <= at {
                oldest.shrink();
            }
            break;
        }
    }

    pub(super) const fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns when the oldest unanswered packet was sent.
    pub(super) const fn oldest(&self) -> Option<Mono> {
        if self.len == 0 {
            None
        } else {
            Some(self.ring[self.start].first_at)
        }
    }

    const fn oldest_mark(&mut self) -> Option<&mut Mark> {
        if self.len == 0 {
            None
        } else {
            Some(&mut self.ring[self.start])
        }
    }

    const fn drop_oldest(&mut self) {
        self.start = (self.start + 1) % MARKS;
        self.len -= 1;
    }
}

impl Mark {
    /// Part of the mark is answered; the rest was sent at its last moment or up to a spacing
    /// before it, and the later point is taken so that no count ends early.
    const fn shrink(&mut self) {
        self.first = self.last;
        self.first_at = self.last_at;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(2);

    #[test]
    fn a_full_ring_keeps_its_oldest_mark() {
        let mut marks = Marks::new();

        for n in 0..1_000 {
            marks.note(at_millis(n * 60), sent(n), DEADLINE);
        }

        assert_eq!(marks.oldest(), Some(at_millis(0)));
        marks.prove_received(sent(999));
        assert_eq!(marks.oldest(), None);
    }

    #[test]
    fn the_new_end_of_a_full_ring_is_as_fine_as_ever() {
        let mut marks = Marks::new();
        for n in 0..1_000 {
            marks.note(at_millis(n * 40), sent(n), DEADLINE);
        }

        marks.prove_received(sent(995));

        assert_eq!(marks.oldest(), Some(at_millis(996 * 40)));
    }

    #[test]
    fn an_old_or_repeated_proof_proves_nothing() {
        let mut marks = Marks::new();
        marks.note(at_millis(0), sent(5), DEADLINE);
        marks.note(at_millis(100), sent(9), DEADLINE);

        assert_eq!(marks.prove_received(sent(4)), None);
        assert_eq!(marks.prove_received(sent(7)), Some(at_millis(0)));
        assert_eq!(marks.prove_received(sent(7)), None);
        assert_eq!(marks.oldest(), Some(at_millis(100)));
    }

    #[test]
    fn a_new_generation_covers_all_counters_of_the_old_one() {
        let mut marks = Marks::new();
        marks.note(at_millis(0), sent(5_000), DEADLINE);
        marks.note(
            at_millis(100),
            Sent {
                generation: 2,
                counter: 1,
            },
            DEADLINE,
        );

        let proven = marks.prove_received(Sent {
            generation: 2,
            counter: 0,
        });

        assert_eq!(proven, Some(at_millis(0)));
        assert_eq!(marks.oldest(), Some(at_millis(100)));
    }

    proptest! {
        /// Reference: a queue of every packet.
        #[test]
        fn the_oldest_unanswered_is_known_to_within_a_spacing(
            steps in prop::collection::vec((0_u64..40, 0_u64..3, 0_u64..60), 1..400)
        ) {
            let mut marks = Marks::new();
            let mut all: VecDeque<(u64, Mono)> = VecDeque::new();
            let mut now = at_millis(0);
            for (counter, (wait, action, behind)) in steps.into_iter().enumerate() {
                now += Duration::from_millis(wait);
                let counter = counter as u64;
                if action < 2 || all.is_empty() {
                    marks.note(now, sent(counter), DEADLINE);
                    all.push_back((counter, now));
                } else if wait % 2 == 0 {
                    let received = counter.saturating_sub(behind);
                    marks.prove_received(sent(received));
                    all.retain(|(counter, _)| *counter > received);
                } else {
                    let until = now - Duration::from_millis(behind * 20);
                    marks.prove_until(until);
                    all.retain(|(_, at)| *at > until);
                }

                let truth = all.front().map(|(_, at)| *at);
                prop_assert_eq!(truth.is_none(), marks.oldest().is_none());
                if let (Some(truth), Some(told)) = (truth, marks.oldest()) {
                    // A full ring is coarser at its old end, from where no count starts.
                    let is_near = told.since(truth) < MARK_SPACING || now.since(told) > DEADLINE;
                    prop_assert!(told >= truth && is_near);
                }
            }
        }
    }

    fn at_millis(millis: u64) -> Mono {
        Mono::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    fn sent(counter: u64) -> Sent {
        Sent {
            generation: 1,
            counter,
        }
    }
}
