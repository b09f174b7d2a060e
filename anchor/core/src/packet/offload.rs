//! What the kernel leaves undone on a packet it hands over, and what we leave to it: the
//! virtio-net header in front of each packet on the TUN device (virtio 1.2 section 5.1.6, in the
//! machine's byte order, as TUN has it unless told otherwise).

use super::{Packet, SHORT_BYTES, Transport};

/// Bytes of the header in front of a packet on the TUN device.
pub const VIRTIO_BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// What a transport checksum field holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// The checksum.
    Complete,
    /// Only the folded sum of the pseudo-header, not complemented: Linux's CHECKSUM_PARTIAL.
    Partial,
}

impl Checksum {
    /// Returns [`Checksum::Complete`] where `packet` cannot have a partial one.
    pub const fn for_packet(self, packet: &Packet) -> Self {
        if packet.may_be_partial() {
            self
        } else {
            Self::Complete
        }
    }
}

/// What a super-packet is to be cut into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segmentation {
    /// It is no super-packet.
    None,
    /// TCP segments.
    Tcp,
    /// UDP datagrams.
    Udp,
}

/// What is left to do on a packet before it may go onto a wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offload {
    /// Whether the transport checksum is still to be computed.
    pub checksum: Checksum,
    /// Whether and how it is to be cut.
    pub segmentation: Segmentation,
    /// Transport payload bytes per piece; 0 without segmentation.
    pub segment_bytes: u16,
    /// Whether the TCP super-packet carries CWR, which only its first piece keeps.
    pub ecn: bool,
}

/// Why a virtio header cannot be honoured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadOffload {
    /// The checksum to be computed is not the outermost transport's (a tunnel inside): finish it
    /// by [`super::checksum::complete_at`] and go on with [`Offload::PLAIN`].
    #[error("checksum of an inner header at {start}+{offset}")]
    ForeignChecksum {
        /// Where the sum starts.
        start: usize,
        /// Where, counted from there, the field is.
        offset: usize,
    },
    /// A kind of segmentation that does not suit the packet or that we never asked for.
    #[error("segmentation {kind} does not suit the packet")]
    Segmentation {
        /// The header's `gso_type`.
        kind: u8,
    },
}

impl Offload {
    /// Nothing is left to do.
    pub const PLAIN: Self = Self {
        checksum: Checksum::Complete,
        segmentation: Segmentation::None,
        segment_bytes: 0,
        ecn: false,
    };

    /// Reads what the kernel says about `packet`.
    ///
    /// # Errors
    /// [`BadOffload`] when the header does not suit the packet.
    pub fn from_virtio(header: &[u8; VIRTIO_BYTES], packet: &Packet) -> Result<Self, BadOffload> {
        let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let kind = header[1];
        let segmentation = match (kind & !GSO_ECN, &packet.transport) {
            (GSO_NONE, _) => Segmentation::None,
            (GSO_TCPV4, Transport::Tcp(_)) if packet.is_ipv4() => Segmentation::Tcp,
            (GSO_TCPV6, Transport::Tcp(_)) if !packet.is_ipv4() => Segmentation::Tcp,
            (GSO_UDP, Transport::Udp(_)) => Segmentation::Udp,
            (_, _) => return Err(BadOffload::Segmentation { kind }),
        };
        let segment_bytes = field(4);
        if segmentation != Segmentation::None && (segment_bytes == 0 || packet.fragment.is_some()) {
            return Err(BadOffload::Segmentation { kind });
        }
        let mut offload = Self::PLAIN;
        if header[0] & NEEDS_CHECKSUM != 0 {
            let (start, offset) = (usize::from(field(6)), usize::from(field(8)));
            let is_ours = packet.may_be_partial()
                && start == packet.header_bytes
                && packet.protocol.checksum_at() == Some(offset);
            if !is_ours {
                return Err(BadOffload::ForeignChecksum { start, offset });
            }
            offload.checksum = Checksum::Partial;
        }
        let payload_bytes = packet.total_bytes - packet.all_header_bytes();
        if segmentation != Segmentation::None && payload_bytes > usize::from(segment_bytes) {
            offload.segmentation = segmentation;
            offload.segment_bytes = segment_bytes;
            offload.ecn = kind & GSO_ECN != 0 && segmentation == Segmentation::Tcp;
        }
        Ok(offload)
    }

    /// Returns the header that tells the kernel what is left to do on `packet`.
    pub fn to_virtio(&self, packet: &Packet) -> [u8; VIRTIO_BYTES] {
        let mut header = [0; VIRTIO_BYTES];
        let mut put = |at: usize, value: usize| {
            let value = u16::try_from(value).unwrap_or(u16::MAX);
            header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        };
        let transport_bytes = match &packet.transport {
            Transport::Tcp(tcp) => tcp.header_bytes,
            Transport::Udp(_) => SHORT_BYTES,
            Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => return header,
        };
        if packet.fragment.is_some() {
            return header;
        }
        put(2, packet.header_bytes + transport_bytes);
        let kind = match (self.segmentation, packet.is_ipv4()) {
            (Segmentation::None, _) => GSO_NONE,
            (Segmentation::Tcp, true) => GSO_TCPV4,
            (Segmentation::Tcp, false) => GSO_TCPV6,
            (Segmentation::Udp, _) => GSO_UDP,
        };
        if kind != GSO_NONE {
            put(4, usize::from(self.segment_bytes));
        }
        if let (Checksum::Partial, Some(offset)) = (self.checksum, packet.protocol.checksum_at()) {
            put(6, packet.header_bytes);
            put(8, offset);
            header[0] = NEEDS_CHECKSUM;
        }
        header[1] = kind
            | if self.ecn && kind != GSO_NONE {
                GSO_ECN
            } else {
                0
            };
        header
    }
}

#[cfg(test)]
mod tests;
