//! Translation: addresses rewritten in place, IPv4 into IPv6 and back. Checksums that were right
//! stay right, what is refused is untouched, and what goes there and back is as it was.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use conflux_core::packet::checksum::{verify, verify_header};
use conflux_core::packet::{Checksum, Offload, Packet, Protocol, Segmentation, Transport};
use conflux_core::translate::{
    HEADROOM, four_to_six, rewrite_destination, rewrite_source, six_to_four, spelled, unspell,
};

use crate::input::Input;
use crate::packets::{mend, sample_packets};

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mends = input.flag();
    let offload = Offload {
        checksum: input.pick(&[Checksum::Complete, Checksum::Partial]),
        segmentation: Segmentation::None,
        segment_bytes: 0,
        ecn: false,
    };
    let (four, other) = (Ipv4Addr::from(input.array()), Ipv4Addr::from(input.array()));
    let mut bytes = input.rest().to_vec();
    if mends {
        mend(&mut bytes);
    }
    let Ok(packet) = Packet::parse(&bytes, bytes.len()) else {
        return;
    };
    let offload = Offload {
        checksum: offload.checksum.for_packet(&packet),
        ..offload
    };
    if packet.is_ipv4() {
        rewrites(&bytes, &packet, offload.checksum, four.into());
        there(&bytes, &packet, offload, (spelled(four), spelled(other)));
    } else {
        rewrites(&bytes, &packet, offload.checksum, spelled(four).into());
        back(&bytes, &packet, offload, (four, other));
    }
}

type Rewrite =
    fn(&mut [u8], &Packet, Checksum, IpAddr) -> Result<(), conflux_core::translate::Untranslatable>;

fn rewrites(bytes: &[u8], packet: &Packet, checksum: Checksum, to: IpAddr) {
    let was_right = verify(bytes, packet);
    let header_was_right = verify_header(bytes, packet);
    for (rewrite, is_source) in [
        (rewrite_source as Rewrite, true),
        (rewrite_destination as Rewrite, false),
    ] {
        let mut work = bytes.to_vec();
        if rewrite(&mut work, packet, checksum, to).is_err() {
            assert_eq!(work, bytes);
            continue;
        }
        // A quote that is rewritten too may be one that nobody can read any more.
        let Ok(read) = Packet::parse(&work, work.len()) else {
            panic!("{packet:?} was lost");
        };
        assert_eq!(
            if is_source {
                read.source
            } else {
                read.destination
            },
            to
        );
        assert_eq!(read.total_bytes, packet.total_bytes);
        assert!(!header_was_right || verify_header(&work, &read));
        if checksum == Checksum::Complete {
            assert!(!was_right || verify(&work, &read), "{read:?}");
        }
    }
}

fn there(bytes: &[u8], packet: &Packet, offload: Offload, to: (Ipv6Addr, Ipv6Addr)) {
    let was_right = verify(bytes, packet);
    let mut work = [&[0; HEADROOM][..], bytes].concat();
    let mut left = offload;
    let Ok(start) = four_to_six(&mut work, HEADROOM, packet, &mut left, to.0, to.1) else {
        assert_eq!(work[HEADROOM..], *bytes);
        assert_eq!(left, offload);
        return;
    };
    let six = &work[start..];
    let read = Packet::parse(six, six.len()).expect("what was translated is a packet");
    assert_eq!((read.source, read.destination), (to.0.into(), to.1.into()));
    if left.checksum == Checksum::Complete {
        assert!(!was_right || verify(six, &read) || read.fragment.is_some());
    }
    let (Some(source), Some(destination)) = (unspell(to.0), unspell(to.1)) else {
        panic!("they spell addresses");
    };
    let (six, mut again) = (six.to_vec(), six.to_vec());
    let mut left_again = left;
    let Ok(start) = six_to_four(&mut again, &read, &mut left_again, source, destination) else {
        assert_eq!(again, six);
        return;
    };
    let four = &again[start..];
    let read = Packet::parse(four, four.len()).expect("what was translated is a packet");
    assert_eq!(read.destination, IpAddr::V4(destination));
    same_words(packet, &read);
}

fn back(bytes: &[u8], packet: &Packet, offload: Offload, to: (Ipv4Addr, Ipv4Addr)) {
    let was_right = verify(bytes, packet);
    let (mut work, mut left) = (bytes.to_vec(), offload);
    let Ok(start) = six_to_four(&mut work, packet, &mut left, to.0, to.1) else {
        assert_eq!(work, bytes);
        assert_eq!(left, offload);
        return;
    };
    let four = &work[start..];
    let read = Packet::parse(four, four.len()).expect("what was translated is a packet");
    assert_eq!((read.source, read.destination), (to.0.into(), to.1.into()));
    assert!(verify_header(four, &read));
    if left.checksum == Checksum::Complete {
        assert!(!was_right || verify(four, &read) || read.fragment.is_some());
    }
    same_words(packet, &read);
}

/// What a transport header says does not change with the family.
fn same_words(one: &Packet, other: &Packet) {
    match (&one.transport, &other.transport) {
        (Transport::Tcp(one), Transport::Tcp(other)) => assert_eq!(one, other),
        (Transport::Udp(one), Transport::Udp(other)) => assert_eq!(one, other),
        (Transport::Echo(one), Transport::Echo(other)) => assert_eq!(one, other),
        (Transport::IcmpError(one), Transport::IcmpError(other)) => {
            let icmp = |protocol| match protocol {
                Protocol::ICMPV6 => Protocol::ICMP,
                Protocol(_) => protocol,
            };
            assert_eq!(icmp(one.inner.protocol), icmp(other.inner.protocol));
        }
        (one, other) => {
            assert_eq!(std::mem::discriminant(one), std::mem::discriminant(other));
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    sample_packets()
        .into_iter()
        .flat_map(|packet| {
            let addresses = [198, 18, 0, 7, 10, 128, 0, 9];
            [0, 1].map(|checksum| [&[1, checksum][..], &addresses, &packet].concat())
        })
        .collect()
}
