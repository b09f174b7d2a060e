//! Who may revoke whom, and what falls with it; in any order.

use std::time::Duration;

use conflux_proto::credential::{Advertise, Credential, Serial};
use conflux_proto::id::RealmKey;
use conflux_proto::revocation::{Revocation, SignedRevocation, Target};
use conflux_proto::signed::{Signed, Version1};
use conflux_proto::taint::TaintSet;
use conflux_proto::ticket::Ticket;

use super::*;
use crate::identity::{Identity, RealmSecret};
use crate::time::UnixTime;

const NOW: UnixTime = UnixTime(1_800_000_000);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn the_realm_key_revokes_anybody() {
    let realm = Realm::new();
    for member in [&realm.first, &realm.issuer, &realm.plain] {
        let held = realm.holding([realm.by_realm(anchor(member), false)]);

        assert!(is_out(&held, member), "{:?}", member.0.key());
    }
}

#[test]
fn a_revoked_anchor_does_not_take_with_it_whom_it_let_in_before() {
    let realm = Realm::new();
    let held = realm.holding([realm.by_realm(anchor(&realm.issuer), false)]);

    assert!(is_out(&held, &realm.issuer));
    assert!(!is_out(&held, &realm.plain));
}

#[test]
fn with_anchors_whom_a_revoked_issuer_let_in_goes_too() {
    let realm = Realm::new();
    let held = realm.holding([realm.by_realm(anchor(&realm.issuer), true)]);

    assert!(is_out(&held, &realm.plain));
    assert!(!is_out(&held, &realm.first));
}

#[test]
fn what_a_revoked_anchor_signs_afterwards_is_worth_nothing() {
    let realm = Realm::new();
    let held = realm.holding([realm.by_realm(anchor(&realm.issuer), false)]);
    let later = NOW + HOUR;
    let ticket = realm.ticket_by_issuer("a", 9, later);
    let granted = realm.admitted(&ticket, 9, &realm.first, later);
    let ticket = realm.ticket_by_realm("a", 8, later);
    let admitted = realm.admitted(&ticket, 8, &realm.issuer, later);

    assert!(is_out(&held, &granted));
    assert!(is_out(&held, &admitted));
}

#[test]
fn a_revoked_ticket_admits_nobody_and_keeps_who_is_in() {
    let realm = Realm::new();
    let ticket = realm.ticket_by_realm("a", 5, NOW);
    let inside = realm.admitted(&ticket, 6, &realm.first, NOW);
    let late = realm.admitted(&ticket, 7, &realm.first, NOW + HOUR);
    let joining = join(&ticket, identity(8).key(), None, NOW).unwrap();
    let joiner = verify_join(&joining, &realm.key, NOW).unwrap();
    let target = Target::Ticket(ticket.grant().claimed().serial);
    let held = realm.holding([realm.by_realm(target, false)]);

    assert!(!is_out(&held, &inside));
    assert!(is_out(&held, &late), "admitted after the revocation");
    assert!(held.judge_joiner(&joiner.lineage).is_err());
    assert!(held.is_ticket_revoked(ticket.grant().claimed(), None));
}

#[test]
fn a_revoked_tickets_anchors_go_with_it_when_asked_renewed_or_not() {
    let realm = Realm::new();
    let ticket = realm.ticket_by_realm("a", 5, NOW);
    let joined = realm.admitted(&ticket, 6, &realm.first, NOW);
    let member = verify(&joined.1, &realm.key, NOW).unwrap();
    let renewed = renew(
        Granter::Realm(&realm.secret),
        &member,
        Serial([77; 16]),
        NOW,
    );
    let renewed = (joined.0.clone(), renewed.unwrap());
    let target = Target::Ticket(ticket.grant().claimed().serial);
    let held = realm.holding([realm.by_realm(target, true)]);

    assert!(is_out(&held, &joined));
    assert!(is_out(&held, &renewed));
    assert!(!is_out(&held, &realm.plain));
}

#[test]
fn an_issuer_revokes_plain_members_with_its_own_taints_and_nobody_else() {
    let realm = Realm::new();
    let ticket = realm.ticket_by_realm("a", 5, NOW);
    let within = realm.admitted(&ticket, 6, &realm.first, NOW);
    let ticket = realm.ticket_by_realm("a,z", 7, NOW);
    let beyond = realm.admitted(&ticket, 8, &realm.first, NOW);

    for (member, falls) in [
        (&realm.plain, true),
        (&within, true),
        (&beyond, false),
        (&realm.first, false),
    ] {
        let revocation = realm.by_issuer(anchor(member), NOW);
        let held = realm.holding([revocation]);

        assert_eq!(is_out(&held, member), falls, "{:?}", member.0.key());
        let rights = verify(&member.1, &realm.key, NOW).unwrap();
        let author = verify(&realm.issuer.1, &realm.key, NOW).unwrap();
        assert_eq!(
            held.would_reach(Some(&author), anchor(member), &rights),
            falls
        );
    }
}

