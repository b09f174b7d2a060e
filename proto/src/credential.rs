//! The statements that make an anchor a member of a realm, and the chain that carries them.
//! What a chain is worth is `core::credential`'s to decide; these are the formats.
//!
//! A [`Grant`] gives rights to a key: to an anchor's own, or to a ticket's. A ticket's key signs
//! a [`Join`] for one anchor, and a member that sees it in time signs an [`Admission`]. A
//! [`Credential`] is a list of [`Link`]s, each one anchor's; a link names the earlier links whose
//! anchors granted and admitted it, so that nothing is said twice, nothing is nested, and the
//! list can be checked in one pass from front to back. The last link is the bearer's.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use ipnet::{IpNet, Ipv4Net};
use minicbor::{Decode, Encode};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::id::{AnchorKey, RealmId};
use crate::network;
use crate::signed::{self, Signed, Statement, Version1};
use crate::taint::TaintSet;

/// The name of a grant, so that it can be listed and revoked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Serial(#[cbor(with = "minicbor::bytes")] pub [u8; 16]);

/// A text that is not a whole serial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("not a serial: 32 hexadecimal digits")]
pub struct BadSerial;

/// The hash that names a credential.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct CredentialHash(#[cbor(with = "minicbor::bytes")] pub [u8; 32]);

/// Whose key a grant is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Kind {
    /// An anchor's identity key.
    #[n(0)]
    Anchor,
    /// The key inside a ticket, for whoever holds it.
    #[n(1)]
    Ticket,
}

/// Which networks an anchor may advertise.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(map)]
pub struct Advertise {
    /// Any single IPv4 address of the private ranges.
    #[n(0)]
    pub private_hosts: bool,
    /// These networks and whatever lies in them; at most [`MAX_NETWORKS`].
    #[n(1)]
    #[cbor(with = "network::list")]
    pub networks: Vec<IpNet>,
    /// Whatever it likes.
    #[n(2)]
    pub any: bool,
}

/// Rights given to a key by the realm key or an issuer, who signs.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Grant {
    /// Of this layout.
    #[n(0)]
    pub version: Version1,
    /// The realm it holds in.
    #[n(1)]
    pub realm: RealmId,
    /// The Ed25519 key it is for.
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    pub subject: [u8; 32],
    /// Whose key that is.
    #[n(3)]
    pub kind: Kind,
    /// The taints given, at most.
    #[n(4)]
    pub taints: TaintSet,
    /// The networks that may be advertised.
    #[n(5)]
    pub advertise: Advertise,
    /// Whether the receiver may grant in turn, within these rights.
    #[n(6)]
    pub issuer: bool,
    /// Its name.
    #[n(7)]
    pub serial: Serial,
    /// When it was made, in seconds since 1970.
    #[n(8)]
    pub made_at: u64,
    /// When it ends, in seconds since 1970: membership itself, or for a ticket the joining.
    #[n(9)]
    pub expires: u64,
    /// In a renewal, the ticket its anchor once joined by: so that the ticket's revocation still
    /// reaches it.
    #[n(10)]
    pub ticket: Option<Serial>,
}

impl Statement for Grant {
    const LABEL: &'static str = "conflux grant 1";
    /// Full taints and networks, and room to grow.
    const MAX_BYTES: usize = 6 << 10;
}

/// A ticket's use by one anchor; the ticket's key signs.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Join {
    /// Of this layout.
    #[n(0)]
    pub version: Version1,
    /// The realm to join.
    #[n(1)]
    pub realm: RealmId,
    /// The ticket that is used.
    #[n(2)]
    pub ticket: Serial,
    /// Who joins.
    #[n(3)]
    pub anchor: AnchorKey,
    /// The taints taken, out of the ticket's.
    #[n(4)]
    pub taints: TaintSet,
    /// When it was made, in seconds since 1970.
    #[n(5)]
    pub made_at: u64,
}

impl Statement for Join {
    const LABEL: &'static str = "conflux join 1";
    const MAX_BYTES: usize = 4 << 10;
}

/// A member's word that a join came in time; the member signs.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Admission {
    /// Of this layout.
    #[n(0)]
    pub version: Version1,
    /// The realm.
    #[n(1)]
    pub realm: RealmId,
    /// Who was admitted.
    #[n(2)]
    pub anchor: AnchorKey,
    /// The [`Signed::hash`] of the join.
    #[n(3)]
    #[cbor(with = "minicbor::bytes")]
    pub join: [u8; 32],
    /// Who admitted, and whose signature it must be.
    #[n(4)]
    pub by: AnchorKey,
    /// When, in seconds since 1970.
    #[n(5)]
    pub admitted_at: u64,
}

impl Statement for Admission {
    const LABEL: &'static str = "conflux admission 1";
    const MAX_BYTES: usize = 1 << 10;
}

/// One anchor's part of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Link {
    /// The earlier link whose anchor signed the grant; none: the realm key did.
    #[n(0)]
    pub authority: Option<u8>,
    /// The rights.
    #[n(1)]
    pub grant: Signed<Grant>,
    /// The use of the grant, when it is a ticket's.
    #[n(2)]
    pub join: Option<Signed<Join>>,
    /// The admission of that use; none while joining.
    #[n(3)]
    pub admission: Option<Countersigned>,
}

