//! IP packets as this program sees them: what their headers say ([`Packet`]), what is left for
//! somebody else to do to them ([`Offload`]), how big ones become wire-sized ones ([`Cut`],
//! [`Fragments`]), how neighbours become one again ([`Joiner`]), and the few packets we write
//! ourselves ([`build_reset`] and its kin).
//!
//! Not for deciding anything: who may send what to whom is [`crate::plane`]'s matter. Changing
//! addresses and families is [`crate::translate`]'s.
//!
//! All bytes are hostile: a length that lies is refused by [`Packet::parse`], and whatever passed
//! it can be given to every other function here without a panic.

mod build;
pub mod checksum;
mod cut;
mod fragment;
mod join;
mod mss;
mod offload;
mod parse;
mod small;
#[cfg(test)]
pub(crate) mod testing;

use std::net::IpAddr;

pub use build::{Reason, Unanswerable, build_reset, build_too_big, build_unreachable};
pub use cut::{Cut, Uncuttable};
pub use fragment::{Fragments, fragment_ipv4};
pub use join::{HEADROOM, Joinable, Joined, Joiner, Refused, Span, Spans};
pub use mss::clamp_mss;
pub use offload::{BadOffload, Checksum, Offload, Segmentation, VIRTIO_BYTES};
pub use parse::Malformed;
pub(crate) use parse::{Chain, walk_extensions};
pub use small::{SMALL_BYTES, SmallFragments, fragment_small};

/// Bytes of an IPv4 header without options.
pub(crate) const IPV4_BYTES: usize = 20;
/// Bytes of the fixed IPv6 header.
pub(crate) const IPV6_BYTES: usize = 40;
/// Bytes of a UDP header, and of the fixed part of every ICMP message we look at.
pub(crate) const SHORT_BYTES: usize = 8;
/// Bytes of a TCP header without options.
pub(crate) const TCP_BYTES: usize = 20;

/// An IANA protocol number: what follows the IP header and its extensions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Protocol(pub u8);

impl Protocol {
    /// Internet Control Message Protocol.
    pub const ICMP: Self = Self(1);
    /// Internet Group Management Protocol.
    pub const IGMP: Self = Self(2);
    /// Transmission Control Protocol.
    pub const TCP: Self = Self(6);
    /// User Datagram Protocol.
    pub const UDP: Self = Self(17);
    /// Datagram Congestion Control Protocol.
    pub const DCCP: Self = Self(33);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// UDP-Lite.
    pub const UDP_LITE: Self = Self(136);

    /// Returns where in its header this protocol keeps a checksum that covers the addresses of
    /// the IP header, for the protocols that are the same over IPv4 and IPv6.
    pub(crate) const fn checksum_at(self) -> Option<usize> {
        match self {
            Self::TCP => Some(16),
            Self::UDP | Self::UDP_LITE | Self::DCCP => Some(6),
            Self(_) => None,
        }
    }
}

/// What the headers of one IP packet say. Positions and lengths agree with the bytes it was
/// parsed from; parse again after changing more than addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Who the packet says it is from.
    pub source: IpAddr,
    /// Where the packet wants to go; always of the source's family.
    pub destination: IpAddr,
    /// What follows the IP header and its extension headers.
    pub protocol: Protocol,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// Whether routers must not fragment it; always true for IPv6.
    pub dont_fragment: bool,
    /// Bytes of the whole packet, from the IP header to the end of the payload.
    pub total_bytes: usize,
    /// Bytes of the IP header with its options or extension headers.
    pub header_bytes: usize,
    /// Set when the packet is a piece of a bigger one (or an IPv6 atomic fragment).
    pub fragment: Option<Fragment>,
    /// The transport header.
    pub transport: Transport,
}

impl Packet {
    /// Returns whether this is an IPv4 packet.
    pub const fn is_ipv4(&self) -> bool {
        self.source.is_ipv4()
    }

    /// Returns the bytes after the IP header and its extensions.
    pub const fn transport_bytes(&self) -> usize {
        self.total_bytes - self.header_bytes
    }

    /// Returns the bytes of all headers that the payload follows: IP, extensions, TCP or UDP.
    /// For other transports the IP header and its extensions only.
    pub const fn all_header_bytes(&self) -> usize {
        self.header_bytes
            + match &self.transport {
                Transport::Tcp(tcp) => tcp.header_bytes,
                Transport::Udp(_) => SHORT_BYTES,
                Transport::Echo(_)
                | Transport::IcmpError(_)
                | Transport::Icmp
                | Transport::LaterFragment
                | Transport::Other => 0,
            }
    }

