//! Paths that carry little, shrink under way or lose: nothing black-holes, and what comes is what
//! was sent (docs/decisions/0008-path-mtu.md).

use std::time::Duration;

use e2e::scenario::{Path, offloads};
use e2e::wait;
use e2e::work::Direction;

const MEGABYTE: u64 = 1_000_000;

/// Far more than any of these transfers takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_path_of_1280_bytes_without_icmp_carries_everything() {
    let path = Path::start(|way| way.largest_frame_bytes = Some(1280));

    path.settle_at(1280);
    let down = path.transfer(Direction::Down, 32 * MEGABYTE).unwrap();
    let down = down.end_within(LIMIT);
    let up = path.transfer(Direction::Up, 32 * MEGABYTE).unwrap();
    let up = up.end_within(LIMIT);
    let echoed = path.large_echoes(10);

    assert!(down.is_whole(), "{down:?}");
    assert!(up.is_whole(), "{up:?}");
    assert_eq!(echoed, 10);
    path.settle_at(1280);
}

#[test]
fn a_path_that_shrinks_under_a_transfer_carries_it_to_its_end() {
    // Paced, so that it certainly is under way when the path shrinks.
    let path = Path::start(|way| way.rate = Some(100_000_000));
    path.settle_at(1500);

    let transfer = path.transfer(Direction::Down, 24 * MEGABYTE).unwrap();
    wait::until(LIMIT, "a third of the transfer", || {
        transfer.bytes() > 8 * MEGABYTE
    });
    path.change(|way| way.largest_frame_bytes = Some(1300));
    let transferred = transfer.end_within(LIMIT);

    assert!(transferred.is_whole(), "{transferred:?}");
    let ways = path.realm.lab.way(path.holder(), path.client());
    assert!(ways.carried().lost > 0, "nothing was too long");
    assert!(
        transferred.longest_pause < Duration::from_secs(4),
        "{transferred:?}"
    );
}

#[test]
fn a_large_datagram_is_echoed_whole_over_1500_bytes() {
    let path = Path::start(|way| way.largest_frame_bytes = Some(1500));

    path.settle_at(1500);

    assert_eq!(path.large_echoes(10), 10);
}

#[test]
fn a_network_card_without_offloads_changes_nothing() {
    let path = Path::at_kernel_speed();
    assert!(!offloads(path.client()).is_empty(), "nothing to switch off");

    path.switch_offloads_off();
    let down = path.transfer(Direction::Down, 64 * MEGABYTE).unwrap();
    let down = down.end_within(LIMIT);
    let up = path.transfer(Direction::Up, 64 * MEGABYTE).unwrap();
    let up = up.end_within(LIMIT);

    assert!(down.is_whole(), "{down:?}");
    assert!(up.is_whole(), "{up:?}");
}

#[test]
fn a_hundredth_of_all_packets_lost_spoils_no_transfer() {
    let path = Path::start(|way| way.loss = 0.01);

    let down = path.transfer(Direction::Down, 32 * MEGABYTE).unwrap();
    let down = down.end_within(LIMIT);
    let up = path.transfer(Direction::Up, 32 * MEGABYTE).unwrap();
    let up = up.end_within(LIMIT);

    assert!(down.is_whole(), "{down:?}");
    assert!(up.is_whole(), "{up:?}");
}
