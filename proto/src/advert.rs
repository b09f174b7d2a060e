//! What an anchor says about itself: [`Advert`], signed anew on change and on schedule, and
//! [`Leave`], its goodbye. How they spread and when they expire is `core::membership`'s.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

use crate::credential::{Credential, CredentialHash};
use crate::id::{AnchorKey, RealmId};
use crate::network;
use crate::signed::{Signed, Statement, Version1};
use crate::taint::TaintSet;

/// A position in what one anchor has said: later ones replace earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Encode, Decode)]
pub struct Edition {
    /// How often the anchor has started; kept on its disk.
    #[n(0)]
    pub epoch: u64,
    /// Counts the statements of one start.
    #[n(1)]
    pub sequence: u64,
}

/// What an anchor says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Advert {
    /// Of this layout.
    #[n(0)]
    pub version: Version1,
    /// The realm it is a member of.
    #[n(1)]
    pub realm: RealmId,
    /// Who speaks, and whose signature it must be.
    #[n(2)]
    pub key: AnchorKey,
    /// Which of the anchor's statements this is.
    #[n(3)]
    pub edition: Edition,
    /// Seconds from signing until it expires.
    #[n(4)]
    pub lifetime_secs: u32,
    /// The overlay address; must follow from the key.
    #[n(5)]
    pub overlay: Ipv6Addr,
    /// The X25519 public key of its data sessions.
    #[n(6)]
    #[cbor(with = "minicbor::bytes")]
    pub noise_key: [u8; 32],
    /// Underlay addresses to try, best first; at most [`MAX_ENDPOINTS`].
    #[n(7)]
    pub endpoints: Vec<SocketAddr>,
    /// The IPv4 address it answers at.
    #[n(8)]
    pub ipv4: Option<Ipv4Addr>,
    /// The subnets behind it; at most [`MAX_NETWORKS`].
    #[n(9)]
    #[cbor(with = "network::list")]
    pub networks: Vec<IpNet>,
    /// Its taints: those of its credential, or fewer.
    #[n(10)]
    pub taints: TaintSet,
    /// How it can be reached.
    #[n(11)]
    pub reach: Reach,
    /// Whether its CPU has AES instructions: both sides must for AES-256-GCM to be used.
    #[n(12)]
    pub aes: bool,
    /// The credential that makes it a member. Sent beside the advert, not in it: refreshes are
    /// frequent, credentials are long and change once a year.
    #[n(13)]
    pub credential: CredentialHash,
    /// Whether it asks for no new flows. Written only when it does: releases that do not know the
    /// field pass it on and go on sending new flows.
    #[n(14)]
    #[cbor(default, skip_if = "is_false")]
    pub draining: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the derived encoder hands it over so"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

impl Statement for Advert {
    const LABEL: &'static str = "conflux advert 1";
    /// Holds every list at its limit with room to spare (2 KiB of taints, 1.3 KiB of networks).
    const MAX_BYTES: usize = 8 << 10;
}

/// Most endpoints of one advert.
pub const MAX_ENDPOINTS: usize = 16;

/// Most subnets of one advert.
pub const MAX_NETWORKS: usize = 64;

/// How an anchor can be reached; a word of a later release is read as `Unknown`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Reach {
    /// Not found out.
    #[default]
    Unknown,
    /// At its endpoints, by anybody.
    Public,
    /// Behind a NAT that keeps one mapping for all destinations.
    NatCone,
    /// Behind a NAT with a mapping per destination.
    NatSymmetric,
    /// Through a relay only.
    RelayOnly,
}

/// An advert as it is passed on: with its credential where the other side may lack that one.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct SignedAdvert {
    /// The advert.
    #[n(0)]
    pub advert: Signed<Advert>,
    /// The credential its hash names.
    #[n(1)]
    pub credential: Option<Credential>,
}

/// An anchor's goodbye: everything it said up to this edition is void.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Leave {
    /// Of this layout.
    #[n(0)]
    pub version: Version1,
    /// The realm it leaves.
    #[n(1)]
    pub realm: RealmId,
    /// Who leaves, and whose signature it must be.
    #[n(2)]
    pub key: AnchorKey,
    /// Later than its last advert's.
    #[n(3)]
    pub edition: Edition,
}

