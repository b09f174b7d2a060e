//! Revocations on their way: the statements themselves, and what a store says of those it has.
//! They are sorted by the first eight bytes of their hashes; a store lists a stretch of that
//! order, and the other side sends what the list lacks.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use super::Turn;
use crate::revocation::SignedRevocation;

/// Revocations the receiver may lack.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(map)]
pub struct Revocations {
    /// The statements, each with its authority.
    #[n(0)]
    pub revocations: Vec<SignedRevocation>,
}

/// All revocations of a stretch of the order that the sender has.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct RevocationDigest {
    /// Whether the receiver should answer in kind when it lacks some of them.
    #[n(0)]
    pub turn: Turn,
    /// The first place of the stretch.
    #[n(1)]
    pub first: u64,
    /// The last place of the stretch.
    #[n(2)]
    pub last: u64,
    /// The places taken, eight bytes each, big endian.
    #[n(3)]
    places: ByteVec,
}

impl RevocationDigest {
    /// Returns a digest of the stretch from `first` to `last`, both included.
    pub fn new(turn: Turn, first: u64, last: u64, places: impl IntoIterator<Item = u64>) -> Self {
        let bytes: Vec<u8> = places.into_iter().flat_map(u64::to_be_bytes).collect();
        Self {
            turn,
            first,
            last,
            places: bytes.into(),
        }
    }

    /// Returns the place of a statement with this hash.
    pub fn place_of(hash: &[u8; 32]) -> u64 {
        let [first, ..] = hash.as_chunks::<8>().0 else {
            return 0;
        };
        u64::from_be_bytes(*first)
    }

    /// Returns the places taken; bytes that make no whole place are ignored.
    pub fn places(&self) -> impl Iterator<Item = u64> {
        let (places, _) = self.places.as_chunks::<8>();
        places.iter().map(|place| u64::from_be_bytes(*place))
    }
}
