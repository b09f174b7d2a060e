use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[test]
fn rows_are_sorted_numerically_and_tell_state_and_reason() {
    let mut own = own();
    own.ipv4 = Some("10.128.0.101".parse().unwrap());
    own.ipv4_advertised = true;
    let peers = [
        holding(
            1,
            "10.128.0.9",
            &["fd12:3456:78::/40", "10.9.0.0/16", "8.8.8.0/24"],
        ),
        holding(
            2,
            "10.128.0.9",
            &["9.0.0.0/8", "10.0.0.0/7", "127.0.0.0/8", "fd00::/16"],
        ),
    ];

    let routes = build(&own, &peers);

    assert_eq!(
        told(&routes),
        [
            "8.8.8.0/24 refused public address",
            "9.0.0.0/8 refused public address",
            "10.0.0.0/7 refused too wide",
            "10.9.0.0/16 accepted -",
            "10.128.0.9/32 accepted -",
            "10.128.0.101/32 served -",
            "127.0.0.0/8 refused reserved range",
            "fd00::/16 refused too wide",
            "fd12:3456::/40 accepted -",
        ]
    );
}

#[test]
fn every_accepted_advertiser_is_listed_by_its_id() {
    let peers: Vec<_> = (1..=9)
        .map(|number| holding(number, "10.128.0.9", &[]))
        .collect();

    let routes = build(&own(), &peers);

    let via: Vec<_> = routes.rows()[0]
        .via
        .iter()
        .map(|key| key.id().to_string())
        .collect();
    assert_eq!(via.len(), 9);
    assert!(via.is_sorted(), "{via:?}");
    let holders = &routes.groups()[0].holders;
    assert_eq!(
        holders
            .iter()
            .map(|peer| routes.peer(*peer).unwrap().key)
            .collect::<Vec<_>>(),
        routes.rows()[0].via
    );
}

#[test]
fn judgement_goes_by_network_then_grant_then_this_machine() {
    let mut own = own();
    own.client_range = "172.20.0.0/16".parse().unwrap();
    own.local_networks = nets(&["192.168.1.0/24", "192.168.0.0/16", "2001:db8:5::/48"]);
    let table = [
        ("192.168.1.0/24", "overlaps local network 192.168.1.0/24"),
        ("192.168.1.7/32", "overlaps local network 192.168.1.0/24"),
        ("192.168.2.0/24", "overlaps local network 192.168.0.0/16"),
        ("192.168.0.0/15", "public address"),
        (
            "2001:db8:5:1::/64",
            "overlaps local network 2001:db8:5::/48",
        ),
        ("2001:db8::/32", "-"),
        ("2001:d00::/24", "too wide"),
        ("172.20.5.0/24", "reserved range"),
        ("172.16.0.0/12", "-"),
        ("198.18.0.0/16", "reserved range"),
        ("192.0.0.2/32", "reserved range"),
        ("0.0.0.0/0", "too wide"),
        ("255.255.255.255/32", "reserved range"),
        ("::/0", "too wide"),
        ("::ffff:10.0.0.0/104", "reserved range"),
        ("64:ff9b:1::a80:9/128", "reserved range"),
        ("fe80::/64", "reserved range"),
        ("ff02::1/128", "reserved range"),
        ("fd80:1:2:99::/64", "reserved range"),
        ("fd80:1::/32", "reserved range"),
        ("fd80:1:3::/48", "-"),
    ];
    for (network, why) in table {
        let routes = build(&own, &[holding(1, "10.0.0.1", &[network])]);
        let mut ungranted = holding(1, "10.0.0.1", &[]);
        ungranted.networks = vec![Claim {
            network: network.parse().unwrap(),
            granted: false,
        }];
        let without_grant = build(&own, &[ungranted]);

        let network: IpNet = network.parse().unwrap();
        assert_eq!(why_of(&routes, network), why, "{network}");
        let is_about_grant = why == "-" || why.starts_with("overlaps");
        let expected = if is_about_grant { "not granted" } else { why };
        assert_eq!(why_of(&without_grant, network), expected, "{network}");
    }
}

#[test]
fn one_accepted_advertiser_makes_the_network_accepted() {
    let granted = holding(1, "10.128.0.9", &[]);
    let mut ungranted = holding(2, "10.128.0.9", &[]);
    ungranted.ipv4 = ungranted.ipv4.map(|claim| Claim {
        granted: false,
        ..claim
    });

    let routes = build(&own(), &[ungranted, granted]);

    assert_eq!(told(&routes), ["10.128.0.9/32 accepted -"]);
    assert_eq!(holders(&routes, "10.128.0.9"), [1]);
    assert!(routes.holds(PeerIx(1), net("10.128.0.9/32")));
    assert!(!routes.holds(PeerIx(2), net("10.128.0.9/32")));
    assert!(!routes.may_send(PeerIx(2), ip("10.128.0.9")));
}

