//! Which ICMP message is which ICMPv6 message (RFC 7915 sections 4.2 and 5.2), type by type.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Untranslatable, spelled, unspell};
use crate::packet::checksum::{Sum, pseudo_header};
use crate::packet::{IPV4_BYTES, IPV6_BYTES, Protocol, read_u16, read_u32, write_u16, write_u32};

/// By how much the same packet is longer in IPv6.
const GROWTH_BYTES: u32 = (IPV6_BYTES - IPV4_BYTES) as u32;
/// IPv6 hosts take no smaller MTU; packets that would need one are let through without DF.
const MIN_IPV6_MTU: u32 = 1280;

/// The first 8 bytes of an ICMP message, without its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    kind: u8,
    code: u8,
    rest: u32,
}

impl Message {
    /// Reads a message that is there as a whole.
    pub(super) fn read(bytes: &[u8]) -> Self {
        Self {
            kind: bytes[0],
            code: bytes[1],
            rest: read_u32(bytes, 4),
        }
    }

    /// Writes the message with `checksum`, complete or not.
    pub(super) fn write(self, bytes: &mut [u8], checksum: u16) {
        bytes[0] = self.kind;
        bytes[1] = self.code;
        write_u16(bytes, 2, checksum);
        write_u32(bytes, 4, self.rest);
    }

    /// Returns the ICMP message for an ICMPv6 one.
    pub(super) fn to_icmp(self) -> Result<Self, Untranslatable> {
        let Self { kind, code, rest } = self;
        let (kind, code, rest) = match (kind, code) {
            (128, _) => (8, code, rest),
            (129, _) => (0, code, rest),
            (1, 0 | 2 | 3) => (3, 1, 0),
            (1, 1) => (3, 10, 0),
            (1, 4) => (3, 3, 0),
            (2, _) => (3, 4, rest.saturating_sub(GROWTH_BYTES).min(0xffff)),
            (3, _) => (11, code, 0),
            (4, 0) => (12, 0, u32::from(pointer_to_ipv4(rest)?) << 24),
            (4, 1) => (3, 2, 0),
            (_, _) => return Err(Untranslatable::NoEquivalent),
        };
        Ok(Self { kind, code, rest })
    }

    /// Returns the ICMPv6 message for an ICMP one.
    pub(super) fn to_icmpv6(self) -> Result<Self, Untranslatable> {
        let Self { kind, code, rest } = self;
        let (kind, code, rest) = match (kind, code) {
            (8, _) => (128, code, rest),
            (0, _) => (129, code, rest),
            (3, 0 | 1 | 5 | 6 | 7 | 8 | 11 | 12) => (1, 0, 0),
            (3, 2) => (4, 1, 6),
            (3, 3) => (1, 4, 0),
            (3, 4) => (2, 0, ((rest & 0xffff) + GROWTH_BYTES).max(MIN_IPV6_MTU)),
            (3, 9 | 10 | 13 | 15) => (1, 1, 0),
            (11, _) => (3, code, 0),
            (12, 0 | 2) => (4, 0, u32::from(pointer_to_ipv6((rest >> 24) as u8)?)),
            (_, _) => return Err(Untranslatable::NoEquivalent),
        };
        Ok(Self { kind, code, rest })
    }

    /// Returns whether this is an echo message of ICMPv6 or, if so asked, of ICMP.
    pub(super) const fn is_echo(self, is_ipv4: bool) -> bool {
        if is_ipv4 {
            matches!(self.kind, 0 | 8)
        } else {
            matches!(self.kind, 128 | 129)
        }
    }
}

/// Returns whether a quoted protocol of one family is nothing, or something else, in the other: the
/// other family's ICMP, and the numbers of IPv6's own headers.
pub(super) const fn has_no_counterpart(protocol: Protocol, is_ipv4: bool) -> bool {
    match protocol {
        Protocol::ICMP => !is_ipv4,
        Protocol::ICMPV6 => is_ipv4,
        Protocol::IGMP | Protocol(0 | 43 | 44 | 59 | 60 | 135 | 139 | 140) => true,
        Protocol(_) => false,
    }
}

fn pointer_to_ipv4(pointer: u32) -> Result<u8, Untranslatable> {
    match pointer {
        0 | 1 => Ok(pointer as u8),
        4 | 5 => Ok(2),
        6 => Ok(9),
        7 => Ok(8),
        8..24 => Ok(12),
        24..40 => Ok(16),
        _ => Err(Untranslatable::NoEquivalent),
    }
}

