//! Near holders get more of the new flows, and how many is told in the contract.

use std::time::Duration;

use e2e::scenario::{DISTANCES, Plan, Realm, distant_realm, shares_of};
use e2e::{wait, work};

#[test]
fn round_trips_of_6_25_and_105_ms_share_3000_flows_as_promised() {
    let realm = distant_realm();

    let shares = shares_of(&realm, 3000);

    for (holder, (round_trip, wanted)) in realm.holders.iter().zip(DISTANCES) {
        let share = shares.get(holder.host.name()).copied().unwrap_or(0.0);
        assert!(
            (share - wanted).abs() <= 0.03,
            "{round_trip} ms got {share:.3}: {shares:?}"
        );
    }
}

#[test]
fn a_slow_service_gets_fewer_new_flows_and_keeps_its_old_ones() {
    let realm = Realm::start(&Plan::of(2, 1).with_lan());
    let lan = realm.clients[0].lan.as_ref().unwrap();
    let target = e2e::scenario::at(e2e::scenario::port::HTTP);
    let ask = |source| work::get(&lan.host, Some(source), target, Duration::from_secs(5)).unwrap();
    realm.holders[0].http.take(Duration::from_millis(200));

    let old = lan.addresses(1, 12);
    let before: Vec<String> = old.iter().map(|source| ask(*source)).collect();
    for source in &old {
        wait::pass(Duration::from_millis(300));
        ask(*source);
    }
    let new = lan.who_answers(&lan.addresses(1000, 200));
    let after: Vec<String> = old.iter().map(|source| ask(*source)).collect();

    let slow = new.iter().filter(|name| *name == "a").count();
    assert!(
        (1..60).contains(&slow),
        "{slow} of 200 new flows met the slow one"
    );
    assert_eq!(after, before);
}
