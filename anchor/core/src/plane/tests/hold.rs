//! First packets that wait for a holder to answer.

use std::net::SocketAddr;
use std::time::Duration;

use super::host::{ECHO, HTTP, payload, socket, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms};
use super::tcp::{Connection, Life};
use crate::plane::{DropReason, ToPeer};

/// Long enough for nobody to have been heard from lately; without flows nothing is sent.
const SILENCE: Duration = Duration::from_secs(60);

#[test]
fn a_first_packet_after_a_silence_waits_for_the_drawn_holders_answer() {
    for seed in 0..10 {
        let mut realm = Realm::of_holders(seed, 2);
        realm.pass(SILENCE);

        assert_eq!(realm.send(0, &hello()), ToPeer::Held);
        let drawn = realm.holder(0, SHARED).unwrap();
        realm.pass(ms(10));

        let answers = realm.take(0);
        assert_eq!(answers.len(), 1);
        assert_eq!(payload(&answers[0])[0], drawn as u8);
    }
}

#[test]
fn a_first_packet_goes_to_the_first_that_answers_when_the_drawn_one_is_dead() {
    for seed in 0..20 {
        let mut realm = Realm::of_holders(seed, 3);
        realm
            .delays
            .extend([((0, 1), ms(20)), ((0, 2), ms(30)), ((0, 3), ms(40))]);
        realm.pass(SILENCE);
        realm.send(0, &hello());
        let drawn = realm.holder(0, SHARED).unwrap();
        realm.kill(drawn);
        let first = (1..=3).find(|&holder| holder != drawn).unwrap();

        let sent_at = realm.now.mono;
        assert!(realm.pass_until(ms(1000), |realm| !realm.nodes[0].inbox.is_empty()));

        assert_eq!(payload(&realm.take(0)[0])[0], first as u8);
        let waited = realm.now.mono.since(sent_at);
        assert!(waited >= ms(200) && waited <= ms(350), "{waited:?}");
        assert_eq!(realm.holder(0, SHARED), Some(first));
    }
}

#[test]
fn a_connection_to_a_group_with_a_dead_holder_never_waits_two_seconds() {
    for seed in 0..20 {
        let mut realm = Realm::of_holders(seed, 2);
        realm.pass(SILENCE);
        realm.kill(1);

        let mut connection =
            Connection::begin(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
        realm.pass(ms(400));
        connection.take(&mut realm);

        assert_eq!(connection.life, Life::Open, "seed {seed}");
    }
}

/// The process is stopped while answers come: the witness's was read, the holder's lies in the
/// socket, and the timer fires before that is looked at.
#[test]
fn a_holder_whose_answer_lies_unread_does_not_fail() {
    let specs = vec![Spec::client(), Spec::holder(SHARED), Spec::client()];
    let mut realm = Realm::new(3, specs);
    realm.delays.extend([((0, 1), ms(100)), ((1, 0), ms(100))]);
    realm.pass(SILENCE);
    assert_eq!(realm.send(0, &hello()), ToPeer::Held);
    realm.pass(ms(50));

    realm.now = realm.now + ms(3000);
    let now = realm.now;
    realm.nodes[0].plane.handle_timeout(now);
    realm.settle();
    realm.pass(ms(500));

    assert_eq!(realm.nodes[0].plane.counters().holder_failures, 0);
    assert_eq!(payload(&realm.take(0)[0])[0], 1);
}

#[test]
fn packets_are_given_up_when_no_holder_answers_but_another_peer_does() {
    let mut realm = Realm::new(
        3,
        vec![Spec::client(), Spec::holder(SHARED), Spec::client()],
    );
    realm.pass(SILENCE);
    realm.kill(1);

    realm.send(0, &hello());
    realm.pass(ms(1900));
    assert!(realm.take(0).is_empty());
    realm.pass(ms(200));

    let refused = realm.take(0);
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0][20..22], [3, 1]);
    assert_eq!(realm.holder(0, SHARED), None);
    assert_eq!(realm.nodes[0].plane.counters().holder_failures, 1);
}

#[test]
fn a_holder_never_met_that_does_not_answer_is_given_up_too() {
    let mut realm = Realm::unconnected(
        3,
        vec![Spec::client(), Spec::holder(SHARED), Spec::client()],
    );
    realm.answers_handshakes = false;
    realm.handshake(0, 2);
    realm.pass(SILENCE);

    realm.send(0, &hello());
    realm.pass(ms(2200));
    let refused = realm.take(0);
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0][20..22], [3, 1]);

    realm.answers_handshakes = true;
    realm.handshake(0, 1);
    realm.pass(ms(5000));
    realm.send(0, &hello());
    realm.pass(ms(500));
    assert_eq!(payload(&realm.take(0)[0])[0], 1);
}

