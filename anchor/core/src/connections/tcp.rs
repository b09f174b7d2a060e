//! What a TCP segment changes in a connection. The host's segments are taken at their word, it is
//! the one that must believe our reset; the far end's only as far as the host will believe them.
//!
//! ```text
//!   (host's SYN) -> Syn -- SYN-ACK --> Open -- FIN both ways --> Finished
//!                    |                  ^ |
//!                    |   segment seen --' |-- RST either way --> Broken -- host speaks on -> Open
//!                    '-- RST: refused -> Broken                        (it did not believe it)
//!   move_flow: Open -> Reset; a SYN of the host begins anew from every state.
//! ```

use std::net::IpAddr;
use std::time::Duration;

use super::entry::{Entry, Marks, State};
use super::sequence::{Arrival, Delivered, Sequence};
use crate::packet::{Tcp, TcpFlags};
use crate::time::Mono;

/// The farthest a RST of the far end may lie beyond what was delivered to still be the host's
/// business: what may be under way at once in a large window.
const RESET_WINDOW_BYTES: u32 = 1 << 26;

/// What to do with a segment of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SegmentOut {
    Pass,
    /// It is a SYN, to be stored.
    PassSyn,
    /// The connection was reset: answer with this number.
    Answer(Sequence),
}

/// What a segment of the far end tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SegmentIn {
    Pass,
    Answered(Duration),
    Refused,
    Dead,
}

/// How a connection begins that was not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    Syn,
    /// In the middle: this anchor was restarted, or the table was full.
    Midway,
}

impl Beginning {
    /// Returns how a connection with this first segment of the host begins; `None` when the
    /// segment opens nothing and continues nothing.
    pub(super) fn of(tcp: &Tcp) -> Option<Self> {
        if tcp.flags.contains(TcpFlags::RST) {
            None
        } else if is_syn(tcp) {
            Some(Self::Syn)
        } else {
            tcp.flags.contains(TcpFlags::ACK).then_some(Self::Midway)
        }
    }

    /// Returns the state to begin in.
    pub(super) const fn state(self) -> State {
        match self {
            Self::Syn => State::Syn,
            Self::Midway => State::Open,
        }
    }
}

impl Entry {
    /// Notes the first segment of the host's after `begin` or `new`.
    pub(super) fn begin_tcp(&mut self, beginning: Beginning, tcp: &Tcp) {
        let sequence = Sequence(tcp.sequence);
        match beginning {
            Beginning::Syn => {
                self.first = sequence;
                self.sent = sequence.plus(1);
            }
            Beginning::Midway => {
                let has_syn = u32::from(tcp.flags.contains(TcpFlags::SYN));
                self.sent = sequence.plus(has_syn);
                self.delivered = Delivered::new(Sequence(tcp.acknowledgment));
                // Whether this was sent before, nobody knows.
                self.exchange.note_repeated(true);
            }
        }
    }

    /// Notes the far end's SYN, which begins a connection.
    pub(super) fn begin_dialled(&mut self, origin: IpAddr, tcp: &Tcp) {
        self.begin(origin, State::Open);
        self.marks.set(Marks::DIALLED);
        self.delivered = Delivered::new(Sequence(tcp.sequence).plus(1));
    }

    /// Notes a segment of the host.
    pub(super) fn note_tcp_out(&mut self, now: Mono, tcp: &Tcp) -> SegmentOut {
        if is_syn(tcp) {
            let sequence = Sequence(tcp.sequence);
            let is_repeated = sequence == self.first && !self.marks.has(Marks::DIALLED);
            match self.state {
                State::Syn | State::Open if is_repeated => {}
                State::Syn
                | State::Open
                | State::Datagram
                | State::Finished
                | State::Broken
                | State::Reset => {
                    self.begin(self.origin, State::Syn);
                    self.begin_tcp(Beginning::Syn, tcp);
                }
            }
            return if self.state == State::Syn {
                SegmentOut::PassSyn
            } else {
                SegmentOut::Pass
            };
        }
        if tcp.flags.contains(TcpFlags::RST) {
            self.state = State::Broken;
            return SegmentOut::Pass;
        }
        match self.state {
            State::Reset => return SegmentOut::Answer(self.answer_reset(tcp)),
            State::Broken if tcp.flags.contains(TcpFlags::ACK) => {
                self.begin(self.origin, State::Open);
                self.begin_tcp(Beginning::Midway, tcp);
            }
            State::Syn | State::Open | State::Finished | State::Datagram | State::Broken => {}
        }
        self.note_segment_out(now, tcp);
        SegmentOut::Pass
    }

    /// Notes a segment of the far end that is about to be delivered.
    pub(super) fn note_tcp_in(&mut self, now: Mono, tcp: &Tcp) -> SegmentIn {
        match self.state {
            State::Reset if self.marks.has(Marks::RESET_DUE) || !is_syn(tcp) => SegmentIn::Dead,
            State::Reset | State::Finished | State::Broken => {
                if is_syn(tcp) {
                    self.begin_dialled(self.origin, tcp);
                }
                SegmentIn::Pass
            }
            State::Syn => self.note_reply(tcp),
            State::Open => self.note_segment_in(now, tcp),
            State::Datagram => SegmentIn::Pass,
        }
    }

