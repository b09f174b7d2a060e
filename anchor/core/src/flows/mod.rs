//! The flow table: flow -> holder, idleness, order of idleness, and which flows rest on a holder.
//!
//! A flow is all traffic from one client host to one destination address (SPEC section 2). This
//! module remembers; it does not choose, does not know who answers, and never resets anything:
//! that is `choose`, `liveness` and `connections`, brought together by `plane`.
//!
//! Size: a flow takes [`FLOW_BYTES`] plus 16 bytes of index. At [`Flows::new`]'s cap the longest
//! idle flow goes. Idleness runs on [`Boot`], so a suspend counts.
//!
//! Speed: among a million flows everything a packet touches is out of the cache, so it touches
//! little: one place of the index and the two cache lines of its flow. The hash that the index
//! goes by is given out as a [`FlowTag`], so that others need not wait for the flow to be found.
//! Room for the cap is set aside at once, though not made resident: a table that grew would hash
//! a million flows anew, 100 ms during which no packet passes.

mod list;

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use crate::ids::{FlowId, FlowTag, Host, PeerIx};
use crate::reason::Reason;
use crate::table::{Index, Map, map};
use crate::time::Boot;
use list::{Ends, Links, NONE};

/// A flow without traffic in either direction for this long is drawn anew (SPEC section 4).
pub const IDLE_AFTER: Duration = Duration::from_secs(15 * 60);

/// Bytes of one flow in the table.
pub const FLOW_BYTES: usize = size_of::<Slot>();

/// The order of idleness is kept to this grain: moving a flow up touches two other flows, twice
/// the cache misses of a packet. Flows are dropped in that order, so at most this much late, or
/// when the table is full while another one was idle this much longer; [`Flow::last`] is exact.
const ORDER_GRAIN: Duration = Duration::from_secs(30);

/// What makes a flow: the client host and the destination address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowKey {
    /// Who talks.
    pub host: Host,
    /// To which address; always the IPv4 spelling where there are two.
    pub destination: IpAddr,
}

/// Two numbers, where a derived hash takes in four variants and two lengths, at every packet. An
/// IPv4 address counts as the IPv6 one of the same bits, and [`Host::Own`] as the address of zeros:
/// no more than six keys can be made to share a hash by that.
impl Hash for FlowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let host = match self.host {
            Host::Own => 0,
            Host::Behind(address) => bits(address),
        };
        state.write_u128(host);
        state.write_u128(bits(self.destination));
    }
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

/// One flow and its places; aligned, so that it fills two cache lines and never touches three.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Slot {
    flow: Flow,
    /// When the flow was last put in front of the order of idleness.
    placed: Boot,
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

const _: () = assert!(FLOW_BYTES == 128, "the stated memory per flow");

/// The table.
pub struct Flows {
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: Index,
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
        let cap = cap.max(1);
        Self {
            slots: Vec::with_capacity(cap),
            free: Vec::new(),
            index: Index::new(cap, seed),
            cap,
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
            placed: now,
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
        self.index.insert(self.index.hash(&key), at);
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
        self.index.remove(self.index.hash(&flow.key), id.0);
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
        slot.flow.last = now;
        if slot.parked || now.since(slot.placed) >= ORDER_GRAIN {
            slot.placed = now;
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

    /// Returns the tag of the flow that has, or would have, this key.
    pub fn tag(&self, key: &FlowKey) -> FlowTag {
        FlowTag(self.index.hash(key))
    }

    /// Returns the flow with this key.
    pub fn find(&self, key: &FlowKey) -> Option<FlowId> {
        self.find_tagged(self.tag(key), key)
    }

    /// Returns the flow with this key, whose tag is known already.
    pub fn find_tagged(&self, tag: FlowTag, key: &FlowKey) -> Option<FlowId> {
        self.index
            .find(tag.0, |at| self.slots[at as usize].flow.key == *key)
            .map(FlowId)
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
        self.len() == 0
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

const fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits() as u128,
        IpAddr::V6(address) => address.to_bits(),
    }
}

const fn order(slot: &mut Slot) -> &mut Links {
    &mut slot.order
}

const fn sibling(slot: &mut Slot) -> &mut Links {
    &mut slot.sibling
}

#[cfg(test)]
mod tests;
