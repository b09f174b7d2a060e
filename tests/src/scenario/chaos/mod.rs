//! Everything at once, at random: holders are killed, cut, stopped, slowed, drained and restarted
//! while several clients ask by HTTP, redis and UDP and one is blocked in `read()`. What clients
//! saw is judged afterwards from outside ([`judge`]): by what the product promises, not by what it
//! reports.

mod judge;

use std::fmt;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::fault::Fault;
use super::realm::{Plan, Realm, at, port};
use crate::host::Program;
use crate::wait;
use crate::work::{RequestLog, Requests, Talker, name_redis};

pub use judge::{Judged, Memory};

/// Redis on every holder.
const REDIS: u16 = 6379;
/// Enough that the loss of one is a small part, and two may be on their way back.
const HOLDERS: usize = 4;
/// One that only asks by HTTP, so that drains come to an end for it; one that talks redis and UDP;
/// one with a silent reader.
const CLIENTS: usize = 3;
const REQUESTS_PER_SECOND: u32 = 10;
const STEP: Duration = Duration::from_millis(50);

/// What is done to a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Done, left for a while, and taken back.
    Fault(Fault),
    /// Its network becomes slow and loses a little.
    Slow,
    /// It drains for a while.
    Drain,
}

/// A deed, where, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// What.
    pub deed: Deed,
    /// The holder's place.
    pub holder: usize,
    /// When it began; of a goodbye when its command was given.
    pub began: Instant,
    /// When it had been taken back.
    pub ended: Instant,
}

