//! Sources without an owner that were heard from lately: at the other end somebody may be in the
//! middle of a QUIC handshake with us, and QUIC drops handshake packets whose source changes its
//! name. A fixed table, so that forged sources cost no memory; a clash forgets the older one.

use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::time::Duration;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

use crate::time::Mono;

/// Places in the table; 16 KiB.
const PLACES: usize = 1024;

/// A handshake sends again after 1 s at first (RFC 9002 section 6.2.2); silent for twice that,
/// it is over.
const RECENT: Duration = Duration::from_secs(2);

/// The table.
pub(super) struct Strangers {
    hasher: SeedableRandomState,
    heard: Box<[(u64, Mono)]>,
}

impl Strangers {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            heard: vec![(0, Mono::default()); PLACES].into_boxed_slice(),
        }
    }

    /// Notes a packet from a source without an owner.
    pub(super) fn hear(&mut self, now: Mono, source: &SocketAddr) {
        let hash = self.hasher.hash_one(source);
        self.heard[hash as usize % PLACES] = (hash, now);
    }

    /// Says whether such a packet came lately.
    pub(super) fn is_recent(&self, now: Mono, source: &SocketAddr) -> bool {
        let hash = self.hasher.hash_one(source);
        let (known, at) = self.heard[hash as usize % PLACES];
        known == hash && now.since(at) < RECENT
    }
}
