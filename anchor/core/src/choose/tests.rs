use crate::reason::Reason;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ids::PeerIx;

#[test]
fn shares_follow_the_documented_example() {
    let shares = shares(&costs_of(&[6, 25, 105]));

    let percent: Vec<_> = shares
        .iter()
        .map(|share| format!("{:.1}", share * 100.0))
        .collect();
    assert_eq!(percent, ["70.7", "21.5", "7.8"]);
}

#[test]
fn equal_costs_have_equal_shares() {
    for count in 1..20 {
        for share in shares(&costs_of(&vec![40; count])) {
            assert!(
                (share - 1.0 / count as f64).abs() < 1e-12,
                "{count} holders: {share}"
            );
        }
    }
}

#[test]
fn both_parts_of_a_cost_count_alike() {
    let mut costs = costs_of(&[30, 30]);
    costs[0].rtt = Duration::from_millis(10);
    costs[0].answer = Duration::from_millis(20);

    let shares = shares(&costs);

    assert!((shares[0] - shares[1]).abs() < 1e-12);
}

#[test]
fn nobody_is_chosen_from_nobody() {
    assert_eq!(choose(&[], 0), None);
    assert_eq!(choose(&[], u64::MAX), None);
}

#[test]
fn the_ends_of_the_random_range_choose_the_ends_of_the_candidates() {
    let costs = costs_of(&[6, 25, 105]);

    assert_eq!(choose(&costs, 0), Some(0));
    assert_eq!(choose(&costs, u64::MAX), Some(2));
}

#[test]
fn many_draws_agree_with_the_shares() {
    let costs = costs_of(&[6, 25, 105, 9_000]);
    let mut random = fastrand::Rng::with_seed(7);
    let mut counts = [0_u32; 4];

    for _ in 0..200_000 {
        counts[choose(&costs, random.u64(..)).unwrap()] += 1;
    }

    for (count, share) in counts.into_iter().zip(shares(&costs)) {
        let drawn = f64::from(count) / 200_000.0;
        assert!(
            (drawn - share).abs() < 0.005,
            "drawn {drawn}, share {share}"
        );
    }
}

#[test]
fn a_draw_among_one_is_told_as_single_unless_the_flow_was_moved() {
    assert_eq!(Reason::New.among(1), Reason::Single);
    assert_eq!(Reason::Idle.among(1), Reason::Single);
    assert_eq!(Reason::Left.among(1), Reason::Left);
    assert_eq!(Reason::Failed.among(1), Reason::Failed);
    assert_eq!(Reason::New.among(2), Reason::New);
}

#[test]
fn reasons_have_the_documented_words() {
    let words = Reason::ALL.map(|reason| reason.to_string());

    assert_eq!(words, ["new", "idle", "left", "failed", "taint", "single"]);
}

proptest! {
    #[test]
    fn shares_add_up_and_nobody_is_left_out(
        millis in prop::collection::vec(0_u64..20_000, 1..40)
    ) {
        let shares = shares(&costs_of(&millis));

        let least = (1.0 - BY_COST) / millis.len() as f64;
        prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        prop_assert!(shares.iter().all(|&share| share >= least - 1e-12));
    }

    #[test]
    fn a_cheaper_holder_never_has_the_smaller_share(
        millis in prop::collection::vec(0_u64..20_000, 2..10)
    ) {
        let shares = shares(&costs_of(&millis));

        for (first, first_share) in millis.iter().zip(&shares) {
            for (second, second_share) in millis.iter().zip(&shares) {
                prop_assert!(first < second || first_share <= second_share);
            }
        }
    }

    #[test]
    fn a_draw_always_finds_a_candidate(
        millis in prop::collection::vec(0_u64..20_000, 1..40), random: u64
    ) {
        let chosen = choose(&costs_of(&millis), random);

        prop_assert!(chosen.is_some_and(|place| place < millis.len()));
    }
}

fn costs_of(millis: &[u64]) -> Vec<Cost> {
    millis
        .iter()
        .zip(0..)
        .map(|(&millis, number)| Cost {
            peer: PeerIx(number),
            rtt: Duration::from_millis(millis),
            rtt_measured: true,
            answer: Duration::ZERO,
            answer_measured: false,
        })
        .collect()
}
