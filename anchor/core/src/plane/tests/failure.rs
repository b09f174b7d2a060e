//! Holders that die, ways that are cut, and networks that lose.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::host::{ECHO, HTTP, parse, payload, socket, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms, peer};
use super::tcp::{Connection, Life};
use crate::packet::{IcmpKind, Transport};
use crate::plane::{DropReason, Event};
use crate::reason::Reason;
use crate::time::Mono;

#[test]
fn a_dead_holders_flows_move_after_two_seconds_and_only_those() {
    for seed in 0..5 {
        let mut realm = many_hosts(seed, 3);
        let mut connections: Vec<Connection> =
            (1..=30).map(|host| open(&mut realm, host)).collect();
        let before: Vec<u8> = connections
            .iter_mut()
            .map(|one| one.ask(&mut realm).unwrap())
            .collect();
        // What was received and not yet proven counts from when it was sent.
        realm.pass(ms(500));
        let routes_before = realm.nodes[0].plane.routes.rows().to_vec();
        realm.kill(2);
        let died_at = realm.now.mono;
        for connection in &mut connections {
            connection.send(&mut realm, b"more");
        }

        realm.pass(ms(3000));

        for (connection, &by) in connections.iter_mut().zip(&before) {
            connection.take(&mut realm);
            assert_eq!(connection.wrong_resets, 0);
            if by == 2 {
                assert_within_bar(connection, died_at);
            } else {
                assert_eq!(connection.life, Life::Open);
                assert_eq!(connection.ask(&mut realm), Some(by));
            }
        }
        let moved = before.iter().filter(|&&by| by == 2).count() as u32;
        let event = Event::Failed {
            peer: peer(2),
            moved,
            stranded: 0,
        };
        assert!(realm.events(0).contains(&event), "{:?}", realm.events(0));
        assert_eq!(realm.nodes[0].plane.routes.rows(), routes_before);
        let views = realm.nodes[0].plane.view_flows(realm.now, 100);
        for view in views {
            let is_moved = view.flow.reason == Reason::Failed;
            let Some(host) = host_number(&view.flow.key.host) else {
                panic!("{view:?}")
            };
            assert_eq!(is_moved, before[host - 1] == 2);
        }
    }
}

#[test]
fn a_connection_in_syn_is_refused_when_the_last_holder_fails() {
    let mut realm = Realm::of_holders(5, 1);
    Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    realm.pass(ms(500));
    realm.kill(1);
    let mut connection =
        Connection::begin(&mut realm, 0, socket("192.0.0.2", 40_001), shared(HTTP));
    connection.take(&mut realm);
    realm.take(0);

    realm.pass(ms(2500));

    let refused: Vec<_> = realm
        .take(0)
        .into_iter()
        .filter(|bytes| bytes[20..22] == [3, 1] && bytes[48..50] == 40_001_u16.to_be_bytes())
        .collect();
    assert_eq!(refused.len(), 1, "ICMP host unreachable, once");
    assert_eq!(
        realm.nodes[0].plane.view_flows(realm.now, 1)[0].flow.holder,
        None
    );
}

#[test]
fn new_connections_succeed_within_the_bar_after_a_power_loss() {
    for seed in 0..10 {
        let mut realm = Realm::of_holders(seed, 3);
        Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
        let holder = realm.holder(0, SHARED).unwrap();
        realm.kill(holder);

        let mut connection =
            Connection::begin(&mut realm, 0, socket("192.0.0.2", 40_001), shared(HTTP));
        realm.pass(ms(2500));
        connection.take(&mut realm);

        assert_eq!(connection.life, Life::Open, "its SYN was replayed");
        assert_ne!(connection.ask(&mut realm), Some(holder as u8));
    }
}

#[test]
fn a_cut_in_either_direction_is_a_failure() {
    for direction in 0..2 {
        let mut realm = Realm::of_holders(7, 2);
        let mut connection =
            Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
        let holder = realm.holder(0, SHARED).unwrap();
        realm.cuts.insert(if direction == 0 {
            (0, holder)
        } else {
            (holder, 0)
        });
        let cut_at = realm.now.mono;

        connection.send(&mut realm, b"request");
        realm.pass(ms(3000));
        connection.take(&mut realm);

        assert_within_bar(&connection, cut_at);
        assert_eq!(realm.holder(0, SHARED), Some(3 - holder));
    }
}

