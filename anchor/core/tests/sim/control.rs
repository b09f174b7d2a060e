//! Control connections in the simulated world: reliable and in order, as QUIC makes them, over ways
//! that lose and are cut; and what the daemon's control loop does with what comes by them. Follows
//! the daemon in whom it dials, what it says on connecting, and when it drops a connection.

use std::net::SocketAddr;
use std::time::Duration;

use conflux_core::membership::{DIGEST_INTERVAL, Event, Spread};
use conflux_core::session::{Initiator, respond};
use conflux_core::time::Mono;
use conflux_proto::advert::SignedAdvert;
use conflux_proto::control::{Adverts, Message};

use crate::anchor::{Handshake, peer, realm};
use crate::link::Loss;
use crate::world::{Happening, World};

/// QUIC's idle timeout and keepalive, and how often the daemon dials.
const IDLE: Duration = Duration::from_secs(75);
const KEEPALIVE: Duration = Duration::from_secs(25);
const DIAL_EVERY: Duration = Duration::from_secs(1);
/// A handshake that got no answer is begun again after this long.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// QUIC's least wait before it sends again.
const RESEND_AFTER: Duration = Duration::from_millis(100);
/// The pre-shared key that TLS would export.
const PSK: [u8; 32] = [7; 32];

/// A connection of two anchors, the one with the smaller number first.
pub(crate) struct Conn {
    id: u64,
    dialler: usize,
    /// Whether each side's process has it.
    sides: [bool; 2],
    /// Where each side sees the other.
    seen: [SocketAddr; 2],
    heard: Mono,
    keepalive_at: Mono,
    /// Until then nothing that is sent to this side arrives: order is kept.
    ready: [Mono; 2],
    /// What waits for a cut to end, by its receiver.
    parked: [Vec<Content>; 2],
}

/// Something told over a connection.
pub(crate) struct Told {
    pub(crate) to: usize,
    from: usize,
    conn: u64,
    content: Content,
}

/// What is told.
#[derive(Clone)]
pub(crate) enum Content {
    Hello(Option<Box<SignedAdvert>>),
    Message(Box<Message>),
    /// A handshake's number and first message.
    Noise1(u32, Vec<u8>),
    /// The same number and the second message.
    Noise2(u32, Vec<u8>),
}

impl Content {
    const fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Message(_) => "message",
            Self::Noise1(..) => "handshake",
            Self::Noise2(..) => "answered handshake",
        }
    }
}

impl World {
    /// Dials whoever is not connected, and drops what has been silent for too long.
    pub(crate) fn keep_connections(&mut self, at: usize) {
        let anchor = &mut self.anchors[at];
        anchor.next_dial = self.at + DIAL_EVERY;
        let sends_digest = anchor.next_digest <= self.at;
        if sends_digest {
            anchor.next_digest = self.at + DIGEST_INTERVAL;
        }
        for other in (0..self.anchors.len()).filter(|&other| other != at) {
            let (side, pair) = side_of(at, other);
            let reaches = self.reaches(at, other) && self.reaches(other, at);
            let now = self.at;
            if let Some(conn) = self.conns.get_mut(&pair).filter(|conn| conn.sides[side]) {
                if reaches && conn.sides == [true, true] && now >= conn.keepalive_at {
                    conn.keepalive_at = now + KEEPALIVE;
                    conn.heard = now;
                    self.refresh_mapping(at, other);
                }
                self.unpark(at, other);
                let conn = self.conns.get_mut(&pair).expect("it was there");
                if now.since(conn.heard) >= IDLE {
                    conn.sides[side] = false;
                }
                continue;
            }
            let is_dialled = self.anchors[other].is_running() && self.anchors[other].nat.is_none();
            if reaches && is_dialled {
                self.connect(at, other);
            }
        }
        if sends_digest {
            let neighbours = self.neighbours(at);
            if !neighbours.is_empty() {
                let to = neighbours[self.random.usize(..neighbours.len())];
                let digest = self.anchors[at].membership.digest();
                self.tell(at, to, Content::Message(Box::new(Message::Digest(digest))));
            }
        }
    }

