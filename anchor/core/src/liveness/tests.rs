//! The detector through its public edge, one peer and one rule at a time.

use super::rig::*;
use super::*;

#[test]
fn probes_follow_the_schedule_to_the_deadline() {
    let mut bench = Bench::new();
    bench.send(PEER, 1);

    let log = bench.run_for(2_500);

    let probes = [300, 600, 900, 1100, 1300, 1450, 1600, 1700, 1800, 1900];
    assert_eq!(probe_times(&log), probes);
    let late_copies = log
        .iter()
        .filter(|(_, event)| is_on_all_paths(event))
        .count();
    assert_eq!(late_copies, 16, "from 900 ms on over all paths, and twice");
    assert!(
        log.contains(&(600, Event::Suspect { peer: PEER })),
        "{log:?}"
    );
    let deadline = Event::Deadline {
        peer: PEER,
        since: at(0),
        asked: at(600),
    };
    assert_eq!(log.last(), Some(&(2_000, deadline)));
    assert!(bench.liveness.is_suspect(PEER));
    assert!(
        !bench.liveness.is_failed(PEER),
        "that is for the plane to say"
    );
}

#[test]
fn a_round_trip_above_half_a_second_stretches_the_schedule() {
    let table = [
        (0, 2_000),
        (100, 2_000),
        (500, 2_000),
        (600, 2_400),
        (1_000, 4_000),
        (2_500, 10_000),
    ];
    for (rtt, deadline) in table {
        let mut bench = Bench::new();
        bench.liveness.set_rtt(PEER, millis(rtt));
        bench.send(PEER, 1);

        let log = bench.run_for(12_000);

        assert_eq!(deadlines(&log), [deadline], "{rtt} ms");
        assert_eq!(
            probe_times(&log)[..2],
            [deadline * 3 / 20, deadline * 3 / 10],
            "{rtt} ms"
        );
    }
}

#[test]
fn a_proof_of_part_starts_the_count_from_the_rest() {
    let mut bench = Bench::new();
    bench.send(PEER, 1);
    bench.run_for(100);
    bench.send(PEER, 2);
    bench.run_for(150);

    bench.prove(PEER, 1);

    assert_eq!(deadlines(&bench.run_for(3_000)), [2_100]);
}

#[test]
fn an_echo_proves_what_was_sent_before_its_probe_and_no_more() {
    let mut bench = Bench::new();
    bench.send(PEER, 1);
    let log = bench.run_for(300);
    bench.run_for(20);
    bench.send(PEER, 2);
    bench.run_for(20);

    let rtt = bench
        .liveness
        .handle_echo(bench.mono(), PEER, probe_ids(&log)[0]);

    assert_eq!(rtt, Some(millis(40)));
    assert_eq!(deadlines(&bench.run_for(3_000)), [2_320]);
}

#[test]
fn what_is_heard_otherwise_proves_nothing_about_the_way_there() {
    let mut bench = Bench::new();
    bench.send(PEER, 2);
    for _ in 0..19 {
        assert_eq!(deadlines(&bench.run_for(100)), []);
        bench.liveness.handle_heard(bench.mono(), PEER);
        bench.liveness.handle_data_received(bench.mono(), PEER);
        bench.prove(PEER, 1);
    }

    assert_eq!(deadlines(&bench.run_for(200)), [2_000]);
    assert_eq!(bench.liveness.last_heard(PEER), Some(at(1_900)));
    assert!(!bench.liveness.answered_since(PEER, at(0)));
}

#[test]
fn a_timer_more_than_half_a_second_late_starts_the_count_anew() {
    for (lateness, deadline) in [(500, 2_000), (501, 2_801)] {
        let mut bench = Bench::new();
        bench.send(PEER, 1);
        bench.skip(300 + lateness);

        let log = bench.run_for(4_000);

        assert_eq!(deadlines(&log), [deadline], "{lateness} ms late");
    }
}

#[test]
fn a_suspend_starts_every_count_anew() {
    let mut bench = Bench::new();
    bench.send(PEER, 1);
    bench.send(OTHER, 1);
    bench.run_for(1_900);

    bench.now.boot += millis(60_000);

    assert_eq!(deadlines(&bench.run_for(90)), []);
    assert_eq!(deadlines(&bench.run_for(4_000)), [3_900, 3_900]);
}

#[test]
fn after_a_local_fault_counts_start_anew_when_anybody_is_heard() {
    let mut bench = Bench::new();
    bench.send(PEER, 1);
    assert_eq!(deadlines(&bench.run_for(2_000)), [2_000]);

    bench.liveness.restart(bench.mono(), PEER);
    let during = bench.run_for(60_000);
    bench.liveness.handle_heard(bench.mono(), OTHER);
    let after = bench.run_for(3_000);

    assert_eq!(deadlines(&during), []);
    assert_eq!(probe_times(&during).len(), 60, "probing goes on at 1/s");
    assert_eq!(deadlines(&after), [64_000]);
    let anew = Event::Deadline {
        peer: PEER,
        since: at(62_000),
        asked: at(62_600),
    };
    assert!(
        after.contains(&(64_000, anew)),
        "probes and question come as in any count: {after:?}"
    );
}

