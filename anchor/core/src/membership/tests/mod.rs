mod reconcile;
mod revoked;

use std::time::Duration;

use conflux_proto::advert::{Advert, Edition, Leave, MAX_NETWORKS, Reach, SignedAdvert};
use conflux_proto::control::Message;
use conflux_proto::credential::Serial;
use conflux_proto::id::RealmKey;
use conflux_proto::signed::{Signed, Version1};
use conflux_proto::taint::TaintSet;

use super::*;
use crate::credential::first_machine;
use crate::identity::{Identity, RealmSecret};
use crate::time::{Mono, UnixTime};

const UNIX: UnixTime = UnixTime(1_800_000_000);
const START: Mono = Mono::from_nanos(1_000_000_000_000);

#[test]
fn an_advert_is_new_once_and_goes_on_to_all_but_its_sender() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    let advert = one.own().unwrap();
    let from = Some(identity(1).key());

    assert_eq!(
        two.handle_advert(START, UNIX, &advert, secs(0), from),
        Outcome::New
    );
    assert_eq!(
        two.handle_advert(START, UNIX, &advert, secs(0), from),
        Outcome::Known
    );

    let events = drain(&mut two);
    assert_eq!(events[0], Event::Changed(identity(1).key()));
    assert!(
        matches!(&events[1], Event::Flood { except, spread: Spread::All, .. }
        if *except == from)
    );
    assert_eq!(events.len(), 2);
    assert_eq!(
        two.get(&identity(1).key()).unwrap().advert(),
        advert.advert.claimed()
    );
}

#[test]
fn a_refresh_goes_to_a_few_without_its_credential() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    two.handle_advert(START, UNIX, &one.own().unwrap(), secs(0), None);
    drain(&mut one);
    drain(&mut two);
    let later = START + secs(30);

    one.handle_timeout(later);
    let outcome = deliver(&mut one, &mut two, later);

    assert_eq!(outcome, [Outcome::Updated { changed: false }]);
    let events = drain(&mut two);
    let [
        Event::Flood {
            message, spread, ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(*spread, Spread::Few(REFRESH_FANOUT));
    assert!(message.encode().unwrap().len() < 350);
}

#[test]
fn a_change_goes_to_all_and_the_same_again_to_none() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    deliver(&mut one, &mut two, START);
    drain(&mut two);

    one.set_own(START, own(1));
    assert_eq!(drain(&mut one), []);
    one.set_own(
        START,
        Own {
            ipv4: Some([10, 0, 0, 1].into()),
            ..own(1)
        },
    );

    assert_eq!(
        deliver(&mut one, &mut two, START),
        [Outcome::Updated { changed: true }]
    );
    assert!(matches!(
        drain(&mut two)[1],
        Event::Flood {
            spread: Spread::All,
            ..
        }
    ));
}

#[test]
fn an_advert_without_a_known_credential_waits_for_the_digest() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    let bare = SignedAdvert {
        credential: None,
        ..one.own().unwrap()
    };

    let outcome = two.handle_advert(START, UNIX, &bare, secs(0), None);
    reconcile(&mut two, &mut one, START);

    assert_eq!(outcome, Outcome::NeedsCredential);
    assert!(two.get(&identity(1).key()).is_some());
}

#[test]
fn what_an_anchor_cannot_say_is_refused() {
    let mut one = node(1);
    one.set_own(START, own(1));
    let valid = one.own().unwrap();
    let judge = |change: &dyn Fn(&mut Advert)| {
        let mut advert = valid.advert.claimed().clone();
        change(&mut advert);
        let advert = Signed::sign(advert, identity(1).signing());
        let advert = SignedAdvert {
            advert,
            credential: valid.credential.clone(),
        };
        node(2).handle_advert(START, UNIX, &advert, secs(0), None)
    };
    let refused = Outcome::Refused;

    assert_eq!(judge(&|_| {}), Outcome::New);
    assert_eq!(
        judge(&|advert| advert.overlay = std::net::Ipv6Addr::LOCALHOST),
        refused(AdvertRefused::Overlay)
    );
    assert_eq!(
        judge(&|advert| advert.realm = RealmKey([1; 32]).id()),
        refused(AdvertRefused::Realm)
    );
    assert_eq!(
        judge(&|advert| advert.taints = TaintSet::parse(["other"]).unwrap()),
        refused(AdvertRefused::Taints)
    );
    assert_eq!(
        judge(&|advert| advert.taints = TaintSet::default()),
        refused(AdvertRefused::Taints)
    );
    assert_eq!(
        judge(&|advert| advert.lifetime_secs = 1 << 20),
        refused(AdvertRefused::Lifetime(1 << 20))
    );
    assert_eq!(
        judge(&|advert| advert.noise_key = [0; 32]),
        refused(AdvertRefused::SessionKey)
    );
    assert_eq!(
        judge(&|advert| advert.endpoints = vec![([192, 0, 2, 1], 1).into(); 17]),
        refused(AdvertRefused::TooMany("endpoints"))
    );
    let network = "10.1.0.0/16".parse().unwrap();
    assert_eq!(
        judge(&|advert| advert.networks = vec![network; MAX_NETWORKS + 1]),
        refused(AdvertRefused::TooMany("networks"))
    );
    assert!(matches!(
        judge(&|advert| advert.key = identity(3).key()),
        Outcome::Refused(AdvertRefused::Signature(_))
    ));
}

