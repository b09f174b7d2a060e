//! Sources heard from lately, and the name QUIC knows each by: at the other end somebody may be in
//! the middle of a QUIC handshake with us, and QUIC drops handshake packets whose source changes
//! its name. A fixed table, so that forged sources cost no memory; a clash forgets the older one.

use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::time::Duration;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

use super::Name;
use crate::time::Mono;

/// Places in the table; 32 KiB.
const PLACES: usize = 1024;

/// A handshake sends again after 1 s at first (RFC 9002 section 6.2.2); silent for twice that,
/// it is over.
const RECENT: Duration = Duration::from_secs(2);

/// The table.
pub(super) struct Heard {
    hasher: SeedableRandomState,
    places: Box<[Place]>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    hash: u64,
    at: Mono,
    name: Option<Name>,
}

impl Heard {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            places: vec![Place::default(); PLACES].into_boxed_slice(),
        }
    }

    /// Notes a packet and the name of its source, none when it stands for itself.
    pub(super) fn note(&mut self, now: Mono, source: &SocketAddr, name: Option<Name>) {
        let hash = self.hasher.hash_one(source);
        self.places[hash as usize % PLACES] = Place {
            hash,
            at: now,
            name,
        };
    }

    /// Returns the name of a source heard from lately, `Some(None)` when it stood for itself.
    pub(super) fn recent(&self, now: Mono, source: &SocketAddr) -> Option<Option<Name>> {
        let hash = self.hasher.hash_one(source);
        let place = self.places[hash as usize % PLACES];
        (place.hash == hash && now.since(place.at) < RECENT).then_some(place.name)
    }
}
