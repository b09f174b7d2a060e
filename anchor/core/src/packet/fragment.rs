//! IPv4 fragmentation (RFC 791 section 3.2), for packets without DF that a path is too narrow for.
//! As in [`super::Cut`], the header of each piece is written over the tail of the one before.

use super::{Checksum, Fragment, IPV4_BYTES, Packet, Uncuttable, checksum, read_u16, write_u16};

/// The fragments of one IPv4 packet.
#[derive(Debug)]
pub struct Fragments<'a> {
    bytes: &'a mut [u8],
    header_bytes: usize,
    step_bytes: usize,
    done_bytes: usize,
    /// Where the packet itself sat, when it was a fragment already.
    offset_bytes: usize,
    more: bool,
}

/// Plans to fragment `bytes`, one whole IPv4 packet without DF, into pieces of at most
/// `limit_bytes`. A partial checksum is finished first, since no piece could carry it.
///
/// # Errors
/// [`Uncuttable::TooBig`] when it must not be fragmented or the limit leaves no room; the packet
/// is as it was.
pub fn fragment_ipv4(
    bytes: &mut [u8],
    checksum: Checksum,
    limit_bytes: usize,
) -> Result<Fragments<'_>, Uncuttable> {
    let packet = Packet::parse(bytes, bytes.len())?;
    let step_bytes = limit_bytes.saturating_sub(packet.header_bytes) & !7;
    if !packet.is_ipv4() || packet.dont_fragment || step_bytes == 0 {
        return Err(Uncuttable::TooBig { limit_bytes });
    }
    if checksum == Checksum::Partial {
        checksum::complete(bytes, &packet);
    }
    let unfragmented = Fragment {
        identification: 0,
        offset_bytes: 0,
        more: false,
    };
    let place = packet.fragment.unwrap_or(unfragmented);
    Ok(Fragments {
        bytes,
        header_bytes: packet.header_bytes,
        step_bytes,
        done_bytes: 0,
        offset_bytes: usize::from(place.offset_bytes),
        more: place.more,
    })
}

impl Fragments<'_> {
    /// Returns the next fragment. It is overwritten by the next call.
    #[expect(
        clippy::should_implement_trait,
        reason = "lends from itself, which Iterator cannot"
    )]
    pub fn next(&mut self) -> Option<&[u8]> {
        let left_bytes = (self.bytes.len() - self.header_bytes).saturating_sub(self.done_bytes);
        let start = self.done_bytes;
        if left_bytes == 0 {
            return None;
        }
        if start > 0 {
            let before = start - self.step_bytes;
            self.bytes
                .copy_within(before..before + self.header_bytes, start);
        }
        let payload_bytes = left_bytes.min(self.step_bytes);
        let piece = &mut self.bytes[start..start + self.header_bytes + payload_bytes];
        if start > 0 {
            blank_uncopied_options(&mut piece[IPV4_BYTES..self.header_bytes]);
        }
        let more = self.more || payload_bytes < left_bytes;
        let offset_units = ((self.offset_bytes + start) >> 3) as u16;
        let reserved = read_u16(piece, 6) & 0x8000;
        write_u16(
            piece,
            6,
            reserved | if more { 0x2000 } else { 0 } | offset_units,
        );
        let piece_bytes = piece.len() as u16;
        write_u16(piece, 2, piece_bytes);
        checksum::write_ipv4_header(piece, self.header_bytes);
        self.done_bytes += payload_bytes;
        Some(piece)
    }
}

/// Overwrites by no-operation the options that only the first fragment is to carry.
fn blank_uncopied_options(options: &mut [u8]) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        if kind == 0 {
            return;
        }
        let length = if kind == 1 {
            1
        } else {
            options.get(at + 1).map_or(1, |&l| l.max(1))
        };
        let end = (at + usize::from(length)).min(options.len());
        if kind & 0x80 == 0 {
            options[at..end].fill(1);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests;
