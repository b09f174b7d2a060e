//! Bad networks move nothing: a second of silence, a tenth of all packets lost.

use std::time::Duration;

use e2e::scenario::{Plan, Realm, Staying};
use e2e::wait;

#[test]
fn a_second_of_total_loss_moves_nothing() {
    let realm = Realm::start(&Plan::of(3, 1));
    let staying = Staying::start(&realm);

    for _ in 0..3 {
        let client = &realm.clients[0].host;
        realm.lab.around(client).cut();
        wait::pass(Duration::from_secs(1));
        realm.lab.around(client).mend();
        let bytes = staying.look(&realm).bytes;
        wait::until(Duration::from_secs(8), "the download to go on", || {
            staying.look(&realm).bytes > bytes + 100_000
        });
    }

    let stayed = staying.look(&realm);
    assert!(stayed.is_calm(), "{stayed:?}");
}

#[test]
fn a_tenth_of_all_packets_lost_moves_nothing() {
    let realm = Realm::start(&Plan::of(3, 1));
    let staying = Staying::start(&realm);
    let before = staying.look(&realm);

    realm.lab.everywhere().change(|way| way.loss = 0.1);
    wait::pass(Duration::from_secs(25));

    let stayed = staying.look(&realm);
    assert!(stayed.is_calm(), "{stayed:?}");
    assert!(stayed.bytes > before.bytes, "{stayed:?}");
    let arrived: usize = stayed.arrived.values().sum();
    let share = arrived as f64 / stayed.sent as f64;
    assert!(
        (0.85..0.95).contains(&share),
        "{share:.3} arrived: {stayed:?}"
    );
}

#[test]
fn one_way_datagrams_alone_never_make_a_holder_look_dead() {
    let realm = Realm::start(&Plan::of(2, 1));
    let sender = e2e::work::OneWay::start(
        &realm.clients[0].host,
        e2e::scenario::at(e2e::scenario::port::SINK),
        Duration::from_millis(50),
    );

    wait::pass(Duration::from_secs(8));

    let met: Vec<usize> = realm
        .holders
        .iter()
        .map(|holder| holder.sink.arrived().len())
        .collect();
    assert_eq!(met.iter().filter(|count| **count > 0).count(), 1, "{met:?}");
    assert_eq!(sender.errors(), 0);
    assert!(
        realm.clients[0]
            .anchor
            .peers()
            .iter()
            .all(|peer| !peer.failed)
    );
}
