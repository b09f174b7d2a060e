//! A member that lies: what it says of others is not believed, what it says of itself is bounded,
//! and the realm goes on.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use conflux_anchor::files::StateFile;
use conflux_proto::advert::Leave;
use conflux_proto::control::{
    Admitted, Adverts, AgedAdvert, Meet, Message, RevocationDigest, Revocations, Try, Turn,
};
use conflux_proto::id::AnchorKey;
use conflux_proto::revocation::{Revocation, SignedRevocation, Target};
use conflux_proto::signed::{Signed, Version1};
use e2e::captured::datagrams;
use e2e::hostile::{Hostile, Victim, state_of};
use e2e::scenario::{Plan, Realm, SHARED_NETWORK};
use e2e::wait;

/// Longer than a lie takes to be judged.
const JUDGED_WITHIN: Duration = Duration::from_secs(5);

#[test]
fn nobody_is_put_out_by_a_revocation_that_a_plain_member_signed() {
    let (mut realm, mut hostile, victim) = infiltrated();
    let target = Target::Anchor(realm.holders[1].anchor.id().parse().unwrap());
    for by in [None, Some(hostile.identity().key())] {
        let forged = revocation(&hostile, target, by);
        let said = Message::Revocations(Revocations {
            revocations: vec![forged],
        });
        hostile.tell(&victim, &said);
    }
    let every_place = RevocationDigest::new(Turn::Ask, 0, u64::MAX, 0..4000);
    hostile.tell(&victim, &Message::RevocationDigest(every_place));

    assert!(hostile.is_heard(&victim), "it is judged, and not by force");
    assert_all_is_well(&mut realm);
    assert_eq!(realm.holders[0].anchor.metric("anchor_revocations"), 0.0);
    assert!(
        realm.holders[0]
            .anchor
            .metric("anchor_adverts_refused_total")
            >= 2.0
    );
}

#[test]
fn nobody_leaves_by_anothers_word() {
    let (mut realm, mut hostile, victim) = infiltrated();
    let speaks_for = key_of(&realm, 1);
    for sequence in [1, u64::MAX] {
        let leave = Leave {
            version: Version1,
            realm: hostile.realm(),
            key: speaks_for,
            edition: conflux_proto::advert::Edition {
                epoch: u64::MAX,
                sequence,
            },
        };
        let forged = Signed::sign(leave, hostile.identity().signing());
        hostile.tell(&victim, &Message::Leave(forged));
    }

    assert!(hostile.is_heard(&victim));
    assert_all_is_well(&mut realm);
}

#[test]
fn a_credential_of_somebody_else_is_not_taken() {
    let (mut realm, mut hostile, victim) = infiltrated();
    let before = realm.holders[0].anchor.say(["members", "--json"]);
    let credential = hostile.credential().clone();
    hostile.tell(&victim, &Message::Admitted(Admitted { credential }));

    assert!(hostile.is_heard(&victim));
    assert_eq!(realm.holders[0].anchor.say(["members", "--json"]), before);
    assert_all_is_well(&mut realm);
}

#[test]
fn a_member_that_says_something_new_all_the_time_is_heard_now_and_then() {
    let (mut realm, mut hostile, victim) = infiltrated();
    for batch in 0..40 {
        let adverts = (0..50).map(|number| AgedAdvert {
            advert: hostile.advert_of(2 + batch * 50 + number),
            age_millis: 0,
        });
        let adverts = Adverts {
            adverts: adverts.collect(),
            more: false,
        };
        hostile.tell(&victim, &Message::Adverts(adverts));
        assert!(hostile.is_heard(&victim), "batch {batch}");
    }

    wait::until(JUDGED_WITHIN, "the flood to be turned away", || {
        realm.holders[0]
            .anchor
            .metric("anchor_adverts_too_often_total")
            > 1500.0
    });
    assert_all_is_well(&mut realm);
}

