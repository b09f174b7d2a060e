//! The ticket: what lets a machine join a realm, as one line of text.
//!
//! `conflux1` and the lowercase base32 of: a big-endian `u16` length, that many bytes of CBOR,
//! and the first four bytes of their SHA-256. The length tells a cut-off paste from a mistyped
//! one. Spaces and line breaks anywhere inside are skipped, for mails and terminals wrap. Base32,
//! for it survives being read aloud, typed, and selected by a double click.
//!
//! A ticket is a bearer's token: it holds the seed of the key its grant is for.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, Encoding};
use minicbor::{Decode, Encode};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::credential::{Credential, Grant, Kind};
use crate::id::{RealmId, RealmKey};
use crate::signed::{self, Signed, SigningSecret};

/// What lets a machine join: whom to ask, and the grant with its key.
#[derive(Clone)]
pub struct Ticket {
    realm: RealmKey,
    endpoints: Vec<Endpoint>,
    secret: SigningSecret,
    issuer: Option<Credential>,
    grant: Signed<Grant>,
}

/// A host name or address, and a port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The UDP port.
    pub port: u16,
}

/// Why a text is not a ticket.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BadTicket {
    /// Something else altogether.
    #[error("this is not a ticket: a ticket begins with \"{PREFIX}\"")]
    NotATicket,
    /// Made by a release too new for this one.
    #[error("the ticket was made by a later release of conflux; this one cannot read it")]
    Version,
    /// A character base32 does not have.
    #[error("the ticket is damaged: {0:?} cannot occur in one; copy it again")]
    Character(char),
    /// Its end is missing.
    #[error("the ticket is incomplete: its end is missing; copy it again, as a whole")]
    Truncated,
    /// It goes on after its end, or its checksum is wrong.
    #[error("the ticket is damaged: its checksum is wrong; copy it again")]
    Checksum,
    /// The checksum is right and the content is not a ticket's.
    #[error("the ticket is malformed: {0}")]
    Malformed(String),
}

/// A text that is not `HOST:PORT`.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0:?} is not HOST:PORT (an IPv6 address goes in brackets)")]
pub struct BadEndpoint(pub String);

#[derive(Encode, Decode)]
#[cbor(map)]
struct Content {
    #[n(0)]
    realm: RealmKey,
    #[n(1)]
    endpoints: Vec<String>,
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    seed: [u8; 32],
    #[n(3)]
    issuer: Option<Credential>,
    #[n(4)]
    grant: Signed<Grant>,
}

impl Drop for Content {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.seed);
    }
}

impl Ticket {
    /// Returns a ticket of `grant`, which is for the key of `secret`, made by `issuer` or, when
    /// none is given, by the realm key.
    ///
    /// # Errors
    /// When the grant is not for that key, or there are more than [`MAX_ENDPOINTS`] endpoints.
    pub fn new(
        realm: RealmKey,
        endpoints: Vec<Endpoint>,
        secret: SigningSecret,
        issuer: Option<Credential>,
        grant: Signed<Grant>,
    ) -> Result<Self, BadTicket> {
        let refused = |text: &str| Err(BadTicket::Malformed(text.to_owned()));
        if grant.claimed().kind != Kind::Ticket || grant.claimed().subject != secret.public() {
            return refused("its grant is for another key");
        }
        if grant.claimed().realm != realm.id() {
            return refused("its grant is for another realm");
        }
        if endpoints.len() > MAX_ENDPOINTS {
            return refused("too many endpoints");
        }
        Ok(Self {
            realm,
            endpoints,
            secret,
            issuer,
            grant,
        })
    }

    /// Returns the realm's key.
    pub fn realm_key(&self) -> RealmKey {
        self.realm
    }

    /// Returns the realm it lets in to.
    pub fn realm(&self) -> RealmId {
        self.realm.id()
    }

    /// Returns where anchors of the realm may be met.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Returns the key that signs joins.
    pub fn secret(&self) -> &SigningSecret {
        &self.secret
    }

    /// Returns the credential of the anchor that signed the grant; none: the realm key did.
    pub fn issuer(&self) -> Option<&Credential> {
        self.issuer.as_ref()
    }

    /// Returns the rights it gives.
    pub fn grant(&self) -> &Signed<Grant> {
        &self.grant
    }

