use proptest::prelude::*;
use std::time::Duration;

use super::*;
use crate::ids::Relayed;

const AMBER: PeerIx = PeerIx(1);
const BLUE: PeerIx = PeerIx(2);

/// Long after anything else here, so that no stranger is recent.
const LATER: Mono = Mono::from_nanos(1 << 60);

#[test]
fn dial_tries_every_candidate_until_one_answers() {
    let mut paths = paths_with(AMBER, &[1, 2]);
    let amber = paths.start_dial(LATER, AMBER).unwrap();

    assert_eq!(remotes(&paths, ms(0), amber), [at(1), at(2)]);
    assert_eq!(paths.handle_inbound(ms(5), way(2)), Some(amber));
    assert_eq!(remotes(&paths, ms(6), amber), [at(2)]);
    assert_eq!(paths.behind(amber), Some(way(2)));
}

#[test]
fn answer_is_held_to_for_a_second_after_the_last_word() {
    let mut paths = paths_with(AMBER, &[1, 2]);
    let amber = paths.start_dial(LATER, AMBER).unwrap();
    paths.handle_inbound(ms(0), way(1));
    paths.handle_inbound(ms(500), way(2));

    assert_eq!(remotes(&paths, ms(999), amber), [at(1)]);
    assert_eq!(remotes(&paths, ms(1000), amber), [at(1), at(2)]);

    paths.handle_inbound(ms(1000), way(2));
    assert_eq!(remotes(&paths, ms(1001), amber), [at(2)]);
}

#[test]
fn somebody_else_at_one_address_does_not_keep_a_peer_from_being_dialled_at_its_others() {
    let mut paths = paths_with(AMBER, &[1, 2, 3]);
    let amber = paths.start_dial(ms(0), AMBER).unwrap();
    paths.handle_inbound(ms(1), way(1));
    assert!(paths.shun_answerer(ms(2), AMBER), "there are others");

    assert_eq!(paths.start_dial(ms(2), AMBER), Ok(amber));
    // The last words of the one before come under the name QUIC knows it by, and count for nothing.
    assert_eq!(paths.handle_inbound(ms(3), way(1)), Some(amber));
    assert_eq!(remotes(&paths, ms(4), amber), [at(2), at(3)]);
    paths.handle_inbound(ms(5), way(2));
    assert!(paths.shun_answerer(ms(6), AMBER));
    paths.start_dial(ms(6), AMBER).unwrap();
    assert_eq!(remotes(&paths, ms(7), amber), [at(3)]);
    paths.end_dial(AMBER);

    // Who knows who lives there later.
    let later = ms(6) + SHUN_FOR;
    paths.start_dial(later, AMBER).unwrap();
    assert_eq!(remotes(&paths, later, amber), [at(1), at(2), at(3)]);
}

#[test]
fn a_peer_is_dialled_where_others_live_when_that_is_all_there_is() {
    let mut paths = paths_with(AMBER, &[1]);
    paths.start_dial(ms(0), AMBER).unwrap();
    assert!(!paths.shun_answerer(ms(1), AMBER), "nobody has answered");
    paths.end_dial(AMBER);
    let amber = paths.start_dial(ms(2), AMBER).unwrap();
    paths.handle_inbound(ms(3), way(1));

    assert!(!paths.shun_answerer(ms(4), AMBER), "there is no other");

    paths.start_dial(ms(5), AMBER).unwrap();
    assert_eq!(remotes(&paths, ms(5), amber), [at(1)]);
}

#[test]
fn a_relay_is_never_shunned() {
    let (relay, far) = (BLUE, AMBER);
    let relayed = Relayed { relay, far }.address();
    let mut paths = paths_with(AMBER, &[1]);
    paths.set_candidates(AMBER, &[at(1), relayed]);
    paths.start_dial(ms(0), AMBER).unwrap();
    paths.handle_inbound(ms(1), Way::to(relayed));

    assert!(!paths.shun_answerer(ms(2), AMBER));
}

