//! Holders that come back, and new ones: they take new flows and leave the old ones alone.

use e2e::scenario::{Fault, Holder, Plan, Realm};

#[test]
fn a_returned_holder_gets_none_of_its_old_flows_and_some_new_ones() {
    for fault in [Fault::Kill, Fault::Down] {
        let mut realm = Realm::start(&Plan::of(3, 1).with_lan());
        let hosts = lan(&realm).addresses(1, 40);
        let first = lan(&realm).who_answers(&hosts);
        let place = realm.place_of(&first[0]);
        let name = first[0].clone();

        fault.strike(&mut realm, place);
        let moved = lan(&realm).who_answers(&hosts);
        fault.undo(&mut realm, place);
        realm.settle();
        let after = lan(&realm).who_answers(&hosts);
        let new = lan(&realm).who_answers(&lan(&realm).addresses(1000, 40));

        assert!(!moved.contains(&name), "{fault}: {moved:?}");
        assert_eq!(after, moved, "{fault}: an old flow went back");
        assert!(
            new.contains(&name),
            "{fault}: no new flow for {name}: {new:?}"
        );
    }
}

#[test]
fn a_new_holder_of_a_running_group_gets_some_new_flows_and_no_old_ones() {
    let mut realm = Realm::start(&Plan::of(2, 1).with_lan());
    let hosts = lan(&realm).addresses(1, 40);
    let before = lan(&realm).who_answers(&hosts);

    let host = realm.lab.host("new");
    let holder = Holder::start(&host, Some(&realm.ticket));
    realm.holders.push(holder);
    realm.settle();
    let after = lan(&realm).who_answers(&hosts);
    let new = lan(&realm).who_answers(&lan(&realm).addresses(1000, 40));

    assert_eq!(after, before, "an old flow moved");
    assert!(new.iter().any(|name| name == "new"), "{new:?}");
}

fn lan(realm: &Realm) -> &e2e::scenario::Lan {
    realm.clients[0].lan.as_ref().expect("the plan has a LAN")
}
