//! Many anchors as far as the spread of adverts goes: a real store each, control connections to a
//! bounded number of others, delays, and the bytes that cross. No data plane.
//!
//! Ten thousand stores of ten thousand adverts do not fit a machine. What one advert does on its way
//! does not depend on the others, so the stores here hold those of some anchors only, the *authors*,
//! and figures per advert are multiplied; what a full store costs is measured on full stores.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use conflux_core::credential::first_machine;
use conflux_core::identity::{Identity, RealmSecret};
use conflux_core::membership::{
    DIGEST_INTERVAL, Event, FULL_MESH, Membership, NEIGHBOURS, Own, Spread,
};
use conflux_core::table::{Map, map};
use conflux_core::time::{Mono, UnixTime};
use conflux_proto::advert::Reach;
use conflux_proto::control::{Adverts, AgedAdvert, Message};
use conflux_proto::credential::Serial;
use conflux_proto::id::AnchorKey;
use conflux_proto::taint::TaintSet;

use crate::anchor::realm;

pub(crate) const UNIX: UnixTime = UnixTime(1_800_000_000);
const START: Mono = Mono::from_nanos(1_000_000_000_000);

/// The daemon has refreshes wait this long for others to go with, and sends so many at most.
const REFRESHES_WAIT: Duration = Duration::from_secs(2);
const MANY_REFRESHES: usize = 64;
/// What a message costs beside its bytes: length prefix, QUIC, UDP and IPv4 headers and its share of
/// acknowledgements.
pub(crate) const OVERHEAD_BYTES: u64 = 4 + 50 + 28 + 25;

/// One anchor.
pub(crate) struct Node {
    pub(crate) membership: Membership,
    pub(crate) links: Vec<u32>,
    pub(crate) is_up: bool,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) events: [u64; 3],
    waiting: Vec<(Mono, AgedAdvert)>,
    few: usize,
    next_digest: Mono,
    /// Its earliest entry among the timers.
    queued: Mono,
    key: AnchorKey,
}

/// The anchors, and what is under way between them.
pub(crate) struct Net {
    pub(crate) now: Mono,
    pub(crate) nodes: Vec<Node>,
    numbers: Map<AnchorKey, u32>,
    queue: BinaryHeap<Reverse<Flight>>,
    timers: BinaryHeap<Reverse<(Mono, u32)>>,
    flights_made: u64,
    random: fastrand::Rng,
    /// Anchors below this number and those above do not reach each other.
    pub(crate) split: Option<u32>,
    /// How often [`Self::run_until`] looks whether it is done.
    pub(crate) look_every: Duration,
    secret: RealmSecret,
}

struct Flight {
    at: Mono,
    number: u64,
    from: u32,
    to: u32,
    message: Arc<Message>,
}

impl PartialEq for Flight {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Flight {}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Net {
    /// Returns a connected realm of `size` anchors that know nobody's advert yet.
    pub(crate) fn new(size: usize, seed: u64) -> Self {
        let secret = realm();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut net = Self {
            now: START,
            nodes: Vec::new(),
            numbers: map(seed),
            queue: BinaryHeap::new(),
            timers: BinaryHeap::new(),
            flights_made: 0,
            split: None,
            look_every: Duration::from_millis(10),
            random: random.fork(),
            secret,
        };
        for _ in 0..size {
            net.add_node();
        }
        for number in 0..size {
            net.dial(number, size);
        }
        net
    }

    /// Adds an anchor without connections; returns its number.
    pub(crate) fn add_node(&mut self) -> usize {
        let number = u32::try_from(self.nodes.len()).expect("thousands");
        let identity = identity(number);
        let key = identity.key();
        let seed = self.random.u64(..);
        let digest_after = DIGEST_INTERVAL.mul_f64(self.random.f64());
        self.nodes.push(Node {
            membership: Membership::new(self.secret.key(), identity, 1, seed),
            links: Vec::new(),
            is_up: true,
            sent_bytes: 0,
            received_bytes: 0,
            events: [0; 3],
            waiting: Vec::new(),
            few: 0,
            next_digest: self.now + digest_after,
            queued: self.now + digest_after,
            key,
        });
        self.numbers.insert(key, number);
        self.timers.push(Reverse((self.now + digest_after, number)));
        self.nodes.len() - 1
    }

