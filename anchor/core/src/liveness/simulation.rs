//! The detector on a network with delay, loss and cuts, in virtual time: a client, its holders,
//! and the little of the plane that answers the events.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::time::Boot;

const CLIENT: PeerIx = PeerIx(0);
const DEADLINE: Duration = count::DEADLINE;

#[test]
fn ten_percent_loss_raises_no_false_alarm_in_hours() {
    for (seed, gap_millis) in [(1, 40), (2, 700), (3, 2_300), (4, 60_000)] {
        let mut world = World::new(seed, 3);
        world.loss = 0.1;
        world.gap = millis(gap_millis);
        world.watch_all();

        world.run_for(Duration::from_secs(3_600));

        assert_eq!(world.failed, [], "a packet every {gap_millis} ms");
        assert!(world.answers > 1_000, "a packet every {gap_millis} ms");
    }
}

/// Twenty false alarms are allowed in 1,000 hours of the whole anchor.
#[test]
fn twenty_percent_loss_raises_no_false_alarm_in_hours() {
    for seed in 0..4 {
        let mut world = World::new(seed, 2);
        world.loss = 0.2;
        world.gap = millis(1_900);
        world.owd = millis(100);

        world.run_for(Duration::from_secs(2 * 3_600));

        assert_eq!(world.failed, []);
    }
}

#[test]
fn a_cut_in_either_direction_is_noticed_in_two_seconds() {
    for seed in 0..60 {
        let mut world = World::new(seed, 3);
        world.gap = millis(1 + seed * 3);
        world.owd = millis(seed % 7 * 10);
        world.watch_all();
        world.run_for(millis(4_000 + seed * 37));
        let cut = world.now.mono;
        match seed % 3 {
            0 => world.holders[1].is_cut_there = true,
            1 => world.holders[1].is_cut_back = true,
            _ => world.cut(1),
        }

        world.run_for(millis(3_000));

        let [failure] = world.failed[..] else {
            panic!("seed {seed}: {:?}", world.failed)
        };
        assert_eq!(failure.peer, PeerIx(1));
        assert!(failure.within_deadline(), "seed {seed}: {failure:?}");
        let after_cut = failure.at.since(cut);
        let in_flight = world.owd * 2 + millis(200);
        assert!(
            after_cut + in_flight >= DEADLINE,
            "seed {seed}: {after_cut:?}"
        );
        assert!(after_cut <= millis(2_250), "seed {seed}: {after_cut:?}");
    }
}

#[test]
fn a_request_within_two_hundred_milliseconds_before_the_cut_fails_the_holder_as_fast() {
    for wait in (0..=200).step_by(10) {
        let mut world = World::new(wait, 2);
        world.watch_all();
        world.run_for(millis(3_000));
        for _ in 0..3 {
            world.send(PeerIx(1));
            world.run_for(millis(50));
        }
        world.send(PeerIx(1));
        world.run_for(millis(wait));
        world.cut(1);
        let cut = world.now.mono;

        world.run_for(millis(9_000));

        let [failure] = world.failed[..] else {
            panic!("{wait} ms: {:?}", world.failed)
        };
        assert!(
            failure.at.since(cut) <= millis(2_300),
            "{wait} ms: {failure:?}"
        );
    }
}

#[test]
fn a_silent_connection_learns_of_a_cut_within_seven_and_a_quarter_seconds() {
    for wait in (0..10_000).step_by(170) {
        let mut world = World::new(wait, 2);
        world.watch_all();
        world.run_for(millis(10_000 + wait));
        world.cut(1);
        let cut = world.now.mono;

        world.run_for(millis(7_250));

        let [failure] = world.failed[..] else {
            panic!("{wait} ms: {:?}", world.failed)
        };
        assert!(failure.at.since(cut) >= millis(1_950), "{failure:?}");
    }
}

