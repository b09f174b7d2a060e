use super::*;
use crate::packet::testing::{TcpRecipe, assert_sound, recipe, tcp_recipe};

fn syn(options: &[u8], checksum: Checksum) -> Vec<u8> {
    let tcp = TcpRecipe {
        flags: 0x02,
        options: options.to_vec(),
        ..tcp_recipe()
    };
    recipe(true).tcp(&tcp, &[], checksum)
}

fn clamped(mut bytes: Vec<u8>, checksum: Checksum) -> (bool, Vec<u8>) {
    let packet = Packet::parse(&bytes, bytes.len()).unwrap();
    let did = clamp_mss(&mut bytes, &packet, checksum, 1300);
    assert_sound(&bytes, checksum);
    (did, bytes)
}

#[test]
fn offered_segment_size_is_lowered_wherever_it_stands() {
    let cases: [&[u8]; 3] = [
        &[2, 4, 5, 0xb4],
        &[1, 2, 4, 5, 0xb4, 1, 1, 1],
        &[3, 3, 7, 2, 4, 5, 0xb4, 0],
    ];

    for options in cases {
        for checksum in [Checksum::Complete, Checksum::Partial] {
            let at = 40 + options.windows(2).position(|pair| pair == [2, 4]).unwrap() + 2;

            let (did, bytes) = clamped(syn(options, checksum), checksum);

            assert!(did);
            assert_eq!(read_u16(&bytes, at), 1300);
        }
    }
}

#[test]
fn smaller_offers_and_other_segments_stay() {
    let small: &[u8] = &[2, 4, 2, 0];
    let broken: [&[u8]; 3] = [&[2, 3, 5, 0], &[9, 0, 2, 4], &[1, 1, 1, 2]];
    let data = recipe(true).tcp(&tcp_recipe(), b"x", Checksum::Complete);

    assert!(!clamped(syn(small, Checksum::Complete), Checksum::Complete).0);
    assert!(!clamped(data, Checksum::Complete).0);
    for options in broken {
        assert!(!clamped(syn(options, Checksum::Complete), Checksum::Complete).0);
    }
}
