//! Holders that fail without a word: killed, cut off either way, stopped.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use e2e::scenario::{
    ANSWER_LIMIT, Fault, Noticed, Plan, Realm, SHARED_NETWORK, Talk, at, connect_across_a_kill,
    leave_alone, port, release_reader,
};
use e2e::wait;
use e2e::work::{self, Download, Requests};

/// The bar: two seconds since the oldest unanswered packet, and half a second for the rest. A
/// packet counts as unanswered from when it was sent, up to 200 ms (the keepalive's delay) before
/// the fault itself.
const BAR: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1800)..=Duration::from_millis(2500);

/// The bar of a silent reader: probed each 5 s, then two seconds, then the reset.
const SILENT_BAR: Duration = Duration::from_millis(7500);

#[test]
fn a_killed_holder_is_left_within_two_and_a_half_seconds() {
    fails_over(Fault::Kill);
}

#[test]
fn a_cut_holder_is_left_within_two_and_a_half_seconds() {
    fails_over(Fault::Cut);
}

#[test]
fn a_holder_that_hears_nothing_is_left_though_its_packets_keep_coming() {
    fails_over(Fault::Deaf);
}

#[test]
fn a_holder_that_cannot_be_heard_is_left_within_two_and_a_half_seconds() {
    fails_over(Fault::Mute);
}

#[test]
fn a_stopped_holder_is_left_within_two_and_a_half_seconds() {
    fails_over(Fault::Stop);
}

#[test]
fn only_the_flows_of_the_failed_holder_move() {
    let mut realm = Realm::start(&Plan::of(3, 1).with_lan());
    let hosts = realm.clients[0].lan.as_ref().unwrap().addresses(1, 30);
    let before = realm.clients[0].lan.as_ref().unwrap().who_answers(&hosts);
    let failed = before[0].clone();
    let place = realm.place_of(&failed);

    Fault::Kill.strike(&mut realm, place);
    let after = realm.clients[0].lan.as_ref().unwrap().who_answers(&hosts);

    for ((before, after), host) in before.iter().zip(&after).zip(&hosts) {
        if *before == failed {
            assert_ne!(*after, failed, "{host} still meets the dead one");
        } else {
            assert_eq!(after, before, "{host} moved for nothing");
        }
    }
}

#[test]
fn of_two_holders_one_failed_ends_the_group_and_stays_listed() {
    let mut realm = Realm::start(&Plan::of(2, 1));

    let noticed = Fault::Kill.watch(&mut realm);

    assert_eq!(noticed.route_groups, (1.0, 0.0), "{noticed:?}");
    assert!(noticed.is_listed, "{noticed:?}");
}

#[test]
fn a_single_holder_that_fails_resets_and_refuses_and_is_back_within_a_second() {
    for fault in [Fault::Cut, Fault::Kill] {
        let mut realm = Realm::start(&Plan::of(1, 1));

        let alone = leave_alone(&mut realm, fault);

        let (kind, took) = alone.refused;
        assert!(alone.released.is_reset(), "{fault}: {alone:?}");
        assert!(BAR.contains(&alone.released.after), "{fault}: {alone:?}");
        assert_eq!(kind, Some(ErrorKind::HostUnreachable), "{fault}: {alone:?}");
        assert!(took < Duration::from_millis(100), "{fault}: {alone:?}");
        assert!(
            alone.well_after <= Duration::from_secs(1),
            "{fault}: {alone:?}"
        );
    }
}

#[test]
fn a_reader_with_a_request_in_flight_is_reset_with_the_failure() {
    let mut realm = Realm::start(&Plan::of(3, 1));

    let (_, released) = release_reader(&mut realm, Fault::Kill, Talk::JustAsked);

    assert!(
        released.is_reset() && BAR.contains(&released.after),
        "{released:?}"
    );
}