#[test]
fn one_second_of_total_loss_moves_nothing() {
    for seed in 0..200 {
        let mut world = World::new(seed, 2);
        world.gap = millis(1 + seed * 7);
        world.watch_all();
        world.run_for(millis(3_000 + seed * 13));

        world.loss = 1.0;
        world.run_for(millis(1_000));
        world.loss = 0.0;
        world.run_for(millis(10_000));

        assert_eq!(world.failed, [], "seed {seed}");
        assert_eq!(world.local_verdicts, 0, "seed {seed}");
    }
}

#[test]
fn a_local_fault_moves_nothing_and_a_holder_that_died_meanwhile_fails_after_it() {
    let mut world = World::new(5, 4);
    world.gap = millis(100);
    world.run_for(millis(5_000));

    world.loss = 1.0;
    world.run_for(millis(30_000));
    assert_eq!(world.failed, []);
    assert!(world.local_verdicts > 0);
    world.cut(2);
    world.loss = 0.0;
    let healed = world.now.mono;
    world.run_for(millis(10_000));

    let [failure] = world.failed[..] else {
        panic!("{:?}", world.failed)
    };
    assert_eq!(failure.peer, PeerIx(2));
    assert!(failure.at.since(healed) <= millis(3_200), "{failure:?}");
}

#[test]
fn the_only_holder_fails_when_other_peers_answer_and_comes_back() {
    let mut world = World::new(6, 3);
    world.gap = millis(100);
    world.is_group_of_one = true;
    world.run_for(millis(5_000));
    world.cut(1);
    world.run_for(millis(20_000));
    assert!(world.client.is_failed(PeerIx(1)));

    world.heal(1);
    world.run_for(millis(4_000));

    assert!(!world.client.is_failed(PeerIx(1)));
    assert_eq!(world.failed.len(), 1);
}

#[test]
fn a_restart_within_the_deadline_with_new_keys_moves_nothing() {
    let mut world = World::new(7, 2);
    world.gap = millis(30);
    world.run_for(millis(5_000));

    world.cut(1);
    world.run_for(millis(1_700));
    world.heal(1);
    world.renew(PeerIx(1));
    world.run_for(millis(20_000));

    assert_eq!(world.failed, []);
    assert!(!world.client.is_suspect(PeerIx(1)));
}

