//! Random schedules: a realm and fifty steps of trouble, all from one seed, and the quiet after it in
//! which everything must converge.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use conflux_core::plane::OWN_HOST;
use conflux_proto::taint::TaintSet;

use crate::anchor::{Condition, Spec, peer};
use crate::link::Loss;
use crate::machine::{App, Who, Work, last_byte};
use crate::model::{Breach, Checked};
use crate::nat::{Dependence, Nat};
use crate::tcp::Dialogue;
use crate::world::{Counts, Happening, World};

/// Steps of one schedule.
pub(crate) const STEPS: usize = 50;

/// The addresses that several anchors hold.
const SHARED: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 128, 0, 9), Ipv4Addr::new(10, 128, 0, 20)];

/// After the last fault everybody is connected and knows everybody within this: a connection that
/// was lost is noticed in 75 s and dialled again at once, a flap is waited out for a minute, and an
/// advert that was lost lives two minutes.
const CONVERGED_AFTER: Duration = Duration::from_secs(240);
/// Applications that ask then must be answered within this: a TCP SYN may have waited 20 s.
const ANSWERED_WITHIN: Duration = Duration::from_secs(45);

/// What happens to the world.
#[derive(Clone, Debug)]
enum Step {
    Pass(Duration),
    Cut {
        from: usize,
        to: usize,
    },
    Heal {
        from: usize,
        to: usize,
    },
    CutUplink(usize),
    HealUplink(usize),
    Lose {
        from: usize,
        to: usize,
        loss: Loss,
    },
    Delay {
        from: usize,
        to: usize,
        delay: Duration,
    },
    Kill(usize),
    Leave(usize),
    Restart(usize),
    Crash(usize),
    Stop {
        at: usize,
        span: Duration,
    },
    Suspend {
        at: usize,
        span: Duration,
    },
    LagTimers {
        at: usize,
        lag: Duration,
    },
    SetClock {
        at: usize,
        ahead_secs: i64,
    },
    Taint {
        at: usize,
        taints: TaintSet,
    },
    Hold {
        at: usize,
        address: Option<Ipv4Addr>,
    },
    ForgetNat(usize),
    KillEndpoint(usize),
    ReviveEndpoints,
    Serve {
        at: usize,
        is_serving: bool,
    },
    Start {
        at: usize,
        app: usize,
    },
    Quieten {
        at: usize,
        app: usize,
    },
    HealAll,
}

/// Runs the schedule of a seed.
///
/// # Errors
/// The breach, and the steps that led to it.
pub(crate) fn run(seed: u64, steps: usize) -> Result<Counts, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut world = realm(&mut random);
    let mut log = String::new();
    let start = world.at;
    let outcome = run_steps(&mut world, &mut random, steps, &mut log);
    match outcome {
        Ok(()) => Ok(world.counts),
        Err(Breach(text)) => Err(format!(
            "seed {seed}, {:?} after the start: {text}\n{log}",
            world.at.since(start)
        )),
    }
}

fn run_steps(
    world: &mut World,
    random: &mut fastrand::Rng,
    steps: usize,
    log: &mut String,
) -> Checked {
    let start = world.at;
    world.pass(Duration::from_secs(5));
    for _ in 0..steps {
        let step = draw(world, random);
        let _ = writeln!(log, "{:>12?} {step:?}", world.at.since(start));
        apply(world, step);
        world.pass(Duration::from_millis(random.u64(0..1_500)));
        if let Some(breach) = world.breach.take() {
            return Err(breach);
        }
    }
    let _ = writeln!(log, "{:>12?} the last fault ends", world.at.since(start));
    apply(world, Step::HealAll);
    world.pass(CONVERGED_AFTER);
    if let Some(breach) = world.breach.take() {
        return Err(breach);
    }
    converged(world)
}

/// Checks what must be true once nothing has gone wrong for a while.
fn converged(world: &mut World) -> Checked {
    let before = world.counts;
    for at in 0..world.anchors.len() {
        for app in 0..world.anchors[at].machine.apps.len() {
            let app = &mut world.anchors[at].machine.apps[app];
            app.answered = None;
        }
    }
    world.pass(ANSWERED_WITHIN);
    if let Some(breach) = world.breach.take() {
        return Err(breach);
    }
    if world.counts.failures > before.failures || world.counts.local_faults > before.local_faults {
        return Err(Breach(format!(
            "9: holders still fail in peace: {:?}, before {before:?}",
            world.counts
        )));
    }
    for at in 0..world.anchors.len() {
        converged_at(world, at)?;
    }
    Ok(())
}