    /// Returns the number with which the host believes a reset, as this segment of its shows.
    fn answer_reset(&mut self, tcp: &Tcp) -> Sequence {
        let has_number = tcp.flags.contains(TcpFlags::ACK);
        let acknowledgment = Sequence(tcp.acknowledgment);
        if has_number && !self.marks.has(Marks::RESET_DUE) {
            // It did not believe the first reset; its number is right, whatever we counted.
            return acknowledgment;
        }
        self.marks.clear(Marks::RESET_DUE);
        if has_number {
            self.delivered.note_acknowledged(acknowledgment);
        }
        self.delivered.next()
    }

    fn note_segment_out(&mut self, now: Mono, tcp: &Tcp) {
        if tcp.flags.contains(TcpFlags::ACK) && self.state != State::Syn {
            self.delivered
                .note_acknowledged(Sequence(tcp.acknowledgment));
        }
        if tcp.flags.contains(TcpFlags::FIN) {
            self.marks.set(Marks::FIN_OUT);
        }
        if tcp.payload_bytes > 0 && !tcp.flags.contains(TcpFlags::SYN) {
            self.note_payload_out(now, Sequence(tcp.sequence), tcp.payload_bytes);
        }
        self.finish_if_both_ended();
    }

    fn note_payload_out(&mut self, now: Mono, start: Sequence, bytes: u32) {
        let end = start.plus(bytes);
        let is_dialled = self.marks.has(Marks::DIALLED);
        let has_more = end.is_after(self.sent);
        let is_repeated = self.sent.is_after(start);
        if has_more {
            self.sent = end;
        }
        match (is_dialled, is_repeated) {
            (true, _) => {}
            (false, true) => self.exchange.note_repeated(has_more),
            (false, false) => self.exchange.note_request(now),
        }
    }

    /// Notes what comes back for a SYN.
    fn note_reply(&mut self, tcp: &Tcp) -> SegmentIn {
        let acknowledged = Sequence(tcp.acknowledgment).beyond(self.first);
        // More than one: payload of a SYN (TCP Fast Open).
        let is_answer = tcp.flags.contains(TcpFlags::ACK) && (1..=1 << 16).contains(&acknowledged);
        if !is_answer {
            return SegmentIn::Pass;
        }
        if tcp.flags.contains(TcpFlags::RST) {
            self.state = State::Broken;
            return SegmentIn::Refused;
        }
        if tcp.flags.contains(TcpFlags::SYN) {
            let start = Sequence(tcp.sequence).plus(1);
            self.state = State::Open;
            self.marks.set(Marks::CONFIRMED);
            self.delivered = Delivered::new(start.plus(tcp.payload_bytes));
        }
        SegmentIn::Pass
    }

    fn note_segment_in(&mut self, now: Mono, tcp: &Tcp) -> SegmentIn {
        let start = Sequence(tcp.sequence);
        if tcp.flags.contains(TcpFlags::RST) {
            // One before: Linux takes that too, once the far end's FIN was delivered.
            if start.plus(1).beyond(self.delivered.next()) <= RESET_WINDOW_BYTES {
                self.state = State::Broken;
            }
            return SegmentIn::Pass;
        }
        if tcp.flags.contains(TcpFlags::ACK) {
            self.marks.set(Marks::CONFIRMED);
        }
        if tcp.flags.contains(TcpFlags::SYN) {
            return SegmentIn::Pass;
        }

        let fin = u32::from(tcp.flags.contains(TcpFlags::FIN));
        let arrival = self
            .delivered
            .note(start, tcp.payload_bytes.wrapping_add(fin));
        if fin == 1 {
            self.marks.set(Marks::FIN_IN);
            self.fin_end = start.plus(tcp.payload_bytes).plus(1);
        }
        let answer = self.note_payload_in(now, tcp, arrival);
        self.finish_if_both_ended();
        answer.map_or(SegmentIn::Pass, SegmentIn::Answered)
    }

    fn note_payload_in(&mut self, now: Mono, tcp: &Tcp, arrival: Arrival) -> Option<Duration> {
        if tcp.payload_bytes == 0 {
            return None;
        }
        self.exchange
            .note_response(now, arrival, Sequence(tcp.acknowledgment), self.sent)
    }

    /// Ends the connection once the host has ended its direction and has been told, in order,
    /// of the other's end: before that somebody may still wait in `read`.
    fn finish_if_both_ended(&mut self) {
        let is_told =
            self.marks.has(Marks::FIN_IN) && self.delivered.next().has_reached(self.fin_end);
        if self.state == State::Open && self.marks.has(Marks::FIN_OUT) && is_told {
            self.state = State::Finished;
        }
    }
}

fn is_syn(tcp: &Tcp) -> bool {
    tcp.flags.contains(TcpFlags::SYN)
        && !tcp.flags.contains(TcpFlags::ACK)
        && !tcp.flags.contains(TcpFlags::RST)
}
