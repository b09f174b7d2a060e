//! Packet views, and what is made from packets without changing whose they are: pieces, joined
//! packets, errors, fragments, the kernel's header.
//!
//! The first byte of an input says whether its lengths and checksums are put right before it is
//! read, the next ones pick limits.

use conflux_core::packet::checksum::{
    complete, complete_at, pseudo_header, verify, verify_header, write_ipv4_header,
};
use conflux_core::packet::{
    Checksum, Cut, HEADROOM, Joinable, Joiner, Malformed, Offload, Packet, Protocol, Reason,
    SMALL_BYTES, Segmentation, Transport, VIRTIO_BYTES, build_too_big, build_unreachable,
    clamp_mss, fragment_ipv4, fragment_small,
};

use crate::input::Input;

/// The least that any path carries, in bytes of a packet.
const SMALLEST_PATH: usize = 512;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (mends, limit) = (input.flag(), usize::from(input.short()) % 2048);
    let virtio: [u8; VIRTIO_BYTES] = input.array();
    let mut bytes = input.rest().to_vec();
    if mends {
        mend(&mut bytes);
    }
    let Ok(packet) = Packet::parse(&bytes, bytes.len()) else {
        return;
    };
    assert_eq!(packet.total_bytes, bytes.len());
    assert!(packet.header_bytes <= packet.all_header_bytes());
    assert!(packet.all_header_bytes() <= bytes.len());
    assert_eq!(packet.is_ipv4(), packet.destination.is_ipv4());
    head_is_enough(&bytes, &packet);
    errors(&bytes, &packet);
    clamps(&bytes, &packet, limit);
    kernels_header(&virtio, &bytes, limit);
    joins(&bytes, &packet, limit);
    fragments(&bytes, &packet, limit);
}

/// Makes lengths and checksums right, as far as the headers can be told.
pub(crate) fn mend(bytes: &mut [u8]) {
    let length = bytes.len();
    match bytes.first().map(|first| first >> 4) {
        Some(4) if length >= 20 => {
            let total = u16::try_from(length).unwrap_or(u16::MAX);
            bytes[2..4].copy_from_slice(&total.to_be_bytes());
            let header_bytes = usize::from(bytes[0] & 15) * 4;
            if (20..=length).contains(&header_bytes) {
                write_ipv4_header(bytes, header_bytes);
            }
        }
        Some(6) if length >= 40 => {
            let payload = u16::try_from(length - 40).unwrap_or(u16::MAX);
            bytes[4..6].copy_from_slice(&payload.to_be_bytes());
        }
        Some(_) | None => return,
    }
    // A datagram's length has to be right before it is a datagram at all.
    for header_bytes in [20, 40] {
        let is_udp = match header_bytes {
            20 => bytes[0] == 0x45 && length >= 28 && bytes[9] == 17 && bytes[6] & 0x3f == 0,
            _ => bytes[0] >> 4 == 6 && length >= 48 && bytes[6] == 17,
        };
        if is_udp {
            let datagram = u16::try_from(length - header_bytes).unwrap_or(u16::MAX);
            bytes[header_bytes + 4..header_bytes + 6].copy_from_slice(&datagram.to_be_bytes());
        }
    }
    let Ok(packet) = Packet::parse(bytes, length) else {
        return;
    };
    let (at, covers_addresses) = match packet.transport {
        Transport::Tcp(_) => (16, true),
        Transport::Udp(_) => (6, true),
        Transport::Echo(_) | Transport::IcmpError(_) | Transport::Icmp => (2, !packet.is_ipv4()),
        Transport::LaterFragment | Transport::Other => return,
    };
    let start = packet.header_bytes;
    if packet.fragment.is_some() || start + at + 2 > length {
        return;
    }
    let pseudo = if covers_addresses {
        let bytes = packet.transport_bytes();
        pseudo_header(packet.source, packet.destination, packet.protocol, bytes).fold()
    } else {
        0
    };
    bytes[start + at..start + at + 2].copy_from_slice(&pseudo.to_be_bytes());
    complete_at(bytes, start, at);
}

