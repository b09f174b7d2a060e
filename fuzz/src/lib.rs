//! What fuzzers try: one target per decoder, one for translation, one for the whole of core. A
//! target takes any bytes, drives the product with them and asserts what must be true of the
//! outcome. Not here: the fuzzer. `libfuzzer/` (a workspace of its own, `make fuzz`) and the
//! test beside this crate drive the same functions, the test on the committed corpora and on
//! seeded mutations of them.
//!
//! Random bytes do not carry right signatures, checksums or tags. Where the interesting code lies
//! behind one, the target signs, sums or seals what the fuzzer made before the product reads it.

#![forbid(unsafe_code)]

mod chain;
mod core;
mod frames;
mod input;
mod messages;
mod mutate;
mod packets;
mod requests;
mod samples;
mod statements;
mod tickets;
mod translate;

pub use mutate::mutate;

/// Something to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: of the cargo-fuzz target, and of the folder below `corpora`.
    pub name: &'static str,
    /// Tries an input; panics when something is not as it must be.
    pub run: fn(&[u8]),
    /// Returns inputs to begin with, made from what the product itself encodes.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 9] = [
    Target {
        name: "frames",
        run: frames::run,
        seeds: frames::seeds,
    },
    Target {
        name: "messages",
        run: messages::run,
        seeds: messages::seeds,
    },
    Target {
        name: "statements",
        run: statements::run,
        seeds: statements::seeds,
    },
    Target {
        name: "chain",
        run: chain::run,
        seeds: chain::seeds,
    },
    Target {
        name: "tickets",
        run: tickets::run,
        seeds: tickets::seeds,
    },
    Target {
        name: "requests",
        run: requests::run,
        seeds: requests::seeds,
    },
    Target {
        name: "packets",
        run: packets::run,
        seeds: packets::seeds,
    },
    Target {
        name: "translate",
        run: translate::run,
        seeds: translate::seeds,
    },
    Target {
        name: "core",
        run: core::run,
        seeds: core::seeds,
    },
];

/// Tries an input on the target of this name.
///
/// # Panics
/// When something is not as it must be, or there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("a target of this crate").run)(bytes);
}