#[test]
fn a_plain_member_revokes_itself_only() {
    let realm = Realm::new();
    let itself = revoke(
        realm.granter(&realm.plain),
        anchor(&realm.plain),
        false,
        NOW,
    );
    let another = revoke(
        realm.granter(&realm.plain),
        anchor(&realm.first),
        false,
        NOW,
    );

    assert_eq!(another, Err(RevokeRefused::NotAnIssuer));
    let held = realm.holding([itself.unwrap()]);
    assert!(is_out(&held, &realm.plain));
    assert!(!is_out(&held, &realm.first));
}

#[test]
fn a_forged_revocation_is_not_held() {
    let realm = Realm::new();
    let (plain, issuer) = (&realm.plain, &realm.issuer);
    let forge = |by: Option<&(Identity, Credential)>,
                 signer: &Identity,
                 change: &dyn Fn(&mut SignedRevocation, &mut Revocation)| {
        let mut revocation = Revocation {
            version: Version1,
            realm: realm.key.id(),
            target: anchor(&realm.first),
            with_anchors: false,
            by: by.map(|by| by.0.key()),
            made_at: NOW.0,
        };
        let mut signed = SignedRevocation {
            revocation: Signed::sign(revocation.clone(), signer.signing()),
            authority: by.map(|by| by.1.clone()),
        };
        change(&mut signed, &mut revocation);
        signed.revocation = Signed::sign(revocation, signer.signing());
        Revocations::new(realm.key).insert(&signed)
    };

    assert!(matches!(
        forge(None, &plain.0, &|_, _| {}),
        Err(RevocationRefused::Signature(_))
    ));
    assert!(matches!(
        forge(Some(issuer), &plain.0, &|_, _| {}),
        Err(RevocationRefused::Signature(_))
    ));
    assert!(matches!(
        forge(Some(plain), &plain.0, &|_, _| {}),
        Err(RevocationRefused::NotAnIssuer(_))
    ));
    assert_eq!(
        forge(Some(issuer), &issuer.0, &|signed, _| signed.authority =
            None),
        Err(RevocationRefused::OtherAuthority)
    );
    assert_eq!(
        forge(Some(plain), &plain.0, &|signed, _| {
            signed.authority = Some(issuer.1.clone());
        }),
        Err(RevocationRefused::OtherAuthority)
    );
    assert_eq!(
        forge(Some(issuer), &issuer.0, &|_, said| {
            said.realm = RealmKey([1; 32]).id();
        }),
        Err(RevocationRefused::Realm)
    );
    assert!(matches!(
        forge(Some(issuer), &issuer.0, &|_, said| said.made_at = 5),
        Err(RevocationRefused::NotAMember(_))
    ));
    assert_eq!(forge(Some(issuer), &issuer.0, &|_, _| {}), Ok(true));
}

#[test]
fn what_an_issuer_revokes_after_its_own_revocation_has_no_effect() {
    let realm = Realm::new();
    let end = realm.by_realm(anchor(&realm.issuer), false);
    let before = realm.by_issuer(anchor(&realm.plain), NOW);
    let after = realm.by_issuer(anchor(&realm.plain), NOW + HOUR);

    for order in [[&end, &after], [&after, &end]] {
        let held = realm.holding(order.map(Clone::clone));
        assert!(!is_out(&held, &realm.plain));
    }
    assert!(is_out(&realm.holding([end, before]), &realm.plain));
}

#[test]
fn one_is_held_once_and_listed_by_stretches() {
    let realm = Realm::new();
    let revocation = realm.by_realm(anchor(&realm.plain), false);
    let mut held = realm.holding([revocation.clone()]);

    assert_eq!(held.insert(&revocation), Ok(false));
    let (place, listed) = held.between(0, u64::MAX).next().unwrap();
    assert_eq!((held.len(), listed), (1, &revocation));
    assert!(held.mentions(anchor(&realm.plain)));
    assert!(!held.mentions(anchor(&realm.first)));
    assert_eq!(held.between(place, place).count(), 1);
    assert_eq!(held.between(place + 1, u64::MAX).count(), 0);
    assert_eq!(held.between(9, 3).count(), 0);
}

