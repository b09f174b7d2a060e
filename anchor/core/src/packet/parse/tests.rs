use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::packet::testing::{Recipe, TcpRecipe, naive_sum, recipe, samples, tcp_recipe};
use crate::packet::{Checksum, HEADROOM, Joinable, Joiner, Offload, Segmentation};

fn parse(bytes: &[u8]) -> Result<Packet, Malformed> {
    Packet::parse(bytes, bytes.len())
}

/// Does everything to a packet that `core` can.
fn exercise(bytes: &[u8], number: u16) {
    use crate::packet::*;
    use crate::translate::{
        HEADROOM, four_to_six, rewrite_destination, rewrite_source, six_to_four,
    };

    let mut joiner = Joiner::new(Joinable::TcpAndUdp, 4);
    let Ok(packet) = parse(bytes) else { return };
    let (v4, v6) = (Ipv4Addr::new(10, 1, 2, 3), Ipv6Addr::from([0xfd; 16]));
    for checksum in [Checksum::Complete, Checksum::Partial] {
        let _ = joiner.push(1, 0, checksum, 0, bytes);
        for segmentation in [Segmentation::None, Segmentation::Tcp, Segmentation::Udp] {
            let offload = Offload {
                checksum,
                segmentation,
                segment_bytes: number,
                ecn: true,
            };
            let mut copy = bytes.to_vec();
            let limit = usize::from(number.swap_bytes());
            if let Ok(mut cut) = Cut::new(&mut copy, offload, limit) {
                while let Some(piece) = cut.next() {
                    parse(piece).expect("pieces are well-formed");
                }
            }
            let header = offload.to_virtio(&packet);
            let _ = Offload::from_virtio(&header, &packet);
            let mut left = offload;
            let mut room = vec![0; HEADROOM];
            room.extend_from_slice(bytes);
            let _ = six_to_four(&mut bytes.to_vec(), &packet, &mut left, v4, v4);
            let _ = four_to_six(&mut room, HEADROOM, &packet, &mut left, v6, v6);
        }
        let mut copy = bytes.to_vec();
        if let Ok(mut fragments) = fragment_ipv4(&mut copy, checksum, usize::from(number)) {
            while fragments.next().is_some() {}
        }
        for to in [v4.into(), v6.into()] {
            let mut copy = bytes.to_vec();
            let _ = rewrite_source(&mut copy, &packet, checksum, to);
            let _ = rewrite_destination(&mut copy, &packet, checksum, to);
            clamp_mss(&mut copy, &packet, checksum, number);
            checksum::complete(&mut copy, &packet);
            let mut out = Vec::new();
            let _ = build_unreachable(&mut out, bytes, to, Reason::HostUnreachable);
            let _ = build_too_big(&mut out, bytes, to, number);
        }
    }
    while let Some(mut joined) = joiner.pop() {
        let total_bytes = joined.packet.total_bytes;
        Packet::parse(joined.head(), total_bytes).expect("joined packets are well-formed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200), total in 0usize..300) {
        let _ = Packet::parse(&bytes, total);
    }

    #[test]
    fn no_bytes_after_a_plausible_start_make_anything_panic(
        start in prop::sample::select(vec![0x45u8, 0x46, 0x4f, 0x60]),
        protocol in prop::sample::select(vec![0u8, 1, 2, 6, 17, 43, 44, 58, 60, 136]),
        bytes in vec(any::<u8>(), 40..200),
        number in any::<u16>(),
    ) {
        let mut bytes = bytes;
        bytes[0] = start;
        if start == 0x60 {
            let payload_bytes = (bytes.len() - 40) as u16;
            bytes[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
            bytes[6] = protocol;
        } else {
            let total_bytes = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&total_bytes.to_be_bytes());
            bytes[6..8].copy_from_slice(&[0, 0]);
            bytes[9] = protocol;
        }
        exercise(&bytes, number);
    }

    #[test]
    fn no_damage_to_a_real_packet_makes_anything_panic(
        sample in samples(),
        damage in vec((any::<u16>(), any::<u8>()), 0..4),
        number in any::<u16>(),
    ) {
        let mut bytes = sample.bytes;
        for (at, value) in damage {
            let length = bytes.len();
            bytes[usize::from(at) % length] = value;
        }
        exercise(&bytes, number);
    }

    #[test]
    fn headers_suffice(sample in samples()) {
        let whole = parse(&sample.bytes).unwrap();
        let head_bytes = sample.bytes.len().min(whole.header_bytes + 128);

        let head = Packet::parse(&sample.bytes[..head_bytes], sample.bytes.len());

        prop_assert_eq!(head, Ok(whole));
    }

    #[test]
    fn every_prefix_is_refused_or_the_same(sample in samples()) {
        let whole = parse(&sample.bytes).unwrap();
        for end in 0..sample.bytes.len().min(160) {
            if let Ok(packet) = Packet::parse(&sample.bytes[..end], sample.bytes.len()) {
                prop_assert_eq!(packet, whole);
            }
            prop_assert!(parse(&sample.bytes[..end]).is_err());
        }
    }
}

#[test]
fn tcp_header_is_read() {
    let tcp = TcpRecipe {
        flags: 0x18,
        ..tcp_recipe()
    };

    let packet = parse(&recipe(true).tcp(&tcp, b"hello", Checksum::Complete)).unwrap();

    let Transport::Tcp(tcp) = packet.transport else {
        panic!("{packet:?}")
    };
    assert_eq!((tcp.source_port, tcp.destination_port), (40_000, 80));
    assert_eq!(
        (tcp.sequence, tcp.acknowledgment, tcp.window),
        (1000, 5, 0x01f5)
    );
    assert_eq!((tcp.header_bytes, tcp.payload_bytes), (32, 5));
    assert!(tcp.flags.contains(TcpFlags::PSH.with(TcpFlags::ACK)));
    assert_eq!((packet.header_bytes, packet.total_bytes), (20, 57));
    assert!(packet.dont_fragment);
}

#[test]
fn extension_headers_are_walked_to_their_limit() {
    let with = |extensions| {
        let recipe = Recipe {
            extensions,
            ..recipe(false)
        };
        parse(&recipe.udp((1, 2), b"x", Checksum::Complete))
    };

    assert_eq!(with(8).unwrap().header_bytes, 40 + 64);
    assert_eq!(with(9), Err(Malformed::Extensions));
}

#[test]
fn fragments_are_told() {
    for is_ipv4 in [true, false] {
        let first = Recipe {
            fragment: Some((0, true)),
            dont_fragment: false,
            ..recipe(is_ipv4)
        };
        let later = Recipe {
            fragment: Some((64, false)),
            ..first.clone()
        };
        let udp = [0, 1, 0, 2, 0, 72, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

        let first = parse(&first.wrap(17, &udp)).unwrap();
        let later = parse(&later.wrap(17, &udp)).unwrap();

        let place = Fragment {
            identification: 7,
            offset_bytes: 0,
            more: true,
        };
        assert_eq!(first.fragment, Some(place));
        assert!(matches!(first.transport, Transport::Udp(udp) if udp.source_port == 1));
        let place = Fragment {
            identification: 7,
            offset_bytes: 64,
            more: false,
        };
        assert_eq!(later.fragment, Some(place));
        assert_eq!(later.transport, Transport::LaterFragment);
    }
}

#[test]
fn errors_tell_whose_packet_they_are_about() {
    for is_ipv4 in [true, false] {
        let recipe = recipe(is_ipv4);
        let about = recipe.reversed();
        let echo = about.icmp((8, 0), (128, 0), 0x1234_0001, b"data");
        let reply = about.icmp((0, 0), (129, 0), 0x1234_0001, b"data");
        let ports = |quote: &[u8]| {
            let packet = parse(&recipe.icmp((3, 1), (1, 3), 0, quote)).unwrap();
            let Transport::IcmpError(error) = packet.transport else {
                panic!("{packet:?}")
            };
            assert_eq!(
                (error.inner.source, error.inner.destination),
                (about.source, about.destination)
            );
            (
                error.inner.source_port,
                error.inner.destination_port,
                error.inner.sequence,
            )
        };

        assert_eq!(
            ports(&about.tcp(&tcp_recipe(), &[], Checksum::Complete)),
            (40_000, 80, 1000)
        );
        assert_eq!(
            ports(&about.udp((5, 6), b"x", Checksum::Complete)),
            (5, 6, 0)
        );
        assert_eq!(ports(&echo), (0x1234, 0, 0));
        assert_eq!(ports(&reply), (0, 0x1234, 0));
    }
}

#[test]
fn error_kinds_are_told() {
    let kind = |is_ipv4, v4, v6, rest| {
        let recipe = recipe(is_ipv4);
        let quote = recipe.reversed().udp((5, 6), b"x", Checksum::Complete);
        let packet = parse(&recipe.icmp(v4, v6, rest, &quote)).unwrap();
        if let Transport::IcmpError(error) = packet.transport {
            Some(error.kind)
        } else {
            None
        }
    };

    assert_eq!(
        kind(true, (3, 4), (0, 0), 1400),
        Some(IcmpKind::TooBig { mtu: 1400 })
    );
    assert_eq!(
        kind(false, (0, 0), (2, 0), 1400),
        Some(IcmpKind::TooBig { mtu: 1400 })
    );
    assert_eq!(
        kind(true, (3, 3), (0, 0), 0),
        Some(IcmpKind::Unreachable { code: 3 })
    );
    assert_eq!(
        kind(false, (0, 0), (1, 4), 0),
        Some(IcmpKind::Unreachable { code: 4 })
    );
    assert_eq!(
        kind(true, (11, 0), (0, 0), 0),
        Some(IcmpKind::TimeExceeded { code: 0 })
    );
    assert_eq!(
        kind(false, (0, 0), (99, 1), 0),
        Some(IcmpKind::Other { kind: 99, code: 1 })
    );
    assert_eq!(
        kind(true, (5, 0), (0, 0), 0),
        None,
        "a redirect is no error we carry"
    );
    assert_eq!(kind(false, (0, 0), (135, 0), 0), None);
}

#[test]
fn lies_are_refused() {
    let good = recipe(true).udp((1, 2), b"data", Checksum::Complete);
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        parse(&bytes)
    };
    let quote = recipe(true).icmp((3, 1), (1, 3), 0, &good[..27]);
    let giant = Recipe {
        fragment: Some((65_528, false)),
        ..recipe(true)
    };
    let odd = Recipe {
        fragment: Some((0, true)),
        ..recipe(true)
    };

    assert_eq!(changed(0, 0x55), Err(Malformed::Version));
    assert_eq!(changed(0, 0x44), Err(Malformed::HeaderLength));
    assert_eq!(changed(0, 0x4f), Err(Malformed::Truncated));
    assert_eq!(changed(3, 99), Err(Malformed::Length));
    assert_eq!(changed(25, 99), Err(Malformed::Length));
    assert_eq!(parse(&quote), Err(Malformed::Quote));
    assert_eq!(parse(&giant.wrap(17, &[0; 16])), Err(Malformed::Fragment));
    assert_eq!(parse(&odd.wrap(17, &[0; 15])), Err(Malformed::Fragment));
    assert_eq!(parse(&[]), Err(Malformed::Truncated));
}

#[test]
fn source_routes_are_refused_unless_used_up() {
    let with = |next: u8| {
        let mut bytes = recipe(true).udp((1, 2), b"data", Checksum::Complete);
        bytes.splice(20..20, [0x83, 7, next, 10, 0, 0, 1, 0]);
        bytes[0] = 0x47;
        bytes[3] += 8;
        bytes[10..12].copy_from_slice(&[0, 0]);
        let checksum = !naive_sum(&bytes[..28], 0);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        parse(&bytes).map(|packet| packet.header_bytes)
    };

    assert_eq!(with(4), Err(Malformed::SourceRouted));
    assert_eq!(with(8), Ok(28));
}

#[test]
fn joiner_leaves_room_for_a_family_change() {
    const { assert!(HEADROOM >= crate::translate::HEADROOM) };
    let mut joiner = Joiner::new(Joinable::Tcp, 1);
    let bytes = recipe(true).udp((1, 2), b"data", Checksum::Complete);
    joiner.push(0, 0, Checksum::Complete, 0, &bytes).unwrap();
    let joined = joiner.pop().unwrap();
    assert_eq!(joined.offload.segmentation, Segmentation::None);
    assert_eq!(joined.offload, Offload::PLAIN);
}
