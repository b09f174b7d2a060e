use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::packet::testing::{assert_sound, naive_sum, samples};

proptest! {
    #[test]
    fn fast_sum_equals_the_slow_one(bytes in vec(any::<u8>(), 0..3000)) {
        prop_assert_eq!(sum(&bytes), naive_sum(&bytes, 0));
    }

    #[test]
    fn finishing_a_partial_checksum_makes_it_right(sample in samples()) {
        let mut bytes = sample.bytes;
        let packet = assert_sound(&bytes, sample.offload.checksum);

        if sample.offload.checksum == Checksum::Partial {
            complete(&mut bytes, &packet);
        }

        assert_sound(&bytes, Checksum::Complete);
        prop_assert!(verify(&bytes, &packet));
        prop_assert!(verify_header(&bytes, &packet));
    }

    #[test]
    fn any_flipped_payload_bit_is_noticed(sample in samples(), at in any::<usize>(), bit in 0u8..8) {
        let mut bytes = sample.bytes;
        let packet = Packet::parse(&bytes, bytes.len()).unwrap();
        if sample.offload.checksum == Checksum::Partial {
            complete(&mut bytes, &packet);
        }
        let payload = packet.all_header_bytes().max(packet.header_bytes + 8);
        prop_assume!(payload < bytes.len());

        let at = payload + at % (bytes.len() - payload);
        bytes[at] ^= 1 << bit;

        prop_assert!(!verify(&bytes, &packet));
    }
}

#[test]
fn sums_of_differences_cancel() {
    let mut sum = Sum::ZERO;

    sum.add(0x1234);
    sum.add_bytes(&[0xff, 0xff, 0x00, 0x01]);
    sum.sub(0x1234);
    sum.sub_bytes(&[0xff, 0xff, 0x00, 0x01]);

    assert!(matches!(sum.fold(), 0 | 0xffff));
}

#[test]
fn place_outside_the_packet_is_left_alone() {
    let mut bytes = [1, 2, 3, 4];

    complete_at(&mut bytes, 3, 0);
    complete_at(&mut bytes, usize::MAX, 6);

    assert_eq!(bytes, [1, 2, 3, 4]);
}