    /// Connects an anchor with everybody in a small realm, else with some drawn among the first
    /// `among`.
    pub(crate) fn dial(&mut self, number: usize, among: usize) {
        let wanted = if among <= FULL_MESH {
            among
        } else {
            NEIGHBOURS
        };
        let mut dialled = 0;
        let mut tries = 0;
        while dialled < wanted.min(among - 1) && tries < 10 * wanted + among {
            tries += 1;
            let other = if among <= FULL_MESH {
                tries - 1
            } else {
                self.random.usize(..among)
            };
            if other >= among || other == number {
                continue;
            }
            dialled += 1;
            self.link(number, other);
        }
    }

    fn link(&mut self, one: usize, two: usize) {
        let (low, high) = (index(one), index(two));
        if self.nodes[one].links.contains(&high) {
            return;
        }
        self.nodes[one].links.push(high);
        self.nodes[two].links.push(low);
    }

    /// Has an anchor say what it is.
    pub(crate) fn publish(&mut self, number: usize, own: Own) {
        let now = self.now;
        self.nodes[number].membership.set_own(now, own);
        self.run(number);
        self.schedule(number);
    }

    /// Has an anchor say goodbye, and everything of it end.
    pub(crate) fn leave(&mut self, number: usize) {
        let message = Arc::new(Message::Leave(self.nodes[number].membership.leave()));
        for to in self.nodes[number].links.clone() {
            self.send(number, to, &message);
        }
        self.nodes[number].is_up = false;
        self.nodes[number].waiting.clear();
    }

    /// Starts an anchor that had left once more.
    pub(crate) fn start_again(&mut self, number: usize, epoch: u64) {
        let identity = identity(index(number));
        let seed = self.random.u64(..);
        let node = &mut self.nodes[number];
        node.membership = Membership::new(self.secret.key(), identity, epoch, seed);
        node.is_up = true;
        self.publish(number, self.own(number));
        self.greet_all(number);
    }

    /// Has an anchor and those it is connected with tell each other what they know.
    pub(crate) fn greet_all(&mut self, number: usize) {
        for to in self.nodes[number].links.clone() {
            let other = to as usize;
            if !self.nodes[other].is_up || !self.passes(number, other) {
                continue;
            }
            for (from, to) in [(number, to), (other, index(number))] {
                let digest = Arc::new(Message::Digest(self.nodes[from].membership.digest()));
                self.send(from, to, &digest);
                if let Some(advert) = self.nodes[from].membership.own() {
                    let aged = AgedAdvert {
                        advert,
                        age_millis: 0,
                    };
                    let adverts = Adverts {
                        adverts: vec![aged],
                        more: false,
                    };
                    self.send(from, to, &Arc::new(Message::Adverts(adverts)));
                }
            }
        }
    }

    /// Has an anchor greet those on the other side of a split that has healed.
    pub(crate) fn greet_crossing(&mut self, number: usize) {
        let side = self.nodes[number].links.clone();
        let half = index(self.nodes.len() / 2);
        for to in side
            .into_iter()
            .filter(|to| (*to < half) != (index(number) < half))
        {
            for (from, to) in [(number, to), (to as usize, index(number))] {
                if self.nodes[from].is_up {
                    let digest = Message::Digest(self.nodes[from].membership.digest());
                    self.send(from, to, &Arc::new(digest));
                }
            }
        }
    }

    /// Returns what an ordinary anchor says.
    pub(crate) fn own(&self, number: usize) -> Own {
        own_of(&self.secret, index(number))
    }

