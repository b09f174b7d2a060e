use std::time::Duration;

use proptest::prelude::*;

use super::path::{AGAIN_AFTER, CONFIRM_EVERY, RAISE_AFTER};
use super::simulation::{PEER, Simulation};
use super::*;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// With a round trip under 100 ms; the module's promise.
const NOTICED: Duration = Duration::from_millis(1000);

#[test]
fn an_ethernet_path_is_found_within_one_round_trip() {
    for underlay in [Underlay::Ipv4, Underlay::Ipv6] {
        let mut path = Simulation::new(1, 1420, 1420);
        path.start(underlay);
        assert_eq!(path.limit(), BASE_BYTES);

        let took = path.run_until(SECOND, |path| path.limit() == 1420);

        assert_eq!(took, path.rtt);
        assert_eq!(
            path.mtu
                .poll_timeout()
                .and_then(|_| path.mtu.peers[&PEER].due()),
            None
        );
    }
}

#[test]
fn usual_paths_are_found_exactly_and_others_within_a_grain() {
    // MTU of the path, underlay, the limit found.
    let table = [
        (1280, Underlay::Ipv6, 1200..=1200),
        (1280, Underlay::Ipv4, 1220..=1220),
        (1300, Underlay::Ipv6, 1213..=1220),
        (1300, Underlay::Ipv4, 1233..=1240),
        (1420, Underlay::Ipv6, 1340..=1340),
        (1492, Underlay::Ipv6, 1412..=1412),
        (1492, Underlay::Ipv4, 1420..=1420),
        (1500, Underlay::Ipv6, 1420..=1420),
    ];
    for (mtu, underlay, expected) in table {
        let passes = mtu - usize::from(underlay.overhead_bytes());
        let mut path = Simulation::new(2, 1420, passes);
        path.start(underlay);

        path.run(10 * SECOND);

        assert!(
            expected.contains(&path.limit()),
            "{mtu} {underlay:?}: {}",
            path.limit()
        );
    }
}

#[test]
fn jumbo_paths_are_used_and_what_the_local_interface_refuses_is_not_waited_for() {
    let mut jumbo = Simulation::new(3, 8920, 8920);
    jumbo.start(Underlay::Ipv6);
    let took = jumbo.run_until(SECOND, |path| path.limit() == 8920);
    assert_eq!(took, jumbo.rtt);

    let mut ethernet = Simulation::new(3, 8920, 8920);
    ethernet.local = 1420;
    ethernet.start(Underlay::Ipv6);
    let took = ethernet.run_until(SECOND, |path| path.limit() == 1420);
    assert_eq!(took, ethernet.rtt);
    ethernet.run(10 * SECOND);
    assert!((1420..=1440).contains(&ethernet.limit()));

    let mut odd = Simulation::new(3, 8920, 4000);
    odd.start(Underlay::Ipv6);
    odd.run(30 * SECOND);
    assert!(
        (4000 - GRAIN_BYTES..=4000).contains(&odd.limit()),
        "{}",
        odd.limit()
    );
}

#[test]
fn a_path_that_shrinks_under_traffic_is_noticed_within_a_second() {
    for (seed, to) in [(4, 1220), (5, 1200), (6, 1400), (7, 1419)] {
        let mut path = Simulation::new(seed, 1420, 1420);
        path.traffic = 1420;
        path.start(Underlay::Ipv6);
        path.run(7 * SECOND + 130 * MS * seed as u32);

        path.passes = to;
        let took = path.run_until(5 * SECOND, |path| path.limit() <= to);

        assert!(took <= NOTICED, "{took:?}");
        path.run(10 * SECOND);
        assert!((to.saturating_sub(GRAIN_BYTES)..=to).contains(&path.limit()));
    }
}

#[test]
fn a_path_that_shrinks_is_noticed_soon_though_round_trips_varied() {
    let mut path = Simulation::new(18, 1420, 1420);
    path.traffic = 1420;
    path.start(Underlay::Ipv6);
    for rtt in [5, 900, 5, 700, 20] {
        path.rtt = rtt * MS;
        path.run(3 * SECOND);
    }

    path.passes = 1220;
    let took = path.run_until(5 * SECOND, |path| path.limit() <= 1220);

    assert!(took <= NOTICED, "{took:?}");
}

