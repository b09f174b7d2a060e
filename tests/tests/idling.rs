//! What an anchor costs that has nothing to do: its machine's processor, and the network.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot set up has failed its test"
)]

use std::fs;
use std::time::{Duration, Instant};

use e2e::{Anchor, Host, Lab, Options, wait};

/// Until what a start brings about is over: measuring of paths, first digests.
const SETTLE: Duration = Duration::from_secs(20);

/// Two of the longest periods there are, of half a minute.
const WATCH: Duration = Duration::from_secs(60);

#[test]
#[ignore = "what it measures is the machine's too: run by hand, alone on the machine"]
fn one_connected_peer_costs_next_to_nothing() {
    let lab = Lab::new();
    let one = Anchor::start(&lab.host("one"), &Options::of("--ipv4 10.128.0.9"));
    let ticket = one.invite("");
    let two = Anchor::start(&lab.host("two"), &Options::default().joining(&ticket));
    wait::until(SETTLE, "the two to meet", || two.connected() == 1);
    wait::pass(SETTLE);

    let idle = Idle::watch(&lab, &one);

    println!("one connected peer: {idle}");
    assert!(idle.cpu_millis_per_second < 0.5, "{idle}");
    assert!(idle.wakeups_per_second < 3.0, "{idle}");
}

#[test]
#[ignore = "a hundred processes: run by hand, alone on the machine"]
fn a_hundred_known_peers_cost_little() {
    const HOSTS: usize = 20;
    const EACH: usize = 5;
    let lab = Lab::new();
    let one = Anchor::start(&lab.host("one"), &Options::of("--ipv4 10.128.0.9"));
    let ticket = one.invite("");
    let mut others = Vec::new();
    for place in 0..HOSTS {
        let host = lab.host(&format!("host{place}"));
        for number in 0..EACH {
            others.push(crowd(&host, number, &ticket));
        }
    }
    wait::until(SETTLE, "all to be known", || {
        one.peers().len() == HOSTS * EACH
    });
    wait::pass(SETTLE);

    let idle = Idle::watch(&lab, &one);

    println!(
        "{} known peers, {} connected: {idle}",
        others.len(),
        one.connected()
    );
    assert!(idle.cpu_millis_per_second < 5.0, "{idle}");
    assert!(idle.wakeups_per_second < 20.0, "{idle}");
    assert!(idle.bytes_per_second() < 600.0, "{idle}");
}

/// One of several anchors on a host.
fn crowd(host: &Host, number: usize, ticket: &str) -> Anchor {
    let mut options = Options::of(&format!(
        "--interface anchor{number} --listen 0.0.0.0:{} --client-range 172.{}.0.0/16",
        47_474 + number,
        20 + number
    ));
    options.name = Some(format!("anchor{number}"));
    Anchor::start(host, &options.joining(ticket))
}

/// What an anchor used while it was watched.
struct Idle {
    cpu_millis_per_second: f64,
    wakeups_per_second: f64,
    sent_per_second: f64,
    received_per_second: f64,
    /// By thread: its name, milliseconds of processor and wake-ups in all.
    threads: Vec<(String, f64, u64)>,
}

impl Idle {
    fn watch(lab: &Lab, anchor: &Anchor) -> Self {
        let host = anchor.host();
        let carried = || [lab.out_of(host), lab.towards(host)].map(|ways| ways.carried().bytes);
        let (began, bytes, before) = (Instant::now(), carried(), threads(anchor));
        wait::pass(WATCH);
        let seconds = began.elapsed().as_secs_f64();
        let [sent, received] = carried();
        let used = threads(anchor).into_iter().map(|(name, nanos, wakeups)| {
            let earlier = before.iter().find(|(known, ..)| *known == name);
            let (_, nanos_before, wakeups_before) = earlier.cloned().unwrap_or_default();
            let millis = (nanos - nanos_before) as f64 / 1e6;
            (name, millis, wakeups - wakeups_before)
        });
        let threads: Vec<(String, f64, u64)> = used.collect();
        Self {
            cpu_millis_per_second: threads.iter().map(|used| used.1).sum::<f64>() / seconds,
            wakeups_per_second: threads.iter().map(|used| used.2).sum::<u64>() as f64 / seconds,
            sent_per_second: (sent - bytes[0]) as f64 / seconds,
            received_per_second: (received - bytes[1]) as f64 / seconds,
            threads,
        }
    }

    fn bytes_per_second(&self) -> f64 {
        self.sent_per_second + self.received_per_second
    }
}

impl std::fmt::Display for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.3} ms/s of processor, {:.2} wake-ups/s, {:.0} B/s sent, {:.0} B/s received; {:?}",
            self.cpu_millis_per_second,
            self.wakeups_per_second,
            self.sent_per_second,
            self.received_per_second,
            self.threads
        )
    }
}

/// Each thread of an anchor: name and number, nanoseconds of processor, times it went to sleep.
fn threads(anchor: &Anchor) -> Vec<(String, u64, u64)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", anchor.pid())).unwrap();
    let read = |entry: fs::DirEntry| {
        let text = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap();
        let name = format!(
            "{}/{}",
            text("comm").trim(),
            entry.file_name().to_string_lossy()
        );
        let nanos = text("schedstat")
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let status = text("status");
        let mut lines = status.lines();
        let sleeps = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        (name, nanos, sleeps.unwrap().trim().parse().unwrap())
    };
    tasks.map(|entry| read(entry.unwrap())).collect()
}