#[test]
fn what_is_nobodys_to_name_gets_nothing_and_what_is_somebody_elses_gets_little() {
    let (mut realm, mut hostile, victim) = infiltrated();
    let holder = &realm.holders[0];
    let own = format!("{}:47474", holder.host.ipv4());
    let overlay = format!("[{}]:47474", realm.holders[1].anchor.overlay());
    let refused = [
        // Not the group of multicast DNS, to which anchors speak by themselves.
        ("not-unicast", "239.192.0.7:47474"),
        ("loopback", "127.0.0.1:53"),
        ("link-local", "[fe80::1]:47474"),
        ("overlay", &overlay),
        // Where the tunnel leads.
        ("overlay", "10.128.0.9:47474"),
        ("overlay", "198.18.0.7:47474"),
        ("own", &own),
    ];
    let elsewhere = &realm.clients[0].host;
    let bystander = elsewhere.enter(|| UdpSocket::bind((elsewhere.ipv4(), 9)));
    let bystander = bystander.unwrap();
    bystander.set_read_timeout(Some(JUDGED_WITHIN)).unwrap();
    let named: Vec<SocketAddr> = refused.iter().map(|(_, at)| at.parse().unwrap()).collect();
    let named = [named, vec![bystander.local_addr().unwrap()]].concat();
    let capture = tempfile::NamedTempFile::new().unwrap();

    realm.lab.capture(capture.path());
    let adverts = Adverts {
        adverts: vec![AgedAdvert {
            advert: hostile.advert_at(2, named.clone()),
            age_millis: 0,
        }],
        more: false,
    };
    hostile.tell(&victim, &Message::Adverts(adverts));
    let candidates = named.iter().copied().cycle().take(2000).collect();
    hostile.tell(&victim, &Message::Meet(Meet::Try(Try { candidates })));
    assert!(hostile.is_heard(&victim));
    // It is dialled now, and the first datagram goes to all addresses of a dial.
    hostile.part(&victim);
    drop(hostile);
    let heard = bystander.recv_from(&mut [0; 1500]);
    realm.lab.end_capture();

    heard.expect("the one address that may be its own is dialled");
    let from = IpAddr::from(realm.holders[0].host.ipv4());
    let crossed = datagrams(&std::fs::read(capture.path()).unwrap());
    let to_named = crossed.iter().filter(|seen| seen.from.ip() == from);
    let to_named: Vec<_> = to_named.filter(|seen| named.contains(&seen.to)).collect();
    let is_bystander = |at: SocketAddr| at.port() == 9;
    assert!(to_named.iter().all(|seen| is_bystander(seen.to)));
    assert!(to_named.len() <= 7, "{} to a bystander", to_named.len());
    for reason in ["not-unicast", "loopback", "link-local", "overlay", "own"] {
        let name = format!("anchor_endpoints_refused{{reason=\"{reason}\"}}");
        let counted = realm.holders[0].anchor.metric(&name);
        // Once in the advert, and each time in the list.
        assert!(counted > 200.0, "{reason}: {counted}");
    }
    assert_all_is_well(&mut realm);
}

/// Two holders, a client, and a second client that was taken over and is connected to the first
/// holder.
fn infiltrated() -> (Realm, Hostile, Victim) {
    let mut realm = Realm::start(&Plan::of(2, 2));
    let mut taken = realm.clients.pop().unwrap();
    let mut hostile = Hostile::take_over(&mut taken.anchor, &["default"]);
    let victim = hostile
        .approach(realm.holders[0].host.ipv4())
        .expect("a member is heard");
    (realm, hostile, victim)
}

/// Everybody is still there and serves.
fn assert_all_is_well(realm: &mut Realm) {
    let client = &realm.clients[0];
    assert!(client.get().is_ok());
    let row = client.anchor.route(SHARED_NETWORK).unwrap();
    assert_eq!(row.via.len(), 2, "{row:?}");
    for holder in &realm.holders {
        let mut peers = client.anchor.peers().into_iter();
        assert!(peers.any(|peer| peer.anchor == holder.anchor.id() && peer.state == "connected"));
    }
}

fn revocation(hostile: &Hostile, target: Target, by: Option<AnchorKey>) -> SignedRevocation {
    let revocation = Revocation {
        version: Version1,
        realm: hostile.realm(),
        target,
        with_anchors: true,
        by,
        made_at: conflux_anchor::clock::unix().0,
    };
    SignedRevocation {
        revocation: Signed::sign(revocation, hostile.identity().signing()),
        authority: by.map(|_| hostile.credential().clone()),
    }
}

/// Returns a holder's key, out of its state.
fn key_of(realm: &Realm, place: usize) -> AnchorKey {
    let state = state_of(&realm.holders[place].anchor);
    let seed = state.read_key(StateFile::Identity).unwrap().unwrap();
    conflux_core::identity::Identity::from_seed(&seed).key()
}
