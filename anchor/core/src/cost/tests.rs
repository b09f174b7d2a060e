use std::time::Duration;

use proptest::prelude::*;

use super::*;

const A: PeerIx = PeerIx(1);
const B: PeerIx = PeerIx(2);
const C: PeerIx = PeerIx(3);

#[test]
fn of_the_first_three_round_trips_the_least_is_taken_and_later_ones_by_an_eighth() {
    let mut costs = Costs::new();
    let known = [100, 80, 300, 160].map(|sample| {
        costs.handle_rtt(at(0), A, ms(sample));
        costs.rtt(A).unwrap()
    });

    for (known, expected) in known.into_iter().zip([100, 80, 80, 90]) {
        near(known, ms(expected));
    }
}

#[test]
fn an_unknown_round_trip_is_the_median_but_at_least_50_ms() {
    let table: [(&[u64], u64); 6] = [
        (&[], 50),
        (&[10], 50),
        (&[80], 80),
        (&[10, 200], 105),
        (&[1, 2, 3], 50),
        (&[9, 70, 300], 70),
    ];
    for (known, expected) in table {
        let mut costs = Costs::new();
        let mut group = vec![PeerIx(99)];
        for (&millis, number) in known.iter().zip(0..) {
            costs.handle_rtt(at(0), PeerIx(number), ms(millis));
            group.push(PeerIx(number));
        }

        let read = read(&costs, at(1), &group);

        near(read[0].rtt, ms(expected));
        assert!(!read[0].rtt_measured, "{known:?}");
        assert!(read[1..].iter().all(|cost| cost.rtt_measured), "{known:?}");
    }
}

#[test]
fn a_measured_peer_outside_of_the_group_does_not_count() {
    let mut costs = Costs::new();
    costs.handle_rtt(at(0), B, ms(400));
    costs.handle_answer(at(0), B, ms(400));

    let read = read(&costs, at(0), &[A]);

    near(read[0].rtt, RTT_UNKNOWN);
    assert_eq!(read[0].answer, Duration::ZERO);
}

#[test]
fn nobody_measured_costs_no_answer_time() {
    let read = read(&Costs::new(), at(0), &[A, B, C]);

    assert!(
        read.iter()
            .all(|cost| cost.answer.is_zero() && !cost.answer_measured)
    );
    assert!(read.iter().all(|cost| cost.total() == RTT_UNKNOWN));
}

#[test]
fn an_unmeasured_holder_is_taken_for_the_median() {
    let mut costs = Costs::new();
    costs.handle_answer(at(0), A, ms(20));
    costs.handle_answer(at(0), B, ms(20));

    let read = read(&costs, at(0), &[A, B, C]);

    near(read[2].answer, ms(20));
    assert!(!read[2].answer_measured);
    assert!(read[0].answer_measured);
}

#[test]
fn a_sample_weighs_by_the_time_since_the_last() {
    let mut costs = Costs::new();
    costs.handle_answer(at(0), A, ms(10));
    costs.handle_answer(at(120_000), A, ms(1_000));

    // After one time constant, 1 - 1/e of the way in ln(1 + ms).
    let way = 1.0 - (-1.0_f64).exp();
    let log = 11.0_f64.ln() + way * (1_001.0_f64.ln() - 11.0_f64.ln());
    let expected = Duration::from_secs_f64(log.exp_m1() / 1e3);

    near(read(&costs, at(120_000), &[A])[0].answer, expected);
}

#[test]
fn the_first_answers_weigh_the_same() {
    let mut costs = Costs::new();
    for (second, millis) in (0..).zip([100, 5, 5, 5, 5]) {
        costs.handle_answer(at(1_000 * second), A, ms(millis));
    }

    let log = (101.0_f64.ln() + 4.0 * 6.0_f64.ln()) / 5.0;
    let expected = Duration::from_secs_f64(log.exp_m1() / 1e3);

    near(read(&costs, at(4_000), &[A])[0].answer, expected);
}

#[test]
fn more_than_one_sample_a_second_is_not_counted() {
    let mut costs = Costs::new();

    assert!(costs.handle_answer(at(0), A, ms(10)));
    assert!(!costs.handle_answer(at(999), A, ms(9_000)));
    assert!(
        costs.handle_answer(at(999), B, ms(10)),
        "the bound is for each holder"
    );
    near(read(&costs, at(999), &[A])[0].answer, ms(10));
    assert!(costs.handle_answer(at(1_000), A, ms(10)));
}

#[test]
fn a_sample_is_clipped_at_ten_seconds() {
    let mut costs = Costs::new();

    costs.handle_answer(at(0), A, Duration::MAX);
    costs.handle_rtt(at(0), A, Duration::MAX);

    near(read(&costs, at(0), &[A])[0].answer, Duration::from_secs(10));
    near(costs.rtt(A).unwrap(), Duration::from_secs(10));
}

#[test]
fn an_answer_time_slides_to_the_median_within_15_minutes() {
    let mut costs = Costs::new();
    costs.handle_answer(at(0), A, ms(4_000));
    let later = at(899_000);
    for peer in [B, C] {
        costs.handle_answer(later, peer, ms(10));
    }
    let group = [A, B, C];

    let half = read(&costs, at(450_000), &group)[0];
    let near_end = read(&costs, later, &group)[0];
    let end = read(&costs, at(900_000), &group)[0];

    assert!(half.answer < ms(4_000) && half.answer > ms(10), "{half:?}");
    assert!(
        near_end.answer_measured && near_end.answer < ms(11),
        "{near_end:?}"
    );
    assert!(!end.answer_measured);
    near(end.answer, ms(10));
}

