use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const RANGE: &str = "198.18.0.0/15";
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 2));

#[test]
fn a_client_keeps_its_address_and_is_found_by_it() {
    let mut clients = table(RANGE);

    let address = assign(&mut clients, 0, 1, OWN).unwrap();

    assert_eq!(assign(&mut clients, 10_000_000, 1, OWN), Ok(address));
    assert_eq!(
        clients.resolve(at(10_000_000), address),
        Some((PeerIx(1), OWN))
    );
    assert_eq!(clients.peek(address), Some((PeerIx(1), OWN)));
    assert!(clients.range().contains(&address));
    assert_eq!(clients.len(), 1);
}

#[test]
fn each_peer_and_each_host_behind_it_is_a_client_of_its_own() {
    let mut clients = table(RANGE);

    let addresses: BTreeSet<_> = (0..50)
        .flat_map(|peer| (0..50).map(move |host| (peer, host)))
        .map(|(peer, host)| assign(&mut clients, 0, peer, lan(host)).unwrap())
        .collect();

    assert_eq!(addresses.len(), 2_500);
}

#[test]
fn a_client_has_the_same_address_on_every_holder() {
    let first = assign(&mut Clients::new(net(RANGE), 1), 0, 7, OWN);
    let second = assign(&mut Clients::new(net(RANGE), 2), 99, 7, OWN);

    assert_eq!(first, second);
}

#[test]
fn addresses_outside_of_the_mappings_belong_to_nobody() {
    let mut clients = table("198.18.0.0/28");
    assign(&mut clients, 0, 1, OWN).unwrap();

    for address in [
        "198.18.0.0",
        "198.18.0.15",
        "198.17.255.255",
        "0.0.0.0",
        "255.255.255.255",
    ] {
        assert_eq!(
            clients.resolve(at(0), address.parse().unwrap()),
            None,
            "{address}"
        );
    }
}

#[test]
fn every_address_but_the_first_and_last_of_the_range_is_given_out() {
    let mut clients = table("198.18.5.0/28");

    let addresses: BTreeSet<_> = (0..14)
        .map(|peer| assign(&mut clients, 0, peer, OWN).unwrap().octets()[3])
        .collect();

    assert_eq!(
        addresses.into_iter().collect::<Vec<_>>(),
        (1..=14).collect::<Vec<_>>()
    );
    assert_eq!(assign(&mut clients, 0, 99, OWN), Err(PoolFull::OfAll));
}

#[test]
fn one_peer_fills_an_eighth_of_the_pool_at_most() {
    let mut clients = table("198.18.0.0/24");

    for host in 0..31 {
        assign(&mut clients, 0, 1, lan(host)).unwrap();
    }

    assert_eq!(clients.peer_capacity(), 31);
    assert_eq!(assign(&mut clients, 0, 1, lan(31)), Err(PoolFull::OfPeer));
    assert!(
        assign(&mut clients, 0, 1, lan(30)).is_ok(),
        "its own mappings live on"
    );
    assert!(
        assign(&mut clients, 0, 2, OWN).is_ok(),
        "others are not hindered"
    );
}

#[test]
fn a_peer_at_its_bound_reclaims_its_own_oldest_idle_mapping() {
    let mut clients = table("198.18.0.0/26");
    for host in 0..7 {
        assign(&mut clients, u64::from(host), 1, lan(host)).unwrap();
    }
    let other = assign(&mut clients, 0, 2, OWN).unwrap();

    let late = assign(&mut clients, 961, 1, lan(7)).unwrap();

    assert_eq!(clients.peek(late), Some((PeerIx(1), lan(7))));
    assert_eq!(
        clients.peek(other),
        Some((PeerIx(2), OWN)),
        "another's older one stays"
    );
    assert!(!hosts(&clients).contains(&lan(0)));
    assert!(hosts(&clients).contains(&lan(1)));
}

#[test]
fn a_mapping_is_not_handed_on_before_it_was_idle_for_16_minutes() {
    let mut clients = full("198.18.0.0/28");

    assert_eq!(assign(&mut clients, 16 * 60, 99, OWN), Err(PoolFull::OfAll));
    assert!(assign(&mut clients, 16 * 60 + 1, 99, OWN).is_ok());
}

#[test]
fn a_full_pool_hands_on_the_mapping_that_was_idle_for_longest() {
    let mut clients = full("198.18.0.0/28");
    let kept = assign(&mut clients, 500, 3, OWN).unwrap();
    for lease in clients.export() {
        if lease.address != kept && lease.key != key(8) {
            clients.resolve(at(600), lease.address);
        }
    }

    let given = assign(&mut clients, 2_000, 99, OWN).unwrap();
    let next = assign(&mut clients, 2_000, 98, OWN).unwrap();

    assert_eq!(clients.peek(given), Some((PeerIx(99), OWN)));
    assert_eq!(next, kept, "peer 8 was idle for longest, then peer 3");
    assert!(
        clients
            .export()
            .iter()
            .all(|lease| lease.key != key(8) && lease.key != key(3))
    );
}

