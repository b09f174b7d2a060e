//! The values of the configuration, each with its check. The same checks serve the file and the
//! command line, so that what one accepts the other accepts, with the same words when it does not.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

use conflux_core::plane::BadOpening;
use conflux_core::routes::{check_client_range, check_ipv4, fault};
use conflux_proto::taint::BadTaint;
use conflux_proto::ticket::BadEndpoint;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

pub use conflux_core::plane::Opening;
pub use conflux_core::routes::Ipv4Choice;
pub use conflux_proto::taint::{Taint, TaintSet};
pub use conflux_proto::ticket::Endpoint;

/// The UDP port when none is chosen.
pub const DEFAULT_PORT: u16 = 47474;

/// The interface name when none is chosen.
pub const DEFAULT_INTERFACE: &str = "anchor0";

/// The range that holds the overlay addresses of every realm.
const ANY_REALM: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfd80, 0, 0, 0, 0, 0, 0, 0), 16);

/// Linux's IFNAMSIZ without the closing zero.
const MAX_INTERFACE_BYTES: usize = 15;

/// Why a value was not taken: a sentence that names the value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(pub String);

/// A name the kernel accepts for an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for InterfaceName {
    fn default() -> Self {
        Self(DEFAULT_INTERFACE.to_owned())
    }
}

impl FromStr for InterfaceName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let fits = (1..=MAX_INTERFACE_BYTES).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b':' | b'%'))
            && !matches!(text, "." | ".." | "all" | "default" | "lo");
        if !fits {
            return Err(BadValue(format!(
                "\"{text}\" is not an interface name: 1 to {MAX_INTERFACE_BYTES} letters, \
                 no space, slash, colon or %"
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// How much the daemon logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogLevel {
    /// We cannot go on.
    Error,
    /// An operator should look.
    Warn,
    /// Changes a user would notice.
    #[default]
    Info,
    /// Choices.
    Debug,
    /// Every packet.
    Trace,
}

impl LogLevel {
    /// Every level's word, least first.
    pub const WORDS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

    /// Returns the level's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl FromStr for LogLevel {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        [
            Self::Error,
            Self::Warn,
            Self::Info,
            Self::Debug,
            Self::Trace,
        ]
        .into_iter()
        .find(|level| level.as_str() == text)
        .ok_or_else(|| {
            BadValue(format!(
                "\"{text}\" is not a log level: {}",
                Self::WORDS.join(", ")
            ))
        })
    }
}

/// How a log line is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// Returns the format's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl FromStr for LogFormat {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(BadValue(format!(
                "\"{other}\" is not a log format: text, json"
            ))),
        }
    }
}

/// Checks one `peers` value.
///
/// # Errors
///
/// When it is not `HOST:PORT`.
pub fn parse_endpoint(text: &str) -> Result<Endpoint, BadValue> {
    text.parse()
        .map_err(|refused: BadEndpoint| BadValue(refused.to_string()))
}

/// Checks one `listen` value.
///
/// # Errors
///
/// When it is not `ADDR:PORT` with a port, or the address is one nobody can send to.
pub fn parse_listen(text: &str) -> Result<SocketAddr, BadValue> {
    let address: SocketAddr = text.parse().map_err(|_| {
        BadValue(format!(
            "\"{text}\" is not ADDR:PORT, like 0.0.0.0:47474 or [::]:47474"
        ))
    })?;
    if address.port() == 0 {
        return Err(BadValue(format!(
            "\"{text}\": a listen port is within 1 to 65535"
        )));
    }
    if address.ip().is_multicast() {
        return Err(BadValue(format!(
            "\"{text}\": nobody can listen on a multicast address"
        )));
    }
    Ok(address)
}

