//! Super-packets into packets that fit a path. No payload byte is moved: the headers of each
//! piece are written over the tail of the piece before, which the caller has sealed by then.

use super::checksum::{Sum, pseudo_header};
use super::{
    Checksum, IPV4_BYTES, IPV6_BYTES, Malformed, Offload, Packet, Protocol, SHORT_BYTES,
    Segmentation, TcpFlags, Transport, read_u16, write_u16, write_u32,
};
use crate::packet::checksum;

/// TCP segments that mean more than their payload: never cut.
const UNCUTTABLE_FLAGS: TcpFlags = TcpFlags::SYN.with(TcpFlags::RST).with(TcpFlags::URG);

/// Why a packet cannot be made to fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Uncuttable {
    /// A packet that its sender must make smaller ([`super::build_too_big`] tells it so), or, in
    /// IPv4 without DF, [`super::fragment_ipv4`].
    #[error("bigger than {limit_bytes} bytes and not to be cut")]
    TooBig {
        /// What would fit.
        limit_bytes: usize,
    },
    /// Not a packet.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// The pieces of one packet, each at most as big as the path allows.
#[derive(Debug)]
pub struct Cut<'a> {
    bytes: &'a mut [u8],
    plan: Plan,
}

#[derive(Debug)]
enum Plan {
    Whole,
    Done,
    Pieces(Pieces),
}

/// What is the same in all pieces, and how far we are.
#[derive(Debug)]
struct Pieces {
    packet: Packet,
    checksum: Checksum,
    header_bytes: usize,
    segment_bytes: usize,
    /// Payload bytes of the whole.
    payload_bytes: usize,
    /// Payload bytes already given out.
    done_bytes: usize,
    /// The IPv4 header's sum without its length, identification and checksum.
    ip_sum: Sum,
    /// The pseudo-header's sum without the length.
    pseudo: Sum,
    identification: u16,
}

impl<'a> Cut<'a> {
    /// Plans to cut `bytes`, one whole IP packet, as `offload` asks and so that no piece is
    /// bigger than `limit_bytes`. A plain TCP segment that is too big is cut as well.
    ///
    /// # Errors
    /// [`Uncuttable::TooBig`] when that cannot be done; the packet is as it was.
    pub fn new(
        bytes: &'a mut [u8],
        offload: Offload,
        limit_bytes: usize,
    ) -> Result<Self, Uncuttable> {
        if offload.segmentation == Segmentation::None && bytes.len() <= limit_bytes {
            return Ok(Self {
                bytes,
                plan: Plan::Whole,
            });
        }
        let packet = Packet::parse(bytes, bytes.len())?;
        let header_bytes = packet.all_header_bytes();
        let payload_bytes = packet.total_bytes - header_bytes;
        let fits_bytes = limit_bytes.saturating_sub(header_bytes);
        let asked_bytes = match offload.segmentation {
            Segmentation::None => usize::MAX,
            Segmentation::Tcp | Segmentation::Udp if offload.segment_bytes == 0 => usize::MAX,
            Segmentation::Tcp | Segmentation::Udp => usize::from(offload.segment_bytes),
        };
        let segment_bytes = asked_bytes.min(fits_bytes);
        if payload_bytes <= segment_bytes && bytes.len() <= limit_bytes {
            return Ok(Self {
                bytes,
                plan: Plan::Whole,
            });
        }
        let may_cut = packet.fragment.is_none()
            && segment_bytes > 0
            && match &packet.transport {
                Transport::Tcp(tcp) => {
                    offload.segmentation != Segmentation::Udp
                        && !tcp.flags.intersects(UNCUTTABLE_FLAGS)
                }
                Transport::Udp(_) => {
                    offload.segmentation == Segmentation::Udp && asked_bytes <= fits_bytes
                }
                Transport::Echo(_)
                | Transport::IcmpError(_)
                | Transport::Icmp
                | Transport::LaterFragment
                | Transport::Other => false,
            };
        if !may_cut {
            return Err(Uncuttable::TooBig { limit_bytes });
        }
        let pieces = Pieces::new(bytes, packet, offload.checksum, segment_bytes);
        Ok(Self {
            bytes,
            plan: Plan::Pieces(pieces),
        })
    }