#[test]
fn one_issuer_does_not_fill_the_room_of_the_others() {
    let realm = Realm::new();
    let mut held = Revocations::new(realm.key);
    let mut taken = 0;
    let refused = loop {
        let mut serial = [0; 16];
        serial[..8].copy_from_slice(&u64::to_be_bytes(taken));
        let revocation = realm.by_issuer(Target::Ticket(Serial(serial)), NOW);
        match held.insert(&revocation) {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
    };
    let own = revoke(
        realm.granter(&realm.plain),
        anchor(&realm.plain),
        false,
        NOW,
    )
    .unwrap();
    let again = revoke(realm.granter(&realm.plain), anchor(&realm.plain), true, NOW).unwrap();

    assert_eq!((refused, taken), (RevocationRefused::Full, 512));
    assert_eq!(
        held.insert(&realm.by_realm(anchor(&realm.issuer), false)),
        Ok(true)
    );
    assert_eq!(held.insert(&own), Ok(true));
    assert_eq!(held.insert(&again), Err(RevocationRefused::Full));
}

/// The first machine, an issuer with taints a and b, and a plain member that joined by a ticket
/// of the issuer's.
struct Realm {
    secret: RealmSecret,
    key: RealmKey,
    first: (Identity, Credential),
    issuer: (Identity, Credential),
    plain: (Identity, Credential),
}

impl Realm {
    fn new() -> Self {
        let secret = RealmSecret::from_seed(&[100; 32]);
        let key = secret.key();
        let machine = identity(1);
        let serial = Serial([1; 16]);
        let taints = TaintSet::parse(["a", "b", "z"]).unwrap();
        let credential = first_machine(&secret, machine.key(), taints, serial, NOW);
        let first = (machine, credential);
        let mut realm = Self {
            secret,
            key,
            issuer: first.clone(),
            plain: first.clone(),
            first,
        };
        let terms = TicketTerms {
            issuer: true,
            ..terms("a,b", 2, NOW)
        };
        let ticket = make_ticket(Granter::Realm(&realm.secret), terms, &[5; 32], NOW).unwrap();
        realm.issuer = realm.admitted(&ticket, 2, &realm.first, NOW);
        let ticket = realm.ticket_by_issuer("a", 3, NOW);
        realm.plain = realm.admitted(&ticket, 3, &realm.first, NOW);
        realm
    }

    fn ticket_by_realm(&self, taints: &str, serial: u8, at: UnixTime) -> Ticket {
        let terms = terms(taints, serial, at);
        make_ticket(Granter::Realm(&self.secret), terms, &[serial; 32], at).unwrap()
    }

    fn ticket_by_issuer(&self, taints: &str, serial: u8, at: UnixTime) -> Ticket {
        let terms = terms(taints, serial, at);
        make_ticket(self.granter(&self.issuer), terms, &[serial; 32], at).unwrap()
    }

    fn admitted(
        &self,
        ticket: &Ticket,
        number: u8,
        by: &(Identity, Credential),
        at: UnixTime,
    ) -> (Identity, Credential) {
        let who = identity(number);
        let joining = join(ticket, who.key(), None, at).unwrap();
        (who, admit(&joining, &by.0, &by.1, &self.key, at).unwrap())
    }

    fn granter<'a>(&'a self, by: &'a (Identity, Credential)) -> Granter<'a> {
        Granter::Issuer {
            identity: &by.0,
            credential: &by.1,
            realm: &self.key,
        }
    }

    fn by_realm(&self, target: Target, with_anchors: bool) -> SignedRevocation {
        revoke(Granter::Realm(&self.secret), target, with_anchors, NOW).unwrap()
    }

    fn by_issuer(&self, target: Target, at: UnixTime) -> SignedRevocation {
        revoke(self.granter(&self.issuer), target, false, at).unwrap()
    }

    fn holding(&self, all: impl IntoIterator<Item = SignedRevocation>) -> Revocations {
        let mut held = Revocations::new(self.key);
        for revocation in all {
            assert_eq!(held.insert(&revocation), Ok(true));
        }
        held
    }
}

fn is_out(held: &Revocations, member: &(Identity, Credential)) -> bool {
    let member = verify_chain(&member.1, &held_realm()).unwrap();
    matches!(held.judge(&member), Err(Refused::Revoked(_)))
}

fn held_realm() -> RealmKey {
    RealmSecret::from_seed(&[100; 32]).key()
}

fn anchor(member: &(Identity, Credential)) -> Target {
    Target::Anchor(member.0.key().id())
}

fn identity(number: u8) -> Identity {
    Identity::from_seed(&[number; 32])
}

fn terms(taints: &str, serial: u8, at: UnixTime) -> TicketTerms {
    TicketTerms {
        taints: Some(TaintSet::parse(taints.split(',')).unwrap()),
        advertise: Advertise::private_hosts(),
        issuer: false,
        expires: at + HOUR * 24,
        endpoints: vec!["192.0.2.1:47474".parse().unwrap()],
        serial: Serial([serial; 16]),
    }
}