fn converged_at(world: &World, at: usize) -> Checked {
    let anchor = &world.anchors[at];
    for other in 0..world.anchors.len() {
        let is_known = anchor.membership.get(&world.keys[other]).is_some();
        if other != at && !is_known {
            return Err(Breach(format!("9: {at} does not know {other}")));
        }
    }
    let mono = anchor.now(world.at).mono;
    let working = || anchor.machine.apps.iter().filter(|app| app.is_on);
    let flows: BTreeSet<_> = working().map(|app| (app.from.ip(), app.to)).collect();
    // Where more flows are wanted than there is room for, one that waits for its holder to answer
    // is the longest idle, and goes.
    let has_room = flows.len() <= anchor.spec.flows_cap;
    for app in working() {
        let holders = holders(world, at, app.to);
        let failed = |holder: &&usize| anchor.plane.view_peer(mono, peer(**holder)).is_failed;
        if let Some(holder) = holders.iter().find(failed) {
            return Err(Breach(format!("9: {holder} is still failed for {at}")));
        }
        let is_full = |holder: &usize| world.anchors[*holder].spec.client_range == small_range();
        // Where one host of each peer fills its part of the range, others find no place.
        let is_answering =
            has_room && !matches!(app.work, Work::OneWay) && !holders.iter().any(is_full);
        if is_answering && !holders.is_empty() && app.answered.is_none() {
            let flows = anchor.plane.view_flows(anchor.now(world.at), usize::MAX);
            return Err(Breach(format!(
                "9: {at} gets no answer from {} of {holders:?}: {app:?}; {flows:?}",
                app.to
            )));
        }
    }
    Ok(())
}

/// Returns the anchors that may answer at `address` for `at`.
fn holders(world: &World, at: usize, address: IpAddr) -> Vec<usize> {
    let own = &world.anchors[at].spec.taints;
    let others = world.anchors.iter().filter(|other| other.number != at);
    others
        .filter(|other| other.spec.ipv4.map(IpAddr::V4) == Some(address))
        .filter(|other| own.may_exchange(&other.spec.taints))
        .map(|other| other.number)
        .collect()
}

/// Returns a realm: a client or two, holders of one or two addresses, some behind translators.
fn realm(random: &mut fastrand::Rng) -> World {
    let holders = random.usize(2..=4);
    let clients = random.usize(1..=2);
    let mut specs = Vec::new();
    for number in 0..clients + holders {
        let is_client = number < clients;
        let address = SHARED[usize::from(random.u8(..4) == 0)];
        specs.push(Spec {
            ipv4: (!is_client).then_some(address),
            subnet: is_client.then(|| {
                let lan = Ipv4Addr::new(192, 168, u8::try_from(number).expect("few"), 0);
                ipnet::Ipv4Net::new(lan, 24)
                    .expect("24 bits at most")
                    .into()
            }),
            taints: taints(random),
            client_range: if random.u8(..8) == 0 {
                small_range()
            } else {
                "198.18.0.0/20".parse().expect("a network")
            },
            flows_cap: if random.u8(..4) == 0 { 3 } else { 1 << 10 },
            connections_cap: if random.u8(..4) == 0 { 4 } else { 1 << 10 },
            is_dual: random.bool(),
        });
    }
    let mut world = World::new(random.u64(..), specs);
    for client in 0..clients {
        if random.u8(..3) == 0 {
            world.anchors[client].nat = Some(nat(random, client));
        }
        let apps = random.usize(2..=5);
        for app in 0..apps {
            let app = draw_app(random, client, app);
            world.anchors[client].machine.apps.push(app);
        }
    }
    let at = world.at;
    for anchor in &mut world.anchors {
        anchor.advertise(at);
        anchor.next_dial = at;
    }
    for client in 0..clients {
        for app in 0..world.anchors[client].machine.apps.len() {
            world.start_app(client, app);
        }
    }
    world
}

/// Returns a client range in which each peer may have one address.
fn small_range() -> ipnet::Ipv4Net {
    "198.18.0.0/28".parse().expect("a network")
}

