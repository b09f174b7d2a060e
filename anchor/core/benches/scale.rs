//! One plane with a million flows, ten thousand routes and a thousand peers: what that takes in
//! memory, and what a packet, a new flow, new routes, a timer and expiry cost then.
//!
//! Every figure is the least of several rounds over different flows, so that a neighbour on the
//! machine does not show; the longest single call is told where a stall would matter. Sizes can
//! be given: `cargo bench -p conflux-core --bench scale -- FLOWS NETWORKS PEERS CONNECTIONS`.

#![expect(clippy::print_stdout, reason = "its figures are what this prints")]

mod common;

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{End, HEADER_BYTES, Segment};
use conflux_core::clients::Clients;
use conflux_core::connections::Limits as ConnectionLimits;
use conflux_core::ids::PeerIx;
use conflux_core::packet::Offload;
use conflux_core::plane::{Head, Limits, Output, Own, Path, Plane, ToHost, ToPeer};
use conflux_core::routes::{self, PeerFacts};
use conflux_core::session::Sessions;
use conflux_core::time::Now;
use conflux_proto::frame::{Flags, FrameType};

/// Hosts behind the anchor; flows are spread over them evenly.
const HOSTS: u32 = 1000;
const HOLDERS: u32 = 3;
/// Packets of one round: some milliseconds, which often pass without anybody else running.
const ROUND: u32 = 2_000;
const ROUNDS: u32 = 1_000;
/// Room for the headers to grow, then the headers; the payload is not looked at.
const START: usize = 64;
const BUFFER_BYTES: usize = START + HEADER_BYTES;

/// A packet longer than any wire takes is a super-packet.
fn offload_of(total: usize) -> Offload {
    if total > 1500 {
        common::super_offload()
    } else {
        Offload::PLAIN
    }
}

fn main() {
    let sizes: Vec<u32> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    let size = |place: usize, default| sizes.get(place).copied().unwrap_or(default);
    let flows = size(0, 1_000_000);
    let connections = size(3, ConnectionLimits::default().connections as u32);
    let mut world = World::new(flows, size(1, 10_000), size(2, 1_000), connections as usize);
    world.open_flows();
    for (spread, name) in [
        (Spread::Even, "any flow as likely as any other"),
        (Spread::Zipf, "flows by Zipf's law"),
        (Spread::Few, "16 busy flows"),
    ] {
        world.packets(&format!("from_host, {name}"), spread, World::note_out);
        world.packets(&format!("from_peer, {name}"), spread, World::note_in);
    }
    world.own_cost();
    world.new_routes();
    world.timers();
    world.new_flows();
    world.expiry();
}

/// Which flows the packets belong to.
#[derive(Clone, Copy)]
enum Spread {
    Even,
    Zipf,
    Few,
}

struct World {
    plane: Plane,
    now: Now,
    ends: Vec<End>,
    /// Each peer's side of its session.
    remotes: Vec<Sessions>,
    facts: Vec<PeerFacts>,
    flows: u32,
    networks: u32,
    holders: Vec<PeerIx>,
    random: fastrand::Rng,
    buffer: Vec<u8>,
}

impl World {
    fn new(flows: u32, networks: u32, peers: u32, connections: usize) -> Self {
        show_memory("before anything");
        let own = End::new(u32::MAX);
        let ends: Vec<_> = (0..peers).map(End::new).collect();
        let keys: Vec<_> = ends.iter().map(End::key).collect();
        let facts = common::peer_facts(&keys, networks, HOLDERS);
        let own_facts = common::own_facts(&own);
        let table = Arc::new(routes::build(&own_facts, &facts));
        show_memory(&format!("{networks} routes"));
        let limits = Limits {
            flows: 1 << 20,
            connections: ConnectionLimits {
                connections,
                ..ConnectionLimits::default()
            },
        };
        let own = Own {
            overlay: own_facts.overlay,
            ipv4: None,
            addresses: vec![own_facts.overlay.into()],
            subnets: own_facts.networks,
            client_range: own_facts.client_range,
        };
        let clients = Clients::new(own.client_range, 2);
        let mut world = Self {
            plane: Plane::new(own, table, clients, limits, 1),
            now: common::at(0),
            ends,
            remotes: Vec::new(),
            facts,
            flows,
            networks,
            holders: Vec::new(),
            random: fastrand::Rng::with_seed(4),
            buffer: vec![0; BUFFER_BYTES],
        };
        world.meet();
        show_memory(&format!("{peers} peers with sessions, both ends of them"));
        world
    }

