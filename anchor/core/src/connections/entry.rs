//! What is remembered of one connection, and the classes of how long.

use std::net::IpAddr;
use std::time::Duration;

use super::ConnectionKey;
use super::answer::Exchange;
use super::sequence::{Delivered, Sequence};
use super::store::Link;
use super::syn::Slot;
use crate::time::{Boot, Mono};

/// A closed TCP connection: as long as Linux keeps TIME_WAIT, so that the last FIN sent again
/// finds its origin.
const CLOSED_LIFE: Duration = Duration::from_secs(60);

/// A TCP connection in SYN, seen from one side only, or reset by us: Linux gives up on a SYN
/// after 127 s, and a host that missed its reset asks again well before.
const YOUNG_LIFE: Duration = Duration::from_secs(127);

/// Anything but TCP: one minute more than the 15 after which a flow chooses anew, so that an
/// answer always finds its origin while the flow lives.
const DATAGRAM_LIFE: Duration = Duration::from_secs(16 * 60);

/// An open TCP connection: 2 h 4 min (SPEC section 4), the least a NAT may keep one (RFC 5382).
const OPEN_LIFE: Duration = Duration::from_secs(2 * 3600 + 4 * 60);

/// One connection: 128 bytes, aligned so that they are two cache lines and never three.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) key: ConnectionKey,
    /// The local address the application uses.
    pub(super) origin: IpAddr,
    pub(super) state: State,
    /// The list this entry stands in; see [`super::store::Store::settle`].
    pub(super) listed: Class,
    pub(super) marks: Marks,
    /// The place of the stored SYN, while in [`State::Syn`].
    pub(super) syn: Option<Slot>,
    pub(super) delivered: Delivered,
    /// The sequence number of the host's SYN.
    pub(super) first: Sequence,
    /// The end of all payload the host has sent.
    pub(super) sent: Sequence,
    /// The end of the far end's stream, once its FIN was seen.
    pub(super) fin_end: Sequence,
    pub(super) in_flow: Link,
    pub(super) in_class: Link,
    /// When the entry was last put at the end of its list.
    pub(super) placed: Seconds,
    /// When its last packet passed either way.
    pub(super) used: Seconds,
    /// When the last datagram passed either way; not kept for TCP.
    pub(super) last: Mono,
    pub(super) exchange: Exchange,
}

const _: () = assert!(
    size_of::<Entry>() == 128,
    "the stated memory per connection"
);

/// A second of [`Boot`], in half the bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Seconds(u32);

impl Seconds {
    /// Returns the second that `now` lies in; the clock's origin is the machine's start.
    pub(super) const fn of(now: Boot) -> Self {
        Self((now.as_nanos() / NANOS) as u32)
    }

    /// Returns when the second began.
    pub(super) const fn start(self) -> Boot {
        Boot::from_nanos(self.0 as u64 * NANOS)
    }
}

const NANOS: u64 = 1_000_000_000;

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Not TCP: there is nothing to open or close.
    Datagram,
    /// TCP: the host's SYN has no answer yet.
    Syn,
    /// TCP: established, or closed in one direction.
    Open,
    /// TCP: both directions ended by FIN.
    Finished,
    /// TCP: ended by a RST of either end.
    Broken,
    /// TCP: ended by us; the host is told by [`super::Action::Reset`].
    Reset,
}

/// Facts about a connection that are independent of its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Marks(u16);

impl Marks {
    /// The host has ended its direction.
    pub(super) const FIN_OUT: Self = Self(1);
    /// The far end has ended its direction; [`Entry::fin_end`] says where.
    pub(super) const FIN_IN: Self = Self(1 << 1);
    /// Both ends take part, as far as seen.
    pub(super) const CONFIRMED: Self = Self(1 << 2);
    /// The far end opened it.
    pub(super) const DIALLED: Self = Self(1 << 3);
    /// Waits for its [`super::Action::Reset`].
    pub(super) const RESET_DUE: Self = Self(1 << 4);
    /// Waits for its [`super::Action::ReplaySyn`].
    pub(super) const REPLAY_DUE: Self = Self(1 << 5);
    /// Is counted among its flow's open connections.
    pub(super) const COUNTED: Self = Self(1 << 6);

    pub(super) fn set(&mut self, mark: Self) {
        self.0 |= mark.0;
    }

    pub(super) fn clear(&mut self, mark: Self) {
        self.0 &= !mark.0;
    }

    pub(super) fn has(self, mark: Self) -> bool {
        self.0 & mark.0 != 0
    }
}

/// How long an entry is kept after its last packet. The order is that of giving way when the
/// table is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Closed,
    Young,
    Datagram,
    Open,
}

impl Class {
    pub(super) const ALL: [Self; 4] = [Self::Closed, Self::Young, Self::Datagram, Self::Open];

    /// Returns how long an entry of this class outlives its last packet.
    pub(super) const fn life(self) -> Duration {
        match self {
            Self::Closed => CLOSED_LIFE,
            Self::Young => YOUNG_LIFE,
            Self::Datagram => DATAGRAM_LIFE,
            Self::Open => OPEN_LIFE,
        }
    }
}

impl Entry {
    /// Returns a connection nothing is known of yet.
    pub(super) fn new(key: ConnectionKey, origin: IpAddr, state: State, now: Boot) -> Self {
        Self {
            key,
            origin,
            state,
            listed: Class::Young,
            marks: Marks::default(),
            syn: None,
            delivered: Delivered::default(),
            first: Sequence::default(),
            sent: Sequence::default(),
            fin_end: Sequence::default(),
            in_flow: Link::default(),
            in_class: Link::default(),
            placed: Seconds::of(now),
            used: Seconds::of(now),
            last: Mono::default(),
            exchange: Exchange::default(),
        }
    }

    /// Forgets the connection that had this 5-tuple before; places and lists stay.
    pub(super) fn begin(&mut self, origin: IpAddr, state: State) {
        let was_counted = self.marks.has(Marks::COUNTED);
        *self = Self {
            listed: self.listed,
            syn: self.syn,
            in_flow: self.in_flow,
            in_class: self.in_class,
            placed: self.placed,
            used: self.used,
            ..Self::new(self.key, origin, state, Boot::default())
        };
        if was_counted {
            self.marks.set(Marks::COUNTED);
        }
    }

    /// Returns the class the entry belongs to by its state.
    pub(super) fn class(&self) -> Class {
        match self.state {
            State::Datagram => Class::Datagram,
            State::Syn | State::Reset => Class::Young,
            State::Open if self.is_open() => Class::Open,
            State::Open => Class::Young,
            State::Finished | State::Broken => Class::Closed,
        }
    }

    /// Returns whether this is a TCP connection that both ends hold open.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open && self.marks.has(Marks::CONFIRMED)
    }

    /// Returns whether the entry has outlived its last packet for long enough.
    pub(super) fn is_over(&self, now: Boot) -> bool {
        now >= self.over_at()
    }

    /// Returns when the entry will have outlived its last packet for long enough.
    pub(super) fn over_at(&self) -> Boot {
        self.used.start() + self.listed.life()
    }
}
