//! The addresses under which clients appear on a holder: each (peer, source host) has one of its
//! own in the client range, and no client is ever seen by its own IPv4 (SPEC section 3). The
//! data thread asks for every packet in either direction; the control loop saves and restores
//! the table as [`Lease`]s.
//!
//! * The address follows from a hash of the peer's key and the host, by linear probing: the same
//!   client usually has the same address on every holder, and after the table was lost.
//! * A mapping lives on while there is room. When the pool is full, the one idle for longest is
//!   reclaimed, if it has been idle for [`REUSE_IDLE`]; else the packet finds no address.
//! * One peer fills at most one [`PEER_PART`]th of the pool; at that bound it reclaims only from its
//!   own mappings.
//!
//! Limits: at most [`MAX_CLIENTS`] mappings of 56 bytes and two index entries (about 70 bytes) each,
//! 17 MB when full, and one bit per address of the range. Touching a mapping is O(1) and
//! allocates nothing.

mod lists;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use conflux_proto::id::AnchorKey;
use ipnet::Ipv4Net;
use sha2::{Digest, Sha256};

use self::lists::{Links, List};
use crate::ids::PeerIx;
use crate::table::{self, Map};
use crate::time::Boot;

/// How long a mapping must have been idle before its address may go to another client: longer
/// than the 15 minutes after which a flow's holder is drawn anew, so that an answer never
/// reaches another than the one who asked.
pub const REUSE_IDLE: Duration = Duration::from_secs(16 * 60);

/// The part of the pool that one peer may fill: an eighth.
pub const PEER_PART: usize = 8;

/// The most mappings, whatever the range: the addresses of a /15.
pub const MAX_CLIENTS: usize = (1 << 17) - 2;

/// The precision of `last_used`: a mapping is moved to the young end of its lists at most this
/// often, and reclaimed only when idle for this much longer.
const TOUCH_STEP: Duration = Duration::from_secs(1);

/// No address is left for a new client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PoolFull {
    /// The peer has as many mappings as one peer may have, and none of them is idle.
    #[error("the peer fills its part of the client range")]
    OfPeer,
    /// No mapping of anybody is idle.
    #[error("the client range is full")]
    OfAll,
}

/// A mapping as it is saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The peer's identity.
    pub key: AnchorKey,
    /// The client host behind that peer, by its source address on the wire.
    pub host: IpAddr,
    /// The address it has here.
    pub address: Ipv4Addr,
    /// The time of its last packet, to a second. Means nothing after the machine has booted
    /// anew: whoever restores a lease then says `now` instead.
    pub last_used: Boot,
}

/// All mappings of this holder.
#[derive(Debug)]
pub struct Clients {
    range: Ipv4Net,
    /// Mappings at most.
    capacity: usize,
    /// A bit for each usable address, those between the range's first and last; set when taken.
    taken: Vec<u64>,
    /// Grows to the capacity and never shrinks: a reclaimed mapping's place is used again at once.
    entries: Vec<Entry>,
    by_host: Map<(PeerIx, IpAddr), u32>,
    /// From an address, counted from the first usable one, to its entry.
    by_address: Map<u32, u32>,
    peers: Map<PeerIx, PeerPart>,
    /// Every entry, the one idle for longest first.
    by_age: List,
    revision: u64,
}

#[derive(Debug)]
struct Entry {
    last_used: Boot,
    host: IpAddr,
    peer: PeerIx,
    /// The address, counted from the first usable one.
    offset: u32,
    of_all: Links,
    of_peer: Links,
}

const _: () = assert!(size_of::<Entry>() == 56, "the module doc states the size");

/// The mappings of one peer.
#[derive(Debug)]
struct PeerPart {
    key: AnchorKey,
    count: usize,
    by_age: List,
}

impl Clients {
    /// Returns an empty table that gives out the addresses of `range`, its first and last
    /// excepted. `seed` is for the indexes only; addresses do not depend on it.
    pub fn new(range: Ipv4Net, seed: u64) -> Self {
        let range = range.trunc();
        let usable = (1_usize << (32 - range.prefix_len())).saturating_sub(2);
        let mut taken = vec![0; usable.div_ceil(64)];
        if let Some(last) = taken.last_mut()
            && !usable.is_multiple_of(64)
        {
            *last = u64::MAX << (usable % 64);
        }
        Self {
            range,
            capacity: usable.min(MAX_CLIENTS),
            taken,
            entries: Vec::new(),
            by_host: table::map(seed),
            by_address: table::map(seed),
            peers: table::map(seed),
            by_age: List::EMPTY,
            revision: 0,
        }
    }

