//! IPv6 into IPv4 (RFC 7915 section 5).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Untranslatable;
use super::icmp::{Addresses, Message, changed, has_no_counterpart, translate_quoted_transport};
use crate::packet::checksum::{self, Sum, adjust_transport};
use crate::packet::{
    Chain, Fragment, IPV4_BYTES, IPV6_BYTES, Offload, Packet, Protocol, SHORT_BYTES, Segmentation,
    Transport, read_u16, walk_extensions, write_u16,
};

/// RFC 7915 section 5.1: up to here IPv4 routers may fragment, since an IPv6 host would not make
/// its packet smaller than 1280 bytes.
const MAX_FRAGMENTABLE_BYTES: usize = 1260;

/// Bytes of a transport header that an identification is made of: enough to take in sequence
/// numbers, checksum and the start of the payload.
const IDENTIFYING_BYTES: usize = 64;

/// Bytes of a quoted transport header that may change.
const QUOTED_BYTES: usize = 20;

/// Turns the IPv6 packet that starts `buffer` into an IPv4 packet between the given addresses,
/// and returns where in `buffer` that starts; parse it again. Extension headers are left out. In
/// an ICMP error the quoted packet is translated too. `offload` goes on to be right.
///
/// # Errors
/// [`Untranslatable`]; the packet is as it was.
pub fn six_to_four(
    buffer: &mut [u8],
    packet: &Packet,
    offload: &mut Offload,
    source: Ipv4Addr,
    destination: Ipv4Addr,
) -> Result<usize, Untranslatable> {
    if packet.is_ipv4() {
        return Err(Untranslatable::Family);
    }
    if buffer.len() < packet.all_header_bytes() {
        return Err(Untranslatable::Headers);
    }
    let addresses = Addresses {
        source: (source, address_at(buffer, 8)),
        destination: (destination, address_at(buffer, 24)),
    };
    let head_bytes = buffer.len().min(packet.total_bytes);
    let head = &mut buffer[..head_bytes];
    match (&packet.transport, packet.protocol) {
        (Transport::IcmpError(_), _) if packet.fragment.is_none_or(|fragment| !fragment.more) => {
            translate_error(head, packet, addresses)
        }
        (Transport::Echo(_), _) if packet.fragment.is_none_or(|fragment| !fragment.more) => {
            translate_echo(head, packet, addresses)
        }
        (_, Protocol::ICMPV6) if packet.fragment.is_some() => Err(Untranslatable::Fragment),
        // Router and listener discovery, and protocols that mean something in IPv4 only.
        (_, Protocol::ICMPV6 | Protocol::ICMP | Protocol::IGMP | Protocol(59)) => {
            Err(Untranslatable::NoEquivalent)
        }
        (_, Protocol(_)) => translate_other(head, packet, *offload, addresses),
    }
}

fn translate_other(
    head: &mut [u8],
    packet: &Packet,
    offload: Offload,
    addresses: Addresses,
) -> Result<usize, Untranslatable> {
    let header = Header::new(packet, packet.transport_bytes(), addresses)?;
    let header = header.with_policy(head, packet, offload);
    if let Some(at) = packet.checksum_at().filter(|at| at + 2 <= head.len()) {
        let checksum = offload.checksum.for_packet(packet);
        adjust_transport(
            head,
            at,
            addresses.difference_to_ipv4(),
            checksum,
            packet.protocol,
        );
    }
    Ok(header.write_before(head, 0, packet.header_bytes))
}

fn translate_echo(
    head: &mut [u8],
    packet: &Packet,
    addresses: Addresses,
) -> Result<usize, Untranslatable> {
    let at = packet.header_bytes;
    if head.len() < at + SHORT_BYTES {
        return Err(Untranslatable::Headers);
    }
    let message = Message::read(&head[at..]).to_icmp()?;
    let header = Header::new(packet, packet.transport_bytes(), addresses)?;
    let header = header.with_policy(head, packet, Offload::PLAIN);
    let checksum = read_u16(head, at + 2);
    let mut difference = Sum::ZERO;
    difference.sub_sum(addresses.pseudo_icmpv6(packet.transport_bytes()));
    difference.sub_bytes(&head[at..at + 2]);
    message.write(&mut head[at..], 0);
    difference.add_bytes(&head[at..at + 2]);
    write_u16(head, at + 2, changed(checksum, difference));
    Ok(header.write_before(head, 0, at))
}