    /// Gives every peer a session, and has it heard from.
    fn meet(&mut self) {
        let own = End::new(u32::MAX);
        for number in 0..self.ends.len() {
            let end = &self.ends[number];
            let index = number as u32;
            let (theirs, ours) = common::shake((end, 1), (&own, 0x0100_0000 + index * 77), true);
            let peer = PeerIx(index);
            let mut remote = Sessions::new(number as u64);
            remote.install(self.now.mono, PeerIx(0), &theirs);
            self.remotes.push(remote);
            let path = path_of(peer);
            assert!(
                self.plane.install(self.now, peer, end.key(), &ours),
                "the index is free"
            );
            self.plane.set_paths(self.now.mono, peer, &[path]);
        }
        self.hear_all();
    }

    /// Has every peer heard from, so that new flows need not wait for an answer.
    fn hear_all(&mut self) {
        for number in 0..self.remotes.len() {
            let peer = PeerIx(number as u32);
            let mut frame = [0; 64];
            let mut sealer = self.remotes[number].sealer(PeerIx(0)).expect("it has keys");
            let (bytes, _) = sealer
                .seal(FrameType::Keepalive, Flags::NONE, &[0; 12], &mut frame)
                .expect("it fits");
            black_box(
                self.plane
                    .receive(self.now, path_of(peer), &mut frame[..bytes]),
            );
            self.plane.set_rtt(
                self.now.mono,
                peer,
                Duration::from_millis(1 + number as u64 % 40),
            );
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.plane.poll_output(self.now) {
            if let Output::ToHost(_) | Output::ToPeer { .. } = output {
                panic!("nothing is refused here: {output:?}");
            }
        }
    }

    fn segment(&self, flow: u32, flags: u8, sequence: u32) -> Segment {
        let (host, far) = (flow % HOSTS, flow / HOSTS);
        // Each host talks to its own destinations: a thousand at most in each of some networks.
        let place = far * HOSTS + host;
        let network = common::network(place % self.networks);
        let far = u32::from(network.network()) + (place / self.networks) % 256;
        Segment {
            source: Ipv4Addr::from(0xc0a8_0000 + 256 + host),
            destination: Ipv4Addr::from(far),
            ports: (30_000 + (flow % 10_000) as u16, 443),
            sequence,
            acknowledgment: 5_001,
            flags,
        }
    }

    fn give_host_packet(&mut self, segment: &Segment, total: usize) -> ToPeer {
        segment.write(&mut self.buffer[START..], total);
        let mut head = Head {
            bytes: &mut self.buffer,
            start: START,
            total,
        };
        let mut offload = offload_of(total);
        self.plane.from_host(self.now, &mut head, &mut offload)
    }

    fn give_peer_packet(&mut self, peer: PeerIx, segment: &Segment, total: usize) -> ToHost {
        segment.to_host().write(&mut self.buffer[START..], total);
        let mut head = Head {
            bytes: &mut self.buffer,
            start: START,
            total,
        };
        let mut offload = offload_of(total);
        let flags = Flags::TO_CLIENT.bits();
        self.plane
            .from_peer(self.now, peer, flags, &mut head, &mut offload)
    }

    /// Opens one connection in each flow: SYN, SYN-ACK, data. Time goes on by 10 us per flow.
    fn open_flows(&mut self) {
        let (mut in_all, mut longest) = (Duration::ZERO, Duration::ZERO);
        for flow in 0..self.flows {
            self.tick(flow);
            let syn = self.segment(flow, common::SYN, 1_000);
            let start = instant();
            let verdict = self.give_host_packet(&syn, HEADER_BYTES);
            let took = start.elapsed();
            in_all += took;
            longest = longest.max(took);
            let ToPeer::Send { peer, .. } = verdict else {
                panic!("flow {flow}: {verdict:?}");
            };
            self.holders.push(peer);
            let mut back = self.segment(flow, common::SYN | common::ACK, 1_001);
            back.acknowledgment = 5_000;
            assert_eq!(
                self.give_peer_packet(peer, &back, HEADER_BYTES),
                ToHost::Write
            );
            let ack = self.segment(flow, common::ACK, 1_001);
            black_box(self.give_host_packet(&ack, HEADER_BYTES));
            self.drain();
        }
        println!("{:?}", self.plane.sizes());
        let each = in_all.as_nanos() / u128::from(self.flows);
        println!(
            "first packet of a flow, table growing: {each} ns on average, longest {longest:?}"
        );
        show_memory(&format!("{} flows, one open connection each", self.flows));
    }

    /// Moves time on, and hears from the peers as often as that takes.
    fn tick(&mut self, step: u32) {
        self.now = self.now + Duration::from_micros(10);
        if step % 400_000 == 399_999 {
            self.hear_all();
        }
    }

    /// Times `one` for super-packets of existing flows, 1 us after each other.
    fn packets(&mut self, name: &str, spread: Spread, one: fn(&mut Self, u32, PeerIx)) {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let flows: Vec<_> = (0..ROUND).map(|_| self.draw(spread)).collect();
            let start = instant();
            for &(flow, peer) in &flows {
                self.now = self.now + Duration::from_micros(1);
                one(self, flow, peer);
            }
            rounds.push(start.elapsed());
            self.drain();
        }
        rounds.sort_unstable();
        let (least, median) = (per_packet(rounds[0]), per_packet(rounds[rounds.len() / 2]));
        println!("{name}: {least} ns (median round {median} ns)");
        self.hear_all();
    }

