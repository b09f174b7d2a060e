//! Anchors that cannot reach each other are brought together by one that both reach, which reads
//! nothing of what it carries and is left for a better way as soon as there is one.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::time::{Duration, Instant};

use e2e::scenario::{Apart, OPEN, SETTLE_LIMIT, SHARED_NETWORK, TRANSFER_LIMIT};
use e2e::wait;
use e2e::work::Direction;
use e2e::{Anchor, Lab};

/// In every request and every answer below.
const MARKER: &[u8] = b"GET / HTTP/1.1";

/// From a cold start; SPEC's bar for the first byte when nothing is known.
const COLD_LIMIT: Duration = Duration::from_secs(3);

#[test]
fn two_that_cannot_reach_each_other_meet_through_a_third() {
    let mut realm = Apart::start(Lab::new(), &[OPEN]);

    realm.assert_relayed(&[0]);
    let answer = realm.client.get().unwrap();
    let down = realm.transfer(Direction::Down, 4_000_000);
    let up = realm.transfer(Direction::Up, 4_000_000);

    assert_eq!(answer.trim(), "b");
    assert!(down && up, "whole, checksums equal");
    let relay = &realm.relays[0];
    let carried = relay.metric("anchor_relayed_bytes_total");
    assert!(carried > 8_000_000.0, "{carried}");
    assert_eq!(relay.metric("anchor_relay_pairs"), 1.0);
    assert_eq!(
        reach_of(&realm.client.anchor, realm.holder.anchor.id()),
        "relay-only"
    );
    // From cold: the client starts anew and knows the others from its disk.
    realm.client.anchor.down();
    realm.client.anchor.run();
    let started = Instant::now();
    wait::until(COLD_LIMIT, "the first answer after a start", || {
        realm.client.get().is_ok()
    });
    assert!(started.elapsed() < COLD_LIMIT, "{:?}", started.elapsed());
}

#[test]
fn a_relay_and_its_wires_see_no_word_of_the_payload() {
    let realm = Apart::start(Lab::new(), &[OPEN]);
    let file = tempfile::NamedTempFile::new().unwrap();

    realm.lab.capture(file.path());
    for _ in 0..10 {
        realm.client.get().unwrap();
    }
    realm.lab.end_capture();

    let bytes = std::fs::read(file.path()).unwrap();
    assert!(bytes.len() > 20_000, "{} bytes captured", bytes.len());
    assert!(!holds(&bytes, MARKER), "plaintext at the relay");
    // Source and destination as they stand in the inner header.
    assert!(!holds(&bytes, &[192, 0, 0, 2, 10, 128, 0, 9]));
}