    /// Returns the text form. It is a secret: whoever reads it can join.
    pub fn to_text(&self) -> String {
        let content = Content {
            realm: self.realm,
            endpoints: self.endpoints.iter().map(ToString::to_string).collect(),
            seed: *self.secret.seed(),
            issuer: self.issuer.clone(),
            grant: self.grant.clone(),
        };
        let cbor = signed::to_bytes(&content);
        #[cfg(feature = "next")]
        let cbor = crate::next::grow_map(cbor);
        let cbor = Zeroizing::new(cbor);
        let length = u16::try_from(cbor.len()).expect("credential and grant are within 24 KiB");
        let bytes =
            Zeroizing::new([&length.to_be_bytes()[..], &cbor[..], &checksum(&cbor)[..]].concat());
        let mut letters = Zeroizing::new(BASE32_NOPAD.encode(&bytes));
        letters.make_ascii_lowercase();
        // At its full length from the beginning: a text that grows leaves copies behind.
        let mut text = String::with_capacity(PREFIX.len() + letters.len());
        text.push_str(PREFIX);
        text.push_str(&letters);
        text
    }
}

impl FromStr for Ticket {
    type Err = BadTicket;

    fn from_str(text: &str) -> Result<Self, BadTicket> {
        let bytes = Zeroizing::new(unwrap_text(text)?);
        let (length, rest) = bytes.split_first_chunk().ok_or(BadTicket::Truncated)?;
        let length = usize::from(u16::from_be_bytes(*length));
        if rest.len() < length + CHECKSUM_BYTES {
            return Err(BadTicket::Truncated);
        }
        let (cbor, sum) = rest.split_at(length);
        if sum != checksum(cbor) {
            return Err(BadTicket::Checksum);
        }
        let content: Content =
            signed::from_bytes(cbor).map_err(|error| BadTicket::Malformed(error.to_string()))?;
        let endpoints: Result<Vec<Endpoint>, BadEndpoint> = content
            .endpoints
            .iter()
            .map(|endpoint| endpoint.parse())
            .collect();
        Self::new(
            content.realm,
            endpoints.map_err(|error| BadTicket::Malformed(error.to_string()))?,
            SigningSecret::from_seed(&content.seed),
            content.issuer.clone(),
            content.grant.clone(),
        )
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("realm", &self.realm())
            .field("serial", &self.grant.claimed().serial)
            .finish_non_exhaustive()
    }
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let refused = || BadEndpoint(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
        let port: u16 = port.parse().map_err(|_| refused())?;
        let host = match host.strip_prefix('[') {
            Some(inner) => {
                let inner = inner.strip_suffix(']').ok_or_else(refused)?;
                inner.parse::<std::net::Ipv6Addr>().map_err(|_| refused())?;
                inner
            }
            None => host,
        };
        let bracketed = text.starts_with('[');
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if port == 0 || host.len() > MAX_HOST_BYTES || host.is_empty() {
            return Err(refused());
        }
        if !bracketed && !host.chars().all(is_name) {
            return Err(refused());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Undoes the text form down to length, CBOR and checksum.
fn unwrap_text(text: &str) -> Result<Vec<u8>, BadTicket> {
    let mut letters = Zeroizing::new(String::with_capacity(text.len()));
    letters.extend(
        text.chars()
            .filter(|c| !c.is_whitespace())
            .map(|c| c.to_ascii_uppercase()),
    );
    let family = PREFIX.trim_end_matches('1').to_ascii_uppercase();
    let rest = letters
        .strip_prefix(family.as_str())
        .ok_or(BadTicket::NotATicket)?;
    let body = match rest.strip_prefix('1') {
        Some(body) => body,
        None if rest.starts_with(|c: char| c.is_ascii_digit()) => return Err(BadTicket::Version),
        None => return Err(BadTicket::NotATicket),
    };
    let in_alphabet = |c: &char| c.is_ascii_uppercase() || ('2'..='7').contains(c);
    if let Some(stray) = body.chars().find(|c| !in_alphabet(c)) {
        return Err(BadTicket::Character(stray));
    }
    // A cut may leave letters that encode no whole byte; those say nothing, so drop them.
    let whole = match body.len() % 8 {
        1 | 3 | 6 => body.len() - 1,
        _ => body.len(),
    };
    lenient_base32()
        .decode(&body.as_bytes()[..whole])
        .map_err(|_| BadTicket::Truncated)
}

/// Returns base32 without the check of trailing bits, which a cut leaves in any state.
fn lenient_base32() -> Encoding {
    let mut specification = BASE32_NOPAD.specification();
    specification.check_trailing_bits = false;
    specification
        .encoding()
        .expect("base32 without the check of trailing bits is valid")
}

fn checksum(cbor: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let digest: [u8; 32] = Sha256::digest(cbor).into();
    let mut sum = [0; CHECKSUM_BYTES];
    sum.copy_from_slice(&digest[..CHECKSUM_BYTES]);
    sum
}

const PREFIX: &str = "conflux1";

/// One mistyped ticket in four billion goes on to fail as malformed or by its signature.
const CHECKSUM_BYTES: usize = 4;

/// The issuer's own addresses and a few of its peers'; more only make the line longer.
pub const MAX_ENDPOINTS: usize = 8;

/// The longest DNS name.
const MAX_HOST_BYTES: usize = 253;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::credential::{Advertise, Serial};
    use crate::signed::Version1;
    use crate::taint::TaintSet;

    fn ticket() -> Ticket {
        let realm_secret = SigningSecret::from_seed(&[1; 32]);
        let realm = RealmKey(realm_secret.public());
        let secret = SigningSecret::from_seed(&[2; 32]);
        let grant = Grant {
            version: Version1,
            realm: realm.id(),
            subject: secret.public(),
            kind: Kind::Ticket,
            taints: TaintSet::first_machine(),
            advertise: Advertise::private_hosts(),
            issuer: false,
            serial: Serial([4; 16]),
            made_at: 1_800_000_000,
            expires: 1_800_086_400,
            ticket: None,
        };
        let endpoints = vec![
            "192.0.2.7:47474".parse().unwrap(),
            "a.example:1".parse().unwrap(),
        ];
        Ticket::new(
            realm,
            endpoints,
            secret,
            None,
            Signed::sign(grant, &realm_secret),
        )
        .unwrap()
    }

    #[test]
    fn ticket_survives_its_text_form() {
        let text = ticket().to_text();

        let read: Ticket = text.parse().unwrap();

        assert!(text.starts_with("conflux1"));
        assert_eq!(read.to_text(), text);
        assert_eq!(read.endpoints(), ticket().endpoints());
    }

    #[test]
    fn ticket_may_be_wrapped_and_shouted() {
        let text = ticket().to_text().to_uppercase();
        let (first, second) = text.split_at(70);

        assert!(format!("  {first}\n\t{second}\n").parse::<Ticket>().is_ok());
    }

    #[test]
    fn each_fault_has_its_own_error() {
        let text = ticket().to_text();
        let parse = |text: &str| text.parse::<Ticket>().unwrap_err();
        let mut mistyped = text.clone();
        mistyped.replace_range(60..61, if &text[60..61] == "a" { "b" } else { "a" });

        assert_eq!(parse(""), BadTicket::NotATicket);
        assert_eq!(parse("hello"), BadTicket::NotATicket);
        assert_eq!(parse(&text.replacen('1', "2", 1)), BadTicket::Version);
        assert_eq!(
            parse(&text.replacen('1', "1!", 1)),
            BadTicket::Character('!')
        );
        assert_eq!(parse(&text[..text.len() - 30]), BadTicket::Truncated);
        assert_eq!(parse(&mistyped), BadTicket::Checksum);
    }

    #[test]
    fn a_ticket_cut_anywhere_is_called_incomplete() {
        let text = ticket().to_text();
        for length in PREFIX.len()..text.len() {
            let error = text[..length].parse::<Ticket>().unwrap_err();
            assert_eq!(
                error,
                BadTicket::Truncated,
                "cut to {length} of {}",
                text.len()
            );
        }
    }

    #[test]
    fn secret_is_not_shown_by_debug() {
        let shown = format!("{:?}", ticket());

        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn endpoints_are_read_and_written_the_same() {
        for text in [
            "192.0.2.1:1",
            "[2001:db8::1]:47474",
            "host-a.example.org:65535",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        for text in [
            "host",
            ":1",
            "host:0",
            "host:x",
            "2001:db8::1:5",
            "[::1:5",
            "a b:1",
            "[x]:1",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(conflux1)?[a-z2-7]{0,80}|.{0,40}") {
            let _ = text.parse::<Ticket>();
        }

        #[test]
        fn any_content_is_read_or_refused(cbor: Vec<u8>) {
            let length = u16::try_from(cbor.len()).unwrap().to_be_bytes();
            let bytes = [&length[..], &cbor, &checksum(&cbor)].concat();
            let _ = format!("conflux1{}", BASE32_NOPAD.encode(&bytes)).parse::<Ticket>();
        }
    }
}