/// Everything moves up to the quoted transport header, which stays where it is.
fn translate_error(
    head: &mut [u8],
    packet: &Packet,
    addresses: Addresses,
) -> Result<usize, Untranslatable> {
    let at = packet.header_bytes;
    let quote_at = at + SHORT_BYTES;
    let quote = head
        .get(quote_at..)
        .filter(|quote| quote.len() >= IPV6_BYTES);
    let quote = quote.ok_or(Untranslatable::Headers)?;
    let chain = walk_extensions(quote).map_err(|_| Untranslatable::Headers)?;
    if has_no_counterpart(chain.protocol, false) {
        return Err(Untranslatable::NoEquivalent);
    }
    let inner_at = quote_at + chain.end;
    if inner_at > head.len() {
        return Err(Untranslatable::Headers);
    }
    let quoted = Addresses {
        source: (
            addresses.to_ipv4(address_at(quote, 8))?,
            address_at(quote, 8),
        ),
        destination: (
            addresses.to_ipv4(address_at(quote, 24))?,
            address_at(quote, 24),
        ),
    };
    let message = Message::read(&head[at..]).to_icmp()?;
    let inner_bytes = (usize::from(read_u16(quote, 4)) + IPV6_BYTES).saturating_sub(chain.end);
    let inner_header = Header::of_quote(chain, quote[7], inner_bytes, quoted)?;
    let message_bytes = packet.transport_bytes() - (chain.end - IPV4_BYTES);
    let header = Header::new(packet, message_bytes, addresses)?;
    let header = header.with_policy(head, packet, Offload::PLAIN);

    let touched_bytes = (head.len() - inner_at).min(QUOTED_BYTES) & !1;
    let touched_end = inner_at + touched_bytes;
    let mut difference = Sum::ZERO;
    difference.sub_sum(addresses.pseudo_icmpv6(packet.transport_bytes()));
    difference.sub_bytes(&head[at..touched_end]);
    let checksum = read_u16(head, at + 2);
    difference.add(checksum);
    if chain
        .fragment
        .is_none_or(|fragment| fragment.offset_bytes == 0)
    {
        let inner = &mut head[inner_at..touched_end];
        translate_quoted_transport(inner, chain.protocol, quoted, true)?;
    }
    let inner_start = inner_header.write_before(head, quote_at, inner_at);
    let message_at = inner_start - SHORT_BYTES;
    message.write(&mut head[message_at..], 0);
    difference.add_bytes(&head[message_at..touched_end]);
    write_u16(head, message_at + 2, changed(checksum, difference));
    Ok(header.write_before(head, 0, message_at))
}

/// What an IPv4 header will say that the IPv6 one does not.
#[derive(Clone, Copy, Debug)]
struct Header {
    total_bytes: u16,
    identification: u16,
    /// Flags and offset.
    fragment: u16,
    hop_limit: u8,
    protocol: Protocol,
    source: Ipv4Addr,
    destination: Ipv4Addr,
}

impl Header {
    fn new(
        packet: &Packet,
        transport_bytes: usize,
        addresses: Addresses,
    ) -> Result<Self, Untranslatable> {
        let Packet {
            protocol,
            header_bytes: end,
            fragment,
            ..
        } = *packet;
        let chain = Chain {
            protocol,
            end,
            fragment,
        };
        Self::of_quote(chain, packet.hop_limit, transport_bytes, addresses)
    }

    fn of_quote(
        chain: Chain,
        hop_limit: u8,
        transport_bytes: usize,
        addresses: Addresses,
    ) -> Result<Self, Untranslatable> {
        let total_bytes =
            u16::try_from(IPV4_BYTES + transport_bytes).map_err(|_| Untranslatable::TooLong)?;
        let (identification, fragment) = match chain.fragment {
            Some(Fragment {
                identification,
                offset_bytes,
                more,
            }) => {
                let more = if more { 0x2000 } else { 0 };
                (identification as u16, more | offset_bytes >> 3)
            }
            None => (0, 0x4000),
        };
        let protocol = match chain.protocol {
            Protocol::ICMPV6 => Protocol::ICMP,
            protocol => protocol,
        };
        Ok(Self {
            total_bytes,
            identification,
            fragment,
            hop_limit,
            protocol,
            source: addresses.source.0,
            destination: addresses.destination.0,
        })
    }

    /// Lets routers fragment what its sender would not make smaller. The identification follows
    /// from the packet's own bytes: what differs most likely differs in it, and what does not may
    /// be mixed up.
    fn with_policy(mut self, head: &[u8], packet: &Packet, offload: Offload) -> Self {
        let piece_bytes = match offload.segmentation {
            Segmentation::None => usize::from(self.total_bytes),
            Segmentation::Tcp | Segmentation::Udp => {
                let headers_bytes = packet.all_header_bytes() - packet.header_bytes + IPV4_BYTES;
                headers_bytes + usize::from(offload.segment_bytes)
            }
        };
        if packet.fragment.is_some() || piece_bytes > MAX_FRAGMENTABLE_BYTES {
            return self;
        }
        let end = head.len().min(packet.header_bytes + IDENTIFYING_BYTES);
        let mut hash = 0u32;
        for word in head[packet.header_bytes..end].chunks(4) {
            let word = word
                .iter()
                .fold(0, |word, &byte| word << 8 | u32::from(byte));
            hash = (hash ^ word).wrapping_mul(0x9e37_79b1).rotate_left(13);
        }
        self.identification = (hash >> 16) as u16 ^ hash as u16;
        self.fragment = 0;
        self
    }

    /// Writes the header so that it ends at `end`, taking the traffic class from the IPv6 header
    /// at `old`; returns where it starts.
    fn write_before(self, head: &mut [u8], old: usize, end: usize) -> usize {
        let traffic_class = (read_u16(head, old) >> 4) as u8;
        let start = end - IPV4_BYTES;
        let header = &mut head[start..end];
        header[0] = 0x45;
        header[1] = traffic_class;
        write_u16(header, 2, self.total_bytes);
        write_u16(header, 4, self.identification);
        write_u16(header, 6, self.fragment);
        header[8] = self.hop_limit;
        header[9] = self.protocol.0;
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..20].copy_from_slice(&self.destination.octets());
        checksum::write_ipv4_header(header, IPV4_BYTES);
        start
    }
}

fn address_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    Ipv6Addr::from(octets)
}
