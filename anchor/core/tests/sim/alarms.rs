//! False alarms and detection times of the failure detector itself, in hours of virtual time: a
//! client, its holder, another holder of the group as witness, and ways with every kind of loss. No
//! packets and no ciphers here, or a thousand hours would take days: the detector is the real one, and
//! what the packet way does with its events is done by hand. `docs/failover.md` has the tables.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::time::Duration;

use conflux_core::ids::PeerIx;
use conflux_core::liveness::{Event, Liveness, Sent, Surroundings, Verdict, judge};
use conflux_core::time::{Boot, Mono, Now};

use crate::link::{Loss, Way};

/// The holder that the flow is on, and the witness.
const HOLDER: usize = 0;
const WITNESS: usize = 1;
const CLIENT: PeerIx = PeerIx(9);
const START: Mono = Mono::from_nanos(1_000_000_000_000);

/// What the client's applications do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Traffic {
    /// A datagram every 100 ms to which nothing comes back.
    OneWay,
    /// A request a second on an open TCP connection; its answer proves nothing.
    Requests,
    /// An open TCP connection on which nothing is said.
    Silent,
}

impl Traffic {
    const fn gap(self) -> Option<Duration> {
        match self {
            Self::OneWay => Some(Duration::from_millis(100)),
            Self::Requests => Some(Duration::from_secs(1)),
            Self::Silent => None,
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OneWay => "one-way UDP",
            Self::Requests => "request/response",
            Self::Silent => "silent connection",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Message {
    Data(u64),
    Probe(u64),
    Echo(u64, u64),
    Keepalive(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Flight {
    at: Mono,
    number: u64,
    holder: usize,
    message: Message,
}

/// A holder, and the paths to it with their two directions.
struct Far {
    liveness: Liveness,
    received: u64,
    there: Vec<Way>,
    back: Vec<Way>,
}

/// The detector and what it watches.
struct Watch {
    now: Now,
    client: Liveness,
    far: [Far; 2],
    flights: BinaryHeap<Reverse<Flight>>,
    flights_made: u64,
    traffic: Traffic,
    sent: u64,
    next_send: Mono,
    /// When the holder was judged as failed.
    alarms: Vec<Mono>,
    local_verdicts: u64,
}

impl Watch {
    fn new(seed: u64, traffic: Traffic, paths: u64, delay: Duration, loss: Loss) -> Self {
        let mut client = Liveness::new(seed);
        let far = [HOLDER, WITNESS].map(|number| {
            let peer = peer(number);
            client.add_peer(peer);
            client.set_wanted(START, peer, true);
            client.set_used(START, peer, true);
            client.handle_session(START, peer);
            let mut liveness = Liveness::new(seed + 1);
            liveness.add_peer(CLIENT);
            let way = |number: u64| {
                let mut way = Way::new(delay, seed * 1_000 + number);
                way.loss = loss;
                way
            };
            let first = 100 * number as u64;
            Far {
                liveness,
                received: 0,
                there: (0..paths).map(|path| way(first + path)).collect(),
                back: (0..paths).map(|path| way(first + 50 + path)).collect(),
            }
        });
        client.set_watched(START, peer(HOLDER), traffic != Traffic::OneWay);
        Self {
            now: Now {
                mono: START,
                boot: Boot::from_nanos(START.as_nanos()),
            },
            client,
            far,
            flights: BinaryHeap::new(),
            flights_made: 0,
            traffic,
            sent: 0,
            next_send: START + Duration::from_secs(1),
            alarms: Vec::new(),
            local_verdicts: 0,
        }
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.now.mono + span;
        loop {
            let flight = self.flights.peek().map(|Reverse(flight)| flight.at);
            let timers = [
                flight,
                self.client.poll_timeout(),
                self.far[HOLDER].liveness.poll_timeout(),
                self.traffic.gap().map(|_| self.next_send),
            ];
            let next = timers.into_iter().flatten().min().unwrap_or(end);
            if next >= end {
                break;
            }
            self.now = self.now + next.since(self.now.mono);
            self.step();
        }
        self.now = self.now + end.since(self.now.mono);
    }

    fn step(&mut self) {
        let now = self.now.mono;
        while let Some(Reverse(flight)) = self.flights.peek().copied()
            && flight.at <= now
        {
            self.flights.pop();
            self.arrive(flight);
        }
        if let Some(gap) = self.traffic.gap()
            && self.next_send <= now
        {
            self.next_send = now + gap;
            if !self.client.is_failed(peer(HOLDER)) {
                self.sent += 1;
                self.client.handle_sent(now, peer(HOLDER), mark(self.sent));
                self.launch(HOLDER, false, Message::Data(self.sent), 0);
            }
        }
        let holder = &mut self.far[HOLDER];
        if holder.liveness.poll_timeout().is_some_and(|at| at <= now) {
            holder.liveness.handle_timeout(self.now);
        }
        while let Some(event) = self.far[HOLDER].liveness.poll_event() {
            assert!(matches!(event, Event::Keepalive { .. }), "{event:?}");
            let received = self.far[HOLDER].received;
            self.launch(HOLDER, true, Message::Keepalive(received), 0);
        }
        if self.client.poll_timeout().is_some_and(|at| at <= now) {
            self.client.handle_timeout(self.now);
        }
        while let Some(event) = self.client.poll_event() {
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now.mono;
        match event {
            Event::Probe {
                peer: to,
                id,
                all_paths,
            } => {
                let holder = number(to);
                let paths = if all_paths {
                    self.far[holder].there.len()
                } else {
                    1
                };
                for path in 0..paths {
                    self.launch(holder, false, Message::Probe(id), path);
                }
            }
            Event::Suspect { peer: suspect } => {
                let other = peer(1 - number(suspect));
                self.client.probe_now(now, other);
            }
            Event::Deadline {
                peer: silent,
                asked,
                ..
            } => {
                let other = peer(1 - number(silent));
                let answering = usize::from(self.client.answered_since(other, asked));
                let around = Surroundings {
                    others_in_group_answering: answering,
                    others_in_group: 1,
                    other_peers_known: 1,
                    other_peers_answering: answering,
                };
                match judge(&around) {
                    Verdict::Local => {
                        self.local_verdicts += 1;
                        self.client.restart(now, silent);
                    }
                    Verdict::Move | Verdict::Fail => {
                        self.alarms.push(now);
                        self.client.fail(now, silent);
                    }
                }
            }
            Event::Returned { .. } => {}
            Event::Keepalive { peer } => panic!("{peer:?} sends no data"),
        }
    }

    fn arrive(&mut self, flight: Flight) {
        let now = self.now.mono;
        let holder = flight.holder;
        let far = &mut self.far[holder];
        match flight.message {
            Message::Data(counter) => {
                far.received = far.received.max(counter);
                far.liveness.handle_data_received(now, CLIENT);
            }
            Message::Probe(id) => {
                far.liveness.handle_heard(now, CLIENT);
                far.liveness.handle_echo_sent(now, CLIENT);
                let echo = Message::Echo(id, far.received);
                // An echo goes back by the path of its probe.
                let path = usize::try_from(flight.number % 2).unwrap_or(0) % far.back.len();
                self.launch(holder, true, echo, path);
            }
            Message::Echo(id, received) => {
                self.prove(holder, received);
                if let Some(rtt) = self.client.handle_echo(now, peer(holder), id) {
                    self.client.set_rtt(peer(holder), rtt);
                }
            }
            Message::Keepalive(received) => self.prove(holder, received),
        }
    }

    fn prove(&mut self, holder: usize, received: u64) {
        let now = self.now.mono;
        if received == 0 {
            self.client.handle_heard(now, peer(holder));
        } else {
            self.client.handle_proof(now, peer(holder), mark(received));
        }
    }

    /// Sends a message; its number tells the path, so that an echo goes back by it.
    fn launch(&mut self, holder: usize, is_to_client: bool, message: Message, path: usize) {
        let now = self.now.mono;
        let far = &mut self.far[holder];
        let way = if is_to_client {
            &mut far.back[path]
        } else {
            &mut far.there[path]
        };
        if way.loses(now) {
            return;
        }
        self.flights_made += 2;
        let number = self.flights_made + path as u64;
        self.flights.push(Reverse(Flight {
            at: now + way.delay,
            number,
            holder,
            message,
        }));
    }

    fn cut(&mut self, there: bool, back: bool) {
        let far = &mut self.far[HOLDER];
        for way in far.there.iter_mut().filter(|_| there) {
            way.is_cut = true;
        }
        for way in far.back.iter_mut().filter(|_| back) {
            way.is_cut = true;
        }
    }
}

/// The table of false alarms; `make soak` runs the thousand hours of each row.
#[test]
fn loss_moves_no_flow_up_to_a_tenth_and_hardly_any_at_a_fifth() {
    let hours = if cfg!(feature = "soak") { 1_000 } else { 2 };
    let bursts = |burst_millis, share| Loss::Bursts {
        burst: Duration::from_millis(burst_millis),
        share,
    };
    let rows = [
        ("independent 5 %", Loss::Independent(0.05), Some(0)),
        ("independent 10 %", Loss::Independent(0.1), Some(0)),
        ("independent 20 %", Loss::Independent(0.2), Some(20)),
        ("bursts of 0.1 s, 5 %", bursts(100, 0.05), None),
        ("bursts of 0.1 s, 20 %", bursts(100, 0.2), None),
        ("bursts of 0.3 s, 5 %", bursts(300, 0.05), None),
        ("bursts of 0.3 s, 20 %", bursts(300, 0.2), None),
        ("bursts of 1 s, 5 %", bursts(1_000, 0.05), None),
        ("bursts of 1 s, 20 %", bursts(1_000, 0.2), None),
    ];
    let mut broken = Vec::new();
    println!(
        "moves in {hours} h | one-way UDP, one path | two paths | requests, one path | two paths"
    );
    for (name, loss, bar) in rows {
        let mut cells = Vec::new();
        for traffic in [Traffic::OneWay, Traffic::Requests] {
            for paths in [1, 2] {
                let mut watch = Watch::new(7, traffic, paths, Duration::from_millis(20), loss);
                watch.run_for(Duration::from_secs(3_600 * hours));
                if bar.is_some_and(|bar| watch.alarms.len() > bar) {
                    broken.push((name, traffic, paths, watch.alarms.len()));
                }
                assert!(watch.sent > 100 * hours, "{} were sent", watch.sent);
                cells.push(watch.alarms.len().to_string());
            }
        }
        println!("| {name} | {} |", cells.join(" | "));
    }
    assert!(broken.is_empty(), "{broken:?}");
}

/// The table of detection times.
#[test]
fn a_cut_is_noticed_within_the_bars_whatever_the_traffic() {
    let cuts = if cfg!(feature = "soak") { 10_000 } else { 200 };
    println!(
        "from the cut to the move, {cuts} cuts each: | traffic | cut | least | median | most |"
    );
    for traffic in [Traffic::OneWay, Traffic::Requests, Traffic::Silent] {
        for (name, there, back) in [
            ("both ways", true, true),
            ("towards the holder", true, false),
            ("back", false, true),
        ] {
            let mut took: Vec<Duration> = (0..cuts)
                .map(|seed| detection(seed, traffic, there, back))
                .collect();
            took.sort();
            let (least, median, most) = (took[0], took[took.len() / 2], took[took.len() - 1]);
            println!("| {traffic} | {name} | {least:.2?} | {median:.2?} | {most:.2?} |");
            let bar = match traffic {
                // The next datagram or request is up to a gap away, and is what counts.
                Traffic::OneWay | Traffic::Requests => {
                    Duration::from_millis(2_250) + traffic.gap().unwrap_or_default()
                }
                Traffic::Silent => Duration::from_millis(7_250),
            };
            assert!(most <= bar, "{traffic} cut {name}: {most:?}");
            assert!(least >= Duration::from_millis(1_700), "{least:?}");
        }
    }
}

fn detection(seed: u64, traffic: Traffic, there: bool, back: bool) -> Duration {
    let delay = Duration::from_millis(1 + seed % 40);
    let mut watch = Watch::new(seed + 1, traffic, 1, delay, Loss::None);
    watch.run_for(Duration::from_millis(10_000 + seed * 37 % 5_000));
    watch.cut(there, back);
    let cut = watch.now.mono;
    watch.run_for(Duration::from_secs(9));
    let [at] = watch.alarms[..] else {
        panic!("seed {seed}: {:?}", watch.alarms)
    };
    at.since(cut)
}

const fn mark(counter: u64) -> Sent {
    Sent {
        generation: 1,
        counter,
    }
}

fn peer(number: usize) -> PeerIx {
    PeerIx(u32::try_from(number).expect("two holders"))
}

const fn number(peer: PeerIx) -> usize {
    peer.0 as usize
}
