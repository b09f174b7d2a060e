//! Taints: clients in different compartments meet different holders at one address, and anchors
//! that may not exchange data see each other without being able to, however hard one tries.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use e2e::hostile::{Hostile, datagram};
use e2e::scenario::{COMPARTMENTS, SHARED, SHARED_NETWORK, Town, port};
use e2e::{Anchor, Lab, Options, wait, work};

#[test]
fn each_compartment_reaches_exactly_the_holders_it_may() {
    let town = Town::start();

    for (number, (name, _, wanted)) in COMPARTMENTS.iter().enumerate() {
        let met = town.met_by(number);

        let wanted: BTreeSet<String> = wanted.iter().map(ToString::to_string).collect();
        assert_eq!(met, wanted, "client of {name}");
    }
}

#[test]
fn anchors_that_may_not_exchange_data_see_each_other_without_an_address() {
    let town = Town::start();
    let (client, refused) = (&town.clients[0], &town.holders[1]);

    let peers = client.anchor.peers();
    let row = peers
        .iter()
        .find(|peer| peer.anchor == refused.anchor.id())
        .unwrap();

    assert_eq!(
        (row.data, row.ipv4.as_deref()),
        (Some(false), None),
        "{row:?}"
    );
    let route = client.anchor.route(SHARED_NETWORK).unwrap();
    assert!(
        !route.via.iter().any(|id| id == refused.anchor.id()),
        "{route:?}"
    );
    let overlay = SocketAddr::new(refused.anchor.overlay().into(), port::HTTP);
    let answer = work::get(&client.host, None, overlay, Duration::from_secs(3));
    assert!(answer.is_err(), "{answer:?}");
    let back = SocketAddr::new(client.anchor.overlay().into(), port::HTTP);
    assert!(work::get(&refused.host, None, back, Duration::from_secs(3)).is_err());
}

#[test]
fn a_hostile_member_gets_no_packet_to_an_anchor_it_may_not_reach() {
    let mut town = Town::start();
    let (allowed, refused) = (town.holders[0].host.ipv4(), town.holders[1].host.ipv4());
    let mut hostile = Hostile::take_over(&mut town.clients[0].anchor, &["a"]);

    let friend = hostile.approach(allowed).expect("a member is heard");
    let victim = hostile.approach(refused).expect("a member is heard by all");
    let with_friend = hostile.obtain_keys(&friend);
    let with_victim = hostile.obtain_keys(&victim);
    let own = Ipv4Addr::new(192, 0, 0, 2);
    for number in 0..100 {
        hostile.send(
            &victim,
            &datagram(own, SHARED, port::SINK, number),
            Some(&friend),
        );
    }
    hostile.send(&friend, &datagram(own, SHARED, port::SINK, 100), None);
    arrival_of(&town, 100);

    assert!(with_friend, "the client cannot even do what is allowed");
    assert!(
        !with_victim,
        "keys were given to an anchor of another compartment"
    );
    assert_eq!(town.holders[1].sink.arrived(), []);
}

#[test]
fn claiming_a_taint_that_was_not_granted_opens_nothing() {
    let mut town = Town::start();
    let refused = town.holders[1].host.ipv4();
    let mut hostile = Hostile::take_over(&mut town.clients[0].anchor, &["a", "b"]);

    let has_keys = match hostile.approach(refused) {
        Some(victim) => hostile.obtain_keys(&victim),
        None => false,
    };

    assert!(!has_keys);
}

#[test]
fn a_hostile_member_reaches_nothing_behind_an_anchor_it_may_reach() {
    let mut town = Town::start();
    let allowed = town.holders[2].host.ipv4();
    let other = town.holders[1].host.ipv4();
    let mut hostile = Hostile::take_over(&mut town.clients[0].anchor, &["a"]);
    let friend = hostile.approach(allowed).expect("a member is heard");
    assert!(hostile.obtain_keys(&friend));
    let own = Ipv4Addr::new(192, 0, 0, 2);
    let foreign = [
        // Sources that are not its own: a LAN of somebody else, a client's address, the holder.
        (Ipv4Addr::new(10, 51, 0, 1), SHARED),
        (Ipv4Addr::new(198, 18, 0, 7), SHARED),
        (SHARED, SHARED),
        (Ipv4Addr::LOCALHOST, SHARED),
        // Destinations the holder does not serve: its underlay, another machine's, loopback, all.
        (own, allowed),
        (own, other),
        (own, Ipv4Addr::LOCALHOST),
        (own, Ipv4Addr::BROADCAST),
        (own, Ipv4Addr::new(224, 0, 0, 1)),
        (own, Ipv4Addr::new(192, 0, 0, 2)),
        (own, Ipv4Addr::new(198, 18, 0, 7)),
    ];

    for (number, (from, to)) in foreign.iter().enumerate() {
        hostile.send(
            &friend,
            &datagram(*from, *to, port::SINK, number as u64),
            None,
        );
    }
    hostile.send(&friend, &datagram(own, SHARED, port::SINK, 100), None);
    arrival_of(&town, 100);

    for holder in &town.holders {
        let numbers: Vec<u64> = holder.sink.arrived().iter().map(|a| a.number).collect();
        let wanted: &[u64] = if holder.host.name() == "ab" {
            &[100]
        } else {
            &[]
        };
        assert_eq!(numbers, wanted, "at {}", holder.host.name());
    }
}

#[test]
fn a_ticket_grants_no_more_than_was_asked_for() {
    let lab = Lab::new();
    let maker = Anchor::start(&lab.host("maker"), &Options::of("--taint a --taint b"));
    let ticket = maker.invite("--taint a");
    let joiner = lab.host("joiner");

    let answer = joiner
        .command(e2e::anchor::binary())
        .args([
            "--dir",
            "/run/anchor",
            "run",
            "--taint",
            "b",
            "--join",
            &ticket,
        ])
        .answer();

    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(
        answer.stderr.contains('b') && !joiner.outside_path("/run/anchor").exists(),
        "{answer:?}"
    );
}

/// Waits until a datagram has arrived somewhere: what was sent before it was judged before it.
fn arrival_of(town: &Town, number: u64) {
    wait::until(Duration::from_secs(3), "what is allowed to arrive", || {
        let mut holders = town.holders.iter();
        holders.any(|holder| holder.sink.arrived().iter().any(|one| one.number == number))
    });
}
