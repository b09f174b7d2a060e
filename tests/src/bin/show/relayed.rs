//! Point "relayed": what two anchors that meet by a relay only carry, beside what a third carries
//! over a direct path to the same holder, in turn. All run on this machine, so the relay's work takes
//! from theirs.

use std::time::Duration;

use e2e::scenario::{Apart, Client, OPEN, SETTLE_LIMIT, at, port};
use e2e::work::{Direction, Transfer};
use e2e::{Host, Lab, wait};

use crate::Effort;
use crate::report::Report;

const ROUNDS: usize = 5;

/// Twice the work of a direct path would be half; the relay's two tags are not for nothing.
const LEAST_OF_DIRECT: f64 = 0.45;

/// For one transfer.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn relayed(report: &mut Report, effort: &Effort) {
    let realm = Apart::start(Lab::at_kernel_speed(), &[OPEN]);
    let ticket = realm.relays[0].invite("--advertise any");
    let near = Client::start(&realm.lab.host("near"), &ticket);
    wait::until(SETTLE_LIMIT, "the third to reach the holder", || {
        near.get().is_ok()
    });
    realm.assert_relayed(&[0]);
    let mut rates: [Vec<f64>; 2] = Default::default();
    for round in 1..=ROUNDS {
        let hosts = [&near.host, &realm.client.host];
        for (rates, host) in rates.iter_mut().zip(hosts) {
            rates.push(gigabits_per_second(host, effort.transfer_bytes()));
        }
        let [direct, relayed] = rates.each_ref().map(|rates| rates[round - 1]);
        report.say(&format!(
            "round {round}: direct {direct:.2}, by the relay {relayed:.2} Gbit/s"
        ));
    }
    let carried_bytes = realm.relays[0].metric("anchor_relayed_bytes_total");
    let least_bytes = effort.transfer_bytes() as f64 * ROUNDS as f64;
    assert!(
        carried_bytes > least_bytes,
        "the relay carried {carried_bytes} bytes only"
    );
    let [direct, relayed] = rates.map(middle);
    let ratio = relayed / direct;
    report.row(
        "by a relay on the same machine, beside direct",
        "0.45",
        format!("{relayed:.2} of {direct:.2} Gbit/s (middle of {ROUNDS} each): {ratio:.2}"),
        ratio >= LEAST_OF_DIRECT,
    );
}

fn gigabits_per_second(host: &Host, bytes: u64) -> f64 {
    let transfer = Transfer::start(host, at(port::TRANSFER), Direction::Down, bytes);
    let transferred = transfer.expect("the holder answers").end_within(LIMIT);
    assert!(transferred.is_whole(), "a transfer broke off");
    transferred.megabits_per_second() / 1e3
}

fn middle(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
