use std::net::Ipv4Addr;

use super::*;
use crate::packet::testing::{A4, A6, B4, B6, Recipe, assert_sound, recipe, tcp_recipe};
use crate::packet::{Checksum, IcmpKind};

#[test]
fn reset_carries_its_numbers() {
    for (from, to) in [(B4, A4), (B6, A6)] {
        for acknowledgment in [None, Some(77)] {
            let mut out = Vec::new();
            let (from, to) = (SocketAddr::new(from, 80), SocketAddr::new(to, 40_000));

            build_reset(&mut out, from, to, 0xfffe_0001, acknowledgment).unwrap();

            let packet = assert_sound(&out, Checksum::Complete);
            assert_eq!((packet.source, packet.destination), (from.ip(), to.ip()));
            let Transport::Tcp(tcp) = packet.transport else {
                panic!("{packet:?}")
            };
            assert_eq!((tcp.source_port, tcp.destination_port), (80, 40_000));
            assert_eq!((tcp.sequence, tcp.payload_bytes), (0xfffe_0001, 0));
            assert!(tcp.flags.contains(TcpFlags::RST));
            assert_eq!(tcp.flags.contains(TcpFlags::ACK), acknowledgment.is_some());
            assert_eq!(tcp.acknowledgment, acknowledgment.unwrap_or(0));
        }
    }
}

#[test]
fn reset_between_families_is_refused() {
    let mut out = vec![1];
    let (from, to) = (SocketAddr::new(B4, 1), SocketAddr::new(A6, 2));

    assert_eq!(
        build_reset(&mut out, from, to, 1, None),
        Err(Unanswerable::Family)
    );
    assert!(out.is_empty());
}

#[test]
fn errors_quote_what_they_are_about_and_stay_small() {
    for (is_ipv4, from, max_bytes) in [(true, B4, 576), (false, B6, 1280)] {
        let recipe = recipe(is_ipv4);
        for payload_bytes in [0, 5, 20_000] {
            let original = recipe.tcp(&tcp_recipe(), &vec![1; payload_bytes], Checksum::Partial);
            for reason in [
                Reason::HostUnreachable,
                Reason::AdminProhibited,
                Reason::PortUnreachable,
            ] {
                let mut out = Vec::new();

                build_unreachable(&mut out, &original, from, reason).unwrap();

                assert!(out.len() <= max_bytes);
                let packet = assert_sound(&out, Checksum::Complete);
                assert_eq!(packet.destination, recipe.source);
                let Transport::IcmpError(error) = packet.transport else {
                    panic!("{packet:?}")
                };
                assert_eq!(
                    (error.inner.source_port, error.inner.destination_port),
                    (40_000, 80)
                );
                assert_eq!(error.inner.sequence, 1000);
            }
        }
    }
}

#[test]
fn errors_about_the_shortest_packets_are_read_by_our_own_kind() {
    // GRE, and each family's ICMP in the other, which means nothing there.
    for (recipe, from, protocol) in [
        (recipe(true), B4, 47),
        (recipe(true), B4, 58),
        (recipe(false), B6, 47),
        (recipe(false), B6, 1),
    ] {
        for bytes in [0, 1, 7] {
            let original = recipe.wrap(protocol, &vec![9; bytes]);
            let mut out = Vec::new();

            build_unreachable(&mut out, &original, from, Reason::HostUnreachable).unwrap();

            let packet = assert_sound(&out, Checksum::Complete);
            let Transport::IcmpError(error) = packet.transport else {
                panic!("{packet:?}")
            };
            assert_eq!(error.inner.protocol, Protocol(protocol));
            assert_eq!(error.inner.destination, recipe.destination);
        }
    }
}

#[test]
fn too_big_names_the_mtu() {
    for (is_ipv4, from) in [(true, B4), (false, B6)] {
        let original = recipe(is_ipv4).udp((1, 2), &[0; 1400], Checksum::Complete);
        let mut out = Vec::new();

        build_too_big(&mut out, &original, from, 1234).unwrap();

        let packet = assert_sound(&out, Checksum::Complete);
        let Transport::IcmpError(error) = packet.transport else {
            panic!("{packet:?}")
        };
        assert_eq!(error.kind, IcmpKind::TooBig { mtu: 1234 });
    }
}

#[test]
fn no_error_answers_what_must_not_be_answered() {
    let base = recipe(true);
    let udp = |recipe: &Recipe| recipe.udp((1, 2), b"data", Checksum::Complete);
    let to = |destination: [u8; 4]| {
        udp(&Recipe {
            destination: Ipv4Addr::from(destination).into(),
            ..base.clone()
        })
    };
    let from = |source: [u8; 4]| {
        udp(&Recipe {
            source: Ipv4Addr::from(source).into(),
            ..base.clone()
        })
    };
    let later = Recipe {
        fragment: Some((64, true)),
        dont_fragment: false,
        ..base.clone()
    };
    let cases = [
        base.icmp((3, 1), (1, 0), 0, &udp(&base.reversed())),
        later.wrap(17, &[0; 64]),
        to([224, 0, 0, 251]),
        to([255, 255, 255, 255]),
        from([0, 0, 0, 0]),
        from([127, 0, 0, 1]),
        from([224, 0, 0, 1]),
    ];

    for original in cases {
        let mut out = Vec::new();
        let outcome = build_unreachable(&mut out, &original, B4, Reason::HostUnreachable);
        assert_eq!(outcome, Err(Unanswerable::NotAbout));
        assert!(out.is_empty());
    }
}
