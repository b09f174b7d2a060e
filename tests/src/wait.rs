//! Waiting for a condition with a limit, in place of sleeping: the only way tests spend time.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// How often a condition is tried: well under every bar of the product.
const TRY: Duration = Duration::from_millis(10);

/// Waits until `condition` gives a value and returns it.
///
/// # Panics
///
/// When `limit` has passed; the text names `what` was waited for.
pub fn until_some<T>(limit: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "waited {limit:?} in vain for: {what}");
        thread::sleep(TRY);
    }
}

/// Waits until `condition` holds.
///
/// # Panics
///
/// As [`until_some`].
pub fn until(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    until_some(limit, what, || condition().then_some(()));
}

/// Waits until `read` gives `wanted`.
///
/// # Panics
///
/// When `limit` has passed; the text shows what was read last.
pub fn until_equal<T: PartialEq + Debug>(
    limit: Duration,
    what: &str,
    wanted: &T,
    mut read: impl FnMut() -> T,
) {
    let end = Instant::now() + limit;
    loop {
        let found = read();
        if found == *wanted {
            return;
        }
        assert!(
            Instant::now() < end,
            "{what}: after {limit:?} still {found:?}, wanted {wanted:?}"
        );
        thread::sleep(TRY);
    }
}

/// Lets `time` pass: only where time itself is what is shown, as in "nothing moves for 20 s".
pub fn pass(time: Duration) {
    thread::sleep(time);
}
