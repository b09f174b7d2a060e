use proptest::prelude::*;

use super::*;
use crate::packet::testing::{
    assert_sound, recipe, recipes, super_packets, tcp_recipe, tcp_recipes,
};

fn pieces(bytes: &[u8], offload: Offload, limit_bytes: usize) -> Result<Vec<Vec<u8>>, Uncuttable> {
    let mut bytes = bytes.to_vec();
    let mut cut = Cut::new(&mut bytes, offload, limit_bytes)?;
    let mut pieces = Vec::new();
    while let Some(piece) = cut.next() {
        pieces.push(piece.to_vec());
    }
    Ok(pieces)
}

proptest! {
    #[test]
    fn pieces_are_sound_and_make_up_the_whole(sample in super_packets(), limit in 60usize..1600) {
        let whole = Packet::parse(&sample.bytes, sample.bytes.len()).unwrap();
        let Ok(pieces) = pieces(&sample.bytes, sample.offload, limit) else { return Ok(()) };

        let mut payload = Vec::new();
        for piece in &pieces {
            prop_assert!(piece.len() <= limit);
            let packet = assert_sound(piece, sample.offload.checksum);
            prop_assert_eq!(packet.source, whole.source);
            if let (Transport::Tcp(whole), Transport::Tcp(piece)) =
                (whole.transport, packet.transport)
            {
                prop_assert_eq!(piece.sequence, whole.sequence.wrapping_add(payload.len() as u32));
                prop_assert_eq!(piece.header_bytes, whole.header_bytes);
            }
            payload.extend_from_slice(&piece[packet.all_header_bytes()..]);
        }
        prop_assert_eq!(&payload, &sample.bytes[whole.all_header_bytes()..]);
    }

    #[test]
    fn too_big_tcp_segment_is_cut_too(
        recipe in recipes(), tcp in tcp_recipes(), limit in 200usize..1400,
    ) {
        let bytes = recipe.tcp(&tcp, &[7; 1460], Checksum::Complete);

        let pieces = pieces(&bytes, Offload::PLAIN, limit).unwrap();

        prop_assert!(pieces.len() >= 2);
        for piece in &pieces {
            prop_assert!(piece.len() <= limit);
            assert_sound(piece, Checksum::Complete);
        }
    }
}

#[test]
fn only_the_last_piece_ends_and_only_the_first_reduces() {
    let tcp = crate::packet::testing::TcpRecipe {
        flags: 0x99,
        ..tcp_recipe()
    };
    let bytes = recipe(true).tcp(&tcp, &[1; 3000], Checksum::Partial);
    let offload = Offload {
        checksum: Checksum::Partial,
        segmentation: Segmentation::Tcp,
        segment_bytes: 1000,
        ecn: true,
    };

    let flags: Vec<_> = pieces(&bytes, offload, 1400)
        .unwrap()
        .iter()
        .map(|piece| piece[33])
        .collect();

    assert_eq!(flags, [0x90, 0x10, 0x19]);
}

#[test]
fn identifications_count_up_and_wrap() {
    let mut recipe = recipe(true);
    recipe.identification = 0xffff;
    let bytes = recipe.udp((1, 2), &[1; 250], Checksum::Partial);
    let offload = Offload {
        checksum: Checksum::Partial,
        segmentation: Segmentation::Udp,
        segment_bytes: 100,
        ecn: false,
    };

    let ids: Vec<_> = pieces(&bytes, offload, 1400)
        .unwrap()
        .iter()
        .map(|piece| read_u16(piece, 4))
        .collect();

    assert_eq!(ids, [0xffff, 0, 1]);
}

#[test]
fn what_may_not_be_cut_is_too_big_and_unchanged() {
    let too_big = Uncuttable::TooBig { limit_bytes: 1000 };
    let syn = crate::packet::testing::TcpRecipe {
        flags: 0x02,
        ..tcp_recipe()
    };
    let udp_offload = Offload {
        checksum: Checksum::Complete,
        segmentation: Segmentation::Udp,
        segment_bytes: 1200,
        ecn: false,
    };
    let recipe = recipe(false);
    let cases = [
        (
            recipe.udp((1, 2), &[0; 1200], Checksum::Complete),
            Offload::PLAIN,
        ),
        (
            recipe.udp((1, 2), &[0; 2400], Checksum::Complete),
            udp_offload,
        ),
        (
            recipe.tcp(&syn, &[0; 1200], Checksum::Complete),
            Offload::PLAIN,
        ),
        (recipe.icmp((8, 0), (128, 0), 1, &[0; 1200]), Offload::PLAIN),
    ];

    for (bytes, offload) in cases {
        assert_eq!(pieces(&bytes, offload, 1000), Err(too_big));
    }
}

#[test]
fn small_packet_passes_whole() {
    let bytes = recipe(true).udp((1, 2), b"hello", Checksum::Complete);

    assert_eq!(pieces(&bytes, Offload::PLAIN, 1400).unwrap(), [bytes]);
}
