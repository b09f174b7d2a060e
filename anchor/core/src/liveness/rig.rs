//! What the tests of single rules stand on: one detector, stepped from timer to timer.

use std::time::Duration;

use super::*;
use crate::time::Boot;

pub(super) const PEER: PeerIx = PeerIx(3);
pub(super) const OTHER: PeerIx = PeerIx(4);

/// A detector, its time, and whether probes are echoed at once.
pub(super) struct Bench {
    pub(super) liveness: Liveness,
    pub(super) now: Now,
    pub(super) answer: bool,
}

/// What came of it: milliseconds since the start, and the event.
pub(super) type Log = Vec<(u64, Event)>;

impl Bench {
    pub(super) fn new() -> Self {
        let mut liveness = Liveness::new(1);
        liveness.add_peer(PEER);
        liveness.add_peer(OTHER);
        let now = Now {
            mono: at(0),
            boot: Boot::from_nanos(at(0).as_nanos()),
        };
        liveness.handle_timeout(now);
        Self {
            liveness,
            now,
            answer: false,
        }
    }

    pub(super) fn send(&mut self, peer: PeerIx, counter: u64) {
        self.liveness.handle_sent(
            self.mono(),
            peer,
            Sent {
                generation: 1,
                counter,
            },
        );
    }

    pub(super) fn prove(&mut self, peer: PeerIx, counter: u64) {
        self.liveness.handle_proof(
            self.mono(),
            peer,
            Sent {
                generation: 1,
                counter,
            },
        );
    }

    pub(super) fn fail(&mut self, peer: PeerIx) {
        self.liveness.fail(self.mono(), peer);
    }

    /// Returns after how many seconds the peer was back.
    pub(super) fn fail_and_return(&mut self) -> u64 {
        let failed = millis_of(self.mono());
        self.fail(PEER);
        let log = self.run_for(90_000);
        let back = log
            .iter()
            .find(|(_, event)| *event == Event::Returned { peer: PEER });
        (back.expect("it answers").0 - failed) / 1_000
    }

    /// Lets time pass without looking at timers.
    pub(super) fn skip(&mut self, span_millis: u64) {
        self.now = self.now + millis(span_millis);
    }

    pub(super) fn run_for(&mut self, span_millis: u64) -> Log {
        let end = self.now + millis(span_millis);
        let mut log = Log::new();
        loop {
            self.liveness.handle_timeout(self.now);
            while let Some(event) = self.liveness.poll_event() {
                log.push((millis_of(self.mono()), event));
                if let Event::Probe { peer, id, .. } = event
                    && self.answer
                {
                    self.liveness.handle_echo(self.mono(), peer, id);
                }
            }
            match self.liveness.poll_timeout() {
                Some(due) if due <= end.mono => {
                    let step = due.since(self.now.mono);
                    self.now = self.now + step;
                }
                Some(_) | None => break,
            }
        }
        self.now = end;
        log
    }

    pub(super) fn mono(&self) -> Mono {
        self.now.mono
    }
}

pub(super) fn probe_times(log: &Log) -> Vec<u64> {
    let mut times: Vec<u64> = log
        .iter()
        .filter(|(_, event)| is_probe(event))
        .map(|(at, _)| *at)
        .collect();
    times.dedup();
    times
}

pub(super) fn probe_ids(log: &Log) -> Vec<u64> {
    log.iter()
        .filter_map(|(_, event)| match event {
            Event::Probe { id, .. } => Some(*id),
            Event::Suspect { .. }
            | Event::Deadline { .. }
            | Event::Returned { .. }
            | Event::Keepalive { .. } => None,
        })
        .collect()
}

pub(super) fn deadlines(log: &Log) -> Vec<u64> {
    log.iter()
        .filter(|(_, event)| matches!(event, Event::Deadline { .. }))
        .map(|(at, _)| *at)
        .collect()
}

pub(super) fn is_probe(event: &Event) -> bool {
    matches!(event, Event::Probe { .. })
}

pub(super) fn is_on_all_paths(event: &Event) -> bool {
    matches!(
        event,
        Event::Probe {
            all_paths: true,
            ..
        }
    )
}

pub(super) fn at(millis_passed: u64) -> Mono {
    Mono::from_nanos(1_000_000_000_000) + millis(millis_passed)
}

pub(super) fn millis_of(at_point: Mono) -> u64 {
    u64::try_from(at_point.since(at(0)).as_millis()).expect("tests are short")
}

pub(super) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
