//! From bytes to [`Packet`]. The one place that trusts nothing; everybody else relies on what it
//! has checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    Echo, Fragment, IPV4_BYTES, IPV6_BYTES, IcmpError, IcmpKind, Inner, Packet, Protocol,
    SHORT_BYTES, TCP_BYTES, Tcp, TcpFlags, Transport, Udp, read_u16, read_u32,
};

/// Extension headers walked before a packet is refused: more than any known use stacks up, few
/// enough that a packet full of them costs nothing.
const MAX_EXTENSIONS: usize = 8;

/// Bytes a packet may have in all: fragments that claim to end beyond it are an old attack.
const MAX_PAYLOAD_BYTES: usize = 65_535;

/// Why bytes are not a packet we carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Neither IPv4 nor IPv6.
    #[error("neither IPv4 nor IPv6")]
    Version,
    /// The bytes end within a header.
    #[error("ends within a header")]
    Truncated,
    /// A header claims a length that cannot be.
    #[error("impossible header length")]
    HeaderLength,
    /// A length field disagrees with the bytes there are.
    #[error("length field disagrees with the packet")]
    Length,
    /// A fragment that no whole packet can be made of.
    #[error("impossible fragment")]
    Fragment,
    /// Too many IPv6 extension headers.
    #[error("too many extension headers")]
    Extensions,
    /// It names hops of its own, so that the destination checked is not where it ends.
    #[error("source routed")]
    SourceRouted,
    /// An ICMP error that does not quote enough of a packet to tell whose it is.
    #[error("ICMP error without a usable quote")]
    Quote,
}

impl Packet {
    /// Reads the headers of a packet of `total_bytes`. `head` holds at least all its headers (and
    /// the quote of an ICMP error); the rest of the payload may lie elsewhere.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong; such a packet is to be dropped and counted.
    pub fn parse(head: &[u8], total_bytes: usize) -> Result<Self, Malformed> {
        let head = head.get(..total_bytes).unwrap_or(head);
        match head.first().map(|first| first >> 4) {
            Some(4) => parse_ipv4(head, total_bytes),
            Some(6) => parse_ipv6(head, total_bytes),
            Some(_) => Err(Malformed::Version),
            None => Err(Malformed::Truncated),
        }
    }
}

fn parse_ipv4(head: &[u8], total_bytes: usize) -> Result<Packet, Malformed> {
    let header_bytes = ipv4_header_bytes(head)?;
    if usize::from(read_u16(head, 2)) != total_bytes || header_bytes > total_bytes {
        return Err(Malformed::Length);
    }
    if is_source_routed(&head[IPV4_BYTES..header_bytes]) {
        return Err(Malformed::SourceRouted);
    }
    let fragment = ipv4_fragment(head);
    check_fragment(fragment, total_bytes - header_bytes)?;
    let protocol = Protocol(head[9]);
    let transport = parse_transport(head, protocol, header_bytes, total_bytes, fragment, true)?;
    Ok(Packet {
        source: ipv4_at(head, 12),
        destination: ipv4_at(head, 16),
        protocol,
        hop_limit: head[8],
        dont_fragment: head[6] & 0x40 != 0,
        total_bytes,
        header_bytes,
        fragment,
        transport,
    })
}

fn parse_ipv6(head: &[u8], total_bytes: usize) -> Result<Packet, Malformed> {
    if head.len() < IPV6_BYTES {
        return Err(Malformed::Truncated);
    }
    if usize::from(read_u16(head, 4)) + IPV6_BYTES != total_bytes {
        return Err(Malformed::Length);
    }
    let chain = walk_extensions(head)?;
    let (protocol, header_bytes) = (chain.protocol, chain.end);
    if header_bytes > total_bytes {
        return Err(Malformed::Length);
    }
    let fragment = chain.fragment;
    check_fragment(fragment, total_bytes - header_bytes)?;
    let transport = parse_transport(head, protocol, header_bytes, total_bytes, fragment, false)?;
    Ok(Packet {
        source: ipv6_at(head, 8),
        destination: ipv6_at(head, 24),
        protocol,
        hop_limit: head[7],
        dont_fragment: true,
        total_bytes,
        header_bytes,
        fragment,
        transport,
    })
}

/// Returns the bytes of an IPv4 header that lies in `head` as a whole.
fn ipv4_header_bytes(head: &[u8]) -> Result<usize, Malformed> {
    if head.len() < IPV4_BYTES {
        return Err(Malformed::Truncated);
    }
    let header_bytes = usize::from(head[0] & 0x0f) * 4;
    if header_bytes < IPV4_BYTES {
        return Err(Malformed::HeaderLength);
    }
    if header_bytes > head.len() {
        return Err(Malformed::Truncated);
    }
    Ok(header_bytes)
}