/// Checks one `subnets` value: a network that receivers could accept.
///
/// # Errors
///
/// When it is not a network, has bits set behind its length, or is one every receiver refuses.
pub fn parse_subnet(text: &str) -> Result<IpNet, BadValue> {
    let network: IpNet = text
        .parse()
        .map_err(|_| BadValue(format!("\"{text}\" is not a network, like 192.168.7.0/24")))?;
    if network.addr() != network.network() {
        return Err(BadValue(format!(
            "\"{text}\" has bits set behind its length; the network is {}",
            network.trunc()
        )));
    }
    if let Some(why) = fault(network, ANY_REALM) {
        return Err(BadValue(format!(
            "\"{text}\" would be refused by every peer: {why}"
        )));
    }
    Ok(network)
}

/// Checks the client range, as [`check_client_range`] does.
///
/// # Errors
///
/// The refusal, as a sentence.
pub fn parse_client_range(text: &str) -> Result<Ipv4Net, BadValue> {
    check_client_range(text).map_err(|refused| BadValue(refused.to_string()))
}

/// Checks the operator's address, as [`check_ipv4`] does.
///
/// # Errors
///
/// The refusal, naming address and reason.
pub fn parse_ipv4(text: &str) -> Result<Ipv4Choice, BadValue> {
    check_ipv4(text).map_err(|refused| BadValue(refused.to_string()))
}

/// Returns an IPv4 choice as it was written: without a length when that is 32.
pub fn ipv4_text(choice: &Ipv4Choice) -> String {
    if choice.prefix_len == 32 {
        choice.address.to_string()
    } else {
        format!("{}/{}", choice.address, choice.prefix_len)
    }
}

/// Checks one `expose` value.
///
/// # Errors
///
/// When it is not `tcp:PORT`, `udp:PORT`, or a range of ports.
pub fn parse_opening(text: &str) -> Result<Opening, BadValue> {
    text.parse()
        .map_err(|refused: BadOpening| BadValue(refused.to_string()))
}

/// Checks one taint.
///
/// # Errors
///
/// The refusal, as a sentence.
pub fn parse_taint(text: &str) -> Result<Taint, BadValue> {
    text.parse()
        .map_err(|refused: BadTaint| BadValue(refused.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_are_what_the_kernel_takes() {
        for text in ["anchor0", "a", "fifteen-letters"] {
            assert_eq!(text.parse::<InterfaceName>().unwrap().as_str(), text);
        }
        for text in [
            "",
            "sixteen-letters!",
            "a/b",
            "a b",
            "a:1",
            "..",
            "lo",
            "an%d",
        ] {
            assert!(text.parse::<InterfaceName>().is_err(), "{text}");
        }
    }

    #[test]
    fn subnets_that_every_receiver_would_refuse_are_refused_here() {
        for text in ["192.168.7.0/24", "10.0.0.0/8", "fd12::/48", "2001:db8::/48"] {
            assert_eq!(parse_subnet(text).unwrap().to_string(), text);
        }
        for (text, word) in [
            ("192.168.7.1/24", "192.168.7.0/24"),
            ("0.0.0.0/0", "too wide"),
            ("8.0.0.0/7", "too wide"),
            ("fc00::/7", "too wide"),
            ("127.0.0.0/8", "reserved"),
            ("198.18.4.0/24", "reserved"),
            ("198.0.0.0/8", "reserved"),
            ("8.8.8.0/24", "public"),
            ("fd80:1:2::/48", "reserved"),
            ("ten", "not a network"),
        ] {
            let refused = parse_subnet(text).unwrap_err().to_string();

            assert!(
                refused.contains(word) && refused.contains(text),
                "{refused}"
            );
        }
    }

    #[test]
    fn listen_addresses_have_a_port() {
        assert!(parse_listen("0.0.0.0:47474").is_ok());
        assert!(parse_listen("[::]:47474").is_ok());
        for text in ["47474", "0.0.0.0", "0.0.0.0:0", "[ff02::1]:47474"] {
            assert!(parse_listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn log_words_are_read_back() {
        for word in LogLevel::WORDS {
            assert_eq!(word.parse::<LogLevel>().unwrap().as_str(), word);
        }
        assert_eq!("json".parse::<LogFormat>().unwrap(), LogFormat::Json);
        assert!("loud".parse::<LogLevel>().is_err());
    }
}