fn draw_app(random: &mut fastrand::Rng, client: usize, number: usize) -> App {
    let client = u8::try_from(client).expect("few anchors");
    let number = u8::try_from(number).expect("few applications");
    let own = IpAddr::V4(OWN_HOST);
    let from = match random.u8(..3) {
        0 => own,
        _ => Ipv4Addr::new(192, 168, client, 10 + random.u8(..3)).into(),
    };
    let port = 10_000 + u16::from(number) * 1_000;
    App {
        from: SocketAddr::new(from, port),
        to: SHARED[usize::from(random.u8(..5) == 0)].into(),
        work: match random.u8(..4) {
            0 => Work::OneWay,
            1 => Work::Request,
            _ => Work::Tcp(Dialogue::new(Who {
                anchor: client,
                host: last_byte(from),
            })),
        },
        gap: Duration::from_millis([40, 150, 400, 1_100, 4_000, 20_000][random.usize(..6)]),
        is_on: random.u8(..4) != 0,
        answered: None,
    }
}

fn nat(random: &mut fastrand::Rng, number: usize) -> Nat {
    let kinds = [
        Dependence::EndpointIndependent,
        Dependence::AddressDependent,
        Dependence::AddressAndPortDependent,
    ];
    let last = u8::try_from(number + 1).expect("few anchors");
    Nat::new(
        [198, 51, 100, last].into(),
        kinds[random.usize(..3)],
        kinds[random.usize(..3)],
        Duration::from_secs(random.u64(30..300)),
    )
}

fn taints(random: &mut fastrand::Rng) -> TaintSet {
    let sets: [&[&str]; 4] = [&["a"], &["a", "b"], &["b"], &["a", "b", "c"]];
    let place = match random.u8(..20) {
        0..16 => 0,
        16 | 17 => 1,
        18 => 2,
        _ => 3,
    };
    TaintSet::parse(sets[place]).expect("these are labels")
}

fn draw(world: &World, random: &mut fastrand::Rng) -> Step {
    let count = world.anchors.len();
    let at = random.usize(..count);
    let (from, to) = (random.usize(..count), random.usize(..count));
    let apps = world.anchors[at].machine.apps.len();
    match random.u32(..100) {
        0..20 => Step::Pass(Duration::from_millis(random.u64(0..6_000))),
        20 => Step::Pass(Duration::from_secs(random.u64(100..1_300))),
        21..27 => Step::Cut { from, to },
        27..33 => Step::Heal { from, to },
        33..36 => Step::CutUplink(at),
        36..41 => Step::HealUplink(at),
        41..46 => Step::Lose {
            from,
            to,
            loss: match random.u8(..4) {
                0 => Loss::None,
                1 | 2 => Loss::Independent(f64::from(random.u32(1..20)) / 100.0),
                _ => Loss::Bursts {
                    burst: Duration::from_millis([100, 300, 1_000][random.usize(..3)]),
                    share: f64::from(random.u32(1..20)) / 100.0,
                },
            },
        },
        46..49 => Step::Delay {
            from,
            to,
            delay: Duration::from_millis([1, 10, 40, 120, 240, 450][random.usize(..6)]),
        },
        49..52 => Step::Kill(at),
        52..55 => Step::Leave(at),
        55..63 => Step::Restart(at),
        63..65 => Step::Crash(at),
        65..68 => Step::Stop {
            at,
            span: Duration::from_millis(random.u64(50..5_000)),
        },
        68..70 => Step::Suspend {
            at,
            span: Duration::from_millis(match random.u8(..3) {
                0 => random.u64(100..3_000),
                1 => random.u64(3_000..120_000),
                _ => random.u64(120_000..2_000_000),
            }),
        },
        70..73 => Step::LagTimers {
            at,
            lag: Duration::from_millis([0, 0, 5, 50, 300, 1_000, 3_000][random.usize(..7)]),
        },
        73 => Step::SetClock {
            at,
            ahead_secs: random.i64(-540..8_000_000),
        },
        74 => Step::Taint {
            at,
            taints: taints(random),
        },
        75 => Step::Hold {
            at,
            address: [None, Some(SHARED[0]), Some(SHARED[1])][random.usize(..3)],
        },
        76 => Step::ForgetNat(at),
        77 | 78 => Step::KillEndpoint(at),
        79 => Step::ReviveEndpoints,
        80 => Step::Serve {
            at,
            is_serving: random.bool(),
        },
        81..92 if apps > 0 => Step::Start {
            at,
            app: random.usize(..apps),
        },
        92..96 if apps > 0 => Step::Quieten {
            at,
            app: random.usize(..apps),
        },
        96 => Step::HealAll,
        _ => Step::Pass(Duration::from_millis(random.u64(0..3_000))),
    }
}

