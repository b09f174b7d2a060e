//! Revocations: at once, by floods and by digests, and not undone by what was said before.

use conflux_proto::control::Turn;
use conflux_proto::revocation::{SignedRevocation, Target};

use super::*;
use crate::credential::{Granter, RevocationRefused, revoke};

#[test]
fn a_revoked_anchor_is_gone_at_once_and_stays_out() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    deliver(&mut one, &mut two, START);
    drain(&mut two);
    let from = Some(identity(3).key());

    let outcome = two.handle_revocations(START, &[revocation(1)], from);

    assert_eq!(outcome.added, 1);
    let events = drain(&mut two);
    assert!(
        matches!(&events[0], Event::Flood { message, except, spread: Spread::All }
            if matches!(**message, Message::Revocations(_)) && *except == from),
        "{events:?}"
    );
    assert_eq!(events[1..], [Event::Revoked(identity(1).key())]);
    one.handle_timeout(START + secs(30));
    let later = one.own().unwrap();
    let outcome = two.handle_advert(START + secs(30), UNIX, &later, secs(0), None);
    assert!(
        matches!(&outcome, Outcome::Refused(AdvertRefused::Credential(refused))
            if matches!(refused, crate::credential::Refused::Revoked(_))),
        "{outcome:?}"
    );
    assert!(two.get(&identity(1).key()).is_none());
}

#[test]
fn a_revocation_is_passed_on_once() {
    let mut node = node(2);
    node.handle_revocations(START, &[revocation(1)], None);
    drain(&mut node);

    let outcome = node.handle_revocations(START, &[revocation(1)], None);

    assert_eq!(outcome, RevocationOutcome::default());
    assert_eq!(drain(&mut node), []);
}

#[test]
fn a_forged_revocation_puts_nobody_out() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    deliver(&mut one, &mut two, START);
    drain(&mut two);
    let mut forged = revocation(1);
    let said = forged.revocation.claimed().clone();
    forged.revocation = Signed::sign(said, identity(4).signing());

    let outcome = two.handle_revocations(START, &[forged], None);

    assert!(matches!(
        outcome.refused[..],
        [RevocationRefused::Signature(_)]
    ));
    assert_eq!(two.counts().refused, 1);
    assert!(two.get(&identity(1).key()).is_some());
    assert_eq!(drain(&mut two), []);
}

#[test]
fn after_a_partition_both_sides_hold_what_either_had() {
    let [mut one, mut two] = [node(1), node(2)];
    one.handle_revocations(START, &[revocation(5), revocation(6)], None);
    two.handle_revocations(START, &[revocation(6), revocation(7)], None);

    let carried = reconcile_revocations(&mut one, &mut two);

    assert_eq!((one.revocations().len(), two.revocations().len()), (3, 3));
    assert!(carried <= 4, "{carried} messages");
    assert_eq!(reconcile_revocations(&mut one, &mut two), 1);
}

#[test]
fn many_revocations_are_reconciled_in_bounded_messages() {
    let [mut one, mut two] = [node(1), node(2)];
    let all: Vec<SignedRevocation> = (0..5000_u32).map(numbered).collect();
    one.handle_revocations(START, &all, None);
    two.handle_revocations(START, &all[..4500], None);

    let mut rounds = 0;
    while two.revocations().len() < all.len() {
        reconcile_revocations(&mut two, &mut one);
        rounds += 1;
        assert!(rounds < 100, "{} held", two.revocations().len());
    }
}

#[test]
fn any_digest_is_answered_or_ignored() {
    let mut node = node(1);
    node.handle_revocations(START, &[revocation(5)], None);
    for (first, last) in [(0, u64::MAX), (u64::MAX, 0), (7, 7), (0, 0)] {
        for turn in [Turn::Ask, Turn::Answer] {
            let digest = conflux_proto::control::RevocationDigest::new(turn, first, last, [1, 2]);
            for message in node.handle_revocation_digest(&digest) {
                assert!(message.encode().is_ok());
            }
        }
    }
}

/// Sends one digest and carries what follows; the number of messages.
fn reconcile_revocations(one: &mut Membership, two: &mut Membership) -> usize {
    let mut carried = 0;
    let mut to_two = vec![one.revocation_digest()];
    while !to_two.is_empty() {
        carried += to_two.len();
        let to_one = take(two, &to_two);
        carried += to_one.len();
        to_two = take(one, &to_one);
    }
    drain(one);
    drain(two);
    carried
}

fn take(node: &mut Membership, messages: &[Message]) -> Vec<Message> {
    let mut answers = Vec::new();
    for message in messages {
        assert!(message.encode().is_ok());
        if let Message::Revocations(said) = message {
            node.handle_revocations(START, &said.revocations, None);
            continue;
        }
        let Message::RevocationDigest(digest) = message else {
            panic!("{message:?}")
        };
        answers.extend(node.handle_revocation_digest(digest));
    }
    answers
}

fn revocation(number: u8) -> SignedRevocation {
    by_realm(Target::Anchor(identity(number).key().id()))
}

fn numbered(number: u32) -> SignedRevocation {
    let mut serial = [0; 16];
    serial[..4].copy_from_slice(&number.to_be_bytes());
    by_realm(Target::Ticket(Serial(serial)))
}

fn by_realm(target: Target) -> SignedRevocation {
    revoke(Granter::Realm(&realm_secret()), target, false, UNIX).unwrap()
}
