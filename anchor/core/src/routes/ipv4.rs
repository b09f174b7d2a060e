//! What an operator may give as `--ipv4` and `--client-range` (SPEC section 3), checked before
//! anything is written. Messages name what was given and the reason.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

use super::ranges::{is_public, reserved_range};

/// Where clients get their addresses from unless the operator moves it (RFC 2544's range, which
/// the Internet does not route).
pub const DEFAULT_CLIENT_RANGE: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15);

/// The widest and the narrowest client range: 10.0.0.0/8, and 14 addresses.
const CLIENT_RANGE_LENGTHS: std::ops::RangeInclusive<u8> = 8..=28;

/// An address the operator may give this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Choice {
    /// The address; an advert carries it as /32.
    pub address: Ipv4Addr,
    /// What this machine's kernel sends into the interface, 1 to 32 bits.
    pub prefix_len: u8,
    /// The address is private, so that others are told of it.
    pub advertised: bool,
}

/// Why an address was refused; nothing has been changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Ipv4Refused {
    /// It is no address at all.
    #[error("`{0}` is not an IPv4 address: give it as 10.128.0.9 or 10.128.0.9/16")]
    NotAnAddress(String),
    /// It is IPv6, which nobody chooses here.
    #[error(
        "`{0}` is an IPv6 address: --ipv4 takes an IPv4 address (the overlay IPv6 address follows \
         from the machine's identity)"
    )]
    Ipv6(String),
    /// The length is no number from 1 to 32.
    #[error("`{0}` has a bad prefix length: it must be 1 to 32")]
    BadLength(String),
    /// The length is 0, which would send everything into the interface.
    #[error("`{0}` has prefix length 0, which would take all of this machine's traffic")]
    ZeroLength(String),
    /// The address lies in a reserved range.
    #[error("{address} cannot be this machine's address: it lies in {range} ({purpose})")]
    Reserved {
        /// The address given.
        address: Ipv4Addr,
        /// The range.
        range: Ipv4Net,
        /// What the range is for.
        purpose: &'static str,
    },
    /// The range given with the address covers a reserved one.
    #[error("{address}/{prefix_len} is too wide a range: it covers {range} ({purpose})")]
    Covers {
        /// The address given.
        address: Ipv4Addr,
        /// The length given.
        prefix_len: u8,
        /// The range.
        range: Ipv4Net,
        /// What the range is for.
        purpose: &'static str,
    },
}

/// Why a client range was refused; nothing has been changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClientRangeRefused {
    /// It is no IPv4 network.
    #[error("`{0}` is not an IPv4 network: give it as 198.18.0.0/15")]
    NotANetwork(String),
    /// It is wider than /8 or narrower than /28.
    #[error("`{0}` does not suit as client range: its prefix length must be 8 to 28")]
    BadLength(Ipv4Net),
    /// It belongs to somebody on the Internet, or is reserved.
    #[error(
        "`{0}` does not suit as client range: take one inside of 198.18.0.0/15, 10.0.0.0/8, \
         172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10"
    )]
    NotPrivate(Ipv4Net),
}

/// Checks the operator's `A[/len]`.
///
/// # Errors
///
/// See [`Ipv4Refused`].
pub fn check_ipv4(text: &str) -> Result<Ipv4Choice, Ipv4Refused> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    if address.parse::<Ipv6Addr>().is_ok() {
        return Err(Ipv4Refused::Ipv6(text.to_owned()));
    }
    let Ok(address) = address.parse::<Ipv4Addr>() else {
        return Err(Ipv4Refused::NotAnAddress(text.to_owned()));
    };
    let prefix_len = length.map_or(Some(32), parse_length);
    let range = prefix_len.and_then(|length| Ipv4Net::new(address, length).ok());
    let Some(range) = range else {
        return Err(Ipv4Refused::BadLength(text.to_owned()));
    };
    if let Some((range, purpose)) = reserved_range(Ipv4Net::from(address)) {
        return Err(Ipv4Refused::Reserved {
            address,
            range,
            purpose,
        });
    }
    let prefix_len = range.prefix_len();
    if prefix_len == 0 {
        return Err(Ipv4Refused::ZeroLength(text.to_owned()));
    }
    if let Some((range, purpose)) = reserved_range(range) {
        return Err(Ipv4Refused::Covers {
            address,
            prefix_len,
            range,
            purpose,
        });
    }
    Ok(Ipv4Choice {
        address,
        prefix_len,
        advertised: !is_public(Ipv4Net::from(address)),
    })
}

/// Checks the operator's `--client-range NET`; host bits are dropped.
///
/// # Errors
///
/// See [`ClientRangeRefused`].
pub fn check_client_range(text: &str) -> Result<Ipv4Net, ClientRangeRefused> {
    let Ok(IpNet::V4(range)) = text.parse::<IpNet>() else {
        return Err(ClientRangeRefused::NotANetwork(text.to_owned()));
    };
    let range = range.trunc();
    if !CLIENT_RANGE_LENGTHS.contains(&range.prefix_len()) {
        return Err(ClientRangeRefused::BadLength(range));
    }
    if !DEFAULT_CLIENT_RANGE.contains(&range) && is_public(range) {
        return Err(ClientRangeRefused::NotPrivate(range));
    }
    Ok(range)
}

/// Reads a prefix length: digits only, where `u8` alone would also take `+8`.
fn parse_length(text: &str) -> Option<u8> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests;
