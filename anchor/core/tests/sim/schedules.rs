//! The schedules that are run: a share with every test run, all of them by `make soak`, and each
//! seed that once found something.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;

use crate::schedule::{STEPS, run};
use crate::setting;
use crate::world::Counts;

/// Schedules of one test run; `make soak` sets `SIM_SCHEDULES` to more.
const SHARE: u64 = if cfg!(feature = "soak") { 100_000 } else { 40 };

/// After so many broken seeds there is no need for more.
const ENOUGH: usize = 8;

/// Seeds that found something, and what.
const REGRESSIONS: [(u64, &str); 10] = [
    (
        786,
        "a first packet's wait that ended while the process stood still failed a holder",
    ),
    (
        100_020,
        "the echo of a size probe did not prove that its holder was there",
    ),
    (
        100_416,
        "the same, and the holder was 1.3 s from its answer",
    ),
    (
        11_037,
        "a restarted holder whose first probes were lost was never used again",
    ),
    (10_233, "the same, among local faults"),
    (
        20_904,
        "a restarted client kept to an endpoint that did not answer, beside one that did",
    ),
    (
        204_710,
        "after handshakes that crossed, keepalives told of keys no longer sent under",
    ),
    (
        29_051,
        "a holder's data left from an address other than the one its client's translator lets in",
    ),
    (
        49_778,
        "after four seconds without an answer a count started from the latest packet",
    ),
    (
        79_564,
        "after a local fault a count started anew at its next timer only, a second later",
    ),
];

#[test]
fn every_invariant_holds_in_random_schedules() {
    let first = number_of("SIM_FIRST_SEED").unwrap_or(1);
    let count = number_of("SIM_SCHEDULES").unwrap_or(SHARE);
    let next = AtomicU64::new(first);
    let found = Mutex::new((Counts::default(), Vec::new()));

    let workers = available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work_through(&next, first + count, &found));
        }
    });

    let (counts, mut breaches) = found.into_inner().unwrap();
    breaches.sort_unstable();
    println!("{count} schedules of {STEPS} steps from seed {first}: {counts:?}");
    assert!(breaches.is_empty(), "seeds {breaches:?} break an invariant");
}

#[test]
fn seeds_that_once_found_something_find_nothing_more() {
    for (seed, found) in REGRESSIONS {
        if let Err(breach) = run(seed, STEPS) {
            panic!("once: {found}\nnow: {breach}");
        }
    }
}

/// Runs seeds until none is left or too many are broken, and prints each breach.
fn work_through(next: &AtomicU64, end: u64, found: &Mutex<(Counts, Vec<u64>)>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end || found.lock().unwrap().1.len() >= ENOUGH {
            return;
        }
        match run(seed, STEPS) {
            Ok(counts) => found.lock().unwrap().0.add(&counts),
            Err(breach) => {
                println!("{breach}");
                found.lock().unwrap().1.push(seed);
            }
        }
    }
}

fn number_of(name: &str) -> Option<u64> {
    setting(name)?.parse().ok()
}