#[test]
fn the_longest_prefix_wins() {
    let peers = [
        holding(1, "10.128.0.9", &["10.0.0.0/8"]),
        holding(2, "10.128.0.10", &["10.128.0.0/16", "10.0.0.0/8"]),
    ];

    let routes = build(&own(), &peers);

    assert_eq!(holders(&routes, "10.128.0.9"), [1]);
    assert_eq!(holders(&routes, "10.128.0.11"), [2]);
    assert_eq!(sorted(holders(&routes, "10.7.0.1")), [1, 2]);
    assert_eq!(routes.lookup(ip("11.0.0.1")), None);
}

#[test]
fn both_spellings_lead_to_the_same_group() {
    let routes = build(&own(), &[holding(1, "10.128.0.9", &[])]);

    let spelled = routes.lookup(ip("64:ff9b:1::a80:9"));

    assert_eq!(spelled, routes.lookup(ip("10.128.0.9")));
    assert_eq!(holders(&routes, "64:ff9b:1::a80:9"), [1]);
    assert_eq!(routes.lookup(ip("64:ff9b:1::1:a80:9")), None);
}

#[test]
fn a_peer_is_reached_by_its_overlay_address_and_has_no_row_for_it() {
    let peers = [holding(1, "10.128.0.9", &[]), holding(2, "10.128.0.9", &[])];

    let routes = build(&own(), &peers);

    assert_eq!(holders(&routes, "fd80:1:2::2"), [2]);
    assert_eq!(routes.lookup(ip("fd80:1:2::3")), None);
    assert_eq!(routes.lookup(IpAddr::V6(own().overlay)), Some(Route::Local));
    assert_eq!(routes.rows().len(), 1);
    assert!(routes.holds(PeerIx(2), net("fd80:1:2::2/128")));
    assert_eq!(
        routes.group(net("fd80:1:2::2/128")).unwrap().holders,
        [PeerIx(2)]
    );
    assert_eq!(routes.group(net("fd80:1:2::/48")), None);
}

#[test]
fn what_this_anchor_serves_it_answers_itself() {
    let mut own = own();
    own.ipv4 = Some("10.128.0.9".parse().unwrap());
    own.ipv4_advertised = true;
    own.networks = nets(&["192.168.7.0/24"]);
    own.local_networks = nets(&["192.168.7.0/24"]);

    let routes = build(&own, &[holding(1, "10.128.0.9", &["192.168.0.0/16"])]);

    assert_eq!(routes.lookup(ip("10.128.0.9")), Some(Route::Local));
    assert_eq!(routes.lookup(ip("64:ff9b:1::a80:9")), Some(Route::Local));
    assert_eq!(routes.lookup(ip("192.168.7.3")), Some(Route::Local));
    assert_eq!(holders(&routes, "192.168.8.3"), [1]);
    assert_eq!(
        told(&routes),
        [
            "10.128.0.9/32 served -",
            "192.168.0.0/16 accepted -",
            "192.168.7.0/24 served -"
        ]
    );
    assert!(routes.rows()[0].via.is_empty());
    assert_eq!(routes.groups().len(), 1);
    for served in ["10.128.0.9", "192.168.7.3", "fd80:1:2::ffff"] {
        assert!(routes.serves(ip(served)), "{served}");
    }
    for other in [
        "10.128.0.10",
        "192.168.8.3",
        "fd80:1:2::1",
        "127.0.0.1",
        "64:ff9b:1::a80:9",
    ] {
        assert!(!routes.serves(ip(other)), "{other}");
    }
}

#[test]
fn an_own_public_address_is_unadvertised_and_serves_nobody() {
    let mut own = own();
    own.ipv4 = Some("8.8.4.4".parse().unwrap());

    let routes = build(&own, &[holding(1, "8.8.4.4", &[])]);

    assert_eq!(told(&routes), ["8.8.4.4/32 unadvertised public address"]);
    assert_eq!(routes.lookup(ip("8.8.4.4")), Some(Route::Local));
    assert!(!routes.serves(ip("8.8.4.4")));
}

#[test]
fn an_own_address_beyond_the_grant_is_unadvertised() {
    let mut own = own();
    own.ipv4 = Some("10.1.1.1".parse().unwrap());

    assert_eq!(
        told(&build(&own, &[])),
        ["10.1.1.1/32 unadvertised not granted"]
    );
}

#[test]
fn an_own_subnet_that_nobody_would_accept_is_refused() {
    let mut own = own();
    own.networks = nets(&["8.8.8.0/24"]);

    let routes = build(&own, &[]);

    assert_eq!(told(&routes), ["8.8.8.0/24 refused public address"]);
    assert!(!routes.serves(ip("8.8.8.8")));
}

