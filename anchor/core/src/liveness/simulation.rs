//! The promises of SPEC section 5 on a network with delay, loss and cuts, in virtual time.

use std::time::Duration;

use proptest::prelude::*;

use super::count::DEADLINE;
use super::world::{World, millis};
use crate::ids::PeerIx;

#[test]
fn ten_percent_loss_raises_no_false_alarm_in_hours() {
    for (seed, gap_millis) in [(1, 40), (2, 700), (3, 2_300), (4, 60_000)] {
        let mut world = World::new(seed, 3);
        world.loss = 0.1;
        world.gap = millis(gap_millis);
        world.watch_all();

        world.run_for(Duration::from_secs(3_600));

        assert_eq!(world.failed, [], "a packet every {gap_millis} ms");
        assert!(world.answers > 1_000, "a packet every {gap_millis} ms");
    }
}

/// Twenty false alarms are allowed in 1,000 hours of the whole anchor.
#[test]
fn twenty_percent_loss_raises_no_false_alarm_in_hours() {
    for seed in 0..4 {
        let mut world = World::new(seed, 2);
        world.loss = 0.2;
        world.gap = millis(1_900);
        world.owd = millis(100);

        world.run_for(Duration::from_secs(2 * 3_600));

        assert_eq!(world.failed, []);
    }
}

#[test]
fn a_cut_in_either_direction_is_noticed_in_two_seconds() {
    for seed in 0..60 {
        let mut world = World::new(seed, 3);
        world.gap = millis(1 + seed * 3);
        world.owd = millis(seed % 7 * 10);
        world.watch_all();
        world.run_for(millis(4_000 + seed * 37));
        let cut = world.now.mono;
        match seed % 3 {
            0 => world.holder(PeerIx(1)).is_cut_there = true,
            1 => world.holder(PeerIx(1)).is_cut_back = true,
            _ => world.cut(1),
        }

        world.run_for(millis(3_000));

        let [failure] = world.failed[..] else {
            panic!("seed {seed}: {:?}", world.failed)
        };
        assert_eq!(failure.peer, PeerIx(1));
        assert!(failure.within_deadline(), "seed {seed}: {failure:?}");
        let after_cut = failure.at.since(cut);
        let in_flight = world.owd * 2 + millis(200);
        assert!(
            after_cut + in_flight >= DEADLINE,
            "seed {seed}: {after_cut:?}"
        );
        assert!(after_cut <= millis(2_250), "seed {seed}: {after_cut:?}");
    }
}

#[test]
fn a_request_within_two_hundred_milliseconds_before_the_cut_fails_the_holder_as_fast() {
    for wait in (0..=200).step_by(10) {
        let mut world = World::new(wait, 2);
        world.watch_all();
        world.run_for(millis(3_000));
        for _ in 0..3 {
            world.send(PeerIx(1));
            world.run_for(millis(50));
        }
        world.send(PeerIx(1));
        world.run_for(millis(wait));
        world.cut(1);
        let cut = world.now.mono;

        world.run_for(millis(9_000));

        let [failure] = world.failed[..] else {
            panic!("{wait} ms: {:?}", world.failed)
        };
        assert!(
            failure.at.since(cut) <= millis(2_300),
            "{wait} ms: {failure:?}"
        );
    }
}

#[test]
fn a_silent_connection_learns_of_a_cut_within_seven_and_a_quarter_seconds() {
    for wait in (0..10_000).step_by(170) {
        let mut world = World::new(wait, 2);
        world.watch_all();
        world.run_for(millis(10_000 + wait));
        world.cut(1);
        let cut = world.now.mono;

        world.run_for(millis(7_250));

        let [failure] = world.failed[..] else {
            panic!("{wait} ms: {:?}", world.failed)
        };
        assert!(failure.at.since(cut) >= millis(1_950), "{failure:?}");
    }
}

#[test]
fn one_second_of_total_loss_moves_nothing() {
    for seed in 0..200 {
        let mut world = World::new(seed, 2);
        world.gap = millis(1 + seed * 7);
        world.watch_all();
        world.run_for(millis(3_000 + seed * 13));

        world.loss = 1.0;
        world.run_for(millis(1_000));
        world.loss = 0.0;
        world.run_for(millis(10_000));

        assert_eq!(world.failed, [], "seed {seed}");
        assert_eq!(world.local_verdicts, 0, "seed {seed}");
    }
}