#[test]
fn confirmed_peer_is_reached_by_its_current_way_only() {
    let mut paths = paths_with(AMBER, &[1, 2]);
    let amber = paths.start_dial(LATER, AMBER).unwrap();

    paths.confirm(AMBER, way(2));
    paths.end_dial(AMBER);

    assert_eq!(remotes(&paths, ms(0), amber), [at(2)]);
    assert_eq!(paths.handle_inbound(ms(0), way(2)), Some(amber));
    assert_eq!(
        paths.handle_inbound(ms(0), way(1)),
        Some(at(1)),
        "a mere candidate stays itself"
    );
    assert_eq!(paths.start_dial(LATER, AMBER), Ok(amber));
}

#[test]
fn a_machine_that_moved_sends_from_none_of_its_former_addresses() {
    let local = Some(IpAddr::from([192, 0, 2, 1]));
    let mut paths = paths_with(AMBER, &[1, 2]);
    let amber = paths.start_dial(LATER, AMBER).unwrap();
    let stranger = paths.start_unknown_dial(at(3)).unwrap();
    for place in [1, 3] {
        paths.handle_inbound(
            ms(0),
            Way {
                local,
                ..way(place)
            },
        );
    }
    let sources = |paths: &Paths| {
        let of = |to| paths.ways(ms(1), to)[0].local;
        [of(amber), of(stranger)]
    };
    assert_eq!(sources(&paths), [local, local]);

    paths.handle_moved();

    assert_eq!(sources(&paths), [None, None]);
    assert_eq!(remotes(&paths, ms(1), amber), [at(1)]);
    paths.confirm(AMBER, Way { local, ..way(1) });
    paths.handle_moved();
    assert_eq!(sources(&paths), [None, None]);
}

#[test]
fn source_without_owner_stays_itself() {
    let mut paths = paths_with(AMBER, &[1]);

    assert_eq!(paths.handle_inbound(ms(0), way(1)), Some(at(1)));
    assert_eq!(remotes(&paths, ms(0), at(1)), [at(1)]);
}

#[test]
fn made_up_source_is_refused() {
    let mut paths = paths_with(AMBER, &[1]);
    let amber = paths.start_dial(LATER, AMBER).unwrap();
    paths.confirm(
        AMBER,
        Way {
            remote: amber,
            local: None,
        },
    );

    assert_eq!(
        paths.handle_inbound(
            ms(0),
            Way {
                remote: amber,
                local: None
            }
        ),
        None
    );
    assert_eq!(paths.current(AMBER), None);
}

#[test]
fn dial_leaves_out_addresses_that_are_anothers() {
    let mut paths = paths_with(AMBER, &[1, 2]);
    paths.set_candidates(BLUE, &[at(2), at(3)]);
    paths.start_dial(LATER, AMBER).unwrap();

    let blue = paths.start_dial(LATER, BLUE).unwrap();

    assert_eq!(remotes(&paths, ms(0), blue), [at(3)]);
    paths.end_dial(BLUE);
    paths.set_candidates(BLUE, &[at(2)]);
    assert_eq!(paths.start_dial(LATER, BLUE), Err(CannotDial::Taken));
    assert_eq!(paths.start_unknown_dial(at(2)), Err(CannotDial::Taken));
}

#[test]
fn peer_without_candidates_cannot_be_dialled() {
    let mut paths = paths_with(AMBER, &[]);

    assert_eq!(
        paths.start_dial(LATER, AMBER),
        Err(CannotDial::NoCandidates)
    );
    assert_eq!(paths.start_dial(LATER, BLUE), Err(CannotDial::NoCandidates));
}

#[test]
fn newest_proof_takes_an_address_from_its_former_owner() {
    let mut paths = paths_with(AMBER, &[1]);
    paths.confirm(AMBER, way(1));

    paths.confirm(BLUE, way(1));

    assert_eq!(paths.current(AMBER), None);
    assert_eq!(paths.confirmed_at(at(1)), Some(BLUE));
    assert_eq!(paths.current(BLUE), Some(way(1)));
}

#[test]
fn proof_ends_the_dial_of_another_at_that_address() {
    let mut paths = paths_with(AMBER, &[1, 2]);
    let amber = paths.start_dial(LATER, AMBER).unwrap();
    paths.handle_inbound(ms(0), way(1));

    paths.confirm(BLUE, way(1));

    assert_eq!(remotes(&paths, ms(1), amber), [at(2)]);
    paths.end_dial(AMBER);
    assert_eq!(paths.confirmed_at(at(1)), Some(BLUE));
}

