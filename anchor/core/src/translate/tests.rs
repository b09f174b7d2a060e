use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::packet::testing::{
    A4, A6, B4, B6, Recipe, Sample, assert_sound, naive_sum, recipe, samples, super_packets,
    tcp_recipe,
};
use crate::packet::{Checksum, IcmpKind, Offload, Packet, Segmentation, Transport};

fn v4(address: IpAddr) -> Ipv4Addr {
    let IpAddr::V4(address) = address else {
        panic!("{address}")
    };
    address
}

fn v6(address: IpAddr) -> Ipv6Addr {
    let IpAddr::V6(address) = address else {
        panic!("{address}")
    };
    address
}

fn parse(bytes: &[u8]) -> Packet {
    Packet::parse(bytes, bytes.len()).unwrap()
}

fn to_four(
    sample: &Sample,
    source: Ipv4Addr,
    destination: Ipv4Addr,
) -> Result<Sample, Untranslatable> {
    let mut bytes = sample.bytes.clone();
    let mut offload = sample.offload;
    let packet = parse(&bytes);
    let start = six_to_four(&mut bytes, &packet, &mut offload, source, destination)
        .inspect_err(|_| assert_eq!(bytes, sample.bytes, "unchanged on error"))?;
    Ok(Sample {
        bytes: bytes.split_off(start),
        offload,
    })
}

fn to_six(
    sample: &Sample,
    source: Ipv6Addr,
    destination: Ipv6Addr,
) -> Result<Sample, Untranslatable> {
    let mut bytes = vec![0; HEADROOM];
    bytes.extend_from_slice(&sample.bytes);
    let mut offload = sample.offload;
    let packet = parse(&sample.bytes);
    let start = four_to_six(
        &mut bytes,
        HEADROOM,
        &packet,
        &mut offload,
        source,
        destination,
    )
    .inspect_err(|_| assert_eq!(bytes[HEADROOM..], sample.bytes, "unchanged on error"))?;
    Ok(Sample {
        bytes: bytes.split_off(start),
        offload,
    })
}

fn plain(bytes: Vec<u8>) -> Sample {
    Sample {
        bytes,
        offload: Offload::PLAIN,
    }
}

fn error_of(bytes: &[u8]) -> crate::packet::IcmpError {
    let packet = parse(bytes);
    let Transport::IcmpError(error) = packet.transport else {
        panic!("{packet:?}")
    };
    error
}

/// What must be the same after going there and back: all but IPv4's identification and DF.
fn normalized(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes[0] >> 4 == 4 {
        bytes[4..8].fill(0);
        bytes[10..12].fill(0);
    }
    bytes
}

