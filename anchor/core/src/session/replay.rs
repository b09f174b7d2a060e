//! The anti-replay window (RFC 6479): which counters of one key were seen. Counters may arrive
//! out of order by up to [`WINDOW`]; older ones count as seen.

/// Counters remembered behind the highest. 8,192 holds several GSO bursts of 64 segments from
/// several sending threads plus reordering on the path; 2,048 is tight with four of them.
pub(crate) const WINDOW: u64 = 8192;

const WORD_BITS: u64 = 64;
/// One word more than the window, so that a partly filled newest word never costs an old bit.
const WORDS: usize = (WINDOW / WORD_BITS) as usize + 1;

/// The counters seen under one receiving key.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    words: [u64; WORDS],
    /// One above the highest counter seen; 0 before the first.
    next: u64,
}

impl Window {
    pub(crate) const fn new() -> Self {
        Self {
            words: [0; WORDS],
            next: 0,
        }
    }

    /// Marks `counter` as seen; call it only for authenticated frames.
    pub(crate) fn mark(&mut self, counter: u64) {
        let word = counter / WORD_BITS;
        if counter >= self.next {
            let newest = self.next.checked_sub(1).map(|highest| highest / WORD_BITS);
            let first = newest.map_or(0, |newest| newest + 1);
            let fresh = (word + 1).saturating_sub(first).min(WORDS as u64);
            for step in 0..fresh {
                self.words[slot(word - step)] = 0;
            }
            self.next = counter.saturating_add(1);
        }
        self.words[slot(word)] |= 1 << (counter % WORD_BITS);
    }

    /// Says whether `counter` is new: above the window's lower edge and not seen.
    pub(crate) fn is_new(&self, counter: u64) -> bool {
        if counter >= self.next {
            return counter < u64::MAX;
        }
        if counter.saturating_add(WINDOW) < self.next {
            return false;
        }
        self.words[slot(counter / WORD_BITS)] & (1 << (counter % WORD_BITS)) == 0
    }
}

const fn slot(word: u64) -> usize {
    (word % WORDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_counter_is_new_once() {
        let mut window = Window::new();

        assert!(window.is_new(0));
        window.mark(0);

        assert!(!window.is_new(0));
        assert!(window.is_new(1));
    }

    #[test]
    fn counters_behind_the_window_are_refused() {
        let mut window = Window::new();

        window.mark(WINDOW + 10);

        assert!(!window.is_new(10));
        assert!(window.is_new(11));
    }

    #[test]
    fn the_last_counter_is_never_accepted() {
        let window = Window::new();

        assert!(!window.is_new(u64::MAX));
        assert!(window.is_new(u64::MAX - 1));
    }

    #[test]
    fn a_peer_that_jumps_to_the_end_of_counters_only_harms_itself() {
        let mut window = Window::new();

        window.mark(u64::MAX - 1);

        assert!(window.is_new(u64::MAX - 2));
        assert!(!window.is_new(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn window_agrees_with_a_plain_set(
            jumps in proptest::collection::vec((0_u64..40_000, 0_u64..9_000), 1..200)
        ) {
            let mut window = Window::new();
            let mut seen = BTreeSet::new();
            let mut next = 0_u64;
            let mut base = 0_u64;
            for (forward, back) in jumps {
                base += forward / 16;
                let counter = base.saturating_sub(back);
                let expected = counter + WINDOW >= next && !seen.contains(&counter);
                prop_assert_eq!(window.is_new(counter), expected);
                if expected {
                    window.mark(counter);
                    seen.insert(counter);
                    next = next.max(counter + 1);
                }
            }
        }
    }
}
