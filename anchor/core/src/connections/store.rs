//! Holds the entries: a slab with an index by key, a list per flow, and a list per [`Class`] in
//! the order of last use, whose heads are therefore the next to expire. Every operation is O(1)
//! and allocates only where the table grows.

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use super::entry::{Class, Entry, Marks, Seconds, State};
use super::syn::Slot;
use super::{ConnectionKey, OpenChange, WireKey};
use crate::ids::FlowId;
use crate::table::Index;
use crate::time::Boot;

/// How stale an entry's place in its list may be: moving it touches two neighbours, which are out
/// of the cache when there are many. Entries are so removed at most this much late; one that is
/// over counts as gone at once.
const PLACE_EVERY: Duration = Duration::from_secs(30);

/// An entry's place in the slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ix(u32);

impl Ix {
    const NONE: Self = Self(u32::MAX);

    fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }

    fn at(self) -> usize {
        self.0 as usize
    }
}

/// An entry's neighbours in one list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link {
    before: Ix,
    after: Ix,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            before: Ix::NONE,
            after: Ix::NONE,
        }
    }
}

/// What is remembered per flow.
#[derive(Clone, Copy, Debug)]
struct FlowNotes {
    first: Ix,
    open: u32,
    was_open: bool,
    change_waits: bool,
}

impl FlowNotes {
    const NONE: Self = Self {
        first: Ix::NONE,
        open: 0,
        was_open: false,
        change_waits: false,
    };
}

/// The entries and their lists.
#[derive(Debug)]
pub(super) struct Store {
    /// The places of the entries; their keys stand there only. Room for all is set aside at once,
    /// as in `flows` and for its reasons.
    index: Index,
    entries: Vec<Entry>,
    /// Unused entries, linked by `in_class.after`.
    free: Ix,
    classes: [Link; Class::ALL.len()],
    /// By flow id; ids are places in the flow table, so its limit is this one's.
    flows: Vec<FlowNotes>,
    changes: VecDeque<FlowId>,
    open: usize,
    limit: usize,
}

impl Store {
    /// Returns an empty store for `limit` entries.
    pub(super) fn new(limit: usize, seed: u64) -> Self {
        let limit = limit.clamp(1, Ix::NONE.at());
        Self {
            index: Index::new(limit, seed),
            entries: Vec::with_capacity(limit),
            free: Ix::NONE,
            classes: [Link::default(); Class::ALL.len()],
            flows: Vec::new(),
            changes: VecDeque::new(),
            open: 0,
            limit,
        }
    }

    /// Adds an entry whose key is not present, while [`Self::is_full`] is false.
    pub(super) fn insert(&mut self, entry: Entry) -> Ix {
        let (key, flow, class) = (entry.key, entry.key.flow, entry.class());
        let ix = match self.free.some() {
            Some(ix) => {
                self.free = self[ix].in_class.after;
                self[ix] = entry;
                ix
            }
            None => {
                self.entries.push(entry);
                Ix(self.entries.len() as u32 - 1)
            }
        };
        self.index.insert(self.index.hash(&key.wire), ix.0);
        self.lead(ix, flow);
        self.append(ix, class);
        self.count(ix);
        ix
    }

    /// Removes an entry and returns the place of its stored SYN, which the caller releases.
    pub(super) fn remove(&mut self, ix: Ix) -> Option<Slot> {
        self[ix].state = State::Broken;
        self.count(ix);
        self.unlink(ix);
        self.leave(ix);
        let key = self[ix].key;
        self.index.remove(self.index.hash(&key.wire), ix.0);
        self[ix].in_class = Link {
            before: Ix::NONE,
            after: self.free,
        };
        self.free = ix;
        self[ix].syn.take()
    }

    /// Puts an entry that a packet touched, or whose state has changed, where it belongs.
    pub(super) fn settle(&mut self, ix: Ix, now: Boot) {
        let entry = &mut self[ix];
        entry.used = Seconds::of(now);
        let class = entry.class();
        if class != entry.listed || now.since(entry.placed.start()) >= PLACE_EVERY {
            self.unlink(ix);
            self[ix].placed = Seconds::of(now);
            self.append(ix, class);
        }
        self.count(ix);
    }

