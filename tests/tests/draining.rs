//! `drain` and `undrain`: a holder taken out of service, and nobody notices.

use std::time::Duration;

use e2e::scenario::{ANSWER_LIMIT, Plan, Realm, at, port};
use e2e::wait;
use e2e::work::{Download, Requests, ask_udp};

/// A drain is told to clients and answered by them within this.
const TOLD: Duration = Duration::from_secs(5);

#[test]
fn a_draining_holder_is_left_without_a_failed_request_and_stays_out_until_undrain() {
    let mut realm = Realm::start(&Plan::usual());
    let requests: Vec<Requests> = realm
        .clients
        .iter()
        .map(|client| Requests::start(&client.host, None, at(port::HTTP), 20))
        .collect();
    let place = realm.place_of(&requests[0].answered_by());
    let name = realm.holders[place].host.name().to_owned();

    let drained = realm.holders[place].anchor.cli(["drain", "--wait", "5s"]);
    assert_eq!(drained.code, 0, "{drained:?}");
    for client in &requests {
        assert_ne!(client.answered_by(), name);
    }

    // The wish outlives a restart.
    realm.holders[place].anchor.down();
    realm.holders[place].anchor.run();
    realm.settle();
    assert!(
        status(&realm, place)["drain"]["draining"]
            .as_bool()
            .unwrap()
    );
    for client in &requests {
        assert_ne!(client.answered_by(), name);
    }
    realm.holders[place].anchor.say(["undrain"]);
    assert!(status(&realm, place)["drain"].is_null());

    for client in requests {
        let log = client.stop();
        assert!(log.failed().is_empty(), "{log:?}");
    }
}

#[test]
fn an_open_connection_keeps_a_drain_waiting_and_is_not_broken() {
    let realm = Realm::start(&Plan::of(2, 1));
    let client = &realm.clients[0];
    let download = Download::start(&client.host, at(port::ENDLESS)).unwrap();
    let id = wait::until_some(TOLD, "a flow", || client.holder_id());
    let place = realm.place_of(realm.name_of(&id));
    let anchor = &realm.holders[place].anchor;

    let waited = anchor.cli(["drain", "--wait", "3s"]);

    assert_eq!(waited.code, 1, "{waited:?}");
    let told = client.anchor.id();
    assert!(waited.stderr.contains(&told[..10]), "{waited:?}");
    assert!(waited.stderr.contains("(1)"), "{waited:?}");
    assert!(download.ended().is_none());
    // New connections of that flow stay with it too: a flow never has two holders.
    assert_eq!(client.get().unwrap(), realm.name_of(&id));
    let explained = client.anchor.json_of(["explain", "10.128.0.9"]);
    assert_eq!(explained["next"], "stays-while-busy", "{explained}");
    assert!(
        client
            .anchor
            .peers_raw()
            .iter()
            .any(|peer| peer["draining"] == true)
    );

    drop(download);
    wait::until(TOLD, "the drain to be over", || {
        anchor.json_of(["drain"])["empty"] == true
    });
    assert_ne!(client.get().unwrap(), realm.name_of(&id));
}

#[test]
fn datagrams_keep_a_drain_waiting_as_well() {
    let realm = Realm::start(&Plan::of(2, 1));
    let client = &realm.clients[0];
    let by = ask_udp(&client.host, None, at(port::WHO), ANSWER_LIMIT).unwrap();
    let anchor = &realm.holders[realm.place_of(&by)].anchor;

    let waited = anchor.cli(["drain", "--wait", "3s"]);

    assert_eq!(waited.code, 1, "{waited:?}");
    let again = ask_udp(&client.host, None, at(port::WHO), ANSWER_LIMIT).unwrap();
    assert_eq!(again, by);
}

#[test]
fn when_all_holders_drain_they_serve_as_before() {
    let realm = Realm::start(&Plan::of(2, 1));
    for holder in &realm.holders {
        holder.anchor.say(["drain"]);
    }
    let client = &realm.clients[0];
    wait::until(TOLD, "both to drain", || {
        let peers = client.anchor.peers_raw();
        peers.iter().filter(|peer| peer["draining"] == true).count() == 2
    });

    let holder = client.get().unwrap();

    let explained = client.anchor.say(["explain", "10.128.0.9"]);
    assert!(explained.contains("drains, as all do"), "{explained}");
    assert_eq!(client.get().unwrap(), holder);
}

#[test]
fn an_anchor_that_holds_nothing_has_nothing_to_drain() {
    let realm = Realm::start(&Plan::of(1, 1));
    let anchor = &realm.clients[0].anchor;

    let refused = anchor.cli(["drain"]);
    let nothing = anchor.say(["undrain"]);

    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("holds nothing"), "{refused:?}");
    assert!(
        refused.stderr.contains("nothing was changed"),
        "{refused:?}"
    );
    assert!(nothing.contains("did not drain"), "{nothing}");
    let usage = anchor.cli(["drain", "--wait", "soon"]);
    assert_eq!(usage.code, 2, "{usage:?}");
}

fn status(realm: &Realm, place: usize) -> serde_json::Value {
    realm.holders[place].anchor.json("status")
}
