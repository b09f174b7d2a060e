//! Probe ids, and which probes of a peer are still to be echoed.

use crate::time::Mono;

/// A count to the deadline sends 10, the questions and refreshes beside it no more than that
/// again; when more are open the oldest is forgotten.
const OPEN_PROBES: usize = 24;

/// Ids that look random and never repeat: a bijection of a counter.
#[derive(Debug)]
pub(super) struct ProbeIds {
    state: u64,
}

/// The probes sent to one peer and not yet echoed.
#[derive(Debug)]
pub(super) struct OpenProbes {
    ring: [Option<Probe>; OPEN_PROBES],
    next: usize,
    newest: Option<u64>,
}

/// A probe that was echoed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answered {
    pub(super) sent_at: Mono,
    /// None was sent after it.
    pub(super) is_newest: bool,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    id: u64,
    sent_at: Mono,
}

impl ProbeIds {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next id.
    pub(super) const fn next(&mut self) -> u64 {
        // An odd step visits all 2^64 states, and each line of the mix can be undone.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl OpenProbes {
    pub(super) const fn new() -> Self {
        Self {
            ring: [None; OPEN_PROBES],
            next: 0,
            newest: None,
        }
    }

    /// Notes that a probe went out; of one that went out before, the first time counts.
    pub(super) fn note(&mut self, now: Mono, id: u64) {
        if self.ring.iter().flatten().any(|probe| probe.id == id) {
            return;
        }
        self.ring[self.next] = Some(Probe { id, sent_at: now });
        self.next = (self.next + 1) % OPEN_PROBES;
        self.newest = Some(id);
    }

    /// Returns when a probe that has not been echoed went out.
    pub(super) fn sent_at(&self, id: u64) -> Option<Mono> {
        let mut open = self.ring.iter().flatten();
        open.find(|probe| probe.id == id).map(|probe| probe.sent_at)
    }

    /// Returns what was known of the probe; only its first echo is known.
    pub(super) fn take(&mut self, id: u64) -> Option<Answered> {
        let slot = self
            .ring
            .iter_mut()
            .find(|slot| slot.is_some_and(|probe| probe.id == id))?;
        slot.take().map(|probe| Answered {
            sent_at: probe.sent_at,
            is_newest: self.newest == Some(id),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_do_not_repeat_and_depend_on_the_seed() {
        let mut ids = ProbeIds::new(7);
        let mut seen = BTreeSet::new();

        assert!((0..100_000).all(|_| seen.insert(ids.next())));
        assert_ne!(ProbeIds::new(7).next(), ProbeIds::new(8).next());
    }

    #[test]
    fn a_probe_is_answered_once_and_the_oldest_is_forgotten_first() {
        let mut open = OpenProbes::new();
        for id in 0..=OPEN_PROBES as u64 {
            open.note(Mono::from_nanos(id), id);
        }

        assert_eq!(open.take(0), None);
        assert_eq!(
            open.take(1),
            Some(Answered {
                sent_at: Mono::from_nanos(1),
                is_newest: false
            })
        );
        assert_eq!(open.take(1), None);
    }
}