    /// Returns the address of `host` behind `peer`, a new one when it has none, and notes that it
    /// is in use.
    ///
    /// # Errors
    ///
    /// [`PoolFull`] when a new client finds no address; nothing has changed then.
    pub fn assign(
        &mut self,
        now: Boot,
        peer: PeerIx,
        peer_key: &AnchorKey,
        host: IpAddr,
    ) -> Result<Ipv4Addr, PoolFull> {
        if let Some(&place) = self.by_host.get(&(peer, host)) {
            self.touch(now, place);
            return Ok(self.address(self.entries[place as usize].offset));
        }
        let part = self.peers.get(&peer);
        let vacated = if part.is_some_and(|part| part.count >= self.peer_capacity()) {
            let oldest = part.and_then(|part| part.by_age.oldest());
            Some(self.reclaim(now, oldest).ok_or(PoolFull::OfPeer)?)
        } else if self.entries.len() >= self.capacity {
            Some(
                self.reclaim(now, self.by_age.oldest())
                    .ok_or(PoolFull::OfAll)?,
            )
        } else {
            None
        };
        let offset = self.probe(peer_key, host).ok_or(PoolFull::OfAll)?;
        let place = self.place(vacated, Entry::new(now, peer, host, offset));
        let part = self
            .peers
            .entry(peer)
            .or_insert_with(|| PeerPart::new(*peer_key));
        part.count += 1;
        part.by_age
            .push_youngest(&mut self.entries, Entry::of_peer, place);
        self.by_age
            .push_youngest(&mut self.entries, Entry::of_all, place);
        Ok(self.address(offset))
    }

    /// Returns the address that `host` behind `peer` has.
    pub fn find(&self, peer: PeerIx, host: IpAddr) -> Option<Ipv4Addr> {
        let &place = self.by_host.get(&(peer, host))?;
        Some(self.address(self.entries[place as usize].offset))
    }

    /// Returns whose address `address` is, and notes that it is in use.
    pub fn resolve(&mut self, now: Boot, address: Ipv4Addr) -> Option<(PeerIx, IpAddr)> {
        let place = *self.by_address.get(&self.offset(address)?)?;
        self.touch(now, place);
        let entry = &self.entries[place as usize];
        Some((entry.peer, entry.host))
    }

    /// Restores saved mappings into a new table, each under the number its key has in this
    /// process, and returns how many. Those that do not fit (another range, a host or an address
    /// that is there already, beyond a limit) are left out. A `last_used` in the future counts as
    /// `now`.
    pub fn import(
        &mut self,
        now: Boot,
        leases: impl IntoIterator<Item = (PeerIx, Lease)>,
    ) -> usize {
        let mut leases: Vec<_> = leases.into_iter().collect();
        // Youngest first, each to the old end: the lists end up sorted, and when not all fit it
        // is the oldest that stay out. Equal ages are told apart by address, for a stable result.
        leases
            .sort_by_key(|(_, lease)| (std::cmp::Reverse(lease.last_used.min(now)), lease.address));
        leases
            .into_iter()
            .filter(|(peer, lease)| self.restore(now, *peer, lease))
            .count()
    }

    /// Returns whose address `address` is, without noting any use.
    pub fn peek(&self, address: Ipv4Addr) -> Option<(PeerIx, IpAddr)> {
        let place = *self.by_address.get(&self.offset(address)?)?;
        let entry = &self.entries[place as usize];
        Some((entry.peer, entry.host))
    }

    /// Returns the range the addresses are taken from.
    pub fn range(&self) -> Ipv4Net {
        self.range
    }

    /// Returns the number of mappings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no mapping.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the mappings at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the mappings that one peer may have.
    pub fn peer_capacity(&self) -> usize {
        (self.capacity / PEER_PART).max(1)
    }

    /// Returns a number that grows whenever a mapping is made or given up, so that the owner knows
    /// when there is something to save.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns every peer that has a mapping, with the time since the last packet of any of its
    /// clients, to a second; sorted by number.
    pub fn idle_by_peer(&self, now: Boot) -> Vec<(PeerIx, Duration)> {
        let mut idle: Vec<(PeerIx, Duration)> = self
            .peers
            .iter()
            .filter_map(|(&peer, part)| {
                let youngest = part.by_age.youngest()?;
                let used = self.entries[youngest as usize].last_used;
                Some((peer, now.since(used)))
            })
            .collect();
        idle.sort_unstable();
        idle
    }

    /// Returns all mappings, the one idle for longest first.
    pub fn export(&self) -> Vec<Lease> {
        let mut leases = Vec::with_capacity(self.entries.len());
        let mut next = self.by_age.oldest();
        while let Some(place) = next {
            let entry = &self.entries[place as usize];
            if let Some(part) = self.peers.get(&entry.peer) {
                leases.push(Lease {
                    key: part.key,
                    host: entry.host,
                    address: self.address(entry.offset),
                    last_used: entry.last_used,
                });
            }
            next = entry.of_all.younger();
        }
        leases
    }

    fn touch(&mut self, now: Boot, place: u32) {
        let entry = &mut self.entries[place as usize];
        if now.since(entry.last_used) < TOUCH_STEP {
            return;
        }
        entry.last_used = now;
        let peer = entry.peer;
        self.by_age.unlink(&mut self.entries, Entry::of_all, place);
        self.by_age
            .push_youngest(&mut self.entries, Entry::of_all, place);
        if let Some(part) = self.peers.get_mut(&peer) {
            part.by_age.unlink(&mut self.entries, Entry::of_peer, place);
            part.by_age
                .push_youngest(&mut self.entries, Entry::of_peer, place);
        }
    }