#[test]
fn one_member_cannot_use_anothers_credential() {
    let mut one = node(1);
    one.set_own(
        START,
        Own {
            credential: credential(3),
            ..own(1)
        },
    );

    let outcome = node(2).handle_advert(START, UNIX, &one.own().unwrap(), secs(0), None);

    assert_eq!(outcome, Outcome::Refused(AdvertRefused::OtherCredential));
}

#[test]
fn an_advert_stands_on_the_credential_it_names_and_on_no_other_of_its_anchor() {
    let mut one = node(1);
    one.set_own(START, own(1));
    let other = first_machine(
        &realm_secret(),
        identity(1).key(),
        TaintSet::first_machine(),
        Serial([1; 16]),
        UNIX,
    );
    let advert = SignedAdvert {
        credential: Some(other),
        ..one.own().unwrap()
    };

    let outcome = node(2).handle_advert(START, UNIX, &advert, secs(0), None);

    assert_eq!(outcome, Outcome::Refused(AdvertRefused::OtherCredential));
}

#[test]
fn an_ended_membership_is_not_refreshed() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    deliver(&mut one, &mut two, START);
    one.handle_timeout(START + secs(30));
    let late = UNIX + crate::credential::LIFETIME + secs(601);

    let outcome = two.handle_advert(START, late, &one.own().unwrap(), secs(0), None);

    assert!(matches!(
        outcome,
        Outcome::Refused(AdvertRefused::Credential(
            crate::credential::Refused::Expired { .. }
        ))
    ));
}

#[test]
fn another_statement_of_a_known_edition_is_ignored_and_counted() {
    let [mut one, mut clone, mut two] = [node(1), node(1), node(2)];
    one.set_own(START, own(1));
    clone.set_own(
        START,
        Own {
            aes: false,
            ..own(1)
        },
    );
    deliver(&mut one, &mut two, START);

    assert_eq!(deliver(&mut clone, &mut two, START), [Outcome::Conflicting]);

    assert!(two.get(&identity(1).key()).unwrap().advert().aes);
    assert_eq!(two.counts().conflicting, 1);
}

#[test]
fn a_goodbye_removes_at_once_and_replays_do_not_undo_it() {
    let [mut one, mut two] = [node(1), node(2)];
    let key = identity(1).key();
    one.set_own(START, own(1));
    let replay = one.own().unwrap();
    deliver(&mut one, &mut two, START);
    drain(&mut two);

    let leave = one.leave();
    assert_eq!(
        two.handle_leave(START, &leave, Some(key)),
        LeaveOutcome::Left
    );

    let events = drain(&mut two);
    assert_eq!(events[0], Event::Left(key));
    assert!(matches!(
        &events[1],
        Event::Flood {
            spread: Spread::All,
            ..
        }
    ));
    assert!(two.get(&key).is_none());
    assert_eq!(two.handle_leave(START, &leave, None), LeaveOutcome::Ignored);
    assert!(matches!(
        two.handle_advert(START, UNIX, &replay, secs(0), None),
        Outcome::Stale { .. }
    ));
}

#[test]
fn one_that_left_comes_back_with_its_next_start() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    deliver(&mut one, &mut two, START);
    two.handle_leave(START, &one.leave(), None);
    let mut again = node_at(1, 2);
    again.set_own(START, own(1));

    assert_eq!(deliver(&mut again, &mut two, START), [Outcome::New]);
}