    /// Returns the next piece, a whole IP packet whose checksum is as partial or complete as the
    /// original's. It is overwritten by the next call.
    #[expect(
        clippy::should_implement_trait,
        reason = "lends from itself, which Iterator cannot"
    )]
    pub fn next(&mut self) -> Option<&[u8]> {
        match &mut self.plan {
            Plan::Whole => {
                self.plan = Plan::Done;
                Some(self.bytes)
            }
            Plan::Done => None,
            Plan::Pieces(pieces) => pieces.next(self.bytes),
        }
    }
}

impl Pieces {
    fn new(bytes: &[u8], packet: Packet, checksum: Checksum, segment_bytes: usize) -> Self {
        let header_bytes = packet.all_header_bytes();
        let (mut ip_sum, mut identification) = (Sum::ZERO, 0);
        if packet.is_ipv4() {
            identification = read_u16(bytes, 4);
            ip_sum.add_bytes(&bytes[..2]);
            ip_sum.add_bytes(&bytes[6..10]);
            ip_sum.add_bytes(&bytes[12..packet.header_bytes]);
        }
        Self {
            checksum,
            header_bytes,
            segment_bytes,
            payload_bytes: packet.total_bytes - header_bytes,
            done_bytes: 0,
            ip_sum,
            pseudo: pseudo_header(packet.source, packet.destination, packet.protocol, 0),
            identification,
            packet,
        }
    }

    fn next<'b>(&mut self, bytes: &'b mut [u8]) -> Option<&'b [u8]> {
        let left_bytes = self.payload_bytes - self.done_bytes;
        if left_bytes == 0 {
            return None;
        }
        let payload_bytes = left_bytes.min(self.segment_bytes);
        let start = self.done_bytes;
        if start > 0 {
            let before = start - self.segment_bytes;
            bytes.copy_within(before..before + self.header_bytes, start);
        }
        let piece = &mut bytes[start..start + self.header_bytes + payload_bytes];
        let transport_bytes = piece.len() - self.packet.header_bytes;
        self.write_ip(piece);
        let (is_first, is_last) = (start == 0, payload_bytes == left_bytes);
        match &self.packet.transport {
            Transport::Tcp(tcp) => {
                let at = self.packet.header_bytes;
                write_u32(piece, at + 4, tcp.sequence.wrapping_add(start as u32));
                let mut flags = tcp.flags;
                if !is_last {
                    flags = flags.without(TcpFlags::FIN.with(TcpFlags::PSH));
                }
                if !is_first {
                    flags = flags.without(TcpFlags::CWR);
                }
                piece[at + 13] = flags.0;
            }
            Transport::Udp(_) => {
                write_u16(piece, self.packet.header_bytes + 4, transport_bytes as u16);
            }
            Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => {}
        }
        self.write_checksum(piece, transport_bytes);
        self.done_bytes += payload_bytes;
        Some(piece)
    }

    fn write_ip(&mut self, piece: &mut [u8]) {
        let piece_bytes = piece.len();
        if !self.packet.is_ipv4() {
            write_u16(piece, 4, (piece_bytes - IPV6_BYTES) as u16);
            return;
        }
        let mut sum = self.ip_sum;
        sum.add(piece_bytes as u16);
        sum.add(self.identification);
        write_u16(piece, 2, piece_bytes as u16);
        write_u16(piece, 4, self.identification);
        write_u16(piece, 10, !sum.fold());
        self.identification = self.identification.wrapping_add(1);
        debug_assert!(piece_bytes >= IPV4_BYTES + SHORT_BYTES);
    }

    fn write_checksum(&self, piece: &mut [u8], transport_bytes: usize) {
        let Some(offset) = self.packet.protocol.checksum_at() else {
            return;
        };
        let at = self.packet.header_bytes + offset;
        if self.checksum == Checksum::Complete
            && self.packet.protocol == Protocol::UDP
            && read_u16(piece, at) == 0
        {
            return;
        }
        let mut pseudo = self.pseudo;
        pseudo.add(transport_bytes as u16);
        write_u16(piece, at, pseudo.fold());
        if self.checksum == Checksum::Complete {
            checksum::complete_at(piece, self.packet.header_bytes, offset);
        }
    }
}

#[cfg(test)]
mod tests;
