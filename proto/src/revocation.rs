//! The statement that ends a membership or a ticket before its time. What it is worth, and on
//! whom it has effect, is `core::credential`'s to decide; these are the formats.
//!
//! A [`Revocation`] is signed by the realm key, by an issuer, or by the very anchor it is about.
//! An anchor's signature is worth nothing to those who do not know the anchor, so a
//! [`SignedRevocation`] carries its author's credential, and any anchor can check it offline.

use minicbor::{Decode, Encode};

use crate::credential::{Credential, Serial};
use crate::id::{AnchorId, AnchorKey, RealmId};
use crate::signed::{self, BadSigned, Signed, Statement, Version1};

/// What is revoked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Encode, Decode)]
#[cbor(flat)]
pub enum Target {
    /// An anchor, by its id: for as long as its key exists.
    #[n(0)]
    Anchor(#[n(0)] AnchorId),
    /// A ticket, by its serial: nobody joins with it any more.
    #[n(1)]
    Ticket(#[n(0)] Serial),
}

/// Says that a target is not to be trusted any more.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Revocation {
    /// Of this layout.
    #[n(0)]
    pub version: Version1,
    /// The realm it holds in.
    #[n(1)]
    pub realm: RealmId,
    /// What is revoked.
    #[n(2)]
    pub target: Target,
    /// Whether those go too who joined by the ticket, or whom the anchor let in as an issuer.
    #[n(3)]
    pub with_anchors: bool,
    /// Who revokes, and whose signature it must be; none: the realm key.
    #[n(4)]
    pub by: Option<AnchorKey>,
    /// When, in seconds since 1970, by its author's clock.
    #[n(5)]
    pub made_at: u64,
}

impl Statement for Revocation {
    const LABEL: &'static str = "conflux revocation 1";
    const MAX_BYTES: usize = 1 << 10;
}

/// A revocation and who vouches for its author.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct SignedRevocation {
    /// What was signed.
    #[n(0)]
    pub revocation: Signed<Revocation>,
    /// The author's credential; none when the realm key signed.
    #[n(1)]
    pub authority: Option<Credential>,
}

impl SignedRevocation {
    /// Reads one from the whole of `bytes`; no signature is checked.
    ///
    /// # Errors
    /// When the bytes are not a revocation with its authority.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadSigned> {
        signed::from_bytes(bytes).map_err(|error| BadSigned::Malformed {
            label: Revocation::LABEL,
            detail: error.to_string(),
        })
    }

    /// Returns the bytes that [`Self::from_bytes`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        signed::to_bytes(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::RealmKey;
    use crate::signed::SigningSecret;

    fn signed(target: Target) -> SignedRevocation {
        let secret = SigningSecret::from_seed(&[1; 32]);
        let revocation = Revocation {
            version: Version1,
            realm: RealmKey(secret.public()).id(),
            target,
            with_anchors: true,
            by: None,
            made_at: 1_800_000_000,
        };
        SignedRevocation {
            revocation: Signed::sign(revocation, &secret),
            authority: None,
        }
    }

    #[test]
    fn revocations_survive_the_wire() {
        for target in [
            Target::Anchor(AnchorKey([3; 32]).id()),
            Target::Ticket(Serial([4; 16])),
        ] {
            let bytes = signed(target).to_bytes();

            let read = SignedRevocation::from_bytes(&bytes).unwrap();

            assert_eq!(read, signed(target));
            assert_eq!(read.revocation.claimed().target, target);
            assert!(bytes.len() < 220, "{} bytes", bytes.len());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = SignedRevocation::from_bytes(&bytes);
            let _ = Signed::<Revocation>::from_bytes(&bytes);
        }

        #[test]
        fn a_damaged_revocation_is_read_or_refused(at: prop::sample::Index, byte: u8) {
            let mut bytes = signed(Target::Ticket(Serial([4; 16]))).to_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = SignedRevocation::from_bytes(&bytes);
        }
    }
}