#[test]
fn a_silent_reader_learns_within_seven_and_a_half_seconds() {
    for waited in [0, 150, 900, 3000, 4900, 7000] {
        let mut realm = Realm::of_holders(7, 2);
        let mut connection =
            Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
        realm.pass(ms(waited));
        let holder = realm.holder(0, SHARED).unwrap();
        realm.kill(holder);
        let died_at = realm.now.mono;

        realm.pass(ms(8000));
        connection.take(&mut realm);

        let Life::Reset(at) = connection.life else {
            panic!("{waited}: {connection:?}")
        };
        assert!(
            at.since(died_at) <= ms(7500),
            "{waited}: {:?}",
            at.since(died_at)
        );
    }
}

#[test]
fn one_second_of_total_loss_moves_nothing() {
    let mut realm = Realm::of_holders(7, 2);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    let holder = realm.holder(0, SHARED).unwrap();

    realm.loss = 1.0;
    connection.send(&mut realm, b"request");
    realm.pass(ms(1000));
    realm.loss = 0.0;
    realm.pass(ms(5000));

    connection.take(&mut realm);
    assert_eq!(connection.life, Life::Open);
    assert_eq!(realm.holder(0, SHARED), Some(holder));
    assert_eq!(realm.nodes[0].plane.counters().holder_failures, 0);
}

#[test]
fn without_another_holder_connections_end_and_new_ones_are_refused_until_it_returns() {
    // Node 2 is a peer, but no holder.
    let mut realm = Realm::new(
        7,
        vec![Spec::client(), Spec::holder(SHARED), Spec::client()],
    );
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    realm.cut(0, 1);
    let cut_at = realm.now.mono;
    connection.send(&mut realm, b"request");
    realm.pass(ms(2500));
    connection.take(&mut realm);
    assert_within_bar(&connection, cut_at);
    let failed = Event::Failed {
        peer: peer(1),
        moved: 0,
        stranded: 1,
    };
    assert!(realm.events(0).contains(&failed));

    realm.take(0);
    Connection::begin(&mut realm, 0, socket("192.0.0.2", 40_001), shared(HTTP));
    let refused = realm.take(0);
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0][20..22], [3, 1]);

    realm.pass(ms(90_000));
    realm.cuts.clear();
    realm.pass(ms(8000));
    assert!(realm.events(0).contains(&Event::Returned(peer(1))));
    let mut next = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_002), shared(HTTP));
    assert_eq!(next.ask(&mut realm), Some(1));
    let view = realm.nodes[0].plane.view_flows(realm.now, 1).remove(0);
    assert_eq!(view.flow.reason, Reason::Failed);
}

#[test]
fn segments_to_a_failed_holder_are_reset_at_once() {
    let mut realm = Realm::new(
        7,
        vec![Spec::client(), Spec::holder(SHARED), Spec::client()],
    );
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    realm.nodes[0].server.is_serving = false;
    realm.cut(0, 1);
    connection.send(&mut realm, b"request");
    // The first reset is lost on its host.
    realm.pass(ms(2500));
    realm.take(0);

    connection.send(&mut realm, b"again");
    connection.take(&mut realm);

    assert_eq!(connection.life, Life::Reset(realm.now.mono));
    assert_eq!(connection.wrong_resets, 0);
}

#[test]
fn a_fault_of_our_own_network_keeps_every_pin() {
    let mut realm = Realm::of_holders(7, 2);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    let holder = realm.holder(0, SHARED).unwrap();

    realm.cut(0, 1);
    realm.cut(0, 2);
    connection.send(&mut realm, b"request");
    realm.pass(ms(30_000));
    assert!(realm.events(0).contains(&Event::LocalFault(peer(holder))));
    realm.cuts.clear();
    realm.pass(ms(10_000));

    connection.take(&mut realm);
    assert_eq!(connection.life, Life::Open);
    assert_eq!(realm.holder(0, SHARED), Some(holder));
    assert_eq!(realm.nodes[0].plane.counters().holder_failures, 0);
}

#[test]
fn a_flow_moves_to_a_holder_that_answers_not_to_one_that_died_with_its_own() {
    for seed in 0..10 {
        let mut realm = Realm::of_holders(seed, 3);
        let mut connection =
            Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
        connection.ask(&mut realm);
        let holder = realm.holder(0, SHARED).unwrap();
        let other = holder % 3 + 1;
        realm.kill(holder);
        realm.kill(other);

        connection.send(&mut realm, b"request");
        realm.pass(ms(2500));

        assert_eq!(
            realm.holder(0, SHARED),
            Some(6 - holder - other),
            "seed {seed}"
        );
    }
}