    fn note_out(&mut self, flow: u32, _: PeerIx) {
        let segment = self.segment(flow, common::ACK, 1_001);
        black_box(self.give_host_packet(&segment, 65_000));
    }

    fn note_in(&mut self, flow: u32, peer: PeerIx) {
        let mut segment = self.segment(flow, common::ACK, 1_001);
        segment.acknowledgment = 5_001;
        black_box(self.give_peer_packet(peer, &segment, 65_000));
    }

    fn draw(&mut self, spread: Spread) -> (u32, PeerIx) {
        let flow = match spread {
            Spread::Even => self.random.u32(..self.flows),
            Spread::Zipf => {
                // The n-th busiest flow sends 1/n of what the busiest does; neighbours in the
                // table are of different ranks.
                let rank = f64::from(self.flows).powf(self.random.f64()) as u64;
                ((rank * 7_919) % u64::from(self.flows)) as u32
            }
            Spread::Few => self.random.u32(..16.min(self.flows)),
        };
        (flow, self.holders[flow as usize])
    }

    /// What the making of packets adds to the figures above.
    fn own_cost(&mut self) {
        let mut least = Duration::MAX;
        for _ in 0..ROUNDS {
            let start = instant();
            for flow in 0..ROUND {
                let segment = self.segment(black_box(flow % 16), common::ACK, 1_001);
                segment.write(&mut self.buffer[START..], 65_000);
                black_box(&self.buffer);
            }
            least = least.min(start.elapsed());
        }
        println!(
            "  of which this benchmark's own making of a packet: {} ns",
            per_packet(least)
        );
    }

