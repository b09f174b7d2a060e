//! Point "paths": a gigabyte over paths that are narrow, shrink or lose, each beside the bare path
//! between the same machines where that works at all. Checksums are compared in every case.

use std::time::Duration;

use e2e::scenario::Path;
use e2e::wait;
use e2e::work::{Direction, Transferred};

use crate::Effort;
use crate::report::Report;

/// For a whole transfer; one that takes longer counts as not arrived.
const WHOLE_LIMIT: Duration = Duration::from_secs(120);

/// One way between the machines for the rows that are told as at a distance.
const DISTANCE: Duration = Duration::from_millis(10);

/// What a path with losses must carry, of what the bare path does: the same algorithm of TCP
/// sees the same losses, but its round trip is longer by two more programs.
const LEAST_OF_BARE: f64 = 0.5;

pub(crate) fn paths(report: &mut Report, effort: &Effort) {
    narrow(report, effort);
    // Reno stands for those that take a loss for a full queue, as cubic does, which a network
    // namespace may not choose.
    for (loss, delay, congestion) in [
        (0.01, Duration::ZERO, "bbr"),
        (0.05, Duration::ZERO, "bbr"),
        (0.01, Duration::ZERO, "reno"),
        (0.05, Duration::ZERO, "reno"),
        (0.01, DISTANCE, "reno"),
    ] {
        lossy(report, effort, loss, delay, congestion);
    }
    shrinking(report, effort);
    offloads(report, effort);
    datagrams(report);
}

fn narrow(report: &mut Report, effort: &Effort) {
    let path = Path::start(|way| way.largest_frame_bytes = Some(1280));
    path.settle_at(1280);
    let through = [Direction::Down, Direction::Up].map(|direction| whole(&path, direction, effort));
    let limits = limits(&path);
    // The bare path is a black hole until both cards are told.
    for host in [path.client(), path.holder()] {
        host.ip(["link set eth0 mtu 1280"]);
    }
    let bare = bare(&path, effort, WHOLE_LIMIT);
    for (direction, through) in ["down", "up"].iter().zip(&through) {
        report.row(
            format!("1280 bytes, no ICMP, {direction}"),
            "whole, checksums equal",
            format!(
                "{}; limits {limits}; bare {}; ratio {:.2}",
                told(through),
                told(&bare),
                ratio(through, &bare)
            ),
            through.is_whole(),
        );
    }
}

fn lossy(report: &mut Report, effort: &Effort, loss: f64, delay: Duration, congestion: &str) {
    let path = Path::start(|way| way.delay = delay);
    path.settle_at(1500);
    path.let_tcp_use(congestion);
    path.change(|way| way.loss = loss);
    let limit = effort.slow_limit();
    let bare = bare(&path, effort, limit);
    let through = path
        .transfer(Direction::Down, effort.transfer_bytes())
        .expect("the holder answers")
        .end_within(limit);
    report.row(
        format!(
            "{} % loss, {congestion}, {} ms there and back, at most {} s",
            loss * 100.0,
            2 * delay.as_millis(),
            limit.as_secs()
        ),
        "checksums equal, half of the bare path or more",
        format!(
            "{}; bare {}; ratio {:.2}",
            told(&through),
            told(&bare),
            ratio(&through, &bare)
        ),
        through.is_sound() && ratio(&through, &bare) >= LEAST_OF_BARE,
    );
}

fn shrinking(report: &mut Report, effort: &Effort) {
    let path = Path::start(|_| {});
    path.settle_at(1500);
    let transfer = path
        .transfer(Direction::Down, effort.transfer_bytes())
        .expect("the holder answers");
    wait::until(WHOLE_LIMIT, "a quarter of the transfer", || {
        transfer.bytes() > effort.transfer_bytes() / 4
    });
    let before = limits(&path);
    path.change(|way| way.largest_frame_bytes = Some(1300));
    let at_bytes = transfer.bytes();
    let transferred = transfer.end_within(WHOLE_LIMIT);
    let lost = path
        .realm
        .lab
        .way(path.holder(), path.client())
        .carried()
        .lost;
    let after = limits(&path);
    report.row(
        "1500 bytes, 1300 from the first quarter on",
        "whole, checksums equal",
        format!(
            "{}; longest pause {:.2} s; limits {before}, then {after}; {lost} frames too long",
            told(&transferred),
            transferred.longest_pause.as_secs_f64()
        ),
        transferred.is_whole() && lost > 0 && at_bytes < transferred.bytes,
    );
}

fn offloads(report: &mut Report, effort: &Effort) {
    let path = Path::at_kernel_speed();
    path.settle_at(1500);
    let with = whole(&path, Direction::Down, effort);
    path.switch_offloads_off();
    let bare = bare(&path, effort, WHOLE_LIMIT);
    for (name, direction) in [("down", Direction::Down), ("up", Direction::Up)] {
        let without = whole(&path, direction, effort);
        report.row(
            format!("cards without offloads, kernel's bridge, {name}"),
            "whole, checksums equal",
            format!(
                "{}; bare {}; ratio {:.2}; with offloads {}",
                told(&without),
                told(&bare),
                ratio(&without, &bare),
                told(&with)
            ),
            without.is_whole() && with.is_whole(),
        );
    }
}

fn datagrams(report: &mut Report) {
    const COUNT: usize = 100;
    for underlay in [1500, 1280] {
        let path = Path::start(|way| way.largest_frame_bytes = Some(underlay));
        path.settle_at(underlay as u64);
        let echoed = path.large_echoes(COUNT);
        report.row(
            format!("UDP of 3,000 bytes over {underlay} bytes"),
            "all echoed whole",
            format!("{echoed} of {COUNT}"),
            echoed == COUNT,
        );
    }
}

fn whole(path: &Path, direction: Direction, effort: &Effort) -> Transferred {
    path.transfer(direction, effort.transfer_bytes())
        .expect("the holder answers")
        .end_within(WHOLE_LIMIT)
}

fn bare(path: &Path, effort: &Effort, limit: Duration) -> Transferred {
    path.bare_transfer(Direction::Down, effort.transfer_bytes())
        .expect("the machines reach each other")
        .end_within(limit)
}

/// What the client and the holder believe the path carries.
fn limits(path: &Path) -> String {
    path.limits_bytes()
        .map(|bytes| bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string()))
        .join(" and ")
}

/// The speed with the tunnel, as a part of that without.
fn ratio(through: &Transferred, bare: &Transferred) -> f64 {
    through.megabits_per_second() / bare.megabits_per_second()
}

fn told(transferred: &Transferred) -> String {
    let sums = if transferred.is_sound() {
        "sums equal"
    } else {
        "SUMS DIFFER"
    };
    format!(
        "{:.0} MB in {:.1} s, {:.0} Mbit/s, {sums}",
        transferred.bytes as f64 / 1e6,
        transferred.took.as_secs_f64(),
        transferred.megabits_per_second()
    )
}
