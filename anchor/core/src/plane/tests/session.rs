//! Sessions and paths under traffic.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::host::{ECHO, HTTP, parse, payload, socket, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms, peer};
use super::tcp::Connection;
use crate::plane::{DropReason, Event, Path};

#[test]
fn keys_rotate_under_traffic_and_nothing_is_lost() {
    let mut realm = Realm::of_holders(3, 1);
    let (mut sent, mut answered) = (0, 0);

    for _ in 0..10_000 {
        realm.send(
            0,
            &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello"),
        );
        sent += 1;
        realm.pass(ms(50));
        answered += realm.take(0).len();
    }

    assert_eq!(answered, sent);
    let rotations = realm
        .events(0)
        .iter()
        .filter(|event| **event == Event::Rotate(peer(1)))
        .count();
    assert!((3..=5).contains(&rotations), "{rotations} in 500 s");
    for reason in [
        DropReason::UnknownIndex,
        DropReason::NotAuthentic,
        DropReason::NoSession,
    ] {
        assert_eq!(realm.dropped(0, reason) + realm.dropped(1, reason), 0);
    }
    assert_eq!(realm.nodes[0].plane.counters().holder_failures, 0);
}

#[test]
fn handshakes_that_cross_lose_nothing() {
    let mut realm = Realm::of_holders(3, 1);
    let mut answered = 0;

    for turn in 0..200 {
        if turn % 10 == 0 {
            realm.handshake(0, 1);
        }
        if turn % 10 == 0 || turn % 15 == 0 {
            realm.handshake(1, 0);
        }
        realm.send(
            0,
            &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello"),
        );
        realm.pass(ms(if turn % 3 == 0 { 0 } else { 10 }));
    }
    realm.pass(ms(100));
    answered += realm.take(0).len();

    assert_eq!(answered, 200);
}

#[test]
fn a_peer_is_followed_to_its_new_address() {
    let mut realm = Realm::of_holders(3, 1);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    let (old, new) = (
        realm.nodes[0].source,
        SocketAddr::from(([203, 0, 113, 200], 9999)),
    );

    // The client gets another address: its NAT was restarted.
    realm.nodes[0].endpoints = vec![new];
    realm.nodes[0].source = new;
    realm.dead.insert(old);
    realm.pass(ms(1100));
    connection.send(&mut realm, b"request");
    realm.pass(ms(50));
    connection.take(&mut realm);

    assert_eq!(connection.answered_by, Some(1));
    let roamed = realm.events(1).iter().any(
        |event| matches!(event, Event::Roamed(who, path) if *who == peer(0) && path.remote == new),
    );
    assert!(roamed, "{:?}", realm.events(1));
}

#[test]
fn a_dead_path_is_left_for_another_within_the_deadline() {
    let mut realm = Realm::of_holders(3, 2);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    let holder = realm.holder(0, SHARED).unwrap();
    let second = realm.nodes[holder].endpoints[1];
    realm.dead.insert(realm.nodes[holder].source);
    realm.nodes[holder].source = second;

    connection.send(&mut realm, b"request");
    realm.pass(ms(2500));
    connection.take(&mut realm);

    assert!(!connection.is_reset());
    assert_eq!(realm.holder(0, SHARED), Some(holder));
    assert_eq!(connection.ask(&mut realm), Some(holder as u8));
}

#[test]
fn a_path_that_works_outlives_a_list_without_it() {
    let mut realm = Realm::of_holders(3, 1);
    let new = SocketAddr::from(([203, 0, 113, 200], 9999));
    realm.nodes[0].endpoints = vec![new];
    realm.nodes[0].source = new;
    realm.pass(ms(1100));
    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello"),
    );
    realm.pass(ms(50));
    realm.take(0);

    // A list that was made before the peer was followed.
    let before = SocketAddr::from(([203, 0, 113, 1], 7000));
    let stale = [Path {
        socket: 0,
        remote: before,
        local: None,
    }];
    let now = realm.now.mono;
    realm.nodes[1].plane.set_paths(now, peer(0), &stale);
    let client = parse(&realm.take(1)[0]).source;
    realm.send(1, &udp_packet(shared(ECHO), (client, 9).into(), b"news"));
    realm.pass(ms(50));

    assert_eq!(realm.take(0).len(), 1);
}

