//! The secrets of an anchor and of a realm. Seeds come from the caller, which reads them from
//! files or draws them; what follows from the public halves is `conflux_proto::id`'s.

use std::fmt;

use aws_lc_rs::agreement::{PrivateKey, X25519};
use conflux_proto::id::{AnchorKey, RealmId, RealmKey};
use conflux_proto::signed::SigningSecret;
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

/// An anchor's identity: the key it signs with, and the key of its data sessions, which follows
/// from it. Wiped when dropped, never shown.
#[derive(Clone)]
pub struct Identity {
    signing: SigningSecret,
    noise: Zeroizing<[u8; 32]>,
    noise_public: [u8; 32],
}

/// A realm's own key: whoever holds it may grant anything. Wiped when dropped, never shown.
#[derive(Clone)]
pub struct RealmSecret(SigningSecret);

impl Identity {
    /// Returns the identity of a seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let mut noise = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(Some(NOISE_SALT), seed)
            .expand(b"x25519", noise.as_mut_slice())
            .expect("HKDF-SHA-256 gives up to 8160 bytes");
        let noise_public = x25519_public(&noise);
        Self {
            signing: SigningSecret::from_seed(seed),
            noise,
            noise_public,
        }
    }

    /// Returns the public identity key.
    pub fn key(&self) -> AnchorKey {
        AnchorKey(self.signing.public())
    }

    /// Returns the key that signs adverts, leaves and admissions.
    pub fn signing(&self) -> &SigningSecret {
        &self.signing
    }

    /// Returns the seed, for the file that keeps it and for TLS.
    pub fn seed(&self) -> &[u8; 32] {
        self.signing.seed()
    }

    /// Returns the X25519 secret of data sessions.
    pub fn noise_secret(&self) -> &[u8; 32] {
        &self.noise
    }

    /// Returns the X25519 public key of data sessions, as adverts carry it.
    pub fn noise_key(&self) -> [u8; 32] {
        self.noise_public
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}, ..)", self.key().id().short())
    }
}

impl RealmSecret {
    /// Returns the realm key of a seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningSecret::from_seed(seed))
    }

    /// Returns the public key.
    pub fn key(&self) -> RealmKey {
        RealmKey(self.0.public())
    }

    /// Returns the realm.
    pub fn id(&self) -> RealmId {
        self.key().id()
    }

    /// Returns the key that signs grants.
    pub fn signing(&self) -> &SigningSecret {
        &self.0
    }

    /// Returns the seed, for the file that keeps it.
    pub fn seed(&self) -> &[u8; 32] {
        self.0.seed()
    }
}

impl fmt::Debug for RealmSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RealmSecret({}, ..)", self.id())
    }
}

fn x25519_public(secret: &[u8; 32]) -> [u8; 32] {
    let public = PrivateKey::from_private_key(&X25519, secret)
        .and_then(|secret| secret.compute_public_key().map_err(Into::into))
        .expect("any 32 bytes are an X25519 secret, whose public half can be computed");
    public
        .as_ref()
        .try_into()
        .expect("an X25519 public key has 32 bytes")
}

/// Keeps this use of the seed apart from every other.
const NOISE_SALT: &[u8] = b"conflux noise static 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_follows_from_its_seed() {
        let first = Identity::from_seed(&[1; 32]);
        let again = Identity::from_seed(&[1; 32]);
        let other = Identity::from_seed(&[2; 32]);

        assert_eq!(first.key(), again.key());
        assert_eq!(first.noise_key(), again.noise_key());
        assert_ne!(first.key(), other.key());
        assert_ne!(first.noise_key(), other.noise_key());
    }

    #[test]
    fn the_session_key_is_not_the_seed() {
        let identity = Identity::from_seed(&[1; 32]);

        assert_ne!(identity.noise_secret(), identity.seed());
        assert_ne!(identity.noise_key(), identity.key().0);
    }

    #[test]
    fn public_half_agrees_with_an_independent_computation() {
        let expected = [
            0xa4, 0xe0, 0x92, 0x92, 0xb6, 0x51, 0xc2, 0x78, 0xb9, 0x77, 0x2c, 0x56, 0x9f, 0x5f,
            0xa9, 0xbb, 0x13, 0xd9, 0x06, 0xb4, 0x6a, 0xb6, 0x8c, 0x9d, 0xf9, 0xdc, 0x2b, 0x44,
            0x09, 0xf8, 0xa2, 0x09,
        ];

        assert_eq!(x25519_public(&[1; 32]), expected);
    }

    #[test]
    fn secrets_are_not_shown() {
        let seed = [0xab; 32];
        for shown in [
            format!("{:?}", Identity::from_seed(&seed)),
            format!("{:?}", RealmSecret::from_seed(&seed)),
        ] {
            assert!(!shown.contains("171") && !shown.contains("ab, "), "{shown}");
        }
    }
}
