use proptest::prelude::*;

use super::*;
use crate::packet::testing::{Recipe, TcpRecipe, assert_sound, recipe, super_packets, tcp_recipe};
use crate::packet::{Cut, Segmentation};

/// A batch of received packets in one buffer.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    packets: Vec<(u32, Checksum, Span)>,
}

/// What came out, whole again.
#[derive(Debug)]
struct Out {
    tag: u32,
    offload: Offload,
    packet: Packet,
    bytes: Vec<u8>,
}

impl Batch {
    fn add(&mut self, tag: u32, checksum: Checksum, packet: &[u8]) -> &mut Self {
        let span = Span {
            position: self.bytes.len(),
            bytes: packet.len(),
        };
        self.bytes.extend_from_slice(packet);
        self.packets.push((tag, checksum, span));
        self
    }

    fn join(&self) -> Vec<Out> {
        let mut joiner = Joiner::new(Joinable::TcpAndUdp, self.packets.len());
        self.join_by(&mut joiner)
    }

    fn join_by(&self, joiner: &mut Joiner) -> Vec<Out> {
        for &(tag, checksum, span) in &self.packets {
            let bytes = &self.bytes[span.position..span.position + span.bytes];
            joiner.push(tag, 0, checksum, span.position, bytes).unwrap();
        }
        let mut out = Vec::new();
        while let Some(mut joined) = joiner.pop() {
            let mut bytes = joined.head().to_vec();
            for span in joined.spans() {
                bytes.extend_from_slice(&self.bytes[span.position..span.position + span.bytes]);
            }
            let checksum = joined.offload.checksum;
            assert_eq!(assert_sound(&bytes, checksum), joined.packet);
            let (tag, offload, packet) = (joined.tag, joined.offload, joined.packet);
            out.push(Out {
                tag,
                offload,
                packet,
                bytes,
            });
        }
        assert!(joiner.is_empty());
        out
    }
}

fn segment(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let tcp = TcpRecipe {
        sequence,
        flags,
        ..tcp_recipe()
    };
    recipe(true).tcp(&tcp, payload, Checksum::Partial)
}

fn pieces_of(packets: &[Vec<u8>]) -> Vec<usize> {
    let mut batch = Batch::default();
    for packet in packets {
        batch.add(1, Checksum::Partial, packet);
    }
    let sizes = |out: Out| out.packet.total_bytes - out.packet.all_header_bytes();
    batch.join().into_iter().map(sizes).collect()
}

proptest! {
    #[test]
    fn cut_and_joined_is_what_it_was(sample in super_packets()) {
        let mut original = sample.bytes.clone();
        let packet = Packet::parse(&original, original.len()).unwrap();
        let payload_bytes = packet.total_bytes - packet.all_header_bytes();
        let mut offload = sample.offload;
        // No more pieces than one super-packet may have.
        offload.segment_bytes = offload.segment_bytes.max((payload_bytes / 60) as u16 + 1);
        let mut batch = Batch::default();
        let mut cut = Cut::new(&mut original, offload, 4000).unwrap();
        while let Some(piece) = cut.next() {
            batch.add(9, offload.checksum, piece);
        }
        let count = batch.packets.len();

        let out = batch.join();

        let has_extensions = !packet.is_ipv4() && packet.header_bytes > 40;
        if has_extensions || count == 1 {
            prop_assert_eq!(out.len(), count);
            return Ok(());
        }
        prop_assert_eq!(out.len(), 1);
        let joined = &out[0];
        prop_assert_eq!(joined.offload, Offload { checksum: Checksum::Partial, ..offload });
        let mut expected = sample.bytes;
        let mut bytes = joined.bytes.clone();
        for bytes in [&mut expected, &mut bytes] {
            let at = packet.header_bytes + packet.protocol.checksum_at().unwrap();
            bytes[at..at + 2].fill(0);
        }
        prop_assert_eq!(bytes, expected);
    }

    #[test]
    fn packets_of_a_connection_keep_their_order(
        packets in prop::collection::vec((0u16..4, 0u8..4, 1usize..3), 1..60),
    ) {
        let mut batch = Batch::default();
        let mut next = [0u32; 4];
        for &(connection, kind, size) in &packets {
            let sequence = &mut next[usize::from(connection)];
            let flags = if kind == 3 { 0x18 } else { 0x10 };
            let payload = vec![connection as u8; if kind == 2 { 0 } else { size * 100 }];
            let tcp = TcpRecipe {
                ports: (connection, 80),
                sequence: *sequence,
                flags,
                ..tcp_recipe()
            };
            *sequence += payload.len() as u32;
            batch.add(1, Checksum::Partial, &recipe(false).tcp(&tcp, &payload, Checksum::Partial));
        }

        let mut seen = [0u32; 4];
        for out in batch.join() {
            let Transport::Tcp(tcp) = out.packet.transport else { panic!("{out:?}") };
            let seen = &mut seen[usize::from(tcp.source_port)];
            prop_assert_eq!(tcp.sequence, *seen);
            *seen += tcp.payload_bytes;
        }
        prop_assert_eq!(seen, next);
    }
}