#[test]
fn a_first_packet_makes_a_session_when_there_is_none() {
    let mut realm = Realm::unconnected(3, vec![Spec::client(), Spec::holder(SHARED)]);

    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));

    assert_eq!(connection.ask(&mut realm), Some(1));
}

#[test]
fn a_fault_of_our_own_network_sends_what_waited_to_the_drawn_holder() {
    let mut realm = Realm::of_holders(3, 2);
    realm.pass(SILENCE);
    realm.loss = 1.0;

    realm.send(0, &hello());
    let drawn = realm.holder(0, SHARED).unwrap();
    realm.pass(ms(1990));
    realm.loss = 0.0;
    realm.pass(ms(200));

    assert_eq!(realm.holder(0, SHARED), Some(drawn));
    assert_eq!(payload(&realm.take(0)[0])[0], drawn as u8);
    assert_eq!(realm.nodes[0].plane.counters().holder_failures, 0);
}

#[test]
fn what_waits_for_a_leaver_goes_to_another_holder_at_once() {
    for seed in 0..10 {
        let mut realm = Realm::of_holders(seed, 2);
        realm.pass(SILENCE);
        realm.send(0, &hello());
        let drawn = realm.holder(0, SHARED).unwrap();

        realm.leave(drawn);
        realm.pass(ms(50));

        let answers = realm.take(0);
        assert_eq!(answers.len(), 1, "seed {seed}");
        assert_eq!(payload(&answers[0])[0], 3 - drawn as u8);
    }
}

#[test]
fn what_waited_does_not_go_to_one_that_answered_and_left() {
    for seed in 0..10 {
        let mut realm = Realm::of_holders(seed, 3);
        realm.pass(SILENCE);
        realm.send(0, &hello());
        let drawn = realm.holder(0, SHARED).unwrap();
        let (first, second) = (drawn % 3 + 1, (drawn + 1) % 3 + 1);
        realm.kill(drawn);
        realm.delays.insert((0, second), ms(20));
        realm.pass(ms(100));

        realm.leave(first);
        realm.pass(ms(400));

        assert_eq!(realm.holder(0, SHARED), Some(second), "seed {seed}");
        assert_eq!(payload(&realm.take(0)[0])[0], second as u8);
    }
}

#[test]
fn packets_behind_a_first_one_wait_in_order_and_not_without_bound() {
    let mut realm = Realm::of_holders(4, 2);
    realm.pass(SILENCE);

    for number in 0..20_u8 {
        let datagram = udp_packet(socket("192.0.0.2", 9), shared(ECHO), &[9, number]);
        realm.send(0, &datagram);
    }
    realm.pass(ms(10));

    let answers = realm.take(0);
    let numbers: Vec<u8> = answers.iter().map(|bytes| payload(bytes)[1]).collect();
    assert_eq!(numbers, (0..16).collect::<Vec<u8>>());
    assert_eq!(realm.dropped(0, DropReason::HoldFull), 4);
}

#[test]
fn thousands_of_flows_that_wait_all_go_on() {
    let mut specs = vec![Spec::client().with_subnet("10.1.0.0/16")];
    specs.resize(3, Spec::holder(SHARED));
    let mut realm = Realm::new(4, specs);
    realm.pass(SILENCE);

    for host in 1..=5000_u32 {
        let source = std::net::Ipv4Addr::from_bits(0x0a01_0000 + host);
        realm.send(0, &udp_packet((source, 9).into(), shared(ECHO), b"x"));
    }
    realm.pass(ms(100));

    assert_eq!(realm.take(0).len(), 5000);
}

#[test]
fn each_dead_holder_fails_once_however_many_flows_wait() {
    let spec = Spec::client().with_subnet("10.1.0.0/16");
    let holder = || Spec::holder(SHARED);
    let mut realm = Realm::new(4, vec![spec, holder(), holder(), Spec::client()]);
    realm.pass(SILENCE);
    realm.kill(1);
    realm.kill(2);

    for host in 1..=40 {
        let source = std::net::Ipv4Addr::new(10, 1, 0, host);
        realm.send(0, &udp_packet((source, 9).into(), shared(ECHO), b"x"));
        realm.pass(ms(10));
    }
    realm.pass(ms(3000));

    assert_eq!(realm.take(0).len(), 40, "each is told");
    assert_eq!(realm.nodes[0].plane.counters().holder_failures, 2);
}

fn hello() -> Vec<u8> {
    udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello")
}

fn shared(port: u16) -> SocketAddr {
    (SHARED, port).into()
}