/// An admission and who vouches for the one who signed it.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Countersigned {
    /// The earlier link that is the admitter's.
    #[n(0)]
    pub admitter: u8,
    /// What it signed.
    #[n(1)]
    pub admission: Signed<Admission>,
}

/// A chain of links, each depending on earlier ones only; the last is the bearer's. It has 1 to
/// [`MAX_LINKS`] links, a size of at most [`MAX_CREDENTIAL_BYTES`], and no reference forward.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential(Vec<Link>);

/// Why links are not a chain.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BadCredential {
    /// Not the bytes of a credential.
    #[error("malformed credential: {0}")]
    Malformed(String),
    /// No link, or too many.
    #[error("a credential of {0} links, where 1 to {MAX_LINKS} are allowed")]
    Links(usize),
    /// Too many bytes.
    #[error("a credential of {0} bytes, where {MAX_CREDENTIAL_BYTES} are allowed")]
    Long(usize),
    /// A link that rests on itself or a later one.
    #[error("link {0} of the credential does not rest on earlier ones")]
    Order(usize),
}

impl Credential {
    /// Returns the chain of `links`.
    ///
    /// # Errors
    /// When there are too few, too many, or they refer to later ones.
    pub fn new(links: Vec<Link>) -> Result<Self, BadCredential> {
        if links.is_empty() || links.len() > MAX_LINKS {
            return Err(BadCredential::Links(links.len()));
        }
        for (index, link) in links.iter().enumerate() {
            let admitter = link.admission.as_ref().map(|admission| admission.admitter);
            if [link.authority, admitter]
                .into_iter()
                .flatten()
                .any(|on| usize::from(on) >= index)
            {
                return Err(BadCredential::Order(index));
            }
        }
        let chain = Self(links);
        match chain.to_bytes().len() {
            0..=MAX_CREDENTIAL_BYTES => Ok(chain),
            bytes => Err(BadCredential::Long(bytes)),
        }
    }

    /// Reads one from the whole of `bytes`; no signature is checked.
    ///
    /// # Errors
    /// When the bytes are not a chain within the limits.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadCredential> {
        if bytes.len() > MAX_CREDENTIAL_BYTES {
            return Err(BadCredential::Long(bytes.len()));
        }
        signed::from_bytes(bytes).map_err(|error| BadCredential::Malformed(error.to_string()))
    }

    /// Returns the bytes that [`Self::from_bytes`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        signed::to_bytes(self)
    }

    /// Returns the hash that names this very chain.
    pub fn hash(&self) -> CredentialHash {
        let mut hasher = Sha256::new();
        hasher.update(b"conflux credential 1");
        hasher.update(self.to_bytes());
        CredentialHash(hasher.finalize().into())
    }

    /// Returns the links, front to back.
    pub fn links(&self) -> &[Link] {
        &self.0
    }

    /// Returns the bearer's link.
    pub fn last(&self) -> &Link {
        self.0.last().expect("a chain has at least one link")
    }
}

impl<C> Encode<C> for Credential {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        self.0.encode(e, ctx)
    }
}

impl<'b, C> Decode<'b, C> for Credential {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        use minicbor::decode::Error;

        let count = d
            .array()?
            .ok_or_else(|| Error::message("chain of unknown length"))?;
        if count > MAX_LINKS as u64 {
            return Err(Error::message("chain of too many links"));
        }
        let links: Result<Vec<Link>, Error> = (0..count).map(|_| d.decode()).collect();
        Self::new(links?).map_err(Error::custom)
    }
}

impl Link {
    /// Returns the anchor this link claims to be about.
    pub fn anchor(&self) -> AnchorKey {
        match &self.join {
            Some(join) => join.claimed().anchor,
            None => AnchorKey(self.grant.claimed().subject),
        }
    }
}

impl Advertise {
    /// Returns the right to advertise whatever one likes.
    pub fn anything() -> Self {
        Self {
            private_hosts: true,
            networks: Vec::new(),
            any: true,
        }
    }

    /// Returns what a ticket gives unless told otherwise: any private address, no subnet.
    pub fn private_hosts() -> Self {
        Self {
            private_hosts: true,
            ..Self::default()
        }
    }

    /// Returns whether `network` may be advertised.
    pub fn permits(&self, network: &IpNet) -> bool {
        self.any
            || (self.private_hosts && is_private_host(network))
            || self
                .networks
                .iter()
                .any(|granted| granted.contains(network))
    }

    /// Returns whether nothing is permitted that `wider` does not permit as well.
    pub fn is_within(&self, wider: &Self) -> bool {
        wider.any
            || (!self.any
                && (!self.private_hosts || wider.private_hosts)
                && self.networks.iter().all(|network| wider.permits(network)))
    }
}

impl fmt::Display for Advertise {
    /// Writes `any`, `none`, or the parts joined by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.any {
            return f.write_str("any");
        }
        let hosts = self.private_hosts.then(|| "private addresses".to_owned());
        let networks = self.networks.iter().map(ToString::to_string);
        let parts: Vec<String> = hosts.into_iter().chain(networks).collect();
        if parts.is_empty() {
            f.write_str("none")
        } else {
            f.write_str(&parts.join(","))
        }
    }
}

