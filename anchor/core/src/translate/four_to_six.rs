//! IPv4 into IPv6 (RFC 7915 section 4).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Untranslatable;
use super::icmp::{Addresses, Message, changed, has_no_counterpart, translate_quoted_transport};
use crate::packet::checksum::{adjust_transport, pseudo_header};
use crate::packet::{
    Checksum, Fragment, IPV4_BYTES, IPV6_BYTES, Offload, Packet, Protocol, SHORT_BYTES, Transport,
    read_u16, read_u32, write_u16, write_u32,
};

/// Bytes of a quoted transport header that may change.
const QUOTED_BYTES: usize = 20;

/// The number of an IPv6 fragment header.
const FRAGMENT_HEADER: u8 = 44;

/// Turns the IPv4 packet at `start` of `buffer` into an IPv6 packet between the given addresses,
/// and returns where in `buffer` that starts, up to [`super::HEADROOM`] bytes earlier; parse it
/// again. Options are left out. In an ICMP error the quoted packet is translated too. `offload`
/// goes on to be right: a UDP datagram without checksum gets a partial one.
///
/// # Errors
/// [`Untranslatable`]; the packet is as it was.
pub fn four_to_six(
    buffer: &mut [u8],
    start: usize,
    packet: &Packet,
    offload: &mut Offload,
    source: Ipv6Addr,
    destination: Ipv6Addr,
) -> Result<usize, Untranslatable> {
    if !packet.is_ipv4() {
        return Err(Untranslatable::Family);
    }
    if buffer.len() < start.saturating_add(packet.all_header_bytes()) {
        return Err(Untranslatable::Headers);
    }
    let addresses = Addresses {
        source: (address_at(buffer, start + 12), source),
        destination: (address_at(buffer, start + 16), destination),
    };
    let end = buffer.len().min(start + packet.total_bytes);
    let place = Place {
        buffer: &mut buffer[..end],
        start,
    };
    match (&packet.transport, packet.protocol) {
        (Transport::IcmpError(_), _) if packet.fragment.is_none() => {
            place.translate_error(packet, addresses)
        }
        (Transport::Echo(_), _) if packet.fragment.is_none() => {
            place.translate_echo(packet, addresses)
        }
        (_, Protocol::ICMP) if packet.fragment.is_some() => Err(Untranslatable::Fragment),
        // What means something in IPv4 only, and the numbers of IPv6's own headers.
        (
            _,
            Protocol::ICMP
            | Protocol::IGMP
            | Protocol::ICMPV6
            | Protocol(0 | 43 | FRAGMENT_HEADER | 59 | 60 | 135 | 139 | 140),
        ) => Err(Untranslatable::NoEquivalent),
        (_, Protocol(_)) => place.translate_other(packet, offload, addresses),
    }
}

/// A packet in its buffer.
struct Place<'a> {
    buffer: &'a mut [u8],
    start: usize,
}

impl Place<'_> {
    fn translate_other(
        self,
        packet: &Packet,
        offload: &mut Offload,
        addresses: Addresses,
    ) -> Result<usize, Untranslatable> {
        let transport_at = self.start + packet.header_bytes;
        let header = Header::new(packet, packet.transport_bytes(), addresses);
        header.check_room(transport_at)?;
        let at = packet.checksum_at().map(|at| self.start + at);
        if let Some(at) = at.filter(|at| at + 2 <= self.buffer.len()) {
            let checksum = offload.checksum.for_packet(packet);
            let is_udp = packet.protocol == Protocol::UDP;
            if is_udp && checksum == Checksum::Complete && read_u16(self.buffer, at) == 0 {
                if packet.fragment.is_some() {
                    return Err(Untranslatable::Fragment);
                }
                let (source, destination) = (addresses.source.1, addresses.destination.1);
                let bytes = packet.transport_bytes();
                let pseudo = pseudo_header(source.into(), destination.into(), Protocol::UDP, bytes);
                write_u16(self.buffer, at, pseudo.fold());
                offload.checksum = Checksum::Partial;
            } else {
                let difference = addresses.difference_to_ipv6();
                adjust_transport(self.buffer, at, difference, checksum, packet.protocol);
            }
        }
        Ok(header.write_before(self.buffer, self.start, transport_at))
    }

    fn translate_echo(
        self,
        packet: &Packet,
        addresses: Addresses,
    ) -> Result<usize, Untranslatable> {
        let at = self.start + packet.header_bytes;
        let header = Header::new(packet, packet.transport_bytes(), addresses);
        header.check_room(at)?;
        if self.buffer.len() < at + SHORT_BYTES {
            return Err(Untranslatable::Headers);
        }
        let message = Message::read(&self.buffer[at..]).to_icmpv6()?;
        let checksum = read_u16(self.buffer, at + 2);
        let mut difference = addresses.pseudo_icmpv6(packet.transport_bytes());
        difference.sub_bytes(&self.buffer[at..at + 2]);
        message.write(&mut self.buffer[at..], 0);
        difference.add_bytes(&self.buffer[at..at + 2]);
        write_u16(self.buffer, at + 2, changed(checksum, difference));
        Ok(header.write_before(self.buffer, self.start, at))
    }

    /// Everything moves down from the quoted transport header, which stays where it is.
    fn translate_error(
        self,
        packet: &Packet,
        addresses: Addresses,
    ) -> Result<usize, Untranslatable> {
        let Self { buffer, start } = self;
        let at = start + packet.header_bytes;
        let quote_at = at + SHORT_BYTES;
        let quote = buffer
            .get(quote_at..)
            .filter(|quote| quote.len() >= IPV4_BYTES);
        let quote = quote.ok_or(Untranslatable::Headers)?;
        let quoted_header_bytes = usize::from(quote[0] & 0x0f) * 4;
        let inner_at = quote_at + quoted_header_bytes;
        if quoted_header_bytes < IPV4_BYTES || inner_at > buffer.len() {
            return Err(Untranslatable::Headers);
        }
        let (source, destination) = (address_at(quote, 12), address_at(quote, 16));
        let quoted = Addresses {
            source: (source, addresses.to_ipv6(source)),
            destination: (destination, addresses.to_ipv6(destination)),
        };
        let inner_header = Header::of_quote(quote, quoted_header_bytes, quoted);
        let protocol = Protocol(quote[9]);
        if has_no_counterpart(protocol, true) {
            return Err(Untranslatable::NoEquivalent);
        }
        let message = Message::read(&buffer[at..]).to_icmpv6()?;
        let message_bytes = packet.transport_bytes() + inner_header.bytes() - quoted_header_bytes;
        let header = Header::new(packet, message_bytes, addresses);
        header.check_room(inner_at.saturating_sub(inner_header.bytes() + SHORT_BYTES))?;

        let touched_bytes = (buffer.len() - inner_at).min(QUOTED_BYTES) & !1;
        let touched_end = inner_at + touched_bytes;
        let mut difference = addresses.pseudo_icmpv6(message_bytes);
        difference.sub_bytes(&buffer[at..touched_end]);
        let checksum = read_u16(buffer, at + 2);
        difference.add(checksum);
        if inner_header
            .fragment
            .is_none_or(|fragment| fragment.offset_bytes == 0)
        {
            let inner = &mut buffer[inner_at..touched_end];
            translate_quoted_transport(inner, protocol, quoted, false)?;
        }
        // The old outer header is read before the new inner one is written over it.
        let traffic_class = buffer[start + 1];
        let inner_start = inner_header.write_before(buffer, quote_at, inner_at);
        let message_at = inner_start - SHORT_BYTES;
        message.write(&mut buffer[message_at..], 0);
        difference.add_bytes(&buffer[message_at..touched_end]);
        write_u16(buffer, message_at + 2, changed(checksum, difference));
        Ok(header.write(buffer, traffic_class, message_at))
    }
}

