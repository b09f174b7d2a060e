//! Everything at once, for as long as a test may take; `make soak` runs it for half an hour.

use std::time::Duration;

use e2e::scenario::Chaos;

#[test]
fn clients_see_nothing_but_what_is_allowed_whatever_is_done_to_holders() {
    let chaos = Chaos {
        time: Duration::from_secs(90),
        seed: 4,
    };

    let summary = chaos.run(|_| {});

    assert!(summary.holds(), "{summary}");
    assert!(summary.done.len() >= 8, "{summary}");
    assert!(
        summary.judged.counts.values().all(|(all, _)| *all > 500),
        "{summary}"
    );
}
