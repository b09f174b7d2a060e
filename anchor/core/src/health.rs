//! Whether this machine's own service is fit to be offered, from the outcomes of its check: the
//! hysteresis of `--check` (SPEC section 8). How a check is run is the shell's, what follows from
//! the verdict (an advert without the shared address) the control loop's.
//!
//! * From fit to unfit: [`FAILURES`] runs in a row fail.
//! * Back: [`SUCCESSES`] runs in a row succeed; twice as many for each time it has become unfit
//!   since it last was fit for [`CALM`], [`MOST_SUCCESSES`] at most, so that a service that flaps
//!   costs its clients less and less.
//! * At the start of an anchor the verdict is open until the first run, which decides alone: a
//!   machine that comes up is not offered before its service is.

use std::time::Duration;

use crate::time::Mono;

/// Runs that fail in a row before the address is withdrawn. One may be bad luck; with a second
/// between runs, two are noticed about as fast as a dead machine is.
pub const FAILURES: u32 = 2;
/// Runs that succeed in a row before the address returns.
pub const SUCCESSES: u32 = 3;
/// The most runs that a flapping service has to succeed in: about a minute.
pub const MOST_SUCCESSES: u32 = 48;
/// A service that was fit for this long counts as never having flapped.
pub const CALM: Duration = Duration::from_secs(300);
/// The pause between the end of one run and the beginning of the next.
pub const PAUSE: Duration = Duration::from_secs(1);
/// The longest a run may take (SPEC section 8).
pub const LIMIT: Duration = Duration::from_secs(5);

/// What the runs have come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No run has ended yet.
    Open,
    /// Offer the service.
    Fit,
    /// Do not.
    Unfit,
}

/// The outcomes so far.
#[derive(Clone, Debug)]
pub struct Health {
    verdict: Verdict,
    since: Mono,
    /// Runs in a row that speak against the verdict.
    against: u32,
    /// Times it became unfit without [`CALM`] in between.
    flaps: u32,
    failures: u64,
    last_error: Option<String>,
}

impl Health {
    /// Returns the health of a service that was offered until now, or of one that was not.
    pub const fn new(now: Mono, is_offered: bool) -> Self {
        Self {
            verdict: if is_offered {
                Verdict::Fit
            } else {
                Verdict::Open
            },
            since: now,
            against: 0,
            flaps: 0,
            failures: 0,
            last_error: None,
        }
    }

    /// Takes the outcome of a run; returns whether the verdict has changed.
    pub fn handle_run(&mut self, now: Mono, outcome: Result<(), String>) -> bool {
        let is_good = outcome.is_ok();
        self.last_error = outcome.err();
        if !is_good {
            self.failures += 1;
        }
        let needed = match (self.verdict, is_good) {
            (Verdict::Open, _) => 1,
            (Verdict::Fit, false) => FAILURES,
            (Verdict::Unfit, true) => self.successes_needed(),
            (Verdict::Fit, true) | (Verdict::Unfit, false) => {
                self.against = 0;
                return false;
            }
        };
        self.against += 1;
        if self.against < needed {
            return false;
        }
        if is_good {
            self.turn(now, Verdict::Fit);
        } else {
            let was_fit = self.verdict == Verdict::Fit;
            if now.since(self.since) >= CALM {
                self.flaps = 0;
            }
            self.flaps += u32::from(was_fit);
            self.turn(now, Verdict::Unfit);
        }
        true
    }

    /// Returns the verdict.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns when the verdict last changed.
    pub const fn since(&self) -> Mono {
        self.since
    }

    /// Returns how many runs have failed.
    pub const fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns why the last run failed; none when it did not.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Returns how many runs in a row have to succeed before an unfit service is offered again.
    pub fn successes_needed(&self) -> u32 {
        let doublings = self.flaps.saturating_sub(1).min(8);
        (SUCCESSES << doublings).min(MOST_SUCCESSES)
    }

    fn turn(&mut self, now: Mono, verdict: Verdict) {
        self.verdict = verdict;
        self.since = now;
        self.against = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_changes_nothing_and_two_in_a_row_withdraw() {
        let mut rig = Rig::offered();

        assert_eq!(rig.runs("x.x.x.xx"), "FFFFFFFU");
        assert_eq!(rig.health.failures(), 5);
    }

    #[test]
    fn three_successes_in_a_row_bring_it_back() {
        let mut rig = Rig::offered();

        assert_eq!(rig.runs("xx..x...x."), "FUUUUUUFFF");
    }

    #[test]
    fn at_a_start_the_first_run_decides() {
        let mut good = Rig::starting();
        let mut bad = Rig::starting();

        assert_eq!(good.health.verdict(), Verdict::Open);
        assert_eq!(good.runs("."), "F");
        assert_eq!(bad.runs("x..."), "UUUF");
    }

    #[test]
    fn each_flap_doubles_what_it_takes_to_return() {
        let mut rig = Rig::offered();
        let mut needed = Vec::new();
        for _ in 0..7 {
            rig.runs("xx");
            needed.push(rig.health.successes_needed());
            rig.runs(&".".repeat(rig.health.successes_needed() as usize));
            assert_eq!(rig.health.verdict(), Verdict::Fit);
        }

        assert_eq!(needed, [3, 6, 12, 24, 48, 48, 48]);
    }

    #[test]
    fn a_calm_time_makes_up_for_flaps() {
        let mut rig = Rig::offered();
        rig.runs("xx...xx");
        assert_eq!(rig.health.successes_needed(), 6);
        rig.runs("......");

        rig.now += CALM;
        rig.runs("xx");

        assert_eq!(rig.health.successes_needed(), 3);
    }

    #[test]
    fn the_last_error_is_that_of_the_last_run() {
        let mut rig = Rig::offered();

        rig.runs("x");
        assert_eq!(rig.health.last_error(), Some("no"));
        rig.runs(".");
        assert_eq!(rig.health.last_error(), None);
    }

    struct Rig {
        health: Health,
        now: Mono,
    }

    impl Rig {
        fn offered() -> Self {
            Self::new(true)
        }

        fn starting() -> Self {
            Self::new(false)
        }

        fn new(is_offered: bool) -> Self {
            let now = Mono::from_nanos(1_000_000_000);
            Self {
                health: Health::new(now, is_offered),
                now,
            }
        }

        /// Runs that succeed (`.`) and fail (`x`), a second each; the verdict after each of them.
        fn runs(&mut self, outcomes: &str) -> String {
            outcomes
                .chars()
                .map(|outcome| {
                    self.now += PAUSE;
                    let outcome = if outcome == '.' {
                        Ok(())
                    } else {
                        Err("no".to_owned())
                    };
                    self.health.handle_run(self.now, outcome);
                    match self.health.verdict() {
                        Verdict::Open => 'O',
                        Verdict::Fit => 'F',
                        Verdict::Unfit => 'U',
                    }
                })
                .collect()
        }
    }
}
