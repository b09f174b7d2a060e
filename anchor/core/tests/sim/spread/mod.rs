//! How adverts spread among up to ten thousand anchors: the figures of decision 0003, measured.

mod full;
mod net;
mod plot;
mod size;

use std::time::Duration;

use conflux_core::membership::Membership;
use conflux_proto::advert::Edition;
use conflux_proto::id::AnchorKey;

use net::Net;

/// Anchors of the largest realm promised; a test run makes do with fewer.
const SIZE: usize = if cfg!(feature = "soak") { 10_000 } else { 300 };

/// The bar for a new advert or a goodbye.
const WITHIN: Duration = Duration::from_secs(5);

#[test]
fn a_new_advert_and_a_goodbye_reach_everybody_within_the_bar() {
    let mut net = Net::new(SIZE, 1);

    let spread = spread_of(&mut net, 5);

    println!("{SIZE} anchors: {spread:?}");
    assert!(
        spread.advert_99 <= WITHIN && spread.leave_99 <= WITHIN,
        "{spread:?}"
    );
}

/// A thousandth of a second a joiner: a whole data centre is switched on.
#[test]
fn many_join_within_ten_seconds() {
    let (before, joining) = (SIZE * 9 / 10, SIZE / 10);
    // One in ten of them is followed.
    let followed = joining / 10;
    let mut net = Net::new(before, 2);
    net.run_until(Duration::from_secs(1), |_| false);
    net.forget_bytes();
    let mut joined = Vec::new();
    for number in 0..joining {
        let new = net.add_node();
        net.dial(new, before);
        if number % 10 == 0 {
            net.publish(new, net.own(new));
            joined.push(net.key(new));
        }
        net.greet_all(new);
        net.run_until(Duration::from_secs(10) / joining as u32, |_| false);
    }

    let knows_all = |store: &Membership| {
        let unknown = joined.iter().filter(|key| !knows(store, key));
        unknown.count() <= 1
    };
    let took = net.run_until(WITHIN, |net| net.share(knows_all) >= 0.99);

    let (mean, most) = net.bytes();
    println!(
        "{joining} join {before} within 10 s: 99 % know {followed} followed ones {took:?} after the \
         last; each anchor sent {:.0} kB for one joiner in ten, at most {:.0} kB",
        mean / 1e3,
        most as f64 / 1e3
    );
    assert!(took.is_some(), "not within {WITHIN:?}");
}

/// While the halves do not reach each other, some of each leave, some are new, and what each half
/// knows of the other runs out.
#[test]
fn a_realm_split_in_two_heals() {
    let mut net = Net::new(SIZE, 3);
    net.look_every = Duration::from_millis(100);
    let authors: Vec<usize> = (0..40).map(|number| number * SIZE / 40).collect();
    for &author in &authors {
        net.publish(author, net.own(author));
    }
    let everyone: Vec<AnchorKey> = authors.iter().map(|author| net.key(*author)).collect();
    let knows_all =
        |store: &Membership, keys: &[AnchorKey]| keys.iter().all(|key| knows(store, key));
    let known = net.run_until(Duration::from_secs(60), |net| {
        net.share(|store| knows_all(store, &everyone)) >= 1.0
    });
    assert!(known.is_some(), "they did not get to know each other");

    net.split = Some(SIZE as u32 / 2);
    net.run_until(Duration::from_secs(400), |_| false);
    let apart = net.share(|store| knows_all(store, &everyone));
    let gone = net.key(authors[39]);
    net.leave(authors[39]);
    let new = authors[20] + 1;
    net.publish(new, net.own(new));
    net.run_until(Duration::from_secs(20), |_| false);
    net.split = None;
    let crossing = (0..SIZE).filter(|number| *number < SIZE / 2);
    for number in crossing.collect::<Vec<_>>() {
        net.greet_crossing(number);
    }
    let mut everyone = everyone;
    everyone.truncate(39);
    everyone.push(net.key(new));

    let healed = net.run_until(Duration::from_secs(60), |net| {
        net.share(|store| knows_all(store, &everyone) && !knows(store, &gone)) >= 0.99
    });

    println!("{SIZE} anchors in two halves: {apart:.2} knew all; healed for 99 % after {healed:?}");
    assert!(apart < 0.01, "{apart} still knew the other half");
    assert!(
        healed.is_some_and(|took| took <= Duration::from_secs(10)),
        "{healed:?}"
    );
}