    /// Has the entry lead its flow's, so that [`Self::last_origin`] is its origin.
    pub(super) fn note_origin(&mut self, ix: Ix) {
        if self[ix].in_flow.before != Ix::NONE {
            self.leave(ix);
            self.lead(ix, self[ix].key.flow);
        }
    }

    /// Forgets what is known of a flow that has no entries any more.
    pub(super) fn forget_flow(&mut self, flow: FlowId) {
        if let Some(notes) = self.flows.get_mut(flow.0 as usize) {
            let change_waits = notes.change_waits;
            *notes = FlowNotes {
                change_waits,
                ..FlowNotes::NONE
            };
        }
    }

    /// Takes the next flow that has got its first or lost its last open connection.
    pub(super) fn poll_change(&mut self) -> Option<OpenChange> {
        while let Some(flow) = self.changes.pop_front() {
            let notes = self.flow_mut(flow);
            notes.change_waits = false;
            let has_open = notes.open > 0;
            if has_open != std::mem::replace(&mut notes.was_open, has_open) {
                return Some(OpenChange { flow, has_open });
            }
        }
        None
    }

    /// Returns the entry of `key`.
    pub(super) fn find(&self, key: &ConnectionKey) -> Option<Ix> {
        let hash = self.index.hash(&key.wire);
        self.index
            .find(hash, |place| self[Ix(place)].key == *key)
            .map(Ix)
    }

    /// Fetches what [`Self::find`] will look at, without waiting for it.
    pub(super) fn look_ahead(&self, wire: &WireKey) {
        let guess = self.index.guess(self.index.hash(wire));
        // A load that nothing waits for, kept by `black_box` from being left out: the prefetch
        // that needs no `unsafe`.
        black_box(guess.map(|place| self[Ix(place)].key.flow));
    }

    /// Returns an entry of `flow`, the start of a walk by [`Self::after`].
    pub(super) fn first(&self, flow: FlowId) -> Option<Ix> {
        self.flows.get(flow.0 as usize)?.first.some()
    }

    /// Returns the entry after `ix` in its flow.
    pub(super) fn after(&self, ix: Ix) -> Option<Ix> {
        self[ix].in_flow.after.some()
    }

    /// Returns the entry unused for longest among those of the least class present.
    pub(super) fn least(&self) -> Option<Ix> {
        self.classes.iter().find_map(|ends| ends.after.some())
    }

    /// Returns an entry that has expired.
    pub(super) fn over(&self, now: Boot) -> Option<Ix> {
        self.heads().find(|ix| self[*ix].is_over(now))
    }

    /// Returns when the next entry expires.
    pub(super) fn next_over(&self) -> Option<Boot> {
        self.heads().map(|ix| self[ix].over_at()).min()
    }

    /// Returns the local address of the entry of `flow` that began, or was noted, last.
    pub(super) fn last_origin(&self, flow: FlowId) -> Option<IpAddr> {
        self.first(flow).map(|ix| self[ix].origin)
    }

    /// Returns how many open connections `flow` has.
    pub(super) fn open_in(&self, flow: FlowId) -> u32 {
        self.flows
            .get(flow.0 as usize)
            .map_or(0, |notes| notes.open)
    }

