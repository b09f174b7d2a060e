//! The two ends of a TCP connection as far as failing over touches them: handshake, one request at
//! a time and its answer, sending again, and which resets are believed (RFC 9293 section 3.10.7).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use conflux_core::packet::{Packet, Tcp, TcpFlags};
use conflux_core::time::Mono;

use crate::machine::{HTTP, Seen, Who};
use crate::packets::{ACK, RST, SYN, Segment, tcp};

/// What is sent again first after this long, then after twice that, and so on.
const FIRST_WAIT: Duration = Duration::from_millis(400);
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// How long a service keeps a connection whose handshake the client does not finish: Linux sends
/// its SYN-ACK five times more, the last after 31 s, and waits 32 s for that one.
const HALF_OPEN: Duration = Duration::from_secs(63);

/// The first sequence number of a service.
const SERVICE_FIRST: u32 = u32::MAX - 20;

/// An application's end.
#[derive(Clone, Debug)]
pub(crate) struct Dialogue {
    state: State,
    sequence: u32,
    expected: u32,
    /// Bytes of the request that is not acknowledged yet.
    unacknowledged: u32,
    wait: Duration,
    retry_at: Mono,
    window: u16,
    pub(crate) resets: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Closed,
    Syn,
    Open,
}

impl Dialogue {
    pub(crate) const fn new(who: Who) -> Self {
        Self {
            window: u16::from_be_bytes([who.anchor + 1, who.host]),
            state: State::Closed,
            sequence: 0,
            expected: 0,
            unacknowledged: 0,
            wait: FIRST_WAIT,
            retry_at: Mono::from_nanos(0),
            resets: 0,
        }
    }

    /// Sends what is due: a SYN, a request, or one of these again.
    pub(crate) fn work(
        &mut self,
        now: Mono,
        from: &mut SocketAddr,
        to: IpAddr,
        request: &[u8],
        gap: Duration,
    ) -> (Vec<Vec<u8>>, Mono) {
        let is_new = match self.state {
            State::Closed => {
                let port = from.port();
                from.set_port(if port >= 60_000 { 40_000 } else { port + 7 });
                self.state = State::Syn;
                self.sequence = self.sequence.wrapping_add(100_000);
                true
            }
            State::Open if self.unacknowledged == 0 => {
                self.unacknowledged = u32::try_from(request.len()).expect("requests are short");
                true
            }
            State::Syn | State::Open => false,
        };
        if is_new {
            self.wait = FIRST_WAIT;
        } else if now < self.retry_at {
            return (Vec::new(), self.retry_at);
        } else {
            self.wait = (self.wait * 2).min(LONGEST_WAIT);
        }
        self.retry_at = now + self.wait;
        let next = self.retry_at.min(now + gap);
        let segment = match self.state {
            State::Syn => self.segment(*from, to, SYN, &[]),
            State::Closed | State::Open => self.segment(*from, to, ACK, request),
        };
        (vec![segment], next)
    }

    /// Takes a segment of the far end.
    pub(crate) fn take(
        &mut self,
        now: Mono,
        from: SocketAddr,
        to: IpAddr,
        segment: &Tcp,
        payload: &[u8],
    ) -> (Seen, Vec<Vec<u8>>) {
        if segment.flags.contains(TcpFlags::RST) {
            let is_believed = match self.state {
                State::Closed => false,
                State::Syn => segment.acknowledgment == self.sequence.wrapping_add(1),
                State::Open => segment.sequence == self.expected,
            };
            if !is_believed {
                return (Seen::Other, Vec::new());
            }
            self.state = State::Closed;
            self.unacknowledged = 0;
            self.resets += 1;
            return (Seen::Reset, Vec::new());
        }
        match self.state {
            State::Syn if segment.flags.contains(TcpFlags::SYN) => {
                self.sequence = self.sequence.wrapping_add(1);
                self.expected = segment.sequence.wrapping_add(1);
                self.state = State::Open;
                (Seen::Other, vec![self.segment(from, to, ACK, &[])])
            }
            State::Open if segment.sequence == self.expected && !payload.is_empty() => {
                if segment.acknowledgment == self.sequence.wrapping_add(self.unacknowledged) {
                    self.sequence = segment.acknowledgment;
                    self.unacknowledged = 0;
                    self.retry_at = now;
                }
                let bytes = u32::try_from(payload.len()).expect("answers are short");
                self.expected = self.expected.wrapping_add(bytes);
                let seen = Seen::Answer {
                    host: from.ip(),
                    far: to,
                    server: payload[0],
                };
                (seen, vec![self.segment(from, to, ACK, &[])])
            }
            State::Open if segment.sequence != self.expected => {
                (Seen::Other, vec![self.segment(from, to, ACK, &[])])
            }
            State::Closed | State::Syn | State::Open => (Seen::Other, Vec::new()),
        }
    }

