use super::*;
use crate::relay::LEASE;

const FAR: PeerIx = PeerIx(9);

#[test]
fn the_best_two_relays_are_asked_once_it_is_time() {
    let mut seeker = Seeker::default();
    seeker.seek(at(300), FAR);

    let early = poll(&mut seeker, 299, &[1, 2, 3]);
    let due = poll(&mut seeker, 300, &[1, 2, 3]);
    let again = poll(&mut seeker, 1_300, &[1, 2, 3]);

    assert!(early.is_empty());
    assert_eq!(relays(&due), [1, 2]);
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn a_relay_that_refuses_or_is_silent_gives_way_to_the_next() {
    let mut seeker = Seeker::default();
    seeker.seek(at(0), FAR);
    poll(&mut seeker, 0, &[1, 2, 3, 4]);

    seeker.handle_refused(at(10), way(1), RelayRefusal::Off);
    let after_refusal = poll(&mut seeker, 10, &[1, 2, 3, 4]);
    let after_silence = poll(&mut seeker, 2_100, &[1, 2, 3, 4]);

    assert_eq!(relays(&after_refusal), [3]);
    assert_eq!(relays(&after_silence), [4]);
    // The second had to ask the far end first.
    assert!(seeker.handle_grant(at(2_500), way(2), 2, LEASE, millis(3)));
}

#[test]
fn a_far_end_is_no_relay_towards_itself() {
    let mut seeker = Seeker::default();
    seeker.seek(at(0), FAR);

    assert!(poll(&mut seeker, 0, &[FAR.0]).is_empty());
}

#[test]
fn leases_are_listed_by_cost_and_only_as_asked_for() {
    let mut seeker = Seeker::default();
    seeker.seek(at(0), FAR);
    let asks = poll(&mut seeker, 0, &[1, 2]);

    let wrong = seeker.handle_grant(at(5), way(1), asks[0].index + 77, LEASE, millis(1));
    let slow = seeker.handle_grant(at(5), way(1), asks[0].index, LEASE, millis(40));
    let quick = seeker.handle_grant(at(6), way(2), asks[1].index, LEASE, millis(30));
    let stray = seeker.handle_grant(at(6), way(5), 1, LEASE, millis(1));

    assert_eq!((wrong, slow, quick, stray), (false, true, true, false));
    assert_eq!(seeker.ways(FAR), [way(2), way(1)]);
}

#[test]
fn what_a_probe_took_outweighs_what_a_relay_says_and_stays_known_when_the_lease_is_over() {
    let mut seeker = Seeker::default();
    seeker.seek(at(0), FAR);
    let asks = poll(&mut seeker, 0, &[1, 2]);
    seeker.handle_grant(at(5), way(1), asks[0].index, LEASE, millis(3));
    seeker.handle_grant(at(5), way(2), asks[1].index, LEASE, millis(30));

    seeker.handle_measured(at(9), way(1), millis(80));
    seeker.handle_measured(at(9), way(2), millis(35));
    seeker.handle_measured(at(9), way(3), millis(1));
    let held = seeker.ways(FAR);
    seeker.handle_refused(at(10), way(1), RelayRefusal::NotReached);
    seeker.handle_refused(at(10), way(2), RelayRefusal::NotReached);
    // Each is 1 ms away; the third and fourth have no lease, so nothing is known of them.
    let again = poll(&mut seeker, 10_011, &[1, 2, 3, 4]);
    let last = poll(&mut seeker, 13_011, &[1, 2, 3, 4]);

    assert_eq!(held, [way(2), way(1)]);
    assert_eq!(relays(&again), [3, 4]);
    assert_eq!(relays(&last), [2, 1]);
}

#[test]
fn what_was_measured_is_forgotten_with_the_relay_and_ten_minutes_after_the_lease() {
    let mut gone = Seeker::default();
    hold(&mut gone);
    gone.handle_measured(at(9), way(1), millis(80));
    let mut over = Seeker::default();
    hold(&mut over);
    over.handle_measured(at(9), way(1), millis(80));

    gone.handle_relay_gone(at(10), PeerIx(1));
    over.handle_refused(at(10), way(1), RelayRefusal::NotReached);
    poll(&mut over, 600_000, &[]);
    let before = over.measured.len();
    poll(&mut over, 600_010, &[]);

    assert!(gone.measured.is_empty());
    assert_eq!((before, over.measured.len()), (1, 0));
}

#[test]
fn a_lease_is_asked_for_again_with_its_index_while_it_is_sought_and_ends_otherwise() {
    let mut seeker = Seeker::default();
    let asks = hold(&mut seeker);

    let renewal = poll(&mut seeker, 75_001, &[1]);
    seeker.handle_grant(at(75_010), way(1), asks[0].index, LEASE, millis(3));
    seeker.stop(FAR);
    let none = poll(&mut seeker, 150_000, &[1]);
    let held = seeker.ways(FAR);
    poll(&mut seeker, 195_011, &[1]);

    assert_eq!(renewal, asks);
    assert!(none.is_empty());
    assert_eq!(held, [way(1)]);
    assert!(seeker.ways(FAR).is_empty());
}

#[test]
fn who_is_wanted_asks_with_one_index_however_often_it_is_told() {
    let mut seeker = Seeker::default();
    let mut next = 0;
    let mut fresh = || {
        next += 1;
        next
    };

    let first = seeker.handle_wanted(at(0), way(1), &mut fresh);
    let second = seeker.handle_wanted(at(10), way(1), &mut fresh);

    assert_eq!(first, second);
    assert!(first.is_some());
}

#[test]
fn a_relay_that_wants_us_for_all_the_world_finds_a_limit() {
    let mut seeker = Seeker::default();

    let taken = (0..10_000).filter(|far| {
        let way = Relayed {
            relay: PeerIx(1),
            far: PeerIx(10 + far),
        };
        seeker.handle_wanted(at(0), way, || *far).is_some()
    });

    assert_eq!(taken.count(), MAX_HELD);
}

#[test]
fn with_the_relay_its_leases_go_and_others_are_asked_at_once() {
    let mut seeker = Seeker::default();
    hold(&mut seeker);

    seeker.handle_relay_gone(at(500), PeerIx(1));

    assert!(seeker.ways(FAR).is_empty());
    assert_eq!(seeker.poll_timeout(), Some(at(500)));
    assert_eq!(relays(&poll(&mut seeker, 500, &[2])), [2]);
}

fn hold(seeker: &mut Seeker) -> Vec<Want> {
    seeker.seek(at(0), FAR);
    let asks = poll(seeker, 0, &[1]);
    assert!(seeker.handle_grant(at(5), way(1), asks[0].index, LEASE, millis(3)));
    asks
}

fn poll(seeker: &mut Seeker, now: u64, candidates: &[u32]) -> Vec<Want> {
    let candidates: Vec<Candidate> = candidates
        .iter()
        .map(|relay| Candidate {
            relay: PeerIx(*relay),
            rtt: millis(1),
        })
        .collect();
    let mut next = u32::try_from(now).unwrap();
    seeker.poll_asks(at(now), &candidates, || {
        next += 1;
        next
    })
}

fn relays(asks: &[Want]) -> Vec<u32> {
    asks.iter().map(|ask| ask.way.relay.0).collect()
}

fn way(relay: u32) -> Relayed {
    Relayed {
        relay: PeerIx(relay),
        far: FAR,
    }
}

fn at(now: u64) -> Mono {
    Mono::default() + millis(now)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