#[test]
fn nobody_says_goodbye_for_another_or_for_later_statements() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    deliver(&mut one, &mut two, START);
    let realm = realm_secret().id();
    let goodbye = |edition, signer: u8| {
        let leave = Leave {
            version: Version1,
            realm,
            key: identity(1).key(),
            edition,
        };
        Signed::sign(leave, identity(signer).signing())
    };

    let forged = two.handle_leave(START, &goodbye(Edition::first(9), 3), None);
    let replayed = two.handle_leave(START, &goodbye(Edition::first(1), 1), None);
    let strange = node(5).handle_leave(START, &goodbye(Edition::first(9), 1), None);

    assert!(matches!(
        forged,
        LeaveOutcome::Refused(AdvertRefused::Signature(_))
    ));
    assert_eq!(replayed, LeaveOutcome::Ignored);
    assert_eq!(strange, LeaveOutcome::Ignored);
    assert!(two.get(&identity(1).key()).is_some());
}

#[test]
fn an_advert_expires_after_its_lifetime_less_its_age() {
    let [mut one, mut two] = [node(1), node(2)];
    let key = identity(1).key();
    one.set_own(START, own(1));
    let advert = one.own().unwrap();
    two.handle_advert(START, UNIX, &advert, secs(50), None);
    drain(&mut two);
    let end = START + secs(70);

    assert_eq!(two.poll_timeout(), Some(end));
    two.handle_timeout(end - Duration::from_nanos(1));
    assert_eq!(drain(&mut two), []);
    two.handle_timeout(end);

    assert_eq!(drain(&mut two), [Event::Expired(key)]);
    assert!(two.get(&key).is_none());
    assert!(matches!(
        two.handle_advert(end, UNIX, &advert, secs(0), None),
        Outcome::Stale { .. }
    ));
}

#[test]
fn a_known_advert_is_not_made_younger() {
    let [mut one, mut two] = [node(1), node(2)];
    one.set_own(START, own(1));
    let advert = one.own().unwrap();
    two.handle_advert(START, UNIX, &advert, secs(50), None);

    let outcome = two.handle_advert(START + secs(60), UNIX, &advert, secs(0), None);

    assert_eq!(outcome, Outcome::Known);
    assert_eq!(two.poll_timeout(), Some(START + secs(70)));
}

#[test]
fn one_that_says_something_new_all_the_time_is_heard_now_and_then() {
    let [mut one, mut two] = [node(1), node(2)];
    let mut passed_on = 0;
    for number in 0..1000_u16 {
        let endpoints = vec![([192, 0, 2, 1], 1 + number).into()];
        one.set_own(
            START,
            Own {
                endpoints,
                ..own(1)
            },
        );
        if number % 7 == 0 {
            let leave = one.leave();
            two.handle_leave(START, &leave, None);
        }
        deliver(&mut one, &mut two, START);
        passed_on += drain(&mut two)
            .iter()
            .filter(|event| matches!(event, Event::Flood { .. }))
            .count();
    }
    assert!(passed_on <= 20, "{passed_on} floods");
    assert!(two.counts().too_often > 900, "{:?}", two.counts());

    let later = START + secs(60);
    one.set_own(later, own(1));
    drain(&mut one);
    reconcile(&mut two, &mut one, later);

    let entry = two.get(&identity(1).key()).unwrap();
    assert_eq!(entry.advert(), one.own().unwrap().advert.claimed());
}

#[test]
fn an_anchor_signs_anew_before_its_interval_is_over() {
    let mut one = node(1);
    one.set_own(START, own(1));
    let first = one.edition();
    let due = one.poll_timeout().unwrap();

    assert!(due > START + secs(26) && due <= START + secs(30), "{due:?}");
    one.handle_timeout(due);

    assert_eq!(one.edition(), first.next());
    assert!(one.poll_timeout().unwrap() > due);
}

#[test]
fn refresh_interval_follows_the_realms_size_within_its_bounds() {
    for (size, seconds) in [
        (1, 30),
        (50, 30),
        (100, 60),
        (500, 300),
        (3000, 1800),
        (10_000, 1800),
    ] {
        assert_eq!(refresh_interval(size), secs(seconds), "{size} anchors");
    }
}

