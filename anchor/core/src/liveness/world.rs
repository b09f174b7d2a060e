//! The network of the simulation: a client, its holders with delay, loss and cuts between, and
//! the little of the plane that answers the events. Beside the detector it keeps a reference:
//! every packet and probe of which no proof came yet.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::count::DEADLINE;
use super::*;
use crate::time::Boot;

const CLIENT: PeerIx = PeerIx(0);

/// A client, its holders and the network between them.
pub(super) struct World {
    pub(super) now: Now,
    pub(super) client: Liveness,
    pub(super) holders: Vec<Holder>,
    flights: BTreeMap<(Mono, u64), Flight>,
    flights_made: u64,
    random: fastrand::Rng,
    pub(super) owd: Duration,
    pub(super) loss: f64,
    /// Between packets to each holder; zero sends none.
    pub(super) gap: Duration,
    pub(super) is_group_of_one: bool,
    pub(super) failed: Vec<Failure>,
    /// A fault was judged local and nobody has been heard since: every count starts anew then.
    starts_anew: bool,
    /// When every count last started anew.
    anew: Mono,
    pub(super) local_verdicts: u32,
    pub(super) answers: u64,
    pub(super) keepalives: u64,
}

/// One holder, what the client sent it, and the reference of what it proved.
pub(super) struct Holder {
    liveness: Liveness,
    pub(super) is_cut_there: bool,
    pub(super) is_cut_back: bool,
    received: Option<Sent>,
    sent: Sent,
    next_send: Mono,
    /// When each probe went out of which no proof came yet: a watched peer's count like packets.
    probes: VecDeque<Mono>,
    /// Every packet of which no proof came yet.
    unanswered: VecDeque<(Sent, Mono)>,
    /// The fault was judged local, or the holder failed: counts no longer run from `unanswered`.
    is_judged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    holder: PeerIx,
    frame: Frame,
}

#[derive(Clone, Copy, Debug)]
enum Frame {
    Data(Sent),
    Probe(u64, Mono),
    Echo(u64, Mono, Option<Sent>),
    Keepalive(Sent),
}

/// A failure as it was decided.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Failure {
    pub(super) peer: PeerIx,
    pub(super) at: Mono,
    /// When the oldest unanswered packet, or the probe that began the count, went out in truth.
    pub(super) oldest: Mono,
}

impl Failure {
    pub(super) fn within_deadline(&self) -> bool {
        let after = self.at.since(self.oldest);
        (DEADLINE..=DEADLINE + millis(50)).contains(&after)
    }
}

