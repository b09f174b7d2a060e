//! Random traffic of a few connections against plain TCP hosts that believe a reset exactly as
//! Linux does: the next number ends the connection, another one in the window is challenged.

use proptest::prelude::*;

use super::build::{ACK, FIN, RST, SYN, Table};
use crate::connections::*;

const PORTS: u16 = 4;
/// Both have the same tag, so that only the rest of the key tells their connections apart.
const FLOWS: u32 = 2;
const STREAM: usize = 64;
/// As many as an entry remembers; what happens beyond is tested with `sequence`.
const GAPS: usize = 3;
/// Near the end of the circle, so that numbers wrap.
const HOST_FIRST: u32 = u32::MAX - 20;
const FAR_FIRST: u32 = u32::MAX - 7;

#[derive(Clone, Debug)]
enum Step {
    Syn,
    SynAck,
    HostSends {
        bytes: usize,
    },
    HostRepeats {
        bytes: usize,
    },
    HostAcknowledges,
    HostEnds,
    HostAborts,
    /// `has_room`: what is written to the TUN gets into the socket.
    FarSends {
        start: Start,
        bytes: usize,
        has_room: bool,
    },
    FarEnds,
    FarAborts,
    Move,
    Wait {
        millis: u64,
    },
}

/// Where a segment of the far end starts.
#[derive(Clone, Copy, Debug)]
enum Start {
    Next,
    Anywhere(usize),
}

/// A host's socket and what it knows.
#[derive(Clone, Debug)]
struct Socket {
    state: Life,
    first: u32,
    has: [bool; STREAM],
    /// What was let pass, whether or not it got in.
    passed: [bool; STREAM],
    sent: u32,
    has_ended: bool,
    far_end: Option<usize>,
    is_owed_reset: bool,
    is_owed_replay: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    None,
    Syn,
    Open,
}

impl Socket {
    const NONE: Self = Self {
        state: Life::None,
        first: HOST_FIRST,
        has: [false; STREAM],
        passed: [false; STREAM],
        sent: 0,
        has_ended: false,
        far_end: None,
        is_owed_reset: false,
        is_owed_replay: false,
    };

    fn gone(&self) -> Self {
        Self {
            first: self.first,
            ..Self::NONE
        }
    }

    /// The next sequence number this socket waits for.
    fn next(&self) -> u32 {
        self.next_after(in_order(&self.has))
    }

    /// What the number would be had everything got in.
    fn passed_next(&self) -> u32 {
        self.next_after(in_order(&self.passed))
    }

    fn next_after(&self, bytes: usize) -> u32 {
        let fin = u32::from(self.far_end.is_some_and(|end| bytes >= end));
        FAR_FIRST.wrapping_add(1).wrapping_add(bytes as u32 + fin)
    }

    fn is_done(&self) -> bool {
        let is_told = self
            .far_end
            .is_some_and(|end| in_order(&self.passed) >= end);
        self.has_ended && is_told
    }
}

struct World {
    table: Table,
    sockets: [[Socket; PORTS as usize]; FLOWS as usize],
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn hosts_are_reset_exactly_when_their_flow_moves(
        steps in prop::collection::vec((0..FLOWS, 1..=PORTS, step()), 1..120),
    ) {
        let mut world = World::new();
        for (flow, port, step) in steps {
            world.table.flow = FlowId(flow);
            world.table.host_port = port;
            world.take(flow as usize, usize::from(port) - 1, &step)?;
            world.check()?;
        }
        world.drain()?;
        world.table.advance(Duration::from_secs(3 * 3600));
        world.table.connections.expire(world.table.now);
        prop_assert!(world.table.connections.is_empty());
        prop_assert_eq!(world.table.connections.poll_expiry(), None);
    }
}

impl World {
    fn new() -> Self {
        Self {
            table: Table::default(),
            sockets: std::array::from_fn(|_| std::array::from_fn(|_| Socket::NONE)),
        }
    }