/// What an IPv6 header will say that the IPv4 one does not.
#[derive(Clone, Copy, Debug)]
struct Header {
    transport_bytes: usize,
    fragment: Option<Fragment>,
    hop_limit: u8,
    protocol: Protocol,
    source: Ipv6Addr,
    destination: Ipv6Addr,
}

impl Header {
    fn new(packet: &Packet, transport_bytes: usize, addresses: Addresses) -> Self {
        Self {
            transport_bytes,
            fragment: packet.fragment,
            hop_limit: packet.hop_limit,
            protocol: translated(packet.protocol),
            source: addresses.source.1,
            destination: addresses.destination.1,
        }
    }

    fn of_quote(quote: &[u8], header_bytes: usize, addresses: Addresses) -> Self {
        let field = read_u16(quote, 6);
        let fragment = Fragment {
            identification: u32::from(read_u16(quote, 4)),
            offset_bytes: (field & 0x1fff) << 3,
            more: field & 0x2000 != 0,
        };
        let is_fragment = fragment.more || fragment.offset_bytes != 0;
        Self {
            transport_bytes: usize::from(read_u16(quote, 2)).saturating_sub(header_bytes),
            fragment: is_fragment.then_some(fragment),
            hop_limit: quote[8],
            protocol: translated(Protocol(quote[9])),
            source: addresses.source.1,
            destination: addresses.destination.1,
        }
    }

    const fn bytes(&self) -> usize {
        if self.fragment.is_some() {
            IPV6_BYTES + SHORT_BYTES
        } else {
            IPV6_BYTES
        }
    }

    const fn check_room(&self, end: usize) -> Result<(), Untranslatable> {
        if end < self.bytes() {
            Err(Untranslatable::Room)
        } else {
            Ok(())
        }
    }

    /// Writes the header so that it ends at `end`, taking the type of service from the IPv4
    /// header at `old`; returns where it starts.
    fn write_before(self, buffer: &mut [u8], old: usize, end: usize) -> usize {
        let traffic_class = buffer[old + 1];
        self.write(buffer, traffic_class, end)
    }

    fn write(self, buffer: &mut [u8], traffic_class: u8, end: usize) -> usize {
        let start = end - self.bytes();
        let header = &mut buffer[start..end];
        write_u32(header, 0, 6 << 28 | u32::from(traffic_class) << 20);
        let payload_bytes = self.transport_bytes + self.bytes() - IPV6_BYTES;
        // An IPv4 packet is 20 bytes short of what this field can say.
        write_u16(header, 4, payload_bytes.min(0xffff) as u16);
        header[6] = self.protocol.0;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..40].copy_from_slice(&self.destination.octets());
        if let Some(fragment) = self.fragment {
            header[6] = FRAGMENT_HEADER;
            header[40] = self.protocol.0;
            header[41] = 0;
            write_u16(header, 42, fragment.offset_bytes | u16::from(fragment.more));
            write_u32(header, 44, fragment.identification);
        }
        start
    }
}

const fn translated(protocol: Protocol) -> Protocol {
    match protocol {
        Protocol::ICMP => Protocol::ICMPV6,
        Protocol(_) => protocol,
    }
}

fn address_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(read_u32(bytes, at))
}