#[test]
fn one_way_datagrams_are_never_judged_dead() {
    let mut world = World::new(8, 2);
    world.gap = millis(3);
    world.loss = 0.1;

    world.run_for(Duration::from_secs(120));

    assert_eq!(world.failed, []);
    assert!(world.keepalives <= 2 * 120 * 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Reference: a queue of every packet, and the rule of SPEC section 5 word by word.
    #[test]
    fn no_schedule_of_cuts_fails_a_holder_too_early_or_too_late(
        seed: u64,
        gap in 1_u64..900,
        owd in 0_u64..90,
        cuts in prop::collection::vec((1_u32..4, 0_u8..4, 50_u64..3_500), 1..30),
    ) {
        let mut world = World::new(seed, 3);
        world.gap = millis(gap);
        world.owd = millis(owd);
        world.loss = 0.02;
        world.watch_all();
        for (holder, kind, span) in cuts {
            let holder = &mut world.holders[holder as usize - 1];
            holder.is_cut_there = kind & 1 != 0;
            holder.is_cut_back = kind & 2 != 0;
            world.run_for(millis(span));
            for failure in &world.failed {
                prop_assert!(failure.at.since(failure.oldest) >= DEADLINE, "{:?}", failure);
            }
            prop_assert!(world.oldest_unjudged() <= millis(2_051), "{:?}", world.oldest_unjudged());
        }
    }
}

/// Not a bar of every run: 1,000 hours of each traffic, as SPEC section 5 promises them.
#[test]
#[ignore = "minutes of computing, in release mode"]
fn a_thousand_hours_of_loss_keep_the_promise() {
    for (loss, allowed) in [(0.1, 0), (0.2, 20)] {
        for (gap_millis, owd_millis) in [(200, 20), (1_000, 20), (1_900, 20), (2_300, 150)] {
            let mut world = World::new(gap_millis, 2);
            world.loss = loss;
            world.gap = millis(gap_millis);
            world.owd = millis(owd_millis);

            world.run_for(Duration::from_secs(3_600_000));

            println!(
                "loss {loss} gap {gap_millis} ms: {} false alarms",
                world.failed.len()
            );
            assert!(world.failed.len() <= allowed);
        }
    }
}

struct World {
    now: Now,
    client: Liveness,
    holders: Vec<Holder>,
    flights: BTreeMap<(Mono, u64), Flight>,
    flights_made: u64,
    random: fastrand::Rng,
    owd: Duration,
    loss: f64,
    /// Between packets to each holder; zero sends none.
    gap: Duration,
    is_group_of_one: bool,
    failed: Vec<Failure>,
    local_verdicts: u32,
    answers: u64,
    keepalives: u64,
}

struct Holder {
    liveness: Liveness,
    is_cut_there: bool,
    is_cut_back: bool,
    received: Option<Sent>,
    sent: Sent,
    next_send: Mono,
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

#[derive(Clone, Copy, PartialEq, Debug)]
struct Failure {
    peer: PeerIx,
    at: Mono,
    /// When the oldest unanswered packet went out in truth; the deadline's word for a probe.
    oldest: Mono,
}

impl Failure {
    fn within_deadline(&self) -> bool {
        let after = self.at.since(self.oldest);
        (DEADLINE..=DEADLINE + millis(50)).contains(&after)
    }
}

impl World {
    fn new(seed: u64, holders: u32) -> Self {
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
            local_verdicts: 0,
            answers: 0,
            keepalives: 0,
        }
    }

    fn watch_all(&mut self) {
        for peer in self.peers() {
            self.client.set_watched(self.now.mono, peer, true);
        }
    }

    fn cut(&mut self, holder: u32) {
        let holder = self.holder(PeerIx(holder));
        holder.is_cut_there = true;
        holder.is_cut_back = true;
    }

    fn heal(&mut self, holder: u32) {
        let holder = self.holder(PeerIx(holder));
        holder.is_cut_there = false;
        holder.is_cut_back = false;
    }

    /// The holder restarted: new keys, and nothing received under them.
    fn renew(&mut self, peer: PeerIx) {
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

    fn send(&mut self, peer: PeerIx) {
        let now = self.now.mono;
        let holder = self.holder(peer);
        holder.sent.counter += 1;
        let sent = holder.sent;
        holder.unanswered.push_back((sent, now));
        self.client.handle_sent(now, peer, sent);
        self.launch(peer, Frame::Data(sent));
    }

    fn run_for(&mut self, span: Duration) {
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
            Event::Probe { peer, id, .. } => self.launch(peer, Frame::Probe(id, now)),
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
                let oldest = holder.unanswered.front().map_or(since, |(_, at)| *at);
                holder.unanswered.clear();
                self.failed.push(Failure {
                    peer,
                    at: now,
                    oldest,
                });
                self.client.fail(now, peer);
            }
            Verdict::Local => {
                self.local_verdicts += 1;
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
        let holder = self.holder(peer);
        holder.unanswered.retain(|packet| !is_answered(packet));
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
    fn oldest_unjudged(&self) -> Duration {
        let unjudged = self.holders.iter().filter(|holder| !holder.is_judged);
        let oldest = unjudged.filter_map(|holder| holder.unanswered.front());
        oldest
            .map(|(_, at)| self.now.mono.since(*at))
            .max()
            .unwrap_or_default()
    }

    fn peers(&self) -> impl Iterator<Item = PeerIx> + use<> {
        (1..=u32::try_from(self.holders.len()).expect("few holders")).map(PeerIx)
    }

    fn holder(&mut self, peer: PeerIx) -> &mut Holder {
        &mut self.holders[peer.0 as usize - 1]
    }
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