fn ipv4_fragment(head: &[u8]) -> Option<Fragment> {
    let field = read_u16(head, 6);
    let fragment = Fragment {
        identification: u32::from(read_u16(head, 4)),
        offset_bytes: (field & 0x1fff) << 3,
        more: field & 0x2000 != 0,
    };
    (fragment.more || fragment.offset_bytes != 0).then_some(fragment)
}

fn check_fragment(fragment: Option<Fragment>, payload_bytes: usize) -> Result<(), Malformed> {
    let Some(fragment) = fragment else {
        return Ok(());
    };
    let ends_at = usize::from(fragment.offset_bytes) + payload_bytes;
    if ends_at > MAX_PAYLOAD_BYTES || (fragment.more && !payload_bytes.is_multiple_of(8)) {
        return Err(Malformed::Fragment);
    }
    Ok(())
}

/// Returns whether IPv4 options hold a source route that is not used up (or are garbage).
fn is_source_routed(mut options: &[u8]) -> bool {
    while let Some(&kind) = options.first() {
        match kind {
            0 => return false,
            1 => options = &options[1..],
            _ => {
                let Some(&length) = options.get(1) else {
                    return true;
                };
                let Some(option) = options.get(..usize::from(length)) else {
                    return true;
                };
                if option.len() < 2 {
                    return true;
                }
                if matches!(kind, 131 | 137) && option.get(2).is_none_or(|&next| next <= length) {
                    return true;
                }
                options = &options[option.len()..];
            }
        }
    }
    false
}

/// What the extension headers of an IPv6 packet lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    /// The upper protocol.
    pub(crate) protocol: Protocol,
    /// Where its header starts, counted from the start of the IPv6 header.
    pub(crate) end: usize,
    /// The fragment header, when there is one.
    pub(crate) fragment: Option<Fragment>,
}

/// Walks the extension headers of the IPv6 packet that starts `head` (which holds at least the
/// fixed header). An authentication header ends the walk: it is a protocol we do not look into.
pub(crate) fn walk_extensions(head: &[u8]) -> Result<Chain, Malformed> {
    let mut next = head[6];
    let mut at = IPV6_BYTES;
    let mut fragment = None;
    for _ in 0..=MAX_EXTENSIONS {
        let is_known = matches!(next, 0 | 43 | 44 | 60 | 135 | 139 | 140);
        let is_later = fragment.is_some_and(|fragment: Fragment| fragment.offset_bytes != 0);
        if !is_known || is_later {
            return Ok(Chain {
                protocol: Protocol(next),
                end: at,
                fragment,
            });
        }
        let extension = head.get(at..).unwrap_or_default();
        if extension.len() < SHORT_BYTES {
            return Err(Malformed::Truncated);
        }
        match next {
            43 if extension[3] != 0 => return Err(Malformed::SourceRouted),
            44 if fragment.is_some() => return Err(Malformed::Fragment),
            44 => {
                let field = read_u16(extension, 2);
                let identification = read_u32(extension, 4);
                let offset_bytes = field & 0xfff8;
                fragment = Some(Fragment {
                    identification,
                    offset_bytes,
                    more: field & 1 != 0,
                });
                at += SHORT_BYTES;
            }
            _ => at += (usize::from(extension[1]) + 1) * 8,
        }
        next = extension[0];
    }
    Err(Malformed::Extensions)
}

fn parse_transport(
    head: &[u8],
    protocol: Protocol,
    at: usize,
    total_bytes: usize,
    fragment: Option<Fragment>,
    is_ipv4: bool,
) -> Result<Transport, Malformed> {
    if fragment.is_some_and(|fragment| fragment.offset_bytes != 0) {
        return Ok(Transport::LaterFragment);
    }
    let bytes = head.get(at..).unwrap_or_default();
    let length = total_bytes - at;
    match protocol {
        Protocol::TCP => parse_tcp(bytes, length).map(Transport::Tcp),
        Protocol::UDP => {
            let is_first = fragment.is_some_and(|fragment| fragment.more);
            parse_udp(bytes, length, is_first).map(Transport::Udp)
        }
        Protocol::ICMP if is_ipv4 => parse_icmp(bytes, length, true),
        Protocol::ICMPV6 if !is_ipv4 => parse_icmp(bytes, length, false),
        Protocol(_) => Ok(Transport::Other),
    }
}

fn parse_tcp(bytes: &[u8], length: usize) -> Result<Tcp, Malformed> {
    if bytes.len() < TCP_BYTES {
        return Err(Malformed::Truncated);
    }
    let header_bytes = usize::from(bytes[12] >> 4) * 4;
    if header_bytes < TCP_BYTES || header_bytes > length {
        return Err(Malformed::HeaderLength);
    }
    if header_bytes > bytes.len() {
        return Err(Malformed::Truncated);
    }
    Ok(Tcp {
        source_port: read_u16(bytes, 0),
        destination_port: read_u16(bytes, 2),
        sequence: read_u32(bytes, 4),
        acknowledgment: read_u32(bytes, 8),
        flags: TcpFlags(bytes[13]),
        header_bytes,
        payload_bytes: (length - header_bytes) as u32,
        window: read_u16(bytes, 14),
    })
}

