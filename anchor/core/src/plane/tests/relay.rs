//! Two anchors that cannot reach each other, and one or two that carry between them.

use std::net::SocketAddr;
use std::time::Duration;

use zeroize::Zeroizing;

use super::host::{ECHO, socket, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms, peer};
use crate::ids::{PeerIx, Relayed};
use crate::plane::{DropReason, Event, Path};
use crate::relay::{Leg, LegKeys, Role};
use crate::time::Mono;

const CLIENT: usize = 0;
const HOLDER: usize = 1;
const RELAY: usize = 2;
const OTHER_RELAY: usize = 3;

#[test]
fn data_goes_by_the_relay_and_no_flow_moves() {
    let mut realm = apart();

    let answered = talk(&mut realm, 50);

    assert_eq!(answered, 50);
    let relay = realm.nodes[RELAY].plane.counters();
    assert!(
        relay.relayed_datagrams >= 100,
        "{}",
        relay.relayed_datagrams
    );
    assert_eq!(relay.delivered_packets, 0);
    assert_eq!(realm.nodes[CLIENT].plane.counters().holder_failures, 0);
}

#[test]
fn packets_by_a_relay_leave_room_for_its_header() {
    let mut realm = apart_over(1472);

    let limit = realm.nodes[CLIENT]
        .plane
        .view_peer(realm.now.mono, peer(HOLDER));

    // 1472 bytes of UDP without 32 of the relay and 32 of a frame.
    assert_eq!(limit.limit_bytes, Some(1408));
    let large = vec![7; 1408 - 28];
    let packet = udp_packet(socket("192.0.0.2", 9), shared(ECHO), &large);
    realm.send(CLIENT, &packet);
    realm.pass(ms(100));
    assert_eq!(realm.take(CLIENT).len(), 1);
}

#[test]
fn at_1280_bytes_of_underlay_everything_of_1280_bytes_passes() {
    // 40 of IPv6 and 8 of UDP.
    let mut realm = apart_over(1280 - 48);
    let large = vec![7; 1280 - 28];

    let packet = udp_packet(socket("192.0.0.2", 9), shared(ECHO), &large);
    realm.send(CLIENT, &packet);
    realm.pass(ms(100));

    let limit = realm.nodes[CLIENT]
        .plane
        .view_peer(realm.now.mono, peer(HOLDER));
    assert_eq!(limit.limit_bytes, Some(1168));
    let holder = realm.nodes[HOLDER].plane.counters();
    assert_eq!(holder.delivered_packets, 2, "both fragments");
}

#[test]
fn a_direct_path_that_answers_takes_over_within_one_round_and_one_that_does_not_never_does() {
    let mut realm = apart();
    talk(&mut realm, 5);
    realm.pass(Duration::from_secs(60));
    assert!(path(&realm, CLIENT).is_relayed());

    // One direction alone is no path: what is heard by it is tried and does not answer.
    realm.cuts.remove(&(HOLDER, CLIENT));
    realm.pass(Duration::from_secs(600));
    let answered_one_way = talk(&mut realm, 5);
    let one_way = path(&realm, CLIENT);
    realm.cuts.remove(&(CLIENT, HOLDER));
    realm.pass(Duration::from_secs(300));

    assert_eq!(answered_one_way, 5);
    assert!(one_way.is_relayed());
    assert!(!path(&realm, CLIENT).is_relayed());
    assert!(!path(&realm, HOLDER).is_relayed());
    let roamed = |event: &&Event| matches!(event, Event::Roamed(..));
    assert_eq!(realm.events(CLIENT).iter().filter(roamed).count(), 1);
    assert_eq!(talk(&mut realm, 5), 5);
}

#[test]
fn a_relay_takes_over_from_a_direct_path_that_dies_before_the_holder_fails() {
    let mut realm = apart();
    realm.cuts.clear();
    realm.pass(Duration::from_secs(300));
    assert!(!path(&realm, CLIENT).is_relayed());
    talk(&mut realm, 5);

    realm.cuts.extend([(CLIENT, HOLDER), (HOLDER, CLIENT)]);
    let answered = talk(&mut realm, 60);

    assert!(path(&realm, CLIENT).is_relayed());
    assert!(answered >= 38, "{answered} of 60 in 6 s");
    assert_eq!(realm.nodes[CLIENT].plane.counters().holder_failures, 0);
}

#[test]
fn a_path_that_dies_is_left_by_both_ends_though_the_client_has_no_more_to_send() {
    // Nothing there, nothing back, or neither: what is still heard proves no way there.
    let [there, back] = [(CLIENT, HOLDER), (HOLDER, CLIENT)];
    for cuts in [vec![there], vec![back], vec![there, back]] {
        let mut realm = apart();
        realm.cuts.clear();
        realm.pass(Duration::from_secs(300));
        assert_eq!(talk(&mut realm, 5), 5);

        // The last frame comes at the moment of the cut, and the last packet goes right after it.
        realm.send(CLIENT, &hello());
        realm.pass(ms(5));
        realm.cuts.extend(&cuts);
        realm.send(CLIENT, &hello());
        realm.pass(ms(1200));

        assert!(path(&realm, CLIENT).is_relayed(), "client, {cuts:?}");
        assert!(path(&realm, HOLDER).is_relayed(), "holder, {cuts:?}");
        assert_eq!(talk(&mut realm, 20), 20, "{cuts:?}");
        assert_eq!(realm.nodes[CLIENT].plane.counters().holder_failures, 0);
    }
}

