//! The connections inside the flows, on the client's side: which local address each one uses, how
//! far each TCP connection has come, so that it can be reset believably or its SYN replayed when
//! its flow moves to another holder (SPEC section 5), and how long answers take (section 4).
//!
//! Not for choosing a holder, nor for which flow a packet belongs to: `flows` knows that, and the
//! key names the flow. Driven by the plane, once per packet or super-packet:
//!
//! * before its flow is looked up: [`Connections::look_ahead`];
//! * from the host: [`Connections::note_outbound`], then send, or answer as it says;
//! * from the flow's holder: [`Connections::note_inbound`], then write to the TUN. What it lets
//!   pass counts as delivered, so it is called for no packet that is dropped afterwards, and
//!   actions are polled once everything let pass has been written;
//! * on a move: [`Connections::move_flow`], then [`Connections::poll_action`] until it is empty,
//!   again at [`Connections::poll_timeout`];
//! * after each batch: [`Connections::poll_change`]; at [`Connections::poll_expiry`]:
//!   [`Connections::expire`].
//!
//! # Resets
//!
//! A host believes a RST only when its sequence number is exactly the next one it expects, so the
//! bytes let pass are counted, with a few runs beyond a gap, and a higher number that the host
//! acknowledges is believed. When it has less than we wrote (it had no room) it answers the reset
//! with a challenge ACK, and gets it again with the number in that.
//!
//! # Limits
//!
//! [`Limits::connections`] entries of 128 bytes, 16 bytes each in the index, and 12 bytes per
//! flow; at the limit the entry goes that has least to lose: first closed connections, then those still
//! opening, then datagrams, then open ones, and of these the one unused for longest. What is
//! forgotten while its host still speaks is learned again from its next packet. Nothing is
//! allocated per packet once the tables have grown.

mod answer;
mod entry;
mod pace;
mod sequence;
mod store;
mod syn;
mod tcp;
#[cfg(test)]
mod tests;
mod types;

use std::net::IpAddr;
use std::time::Duration;

pub use self::syn::StoredSyn;
pub use self::types::{Action, ConnectionKey, Inbound, Limits, OpenChange, Outbound, WireKey};

use self::entry::{Entry, Marks, State};
use self::pace::Pace;
use self::store::{Ix, Store};
use self::syn::SynPool;
use self::tcp::{Beginning, SegmentIn, SegmentOut};
use crate::ids::FlowId;
use crate::packet::{IcmpError, IcmpKind, Packet, Protocol, Tcp, Transport};
use crate::time::{Boot, Mono, Now};

/// How long a datagram socket may be silent before another local address may take over its
/// 5-tuple: the shortest a stateful firewall keeps a UDP mapping.
const DATAGRAM_CLAIM: Duration = Duration::from_secs(30);

/// How many entries one call of [`Connections::expire`] removes at most: some 100 us of work.
const EXPIRE_AT_ONCE: usize = 1024;

/// The connections of all flows.
#[derive(Debug)]
pub struct Connections {
    store: Store,
    syns: SynPool,
    resets: Pace,
    replays: Pace,
}