#[test]
fn a_holder_that_answers_again_gets_new_flows_only() {
    let mut realm = many_hosts(3, 2);
    let mut connections: Vec<Connection> = (1..=10).map(|host| open(&mut realm, host)).collect();
    realm.cut(0, 1);
    for connection in &mut connections {
        connection.send(&mut realm, b"request");
    }
    realm.pass(ms(5000));
    assert!(
        realm.nodes[0]
            .plane
            .view_peer(realm.now.mono, peer(1))
            .is_failed
    );

    realm.cuts.clear();
    realm.pass(ms(10_000));

    assert!(
        realm.events(0).contains(&Event::Returned(peer(1))),
        "{:?}",
        realm.events(0)
    );
    let views = realm.nodes[0].plane.view_flows(realm.now, 100);
    assert!(views.iter().all(|view| view.flow.holder == Some(peer(2))));
    let by: Vec<u8> = (20..=50)
        .map(|host| open(&mut realm, host).ask(&mut realm).unwrap())
        .collect();
    assert!(by.contains(&1), "{by:?}");
}

#[test]
fn a_failed_holder_that_nobody_wants_is_left_alone_in_the_end() {
    let mut realm = Realm::of_holders(3, 2);
    realm.send(0, &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"x"));
    realm.cut(0, 1);
    realm.cut(0, 2);
    realm.cuts.remove(&(2, 0));
    realm.pass(ms(100));
    realm.cuts.clear();
    let holder = realm.holder(0, SHARED).unwrap();
    realm.kill(holder);
    realm.send(0, &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"x"));
    realm.pass(ms(3000));
    assert!(
        realm.nodes[0]
            .plane
            .view_peer(realm.now.mono, peer(holder))
            .is_failed
    );

    // The flow is removed after 15 minutes; nothing is sent by anybody after that.
    realm.pass(Duration::from_secs(20 * 60));
    let sent = realm.nodes[0].plane.counters().frames_sent;
    realm.pass(Duration::from_secs(20 * 60));

    assert_eq!(realm.nodes[0].plane.counters().frames_sent, sent);
}

#[test]
fn a_packet_without_a_flow_has_failed_holders_asked_for_a_while() {
    let mut realm = Realm::new(
        7,
        vec![Spec::client(), Spec::holder(SHARED), Spec::client()],
    );
    let datagram = udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"x");
    realm.kill(1);
    realm.send(0, &datagram);
    realm.pass(Duration::from_secs(20 * 60));
    assert_eq!(realm.nodes[0].plane.sizes().flows, 0);
    let mut sent = realm.nodes[0].plane.counters().frames_sent;
    let mut sent_in = |realm: &mut Realm, seconds| {
        realm.pass(Duration::from_secs(seconds));
        let total = realm.nodes[0].plane.counters().frames_sent;
        total - std::mem::replace(&mut sent, total)
    };
    assert_eq!(sent_in(&mut realm, 60), 0);

    realm.send(0, &datagram);

    assert!(sent_in(&mut realm, 60) >= 12);
    sent_in(&mut realm, 120);
    assert_eq!(sent_in(&mut realm, 600), 0);
}

#[test]
fn one_way_datagrams_are_never_taken_for_a_dead_holder() {
    let mut realm = Realm::of_holders(7, 2);
    realm.loss = 0.1;
    let datagram = udp_packet(
        socket("192.0.0.2", 9),
        socket("10.128.0.9", 9999),
        b"one way",
    );

    // An hour, at several rates.
    for step in 0..36_000_u64 {
        let is_sent = match step / 9000 {
            0 => true,
            1 => step % 7 == 0,
            2 => step % 31 == 0,
            _ => step % 3 == 0 && step / 100 % 2 == 0,
        };
        if is_sent {
            realm.send(0, &datagram);
        }
        realm.pass(ms(100));
    }

    assert_eq!(realm.nodes[0].plane.counters().holder_failures, 0);
    assert_eq!(realm.nodes[0].plane.counters().local_faults, 0);
}

#[test]
fn datagrams_go_to_the_new_holder_after_a_failure() {
    let mut realm = Realm::of_holders(7, 2);
    let datagram = udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello");
    realm.send(0, &datagram);
    realm.pass(ms(500));
    let holder = realm.holder(0, SHARED).unwrap();
    realm.kill(holder);
    realm.take(0);
    let died_at = realm.now.mono;
    let mut answered_at = None;
    for _ in 0..300 {
        realm.send(0, &datagram);
        realm.pass(ms(10));
        if realm
            .take(0)
            .iter()
            .any(|bytes| payload(bytes)[0] == (3 - holder) as u8)
        {
            answered_at.get_or_insert(realm.now.mono);
        }
    }

    let took = answered_at
        .expect("the other holder answers")
        .since(died_at);
    assert!(took >= ms(2000) && took <= ms(2500), "{took:?}");
}

