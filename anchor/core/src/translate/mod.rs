//! Changing addresses, and the family, of packets in place: super-packets too, of which only the
//! headers need be at hand. Checksums follow by their difference, so payloads are never read.
//!
//! [`rewrite_source`] and [`rewrite_destination`] stay in the family; [`six_to_four`] and
//! [`four_to_six`] are RFC 7915 between IPv4 and its spelling in `64:ff9b:1::/96`, but for the
//! hop limit, which the caller's forwarding counts, not the spelling. Which address becomes which
//! is [`crate::plane`]'s matter.

mod four_to_six;
mod icmp;
mod rewrite;
mod six_to_four;

use std::net::{Ipv4Addr, Ipv6Addr};

pub use four_to_six::four_to_six;
pub use rewrite::{rewrite_destination, rewrite_source};
pub use six_to_four::six_to_four;

/// Free bytes before a packet with which [`four_to_six`] always succeeds: two headers grow by 20
/// bytes, those of the packet and of the one an ICMP error quotes, and each may need a fragment
/// header of 8.
pub const HEADROOM: usize = 56;

/// The upper 96 bits of `64:ff9b:1::/96` (RFC 8215).
const PREFIX: u128 = 0x0064_ff9b_0001_0000_0000_0000_0000_0000;

/// Why a packet could not be changed; it is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Untranslatable {
    /// The new address is of the other family.
    #[error("address of the wrong family")]
    Family,
    /// The bytes at hand do not hold the headers.
    #[error("headers not at hand")]
    Headers,
    /// Too little room before the packet.
    #[error("too little room before the packet")]
    Room,
    /// The other family has nothing like it.
    #[error("no such message in the other family")]
    NoEquivalent,
    /// A fragment whose checksum would need the other fragments: ICMP, or UDP without checksum.
    #[error("fragment whose checksum would need the others")]
    Fragment,
    /// An ICMP error about an address that has no counterpart.
    #[error("quotes an address without a counterpart")]
    Quote,
    /// Longer than a length field of the other family can say.
    #[error("too long for the other family")]
    TooLong,
}

/// Returns the IPv6 spelling of an IPv4 address.
pub const fn spelled(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(PREFIX | address.to_bits() as u128)
}

/// Returns the IPv4 address that an IPv6 address spells, if it does.
pub const fn unspell(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    if bits & !0xffff_ffff == PREFIX {
        Some(Ipv4Addr::from_bits(bits as u32))
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