    fn new_routes(&mut self) {
        let own = common::own_facts(&End::new(u32::MAX));
        let start = instant();
        let table = Arc::new(routes::build(&own, &self.facts));
        println!(
            "routes built anew (on the control thread): {:?}",
            start.elapsed()
        );
        let start = instant();
        self.plane.set_routes(self.now, table);
        println!("set_routes, nothing different: {:?}", start.elapsed());

        self.facts[0].networks.truncate(1);
        let table = Arc::new(routes::build(&own, &self.facts));
        let start = instant();
        self.plane.set_routes(self.now, table);
        let took = start.elapsed();
        let mut moved = 0;
        while let Some(output) = self.plane.poll_output(self.now) {
            if let Output::Event(conflux_core::plane::Event::Left { moved: count, .. }) = output {
                moved = count;
            }
        }
        println!("set_routes, one of the holders has less: {took:?} ({moved} flows moved)");
        self.now = self.now + Duration::from_secs(1);
        while self.plane.poll_output(self.now).is_some() {}
    }

    fn timers(&mut self) {
        let calls = 100_000_u32;
        let start = instant();
        for _ in 0..calls {
            black_box(self.plane.poll_timeout());
        }
        println!("poll_timeout: {} ns", (start.elapsed() / calls).as_nanos());
        let start = instant();
        for _ in 0..calls {
            self.plane.handle_timeout(black_box(self.now));
        }
        println!(
            "handle_timeout with nothing due: {} ns",
            (start.elapsed() / calls).as_nanos()
        );
    }

    /// New flows while the table is as full as it was made; of the least round.
    fn new_flows(&mut self) {
        self.hear_all();
        let count = 40_000_u32.min(self.flows);
        let rounds = 5;
        let mut least = Duration::MAX;
        for round in 0..rounds {
            let start = instant();
            for flow in 0..count / rounds {
                // Hosts that were not there before.
                let mut segment = self.segment(flow, common::SYN, 1);
                segment.source = Ipv4Addr::from(u32::from(segment.source) + (round + 10) * 1_024);
                black_box(self.give_host_packet(&segment, HEADER_BYTES));
            }
            least = least.min(start.elapsed());
            self.drain();
        }
        println!("new flow: {} ns", (least / (count / rounds)).as_nanos());
        println!("{:?}", self.plane.sizes());
    }

    /// Lets everything run out: open connections first, by their own life, then the flows.
    fn expiry(&mut self) {
        let (mut in_all, mut longest, mut calls) = (Duration::ZERO, Duration::ZERO, 0_u32);
        let before = self.plane.sizes();
        self.now = self.now + Duration::from_secs(2 * 3600 + 5 * 60);
        let end = self.now + Duration::from_secs(4 * 3600);
        while self.plane.sizes().flows > 0 && self.now.mono < end.mono {
            let Some(due) = self.plane.poll_timeout() else {
                break;
            };
            self.now = self.now + due.since(self.now.mono).max(Duration::from_micros(1));
            let start = instant();
            self.plane.handle_timeout(self.now);
            let took = start.elapsed();
            in_all += took;
            longest = longest.max(took);
            calls += 1;
            while self.plane.poll_output(self.now).is_some() {}
        }
        let after = self.plane.sizes();
        println!(
            "expiry of {} flows, {} connections: {in_all:?} in {calls} calls, longest {longest:?}, \
             done {:?} after the last became idle; left {after:?}",
            before.flows,
            before.connections,
            Duration::from_secs(4 * 3600).saturating_sub(end.mono.since(self.now.mono)),
        );
    }
}

fn path_of(peer: PeerIx) -> Path {
    let port = 1_024 + u16::try_from(peer.0 % 60_000).expect("it is less");
    Path {
        socket: 0,
        remote: SocketAddr::from(([192, 0, 2, 1], port)),
        local: None,
    }
}

fn per_packet(round: Duration) -> u128 {
    (round / ROUND).as_nanos()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn instant() -> Instant {
    Instant::now()
}

fn show_memory(what: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    if let (Some(now), Some(most)) = (field("VmRSS:"), field("VmHWM:")) {
        println!(
            "resident: {} MB (at most {} MB): {what}",
            now / 1000,
            most / 1000
        );
    }
}
