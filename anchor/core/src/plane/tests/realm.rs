//! Planes, their sessions, and the network between them, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use conflux_proto::frame::{Flags, FrameType};
use conflux_proto::relay::{OUTER_BYTES, is_outer};

use super::host::Server;
use super::node::{Node, REALM, Spec, seed32};
use crate::clients::Clients;
use crate::ids::PeerIx;
use crate::packet::{Checksum, Cut, Fragments, Offload, Packet, fragment_ipv4, fragment_small};
use crate::plane::{Carried, DropReason, Event, Head, Output, Path, Received, ToHost, ToPeer};
use crate::routes::{self, Claim, PeerFacts};
use crate::session::{Initiator, respond};
use crate::time::{Mono, Now};

pub(super) const SHARED: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 9);
/// What one datagram carries.
const LIMIT_BYTES: usize = 1420;
const HEADROOM: usize = 64;

struct Flying {
    from: usize,
    source: SocketAddr,
    to: SocketAddr,
    frame: Vec<u8>,
}

pub(super) struct Realm {
    pub(super) now: Now,
    pub(super) nodes: Vec<Node>,
    flying: BTreeMap<(Mono, u64), Flying>,
    sequence: u64,
    indices: u32,
    pub(super) one_way: Duration,
    /// One-way delays that differ.
    pub(super) delays: BTreeMap<(usize, usize), Duration>,
    /// From whom to whom nothing comes through.
    pub(super) cuts: BTreeSet<(usize, usize)>,
    /// Addresses at which nothing arrives.
    pub(super) dead: BTreeSet<SocketAddr>,
    pub(super) loss: f64,
    /// The largest frame that comes through anywhere.
    pub(super) frame_limit: usize,
    /// Whether every datagram arrives twice.
    pub(super) duplicates: bool,
    /// Pairs whose taints forbid data.
    pub(super) forbidden: BTreeSet<(usize, usize)>,
    /// Anchors whose adverts are gone.
    pub(super) gone: BTreeSet<usize>,
    /// Anchors that drain.
    pub(super) draining: BTreeSet<usize>,
    /// Whether handshakes that are asked for come about.
    pub(super) answers_handshakes: bool,
    random: fastrand::Rng,
}

impl Realm {
    /// Returns a realm whose anchors all have sessions with each other.
    pub(super) fn new(seed: u64, specs: Vec<Spec>) -> Self {
        let mut realm = Self::unconnected(seed, specs);
        for a in 0..realm.nodes.len() {
            for b in a + 1..realm.nodes.len() {
                realm.handshake(a, b);
            }
        }
        realm.pass(Duration::from_secs(1));
        realm
    }

    /// Returns a realm without sessions.
    pub(super) fn unconnected(seed: u64, specs: Vec<Spec>) -> Self {
        let mut realm = Self {
            now: Now::default() + Duration::from_secs(10_000),
            nodes: Vec::new(),
            flying: BTreeMap::new(),
            sequence: 0,
            indices: 100,
            one_way: Duration::from_millis(1),
            delays: BTreeMap::new(),
            cuts: BTreeSet::new(),
            dead: BTreeSet::new(),
            loss: 0.0,
            frame_limit: usize::MAX,
            duplicates: false,
            forbidden: BTreeSet::new(),
            gone: BTreeSet::new(),
            draining: BTreeSet::new(),
            answers_handshakes: true,
            random: fastrand::Rng::with_seed(seed),
        };
        for (at, spec) in specs.into_iter().enumerate() {
            realm.nodes.push(Node::new(at, spec, seed));
        }
        realm.spread_routes();
        realm.spread_paths();
        realm
    }

    /// A client and `holders` holders of [`SHARED`].
    pub(super) fn of_holders(seed: u64, holders: usize) -> Self {
        let mut specs = vec![Spec::client()];
        specs.resize(holders + 1, Spec::holder(SHARED));
        Self::new(seed, specs)
    }

