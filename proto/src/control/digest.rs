//! What a sender knows, compactly. Anchors are sorted into [`Digest::BUCKETS`] buckets by the
//! first byte of their key. A large store says one fingerprint per bucket; the answer, and a
//! small store at once, lists the editions of the buckets in question.

use minicbor::{Decode, Encode};

use crate::advert::Edition;
use crate::id::AnchorKey;

/// What a sender knows.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(flat)]
pub enum Digest {
    /// A fingerprint per bucket: equal ones hold the same editions.
    #[n(0)]
    Fingerprints(#[n(0)] Vec<u64>),
    /// All the sender knows of some buckets.
    #[n(1)]
    Editions {
        /// Whether the receiver should answer in kind.
        #[n(0)]
        turn: Turn,
        /// The buckets that are listed in full, sorted; empty: all of them.
        #[n(1)]
        #[cbor(with = "minicbor::bytes")]
        buckets: Vec<u8>,
        /// Their anchors.
        #[n(2)]
        editions: Vec<DigestEntry>,
    },
}

/// Which side of an exchange lists its editions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Turn {
    /// The first: the other side lists its own where it lacks something.
    #[n(0)]
    Ask,
    /// The second: the exchange ends with what the receiver sends now.
    #[n(1)]
    Answer,
}

/// One anchor's latest edition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct DigestEntry {
    /// Whose.
    #[n(0)]
    pub key: AnchorKey,
    /// Which.
    #[n(1)]
    pub edition: Edition,
}

impl Digest {
    /// With 10,000 anchors 39 to a bucket: a list of one costs about what all fingerprints do.
    pub const BUCKETS: usize = 256;

    /// Returns the bucket an anchor belongs to.
    pub const fn bucket_of(key: &AnchorKey) -> u8 {
        key.0[0]
    }
}
