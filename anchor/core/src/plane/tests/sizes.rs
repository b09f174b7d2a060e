//! Packets of any size over paths that take less, as the shell sends them.

use std::net::{IpAddr, SocketAddr};

use super::host::{ECHO, joined, parse, payload, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, as_kernel_sends, ms, peer};
use crate::mtu::BASE_BYTES;
use crate::packet::{IcmpKind, Transport};
use crate::plane::{DropReason, MTU_BYTES, Path};

/// What a frame of the smallest limit is long.
const NARROW_FRAME_BYTES: usize = BASE_BYTES + 32;

#[test]
fn both_ends_find_the_interface_size_when_the_network_carries_it() {
    let realm = Realm::of_holders(1, 1);

    assert_eq!(limit(&realm, 0), Some(usize::from(MTU_BYTES)));
    assert_eq!(limit(&realm, 1), Some(usize::from(MTU_BYTES)));
}

#[test]
fn datagrams_of_any_size_are_echoed_over_a_narrow_network() {
    let mut realm = narrow();
    let from: SocketAddr = ([192, 0, 0, 2], 5000).into();
    for (bytes, dont_fragment) in [(3000, false), (1300, false), (1252, true), (1100, true)] {
        let datagram = datagram(from, (SHARED, ECHO).into(), bytes, dont_fragment);

        for piece in as_kernel_sends(datagram) {
            realm.send(0, &piece);
        }
        realm.pass(ms(50));

        let whole = whole(&mut realm);
        assert_eq!(payload(&whole)[1..], content(bytes)[1..], "{bytes} bytes");
    }
    assert_eq!(limit(&realm, 0), Some(BASE_BYTES));
}

#[test]
fn packets_of_1280_bytes_cross_a_narrow_network_in_ipv6_too() {
    let mut realm = narrow();
    let from = SocketAddr::new(realm.nodes[0].overlay().into(), 5000);
    let to = SocketAddr::new(realm.nodes[1].overlay().into(), ECHO);

    realm.send(0, &udp_packet(from, to, &content(1232)));
    realm.pass(ms(50));

    assert_eq!(payload(&whole(&mut realm))[1..], content(1232)[1..]);
}

#[test]
fn a_sender_of_larger_packets_is_told_what_fits() {
    let overlay = |realm: &Realm, at: usize| IpAddr::from(realm.nodes[at].overlay());
    for is_ipv4 in [true, false] {
        let mut realm = narrow();
        let (from, to, told) = if is_ipv4 {
            ([192, 0, 0, 2].into(), IpAddr::V4(SHARED), BASE_BYTES)
        } else {
            (overlay(&realm, 0), overlay(&realm, 1), 1280)
        };
        let (from, to) = (SocketAddr::new(from, 5000), SocketAddr::new(to, ECHO));

        realm.send(0, &datagram(from, to, 1300, true));
        realm.pass(ms(50));

        let answers = realm.take(0);
        let Transport::IcmpError(error) = parse(&answers[0]).transport else {
            panic!("{answers:?}");
        };
        let mtu = u32::try_from(told).unwrap();
        assert_eq!(error.kind, IcmpKind::TooBig { mtu });
        assert_eq!(parse(&answers[0]).destination, from.ip());
        assert_eq!(realm.dropped(0, DropReason::TooBig), 1);
    }
}

#[test]
fn a_network_that_narrows_is_noticed_while_large_packets_are_sent() {
    let mut realm = Realm::of_holders(1, 1);
    let from: SocketAddr = ([192, 0, 0, 2], 5000).into();
    realm.frame_limit = 1300;

    let mut waited = 0;
    while limit(&realm, 0) == Some(usize::from(MTU_BYTES)) {
        realm.send(0, &datagram(from, (SHARED, ECHO).into(), 1392, false));
        realm.pass(ms(10));
        waited += 10;
        assert!(waited <= 1000, "not noticed");
    }
    realm.pass(ms(3000));

    let found = limit(&realm, 0).unwrap();
    assert!(found <= 1268 && found + 8 > 1268, "{found}");
    assert!(
        !realm
            .events(0)
            .iter()
            .any(|event| format!("{event:?}").starts_with("Failed"))
    );
}

#[test]
fn a_refusal_by_the_interface_counts_for_the_path_it_is_about() {
    let mut realm = Realm::of_holders(1, 2);
    let now = realm.now.mono;
    let path = realm.nodes[0].plane.view_peer(now, peer(1)).path.unwrap();

    let other = Path {
        socket: path.socket + 1,
        ..path
    };
    realm.nodes[0].plane.handle_refused(now, other, 1420);
    assert_eq!(limit(&realm, 0), Some(1420));
    realm.nodes[0].plane.handle_refused(now, path, 1420);

    assert_eq!(limit(&realm, 0), Some(BASE_BYTES));
    let beside = realm.nodes[0].plane.view_peer(now, peer(2));
    assert_eq!(beside.limit_bytes, Some(1420));
}

#[test]
fn a_new_path_is_measured_anew() {
    let mut realm = Realm::of_holders(1, 1);
    let now = realm.now.mono;
    let old = realm.nodes[1].endpoints[0];
    let elsewhere = SocketAddr::new(old.ip(), old.port() + 1);
    realm.nodes[1].endpoints = vec![elsewhere];
    realm.nodes[1].source = elsewhere;
    realm.pass(ms(1500));
    realm.set_paths(0, 1);

    assert_eq!(limit(&realm, 0), Some(BASE_BYTES));
    assert!(realm.now.mono > now);
    realm.settle();
    realm.pass(ms(100));
    assert_eq!(limit(&realm, 0), Some(1420));
}

fn narrow() -> Realm {
    let specs = vec![Spec::client(), Spec::holder(SHARED)];
    let mut realm = Realm::unconnected(1, specs);
    realm.frame_limit = NARROW_FRAME_BYTES;
    realm.handshake(0, 1);
    realm.pass(ms(5000));
    realm
}

/// Returns the limit that the first or second anchor has for the other.
fn limit(realm: &Realm, at: usize) -> Option<usize> {
    let view = realm.nodes[at]
        .plane
        .view_peer(realm.now.mono, peer(1 - at));
    view.limit_bytes
}

fn whole(realm: &mut Realm) -> Vec<u8> {
    let pieces = realm.take(0);
    if let [piece] = &pieces[..] {
        return piece.clone();
    }
    joined(&pieces).expect("every fragment arrives")
}

fn datagram(from: SocketAddr, to: SocketAddr, bytes: usize, dont_fragment: bool) -> Vec<u8> {
    let mut packet = udp_packet(from, to, &content(bytes));
    if from.is_ipv4() {
        packet[6] = if dont_fragment { 0x40 } else { 0 };
        crate::packet::checksum::write_ipv4_header(&mut packet, 20);
    }
    packet
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7) as u8).collect()
}
