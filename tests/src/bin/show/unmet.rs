//! Point "unmet": what two anchors that can never meet, and for whom nobody relays, send each other
//! while one wants to talk to the other all the time.

use std::time::{Duration, Instant};

use e2e::Lab;
use e2e::nat::Nat;
use e2e::scenario::Homes;

use crate::Effort;
use crate::report::Report;

/// What the bar is said of.
const WATCHED: Duration = Duration::from_secs(600);

/// One knocks in turns; the kernel sends a connection's first packet again and again.
const KNOCK_FOR: Duration = Duration::from_secs(2);

/// The first of each pair has the traffic.
const PAIRS: [[Nat; 2]; 2] = [
    [Nat::Symmetric, Nat::Symmetric],
    [Nat::Symmetric, Nat::PortRestricted],
];

/// Packets a second of both together, on average.
const MOST: f64 = 1.0;

pub(crate) fn unmet(report: &mut Report, effort: &Effort) {
    let watched = if effort.is_short {
        WATCHED / 2
    } else {
        WATCHED
    };
    let labs = PAIRS.map(|kinds| (Lab::new(), kinds));
    let realms = labs
        .each_ref()
        .map(|(lab, kinds)| Homes::without_relays(lab, kinds));
    let began = Instant::now();
    let mut answers = 0;
    while began.elapsed() < watched {
        for realm in &realms {
            answers += usize::from(realm.first_answer(0, 1, KNOCK_FOR).is_some());
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    for (realm, kinds) in realms.iter().zip(PAIRS) {
        let sent = [0, 1].map(|at| realm.packets_to_others(at));
        let rate = (sent[0] + sent[1]) as f64 / seconds;
        report.row(
            format!("{} and {}, no relay, {seconds:.0} s", kinds[0], kinds[1]),
            "at most 1 packet/s of both, on average",
            format!("{} and {} packets: {rate:.2}/s", sent[0], sent[1]),
            rate <= MOST && answers == 0,
        );
    }
}