proptest! {
    #[test]
    fn rewriting_keeps_checksums_right(
        sample in prop_oneof![samples(), super_packets()],
        new4 in any::<u32>(), new6 in any::<u128>(), is_source in any::<bool>(),
    ) {
        let before = parse(&sample.bytes);
        let to = if before.is_ipv4() { IpAddr::V4(new4.into()) } else { IpAddr::V6(new6.into()) };
        let mut bytes = sample.bytes;
        let head_bytes = bytes.len().min(before.header_bytes + 128);
        let rewrite = if is_source { rewrite_source } else { rewrite_destination };

        rewrite(&mut bytes[..head_bytes], &before, sample.offload.checksum, to).unwrap();

        let after = assert_sound(&bytes, sample.offload.checksum);
        let (changed, kept) = if is_source {
            ((after.source, to), (after.destination, before.destination))
        } else {
            ((after.destination, to), (after.source, before.source))
        };
        prop_assert_eq!(changed.0, changed.1);
        prop_assert_eq!(kept.0, kept.1);
        if let (Transport::IcmpError(old), Transport::IcmpError(new)) =
            (before.transport, after.transport)
        {
            let replaced = if is_source { before.source } else { before.destination };
            let expected = |address| if address == replaced { to } else { address };
            prop_assert_eq!(new.inner.source, expected(old.inner.source));
            prop_assert_eq!(new.inner.destination, expected(old.inner.destination));
            let quote = &bytes[after.header_bytes + 8..];
            if after.is_ipv4() {
                prop_assert_eq!(naive_sum(&quote[..20], 0), 0xffff);
            }
            assert_sound(quote, Checksum::Complete);
        }
    }

    #[test]
    fn there_and_back_is_the_same(
        sample in prop_oneof![samples(), super_packets()],
        ends4 in any::<(u32, u32)>(), ends6 in any::<(u128, u128)>(),
    ) {
        let before = parse(&sample.bytes);
        let checksum = sample.offload.checksum;
        if before.is_ipv4() {
            let ends = (ends6.0.into(), ends6.1.into());
            prop_assume!(ends.0 != ends.1);
            let there = to_six(&sample, ends.0, ends.1).unwrap();
            let middle = assert_sound(&there.bytes, there.offload.checksum);
            prop_assert_eq!(middle.hop_limit, before.hop_limit);
            prop_assert_eq!((middle.source, middle.destination), (ends.0.into(), ends.1.into()));

            let back = to_four(&there, v4(before.source), v4(before.destination)).unwrap();

            assert_sound(&back.bytes, checksum);
            if let Transport::IcmpError(_) = before.transport {
                prop_assert_eq!(error_of(&back.bytes).inner, error_of(&sample.bytes).inner);
                prop_assert_eq!(back.bytes.len(), sample.bytes.len());
            } else {
                prop_assert_eq!(normalized(back.bytes), normalized(sample.bytes));
            }
        } else {
            let ends = (ends4.0.into(), ends4.1.into());
            prop_assume!(ends.0 != ends.1);
            let there = to_four(&sample, ends.0, ends.1).unwrap();
            assert_sound(&there.bytes, there.offload.checksum);

            let back = to_six(&there, v6(before.source), v6(before.destination)).unwrap();

            let after = assert_sound(&back.bytes, checksum);
            prop_assert_eq!((after.source, after.destination), (before.source, before.destination));
            prop_assert_eq!(after.hop_limit, before.hop_limit);
            if let Transport::IcmpError(_) = before.transport {
                prop_assert_eq!(error_of(&back.bytes).inner, error_of(&sample.bytes).inner);
            } else {
                prop_assert_eq!(after.transport, before.transport);
                prop_assert_eq!(
                    &back.bytes[after.all_header_bytes()..],
                    &sample.bytes[before.all_header_bytes()..]
                );
            }
        }
    }
}

#[test]
fn spelling_is_reversible_and_exclusive() {
    let address = Ipv4Addr::new(10, 128, 0, 9);

    assert_eq!(spelled(address).to_string(), "64:ff9b:1::a80:9");
    assert_eq!(unspell(spelled(address)), Some(address));
    assert_eq!(unspell("64:ff9b::a80:9".parse().unwrap()), None);
    assert_eq!(unspell("64:ff9b:1::1:a80:9".parse().unwrap()), None);
}

#[test]
fn wrong_family_is_refused() {
    let mut bytes = recipe(true).udp((1, 2), b"x", Checksum::Complete);
    let packet = parse(&bytes);
    let refused = rewrite_source(&mut bytes, &packet, Checksum::Complete, A6);

    assert_eq!(refused, Err(Untranslatable::Family));
    assert_eq!(
        to_four(&plain(bytes), v4(A4), v4(B4)).unwrap_err(),
        Untranslatable::Family
    );
}

#[test]
fn absent_udp_checksum_stays_absent_until_ipv6_needs_one() {
    let mut bytes = recipe(true).udp((1, 2), b"data", Checksum::Complete);
    bytes[26..28].fill(0);
    let packet = parse(&bytes);

    rewrite_source(&mut bytes, &packet, Checksum::Complete, B4).unwrap();
    assert_eq!(bytes[26..28], [0, 0]);

    let there = to_six(&plain(bytes), v6(A6), v6(B6)).unwrap();
    assert_eq!(there.offload.checksum, Checksum::Partial);
    assert_sound(&there.bytes, Checksum::Partial);
}