#[test]
fn a_path_by_which_nobody_was_heard_gives_way_to_the_preferred_one() {
    let mut realm = Realm::of_holders(3, 1);
    let holder = 1;
    let nowhere = Path {
        socket: 0,
        remote: SocketAddr::from(([203, 0, 113, 250], 9999)),
        local: None,
    };
    let works = Path {
        socket: 0,
        remote: realm.nodes[holder].endpoints[0],
        local: None,
    };
    let now = realm.now.mono;
    let plane = &mut realm.nodes[0].plane;
    plane.forget(peer(holder));
    plane.set_paths(now, peer(holder), &[nowhere, works]);

    // The control connection has found a way.
    plane.set_paths(now, peer(holder), &[works, nowhere]);
    realm.handshake(0, holder);
    let sealed = realm.nodes[0].plane.sealer(peer(holder));

    assert_eq!(sealed.map(|(_, path, _)| path).ok(), Some(works));
}

#[test]
fn two_working_paths_do_not_alternate() {
    let mut realm = Realm::of_holders(3, 1);
    for turn in 0..100 {
        let endpoints = realm.nodes[1].endpoints.clone();
        realm.nodes[1].source = endpoints[turn % 2];
        realm.send(
            0,
            &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello"),
        );
        realm.pass(ms(20));
    }

    let roamed = realm
        .events(0)
        .iter()
        .filter(|event| matches!(event, Event::Roamed(..)))
        .count();
    assert!(roamed <= 1, "{roamed}");
    assert_eq!(realm.take(0).len(), 100);
}

#[test]
fn answers_that_somebody_brings_from_elsewhere_draw_nobody_away_from_a_path_that_works() {
    let (mut realm, mut connection, holder) = talking(1);
    let works = realm.nodes[holder].source;
    let elsewhere = SocketAddr::from(([203, 0, 113, 66], 6666));

    // Whoever sits on the way is faster than the path itself with each answer, and with nothing else.
    for _ in 0..400 {
        realm.nodes[holder].source = elsewhere;
        let now = realm.now.mono;
        realm.nodes[0].plane.liveness.probe_now(now, peer(holder));
        realm.settle();
        realm.pass(ms(4));
        realm.nodes[holder].source = works;
        connection.send(&mut realm, b"more");
        realm.pass(ms(46));
        connection.take(&mut realm);
    }

    let view = realm.nodes[0].plane.view_peer(realm.now.mono, peer(holder));
    assert_eq!(view.path.map(|path| path.remote), Some(works));
    let roamed = |event: &Event| matches!(event, Event::Roamed(..));
    assert!(!realm.events(0).iter().any(roamed));
}

#[test]
fn a_replayed_frame_goes_nowhere() {
    let mut realm = Realm::of_holders(3, 1);
    realm.duplicates = true;

    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello"),
    );
    realm.pass(ms(50));

    assert_eq!(realm.take(0).len(), 1);
    assert!(realm.dropped(1, DropReason::Replayed) > 0);
}

#[test]
fn a_group_in_use_is_measured_also_where_a_session_came_late() {
    let mut realm = Realm::unconnected(
        3,
        vec![Spec::client(), Spec::holder(SHARED), Spec::holder(SHARED)],
    );
    realm.handshake(0, 1);
    realm.pass(ms(500));
    for _ in 0..40 {
        realm.send(
            0,
            &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello"),
        );
        realm.pass(ms(500));
    }
    assert_eq!(payload(&realm.take(0)[0])[0], 1);

    realm.handshake(0, 2);
    realm.pass(Duration::from_secs(5));
    let silent = |realm: &Realm| {
        realm.nodes[0]
            .plane
            .view_peer(realm.now.mono, peer(2))
            .silent
            .unwrap()
    };
    for _ in 0..20 {
        realm.pass(Duration::from_secs(5));
        assert!(silent(&realm) <= Duration::from_secs(16));
    }
}

fn shared(port: u16) -> SocketAddr {
    (SHARED, port).into()
}

/// Returns a client with an open connection to one of `holders`, and which.
fn talking(holders: usize) -> (Realm, Connection, usize) {
    let mut realm = Realm::of_holders(3, holders);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    connection.send(&mut realm, b"request");
    realm.pass(ms(50));
    connection.take(&mut realm);
    let holder = realm.holder(0, SHARED).unwrap();
    (realm, connection, holder)
}