impl Statement for Leave {
    const LABEL: &'static str = "conflux leave 1";
    const MAX_BYTES: usize = 512;
}

impl Edition {
    /// Returns the first statement of a start.
    pub const fn first(epoch: u64) -> Self {
        Self { epoch, sequence: 1 }
    }

    /// Returns the statement after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self {
            epoch: self.epoch,
            sequence: self.sequence.saturating_add(1),
        }
    }
}

impl Reach {
    /// Returns the word that tables show.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Public => "public",
            Self::NatCone => "nat-cone",
            Self::NatSymmetric => "nat-symmetric",
            Self::RelayOnly => "relay-only",
        }
    }
}

impl<C> Encode<C> for Reach {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        let number = match self {
            Self::Unknown => 0,
            Self::Public => 1,
            Self::NatCone => 2,
            Self::NatSymmetric => 3,
            Self::RelayOnly => 4,
        };
        e.u8(number)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Reach {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(match d.u64()? {
            1 => Self::Public,
            2 => Self::NatCone,
            3 => Self::NatSymmetric,
            4 => Self::RelayOnly,
            _ => Self::Unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::signed::SigningSecret;

    fn advert() -> Advert {
        let secret = SigningSecret::from_seed(&[1; 32]);
        let realm = crate::id::RealmKey([9; 32]).id();
        let key = AnchorKey(secret.public());
        Advert {
            version: Version1,
            realm,
            key,
            edition: Edition {
                epoch: 3,
                sequence: 7,
            },
            lifetime_secs: 120,
            overlay: key.overlay(&realm),
            noise_key: [5; 32],
            endpoints: vec![
                "192.0.2.1:47474".parse().unwrap(),
                "[2001:db8::1]:1".parse().unwrap(),
            ],
            ipv4: Some(Ipv4Addr::new(10, 128, 0, 9)),
            networks: vec![
                "10.1.0.0/16".parse().unwrap(),
                "fd00:1::/64".parse().unwrap(),
            ],
            taints: TaintSet::first_machine(),
            reach: Reach::NatCone,
            aes: true,
            credential: CredentialHash([8; 32]),
            draining: false,
        }
    }

    #[test]
    fn advert_survives_the_wire() {
        let secret = SigningSecret::from_seed(&[1; 32]);
        let signed = Signed::sign(advert(), &secret);

        let read = Signed::<Advert>::from_bytes(&signed.to_bytes()).unwrap();

        assert_eq!(read.verify(&secret.public()), Ok(&advert()));
    }

    #[test]
    fn draining_is_a_field_of_its_own_that_older_readers_skip() {
        let plain = crate::signed::to_bytes(&advert());
        let draining = Advert {
            draining: true,
            ..advert()
        };
        let bytes = crate::signed::to_bytes(&draining);

        // One more entry of the map: its key and its value.
        assert_eq!(bytes.len(), plain.len() + 2);
        assert_eq!(
            crate::signed::from_bytes::<Advert>(&bytes).unwrap(),
            draining
        );
        assert!(
            !crate::signed::from_bytes::<Advert>(&plain)
                .unwrap()
                .draining
        );
    }

    #[test]
    fn a_refresh_is_small() {
        let bytes = Signed::sign(advert(), &SigningSecret::from_seed(&[1; 32])).to_bytes();

        assert!(bytes.len() < 330, "{} bytes", bytes.len());
    }

    #[test]
    fn later_editions_are_greater_across_starts() {
        let old = Edition {
            epoch: 1,
            sequence: 900,
        };

        assert!(old < old.next());
        assert!(old.next() < Edition::first(2));
    }

    #[test]
    fn reach_of_a_later_release_is_unknown() {
        assert_eq!(decode::<Reach>(&[17]).unwrap(), Reach::Unknown);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Signed::<Advert>::from_bytes(&bytes);
            let _ = crate::signed::from_bytes::<Advert>(&bytes);
            let _ = crate::signed::from_bytes::<SignedAdvert>(&bytes);
        }

        #[test]
        fn a_damaged_advert_is_read_or_refused(at: prop::sample::Index, byte: u8) {
            let mut bytes = crate::signed::to_bytes(&advert());
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = crate::signed::from_bytes::<Advert>(&bytes);
        }
    }
}
