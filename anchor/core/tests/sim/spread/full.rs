//! What a realm of ten thousand costs each anchor when nothing happens: refreshes, digests, memory.

use std::time::Duration;

use conflux_core::membership::{DIGEST_INTERVAL, Membership, refresh_interval};
use conflux_core::time::Mono;
use conflux_proto::advert::SignedAdvert;
use conflux_proto::control::{Adverts, AgedAdvert, Decoded, Digest, Message};

use super::net::{Net, UNIX, bytes_of, identity, own_of};
use super::{SIZE, edition, knows};
use crate::anchor::realm;

const START: Mono = Mono::from_nanos(1_000_000_000_000);

/// Anchors whose adverts are followed.
const AUTHORS: usize = 40;

/// The bars for each anchor.
const BYTES_PER_SECOND: f64 = 20_000.0;
const MEMORY_KILOBYTES: u64 = 64 << 10;

#[test]
fn a_quiet_realm_costs_each_anchor_less_than_the_bar() {
    let mut net = Net::new(SIZE, 5);
    let authors: Vec<usize> = (0..AUTHORS).map(|number| number * SIZE / AUTHORS).collect();
    for &author in &authors {
        net.publish(author, net.own(author));
    }
    net.run_until(Duration::from_secs(120), |_| false);
    let editions = |net: &Net| -> u64 {
        let all = authors
            .iter()
            .map(|author| net.nodes[*author].membership.edition());
        all.map(|edition| edition.sequence).sum()
    };
    // Digests of these small stores are left out: those of full ones are measured below.
    let before = editions(&net);
    net.forget_bytes();
    let span = Duration::from_secs(300);
    let mut missing = Vec::new();
    for _ in 0..10 {
        net.run_until(span / 10, |_| false);
        missing.push(behind(&net, &authors));
    }
    let refreshes = editions(&net) - before;
    let digests = digest_bytes(&net, span);
    let (mean, _) = net.bytes();
    let per_refresh = (mean - digests) / refreshes as f64;

    // As many refreshes as the whole realm makes, each as dear as those followed.
    let interval = refresh_interval(SIZE).mul_f64(0.95);
    let per_second = SIZE as f64 / interval.as_secs_f64();
    let by_refreshes = per_second * per_refresh;
    // Of each anchor as much is behind as of those followed, which refresh more often.
    let part = missing.iter().sum::<f64>() / missing.len() as f64;
    let followed_interval = span.as_secs_f64() * AUTHORS as f64 / refreshes as f64;
    let differing = SIZE as f64 * part * followed_interval / interval.as_secs_f64();
    let by_digests = exchange_bytes(differing.ceil() as usize) / DIGEST_INTERVAL.as_secs_f64();

    println!(
        "{SIZE} anchors at rest: {per_second:.1} refreshes/s of {per_refresh:.0} bytes each: {:.1} kB/s; \
         {differing:.0} editions differ between neighbours, digests {:.1} kB/s; together {:.1} kB/s sent",
        by_refreshes / 1e3,
        by_digests / 1e3,
        (by_refreshes + by_digests) / 1e3
    );
    assert!(
        by_refreshes + by_digests < BYTES_PER_SECOND,
        "{by_refreshes:.0} and {by_digests:.0} bytes a second"
    );
}

#[test]
fn a_full_store_fits_and_a_joiner_fills_its_own() {
    let adverts = encoded_adverts(10_000);
    let before = resident_kilobytes();

    let store = store_of(20_000, &adverts);

    let after = resident_kilobytes();
    assert_eq!(store.realm_size(), 10_001);
    let taken = after.saturating_sub(before);
    println!(
        "a store of 10,000 adverts: {taken} kB resident, {} bytes an anchor",
        taken * 1024 / 10_000
    );
    assert!(taken < MEMORY_KILOBYTES, "{taken} kB");

    // A joiner asks one neighbour after the other until nobody has more.
    let mut joiner = Membership::new(realm().key(), identity(30_000), 1, 9);
    let (mut rounds, mut bytes) = (0, 0);
    loop {
        rounds += 1;
        let (more, received) = reconcile(&store, &mut joiner);
        bytes += received;
        if !more {
            break;
        }
        assert!(rounds < 100, "it never ends");
    }
    println!(
        "a joiner has all of them after {rounds} digests and {:.1} MB",
        bytes as f64 / 1e6
    );
    assert!(joiner.realm_size() >= 10_001);
}

/// Returns the part of adverts in which two neighbours differ, on average.
fn behind(net: &Net, authors: &[usize]) -> f64 {
    let mut pairs = 0;
    let mut differing = 0;
    for (number, node) in net.nodes.iter().enumerate().step_by(37) {
        let neighbour = &net.nodes[node.links[number % node.links.len()] as usize];
        for author in authors {
            let key = net.key(*author);
            let (one, two) = (&node.membership, &neighbour.membership);
            if knows(one, &key) && knows(two, &key) && *author != number {
                pairs += 1;
                differing += u32::from(edition(one, &key) != edition(two, &key));
            }
        }
    }
    f64::from(differing) / f64::from(pairs.max(1))
}

