//! Shows what the product promises, measured with full repetitions on the built binary: the points
//! of the realm's first issue, in a table for whoever wants the numbers. Root only.
//!
//!     show [--runs N] [--short] [POINT]...
//!
//! Without points all of them run, which takes about half an hour; `--short` cuts the long ones
//! (five minutes of loss, ten million datagrams, transfers of a gigabyte) to a tenth.

#![expect(clippy::print_stdout, reason = "a program for people")]

mod calm;
mod choice;
mod explain;
mod fail;
mod matrix;
mod paths;
mod relayed;
mod report;
mod rest;
mod unmet;

use std::process::ExitCode;
use std::time::Duration;

use report::Report;

/// How often and how long.
pub(crate) struct Effort {
    /// Repetitions of each fault.
    pub(crate) runs: usize,
    /// Tenths of the long points.
    pub(crate) is_short: bool,
}

impl Effort {
    /// How much a transfer is to carry: a gigabyte, or a tenth.
    pub(crate) fn transfer_bytes(&self) -> u64 {
        if self.is_short {
            100_000_000
        } else {
            1_000_000_000
        }
    }

    /// How long a transfer may take that cannot be whole in reasonable time.
    pub(crate) fn slow_limit(&self) -> Duration {
        Duration::from_secs(if self.is_short { 4 } else { 20 })
    }
}

type Point = (&'static str, &'static str, fn(&mut Report, &Effort));

const POINTS: [Point; 17] = [
    (
        "1",
        "one holder for a client, all for many",
        choice::one_holder,
    ),
    ("2", "what the tables print", choice::tables),
    ("3", "clients as 198.18.0.0/15", choice::sources),
    ("4", "down under 20 requests a second", fail::down),
    ("5", "failures", fail::failures),
    ("6", "open connections", fail::connections),
    ("7", "bad networks", calm::bad_networks),
    ("8", "returning and new holders", calm::returning),
    ("9", "compartments", rest::compartments),
    ("10", "shares by cost", rest::shares),
    ("11", "nothing in the clear", rest::secrecy),
    ("explain", "why a flow is where it is", explain::transcripts),
    ("garbage", "garbage on the UDP port", rest::garbage),
    ("matrix", "routers of each kind", matrix::matrix),
    ("paths", "narrow, shrinking and bad paths", paths::paths),
    ("relayed", "what a relay carries", relayed::relayed),
    ("unmet", "two that can never meet", unmet::unmet),
];

fn main() -> ExitCode {
    let mut effort = Effort {
        runs: 10,
        is_short: false,
    };
    let mut wanted = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--runs" => match args.next().and_then(|text| text.parse().ok()) {
                Some(runs) => effort.runs = runs,
                None => return usage(),
            },
            "--short" => effort.is_short = true,
            point if POINTS.iter().any(|(name, _, _)| *name == point) => wanted.push(arg),
            _ => return usage(),
        }
    }
    println!("binary: {}", e2e::anchor::binary().display());
    let mut report = Report::default();
    for (name, what, run) in POINTS {
        if wanted.is_empty() || wanted.iter().any(|point| point == name) {
            println!("\n{name}: {what}");
            report.point(name, |report| run(report, &effort));
        }
    }
    match report.finish() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn usage() -> ExitCode {
    println!(
        "usage: show [--runs N] [--short] \
         [1..11 | explain | garbage | matrix | paths | relayed | unmet]..."
    );
    ExitCode::from(2)
}
