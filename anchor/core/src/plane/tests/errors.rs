//! ICMP errors, translated outside and inside, both ways.

use std::net::{IpAddr, SocketAddr};

use conflux_proto::frame::Flags;

use super::host::{ECHO, HTTP, parse, socket, tcp_packet, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms, peer};
use super::tcp::Connection;
use crate::packet::{
    IcmpError, IcmpKind, Offload, Protocol, Reason, Transport, build_too_big, build_unreachable,
};
use crate::plane::{DropReason, Head, ToPeer};
use crate::translate::spelled;

#[test]
fn a_refused_port_is_told_to_each_kind_of_client_in_its_own_words() {
    let client = Spec::holder([10, 128, 0, 77].into())
        .with_subnet("10.1.0.0/16")
        .with_address("192.168.7.5");
    let mut realm = Realm::new(1, vec![client, Spec::holder(SHARED)]);
    let overlay: IpAddr = realm.nodes[0].overlay().into();
    let four = IpAddr::V4(SHARED);
    let cases: [(IpAddr, IpAddr, u8); 4] = [
        ([10, 128, 0, 77].into(), four, 3),
        ([192, 168, 7, 5].into(), four, 3),
        ([10, 1, 0, 5].into(), four, 3),
        (overlay, spelled(SHARED).into(), 4),
    ];
    for (at, (source, destination, code)) in cases.into_iter().enumerate() {
        let port = 5000 + at as u16;
        let (source, destination) = (
            SocketAddr::new(source, port),
            SocketAddr::new(destination, 9999),
        );
        realm.take(1);
        realm.send(0, &udp_packet(source, destination, b"hello"));
        realm.pass(ms(50));
        let asked = realm.take(1).remove(0);
        let refusal = refusal(&asked, SHARED.into(), Reason::PortUnreachable);

        realm.send(1, &refusal);
        realm.pass(ms(50));

        let told = realm.take(0).remove(0);
        let packet = parse(&told);
        assert_eq!(
            (packet.source, packet.destination),
            (destination.ip(), source.ip())
        );
        let error = error_of(&told);
        assert_eq!(error.kind, IcmpKind::Unreachable { code });
        assert_eq!(
            (error.inner.source, error.inner.destination),
            (source.ip(), destination.ip())
        );
        assert_eq!(
            (error.inner.source_port, error.inner.destination_port),
            (port, 9999)
        );
    }
}

#[test]
fn a_router_behind_a_holder_is_heard() {
    let holder = Spec::client().with_subnet("10.2.0.0/16");
    let mut realm = Realm::new(1, vec![Spec::client(), holder]);
    realm.send(
        0,
        &udp_packet(
            socket("192.0.0.2", 5000),
            socket("10.2.9.9", 9999),
            b"hello",
        ),
    );
    realm.pass(ms(50));
    let asked = realm.take(1).remove(0);

    realm.send(
        1,
        &refusal(&asked, [10, 2, 0, 1].into(), Reason::HostUnreachable),
    );
    realm.pass(ms(50));

    let told = realm.take(0).remove(0);
    assert_eq!(parse(&told).source, IpAddr::from([10, 2, 0, 1]));
    assert_eq!(
        error_of(&told).inner.destination,
        IpAddr::from([10, 2, 9, 9])
    );
    assert_eq!(error_of(&told).inner.source, IpAddr::from([192, 0, 0, 2]));
}

#[test]
fn a_client_refuses_an_answer_in_words_the_holder_understands() {
    let client = Spec::holder([10, 128, 0, 77].into()).with_subnet("10.1.0.0/16");
    let mut realm = Realm::new(1, vec![client, Spec::holder(SHARED)]);
    let overlay: IpAddr = realm.nodes[0].overlay().into();
    let four = IpAddr::V4(SHARED);
    let cases: [(IpAddr, IpAddr, IpAddr); 4] = [
        ([10, 128, 0, 77].into(), four, [10, 128, 0, 77].into()),
        ([10, 1, 0, 5].into(), four, [10, 1, 0, 5].into()),
        // This machine routes for the host and has no way to it.
        ([10, 1, 0, 6].into(), four, [10, 128, 0, 77].into()),
        (overlay, spelled(SHARED).into(), overlay),
    ];
    for (at, (source, destination, reporter)) in cases.into_iter().enumerate() {
        let port = 5000 + at as u16;
        let destination = SocketAddr::new(destination, ECHO);
        realm.take(1);
        realm.send(
            0,
            &udp_packet(SocketAddr::new(source, port), destination, b"hello"),
        );
        realm.pass(ms(50));
        let client = parse(&realm.take(1)[0]).source;
        let answer = realm.take(0).remove(0);

        realm.send(0, &refusal(&answer, reporter, Reason::PortUnreachable));
        realm.pass(ms(50));

        let told = realm.take(1).remove(0);
        let packet = parse(&told);
        assert_eq!(
            (packet.source, packet.destination),
            (client, SHARED.into()),
            "case {at}"
        );
        let inner = error_of(&told).inner;
        assert_eq!((inner.source, inner.destination), (SHARED.into(), client));
        assert_eq!((inner.source_port, inner.destination_port), (ECHO, port));
        assert_eq!(inner.protocol, Protocol::UDP);
    }
    assert_eq!(
        realm.nodes[0].plane.sizes().flows,
        3,
        "errors begin no flows"
    );
}