#[test]
fn fragments_change_family() {
    let place = Recipe {
        fragment: Some((64, true)),
        dont_fragment: false,
        ..recipe(true)
    };
    let sample = plain(place.wrap(17, &[9; 64]));

    let there = to_six(&sample, v6(A6), v6(B6)).unwrap();
    let back = to_four(&there, v4(A4), v4(B4)).unwrap();

    assert_eq!(parse(&there.bytes).fragment, parse(&sample.bytes).fragment);
    assert_eq!(parse(&there.bytes).header_bytes, 48);
    assert_eq!(back.bytes, sample.bytes);
}

#[test]
fn later_fragment_is_rewritten_in_its_header_only() {
    let place = Recipe {
        fragment: Some((64, true)),
        dont_fragment: false,
        ..recipe(true)
    };
    let mut bytes = place.wrap(17, &[9; 64]);
    let packet = parse(&bytes);

    rewrite_destination(&mut bytes, &packet, Checksum::Complete, A4).unwrap();

    assert_sound(&bytes, Checksum::Complete);
    assert_eq!(bytes[20..], [9; 64]);
}

#[test]
fn fragments_that_need_the_others_are_refused() {
    let first = Recipe {
        fragment: Some((0, true)),
        dont_fragment: false,
        ..recipe(true)
    };
    let echo = plain(first.wrap(1, &[8, 0, 1, 1, 0, 1, 0, 1]));
    let udp = plain(first.wrap(17, &[0, 1, 0, 2, 0, 99, 0, 0]));

    assert_eq!(
        to_six(&echo, v6(A6), v6(B6)).unwrap_err(),
        Untranslatable::Fragment
    );
    assert_eq!(
        to_six(&udp, v6(A6), v6(B6)).unwrap_err(),
        Untranslatable::Fragment
    );
}

#[test]
fn error_from_a_router_on_the_way_keeps_its_quote_apart() {
    let quote = recipe(true)
        .reversed()
        .tcp(&tcp_recipe(), b"x", Checksum::Complete);
    let router = Recipe {
        source: IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)),
        ..recipe(true)
    };
    let router = Recipe {
        destination: B4,
        ..router
    };
    let sample = plain(router.icmp((11, 0), (0, 0), 0, &quote));

    let there = to_six(&sample, spelled(Ipv4Addr::new(10, 9, 9, 9)), v6(A6)).unwrap();

    assert_sound(&there.bytes, Checksum::Complete);
    let error = error_of(&there.bytes);
    assert_eq!(error.kind, IcmpKind::TimeExceeded { code: 0 });
    assert_eq!(error.inner.source, A6);
    assert_eq!(error.inner.destination, IpAddr::V6(spelled(v4(A4))));
}

#[test]
fn error_about_an_address_without_counterpart_is_refused() {
    let stranger = Recipe {
        source: "fd80::99".parse().unwrap(),
        ..recipe(false)
    };
    let quote = stranger.udp((1, 2), b"x", Checksum::Complete);
    let sample = plain(recipe(false).icmp((0, 0), (1, 4), 0, &quote));

    assert_eq!(
        to_four(&sample, v4(A4), v4(B4)).unwrap_err(),
        Untranslatable::Quote
    );
}

#[test]
fn error_about_a_protocol_that_the_other_family_reads_otherwise_is_refused() {
    // IPv6's own headers as protocols of IPv4, and each family's ICMP in the other.
    for protocol in [0, 2, 43, 44, 58, 59, 60, 135, 139, 140] {
        let quote = recipe(true).reversed().wrap(protocol, &[0; 24]);
        let sample = plain(recipe(true).icmp((3, 1), (0, 0), 0, &quote));
        assert_eq!(
            to_six(&sample, v6(A6), v6(B6)).unwrap_err(),
            Untranslatable::NoEquivalent,
            "{protocol}"
        );
    }
    for protocol in [1, 2, 59] {
        let quote = recipe(false).reversed().wrap(protocol, &[0; 24]);
        let sample = plain(recipe(false).icmp((0, 0), (1, 3), 0, &quote));
        assert_eq!(
            to_four(&sample, v4(A4), v4(B4)).unwrap_err(),
            Untranslatable::NoEquivalent,
            "{protocol}"
        );
    }
}

