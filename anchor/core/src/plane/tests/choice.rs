//! One holder per flow, drawn once.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use smallvec::SmallVec;

use super::host::{ECHO, HTTP, payload, ping, socket, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms, peer};
use super::tcp::Connection;
use crate::ids::Host;
use crate::plane::OWN_HOST;
use crate::reason::Reason;
use crate::translate::spelled;

#[test]
fn all_protocols_and_both_spellings_of_one_destination_have_one_holder() {
    for seed in 0..20 {
        let mut realm = Realm::of_holders(seed, 3);
        let overlay: IpAddr = realm.nodes[0].overlay().into();
        let six: IpAddr = spelled(SHARED).into();
        let four = IpAddr::V4(SHARED);
        let own = IpAddr::V4(OWN_HOST);

        let mut over_four = open(&mut realm, own, four, 40_000);
        let holder = realm.holder(0, SHARED).unwrap();
        let mut over_six = open(&mut realm, overlay, six, 40_001);

        assert_eq!(over_four.ask(&mut realm), Some(holder as u8));
        assert_eq!(over_six.ask(&mut realm), Some(holder as u8));
        for (source, destination, port) in [(own, four, 9000), (overlay, six, 9001)] {
            let datagram = udp_packet(at(source, port), at(destination, ECHO), b"hello");
            assert_eq!(payload(&answer(&mut realm, &datagram))[0], holder as u8);
            let reply = answer(&mut realm, &ping(source, destination, port));
            assert_eq!(reply.last(), Some(&(holder as u8)));
        }
        assert_eq!(realm.nodes[0].plane.sizes().flows, 1);
    }
}

#[test]
fn each_host_behind_a_subnet_has_a_flow_of_its_own() {
    let mut specs = vec![Spec::client().with_subnet("10.1.0.0/16")];
    specs.resize(4, Spec::holder(SHARED));
    let mut realm = Realm::new(3, specs);
    let mut served = [0_u32; 4];

    for host in 1..=60_u8 {
        let source = SocketAddr::from((Ipv4Addr::new(10, 1, 0, host), 5000));
        let mut connection = Connection::open(&mut realm, 0, source, shared(HTTP));
        let by = connection.ask(&mut realm).unwrap();
        served[by as usize] += 1;
        assert_eq!(connection.ask(&mut realm), Some(by));
    }

    assert_eq!(realm.nodes[0].plane.sizes().flows, 60);
    assert!(served[1..].iter().all(|&count| count > 5), "{served:?}");
    let views = realm.nodes[0].plane.view_flows(realm.now, 1000);
    assert!(
        views
            .iter()
            .all(|view| matches!(view.flow.key.host, Host::Behind(_)))
    );
}

#[test]
fn shares_follow_the_measured_costs() {
    let mut specs = vec![Spec::client().with_subnet("10.1.0.0/16")];
    specs.resize(4, Spec::holder(SHARED));
    let mut realm = Realm::unconnected(5, specs);
    for (holder, one_way) in [(1, 3_000), (2, 12_500), (3, 52_500)] {
        let one_way = Duration::from_micros(one_way);
        realm
            .delays
            .extend([((0, holder), one_way), ((holder, 0), one_way)]);
        realm.handshake(0, holder);
    }
    realm.pass(ms(1000));
    let flows = 6000_u32;

    for host in 0..flows {
        let source = Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 0, 1).to_bits() + host);
        realm.send(0, &udp_packet((source, 5000).into(), shared(9), b"x"));
        realm.pass(ms(1));
    }

    let views = realm.nodes[0].plane.view_flows(realm.now, usize::MAX);
    let share = |holder| {
        let held = views
            .iter()
            .filter(|view| view.flow.holder == Some(peer(holder)))
            .count();
        100.0 * held as f64 / f64::from(flows)
    };
    let shares = [share(1), share(2), share(3)];
    let expected = [70.7, 21.5, 7.8];
    for (share, expected) in shares.iter().zip(expected) {
        assert!((share - expected).abs() < 2.5, "{shares:?}");
    }
}

#[test]
fn an_answer_counts_only_once_the_round_trip_is_known() {
    let mut realm = Realm::unconnected(1, vec![Spec::client(), Spec::holder(SHARED)]);
    let one_way = ms(60);
    realm.delays.extend([((0, 1), one_way), ((1, 0), one_way)]);
    realm.handshake(0, 1);
    let ask = |realm: &mut Realm, port| {
        realm.send(0, &udp_packet((OWN_HOST, port).into(), shared(ECHO), b"x"));
        realm.pass(ms(2000));
        let mut costs = SmallVec::new();
        let plane = &realm.nodes[0].plane;
        plane.costs.costs(realm.now.mono, &[peer(1)], &mut costs);
        costs[0]
    };

    let before = ask(&mut realm, 5000);
    let after = ask(&mut realm, 5001);

    assert!(before.rtt_measured && !before.answer_measured, "{before:?}");
    assert!(after.answer_measured && after.answer < ms(1), "{after:?}");
}

#[test]
fn the_only_holder_is_chosen_for_being_single() {
    let mut realm = Realm::of_holders(1, 1);

    let mut connection = open(&mut realm, OWN_HOST.into(), SHARED.into(), 40_000);

    assert_eq!(connection.ask(&mut realm), Some(1));
    let views = realm.nodes[0].plane.view_flows(realm.now, 10);
    assert_eq!(views[0].flow.reason, Reason::Single);
    assert_eq!(views[0].connections, 1);
    assert_eq!(realm.nodes[0].plane.counters().chosen(Reason::Single), 1);
}

#[test]
fn a_flow_stays_whoever_joins_and_whatever_costs_do() {
    let mut realm = Realm::new(
        2,
        vec![Spec::client(), Spec::holder(SHARED), Spec::holder(SHARED)],
    );
    realm.gone.insert(2);
    realm.spread_routes();
    let mut connection = open(&mut realm, OWN_HOST.into(), SHARED.into(), 40_000);

    realm.gone.clear();
    realm.spread_routes();
    let now = realm.now.mono;
    for _ in 0..50 {
        realm.nodes[0].plane.set_rtt(now, peer(1), ms(400));
    }

    for port in 0..50 {
        let mut next = open(&mut realm, OWN_HOST.into(), SHARED.into(), 41_000 + port);
        assert_eq!(next.ask(&mut realm), Some(1));
    }
    assert_eq!(connection.ask(&mut realm), Some(1));
}

#[test]
fn an_address_nobody_advertises_is_refused_at_once() {
    let mut realm = Realm::of_holders(1, 1);

    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 5), socket("10.9.9.9", 7), b"x"),
    );

    let refused = realm.take(0);
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0][20..22], [3, 1]);
}

fn open(realm: &mut Realm, source: IpAddr, destination: IpAddr, port: u16) -> Connection {
    Connection::open(realm, 0, at(source, port), at(destination, HTTP))
}

fn answer(realm: &mut Realm, packet: &[u8]) -> Vec<u8> {
    realm.take(0);
    realm.send(0, packet);
    realm.pass(ms(100));
    realm.take(0).pop().expect("an answer")
}

fn shared(port: u16) -> SocketAddr {
    at(SHARED.into(), port)
}

fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}
