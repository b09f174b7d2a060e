//! The flow table: flow -> holder, idleness, order of idleness, and which flows rest on a holder.
//!
//! A flow is all traffic from one client host to one destination address (SPEC section 2). This
//! module remembers; it does not choose, does not know who answers, and never resets anything:
//! that is `choose`, `liveness` and `connections`, brought together by `plane`.
//!
//! Size: a flow takes [`FLOW_BYTES`] plus about 6 bytes of index. At [`Flows::new`]'s cap the
//! longest idle flow goes. Idleness runs on [`Boot`], so a suspend counts.

mod list;

use std::net::IpAddr;
use std::time::Duration;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

use crate::ids::{FlowId, Host, PeerIx};
use crate::reason::Reason;
use crate::table::{Map, map};
use crate::time::Boot;
use list::{Ends, Links, NONE};

/// A flow without traffic in either direction for this long is drawn anew (SPEC section 4).
pub const IDLE_AFTER: Duration = Duration::from_secs(15 * 60);

/// Bytes of one flow in the table.
pub const FLOW_BYTES: usize = size_of::<Slot>();

/// The order of idleness is kept to this grain: a busy flow is not moved up for each packet.
const ORDER_GRAIN: Duration = Duration::from_secs(1);

/// What makes a flow: the client host and the destination address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    /// Who talks.
    pub host: Host,
    /// To which address; always the IPv4 spelling where there are two.
    pub destination: IpAddr,
}

/// Packets and bytes in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Volume {
    /// IP packets; a super-packet counts as one.
    pub packets: u64,
    /// IP bytes.
    pub bytes: u64,
}

impl Volume {
    /// Adds one packet of `bytes` bytes.
    pub const fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// One flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Who and where to.
    pub key: FlowKey,
    /// Length of the network's prefix that was matched, 0 to 128.
    pub prefix_len: u8,
    /// Why it is on its holder.
    pub reason: Reason,
    /// Its holder; `None` when no holder is left.
    pub holder: Option<PeerIx>,
    /// When this holder was chosen.
    pub since: Boot,
    /// Last packet in either direction.
    pub last: Boot,
    /// From the client host.
    pub sent: Volume,
    /// To the client host.
    pub received: Volume,
}

#[derive(Clone, Debug)]
struct Slot {
    flow: Flow,
    /// Place in the order of idleness.
    order: Links,
    /// Place among the flows of the same holder.
    sibling: Links,
    /// In the parked order: idle for 15 minutes, kept for its open connections.
    parked: bool,
    /// The owner's mark: counted among its holder's flows with open connections.
    watched: bool,
    used: bool,
}

/// The table.
pub struct Flows {
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: SeedableRandomState,
    cap: usize,
    order: Ends,
    parked: Ends,
    holders: Map<PeerIx, Ends>,
}

impl std::fmt::Debug for Flows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Flows({} of at most {})", self.len(), self.cap)
    }
}

