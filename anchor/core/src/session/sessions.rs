//! All data keys of this anchor: receiver index -> keys, peer -> the keys to send under.
//!
//! A peer has at most [`PAIRS`] pairs. A new pair is used for receiving at once and for sending
//! as soon as the peer is known to have it: at once for the initiator of its handshake, at the
//! first authentic frame for the responder. Older pairs stay for receiving, so that frames under
//! way during a rotation are not lost.

use std::time::Duration;

use conflux_proto::frame::{Flags, FrameType, HEADER_BYTES, Header};
use smallvec::SmallVec;

use super::keys::{MAX_FRAME_OVERHEAD, Pair};
use super::noise::SessionKeys;
use crate::ids::PeerIx;
use crate::table::{Map, map};
use crate::time::Mono;

/// Pairs kept per peer: the one in use, the one before it, and two that crossed on the way.
const PAIRS: usize = 4;

/// Age at which keys are to be replaced (SPEC section 7).
const ROTATE_AFTER: Duration = Duration::from_secs(120);
/// Frames after which keys are to be replaced (SPEC section 7; RFC 9001 B.1 for AES-GCM).
const ROTATE_AFTER_FRAMES: u64 = 1 << 28;
/// Frames after which nothing is sealed any more under one key, should rotation not come about.
const FRAMES_LIMIT: u64 = 1 << 30;

/// Why a frame was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenFailed {
    /// Too short, or no header of ours.
    #[error("malformed frame")]
    Malformed,
    /// No session has this receiver index.
    #[error("unknown receiver index")]
    UnknownIndex,
    /// The counter was seen before or lies behind the window.
    #[error("replayed frame")]
    Replayed,
    /// The tag does not fit.
    #[error("frame does not authenticate")]
    NotAuthentic,
}

/// An authentic frame.
#[derive(Debug)]
pub struct Opened<'a> {
    /// Who sent it.
    pub peer: PeerIx,
    /// Its header.
    pub header: Header,
    /// What it carried, in place.
    pub plaintext: &'a mut [u8],
    /// The first frame under a key of a new handshake: the peer has the new keys now.
    pub confirms: bool,
}

/// A position among the DATA frames sent to one peer: greater is later, across rotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SentAt {
    /// Grows with each pair of keys.
    pub generation: u32,
    /// The frame's counter under that pair.
    pub counter: u64,
}

/// What a keepalive reports: the highest DATA counter received, under which of our indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Our receiver index.
    pub index: u32,
    /// Highest DATA counter received under it.
    pub counter: u64,
}

struct Peer {
    /// Places of its pairs, newest first.
    pairs: SmallVec<[usize; PAIRS + 1]>,
    installed: Mono,
    generations: u32,
}

/// The data keys of all peers; a pair takes 2.5 KB, of which 1 KB is its replay window.
pub struct Sessions {
    peers: Map<PeerIx, Peer>,
    /// Receiver index -> place of the pair: all that a received frame has looked up.
    indices: Map<u32, usize>,
    pairs: Vec<Option<Box<Pair>>>,
    free: Vec<usize>,
    /// How often the highest DATA counter of a pair has grown.
    data_order: u64,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sessions({} peers)", self.peers.len())
    }
}

impl Sessions {
    /// Returns an empty table; `seed` seeds its hashing.
    pub fn new(seed: u64) -> Self {
        Self {
            peers: map(seed),
            indices: map(seed ^ 1),
            pairs: Vec::new(),
            free: Vec::new(),
            data_order: 0,
        }
    }

    /// Adds the keys of a finished handshake with `peer`. An index that is in use already is
    /// refused (returns false): the caller picks indices and must pick another.
    pub fn install(&mut self, now: Mono, peer: PeerIx, keys: &SessionKeys) -> bool {
        if self.indices.contains_key(&keys.our_index) {
            return false;
        }
        let entry = self.peers.entry(peer).or_insert_with(|| Peer {
            pairs: SmallVec::new(),
            installed: now,
            generations: 0,
        });
        entry.generations += 1;
        entry.installed = now;
        let pair = Some(Box::new(Pair::new(peer, keys, entry.generations)));
        let place = match self.free.pop() {
            Some(place) => {
                self.pairs[place] = pair;
                place
            }
            None => {
                self.pairs.push(pair);
                self.pairs.len() - 1
            }
        };
        entry.pairs.insert(0, place);
        let pushed_out = (entry.pairs.len() > PAIRS)
            .then(|| entry.pairs.pop())
            .flatten();
        self.indices.insert(keys.our_index, place);
        if let Some(place) = pushed_out {
            self.drop_pair(place);
        }
        true
    }

    /// Forgets all keys of `peer`.
    pub fn remove(&mut self, peer: PeerIx) {
        if let Some(entry) = self.peers.remove(&peer) {
            for place in entry.pairs {
                self.drop_pair(place);
            }
        }
    }

