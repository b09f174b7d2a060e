//! Who gets which share of new flows: the draw against SPEC section 4 by chi-square, whatever is
//! known of the holders; and what 600 clients that choose each for itself make of three holders of
//! unequal speed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use conflux_core::choose::choose;
use conflux_core::cost::{Cost, Costs};
use conflux_core::ids::PeerIx;
use conflux_core::time::Mono;
use smallvec::SmallVec;

const START: Mono = Mono::from_nanos(1_000_000_000_000);
const DRAWS: u32 = 200_000;

#[test]
fn draws_follow_the_costs_of_any_group() {
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..40 {
        let mut costs = Costs::new();
        let group: Vec<PeerIx> = (0..random.u32(2..=12)).map(PeerIx).collect();
        let mut expected = Vec::new();
        for &holder in &group {
            let rtt = millis(random.u64(0..200));
            let answer = millis(random.u64(0..2_000));
            costs.handle_rtt(START, holder, rtt);
            costs.handle_answer(START, holder, answer);
            expected.push(rtt + answer);
        }

        assert_shares(&costs, START, &group, &expected, round);
    }
}

#[test]
fn the_contracts_example_holds() {
    let costs = [millis(6), millis(25), millis(105)];

    let shares = reference(&costs);

    for (share, promised) in shares.iter().zip([0.707, 0.215, 0.078]) {
        assert!((share - promised).abs() < 0.0006, "{shares:?}");
    }
}

/// Each state a holder's measurements can be in, beside two that are measured.
#[test]
fn late_stale_unmeasured_refused_and_returning_holders_get_the_shares_of_the_contract() {
    let (near, far, odd) = (PeerIx(1), PeerIx(2), PeerIx(3));
    let group = [near, far, odd];
    let measured = |at| {
        let mut costs = Costs::new();
        for (holder, rtt, answer) in [(near, 4, 10), (far, 30, 40)] {
            costs.handle_rtt(at, holder, millis(rtt));
            costs.handle_answer(at, holder, millis(answer));
        }
        costs
    };
    // In the logarithm that averages are made in: the median of two lies between them.
    let median = mean_of_logs(millis(10), millis(40));
    let known = [millis(14), millis(70)];

    // Late: it joined just now, and nothing is known. Its round trip counts as 50 ms or the median
    // if that is more, its answer time as the median.
    let costs = measured(START);
    let unknown = millis(50) + median;
    assert_shares(&costs, START, &group, &[known[0], known[1], unknown], 1);

    // Unmeasured: its round trip is known by probes, its service was never asked.
    let mut costs = measured(START);
    costs.handle_rtt(START, odd, millis(2));
    let unasked = millis(2) + median;
    assert_shares(&costs, START, &group, &[known[0], known[1], unasked], 2);

    // Stale: it was slow 15 minutes ago, which says nothing any more.
    let mut costs = Costs::new();
    costs.handle_rtt(START, odd, millis(2));
    costs.handle_answer(START, odd, millis(5_000));
    let later = START + Duration::from_secs(15 * 60);
    for (holder, rtt, answer) in [(near, 4, 10), (far, 30, 40)] {
        costs.handle_rtt(later, holder, millis(rtt));
        costs.handle_answer(later, holder, millis(answer));
    }
    assert_shares(&costs, later, &group, &[known[0], known[1], unasked], 3);

    // Refused: at least a second, however near.
    let mut costs = measured(START);
    costs.handle_rtt(START, odd, millis(2));
    costs.handle_refused(START, odd);
    let refused = millis(1_002);
    assert_shares(&costs, START, &group, &[known[0], known[1], refused], 4);

    // Returning: what was known of it when it failed is forgotten when it left, else it counts.
    let mut costs = measured(START);
    costs.handle_rtt(START, odd, millis(2));
    costs.handle_answer(START, odd, millis(5_000));
    costs.forget(odd);
    assert_shares(&costs, START, &group, &[known[0], known[1], unknown], 5);
}

