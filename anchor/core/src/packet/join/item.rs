//! One place of the joiner: the first packet's headers and what has been joined to it.

use super::super::checksum::{self, pseudo_header};
use super::super::{
    Checksum, Fragment, IPV4_BYTES, Offload, Packet, Protocol, Segmentation, TcpFlags, Transport,
    read_u16, read_u32, write_u16,
};
use super::{HEADROOM, NONE};

/// Bytes copied of each packet, at most: IPv4, TCP and their options, or IPv6 and an ICMPv6
/// error's quote with a few extension headers.
pub(super) const HEAD_BYTES: usize = 256;

/// Pieces in one super-packet: where the kernel's own UDP GRO stops, more than a TCP super-packet
/// holds at our MTU, and well below the 1024 parts that a write may have.
const MAX_PIECES: usize = 64;

/// Bytes of a super-packet: what an IPv4 length field can say.
const MAX_BYTES: usize = 65_535;

/// Flags of segments that are never joined.
pub(super) const LONE_FLAGS: TcpFlags = TcpFlags::SYN.with(TcpFlags::RST).with(TcpFlags::URG);

/// Flags that only the last segment of a super-packet may have.
const ENDING_FLAGS: TcpFlags = TcpFlags::FIN.with(TcpFlags::PSH);

/// A packet that has just been pushed.
#[derive(Debug)]
pub(super) struct New<'a> {
    pub(super) tag: u32,
    pub(super) flags: u8,
    pub(super) checksum: Checksum,
    pub(super) packet: &'a Packet,
    pub(super) head: &'a [u8],
    pub(super) link: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) tag: u32,
    pub(super) flags: u8,
    pub(super) packet: Packet,
    pub(super) head_bytes: usize,
    pub(super) first_link: u32,
    pub(super) last_link: u32,
    pub(super) buffer: [u8; HEADROOM + HEAD_BYTES],
    /// Whether another packet may still be joined.
    is_open: bool,
    checksum: Checksum,
    pieces: usize,
    /// Payload bytes of the first piece, and of all but the last.
    segment_bytes: usize,
    /// Payload bytes of all pieces.
    payload_bytes: usize,
}

impl Item {
    /// A place not yet used.
    pub(super) const EMPTY: Self = Self {
        tag: 0,
        flags: 0,
        packet: Packet {
            source: std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            destination: std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            protocol: Protocol(0),
            hop_limit: 0,
            dont_fragment: false,
            total_bytes: 0,
            header_bytes: 0,
            fragment: None::<Fragment>,
            transport: Transport::Other,
        },
        head_bytes: 0,
        first_link: NONE,
        last_link: NONE,
        buffer: [0; HEADROOM + HEAD_BYTES],
        is_open: false,
        checksum: Checksum::Complete,
        pieces: 0,
        segment_bytes: 0,
        payload_bytes: 0,
    };

    /// Starts anew with a first packet.
    pub(super) fn start(&mut self, new: &New<'_>, is_joinable: bool) {
        let payload_bytes = new.packet.total_bytes - new.packet.all_header_bytes();
        self.tag = new.tag;
        self.flags = new.flags;
        self.packet = *new.packet;
        self.head_bytes = new.head.len();
        self.first_link = new.link;
        self.last_link = new.link;
        self.buffer[HEADROOM..HEADROOM + new.head.len()].copy_from_slice(new.head);
        self.is_open = is_joinable && !ends(new.packet);
        self.checksum = new.checksum;
        self.pieces = 1;
        self.segment_bytes = payload_bytes;
        self.payload_bytes = payload_bytes;
    }

    /// Joins a packet that this item [takes](Self::takes).
    pub(super) fn join(&mut self, new: &New<'_>) {
        let payload_bytes = new.packet.total_bytes - new.packet.all_header_bytes();
        self.last_link = new.link;
        self.pieces += 1;
        self.payload_bytes += payload_bytes;
        self.is_open = payload_bytes == self.segment_bytes && !ends(new.packet);
        if let (Transport::Tcp(mine), Transport::Tcp(its)) =
            (&mut self.packet.transport, &new.packet.transport)
        {
            mine.flags = mine.flags.with(TcpFlags(its.flags.0 & ENDING_FLAGS.0));
        }
    }