fn apply(world: &mut World, step: Step) {
    match step {
        Step::Pass(span) => world.pass(span),
        Step::Cut { from, to } => world.way(from, to).is_cut = from != to,
        Step::Heal { from, to } => world.way(from, to).is_cut = false,
        Step::CutUplink(at) => set_uplink(world, at, true),
        Step::HealUplink(at) => set_uplink(world, at, false),
        Step::Lose { from, to, loss } => world.way(from, to).loss = loss,
        Step::Delay { from, to, delay } => world.way(from, to).delay = delay,
        Step::Kill(at) => turn_off(world, at),
        Step::Leave(at) => {
            if world.anchors[at].is_running() {
                world.say_goodbye(at);
                turn_off(world, at);
            }
        }
        Step::Restart(at) => {
            if world.anchors[at].condition == Condition::Off {
                start(world, at);
            }
        }
        Step::Crash(at) => {
            if world.anchors[at].is_running() {
                turn_off(world, at);
                world.pass(Duration::from_millis(300));
                start(world, at);
            }
        }
        Step::Stop { at, span } => sleep(world, at, Condition::Stopped(world.at + span), span),
        Step::Suspend { at, span } => {
            let (since, until) = (world.at, world.at + span);
            sleep(world, at, Condition::Suspended { since, until }, span);
        }
        Step::LagTimers { at, lag } => world.anchors[at].timer_lag = lag,
        Step::SetClock { at, ahead_secs } => world.anchors[at].wall_ahead_secs = ahead_secs,
        Step::Taint { at, taints } => {
            if may_be_configured(world, at) {
                world.anchors[at].spec.taints = taints;
                readvertise(world, at);
            }
        }
        Step::Hold { at, address } => {
            if world.anchors[at].machine.apps.is_empty() && may_be_configured(world, at) {
                world.anchors[at].spec.ipv4 = address;
                readvertise(world, at);
            }
        }
        Step::ForgetNat(at) => {
            if let Some(nat) = &mut world.anchors[at].nat {
                nat.forget();
            }
        }
        Step::KillEndpoint(at) => {
            // Its second one stays: what remains must be found over all known paths.
            let endpoints = world.anchors[at].endpoints();
            if let [first, _] = endpoints[..] {
                world.dead.insert(first);
            }
        }
        Step::ReviveEndpoints => world.dead.clear(),
        Step::Serve { at, is_serving } => world.anchors[at].machine.is_serving = is_serving,
        Step::Start { at, app } => {
            let app_state = &mut world.anchors[at].machine.apps[app];
            if !app_state.is_on {
                app_state.is_on = true;
                world.start_app(at, app);
            }
        }
        Step::Quieten { at, app } => world.anchors[at].machine.apps[app].is_on = false,
        Step::HealAll => heal(world),
    }
}

fn set_uplink(world: &mut World, at: usize, is_cut: bool) {
    for other in (0..world.anchors.len()).filter(|&other| other != at) {
        world.way(at, other).is_cut = is_cut;
        world.way(other, at).is_cut = is_cut;
    }
}

fn turn_off(world: &mut World, at: usize) {
    world.anchors[at].condition = Condition::Off;
    world.lose_connections(at);
}

fn start(world: &mut World, at: usize) {
    let keys = world.keys.clone();
    let number_of = |key| keys.iter().position(|known| *known == key).map(peer);
    world.anchors[at].restart(world.at, number_of);
    world.models[at].restart();
    for model in &mut world.models {
        model.peer_restarted(at);
    }
    world.run_membership(at);
}

fn sleep(world: &mut World, at: usize, condition: Condition, span: Duration) {
    if world.anchors[at].is_running() {
        world.anchors[at].condition = condition;
        world.later(span, Happening::Resume(at));
    }
}

/// Says whether somebody can change what an anchor is: nobody can while it gets no time.
fn may_be_configured(world: &World, at: usize) -> bool {
    matches!(
        world.anchors[at].condition,
        Condition::Running | Condition::Off
    )
}

fn readvertise(world: &mut World, at: usize) {
    if !world.anchors[at].is_running() {
        return;
    }
    world.anchors[at].advertise(world.at);
    world.rebuild(at);
    world.run_membership(at);
}

fn heal(world: &mut World) {
    for from in 0..world.anchors.len() {
        for to in 0..world.anchors.len() {
            let way = world.way(from, to);
            way.is_cut = false;
            way.loss = Loss::None;
        }
        world.anchors[from].timer_lag = Duration::ZERO;
        world.anchors[from].machine.is_serving = true;
        // One that is stopped goes on by itself within seconds.
        if matches!(world.anchors[from].condition, Condition::Suspended { .. }) {
            world.wake(from);
        }
        if world.anchors[from].condition == Condition::Off {
            start(world, from);
        }
    }
    world.dead.clear();
}