/// A view does not depend on where the payload lies.
fn head_is_enough(bytes: &[u8], packet: &Packet) {
    let needs_quote = matches!(packet.transport, Transport::IcmpError(_));
    if !needs_quote {
        let fixed = packet.all_header_bytes() + 8;
        let head = &bytes[..fixed.min(bytes.len())];
        assert_eq!(Packet::parse(head, bytes.len()).as_ref(), Ok(packet));
    }
}

/// What the sender is told is a packet with right checksums, within the limits of the RFCs, and
/// never an answer to an error.
fn errors(bytes: &[u8], packet: &Packet) {
    let mut told = Vec::new();
    let about = packet.destination;
    let reasons = [
        Reason::HostUnreachable,
        Reason::AdminProhibited,
        Reason::PortUnreachable,
    ];
    let mut made = Vec::new();
    for reason in reasons {
        if build_unreachable(&mut told, bytes, about, reason).is_ok() {
            made.push(std::mem::take(&mut told));
        }
    }
    if build_too_big(&mut told, bytes, about, 1280).is_ok() {
        made.push(told);
    }
    for error in made {
        assert!(!matches!(packet.transport, Transport::IcmpError(_)));
        let read = Packet::parse(&error, error.len()).expect("an error of ours is a packet");
        assert!(verify(&error, &read) && verify_header(&error, &read));
        assert!(error.len() <= if read.is_ipv4() { 576 } else { 1280 });
        assert_eq!((read.source, read.destination), (about, packet.source));
        let Transport::IcmpError(read) = read.transport else {
            panic!("{read:?} is no error");
        };
        assert_eq!(read.inner.source, packet.source);
        assert_eq!(read.inner.destination, packet.destination);
    }
}

fn clamps(bytes: &[u8], packet: &Packet, limit: usize) {
    let mut head = bytes.to_vec();
    let was_right = verify(&head, packet);
    let most = u16::try_from(limit).expect("it is below 2048");
    if clamp_mss(&mut head, packet, Checksum::Complete, most) {
        assert_eq!(Packet::parse(&head, head.len()).as_ref(), Ok(packet));
        assert!(!was_right || verify(&head, packet));
        assert!(!clamp_mss(&mut head, packet, Checksum::Complete, most));
    } else {
        assert_eq!(head, bytes);
    }
}

/// What the kernel says of a packet is refused, or can be said back, and then it is cut.
fn kernels_header(virtio: &[u8; VIRTIO_BYTES], bytes: &[u8], limit: usize) {
    let packet = Packet::parse(bytes, bytes.len()).expect("it was read before");
    let Ok(offload) = Offload::from_virtio(virtio, &packet) else {
        return;
    };
    let again = Offload::from_virtio(&offload.to_virtio(&packet), &packet);
    assert_eq!(again, Ok(offload));
    cuts(bytes, &packet, offload, limit);
    let plain = Offload {
        checksum: Checksum::Complete,
        ..offload
    };
    cuts(bytes, &packet, plain, limit);
}

/// Pieces fit, are packets, carry right checksums when the whole did, and together are the whole.
fn cuts(bytes: &[u8], packet: &Packet, offload: Offload, limit: usize) {
    let mut work = bytes.to_vec();
    let was_right = offload.checksum == Checksum::Complete && verify(bytes, packet);
    let Ok(mut cut) = Cut::new(&mut work, offload, limit) else {
        assert_eq!(work, bytes);
        return;
    };
    let (mut payload, mut pieces) = (Vec::new(), 0);
    while let Some(piece) = cut.next() {
        let read = Packet::parse(piece, piece.len()).expect("a piece is a packet");
        assert!(piece.len() <= limit);
        assert_eq!(read.source, packet.source);
        let mut whole = piece.to_vec();
        if offload.checksum.for_packet(&read) == Checksum::Partial && pieces > 0 {
            complete(&mut whole, &read);
            assert!(verify(&whole, &read));
        }
        assert!(!was_right || verify(piece, &read));
        payload.extend_from_slice(&piece[read.all_header_bytes()..]);
        pieces += 1;
    }
    assert!(pieces > 0);
    assert_eq!(payload, bytes[packet.all_header_bytes()..]);
}

