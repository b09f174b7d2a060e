//! What `explain` is told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::host::HTTP;
use super::node::Spec;
use super::realm::{Realm, SHARED, ms, peer};
use super::tcp::Connection;
use crate::ids::Host;
use crate::plane::{Excluded, Explained, Found, NoSuchHost, OWN_HOST};
use crate::reason::Reason;
use crate::translate::spelled;

#[test]
fn a_flow_is_explained_by_both_spellings_with_holder_reason_and_shares() {
    let mut realm = Realm::of_holders(1, 3);
    connect(&mut realm, 40_000);
    let holder = realm.holder(0, SHARED).unwrap();

    for address in [IpAddr::V4(SHARED), spelled(SHARED).into()] {
        let explained = explain(&realm, address);

        assert_eq!(explained.destination, IpAddr::V4(SHARED));
        assert_eq!(explained.host, Host::Own);
        assert_eq!(
            explained.found,
            Found::Group("10.128.0.9/32".parse().unwrap())
        );
        let flow = explained.flow.as_ref().unwrap();
        assert_eq!(flow.flow.holder, Some(peer(holder)));
        assert_eq!(flow.flow.reason, Reason::New);
        assert_eq!(flow.connections, 1);
        let shares: Vec<f64> = explained
            .holders
            .iter()
            .map(|view| view.share.unwrap())
            .collect();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
        assert!(explained.holders.iter().all(|view| view.has_session));
    }
}

#[test]
fn asking_moves_nothing_and_counts_nothing() {
    let mut realm = Realm::of_holders(1, 3);

    let explained = explain(&realm, SHARED.into());

    assert!(explained.flow.is_none());
    assert_eq!(explained.holders.len(), 3);
    assert_eq!(realm.nodes[0].plane.sizes().flows, 0);
    assert_eq!(realm.nodes[0].plane.counters().chosen(Reason::New), 0);
    connect(&mut realm, 40_000);
}

#[test]
fn a_flow_that_moved_says_why_and_the_one_it_left_is_excluded() {
    let mut realm = Realm::of_holders(1, 3);
    let mut connection = connect(&mut realm, 40_000);
    let holder = realm.holder(0, SHARED).unwrap();

    realm.kill(holder);
    connection.ask(&mut realm);
    realm.pass(Duration::from_secs(3));

    let explained = explain(&realm, SHARED.into());
    assert_eq!(explained.flow.unwrap().flow.reason, Reason::Failed);
    let last = explained.holders.last().unwrap();
    assert_eq!(
        (last.peer, last.excluded, last.share),
        (peer(holder), Some(Excluded::Failed), None)
    );
}

#[test]
fn everybody_left_out_has_a_reason() {
    let mut specs = vec![Spec::client()];
    specs.resize(5, Spec::holder(SHARED));
    specs.push(Spec::client().with_subnet("10.128.0.0/16"));
    let mut realm = Realm::new(1, specs);
    realm.forbidden.insert((0, 2));
    realm.draining.insert(3);
    realm.spread_routes();
    realm.leave(4);

    let explained = explain(&realm, SHARED.into());

    let excluded: Vec<_> = explained
        .holders
        .iter()
        .map(|view| (view.peer.0, view.excluded.map(Excluded::as_str)))
        .collect();
    assert_eq!(
        excluded,
        [
            (1, None),
            (2, Some("taint")),
            (3, Some("draining")),
            (4, Some("left")),
            (5, Some("wider"))
        ]
    );
}

#[test]
fn when_all_drain_they_are_candidates_that_drain() {
    let mut realm = Realm::of_holders(1, 2);
    connect(&mut realm, 40_000);
    realm.draining.extend([1, 2]);
    realm.spread_routes();

    let explained = explain(&realm, SHARED.into());

    assert!(explained.holder_drains);
    assert!(explained.holders.iter().all(|view| view.share.is_some()));
}

#[test]
fn an_empty_group_and_a_stranded_flow_are_told() {
    let mut realm = Realm::of_holders(1, 1);
    connect(&mut realm, 40_000);
    realm.leave(1);
    realm.pass(ms(300));

    let explained = explain(&realm, SHARED.into());

    assert_eq!(explained.flow.unwrap().flow.holder, None);
    assert!(explained.holders.iter().all(|view| view.share.is_none()));
}

#[test]
fn addresses_without_a_group_are_told_apart() {
    let realm = Realm::of_holders(1, 1);
    let own = realm.nodes[0].overlay().into();
    let other: IpAddr = realm.nodes[1].overlay().into();

    assert_eq!(
        explain(&realm, Ipv4Addr::new(10, 9, 9, 9).into()).found,
        Found::Nobody
    );
    assert_eq!(explain(&realm, own).found, Found::Local);
    let holder = explain(&realm, other);
    assert_eq!(holder.found, Found::Group(other.into()));
    assert_eq!(holder.holders.len(), 1);
    assert_eq!(
        explain(&realm, Ipv4Addr::new(198, 18, 0, 1).into())
            .holders
            .len(),
        0
    );
}

#[test]
fn a_host_behind_the_anchor_has_its_own_explanation_and_strangers_have_none() {
    let mut specs = vec![Spec::client().with_subnet("10.1.0.0/16")];
    specs.resize(3, Spec::holder(SHARED));
    let mut realm = Realm::new(1, specs);
    let host = Ipv4Addr::new(10, 1, 0, 7);
    Connection::open(&mut realm, 0, (host, 5000).into(), shared());
    let plane = &realm.nodes[0].plane;

    let known = plane.explain(realm.now, SHARED.into(), Some(host.into()));
    let stranger = plane.explain(realm.now, SHARED.into(), Some([10, 2, 0, 7].into()));

    let known = known.unwrap();
    assert_eq!(known.host, Host::Behind(host.into()));
    assert!(known.flow.is_some());
    assert!(explain(&realm, SHARED.into()).flow.is_none());
    assert_eq!(stranger.unwrap_err(), NoSuchHost);
}

fn explain(realm: &Realm, address: IpAddr) -> Explained {
    realm.nodes[0]
        .plane
        .explain(realm.now, address, None)
        .unwrap()
}

fn connect(realm: &mut Realm, port: u16) -> Connection {
    Connection::open(realm, 0, (OWN_HOST, port).into(), shared())
}

fn shared() -> SocketAddr {
    (SHARED, HTTP).into()
}