#[test]
fn one_measured_holder_is_its_own_median_until_it_is_forgotten_by_all() {
    let mut costs = Costs::new();
    costs.handle_answer(at(0), A, ms(70));

    let aged = read(&costs, at(899_999), &[A, B]);
    let gone = read(&costs, at(900_000), &[A, B]);

    near(aged[0].answer, ms(70));
    near(aged[1].answer, ms(70));
    assert!(gone.iter().all(|cost| cost.answer.is_zero()));
}

#[test]
fn a_refused_connection_counts_as_a_second() {
    let mut costs = Costs::new();

    costs.handle_refused(at(0), A);

    near(read(&costs, at(0), &[A])[0].answer, Duration::from_secs(1));
}

#[test]
fn a_refused_connection_never_makes_a_holder_look_better() {
    let mut costs = Costs::new();
    costs.handle_answer(at(0), A, Duration::from_secs(8));

    costs.handle_refused(at(60_000), A);

    near(
        read(&costs, at(60_000), &[A])[0].answer,
        Duration::from_secs(8),
    );
}

#[test]
fn a_refusal_counts_even_right_after_an_answer() {
    let mut costs = Costs::new();
    costs.handle_answer(at(0), A, ms(1));

    costs.handle_refused(at(1), A);

    assert!(read(&costs, at(1), &[A])[0].answer > ms(1));
}

#[test]
fn a_holder_that_refuses_for_minutes_is_avoided() {
    let mut costs = Costs::new();
    costs.handle_answer(at(0), A, ms(5));

    for second in 1..=300 {
        costs.handle_refused(at(second * 1_000), A);
        costs.handle_refused(at(second * 1_000 + 1), A);
    }

    assert!(read(&costs, at(300_000), &[A])[0].answer > ms(500));
}

#[test]
fn a_forgotten_peer_is_unknown() {
    let mut costs = Costs::new();
    costs.handle_rtt(at(0), A, ms(3));
    costs.handle_answer(at(0), A, ms(3));

    costs.forget(A);

    let read = read(&costs, at(0), &[A]);
    assert_eq!(costs.rtt(A), None);
    assert!(!read[0].rtt_measured && !read[0].answer_measured);
}

#[test]
fn costs_come_in_the_order_of_the_group_and_replace_what_was_there() {
    let costs = Costs::new();
    let mut out = SmallVec::new();

    costs.costs(at(0), &[C, A], &mut out);
    costs.costs(at(0), &[B, C, A], &mut out);

    assert_eq!(
        out.iter().map(|cost| cost.peer).collect::<Vec<_>>(),
        [B, C, A]
    );
}

#[derive(Clone, Debug)]
enum Step {
    Rtt(u32, u64),
    Answer(u32, u64),
    Refused(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4_u32, 0..20_000_u64).prop_map(|(peer, millis)| Step::Rtt(peer, millis)),
        (0..4_u32, 0..20_000_u64).prop_map(|(peer, millis)| Step::Answer(peer, millis)),
        (0..4_u32).prop_map(Step::Refused),
        (0..400_000_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn costs_stay_within_what_was_measured(steps in prop::collection::vec(step(), 1..60)) {
        let mut costs = Costs::new();
        let mut now = 0;
        let (mut low, mut high) = (u64::MAX, 0);
        let group: Vec<_> = (0..5).map(PeerIx).collect();

        for step in steps {
            match step {
                Step::Rtt(peer, millis) => costs.handle_rtt(at(now), PeerIx(peer), ms(millis)),
                Step::Answer(peer, millis) => {
                    if costs.handle_answer(at(now), PeerIx(peer), ms(millis)) {
                        low = low.min(millis.min(10_000));
                        high = high.max(millis.min(10_000));
                    }
                }
                Step::Refused(peer) => {
                    costs.handle_refused(at(now), PeerIx(peer));
                    low = low.min(1_000);
                    high = high.max(1_000);
                }
                Step::Wait(millis) => now += millis,
            }

            let first = read(&costs, at(now), &group);
            for cost in &first {
                let answer = cost.answer.as_secs_f64() * 1e3;
                prop_assert!(cost.rtt <= SAMPLE_LIMIT);
                prop_assert!(answer <= high as f64 + 0.01);
                prop_assert!(cost.answer.is_zero() || answer >= low as f64 - 0.01);
            }
            prop_assert_eq!(first, read(&costs, at(now), &group), "reading changes nothing");
        }
    }
}

fn at(millis: u64) -> Mono {
    Mono::default() + ms(millis)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn read(costs: &Costs, now: Mono, group: &[PeerIx]) -> SmallVec<[Cost; 8]> {
    let mut out = SmallVec::new();
    costs.costs(now, group, &mut out);
    out
}

#[track_caller]
fn near(value: Duration, expected: Duration) {
    assert!(
        value.abs_diff(expected) < Duration::from_micros(2),
        "{value:?}, not {expected:?}"
    );
}
