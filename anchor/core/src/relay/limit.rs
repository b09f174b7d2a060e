//! How much a relay carries: a bucket of tokens, filled at the rate the operator set.

use std::time::Duration;

use crate::time::Mono;

/// What may go out at once above the rate: one full receive batch of a busy relay, so that a limit
/// well above the traffic never drops any.
const BURST: Duration = Duration::from_millis(50);
const LEAST_BURST_BYTES: u64 = 128 << 10;

/// A limit in bytes per second, outer headers and what is inside counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    bytes_per_second: u64,
    /// In nanoseconds of filling, so that slow rates lose nothing to rounding.
    filled: Duration,
    at: Mono,
}

impl Limit {
    /// Returns a full bucket.
    pub fn new(now: Mono, bytes_per_second: u64) -> Self {
        let bytes_per_second = bytes_per_second.max(1);
        Self {
            bytes_per_second,
            filled: deepest(bytes_per_second),
            at: now,
        }
    }

    /// Takes the tokens for a datagram; false when there are too few, and nothing is taken.
    pub fn take(&mut self, now: Mono, bytes: usize) -> bool {
        self.filled = (self.filled + now.since(self.at)).min(deepest(self.bytes_per_second));
        self.at = now;
        let price = time_for(bytes as u64, self.bytes_per_second);
        match self.filled.checked_sub(price) {
            Some(left) => {
                self.filled = left;
                true
            }
            None => false,
        }
    }
}

fn deepest(bytes_per_second: u64) -> Duration {
    BURST.max(time_for(LEAST_BURST_BYTES, bytes_per_second))
}

fn time_for(bytes: u64, bytes_per_second: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_ten_seconds_no_more_than_the_rate_and_one_burst_pass() {
        let start = Mono::default();
        let mut limit = Limit::new(start, 1_000_000);
        let mut passed = 0_u64;

        for step in 0..100_000_u64 {
            let now = start + Duration::from_micros(step * 100);
            passed += if limit.take(now, 1_400) { 1_400 } else { 0 };
        }

        let most = 10_000_000 + LEAST_BURST_BYTES;
        assert!(passed <= most, "{passed} of at most {most}");
        assert!(passed >= 9_990_000, "{passed}");
    }

    #[test]
    fn a_slow_limit_still_passes_the_longest_datagram_now_and_then() {
        let start = Mono::default();
        let mut limit = Limit::new(start, 1_000);

        assert!(limit.take(start, 65_507));
        assert!(limit.take(start, 65_507));
        assert!(!limit.take(start, 65_507));
        assert!(limit.take(start + Duration::from_secs(66), 65_507));
    }
}
