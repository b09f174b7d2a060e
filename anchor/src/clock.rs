//! Reads the clocks `core` is told about. Everything else in the daemon is handed a [`Now`], so
//! that one batch sees one moment.

use std::time::{SystemTime, UNIX_EPOCH};

use conflux_core::time::{Boot, Mono, Now, UnixTime};
use nix::time::{ClockId, clock_gettime};

/// Returns the present moment on CLOCK_MONOTONIC and CLOCK_BOOTTIME.
///
/// The two are read one after the other, some 20 ns apart.
pub fn now() -> Now {
    Now {
        mono: mono(),
        boot: Boot::from_nanos(read(ClockId::CLOCK_BOOTTIME)),
    }
}

/// Returns the present moment on CLOCK_MONOTONIC alone.
pub fn mono() -> Mono {
    Mono::from_nanos(read(ClockId::CLOCK_MONOTONIC))
}

/// Returns wall time, zero while the machine's clock stands before 1970.
pub fn unix() -> UnixTime {
    UnixTime(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    )
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("every kernel since 2.6.39 has both clocks");
    let seconds = u64::try_from(time.tv_sec()).expect("both clocks start at zero");
    let nanos = u64::try_from(time.tv_nsec()).expect("the kernel keeps nanoseconds below 10^9");
    seconds * 1_000_000_000 + nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_clock_runs_backwards() {
        let earlier = now();

        let later = now();

        assert!(later.mono >= earlier.mono && later.boot >= earlier.boot);
    }

    #[test]
    fn time_since_boot_counts_suspends_too() {
        let now = now();

        assert!(now.boot.as_nanos() + 1_000_000 >= now.mono.as_nanos());
    }

    #[test]
    fn wall_time_is_after_this_was_written() {
        assert!(unix().0 > 1_700_000_000);
    }
}
