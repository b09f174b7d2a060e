//! One count from the oldest unanswered packet to the deadline: when to probe, when to suspect,
//! when time is up. Knows times only; [`super::peer`] says what is unanswered.

use std::time::Duration;

use crate::time::Mono;

/// When to probe, in milliseconds since the oldest unanswered packet, for a deadline of 2 s:
/// SPEC section 5. Denser towards the end, where each answer lost costs most.
pub(super) const PROBE_AT_MILLIS: [u32; 10] =
    [300, 600, 900, 1100, 1300, 1450, 1600, 1700, 1800, 1900];

/// Probes from this one (900 ms) on go over every path, and twice. At 20 % loss each way single
/// ones on a single path all go unanswered once in 80,000 lone packets, more than the 20 false
/// alarms allowed in 1,000 hours; doubled ones do once in 10^8.
pub(super) const FIRST_ON_ALL_PATHS: usize = 2;

/// The second probe (600 ms) finds the first one missed.
const FIRST_WHEN_SUSPECT: usize = 1;

/// The time from the oldest unanswered packet to the deadline.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);

/// Above this round-trip time the deadline is [`DEADLINE_ROUND_TRIPS`] of them, and the
/// schedule is stretched alike. At it both rules give the same.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(500);
const DEADLINE_ROUND_TRIPS: u32 = 4;

/// Longer round trips than this are taken for it, so that a deadline is at most a minute.
const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(15);

/// A count starts no further back than this (of 2,000): eight probes and the question to the
/// others come before any deadline, also when a proof comes late or a count starts anew.
const HEAD_START_MILLIS: u32 = 1100;

/// How often a peer is probed after its deadline while nobody says that it failed.
const AFTER_DEADLINE: Duration = Duration::from_secs(1);

/// A running count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    since: Mono,
    step: usize,
    suspected: Option<Mono>,
    /// Set once the deadline was told: when to probe next.
    overdue_probe: Option<Mono>,
}

/// How many probes are to go out at once, and where.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Wish {
    #[default]
    None,
    One,
    AllPaths,
    AllPathsTwice,
}

/// What a count wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Due {
    pub(super) wish: Wish,
    pub(super) is_suspect: bool,
    /// The deadline has passed; since when the others have been asked.
    pub(super) asked: Option<Mono>,
}

/// A peer's deadline and the schedule that ends with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    deadline: Duration,
}

impl Pace {
    pub(super) fn new(rtt: Duration) -> Self {
        if rtt <= LONG_ROUND_TRIP {
            return Self { deadline: DEADLINE };
        }
        Self {
            deadline: rtt.min(LONGEST_ROUND_TRIP) * DEADLINE_ROUND_TRIPS,
        }
    }

    pub(super) const fn deadline(self) -> Duration {
        self.deadline
    }

    /// Returns the earliest point a count looked at now may start from.
    pub(super) fn earliest_start(self, now: Mono) -> Mono {
        now - self.stretch(HEAD_START_MILLIS)
    }

    /// Returns `millis` of the unstretched schedule as they lie in this one.
    pub(super) fn stretch(self, millis: u32) -> Duration {
        // 2 s are the 2,000 thousandths the schedule is written in.
        self.deadline * millis / 2000
    }
}

impl Count {
    /// Starts a count that has been running since `since`; the probes of before are not made up.
    pub(super) fn new(now: Mono, since: Mono, pace: Pace) -> Self {
        let passed = PROBE_AT_MILLIS
            .iter()
            .take_while(|millis| since + pace.stretch(**millis) < now)
            .count();
        Self {
            since,
            step: passed,
            suspected: None,
            overdue_probe: None,
        }
    }

    /// Returns what is due by `now`; asked again, it is not.
    pub(super) fn handle_timeout(&mut self, now: Mono, pace: Pace) -> Due {
        let mut due = Due::default();
        while self.step < PROBE_AT_MILLIS.len() && self.step_at(pace) <= now {
            let is_late_step = self.step >= FIRST_ON_ALL_PATHS;
            due.wish = if is_late_step {
                Wish::AllPathsTwice
            } else {
                Wish::One
            };
            self.step += 1;
        }
        if self.must_suspect() {
            self.suspected = Some(now);
            due.is_suspect = true;
        }
        if self.step < PROBE_AT_MILLIS.len() || self.due(pace) > now {
            return due;
        }
        if self.overdue_probe.is_none() {
            due.asked = self.suspected;
        } else {
            due.wish = Wish::AllPaths;
        }
        self.overdue_probe = Some(now + AFTER_DEADLINE);
        due
    }

    /// Returns when to call [`Count::handle_timeout`].
    pub(super) fn due(&self, pace: Pace) -> Mono {
        if self.must_suspect() {
            return self.since;
        }
        self.overdue_probe.unwrap_or_else(|| self.step_at(pace))
    }

    pub(super) const fn since(&self) -> Mono {
        self.since
    }

    pub(super) const fn is_suspect(&self) -> bool {
        self.suspected.is_some()
    }

    fn step_at(&self, pace: Pace) -> Mono {
        match PROBE_AT_MILLIS.get(self.step) {
            Some(millis) => self.since + pace.stretch(*millis),
            None => self.since + pace.deadline,
        }
    }

    const fn must_suspect(&self) -> bool {
        self.suspected.is_none() && self.step > FIRST_WHEN_SUSPECT
    }
}