#[test]
fn a_path_that_shrinks_is_noticed_though_the_sender_falls_silent() {
    for seed in 0..20 {
        let mut path = Simulation::new(seed, 1420, 1420);
        path.traffic = 1420;
        path.start(Underlay::Ipv6);
        path.run(3 * SECOND + 20 * MS * seed as u32);

        // What is under way is lost, and with it what would have let the sender go on.
        path.passes = 1220;
        path.run(20 * MS);
        path.traffic = 0;
        let took = path.run_until(5 * SECOND, |path| path.limit() <= 1220);

        assert!(took <= 600 * MS, "{seed}: {took:?}");
    }
}

#[test]
fn a_path_that_grows_is_found_by_the_next_raise() {
    let mut path = Simulation::new(8, 1420, 1250);
    path.traffic = 1420;
    path.start(Underlay::Ipv6);
    path.run(20 * SECOND);
    assert!(path.limit() <= 1250);

    path.passes = 1420;
    let took = path.run_until(2 * RAISE_AFTER, |path| path.limit() == 1420);

    assert!(took <= RAISE_AFTER + SECOND && took > RAISE_AFTER - 30 * SECOND);
}

#[test]
fn a_path_without_large_packets_sends_no_probe_and_has_no_timer() {
    let mut path = Simulation::new(9, 1420, 1250);
    path.start(Underlay::Ipv6);
    path.run(20 * SECOND);
    let before = path.sent.len();

    path.traffic = 400;
    path.run(3 * RAISE_AFTER);

    assert_eq!(path.sent.len(), before);
    assert_eq!(path.mtu.peers[&PEER].due(), None);
}

#[test]
fn traffic_at_the_limit_costs_five_probes_a_second() {
    let mut path = Simulation::new(10, 1420, 1420);
    path.traffic = 1420;
    path.start(Underlay::Ipv6);
    path.run(SECOND);
    let before = path.sent.len();

    path.run(60 * SECOND);

    assert!(
        path.sent.len() - before <= 300,
        "{}",
        path.sent.len() - before
    );
}

#[test]
fn a_path_that_answers_nothing_keeps_its_limit() {
    let mut path = Simulation::new(11, 1420, 1420);
    path.traffic = 1420;
    path.start(Underlay::Ipv6);
    path.run(3 * SECOND);

    path.passes = 0;
    path.run(20 * SECOND);
    assert_eq!(path.limit(), 1420);

    path.passes = 1420;
    path.run(5 * SECOND);
    assert_eq!(path.limit(), 1420);
}

#[test]
fn a_search_that_nobody_answered_is_repeated_soon() {
    let mut path = Simulation::new(17, 1420, 0);
    path.traffic = 1420;
    path.start(Underlay::Ipv6);
    path.run(4 * SECOND);

    path.passes = 1420;
    let took = path.run_until(RAISE_AFTER, |path| path.limit() == 1420);

    assert!(took <= AGAIN_AFTER + SECOND, "{took:?}");
}

#[test]
fn a_refusal_of_the_local_interface_lowers_the_limit_at_once() {
    let mut path = Simulation::new(12, 1420, 1420);
    path.start(Underlay::Ipv6);
    path.run(SECOND);

    path.local = 1300;
    path.passes = 1300;
    path.mtu.handle_refused(path.now, PEER, 1420);
    assert_eq!(path.limit(), BASE_BYTES);
    path.carry();
    let took = path.run_until(10 * SECOND, |path| path.limit() == 1300);

    assert_eq!(took, path.rtt);
}

#[test]
fn a_suspicion_confirms_the_limit_without_traffic() {
    let mut path = Simulation::new(13, 1420, 1420);
    path.start(Underlay::Ipv6);
    path.run(SECOND);

    path.passes = 1300;
    path.mtu.handle_suspect(path.now, PEER);
    path.carry();
    let took = path.run_until(5 * SECOND, |path| path.limit() <= 1300);

    assert!(took <= NOTICED - CONFIRM_EVERY, "{took:?}");
}

#[test]
fn a_new_path_begins_at_the_base_and_forgets_the_old_ones_probes() {
    let mut path = Simulation::new(14, 1420, 1420);
    path.start(Underlay::Ipv4);
    let old = path.sent.clone();

    path.start(Underlay::Ipv6);

    for probe in old {
        assert!(!path.mtu.handle_echo(path.now, PEER, probe.id));
    }
    assert_eq!(path.limit(), BASE_BYTES);
}

