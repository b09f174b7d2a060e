//! Taints: clients in different compartments meet different holders at one address, and anchors
//! that may not exchange data see each other without being able to.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use e2e::scenario::{Client, Holder, SETTLE_LIMIT, SHARED_NETWORK, port};
use e2e::{Anchor, Lab, Options, wait, work};

#[test]
fn each_compartment_reaches_exactly_the_holders_it_may() {
    let town = Town::start();

    for (client, wanted) in
        town.clients
            .iter()
            .zip([["a", "ab"].as_slice(), &["b", "ab"], &["a", "b", "ab"]])
    {
        let lan = client.lan.as_ref().unwrap();
        let met: BTreeSet<String> = lan.who_answers(&lan.addresses(1, 40)).into_iter().collect();

        let wanted: BTreeSet<String> = wanted.iter().map(ToString::to_string).collect();
        assert_eq!(met, wanted, "client {}", client.host.name());
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

/// Holders and LAN clients of {a}, {b} and {a,b}.
struct Town {
    clients: Vec<Client>,
    holders: Vec<Holder>,
    _maker: Anchor,
    _lab: Lab,
}

impl Town {
    fn start() -> Self {
        let lab = Lab::new();
        let maker = Anchor::start(&lab.host("maker"), &Options::of("--taint a --taint b"));
        let sets = [
            ("a", "--taint a"),
            ("b", "--taint b"),
            ("ab", "--taint a --taint b"),
        ];
        let tickets = sets.map(|(_, taints)| maker.invite(&format!("{taints} --advertise any")));
        let holders: Vec<Holder> = sets
            .iter()
            .zip(&tickets)
            .map(|((name, _), ticket)| Holder::start(&lab.host(name), Some(ticket)))
            .collect();
        let clients: Vec<Client> = sets
            .iter()
            .zip(&tickets)
            .enumerate()
            .map(|(number, ((name, _), ticket))| {
                Client::with_lan(&lab, &lab.host(&format!("client-{name}")), number, ticket)
            })
            .collect();
        for (client, wanted) in clients.iter().zip([2, 2, 3]) {
            wait::until_equal(SETTLE_LIMIT, "holders in `routes`", &wanted, || {
                client
                    .anchor
                    .route(SHARED_NETWORK)
                    .map_or(0, |row| row.via.len())
            });
            wait::until(SETTLE_LIMIT, "all anchors to be known and measured", || {
                let peers = client.anchor.peers();
                let usable = peers.iter().filter(|peer| peer.rtt_micros.is_some());
                peers.len() == 6 && usable.count() >= wanted
            });
        }
        Self {
            clients,
            holders,
            _maker: maker,
            _lab: lab,
        }
    }
}