#[test]
fn a_silent_peer_is_probed_every_five_seconds_only_while_watched() {
    let mut bench = Bench::new();
    bench.answer = true;
    bench.liveness.set_watched(bench.mono(), PEER, true);

    let watched = bench.run_for(20_500);
    bench.liveness.set_watched(bench.mono(), PEER, false);
    let unwatched = bench.run_for(60_000);

    assert_eq!(probe_times(&watched), [5_000, 10_000, 15_000, 20_000]);
    assert_eq!(unwatched, []);
}

#[test]
fn an_unanswered_watch_probe_leads_to_the_deadline() {
    let mut bench = Bench::new();
    bench.liveness.set_watched(bench.mono(), PEER, true);

    let log = bench.run_for(8_000);

    assert_eq!(deadlines(&log), [7_000]);
}

#[test]
fn a_request_proved_early_is_confirmed_two_hundred_milliseconds_after_it() {
    let mut bench = Bench::new();
    bench.liveness.set_watched(bench.mono(), PEER, true);
    bench.send(PEER, 1);
    bench.run_for(30);
    bench.prove(PEER, 1);

    let log = bench.run_for(3_000);

    assert_eq!(probe_times(&log)[0], 200);
    assert_eq!(deadlines(&log), [2_200]);
}

#[test]
fn an_idle_peer_has_no_timer() {
    let mut bench = Bench::new();
    bench.send(PEER, 1);
    bench.run_for(200);
    bench.prove(PEER, 1);

    assert_eq!(bench.run_for(3_600_000), []);
    assert_eq!(bench.liveness.poll_timeout(), None);
}

#[test]
fn data_received_is_answered_by_five_keepalives_a_second_at_most() {
    let mut bench = Bench::new();
    let mut keepalives = Vec::new();
    for _ in 0..200 {
        bench.liveness.handle_data_received(bench.mono(), PEER);
        keepalives.extend(bench.run_for(5));
    }
    keepalives.extend(bench.run_for(10_000));

    assert_eq!(keepalives.len(), 5, "{keepalives:?}");
    assert_eq!(keepalives[0], (200, Event::Keepalive { peer: PEER }));
}

#[test]
fn an_echo_serves_as_the_keepalive_due() {
    let mut bench = Bench::new();
    bench.liveness.handle_data_received(bench.mono(), PEER);
    bench.run_for(150);
    bench.liveness.handle_echo_sent(bench.mono(), PEER);
    assert_eq!(bench.run_for(1_000), []);

    bench.liveness.handle_data_received(bench.mono(), PEER);

    assert_eq!(
        bench.run_for(1_000),
        [(1_350, Event::Keepalive { peer: PEER })]
    );
}

#[test]
fn a_session_starts_with_three_quick_probes() {
    let mut bench = Bench::new();
    bench.answer = true;
    bench.liveness.handle_session(bench.mono(), PEER);

    let log = bench.run_for(60_000);

    assert_eq!(probe_times(&log), [0, 100, 200]);
    assert_eq!(log.len(), 3);
}

#[test]
fn a_session_of_which_nothing_is_echoed_goes_on_to_probe_every_path() {
    let mut bench = Bench::new();
    bench.liveness.handle_session(bench.mono(), PEER);

    let log = bench.run_for(60_000);
    bench.answer = true;
    let answered = bench.run_for(60_000);

    let times = probe_times(&log);
    assert_eq!(times[..6], [0, 100, 200, 300, 500, 900]);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 5_000));
    assert!(log[3..].iter().all(|(_, event)| is_on_all_paths(event)));
    assert_eq!(log.len(), times.len(), "it has no other consequence");
    assert_eq!(answered.len(), 1, "the first echo ends it");
}

#[test]
fn a_session_never_answered_is_given_up_until_it_has_new_keys() {
    let mut bench = Bench::new();
    bench.liveness.handle_session(bench.mono(), PEER);
    bench.run_for(610_000);
    let given_up = bench.run_for(3_600_000);

    bench.liveness.handle_keys(bench.mono(), PEER);
    let anew = bench.run_for(60_000);

    assert_eq!(given_up, []);
    let last = probe_times(&anew).pop().unwrap_or_default() - 610_000 - 3_600_000;
    assert!(last > 50_000, "the last after {last} ms");
}

