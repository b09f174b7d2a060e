//! `explain`: why a flow is where it is, on a client as its user would ask.

use std::time::Duration;

use e2e::scenario::{Fault, Holder, Plan, Realm};
use e2e::wait;
use serde_json::Value;

#[test]
fn a_flow_is_explained_in_both_spellings_and_by_the_overlay_address() {
    let realm = Realm::start(&Plan::usual());
    let client = &realm.clients[0];
    let holder = client.get().unwrap();
    let place = realm.place_of(&holder);

    let four = explain(&realm, "10.128.0.9");
    let six = explain(&realm, "64:ff9b:1::a80:9");
    let overlay = realm.holders[place].anchor.overlay().to_string();
    let alone = explain(&realm, &overlay);

    for told in [&four, &six] {
        assert_eq!(told["version"], 1);
        assert_eq!(told["destination"], "10.128.0.9");
        assert_eq!(told["next"], "stays");
        assert_eq!(told["flow"]["reason"], "new");
        let id = told["flow"]["holder"].as_str().unwrap();
        assert_eq!(realm.name_of(id), holder);
        let holders = told["holders"].as_array().unwrap();
        let shares: Vec<f64> = holders
            .iter()
            .map(|row| row["share"].as_f64().unwrap())
            .collect();
        assert_eq!(shares.len(), 3, "{told}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{told}");
        let used: Vec<&Value> = holders.iter().filter(|row| row["in_use"] == true).collect();
        assert_eq!(used.len(), 1, "{told}");
        assert_eq!(used[0]["anchor"], id);
    }
    assert_eq!(alone["holders"].as_array().unwrap().len(), 1, "{alone}");
    let text = client.anchor.say(["explain", "10.128.0.9"]);
    for part in [
        "this machine -> 10.128.0.9",
        "drawn for its first packet",
        "HOLDER",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn a_flow_that_moved_and_the_holder_it_left_are_explained() {
    let mut realm = Realm::start(&Plan::of(3, 1));
    let holder = realm.clients[0].get().unwrap();
    let place = realm.place_of(&holder);
    let id = realm.holders[place].anchor.id().to_owned();

    Fault::Kill.strike(&mut realm, place);
    wait::until(Duration::from_secs(5), "the flow to move", || {
        realm.clients[0].get().is_ok_and(|name| name != holder)
    });

    let told = explain(&realm, "10.128.0.9");
    assert_eq!(told["flow"]["reason"], "failed", "{told}");
    let left = row(&told, &id);
    assert_eq!(left["excluded"], "failed", "{told}");
    assert!(left["share"].is_null(), "{told}");
}

#[test]
fn a_flow_that_stays_though_others_joined_says_so() {
    let mut realm = Realm::start(&Plan::of(1, 1));
    realm.clients[0].get().unwrap();
    let host = realm.lab.host("late");
    let late = Holder::start(&host, Some(&realm.ticket));
    let id = late.anchor.id().to_owned();
    realm.holders.push(late);
    realm.settle();

    let told = explain(&realm, "10.128.0.9");

    assert_eq!(told["next"], "stays", "{told}");
    assert_eq!(told["flow"]["reason"], "single", "{told}");
    assert!(row(&told, &id)["share"].as_f64().unwrap() > 0.0, "{told}");
}

#[test]
fn an_empty_group_is_explained() {
    let mut realm = Realm::start(&Plan::of(1, 1));
    realm.clients[0].get().unwrap();

    Fault::Kill.strike(&mut realm, 0);
    wait::until(
        Duration::from_secs(8),
        "the flow to lose its holder",
        || {
            let _ = realm.clients[0].get();
            explain(&realm, "10.128.0.9")["flow"]["holder"].is_null()
        },
    );

    let told = explain(&realm, "10.128.0.9");
    assert_eq!(told["next"], "unreachable", "{told}");
    assert_eq!(told["holders"][0]["excluded"], "failed", "{told}");
    let text = realm.clients[0].anchor.say(["explain", "10.128.0.9"]);
    assert!(text.contains("ICMP host unreachable"), "{text}");
}

#[test]
fn addresses_that_cannot_be_explained_are_told_apart() {
    let realm = Realm::start(&Plan::of(1, 1));
    let anchor = &realm.clients[0].anchor;

    for (address, code, word) in [
        ("10.9.9.9", 1, "nobody advertises 10.9.9.9"),
        ("8.8.8.8", 2, "public address"),
        ("198.18.3.4", 2, "198.18.0.0/15"),
        ("127.0.0.1", 2, "loopback"),
        ("2001:db8::1", 2, "neither an overlay address"),
        ("fe80::1", 2, "neither an overlay address"),
        ("64:ff9b:1::a09:909", 1, "nobody advertises 10.9.9.9"),
        ("printer.example", 2, "not an IP address"),
    ] {
        let answer = anchor.cli(["explain", address]);

        assert_eq!(answer.code, code, "{address}: {answer:?}");
        assert!(answer.stderr.contains(word), "{address}: {answer:?}");
        assert!(answer.stdout.is_empty(), "{address}: {answer:?}");
    }
    let stranger = anchor.cli(["explain", "10.128.0.9", "--from", "192.168.77.1"]);
    assert_eq!(stranger.code, 2, "{stranger:?}");
    assert!(
        stranger.stderr.contains("--from 192.168.77.1"),
        "{stranger:?}"
    );
    let on_holder = realm.holders[0].anchor.json_of(["explain", "10.128.0.9"]);
    assert_eq!(on_holder["next"], "local", "{on_holder}");
}

fn explain(realm: &Realm, address: &str) -> Value {
    realm.clients[0].anchor.json_of(["explain", address])
}

fn row<'a>(told: &'a Value, id: &str) -> &'a Value {
    let holders = told["holders"].as_array().expect("a list");
    let found = holders.iter().find(|row| row["anchor"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {told}"))
}