#[test]
fn a_silent_reader_is_reset_within_seven_and_a_half_seconds() {
    let mut realm = Realm::start(&Plan::of(3, 1));

    let (_, released) = release_reader(&mut realm, Fault::Kill, Talk::Silent);

    assert!(
        released.is_reset() && released.after <= SILENT_BAR,
        "{released:?}"
    );
}

#[test]
fn a_connect_begun_just_before_the_failure_completes_without_a_step_of_three_seconds() {
    let mut realm = Realm::start(&Plan::of(3, 1));

    let (connected, took) = connect_across_a_kill(&mut realm);

    connected.unwrap();
    assert!(took <= *BAR.end(), "connect() took {took:?}");
}

#[test]
fn a_connect_begun_just_before_the_only_holder_fails_is_refused_with_it() {
    let mut realm = Realm::start(&Plan::of(1, 1));

    let (connected, took) = connect_across_a_kill(&mut realm);

    let kind = connected.expect_err("nobody is left").kind();
    assert_eq!(kind, ErrorKind::HostUnreachable);
    assert!(BAR.contains(&took), "connect() took {took:?}");
}

#[test]
fn a_download_from_another_holder_is_untouched_by_a_failure() {
    let mut realm = Realm::start(&Plan::of(2, 2));
    let first = realm.clients[0].get().unwrap();
    let overlay = realm.holders[1 - realm.place_of(&first)].anchor.overlay();
    let target = std::net::SocketAddr::new(overlay.into(), port::ENDLESS);
    let download = Download::start(&realm.clients[1].host, target).unwrap();
    let place = realm.place_of(&first);

    let noticed_from = Requests::start(&realm.clients[0].host, None, at(port::HTTP), 10);
    Fault::Kill.strike(&mut realm, place);
    let moved = noticed_from.next_success(Instant::now(), Duration::from_secs(5));
    let bytes = download.bytes();
    wait::until(Duration::from_secs(2), "more of the download", || {
        download.bytes() > bytes
    });

    assert!(moved.is_some());
    assert_eq!(download.ended(), None);
}

#[test]
fn a_restart_within_the_deadline_keeps_flow_and_client_address() {
    let mut realm = Realm::start(&Plan::of(3, 1));
    let client = realm.clients[0].host.clone();
    let holder = realm.clients[0].get().unwrap();
    let place = realm.place_of(&holder);
    let seen_before = realm.holders[place].http.seen();

    Fault::Kill.strike(&mut realm, place);
    Fault::Kill.undo(&mut realm, place);
    let answers: Vec<_> = (0..5)
        .map(|_| work::get(&client, None, at(port::HTTP), ANSWER_LIMIT))
        .collect();

    assert!(
        answers
            .iter()
            .all(|answer| answer.as_ref().ok() == Some(&holder)),
        "{answers:?}"
    );
    let seen = realm.holders[place].http.seen();
    assert!(seen.iter().all(|from| *from == seen_before[0]), "{seen:?}");
}

/// Two rounds of a fault, each bar asserted.
fn fails_over(fault: Fault) {
    let mut realm = Realm::start(&Plan::usual());
    for _ in 0..2 {
        let noticed = fault.watch(&mut realm);

        assert_bars(fault, &noticed);
        let row = realm.clients[1]
            .anchor
            .route(SHARED_NETWORK)
            .expect("the network is known");
        assert_eq!(row.via.len(), 3, "others do not hear of it");
        let place = realm.place_of(&noticed.holder);
        fault.undo(&mut realm, place);
        realm.settle();
    }
}

fn assert_bars(fault: Fault, noticed: &Noticed) {
    let next = noticed.next_success.unwrap_or(Duration::MAX);
    assert!(
        BAR.contains(&next),
        "{fault}: next success after {next:?}\n{noticed:?}"
    );
    assert_ne!(
        noticed.next_holder.as_ref(),
        Some(&noticed.holder),
        "{fault}: {noticed:?}"
    );
    assert!(
        noticed.is_listed,
        "{fault}: no longer in routes\n{noticed:?}"
    );
}
