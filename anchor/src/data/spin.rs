//! Whether to look again and again for a while before sleeping: a machine with idle cores saves
//! the wake-up, 20 to 50 µs where it means leaving a halt of a virtual CPU, and pays with a core.
//! Off unless the operator gives a span. Not for the loop that looks: that is the thread's.

use std::time::Duration;

use conflux_core::time::Mono;

/// What [`Spin::worth`] counts up to; from there 9 vain waits in a row end the looking.
const FULL: u8 = 16;
/// Looking is worth while at least this much is left.
const ENOUGH: u8 = FULL / 2;

/// Learns from how long the waits last whether something tends to come within the span.
#[derive(Debug)]
pub(super) struct Spin {
    span: Duration,
    worth: u8,
}

impl Spin {
    /// `span` is how long to look at most; zero for never.
    pub(super) const fn new(span: Duration) -> Self {
        Self { span, worth: 0 }
    }

    /// Returns until when to look before sleeping, `None` to sleep at once.
    pub(super) fn until(&self, now: Mono) -> Option<Mono> {
        (self.worth >= ENOUGH && !self.span.is_zero()).then(|| now + self.span)
    }

    /// Notes how long the wait was that something ended, looking or asleep.
    pub(super) fn note(&mut self, waited: Duration) {
        self.worth = if waited <= self.span {
            (self.worth + 1).min(FULL)
        } else {
            self.worth.saturating_sub(1)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_micros(100);
    const SOON: Duration = Duration::from_micros(60);
    const LATE: Duration = Duration::from_millis(5);

    #[test]
    fn it_looks_only_once_packets_have_come_soon_for_a_while() {
        let now = Mono::from_nanos(1_000);
        let mut spin = Spin::new(SPAN);

        let looks: Vec<bool> = (0..ENOUGH)
            .map(|_| {
                spin.note(SOON);
                spin.until(now).is_some()
            })
            .collect();

        assert_eq!(spin.until(now), Some(now + SPAN));
        assert!(!looks[..looks.len() - 1].contains(&true), "{looks:?}");
    }

    #[test]
    fn it_stops_after_some_vain_waits_and_not_after_one() {
        let mut spin = Spin::new(SPAN);
        for _ in 0..100 {
            spin.note(SOON);
        }

        spin.note(LATE);
        let after_one = spin.until(Mono::default());
        for _ in 0..FULL - ENOUGH {
            spin.note(LATE);
        }

        assert!(after_one.is_some());
        assert_eq!(spin.until(Mono::default()), None);
    }

    #[test]
    fn without_a_span_it_never_looks() {
        let mut spin = Spin::new(Duration::ZERO);

        for _ in 0..100 {
            spin.note(Duration::ZERO);
        }

        assert_eq!(spin.until(Mono::default()), None);
    }
}
