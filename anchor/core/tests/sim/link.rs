//! One direction of a way between two machines: delay, loss in both of its kinds, and cuts.
//! Directions are independent: a one-way cut is two of these of which one is cut.

use std::time::Duration;

use conflux_core::time::Mono;

/// How packets get lost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) enum Loss {
    /// None does.
    #[default]
    None,
    /// Each with this probability, whatever became of the others.
    Independent(f64),
    /// All while a burst lasts, none else: the chain of Gilbert and Elliott with a good state that
    /// loses nothing and a bad one that loses everything, both of exponential length.
    Bursts {
        /// Mean length of a burst.
        burst: Duration,
        /// Part of the time that bursts take, below one.
        share: f64,
    },
}

/// One direction of a way.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) delay: Duration,
    pub(crate) loss: Loss,
    pub(crate) is_cut: bool,
    /// The burst state holds until then.
    state: BurstState,
    random: fastrand::Rng,
}

#[derive(Clone, Copy, Debug)]
struct BurstState {
    is_bad: bool,
    until: Mono,
}

impl Way {
    /// Returns a way that loses nothing.
    pub(crate) fn new(delay: Duration, seed: u64) -> Self {
        Self {
            delay,
            loss: Loss::None,
            is_cut: false,
            state: BurstState {
                is_bad: false,
                until: Mono::default(),
            },
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Says whether a packet that sets out now gets lost.
    pub(crate) fn loses(&mut self, now: Mono) -> bool {
        if self.is_cut {
            return true;
        }
        match self.loss {
            Loss::None => false,
            Loss::Independent(part) => self.random.f64() < part,
            Loss::Bursts { burst, share } => self.is_in_burst(now, burst, share),
        }
    }

    /// Steps the chain to `now`: which state it is in depends on times alone, not on how many
    /// packets look at it.
    fn is_in_burst(&mut self, now: Mono, burst: Duration, share: f64) -> bool {
        while self.state.until <= now {
            let is_bad = !self.state.is_bad && self.state.until > Mono::default();
            let mean = if is_bad {
                burst
            } else {
                burst.mul_f64((1.0 - share) / share)
            };
            let length = mean.mul_f64(-(1.0 - self.random.f64()).ln());
            let from = if self.state.until == Mono::default() {
                now
            } else {
                self.state.until
            };
            self.state = BurstState {
                is_bad,
                until: from + length + Duration::from_nanos(1),
            };
        }
        self.state.is_bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_loss_loses_the_part_it_says() {
        let bursts = |burst| Loss::Bursts {
            burst: Duration::from_millis(burst),
            share: 0.2,
        };
        for loss in [Loss::Independent(0.2), bursts(100), bursts(1_000)] {
            let mut way = Way::new(Duration::ZERO, 7);
            way.loss = loss;
            let mut now = Mono::from_nanos(1);
            let mut lost = 0;
            let mut runs = 0;
            let mut was_lost = false;

            for _ in 0..1_000_000 {
                now += Duration::from_millis(10);
                let is_lost = way.loses(now);
                lost += u32::from(is_lost);
                runs += u32::from(is_lost && !was_lost);
                was_lost = is_lost;
            }

            let part = f64::from(lost) / 1e6;
            assert!((0.19..0.21).contains(&part), "{loss:?}: {part}");
            let mean_run_millis = 10.0 * f64::from(lost) / f64::from(runs);
            if let Loss::Bursts { burst, .. } = loss {
                let burst = burst.as_secs_f64() * 1e3;
                let ratio = mean_run_millis / burst;
                assert!((0.9..1.2).contains(&ratio), "{loss:?}: {mean_run_millis}");
            }
        }
    }
}
