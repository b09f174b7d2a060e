//! Holders that drain get no new flow and keep the old ones until these come to rest.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::host::{ECHO, HTTP, payload, ping, socket, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms, peer};
use super::tcp::Connection;
use crate::packet::build_reset;
use crate::plane::{OWN_HOST, Resting};
use crate::reason::Reason;

#[test]
fn a_draining_holder_gets_no_new_flow() {
    let mut realm = many_hosts(3);

    drain(&mut realm, 2);
    for host in 1..=60 {
        assert_ne!(open(&mut realm, host).ask(&mut realm), Some(2));
    }

    undrain(&mut realm);
    let by = (61..=120).map(|host| open(&mut realm, host).ask(&mut realm));
    assert!(by.into_iter().any(|by| by == Some(2)));
}

#[test]
fn an_open_connection_keeps_its_flow_on_the_draining_holder() {
    let mut realm = Realm::of_holders(1, 3);
    let mut connection = connect(&mut realm, 40_000);
    let holder = realm.holder(0, SHARED).unwrap();

    drain(&mut realm, holder);
    realm.pass(Duration::from_secs(120));

    assert_eq!(release(&mut realm), [resting(holder, 1, 0)]);
    let mut second = connect(&mut realm, 40_001);
    assert_eq!(connection.ask(&mut realm), Some(holder as u8));
    assert_eq!(second.ask(&mut realm), Some(holder as u8));
    assert!(!connection.is_reset());
}

#[test]
fn the_next_connection_goes_elsewhere_once_none_is_open() {
    for seed in 0..10 {
        let mut realm = Realm::of_holders(seed, 3);
        let connection = connect(&mut realm, 40_000);
        let holder = realm.holder(0, SHARED).unwrap();

        drain(&mut realm, holder);
        close(&mut realm, &connection);
        let mut next = connect(&mut realm, 40_001);

        let by = next.ask(&mut realm).unwrap();
        assert_ne!(usize::from(by), holder);
        assert!(!next.is_reset());
        let views = realm.nodes[0].plane.view_flows(realm.now, 10);
        assert_eq!(views.len(), 1);
        assert_eq!(views[0].flow.reason, Reason::Left);
    }
}

#[test]
fn a_flow_at_rest_is_released_when_looked_at() {
    let mut realm = Realm::of_holders(1, 2);
    let connection = connect(&mut realm, 40_000);
    let holder = realm.holder(0, SHARED).unwrap();
    drain(&mut realm, holder);

    assert_eq!(release(&mut realm), [resting(holder, 1, 0)]);
    close(&mut realm, &connection);

    assert_eq!(release(&mut realm), [resting(holder, 0, 1)]);
    assert_eq!(realm.holder(0, SHARED), Some(3 - holder));
    assert_eq!(release(&mut realm), [resting(holder, 0, 0)]);
}

#[test]
fn datagrams_hold_a_flow_until_they_have_been_silent_for_half_a_minute() {
    let mut realm = Realm::of_holders(1, 2);
    let ask = |realm: &mut Realm| {
        realm.take(0);
        realm.send(
            0,
            &udp_packet((OWN_HOST, 5000).into(), shared(ECHO), b"who"),
        );
        realm.pass(ms(300));
        payload(&realm.take(0).pop().expect("an answer"))[0]
    };
    let by = ask(&mut realm);
    drain(&mut realm, by.into());

    for _ in 0..4 {
        realm.pass(Duration::from_secs(20));
        assert_eq!(ask(&mut realm), by);
        assert_eq!(release(&mut realm), [resting(by.into(), 1, 0)]);
    }
    realm.pass(Duration::from_secs(31));
    assert_eq!(release(&mut realm), [resting(by.into(), 0, 1)]);

    assert_eq!(ask(&mut realm), 3 - by);
}

#[test]
fn echoes_hold_nothing() {
    let mut realm = Realm::of_holders(1, 2);
    let (own, shared) = (IpAddr::V4(OWN_HOST), IpAddr::V4(SHARED));
    realm.send(0, &ping(own, shared, 9));
    realm.pass(ms(300));
    let holder = realm.holder(0, SHARED).unwrap();

    drain(&mut realm, holder);

    assert_eq!(release(&mut realm), [resting(holder, 0, 1)]);
    assert_eq!(realm.holder(0, SHARED), Some(3 - holder));
}

#[test]
fn holders_that_all_drain_are_used_as_if_none_did() {
    let mut realm = many_hosts(3);
    for holder in 1..=3 {
        drain(&mut realm, holder);
    }

    let mut served = [0; 4];
    for host in 1..=60 {
        let by = open(&mut realm, host).ask(&mut realm).unwrap();
        served[usize::from(by)] += 1;
    }

    assert!(served[1..].iter().all(|&count| count > 5), "{served:?}");
}

#[test]
fn a_draining_holder_still_takes_over_when_the_others_fail() {
    let mut realm = Realm::of_holders(1, 2);
    let mut connection = connect(&mut realm, 40_000);
    let holder = realm.holder(0, SHARED).unwrap();
    drain(&mut realm, 3 - holder);

    realm.kill(holder);
    connection.ask(&mut realm);
    realm.pass(Duration::from_secs(3));

    let mut next = connect(&mut realm, 40_001);
    assert_eq!(next.ask(&mut realm), Some(3 - holder as u8));
}

fn drain(realm: &mut Realm, holder: usize) {
    realm.draining.insert(holder);
    realm.spread_routes();
}

fn undrain(realm: &mut Realm) {
    realm.draining.clear();
    realm.spread_routes();
}

fn release(realm: &mut Realm) -> Vec<Resting> {
    let released = realm.nodes[0].plane.release_draining(realm.now);
    realm.settle();
    released
}

fn resting(holder: usize, flows: u32, moved: u32) -> Resting {
    Resting {
        peer: peer(holder),
        flows,
        moved,
    }
}

fn connect(realm: &mut Realm, port: u16) -> Connection {
    Connection::open(realm, 0, (OWN_HOST, port).into(), shared(HTTP))
}

/// Ends a connection as an application that gives up does: by a RST.
fn close(realm: &mut Realm, connection: &Connection) {
    let mut reset = Vec::new();
    let (from, to) = (connection.source, connection.destination);
    build_reset(&mut reset, from, to, connection.sequence, None).unwrap();
    realm.send(0, &reset);
    realm.pass(ms(100));
}

/// A client with a subnet behind it and `holders` holders.
fn many_hosts(holders: usize) -> Realm {
    let mut specs = vec![Spec::client().with_subnet("10.1.0.0/16")];
    specs.resize(holders + 1, Spec::holder(SHARED));
    Realm::new(7, specs)
}

fn open(realm: &mut Realm, host: u8) -> Connection {
    let source = SocketAddr::from((Ipv4Addr::new(10, 1, 0, host), 5000));
    Connection::open(realm, 0, source, shared(HTTP))
}

fn shared(port: u16) -> SocketAddr {
    socket(&SHARED.to_string(), port)
}
