//! Identities and the names that follow from them: anchor and realm keys, anchor ids, overlay
//! and hardware addresses. Everything here is a pure function of public keys, so that anyone
//! can check that a name belongs to a key. Secrets live elsewhere.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use data_encoding::BASE32_NOPAD;
use minicbor::{Decode, Encode};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Letters of an anchor id that tables show.
pub const SHORT_ID_LETTERS: usize = 10;

/// An anchor's Ed25519 public identity key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct AnchorKey(#[cbor(with = "minicbor::bytes")] pub [u8; 32]);

/// A realm's Ed25519 public key: the root of every credential of the realm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct RealmKey(#[cbor(with = "minicbor::bytes")] pub [u8; 32]);

/// The name of a realm: the hash of its key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct RealmId(#[cbor(with = "minicbor::bytes")] pub [u8; 32]);

/// The name of an anchor: the hash of its identity key, shown in lowercase base32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct AnchorId(#[cbor(with = "minicbor::bytes")] [u8; 32]);

/// A text that is not a whole anchor id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("not an anchor id: 52 letters and digits of base32")]
pub struct BadAnchorId;

fn hash(label: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(label);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn base32_lower(bytes: &[u8]) -> String {
    BASE32_NOPAD.encode(bytes).to_ascii_lowercase()
}

impl AnchorKey {
    /// Returns the anchor id: SHA-256 over a label and the key.
    pub fn id(&self) -> AnchorId {
        AnchorId(hash(b"conflux anchor id 1", &[&self.0]))
    }

    /// Returns the self-certifying overlay address (a unique local address, RFC 4193): `fd80`,
    /// 32 bits of the realm id, 80 bits of a hash of this key.
    pub fn overlay(&self, realm: &RealmId) -> Ipv6Addr {
        let digest = hash(b"conflux overlay 1", &[&self.0]);
        let mut octets = [0_u8; 16];
        octets[..2].copy_from_slice(&[0xfd, 0x80]);
        octets[2..6].copy_from_slice(&realm.0[..4]);
        octets[6..].copy_from_slice(&digest[..10]);
        octets.into()
    }

    /// Returns the stable, locally administered unicast EUI-48 of this anchor in this realm.
    pub fn hardware(&self, realm: &RealmId) -> HardwareAddr {
        let digest = hash(b"conflux hardware 1", &[&realm.0, &self.0]);
        let mut octets = [0_u8; 6];
        octets.copy_from_slice(&digest[..6]);
        octets[0] = (octets[0] & 0xfc) | 0x02;
        HardwareAddr(octets)
    }
}

impl fmt::Debug for AnchorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnchorKey({})", self.id().short())
    }
}

impl RealmKey {
    /// Returns the realm id: SHA-256 over a label and the key.
    pub fn id(&self) -> RealmId {
        RealmId(hash(b"conflux realm id 1", &[&self.0]))
    }
}

impl fmt::Debug for RealmKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RealmKey({})", self.id())
    }
}

impl RealmId {
    /// Returns the /48 that holds every overlay address of the realm.
    pub fn overlay_prefix(&self) -> ipnet::Ipv6Net {
        let mut octets = [0_u8; 16];
        octets[..2].copy_from_slice(&[0xfd, 0x80]);
        octets[2..6].copy_from_slice(&self.0[..4]);
        ipnet::Ipv6Net::new_assert(octets.into(), 48)
    }

    /// Returns the name by which members look for each other on a link. It follows from the realm
    /// id, but not the other way round, and names nobody.
    pub fn beacon(&self) -> String {
        base32_lower(&hash(b"conflux beacon 1", &[&self.0]))[..BEACON_LETTERS].to_owned()
    }
}

/// Letters of [`RealmId::beacon`]: 80 bits, and short enough for a label of DNS.
const BEACON_LETTERS: usize = 16;

impl fmt::Display for RealmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base32_lower(&self.0)[..SHORT_ID_LETTERS])
    }
}

impl fmt::Debug for RealmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RealmId({self})")
    }
}

impl AnchorId {
    /// Returns the first ten letters, as tables show them.
    pub fn short(&self) -> String {
        self.prefix(SHORT_ID_LETTERS)
    }

    /// Returns the first `letters` letters (at most all 52): more than ten where two would clash.
    pub fn prefix(&self, letters: usize) -> String {
        let mut text = base32_lower(&self.0);
        text.truncate(letters);
        text
    }
}

impl FromStr for AnchorId {
    type Err = BadAnchorId;

    fn from_str(text: &str) -> Result<Self, BadAnchorId> {
        let bytes = BASE32_NOPAD
            .decode(text.to_ascii_uppercase().as_bytes())
            .map_err(|_| BadAnchorId)?;
        bytes.try_into().map(Self).map_err(|_| BadAnchorId)
    }
}

impl fmt::Display for AnchorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base32_lower(&self.0))
    }
}

impl fmt::Debug for AnchorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnchorId({})", self.short())
    }
}

/// A locally administered EUI-48.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HardwareAddr(pub [u8; 6]);

impl fmt::Display for HardwareAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_of_a_realm_share_one_48() {
        let realm = RealmKey([7; 32]).id();

        let first = AnchorKey([1; 32]).overlay(&realm);
        let second = AnchorKey([2; 32]).overlay(&realm);

        assert_ne!(first, second);
        assert!(realm.overlay_prefix().contains(&first));
        assert!(realm.overlay_prefix().contains(&second));
    }

    #[test]
    fn the_beacon_of_a_realm_shows_nothing_of_its_id() {
        let [one, other] = [RealmKey([7; 32]).id(), RealmKey([8; 32]).id()];

        assert_eq!(one.beacon().len(), BEACON_LETTERS);
        assert_ne!(one.beacon(), other.beacon());
        assert!(!base32_lower(&one.0).contains(&one.beacon()[..4]));
    }

    #[test]
    fn hardware_address_is_local_and_unicast() {
        let hardware = AnchorKey([3; 32]).hardware(&RealmKey([7; 32]).id());

        assert_eq!(hardware.0[0] & 0x03, 0x02);
        assert_eq!(hardware.to_string().len(), 17);
    }

    #[test]
    fn anchor_id_is_52_lowercase_letters() {
        let id = AnchorKey([9; 32]).id();

        assert_eq!(id.to_string().len(), 52);
        assert!(id.to_string().starts_with(&id.short()));
        assert_eq!(id.short().len(), SHORT_ID_LETTERS);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.short().parse::<AnchorId>(), Err(BadAnchorId));
    }
}
