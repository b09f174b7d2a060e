use super::*;
use crate::packet::testing::{Recipe, recipe, tcp_recipe};

fn header(flags: u8, kind: u8, fields: [u16; 4]) -> [u8; VIRTIO_BYTES] {
    let mut header = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
    for (n, field) in fields.iter().enumerate() {
        header[2 + 2 * n..4 + 2 * n].copy_from_slice(&field.to_ne_bytes());
    }
    header
}

fn tcp(is_ipv4: bool, payload_bytes: usize) -> Packet {
    let bytes = recipe(is_ipv4).tcp(&tcp_recipe(), &vec![0; payload_bytes], Checksum::Partial);
    Packet::parse(&bytes, bytes.len()).unwrap()
}

fn udp(recipe: &Recipe, payload_bytes: usize) -> Packet {
    let bytes = recipe.udp((1, 2), &vec![0; payload_bytes], Checksum::Partial);
    Packet::parse(&bytes, bytes.len()).unwrap()
}

#[test]
fn headers_survive_the_round_trip() {
    let cases = [
        (tcp(true, 5000), header(1, GSO_TCPV4, [52, 1400, 20, 16])),
        (
            tcp(true, 5000),
            header(1, GSO_TCPV4 | GSO_ECN, [52, 1400, 20, 16]),
        ),
        (tcp(false, 5000), header(1, GSO_TCPV6, [72, 1400, 40, 16])),
        (
            udp(&recipe(true), 5000),
            header(1, GSO_UDP, [28, 1200, 20, 6]),
        ),
        (
            udp(&recipe(false), 5000),
            header(1, GSO_UDP, [48, 1200, 40, 6]),
        ),
        (udp(&recipe(true), 10), header(1, GSO_NONE, [28, 0, 20, 6])),
        (tcp(true, 10), header(0, GSO_NONE, [52, 0, 0, 0])),
    ];

    for (packet, header) in cases {
        let offload = Offload::from_virtio(&header, &packet).unwrap();

        assert_eq!(offload.to_virtio(&packet), header);
    }
}

#[test]
fn checksum_already_verified_by_the_kernel_is_complete() {
    let offload = Offload::from_virtio(&header(2, GSO_NONE, [0; 4]), &tcp(true, 10));

    assert_eq!(offload, Ok(Offload::PLAIN));
}

#[test]
fn inner_checksum_is_told_apart() {
    let tunnel = udp(&recipe(true), 100);

    let outcome = Offload::from_virtio(&header(1, GSO_NONE, [0, 0, 70, 16]), &tunnel);

    assert_eq!(
        outcome,
        Err(BadOffload::ForeignChecksum {
            start: 70,
            offset: 16
        })
    );
}

#[test]
fn segmentation_must_suit_the_packet() {
    let fragment = Recipe {
        fragment: Some((0, true)),
        ..recipe(true)
    };
    let mut bytes = fragment.udp((1, 2), &[0; 64], Checksum::Complete);
    bytes[25] = 200;
    let fragment = Packet::parse(&bytes, bytes.len()).unwrap();
    let cases = [
        (tcp(false, 5000), GSO_TCPV4, 1400),
        (tcp(true, 5000), GSO_TCPV6, 1400),
        (tcp(true, 5000), GSO_UDP, 1400),
        (tcp(true, 5000), GSO_TCPV4, 0),
        (tcp(true, 5000), 3, 1400),
        (fragment, GSO_UDP, 16),
    ];

    for (packet, kind, segment_bytes) in cases {
        let outcome = Offload::from_virtio(&header(0, kind, [0, segment_bytes, 0, 0]), &packet);

        assert_eq!(outcome, Err(BadOffload::Segmentation { kind }));
    }
}

#[test]
fn partial_mark_means_nothing_on_other_packets() {
    let bytes = recipe(true).icmp((8, 0), (128, 0), 1, b"ping");
    let packet = Packet::parse(&bytes, bytes.len()).unwrap();
    let offload = Offload {
        checksum: Checksum::Partial,
        ..Offload::PLAIN
    };

    assert_eq!(offload.to_virtio(&packet), [0; VIRTIO_BYTES]);
    assert_eq!(Checksum::Partial.for_packet(&packet), Checksum::Complete);
}