    /// Makes the headers say what the item has become, and returns what is left to do on it.
    pub(super) fn finish(&mut self) -> Offload {
        self.is_open = false;
        if self.pieces <= 1 {
            return Offload {
                checksum: self.checksum,
                ..Offload::PLAIN
            };
        }
        let total_bytes = self.head_bytes + self.payload_bytes;
        let header_bytes = self.packet.header_bytes;
        let head = &mut self.buffer[HEADROOM..HEADROOM + self.head_bytes];
        self.packet.total_bytes = total_bytes;
        let transport_bytes = total_bytes - header_bytes;
        if self.packet.is_ipv4() {
            write_u16(head, 2, total_bytes as u16);
            checksum::write_ipv4_header(head, header_bytes);
        } else {
            write_u16(head, 4, transport_bytes as u16);
        }
        let mut offload = Offload {
            checksum: Checksum::Partial,
            segmentation: Segmentation::Udp,
            segment_bytes: self.segment_bytes as u16,
            ecn: false,
        };
        match &mut self.packet.transport {
            Transport::Tcp(tcp) => {
                tcp.payload_bytes = self.payload_bytes as u32;
                head[header_bytes + 13] = tcp.flags.0;
                offload.segmentation = Segmentation::Tcp;
                offload.ecn = tcp.flags.contains(TcpFlags::CWR);
            }
            Transport::Udp(udp) => {
                udp.payload_bytes = self.payload_bytes as u32;
                write_u16(head, header_bytes + 4, transport_bytes as u16);
            }
            Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => {}
        }
        let Packet {
            source,
            destination,
            protocol,
            ..
        } = self.packet;
        let pseudo = pseudo_header(source, destination, protocol, transport_bytes);
        if let Some(offset) = protocol.checksum_at() {
            write_u16(head, header_bytes + offset, pseudo.fold());
        }
        offload
    }

    /// Returns whether `new` is what follows the packets joined so far.
    pub(super) fn takes(&self, new: &New<'_>) -> bool {
        let payload_bytes = new.packet.total_bytes - new.packet.all_header_bytes();
        self.is_open
            && self.tag == new.tag
            && self.flags == new.flags
            && self.pieces < MAX_PIECES
            && self.head_bytes == new.head.len()
            && payload_bytes <= self.segment_bytes
            && self.head_bytes + self.payload_bytes + payload_bytes <= MAX_BYTES
            && self.is_same_ip(new)
            && self.is_next(new)
    }

    fn head(&self) -> &[u8] {
        &self.buffer[HEADROOM..HEADROOM + self.head_bytes]
    }

    /// Compares what all pieces of one super-packet share in the IP header.
    fn is_same_ip(&self, new: &New<'_>) -> bool {
        let (mine, its) = (self.head(), new.head);
        let header_bytes = self.packet.header_bytes;
        if header_bytes != new.packet.header_bytes {
            return false;
        }
        if header_bytes != IPV4_BYTES {
            return mine[..4] == its[..4] && mine[6..header_bytes] == its[6..header_bytes];
        }
        // An identification that matters (no DF, RFC 6864) must count up, as cutting will have it.
        let expected = read_u16(mine, 4).wrapping_add(self.pieces as u16);
        mine[..2] == its[..2]
            && mine[6..10] == its[6..10]
            && mine[12..IPV4_BYTES] == its[12..IPV4_BYTES]
            && (new.packet.dont_fragment || read_u16(its, 4) == expected)
    }

    /// Compares the transport headers.
    fn is_next(&self, new: &New<'_>) -> bool {
        let at = self.packet.header_bytes;
        let (mine, its) = (&self.head()[at..], &new.head[at..]);
        match (&self.packet.transport, &new.packet.transport) {
            (Transport::Tcp(first), Transport::Tcp(tcp)) => {
                let expected = first.sequence.wrapping_add(self.payload_bytes as u32);
                // CWR starts a super-packet, but never goes on in one.
                let flags = (tcp.flags.0 ^ first.flags.without(TcpFlags::CWR).0) & !ENDING_FLAGS.0;
                tcp.sequence == expected
                    && flags == 0
                    && read_u32(mine, 0) == read_u32(its, 0)
                    && read_u32(mine, 8) == read_u32(its, 8)
                    && mine[12] == its[12]
                    && mine[14..16] == its[14..16]
                    && mine[18..] == its[18..]
            }
            (Transport::Udp(_), Transport::Udp(_)) => read_u32(mine, 0) == read_u32(its, 0),
            (
                Transport::Tcp(_)
                | Transport::Udp(_)
                | Transport::Echo(_)
                | Transport::IcmpError(_)
                | Transport::Icmp
                | Transport::LaterFragment
                | Transport::Other,
                _,
            ) => false,
        }
    }
}

/// Returns whether nothing may be joined after this packet.
fn ends(packet: &Packet) -> bool {
    match &packet.transport {
        Transport::Tcp(tcp) => tcp.flags.intersects(ENDING_FLAGS),
        Transport::Udp(_)
        | Transport::Echo(_)
        | Transport::IcmpError(_)
        | Transport::Icmp
        | Transport::LaterFragment
        | Transport::Other => false,
    }
}