    /// Carries out what membership wants.
    pub(crate) fn run_membership(&mut self, at: usize) {
        let mut is_changed = false;
        while let Some(event) = self.anchors[at].membership.poll_event() {
            match event {
                Event::Changed(key) => {
                    is_changed = true;
                    if let Some(other) = self.number_of(key) {
                        self.refresh_paths(at, other.0 as usize);
                    }
                }
                Event::Left(key) | Event::Expired(key) => {
                    is_changed = true;
                    if let Some(other) = self.number_of(key) {
                        let anchor = &mut self.anchors[at];
                        anchor.plane.handle_left(anchor.now(self.at), other);
                        let other = other.0 as usize;
                        self.models[at].forgotten(other);
                        let (side, pair) = side_of(at, other);
                        if let Some(conn) = self.conns.get_mut(&pair) {
                            conn.sides[side] = false;
                        }
                    }
                }
                Event::Revoked(key) => unreachable!("nobody is revoked here: {key:?}"),
                Event::Flood {
                    message,
                    except,
                    spread,
                } => {
                    let mut to = self.neighbours(at);
                    to.retain(|other| Some(self.keys[*other]) != except);
                    if let Spread::Few(few) = spread {
                        self.random.shuffle(&mut to);
                        to.truncate(few);
                    }
                    for other in to {
                        self.tell(at, other, Content::Message(message.clone()));
                    }
                }
                Event::Tell { to, message } => {
                    if let Some(to) = self.number_of(to) {
                        self.tell(at, to.0 as usize, Content::Message(message));
                    }
                }
                Event::OwnAhead(edition) => {
                    let anchor = &mut self.anchors[at];
                    anchor.epoch = anchor.epoch.max(edition.epoch + 1);
                    let mono = anchor.now(self.at).mono;
                    anchor.membership.set_epoch(mono, anchor.epoch);
                }
            }
        }
        if is_changed {
            self.rebuild(at);
        }
    }

    /// Has the routes of `at` follow from what it knows.
    pub(crate) fn rebuild(&mut self, at: usize) {
        let keys = self.keys.clone();
        let number_of = |key| keys.iter().position(|known| *known == key).map(peer);
        self.anchors[at].rebuild(self.at, number_of);
        self.settle(at);
        // An advert may have come that allows data with a peer that has no keys yet.
        for other in self.neighbours(at) {
            let mono = self.anchors[at].now(self.at).mono;
            let view = self.anchors[at].plane.view_peer(mono, peer(other));
            if !view.has_session {
                self.shake_hands(at, other);
            }
        }
    }

    /// Ends the connections of a process that is no more; the other sides do not know yet.
    pub(crate) fn lose_connections(&mut self, at: usize) {
        for ((one, two), conn) in &mut self.conns {
            if *one == at {
                conn.sides[0] = false;
            } else if *two == at {
                conn.sides[1] = false;
            }
        }
    }

    /// `at` says goodbye to all it is connected with.
    pub(crate) fn say_goodbye(&mut self, at: usize) {
        let leave = self.anchors[at].membership.leave();
        for other in self.neighbours(at) {
            let message = Box::new(Message::Leave(leave.clone()));
            self.tell(at, other, Content::Message(message));
        }
    }

    pub(crate) fn want_session(&mut self, at: usize, other: usize) {
        if self.is_connected(at, other) {
            self.shake_hands(at, other);
        } else {
            self.anchors[at].next_dial = self.at;
        }
    }

    /// A peer that restarted answers the old connection with a reset.
    pub(crate) fn ask_whether_restarted(&mut self, at: usize, other: usize) {
        let (side, pair) = side_of(at, other);
        let reaches = self.reaches(at, other) && self.reaches(other, at);
        let is_there = self.anchors[other].is_running();
        if let Some(conn) = self.conns.get_mut(&pair)
            && conn.sides[side]
            && !conn.sides[1 - side]
            && is_there
            && reaches
        {
            conn.sides[side] = false;
            self.anchors[at].next_dial = self.at;
        }
    }

    pub(crate) fn shake_hands(&mut self, at: usize, other: usize) {
        let now = self.at;
        if !self.is_connected(at, other) || !self.may_shake(at, other) {
            return;
        }
        let anchor = &mut self.anchors[at];
        anchor
            .handshakes
            .retain(|pending| pending.with != other || now.since(pending.began) < HANDSHAKE_WITHIN);
        if anchor
            .handshakes
            .iter()
            .any(|pending| pending.with == other)
        {
            return;
        }
        let seed = seed_of(&mut anchor.random);
        let local = anchor.local(&seed);
        let number = local.index;
        let (initiator, first) =
            Initiator::start(local, self.remotes[other], &realm().id(), &PSK).expect("valid keys");
        anchor.handshakes.push(Handshake {
            with: other,
            number,
            initiator,
            began: now,
        });
        self.tell(at, other, Content::Noise1(number, first));
    }

