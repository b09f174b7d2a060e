//! Who sees whom by which address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use conflux_proto::frame::Flags;

use super::host::{ECHO, HTTP, SYN, parse, payload, ping, socket, tcp_packet, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms, peer};
use super::tcp::Connection;
use crate::packet::testing::TcpRecipe;
use crate::packet::{Checksum, IcmpKind, TcpFlags, Transport};
use crate::plane::{DropReason, OWN_HOST, ToPeer};
use crate::translate::spelled;

#[test]
fn the_holder_sees_one_client_address_for_all_addresses_of_a_machine() {
    let mut realm = client_with_lan_address();
    let overlay: IpAddr = realm.nodes[0].overlay().into();
    for (source, destination) in [
        (IpAddr::from([10, 128, 0, 77]), IpAddr::V4(SHARED)),
        (IpAddr::from([192, 168, 7, 5]), IpAddr::V4(SHARED)),
        (overlay, spelled(SHARED).into()),
    ] {
        let datagram = udp_packet((source, 5000).into(), (destination, ECHO).into(), b"hello");
        realm.send(0, &datagram);
        realm.pass(ms(100));

        let reply = realm.take(0).pop().expect("an answer");
        let packet = parse(&reply);
        assert_eq!((packet.source, packet.destination), (destination, source));
        assert_eq!(payload(&reply), b"\x01ello");
        realm.pass(ms(40_000));
    }

    let seen: Vec<IpAddr> = realm
        .take(1)
        .iter()
        .map(|bytes| parse(bytes).source)
        .collect();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|source| *source == seen[0]), "{seen:?}");
    assert!(is_client_address(seen[0]), "{seen:?}");
}

#[test]
fn hosts_behind_a_client_are_told_apart_by_the_holder() {
    let spec = Spec::client().with_subnet("10.1.0.0/16");
    let mut realm = Realm::new(1, vec![spec, Spec::holder(SHARED)]);

    for host in ["10.1.0.5", "10.1.0.6", "192.0.0.2"] {
        realm.send(0, &udp_packet(socket(host, 5000), shared(ECHO), b"hello"));
        realm.pass(ms(50));
        assert_eq!(parse(&realm.take(0)[0]).destination.to_string(), host);
    }

    let seen: std::collections::BTreeSet<IpAddr> = realm
        .take(1)
        .iter()
        .map(|bytes| parse(bytes).source)
        .collect();
    assert_eq!(seen.len(), 3);
    assert!(seen.into_iter().all(is_client_address));
}

#[test]
fn a_holder_may_dial_the_client_back() {
    let mut realm = client_with_lan_address();
    realm.send(
        0,
        &udp_packet(socket("192.168.7.5", 5000), shared(ECHO), b"hello"),
    );
    realm.pass(ms(50));
    let client = parse(&realm.take(1)[0]).source;
    realm.take(0);

    let from = SocketAddr::new(SHARED.into(), 50_000);
    let mut dialled = Connection::open(&mut realm, 1, from, (client, HTTP).into());

    assert_eq!(dialled.ask(&mut realm), Some(0));
    let syn = parse(&realm.take(0)[0]);
    assert_eq!(
        (syn.source, syn.destination.to_string()),
        (SHARED.into(), "192.168.7.5".into())
    );
}

#[test]
fn a_holder_may_dial_a_host_behind_the_client_back_and_ping_it() {
    let spec = Spec::client().with_subnet("10.1.0.0/16");
    let mut realm = Realm::new(1, vec![spec, Spec::holder(SHARED)]);
    realm.send(0, &ping("10.1.0.5".parse().unwrap(), SHARED.into(), 9));
    realm.pass(ms(50));
    let client = parse(&realm.take(1)[0]).source;

    realm.send(1, &ping(SHARED.into(), client, 77));
    realm.pass(ms(50));

    let reply = realm.take(1).pop().unwrap();
    let packet = parse(&reply);
    assert_eq!((packet.source, packet.destination), (client, SHARED.into()));
    assert!(matches!(packet.transport, Transport::Echo(echo) if echo.identifier == 77));
}

#[test]
fn only_sources_of_ours_may_answer_a_client() {
    let spec = Spec::holder(SHARED)
        .with_subnet("10.2.0.0/16")
        .with_address("192.168.9.9");
    let mut realm = Realm::new(1, vec![Spec::client(), spec]);
    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 5000), shared(ECHO), b"hello"),
    );
    realm.pass(ms(50));
    let client = parse(&realm.take(1)[0]).source;

    // A stranger whose packets this machine forwards, and an address of this machine that no
    // client knows it by.
    for source in ["172.16.0.1", "192.168.9.9"] {
        let stray = udp_packet(socket(source, ECHO), (client, 5000).into(), b"stray");
        let verdict = realm.send(1, &stray);

        assert_eq!(
            verdict,
            ToPeer::Dropped(DropReason::ForeignSource),
            "{source}"
        );
        let refused = realm.take(1);
        assert_eq!(refused[0][20..22], [3, 13], "{source}");
    }
    let host = udp_packet(socket("10.2.0.3", ECHO), (client, 5000).into(), b"good");
    assert!(matches!(realm.send(1, &host), ToPeer::Send { .. }));
}