    /// Opens `frame` in place.
    ///
    /// # Errors
    /// [`OpenFailed`]; no state has changed then.
    pub fn open<'a>(&mut self, frame: &'a mut [u8]) -> Result<Opened<'a>, OpenFailed> {
        if frame.len() < MAX_FRAME_OVERHEAD {
            return Err(OpenFailed::Malformed);
        }
        let header = Header::decode(frame).map_err(|_| OpenFailed::Malformed)?;
        let (head, body) = frame
            .split_first_chunk_mut::<HEADER_BYTES>()
            .ok_or(OpenFailed::Malformed)?;
        let pair = self
            .indices
            .get(&header.receiver)
            .and_then(|&place| self.pairs[place].as_deref_mut())
            .ok_or(OpenFailed::UnknownIndex)?;
        if !pair.window.is_new(header.counter) {
            return Err(OpenFailed::Replayed);
        }
        let plaintext = pair
            .open(head, header.counter, body)
            .ok_or(OpenFailed::NotAuthentic)?;
        pair.window.mark(header.counter);
        if header.kind == FrameType::Data && Some(header.counter) > pair.highest_data {
            pair.highest_data = Some(header.counter);
            self.data_order += 1;
            pair.data_order = self.data_order;
        }
        let confirms = !pair.confirmed;
        pair.confirmed = true;
        Ok(Opened {
            peer: pair.peer,
            header,
            plaintext,
            confirms,
        })
    }

    /// Returns what seals frames for `peer`; `None` without usable keys.
    pub fn sealer(&mut self, peer: PeerIx) -> Option<Sealer<'_>> {
        let pairs = &self.pairs;
        let is_confirmed =
            |place: &&usize| pairs[**place].as_ref().is_some_and(|pair| pair.confirmed);
        let place = *self.peers.get(&peer)?.pairs.iter().find(is_confirmed)?;
        let pair = self.pairs[place].as_deref_mut()?;
        (pair.next_counter < FRAMES_LIMIT).then_some(Sealer { pair })
    }

    /// Says whether frames can be sealed for `peer` now.
    pub fn can_send(&self, peer: PeerIx) -> bool {
        self.pairs_of(peer)
            .any(|pair| pair.confirmed && pair.next_counter < FRAMES_LIMIT)
    }

    /// Says whether the keys of `peer` are due for replacement: call it when something is sent,
    /// so that idle sessions cost nothing.
    pub fn wants_rotation(&self, now: Mono, peer: PeerIx) -> bool {
        self.peers
            .get(&peer)
            .is_some_and(|entry| now.since(entry.installed) >= ROTATE_AFTER)
            || self
                .pairs_of(peer)
                .next()
                .is_some_and(|pair| pair.next_counter >= ROTATE_AFTER_FRAMES)
    }

    /// Returns what a keepalive to `peer` reports: under the keys that received data last. These
    /// need not be the newest here: of two handshakes that crossed, each end may have finished
    /// another one last, and the peer sends under those it finished last.
    pub fn received(&self, peer: PeerIx) -> Option<Received> {
        let latest = self.pairs_of(peer).max_by_key(|pair| pair.data_order)?;
        latest.highest_data.map(|counter| Received {
            index: latest.our_index,
            counter,
        })
    }

    /// Translates what `peer` says it received into a position among what we sent; `None` for an
    /// index that is none of the peer's or a counter that was never used.
    pub fn proved(&self, peer: PeerIx, index: u32, counter: u64) -> Option<SentAt> {
        let pair = self.pairs_of(peer).find(|pair| pair.their_index == index)?;
        (counter < pair.next_counter).then_some(SentAt {
            generation: pair.generation,
            counter,
        })
    }

    /// Walks the pairs of `peer`, newest first.
    fn pairs_of(&self, peer: PeerIx) -> impl Iterator<Item = &Pair> {
        let places = self.peers.get(&peer).map_or(&[][..], |entry| &entry.pairs);
        places
            .iter()
            .filter_map(|&place| self.pairs[place].as_deref())
    }

    fn drop_pair(&mut self, place: usize) {
        if let Some(pair) = self.pairs[place].take() {
            self.indices.remove(&pair.our_index);
            self.free.push(place);
        }
    }
}

/// Seals frames for one peer under its newest usable keys.
pub struct Sealer<'a> {
    pair: &'a mut Pair,
}

impl std::fmt::Debug for Sealer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer({:08x})", self.pair.their_index)
    }
}

impl Sealer<'_> {
    /// Seals one frame into `out`; returns its bytes and its position, `None` when `out` is too
    /// small or the key is used up.
    pub fn seal(
        &mut self,
        kind: FrameType,
        flags: Flags,
        plaintext: &[u8],
        out: &mut [u8],
    ) -> Option<(usize, SentAt)> {
        let counter = self.pair.next_counter;
        if counter >= FRAMES_LIMIT {
            return None;
        }
        let header = Header {
            kind,
            flags,
            receiver: self.pair.their_index,
            counter,
        };
        let bytes = self.pair.seal(&header.encode(), counter, plaintext, out)?;
        self.pair.next_counter = counter + 1;
        Some((
            bytes,
            SentAt {
                generation: self.pair.generation,
                counter,
            },
        ))
    }
}
