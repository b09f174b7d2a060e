//! IPv6 between overlay addresses and subnets, which crosses as it is.

use std::net::SocketAddr;

use super::host::{ECHO, HTTP, parse, payload, ping, udp_packet};
use super::node::Spec;
use super::realm::{Realm, ms, peer};
use super::tcp::{Connection, Life};
use crate::plane::{DropReason, Event};

#[test]
fn overlay_addresses_reach_each_other_both_ways() {
    let mut realm = Realm::of_holders(1, 2);
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 0)] {
        let (source, destination) = (at(&realm, from, 40_000), at(&realm, to, HTTP));
        let mut connection = Connection::open(&mut realm, from, source, destination);
        assert_eq!(connection.ask(&mut realm), Some(to as u8));
        realm.take(from);

        let datagram = udp_packet(source, at(&realm, to, ECHO), b"hello");
        realm.send(from, &datagram);
        realm.send(from, &ping(source.ip(), destination.ip(), 3));
        realm.pass(ms(50));
        let answers = realm.take(from);
        assert_eq!(answers.len(), 2);
        assert_eq!(payload(&answers[0])[0], to as u8);
        assert_eq!(parse(&answers[0]).source, destination.ip());
    }
}

#[test]
fn a_dead_peer_ends_connections_on_its_overlay_address_within_the_bar() {
    let mut realm = Realm::of_holders(1, 2);
    let (source, destination) = (at(&realm, 0, 40_000), at(&realm, 1, HTTP));
    let mut connection = Connection::open(&mut realm, 0, source, destination);
    connection.ask(&mut realm);
    realm.pass(ms(500));
    realm.kill(1);
    let died_at = realm.now.mono;

    connection.send(&mut realm, b"request");
    realm.pass(ms(3000));
    connection.take(&mut realm);

    let Life::Reset(reset_at) = connection.life else {
        panic!("{connection:?}")
    };
    let took = reset_at.since(died_at);
    assert!(took >= ms(2000) && took <= ms(2500), "{took:?}");
    assert!(realm.events(0).contains(&Event::Failed {
        peer: peer(1),
        moved: 0,
        stranded: 1
    }));
    realm.take(0);
    realm.send(0, &udp_packet(source, destination, b"x"));
    assert_eq!(realm.take(0)[0][40..42], [1, 3], "address unreachable");
}

#[test]
fn the_serving_end_notices_a_dead_client_that_it_sends_to() {
    let mut realm = Realm::of_holders(1, 2);
    let (client, service) = (at(&realm, 0, 40_000), at(&realm, 1, HTTP));
    let mut connection = Connection::open(&mut realm, 0, client, service);
    connection.ask(&mut realm);
    realm.pass(ms(500));
    realm.kill(0);
    realm.take(1);

    let push = super::host::tcp_packet(
        service,
        client,
        connection.expected,
        connection.sequence,
        0x10,
        b"pushed",
    );
    realm.send(1, &push);
    realm.pass(ms(2500));

    let reset = parse(&realm.take(1)[0]);
    let crate::packet::Transport::Tcp(tcp) = reset.transport else {
        panic!("{reset:?}")
    };
    assert_eq!(
        (reset.source, tcp.sequence),
        (client.ip(), connection.sequence)
    );
}

#[test]
fn a_goodbye_ends_connections_on_an_overlay_address_at_once() {
    let mut realm = Realm::of_holders(1, 2);
    let (source, destination) = (at(&realm, 0, 40_000), at(&realm, 1, HTTP));
    let mut connection = Connection::open(&mut realm, 0, source, destination);

    realm.leave(1);
    realm.pass(ms(10));
    connection.take(&mut realm);

    assert!(connection.is_reset());
}

#[test]
fn an_ipv6_subnet_is_reached_and_answers() {
    let router = || Spec::client().with_subnet("fd22::/64");
    let mut realm = Realm::new(4, vec![Spec::client(), router(), router()]);
    let source = at(&realm, 0, 40_000);
    let destination = SocketAddr::new("fd22::5".parse().unwrap(), HTTP);

    let mut connection = Connection::open(&mut realm, 0, source, destination);
    let holder = realm.holder(0, destination.ip()).unwrap();

    assert_eq!(connection.ask(&mut realm), Some(holder as u8));
    realm.take(0);
    let stray = udp_packet(SocketAddr::new(destination.ip(), 9), source, b"stray");
    realm.send(3 - holder, &stray);
    realm.pass(ms(50));
    assert!(
        realm.take(0).is_empty(),
        "the other router is not the flow's holder"
    );
    assert_eq!(realm.dropped(0, DropReason::NotPinned), 1);
}

#[test]
fn an_error_of_a_router_in_an_ipv6_subnet_is_heard() {
    let mut realm = Realm::new(
        4,
        vec![Spec::client(), Spec::client().with_subnet("fd22::/64")],
    );
    let (source, destination) = (at(&realm, 0, 40_000), "fd22::5".parse().unwrap());
    realm.send(
        0,
        &udp_packet(source, SocketAddr::new(destination, 9999), b"x"),
    );
    realm.pass(ms(50));
    let asked = realm.take(1).remove(0);
    let mut error = Vec::new();
    let reason = crate::packet::Reason::HostUnreachable;
    crate::packet::build_unreachable(&mut error, &asked, "fd22::1".parse().unwrap(), reason)
        .unwrap();

    realm.send(1, &error);
    realm.pass(ms(50));

    let told = parse(&realm.take(0)[0]);
    assert_eq!(told.source.to_string(), "fd22::1");
    let views = realm.nodes[0].plane.view_flows(realm.now, 9);
    assert_eq!(views.len(), 1);
    assert_eq!(views[0].flow.received.packets, 1);
}

#[test]
fn overlay_addresses_follow_taints() {
    let mut realm = Realm::of_holders(1, 2);
    realm.forbidden.insert((0, 1));
    realm.spread_routes();

    let datagram = udp_packet(at(&realm, 0, 1), at(&realm, 1, ECHO), b"x");
    realm.send(0, &datagram);

    assert_eq!(realm.take(0)[0][40..42], [1, 3]);
    assert_eq!(realm.dropped(0, DropReason::NoRoute), 1);
}

#[test]
fn a_peer_whose_taints_allow_it_again_is_heard_before_it_is_spoken_to() {
    let mut realm = Realm::of_holders(1, 2);
    let (client, service) = (at(&realm, 0, 40_000), at(&realm, 1, HTTP));
    let mut before = Connection::open(&mut realm, 0, client, service);
    before.ask(&mut realm);
    realm.forbidden.insert((0, 1));
    realm.spread_routes();
    realm.pass(ms(300));
    before.take(&mut realm);
    assert!(before.is_reset());

    realm.forbidden.clear();
    realm.spread_routes();

    let again = at(&realm, 0, 40_001);
    let mut after = Connection::open(&mut realm, 0, again, service);
    assert_eq!(after.ask(&mut realm), Some(1));
}

fn at(realm: &Realm, node: usize, port: u16) -> SocketAddr {
    SocketAddr::new(realm.nodes[node].overlay().into(), port)
}
