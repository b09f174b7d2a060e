//! The simulated world: anchors, the ways between them, and time. Events are processed in the order
//! of their time and of their making, so that a seed says all that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use conflux_core::ids::PeerIx;
use conflux_core::plane::{Event, Output, PeerView};
use conflux_core::session::Remote;
use conflux_core::time::Mono;
use conflux_proto::id::AnchorKey;

use crate::anchor::{Anchor, Condition, Spec, identity, peer, remote};
use crate::control::{Conn, Told};
use crate::link::Way;
use crate::model::{Breach, Model};
use crate::setting;
use crate::wire::Frame;

/// First bytes of frames (`docs/protocol.md` section 3), which anybody on the way can read.
const KEEPALIVE: u8 = 0x11;
pub(crate) const PROBE: u8 = 0x12;
const ECHO: u8 = 0x13;
/// A timer this late means that the process did not run (SPEC section 5).
const LATE: Duration = Duration::from_millis(500);
/// What waits for a machine to wake is looked at again this often.
const LOOK_AGAIN: Duration = Duration::from_millis(1_009);
/// Where the world's clock begins: no clock of a machine starts at zero.
const START: Mono = Mono::from_nanos(10_000_000_000_000);

/// What happens at its time.
pub(crate) enum Happening {
    Frame(Frame),
    Told(Told),
    App { at: usize, app: usize },
    Resume(usize),
}

/// What came of a run, for reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) frames: u64,
    pub(crate) failures: u64,
    pub(crate) local_faults: u64,
    pub(crate) moves: u64,
    pub(crate) returns: u64,
    pub(crate) answers: u64,
    pub(crate) resets: u64,
}

impl Counts {
    /// Adds those of another run.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.failures += other.failures;
        self.local_faults += other.local_faults;
        self.moves += other.moves;
        self.returns += other.returns;
        self.answers += other.answers;
        self.resets += other.resets;
    }
}

/// The world.
pub(crate) struct World {
    pub(crate) at: Mono,
    pub(crate) anchors: Vec<Anchor>,
    pub(crate) models: Vec<Model>,
    pub(crate) keys: Vec<AnchorKey>,
    pub(crate) remotes: Vec<Remote>,
    pub(crate) conns: BTreeMap<(usize, usize), Conn>,
    pub(crate) conns_made: u64,
    /// Addresses at which nothing arrives any more.
    pub(crate) dead: BTreeSet<SocketAddr>,
    pub(crate) random: fastrand::Rng,
    pub(crate) counts: Counts,
    pub(crate) breach: Option<Breach>,
    /// What to print: with `SIM_TRACE=1` what each anchor decides, with 2 its packets and frames too.
    trace: u8,
    ways: Vec<Way>,
    queue: BTreeMap<(Mono, u64), Happening>,
    sequence: u64,
    /// While a probe is being answered: what the echo proves.
    pub(crate) echoing: Option<Mono>,
}

