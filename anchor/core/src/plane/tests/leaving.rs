//! Goodbyes and changed taints: flows move at once.

use std::net::{Ipv4Addr, SocketAddr};

use conflux_proto::frame::Flags;

use super::host::{ECHO, HTTP, payload, socket, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms, peer};
use super::tcp::{Connection, Life};
use crate::plane::{DropReason, Event};
use crate::reason::Reason;

#[test]
fn a_goodbye_moves_the_leavers_flows_at_once_and_only_those() {
    let mut realm = many_hosts(4);
    let mut connections: Vec<Connection> = (1..=40).map(|host| open(&mut realm, host)).collect();
    let before: Vec<u8> = connections
        .iter_mut()
        .map(|one| one.ask(&mut realm).unwrap())
        .collect();
    let left_at = realm.now.mono;

    realm.leave(2);
    realm.pass(ms(200));

    for (connection, &by) in connections.iter_mut().zip(&before) {
        connection.take(&mut realm);
        match connection.life {
            Life::Reset(at) => {
                assert_eq!(by, 2);
                assert!(at.since(left_at) <= ms(200));
            }
            Life::Syn | Life::Open => assert_ne!(by, 2),
        }
        assert_eq!(connection.wrong_resets, 0);
    }
    let moved = before.iter().filter(|&&by| by == 2).count() as u32;
    assert!(moved > 0);
    let event = Event::Left {
        peer: peer(2),
        reason: Reason::Left,
        moved,
        stranded: 0,
    };
    assert!(realm.events(0).contains(&event));
    for (connection, &by) in connections.iter_mut().zip(&before) {
        if by != 2 {
            assert_eq!(connection.ask(&mut realm), Some(by));
        }
    }
}

#[test]
fn a_new_connection_succeeds_at_once_after_a_goodbye() {
    for seed in 0..10 {
        let mut realm = Realm::of_holders(seed, 2);
        let source = socket("192.0.0.2", 40_000);
        Connection::open(&mut realm, 0, source, shared(HTTP));
        let holder = realm.holder(0, SHARED).unwrap();

        realm.leave(holder);
        let next = socket("192.0.0.2", 40_001);
        let mut connection = Connection::begin(&mut realm, 0, next, shared(HTTP));
        realm.pass(ms(50));
        connection.take(&mut realm);

        assert_eq!(connection.life, Life::Open, "seed {seed}");
        assert_eq!(connection.ask(&mut realm), Some(3 - holder as u8));
    }
}

#[test]
fn a_leaver_is_drawn_by_nobody_though_its_advert_is_still_listed() {
    let mut realm = many_hosts(3);

    realm.leave(2);
    for host in 1..=30 {
        open(&mut realm, host);
    }

    let views = realm.nodes[0].plane.view_flows(realm.now, 100);
    assert!(views.iter().all(|view| view.flow.holder != Some(peer(2))));
}

#[test]
fn a_syn_without_an_answer_is_replayed_to_the_new_holder() {
    let mut realm = Realm::of_holders(5, 2);
    realm.send(0, &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"x"));
    let holder = realm.holder(0, SHARED).unwrap();
    realm.cut(0, holder);
    let source = socket("192.0.0.2", 40_000);
    let mut connection = Connection::begin(&mut realm, 0, source, shared(HTTP));
    realm.pass(ms(300));

    realm.leave(holder);
    realm.pass(ms(50));
    connection.take(&mut realm);

    assert_eq!(connection.life, Life::Open);
    assert_eq!(connection.ask(&mut realm), Some(3 - holder as u8));
    assert_eq!(realm.nodes[0].plane.counters().syn_replays, 1);
}

#[test]
fn a_segment_sent_before_its_reset_is_answered_at_once() {
    let mut realm = Realm::of_holders(5, 2);
    let mut connections: Vec<Connection> = (0..50)
        .map(|port| {
            Connection::open(
                &mut realm,
                0,
                socket("192.0.0.2", 40_000 + port),
                shared(HTTP),
            )
        })
        .collect();
    let holder = realm.holder(0, SHARED).unwrap();
    let now = realm.now;
    realm.nodes[0].plane.handle_left(now, peer(holder));

    let last = connections.last_mut().unwrap();
    last.send(&mut realm, b"more");
    last.take(&mut realm);

    assert_eq!(last.life, Life::Reset(now.mono));
    assert_eq!(last.wrong_resets, 0);
}