    /// Returns how many open connections there are.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.index.len() >= self.limit
    }

    fn flow_mut(&mut self, flow: FlowId) -> &mut FlowNotes {
        let at = flow.0 as usize;
        if at >= self.flows.len() {
            self.flows.resize(at + 1, FlowNotes::NONE);
        }
        &mut self.flows[at]
    }

    /// Brings the counts of open connections up to date with one entry.
    fn count(&mut self, ix: Ix) {
        let (flow, is_open) = (self[ix].key.flow, self[ix].is_open());
        if is_open == self[ix].marks.has(Marks::COUNTED) {
            return;
        }
        if is_open {
            self[ix].marks.set(Marks::COUNTED);
            self.open += 1;
            self.flow_mut(flow).open += 1;
        } else {
            self[ix].marks.clear(Marks::COUNTED);
            self.open -= 1;
            self.flow_mut(flow).open -= 1;
        }
        let notes = self.flow_mut(flow);
        if (notes.open > 0) != notes.was_open && !notes.change_waits {
            notes.change_waits = true;
            self.changes.push_back(flow);
        }
    }

    /// Puts an entry that is in no flow's list in front of its flow's.
    fn lead(&mut self, ix: Ix, flow: FlowId) {
        let first = std::mem::replace(&mut self.flow_mut(flow).first, ix);
        self[ix].in_flow = Link {
            before: Ix::NONE,
            after: first,
        };
        if let Some(first) = first.some() {
            self[first].in_flow.before = ix;
        }
    }

    /// Takes an entry out of its flow's list.
    fn leave(&mut self, ix: Ix) {
        let Link { before, after } = self[ix].in_flow;
        match before.some() {
            Some(before) => self[before].in_flow.after = after,
            None => {
                let flow = self[ix].key.flow;
                self.flow_mut(flow).first = after;
            }
        }
        if let Some(after) = after.some() {
            self[after].in_flow.before = before;
        }
    }

    /// Puts an entry at the end of its class's list. In `classes`, `after` is the first of the
    /// list and `before` the last, as though the list were a ring around it.
    fn append(&mut self, ix: Ix, class: Class) {
        let last = std::mem::replace(&mut self.classes[class as usize].before, ix);
        self[ix].listed = class;
        self[ix].in_class = Link {
            before: last,
            after: Ix::NONE,
        };
        match last.some() {
            Some(last) => self[last].in_class.after = ix,
            None => self.classes[class as usize].after = ix,
        }
    }

    fn unlink(&mut self, ix: Ix) {
        let Link { before, after } = self[ix].in_class;
        let class = self[ix].listed as usize;
        match before.some() {
            Some(before) => self[before].in_class.after = after,
            None => self.classes[class].after = after,
        }
        match after.some() {
            Some(after) => self[after].in_class.before = before,
            None => self.classes[class].before = before,
        }
    }

    fn heads(&self) -> impl Iterator<Item = Ix> {
        self.classes.iter().filter_map(|ends| ends.after.some())
    }
}

#[cfg(test)]
impl Store {
    /// Panics unless lists, index and counts agree.
    pub(super) fn check(&self) {
        let mut listed = 0;
        for class in Class::ALL {
            let mut last = (Ix::NONE, Seconds::default());
            let mut next = self.classes[class as usize].after;
            while let Some(ix) = next.some() {
                let entry = &self[ix];
                assert_eq!((entry.listed, entry.in_class.before), (class, last.0));
                assert!(entry.placed >= last.1, "{class:?} is in the order of use");
                assert_eq!(self.find(&entry.key), Some(ix));
                last = (ix, entry.placed);
                next = entry.in_class.after;
                listed += 1;
            }
            assert_eq!(self.classes[class as usize].before, last.0);
        }
        assert_eq!(listed, self.len());

        let flows = (0..self.flows.len() as u32).map(FlowId);
        let walk = |flow| std::iter::successors(self.first(flow), |ix| self.after(*ix));
        assert_eq!(
            flows.clone().map(|flow| walk(flow).count()).sum::<usize>(),
            listed
        );
        for flow in flows {
            let open = walk(flow).filter(|ix| self[*ix].is_open()).count();
            assert_eq!(self.open_in(flow) as usize, open);
        }
    }
}

impl std::ops::Index<Ix> for Store {
    type Output = Entry;

    fn index(&self, ix: Ix) -> &Entry {
        &self.entries[ix.at()]
    }
}

impl std::ops::IndexMut<Ix> for Store {
    fn index_mut(&mut self, ix: Ix) -> &mut Entry {
        &mut self.entries[ix.at()]
    }
}