#[test]
fn anchors_of_other_compartments_contribute_nothing() {
    let mut stranger = holding(1, "10.128.0.9", &["10.0.0.0/8", "8.0.0.0/8"]);
    stranger.may_exchange = false;

    let routes = build(&own(), &[stranger]);

    assert!(routes.rows().is_empty());
    assert_eq!(routes.lookup(ip("10.128.0.9")), None);
    assert_eq!(routes.lookup(ip("fd80:1:2::1")), None);
    for source in ["192.0.0.2", "10.128.0.9", "fd80:1:2::1", "10.1.1.1"] {
        assert!(!routes.may_send(PeerIx(1), ip(source)), "{source}");
    }
    assert!(!routes.holds(PeerIx(1), net("10.128.0.9/32")));
    assert!(!routes.holds(PeerIx(1), net("fd80:1:2::1/128")));
    assert!(routes.peer(PeerIx(1)).is_some());
}

#[test]
fn a_refused_claim_takes_nothing_out_of_a_wider_group() {
    let mut thief = holding(2, "10.0.0.2", &[]);
    thief.networks = vec![Claim {
        network: net("10.5.0.0/16"),
        granted: false,
    }];

    let routes = build(
        &own(),
        &[holding(1, "10.0.0.1", &["10.0.0.0/8"]), thief.clone()],
    );
    let alone = build(&own(), &[thief]);

    assert_eq!(holders(&routes, "10.5.1.1"), [1]);
    assert_eq!(
        alone.lookup(ip("10.5.1.1")),
        Some(Route::Refused(Why::NotGranted))
    );
}

#[test]
fn client_addresses_lead_into_no_group() {
    let mut own = own();
    own.client_range = "10.7.0.0/16".parse().unwrap();

    let routes = build(&own, &[holding(1, "10.0.0.1", &["10.0.0.0/8"])]);

    assert_eq!(
        routes.lookup(ip("10.7.3.4")),
        Some(Route::Refused(Why::ReservedRange))
    );
    assert_eq!(holders(&routes, "10.8.3.4"), [1]);
    assert_eq!(routes.rows().len(), 2);
}

#[test]
fn sources_are_bound_to_their_peer() {
    let mut own = own();
    own.local_networks = nets(&["192.168.1.0/24", "2001:db8:1::/64"]);
    let peers = [
        holding(
            1,
            "10.128.0.9",
            &[
                "192.168.1.0/24",
                "172.16.4.0/24",
                "2001:db8:1::/64",
                "8.0.0.0/8",
            ],
        ),
        holding(2, "10.128.0.10", &[]),
    ];

    let routes = build(&own, &peers);

    let first = [
        "192.0.0.2",
        "fd80:1:2::1",
        "10.128.0.9",
        "172.16.4.77",
        "192.168.1.5",
    ];
    for source in first {
        assert!(routes.may_send(PeerIx(1), ip(source)), "{source}");
    }
    for source in [
        "10.128.0.10",
        "fd80:1:2::2",
        "8.8.8.8",
        "127.0.0.1",
        "2001:db8:1::7",
        "0.0.0.0",
    ] {
        assert!(!routes.may_send(PeerIx(1), ip(source)), "{source}");
    }
    for source in &first[1..] {
        assert!(!routes.may_send(PeerIx(2), ip(source)), "{source}");
    }
    assert!(
        !routes.may_send(PeerIx(3), ip("192.0.0.2")),
        "an unknown peer"
    );
}

#[test]
fn a_network_claimed_twice_by_one_peer_counts_once() {
    let routes = build(
        &own(),
        &[holding(
            1,
            "10.0.0.1",
            &["10.0.0.1/32", "10.9.3.3/16", "10.9.0.0/16"],
        )],
    );

    assert!(
        routes
            .groups()
            .iter()
            .all(|group| group.holders == [PeerIx(1)])
    );
    assert_eq!(
        told(&routes),
        ["10.0.0.1/32 accepted -", "10.9.0.0/16 accepted -"]
    );
}

#[test]
fn names_show_both_spellings() {
    let table = [
        ("10.128.0.9/32", "10.128.0.9/32 (64:ff9b:1::a80:9/128)"),
        ("10.128.0.101/32", "10.128.0.101/32 (64:ff9b:1::a80:65/128)"),
        ("10.0.0.0/8", "10.0.0.0/8 (64:ff9b:1::a00:0/104)"),
        ("fd12::/32", "fd12::/32"),
    ];
    for (network, name) in table {
        assert_eq!(NetworkName(net(network)).to_string(), name);
    }
}

