//! One wrong bit in a UDP datagram, under a checksum that says it is right: what a faulty or hostile
//! machine on the way sends on. With a wrong checksum the receiving kernel would drop it, and the
//! program under test never see it.

use super::ETHERNET_BYTES;

const UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;

/// Flips a bit of what the datagram in `frame` carries, the one that `chance` points at. Leaves
/// frames without such a datagram alone, fragments too.
pub(super) fn garble(frame: &mut [u8], chance: u64) {
    let Some(start) = udp_start(frame) else {
        return;
    };
    let Some(payload_bytes) = frame.len().checked_sub(start + UDP_HEADER_BYTES) else {
        return;
    };
    if payload_bytes == 0 {
        return;
    }
    let bit = chance % (payload_bytes as u64 * 8);
    let at = start + UDP_HEADER_BYTES + (bit / 8) as usize;
    // Sums run over pairs of bytes, counted from the header's first.
    let is_low = (at - start) % 2 == 1;
    let before = frame[at];
    frame[at] ^= 1 << (bit % 8);
    let after = frame[at];
    let word = |byte: u8| {
        if is_low {
            u16::from(byte)
        } else {
            u16::from(byte) << 8
        }
    };
    let checksum = start + 6;
    let old = u16::from_be_bytes([frame[checksum], frame[checksum + 1]]);
    if old != 0 {
        frame[checksum..checksum + 2].copy_from_slice(&mended(old, word(before), word(after)));
    }
}

/// Returns where the UDP header of a whole datagram begins.
fn udp_start(frame: &[u8]) -> Option<usize> {
    let packet = frame.get(ETHERNET_BYTES..)?;
    match (frame[12], frame[13]) {
        (0x08, 0x00) => {
            let header_bytes = usize::from(packet.first()? & 0x0f) * 4;
            let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff;
            let is_whole_udp = *packet.get(9)? == UDP && fragment == 0;
            is_whole_udp.then_some(ETHERNET_BYTES + header_bytes)
        }
        (0x86, 0xdd) => (*packet.get(6)? == UDP).then_some(ETHERNET_BYTES + 40),
        _ => None,
    }
}

/// Returns a checksum once `before` has become `after` (RFC 1624); none is written as zero.
fn mended(checksum: u16, before: u16, after: u16) -> [u8; 2] {
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = ((folded & 0xffff) + (folded >> 16)) as u16;
    let mended = !sum;
    if mended == 0 {
        [0xff; 2]
    } else {
        mended.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_wrong_and_the_checksum_right() {
        for chance in 0..8 * 11 {
            let good = datagram(b"eleven byte");
            let mut bad = good.clone();

            garble(&mut bad, chance);

            let wrong: u32 = good[42..]
                .iter()
                .zip(&bad[42..])
                .map(|(one, other)| (one ^ other).count_ones())
                .sum();
            assert_eq!(wrong, 1);
            assert_eq!(good[..40], bad[..40]);
            assert_eq!(sum(&bad), 0xffff, "{chance}");
        }
    }

    #[test]
    fn what_is_no_datagram_stays_as_it_is() {
        let mut tcp = datagram(b"eleven byte");
        tcp[ETHERNET_BYTES + 9] = 6;
        let mut fragment = datagram(b"eleven byte");
        fragment[ETHERNET_BYTES + 6] = 0x20;
        let empty = datagram(b"");

        for frame in [tcp, fragment, empty, vec![0; 14]] {
            let mut after = frame.clone();
            garble(&mut after, 3);
            assert_eq!(after, frame);
        }
    }

    fn datagram(payload: &[u8]) -> Vec<u8> {
        let udp_bytes = (UDP_HEADER_BYTES + payload.len()) as u16;
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((20 + udp_bytes).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2]);
        frame.extend([0xb9, 0x72, 0xb9, 0x72]);
        frame.extend(udp_bytes.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        let checksum = !sum(&frame);
        frame[40..42].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    /// Adds up the datagram and its pseudo-header; all ones when the checksum in it is right.
    fn sum(frame: &[u8]) -> u16 {
        let udp = &frame[34..];
        let pseudo = [&frame[26..34], &[0, UDP], &(udp.len() as u16).to_be_bytes()].concat();
        let mut sum = 0_u32;
        for part in [pseudo.as_slice(), udp] {
            for pair in part.chunks(2) {
                let low = pair.get(1).copied().unwrap_or(0);
                sum += u32::from(u16::from_be_bytes([pair[0], low]));
            }
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}