    /// Returns whether a checksum may be left partial on this packet: an unfragmented TCP or UDP
    /// one. Elsewhere a peer's mark to that effect means nothing.
    pub const fn may_be_partial(&self) -> bool {
        match &self.transport {
            Transport::Tcp(_) | Transport::Udp(_) => self.fragment.is_none(),
            Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => false,
        }
    }

    /// Returns the position of the transport checksum that covers the addresses, when this packet
    /// carries one.
    pub(crate) fn checksum_at(&self) -> Option<usize> {
        let within = match &self.transport {
            Transport::LaterFragment => None,
            Transport::Tcp(_) | Transport::Udp(_) | Transport::Other => self.protocol.checksum_at(),
            Transport::Echo(_) | Transport::IcmpError(_) | Transport::Icmp => {
                (!self.is_ipv4()).then_some(2)
            }
        }?;
        (within + 2 <= self.transport_bytes()).then_some(self.header_bytes + within)
    }
}

/// The place of a fragment in its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// What the pieces of one packet share; 16 bits of it in IPv4.
    pub identification: u32,
    /// Where this piece starts in the payload of the whole; a multiple of 8.
    pub offset_bytes: u16,
    /// Whether further pieces follow.
    pub more: bool,
}

/// The transport header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A TCP segment, or a super-packet of many.
    Tcp(Tcp),
    /// A UDP datagram, or a super-packet of many.
    Udp(Udp),
    /// An ICMP or ICMPv6 echo request or reply.
    Echo(Echo),
    /// An ICMP or ICMPv6 error about another packet.
    IcmpError(IcmpError),
    /// Any other ICMP or ICMPv6 message.
    Icmp,
    /// A piece of a packet that is not its first: no transport header.
    LaterFragment,
    /// A protocol we carry without looking at it.
    Other,
}

/// A TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tcp {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Sequence number of the first payload byte (or of SYN or FIN).
    pub sequence: u32,
    /// The next sequence number the sender expects; meaningful with [`TcpFlags::ACK`].
    pub acknowledgment: u32,
    /// The eight flags.
    pub flags: TcpFlags,
    /// Bytes of the TCP header with its options, 20 to 60.
    pub header_bytes: usize,
    /// Bytes after the TCP header.
    pub payload_bytes: u32,
    /// The window field, unscaled.
    pub window: u16,
}

/// The eight flag bits of a TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Opens a connection.
    pub const SYN: Self = Self(0x02);
    /// Ends a connection at once.
    pub const RST: Self = Self(0x04);
    /// Hand the data to the application now.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// ECN echo.
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced.
    pub const CWR: Self = Self(0x80);

    /// Returns whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any flag of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the flags of both.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these flags less those of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Udp {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Bytes after the UDP header (in this fragment, when it is one).
    pub payload_bytes: u32,
}

/// An echo message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// Whether it asks; otherwise it answers.
    pub request: bool,
    /// Names the asking process.
    pub identifier: u16,
    /// Counts its questions.
    pub sequence: u16,
}

/// An ICMP or ICMPv6 error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// What went wrong.
    pub kind: IcmpKind,
    /// The packet it went wrong with.
    pub inner: Inner,
}

/// What an ICMP error says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpKind {
    /// Destination unreachable; the code is the family's own.
    Unreachable {
        /// ICMP type 3 or ICMPv6 type 1 code.
        code: u8,
    },
    /// The packet does not fit a link on the way.
    TooBig {
        /// What would fit, in bytes of the whole packet; 0 when an old router does not say.
        mtu: u32,
    },
    /// The hop limit or the time for reassembly ran out.
    TimeExceeded {
        /// 0 on the way, 1 in reassembly.
        code: u8,
    },
    /// Some header field was not understood.
    ParameterProblem {
        /// The family's own code.
        code: u8,
    },
    /// An ICMPv6 error of a type we do not know.
    Other {
        /// The ICMPv6 type, below 128.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// The packet an ICMP error is about, as far as it is quoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inner {
    /// Who had sent it.
    pub source: IpAddr,
    /// Where it was going.
    pub destination: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its source port; the identifier of an echo request; else 0.
    pub source_port: u16,
    /// Its destination port; the identifier of an echo reply; else 0.
    pub destination_port: u16,
    /// Its TCP sequence number, else 0.
    pub sequence: u32,
}

/// Reads a big-endian number; the caller has checked that it is there.
pub(crate) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a big-endian number; the caller has checked that it is there.
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes a big-endian number; the caller has checked that there is room.
pub(crate) fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes a big-endian number; the caller has checked that there is room.
pub(crate) fn write_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