#[test]
fn a_shorter_relay_takes_over_after_two_rounds_and_a_slightly_shorter_one_does_not() {
    for (millis, takes_over) in [(3, true), (9, false)] {
        let mut realm = apart();
        for at in [CLIENT, HOLDER] {
            realm.delays.insert((at, RELAY), ms(10));
            realm.delays.insert((at, OTHER_RELAY), ms(millis));
            realm.delays.insert((RELAY, at), ms(10));
            realm.delays.insert((OTHER_RELAY, at), ms(millis));
        }
        lease(&mut realm, OTHER_RELAY, 40);
        tell_paths(&mut realm, &[RELAY, OTHER_RELAY]);

        realm.pass(Duration::from_secs(120));
        talk(&mut realm, 5);

        let by = path(&realm, CLIENT).way().unwrap().relay;
        assert_eq!(by == peer(OTHER_RELAY), takes_over, "{millis} ms");
        // Two hops there and two back; the control loop ranks relays by it.
        for (relay, took) in [(RELAY, ms(40)), (OTHER_RELAY, ms(4 * millis))] {
            let (relay, far) = (peer(relay), peer(HOLDER));
            let told = Event::Measured(Relayed { relay, far }, took);
            assert!(realm.events(CLIENT).contains(&told), "{told:?}");
        }
    }
}

#[test]
fn trials_of_a_pair_that_never_meets_stay_below_a_packet_a_second() {
    let mut realm = apart();
    let before = realm.nodes[CLIENT].plane.counters().frames_sent;

    realm.pass(Duration::from_secs(600));

    let sent = realm.nodes[CLIENT].plane.counters().frames_sent - before;
    assert!(sent <= 120, "{sent} in ten minutes without traffic");
}

#[test]
fn a_direct_path_that_one_end_alone_could_find_is_used_by_both() {
    // The client's address towards the holder is one that nobody could name. Its word to follow may
    // be lost.
    for lost in [false, true] {
        let mut realm = apart();
        realm.cuts.clear();
        for ends in [(CLIENT, HOLDER), (HOLDER, CLIENT)] {
            realm.delays.insert(ends, ms(10));
        }
        know_relay_only(&mut realm);
        realm.pass(ms(50));
        let named: Vec<Path> = realm.nodes[HOLDER]
            .endpoints
            .iter()
            .map(|at| to(*at))
            .collect();

        // The holder hears by its relay at this moment.
        try_paths(&mut realm, HOLDER, &[]);
        realm.pass(ms(20));
        try_paths(&mut realm, CLIENT, &named);
        // There, back, and there again with the word to follow.
        realm.pass(ms(25));
        if lost {
            realm.cuts.insert((CLIENT, HOLDER));
        }
        realm.pass(ms(500));
        realm.cuts.clear();
        assert!(!path(&realm, CLIENT).is_relayed());
        assert_eq!(path(&realm, HOLDER).is_relayed(), lost);

        // The holder's next round asks the client to try.
        try_paths(&mut realm, CLIENT, &[]);
        realm.pass(ms(100));

        assert!(!path(&realm, HOLDER).is_relayed(), "lost: {lost}");
    }
}

#[test]
fn what_a_peer_names_costs_no_more_trials_than_all_peers_together_may() {
    let mut realm = apart();
    let now = realm.now.mono;
    let known = realm.nodes[HOLDER].endpoints.len() as u64;
    let plane = &mut realm.nodes[CLIENT].plane;
    let named: Vec<Path> = (1..=10_000)
        .map(|port| at(&format!("192.0.2.7:{port}")))
        .collect();
    let mut round = |paths: &[Path]| {
        let before = plane.counters().frames_sent;
        plane.try_paths(now, peer(HOLDER), paths);
        plane.counters().frames_sent - before
    };

    // By the relay and once to each address, however often it is named.
    let twice = [&named[..2], &named[..2]].concat();
    let first = round(&twice);
    let rounds: Vec<u64> = (0..20).map(|_| round(&named)).collect();

    assert_eq!(first, 1 + 2 + known);
    assert!(rounds.iter().all(|frames| *frames <= 8), "{rounds:?}");
    let direct = first - 1 + rounds.iter().map(|frames| frames - 1).sum::<u64>();
    assert!((50..=60).contains(&direct), "{direct} in a minute");
    assert_eq!(rounds[10..], [1; 10], "the relay itself is no trial");
}

#[test]
fn without_a_lease_nothing_is_carried() {
    let mut realm = apart();
    talk(&mut realm, 1);

    realm.nodes[RELAY].plane.remove_legs_of(peer(CLIENT));
    let answered = talk(&mut realm, 5);

    assert_eq!(answered, 0);
    assert!(realm.dropped(RELAY, DropReason::NoLease) >= 5);
}