    /// Gives every plane routes by the present facts.
    pub(super) fn spread_routes(&mut self) {
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        for &at in &all {
            let peers: Vec<PeerFacts> = all
                .iter()
                .filter(|&&other| other != at && !self.gone.contains(&other))
                .map(|&other| self.facts(at, other))
                .collect();
            let node = &mut self.nodes[at];
            let routes = routes::build(&node.own_facts(), &peers);
            node.plane.set_routes(self.now, Arc::new(routes));
        }
        self.settle();
    }

    fn facts(&self, at: usize, other: usize) -> PeerFacts {
        let node = &self.nodes[other];
        let pair = (at.min(other), at.max(other));
        PeerFacts {
            peer: peer(other),
            key: node.key(),
            overlay: node.overlay(),
            ipv4: node.spec.ipv4.map(|network| Claim {
                network,
                granted: true,
            }),
            networks: node
                .spec
                .subnets
                .iter()
                .map(|&network| Claim {
                    network,
                    granted: true,
                })
                .collect(),
            may_exchange: !self.forbidden.contains(&pair),
            draining: self.draining.contains(&other),
        }
    }

    fn spread_paths(&mut self) {
        for at in 0..self.nodes.len() {
            for other in 0..self.nodes.len() {
                if at != other {
                    self.set_paths(at, other);
                }
            }
        }
    }

    /// Tells `at` the present endpoints of `other`.
    pub(super) fn set_paths(&mut self, at: usize, other: usize) {
        let endpoints = self.nodes[other].endpoints.iter();
        let paths: Vec<Path> = endpoints
            .map(|&remote| Path {
                socket: 0,
                remote,
                local: None,
            })
            .collect();
        let now = self.now.mono;
        self.nodes[at].plane.set_paths(now, peer(other), &paths);
    }

    /// Shakes hands, at once: the control connection has its own ways.
    pub(super) fn handshake(&mut self, from: usize, to: usize) {
        self.indices += 2;
        let (ours, theirs) = (self.indices, self.indices + 1);
        let (seed_a, seed_b) = (seed32(ours), seed32(theirs));
        let (a, b) = (&self.nodes[from], &self.nodes[to]);
        let (initiator, first) =
            Initiator::start(a.local(ours, &seed_a), b.remote(), &REALM, &[7; 32]).unwrap();
        let (keys_b, second) = respond(
            b.local(theirs, &seed_b),
            a.remote(),
            &REALM,
            &[7; 32],
            &first,
        )
        .unwrap();
        let keys_a = initiator.finish(&second).unwrap();
        let (key_a, key_b) = (a.key(), b.key());
        assert!(
            self.nodes[to]
                .plane
                .install(self.now, peer(from), key_a, &keys_b)
        );
        assert!(
            self.nodes[from]
                .plane
                .install(self.now, peer(to), key_b, &keys_a)
        );
        self.settle();
    }

    /// Lets `span` pass.
    pub(super) fn pass(&mut self, span: Duration) {
        self.run_until(self.now.mono + span, |_| false);
    }

    /// Lets time pass until `done`, at most `limit`; says whether it came to be.
    pub(super) fn pass_until(&mut self, limit: Duration, done: impl FnMut(&Self) -> bool) -> bool {
        self.run_until(self.now.mono + limit, done)
    }

    fn run_until(&mut self, end: Mono, mut done: impl FnMut(&Self) -> bool) -> bool {
        let mut turns = 0_u64;
        loop {
            if done(self) {
                return true;
            }
            let frame = self.flying.keys().next().map(|(at, _)| *at);
            let timers = self.nodes.iter().filter(|node| node.is_alive);
            let timer = timers.filter_map(|node| node.plane.poll_timeout()).min();
            let Some(next) = frame.into_iter().chain(timer).min().filter(|&at| at <= end) else {
                self.advance(end);
                return done(self);
            };
            self.advance(next.max(self.now.mono));
            self.deliver_due();
            self.fire_due();
            self.settle();
            turns += 1;
            assert!(turns < 50_000_000, "time does not pass: {:?}", self.now);
        }
    }