#[test]
fn a_relay_carries_no_more_when_it_is_told_and_again_when_it_may() {
    let realm = Apart::start(Lab::new(), &[OPEN]);
    let relay = &realm.relays[0];
    realm.client.get().unwrap();

    let told = relay.say(["up", "--no-service", "--no-relay"]);
    wait::until(SETTLE_LIMIT, "the client to be without an answer", || {
        realm.client.get().is_err()
    });
    let while_off = relay.json("status")["relay"].clone();
    let pairs = relay.metric("anchor_relay_pairs");
    relay.say(["up", "--no-service", "--relay-limit", "100mbit"]);
    let limited = relay.json("status")["relay"].clone();

    assert_eq!(while_off, "off", "{told}");
    assert_eq!(pairs, 0.0);
    assert_eq!(limited, "100mbit");
    let refused = relay.cli(["up", "--no-service", "--relay-limit", "fast"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("64kbit to 1000gbit"), "{refused:?}");
}

#[test]
fn a_limit_holds_back_what_is_carried() {
    let realm = Apart::start(Lab::new(), &["--relay-limit 4mbit"]);

    let started = Instant::now();
    let is_whole = realm.transfer(Direction::Down, 3_000_000);

    assert!(is_whole);
    // 24 Mbit at 4 a second, less the burst; without a limit it takes less than a second.
    let took = started.elapsed();
    assert!(took > Duration::from_secs(5), "{took:?}");
    let dropped = realm.relays[0].metric("anchor_dropped_packets{reason=\"relay-limit\"}");
    assert!(dropped > 0.0);
}

#[test]
fn a_direct_path_takes_over_once_there_is_one_and_nothing_is_lost() {
    let realm = Apart::start(Lab::new(), &[OPEN]);
    realm.assert_relayed(&[0]);
    let transfer = realm.start_transfer(Direction::Down, 40_000_000);

    realm.mend();
    let transferred = transfer.end_within(TRANSFER_LIMIT);

    assert!(transferred.is_whole());
    let failures = realm.client.anchor.metric("anchor_holder_failures_total");
    assert_eq!(failures, 0.0, "no flow moves because its path did");
}

#[test]
fn a_relay_takes_over_from_a_direct_path_that_dies_before_the_holder_counts_as_failed() {
    let realm = Apart::start(Lab::new(), &[OPEN]);
    let between = realm.lab.between(&realm.client.host, &realm.holder.host);
    realm.mend();
    let transfer = realm.start_transfer(Direction::Down, 40_000_000);

    between.cut();
    let transferred = transfer.end_within(TRANSFER_LIMIT);

    assert!(
        transferred.is_whole(),
        "longest pause {:?}",
        transferred.longest_pause
    );
    realm.assert_relayed(&[0]);
    let failures = realm.client.anchor.metric("anchor_holder_failures_total");
    assert_eq!(failures, 0.0);
}

#[test]
fn a_relay_that_falls_silent_is_replaced_by_another() {
    let realm = Apart::start(Lab::new(), &[OPEN, OPEN]);
    realm.assert_relayed(&[0, 1]);
    let used = realm.relays_in_use()[0].clone().unwrap();
    let silent = realm
        .relays
        .iter()
        .position(|relay| relay.id() == used)
        .unwrap();

    realm.lab.around(realm.relays[silent].host()).cut();

    wait::until(SETTLE_LIMIT, "an answer by the other relay", || {
        realm.client.get().is_ok()
    });
    realm.assert_relayed(&[1 - silent]);
}

#[test]
fn a_relay_carries_for_anchors_with_which_it_may_exchange_no_data() {
    // What the relay has, the client and the holder; with whom the relay may exchange data.
    let table = [
        (["--taint c", "--taint a", "--taint a"], [false, false]),
        (
            ["--taint a", "--taint a --taint b", "--taint b"],
            [true, false],
        ),
    ];
    for ([relay, client, holder], may_exchange) in table {
        let realm = Apart::start_with(Lab::new(), &[relay], [client, holder]);

        realm.assert_relayed(&[0]);
        let answer = realm.client.get().unwrap();
        let up = realm.transfer(Direction::Up, 4_000_000);

        assert_eq!(answer.trim(), "b");
        assert!(up, "whole, checksums equal");
        let relay = &realm.relays[0];
        assert!(relay.metric("anchor_relayed_bytes_total") > 4_000_000.0);
        let rows = relay.peers();
        let data = [&realm.client.anchor, &realm.holder.anchor].map(|end| {
            let row = rows.iter().find(|row| row.anchor == end.id()).unwrap();
            row.data
        });
        assert_eq!(data, may_exchange.map(Some), "{rows:?}");
        let route = relay.route(SHARED_NETWORK);
        assert!(route.is_none(), "the relay reaches the address: {route:?}");
    }
}

#[test]
fn a_relay_that_doubles_garbles_and_delays_corrupts_nothing() {
    let realm = Apart::start(Lab::new(), &[OPEN]);
    realm.assert_relayed(&[0]);

    realm.lab.around(realm.relays[0].host()).change(|way| {
        way.doubled = 0.2;
        way.garbled = 0.01;
        way.delay = Duration::from_millis(3);
        way.jitter = Duration::from_millis(3);
    });
    let down = realm.transfer(Direction::Down, 2_000_000);
    let up = realm.transfer(Direction::Up, 2_000_000);

    assert!(down && up, "whole, checksums equal");
    realm.assert_relayed(&[0]);
    let failures = realm.client.anchor.metric("anchor_holder_failures_total");
    assert_eq!(failures, 0.0);
    // A wrong bit in an outer header ends at the relay; one further in, at the end it is for.
    let (relay, client, holder) = (&realm.relays[0], &realm.client, &realm.holder);
    for (anchor, reason) in [
        (relay, "replayed"),
        (relay, "not-authentic"),
        (&client.anchor, "not-authentic"),
        (&holder.anchor, "not-authentic"),
    ] {
        let name = format!("anchor_dropped_packets{{reason=\"{reason}\"}}");
        let what = format!("something {reason} at {}", anchor.host().name());
        wait::until(TRANSFER_LIMIT, &what, || {
            client.get().unwrap();
            anchor.metric(&name) > 0.0
        });
    }
}

#[test]
fn a_relay_carries_nearly_half_of_what_a_direct_path_does_on_one_machine() {
    /// A few seconds' worth for programs that are not optimised.
    const BYTES: u64 = 400_000_000;
    let realm = Apart::start(Lab::at_kernel_speed(), &[OPEN]);
    let measure = || {
        let transfer = realm.start_transfer(Direction::Down, BYTES);
        let transferred = transfer.end_within(TRANSFER_LIMIT);
        assert!(transferred.is_whole());
        transferred.megabits_per_second()
    };

    realm.assert_relayed(&[0]);
    let relayed = [measure(), measure(), measure()];
    realm.mend();
    let direct = [measure(), measure(), measure()];

    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let ratio = best(&relayed) / best(&direct);
    println!("Mbit/s by the relay {relayed:.0?}, directly {direct:.0?}, ratio {ratio:.2}");
    assert!(ratio >= 0.45, "{ratio:.2}: {relayed:?} of {direct:?}");
}

fn reach_of(anchor: &Anchor, peer: &str) -> String {
    let rows = anchor.peers_raw();
    let row = rows.iter().find(|row| row["anchor"] == peer).unwrap();
    row["reach"].as_str().unwrap().to_owned()
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