#[test]
fn doubled_and_lost_datagrams_of_a_relay_do_no_more_than_on_any_path() {
    let mut realm = apart();
    realm.duplicates = true;

    let answered = talk(&mut realm, 50);
    realm.loss = 0.1;
    talk(&mut realm, 50);

    assert_eq!(answered, 50);
    assert!(realm.dropped(RELAY, DropReason::Replayed) >= 100);
    assert_eq!(realm.nodes[CLIENT].plane.counters().holder_failures, 0);
}

/// A client and a holder between whom nothing passes, with a lease at one relay of the two.
fn apart() -> Realm {
    apart_over(usize::MAX)
}

/// As above, where no datagram of more than so many bytes comes through.
fn apart_over(datagram_bytes: usize) -> Realm {
    let mut specs = vec![Spec::client(); 4];
    specs[HOLDER] = Spec::holder(SHARED);
    let mut realm = Realm::unconnected(7, specs);
    realm.frame_limit = datagram_bytes;
    realm.cuts.extend([(CLIENT, HOLDER), (HOLDER, CLIENT)]);
    lease(&mut realm, RELAY, 20);
    tell_paths(&mut realm, &[RELAY]);
    for (one, two) in [(CLIENT, HOLDER), (CLIENT, RELAY), (HOLDER, RELAY)] {
        realm.handshake(one, two);
    }
    for end in [CLIENT, HOLDER] {
        realm.handshake(end, OTHER_RELAY);
    }
    realm.pass(Duration::from_secs(1));
    realm
}

/// Gives both ends a lease for ever, under indices from `index` on.
fn lease(realm: &mut Realm, relay: usize, index: u32) {
    let [to_client, to_holder, client, holder] = [index, index + 1, index + 2, index + 3];
    let legs = [
        (CLIENT, relay, client, to_client, end(HOLDER), [1, 2]),
        (HOLDER, relay, holder, to_holder, end(CLIENT), [3, 4]),
        (relay, CLIENT, to_client, client, carry(to_holder), [2, 1]),
        (relay, HOLDER, to_holder, holder, carry(to_client), [4, 3]),
    ];
    for (at, other, ours, theirs, role, keys) in legs {
        let [send, receive] = keys.map(|key| Zeroizing::new([key; 32]));
        let leg = Leg {
            peer: peer(other),
            ours,
            theirs,
            role,
            ends: realm.now.mono + Duration::from_secs(1_000_000),
            keys: LegKeys { send, receive },
        };
        assert!(realm.nodes[at].plane.install_leg(&leg));
    }
}

fn end(far: usize) -> Role {
    Role::End { far: peer(far) }
}

fn carry(to: u32) -> Role {
    Role::Relay { to }
}

/// Both ends know the relays first, then each other's endpoints.
fn tell_paths(realm: &mut Realm, relays: &[usize]) {
    let now: Mono = realm.now.mono;
    for (near, far) in [(CLIENT, HOLDER), (HOLDER, CLIENT)] {
        let relayed = relays.iter().map(|relay| {
            let relay = peer(*relay);
            let far = peer(far);
            Path::relayed(Relayed { relay, far })
        });
        let direct = realm.nodes[far].endpoints.iter();
        let direct = direct.map(|remote| to(*remote));
        let all: Vec<Path> = relayed.chain(direct).collect();
        realm.nodes[near]
            .plane
            .set_paths(now, PeerIx(far as u32), &all);
    }
}

/// One end tries the other's paths, and sends what follows.
fn try_paths(realm: &mut Realm, at: usize, besides: &[Path]) {
    let far = peer(if at == CLIENT { HOLDER } else { CLIENT });
    let now = realm.now.mono;
    realm.nodes[at].plane.try_paths(now, far, besides);
    realm.settle();
}

/// Each end forgets where the other is.
fn know_relay_only(realm: &mut Realm) {
    let now = realm.now.mono;
    for (near, far) in [(CLIENT, HOLDER), (HOLDER, CLIENT)] {
        let (relay, far) = (peer(RELAY), peer(far));
        let way = Path::relayed(Relayed { relay, far });
        realm.nodes[near].plane.set_paths(now, far, &[way]);
    }
}

fn at(remote: &str) -> Path {
    to(remote.parse().unwrap())
}

fn to(remote: SocketAddr) -> Path {
    Path {
        socket: 0,
        remote,
        local: None,
    }
}

fn path(realm: &Realm, at: usize) -> Path {
    let far = if at == CLIENT { HOLDER } else { CLIENT };
    let view = realm.nodes[at].plane.view_peer(realm.now.mono, peer(far));
    view.path.unwrap()
}

/// Sends datagrams to the shared address, ten a second; how many were answered.
fn talk(realm: &mut Realm, count: usize) -> usize {
    realm.take(CLIENT);
    for _ in 0..count {
        realm.send(CLIENT, &hello());
        realm.pass(ms(100));
    }
    realm.take(CLIENT).len()
}

fn hello() -> Vec<u8> {
    udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello")
}

fn shared(port: u16) -> SocketAddr {
    SocketAddr::new(SHARED.into(), port)
}
