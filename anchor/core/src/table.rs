//! Hash tables for keys that a stranger may choose: seeded by the owner (so that nobody can aim
//! for one bucket, and a simulation repeats), never walked in map order where order shows.

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

/// A hash map whose hasher is seeded by the owner.
pub type Map<K, V> = hashbrown::HashMap<K, V, SeedableRandomState>;

/// Returns an empty map for `seed`.
pub fn map<K, V>(seed: u64) -> Map<K, V> {
    Map::with_hasher(SeedableRandomState::with_seed(
        seed,
        SharedSeed::global_fixed(),
    ))
}
