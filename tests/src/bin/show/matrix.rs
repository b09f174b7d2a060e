//! Point "matrix": machines behind routers of each kind towards each: whether they meet directly, and
//! how long the first answer takes, from a cold start and when a path is known.

use std::time::{Duration, Instant};

use e2e::nat::Nat;
use e2e::scenario::{Homes, can_meet};
use e2e::{Lab, wait};

use crate::Effort;
use crate::report::Report;

/// SPEC's bars for the first byte.
const COLD_BAR: Duration = Duration::from_secs(3);
const KNOWN_BAR: Duration = Duration::from_secs(1);

/// Far more than the bars, to see by how much one is missed.
const PATIENCE: Duration = Duration::from_secs(15);

/// Trials come 4, 12 and 28 s after a relay has begun to carry.
const TRIAL_LIMIT: Duration = Duration::from_secs(100);

pub(crate) fn matrix(report: &mut Report, _effort: &Effort) {
    let lab = Lab::new();
    let kinds = Nat::ALL.map(|nat| [nat, nat]).concat();
    let mut realm = Homes::start(&lab, &kinds);
    let all_meet = |realm: &Homes| {
        let mut pairs = realm.pairs();
        pairs.all(|(near, far)| realm.meet(near, far) || !can_meet(kinds[near], kinds[far]))
    };
    // One that does not meet in this time is told as it is then.
    let began = Instant::now();
    while !all_meet(&realm) && began.elapsed() < TRIAL_LIMIT {
        wait::pass(Duration::from_millis(200));
    }
    let met_after = began.elapsed().as_secs_f64();
    report.say(&format!(
        "all that can had met {met_after:.1} s after the last had connected"
    ));
    let fars = || (1..kinds.len()).step_by(2);
    for near in (0..kinds.len()).step_by(2) {
        let known: Vec<Known> = fars()
            .map(|far| Known {
                is_direct: realm.meet(near, far),
                answer: realm.first_answer(near, far, PATIENCE),
            })
            .collect();
        let mut cells = Vec::new();
        let mut holds = true;
        for (far, known) in fars().zip(known) {
            realm.homes[near].anchor.kill();
            realm.homes[near].anchor.run();
            let cold = realm.first_answer(near, far, PATIENCE);
            let expected = can_meet(kinds[near], kinds[far]);
            holds &= known.is_direct == expected
                && is_within(known.answer, KNOWN_BAR)
                && is_within(cold, COLD_BAR);
            cells.push(format!(
                "{} {} ({}/{} ms)",
                kinds[far],
                if known.is_direct { "direct" } else { "relay" },
                millis(known.answer),
                millis(cold)
            ));
        }
        report.row(
            format!("from {} to", kinds[near]),
            "direct where the kinds allow; < 1 s known, < 3 s cold",
            cells.join("; "),
            holds,
        );
    }
}

/// How two meet that have had the time to.
struct Known {
    is_direct: bool,
    answer: Option<Duration>,
}

fn is_within(took: Option<Duration>, bar: Duration) -> bool {
    took.is_some_and(|took| took < bar)
}

fn millis(took: Option<Duration>) -> String {
    match took {
        Some(took) => format!("{:.0}", took.as_secs_f64() * 1e3),
        None => "never".to_owned(),
    }
}
