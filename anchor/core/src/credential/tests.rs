use std::time::Duration;

use conflux_proto::credential::{
    Admission, Advertise, Countersigned, Credential, Grant, Kind, Link, Serial,
};
use conflux_proto::id::RealmKey;
use conflux_proto::signed::{Signed, Version1};
use conflux_proto::taint::TaintSet;
use conflux_proto::ticket::Ticket;
use proptest::prelude::*;

use super::*;
use crate::identity::{Identity, RealmSecret};
use crate::time::UnixTime;

const NOW: UnixTime = UnixTime(1_800_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn first_machine_is_a_member_with_all_rights() {
    let realm = Realm::new();

    let member = verify(&realm.first, &realm.key, NOW).unwrap();

    assert_eq!(member.key, realm.machine.key());
    assert!(member.issuer && member.advertise.any);
    assert_eq!(member.valid_until, NOW + LIFETIME);
}

#[test]
fn joiner_is_a_member_once_any_member_has_admitted_it() {
    let realm = Realm::new();
    let joiner = identity(2);
    let joining = join(&realm.ticket("a,b"), joiner.key(), Some(taints("a")), NOW).unwrap();

    assert!(matches!(
        verify(&joining, &realm.key, NOW),
        Err(Refused::NotAdmitted(_))
    ));
    let credential = realm.admit(&joining, NOW + HOUR).unwrap();

    let member = verify(&credential, &realm.key, NOW + HOUR).unwrap();
    assert_eq!(member.key, joiner.key());
    assert_eq!(member.taints, taints("a"));
    assert!(!member.issuer);
    assert_eq!(member.valid_until, NOW + HOUR + LIFETIME);
    assert_eq!(credential.links().len(), 2);
}

#[test]
fn a_member_that_joined_admits_the_next_with_the_same_ticket() {
    let realm = Realm::new();
    let ticket = realm.ticket("a");
    let second = identity(2);
    let third = identity(3);
    let seconds = realm
        .admit(&join(&ticket, second.key(), None, NOW).unwrap(), NOW)
        .unwrap();

    let joining = join(&ticket, third.key(), None, NOW).unwrap();
    let thirds = admit(&joining, &second, &seconds, &realm.key, NOW).unwrap();

    assert_eq!(verify(&thirds, &realm.key, NOW).unwrap().key, third.key());
    assert_eq!(
        thirds.links().len(),
        3,
        "the first machine's link is there once"
    );
}

#[test]
fn one_that_was_not_admitted_itself_admits_nobody() {
    let realm = Realm::new();
    let ticket = realm.ticket("a");
    let second = identity(2);
    let seconds = join(&ticket, second.key(), None, NOW).unwrap();
    let joining = join(&ticket, identity(3).key(), None, NOW).unwrap();

    let refused = admit(&joining, &second, &seconds, &realm.key, NOW);

    assert!(matches!(
        refused,
        Err(AdmitRefused::Admitter(Refused::NotAdmitted(_)))
    ));
}

#[test]
fn ticket_expiry_ends_joining_and_not_membership() {
    let realm = Realm::new();
    let ticket = realm.ticket("a");
    let late = NOW + DAY + SKEW + Duration::from_secs(1);
    let joining = join(&ticket, identity(2).key(), None, NOW).unwrap();
    let admitted = realm.admit(&joining, NOW).unwrap();

    assert!(verify(&admitted, &realm.key, late + DAY).is_ok());
    assert!(matches!(
        join(&ticket, identity(3).key(), None, late),
        Err(JoinRefused::Ticket(Refused::TicketExpired { .. }))
    ));
    assert!(matches!(
        realm.admit(&joining, late),
        Err(AdmitRefused::Joiner(Refused::TicketExpired { .. }))
    ));
}

#[test]
fn an_admission_within_the_skew_after_the_tickets_end_is_good() {
    let realm = Realm::new();
    let joining = join(&realm.ticket("a"), identity(2).key(), None, NOW).unwrap();
    let just = NOW + DAY + SKEW;

    let admitted = realm.admit(&joining, just).unwrap();

    assert!(verify(&admitted, &realm.key, just).is_ok());
}

#[test]
fn membership_ends_after_365_days_and_ten_minutes() {
    let realm = Realm::new();
    let end = NOW + LIFETIME + SKEW;

    assert!(verify(&realm.first, &realm.key, end).is_ok());
    assert!(matches!(
        verify(&realm.first, &realm.key, end + Duration::from_secs(1)),
        Err(Refused::Expired { .. })
    ));
    assert!(matches!(
        verify(&realm.first, &realm.key, UnixTime(NOW.0 - 601)),
        Err(Refused::NotYet { .. })
    ));
    assert!(verify(&realm.first, &realm.key, UnixTime(NOW.0 - 600)).is_ok());
}

#[test]
fn credential_of_another_realm_is_refused_by_name() {
    let realm = Realm::new();
    let other = RealmSecret::from_seed(&[77; 32]).key();

    assert_eq!(
        verify(&realm.first, &other, NOW),
        Err(Refused::Realm(realm.key.id()))
    );
}

#[test]
fn joiner_takes_no_taint_the_ticket_does_not_grant() {
    let realm = Realm::new();

    let refused = join(
        &realm.ticket("a,b"),
        identity(2).key(),
        Some(taints("a,c")),
        NOW,
    );

    assert!(matches!(refused, Err(JoinRefused::Taints { .. })));
}

#[test]
fn issuer_grants_its_own_rights_or_fewer() {
    let realm = Realm::new();
    let issuer = identity(2);
    let issuing = TicketTerms {
        issuer: true,
        ..terms(Some("a,b"))
    };
    let ticket = make_ticket(Granter::Realm(&realm.secret), issuing, &[5; 32], NOW).unwrap();
    let credential = realm
        .admit(&join(&ticket, issuer.key(), None, NOW).unwrap(), NOW)
        .unwrap();
    let granter = Granter::Issuer {
        identity: &issuer,
        credential: &credential,
        realm: &realm.key,
    };
    let make = |terms| make_ticket(granter, terms, &[6; 32], NOW);

    let all = make(terms(None)).unwrap();
    assert_eq!(all.grant().claimed().taints, taints("a,b"));
    let less = make(terms(Some("a"))).unwrap();
    let joined = realm
        .admit(&join(&less, identity(3).key(), None, NOW).unwrap(), NOW)
        .unwrap();
    assert_eq!(
        verify(&joined, &realm.key, NOW).unwrap().taints,
        taints("a")
    );
    assert!(matches!(
        make(terms(Some("a,z"))),
        Err(GrantRefused::Taints { .. })
    ));
    let wide = TicketTerms {
        advertise: Advertise::anything(),
        ..terms(None)
    };
    assert!(matches!(make(wide), Err(GrantRefused::Advertise { .. })));
}

#[test]
fn plain_member_grants_nothing() {
    let realm = Realm::new();
    let member = identity(2);
    let joining = join(&realm.ticket("a"), member.key(), None, NOW).unwrap();
    let credential = realm.admit(&joining, NOW).unwrap();
    let granter = Granter::Issuer {
        identity: &member,
        credential: &credential,
        realm: &realm.key,
    };

    let refused = make_ticket(granter, terms(None), &[6; 32], NOW);

    assert!(matches!(refused, Err(GrantRefused::NotAnIssuer)));
}

#[test]
fn a_grant_forged_by_a_plain_member_is_refused() {
    let realm = Realm::new();
    let member = identity(2);
    let joining = join(&realm.ticket("a"), member.key(), None, NOW).unwrap();
    let credential = realm.admit(&joining, NOW).unwrap();
    let forged = forge(&credential, &realm, &member, |_| {});

    let refused = verify(&forged, &realm.key, NOW);

    assert!(
        matches!(
            refused,
            Err(Refused::Powerless {
                why: "it is not an issuer",
                ..
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn a_grant_forged_by_an_issuer_beyond_its_rights_is_refused() {
    let realm = Realm::new();
    let issuer = identity(2);
    let issuing = TicketTerms {
        issuer: true,
        ..terms(Some("a"))
    };
    let ticket = make_ticket(Granter::Realm(&realm.secret), issuing, &[5; 32], NOW).unwrap();
    let credential = realm
        .admit(&join(&ticket, issuer.key(), None, NOW).unwrap(), NOW)
        .unwrap();
    let check = |change: fn(&mut Grant)| {
        verify(
            &forge(&credential, &realm, &issuer, change),
            &realm.key,
            NOW,
        )
    };

    assert!(check(|_| {}).is_ok());
    assert!(check(|grant| grant.taints = taints("b")).is_err());
    assert!(check(|grant| grant.taints = TaintSet::default()).is_err());
    assert!(check(|grant| grant.advertise = Advertise::anything()).is_err());
    assert!(check(|grant| grant.made_at = NOW.0 - 3600).is_err());
    assert!(check(|grant| grant.made_at = (NOW + LIFETIME + DAY).0).is_err());
    assert!(check(|grant| grant.realm = RealmKey([1; 32]).id()).is_err());
}

#[test]
fn an_admission_does_not_fit_another_join() {
    let realm = Realm::new();
    let ticket = realm.ticket("a,b");
    let modest = join(&ticket, identity(2).key(), Some(taints("a")), NOW).unwrap();
    let greedy = join(&ticket, identity(2).key(), Some(taints("a,b")), NOW).unwrap();
    let admitted = realm.admit(&modest, NOW).unwrap();
    let mut links = admitted.links().to_vec();
    let last = links.last_mut().unwrap();
    last.join = greedy.last().join.clone();

    let refused = verify(&Credential::new(links).unwrap(), &realm.key, NOW);

    assert!(
        matches!(refused, Err(Refused::Inconsistent(_))),
        "{refused:?}"
    );
}

#[test]
fn nobody_admits_itself_with_a_membership_it_has() {
    let realm = Realm::new();
    let joining = join(&realm.ticket("a"), realm.machine.key(), None, NOW).unwrap();

    assert!(realm.admit(&joining, NOW).is_err());
    let forged = countersign(&joining, &realm, NOW);
    assert_eq!(
        powerless(&forged, &realm, NOW),
        Some("nobody admits itself")
    );
}

#[test]
fn an_admission_of_a_wrong_time_is_refused_whoever_signed_it() {
    let realm = Realm::new();
    let joining = join(&realm.ticket("a"), identity(2).key(), None, NOW).unwrap();
    let end = NOW + DAY + SKEW;
    let second = Duration::from_secs(1);
    let before = UnixTime(NOW.0 - SKEW.as_secs() - 1);
    let ended = NOW + LIFETIME + SKEW + second;

    for (at, why) in [
        (NOW, None),
        (end, None),
        (end + second, Some("the ticket had expired")),
        (before, Some("it was not a member at that time")),
        (ended, Some("it was not a member at that time")),
    ] {
        let forged = countersign(&joining, &realm, at);
        assert_eq!(powerless(&forged, &realm, at), why, "{at:?}");
    }
}

#[test]
fn nobody_is_admitted_before_the_ticket_was_made() {
    let realm = Realm::new();
    let ticket = make_ticket(
        Granter::Realm(&realm.secret),
        TicketTerms {
            expires: NOW + DAY * 3,
            ..terms(Some("a"))
        },
        &[5; 32],
        NOW + DAY,
    )
    .unwrap();
    let joining = join(&ticket, identity(2).key(), None, NOW + DAY).unwrap();

    let forged = countersign(&joining, &realm, NOW);

    let why = powerless(&forged, &realm, NOW + DAY);
    assert_eq!(why, Some("the ticket had not been made"));
}

#[test]
fn members_outlive_the_issuer_that_let_them_in() {
    let realm = Realm::new();
    let later = NOW + (LIFETIME - DAY);
    let ticket = make_ticket(
        Granter::Realm(&realm.secret),
        TicketTerms {
            expires: later + DAY,
            ..terms(Some("a"))
        },
        &[5; 32],
        NOW,
    )
    .unwrap();
    let joining = join(&ticket, identity(2).key(), None, later).unwrap();
    let credential = realm.admit(&joining, later).unwrap();

    assert!(verify(&realm.first, &realm.key, later + DAY * 30).is_err());
    assert!(verify(&credential, &realm.key, later + DAY * 30).is_ok());
}

#[test]
fn chain_of_admissions_is_renewed_to_one_direct_grant() {
    let realm = Realm::new();
    let ticket = realm.ticket("a");
    let mut admitter = (realm.machine.clone(), realm.first.clone());
    let mut wanted = Vec::new();
    for number in 2..8 {
        let next = identity(number);
        let joining = join(&ticket, next.key(), None, NOW).unwrap();
        let credential = admit(&joining, &admitter.0, &admitter.1, &realm.key, NOW).unwrap();
        let member = verify(&credential, &realm.key, NOW).unwrap();
        wanted.push(wants_renewal(&credential, &member, NOW));
        admitter = (next, credential);
    }
    assert_eq!(wanted, [false, false, false, false, true, true]);

    let member = verify(&admitter.1, &realm.key, NOW).unwrap();
    let renewed = renew(
        Granter::Realm(&realm.secret),
        &member,
        Serial([8; 16]),
        NOW + DAY,
    )
    .unwrap();

    let again = verify(&renewed, &realm.key, NOW + DAY).unwrap();
    assert_eq!(renewed.links().len(), 1);
    assert_eq!((again.key, &again.taints), (member.key, &member.taints));
    assert!(!wants_renewal(&renewed, &again, NOW + DAY));
    assert!(wants_renewal(&renewed, &again, NOW + LIFETIME * 7 / 10));
}

#[test]
fn longest_chain_is_refused_with_advice() {
    let realm = Realm::new();
    let ticket = realm.ticket("a");
    let mut admitter = (realm.machine.clone(), realm.first.clone());
    let mut admitted = 0;
    let refused = loop {
        let next = identity(admitted + 2);
        let joining = join(&ticket, next.key(), None, NOW).unwrap();
        match admit(&joining, &admitter.0, &admitter.1, &realm.key, NOW) {
            Ok(credential) => admitter = (next, credential),
            Err(refused) => break refused,
        }
        admitted += 1;
    };

    assert_eq!(admitted, 15);
    assert!(refused.to_string().contains("let an issuer"), "{refused}");
    assert!(admitter.1.to_bytes().len() < 12 << 10);
}

proptest! {
    #[test]
    fn no_change_of_a_byte_makes_a_member_with_other_rights(
        at: prop::sample::Index,
        bit in 0_u8..8,
    ) {
        let realm = Realm::new();
        let joining = join(&realm.ticket("a,b"), identity(2).key(), None, NOW).unwrap();
        let credential = realm.admit(&joining, NOW).unwrap();
        let member = verify(&credential, &realm.key, NOW).unwrap();
        let mut bytes = credential.to_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;

        if let Ok(changed) = Credential::from_bytes(&bytes)
            && let Ok(other) = verify(&changed, &realm.key, NOW)
        {
            prop_assert_eq!(other, member);
        }
    }
}

struct Realm {
    secret: RealmSecret,
    key: RealmKey,
    machine: Identity,
    first: Credential,
}

impl Realm {
    fn new() -> Self {
        let secret = RealmSecret::from_seed(&[100; 32]);
        let machine = identity(1);
        let first = first_machine(
            &secret,
            machine.key(),
            TaintSet::first_machine(),
            Serial([1; 16]),
            NOW,
        );
        Self {
            key: secret.key(),
            secret,
            machine,
            first,
        }
    }

    fn ticket(&self, labels: &str) -> Ticket {
        make_ticket(
            Granter::Realm(&self.secret),
            terms(Some(labels)),
            &[5; 32],
            NOW,
        )
        .unwrap()
    }

    fn admit(&self, joining: &Credential, now: UnixTime) -> Result<Credential, AdmitRefused> {
        admit(joining, &self.machine, &self.first, &self.key, now)
    }
}

fn identity(number: u8) -> Identity {
    Identity::from_seed(&[number; 32])
}

fn taints(labels: &str) -> TaintSet {
    TaintSet::parse(labels.split(',')).unwrap()
}

fn terms(labels: Option<&str>) -> TicketTerms {
    TicketTerms {
        taints: labels.map(taints),
        advertise: Advertise::private_hosts(),
        issuer: false,
        expires: NOW + DAY,
        endpoints: vec!["192.0.2.1:47474".parse().unwrap()],
        serial: Serial([2; 16]),
    }
}

/// An admission by the realm's first machine, of whatever time and whomever.
fn countersign(joining: &Credential, realm: &Realm, at: UnixTime) -> Credential {
    let link = joining.last();
    let join = link.join.as_ref().unwrap();
    let admission = Admission {
        version: Version1,
        realm: realm.key.id(),
        anchor: join.claimed().anchor,
        join: join.hash(),
        by: realm.machine.key(),
        admitted_at: at.0,
    };
    let mut links = realm.first.links().to_vec();
    let countersigned = Countersigned {
        admitter: u8::try_from(links.len() - 1).unwrap(),
        admission: Signed::sign(admission, realm.machine.signing()),
    };
    links.push(Link {
        admission: Some(countersigned),
        ..link.clone()
    });
    Credential::new(links).unwrap()
}

/// Why somebody who signed a credential had no power to; none when it is good.
fn powerless(credential: &Credential, realm: &Realm, now: UnixTime) -> Option<&'static str> {
    match verify(credential, &realm.key, now) {
        Ok(_) => None,
        Err(Refused::Powerless { why, .. }) => Some(why),
        Err(other) => panic!("{other}"),
    }
}

/// A direct grant to a new anchor, signed by `by` whatever its rights.
fn forge(
    credential: &Credential,
    realm: &Realm,
    by: &Identity,
    change: impl Fn(&mut Grant),
) -> Credential {
    let mut grant = Grant {
        version: Version1,
        realm: realm.key.id(),
        subject: identity(50).key().0,
        kind: Kind::Anchor,
        taints: taints("a"),
        advertise: Advertise::private_hosts(),
        issuer: false,
        serial: Serial([3; 16]),
        made_at: NOW.0,
        expires: (NOW + DAY).0,
        ticket: None,
    };
    change(&mut grant);
    let mut links = credential.links().to_vec();
    let authority = Some(u8::try_from(links.len() - 1).unwrap());
    let grant = Signed::sign(grant, by.signing());
    links.push(Link {
        authority,
        grant,
        join: None,
        admission: None::<Countersigned>,
    });
    Credential::new(links).unwrap()
}