#[test]
fn segments_are_joined_up_to_a_short_or_pushed_one() {
    let joined = pieces_of(&[
        segment(0, 0x10, &[1; 100]),
        segment(100, 0x10, &[2; 100]),
        segment(200, 0x18, &[3; 100]),
        segment(300, 0x10, &[4; 100]),
        segment(400, 0x10, &[5; 50]),
        segment(450, 0x10, &[6; 100]),
    ]);

    assert_eq!(joined, [300, 150, 100]);
}

#[test]
fn whatever_differs_is_not_joined() {
    let first = segment(0, 0x10, &[1; 100]);
    let other = |change: fn(&mut Recipe, &mut TcpRecipe)| {
        let mut recipe = recipe(true);
        let mut tcp = TcpRecipe {
            sequence: 100,
            ..tcp_recipe()
        };
        change(&mut recipe, &mut tcp);
        recipe.tcp(&tcp, &[2; 100], Checksum::Partial)
    };
    let cases = [
        other(|_, tcp| tcp.sequence = 101),
        other(|_, tcp| tcp.acknowledgment = 6),
        other(|_, tcp| tcp.flags = 0x50),
        other(|_, tcp| tcp.flags = 0x90),
        other(|_, tcp| tcp.flags = 0x12),
        other(|_, tcp| tcp.flags = 0x14),
        other(|_, tcp| tcp.options[7] = 9),
        other(|_, tcp| tcp.options.truncate(0)),
        other(|_, tcp| tcp.ports.0 = 1),
        other(|recipe, _| recipe.hop_limit = 63),
        other(|recipe, _| recipe.traffic_class = 1),
        other(|recipe, _| recipe.dont_fragment = false),
    ];

    for second in cases {
        assert_eq!(pieces_of(&[first.clone(), second]), [100, 100]);
    }
    assert_eq!(pieces_of(&[first, other(|_, _| ())]), [200]);
}

#[test]
fn pure_acknowledgment_between_segments_parts_them() {
    let joined = pieces_of(&[
        segment(0, 0x10, &[1; 100]),
        segment(100, 0x10, &[]),
        segment(100, 0x10, &[2; 100]),
    ]);

    assert_eq!(joined, [100, 0, 100]);
}

#[test]
fn datagrams_of_equal_size_are_joined() {
    let datagram = |bytes: usize| recipe(false).udp((1, 2), &vec![1; bytes], Checksum::Partial);

    let joined = pieces_of(&[datagram(100), datagram(100), datagram(60), datagram(100)]);

    assert_eq!(joined, [260, 100]);
}