fn pointer_to_ipv6(pointer: u8) -> Result<u8, Untranslatable> {
    match pointer {
        0 | 1 => Ok(pointer),
        2 | 3 => Ok(4),
        8 => Ok(7),
        9 => Ok(6),
        12..16 => Ok(8),
        16..20 => Ok(24),
        _ => Err(Untranslatable::NoEquivalent),
    }
}

/// The addresses of a packet in both families: what an ICMP error's quote goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) source: (Ipv4Addr, Ipv6Addr),
    pub(super) destination: (Ipv4Addr, Ipv6Addr),
}

impl Addresses {
    /// Returns the IPv4 counterpart of an address.
    pub(super) fn to_ipv4(self, address: Ipv6Addr) -> Result<Ipv4Addr, Untranslatable> {
        if address == self.destination.1 {
            Ok(self.destination.0)
        } else if address == self.source.1 {
            Ok(self.source.0)
        } else {
            unspell(address).ok_or(Untranslatable::Quote)
        }
    }

    /// Returns the IPv6 counterpart of an address.
    pub(super) fn to_ipv6(self, address: Ipv4Addr) -> Ipv6Addr {
        if address == self.destination.0 {
            self.destination.1
        } else if address == self.source.0 {
            self.source.1
        } else {
            spelled(address)
        }
    }

    /// Returns what an ICMPv6 checksum covers and an ICMP one does not.
    pub(super) fn pseudo_icmpv6(self, message_bytes: usize) -> Sum {
        let (source, destination) = (IpAddr::V6(self.source.1), IpAddr::V6(self.destination.1));
        pseudo_header(source, destination, Protocol::ICMPV6, message_bytes)
    }

    /// Returns by how much a checksum that covers the addresses changes from IPv6 to IPv4.
    pub(super) fn difference_to_ipv4(self) -> Sum {
        let mut difference = Sum::ZERO;
        difference.sub_address(IpAddr::V6(self.source.1));
        difference.sub_address(IpAddr::V6(self.destination.1));
        difference.add_address(IpAddr::V4(self.source.0));
        difference.add_address(IpAddr::V4(self.destination.0));
        difference
    }

    /// Returns by how much a checksum that covers the addresses changes from IPv4 to IPv6.
    pub(super) fn difference_to_ipv6(self) -> Sum {
        let mut difference = Sum::ZERO;
        difference.sub_sum(self.difference_to_ipv4());
        difference
    }
}

/// Returns the checksum after the summed bytes have changed by `difference`.
pub(super) fn changed(checksum: u16, mut difference: Sum) -> u16 {
    difference.add(!checksum);
    !difference.fold()
}

/// Changes the transport header of a quoted packet, as far as it is quoted, into the other
/// family: the type of an echo, and the checksum.
pub(super) fn translate_quoted_transport(
    transport: &mut [u8],
    protocol: Protocol,
    addresses: Addresses,
    is_to_ipv4: bool,
) -> Result<(), Untranslatable> {
    use crate::packet::{Checksum, checksum::adjust_transport};

    let mut difference = if is_to_ipv4 {
        addresses.difference_to_ipv4()
    } else {
        addresses.difference_to_ipv6()
    };
    let from = if is_to_ipv4 {
        Protocol::ICMPV6
    } else {
        Protocol::ICMP
    };
    if protocol != from {
        let at = protocol
            .checksum_at()
            .filter(|at| at + 2 <= transport.len());
        if let Some(at) = at {
            adjust_transport(transport, at, difference, Checksum::Complete, protocol);
        }
        return Ok(());
    }
    let message = transport
        .get(..8)
        .map(Message::read)
        .ok_or(Untranslatable::Headers)?;
    if !message.is_echo(!is_to_ipv4) {
        return Err(Untranslatable::NoEquivalent);
    }
    let new = if is_to_ipv4 {
        message.to_icmp()?
    } else {
        message.to_icmpv6()?
    };
    let checksum = read_u16(transport, 2);
    // The length of the quoted message is not known, so its pseudo-header cannot be: nobody
    // verifies the checksum of a quote.
    difference = Sum::ZERO;
    difference.sub_bytes(&transport[..2]);
    new.write(transport, 0);
    difference.add_bytes(&transport[..2]);
    write_u16(transport, 2, changed(checksum, difference));
    Ok(())
}
