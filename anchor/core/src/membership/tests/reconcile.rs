//! Reconciling stores, and what must hold whatever happens.

use conflux_proto::control::{Digest, MAX_MESSAGE_BYTES};
use proptest::prelude::*;

use super::super::fingerprint::Fingerprints;
use super::*;

#[test]
fn goodbyes_reach_those_who_missed_them_by_digest() {
    let [mut one, mut two, mut three] = [node(1), node(2), node(3)];
    one.set_own(START, own(1));
    let advert = one.own().unwrap();
    for node in [&mut two, &mut three] {
        node.handle_advert(START, UNIX, &advert, secs(0), None);
    }
    two.handle_leave(START, &one.leave(), None);

    let mut four = node(4);
    four.handle_advert(START, UNIX, &advert, secs(0), None);
    reconcile(&mut two, &mut three, START);
    reconcile(&mut four, &mut two, START);

    assert!(four.get(&identity(1).key()).is_none());
    assert!(two.get(&identity(1).key()).is_none());
    assert!(three.get(&identity(1).key()).is_none());
}

#[test]
fn large_stores_agree_by_fingerprints_and_differ_cheaply() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    two.set_own(START, own(2));
    fill(&mut one, 0..300);
    fill(&mut two, 5..305);
    assert!(matches!(one.digest(), Digest::Fingerprints(_)));

    let messages = reconcile(&mut one, &mut two, START);

    let everyone = known(&one);
    assert_eq!(everyone.len(), 307);
    assert_eq!(everyone, known(&two));
    let bytes: usize = messages
        .iter()
        .map(|message| message.encode().unwrap().len())
        .sum();
    assert!(bytes < 20_000, "{bytes} bytes for 12 missing adverts");
    assert_eq!(one.handle_digest(START, &two.digest()), []);
}

#[test]
fn a_new_member_learns_a_realm_in_messages_of_legal_size() {
    let [mut one, mut two] = [node(1), node(2)];
    fill(&mut one, 0..300);

    let messages = one.handle_digest(START, &two.digest());

    for message in &messages {
        assert!(message.encode().unwrap().len() <= MAX_MESSAGE_BYTES);
        receive(&mut two, message, START);
    }
    assert_eq!(known(&one), known(&two));
}

#[test]
fn a_new_member_of_a_large_realm_learns_all_of_it_without_a_pause() {
    let [mut one, mut two] = [node(1), node(2)];
    fill(&mut one, 0..4_000);

    let mut digests = 0;
    let mut has_more = true;
    while has_more {
        digests += 1;
        let messages = reconcile(&mut two, &mut one, START);
        let more = |message: &Message| matches!(message, Message::Adverts(adverts) if adverts.more);
        has_more = messages.iter().any(more);
        assert!(digests < 10, "it does not end");
    }

    assert_eq!(known(&one), known(&two));
}

#[test]
fn age_travels_with_the_advert() {
    let [mut one, mut two, mut three] = [node(1), node(2), node(3)];
    one.set_own(START, own(1));
    two.handle_advert(START, UNIX, &one.own().unwrap(), secs(7), None);
    drain(&mut two);
    let later = START + secs(20);

    for message in two.handle_digest(later, &three.digest()) {
        receive(&mut three, &message, later);
    }

    let entry = three.get(&identity(1).key()).unwrap();
    assert_eq!(entry.age(later), secs(27));
    assert_eq!(entry.expires(), later + secs(93));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn one_exchange_makes_two_stores_equal(
        ours in prop::collection::btree_set(0_u32..120, 0..100),
        theirs in prop::collection::btree_set(0_u32..120, 0..100),
    ) {
        let [mut one, mut two] = [node(1), node(2)];
        fill(&mut one, ours);
        fill(&mut two, theirs);

        reconcile(&mut one, &mut two, START);

        prop_assert_eq!(known(&one), known(&two));
    }

    #[test]
    fn fingerprints_are_those_of_what_is_live(steps in prop::collection::vec((0_u8..6, 0_u8..4), 1..30)) {
        let mut store = node(100);
        let mut others: Vec<Membership> = (0..6).map(node).collect();
        let mut now = START;
        for (number, step) in steps {
            let other = &mut others[usize::from(number)];
            match step {
                0 => other.set_own(now, Own { aes: other.edition().sequence.is_multiple_of(2), ..own(number) }),
                1 => { store.handle_leave(now, &other.leave(), None); }
                2 => other.handle_timeout(now),
                _ => { now += secs(25); store.handle_timeout(now); }
            }
            deliver(other, &mut store, now);
            drain(&mut store);

            let mut fresh = Fingerprints::default();
            for (key, entry) in store.entries() {
                fresh.insert(key, entry.advert().edition);
                prop_assert!(entry.expires() > now);
            }
            prop_assert_eq!(fresh.all(), store.fingerprints.all());
            prop_assert_eq!(store.expiries.len(), store.live.len());
        }
    }
}