#[test]
fn the_echo_of_a_size_probe_proves_what_was_sent_before_it_went_out_first() {
    let mut bench = Bench::new();
    bench.send(PEER, 1);
    bench.run_for(600);
    bench.liveness.note_size_probe(bench.mono(), PEER, 7);
    bench.run_for(600);
    bench.send(PEER, 2);
    bench.liveness.note_size_probe(bench.mono(), PEER, 7);
    bench.run_for(700);

    bench.liveness.handle_size_echo(bench.mono(), PEER, 7);

    // Only the second packet is open still, since 1,200 ms.
    assert_eq!(deadlines(&bench.run_for(60_000)), [3_200]);
}

#[test]
fn the_round_trip_of_a_peer_in_use_is_measured_every_fifteen_seconds() {
    let mut bench = Bench::new();
    bench.answer = true;
    bench.liveness.set_used(bench.mono(), PEER, true);

    let used = probe_times(&bench.run_for(60_000));
    bench.liveness.set_used(bench.mono(), PEER, false);
    let unused = bench.run_for(60_000);

    assert_eq!(used.len(), 4);
    assert!(used[0] < SPREAD_MILLIS);
    assert!(
        used.windows(2).all(|pair| pair[1] - pair[0] == 15_000),
        "{used:?}"
    );
    assert_eq!(unused, []);
}

#[test]
fn a_question_is_repeated_until_answered_and_never_fails_a_peer() {
    let mut bench = Bench::new();
    for _ in 0..40 {
        bench.liveness.probe_now(bench.mono(), PEER);
    }
    let unanswered = bench.run_for(10_000);
    let asked = bench.mono();
    bench.answer = true;
    bench.liveness.probe_now(asked, PEER);
    let answered = bench.run_for(10_000);

    assert_eq!(
        probe_times(&unanswered),
        [0, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800]
    );
    assert!(
        unanswered
            .iter()
            .all(|(_, event)| matches!(event, Event::Probe { .. }))
    );
    assert_eq!(probe_times(&answered), [10_000]);
    assert!(bench.liveness.answered_since(PEER, asked));
    assert!(!bench.liveness.answered_since(PEER, asked + millis(1)));
}

#[test]
fn a_question_just_after_a_probe_gets_an_answer_of_its_own() {
    let mut bench = Bench::new();
    bench.liveness.probe_now(bench.mono(), PEER);
    let before = bench.run_for(20);

    let asked = bench.mono();
    bench.liveness.probe_now(asked, PEER);
    bench.skip(5);
    bench
        .liveness
        .handle_echo(bench.mono(), PEER, probe_ids(&before)[0]);
    bench.answer = true;
    let after = bench.run_for(1_000);

    assert!(bench.liveness.answered_since(PEER, asked));
    assert_eq!(probe_times(&after), [50]);
}

#[test]
fn questions_of_many_new_flows_are_twenty_probes_a_second_at_most() {
    let mut bench = Bench::new();
    let mut log = Vec::new();
    for _ in 0..999 {
        bench.liveness.probe_now(bench.mono(), PEER);
        log.extend(bench.run_for(1));
    }

    assert!(probe_times(&log).len() <= 20, "{}", probe_times(&log).len());
}

#[test]
fn a_failed_peer_is_back_after_three_answers_in_a_row() {
    let mut bench = Bench::new();
    bench.fail(PEER);
    let unwanted = bench.run_for(10_000);
    bench.liveness.set_wanted(bench.mono(), PEER, true);
    let silent = bench.run_for(5_500);
    bench.answer = true;
    let two_answers = bench.run_for(650);
    bench.answer = false;
    let missed = bench.run_for(1_000);
    bench.answer = true;
    let answering = bench.run_for(4_000);

    assert_eq!(unwanted, []);
    assert_eq!(
        probe_times(&silent),
        [10_000, 11_000, 12_000, 13_000, 14_000, 15_000]
    );
    assert_eq!(probe_times(&two_answers), [16_000, 16_100]);
    assert_eq!(probe_times(&missed), [16_200]);
    let back: Vec<_> = answering
        .iter()
        .filter(|(_, event)| !is_probe(event))
        .collect();
    assert_eq!(back, [&(17_400, Event::Returned { peer: PEER })]);
    assert!(!bench.liveness.is_failed(PEER));
}

#[test]
fn packets_that_want_a_failed_peer_have_it_probed_four_times_a_second_at_most() {
    let mut bench = Bench::new();
    bench.fail(PEER);
    let mut log = Vec::new();
    for _ in 0..100 {
        bench.liveness.set_wanted(bench.mono(), PEER, true);
        log.extend(bench.run_for(20));
    }

    assert_eq!(
        probe_times(&log),
        [0, 250, 500, 750, 1_000, 1_250, 1_500, 1_750, 2_000]
    );
}