#[test]
fn traffic_in_either_direction_keeps_a_mapping() {
    let mut clients = full("198.18.0.0/28");
    let address = assign(&mut clients, 0, 0, OWN).unwrap();
    clients.resolve(at(900), address);

    for peer in 20..33 {
        assign(&mut clients, 1_500, peer, OWN).unwrap();
    }

    assert_eq!(clients.peek(address), Some((PeerIx(0), OWN)));
    assert_eq!(assign(&mut clients, 1_500, 33, OWN), Err(PoolFull::OfAll));
}

#[test]
fn mappings_survive_a_restart() {
    let mut before = table("198.18.0.0/24");
    for peer in 0..20 {
        assign(&mut before, u64::from(peer) * 100, peer, lan(peer as u8)).unwrap();
    }
    let saved = before.export();

    let mut after = Clients::new(net("198.18.0.0/24"), 99);
    // The new process numbers its peers in another way.
    let restored = after.import(
        at(5_000),
        saved
            .iter()
            .map(|lease| (PeerIx(100 + u32::from(lease.key.0[0])), *lease)),
    );

    assert_eq!(restored, 20);
    assert_eq!(after.export(), saved);
    for lease in saved {
        let peer = PeerIx(100 + u32::from(lease.key.0[0]));
        assert_eq!(after.peek(lease.address), Some((peer, lease.host)));
    }
}

#[test]
fn saved_mappings_that_do_not_fit_are_left_out() {
    let mut clients = table("198.18.0.0/28");
    let lease = |address: &str, host| Lease {
        key: key(1),
        host: lan(host),
        address: address.parse().unwrap(),
        last_used: at(5),
    };
    let saved = [
        (PeerIx(1), lease("198.18.0.3", 1)),
        (PeerIx(2), lease("198.18.0.3", 2)),
        (PeerIx(1), lease("198.18.0.4", 1)),
        (PeerIx(1), lease("198.18.0.5", 3)),
        (PeerIx(3), lease("198.18.0.0", 4)),
        (PeerIx(3), lease("198.18.0.15", 4)),
        (PeerIx(3), lease("10.0.0.1", 4)),
    ];

    assert_eq!(clients.import(at(9), saved), 1);
    assert_eq!(
        clients.peek("198.18.0.3".parse().unwrap()),
        Some((PeerIx(1), lan(1)))
    );
    assert_eq!(clients.len(), 1);
}

#[test]
fn a_mapping_saved_with_a_later_clock_counts_as_just_used() {
    let mut clients = table("198.18.0.0/28");
    let saved = Lease {
        key: key(1),
        host: OWN,
        address: Ipv4Addr::new(198, 18, 0, 9),
        last_used: at(99_999),
    };

    clients.import(at(10), [(PeerIx(1), saved)]);

    assert_eq!(clients.export()[0].last_used, at(10));
}

#[test]
fn the_revision_grows_with_changes_of_the_mappings_only() {
    let mut clients = table(RANGE);
    let empty = clients.revision();
    let address = assign(&mut clients, 0, 1, OWN).unwrap();
    let one = clients.revision();

    assign(&mut clients, 100, 1, OWN).unwrap();
    clients.resolve(at(200), address);

    assert!(one > empty);
    assert_eq!(clients.revision(), one);
}

#[test]
fn a_range_without_usable_addresses_is_full() {
    for range in ["198.18.0.0/31", "198.18.0.0/32"] {
        let mut clients = table(range);

        assert_eq!(
            assign(&mut clients, 0, 1, OWN),
            Err(PoolFull::OfAll),
            "{range}"
        );
        assert_eq!(clients.resolve(at(0), Ipv4Addr::new(198, 18, 0, 1)), None);
    }
}

#[test]
fn a_wide_range_holds_no_more_mappings_than_the_bound() {
    assert_eq!(table("10.0.0.0/8").capacity(), MAX_CLIENTS);
    assert_eq!(table(RANGE).capacity(), MAX_CLIENTS);
}

