//! One number per bucket that is equal when the bucket's editions are: the exclusive or of a
//! hash of each, kept up to date as they come and go. Members only, so nobody gains by making
//! two stores look equal but to withhold what it could withhold anyway.

use conflux_proto::advert::Edition;
use conflux_proto::control::Digest as Summary;
use conflux_proto::id::AnchorKey;
use sha2::{Digest, Sha256};

#[derive(Debug)]
pub(super) struct Fingerprints(Box<[u64; Summary::BUCKETS]>);

impl Default for Fingerprints {
    fn default() -> Self {
        Self(Box::new([0; Summary::BUCKETS]))
    }
}

impl Fingerprints {
    pub(super) fn insert(&mut self, key: &AnchorKey, edition: Edition) {
        self.0[usize::from(Summary::bucket_of(key))] ^= hash(key, edition);
    }

    pub(super) fn remove(&mut self, key: &AnchorKey, edition: Edition) {
        self.insert(key, edition);
    }

    pub(super) fn all(&self) -> &[u64] {
        self.0.as_slice()
    }
}

fn hash(key: &AnchorKey, edition: Edition) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(b"conflux edition 1");
    hasher.update(key.0);
    hasher.update(edition.epoch.to_be_bytes());
    hasher.update(edition.sequence.to_be_bytes());
    let digest: [u8; 32] = hasher.finalize().into();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}