#[test]
fn the_last_holders_goodbye_ends_connections_and_refuses_new_ones() {
    let mut realm = Realm::of_holders(5, 1);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));

    realm.leave(1);
    realm.pass(ms(10));
    connection.take(&mut realm);
    realm.take(0);
    Connection::begin(&mut realm, 0, socket("192.0.0.2", 40_001), shared(HTTP));

    assert!(connection.is_reset());
    let refused = realm.take(0);
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0][20..22], [3, 1]);
}

#[test]
fn flows_leave_a_holder_whose_taints_forbid_it_and_its_packets_are_dropped() {
    let mut realm = Realm::of_holders(5, 2);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    let holder = realm.holder(0, SHARED).unwrap();

    realm.forbidden.insert((0, holder));
    realm.spread_routes();
    realm.pass(ms(10));
    connection.take(&mut realm);

    assert!(connection.is_reset());
    let view = realm.nodes[0].plane.view_flows(realm.now, 1).remove(0);
    assert_eq!(view.flow.holder, Some(peer(3 - holder)));
    assert_eq!(view.flow.reason, Reason::Taint);
    realm.take(0);
    let answer = udp_packet(shared(ECHO), socket("192.0.0.2", 9), b"x");
    realm.bring(0, peer(holder), Flags::TO_CLIENT, &answer);
    realm.bring(0, peer(holder), Flags::NONE, &answer);
    assert!(realm.take(0).is_empty());
    assert_eq!(realm.dropped(0, DropReason::Taint), 2);
}

#[test]
fn a_flow_stranded_by_taints_says_so_when_it_finds_another_holder() {
    let mut realm = Realm::new(
        5,
        vec![Spec::client(), Spec::holder(SHARED), Spec::holder(SHARED)],
    );
    realm.forbidden.insert((0, 2));
    realm.spread_routes();
    realm.send(0, &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"x"));
    realm.forbidden.insert((0, 1));
    realm.spread_routes();
    assert_eq!(realm.holder(0, SHARED), None);

    realm.forbidden.remove(&(0, 2));
    realm.spread_routes();
    realm.pass(ms(100));
    realm.take(0);
    realm.send(0, &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"x"));
    realm.pass(ms(100));

    assert_eq!(payload(&realm.take(0)[0])[0], 2);
    let view = realm.nodes[0].plane.view_flows(realm.now, 1).remove(0);
    assert_eq!(view.flow.reason, Reason::Taint);
}

#[test]
fn a_flow_moved_to_a_holder_of_a_longer_prefix_stays_there() {
    let mut realm = Realm::new(
        5,
        vec![
            Spec::client(),
            Spec::client().with_subnet("10.2.0.0/16"),
            Spec::client().with_subnet("10.2.3.0/24"),
        ],
    );
    realm.gone.insert(2);
    realm.spread_routes();
    let far = socket("10.2.3.4", HTTP);
    Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), far);
    realm.gone.clear();
    realm.spread_routes();
    assert_eq!(realm.holder(0, far.ip()), Some(1));

    realm.leave(1);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_001), far);
    assert_eq!(realm.holder(0, far.ip()), Some(2));
    // A change of the holder's facts that does not touch the flow.
    realm.nodes[2]
        .spec
        .subnets
        .push("10.77.0.0/16".parse().unwrap());
    realm.spread_routes();
    realm.pass(ms(10));

    assert_eq!(connection.ask(&mut realm), Some(2));
}

fn many_hosts(holders: usize) -> Realm {
    let mut specs = vec![Spec::client().with_subnet("10.1.0.0/16")];
    specs.resize(holders + 1, Spec::holder(SHARED));
    Realm::new(11, specs)
}

fn open(realm: &mut Realm, host: u8) -> Connection {
    let source = SocketAddr::from((Ipv4Addr::new(10, 1, 0, host), 40_000));
    Connection::open(realm, 0, source, shared(HTTP))
}

fn shared(port: u16) -> SocketAddr {
    (SHARED, port).into()
}