fn parse_udp(bytes: &[u8], length: usize, is_first_of_many: bool) -> Result<Udp, Malformed> {
    if bytes.len() < SHORT_BYTES {
        return Err(Malformed::Truncated);
    }
    let claimed = usize::from(read_u16(bytes, 4));
    let fits = if is_first_of_many {
        claimed > length
    } else {
        claimed == length
    };
    if !fits {
        return Err(Malformed::Length);
    }
    Ok(Udp {
        source_port: read_u16(bytes, 0),
        destination_port: read_u16(bytes, 2),
        payload_bytes: (length - SHORT_BYTES) as u32,
    })
}

fn parse_icmp(bytes: &[u8], length: usize, is_ipv4: bool) -> Result<Transport, Malformed> {
    if bytes.len() < SHORT_BYTES || length < SHORT_BYTES {
        return Err(Malformed::Truncated);
    }
    let (kind, code) = (bytes[0], bytes[1]);
    let echo = |request| {
        let (identifier, sequence) = (read_u16(bytes, 4), read_u16(bytes, 6));
        Ok(Transport::Echo(Echo {
            request,
            identifier,
            sequence,
        }))
    };
    let kind = match (is_ipv4, kind) {
        (true, 8) | (false, 128) => return echo(true),
        (true, 0) | (false, 129) => return echo(false),
        (true, 3) if code == 4 => IcmpKind::TooBig {
            mtu: u32::from(read_u16(bytes, 6)),
        },
        (false, 2) => IcmpKind::TooBig {
            mtu: read_u32(bytes, 4),
        },
        (true, 3) | (false, 1) => IcmpKind::Unreachable { code },
        (true, 11) | (false, 3) => IcmpKind::TimeExceeded { code },
        (true, 12) | (false, 4) => IcmpKind::ParameterProblem { code },
        (false, 0..128) => IcmpKind::Other { kind, code },
        (true | false, _) => return Ok(Transport::Icmp),
    };
    let inner = parse_quote(&bytes[SHORT_BYTES..], is_ipv4).map_err(|_| Malformed::Quote)?;
    Ok(Transport::IcmpError(IcmpError { kind, inner }))
}

/// Reads the packet that an ICMP error quotes: at least its IP header and, where that is needed to
/// tell whose it is, the 8 bytes after. Later fragments and protocols without ports may be shorter
/// than that as a whole.
fn parse_quote(quote: &[u8], is_ipv4: bool) -> Result<Inner, Malformed> {
    let is_version = quote
        .first()
        .is_some_and(|first| first >> 4 == if is_ipv4 { 4 } else { 6 });
    if !is_version {
        return Err(Malformed::Version);
    }
    let (source, destination, protocol, end, fragment) = if is_ipv4 {
        let end = ipv4_header_bytes(quote)?;
        (
            ipv4_at(quote, 12),
            ipv4_at(quote, 16),
            Protocol(quote[9]),
            end,
            ipv4_fragment(quote),
        )
    } else {
        if quote.len() < IPV6_BYTES {
            return Err(Malformed::Truncated);
        }
        let chain = walk_extensions(quote)?;
        (
            ipv6_at(quote, 8),
            ipv6_at(quote, 24),
            chain.protocol,
            chain.end,
            chain.fragment,
        )
    };
    let mut inner = Inner {
        source,
        destination,
        protocol,
        source_port: 0,
        destination_port: 0,
        sequence: 0,
    };
    if fragment.is_some_and(|fragment| fragment.offset_bytes != 0) {
        return Ok(inner);
    }
    let transport = || {
        quote
            .get(end..end + SHORT_BYTES)
            .ok_or(Malformed::Truncated)
    };
    match protocol {
        Protocol::TCP | Protocol::UDP => {
            let transport = transport()?;
            inner.source_port = read_u16(transport, 0);
            inner.destination_port = read_u16(transport, 2);
            if protocol == Protocol::TCP {
                inner.sequence = read_u32(transport, 4);
            }
        }
        Protocol::ICMP if is_ipv4 => {
            let transport = transport()?;
            match transport[0] {
                8 => inner.source_port = read_u16(transport, 4),
                0 => inner.destination_port = read_u16(transport, 4),
                _ => {}
            }
        }
        Protocol::ICMPV6 if !is_ipv4 => {
            let transport = transport()?;
            match transport[0] {
                128 => inner.source_port = read_u16(transport, 4),
                129 => inner.destination_port = read_u16(transport, 4),
                _ => {}
            }
        }
        Protocol(_) => {}
    }
    Ok(inner)
}

fn ipv4_at(bytes: &[u8], at: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(read_u32(bytes, at)))
}

fn ipv6_at(bytes: &[u8], at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    IpAddr::V6(Ipv6Addr::from(octets))
}

#[cfg(test)]
mod tests;