impl Flows {
    /// Returns an empty table for at most `cap` flows (at least 1); `seed` seeds its hashing.
    pub fn new(cap: usize, seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            cap: cap.max(1),
            order: Ends::EMPTY,
            parked: Ends::EMPTY,
            holders: map(seed ^ 1),
        }
    }

    /// Adds a flow. `key` must not be in the table; when the table is full, remove
    /// [`Self::longest_idle`] first (see [`Self::is_full`]).
    pub fn insert(
        &mut self,
        now: Boot,
        key: FlowKey,
        prefix_len: u8,
        holder: Option<PeerIx>,
        reason: Reason,
    ) -> FlowId {
        debug_assert!(self.find(&key).is_none(), "one entry per flow");
        let flow = Flow {
            key,
            prefix_len,
            reason,
            holder: None,
            since: now,
            last: now,
            sent: Volume::default(),
            received: Volume::default(),
        };
        let slot = Slot {
            flow,
            order: Links::FREE,
            sibling: Links::FREE,
            parked: false,
            watched: false,
            used: true,
        };
        let at = if let Some(at) = self.free.pop() {
            self.slots[at as usize] = slot;
            at
        } else {
            self.slots.push(slot);
            u32::try_from(self.slots.len() - 1).expect("the cap keeps slots below 2^32")
        };
        let hash = self.hasher.hash_one(key);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.index.insert_unique(hash, at, |&other| {
            hasher.hash_one(slots[other as usize].flow.key)
        });
        list::push_front(&mut self.order, &mut self.slots, at, order);
        let id = FlowId(at);
        self.set_holder(now, id, holder, reason);
        id
    }

    /// Removes a flow and returns it.
    pub fn remove(&mut self, id: FlowId) -> Option<Flow> {
        let flow = *self.get(id)?;
        self.unlink_holder(id);
        let parked = self.slots[id.0 as usize].parked;
        let ends = if parked {
            &mut self.parked
        } else {
            &mut self.order
        };
        list::unlink(ends, &mut self.slots, id.0, order);
        let hash = self.hasher.hash_one(flow.key);
        if let Ok(entry) = self.index.find_entry(hash, |&at| at == id.0) {
            entry.remove();
        }
        self.slots[id.0 as usize].used = false;
        self.free.push(id.0);
        Some(flow)
    }

    /// Puts a flow on `holder`, or on none.
    pub fn set_holder(&mut self, now: Boot, id: FlowId, holder: Option<PeerIx>, reason: Reason) {
        self.unlink_holder(id);
        let Some(slot) = self.slots.get_mut(id.0 as usize).filter(|slot| slot.used) else {
            return;
        };
        slot.flow.holder = holder;
        slot.flow.reason = reason;
        slot.flow.since = now;
        if let Some(holder) = holder {
            let ends = self.holders.entry(holder).or_insert(Ends::EMPTY);
            list::push_front(ends, &mut self.slots, id.0, sibling);
        }
    }

    /// Notes a packet of `bytes` bytes; `outbound` is from the client host.
    pub fn note(&mut self, now: Boot, id: FlowId, bytes: usize, direction: Direction) {
        let Some(slot) = self.slots.get_mut(id.0 as usize).filter(|slot| slot.used) else {
            return;
        };
        match direction {
            Direction::FromHost => slot.flow.sent.add(bytes),
            Direction::ToHost => slot.flow.received.add(bytes),
        }
        self.touch(now, id);
    }

    /// Ends a flow's idleness.
    pub fn touch(&mut self, now: Boot, id: FlowId) {
        let Some(slot) = self.slots.get_mut(id.0 as usize).filter(|slot| slot.used) else {
            return;
        };
        let late = now.since(slot.flow.last) >= ORDER_GRAIN || slot.parked;
        if late {
            slot.flow.last = now;
            let ends = if slot.parked {
                &mut self.parked
            } else {
                &mut self.order
            };
            slot.parked = false;
            list::unlink(ends, &mut self.slots, id.0, order);
            list::push_front(&mut self.order, &mut self.slots, id.0, order);
        }
    }

    /// Notes that a flow was drawn anew and stays where it is.
    pub fn set_reason(&mut self, now: Boot, id: FlowId, reason: Reason) {
        if let Some(slot) = self.slots.get_mut(id.0 as usize).filter(|slot| slot.used) {
            slot.flow.reason = reason;
            slot.flow.since = now;
        }
    }

    /// Notes by which prefix a flow's destination is found.
    pub fn set_prefix_len(&mut self, id: FlowId, prefix_len: u8) {
        if let Some(slot) = self.slots.get_mut(id.0 as usize).filter(|slot| slot.used) {
            slot.flow.prefix_len = prefix_len;
        }
    }

    /// Sets the owner's mark on a flow; returns what it was.
    pub fn set_watched(&mut self, id: FlowId, watched: bool) -> bool {
        let slot = self.slots.get_mut(id.0 as usize).filter(|slot| slot.used);
        slot.is_some_and(|slot| std::mem::replace(&mut slot.watched, watched))
    }

    /// Returns the owner's mark on a flow.
    #[cfg(test)]
    pub(crate) fn is_watched(&self, id: FlowId) -> bool {
        self.slots
            .get(id.0 as usize)
            .is_some_and(|slot| slot.used && slot.watched)
    }

    /// Sets an idle flow aside: kept for its open connections, out of the order of idleness until
    /// its next packet.
    pub fn park(&mut self, id: FlowId) {
        if self
            .slots
            .get(id.0 as usize)
            .is_some_and(|slot| slot.used && !slot.parked)
        {
            list::unlink(&mut self.order, &mut self.slots, id.0, order);
            self.slots[id.0 as usize].parked = true;
            list::push_front(&mut self.parked, &mut self.slots, id.0, order);
        }
    }

    /// Returns the flow with this key.
    pub fn find(&self, key: &FlowKey) -> Option<FlowId> {
        let hash = self.hasher.hash_one(key);
        self.index
            .find(hash, |&at| self.slots[at as usize].flow.key == *key)
            .map(|&at| FlowId(at))
    }

    /// Returns a flow.
    pub fn get(&self, id: FlowId) -> Option<&Flow> {
        self.slots
            .get(id.0 as usize)
            .filter(|slot| slot.used)
            .map(|slot| &slot.flow)
    }

    /// Returns the flow that has been without a packet for longest, parked ones last.
    pub fn longest_idle(&self) -> Option<FlowId> {
        self.order.last().or_else(|| self.parked.last()).map(FlowId)
    }

    /// Returns the parked flow that has been without a packet for longest.
    pub fn longest_parked(&self) -> Option<FlowId> {
        self.parked.last().map(FlowId)
    }

    /// Returns the unparked flow that has been without a packet for longest.
    pub fn longest_unparked(&self) -> Option<FlowId> {
        self.order.last().map(FlowId)
    }

    /// Says whether another flow needs a place first.
    pub fn is_full(&self) -> bool {
        self.len() >= self.cap
    }

    /// Returns the number of flows.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Says whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Walks all flows, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (FlowId, &Flow)> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.used)
            .map(|(at, slot)| {
                (
                    FlowId(u32::try_from(at).expect("the cap keeps slots below 2^32")),
                    &slot.flow,
                )
            })
    }

    /// Returns the first flow on `holder`; the others follow by [`Self::next_on_holder`].
    pub fn first_on_holder(&self, holder: PeerIx) -> Option<FlowId> {
        self.holders.get(&holder).and_then(Ends::first).map(FlowId)
    }

    /// Returns the flow after `id` on the same holder. Read it before `id` is moved or removed.
    pub fn next_on_holder(&self, id: FlowId) -> Option<FlowId> {
        let next = self.slots.get(id.0 as usize)?.sibling.next;
        (next != NONE).then_some(FlowId(next))
    }

    /// Returns the holders that have flows, sorted.
    pub fn holders(&self) -> Vec<PeerIx> {
        let mut holders: Vec<_> = self.holders.keys().copied().collect();
        holders.sort_unstable();
        holders
    }

    fn unlink_holder(&mut self, id: FlowId) {
        let Some(slot) = self.slots.get_mut(id.0 as usize) else {
            return;
        };
        let Some(holder) = slot.flow.holder.take() else {
            return;
        };
        let Some(ends) = self.holders.get_mut(&holder) else {
            return;
        };
        list::unlink(ends, &mut self.slots, id.0, sibling);
        if ends.first().is_none() {
            self.holders.remove(&holder);
        }
    }
}

/// Which way a packet went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the client host to the holder.
    FromHost,
    /// From the holder to the client host.
    ToHost,
}

const fn order(slot: &mut Slot) -> &mut Links {
    &mut slot.order
}

const fn sibling(slot: &mut Slot) -> &mut Links {
    &mut slot.sibling
}

#[cfg(test)]
mod tests;
