//! The simulation of a realm in virtual time: the real packet way and the real store of adverts of
//! several anchors, ways that delay, lose and cut, translators, restarts, clocks that jump, machines
//! that sleep, and beside them a plain reference of what must be true (`model`). Also the proofs
//! that need many hours or many anchors of virtual time: false alarms, shares, spread.
//!
//! Nothing here runs in a daemon, and nothing waits for real time.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may stop, and tells what it measured"
)]

mod alarms;
mod anchor;
mod book;
mod control;
mod link;
mod machine;
mod model;
mod nat;
mod packets;
mod schedule;
mod schedules;
mod shares;
mod spread;
mod tcp;
mod wire;
mod world;

/// Returns a setting of the run: which seeds, whether to trace them, whether to write charts.
#[expect(
    clippy::disallowed_methods,
    reason = "core reads no environment; those who run its tests set it"
)]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
