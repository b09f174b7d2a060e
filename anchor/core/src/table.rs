//! Hash tables for keys that a stranger may choose: seeded by the owner (so that nobody can aim
//! for one bucket, and a simulation repeats), never walked in map order where order shows.

use std::hash::{BuildHasher, Hash};

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

/// A hash map whose hasher is seeded by the owner.
pub type Map<K, V> = hashbrown::HashMap<K, V, SeedableRandomState>;

/// Returns an empty map for `seed`.
pub fn map<K, V>(seed: u64) -> Map<K, V> {
    Map::with_hasher(state(seed))
}

fn state(seed: u64) -> SeedableRandomState {
    SeedableRandomState::with_seed(seed, SharedSeed::global_fixed())
}

/// Finds places in a slab of at most a fixed number by a key that stands in the slab.
///
/// Made for tables of a million entries, in which whatever a lookup touches is out of the cache:
/// a word holds hash and place side by side, so that the way to an entry is one miss here and the
/// entry itself (`hashbrown` adds one for its control bytes). All words are set aside at once and
/// become resident as they are used: nothing ever grows, which would keep packets waiting for as
/// long as it takes to hash all keys anew. 16 to 32 bytes for each entry of the limit.
#[derive(Debug)]
pub(crate) struct Index {
    /// Linear probing; 0 is empty, else the hash above, one more than the place below.
    words: Vec<u64>,
    state: SeedableRandomState,
    len: usize,
}

impl Index {
    /// Returns an empty index for at most `limit` entries; `seed` seeds its hashing.
    pub(crate) fn new(limit: usize, seed: u64) -> Self {
        // At most half full: then nine lookups of ten end in the cache line they start in.
        let words = (limit.max(1) * 2).next_power_of_two();
        Self {
            words: vec![0; words],
            state: state(seed),
            len: 0,
        }
    }

    /// Adds an entry that is not there yet, while there are fewer than the limit; `hash` is
    /// [`Self::hash`] of its key, here and below.
    pub(crate) fn insert(&mut self, hash: u32, place: u32) {
        let mut at = self.home(hash);
        while self.words[at] != 0 {
            at = self.next(at);
        }
        self.words[at] = word_of(hash, place);
        self.len += 1;
    }

    /// Removes the entry at `place`.
    pub(crate) fn remove(&mut self, hash: u32, place: u32) {
        let word = word_of(hash, place);
        let mut at = self.home(hash);
        while self.words[at] != word {
            if self.words[at] == 0 {
                return;
            }
            at = self.next(at);
        }
        self.len -= 1;
        self.close(at);
    }

    /// Returns the hash under which an entry with this key stands.
    #[inline]
    pub(crate) fn hash(&self, key: &impl Hash) -> u32 {
        (self.state.hash_one(key) >> 32) as u32
    }

    /// Returns the place that [`Self::find`] looks at first, if its hash is this one: mostly the
    /// one sought. One load, for those who want to know early what is worth fetching.
    #[inline]
    pub(crate) fn guess(&self, hash: u32) -> Option<u32> {
        let word = self.words[self.home(hash)];
        (word != 0 && hash_of(word) == hash).then(|| place_of(word))
    }

    /// Returns the place for which `is_it` holds among those whose hash this is.
    #[inline]
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let word = self.words[at];
            if word == 0 {
                return None;
            }
            if hash_of(word) == hash && is_it(place_of(word)) {
                return Some(place_of(word));
            }
            at = self.next(at);
        }
    }

    /// Returns how many entries there are.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Empties the word at `gap` and moves those up that could not be found behind it.
    fn close(&mut self, mut gap: usize) {
        let mask = self.words.len() - 1;
        let mut at = self.next(gap);
        while self.words[at] != 0 {
            let home = self.home(hash_of(self.words[at]));
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.words[gap] = self.words[at];
                gap = at;
            }
            at = self.next(at);
        }
        self.words[gap] = 0;
    }

    const fn home(&self, hash: u32) -> usize {
        hash as usize & (self.words.len() - 1)
    }

    const fn next(&self, at: usize) -> usize {
        (at + 1) & (self.words.len() - 1)
    }
}

const fn word_of(hash: u32, place: u32) -> u64 {
    (hash as u64) << 32 | (place as u64 + 1)
}

const fn place_of(word: u64) -> u32 {
    (word as u32).wrapping_sub(1)
}

const fn hash_of(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_index_agrees_with_a_plain_map(
            seed in any::<u64>(),
            hashes in 1_u16..=40,
            steps in proptest::collection::vec((any::<bool>(), 0_u16..40), 1..400)
        ) {
            const LIMIT: usize = 16;
            let mut index = Index::new(LIMIT, seed);
            let mut model = BTreeMap::new();
            let mut places: Vec<u16> = Vec::new();
            // Few hashes for many keys: whoever shares one must still be told apart.
            let hash = |index: &Index, key: u16| index.hash(&(key % hashes));
            for (is_added, key) in steps {
                match (is_added, model.get(&key).copied()) {
                    (true, None) if model.len() < LIMIT => {
                        let place = places.len() as u32;
                        places.push(key);
                        index.insert(hash(&index, key), place);
                        model.insert(key, place);
                    }
                    (false, Some(place)) => {
                        index.remove(hash(&index, key), place);
                        model.remove(&key);
                    }
                    (true, _) | (false, None) => {}
                }
                prop_assert_eq!(index.len(), model.len());
                for key in 0..40_u16 {
                    let hash_of_key = hash(&index, key);
                    let found = index.find(hash_of_key, |place| places[place as usize] == key);
                    prop_assert_eq!(found, model.get(&key).copied());
                    if let Some(place) = index.guess(hash_of_key) {
                        let guessed = places[place as usize];
                        prop_assert_eq!(hash(&index, guessed), hash_of_key);
                        prop_assert_eq!(model.get(&guessed), Some(&place));
                    }
                }
            }
        }
    }
}
