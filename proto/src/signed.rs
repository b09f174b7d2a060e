//! Signed statements: what every object that crosses a wire and is believed later is made of.
//!
//! A [`Signed`] keeps the very bytes that were signed, and passes those on, so that fields of a
//! later version survive a relay by an earlier one. The signature (Ed25519) is over the
//! statement's label, one zero byte and the bytes: a label says what a statement is about, so
//! nothing signed as one kind can be shown as another.
//!
//! On the wire: a CBOR array of two byte strings, body and signature. The body is a CBOR map
//! with small integer keys whose first entry is the version, 0. Unknown keys are ignored.
//! Reading does not check the signature: whose key it must be is the caller's to know.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// A kind of statement.
pub trait Statement: Encode<()> + for<'b> Decode<'b, ()> {
    /// What is signed in front of the body; no label is another's prefix (a zero byte follows).
    const LABEL: &'static str;

    /// The longest body accepted.
    const MAX_BYTES: usize;
}

/// A statement, the bytes it was read from, and a signature that is still to be checked. A copy
/// shares all of it, the outcome of the check included: a store and the messages that pass on
/// what is in it hold one statement once, and its signature is checked once.
pub struct Signed<T>(Arc<Content<T>>);

struct Content<T> {
    statement: T,
    body: Box<[u8]>,
    signature: [u8; 64],
    /// The key that signed it, once that was found out.
    signer: OnceLock<[u8; 32]>,
}

/// A secret Ed25519 key; wiped when dropped, never shown.
#[derive(Clone)]
pub struct SigningSecret(SigningKey);

/// The version of a statement's body, 1: written as that number, read as nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Version1;

/// Why bytes are not a signed statement.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BadSigned {
    /// Not the bytes of a statement of this kind.
    #[error("malformed {label}: {detail}")]
    Malformed {
        /// The statement's label.
        label: &'static str,
        /// What was found.
        detail: String,
    },
    /// Written by a release that is too new for this one.
    #[error("{label} has version {version}, this release knows 1")]
    Version {
        /// The statement's label.
        label: &'static str,
        /// The version found.
        version: u64,
    },
    /// More bytes than a statement of this kind may have.
    #[error("{label} of {bytes} bytes is too long")]
    Long {
        /// The statement's label.
        label: &'static str,
        /// Its size.
        bytes: usize,
    },
}

/// A signature that is not that key's over that statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the signature of the {label} is wrong")]
pub struct BadSignature {
    /// The statement's label.
    pub label: &'static str,
}

impl<T: Statement> Signed<T> {
    /// Returns `statement`, signed by `secret`.
    pub fn sign(statement: T, secret: &SigningSecret) -> Self {
        let body = to_bytes(&statement);
        #[cfg(feature = "next")]
        let body = crate::next::grow_map(body);
        let body = body.into_boxed_slice();
        let signature = secret.0.sign(&message::<T>(&body)).to_bytes();
        Self::new(statement, body, signature)
    }

    /// Reads one from the whole of `bytes`, signature unchecked.
    ///
    /// # Errors
    /// When the bytes are not a statement of this kind and of a known version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadSigned> {
        let mut decoder = Decoder::new(bytes);
        let (body, signature) = parts(&mut decoder).map_err(malformed::<T>)?;
        if decoder.position() != bytes.len() {
            return Err(malformed::<T>("bytes follow it"));
        }
        Self::from_parts(body, signature)
    }

    /// Returns the bytes that [`Self::from_bytes`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Returns the statement if `key` signed it.
    ///
    /// # Errors
    /// When it did not, or is not a key at all (small-order ones included).
    pub fn verify(&self, key: &[u8; 32]) -> Result<&T, BadSignature> {
        if self.0.signer.get() == Some(key) {
            return Ok(&self.0.statement);
        }
        let signature = Signature::from_bytes(&self.0.signature);
        VerifyingKey::from_bytes(key)
            .and_then(|key| key.verify_strict(&message::<T>(&self.0.body), &signature))
            .map_err(|_| BadSignature { label: T::LABEL })?;
        // Nobody but this key's owner could have signed it, so whoever was first is the only one.
        let _ = self.0.signer.set(*key);
        Ok(&self.0.statement)
    }

    /// Returns what is claimed, whether or not anybody signed it: to learn whose key to check.
    pub fn claimed(&self) -> &T {
        &self.0.statement
    }

    /// Returns the hash that names this very statement and signature.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(b"conflux signed 1");
        hasher.update(message::<T>(&self.0.body));
        hasher.update(self.0.signature);
        hasher.finalize().into()
    }

    /// Returns the bytes of memory the signed bytes take.
    pub fn size_bytes(&self) -> usize {
        self.0.body.len() + self.0.signature.len()
    }

    fn from_parts(body: &[u8], signature: [u8; 64]) -> Result<Self, BadSigned> {
        if body.len() > T::MAX_BYTES {
            return Err(BadSigned::Long {
                label: T::LABEL,
                bytes: body.len(),
            });
        }
        let version = version_of(body).map_err(malformed::<T>)?;
        if version != 1 {
            return Err(BadSigned::Version {
                label: T::LABEL,
                version,
            });
        }
        let statement = from_bytes(body).map_err(malformed::<T>)?;
        Ok(Self::new(statement, body.into(), signature))
    }

    fn new(statement: T, body: Box<[u8]>, signature: [u8; 64]) -> Self {
        Self(Arc::new(Content {
            statement,
            body,
            signature,
            signer: OnceLock::new(),
        }))
    }
}