    /// Takes what was told.
    pub(crate) fn hear(&mut self, told: Told) {
        let Told {
            to: at,
            from,
            conn,
            content,
        } = told;
        let (side, pair) = side_of(at, from);
        let is_cut = self.is_cut(from, at);
        let now = self.at;
        let Some(known) = self.conns.get_mut(&pair) else {
            return;
        };
        if known.id != conn || !known.sides[side] {
            return;
        }
        if is_cut {
            known.parked[side].push(content);
            return;
        }
        known.heard = now;
        self.trace(2, at, || format!("{} of {from}", content.name()));
        self.note_lateness(at);
        match content {
            Content::Hello(advert) => self.greet(at, from, advert),
            Content::Message(message) => self.take_message(at, from, *message),
            Content::Noise1(number, first) => self.answer_handshake(at, from, number, &first),
            Content::Noise2(number, second) => self.finish_handshake(at, from, number, &second),
        }
        self.run_membership(at);
        self.settle(at);
    }

    fn greet(&mut self, at: usize, from: usize, advert: Option<Box<SignedAdvert>>) {
        if let Some(advert) = advert {
            self.take_advert(at, from, &advert, Duration::ZERO);
            self.run_membership(at);
        }
        let digest = self.anchors[at].membership.digest();
        self.tell(
            at,
            from,
            Content::Message(Box::new(Message::Digest(digest))),
        );
        self.refresh_paths(at, from);
        let (_, pair) = side_of(at, from);
        if self.conns.get(&pair).is_some_and(|conn| conn.dialler == at) {
            self.shake_hands(at, from);
        }
    }

