//! Does everything at once to a realm's holders, at random, and says whether clients saw only what
//! the product allows. Root only.
//!
//!     chaos [--minutes N] [--seed N]

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::process::ExitCode;
use std::time::Duration;

use e2e::scenario::Chaos;

/// Long enough for every deed to meet every holder some times.
const MINUTES: f64 = 5.0;

fn main() -> ExitCode {
    let mut minutes = MINUTES;
    let mut seed = fastrand::u64(..1_000_000);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next();
        let value = value.as_deref();
        let taken = match arg.as_str() {
            "--minutes" => value
                .and_then(|text| text.parse().ok())
                .filter(|given| (0.1..=10_000.0).contains(given))
                .map(|given| minutes = given),
            "--seed" => value
                .and_then(|text| text.parse().ok())
                .map(|given| seed = given),
            _ => None,
        };
        if taken.is_none() {
            println!("usage: chaos [--minutes N] [--seed N]");
            return ExitCode::from(2);
        }
    }
    println!("binary: {}", e2e::anchor::binary().display());
    println!("seed: {seed}");
    let chaos = Chaos {
        time: Duration::from_secs_f64(minutes * 60.0),
        seed,
    };
    let summary = chaos.run(|line| println!("{line}"));
    println!("\n{summary}");
    if summary.holds() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