impl<T> Clone for Signed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Signed<T> {
    /// Compares bytes: a statement signed twice over other bytes is another.
    fn eq(&self, other: &Self) -> bool {
        let (one, two) = (&self.0, &other.0);
        Arc::ptr_eq(one, two) || (one.body == two.body && one.signature == two.signature)
    }
}

impl<T> Eq for Signed<T> {}

impl<T: fmt::Debug> fmt::Debug for Signed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signed").field(&self.0.statement).finish()
    }
}

impl<T, C> Encode<C> for Signed<T> {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.array(2)?
            .bytes(&self.0.body)?
            .bytes(&self.0.signature)?
            .ok()
    }
}

impl<'b, T: Statement, C> Decode<'b, C> for Signed<T> {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let (body, signature) = parts(d)?;
        Self::from_parts(body, signature).map_err(decode::Error::custom)
    }
}

impl SigningSecret {
    /// Returns the secret key of a seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Returns the signature of bytes that carry a context of their own, as those of a TLS
    /// handshake do. Statements are signed by [`Signed::sign`].
    pub fn sign_bytes(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }

    /// Returns the public key.
    pub fn public(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// Returns the seed: for the file that keeps it, and for TLS.
    pub fn seed(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}

impl<C> Encode<C> for Version1 {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.u8(1)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Version1 {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        match d.u64()? {
            1 => Ok(Self),
            _ => Err(decode::Error::message("unknown version")),
        }
    }
}

/// Writes a value of ours into fresh memory.
pub(crate) fn to_bytes<T: Encode<()>>(value: &T) -> Vec<u8> {
    minicbor::to_vec(value).expect("memory takes every write, and our types encode every value")
}

/// Reads a value from the whole of `bytes`.
pub(crate) fn from_bytes<T: for<'b> Decode<'b, ()>>(bytes: &[u8]) -> Result<T, decode::Error> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.decode()?;
    if decoder.position() == bytes.len() {
        Ok(value)
    } else {
        Err(decode::Error::message("bytes follow it"))
    }
}

fn parts<'b>(d: &mut Decoder<'b>) -> Result<(&'b [u8], [u8; 64]), decode::Error> {
    if d.array()? != Some(2) {
        return Err(decode::Error::message("a signed statement has two parts"));
    }
    let body = d.bytes()?;
    let signature: ByteArray<64> = d.decode()?;
    Ok((body, *signature))
}

fn version_of(body: &[u8]) -> Result<u64, decode::Error> {
    let mut decoder = Decoder::new(body);
    decoder.map()?;
    if decoder.u64()? != 0 {
        return Err(decode::Error::message("it does not begin with its version"));
    }
    decoder.u64()
}

fn message<T: Statement>(body: &[u8]) -> Vec<u8> {
    [T::LABEL.as_bytes(), &[0], body].concat()
}