#[test]
fn an_anchor_that_flaps_disturbs_nobody() {
    let mut net = Net::new(SIZE, 4);
    let authors: Vec<usize> = (1..21).map(|number| number * SIZE / 21).collect();
    for &author in &authors {
        net.publish(author, net.own(author));
    }
    net.run_until(Duration::from_secs(30), |_| false);
    net.publish(0, net.own(0));
    net.run_until(Duration::from_secs(5), |_| false);
    net.forget_bytes();
    let flaps = 12;
    for flap in 0..flaps {
        net.leave(0);
        net.run_until(Duration::from_secs(3), |_| false);
        net.start_again(0, 2 + flap);
        net.run_until(Duration::from_secs(2), |_| false);
    }

    let (mean, most) = net.bytes();
    let span = 5.0 * flaps as f64;
    let others_known = net.share(|store| {
        authors
            .iter()
            .all(|author| knows(store, &net.key(*author)) || store.get(&net.key(0)).is_none())
    });
    let wrong = net.nodes.iter().skip(1).filter(|node| {
        let [changed, left, expired] = node.events;
        // Each flap is one goodbye and one new advert.
        changed > flaps || left > flaps || expired > 0
    });
    let wrong = wrong.count();
    println!(
        "an anchor flaps every 5 s among {SIZE}: {:.2} kB/s each, at most {:.2} kB/s",
        mean / span / 1e3,
        most as f64 / span / 1e3
    );
    assert!(others_known >= 1.0, "others are forgotten: {others_known}");
    assert_eq!(wrong, 0, "anchors that saw others come or go");
    assert!(mean / span < 20_000.0, "{mean} bytes in {span} s");
}

/// How long news takes; the median of several.
#[derive(Clone, Copy, Debug)]
struct SpreadTimes {
    advert_50: Duration,
    advert_99: Duration,
    advert_100: Duration,
    leave_99: Duration,
}

fn spread_of(net: &mut Net, rounds: usize) -> SpreadTimes {
    let mut all: Vec<SpreadTimes> = (0..rounds)
        .map(|round| {
            let author = (round * 7 + 1) * net.nodes.len() / (rounds * 7 + 1);
            let key = net.key(author);
            let start = net.now;
            net.publish(author, net.own(author));
            let mut after = |share: f64| {
                let limit = Duration::from_secs(120);
                net.run_until(limit, |net| net.share(|store| knows(store, &key)) >= share)
                    .expect("digests bring what floods miss");
                net.now.since(start)
            };
            let [advert_50, advert_99, advert_100] = [0.5, 0.99, 1.0].map(&mut after);
            let start = net.now;
            net.leave(author);
            net.run_until(Duration::from_secs(120), |net| {
                net.share(|store| !knows(store, &key)) >= 0.99
            })
            .expect("digests bring what floods miss");
            SpreadTimes {
                advert_50,
                advert_99,
                advert_100,
                leave_99: net.now.since(start),
            }
        })
        .collect();
    all.sort_by_key(|times| times.advert_99);
    all[rounds / 2]
}

fn knows(store: &Membership, key: &AnchorKey) -> bool {
    store.get(key).is_some()
        || store
            .own()
            .is_some_and(|own| own.advert.claimed().key == *key)
}

/// Returns the edition of an anchor that a store has.
fn edition(store: &Membership, key: &AnchorKey) -> Option<Edition> {
    store.get(key).map(|entry| entry.advert().edition)
}