proptest! {
    #[test]
    fn lookups_agree_with_a_plain_search(
        claims in prop::collection::vec((0..6_u32, any::<(u32, bool)>(), 8..=32_u8), 0..40),
        probes in prop::collection::vec(any::<u32>(), 1..40),
    ) {
        // A small corner of 10.0.0.0/8, so that prefixes nest.
        let inside = |bits: u32| Ipv4Addr::from_bits(0x0a00_0000 | bits & 0x0003_0303);
        let mut peers: Vec<_> = (0..6).map(|number| holding(number, "10.255.0.1", &[])).collect();
        let mut plain: BTreeMap<IpNet, Vec<u32>> = BTreeMap::new();
        for (peer, (bits, granted), length) in claims {
            let network = IpNet::V4(Ipv4Net::new(inside(bits), length).unwrap());
            peers[peer as usize].networks.push(Claim { network, granted });
            if granted {
                plain.entry(network.trunc()).or_default().push(peer);
            }
        }

        let routes = build(&own(), &peers);

        for bits in probes {
            let address = IpAddr::V4(inside(bits));
            let longest = plain
                .iter()
                .filter(|(network, _)| network.contains(&address))
                .max_by_key(|(network, _)| network.prefix_len());
            match (routes.lookup(address), longest) {
                (Some(Route::Group(group)), Some((network, peers))) => {
                    let mut expected = peers.clone();
                    expected.sort_unstable();
                    expected.dedup();
                    prop_assert_eq!(group.network, *network);
                    prop_assert_eq!(sorted(group.holders.iter().map(|peer| peer.0).collect()), expected);
                    prop_assert!(group.holders.iter().all(|peer| routes.holds(*peer, *network)));
                    prop_assert!(group.holders.iter().all(|peer| routes.may_send(*peer, address)));
                    prop_assert_eq!(routes.group(*network), Some(group));
                }
                (Some(Route::Refused(Why::NotGranted)) | None, None) => {}
                (found, expected) => prop_assert!(false, "{found:?}, not {expected:?}"),
            }
        }
        prop_assert!(routes.rows().is_sorted_by_key(|row| row.network));
    }

    #[test]
    fn any_claim_gets_a_row(bits: u128, length in 0..=128_u8, granted: bool, is_ipv4: bool) {
        let network = if is_ipv4 {
            IpNet::V4(Ipv4Net::new(Ipv4Addr::from_bits(bits as u32), length % 33).unwrap())
        } else {
            IpNet::V6(Ipv6Net::new(Ipv6Addr::from_bits(bits), length).unwrap())
        };
        let mut peer = holding(1, "10.0.0.1", &[]);
        peer.ipv4 = None;
        peer.networks.push(Claim { network, granted });

        let routes = build(&own(), &[peer]);

        prop_assert_eq!(routes.rows().len(), 1);
        let row = &routes.rows()[0];
        prop_assert_eq!(row.network, network.trunc());
        prop_assert_eq!(row.state == State::Accepted, row.why.is_none());
        prop_assert_eq!(routes.group(network).is_some(), row.why.is_none());
    }
}

fn own() -> OwnFacts {
    OwnFacts {
        key: AnchorKey([255; 32]),
        overlay: "fd80:1:2::ffff".parse().unwrap(),
        ipv4: None,
        ipv4_advertised: false,
        networks: Vec::new(),
        local_networks: Vec::new(),
        client_range: DEFAULT_CLIENT_RANGE,
    }
}

fn holding(number: u32, ipv4: &str, networks: &[&str]) -> PeerFacts {
    let claims = nets(networks);
    PeerFacts {
        peer: PeerIx(number),
        key: AnchorKey([number as u8; 32]),
        overlay: format!("fd80:1:2::{number:x}").parse().unwrap(),
        ipv4: Some(Claim {
            network: ipv4.parse().unwrap(),
            granted: true,
        }),
        networks: claims
            .into_iter()
            .map(|network| Claim {
                network,
                granted: true,
            })
            .collect(),
        may_exchange: true,
        draining: false,
    }
}

fn told(routes: &Routes) -> Vec<String> {
    let told = |row: &Row| {
        let why = row
            .why
            .map_or_else(|| "-".to_owned(), |why| why.to_string());
        format!("{} {} {why}", row.network, row.state)
    };
    routes.rows().iter().map(told).collect()
}

fn why_of(routes: &Routes, network: IpNet) -> String {
    let row = routes
        .rows()
        .iter()
        .find(|row| row.network == network.trunc())
        .unwrap();
    row.why
        .map_or_else(|| "-".to_owned(), |why| why.to_string())
}

fn holders(routes: &Routes, destination: &str) -> Vec<u32> {
    match routes.lookup(ip(destination)) {
        Some(Route::Group(group)) => group.holders.iter().map(|peer| peer.0).collect(),
        Some(Route::Local | Route::Refused(_)) | None => Vec::new(),
    }
}

fn sorted(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| net(text)).collect()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}