#[test]
fn a_rolled_back_anchor_learns_so_and_goes_on_above_it() {
    let [mut before, mut two] = [node_at(1, 5), node(2)];
    before.set_own(START, own(1));
    deliver(&mut before, &mut two, START);
    let mut restored = node_at(1, 3);
    restored.set_own(START, own(1));
    assert_eq!(
        deliver(&mut restored, &mut two, START),
        [Outcome::Stale {
            known: Edition::first(5)
        }]
    );

    reconcile(&mut two, &mut restored, START);

    assert_eq!(drain(&mut restored), [Event::OwnAhead(Edition::first(5))]);
    restored.set_epoch(START, 6);
    assert_eq!(
        deliver(&mut restored, &mut two, START),
        [Outcome::Updated { changed: false }]
    );
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn realm_secret() -> RealmSecret {
    RealmSecret::from_seed(&[200; 32])
}

fn identity(number: u8) -> Identity {
    Identity::from_seed(&[number; 32])
}

fn credential(number: u8) -> Credential {
    of(&identity(number))
}

fn of(identity: &Identity) -> Credential {
    first_machine(
        &realm_secret(),
        identity.key(),
        TaintSet::first_machine(),
        Serial([0; 16]),
        UNIX,
    )
}

fn own(number: u8) -> Own {
    own_of(credential(number))
}

fn own_of(credential: Credential) -> Own {
    Own {
        endpoints: vec![([192, 0, 2, 1], 47474).into()],
        ipv4: None,
        networks: Vec::new(),
        taints: TaintSet::first_machine(),
        reach: Reach::Public,
        aes: true,
        credential,
        draining: false,
    }
}

fn node(number: u8) -> Membership {
    node_at(number, 1)
}

fn node_at(number: u8, epoch: u64) -> Membership {
    Membership::new(realm_secret().key(), identity(number), epoch, 7)
}

/// Makes `node` know the adverts of further anchors, by number.
fn fill(node: &mut Membership, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        let mut seed = [0xee; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        let identity = Identity::from_seed(&seed);
        let said = own_of(of(&identity));
        let mut other = Membership::new(realm_secret().key(), identity, 1, 7);
        other.set_own(START, said);
        let outcome = node.handle_advert(START, UNIX, &other.own().unwrap(), secs(0), None);
        assert_eq!(outcome, Outcome::New);
    }
    drain(node);
}

fn known(node: &Membership) -> Vec<(AnchorKey, Edition)> {
    let own = node
        .own()
        .map(|own| (own.advert.claimed().key, own.advert.claimed().edition));
    let others = node
        .entries()
        .map(|(key, entry)| (*key, entry.advert().edition));
    let mut all: Vec<_> = own.into_iter().chain(others).collect();
    all.sort();
    all
}

fn drain(node: &mut Membership) -> Vec<Event> {
    std::iter::from_fn(|| node.poll_event()).collect()
}

/// Carries what `from` floods to `to`, and returns what became of the adverts.
fn deliver(from: &mut Membership, to: &mut Membership, now: Mono) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for event in drain(from) {
        if let Event::Flood { message, .. } = event {
            outcomes.extend(receive(to, &message, now));
        }
    }
    outcomes
}

fn receive(node: &mut Membership, message: &Message, now: Mono) -> Vec<Outcome> {
    receive_from(node, message, now, None)
}

fn receive_from(
    node: &mut Membership,
    message: &Message,
    now: Mono,
    from: Option<AnchorKey>,
) -> Vec<Outcome> {
    if let Message::Leave(leave) = message {
        node.handle_leave(now, leave, from);
        return Vec::new();
    }
    let Message::Adverts(adverts) = message else {
        panic!("{message:?} is not for the store")
    };
    let mut outcomes = Vec::new();
    for aged in &adverts.adverts {
        let age = Duration::from_millis(aged.age_millis);
        outcomes.push(node.handle_advert(now, UNIX, &aged.advert, age, from));
    }
    outcomes
}

/// Sends one digest from `one` to `two` and carries all that follows, until nothing does.
fn reconcile(one: &mut Membership, two: &mut Membership, now: Mono) -> Vec<Message> {
    let mut all = Vec::new();
    let mut to_two = vec![Message::Digest(one.digest())];
    while !to_two.is_empty() {
        let to_one = answer(two, one.identity.key(), &to_two, now);
        all.append(&mut to_two);
        to_two = answer(one, two.identity.key(), &to_one, now);
        all.extend(to_one);
    }
    all
}

/// Hands `node` what `peer` sent, and returns what it sends back.
fn answer(node: &mut Membership, peer: AnchorKey, messages: &[Message], now: Mono) -> Vec<Message> {
    let mut answers = Vec::new();
    for message in messages {
        if let Message::Digest(digest) = message {
            answers.extend(node.handle_digest(now, digest));
        } else {
            receive_from(node, message, now, Some(peer));
        }
    }
    node.events.retain(|event| {
        let Event::Tell { to, message } = event else {
            return true;
        };
        assert_eq!(*to, peer);
        answers.push(Message::clone(message));
        false
    });
    answers
}
