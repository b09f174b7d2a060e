//! Doubly linked lists through the slots of a table: no allocation, removal from the middle.

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// A slot's neighbours in one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links {
    pub(super) previous: u32,
    pub(super) next: u32,
}

impl Links {
    /// In no list.
    pub(super) const FREE: Self = Self {
        previous: NONE,
        next: NONE,
    };
}

/// The two ends of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    first: u32,
    last: u32,
}

impl Ends {
    pub(super) const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }
}

/// Puts slot `at` in front; it must be in no list through the same links.
pub(super) fn push_front<S>(
    ends: &mut Ends,
    slots: &mut [S],
    at: u32,
    links: fn(&mut S) -> &mut Links,
) {
    *links(&mut slots[at as usize]) = Links {
        previous: NONE,
        next: ends.first,
    };
    if ends.first == NONE {
        ends.last = at;
    } else {
        links(&mut slots[ends.first as usize]).previous = at;
    }
    ends.first = at;
}

/// Takes slot `at` out; it must be in this list.
pub(super) fn unlink<S>(
    ends: &mut Ends,
    slots: &mut [S],
    at: u32,
    links: fn(&mut S) -> &mut Links,
) {
    let Links { previous, next } = std::mem::replace(links(&mut slots[at as usize]), Links::FREE);
    if previous == NONE {
        ends.first = next;
    } else {
        links(&mut slots[previous as usize]).next = next;
    }
    if next == NONE {
        ends.last = previous;
    } else {
        links(&mut slots[next as usize]).previous = previous;
    }
}