#[derive(Clone, Debug)]
enum Step {
    Assign(u32, u8),
    Resolve(u8),
    Wait(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8_u32, 0..6_u8).prop_map(|(peer, host)| Step::Assign(peer, host)),
        3 => (0..32_u8).prop_map(Step::Resolve),
        2 => (0..1_200_u64).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

/// What the module promises, told the plain way.
#[derive(Default)]
struct Model {
    now: u64,
    mappings: BTreeMap<(u32, u8), (Ipv4Addr, u64)>,
}

impl Model {
    fn assigned(
        &mut self,
        clients: &Clients,
        peer: u32,
        host: u8,
        got: Result<Ipv4Addr, PoolFull>,
    ) {
        if let Some((address, last_used)) = self.mappings.get_mut(&(peer, host)) {
            assert_eq!(got, Ok(*address));
            *last_used = self.now;
            return;
        }
        let of_peer = self
            .mappings
            .keys()
            .filter(|(other, _)| *other == peer)
            .count();
        let at_bound = of_peer >= clients.peer_capacity();
        let is_full = self.mappings.len() >= clients.capacity();
        let oldest = self
            .mappings
            .iter()
            .filter(|((other, _), _)| !at_bound || *other == peer)
            .map(|(_, (_, last_used))| *last_used)
            .min();
        let reclaims = at_bound || is_full;
        if reclaims && oldest.is_none_or(|oldest| self.now - oldest < 961) {
            assert_eq!(
                got,
                Err(if at_bound {
                    PoolFull::OfPeer
                } else {
                    PoolFull::OfAll
                })
            );
            return;
        }
        let address = got.unwrap();
        if reclaims {
            let left: Vec<_> = self
                .mappings
                .iter()
                .filter(|(_, (taken, _))| match clients.peek(*taken) {
                    Some((peer, lan_host)) => {
                        !self.mappings.contains_key(&(peer.0, last_octet(lan_host)))
                    }
                    None => true,
                })
                .map(|(client, (_, last_used))| (*client, *last_used))
                .collect();
            let [(client, last_used)] = left[..] else {
                panic!("one is reclaimed: {left:?}")
            };
            assert_eq!(Some(last_used), oldest);
            self.mappings.remove(&client);
        }
        assert!(self.mappings.values().all(|(taken, _)| *taken != address));
        self.mappings.insert((peer, host), (address, self.now));
    }
}

proptest! {
    #[test]
    fn the_table_does_what_the_model_says(
        length in 27..=28_u8, steps in prop::collection::vec(step(), 1..200)
    ) {
        let range = Ipv4Net::new(Ipv4Addr::new(198, 18, 7, 0), length).unwrap();
        let mut clients = Clients::new(range, 3);
        let mut model = Model::default();

        for step in steps {
            match step {
                Step::Assign(peer, host) => {
                    let got = assign(&mut clients, model.now, peer, lan(host));
                    model.assigned(&clients, peer, host, got);
                }
                Step::Resolve(last) => {
                    let address = Ipv4Addr::new(198, 18, 7, last);
                    let got = clients.resolve(at(model.now), address);
                    let now = model.now;
                    let told = model.mappings.iter_mut().find(|(_, (taken, _))| *taken == address);
                    let expected = told.map(|(client, (_, last_used))| {
                        *last_used = now;
                        (PeerIx(client.0), lan(client.1))
                    });
                    prop_assert_eq!(got, expected);
                }
                Step::Wait(seconds) => model.now += seconds,
                Step::Restart => {
                    let saved: Vec<_> = clients.export();
                    clients = Clients::new(range, model.now);
                    let numbered =
                        saved.iter().map(|lease| (PeerIx(u32::from(lease.key.0[0])), *lease));
                    prop_assert_eq!(clients.import(at(model.now), numbered), saved.len());
                }
            }

            let exported = clients.export();
            prop_assert!(exported.is_sorted_by_key(|lease| lease.last_used));
            let table: BTreeMap<_, _> = exported
                .into_iter()
                .map(|lease| {
                    let client = (u32::from(lease.key.0[0]), last_octet(lease.host));
                    (client, (lease.address, lease.last_used.as_nanos() / 1_000_000_000))
                })
                .collect();
            prop_assert_eq!(&table, &model.mappings);
            prop_assert_eq!(clients.len(), model.mappings.len());
        }
    }
}

fn table(range: &str) -> Clients {
    Clients::new(net(range), 1)
}

/// Fills `range` with one client of each of as many peers as it takes, at second 0.
fn full(range: &str) -> Clients {
    let mut clients = table(range);
    for peer in 0..clients.capacity() as u32 {
        assign(&mut clients, 0, peer, OWN).unwrap();
    }
    clients
}

fn assign(clients: &mut Clients, secs: u64, peer: u32, host: IpAddr) -> Result<Ipv4Addr, PoolFull> {
    clients.assign(at(secs), PeerIx(peer), &key(peer), host)
}

fn key(peer: u32) -> AnchorKey {
    AnchorKey([peer as u8; 32])
}

fn lan(host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 168, 1, host))
}

fn last_octet(host: IpAddr) -> u8 {
    match host {
        IpAddr::V4(host) => host.octets()[3],
        IpAddr::V6(_) => panic!("clients here are IPv4"),
    }
}

fn hosts(clients: &Clients) -> Vec<IpAddr> {
    clients
        .export()
        .into_iter()
        .map(|lease| lease.host)
        .collect()
}

fn at(secs: u64) -> Boot {
    Boot::default() + Duration::from_secs(secs)
}

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}