    /// Lets time pass, or ends when `done` says so, asked every `look_every`.
    pub(crate) fn run_until(
        &mut self,
        span: Duration,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Option<Duration> {
        let (start, end) = (self.now, self.now + span);
        let mut look_at = self.now;
        loop {
            let flight = self.queue.peek().map(|Reverse(flight)| flight.at);
            let timer = self.timers.peek().map(|Reverse((at, _))| *at);
            let next = flight.into_iter().chain(timer).min().unwrap_or(end);
            while look_at <= next.min(end) {
                self.now = self.now.max(look_at);
                if done(self) {
                    return Some(look_at.since(start));
                }
                look_at += self.look_every;
            }
            if next >= end {
                self.now = end;
                return None;
            }
            self.now = next;
            if flight == Some(next) {
                if let Some(Reverse(flight)) = self.queue.pop() {
                    self.arrive(flight);
                }
            } else if let Some(Reverse((at, number))) = self.timers.pop()
                && self.nodes[number as usize].queued == at
            {
                self.nodes[number as usize].queued = Mono::from_nanos(u64::MAX);
                self.fire(number as usize);
            }
        }
    }

    /// Returns how many of the anchors that are up `knows`.
    pub(crate) fn share(&self, knows: impl Fn(&Membership) -> bool) -> f64 {
        let up = self.nodes.iter().filter(|node| node.is_up);
        let all = up.clone().count();
        let knowing = up.filter(|node| knows(&node.membership)).count();
        knowing as f64 / all as f64
    }

    pub(crate) fn key(&self, number: usize) -> AnchorKey {
        self.nodes[number].key
    }

    pub(crate) fn forget_bytes(&mut self) {
        for node in &mut self.nodes {
            node.sent_bytes = 0;
            node.received_bytes = 0;
            node.events = [0; 3];
        }
    }

    /// Returns the mean bytes that an anchor that is up has sent, and the most.
    pub(crate) fn bytes(&self) -> (f64, u64) {
        let up = || self.nodes.iter().filter(|node| node.is_up);
        let all: u64 = up().map(|node| node.sent_bytes).sum();
        let most = up().map(|node| node.sent_bytes.max(node.received_bytes));
        (all as f64 / up().count() as f64, most.max().unwrap_or(0))
    }

    fn fire(&mut self, number: usize) {
        let now = self.now;
        let node = &mut self.nodes[number];
        if node.is_up {
            if node.next_digest <= now {
                node.next_digest = now + DIGEST_INTERVAL;
                let to = node.links[self.random.usize(..node.links.len())];
                let digest = Arc::new(Message::Digest(node.membership.digest()));
                self.send(number, to, &digest);
            }
            let node = &mut self.nodes[number];
            if node.membership.poll_timeout().is_some_and(|at| at <= now) {
                node.membership.handle_timeout(now);
            }
            self.pass_refreshes(number);
            self.run(number);
        } else {
            node.next_digest = now + DIGEST_INTERVAL;
        }
        self.schedule(number);
    }

    fn schedule(&mut self, number: usize) {
        let node = &self.nodes[number];
        let waiting = node.waiting.first().filter(|_| node.is_up);
        let refreshes = waiting.map(|(at, _)| *at + REFRESHES_WAIT);
        let store = node.membership.poll_timeout().filter(|_| node.is_up);
        let due = [Some(node.next_digest), store, refreshes];
        let due = due.into_iter().flatten().min().expect("digests go on");
        let due = due.max(self.now + Duration::from_nanos(1));
        if due < node.queued {
            self.nodes[number].queued = due;
            self.timers.push(Reverse((due, index(number))));
        }
    }

    fn pass_refreshes(&mut self, number: usize) {
        let now = self.now;
        let node = &mut self.nodes[number];
        let is_due = node
            .waiting
            .first()
            .is_some_and(|(at, _)| *at + REFRESHES_WAIT <= now);
        if !is_due && node.waiting.len() < MANY_REFRESHES {
            return;
        }
        let count = node.waiting.len().min(MANY_REFRESHES);
        let adverts = node.waiting.drain(..count).map(|(at, mut aged)| {
            aged.age_millis += u64::try_from(now.since(at).as_millis()).expect("seconds");
            aged
        });
        let adverts = Adverts {
            adverts: adverts.collect(),
            more: false,
        };
        let few = node.few;
        self.flood(
            number,
            &Arc::new(Message::Adverts(adverts)),
            None,
            Some(few),
        );
    }

    fn arrive(&mut self, flight: Flight) {
        let (at, from) = (flight.to as usize, flight.from as usize);
        if !self.nodes[at].is_up || !self.passes(from, at) {
            return;
        }
        let now = self.now;
        let from_key = self.nodes[from].key;
        let node = &mut self.nodes[at];
        let mut answers = Vec::new();
        match &*flight.message {
            Message::Adverts(adverts) => {
                for aged in &adverts.adverts {
                    let age = Duration::from_millis(aged.age_millis);
                    node.membership
                        .handle_advert(now, UNIX, &aged.advert, age, Some(from_key));
                }
                if adverts.more {
                    answers.push(Message::Digest(node.membership.digest()));
                }
            }
            Message::Digest(digest) => answers = node.membership.handle_digest(now, digest),
            Message::Leave(leave) => {
                node.membership.handle_leave(now, leave, Some(from_key));
            }
            Message::Hello(_)
            | Message::Refused(_)
            | Message::Admitted(_)
            | Message::Noise1(_)
            | Message::Noise2(_)
            | Message::Ping(_)
            | Message::Pong(_)
            | Message::Resting(_)
            | Message::Revocations(_)
            | Message::RevocationDigest(_)
            | Message::Relay(_)
            | Message::Meet(_) => unreachable!("not sent here"),
        }
        for answer in answers {
            self.send(at, flight.from, &Arc::new(answer));
        }
        self.run(at);
        self.schedule(at);
    }

    fn run(&mut self, number: usize) {
        let now = self.now;
        while let Some(event) = self.nodes[number].membership.poll_event() {
            match event {
                Event::Changed(_) => self.nodes[number].events[0] += 1,
                Event::Left(_) => self.nodes[number].events[1] += 1,
                Event::Expired(_) => self.nodes[number].events[2] += 1,
                Event::Revoked(key) => unreachable!("nobody is revoked here: {key:?}"),
                Event::Flood {
                    message,
                    except,
                    spread,
                } => match (*message, spread) {
                    (Message::Adverts(adverts), Spread::Few(few)) => {
                        let node = &mut self.nodes[number];
                        node.few = few;
                        let adverts = adverts.adverts.into_iter();
                        node.waiting.extend(adverts.map(|aged| (now, aged)));
                    }
                    (message, Spread::All) => {
                        self.flood(number, &Arc::new(message), except, None);
                    }
                    (message, Spread::Few(few)) => {
                        self.flood(number, &Arc::new(message), except, Some(few));
                    }
                },
                Event::Tell { to, message } => {
                    if let Some(to) = self.numbers.get(&to).copied() {
                        self.send(number, to, &Arc::new(*message));
                    }
                }
                Event::OwnAhead(_) => {}
            }
        }
        if self.nodes[number].waiting.len() >= MANY_REFRESHES {
            self.pass_refreshes(number);
        }
    }

    fn flood(
        &mut self,
        number: usize,
        message: &Arc<Message>,
        except: Option<AnchorKey>,
        few: Option<usize>,
    ) {
        let mut to = self.nodes[number].links.clone();
        if let Some(except) = except.and_then(|key| self.numbers.get(&key).copied()) {
            to.retain(|other| *other != except);
        }
        to.retain(|other| self.nodes[*other as usize].is_up);
        if let Some(few) = few {
            self.random.shuffle(&mut to);
            to.truncate(few);
        }
        let bytes = bytes_of(message);
        for other in to {
            self.send_bytes(number, other, message, bytes);
        }
    }

    fn send(&mut self, from: usize, to: u32, message: &Arc<Message>) {
        self.send_bytes(from, to, message, bytes_of(message));
    }

    fn send_bytes(&mut self, from: usize, to: u32, message: &Arc<Message>, bytes: u64) {
        self.nodes[from].sent_bytes += bytes;
        self.nodes[to as usize].received_bytes += bytes;
        self.flights_made += 1;
        self.queue.push(Reverse(Flight {
            at: self.now + delay(index(from), to),
            number: self.flights_made,
            from: index(from),
            to,
            message: Arc::clone(message),
        }));
    }

    fn passes(&self, from: usize, to: usize) -> bool {
        self.split
            .is_none_or(|split| (index(from) < split) == (index(to) < split))
    }
}

/// Returns what a message costs on the wire.
pub(crate) fn bytes_of(message: &Message) -> u64 {
    let bytes = message.encode().expect("messages of legal size").len() as u64;
    bytes + OVERHEAD_BYTES
}

/// Returns the identity of anchor `number`.
pub(crate) fn identity(number: u32) -> Identity {
    let mut seed = [0x5e; 32];
    seed[..4].copy_from_slice(&number.to_be_bytes());
    Identity::from_seed(&seed)
}

/// Returns what anchor `number` says, its credential of the ordinary kind.
pub(crate) fn own_of(secret: &RealmSecret, number: u32) -> Own {
    let identity = identity(number);
    let mut serial = [0; 16];
    serial[..4].copy_from_slice(&number.to_be_bytes());
    let taints = TaintSet::first_machine();
    Own {
        endpoints: vec![
            ([203, 0, 113, 7], 47_474).into(),
            ([203, 0, 113, 8], 47_474).into(),
        ],
        ipv4: Some([10, 128, (number >> 8) as u8, number as u8].into()),
        networks: Vec::new(),
        reach: Reach::Public,
        aes: true,
        draining: false,
        credential: first_machine(secret, identity.key(), taints.clone(), Serial(serial), UNIX),
        taints,
    }
}

/// From 2 to 80 ms, the same both ways: half of the pairs are on one continent.
fn delay(one: u32, two: u32) -> Duration {
    let (low, high) = (one.min(two), one.max(two));
    let mixed = (u64::from(low) << 32 | u64::from(high)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Duration::from_micros(2_000 + (mixed >> 32) % 78_000)
}

fn index(number: usize) -> u32 {
    u32::try_from(number).expect("thousands")
}
