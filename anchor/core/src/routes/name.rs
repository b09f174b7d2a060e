//! The two spellings of an IPv4 network: as it is, and below 64:ff9b:1::/96 (RFC 8215).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The first 96 bits of every IPv4 address spelled as IPv6.
const SPELLING: u128 = Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0).to_bits();

/// The bits that the prefix adds to an IPv4 prefix length.
const SPELLING_BITS: u8 = 96;

/// Returns `network` spelled as IPv6: `/n` becomes `/(96+n)`.
pub fn spelled_network(network: Ipv4Net) -> Ipv6Net {
    let address = Ipv6Addr::from_bits(SPELLING | u128::from(network.addr().to_bits()));
    Ipv6Net::new(address, SPELLING_BITS + network.prefix_len())
        .expect("96 + 32 bits is a valid prefix length")
}

/// Returns the IPv4 address that `address` spells, if it does.
pub(super) fn unspell(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let low = bits as u32;
    (bits - u128::from(low) == SPELLING).then(|| Ipv4Addr::from_bits(low))
}

/// A network as the NETWORK column shows it: IPv4 with its other spelling in parentheses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkName(pub IpNet);

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpNet::V4(network) => f.pad(&format!("{network} ({})", spelled_network(network))),
            IpNet::V6(network) => f.pad(&network.to_string()),
        }
    }
}
