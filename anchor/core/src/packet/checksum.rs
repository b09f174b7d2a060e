//! The Internet checksum (RFC 1071): sums, their incremental update (RFC 1624), finishing a
//! partial one in software, and verifying.

use std::net::IpAddr;

use super::{Checksum, IPV4_BYTES, Packet, Protocol, Transport, read_u16, write_u16};

/// A ones' complement sum of 16-bit words being added up; also of differences, since taking away
/// is adding the complement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// Adds one word.
    #[inline]
    pub const fn add(&mut self, word: u16) {
        self.0 += word as u64;
    }

    /// Takes one word away.
    #[inline]
    pub const fn sub(&mut self, word: u16) {
        self.0 += !word as u64;
    }

    /// Adds bytes that start at an even position; an odd last one is padded by zero.
    #[inline]
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(sum(bytes));
    }

    /// Takes away bytes that start at an even position.
    #[inline]
    pub fn sub_bytes(&mut self, bytes: &[u8]) {
        self.sub(sum(bytes));
    }

    /// Adds an address.
    #[inline]
    pub fn add_address(&mut self, address: IpAddr) {
        self.add(address_sum(address));
    }

    /// Takes an address away.
    #[inline]
    pub fn sub_address(&mut self, address: IpAddr) {
        self.sub(address_sum(address));
    }

    /// Adds another sum.
    #[inline]
    pub const fn add_sum(&mut self, other: Self) {
        self.0 += other.fold() as u64;
    }

    /// Takes another sum away.
    #[inline]
    pub const fn sub_sum(&mut self, other: Self) {
        self.sub(other.fold());
    }

    /// Returns the sum folded into one word.
    #[inline]
    pub const fn fold(self) -> u16 {
        fold(self.0)
    }
}

const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// Returns the folded ones' complement sum of `bytes` as big-endian words; an odd last byte is
/// padded by zero.
///
/// Adds eight bytes at a time in the machine's order, which a ones' complement sum does not mind,
/// into two sums so that the processor need not wait for a carry.
pub fn sum(bytes: &[u8]) -> u16 {
    let (pairs, rest) = bytes.as_chunks::<16>();
    let (mut even, mut odd) = (0u128, 0u128);
    for pair in pairs {
        let both = u128::from_ne_bytes(*pair);
        even += both & u128::from(u64::MAX);
        odd += both >> 64;
    }
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        even += u128::from(u32::from_ne_bytes(*word));
    }
    let last = match *rest {
        [] => [0; 4],
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c, ..] => [a, b, c, 0],
    };
    let wide = even + odd + u128::from(u32::from_ne_bytes(last));
    let narrow = (wide >> 64) + (wide & u128::from(u64::MAX));
    let narrow = (narrow >> 64) + (narrow & u128::from(u64::MAX));
    fold(narrow as u64).to_be()
}

fn address_sum(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    }
}

/// Returns the sum of a pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
pub fn pseudo_header(
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    transport_bytes: usize,
) -> Sum {
    let mut sum = Sum::ZERO;
    sum.add_address(source);
    sum.add_address(destination);
    sum.add(u16::from(protocol.0));
    sum.add((transport_bytes >> 16) as u16);
    sum.add((transport_bytes & 0xffff) as u16);
    sum
}

/// Writes the checksum of the IPv4 header (with its options) that starts `header`.
pub fn write_ipv4_header(header: &mut [u8], header_bytes: usize) {
    write_u16(header, 10, 0);
    let checksum = !sum(&header[..header_bytes]);
    write_u16(header, 10, checksum);
}

/// Returns whether the checksum of an IPv4 header is right; true for IPv6, which has none.
pub fn verify_header(head: &[u8], packet: &Packet) -> bool {
    let header = match (packet.is_ipv4(), packet.header_bytes) {
        (false, _) => return true,
        (true, bytes) => head.get(..bytes.max(IPV4_BYTES)),
    };
    header.is_some_and(|header| sum(header) == 0xffff)
}

/// Applies a difference to the checksum field at `at`.
#[inline]
pub(crate) fn adjust(head: &mut [u8], at: usize, difference: Sum, checksum: Checksum) {
    let old = read_u16(head, at);
    let mut sum = difference;
    let new = match checksum {
        Checksum::Complete => {
            sum.add(!old);
            !sum.fold()
        }
        Checksum::Partial => {
            sum.add(old);
            sum.fold()
        }
    };
    write_u16(head, at, new);
}

/// Applies a difference to the transport checksum at `at`, minding UDP: zero says that there is
/// none, and stays; a sum that comes out as zero is written as all ones.
#[inline]
pub(crate) fn adjust_transport(
    head: &mut [u8],
    at: usize,
    difference: Sum,
    checksum: Checksum,
    protocol: Protocol,
) {
    let is_udp = protocol == Protocol::UDP && checksum == Checksum::Complete;
    if is_udp && read_u16(head, at) == 0 {
        return;
    }
    adjust(head, at, difference, checksum);
    if is_udp && read_u16(head, at) == 0 {
        write_u16(head, at, 0xffff);
    }
}

/// Finishes the partial checksum of a whole packet in software. Does nothing when the packet
/// cannot have one, or when `bytes` does not hold all of it.
pub fn complete(bytes: &mut [u8], packet: &Packet) {
    if !packet.may_be_partial() || bytes.len() < packet.total_bytes {
        return;
    }
    let Some(offset) = packet.protocol.checksum_at() else {
        return;
    };
    complete_at(
        &mut bytes[..packet.total_bytes],
        packet.header_bytes,
        offset,
    );
}

/// Finishes a partial checksum: over everything from `start`, written at `start + offset`. Does
/// nothing when that lies outside. Zero is written as all ones, which every protocol takes.
pub fn complete_at(bytes: &mut [u8], start: usize, offset: usize) {
    let at = start.saturating_add(offset);
    if at.saturating_add(2) > bytes.len() {
        return;
    }
    let checksum = match !sum(&bytes[start..]) {
        0 => 0xffff,
        checksum => checksum,
    };
    write_u16(bytes, at, checksum);
}

/// Returns whether the complete transport checksum of a whole packet is right. False too for what
/// cannot be told: fragments, super-packets whose payload lies elsewhere, UDP without one.
pub fn verify(bytes: &[u8], packet: &Packet) -> bool {
    let Some(transport) = bytes.get(packet.header_bytes..packet.total_bytes) else {
        return false;
    };
    if packet.fragment.is_some() {
        return false;
    }
    let mut sum = match &packet.transport {
        Transport::Tcp(_) | Transport::Udp(_) => pseudo(packet),
        Transport::Echo(_) | Transport::IcmpError(_) | Transport::Icmp => {
            if packet.is_ipv4() {
                Sum::ZERO
            } else {
                pseudo(packet)
            }
        }
        Transport::LaterFragment | Transport::Other => return false,
    };
    if packet.protocol == Protocol::UDP && read_u16(transport, 6) == 0 {
        return false;
    }
    sum.add_bytes(transport);
    sum.fold() == 0xffff
}

fn pseudo(packet: &Packet) -> Sum {
    pseudo_header(
        packet.source,
        packet.destination,
        packet.protocol,
        packet.transport_bytes(),
    )
}

#[cfg(test)]
mod tests;
