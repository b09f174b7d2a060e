//! Other addresses of the same family.

use std::net::IpAddr;

use super::Untranslatable;
use crate::packet::checksum::{Sum, adjust, adjust_transport};
use crate::packet::{
    Chain, Checksum, IPV4_BYTES, IPV6_BYTES, Packet, Protocol, SHORT_BYTES, Transport, read_u16,
    walk_extensions,
};

/// Which of the two addresses of an IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Source,
    Destination,
}

impl End {
    const fn position(self, is_ipv4: bool) -> usize {
        match (self, is_ipv4) {
            (Self::Source, true) => 12,
            (Self::Destination, true) => 16,
            (Self::Source, false) => 8,
            (Self::Destination, false) => 24,
        }
    }
}

/// Gives the packet that starts `head` another source address. In an ICMP error, whichever
/// address of the quoted packet was the same is changed too.
///
/// # Errors
/// [`Untranslatable::Family`] when `to` is of the other family, [`Untranslatable::Headers`] when
/// `head` does not hold the headers of `packet`; nothing has changed then.
pub fn rewrite_source(
    head: &mut [u8],
    packet: &Packet,
    checksum: Checksum,
    to: IpAddr,
) -> Result<(), Untranslatable> {
    rewrite(head, packet, checksum, End::Source, to)
}

/// Gives the packet that starts `head` another destination address, otherwise as
/// [`rewrite_source`].
///
/// # Errors
/// As [`rewrite_source`].
pub fn rewrite_destination(
    head: &mut [u8],
    packet: &Packet,
    checksum: Checksum,
    to: IpAddr,
) -> Result<(), Untranslatable> {
    rewrite(head, packet, checksum, End::Destination, to)
}

fn rewrite(
    head: &mut [u8],
    packet: &Packet,
    checksum: Checksum,
    end: End,
    to: IpAddr,
) -> Result<(), Untranslatable> {
    let is_ipv4 = packet.is_ipv4();
    if is_ipv4 != to.is_ipv4() {
        return Err(Untranslatable::Family);
    }
    if head.len() < packet.all_header_bytes() {
        return Err(Untranslatable::Headers);
    }
    match to {
        IpAddr::V4(to) => replace(head, packet, checksum, end, to.octets()),
        IpAddr::V6(to) => replace(head, packet, checksum, end, to.octets()),
    }
}

fn replace<const N: usize>(
    head: &mut [u8],
    packet: &Packet,
    checksum: Checksum,
    end: End,
    new: [u8; N],
) -> Result<(), Untranslatable> {
    let is_ipv4 = N == 4;
    let at = end.position(is_ipv4);
    let mut old = [0; N];
    old.copy_from_slice(&head[at..at + N]);
    let mut difference = Sum::ZERO;
    difference.sub_bytes(&old);
    difference.add_bytes(&new);

    let is_error = match &packet.transport {
        Transport::IcmpError(_) => true,
        Transport::Tcp(_)
        | Transport::Udp(_)
        | Transport::Echo(_)
        | Transport::Icmp
        | Transport::LaterFragment
        | Transport::Other => false,
    };
    let mut quoted = Sum::ZERO;
    if is_error {
        let quote = packet.header_bytes + SHORT_BYTES;
        let head_bytes = head.len().min(packet.total_bytes);
        let quote = head
            .get_mut(quote..head_bytes)
            .ok_or(Untranslatable::Headers)?;
        quoted = replace_quoted(quote, &old, &new, difference)?;
    }
    head[at..at + N].copy_from_slice(&new);
    if is_ipv4 {
        adjust(head, 10, difference, Checksum::Complete);
    }
    if is_error {
        // ICMP sums its message, ICMPv6 the addresses outside as well.
        if !is_ipv4 {
            quoted.add_sum(difference);
        }
        adjust(head, packet.header_bytes + 2, quoted, Checksum::Complete);
    } else if let Some(at) = packet.checksum_at().filter(|at| at + 2 <= head.len()) {
        adjust_transport(
            head,
            at,
            difference,
            checksum.for_packet(packet),
            packet.protocol,
        );
    }
    Ok(())
}

/// Replaces the address where the quoted packet has it, with the checksums in the quote, and
/// returns by how much the sum of the quote has changed.
fn replace_quoted<const N: usize>(
    quote: &mut [u8],
    old: &[u8; N],
    new: &[u8; N],
    difference: Sum,
) -> Result<Sum, Untranslatable> {
    let is_ipv4 = N == 4;
    let fixed_bytes = if is_ipv4 { IPV4_BYTES } else { IPV6_BYTES };
    if quote.len() < fixed_bytes {
        return Err(Untranslatable::Headers);
    }
    let chain = if is_ipv4 {
        let is_later = read_u16(quote, 6) & 0x1fff != 0;
        let end = if is_later {
            usize::MAX
        } else {
            usize::from(quote[0] & 0x0f) * 4
        };
        Chain {
            protocol: Protocol(quote[9]),
            end,
            fragment: None,
        }
    } else {
        let mut chain = walk_extensions(quote).map_err(|_| Untranslatable::Headers)?;
        if chain
            .fragment
            .is_some_and(|fragment| fragment.offset_bytes != 0)
        {
            chain.end = usize::MAX;
        }
        chain
    };
    let mut change = Sum::ZERO;
    for end in [End::Source, End::Destination] {
        let at = end.position(is_ipv4);
        if quote[at..at + N] != *old {
            continue;
        }
        quote[at..at + N].copy_from_slice(new);
        change.add_sum(difference);
        if is_ipv4 {
            change.add_sum(adjust_counted(quote, 10, difference, None));
        }
        let within = match chain.protocol {
            Protocol::ICMPV6 => Some(2),
            protocol => protocol.checksum_at(),
        };
        let at = within.map(|within| chain.end.saturating_add(within));
        if let Some(at) = at.filter(|&at| at < quote.len().saturating_sub(1)) {
            change.add_sum(adjust_counted(quote, at, difference, Some(chain.protocol)));
        }
    }
    Ok(change)
}

/// Adjusts a checksum within a quote and returns by how much it has changed itself.
fn adjust_counted(quote: &mut [u8], at: usize, difference: Sum, udp: Option<Protocol>) -> Sum {
    let mut change = Sum::ZERO;
    change.sub(read_u16(quote, at));
    match udp {
        Some(protocol) => adjust_transport(quote, at, difference, Checksum::Complete, protocol),
        None => adjust(quote, at, difference, Checksum::Complete),
    }
    change.add(read_u16(quote, at));
    change
}