/// Two times the same packet, and its successor: joined or not, nothing is lost or made up.
fn joins(bytes: &[u8], packet: &Packet, limit: usize) {
    let mut next = bytes.to_vec();
    if let Transport::Tcp(tcp) = packet.transport {
        let at = packet.header_bytes + 4;
        let sequence = tcp.sequence.wrapping_add(tcp.payload_bytes);
        next[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
        mend(&mut next);
    }
    let batch = [bytes, &next, bytes].concat();
    let joinable = if limit & 1 == 0 {
        Joinable::Tcp
    } else {
        Joinable::TcpAndUdp
    };
    let mut joiner = Joiner::new(joinable, 4);
    let mut pushed = 0;
    for number in 0..3 {
        let at = number * bytes.len();
        let piece = &batch[at..at + bytes.len()];
        if joiner.push(1, 0, Checksum::Complete, at, piece).is_ok() {
            pushed += piece.len();
        }
    }
    let mut popped = 0;
    while let Some(joined) = joiner.pop() {
        let mut whole = joined.buffer[HEADROOM..].to_vec();
        for span in joined.spans() {
            whole.extend_from_slice(&batch[span.position..span.position + span.bytes]);
        }
        let read = Packet::parse(&whole, whole.len()).expect("what is joined is a packet");
        assert_eq!(read, joined.packet);
        let payload = whole.len() - read.all_header_bytes();
        let parts = match joined.offload.segmentation {
            Segmentation::None => 1,
            Segmentation::Tcp | Segmentation::Udp => {
                payload.div_ceil(usize::from(joined.offload.segment_bytes))
            }
        };
        popped += payload + parts * read.all_header_bytes();
    }
    assert_eq!(popped, pushed);
}

fn fragments(bytes: &[u8], packet: &Packet, limit: usize) {
    // No path is taken that carries less.
    let limit = limit.max(SMALLEST_PATH);
    if bytes.len() <= limit {
        return;
    }
    let mut work = bytes.to_vec();
    if let Ok(mut fragments) = fragment_ipv4(&mut work, Checksum::Complete, limit) {
        together(
            bytes,
            packet,
            limit,
            std::iter::from_fn(|| fragments.next().map(<[u8]>::to_vec)),
        );
    }
    let mut work = bytes.to_vec();
    if let Ok(mut fragments) = fragment_small(&mut work, Checksum::Complete, limit, 77) {
        assert!(bytes.len() <= SMALL_BYTES);
        together(
            bytes,
            packet,
            limit,
            std::iter::from_fn(|| fragments.next().map(<[u8]>::to_vec)),
        );
    }
}

/// Fragments fit, follow each other without gaps, and together are what was fragmented.
fn together(bytes: &[u8], packet: &Packet, limit: usize, all: impl Iterator<Item = Vec<u8>>) {
    let begins = packet.fragment.map_or(0, |fragment| fragment.offset_bytes);
    let ends_with_more = packet.fragment.is_some_and(|fragment| fragment.more);
    let (mut payload, mut more) = (Vec::new(), true);
    for piece in all {
        assert!(more, "a fragment behind the last one");
        let read = match Packet::parse(&piece, piece.len()) {
            Ok(read) => read,
            // The quote's own headers are longer than a piece: whose error it is nobody can tell.
            Err(Malformed::Quote) => return,
            Err(error) => panic!("a fragment is a packet: {error}"),
        };
        assert!(verify_header(&piece, &read));
        let place = read.fragment;
        if place.is_some() {
            assert!(piece.len() <= limit);
        }
        let offset = place.map_or(0, |place| place.offset_bytes);
        assert_eq!(usize::from(offset), usize::from(begins) + payload.len());
        more = place.is_some_and(|place| place.more);
        // Extension headers behind an IPv6 fragment header are a part of what is in pieces.
        let start = if read.is_ipv4() {
            read.header_bytes
        } else {
            48
        };
        payload.extend_from_slice(&piece[start..]);
    }
    assert_eq!(more, ends_with_more);
    let tail = &bytes[bytes.len() - payload.len()..];
    assert_eq!(payload, tail);
    if packet.protocol == Protocol::TCP && packet.is_ipv4() {
        assert_eq!(payload.len(), packet.transport_bytes());
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    sample_packets()
        .into_iter()
        .flat_map(|packet| {
            let tcp = [1, 1, 0, 0, 100, 0, 20, 0, 16, 0];
            let plain = [0; VIRTIO_BYTES];
            [
                [&[1, 5, 0][..], &plain, &packet].concat(),
                [&[1, 0, 200][..], &tcp, &packet].concat(),
            ]
        })
        .collect()
}

/// Returns one packet of each sort, checksums right.
pub(crate) fn sample_packets() -> Vec<Vec<u8>> {
    let tcp_options = [2, 4, 5, 180, 1, 1, 4, 2];
    let tcp: Vec<u8> = [
        &[
            0x9c,
            0x40,
            0,
            80,
            0,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            7 << 4,
            0x02,
            16,
            0,
            0,
            0,
            0,
            0,
        ][..],
        &tcp_options,
    ]
    .concat();
    let data: Vec<u8> = [
        &[
            0x9c,
            0x40,
            0,
            80,
            0,
            0,
            1,
            0,
            0,
            0,
            0,
            9,
            5 << 4,
            0x10,
            16,
            0,
            0,
            0,
            0,
            0,
        ][..],
        &[b'x'; 300],
    ]
    .concat();
    let udp = [&[0x9c, 0x40, 0, 53, 0, 0, 0, 0][..], &[7; 60]].concat();
    let long = [&[0x9c, 0x40, 0, 53, 0, 0, 0, 0][..], &[7; 1100]].concat();
    let echo = [8, 0, 0, 0, 0, 5, 0, 1, 1, 2, 3, 4];
    let mut packets = vec![
        ipv4(6, &tcp),
        ipv4(6, &data),
        ipv4(17, &udp),
        ipv4(17, &long),
        ipv6(17, &long),
        ipv4(1, &echo),
        ipv4(47, &[0; 8]),
        ipv6(6, &tcp),
        ipv6(6, &data),
        ipv6(17, &udp),
        ipv6(58, &[&[128][..], &echo[1..]].concat()),
        ipv6(0, &[&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp].concat()),
        ipv6(44, &[&[17, 0, 0, 1, 0, 0, 0, 9][..], &udp].concat()),
    ];
    let quoting = |kind: [u8; 2], quoted: &[u8]| [&kind[..], &[0; 6], quoted].concat();
    packets.push(ipv4(1, &quoting([3, 1], &packets[1][..48])));
    packets.push(ipv6(58, &quoting([1, 3], &packets[8][..80])));
    for packet in &mut packets {
        mend(packet);
    }
    let mut fragment = packets[2].clone();
    fragment[6] = 0x20;
    mend(&mut fragment);
    packets.push(fragment);
    packets
}

fn ipv4(protocol: u8, transport: &[u8]) -> Vec<u8> {
    let header = [
        0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0, 192, 0, 0, 2, 10, 128, 0, 9,
    ];
    [&header[..], transport].concat()
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; 40];
    header[0] = 0x60;
    (header[6], header[7]) = (next, 64);
    header[8..10].copy_from_slice(&[0xfd, 0x80]);
    header[23] = 7;
    header[24..30].copy_from_slice(&[0, 0x64, 0xff, 0x9b, 0, 1]);
    header[36..].copy_from_slice(&[10, 128, 0, 9]);
    [&header[..], payload].concat()
}