impl FromStr for Serial {
    type Err = BadSerial;

    fn from_str(text: &str) -> Result<Self, BadSerial> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| BadSerial)?;
        bytes.try_into().map(Self).map_err(|_| BadSerial)
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Serial({self})")
    }
}

impl fmt::Debug for CredentialHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CredentialHash({})", HEXLOWER.encode(&self.0[..8]))
    }
}

/// RFC 1918 and the shared space of RFC 6598: what SPEC section 3 lets an anchor advertise.
fn is_private_host(network: &IpNet) -> bool {
    let IpNet::V4(network) = network else {
        return false;
    };
    let shared = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);
    network.prefix_len() == 32 && (network.addr().is_private() || shared.contains(&network.addr()))
}

/// A realm where everybody was admitted by the one before reaches this after 15 machines; the
/// first issuer met then renews by one direct grant (`core::credential::wants_renewal`).
pub const MAX_LINKS: usize = 16;

/// Sixteen links of ordinary size (0.5 KiB) take half of this; a quarter of a control message.
pub const MAX_CREDENTIAL_BYTES: usize = 16 << 10;

/// Most networks in one grant.
pub const MAX_NETWORKS: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::signed::SigningSecret;

    fn grant() -> Signed<Grant> {
        let grant = Grant {
            version: Version1,
            realm: crate::id::RealmKey([9; 32]).id(),
            subject: [1; 32],
            kind: Kind::Anchor,
            taints: TaintSet::first_machine(),
            advertise: Advertise::anything(),
            issuer: true,
            serial: Serial([4; 16]),
            made_at: 1_800_000_000,
            expires: 1_831_536_000,
            ticket: None,
        };
        Signed::sign(grant, &SigningSecret::from_seed(&[2; 32]))
    }

    fn link(authority: Option<u8>) -> Link {
        Link {
            authority,
            grant: grant(),
            join: None,
            admission: None,
        }
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn chain_survives_the_wire() {
        let chain = Credential::new(vec![link(None), link(Some(0))]).unwrap();

        let read = Credential::from_bytes(&chain.to_bytes()).unwrap();

        assert_eq!(read, chain);
        assert_eq!(read.hash(), chain.hash());
        let serial = read.last().grant.claimed().serial;
        assert_eq!(serial.to_string().parse(), Ok(serial));
    }

    #[test]
    fn links_rest_on_earlier_ones_only() {
        assert_eq!(
            Credential::new(vec![link(Some(0))]),
            Err(BadCredential::Order(0))
        );
        assert_eq!(
            Credential::new(vec![link(None), link(Some(1))]),
            Err(BadCredential::Order(1))
        );
        assert_eq!(Credential::new(vec![]), Err(BadCredential::Links(0)));
        assert_eq!(
            Credential::new(vec![link(None); 17]),
            Err(BadCredential::Links(17))
        );
    }

    #[test]
    fn default_grant_permits_private_addresses_and_no_subnet() {
        let default = Advertise::private_hosts();
        for permitted in [
            "10.0.0.1/32",
            "172.16.3.4/32",
            "192.168.0.1/32",
            "100.64.0.1/32",
        ] {
            assert!(default.permits(&net(permitted)), "{permitted}");
        }
        for refused in [
            "10.0.0.0/8",
            "192.0.2.1/32",
            "100.128.0.1/32",
            "fd00::1/128",
        ] {
            assert!(!default.permits(&net(refused)), "{refused}");
        }
    }

    #[test]
    fn granted_network_permits_what_lies_in_it() {
        let granted = Advertise {
            networks: vec![net("10.1.0.0/16")],
            ..Advertise::default()
        };

        assert!(granted.permits(&net("10.1.0.0/16")));
        assert!(granted.permits(&net("10.1.2.3/32")));
        assert!(!granted.permits(&net("10.0.0.0/8")));
    }

    #[test]
    fn delegated_rights_stay_within() {
        let subnet = Advertise {
            networks: vec![net("10.1.0.0/16")],
            ..Advertise::default()
        };
        let inside = Advertise {
            networks: vec![net("10.1.7.0/24")],
            ..Advertise::default()
        };
        let host = Advertise {
            networks: vec![net("10.9.9.9/32")],
            ..Advertise::default()
        };
        let none = Advertise::default();
        let private = Advertise::private_hosts();

        assert!(subnet.is_within(&Advertise::anything()));
        assert!(inside.is_within(&subnet));
        assert!(!subnet.is_within(&inside));
        assert!(host.is_within(&private));
        assert!(!private.is_within(&subnet));
        assert!(none.is_within(&none));
        assert!(!Advertise::anything().is_within(&private));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Credential::from_bytes(&bytes);
        }

        #[test]
        fn a_damaged_chain_is_read_or_refused(at: prop::sample::Index, byte: u8) {
            let mut bytes = Credential::new(vec![link(None)]).unwrap().to_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Credential::from_bytes(&bytes);
        }
    }
}