impl World {
    /// Returns a world of anchors that have just started and know of each other.
    pub(crate) fn new(seed: u64, specs: Vec<Spec>) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let identities: Vec<_> = (0..specs.len()).map(identity).collect();
        let keys: Vec<AnchorKey> = identities.iter().map(|identity| identity.key()).collect();
        let count = specs.len();
        let ways = (0..count * count)
            .map(|_| Way::new(Duration::from_millis(random.u64(1..20)), random.u64(..)));
        let ways = ways.collect();
        let specs = specs.into_iter().enumerate();
        let anchors = specs.map(|(number, spec)| Anchor::new(number, spec, random.u64(..)));
        Self {
            at: START,
            anchors: anchors.collect(),
            models: (0..count).map(|number| Model::new(number, &keys)).collect(),
            remotes: identities.iter().map(remote).collect(),
            keys,
            conns: BTreeMap::new(),
            conns_made: 0,
            dead: BTreeSet::new(),
            counts: Counts::default(),
            breach: None,
            trace: setting("SIM_TRACE").map_or(0, |level| level.parse().unwrap_or(1)),
            ways,
            queue: BTreeMap::new(),
            sequence: 0,
            echoing: None,
            random,
        }
    }

    /// Lets time pass; ends early at a breach.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.at + span;
        while self.breach.is_none() {
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            let timer = self.next_timer();
            let next = [event, timer.map(|(at, _)| at)].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else {
                break;
            };
            self.at = self.at.max(next);
            if event == Some(next) {
                if let Some((_, happening)) = self.queue.pop_first() {
                    self.happen(happening);
                }
            } else if let Some((_, number)) = timer {
                self.fire_timers(number);
            }
        }
        self.at = self.at.max(end);
        for number in 0..self.anchors.len() {
            self.check(number);
        }
    }

    /// Has something happen after `delay`.
    pub(crate) fn later(&mut self, delay: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue
            .insert((self.at + delay, self.sequence), happening);
    }

    pub(crate) fn way(&mut self, from: usize, to: usize) -> &mut Way {
        &mut self.ways[from * self.anchors.len() + to]
    }

    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.ways[from * self.anchors.len() + to].is_cut
    }

    /// Returns an anchor's number by its key.
    pub(crate) fn number_of(&self, key: AnchorKey) -> Option<PeerIx> {
        self.keys.iter().position(|known| *known == key).map(peer)
    }

    /// Returns what `at` knows of each peer.
    pub(crate) fn views(&self, at: usize) -> Vec<PeerView> {
        let anchor = &self.anchors[at];
        let mono = anchor.now(self.at).mono;
        let all = 0..self.anchors.len();
        all.map(|other| anchor.plane.view_peer(mono, peer(other)))
            .collect()
    }

    /// Does what the plane of `at` wants done, then checks what came of it.
    pub(crate) fn settle(&mut self, at: usize) {
        let mut rounds = 0;
        loop {
            let outputs: Vec<Output> = std::iter::from_fn(|| self.poll(at)).collect();
            if outputs.is_empty() {
                break;
            }
            rounds += 1;
            assert!(rounds < 100_000, "outputs without end: {outputs:?}");
            // What was decided is known before its effects are looked at.
            for output in &outputs {
                if let Output::Event(event) = output {
                    self.handle_event(at, *event);
                }
            }
            for output in outputs {
                self.carry_out(at, output);
            }
        }
        self.check(at);
    }

    /// Prints what happens at `at`, if so much is to be printed.
    pub(crate) fn trace(&self, level: u8, at: usize, what: impl FnOnce() -> String) {
        if self.trace >= level {
            println!("{:>12?} {at}: {}", self.at.since(START), what());
        }
    }

    /// Starts application `app` of `at`.
    pub(crate) fn start_app(&mut self, at: usize, app: usize) {
        self.later(Duration::ZERO, Happening::App { at, app });
    }

    /// Checks all that must be true of `at` now.
    pub(crate) fn check(&mut self, at: usize) {
        let anchor = &self.anchors[at];
        if self.breach.is_some() || !anchor.is_on() {
            return;
        }
        let now = anchor.now(self.at);
        let (mono, spec, plane) = (now.mono, &anchor.spec, &anchor.plane);
        let views = if plane.sizes().flows > 0 {
            plane.view_flows(now, usize::MAX)
        } else {
            Vec::new()
        };
        let model = &mut self.models[at];
        let clients_cap = plane.clients().capacity();
        // One that was stopped may read its sockets before it looks at timers that came due.
        let is_ready = anchor.is_running() && anchor.due().is_none_or(|due| due > self.at);
        let checked = model
            .check_flows(mono, self.at, &spec.taints, &views, spec.flows_cap)
            .and_then(|()| {
                model.check_sizes(
                    plane.sizes(),
                    spec.flows_cap,
                    spec.connections_cap,
                    clients_cap,
                )
            })
            .and_then(|()| {
                if !is_ready {
                    return Ok(());
                }
                let view_of = |other| plane.view_peer(mono, peer(other));
                model.check_deadlines(mono, anchor.timer_lag, view_of)
            });
        if let Err(breach) = checked {
            self.breach = Some(breach);
        }
    }

    /// A timer that is late, or a suspend that is noticed, has every count start anew.
    pub(crate) fn note_lateness(&mut self, at: usize) {
        let anchor = &self.anchors[at];
        let mono = anchor.now(self.at).mono;
        if anchor
            .plane
            .poll_timeout()
            .is_some_and(|due| mono.since(due) > LATE)
        {
            self.models[at].start_anew(mono);
        }
    }

    /// Takes `at` out of its sleep, before its time too.
    pub(crate) fn wake(&mut self, at: usize) {
        let anchor = &mut self.anchors[at];
        match anchor.condition {
            Condition::Stopped(_) => {}
            Condition::Suspended { since, .. } => {
                anchor.suspended += self.at.since(since);
                self.models[at].sleep_ended();
            }
            Condition::Running | Condition::Off => return,
        }
        anchor.condition = Condition::Running;
        // A daemon that goes on may look at its timers first, or at what lies in its sockets.
        if self.random.bool() {
            self.fire_timers(at);
        }
    }

    fn next_timer(&self) -> Option<(Mono, usize)> {
        let running = self.anchors.iter().filter(|anchor| anchor.is_running());
        running
            .filter_map(|anchor| {
                let due = anchor.due().into_iter().chain([anchor.next_dial]).min()?;
                Some((due.max(self.at), anchor.number))
            })
            .min()
    }

    fn fire_timers(&mut self, at: usize) {
        self.note_lateness(at);
        let anchor = &mut self.anchors[at];
        let now = anchor.now(self.at);
        let is_due = |due: Option<Mono>| due.is_some_and(|due| due <= now.mono);
        if is_due(anchor.plane.poll_timeout()) {
            self.models[at].timers_fire(now.mono);
            anchor.plane.handle_timeout(now);
        }
        if is_due(anchor.membership.poll_timeout()) {
            anchor.membership.handle_timeout(now.mono);
        }
        self.settle(at);
        self.run_membership(at);
        if self.anchors[at].next_dial <= self.at {
            self.keep_connections(at);
        }
    }

    fn happen(&mut self, happening: Happening) {
        let target = match &happening {
            Happening::Frame(frame) => self.site_of(frame.to),
            Happening::Told(told) => Some(told.to),
            Happening::App { at, .. } => Some(*at),
            Happening::Resume(at) => {
                let until = match self.anchors[*at].condition {
                    Condition::Stopped(until) | Condition::Suspended { until, .. } => until,
                    Condition::Running | Condition::Off => return,
                };
                if until <= self.at {
                    self.wake(*at);
                }
                return;
            }
        };
        let Some(target) = target else { return };
        match self.anchors[target].condition {
            Condition::Running => {}
            Condition::Stopped(until) => {
                self.later(until.since(self.at), happening);
                return;
            }
            Condition::Suspended { .. } => {
                // What is sent to a machine that sleeps is lost, save what is sent again.
                if !matches!(happening, Happening::Frame(_)) {
                    self.later(LOOK_AGAIN, happening);
                }
                return;
            }
            Condition::Off => {
                if matches!(happening, Happening::App { .. }) {
                    self.later(LOOK_AGAIN, happening);
                }
                return;
            }
        }
        match happening {
            Happening::Frame(frame) => self.arrive(target, frame),
            Happening::Told(told) => self.hear(told),
            Happening::App { at, app } => self.work(at, app),
            Happening::Resume(_) => {}
        }
    }

    fn work(&mut self, at: usize, app: usize) {
        let (packets, next) = self.anchors[at].machine.work(self.at, app);
        for packet in packets {
            self.emit(at, &packet);
            self.settle(at);
        }
        if let Some(next) = next {
            self.later(next.since(self.at), Happening::App { at, app });
        }
    }

    fn poll(&mut self, at: usize) -> Option<Output> {
        let anchor = &mut self.anchors[at];
        let now = anchor.now(self.at);
        anchor.plane.poll_output(now)
    }

    fn carry_out(&mut self, at: usize, output: Output) {
        match output {
            Output::ToHost(packet) => self.write(at, &packet),
            Output::ToPeer {
                peer,
                flags,
                packet,
            } => self.seal(at, peer, flags, &packet),
            Output::FromHost { packet, .. } => self.emit(at, &packet),
            Output::FromPeer {
                peer,
                flags,
                packet,
            } => self.bring(at, peer, flags, &packet),
            Output::Datagram { path, frame } => {
                let kind = frame[0];
                let proves = match (kind, self.site_of(path.remote)) {
                    (ECHO, _) => self.echoing,
                    (KEEPALIVE, Some(to)) => self.models[at].received(to),
                    _ => None,
                };
                self.fly(at, path, frame.to_vec(), proves);
            }
            Output::Event(_) => {}
        }
    }

    fn handle_event(&mut self, at: usize, event: Event) {
        let mono = self.anchors[at].now(self.at).mono;
        self.trace(1, at, || format!("{event:?}"));
        match event {
            Event::NeedSession(peer) => self.want_session(at, peer.0 as usize),
            Event::Rotate(peer) => self.shake_hands(at, peer.0 as usize),
            Event::Unanswered(peer) => self.ask_whether_restarted(at, peer.0 as usize),
            Event::Failed { peer, moved, .. } => {
                self.counts.failures += 1;
                self.counts.moves += u64::from(moved);
                let (views, rtt) = (self.views(at), self.true_rtt(at, peer.0 as usize));
                let known = views[peer.0 as usize].rtt.unwrap_or_default();
                self.models[at].failed(mono, peer.0 as usize, rtt.min(known), &views);
            }
            Event::LocalFault(peer) => {
                self.counts.local_faults += 1;
                let views = self.views(at);
                self.models[at].fault_was_local(mono, peer.0 as usize, &views);
            }
            Event::Returned(peer) => {
                self.counts.returns += 1;
                self.models[at].returned(peer.0 as usize);
            }
            Event::Left { moved, .. } => self.counts.moves += u64::from(moved),
            Event::Roamed(..) | Event::TryPaths(_) | Event::Measured(..) => {}
        }
    }

    fn true_rtt(&self, one: usize, two: usize) -> Duration {
        let count = self.anchors.len();
        self.ways[one * count + two].delay + self.ways[two * count + one].delay
    }

    /// Returns whose address this is.
    pub(crate) fn site_of(&self, to: SocketAddr) -> Option<usize> {
        self.anchors.iter().position(|anchor| match &anchor.nat {
            Some(nat) => nat.has(to),
            None => anchor.has_endpoint(to),
        })
    }
}