#[test]
fn a_peer_gone_for_longer_is_probed_every_five_seconds() {
    let mut bench = Bench::new();
    bench.liveness.set_wanted(bench.mono(), PEER, true);
    bench.fail(PEER);
    bench.run_for(100_000);

    let log = bench.run_for(100_000);
    bench.answer = true;
    let back = bench.run_for(7_500);

    assert_eq!(probe_times(&log).len(), 20);
    assert!(
        back.iter()
            .any(|(_, event)| *event == Event::Returned { peer: PEER }),
        "{back:?}"
    );
}

#[test]
fn each_flap_doubles_the_wait_up_to_a_minute() {
    let mut bench = Bench::new();
    bench.answer = true;
    bench.liveness.set_wanted(bench.mono(), PEER, true);

    let waits: Vec<u64> = (0..9).map(|_| bench.fail_and_return()).collect();
    bench.run_for(600_000);
    let later = bench.fail_and_return();

    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert_eq!(later, 1, "a failure long after the return is no flap");
}

#[test]
fn a_flap_is_not_waited_out_when_nobody_else_is_left() {
    let mut bench = Bench::new();
    bench.answer = true;
    bench.liveness.set_wanted(bench.mono(), PEER, true);
    for _ in 0..4 {
        bench.fail_and_return();
    }

    bench.liveness.fail(bench.mono(), PEER);
    bench.liveness.handle_stranded(bench.mono(), PEER);
    bench.run_for(1_500);

    assert!(!bench.liveness.is_failed(PEER));
}

#[test]
fn late_echoes_of_a_peer_that_was_stopped_are_no_round_trips() {
    let mut bench = Bench::new();
    bench.send(PEER, 1);
    let asked = probe_ids(&bench.run_for(1_000));
    let now = bench.mono();

    let measured: Vec<_> = asked
        .iter()
        .filter_map(|id| bench.liveness.handle_echo(now, PEER, *id))
        .collect();

    assert!(asked.len() >= 3, "{asked:?}");
    assert_eq!(measured, [millis(100)]);
}

#[test]
fn a_failed_peer_raises_no_second_deadline() {
    let mut bench = Bench::new();
    bench.liveness.set_watched(bench.mono(), PEER, true);
    bench.send(PEER, 1);
    bench.run_for(2_000);
    bench.liveness.fail(bench.mono(), PEER);
    bench.send(PEER, 2);

    assert_eq!(bench.run_for(60_000), []);
    assert!(bench.liveness.is_failed(PEER));
}

#[test]
fn an_echo_gives_a_round_trip_once_and_none_across_a_guard() {
    let mut bench = Bench::new();
    bench.liveness.probe_now(bench.mono(), PEER);
    let first = probe_ids(&bench.run_for(10))[0];
    assert_eq!(
        bench.liveness.handle_echo(bench.mono(), PEER, first),
        Some(millis(10))
    );
    assert_eq!(bench.liveness.handle_echo(bench.mono(), PEER, first), None);
    bench.run_for(50);
    bench.liveness.probe_now(bench.mono(), PEER);
    let second = probe_ids(&bench.run_for(10))[0];
    bench.skip(900);
    bench.run_for(1);

    assert_eq!(
        bench.liveness.handle_echo(bench.mono(), OTHER, second),
        None
    );
    assert_eq!(bench.liveness.handle_echo(bench.mono(), PEER, second), None);
    assert!(
        bench.liveness.answered_since(PEER, at(10)),
        "it is a proof all the same"
    );
}

#[test]
fn a_removed_peer_raises_nothing() {
    let mut bench = Bench::new();
    bench.send(PEER, 1);
    bench.liveness.handle_data_received(bench.mono(), PEER);

    bench.liveness.remove_peer(PEER);

    assert_eq!(bench.run_for(10_000), []);
    assert_eq!(bench.liveness.last_heard(PEER), None);
}

#[test]
fn the_heap_stays_small_however_often_timers_move() {
    let mut bench = Bench::new();
    for peer in 0..1_000 {
        bench.liveness.add_peer(PeerIx(peer));
    }
    for round in 0..200 {
        for peer in 0..1_000 {
            bench.send(PeerIx(peer), round);
            bench
                .liveness
                .handle_data_received(bench.mono(), PeerIx(peer));
            bench.prove(PeerIx(peer), round);
            bench.liveness.handle_echo_sent(bench.mono(), PeerIx(peer));
        }
        bench.run_for(7);
    }

    assert!(bench.liveness.deadlines.len() <= STALE_PER_PEER * 1_002 + STALE_BESIDE);
}

#[test]
fn a_peer_takes_less_than_four_kibibytes() {
    assert!(size_of::<Peer>() <= 4_096, "{}", size_of::<Peer>());
}
