//! `conflux down`: clients are told, and nobody waits.

use std::time::{Duration, Instant};

use e2e::scenario::{Fault, Plan, Realm, SHARED_NETWORK, at, port};
use e2e::wait;
use e2e::work::{Download, Reader};

/// The bar for the next success after a leave.
const AT_ONCE: Duration = Duration::from_millis(100);

#[test]
fn after_down_the_next_request_succeeds_within_100_ms() {
    let mut realm = Realm::start(&Plan::usual());

    for _ in 0..2 {
        let noticed = Fault::Down.watch(&mut realm);

        assert!(noticed.failed <= 1, "{noticed:?}");
        assert!(
            noticed.longest_wait.is_some_and(|wait| wait < AT_ONCE),
            "{noticed:?}"
        );
        assert_ne!(
            noticed.next_holder.as_ref(),
            Some(&noticed.holder),
            "{noticed:?}"
        );
        assert!(!noticed.is_listed, "{noticed:?}");
        let place = realm.place_of(&noticed.holder);
        Fault::Down.undo(&mut realm, place);
        realm.settle();
    }
}

#[test]
fn after_down_every_open_connection_is_reset_at_once_though_silent() {
    let mut realm = Realm::start(&Plan::of(3, 1));
    let client = &realm.clients[0];
    let holder = client.get().unwrap();
    let silent = Reader::start(&client.host, at(port::SILENT)).unwrap();
    let download = Download::start(&client.host, at(port::ENDLESS)).unwrap();
    wait::until(Duration::from_secs(5), "the download to run", || {
        download.bytes() > 100_000
    });
    let place = realm.place_of(&holder);

    let began = Instant::now();
    Fault::Down.strike(&mut realm, place);
    let (after, read) = silent.released(began, Duration::from_secs(5));

    assert!(is_reset(&read), "{read:?}");
    // The reset may be spread over 200 ms; the command itself takes a moment to be heard.
    assert!(after < Duration::from_millis(400), "{after:?}");
    wait::until(Duration::from_secs(1), "the download to end", || {
        download.ended().is_some()
    });
}

#[test]
fn after_down_the_holder_is_gone_from_routes_and_peers_of_every_client() {
    let mut realm = Realm::start(&Plan::usual());
    let gone = realm.holders[2].anchor.id().to_owned();

    Fault::Down.strike(&mut realm, 2);

    for client in &realm.clients {
        wait::until(Duration::from_millis(500), "the holder to be gone", || {
            let row = client.anchor.route(SHARED_NETWORK).expect("two are left");
            let peers = client.anchor.peers();
            !row.via.contains(&gone) && peers.iter().all(|peer| peer.anchor != gone)
        });
    }
}

#[test]
fn sigterm_says_goodbye_too() {
    let mut realm = Realm::start(&Plan::of(2, 1));
    let holder = realm.clients[0].get().unwrap();
    let place = realm.place_of(&holder);

    let began = Instant::now();
    realm.holders[place]
        .anchor
        .signal(nix::sys::signal::Signal::SIGTERM);
    let code = realm.holders[place]
        .anchor
        .ended_within(Duration::from_secs(3));
    let next = realm.clients[0].get().unwrap();

    assert_eq!(code, Some(0));
    assert_ne!(next, holder);
    assert!(
        began.elapsed() < Duration::from_millis(1500),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn after_the_last_holder_left_a_new_connection_is_refused_at_once() {
    let mut realm = Realm::start(&Plan::of(1, 1));
    realm.clients[0].get().unwrap();

    Fault::Down.strike(&mut realm, 0);
    let began = Instant::now();
    let answer = realm.clients[0].get();

    assert!(answer.is_err());
    assert!(
        began.elapsed() < Duration::from_millis(200),
        "{answer:?} {:?}",
        began.elapsed()
    );
}

fn is_reset(read: &std::io::Result<usize>) -> bool {
    matches!(read, Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
}
