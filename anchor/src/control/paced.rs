//! Something that may change often and is acted on now and then. Not for what is acted on: its owners
//! ask when that is due.

use std::time::Duration;

use conflux_core::time::Mono;

/// When something changed, and when that is acted on: at once after a while of quiet, then once in
/// each gap.
#[derive(Debug)]
pub(super) struct Paced {
    gap: Duration,
    last: Option<Mono>,
    due: Option<Mono>,
}

impl Paced {
    pub(super) fn new(gap: Duration) -> Self {
        Self {
            gap,
            last: None,
            due: None,
        }
    }

    /// Notes a change; the first after a while is due at once.
    pub(super) fn note(&mut self, now: Mono) {
        let allowed = self.last.map_or(now, |last| (last + self.gap).max(now));
        self.due.get_or_insert(allowed);
    }

    /// Returns when a change is to be acted on.
    pub(super) fn due(&self) -> Option<Mono> {
        self.due
    }

    /// Says whether a change is to be acted on now; it is then over.
    pub(super) fn take(&mut self, now: Mono) -> bool {
        let is_due = self.due.is_some_and(|at| now >= at);
        if is_due {
            self.due = None;
            self.last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_millis(500);

    #[test]
    fn the_first_change_is_due_at_once_and_a_storm_of_them_once_in_each_gap() {
        let start = Mono::from_nanos(1_000_000_000);
        let mut paced = Paced::new(GAP);

        let taken: Vec<u64> = (0..1000)
            .filter(|millis| {
                let now = start + Duration::from_millis(*millis);
                paced.note(now);
                paced.take(now)
            })
            .collect();

        assert_eq!(taken, [0, 500]);
        assert_eq!(paced.due(), Some(start + 2 * GAP));
    }
}