#[test]
fn each_end_by_itself_names_an_error_by_what_it_quotes() {
    let client = Spec::client().with_subnet("10.1.0.0/16");
    let mut realm = Realm::new(1, vec![client, Spec::holder(SHARED)]);
    realm.send(
        0,
        &udp_packet(socket("10.1.0.6", 5000), shared(ECHO), b"hello"),
    );
    realm.pass(ms(50));
    let client = parse(&realm.take(1)[0]).source;
    let answer = realm.take(0).remove(0);
    let error = refusal(&answer, [192, 0, 0, 2].into(), Reason::HostUnreachable);

    let mut sent = error.clone();
    let total = sent.len();
    let mut head = Head {
        bytes: &mut sent,
        start: 0,
        total,
    };
    let mut offload = Offload::PLAIN;
    let now = realm.now;
    realm.nodes[0].plane.from_host(now, &mut head, &mut offload);
    realm.bring(1, peer(0), Flags::NONE, &error);

    assert_eq!(parse(&sent).source, IpAddr::from([10, 1, 0, 6]));
    let told = realm.take(1).remove(0);
    assert_eq!(
        (parse(&told).source, error_of(&told).inner.destination),
        (client, client)
    );
}

#[test]
fn what_is_too_big_for_the_path_is_told_to_its_sender_at_either_end() {
    let mut realm = Realm::of_holders(1, 1);
    let overlay: IpAddr = realm.nodes[0].overlay().into();
    for (source, destination, mtu) in [
        (IpAddr::from([192, 0, 0, 2]), IpAddr::V4(SHARED), 1420),
        (overlay, spelled(SHARED).into(), 1440),
    ] {
        let source = SocketAddr::new(source, mtu as u16);
        let mut big = udp_packet(source, SocketAddr::new(destination, ECHO), &[7; 1500]);
        forbid_fragments(&mut big);
        realm.send(0, &big);
        let told = realm.take(0).remove(0);
        assert_eq!(parse(&told).destination, source.ip());
        assert_eq!(error_of(&told).kind, IcmpKind::TooBig { mtu });
        assert_eq!(error_of(&told).inner.source, source.ip());
    }
    assert_eq!(realm.dropped(0, DropReason::TooBig), 2);

    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 5001), shared(ECHO), b"small"),
    );
    realm.pass(ms(50));
    let client = parse(&realm.take(1)[0]).source;
    let mut big = udp_packet(shared(ECHO), SocketAddr::new(client, 5001), &[7; 1500]);
    forbid_fragments(&mut big);
    realm.send(1, &big);
    let told = realm.take(1).remove(0);
    assert_eq!(error_of(&told).kind, IcmpKind::TooBig { mtu: 1420 });
    assert_eq!(error_of(&told).inner.destination, client);
}

#[test]
fn a_router_may_tell_the_client_that_a_segment_was_too_big() {
    let mut realm = Realm::of_holders(1, 1);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    let asked = realm.take(1).pop().unwrap();
    let mut error = Vec::new();
    build_too_big(&mut error, &asked, SHARED.into(), 1300).unwrap();

    realm.send(1, &error);
    realm.pass(ms(50));

    let told = realm.take(0).remove(0);
    let error = error_of(&told);
    assert_eq!(error.kind, IcmpKind::TooBig { mtu: 1300 });
    assert_eq!(error.inner.source_port, 40_000);
    assert_eq!(connection.ask(&mut realm), Some(1));
}

#[test]
fn an_error_about_nobodys_packet_goes_nowhere() {
    let mut realm = Realm::of_holders(1, 1);
    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 5000), shared(ECHO), b"hello"),
    );
    realm.pass(ms(50));
    let client = parse(&realm.take(1)[0]).source;
    let foreign = tcp_packet((client, 1).into(), socket("172.16.0.9", 2), 1, 1, 0x10, &[]);

    let verdict = realm.send(
        1,
        &refusal(&foreign, SHARED.into(), Reason::HostUnreachable),
    );

    assert_eq!(verdict, ToPeer::Dropped(DropReason::ForeignSource));
}

fn refusal(original: &[u8], from: IpAddr, reason: Reason) -> Vec<u8> {
    let mut error = Vec::new();
    build_unreachable(&mut error, original, from, reason).unwrap();
    error
}

fn error_of(bytes: &[u8]) -> IcmpError {
    let packet = parse(bytes);
    let Transport::IcmpError(error) = packet.transport else {
        panic!("{packet:?}")
    };
    error
}

fn forbid_fragments(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        packet[6] |= 0x40;
        crate::packet::checksum::write_ipv4_header(packet, 20);
    }
}

fn shared(port: u16) -> SocketAddr {
    (SHARED, port).into()
}
