//! The spread over the size of the realm, as the chart in `docs/`.

use std::path::Path;

use super::net::Net;
use super::plot::{Line, chart};
use super::{SpreadTimes, spread_of};
use crate::setting;

/// `SIM_WRITE_DOCS=1 make soak` writes the chart anew; otherwise it must be the one that is there.
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spread.svg");

const SIZES: &[usize] = if cfg!(feature = "soak") {
    &[100, 200, 500, 1_000, 2_000, 5_000, 10_000]
} else {
    &[100, 200, 500]
};

#[test]
fn the_chart_in_the_docs_is_what_is_measured() {
    let times: Vec<(usize, SpreadTimes)> = SIZES
        .iter()
        .map(|&size| (size, spread_of(&mut Net::new(size, 6), 3)))
        .collect();
    for (size, times) in &times {
        println!("{size} anchors: {times:?}");
    }
    let line = |name, pick: fn(&SpreadTimes) -> std::time::Duration| Line {
        name,
        points: times
            .iter()
            .map(|(size, times)| (*size as f64, pick(times).as_secs_f64()))
            .collect(),
    };
    let svg = chart(
        "From an advert or goodbye until anchors know it",
        &[
            line("new, half know it", |times| times.advert_50),
            line("new, 99 %", |times| times.advert_99),
            line("new, everybody", |times| times.advert_100),
            line("goodbye, 99 %", |times| times.leave_99),
        ],
    );

    if cfg!(feature = "soak") {
        if setting("SIM_WRITE_DOCS").is_some() {
            std::fs::write(Path::new(CHART), &svg).unwrap();
        }
        assert_eq!(std::fs::read_to_string(CHART).unwrap(), svg, "{CHART}");
    }
    let is_quick = |(_, times): &(usize, SpreadTimes)| times.advert_99.as_secs_f64() < 5.0;
    assert!(times.iter().all(is_quick), "{times:?}");
}
