//! Lists of entries in the order of their age, linked through the entries themselves so that
//! moving one is O(1) and allocates nothing. An entry is in two: that of all and that of its peer.

use super::Entry;

/// No entry; the table never grows so far.
const NOBODY: u32 = u32::MAX;

/// An entry's neighbours in one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    older: u32,
    younger: u32,
}

/// The two ends of one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    oldest: u32,
    youngest: u32,
}

/// Picks the links that belong to a list.
type Pick = fn(&mut Entry) -> &mut Links;

impl Links {
    pub(super) const NONE: Self = Self {
        older: NOBODY,
        younger: NOBODY,
    };

    pub(super) fn younger(self) -> Option<u32> {
        (self.younger != NOBODY).then_some(self.younger)
    }
}

impl List {
    pub(super) const EMPTY: Self = Self {
        oldest: NOBODY,
        youngest: NOBODY,
    };

    pub(super) fn push_youngest(&mut self, entries: &mut [Entry], pick: Pick, place: u32) {
        *pick(&mut entries[place as usize]) = Links {
            older: self.youngest,
            younger: NOBODY,
        };
        match self.youngest {
            NOBODY => self.oldest = place,
            neighbour => pick(&mut entries[neighbour as usize]).younger = place,
        }
        self.youngest = place;
    }

    pub(super) fn push_oldest(&mut self, entries: &mut [Entry], pick: Pick, place: u32) {
        *pick(&mut entries[place as usize]) = Links {
            older: NOBODY,
            younger: self.oldest,
        };
        match self.oldest {
            NOBODY => self.youngest = place,
            neighbour => pick(&mut entries[neighbour as usize]).older = place,
        }
        self.oldest = place;
    }

    /// Takes out an entry that is in this list.
    pub(super) fn unlink(&mut self, entries: &mut [Entry], pick: Pick, place: u32) {
        let links = *pick(&mut entries[place as usize]);
        match links.older {
            NOBODY => self.oldest = links.younger,
            neighbour => pick(&mut entries[neighbour as usize]).younger = links.younger,
        }
        match links.younger {
            NOBODY => self.youngest = links.older,
            neighbour => pick(&mut entries[neighbour as usize]).older = links.older,
        }
        *pick(&mut entries[place as usize]) = Links::NONE;
    }

    pub(super) fn youngest(&self) -> Option<u32> {
        (self.youngest != NOBODY).then_some(self.youngest)
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NOBODY).then_some(self.oldest)
    }
}