#[test]
fn identification_without_df_must_count_up() {
    let datagram = |identification: u16| {
        let recipe = Recipe {
            identification,
            dont_fragment: false,
            ..recipe(true)
        };
        recipe.udp((1, 2), &[1; 100], Checksum::Partial)
    };

    assert_eq!(
        pieces_of(&[datagram(0xffff), datagram(0), datagram(1)]),
        [300]
    );
    assert_eq!(pieces_of(&[datagram(5), datagram(5)]), [100, 100]);
}

#[test]
fn wrong_checksum_is_passed_on_for_the_receiver_to_drop() {
    let tcp = TcpRecipe {
        sequence: 100,
        ..tcp_recipe()
    };
    let mut bytes = recipe(true).tcp(&tcp, &[7; 100], Checksum::Complete);
    *bytes.last_mut().unwrap() ^= 1;
    let first = recipe(true).tcp(
        &TcpRecipe {
            sequence: 0,
            ..tcp_recipe()
        },
        &[7; 100],
        Checksum::Complete,
    );
    let mut joiner = Joiner::new(Joinable::Tcp, 4);

    joiner.push(1, 0, Checksum::Complete, 0, &first).unwrap();
    joiner.push(1, 0, Checksum::Complete, 500, &bytes).unwrap();

    for _ in 0..2 {
        let joined = joiner.pop().unwrap();
        assert_eq!(joined.packet.total_bytes, 152);
        assert_eq!(joined.offload.checksum, Checksum::Complete);
    }
}

#[test]
fn peers_and_flags_are_kept_apart() {
    let mut joiner = Joiner::new(Joinable::Tcp, 4);
    for (n, (tag, flags)) in [(1, 0), (2, 0), (1, 1)].into_iter().enumerate() {
        let bytes = segment(n as u32 * 100, 0x10, &[1; 100]);
        joiner
            .push(tag, flags, Checksum::Partial, 0, &bytes)
            .unwrap();
    }

    let mut out = Vec::new();
    while let Some(joined) = joiner.pop() {
        out.push((joined.tag, joined.flags));
    }

    assert_eq!(out, [(1, 0), (2, 0), (1, 1)]);
}

#[test]
fn older_kernels_get_no_joined_datagrams() {
    let mut joiner = Joiner::new(Joinable::Tcp, 4);
    let datagram = recipe(true).udp((1, 2), &[1; 100], Checksum::Partial);

    joiner.push(1, 0, Checksum::Partial, 0, &datagram).unwrap();
    joiner
        .push(1, 0, Checksum::Partial, 128, &datagram)
        .unwrap();

    assert_eq!(
        joiner.pop().unwrap().offload.segmentation,
        Segmentation::None
    );
    assert!(joiner.pop().is_some());
}

#[test]
fn super_packet_stays_within_an_ip_length() {
    let packets: Vec<_> = (0..60)
        .map(|n| segment(n * 1400, 0x10, &[n as u8; 1400]))
        .collect();

    let joined = pieces_of(&packets);

    assert_eq!(joined.iter().sum::<usize>(), 60 * 1400);
    assert!(joined.iter().all(|&bytes| bytes + 52 <= 65_535));
    assert_eq!(joined.len(), 2);
}

#[test]
fn full_joiner_takes_more_after_a_drain() {
    let bytes = segment(0, 0x10, b"x");
    let mut joiner = Joiner::new(Joinable::Tcp, 2);
    for _ in 0..3 {
        joiner.push(1, 0, Checksum::Partial, 0, &bytes).unwrap();
        joiner.push(1, 0, Checksum::Partial, 0, &bytes).unwrap();
        let third = joiner.push(1, 0, Checksum::Partial, 0, &bytes);
        assert_eq!(third, Err(Refused::Full));

        while joiner.pop().is_some() {}
    }
}

#[test]
fn tags_come_out_as_they_went_in() {
    let mut batch = Batch::default();
    batch.add(3, Checksum::Partial, &segment(0, 0x10, b"x"));

    assert_eq!(batch.join()[0].tag, 3);
}