#[test]
fn an_interface_that_grows_lets_paths_grow() {
    let mut path = Simulation::new(15, 1420, 8920);
    path.traffic = 8920;
    path.start(Underlay::Ipv6);
    path.run(SECOND);

    path.mtu.set_ceiling(path.now, 8920);
    path.run(SECOND);
    assert_eq!(path.limit(), 8920);

    path.mtu.set_ceiling(path.now, 1420);
    assert_eq!(path.limit(), 1420);
}

#[test]
fn peers_do_not_share_ids_or_limits() {
    let mut mtu = Mtu::new(16, 1420);
    let now = Mono::from_nanos(5);
    mtu.start(now, PeerIx(1), Underlay::Ipv6, None);
    mtu.start(now, PeerIx(2), Underlay::Ipv6, None);
    let probes: Vec<_> = std::iter::from_fn(|| mtu.poll_probe()).collect();
    let mut ids: Vec<_> = probes.iter().map(|probe| probe.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), probes.len());

    let largest = probes
        .iter()
        .filter(|probe| probe.peer == PeerIx(1))
        .max_by_key(|probe| probe.bytes)
        .unwrap();
    assert!(!mtu.handle_echo(now, PeerIx(2), largest.id));
    assert!(mtu.handle_echo(now, PeerIx(1), largest.id));

    assert_eq!(
        (mtu.limit_bytes(PeerIx(1)), mtu.limit_bytes(PeerIx(2))),
        (1420, BASE_BYTES)
    );
    mtu.remove_peer(PeerIx(1));
    assert_eq!(mtu.limit_bytes(PeerIx(1)), BASE_BYTES);
}

#[test]
fn a_peer_takes_less_memory_than_stated() {
    assert!(size_of::<PathMtu>() <= 400, "{}", size_of::<PathMtu>());
}

proptest! {
    #[test]
    fn any_path_is_found_within_a_grain(
        seed: u64,
        ceiling in 1280_usize..9200,
        passes in BASE_BYTES..9200,
        rtt in 1_u32..400,
    ) {
        let mut path = Simulation::new(seed, ceiling, passes);
        path.rtt = rtt * MS;
        path.start(Underlay::Ipv6);

        path.run(60 * SECOND);

        let best = passes.min(ceiling.min(MAX_BYTES));
        prop_assert!(path.limit() <= best && path.limit() + GRAIN_BYTES > best);
    }

    #[test]
    fn a_lossy_path_is_found_and_never_exceeded(
        seed: u64,
        passes in BASE_BYTES..1500,
        rtt in 1_u32..80,
    ) {
        let mut path = Simulation::new(seed, 1420, passes);
        path.rtt = rtt * MS;
        path.loss = 10;
        path.traffic = 1420;
        path.start(Underlay::Ipv6);
        let best = passes.min(1420);

        for _ in 0..200 {
            path.run(SECOND);
            prop_assert!(path.limit() <= best);
        }
        let took = path.run_until(5 * RAISE_AFTER, |path| path.limit() + GRAIN_BYTES > best);

        prop_assert!(took < 5 * RAISE_AFTER);
    }

    #[test]
    fn a_path_that_changes_is_followed(
        seed: u64,
        steps in prop::collection::vec((BASE_BYTES..1500, 1_u32..30), 1..8),
        rtt in 1_u32..80,
        loss in prop::sample::select(vec![0_u32, 10]),
    ) {
        let mut path = Simulation::new(seed, 1420, 1500);
        path.rtt = rtt * MS;
        path.loss = loss;
        path.traffic = 1420;
        path.start(Underlay::Ipv6);
        // At 10 % loss a confirmation whose small probes were all lost is repeated.
        let noticed = NOTICED.max(600 * MS + path.rtt * 4) + 20 * MS;
        let tries = if loss == 0 { 1 } else { 16 };

        for (passes, seconds) in steps {
            path.run(seconds * SECOND);
            path.passes = passes;
            let took = path.run_until(noticed * tries, |path| path.limit() <= passes);
            prop_assert!(path.limit() <= passes, "after {took:?}");
        }
    }
}