impl Connections {
    /// Returns an empty table.
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            store: Store::new(limits.connections, seed),
            syns: SynPool::new(limits.syns),
            resets: Pace::default(),
            replays: Pace::default(),
        }
    }

    /// Notes a packet the host sent from `origin`. `head` holds the packet's headers; a SYN is
    /// stored as it stands there, less its payload.
    pub fn note_outbound(
        &mut self,
        now: Now,
        key: ConnectionKey,
        origin: IpAddr,
        packet: &Packet,
        head: &[u8],
    ) -> Outbound {
        if matches!(packet.transport, Transport::IcmpError(_)) {
            return Outbound::Pass;
        }
        let ix = match self.find(now, &key) {
            Some(ix) if self.store[ix].origin == origin => {
                if packet.fragment.is_some() {
                    self.store.note_origin(ix);
                }
                ix
            }
            Some(ix) if self.is_claimed(now, ix) => return Outbound::Clash,
            Some(ix) => {
                let Some(state) = beginning(packet) else {
                    return Outbound::Pass;
                };
                self.store[ix].begin(origin, state);
                begin_tcp(&mut self.store[ix], packet);
                self.store.note_origin(ix);
                ix
            }
            None => {
                let Some(state) = beginning(packet) else {
                    return Outbound::Pass;
                };
                let mut entry = Entry::new(key, origin, state, now.boot);
                begin_tcp(&mut entry, packet);
                self.insert(entry)
            }
        };

        let outbound = self.note_out(now, ix, packet, head);
        self.settle(now, ix);
        outbound
    }

    /// Notes a packet of the flow's holder, which is delivered when this says `Pass`.
    pub fn note_inbound(&mut self, now: Now, key: ConnectionKey, packet: &Packet) -> Inbound {
        let Some(ix) = self.find(now, &key) else {
            return Inbound::Unknown;
        };
        let entry = &mut self.store[ix];
        let origin = entry.origin;
        if let Transport::IcmpError(error) = &packet.transport {
            return match entry.state {
                State::Reset => Inbound::Dead,
                State::Datagram | State::Syn | State::Open | State::Finished | State::Broken => {
                    Inbound::Pass {
                        origin,
                        answer: None,
                        refused: refuses(entry, error),
                    }
                }
            };
        }

        let mut answer = None;
        let mut refused = false;
        match &packet.transport {
            Transport::Tcp(tcp) if entry.state != State::Datagram => {
                match entry.note_tcp_in(now.mono, tcp) {
                    SegmentIn::Pass => {}
                    SegmentIn::Answered(time) => answer = Some(time),
                    SegmentIn::Refused => refused = true,
                    SegmentIn::Dead => return Inbound::Dead,
                }
            }
            Transport::Udp(_) => {
                answer = entry.exchange.note_datagram_in(now.mono);
                entry.last = now.mono;
            }
            Transport::Tcp(_)
            | Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => entry.last = now.mono,
        }
        if packet.fragment.is_some() {
            self.store.note_origin(ix);
        }
        self.settle(now, ix);
        Inbound::Pass {
            origin,
            answer,
            refused,
        }
    }

    /// Lets the holder begin the connection `key` towards `origin`, after
    /// [`Self::note_inbound`] called it unknown. Of TCP only a SYN begins one.
    pub fn admit(
        &mut self,
        now: Now,
        key: ConnectionKey,
        origin: IpAddr,
        packet: &Packet,
    ) -> Inbound {
        if self.find(now, &key).is_some() {
            return self.note_inbound(now, key, packet);
        }
        let mut entry = Entry::new(key, origin, State::Datagram, now.boot);
        match &packet.transport {
            Transport::Tcp(tcp) => match Beginning::of(tcp) {
                Some(Beginning::Syn) => entry.begin_dialled(origin, tcp),
                Some(Beginning::Midway) | None => return Inbound::Unknown,
            },
            Transport::IcmpError(_) | Transport::LaterFragment => return Inbound::Unknown,
            Transport::Udp(_) | Transport::Echo(_) | Transport::Icmp | Transport::Other => {
                entry.marks.set(Marks::DIALLED);
                entry.last = now.mono;
            }
        }
        self.insert(entry);
        Inbound::Pass {
            origin,
            answer: None,
            refused: false,
        }
    }

    /// Notes that `flow` left its holder: every TCP connection of its that is open is to be reset,
    /// and those still in SYN given out again: to the new holder, or to be refused when there is
    /// none. Takes time in proportion to the flow's connections.
    pub fn move_flow(&mut self, now: Now, flow: FlowId) {
        let mut next = self.store.first(flow);
        while let Some(ix) = next {
            next = self.store.after(ix);
            match self.store[ix].state {
                State::Open => self.begin_reset(now, ix),
                State::Syn => self.begin_replay(now, ix),
                // What comes back now answers nothing the new holder was asked.
                State::Datagram => self.store[ix].exchange = Default::default(),
                State::Finished | State::Broken | State::Reset => {}
            }
        }
    }

    /// Forgets a flow and its connections, resets that still wait included: nothing is sent for
    /// them, and no [`OpenChange`] follows.
    pub fn remove_flow(&mut self, flow: FlowId) {
        while let Some(ix) = self.store.first(flow) {
            self.remove(ix);
        }
        self.store.forget_flow(flow);
    }

    /// Removes connections that have expired; a great many take more than one call, as
    /// [`Self::poll_expiry`] then tells.
    pub fn expire(&mut self, now: Now) {
        for _ in 0..EXPIRE_AT_ONCE {
            let Some(ix) = self.store.over(now.boot) else {
                return;
            };
            self.remove(ix);
        }
    }

    /// Takes the next action that is due.
    pub fn poll_action(&mut self, now: Now) -> Option<Action> {
        while let Some(key) = self.replays.pop(now.mono) {
            if let Some(action) = self.replay(&key) {
                return Some(action);
            }
        }
        while let Some(key) = self.resets.pop(now.mono) {
            if let Some(action) = self.reset(&key) {
                return Some(action);
            }
        }
        None
    }

    /// Takes the next flow that has got its first or lost its last open connection since it was
    /// last told of.
    pub fn poll_change(&mut self) -> Option<OpenChange> {
        self.store.poll_change()
    }

    /// Returns when [`Self::poll_action`] next has something.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.resets
            .due()
            .into_iter()
            .chain(self.replays.due())
            .min()
    }

    /// Returns when [`Self::expire`] next has something to do.
    pub fn poll_expiry(&self) -> Option<Boot> {
        self.store.next_over()
    }

    /// Has what is known of a packet's connection brought into the cache, and changes nothing.
    /// Called before the packet's flow is looked up, so that a connection silent for long is
    /// waited for beside its flow and not after it.
    pub fn look_ahead(&self, wire: &WireKey) {
        self.store.look_ahead(wire);
    }

    /// Returns whether `key` is a TCP connection that both ends hold open, at least in one
    /// direction; true for up to 2 h 4 min after its last packet.
    pub fn is_open(&self, now: Now, key: &ConnectionKey) -> bool {
        let entry = self.store.find(key).map(|ix| &self.store[ix]);
        entry.is_some_and(|entry| entry.is_open() && !entry.is_over(now.boot))
    }

    /// Returns how many open TCP connections `flow` has.
    pub fn open_count(&self, flow: FlowId) -> u32 {
        self.store.open_in(flow)
    }

    /// Returns whether `flow` has an open TCP connection.
    pub fn has_open(&self, flow: FlowId) -> bool {
        self.open_count(flow) > 0
    }

    /// Returns whether nothing of `flow` would be hurt by another holder: it has no open TCP
    /// connection, and its datagrams have been silent for 30 s. Echoes and closed connections do
    /// not count, nor does a SYN without an answer, which is given out again. Takes time in
    /// proportion to the flow's connections.
    pub fn is_at_rest(&self, now: Mono, flow: FlowId) -> bool {
        if self.has_open(flow) {
            return false;
        }
        let mut next = self.store.first(flow);
        while let Some(ix) = next {
            next = self.store.after(ix);
            let entry = &self.store[ix];
            let is_talk =
                entry.state == State::Datagram && entry.key.wire.protocol != Protocol::ICMP.0;
            if is_talk && now.since(entry.last) < DATAGRAM_CLAIM {
                return false;
            }
        }
        true
    }

    /// Returns the local address of `flow`'s last fragmented packet, or of the connection that began
    /// since: later fragments do not tell whose they are.
    pub fn last_origin(&self, flow: FlowId) -> Option<IpAddr> {
        self.store.last_origin(flow)
    }

    /// Returns how many connections are remembered.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether no connection is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn find(&mut self, now: Now, key: &ConnectionKey) -> Option<Ix> {
        let ix = self.store.find(key)?;
        if self.store[ix].is_over(now.boot) {
            self.remove(ix);
            return None;
        }
        Some(ix)
    }

    fn insert(&mut self, entry: Entry) -> Ix {
        if self.store.is_full()
            && let Some(least) = self.store.least()
        {
            self.remove(least);
        }
        self.store.insert(entry)
    }

    fn remove(&mut self, ix: Ix) {
        if let Some(slot) = self.store.remove(ix) {
            self.syns.release(slot);
        }
    }

    fn note_out(&mut self, now: Now, ix: Ix, packet: &Packet, head: &[u8]) -> Outbound {
        let entry = &mut self.store[ix];
        match &packet.transport {
            Transport::Tcp(tcp) if entry.state != State::Datagram => {
                match entry.note_tcp_out(now.mono, tcp) {
                    SegmentOut::Pass => {}
                    SegmentOut::PassSyn => self.keep_syn(ix, packet, tcp, head),
                    SegmentOut::Answer(sequence) => {
                        return Outbound::Answer {
                            sequence: sequence.0,
                            acknowledgment: None,
                        };
                    }
                }
            }
            Transport::Udp(_) => {
                if !entry.marks.has(Marks::DIALLED) {
                    let last = entry.marks.has(Marks::CONFIRMED).then_some(entry.last);
                    entry.exchange.note_datagram_out(now.mono, last);
                }
                entry.marks.set(Marks::CONFIRMED);
                entry.last = now.mono;
            }
            Transport::Tcp(_)
            | Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => entry.last = now.mono,
        }
        Outbound::Pass
    }

    fn keep_syn(&mut self, ix: Ix, packet: &Packet, tcp: &Tcp, head: &[u8]) {
        if let Some(slot) = self.store[ix].syn.take() {
            self.syns.release(slot);
        }
        let Some(syn) = StoredSyn::new(packet, tcp, head) else {
            return;
        };
        let Some((slot, robbed)) = self.syns.keep(ix, syn) else {
            return;
        };
        if let Some(robbed) = robbed {
            self.store[robbed].syn = None;
        }
        self.store[ix].syn = Some(slot);
    }

    /// Brings an entry's lists, counts and SYN in line with its state.
    fn settle(&mut self, now: Now, ix: Ix) {
        if self.store[ix].state != State::Syn
            && let Some(slot) = self.store[ix].syn.take()
        {
            self.syns.release(slot);
        }
        self.store.settle(ix, now.boot);
    }

    fn begin_reset(&mut self, now: Now, ix: Ix) {
        let total = self.store.open() + self.resets.len();
        let entry = &mut self.store[ix];
        entry.state = State::Reset;
        entry.marks.set(Marks::RESET_DUE);
        self.resets.push(now.mono, entry.key, total);
        self.settle(now, ix);
    }

    fn begin_replay(&mut self, now: Now, ix: Ix) {
        let entry = &mut self.store[ix];
        if entry.syn.is_none() || entry.marks.has(Marks::REPLAY_DUE) {
            return;
        }
        entry.marks.set(Marks::REPLAY_DUE);
        let total = self.syns.len();
        self.replays.push(now.mono, self.store[ix].key, total);
    }

    fn reset(&mut self, key: &ConnectionKey) -> Option<Action> {
        let ix = self.store.find(key)?;
        let entry = &mut self.store[ix];
        if entry.state != State::Reset || !entry.marks.has(Marks::RESET_DUE) {
            return None;
        }
        entry.marks.clear(Marks::RESET_DUE);
        let sequence = entry.delivered.next().0;
        Some(Action::Reset {
            key: *key,
            origin: entry.origin,
            sequence,
        })
    }

    fn replay(&mut self, key: &ConnectionKey) -> Option<Action> {
        let ix = self.store.find(key)?;
        let entry = &mut self.store[ix];
        if entry.state != State::Syn || !entry.marks.has(Marks::REPLAY_DUE) {
            return None;
        }
        entry.marks.clear(Marks::REPLAY_DUE);
        // Kept anew as it goes out; one that is refused ends there, and must not go to whoever
        // holds the address next.
        let slot = entry.syn.take()?;
        let syn = *self.syns.at(slot);
        self.syns.release(slot);
        Some(Action::ReplaySyn {
            key: *key,
            origin: entry.origin,
            syn,
        })
    }

    /// Returns whether the entry's local address still needs its 5-tuple.
    fn is_claimed(&self, now: Now, ix: Ix) -> bool {
        let entry = &self.store[ix];
        match entry.state {
            State::Syn | State::Open => true,
            State::Datagram => {
                entry.key.wire.has_ports() && now.mono.since(entry.last) < DATAGRAM_CLAIM
            }
            State::Finished | State::Broken | State::Reset => false,
        }
    }
}

/// Returns the state in which a packet of the host begins a connection, if it begins one.
fn beginning(packet: &Packet) -> Option<State> {
    match &packet.transport {
        Transport::Tcp(tcp) => Beginning::of(tcp).map(Beginning::state),
        Transport::Udp(_)
        | Transport::Echo(_)
        | Transport::IcmpError(_)
        | Transport::Icmp
        | Transport::LaterFragment
        | Transport::Other => Some(State::Datagram),
    }
}

fn begin_tcp(entry: &mut Entry, packet: &Packet) {
    if let Transport::Tcp(tcp) = &packet.transport
        && let Some(beginning) = Beginning::of(tcp)
    {
        entry.begin_tcp(beginning, tcp);
    }
}

/// Returns whether an ICMP error of the holder refuses what the host asked for. An established
/// TCP connection outlives such errors, so they say nothing there.
fn refuses(entry: &Entry, error: &IcmpError) -> bool {
    let is_asking = match entry.state {
        State::Syn => error.inner.sequence == entry.first.0,
        State::Datagram => entry.key.wire.protocol == Protocol::UDP.0,
        State::Open | State::Finished | State::Broken | State::Reset => false,
    };
    is_asking && matches!(error.kind, IcmpKind::Unreachable { .. })
}
