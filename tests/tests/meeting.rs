//! Anchors behind routers of every kind (RFC 4787): each pair finds a direct path where the two kinds
//! allow one, and keeps to a relay where they do not; `peers` and `status` tell the truth in each case.

use std::time::Duration;

use e2e::nat::{Nat, Site};
use e2e::scenario::{Homes, OPEN, SETTLE_LIMIT, can_meet};
use e2e::{Anchor, Lab, Options, wait};

/// Trials come 4, 12 and 28 s after a relay has begun to carry, and all pairs share a limit of them.
const TRIAL_LIMIT: Duration = Duration::from_secs(100);

#[test]
fn each_pair_of_kinds_meets_directly_where_it_can_and_by_a_relay_where_it_cannot() {
    let lab = Lab::new();
    let realm = Homes::start(&lab, &Nat::ALL.map(|nat| [nat, nat]).concat());

    wait::until(
        TRIAL_LIMIT,
        "direct paths wherever there can be one",
        || {
            realm.pairs().all(|(near, far)| {
                realm.meet(near, far) || !can_meet(realm.nat(near), realm.nat(far))
            })
        },
    );

    for (near, far) in realm.pairs() {
        let kinds = format!("{} and {}", realm.nat(near), realm.nat(far));
        let is_direct = [realm.is_direct(near, far), realm.is_direct(far, near)];
        let expected = can_meet(realm.nat(near), realm.nat(far));
        assert_eq!(is_direct, [expected; 2], "{kinds}");
    }
    for (at, home) in realm.homes.iter().enumerate() {
        let failures = home.anchor.metric("anchor_holder_failures_total");
        assert_eq!(failures, 0.0, "{}", realm.nat(at));
        let reach = home.anchor.json("status")["reach"].clone();
        let expected: &[&str] = match realm.nat(at) {
            Nat::Open => &["public", "unknown"],
            // Somebody has dialled it by the address that its router has for it.
            Nat::FullCone => &["public", "nat-cone"],
            Nat::Restricted | Nat::PortRestricted | Nat::Carrier => &["nat-cone"],
            Nat::Symmetric => &["nat-symmetric"],
        };
        let reach = reach.as_str().unwrap();
        assert!(expected.contains(&reach), "{}: {reach}", realm.nat(at));
    }
}

#[test]
fn two_machines_behind_one_router_talk_over_the_lan() {
    let lab = Lab::new();
    let public = Anchor::start(&lab.host("public"), &Options::of(OPEN));
    let ticket = public.invite("");
    let site = Site::start(&lab, "home", Nat::PortRestricted);
    let other = site.add_machine(&lab, "other", "192.168.2.0/24".parse().unwrap());

    let one = Anchor::start(&site.machine, &Options::default().joining(&ticket));
    let two = Anchor::start(&other, &Options::default().joining(&ticket));

    wait::until(SETTLE_LIMIT, "a path over the LAN", || {
        [(&one, &two), (&two, &one)].iter().all(|(near, far)| {
            let peers = near.peers().into_iter();
            let mut rows = peers.filter(|peer| peer.anchor == far.id());
            rows.next().is_some_and(|peer| {
                let is_inside = peer
                    .endpoint
                    .is_some_and(|at| at.ip().to_string().starts_with("192.168."));
                peer.relay.is_none() && is_inside
            })
        })
    });
}