/// Returns about what digests of these small stores cost each anchor in `span`.
fn digest_bytes(net: &Net, span: Duration) -> f64 {
    let digests = span.as_secs_f64() / DIGEST_INTERVAL.as_secs_f64();
    let one = bytes_of(&Message::Digest(net.nodes[1].membership.digest()));
    digests * one as f64
}

/// Returns the bytes that both sides of one digest send when two full stores differ in so many
/// editions: half of them are newer here, half there.
fn exchange_bytes(differing: usize) -> f64 {
    let secret = realm();
    let mut one = Membership::new(secret.key(), identity(20_000), 1, 1);
    let mut two = Membership::new(secret.key(), identity(20_001), 1, 2);
    for number in 0..SIZE {
        let number = u32::try_from(number).expect("thousands");
        let mut author = Membership::new(secret.key(), identity(number), 1, 3);
        author.set_own(START, own_of(&secret, number));
        let first = author.own().unwrap();
        one.handle_advert(START, UNIX, &first, Duration::ZERO, None);
        two.handle_advert(START, UNIX, &first, Duration::ZERO, None);
        if (number as usize) < differing {
            author.set_epoch(START, 2);
            let newer = if number % 2 == 0 { &mut one } else { &mut two };
            newer.handle_advert(START, UNIX, &author.own().unwrap(), Duration::ZERO, None);
        }
    }
    while one.poll_event().is_some() || two.poll_event().is_some() {}
    let mut to_two = vec![Message::Digest(one.digest())];
    let mut bytes = 0;
    while !to_two.is_empty() {
        let mut to_one = Vec::new();
        for message in &to_two {
            bytes += bytes_of(message);
            to_one.extend(answers(&mut two, message));
        }
        to_two = Vec::new();
        for message in &to_one {
            bytes += bytes_of(message);
            to_two.extend(answers(&mut one, message));
        }
    }
    bytes as f64
}

fn answers(store: &mut Membership, message: &Message) -> Vec<Message> {
    match message {
        Message::Digest(digest) => store.handle_digest(START, digest),
        Message::Adverts(adverts) => {
            for aged in &adverts.adverts {
                store.handle_advert(START, UNIX, &aged.advert, Duration::ZERO, None);
            }
            Vec::new()
        }
        Message::Leave(leave) => panic!("nobody left: {leave:?}"),
        Message::Hello(_)
        | Message::Refused(_)
        | Message::Admitted(_)
        | Message::Noise1(_)
        | Message::Noise2(_)
        | Message::Ping(_)
        | Message::Pong(_)
        | Message::Resting(_)
        | Message::Revocations(_)
        | Message::RevocationDigest(_)
        | Message::Relay(_)
        | Message::Meet(_) => unreachable!("not sent here"),
    }
}

/// Has a joiner send its digest; returns whether there is more, and the bytes that came.
fn reconcile(store: &Membership, joiner: &mut Membership) -> (bool, u64) {
    let (mut has_more, mut bytes) = (false, 0);
    let mut digests = vec![joiner.digest()];
    while let Some(digest) = digests.pop() {
        for message in store.handle_digest(START, &digest) {
            bytes += bytes_of(&message);
            if let Message::Adverts(adverts) = &message {
                has_more |= adverts.more;
                take_encoded(joiner, &message.encode().unwrap());
            } else if let Message::Digest(list) = &message {
                digests.extend(
                    joiner
                        .handle_digest(START, list)
                        .into_iter()
                        .filter_map(digest_of),
                );
            }
        }
    }
    (has_more, bytes)
}

fn digest_of(message: Message) -> Option<Digest> {
    if let Message::Digest(digest) = message {
        Some(digest)
    } else {
        None
    }
}

/// Returns messages with the adverts of so many anchors, as they come from the wire.
fn encoded_adverts(count: u32) -> Vec<Vec<u8>> {
    let secret = realm();
    (0..count)
        .map(|number| {
            let mut author = Membership::new(secret.key(), identity(number), 1, 3);
            author.set_own(START, own_of(&secret, number));
            let advert: SignedAdvert = author.own().unwrap();
            let aged = AgedAdvert {
                advert,
                age_millis: 0,
            };
            let adverts = Adverts {
                adverts: vec![aged],
                more: false,
            };
            Message::Adverts(adverts).encode().unwrap()
        })
        .collect()
}

fn store_of(number: u32, adverts: &[Vec<u8>]) -> Membership {
    let mut store = Membership::new(realm().key(), identity(number), 1, 1);
    for message in adverts {
        take_encoded(&mut store, message);
    }
    store
}

fn take_encoded(store: &mut Membership, message: &[u8]) {
    let Ok(Decoded::Message(Message::Adverts(adverts))) = Message::decode(message) else {
        panic!("adverts were written");
    };
    for aged in &adverts.adverts {
        store.handle_advert(START, UNIX, &aged.advert, Duration::ZERO, None);
    }
    while store.poll_event().is_some() {}
}

fn resident_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