    fn advance(&mut self, to: Mono) {
        self.now = self.now + to.since(self.now.mono);
    }

    fn fire_due(&mut self) {
        let now = self.now;
        for node in self.nodes.iter_mut().filter(|node| node.is_alive) {
            if node.plane.poll_timeout().is_some_and(|at| at <= now.mono) {
                node.plane.handle_timeout(now);
            }
        }
    }

    fn deliver_due(&mut self) {
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now.mono {
                return;
            }
            let Flying {
                from,
                source,
                to,
                mut frame,
            } = entry.remove();
            let Some(at) = self
                .nodes
                .iter()
                .position(|node| node.endpoints.contains(&to))
            else {
                continue;
            };
            let is_lost = !self.nodes[at].is_alive
                || self.cuts.contains(&(from, at))
                || self.dead.contains(&to)
                || self.random.f64() < self.loss;
            if is_lost {
                continue;
            }
            let path = Path {
                socket: 0,
                remote: source,
                local: Some(to.ip()),
            };
            let mut again = self.duplicates.then(|| frame.clone());
            self.receive(at, path, &mut frame);
            if let Some(frame) = &mut again {
                self.receive(at, path, frame);
            }
            self.settle();
        }
    }

    fn receive(&mut self, at: usize, from: Path, frame: &mut [u8]) {
        let now = self.now;
        let node = &mut self.nodes[at];
        if is_outer(frame[0]) {
            match node.plane.receive_outer(now, from, frame) {
                Carried::Inside(path) => self.receive(at, path, &mut frame[OUTER_BYTES..]),
                Carried::Onward(path) => self.fly(at, path, frame.to_vec()),
                Carried::Dropped(_) => {}
            }
            return;
        }
        if let Received::Data {
            peer,
            flags,
            packet,
        } = node.plane.receive(now, from, frame)
        {
            node.opened += 1;
            let packet = packet.to_vec();
            self.bring(at, peer, flags, &packet);
        }
    }

    /// Has a packet of a peer come to the interface of `at`.
    pub(super) fn bring(&mut self, at: usize, peer: PeerIx, flags: Flags, packet: &[u8]) {
        let mut bytes = vec![0; HEADROOM];
        bytes.extend_from_slice(packet);
        let mut head = Head {
            bytes: &mut bytes,
            start: HEADROOM,
            total: packet.len(),
        };
        let mut offload = Offload::PLAIN;
        if flags.contains(Flags::PARTIAL_CHECKSUM) {
            offload.checksum = Checksum::Partial;
        }
        let now = self.now;
        let verdict =
            self.nodes[at]
                .plane
                .from_peer(now, peer, flags.bits(), &mut head, &mut offload);
        if verdict == ToHost::Write {
            let mut packet = head.packet().to_vec();
            if offload.checksum == Checksum::Partial {
                let parsed = Packet::parse(&packet, packet.len()).unwrap();
                crate::packet::checksum::complete(&mut packet, &parsed);
            }
            self.write(at, packet);
        }
    }

    /// Has the host of `at` send a packet; returns what became of it.
    pub(super) fn send(&mut self, at: usize, packet: &[u8]) -> ToPeer {
        let verdict = self.emit(at, packet, Offload::PLAIN);
        self.settle();
        verdict
    }

    fn emit(&mut self, at: usize, packet: &[u8], mut offload: Offload) -> ToPeer {
        let mut bytes = vec![0; HEADROOM];
        bytes.extend_from_slice(packet);
        let mut head = Head {
            bytes: &mut bytes,
            start: HEADROOM,
            total: packet.len(),
        };
        let verdict = self.nodes[at]
            .plane
            .from_host(self.now, &mut head, &mut offload);
        if let ToPeer::Send { peer, flags } = verdict {
            let mut packet = head.packet().to_vec();
            let flags = match offload.checksum {
                Checksum::Partial => flags.with(Flags::PARTIAL_CHECKSUM),
                Checksum::Complete => flags,
            };
            self.seal(at, peer, flags, offload, &mut packet);
        }
        verdict
    }

    fn seal(&mut self, at: usize, peer: PeerIx, flags: Flags, offload: Offload, packet: &mut [u8]) {
        let plane = &mut self.nodes[at].plane;
        let limit = plane
            .sealer(peer)
            .map_or(LIMIT_BYTES, |(_, _, limit)| limit);
        let id = plane.next_fragment_id();
        let mut pieces = Vec::new();
        if let Ok(mut cut) = Cut::new(packet, offload, limit) {
            while let Some(piece) = cut.next() {
                pieces.push(piece.to_vec());
            }
        } else if let Ok(mut fragments) = fragment_ipv4(packet, offload.checksum, limit) {
            pieces = all(&mut fragments);
        } else if let Ok(mut small) = fragment_small(packet, offload.checksum, limit, id) {
            while let Some(piece) = small.next() {
                pieces.push(piece.to_vec());
            }
        } else {
            plane.refuse_too_big(peer, flags, packet, limit);
            plane.note_drop(DropReason::TooBig);
        }
        let largest = pieces.iter().map(Vec::len).max().unwrap_or(0);
        plane.note_largest(self.now.mono, peer, largest);
        for piece in pieces {
            let node = &mut self.nodes[at];
            let mut frame = vec![0; piece.len() + 64];
            let sealed = node.plane.sealer(peer).map(|(mut sealer, path, _)| {
                let sealed = sealer.seal(FrameType::Data, flags, &piece, &mut frame);
                let (bytes, highest) = sealed.expect("there is room");
                (path, bytes, highest)
            });
            match sealed {
                Ok((path, bytes, highest)) => {
                    node.plane.note_sent(self.now.mono, peer, flags, 1, highest);
                    frame.truncate(bytes);
                    self.fly(at, path, frame);
                }
                Err(reason) => node.plane.note_drop(reason),
            }
        }
    }

    fn fly(&mut self, from: usize, path: Path, frame: Vec<u8>) {
        if frame.len() > self.frame_limit {
            return;
        }
        let node = self
            .nodes
            .iter()
            .position(|node| node.endpoints.contains(&path.remote));
        let delay = node
            .and_then(|to| self.delays.get(&(from, to)))
            .unwrap_or(&self.one_way);
        self.sequence += 1;
        let key = (self.now.mono + *delay, self.sequence);
        let source = self.nodes[from].source;
        self.flying.insert(
            key,
            Flying {
                from,
                source,
                to: path.remote,
                frame,
            },
        );
    }

    /// Does everything the planes want done.
    pub(super) fn settle(&mut self) {
        for at in 0..self.nodes.len() {
            let mut outputs = 0;
            while let Some(output) = self.nodes[at].plane.poll_output(self.now) {
                outputs += 1;
                assert!(outputs < 1_000_000, "outputs without end: {output:?}");
                if self.nodes[at].is_alive {
                    self.carry_out(at, output);
                }
            }
        }
    }

    fn carry_out(&mut self, at: usize, output: Output) {
        match output {
            Output::ToHost(packet) => self.write(at, packet),
            Output::ToPeer {
                peer,
                flags,
                mut packet,
            } => {
                self.seal(at, peer, flags, Offload::PLAIN, &mut packet);
            }
            Output::FromHost { packet, offload } => {
                self.emit(at, &packet, offload);
            }
            Output::FromPeer {
                peer,
                flags,
                packet,
            } => self.bring(at, peer, flags, &packet),
            Output::Datagram { path, frame } => self.fly(at, path, frame.to_vec()),
            Output::Event(event) => {
                self.nodes[at].events.push((self.now.mono, event));
                if let Event::NeedSession(peer) | Event::Rotate(peer) = event {
                    let other = peer.0 as usize;
                    if self.answers_handshakes && self.nodes[other].is_alive {
                        self.handshake(at, other);
                    }
                }
            }
        }
    }

    /// Writes to the interface of `at`, whose host may answer.
    fn write(&mut self, at: usize, packet: Vec<u8>) {
        let node = &mut self.nodes[at];
        let answers = node.server.take(&packet);
        node.inbox.push((self.now.mono, packet));
        for answer in answers {
            for piece in as_kernel_sends(answer) {
                self.emit(at, &piece, Offload::PLAIN);
            }
        }
    }

    /// A machine loses its power: nothing is said to anybody.
    pub(super) fn kill(&mut self, at: usize) {
        self.nodes[at].is_alive = false;
    }

    /// A killed anchor starts again with its leases and nothing else.
    pub(super) fn restart(&mut self, at: usize) {
        let leases = self.nodes[at].plane.clients().export();
        let old = &self.nodes[at];
        let mut node = Node::new(at, old.spec.clone(), self.random.u64(..));
        node.server = Server::new(at);
        let number = |key| {
            self.nodes
                .iter()
                .position(|node| node.key() == key)
                .map(peer)
        };
        let leases = leases
            .into_iter()
            .filter_map(|lease| Some((number(lease.key)?, lease)));
        let mut clients = Clients::new(node.spec.client_range, 1);
        clients.import(self.now.boot, leases);
        node.plane.clients = clients;
        self.nodes[at] = node;
        self.spread_routes();
        self.spread_paths();
        for other in (0..self.nodes.len()).filter(|&other| other != at) {
            self.handshake(at, other);
        }
    }

    /// An anchor says goodbye to everybody.
    pub(super) fn leave(&mut self, at: usize) {
        for other in 0..self.nodes.len() {
            if other != at {
                self.nodes[other].plane.handle_left(self.now, peer(at));
            }
        }
        self.gone.insert(at);
        self.settle();
    }

    /// Nothing passes between two anchors any more.
    pub(super) fn cut(&mut self, a: usize, b: usize) {
        self.cuts.extend([(a, b), (b, a)]);
    }

    /// Takes what was written to an interface since the last time.
    pub(super) fn take(&mut self, at: usize) -> Vec<Vec<u8>> {
        self.nodes[at]
            .inbox
            .drain(..)
            .map(|(_, packet)| packet)
            .collect()
    }

    /// Returns the holder of the flow of `at` to `destination`.
    pub(super) fn holder(&self, at: usize, destination: impl Into<IpAddr>) -> Option<usize> {
        let destination = destination.into();
        let views = self.nodes[at].plane.view_flows(self.now, usize::MAX);
        let view = views
            .iter()
            .find(|view| view.flow.key.destination == destination)?;
        view.flow.holder.map(|holder| holder.0 as usize)
    }

    pub(super) fn dropped(&self, at: usize, reason: DropReason) -> u64 {
        self.nodes[at].plane.counters().dropped(reason)
    }

    pub(super) fn events(&self, at: usize) -> Vec<Event> {
        self.nodes[at]
            .events
            .iter()
            .map(|(_, event)| *event)
            .collect()
    }
}

pub(super) fn peer(at: usize) -> PeerIx {
    PeerIx(at as u32)
}

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a big packet as its kernel would send it by the interface: in fragments.
pub(super) fn as_kernel_sends(mut packet: Vec<u8>) -> Vec<Vec<u8>> {
    if packet.len() <= LIMIT_BYTES {
        return vec![packet];
    }
    match fragment_ipv4(&mut packet, Checksum::Complete, LIMIT_BYTES) {
        Ok(mut fragments) => all(&mut fragments),
        Err(_) => vec![packet],
    }
}

fn all(fragments: &mut Fragments<'_>) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let Some(piece) = fragments.next() {
        pieces.push(piece.to_vec());
    }
    pieces
}