    fn take_message(&mut self, at: usize, from: usize, message: Message) {
        let mono = self.anchors[at].now(self.at).mono;
        match message {
            Message::Adverts(Adverts { adverts, more }) => {
                for aged in adverts {
                    let age = Duration::from_millis(aged.age_millis);
                    self.take_advert(at, from, &aged.advert, age);
                    self.run_membership(at);
                }
                if more {
                    let digest = self.anchors[at].membership.digest();
                    self.tell(
                        at,
                        from,
                        Content::Message(Box::new(Message::Digest(digest))),
                    );
                }
            }
            Message::Digest(digest) => {
                for answer in self.anchors[at].membership.handle_digest(mono, &digest) {
                    self.tell(at, from, Content::Message(Box::new(answer)));
                }
            }
            Message::Leave(leave) => {
                self.models[at].book.part(leave.claimed());
                let from = Some(self.keys[from]);
                self.anchors[at].membership.handle_leave(mono, &leave, from);
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
    }

    fn take_advert(&mut self, at: usize, from: usize, advert: &SignedAdvert, age: Duration) {
        let anchor = &mut self.anchors[at];
        let (mono, unix) = (anchor.now(self.at).mono, anchor.unix(self.at));
        if advert.advert.claimed().key != anchor.identity.key() {
            self.models[at].book.hear(mono, advert, age);
        }
        let from = Some(self.keys[from]);
        anchor
            .membership
            .handle_advert(mono, unix, advert, age, from);
    }

    fn answer_handshake(&mut self, at: usize, from: usize, number: u32, first: &[u8]) {
        if !self.may_shake(at, from) {
            return;
        }
        let remote = self.remotes[from];
        let anchor = &mut self.anchors[at];
        let seed = seed_of(&mut anchor.random);
        let now = anchor.now(self.at);
        let answered = respond(anchor.local(&seed), remote, &realm().id(), &PSK, first);
        let Ok((keys, second)) = answered else {
            return;
        };
        anchor
            .plane
            .install(now, peer(from), self.keys[from], &keys);
        self.tell(at, from, Content::Noise2(number, second));
    }

    fn finish_handshake(&mut self, at: usize, from: usize, number: u32, second: &[u8]) {
        let anchor = &mut self.anchors[at];
        let now = anchor.now(self.at);
        let is_asked = |pending: &Handshake| pending.with == from && pending.number == number;
        let Some(place) = anchor.handshakes.iter().position(is_asked) else {
            return;
        };
        let pending = anchor.handshakes.remove(place);
        if let Ok(keys) = pending.initiator.finish(second) {
            let key = self.keys[from];
            anchor.plane.install(now, peer(from), key, &keys);
        }
    }

    fn may_shake(&self, at: usize, other: usize) -> bool {
        let anchor = &self.anchors[at];
        let known = anchor.membership.get(&self.keys[other]);
        known.is_some_and(|entry| anchor.spec.taints.may_exchange(&entry.advert().taints))
    }

    fn connect(&mut self, at: usize, other: usize) {
        let (side, pair) = side_of(at, other);
        self.conns_made += 1;
        self.trace(2, at, || format!("connects to {other}"));
        // Handshakes of the connection before this one are over.
        self.anchors[at]
            .handshakes
            .retain(|pending| pending.with != other);
        self.anchors[other]
            .handshakes
            .retain(|pending| pending.with != at);
        let to = self.anchors[other].endpoints();
        let Some(&to) = to.iter().find(|to| !self.dead.contains(to)) else {
            return;
        };
        let now = self.at;
        let from = match &mut self.anchors[at].nat {
            Some(nat) => nat.send(now, to),
            None => self.anchors[at].source(None),
        };
        let mut seen = [to, from];
        if side == 1 {
            seen.swap(0, 1);
        }
        let conn = Conn {
            id: self.conns_made,
            dialler: at,
            sides: [true, true],
            seen,
            heard: now,
            keepalive_at: now + KEEPALIVE,
            ready: [now, now],
            parked: [Vec::new(), Vec::new()],
        };
        self.conns.insert(pair, conn);
        for (one, two) in [(at, other), (other, at)] {
            let own = self.anchors[one].membership.own();
            self.tell(one, two, Content::Hello(own.map(Box::new)));
        }
    }

    /// Tells `other` something, if there is a connection.
    fn tell(&mut self, at: usize, other: usize, content: Content) {
        let (side, pair) = side_of(at, other);
        let is_cut = self.is_cut(at, other);
        let now = self.at;
        let way = self.way(at, other);
        let delay = way.delay;
        let lost = match way.loss {
            Loss::None => 0.0,
            Loss::Independent(part) => part,
            Loss::Bursts { share, .. } => share,
        };
        let mut arrival = now + delay;
        let mut wait = (delay * 3).max(RESEND_AFTER);
        while self.random.f64() < lost {
            arrival += wait;
            wait *= 2;
        }
        let Some(conn) = self.conns.get_mut(&pair).filter(|conn| conn.sides[side]) else {
            return;
        };
        if is_cut || !conn.parked[1 - side].is_empty() {
            conn.parked[1 - side].push(content);
            return;
        }
        let arrival = arrival.max(conn.ready[1 - side]);
        conn.ready[1 - side] = arrival;
        let told = Told {
            to: other,
            from: at,
            conn: conn.id,
            content,
        };
        self.later(arrival.since(now), Happening::Told(told));
    }

    fn unpark(&mut self, at: usize, other: usize) {
        let (side, pair) = side_of(at, other);
        if self.is_cut(at, other) {
            return;
        }
        let Some(conn) = self.conns.get_mut(&pair) else {
            return;
        };
        for content in std::mem::take(&mut conn.parked[1 - side]) {
            self.tell(at, other, content);
        }
    }

    /// A keepalive keeps the mapping of a translator, or gets a new one, which the far end follows.
    fn refresh_mapping(&mut self, at: usize, other: usize) {
        let now = self.at;
        for (inside, outside) in [(at, other), (other, at)] {
            let (side, pair) = side_of(outside, inside);
            let to = match self.conns.get(&pair) {
                Some(conn) => conn.seen[1 - side],
                None => continue,
            };
            let Some(nat) = &mut self.anchors[inside].nat else {
                continue;
            };
            let from = nat.send(now, to);
            if let Some(conn) = self.conns.get_mut(&pair)
                && conn.seen[side] != from
            {
                conn.seen[side] = from;
                self.refresh_paths(outside, inside);
            }
        }
    }

    fn refresh_paths(&mut self, at: usize, other: usize) {
        let (side, pair) = side_of(at, other);
        let conn = self.conns.get(&pair).filter(|conn| conn.sides[side]);
        let seen = conn.map(|conn| conn.seen[side]);
        // Where the other side sees this one is where its packets come to.
        let local = conn.map(|conn| conn.seen[1 - side].ip());
        let local = local.filter(|_| self.anchors[at].nat.is_none());
        let key = self.keys[other];
        self.anchors[at].set_paths(self.at, peer(other), key, seen, local);
    }

    fn neighbours(&self, at: usize) -> Vec<usize> {
        let all = 0..self.anchors.len();
        all.filter(|&other| other != at && self.is_connected(at, other))
            .collect()
    }

    fn is_connected(&self, at: usize, other: usize) -> bool {
        let (side, pair) = side_of(at, other);
        self.conns.get(&pair).is_some_and(|conn| conn.sides[side])
    }

    /// Says whether packets pass in this direction, now and then at least.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let is_heard = !self.anchors[to].endpoints().is_empty() || self.anchors[to].nat.is_some();
        !self.is_cut(from, to) && is_heard
    }
}

/// Returns which side of a pair's connection `at` is, and the pair.
fn side_of(at: usize, other: usize) -> (usize, (usize, usize)) {
    if at < other {
        (0, (at, other))
    } else {
        (1, (other, at))
    }
}

fn seed_of(random: &mut fastrand::Rng) -> [u8; 32] {
    let mut seed = [0; 32];
    random.fill(&mut seed);
    seed
}