    fn segment(&self, from: SocketAddr, to: IpAddr, flags: u8, payload: &[u8]) -> Vec<u8> {
        let acknowledges = flags & ACK != 0;
        let segment = Segment {
            sequence: self.sequence,
            acknowledgment: if acknowledges { self.expected } else { 0 },
            flags,
            window: self.window,
        };
        tcp(from, SocketAddr::new(to, HTTP), segment, payload)
    }
}

/// A machine's service, with what it knows of each connection.
#[derive(Debug)]
pub(crate) struct Server {
    number: u8,
    open: BTreeMap<(SocketAddr, SocketAddr), Served>,
}

#[derive(Clone, Copy, Debug)]
struct Served {
    sequence: u32,
    expected: u32,
    /// When it is given up unless the client finishes its handshake.
    half_open_until: Option<Mono>,
}

impl Server {
    pub(crate) const fn new(number: u8) -> Self {
        Self {
            number,
            open: BTreeMap::new(),
        }
    }

    /// Takes a segment and returns the answers.
    pub(crate) fn take(
        &mut self,
        now: Mono,
        packet: &Packet,
        segment: &Tcp,
        payload: &[u8],
        is_serving: bool,
    ) -> Vec<Vec<u8>> {
        let here = SocketAddr::new(packet.destination, HTTP);
        let there = SocketAddr::new(packet.source, segment.source_port);
        if segment.flags.contains(TcpFlags::RST) {
            self.open.remove(&(here, there));
            return Vec::new();
        }
        let reset = |sequence, acknowledgment, flags| {
            let segment = Segment {
                sequence,
                acknowledgment,
                flags,
                window: u16::MAX,
            };
            vec![tcp(here, there, segment, &[])]
        };
        if segment.flags.contains(TcpFlags::SYN) {
            if !is_serving {
                return reset(0, segment.sequence.wrapping_add(1), RST | ACK);
            }
            let served = Served {
                sequence: SERVICE_FIRST.wrapping_add(1),
                expected: segment.sequence.wrapping_add(1),
                half_open_until: Some(now + HALF_OPEN),
            };
            self.open.insert((here, there), served);
            return reset(SERVICE_FIRST, served.expected, SYN | ACK);
        }
        let is_kept = |served: &&mut Served| served.half_open_until.is_none_or(|until| now < until);
        let Some(served) = self.open.get_mut(&(here, there)).filter(is_kept) else {
            return reset(segment.acknowledgment, 0, RST);
        };
        if segment.acknowledgment == SERVICE_FIRST.wrapping_add(1) {
            served.half_open_until = None;
        }
        if payload.is_empty() {
            return Vec::new();
        }
        if segment.sequence != served.expected {
            // Sent again: its answer got lost, or is still on its way.
            let answer = Segment {
                sequence: served.sequence.wrapping_sub(1),
                acknowledgment: served.expected,
                flags: ACK,
                window: u16::MAX,
            };
            return vec![tcp(here, there, answer, &[self.number])];
        }
        served.expected = served.expected.wrapping_add(segment.payload_bytes);
        let answer = Segment {
            sequence: served.sequence,
            acknowledgment: served.expected,
            flags: ACK,
            window: u16::MAX,
        };
        served.sequence = served.sequence.wrapping_add(1);
        vec![tcp(here, there, answer, &[self.number])]
    }
}