fn malformed<T: Statement>(detail: impl ToString) -> BadSigned {
    BadSigned::Malformed {
        label: T::LABEL,
        detail: detail.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, PartialEq, Debug, Encode, Decode)]
    #[cbor(map)]
    struct Note {
        #[n(0)]
        version: Version1,
        #[n(1)]
        text: String,
    }

    impl Statement for Note {
        const LABEL: &'static str = "test note";
        const MAX_BYTES: usize = 64;
    }

    #[derive(Clone, Debug, Encode, Decode)]
    #[cbor(map)]
    struct LaterNote {
        #[n(0)]
        version: Version1,
        #[n(1)]
        text: String,
        #[n(9)]
        colour: Option<String>,
    }

    impl Statement for LaterNote {
        const LABEL: &'static str = "test note";
        const MAX_BYTES: usize = 64;
    }

    #[derive(Clone, Debug, Encode, Decode)]
    #[cbor(map)]
    struct OtherKind {
        #[n(0)]
        version: Version1,
        #[n(1)]
        text: String,
    }

    impl Statement for OtherKind {
        const LABEL: &'static str = "test other";
        const MAX_BYTES: usize = 64;
    }

    fn note(text: &str) -> Note {
        Note {
            version: Version1,
            text: text.to_owned(),
        }
    }

    fn secret(number: u8) -> SigningSecret {
        SigningSecret::from_seed(&[number; 32])
    }

    #[test]
    fn only_the_signers_key_verifies() {
        let signed = Signed::sign(note("hello"), &secret(1));

        assert_eq!(signed.verify(&secret(1).public()), Ok(&note("hello")));
        assert!(signed.verify(&secret(2).public()).is_err());
        assert!(signed.verify(&[0; 32]).is_err());
    }

    #[test]
    fn a_copy_that_was_checked_is_still_no_other_keys() {
        let signed = Signed::sign(note("hello"), &secret(1));
        let copy = signed.clone();
        assert!(signed.verify(&secret(1).public()).is_ok());

        assert_eq!(copy.verify(&secret(1).public()), Ok(&note("hello")));
        assert!(copy.verify(&secret(2).public()).is_err());
        assert_eq!(copy, signed);
        assert_eq!(copy.to_bytes(), signed.to_bytes());
    }

    #[test]
    fn a_statement_cannot_be_shown_as_another_kind() {
        let bytes = Signed::sign(note("hello"), &secret(1)).to_bytes();

        let shown = Signed::<OtherKind>::from_bytes(&bytes).unwrap();

        assert!(shown.verify(&secret(1).public()).is_err());
    }

    #[test]
    fn fields_of_a_later_release_survive_an_earlier_one() {
        let later = LaterNote {
            version: Version1,
            text: "hi".into(),
            colour: Some("red".into()),
        };
        let bytes = Signed::sign(later, &secret(1)).to_bytes();

        let here = Signed::<Note>::from_bytes(&bytes).unwrap();

        assert_eq!(here.verify(&secret(1).public()), Ok(&note("hi")));
        assert_eq!(here.to_bytes(), bytes);
    }

    #[test]
    fn unknown_version_and_excess_length_are_told_apart_from_damage() {
        let signed_body = |body: Vec<u8>| {
            let mut bytes = Vec::new();
            Encoder::new(&mut bytes)
                .array(2)
                .unwrap()
                .bytes(&body)
                .unwrap()
                .bytes(&[0; 64])
                .unwrap();
            Signed::<Note>::from_bytes(&bytes)
        };

        assert!(matches!(
            signed_body(vec![0xa1, 0x00, 0x02]),
            Err(BadSigned::Version { version: 2, .. })
        ));
        assert!(matches!(
            signed_body(vec![0xa0]),
            Err(BadSigned::Malformed { .. })
        ));
        assert!(matches!(
            signed_body(vec![0; 65]),
            Err(BadSigned::Long { bytes: 65, .. })
        ));
    }

    #[test]
    fn secret_is_never_shown() {
        assert_eq!(format!("{:?}", secret(7)), "SigningSecret(..)");
    }

    proptest! {
        #[test]
        fn changing_any_byte_breaks_it(at: prop::sample::Index, bit in 0_u8..8) {
            let signed = Signed::sign(note("hello"), &secret(1));
            let mut bytes = signed.to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;

            let verified = Signed::<Note>::from_bytes(&bytes)
                .is_ok_and(|changed| changed.verify(&secret(1).public()).is_ok());

            prop_assert!(!verified);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Signed::<Note>::from_bytes(&bytes);
        }
    }
}