#[test]
fn a_client_address_nobody_has_is_unreachable() {
    let mut realm = Realm::of_holders(1, 1);

    let packet = udp_packet(shared(ECHO), socket("198.18.3.4", 5000), b"x");

    assert_eq!(
        realm.send(1, &packet),
        ToPeer::Dropped(DropReason::NoMapping)
    );
    assert_eq!(realm.take(1)[0][20..22], [3, 1]);
}

#[test]
fn a_full_pool_is_told_to_the_client() {
    let mut holder = Spec::holder(SHARED);
    holder.client_range = "198.18.0.0/27".parse().unwrap();
    let spec = Spec::client().with_subnet("10.1.0.0/16");
    let mut realm = Realm::new(1, vec![spec, holder]);

    for host in 1..=4_u8 {
        let source = SocketAddr::from((Ipv4Addr::new(10, 1, 0, host), 5000));
        realm.send(0, &udp_packet(source, shared(ECHO), b"hello"));
        realm.pass(ms(50));
    }

    let answers = realm.take(0);
    assert_eq!(answers.len(), 4);
    assert_eq!(
        realm.dropped(1, DropReason::PoolFull),
        1,
        "an eighth of 30 is 3"
    );
    let refused = parse(&answers[3]);
    assert_eq!(refused.destination.to_string(), "10.1.0.4");
    let Transport::IcmpError(error) = refused.transport else {
        panic!("{refused:?}")
    };
    assert_eq!(error.kind, IcmpKind::Unreachable { code: 13 });
    assert_eq!(error.inner.source.to_string(), "10.1.0.4");
    assert_eq!(error.inner.source_port, 5000);
}

#[test]
fn two_local_addresses_with_the_same_ports_clash() {
    let mut realm = client_with_lan_address();
    let mut first = Connection::open(&mut realm, 0, socket("192.168.7.5", 40_000), shared(HTTP));

    let mut second = Connection::begin(&mut realm, 0, socket("10.128.0.77", 40_000), shared(HTTP));
    second.take(&mut realm);

    assert!(second.is_reset(), "{second:?}");
    assert_eq!(realm.dropped(0, DropReason::Clash), 1);
    assert_eq!(first.ask(&mut realm), Some(1));
    let late = tcp_packet(
        socket("10.128.0.77", 40_000),
        shared(HTTP),
        5,
        900,
        0x10,
        b"late",
    );
    realm.send(0, &late);
    let reset = parse(&realm.take(0)[0]);
    assert!(matches!(reset.transport, Transport::Tcp(tcp)
        if tcp.flags == TcpFlags::RST && tcp.sequence == 900));
}

#[test]
fn hosts_behind_us_are_offered_segments_that_fit() {
    let mut realm = Realm::new(
        1,
        vec![
            Spec::client()
                .with_subnet("10.1.0.0/16")
                .with_subnet("fd11::/64"),
            Spec::holder(SHARED)
                .with_subnet("10.2.0.0/16")
                .with_subnet("fd22::/64"),
        ],
    );
    let overlay = realm.nodes[0].overlay();
    let cases = [
        // From a host behind the client; to one behind the holder; from none to none.
        ("10.1.0.5", "10.128.0.9", 1380),
        ("192.0.0.2", "10.2.0.5", 1380),
        ("192.0.0.2", "10.128.0.9", 1460),
        ("fd11::5", "64:ff9b:1::a80:9", 1360),
        (&overlay.to_string(), "fd22::5", 1360),
    ];
    for (at, (source, destination, mss)) in cases.into_iter().enumerate() {
        let (source, destination) = (socket(source, 5000 + at as u16), socket(destination, HTTP));
        realm.take(1);
        realm.send(0, &offer(source, destination, SYN));
        realm.pass(ms(50));
        let syn = realm.take(1).remove(0);
        assert_eq!(offered(&syn), mss, "{source} to {destination}");
        // And back: the answer of the service offers 1460.
        let accepted = realm.take(0).remove(0);
        assert_eq!(offered(&accepted), mss, "{destination} to {source}");
    }
}

#[test]
fn a_peer_may_use_no_source_but_its_own() {
    let mut realm = Realm::of_holders(1, 1);

    let forged = udp_packet(socket("10.128.0.200", 1), shared(ECHO), b"forged");
    realm.bring(1, peer(0), Flags::NONE, &forged);

    assert_eq!(realm.dropped(1, DropReason::PeerSource), 1);
    assert!(realm.take(1).is_empty());
}

fn offer(source: SocketAddr, destination: SocketAddr, flags: u8) -> Vec<u8> {
    let tcp = TcpRecipe {
        ports: (source.port(), destination.port()),
        sequence: 7,
        acknowledgment: 0,
        flags,
        options: vec![2, 4, 0x05, 0xb4],
    };
    super::host::between(source.ip(), destination.ip()).tcp(&tcp, &[], Checksum::Complete)
}

fn offered(bytes: &[u8]) -> u16 {
    let packet = parse(bytes);
    let at = packet.header_bytes + 22;
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn client_with_lan_address() -> Realm {
    let client = Spec::holder([10, 128, 0, 77].into()).with_address("192.168.7.5");
    Realm::new(1, vec![client, Spec::holder(SHARED)])
}

fn is_client_address(address: IpAddr) -> bool {
    let IpAddr::V4(address) = address else {
        return false;
    };
    address.octets()[0] == 198 && (18..=19).contains(&address.octets()[1]) && address != OWN_HOST
}

fn shared(port: u16) -> SocketAddr {
    (SHARED, port).into()
}
