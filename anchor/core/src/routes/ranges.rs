//! The ranges with a meaning of their own, and what follows for a network that meets them. What
//! depends on the advertiser or on this machine is judged in [`super::build`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Why;

/// The widest networks that are accepted: 10.0.0.0/8 is the widest private range, and /32 is
/// what a registry gives to a whole provider.
const WIDEST_IPV4: u8 = 8;
const WIDEST_IPV6: u8 = 32;

/// The IPv4 ranges that no holder can have.
const RESERVED_IPV4: [(Ipv4Net, &str); 8] = [
    (net4(0, 0, 0, 0, 8), "unspecified"),
    (net4(127, 0, 0, 0, 8), "loopback"),
    (net4(169, 254, 0, 0, 16), "link-local"),
    (
        net4(192, 0, 0, 0, 24),
        "reserved for protocols; clients are 192.0.0.2",
    ),
    (net4(198, 18, 0, 0, 15), "where clients get their addresses"),
    (net4(224, 0, 0, 0, 4), "multicast"),
    // Before the range that holds it, so that the message names it.
    (net4(255, 255, 255, 255, 32), "broadcast"),
    (net4(240, 0, 0, 0, 4), "reserved"),
];

/// The IPv6 ranges that no holder can have. The first holds the unspecified address, loopback,
/// mapped IPv4, and both translation prefixes (64:ff9b::/96 and 64:ff9b:1::/48).
const RESERVED_IPV6: [Ipv6Net; 3] = [
    Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 8),
    Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

/// RFC 1918 and RFC 6598.
const PRIVATE_IPV4: [Ipv4Net; 4] = [
    net4(10, 0, 0, 0, 8),
    net4(100, 64, 0, 0, 10),
    net4(172, 16, 0, 0, 12),
    net4(192, 168, 0, 0, 16),
];

const fn net4(a: u8, b: u8, c: u8, d: u8, len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), len)
}

/// Returns the reserved range that `network` lies in or covers a part of, and what it is for.
pub fn reserved_range(network: Ipv4Net) -> Option<(Ipv4Net, &'static str)> {
    RESERVED_IPV4
        .into_iter()
        .find(|(range, _)| meet(IpNet::V4(*range), IpNet::V4(network)))
}

/// Returns whether `network` holds addresses outside of RFC 1918 and 100.64.0.0/10.
pub fn is_public(network: Ipv4Net) -> bool {
    !PRIVATE_IPV4.iter().any(|range| range.contains(&network))
}

/// Returns what is wrong with `network` whoever advertises it, in the realm of `realm`'s /48.
/// IPv6 of the Internet is allowed: a granted subnet usually has no other.
pub fn fault(network: IpNet, realm: Ipv6Net) -> Option<Why> {
    match network {
        IpNet::V4(network) if network.prefix_len() < WIDEST_IPV4 => Some(Why::TooWide),
        IpNet::V4(network) if reserved_range(network).is_some() => Some(Why::ReservedRange),
        IpNet::V4(network) if is_public(network) => Some(Why::PublicAddress),
        IpNet::V6(network) if network.prefix_len() < WIDEST_IPV6 => Some(Why::TooWide),
        IpNet::V6(_)
            if RESERVED_IPV6
                .iter()
                .any(|range| meet(IpNet::V6(*range), network)) =>
        {
            Some(Why::ReservedRange)
        }
        IpNet::V6(_) if meet(IpNet::V6(realm), network) => Some(Why::ReservedRange),
        IpNet::V4(_) | IpNet::V6(_) => None,
    }
}

/// Returns the /48 of the realm whose anchor has the overlay address `overlay`.
pub(super) fn realm_of(overlay: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::new_assert(overlay, 48).trunc()
}

/// Returns the smallest of `locals` that is equal to `network` or has it inside.
pub(super) fn covering(locals: &[IpNet], network: IpNet) -> Option<IpNet> {
    locals
        .iter()
        .map(IpNet::trunc)
        .filter(|local| local.contains(&network))
        .max_by_key(|local| (local.prefix_len(), local.addr()))
}

fn meet(first: IpNet, second: IpNet) -> bool {
    first.contains(&second) || second.contains(&first)
}

/// Returns the network of `address` alone.
pub(super) fn host(address: impl Into<IpAddr>) -> IpNet {
    IpNet::from(address.into())
}
