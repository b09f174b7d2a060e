//! Points in time as `core` is told them. Two clocks, because SPEC section 4 counts idleness on
//! CLOCK_BOOTTIME (a suspend counts) and failure on CLOCK_MONOTONIC (it does not); wall time
//! serves credentials only. Nothing here reads a clock.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

macro_rules! point {
    ($name:ident, $clock:literal) => {
        #[doc = concat!("A point on ", $clock, ", in nanoseconds since the clock's origin.")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(u64);

        impl $name {
            /// Returns the point `nanos` nanoseconds after the clock's origin.
            pub const fn from_nanos(nanos: u64) -> Self {
                Self(nanos)
            }

            /// Returns the nanoseconds since the clock's origin.
            pub const fn as_nanos(self) -> u64 {
                self.0
            }

            /// Returns the time since `earlier`, zero when that lies in the future.
            pub const fn since(self, earlier: Self) -> Duration {
                Duration::from_nanos(self.0.saturating_sub(earlier.0))
            }
        }

        impl Add<Duration> for $name {
            type Output = Self;

            /// Saturates at the end of the clock (584 years).
            fn add(self, span: Duration) -> Self {
                Self(
                    self.0
                        .saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
                )
            }
        }

        impl AddAssign<Duration> for $name {
            fn add_assign(&mut self, span: Duration) {
                *self = *self + span;
            }
        }

        impl Sub<Duration> for $name {
            type Output = Self;

            /// Saturates at the clock's origin.
            fn sub(self, span: Duration) -> Self {
                Self(
                    self.0
                        .saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
                )
            }
        }
    };
}

point!(Mono, "CLOCK_MONOTONIC");
point!(Boot, "CLOCK_BOOTTIME");

/// Both clocks, read together once per batch by the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// For failure detection and round-trip times.
    pub mono: Mono,
    /// For idleness.
    pub boot: Boot,
}

impl Add<Duration> for Now {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self {
            mono: self.mono + span,
            boot: self.boot + span,
        }
    }
}

/// Wall time in seconds since 1970, for credentials only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// Returns the seconds since `earlier`, zero when that lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for UnixTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.as_secs()))
    }
}
