//! A path in virtual time: passes what is not too big, loses some, answers after a round trip.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{BASE_BYTES, Mtu, SizeProbe, Underlay};
use crate::ids::PeerIx;
use crate::time::Mono;

pub(super) const PEER: PeerIx = PeerIx(3);

/// How often the simulated host sends a packet of the limit's size, or the smaller one it has.
const TRAFFIC_EVERY: Duration = Duration::from_millis(20);

pub(super) struct Simulation {
    pub(super) mtu: Mtu,
    pub(super) now: Mono,
    /// Largest packet the path passes; probes above `local` never leave the machine.
    pub(super) passes: usize,
    pub(super) local: usize,
    pub(super) rtt: Duration,
    /// Lost probes or echoes, each way, in percent.
    pub(super) loss: u32,
    /// Size of the host's packets; 0 for none.
    pub(super) traffic: usize,
    pub(super) sent: Vec<SizeProbe>,
    echoes: BTreeMap<(Mono, u64), ()>,
    random: fastrand::Rng,
    next_traffic: Mono,
}

impl Simulation {
    pub(super) fn new(seed: u64, ceiling: usize, passes: usize) -> Self {
        let now = Mono::from_nanos(1_000_000_000);
        Self {
            mtu: Mtu::new(seed, ceiling),
            now,
            passes,
            local: usize::MAX,
            rtt: Duration::from_millis(10),
            loss: 0,
            traffic: 0,
            sent: Vec::new(),
            echoes: BTreeMap::new(),
            random: fastrand::Rng::with_seed(seed ^ 0xff),
            next_traffic: now,
        }
    }

    pub(super) fn start(&mut self, underlay: Underlay) {
        self.mtu.start(self.now, PEER, underlay, None);
        self.carry();
    }

    pub(super) fn limit(&self) -> usize {
        self.mtu.limit_bytes(PEER)
    }

    pub(super) fn run(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    /// Runs until `done`, at most for `span`; returns how long it took.
    pub(super) fn run_until(&mut self, span: Duration, done: impl Fn(&Self) -> bool) -> Duration {
        let (start, end) = (self.now, self.now + span);
        while !done(self) {
            let traffic = (self.traffic > 0).then_some(self.next_traffic);
            let echo = self.echoes.keys().next().map(|&(at, _)| at);
            let next = [traffic, echo, self.mtu.poll_timeout()]
                .into_iter()
                .flatten()
                .min();
            let Some(at) = next.filter(|&at| at <= end) else {
                self.now = end;
                break;
            };
            self.now = self.now.max(at);
            self.step();
        }
        self.now.since(start)
    }

    fn step(&mut self) {
        self.mtu.handle_timeout(self.now);
        while let Some((&(at, id), ())) = self.echoes.first_key_value() {
            if at > self.now {
                break;
            }
            self.echoes.remove(&(at, id));
            self.mtu.handle_echo(self.now, PEER, id);
        }
        if self.traffic > 0 && self.now >= self.next_traffic {
            let bytes = self.traffic.min(self.limit());
            self.mtu.handle_sent(self.now, PEER, bytes);
            self.next_traffic = self.now + TRAFFIC_EVERY;
        }
        self.carry();
        let limit = self.limit();
        assert!(limit >= BASE_BYTES && limit <= self.local.max(BASE_BYTES));
    }

    pub(super) fn carry(&mut self) {
        while let Some(probe) = self.mtu.poll_probe() {
            self.sent.push(probe);
            if probe.bytes > self.local {
                self.mtu.handle_refused(self.now, PEER, probe.bytes);
                continue;
            }
            let is_lost = self.is_lost() || self.is_lost();
            if probe.bytes <= self.passes && !is_lost {
                self.echoes.insert((self.now + self.rtt, probe.id), ());
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        self.random.u32(..100) < self.loss
    }
}