#[test]
fn a_machine_that_moved_is_followed_at_once_however_lately_its_old_path_was_heard() {
    let (mut realm, mut connection, holder) = talking(1);
    let (old, new) = (
        realm.nodes[0].source,
        SocketAddr::from(([203, 0, 113, 200], 9999)),
    );

    realm.nodes[0].endpoints = vec![new];
    realm.nodes[0].source = new;
    realm.dead.insert(old);
    let now = realm.now.mono;
    realm.nodes[0].plane.handle_moved(now);
    realm.pass(ms(50));

    assert_eq!(connection.ask(&mut realm), Some(holder as u8));
    let roamed = |event: &&Event| matches!(event, Event::Roamed(who, _) if *who == peer(0));
    assert_eq!(realm.events(holder).iter().filter(roamed).count(), 1);
}

#[test]
fn a_machine_that_moved_follows_the_path_that_answers() {
    let (mut realm, mut connection, holder) = talking(2);

    // The new network has no way to the holder's first address.
    realm.dead.insert(realm.nodes[holder].source);
    realm.nodes[holder].source = realm.nodes[holder].endpoints[1];
    let now = realm.now.mono;
    realm.nodes[0].plane.handle_moved(now);
    realm.pass(ms(50));

    assert_eq!(connection.ask(&mut realm), Some(holder as u8));
}

#[test]
fn a_peer_heard_once_from_elsewhere_is_found_there_when_its_path_dies() {
    let mut realm = Realm::of_holders(3, 1);
    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello"),
    );
    realm.pass(ms(50));
    realm.take(0);
    let holder = realm.holder(0, SHARED).unwrap();
    let (old, new) = (
        realm.nodes[holder].source,
        SocketAddr::from(([203, 0, 113, 200], 9999)),
    );

    // One frame from the new address while the old one was just heard, then nothing more of it.
    realm.nodes[holder].source = new;
    realm.dead.insert(old);
    realm.nodes[holder].endpoints.push(new);
    let now = realm.now.mono;
    realm.nodes[holder].plane.liveness.probe_now(now, peer(0));
    realm.pass(ms(10));
    for step in 0..150 {
        let hello = udp_packet(socket("192.0.0.2", 9), shared(ECHO), &[step]);
        realm.send(0, &hello);
        realm.pass(ms(20));
    }

    assert_eq!(realm.holder(0, SHARED), Some(holder));
    assert!(realm.take(0).len() > 20);
}

#[test]
fn frames_leave_from_the_address_to_which_the_peer_writes() {
    let mut realm = Realm::of_holders(1, 2);
    let local = |realm: &mut Realm| realm.nodes[0].plane.sealer(peer(1)).unwrap().1.local;
    let talk = |realm: &mut Realm| {
        realm.send(
            0,
            &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello"),
        );
        realm.pass(ms(50));
    };
    let ours = realm.nodes[0].endpoints[0].ip();

    talk(&mut realm);
    let heard = local(&mut realm);
    // A list of the peer's addresses says nothing of ours.
    realm.set_paths(0, 1);
    let told = local(&mut realm);
    let now = realm.now.mono;
    realm.nodes[0].plane.handle_moved(now);
    let moved = local(&mut realm);
    talk(&mut realm);

    assert_eq!((heard, told, moved), (Some(ours), Some(ours), None));
    assert_eq!(local(&mut realm), Some(ours));
}

#[test]
fn frames_leave_from_where_the_control_connection_does_before_the_peer_was_heard() {
    let mut realm = Realm::of_holders(1, 1);
    let ours = IpAddr::from([203, 0, 113, 77]);
    let remote = realm.nodes[1].endpoints[0];
    let way = |local| Path {
        socket: 0,
        remote,
        local,
    };
    let now = realm.now.mono;
    let plane = &mut realm.nodes[0].plane;
    plane.forget(peer(1));

    plane.set_paths(now, peer(1), &[way(None)]);
    plane.set_paths(now, peer(1), &[way(Some(ours))]);

    assert_eq!(
        plane.view_peer(now, peer(1)).path.unwrap().local,
        Some(ours)
    );
}