#[test]
fn dialled_address_becomes_one_more_name_of_its_peer() {
    let mut paths = Paths::new(7);
    let name = paths.start_unknown_dial(at(1)).unwrap();
    assert_eq!(remotes(&paths, ms(0), name), [at(1)]);
    assert_eq!(paths.handle_inbound(ms(0), way(1)), Some(name));

    paths.adopt(name, AMBER);

    assert_eq!(paths.current(AMBER), Some(way(1)));
    assert_eq!(paths.handle_inbound(ms(1), way(1)), Some(name));
    assert!(paths.roam(AMBER, way(9)));
    assert_eq!(remotes(&paths, ms(2), name), [at(9)]);
    assert_eq!(paths.handle_inbound(ms(2), way(9)), Some(name));

    paths.release(name);
    let own = paths.start_dial(LATER, AMBER).unwrap();
    assert_ne!(own, name);
    assert_eq!(paths.handle_inbound(ms(3), way(9)), Some(own));
    assert!(remotes(&paths, ms(3), name).is_empty());
}

#[test]
fn dialled_address_keeps_its_name_when_its_owner_proves_itself_otherwise() {
    let mut paths = Paths::new(7);
    let name = paths.start_unknown_dial(at(1)).unwrap();

    paths.confirm(AMBER, way(1));

    assert_eq!(paths.handle_inbound(ms(0), way(1)), Some(name));
    assert_eq!(remotes(&paths, ms(0), name), [at(1)]);
}

#[test]
fn released_name_gives_way_to_another_of_the_same_peer() {
    let mut paths = Paths::new(7);
    let first = paths.start_unknown_dial(at(1)).unwrap();
    let second = paths.start_unknown_dial(at(2)).unwrap();
    paths.adopt(first, AMBER);
    paths.adopt(second, AMBER);
    assert_eq!(paths.handle_inbound(ms(0), way(2)), Some(second));

    paths.release(second);

    assert_eq!(paths.handle_inbound(ms(0), way(2)), Some(first));
}

#[test]
fn roaming_needs_a_way_that_stands() {
    let mut paths = paths_with(AMBER, &[1]);

    assert!(!paths.roam(AMBER, way(5)));
    paths.confirm(AMBER, way(1));
    assert!(!paths.roam(AMBER, way(1)));
    assert!(paths.roam(AMBER, way(5)));
    assert_eq!(paths.confirmed_at(at(1)), None);
    assert_eq!(paths.confirmed_at(at(5)), Some(AMBER));
}

#[test]
fn farewell_of_a_demoted_peer_goes_the_last_way() {
    let mut paths = paths_with(AMBER, &[2]);
    let amber = paths.start_dial(LATER, AMBER).unwrap();
    paths.confirm(AMBER, way(1));
    paths.end_dial(AMBER);

    paths.demote(AMBER);

    assert_eq!(remotes(&paths, ms(0), amber), [at(1)]);
    assert_eq!(paths.confirmed_at(at(1)), None);
    paths.start_dial(LATER, AMBER).unwrap();
    assert_eq!(remotes(&paths, ms(0), amber), [at(2)]);
}

#[test]
fn candidates_are_cleaned_and_capped() {
    let mut paths = Paths::new(7);
    let bad = [
        "0.0.0.0:5",
        "10.0.0.1:0",
        "224.0.0.1:5",
        "255.255.255.255:5",
        "[::]:5",
        "[ff02::1]:5",
    ];
    let mut given: Vec<SocketAddr> = bad.iter().map(|text| text.parse().unwrap()).collect();
    given.push(made_up(Name::Peer(BLUE)));
    given.extend(
        ["[::ffff:10.0.0.1]:5", "10.0.0.1:5"].map(|text| text.parse::<SocketAddr>().unwrap()),
    );

    paths.set_candidates(AMBER, &given);
    assert_eq!(paths.candidates(AMBER), ["10.0.0.1:5".parse().unwrap()]);

    let many: Vec<SocketAddr> = (1..20).map(at).collect();
    paths.set_candidates(AMBER, &many);
    assert_eq!(paths.candidates(AMBER), &many[..MAX_CANDIDATES]);
}