#[test]
fn error_kinds_have_their_counterparts() {
    let six = recipe(false);
    let four = recipe(true);
    let quote6 = six.reversed().udp((1, 2), b"x", Checksum::Complete);
    let quote4 = four.reversed().udp((1, 2), b"x", Checksum::Complete);
    let down = |kind, code, rest| {
        let sample = plain(six.icmp((0, 0), (kind, code), rest, &quote6));
        let there = to_four(&sample, v4(A4), v4(B4)).ok()?;
        assert_sound(&there.bytes, Checksum::Complete);
        Some((
            there.bytes[20],
            there.bytes[21],
            u32::from_be_bytes(there.bytes[24..28].try_into().unwrap()),
        ))
    };
    let up = |kind, code, rest| {
        let sample = plain(four.icmp((kind, code), (0, 0), rest, &quote4));
        let there = to_six(&sample, v6(A6), v6(B6)).ok()?;
        assert_sound(&there.bytes, Checksum::Complete);
        Some((
            there.bytes[40],
            there.bytes[41],
            u32::from_be_bytes(there.bytes[44..48].try_into().unwrap()),
        ))
    };

    let cases_down = [
        ((1, 0, 0), Some((3, 1, 0))),
        ((1, 1, 0), Some((3, 10, 0))),
        ((1, 3, 0), Some((3, 1, 0))),
        ((1, 4, 0), Some((3, 3, 0))),
        ((1, 5, 0), None),
        ((2, 0, 1400), Some((3, 4, 1380))),
        ((3, 1, 0), Some((11, 1, 0))),
        ((4, 0, 7), Some((12, 0, 8 << 24))),
        ((4, 0, 2), None),
        ((4, 1, 6), Some((3, 2, 0))),
        ((4, 2, 0), None),
        ((99, 0, 0), None),
    ];
    for ((kind, code, rest), expected) in cases_down {
        assert_eq!(down(kind, code, rest), expected, "ICMPv6 {kind}/{code}");
    }
    let cases_up = [
        ((3, 0, 0), Some((1, 0, 0))),
        ((3, 1, 0), Some((1, 0, 0))),
        ((3, 2, 0), Some((4, 1, 6))),
        ((3, 3, 0), Some((1, 4, 0))),
        ((3, 4, 1380), Some((2, 0, 1400))),
        ((3, 4, 0), Some((2, 0, 1280))),
        ((3, 13, 0), Some((1, 1, 0))),
        ((3, 14, 0), None),
        ((11, 0, 0), Some((3, 0, 0))),
        ((12, 0, 8 << 24), Some((4, 0, 7))),
        ((12, 1, 0), None),
        ((5, 0, 0), None),
    ];
    for ((kind, code, rest), expected) in cases_up {
        assert_eq!(up(kind, code, rest), expected, "ICMP {kind}/{code}");
    }
}

#[test]
fn only_what_ipv6_hosts_do_not_shrink_may_be_fragmented() {
    let small = plain(recipe(false).udp((1, 2), &[0; 1232], Checksum::Complete));
    let big = plain(recipe(false).udp((1, 2), &[0; 1233], Checksum::Complete));
    let mut cut = plain(recipe(false).udp((1, 2), &[0; 5000], Checksum::Partial));
    cut.offload = Offload {
        checksum: Checksum::Partial,
        segmentation: Segmentation::Udp,
        segment_bytes: 1000,
        ecn: false,
    };
    let df = |sample: &Sample| parse(&to_four(sample, v4(A4), v4(B4)).unwrap().bytes).dont_fragment;

    assert!(!df(&small));
    assert!(df(&big));
    assert!(!df(&cut));
}

#[test]
fn too_little_room_changes_nothing() {
    let mut bytes = recipe(true).udp((1, 2), b"data", Checksum::Complete);
    let before = bytes.clone();
    let packet = parse(&bytes);
    let mut offload = Offload::PLAIN;

    let refused = four_to_six(&mut bytes, 0, &packet, &mut offload, v6(A6), v6(B6));

    assert_eq!(refused, Err(Untranslatable::Room));
    assert_eq!(bytes, before);
}