impl World {
    pub(super) fn new(seed: u64, holders: u32) -> Self {
        let start = Mono::from_nanos(1_000_000_000_000);
        let mut client = Liveness::new(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        let holders = (1..=holders).map(|peer| {
            client.add_peer(PeerIx(peer));
            client.handle_session(start, PeerIx(peer));
            client.set_wanted(start, PeerIx(peer), true);
            let mut liveness = Liveness::new(seed ^ u64::from(peer));
            liveness.add_peer(CLIENT);
            Holder {
                liveness,
                is_cut_there: false,
                is_cut_back: false,
                received: None,
                sent: Sent {
                    generation: 1,
                    counter: 0,
                },
                next_send: start + millis(random.u64(1..2_000)),
                probes: VecDeque::new(),
                unanswered: VecDeque::new(),
                is_judged: false,
            }
        });
        let holders = holders.collect();
        Self {
            now: Now {
                mono: start,
                boot: Boot::from_nanos(start.as_nanos()),
            },
            client,
            holders,
            flights: BTreeMap::new(),
            flights_made: 0,
            random,
            owd: millis(10),
            loss: 0.0,
            gap: Duration::ZERO,
            is_group_of_one: false,
            failed: Vec::new(),
            starts_anew: false,
            anew: Mono::default(),
            local_verdicts: 0,
            answers: 0,
            keepalives: 0,
        }
    }

    pub(super) fn watch_all(&mut self) {
        for peer in self.peers() {
            self.client.set_watched(self.now.mono, peer, true);
        }
    }

    pub(super) fn cut(&mut self, holder: u32) {
        let holder = self.holder(PeerIx(holder));
        holder.is_cut_there = true;
        holder.is_cut_back = true;
    }

    pub(super) fn heal(&mut self, holder: u32) {
        let holder = self.holder(PeerIx(holder));
        holder.is_cut_there = false;
        holder.is_cut_back = false;
    }

    /// The holder restarted: new keys, and nothing received under them.
    pub(super) fn renew(&mut self, peer: PeerIx) {
        let holder = self.holder(peer);
        holder.sent = Sent {
            generation: holder.sent.generation + 1,
            counter: 0,
        };
        holder.received = None;
        holder.liveness = Liveness::new(99);
        holder.liveness.add_peer(CLIENT);
        self.client.handle_session(self.now.mono, peer);
    }

    pub(super) fn send(&mut self, peer: PeerIx) {
        let now = self.now.mono;
        let holder = self.holder(peer);
        holder.sent.counter += 1;
        let sent = holder.sent;
        holder.unanswered.push_back((sent, now));
        self.client.handle_sent(now, peer, sent);
        self.launch(peer, Frame::Data(sent));
    }

    pub(super) fn run_for(&mut self, span: Duration) {
        let end = self.now.mono + span;
        loop {
            let next = self.next_point();
            if next > end {
                break;
            }
            self.now = self.now + next.since(self.now.mono);
            self.step();
        }
        self.now = self.now + end.since(self.now.mono);
    }

    fn step(&mut self) {
        let now = self.now.mono;
        while let Some(flight) = self
            .flights
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        {
            let flight = flight.remove();
            self.arrive(flight);
        }
        for peer in self.peers() {
            if !self.gap.is_zero() && self.holder(peer).next_send <= now {
                let gap = self.gap;
                self.holder(peer).next_send = now + gap;
                if !self.client.is_failed(peer) {
                    self.send(peer);
                }
            }
            let clock = self.now;
            let holder = self.holder(peer);
            holder.liveness.handle_timeout(clock);
            let received = holder.received;
            while let Some(event) = self.holder(peer).liveness.poll_event() {
                assert_eq!(event, Event::Keepalive { peer: CLIENT });
                self.keepalives += 1;
                self.launch(peer, Frame::Keepalive(received.expect("data came")));
            }
        }
        self.client.handle_timeout(self.now);
        while let Some(event) = self.client.poll_event() {
            self.answer(event);
        }
    }

    fn answer(&mut self, event: Event) {
        let now = self.now.mono;
        match event {
            Event::Probe { peer, id, .. } => {
                self.holder(peer).probes.push_back(now);
                self.launch(peer, Frame::Probe(id, now));
            }
            Event::Suspect { peer } => {
                for other in self.peers().filter(|other| *other != peer) {
                    self.client.probe_now(now, other);
                }
            }
            Event::Deadline { peer, since, asked } => self.judge(peer, since, asked),
            Event::Returned { peer } => self.holder(peer).is_judged = false,
            Event::Keepalive { peer } => panic!("{peer:?} sends no data"),
        }
    }

    fn judge(&mut self, peer: PeerIx, since: Mono, asked: Mono) {
        let now = self.now.mono;
        let answering = self
            .peers()
            .filter(|other| *other != peer && self.client.answered_since(*other, asked))
            .count();
        let others = self.holders.len() - 1;
        let around = Surroundings {
            others_in_group_answering: if self.is_group_of_one { 0 } else { answering },
            others_in_group: if self.is_group_of_one { 0 } else { others },
            other_peers_known: others,
            other_peers_answering: answering,
        };
        self.holder(peer).is_judged = true;
        match judge(&around) {
            Verdict::Move | Verdict::Fail => {
                let holder = self.holder(peer);
                let packet = holder.unanswered.front().map(|(_, at)| *at);
                let probe = holder.probes.iter().find(|at| **at == since).copied();
                let oldest = probe.or(packet).expect("something is unanswered");
                holder.unanswered.clear();
                holder.probes.clear();
                self.failed.push(Failure {
                    peer,
                    at: now,
                    oldest,
                });
                self.client.fail(now, peer);
            }
            Verdict::Local => {
                self.local_verdicts += 1;
                self.starts_anew = true;
                self.client.restart(now, peer);
            }
        }
    }

    fn arrive(&mut self, flight: Flight) {
        let now = self.now.mono;
        let peer = flight.holder;
        match flight.frame {
            Frame::Data(sent) => {
                let holder = self.holder(peer);
                if sent.generation < holder.sent.generation {
                    return;
                }
                holder.received = holder.received.max(Some(sent));
                holder.liveness.handle_data_received(now, CLIENT);
            }
            Frame::Probe(id, at) => {
                let holder = self.holder(peer);
                let received = holder.received;
                holder.liveness.handle_heard(now, CLIENT);
                holder.liveness.handle_echo_sent(now, CLIENT);
                self.launch(peer, Frame::Echo(id, at, received));
            }
            Frame::Echo(id, at, received) => {
                self.answers += 1;
                self.settle(peer, |(sent, sent_at)| {
                    Some(*sent) <= received || *sent_at <= at
                });
                if let Some(received) = received {
                    self.client.handle_proof(now, peer, received);
                }
                if let Some(rtt) = self.client.handle_echo(now, peer, id) {
                    self.client.set_rtt(peer, rtt);
                }
            }
            Frame::Keepalive(received) => {
                self.answers += 1;
                self.settle(peer, |(sent, _)| *sent <= received);
                self.client.handle_proof(now, peer, received);
            }
        }
    }

    /// Tells the reference what was answered. A local fault lets it start anew, too.
    fn settle(&mut self, peer: PeerIx, is_answered: impl Fn(&(Sent, Mono)) -> bool) {
        if std::mem::take(&mut self.starts_anew) {
            self.anew = self.now.mono;
        }
        let holder = self.holder(peer);
        holder.unanswered.retain(|packet| !is_answered(packet));
        let none = Sent {
            generation: u32::MAX,
            counter: u64::MAX,
        };
        holder.probes.retain(|at| !is_answered(&(none, *at)));
        if holder.unanswered.is_empty() && !self.client.is_failed(peer) {
            self.holder(peer).is_judged = false;
        }
    }

    fn launch(&mut self, holder: PeerIx, frame: Frame) {
        let is_lost = self.random.f64() < self.loss;
        let state = self.holder(holder);
        let is_cut = match frame {
            Frame::Data(_) | Frame::Probe(..) => state.is_cut_there,
            Frame::Echo(..) | Frame::Keepalive(_) => state.is_cut_back,
        };
        if is_lost || is_cut {
            return;
        }
        self.flights_made += 1;
        let arrival = self.now.mono + self.owd;
        self.flights
            .insert((arrival, self.flights_made), Flight { holder, frame });
    }

    fn next_point(&self) -> Mono {
        let mut points = vec![Mono::from_nanos(u64::MAX)];
        points.extend(self.flights.first_key_value().map(|((at, _), _)| *at));
        points.extend(self.client.poll_timeout());
        for holder in &self.holders {
            points.extend(holder.liveness.poll_timeout());
            if !self.gap.is_zero() {
                points.push(holder.next_send);
            }
        }
        points
            .into_iter()
            .min()
            .expect("it has one")
            .max(self.now.mono)
    }

    /// Returns the age of the oldest unanswered packet whose deadline came without a word.
    pub(super) fn oldest_unjudged(&self) -> Duration {
        let unjudged = self.holders.iter().filter(|holder| !holder.is_judged);
        let oldest = unjudged.filter_map(|holder| holder.unanswered.front());
        oldest
            .map(|(_, at)| self.now.mono.since((*at).max(self.anew)))
            .max()
            .unwrap_or_default()
    }

    fn peers(&self) -> impl Iterator<Item = PeerIx> + use<> {
        (1..=u32::try_from(self.holders.len()).expect("few holders")).map(PeerIx)
    }

    pub(super) fn holder(&mut self, peer: PeerIx) -> &mut Holder {
        &mut self.holders[peer.0 as usize - 1]
    }
}

pub(super) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
