//! Points 4 to 6: leaving, failing, and what open connections notice. Each failure strikes a realm
//! of its own: a holder that fails again and again is taken back later each time.

use std::io::ErrorKind;
use std::time::Duration;

use e2e::scenario::{Fault, Plan, Realm, Talk, connect_across_a_kill, leave_alone, release_reader};

use crate::Effort;
use crate::report::{Report, spread};

/// Two seconds since the oldest unanswered packet, which may have left 200 ms before the fault.
const EARLIEST: Duration = Duration::from_millis(1800);
const LATEST: Duration = Duration::from_millis(2500);

pub(crate) fn down(report: &mut Report, effort: &Effort) {
    let mut realm = Realm::start(&Plan::usual());
    let (mut waits, mut failed) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        let noticed = Fault::Down.watch(&mut realm);
        waits.push(noticed.longest_wait.unwrap_or(Duration::MAX));
        failed.push(noticed.failed);
        let place = realm.place_of(&noticed.holder);
        Fault::Down.undo(&mut realm, place);
        realm.settle();
    }
    let most = failed.iter().max().copied().unwrap_or(0);
    report.row(
        "from any request to the next success",
        "under 100 ms",
        spread(&waits),
        waits.iter().all(|wait| *wait < Duration::from_millis(100)),
    );
    report.row(
        "failed requests in each run",
        "at most 1",
        format!("{failed:?}"),
        most <= 1,
    );
}

pub(crate) fn failures(report: &mut Report, effort: &Effort) {
    for fault in Fault::FAILURES {
        let (mut nexts, mut listed, mut moved) = (Vec::new(), true, true);
        for _ in 0..effort.runs {
            let noticed = fault.watch(&mut Realm::start(&Plan::usual()));
            nexts.push(noticed.next_success.unwrap_or(Duration::MAX));
            listed &= noticed.is_listed;
            moved &= noticed.next_holder.as_ref() != Some(&noticed.holder);
        }
        report.row(
            format!("{fault}: next success after"),
            "2.0 to 2.5 s",
            format!("{}; listed: {listed}", spread(&nexts)),
            within(&nexts) && listed && moved,
        );
    }
    others_stay(report);
    groups(report);
    for fault in [Fault::Kill, Fault::Cut, Fault::Stop] {
        alone(report, effort, fault);
    }
}

fn others_stay(report: &mut Report) {
    let mut realm = Realm::start(&Plan::of(3, 1).with_lan());
    let hosts = realm.clients[0]
        .lan
        .as_ref()
        .expect("a LAN")
        .addresses(1, 60);
    let ask = |realm: &Realm| {
        realm.clients[0]
            .lan
            .as_ref()
            .expect("a LAN")
            .who_answers(&hosts)
    };
    let before = ask(&realm);
    let place = realm.place_of(&before[0]);
    Fault::Kill.strike(&mut realm, place);
    let after = ask(&realm);
    let of_failed = before.iter().filter(|name| **name == before[0]).count();
    let pairs = before.iter().zip(&after);
    let moved = pairs.clone().filter(|(old, new)| old != new).count();
    let wrongly = pairs
        .filter(|(old, new)| old != new && **old != before[0])
        .count();
    report.row(
        "flows moved of 60 hosts",
        "those of the failed holder only",
        format!("{of_failed} had it, {moved} moved, {wrongly} for nothing"),
        moved == of_failed && wrongly == 0,
    );
}

fn groups(report: &mut Report) {
    let mut realm = Realm::start(&Plan::of(2, 1));
    let noticed = Fault::Kill.watch(&mut realm);
    let (before, after) = noticed.route_groups;
    report.row(
        "anchor_route_groups, one of two holders killed",
        "1, then 0, still listed",
        format!("{before}, then {after}, listed: {}", noticed.is_listed),
        (before, after) == (1.0, 0.0) && noticed.is_listed,
    );
}

fn alone(report: &mut Report, effort: &Effort, fault: Fault) {
    let (mut resets, mut refusals, mut wells) = (Vec::new(), Vec::new(), Vec::new());
    let mut as_promised = true;
    for _ in 0..effort.runs {
        let alone = leave_alone(&mut Realm::start(&Plan::of(1, 1)), fault);
        as_promised &= alone.released.is_reset();
        as_promised &= alone.refused.0 == Some(ErrorKind::HostUnreachable);
        resets.push(alone.released.after);
        refusals.push(alone.refused.1);
        wells.push(alone.well_after);
    }
    report.row(
        format!("only holder, {fault}: connection reset after"),
        "2.0 to 2.5 s",
        spread(&resets),
        as_promised && within(&resets),
    );
    report.row(
        format!("only holder, {fault}: new one refused within"),
        "at once",
        spread(&refusals),
        refusals
            .iter()
            .all(|time| *time < Duration::from_millis(100)),
    );
    report.row(
        format!("only holder, {fault}: well again after"),
        "1 s",
        spread(&wells),
        wells.iter().all(|time| *time <= Duration::from_secs(1)),
    );
}

pub(crate) fn connections(report: &mut Report, effort: &Effort) {
    let silent = Duration::from_millis(7500);
    for (fault, talk, bar, most) in [
        (Fault::Kill, Talk::JustAsked, "2.0 to 2.5 s", LATEST),
        (Fault::Kill, Talk::Silent, "7.5 s", silent),
        (
            Fault::Down,
            Talk::JustAsked,
            "at once",
            Duration::from_millis(400),
        ),
        (
            Fault::Down,
            Talk::Silent,
            "at once",
            Duration::from_millis(400),
        ),
    ] {
        let mut times = Vec::new();
        let mut reset = true;
        for _ in 0..effort.runs {
            let mut realm = Realm::start(&Plan::usual());
            let (_, released) = release_reader(&mut realm, fault, talk);
            reset &= released.is_reset();
            times.push(released.after);
        }
        report.row(
            format!("read() on {fault}, {talk:?}: ECONNRESET after"),
            bar,
            spread(&times),
            reset && times.iter().all(|time| *time <= most),
        );
    }
    let (mut times, mut all_connected) = (Vec::new(), true);
    for _ in 0..effort.runs {
        let (connected, took) = connect_across_a_kill(&mut Realm::start(&Plan::usual()));
        all_connected &= connected.is_ok();
        times.push(took);
    }
    report.row(
        "connect() begun just before the kill took",
        "no step of 3 s",
        spread(&times),
        all_connected && times.iter().all(|time| *time <= LATEST),
    );
}

fn within(times: &[Duration]) -> bool {
    times.iter().all(|time| (EARLIEST..=LATEST).contains(time))
}