#[test]
fn a_restart_within_the_deadline_keeps_flow_and_client_address() {
    let mut realm = Realm::of_holders(7, 2);
    let datagram = udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello");
    realm.send(0, &datagram);
    realm.pass(ms(50));
    let holder = realm.holder(0, SHARED).unwrap();
    let seen = parse(&realm.take(holder)[0]).source;
    realm.kill(holder);
    realm.send(0, &datagram);
    realm.pass(ms(1000));

    realm.restart(holder);
    realm.pass(ms(3000));
    realm.take(holder);
    realm.send(0, &datagram);
    realm.pass(ms(50));

    assert_eq!(realm.holder(0, SHARED), Some(holder));
    assert_eq!(parse(&realm.take(holder)[0]).source, seen);
    assert_eq!(realm.nodes[0].plane.counters().holder_failures, 0);
}

#[test]
fn a_holder_whose_service_refuses_is_not_failed() {
    let mut realm = Realm::of_holders(7, 2);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    let holder = realm.holder(0, SHARED).unwrap();
    realm.nodes[holder].server.is_serving = false;

    connection.send(&mut realm, b"request");
    realm.pass(ms(20_000));

    assert_eq!(realm.holder(0, SHARED), Some(holder));
    assert_eq!(realm.nodes[0].plane.counters().holder_failures, 0);
}

#[test]
fn a_failed_holders_packets_are_not_mixed_into_a_moved_flow() {
    let mut realm = Realm::of_holders(7, 2);
    let datagram = udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello");
    realm.send(0, &datagram);
    realm.pass(ms(50));
    let holder = realm.holder(0, SHARED).unwrap();
    let seen = parse(&realm.take(holder)[0]).source;
    realm.cuts.insert((0, holder));
    realm.send(0, &datagram);
    realm.pass(ms(2500));
    realm.take(0);

    realm.send(
        holder,
        &udp_packet(shared(ECHO), SocketAddr::new(seen, 9), b"late"),
    );
    realm.pass(ms(50));

    assert!(realm.take(0).is_empty());
    assert_eq!(realm.dropped(0, DropReason::NotPinned), 1);
}

#[test]
fn a_refused_holder_in_icmp_costs_as_much_as_a_second() {
    let mut realm = Realm::of_holders(7, 2);
    let datagram = udp_packet(socket("192.0.0.2", 9), socket("10.128.0.9", 9999), b"hello");
    realm.send(0, &datagram);
    realm.pass(ms(20));
    let holder = realm.holder(0, SHARED).unwrap();
    let asked = realm.take(holder).remove(0);

    let mut refusal = Vec::new();
    let reason = crate::packet::Reason::PortUnreachable;
    crate::packet::build_unreachable(&mut refusal, &asked, SHARED.into(), reason).unwrap();
    realm.send(holder, &refusal);
    realm.pass(ms(20));

    let told = parse(&realm.take(0)[0]);
    let Transport::IcmpError(error) = told.transport else {
        panic!("{told:?}")
    };
    assert_eq!(error.kind, IcmpKind::Unreachable { code: 3 });
    let mut costs = smallvec::SmallVec::new();
    let group = [peer(holder), peer(3 - holder)];
    realm.nodes[0]
        .plane
        .costs
        .costs(realm.now.mono, &group, &mut costs);
    assert!(costs[0].answer >= ms(990), "{costs:?}");
}

fn assert_within_bar(connection: &Connection, since: Mono) {
    let Life::Reset(at) = connection.life else {
        panic!("not reset: {connection:?}")
    };
    let took = at.since(since);
    assert!(took >= ms(2000) && took <= ms(2500), "{took:?}");
    assert_eq!(connection.wrong_resets, 0);
}

fn host_number(host: &crate::ids::Host) -> Option<usize> {
    match host {
        crate::ids::Host::Behind(IpAddr::V4(address)) => Some(usize::from(address.octets()[3])),
        crate::ids::Host::Behind(IpAddr::V6(_)) | crate::ids::Host::Own => None,
    }
}

fn many_hosts(seed: u64, holders: usize) -> Realm {
    let mut specs = vec![Spec::client().with_subnet("10.1.0.0/16")];
    specs.resize(holders + 1, Spec::holder(SHARED));
    Realm::new(seed, specs)
}

fn open(realm: &mut Realm, host: u8) -> Connection {
    let source = SocketAddr::from((Ipv4Addr::new(10, 1, 0, host), 40_000));
    Connection::open(realm, 0, source, shared(HTTP))
}

fn shared(port: u16) -> SocketAddr {
    (SHARED, port).into()
}