    /// Gives up the mapping at `oldest` if it has been idle for long enough, and returns its place.
    fn reclaim(&mut self, now: Boot, oldest: Option<u32>) -> Option<u32> {
        let place = oldest?;
        let entry = &self.entries[place as usize];
        if now.since(entry.last_used) < REUSE_IDLE + TOUCH_STEP {
            return None;
        }
        let (peer, host, offset) = (entry.peer, entry.host, entry.offset);
        self.by_host.remove(&(peer, host));
        self.by_address.remove(&offset);
        self.taken[offset as usize / 64] &= !(1 << (offset % 64));
        self.by_age.unlink(&mut self.entries, Entry::of_all, place);
        if let Some(part) = self.peers.get_mut(&peer) {
            part.by_age.unlink(&mut self.entries, Entry::of_peer, place);
            part.count -= 1;
            if part.count == 0 {
                self.peers.remove(&peer);
            }
        }
        self.revision += 1;
        Some(place)
    }

    /// Puts `entry` into `vacated` or a new place and into both indexes; the lists are the
    /// caller's.
    fn place(&mut self, vacated: Option<u32>, entry: Entry) -> u32 {
        let place = vacated.unwrap_or(self.entries.len() as u32);
        self.by_host.insert((entry.peer, entry.host), place);
        self.by_address.insert(entry.offset, place);
        self.taken[entry.offset as usize / 64] |= 1 << (entry.offset % 64);
        match self.entries.get_mut(place as usize) {
            Some(vacant) => *vacant = entry,
            None => self.entries.push(entry),
        }
        self.revision += 1;
        place
    }

    fn restore(&mut self, now: Boot, peer: PeerIx, lease: &Lease) -> bool {
        let Some(offset) = self.offset(lease.address) else {
            return false;
        };
        let count = self.peers.get(&peer).map_or(0, |part| part.count);
        if self.by_address.contains_key(&offset)
            || self.by_host.contains_key(&(peer, lease.host))
            || self.entries.len() >= self.capacity
            || count >= self.peer_capacity()
        {
            return false;
        }
        let entry = Entry::new(lease.last_used.min(now), peer, lease.host, offset);
        let place = self.place(None, entry);
        let part = self
            .peers
            .entry(peer)
            .or_insert_with(|| PeerPart::new(lease.key));
        part.count += 1;
        part.by_age
            .push_oldest(&mut self.entries, Entry::of_peer, place);
        self.by_age
            .push_oldest(&mut self.entries, Entry::of_all, place);
        true
    }

    /// Returns the first free address from the hash of the client on, 64 at a step.
    fn probe(&self, key: &AnchorKey, host: IpAddr) -> Option<u32> {
        let words = self.taken.len();
        let usable = (1_u64 << (32 - self.range.prefix_len())).checked_sub(2)?;
        let start = first_choice(key, host).checked_rem(usable)? as usize;
        // Once around: the first word is looked at from `start` on, and again at the end for
        // what lies before.
        (0..=words).find_map(|step| {
            let word = (start / 64 + step) % words;
            let skipped = if step == 0 {
                !(u64::MAX << (start % 64))
            } else {
                0
            };
            let free = !(self.taken[word] | skipped);
            (free != 0).then(|| (word * 64) as u32 + free.trailing_zeros())
        })
    }

    fn address(&self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.range.network().to_bits() + 1 + offset)
    }

    /// Returns the offset of `address` when it is one that may be given out.
    fn offset(&self, address: Ipv4Addr) -> Option<u32> {
        let first = self.range.network().to_bits() + 1;
        let offset = address.to_bits().checked_sub(first)?;
        (address < self.range.broadcast()).then_some(offset)
    }
}

impl Entry {
    fn new(last_used: Boot, peer: PeerIx, host: IpAddr, offset: u32) -> Self {
        Self {
            last_used,
            host,
            peer,
            offset,
            of_all: Links::NONE,
            of_peer: Links::NONE,
        }
    }

    fn of_all(&mut self) -> &mut Links {
        &mut self.of_all
    }

    fn of_peer(&mut self) -> &mut Links {
        &mut self.of_peer
    }
}

impl PeerPart {
    fn new(key: AnchorKey) -> Self {
        Self {
            key,
            count: 0,
            by_age: List::EMPTY,
        }
    }
}

/// Returns the number that a client's first choice of address follows from.
fn first_choice(key: &AnchorKey, host: IpAddr) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(b"conflux client address 1");
    hasher.update(key.0);
    match host {
        IpAddr::V4(host) => hasher.update(host.octets()),
        IpAddr::V6(host) => hasher.update(host.octets()),
    }
    let digest: [u8; 32] = hasher.finalize().into();
    digest[..8]
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests;
