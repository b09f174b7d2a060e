//! Chosen ports: what is let in from peers, and what answers are for.

use std::net::{IpAddr, SocketAddr};

use super::host::{ECHO, HTTP, parse, ping, socket, udp_packet};
use super::realm::{Realm, SHARED, ms};
use super::tcp::{Connection, Life};
use crate::plane::{DropReason, OWN_HOST};

#[test]
fn only_chosen_ports_are_let_in() {
    let mut realm = exposing("tcp:80");
    let mut open = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    assert_eq!(open.ask(&mut realm), Some(1));

    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 40_000), shared(ECHO), b"x"),
    );
    realm.pass(ms(50));

    assert_eq!(realm.dropped(1, DropReason::NotExposed), 1);
    let told = parse(&realm.take(0)[0]);
    assert_eq!(told.source, IpAddr::V4(SHARED), "the client is told");
    assert_eq!(open.ask(&mut realm), Some(1), "what is let in goes on");
}

#[test]
fn what_is_not_let_in_takes_no_client_address() {
    let mut realm = exposing("tcp:81");
    let mut shut = Connection::begin(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    realm.pass(ms(400));
    shut.take(&mut realm);

    assert_eq!(shut.life, Life::Syn);
    assert_eq!(realm.dropped(1, DropReason::NotExposed), 1);
    assert!(realm.nodes[1].plane.clients().is_empty());
}

#[test]
fn chosen_ports_hold_for_the_overlay_address_too() {
    for (opening, life) in [("tcp:80", Life::Open), ("tcp:81", Life::Syn)] {
        let mut realm = exposing(opening);
        let own = SocketAddr::new(realm.nodes[0].overlay().into(), 40_000);
        let service = SocketAddr::new(realm.nodes[1].overlay().into(), HTTP);

        let mut connection = Connection::begin(&mut realm, 0, own, service);
        realm.pass(ms(400));
        connection.take(&mut realm);

        assert_eq!(connection.life, life, "{opening}");
    }
}

#[test]
fn answers_to_what_a_host_asked_are_let_in() {
    let mut realm = Realm::of_holders(3, 1);
    realm.nodes[0]
        .plane
        .set_expose(vec!["tcp:9999".parse().unwrap()]);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    assert_eq!(connection.ask(&mut realm), Some(1));
    realm.take(0);

    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 50_000), shared(ECHO), b"x"),
    );
    realm.pass(ms(50));
    assert_eq!(realm.take(0).len(), 1, "an answer by UDP");
    realm.send(0, &ping(OWN_HOST.into(), SHARED.into(), 3));
    realm.pass(ms(50));
    assert_eq!(realm.take(0).len(), 1, "an echo");
    assert_eq!(realm.dropped(0, DropReason::NotExposed), 0);
}

#[test]
fn a_holder_that_dials_back_meets_the_same_doors() {
    let mut realm = Realm::of_holders(3, 1);
    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 50_000), shared(ECHO), b"x"),
    );
    realm.pass(ms(50));
    let client = parse(&realm.take(1)[0]).source;
    realm.take(0);
    realm.nodes[0]
        .plane
        .set_expose(vec!["udp:7000".parse().unwrap()]);

    for (port, arrives) in [(7000, 1), (7001, 0), (22, 0)] {
        realm.send(1, &udp_packet(shared(ECHO), (client, port).into(), b"hi"));
        realm.pass(ms(50));
        assert_eq!(realm.take(0).len(), arrives, "port {port}");
    }
    assert_eq!(realm.dropped(0, DropReason::NotExposed), 2);
}

#[test]
fn what_a_holder_asked_a_client_is_answered() {
    let mut realm = exposing("tcp:80");
    realm.nodes[1].plane.set_expose(Vec::new());
    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 50_000), shared(ECHO), b"x"),
    );
    realm.pass(ms(50));
    let client = parse(&realm.take(1)[0]).source;
    realm.nodes[1]
        .plane
        .set_expose(vec!["tcp:80".parse().unwrap()]);

    realm.send(1, &udp_packet(shared(6000), (client, ECHO).into(), b"back"));
    realm.pass(ms(50));
    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", ECHO), shared(6000), b"answer"),
    );
    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", ECHO), shared(6001), b"no answer"),
    );
    realm.pass(ms(50));

    let arrived = realm.take(1);
    // The client's service answered, and the client once more by hand.
    assert_eq!(arrived.len(), 2, "{arrived:?}");
    assert_eq!(realm.dropped(1, DropReason::NotExposed), 1);
}

/// A client and a holder that lets in one choice.
fn exposing(opening: &str) -> Realm {
    let mut realm = Realm::of_holders(3, 1);
    realm.nodes[1]
        .plane
        .set_expose(vec![opening.parse().unwrap()]);
    realm
}

fn shared(port: u16) -> SocketAddr {
    (SHARED, port).into()
}