/// What one client saw.
pub struct Seen {
    /// The client's name.
    pub client: String,
    /// Its questions that can say who answered, by kind.
    pub talks: Vec<(&'static str, RequestLog)>,
    /// How often and when its silent reader was released.
    pub releases: Option<RequestLog>,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Chaos {
    /// For how long deeds are done.
    pub time: Duration,
    /// What chooses them.
    pub seed: u64,
}

/// What came of a run.
pub struct Summary {
    /// As it was run.
    pub chaos: Chaos,
    /// Everything that was done.
    pub done: Vec<Done>,
    /// What clients saw, judged.
    pub judged: Judged,
    /// Of each client's anchor.
    pub memory: Vec<Memory>,
}

impl Chaos {
    /// Runs, and judges what was seen. `tell` hears each deed as it is done.
    ///
    /// # Panics
    ///
    /// When the realm does not come up, or a holder does not come back.
    pub fn run(self, mut tell: impl FnMut(&str)) -> Summary {
        let mut random = Rng::with_seed(self.seed);
        let mut realm = Realm::start(&Plan::of(HOLDERS, CLIENTS));
        let _redis = start_redis(&realm);
        let loads = Loads::start(&realm);
        let began = Instant::now();
        let mut memory: Vec<Memory> = Vec::new();
        let mut done: Vec<Done> = Vec::new();
        while began.elapsed() < self.time {
            let deed = Deed::draw(&mut random);
            let holder = random.usize(..HOLDERS);
            let time = deed.time(&mut random);
            tell(&format!(
                "{:7.1} s  {deed} {} for {:.1} s",
                began.elapsed().as_secs_f64(),
                realm.holders[holder].host.name(),
                time.as_secs_f64()
            ));
            let began_deed = Instant::now();
            deed.begin(&mut realm, holder);
            wait::pass(time);
            deed.end(&mut realm, holder);
            done.push(Done {
                deed,
                holder,
                began: began_deed,
                ended: Instant::now(),
            });
            wait::pass(Duration::from_millis(random.u64(500..4000)));
            Memory::sample(&mut memory, &realm, began.elapsed());
        }
        // What the last deed broke is to be seen to its end.
        wait::pass(Duration::from_secs(8));
        let names: Vec<String> = realm
            .holders
            .iter()
            .map(|holder| holder.host.name().to_owned())
            .collect();
        let judged = Judged::of(&names, &done, &loads.stop());
        Summary {
            chaos: self,
            done,
            judged,
            memory,
        }
    }
}

impl Deed {
    const ALL: [Self; 8] = [
        Self::Fault(Fault::Down),
        Self::Fault(Fault::Kill),
        Self::Fault(Fault::Cut),
        Self::Fault(Fault::Deaf),
        Self::Fault(Fault::Mute),
        Self::Fault(Fault::Stop),
        Self::Slow,
        Self::Drain,
    ];

    fn draw(random: &mut Rng) -> Self {
        Self::ALL[random.usize(..Self::ALL.len())]
    }

    /// Shorter and longer than the two seconds in which a holder is given up.
    fn time(self, random: &mut Rng) -> Duration {
        Duration::from_millis(random.u64(300..6000))
    }

    fn begin(self, realm: &mut Realm, holder: usize) {
        match self {
            Self::Fault(fault) => fault.strike(realm, holder),
            Self::Slow => realm.lab.around(&realm.holders[holder].host).change(|way| {
                way.delay = Duration::from_millis(60);
                way.jitter = Duration::from_millis(20);
                way.loss = 0.03;
            }),
            Self::Drain => {
                realm.holders[holder].anchor.say(["drain"]);
            }
        }
    }

    fn end(self, realm: &mut Realm, holder: usize) {
        match self {
            Self::Fault(fault) => fault.undo(realm, holder),
            Self::Slow => realm.lab.around(&realm.holders[holder].host).mend(),
            Self::Drain => {
                realm.holders[holder].anchor.say(["undrain"]);
            }
        }
    }
}

/// What one client does all along.
struct Load {
    client: String,
    http: Requests,
    talks: Vec<(&'static str, Talker)>,
    reader: Option<Talker>,
}

struct Loads {
    clients: Vec<Load>,
}

impl Loads {
    fn start(realm: &Realm) -> Self {
        let clients = realm
            .clients
            .iter()
            .enumerate()
            .map(|(place, client)| {
                let host = &client.host;
                let http = Requests::start(host, None, at(port::HTTP), REQUESTS_PER_SECOND);
                let talks = match place {
                    1 => vec![
                        ("redis", Talker::redis(host, at(REDIS), STEP)),
                        ("UDP", Talker::datagrams(host, at(port::WHO), STEP)),
                    ],
                    _ => Vec::new(),
                };
                let reader = (place == 2).then(|| Talker::silent_reader(host, at(port::SILENT)));
                Load {
                    client: host.name().to_owned(),
                    http,
                    talks,
                    reader,
                }
            })
            .collect();
        Self { clients }
    }

    fn stop(self) -> Vec<Seen> {
        self.clients
            .into_iter()
            .map(|load| {
                // Not stopped: it is blocked, and what it saw is what counts.
                let releases = load.reader.map(|reader| reader.log());
                let mut talks = vec![("HTTP", load.http.stop())];
                let others = load.talks.into_iter();
                talks.extend(others.map(|(kind, talk)| (kind, talk.stop())));
                Seen {
                    client: load.client,
                    talks,
                    releases,
                }
            })
            .collect()
    }
}

fn start_redis(realm: &Realm) -> Vec<Program> {
    let port = REDIS.to_string();
    let settings = [
        "--port",
        &port,
        "--bind",
        "0.0.0.0",
        "--protected-mode",
        "no",
        "--dir",
        "/run",
        "--save",
        "",
    ];
    realm
        .holders
        .iter()
        .map(|holder| {
            let log = holder.host.outside_path("/run/redis.out");
            let program = holder
                .host
                .command("redis-server")
                .args(settings)
                .spawn(&log)
                .expect("redis-server is installed");
            wait::until(Duration::from_secs(10), "redis", || {
                name_redis(&holder.host, REDIS).is_ok()
            });
            program
        })
        .collect()
}

impl Summary {
    /// Says whether everything that was promised held.
    pub fn holds(&self) -> bool {
        self.judged.violations.is_empty() && self.memory.iter().all(Memory::is_flat)
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Slow => f.pad("slow"),
            Self::Drain => f.pad("drain"),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}, {:.1} min, {HOLDERS} holders, {CLIENTS} clients",
            self.chaos.seed,
            self.chaos.time.as_secs_f64() / 60.0
        )?;
        let count = |deed| self.done.iter().filter(|done| done.deed == deed).count();
        let deeds: Vec<String> = Deed::ALL
            .into_iter()
            .map(|deed| format!("{} x {deed}", count(deed)))
            .collect();
        writeln!(f, "deeds: {} ({})", self.done.len(), deeds.join(", "))?;
        write!(f, "{}", self.judged)?;
        for memory in &self.memory {
            writeln!(f, "{memory}")?;
        }
        writeln!(
            f,
            "{}",
            if self.holds() {
                "all holds"
            } else {
                "DOES NOT HOLD"
            }
        )
    }
}
