//! TCP sequence numbers, and which of the far end's bytes have been delivered to the host in
//! order: a reset is believed only when it carries exactly the next number.

/// How many runs of bytes beyond a gap are remembered; with fewer, one burst of loss would hide
/// what the retransmission completes, with more, an entry outgrows its 128 bytes. What is
/// forgotten is learned again from the host's next acknowledgment.
const RUNS: usize = 3;

/// The farthest a number may lie ahead and be believed: TCP's largest window is 2^30.
const LARGEST_STEP: u32 = 1 << 30;

/// A TCP sequence number; order is that of the circle of 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sequence(pub(super) u32);

impl Sequence {
    /// Returns the number `bytes` further on.
    pub(super) const fn plus(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Returns how far this number lies beyond `other`, modulo 2^32.
    pub(super) const fn beyond(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0)
    }

    /// Returns whether this number comes after `other` on the shorter way around.
    pub(super) const fn is_after(self, other: Self) -> bool {
        let step = self.beyond(other);
        step != 0 && step < 1 << 31
    }

    /// Returns whether this number is `other` or comes after it.
    pub(super) const fn has_reached(self, other: Self) -> bool {
        self.beyond(other) < 1 << 31
    }
}

/// Where a run of the far end's bytes fell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// All of it had been delivered before, or there is nothing in it.
    Old,
    /// It continues what had been delivered.
    Next,
    /// Bytes before it are missing.
    Gap,
}

/// What the host has received in order, and a few runs beyond the first gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Delivered {
    next: Sequence,
    /// Sorted, apart from each other and from `next`; the first `held` are in use.
    runs: [Run; RUNS],
    held: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Run {
    start: Sequence,
    end: Sequence,
}

impl Delivered {
    /// Returns the state of a host that waits for `next`.
    pub(super) fn new(next: Sequence) -> Self {
        Self {
            next,
            ..Self::default()
        }
    }

    /// Notes `length` sequence numbers from `start` on, handed to the host.
    pub(super) fn note(&mut self, start: Sequence, length: u32) -> Arrival {
        let end = start.plus(length);
        if length == 0 || !end.is_after(self.next) {
            return Arrival::Old;
        }
        if start.is_after(self.next) {
            if start.beyond(self.next) < LARGEST_STEP {
                self.hold(Run { start, end });
            }
            return Arrival::Gap;
        }

        self.next = end;
        self.absorb();
        Arrival::Next
    }

    /// Notes that the host itself acknowledged everything before `acknowledgment`.
    pub(super) fn note_acknowledged(&mut self, acknowledgment: Sequence) {
        if acknowledgment.is_after(self.next) && acknowledgment.beyond(self.next) < LARGEST_STEP {
            self.next = acknowledgment;
            self.absorb();
        }
    }

    /// Returns the number the host waits for.
    pub(super) fn next(&self) -> Sequence {
        self.next
    }

    /// Takes in the runs that `next` has come to touch.
    fn absorb(&mut self) {
        let held = usize::from(self.held);
        let mut taken = 0;
        while taken < held && self.next.has_reached(self.runs[taken].start) {
            if self.runs[taken].end.is_after(self.next) {
                self.next = self.runs[taken].end;
            }
            taken += 1;
        }
        self.runs.copy_within(taken..held, 0);
        self.held -= taken as u8;
    }

    /// Remembers a run beyond the gap; with no room, the farthest is forgotten.
    fn hold(&mut self, mut run: Run) {
        let mut kept = [Run::default(); RUNS + 1];
        let mut count = 0;
        let mut placed = false;
        for old in &self.runs[..usize::from(self.held)] {
            if old.start.is_after(run.end) {
                if !placed {
                    kept[count] = run;
                    count += 1;
                    placed = true;
                }
            } else if !run.start.is_after(old.end) {
                run = Run {
                    start: if run.start.is_after(old.start) {
                        old.start
                    } else {
                        run.start
                    },
                    end: if run.end.is_after(old.end) {
                        run.end
                    } else {
                        old.end
                    },
                };
                continue;
            }
            kept[count] = *old;
            count += 1;
        }
        if !placed {
            kept[count] = run;
            count += 1;
        }
        let held = count.min(RUNS);
        self.runs[..held].copy_from_slice(&kept[..held]);
        self.held = held as u8;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn order_goes_around_the_circle() {
        let low = Sequence(u32::MAX - 5);
        let high = low.plus(10);

        assert!(high.is_after(low) && !low.is_after(high));
        assert!(low.has_reached(low) && !low.is_after(low));
        assert_eq!(high.beyond(low), 10);
        assert_eq!(high, Sequence(4));
    }

    #[test]
    fn a_filled_gap_delivers_what_lay_beyond_it() {
        let mut delivered = Delivered::new(Sequence(u32::MAX - 99));

        assert_eq!(delivered.note(Sequence(100), 50), Arrival::Gap);
        assert_eq!(delivered.next(), Sequence(u32::MAX - 99));
        assert_eq!(delivered.note(Sequence(u32::MAX - 99), 200), Arrival::Next);
        assert_eq!(delivered.next(), Sequence(150));
        assert_eq!(delivered.note(Sequence(100), 50), Arrival::Old);
    }

    #[test]
    fn the_hosts_acknowledgment_tells_what_was_forgotten() {
        let mut delivered = Delivered::new(Sequence(0));
        for run in 1..=6 {
            delivered.note(Sequence(run * 100), 50);
        }

        delivered.note_acknowledged(Sequence(650));

        assert_eq!(
            delivered,
            Delivered {
                next: Sequence(650),
                ..delivered
            }
        );
        assert_eq!(delivered.held, 0);
    }

    #[test]
    fn a_wild_number_is_not_believed() {
        let mut delivered = Delivered::new(Sequence(7));

        delivered.note(Sequence(7 + LARGEST_STEP), 10);
        delivered.note_acknowledged(Sequence(7 + LARGEST_STEP));

        assert_eq!(delivered, Delivered::new(Sequence(7)));
    }

    proptest! {
        /// With at most [`RUNS`] gaps nothing is ever forgotten; with more, never too much claimed.
        #[test]
        fn agrees_with_a_plain_set_of_bytes(
            first in any::<u32>(),
            runs in prop::collection::vec((0usize..48, 1usize..12), 1..40),
        ) {
            let mut delivered = Delivered::new(Sequence(first));
            let mut bytes = [false; 64];
            let mut forgot = false;

            for (start, length) in runs {
                let before = bytes.iter().take_while(|byte| **byte).count();
                let arrival = delivered.note(Sequence(first).plus(start as u32), length as u32);
                let expected = if start + length <= before {
                    Arrival::Old
                } else if start <= before {
                    Arrival::Next
                } else {
                    Arrival::Gap
                };
                bytes[start..start + length].fill(true);
                let reference = bytes.iter().take_while(|byte| **byte).count() as u32;
                let gaps = bytes.windows(2).filter(|pair| !pair[0] && pair[1]).count();

                forgot |= gaps > RUNS;
                if forgot {
                    prop_assert!(delivered.next().beyond(Sequence(first)) <= reference);
                } else {
                    prop_assert_eq!(arrival, expected);
                    prop_assert_eq!(delivered.next().beyond(Sequence(first)), reference);
                }
            }
        }
    }
}