#[test]
fn six_hundred_clients_load_three_unequal_holders_evenly_and_abandon_none() {
    for seed in 0..4 {
        let mut crowd = Crowd::new(seed, [450.0, 225.0, 125.0]);
        crowd.run_for(Duration::from_secs(40 * 60));
        crowd.forget_counts();

        crowd.run_for(Duration::from_secs(20 * 60));

        let loads = crowd.loads();
        let waits = crowd.holders.map(|holder| holder.mean_wait());
        println!("seed {seed}: loads {loads:.2?}, mean answer {waits:.0?}");
        assert!(loads.iter().all(|load| *load < 1.0), "{loads:?}");
        assert!(loads.iter().all(|load| *load > 0.2), "{loads:?}");
    }
}

#[test]
fn a_crashed_service_that_refuses_at_once_attracts_no_flows() {
    for seed in 0..4 {
        let mut crowd = Crowd::new(seed, [450.0, 450.0, 450.0]);
        crowd.run_for(Duration::from_secs(10 * 60));
        let before = crowd.share_of_draws(2);
        crowd.refusing = Some(2);
        crowd.run_for(Duration::from_secs(10 * 60));
        crowd.forget_counts();

        crowd.run_for(Duration::from_secs(20 * 60));

        let share = crowd.share_of_draws(2);
        println!("seed {seed}: share of the refusing one {share:.3}, before {before:.3}");
        assert!(before > 0.25, "{before}");
        assert!(share < before / 2.0, "{share}, before {before}");
    }
}

/// Clients that ask about once a second, each on a flow that ends after some minutes, and three
/// holders that serve one request after the other.
struct Crowd {
    now: Mono,
    clients: Vec<Client>,
    holders: [Holder; 3],
    /// The next request of each client.
    next: BinaryHeap<Reverse<(Mono, usize)>>,
    refusing: Option<usize>,
    random: fastrand::Rng,
    since: Mono,
}

struct Client {
    costs: Costs,
    rtts: [Duration; 3],
    /// Its flow's holder and end.
    flow: Option<(usize, Mono)>,
}

#[derive(Clone, Copy)]
struct Holder {
    per_second: f64,
    free_at: Mono,
    busy: Duration,
    requests: u32,
    waited: Duration,
    draws: u32,
}

impl Holder {
    fn mean_wait(&self) -> Duration {
        self.waited / self.requests.max(1)
    }
}

impl Crowd {
    fn new(seed: u64, speeds: [f64; 3]) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let clients = (0..600).map(|_| {
            let rtts = [(); 3].map(|()| millis(random.u64(1..8)));
            let mut costs = Costs::new();
            for (holder, rtt) in rtts.iter().enumerate() {
                costs.handle_rtt(START, holder_of(holder), *rtt);
            }
            Client {
                costs,
                rtts,
                flow: None,
            }
        });
        let clients: Vec<Client> = clients.collect();
        let next = (0..clients.len())
            .map(|client| Reverse((START + millis(random.u64(0..1_000)), client)));
        let next = next.collect();
        Self {
            now: START,
            clients,
            holders: speeds.map(|per_second| Holder {
                per_second,
                free_at: START,
                busy: Duration::ZERO,
                requests: 0,
                waited: Duration::ZERO,
                draws: 0,
            }),
            next,
            refusing: None,
            random,
            since: START,
        }
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(&Reverse((at, client))) = self.next.peek()
            && at < end
        {
            self.next.pop();
            self.now = at;
            let pause = self.ask(client);
            self.next.push(Reverse((at + pause, client)));
        }
        self.now = end;
    }

    /// Sends one request; returns when the client asks again.
    fn ask(&mut self, number: usize) -> Duration {
        let now = self.now;
        let holder = self.holder_for(number);
        let client = &mut self.clients[number];
        let thinks = exponential(&mut self.random, Duration::from_secs(1));
        if self.refusing == Some(holder) {
            client.costs.handle_refused(now, holder_of(holder));
            return thinks;
        }
        let serving = &mut self.holders[holder];
        let mean = Duration::from_secs_f64(1.0 / serving.per_second);
        let work = exponential(&mut self.random, mean);
        let arrival = now + client.rtts[holder] / 2;
        let done = serving.free_at.max(arrival) + work;
        serving.free_at = done;
        serving.busy += work;
        serving.requests += 1;
        let answer = done.since(arrival);
        serving.waited += answer;
        // Told when it comes, which matters little beside two minutes of averaging.
        client.costs.handle_answer(done, holder_of(holder), answer);
        answer + thinks
    }

    fn holder_for(&mut self, number: usize) -> usize {
        let client = &mut self.clients[number];
        if let Some((holder, end)) = client.flow
            && self.now < end
        {
            return holder;
        }
        let group = [0, 1, 2].map(holder_of);
        let mut costs = SmallVec::<[Cost; 8]>::new();
        client.costs.costs(self.now, &group, &mut costs);
        let drawn = choose(&costs, self.random.u64(..)).unwrap();
        self.holders[drawn].draws += 1;
        let lasts = exponential(&mut self.random, Duration::from_secs(3 * 60));
        client.flow = Some((drawn, self.now + lasts));
        drawn
    }

    fn forget_counts(&mut self) {
        self.since = self.now;
        for holder in &mut self.holders {
            holder.busy = Duration::ZERO;
            holder.requests = 0;
            holder.waited = Duration::ZERO;
            holder.draws = 0;
        }
    }

    fn loads(&self) -> [f64; 3] {
        let span = self.now.since(self.since).as_secs_f64();
        self.holders.map(|holder| holder.busy.as_secs_f64() / span)
    }

    fn share_of_draws(&self, holder: usize) -> f64 {
        let all: u32 = self.holders.iter().map(|holder| holder.draws).sum();
        f64::from(self.holders[holder].draws) / f64::from(all)
    }
}