#[test]
fn a_local_fault_moves_nothing_and_a_holder_that_died_meanwhile_fails_after_it() {
    let mut world = World::new(5, 4);
    world.gap = millis(100);
    world.run_for(millis(5_000));

    world.loss = 1.0;
    world.run_for(millis(30_000));
    assert_eq!(world.failed, []);
    assert!(world.local_verdicts > 0);
    world.cut(2);
    world.loss = 0.0;
    let healed = world.now.mono;
    world.run_for(millis(10_000));

    let [failure] = world.failed[..] else {
        panic!("{:?}", world.failed)
    };
    assert_eq!(failure.peer, PeerIx(2));
    assert!(failure.at.since(healed) <= millis(3_200), "{failure:?}");
}

#[test]
fn the_only_holder_fails_when_other_peers_answer_and_comes_back() {
    let mut world = World::new(6, 3);
    world.gap = millis(100);
    world.is_group_of_one = true;
    world.run_for(millis(5_000));
    world.cut(1);
    world.run_for(millis(20_000));
    assert!(world.client.is_failed(PeerIx(1)));

    world.heal(1);
    world.run_for(millis(4_000));

    assert!(!world.client.is_failed(PeerIx(1)));
    assert_eq!(world.failed.len(), 1);
}

#[test]
fn a_restart_within_the_deadline_with_new_keys_moves_nothing() {
    let mut world = World::new(7, 2);
    world.gap = millis(30);
    world.run_for(millis(5_000));

    world.cut(1);
    world.run_for(millis(1_700));
    world.heal(1);
    world.renew(PeerIx(1));
    world.run_for(millis(20_000));

    assert_eq!(world.failed, []);
    assert!(!world.client.is_suspect(PeerIx(1)));
}

#[test]
fn one_way_datagrams_are_never_judged_dead() {
    let mut world = World::new(8, 2);
    world.gap = millis(3);
    world.loss = 0.1;

    world.run_for(Duration::from_secs(120));

    assert_eq!(world.failed, []);
    assert!(world.keepalives <= 2 * 120 * 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Reference: a queue of every packet, and the rule of SPEC section 5 word by word.
    #[test]
    fn no_schedule_of_cuts_fails_a_holder_too_early_or_too_late(
        seed: u64,
        gap in 1_u64..900,
        owd in 0_u64..90,
        cuts in prop::collection::vec((1_u32..4, 0_u8..4, 50_u64..3_500), 1..30),
    ) {
        let mut world = World::new(seed, 3);
        world.gap = millis(gap);
        world.owd = millis(owd);
        world.loss = 0.02;
        world.watch_all();
        for (holder, kind, span) in cuts {
            let holder = &mut world.holders[holder as usize - 1];
            holder.is_cut_there = kind & 1 != 0;
            holder.is_cut_back = kind & 2 != 0;
            world.run_for(millis(span));
            for failure in &world.failed {
                prop_assert!(failure.at.since(failure.oldest) >= DEADLINE, "{:?}", failure);
            }
            prop_assert!(world.oldest_unjudged() <= millis(2_051), "{:?}", world.oldest_unjudged());
        }
    }
}

/// A share of what SPEC section 5 promises for 1,000 hours; `make soak` runs those.
#[test]
fn hours_of_loss_keep_the_promise() {
    let (hours, allowed_at_a_fifth) = if cfg!(feature = "soak") {
        (1_000, 20)
    } else {
        (5, 0)
    };
    for (loss, allowed) in [(0.1, 0), (0.2, allowed_at_a_fifth)] {
        for (gap_millis, owd_millis) in [(200, 20), (1_000, 20), (1_900, 20), (2_300, 150)] {
            let mut world = World::new(gap_millis, 2);
            world.loss = loss;
            world.gap = millis(gap_millis);
            world.owd = millis(owd_millis);

            world.run_for(Duration::from_secs(3_600 * hours));

            println!(
                "loss {loss} gap {gap_millis} ms: {} false alarms",
                world.failed.len()
            );
            assert!(world.failed.len() <= allowed);
        }
    }
}