#[test]
fn unknown_dials_are_bounded() {
    let mut paths = Paths::new(7);
    for port in 1..=MAX_UNKNOWN_DIALS {
        paths.start_unknown_dial(at(port as u16)).unwrap();
    }

    assert_eq!(paths.start_unknown_dial(at(900)), Err(CannotDial::TooMany));
    assert_eq!(
        Paths::new(7).start_unknown_dial("0.0.0.0:1".parse().unwrap()),
        Err(CannotDial::Unusable)
    );
}

#[derive(Clone, Debug)]
enum Step {
    Candidates(u8, Vec<u16>),
    StartDial(u8),
    EndDial(u8),
    StartUnknown(u16),
    Adopt(u8, u8),
    Release(u8),
    Confirm(u8, u16),
    Roam(u8, u16),
    Demote(u8),
    Forget(u8),
    Inbound(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let peer = 0_u8..4;
    let place = 1_u16..6;
    prop_oneof![
        (peer.clone(), prop::collection::vec(place.clone(), 0..4))
            .prop_map(|(peer, places)| Step::Candidates(peer, places)),
        peer.clone().prop_map(Step::StartDial),
        peer.clone().prop_map(Step::EndDial),
        place.clone().prop_map(Step::StartUnknown),
        (0_u8..8, peer.clone()).prop_map(|(name, peer)| Step::Adopt(name, peer)),
        (0_u8..8).prop_map(Step::Release),
        (peer.clone(), place.clone()).prop_map(|(peer, place)| Step::Confirm(peer, place)),
        (peer.clone(), place.clone()).prop_map(|(peer, place)| Step::Roam(peer, place)),
        peer.clone().prop_map(Step::Demote),
        peer.prop_map(Step::Forget),
        place.prop_map(Step::Inbound),
    ]
}

proptest! {
    #[test]
    fn every_address_has_one_owner_who_knows_it(steps in prop::collection::vec(step(), 0..80)) {
        let mut paths = Paths::new(3);
        let mut names = Vec::new();
        for (index, step) in steps.into_iter().enumerate() {
            apply(&mut paths, &mut names, ms(index as u64 * 100), step);
            check(&paths);
        }

        for peer in 0..4 {
            paths.forget(PeerIx(peer));
        }
        for name in names {
            paths.release(name);
        }
        prop_assert!(paths.owners.is_empty());
        prop_assert!(paths.unknown.is_empty());
        prop_assert!(paths.peers.is_empty());
    }
}

fn apply(paths: &mut Paths, names: &mut Vec<SocketAddr>, now: Mono, step: Step) {
    let peer = |peer: u8| PeerIx(u32::from(peer));
    let name = |names: &[SocketAddr], index: u8| names.get(usize::from(index)).copied();
    match step {
        Step::Candidates(who, places) => {
            let places: Vec<SocketAddr> = places.into_iter().map(at).collect();
            paths.set_candidates(peer(who), &places);
        }
        Step::StartDial(who) => drop(paths.start_dial(LATER, peer(who))),
        Step::EndDial(who) => paths.end_dial(peer(who)),
        Step::StartUnknown(place) => names.extend(paths.start_unknown_dial(at(place))),
        Step::Adopt(index, who) => {
            if let Some(name) = name(names, index) {
                paths.adopt(name, peer(who));
            }
        }
        Step::Release(index) => {
            if let Some(name) = name(names, index) {
                paths.release(name);
            }
        }
        Step::Confirm(who, place) => {
            paths.confirm(peer(who), way(place));
            assert_eq!(paths.current(peer(who)), Some(way(place)));
            assert_eq!(paths.confirmed_at(at(place)), Some(peer(who)));
        }
        Step::Roam(who, place) => drop(paths.roam(peer(who), way(place))),
        Step::Demote(who) => paths.demote(peer(who)),
        Step::Forget(who) => paths.forget(peer(who)),
        Step::Inbound(place) => {
            let seen = paths.handle_inbound(now, way(place)).unwrap();
            if paths.confirmed_at(at(place)).is_some() {
                assert_eq!(remotes(paths, now, seen), [at(place)], "answers go back");
            }
        }
    }
}

fn check(paths: &Paths) {
    for (remote, owner) in &paths.owners {
        match owner {
            Owner::Confirmed(peer) => {
                assert_eq!(paths.peers[peer].current.unwrap().remote, *remote)
            }
            Owner::Dialled(peer) => {
                assert!(
                    paths.peers[peer]
                        .dial
                        .as_ref()
                        .unwrap()
                        .remotes
                        .contains(remote)
                );
            }
            Owner::Unknown(index) => assert_eq!(paths.unknown[index].remote, *remote),
        }
    }
    for (peer, entry) in &paths.peers {
        if let Some(current) = entry.current {
            assert_eq!(
                paths.owners.get(&current.remote),
                Some(&Owner::Confirmed(*peer))
            );
        }
        if let Some(alias) = entry.alias {
            assert_eq!(paths.unknown[&alias].peer, Some(*peer));
        }
    }
}

fn paths_with(peer: PeerIx, ports: &[u16]) -> Paths {
    let mut paths = Paths::new(7);
    let candidates: Vec<SocketAddr> = ports.iter().copied().map(at).collect();
    paths.set_candidates(peer, &candidates);
    paths
}

fn remotes(paths: &Paths, now: Mono, to: SocketAddr) -> Vec<SocketAddr> {
    paths.ways(now, to).iter().map(|way| way.remote).collect()
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::new([192, 0, 2, 1].into(), port)
}

fn way(port: u16) -> Way {
    Way {
        remote: at(port),
        local: Some([192, 0, 2, 100].into()),
    }
}

fn ms(millis: u64) -> Mono {
    Mono::from_nanos(millis * 1_000_000)
}

#[test]
fn a_source_in_the_middle_of_a_handshake_keeps_its_name() {
    let now = Mono::from_nanos(5_000_000_000);
    let mut paths = Paths::new(7);
    paths.set_candidates(AMBER, &[at(1)]);
    let way = Way {
        remote: at(1),
        local: None,
    };

    assert_eq!(paths.handle_inbound(now, way), Some(at(1)));
    let during = paths.start_dial(now, AMBER);
    assert_eq!(paths.handle_inbound(now, way), Some(at(1)));
    let after = paths.start_dial(now + Duration::from_secs(2), AMBER);

    assert_eq!(during, Err(CannotDial::Taken));
    assert!(after.is_ok());
}

#[test]
fn a_source_that_loses_its_owner_in_a_handshake_keeps_its_name_until_it_is_silent() {
    let mut paths = paths_with(AMBER, &[1]);
    paths.confirm(AMBER, way(1));
    let name = paths.handle_inbound(ms(0), way(1)).unwrap();

    // The connections of its former life end while it dials anew.
    paths.demote(AMBER);

    assert_eq!(paths.handle_inbound(ms(1000), way(1)), Some(name));
    assert_eq!(remotes(&paths, ms(1000), name), [at(1)]);
    assert_eq!(paths.start_dial(ms(1000), AMBER), Ok(name));
    assert_eq!(paths.handle_inbound(ms(1500), way(1)), Some(name));
    paths.end_dial(AMBER);
    assert_eq!(paths.handle_inbound(ms(2000), way(1)), Some(name));
    assert_eq!(paths.handle_inbound(ms(4000), way(1)), Some(at(1)));
}

#[test]
fn answers_to_a_source_that_lost_its_owner_go_there_while_its_peer_is_dialled_elsewhere() {
    let mut paths = paths_with(AMBER, &[2, 3]);
    paths.confirm(AMBER, way(1));
    let name = paths.handle_inbound(ms(0), way(1)).unwrap();
    paths.demote(AMBER);
    paths.start_dial(ms(1), AMBER).unwrap();

    paths.handle_inbound(ms(2), way(1));

    assert_eq!(remotes(&paths, ms(2), name), [at(1)]);
}

#[test]
fn a_name_that_stands_for_nobody_is_not_kept() {
    let mut paths = Paths::new(7);
    let name = paths.start_unknown_dial(at(1)).unwrap();
    paths.handle_inbound(ms(0), way(1));

    paths.release(name);

    assert_eq!(paths.handle_inbound(ms(1), way(1)), Some(at(1)));
}
