//! A peer that failed: how often it is probed while flows want it, and when it may be used
//! again (SPEC section 5: after three answers in a row, later for one that flaps).

use std::time::Duration;

use crate::time::Mono;

/// How many probes must be echoed in a row.
const ANSWERS: u32 = 3;

/// The probe interval at first.
const INTERVAL: Duration = Duration::from_secs(1);

/// The pause before the next probe after an echo, while answers in a row are being counted: a
/// holder that is back serves again a fifth of a second after its first answer.
const FOLLOW_UP: Duration = Duration::from_millis(100);

/// The least pause between probes that packets ask for: whoever tries again and again finds a
/// holder that is back within half a second, at four probes a second at most.
const NUDGE: Duration = Duration::from_millis(250);

/// The probe interval once [`EARLY`] has passed.
const LATE_INTERVAL: Duration = Duration::from_secs(5);

/// A restart of the machine takes a minute at most; whoever is gone longer is in no hurry.
const EARLY: Duration = Duration::from_secs(60);

/// The first flap waits this long from its failure; it doubles with each further one.
const FLAP_WAIT: Duration = Duration::from_secs(2);

/// The longest wait of a peer that flaps.
const LONGEST_FLAP_WAIT: Duration = Duration::from_secs(60);

/// A failure this long after a return is no flap: ten times the longest wait.
const FLAP_MEMORY: Duration = Duration::from_secs(600);

/// Whether one peer has failed, and its way back.
#[derive(Debug, Default)]
pub(super) struct Readmission {
    failed: Option<Failed>,
    returned: Option<Mono>,
    flaps: u32,
    is_wanted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    at: Mono,
    /// No return before this, whatever is answered.
    not_before: Mono,
    answers: u32,
    is_probe_open: bool,
    last_probe: Option<Mono>,
    next_probe: Option<Mono>,
}

impl Readmission {
    /// The peer has failed.
    pub(super) fn fail(&mut self, now: Mono) {
        if self.failed.is_some() {
            return;
        }
        let is_flap = self.returned.is_some_and(|at| now.since(at) < FLAP_MEMORY);
        self.flaps = if is_flap {
            self.flaps.saturating_add(1)
        } else {
            0
        };
        let wait = match self.flaps {
            0 => Duration::ZERO,
            // Beyond 2^6 waits the longest one applies anyway.
            flaps => (FLAP_WAIT * (1 << (flaps - 1).min(6))).min(LONGEST_FLAP_WAIT),
        };
        self.failed = Some(Failed {
            at: now,
            not_before: now + wait,
            answers: 0,
            is_probe_open: false,
            last_probe: None,
            next_probe: self.is_wanted.then(|| now + INTERVAL),
        });
    }

    pub(super) fn set_wanted(&mut self, now: Mono, is_wanted: bool) {
        if self.is_wanted == is_wanted {
            self.nudge(now);
            return;
        }
        self.is_wanted = is_wanted;
        if let Some(failed) = &mut self.failed {
            failed.next_probe = is_wanted.then_some(now);
            failed.is_probe_open = false;
        }
    }

    /// A packet found no holder but failed ones: a flap is not waited out when there is nobody to
    /// spare from it.
    pub(super) fn handle_stranded(&mut self, now: Mono) {
        self.set_wanted(now, true);
        if let Some(failed) = &mut self.failed {
            failed.not_before = failed.at;
        }
    }

    /// A packet wants the peer again: the next probe need not wait for its turn.
    fn nudge(&mut self, now: Mono) {
        let Some(failed) = self.failed.as_mut().filter(|_| self.is_wanted) else {
            return;
        };
        let at = failed
            .last_probe
            .map_or(now, |last| (last + NUDGE).max(now));
        failed.next_probe = failed.next_probe.map(|next| next.min(at));
    }

    /// A probe sent at `sent_at` was echoed; returns whether the peer is back with that.
    pub(super) fn handle_echo(&mut self, now: Mono, sent_at: Mono) -> bool {
        let Some(failed) = self.failed.as_mut().filter(|failed| sent_at >= failed.at) else {
            return false;
        };
        failed.is_probe_open = false;
        failed.answers = failed.answers.saturating_add(1);
        let pause = if failed.answers < ANSWERS {
            FOLLOW_UP
        } else {
            INTERVAL
        };
        failed.next_probe = failed.next_probe.map(|at| at.min(now + pause));
        if failed.answers < ANSWERS || now < failed.not_before {
            return false;
        }
        self.failed = None;
        self.returned = Some(now);
        true
    }

    /// Returns whether to probe now.
    pub(super) fn handle_timeout(&mut self, now: Mono, rtt: Duration) -> bool {
        let Some(failed) = &mut self.failed else {
            return false;
        };
        if failed.next_probe.is_none_or(|at| at > now) {
            return false;
        }
        if failed.is_probe_open {
            failed.answers = 0;
        }
        failed.is_probe_open = true;
        failed.last_probe = Some(now);
        let is_early = now.since(failed.at) < EARLY || failed.answers > 0;
        let interval = if is_early { INTERVAL } else { LATE_INTERVAL };
        // An echo must have time to come back, or it would never be in a row.
        failed.next_probe = Some(now + interval.max(rtt * 2));
        true
    }

    /// Returns when to call [`Readmission::handle_timeout`].
    pub(super) fn due(&self) -> Option<Mono> {
        self.failed.and_then(|failed| failed.next_probe)
    }

    pub(super) const fn is_failed(&self) -> bool {
        self.failed.is_some()
    }
}
