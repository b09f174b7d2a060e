//! Clamping what a forwarded host's TCP offers to receive (SPEC section 11), so that its peer
//! never sends segments that the tunnel would have to refuse.

use super::checksum::{Sum, adjust};
use super::{Checksum, Packet, TCP_BYTES, TcpFlags, Transport, read_u16, write_u16};

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAX_SEGMENT: u8 = 2;

/// Lowers the maximum segment size that a SYN offers to `max_mss`; returns whether it did. Leaves
/// alone everything else, and SYNs without the option (those mean 536 or 1220 by RFC 9293).
pub fn clamp_mss(head: &mut [u8], packet: &Packet, checksum: Checksum, max_mss: u16) -> bool {
    let Transport::Tcp(tcp) = &packet.transport else {
        return false;
    };
    let start = packet.header_bytes;
    let end = start + tcp.header_bytes;
    if !tcp.flags.contains(TcpFlags::SYN) || end > head.len() {
        return false;
    }
    let Some(at) = find_mss(&head[start..end]) else {
        return false;
    };
    let mss = read_u16(head, start + at);
    if mss <= max_mss {
        return false;
    }
    write_u16(head, start + at, max_mss);
    if checksum.for_packet(packet) == Checksum::Complete {
        let mut difference = Sum::ZERO;
        // An option may start at an odd place, where its bytes count the other way round.
        let is_odd = at % 2 == 1;
        difference.sub(if is_odd { mss.swap_bytes() } else { mss });
        difference.add(if is_odd {
            max_mss.swap_bytes()
        } else {
            max_mss
        });
        adjust(head, start + 16, difference, Checksum::Complete);
    }
    true
}

/// Returns where in a TCP header the value of its MSS option is.
fn find_mss(header: &[u8]) -> Option<usize> {
    let mut at = TCP_BYTES;
    loop {
        match *header.get(at)? {
            END => return None,
            NO_OPERATION => at += 1,
            kind => {
                let length = usize::from(*header.get(at + 1)?);
                if kind == MAX_SEGMENT {
                    return (length == 4 && at + 4 <= header.len()).then_some(at + 2);
                }
                at += length.max(2);
            }
        }
    }
}

#[cfg(test)]
mod tests;