/// Draws from `group` and compares with what SPEC section 4 says of these costs.
fn assert_shares(costs: &Costs, now: Mono, group: &[PeerIx], expected: &[Duration], seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut counts = vec![0_u32; group.len()];
    let mut read = SmallVec::<[Cost; 8]>::new();
    costs.costs(now, group, &mut read);
    for _ in 0..DRAWS {
        counts[choose(&read, random.u64(..)).unwrap()] += 1;
    }
    let shares = reference(expected);
    let terms = counts.iter().zip(&shares).map(|(count, share)| {
        let expected = share * f64::from(DRAWS);
        (f64::from(*count) - expected).powi(2) / expected
    });
    let statistic: f64 = terms.sum();
    let limit = chi_square_limit(group.len() - 1);
    assert!(
        statistic < limit,
        "chi-square {statistic:.1}, limit {limit:.1}: {counts:?} of shares {shares:?}"
    );
}

/// SPEC section 4: `w = 1/(cost + 1 ms)`, `p = 0.9 w/Σw + 0.1/n`.
fn reference(costs: &[Duration]) -> Vec<f64> {
    let weights: Vec<f64> = costs
        .iter()
        .map(|cost| 1.0 / (cost.as_secs_f64() * 1e3 + 1.0))
        .collect();
    let sum: f64 = weights.iter().sum();
    let count = costs.len() as f64;
    let shares = weights
        .iter()
        .map(|weight| 0.9 * weight / sum + 0.1 / count);
    shares.collect()
}

/// Returns what chi-square exceeds once in 30,000 times (z = 4, by Wilson and Hilferty).
fn chi_square_limit(degrees: usize) -> f64 {
    let degrees = degrees as f64;
    let spread = 2.0 / (9.0 * degrees);
    degrees * (1.0 - spread + 4.0 * spread.sqrt()).powi(3)
}

fn mean_of_logs(one: Duration, two: Duration) -> Duration {
    let log = |span: Duration| (1.0 + span.as_secs_f64() * 1e3).ln();
    Duration::from_secs_f64((f64::midpoint(log(one), log(two)).exp() - 1.0) / 1e3)
}

fn exponential(random: &mut fastrand::Rng, mean: Duration) -> Duration {
    mean.mul_f64(-(1.0 - random.f64()).ln())
}

fn holder_of(number: usize) -> PeerIx {
    PeerIx(u32::try_from(number).expect("three holders"))
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