    fn take(&mut self, flow: usize, port: usize, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Move => self.move_flow(flow),
            Step::Wait { millis } => {
                self.table.advance(Duration::from_millis(*millis));
                self.act()?;
            }
            Step::SynAck | Step::FarSends { .. } | Step::FarEnds | Step::FarAborts => {
                self.take_fars(flow, port, step)?;
            }
            Step::Syn
            | Step::HostSends { .. }
            | Step::HostRepeats { .. }
            | Step::HostAcknowledges
            | Step::HostEnds
            | Step::HostAborts => self.take_hosts(flow, port, step)?,
        }
        for socket in self.sockets.iter_mut().flatten() {
            if socket.is_done() {
                *socket = socket.gone();
            }
        }
        Ok(())
    }

    fn move_flow(&mut self, flow: usize) {
        self.table.move_flow();
        for socket in &mut self.sockets[flow] {
            match socket.state {
                Life::Open => socket.is_owed_reset = true,
                Life::Syn => socket.is_owed_replay = true,
                Life::None => {}
            }
        }
    }

    /// What the host does; nothing where its socket cannot.
    fn take_hosts(&mut self, flow: usize, port: usize, step: &Step) -> Result<(), TestCaseError> {
        let socket = &mut self.sockets[flow][port];
        let table = &mut self.table;
        let sequence = socket.first.wrapping_add(1).wrapping_add(socket.sent);
        let ack = socket.next();
        match (step, socket.state) {
            (Step::Syn, Life::Syn) => {
                prop_assert_eq!(table.syn(socket.first), Outbound::Pass);
            }
            // From an open socket: its host was restarted and has forgotten it.
            (Step::Syn, Life::None | Life::Open) => {
                let first = socket.first.wrapping_add(1000);
                *socket = Socket {
                    state: Life::Syn,
                    first,
                    ..Socket::NONE
                };
                prop_assert_eq!(table.syn(first), Outbound::Pass);
            }
            (Step::HostSends { bytes }, Life::Open) if !socket.has_ended => {
                socket.sent += *bytes as u32;
                self.send(flow, port, sequence, ack, ACK, *bytes as u32)?;
            }
            (Step::HostRepeats { bytes }, Life::Open) if !socket.has_ended => {
                let bytes = (*bytes as u32).min(socket.sent);
                self.send(flow, port, sequence.wrapping_sub(bytes), ack, ACK, bytes)?;
            }
            (Step::HostAcknowledges, Life::Open) => {
                self.send(flow, port, sequence, ack, ACK, 0)?;
            }
            (Step::HostEnds, Life::Open) if !socket.has_ended => {
                let is_owed = socket.is_owed_reset;
                socket.has_ended = !is_owed;
                self.send(flow, port, sequence, ack, FIN | ACK, 0)?;
            }
            (Step::HostAborts, Life::Open | Life::Syn) => {
                table.outbound(sequence, ack, RST | ACK, 0);
                *socket = socket.gone();
            }
            _ => {}
        }
        Ok(())
    }

    /// What the far end does; nothing where it cannot.
    fn take_fars(&mut self, flow: usize, port: usize, step: &Step) -> Result<(), TestCaseError> {
        let socket = &mut self.sockets[flow][port];
        let table = &mut self.table;
        let sequence = socket.first.wrapping_add(1).wrapping_add(socket.sent);
        let ack = socket.next();
        match (step, socket.state) {
            (Step::SynAck, Life::Syn) => {
                let first = socket.first;
                let reply = table.inbound(FAR_FIRST, first.wrapping_add(1), SYN | ACK, 0);
                prop_assert!(is_pass(reply), "{reply:?}");
                *socket = Socket {
                    state: Life::Open,
                    first,
                    ..Socket::NONE
                };
            }
            (
                Step::FarSends {
                    start,
                    bytes,
                    has_room,
                },
                Life::Open,
            ) => {
                let start = match start {
                    Start::Next => in_order(&socket.passed),
                    Start::Anywhere(start) => *start,
                };
                let end = (start + bytes).min(socket.far_end.unwrap_or(STREAM));
                let start = start.min(end);
                let mut passed = socket.passed;
                passed[start..end].fill(true);
                if gaps(&passed) <= GAPS {
                    let at = FAR_FIRST.wrapping_add(1 + start as u32);
                    let inbound = table.inbound(at, sequence, ACK, (end - start) as u32);
                    if socket.is_owed_reset {
                        prop_assert_eq!(inbound, Inbound::Dead);
                    } else {
                        prop_assert!(is_pass(inbound), "{inbound:?}");
                        socket.passed = passed;
                        if *has_room {
                            socket.has[start..end].fill(true);
                        }
                    }
                }
            }
            (Step::FarEnds, Life::Open) if !socket.is_owed_reset => {
                let last = socket.passed.iter().rposition(|passed| *passed);
                let end = socket
                    .far_end
                    .unwrap_or_else(|| last.map_or(0, |last| last + 1));
                socket.far_end = Some(end);
                let at = FAR_FIRST.wrapping_add(1 + end as u32);
                table.inbound(at, sequence, FIN | ACK, 0);
            }
            (Step::FarAborts, Life::Open)
                if !socket.is_owed_reset && socket.next() == socket.passed_next() =>
            {
                table.inbound(ack, sequence, RST, 0);
                *socket = socket.gone();
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends a segment of an open socket.
    fn send(
        &mut self,
        flow: usize,
        port: usize,
        sequence: u32,
        ack: u32,
        flags: u8,
        bytes: u32,
    ) -> Result<(), TestCaseError> {
        let outbound = self.table.outbound(sequence, ack, flags, bytes);
        let socket = &mut self.sockets[flow][port];
        if !socket.is_owed_reset {
            prop_assert_eq!(outbound, Outbound::Pass);
            return Ok(());
        }
        let Outbound::Answer {
            sequence,
            acknowledgment: None,
        } = outbound
        else {
            return Err(TestCaseError::fail(format!("not answered: {outbound:?}")));
        };
        self.receive_reset(flow, port, sequence)
    }

    /// Lets a socket receive a reset, and challenge it when it does not believe it.
    fn receive_reset(
        &mut self,
        flow: usize,
        port: usize,
        sequence: u32,
    ) -> Result<(), TestCaseError> {
        let socket = &mut self.sockets[flow][port];
        prop_assert!(socket.is_owed_reset, "nobody owes {socket:?} a reset");
        prop_assert_eq!(sequence, socket.passed_next(), "{:?}", socket);
        let next = socket.next();
        if sequence != next {
            (self.table.flow, self.table.host_port) = (FlowId(flow as u32), port as u16 + 1);
            let challenge = self.table.outbound(HOST_FIRST, next, ACK, 0);
            prop_assert_eq!(
                challenge,
                Outbound::Answer {
                    sequence: next,
                    acknowledgment: None
                }
            );
        }
        *socket = socket.gone();
        Ok(())
    }

    fn act(&mut self) -> Result<(), TestCaseError> {
        for action in self.table.actions() {
            match action {
                Action::Reset { key, sequence, .. } => {
                    let port = usize::from(key.wire.host_port) - 1;
                    self.receive_reset(key.flow.0 as usize, port, sequence)?;
                }
                Action::ReplaySyn { key, .. } => {
                    let port = usize::from(key.wire.host_port) - 1;
                    let socket = &mut self.sockets[key.flow.0 as usize][port];
                    prop_assert!(socket.state == Life::Syn && socket.is_owed_replay);
                    socket.is_owed_replay = false;
                    let first = socket.first;
                    (self.table.flow, self.table.host_port) = (key.flow, key.wire.host_port);
                    prop_assert_eq!(self.table.syn(first), Outbound::Pass);
                }
            }
        }
        Ok(())
    }

    /// After the spread, everything owed has been paid.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        self.table.advance(Duration::from_millis(200));
        self.act()?;
        prop_assert_eq!(self.table.connections.poll_timeout(), None);
        for socket in self.sockets.iter().flatten() {
            prop_assert!(
                !socket.is_owed_reset && !socket.is_owed_replay,
                "{socket:?}"
            );
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let connections = &self.table.connections;
        for (flow, sockets) in self.sockets.iter().enumerate() {
            let is_open = |socket: &&Socket| socket.state == Life::Open && !socket.is_owed_reset;
            let open = sockets.iter().filter(is_open).count();
            prop_assert_eq!(connections.open_count(FlowId(flow as u32)), open as u32);
            for (port, socket) in sockets.iter().enumerate() {
                let wire = WireKey {
                    host_port: port as u16 + 1,
                    ..self.table.key().wire
                };
                let key = wire.in_flow(FlowId(flow as u32));
                prop_assert_eq!(connections.is_open(self.table.now, &key), is_open(&socket));
            }
        }
        connections.store.check();
        Ok(())
    }
}

fn is_pass(inbound: Inbound) -> bool {
    matches!(inbound, Inbound::Pass { .. })
}

fn in_order(bytes: &[bool]) -> usize {
    bytes.iter().take_while(|is_there| **is_there).count()
}

fn gaps(bytes: &[bool]) -> usize {
    bytes.windows(2).filter(|pair| !pair[0] && pair[1]).count()
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = 1usize..20;
    let start = prop_oneof![
        3 => Just(Start::Next),
        1 => (0..STREAM).prop_map(Start::Anywhere),
    ];
    prop_oneof![
        4 => Just(Step::Syn),
        4 => Just(Step::SynAck),
        2 => bytes.clone().prop_map(|bytes| Step::HostSends { bytes }),
        1 => bytes.clone().prop_map(|bytes| Step::HostRepeats { bytes }),
        2 => Just(Step::HostAcknowledges),
        1 => Just(Step::HostEnds),
        1 => Just(Step::HostAborts),
        8 => (start, bytes, prop::bool::weighted(0.9))
            .prop_map(|(start, bytes, has_room)| Step::FarSends { start, bytes, has_room }),
        1 => Just(Step::FarEnds),
        1 => Just(Step::FarAborts),
        2 => Just(Step::Move),
        2 => (0u64..300).prop_map(|millis| Step::Wait { millis }),
    ]
}
