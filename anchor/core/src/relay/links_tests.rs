use std::time::Duration;

use conflux_proto::frame::{Flags, FrameType, Header};
use conflux_proto::relay::OUTER_BYTES;
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::super::leg::LegKeys;
use super::*;

const A: PeerIx = PeerIx(1);
const B: PeerIx = PeerIx(2);
const R: PeerIx = PeerIx(3);
const TO_B: Relayed = Relayed { relay: R, far: B };
const TO_A: Relayed = Relayed { relay: R, far: A };

#[test]
fn a_datagram_goes_through_the_relay_unchanged() {
    let mut world = World::new();
    let inside = frame(1_300);

    let sent = world.send(&inside);
    let mut relayed = sent.clone();
    let onward = world.relay.open(now(), &mut relayed).unwrap();
    let arrived = world.b.open(now(), &mut relayed.clone()).unwrap();

    assert_eq!(onward, Passed::Onward { from: A, to: B });
    assert_eq!(arrived, Passed::Inside { by: TO_A });
    assert_eq!(relayed[OUTER_BYTES..], inside);
    assert_ne!(relayed[..OUTER_BYTES], sent[..OUTER_BYTES]);
}

#[test]
fn answers_come_back_by_the_same_relay() {
    let mut world = World::new();
    let mut datagram = outer_room(&frame(40));

    assert!(world.b.sealer(TO_A).unwrap().seal(&mut datagram));
    let onward = world.relay.open(now(), &mut datagram).unwrap();
    let arrived = world.a.open(now(), &mut datagram).unwrap();

    assert_eq!(onward, Passed::Onward { from: B, to: A });
    assert_eq!(arrived, Passed::Inside { by: TO_B });
}

#[test]
fn what_was_carried_once_is_not_carried_again() {
    let mut world = World::new();
    let sent = world.send(&frame(100));

    let first = world.relay.open(now(), &mut sent.clone());
    let again = world.relay.open(now(), &mut sent.clone());

    assert!(first.is_ok());
    assert_eq!(again, Err(NotCarried::Replayed));
}

#[test]
fn a_relay_carries_nothing_that_was_relayed_before() {
    let mut world = World::new();
    let nested = world.send(&frame(100));

    let sent = world.send(&nested);

    let refused = world.relay.open(now(), &mut sent.clone());
    assert_eq!(refused, Err(NotCarried::Malformed));
}

#[test]
fn what_comes_from_a_relay_is_not_taken_for_what_goes_to_it() {
    let mut world = World::new();
    let mut datagram = world.send(&frame(100));
    world.relay.open(now(), &mut datagram).unwrap();

    // The relay gets back what it sent on: the index is not one of its own.
    let back = world.relay.open(now(), &mut datagram);

    assert_eq!(back, Err(NotCarried::Unknown));
}

#[test]
fn a_lease_that_has_ended_carries_nothing() {
    let mut world = World::new();
    let sent = world.send(&frame(100));

    let end = world.relay.poll_timeout().unwrap();
    world.relay.handle_timeout(end);

    assert_eq!(end, now() + Duration::from_secs(120));
    assert_eq!(
        world.relay.open(end, &mut sent.clone()),
        Err(NotCarried::Unknown)
    );
    assert_eq!(world.relay.poll_timeout(), None);
}

#[test]
fn a_lease_that_was_prolonged_still_carries() {
    let mut world = World::new();
    let sent = world.send(&frame(100));
    let later = now() + Duration::from_secs(180);

    for ours in [21, 22] {
        world.relay.extend(ours, later);
    }
    world.relay.handle_timeout(now() + Duration::from_secs(121));

    assert!(world.relay.open(now(), &mut sent.clone()).is_ok());
    assert_eq!(world.relay.poll_timeout(), Some(later));
}

#[test]
fn one_relay_cannot_take_the_index_of_anothers_lease() {
    let mut world = World::new();

    let stolen = world
        .a
        .install(&leg(PeerIx(7), 11, 99, Role::End { far: B }, [9, 9]));
    let renewed = world
        .a
        .install(&leg(R, 11, 99, Role::End { far: B }, [9, 9]));

    assert!(!stolen);
    assert!(renewed);
}

#[test]
fn the_limit_holds_back_what_is_carried_and_nothing_that_is_for_oneself() {
    let mut world = World::new();
    world.relay.set_limit(now(), Some(1_000));
    world.b.set_limit(now(), Some(1));
    let mut carried = 0;

    for _ in 0..1_000 {
        let mut datagram = world.send(&frame(1_300));
        match world.relay.open(now(), &mut datagram) {
            Ok(_) => {
                carried += 1;
                assert!(world.b.open(now(), &mut datagram).is_ok());
            }
            Err(error) => assert_eq!(error, NotCarried::OverLimit),
        }
    }

    assert_eq!(carried, (128 << 10) / (1_300 + 64));
}

proptest! {
    #[test]
    fn no_changed_header_is_carried(at in 0..OUTER_BYTES, bit in 0_u8..8) {
        let mut world = World::new();
        let mut sent = world.send(&frame(64));

        sent[at] ^= 1 << bit;

        prop_assert!(world.relay.open(now(), &mut sent).is_err());
    }

    #[test]
    fn any_bytes_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut world = World::new();

        prop_assert!(world.relay.open(now(), &mut bytes).is_err());
    }
}

struct World {
    a: Links,
    b: Links,
    relay: Links,
}

impl World {
    fn new() -> Self {
        let [mut a, mut b, mut relay] = [1, 2, 3].map(Links::new);
        // Keys by direction: A to R, R to A, B to R, R to B.
        assert!(a.install(&leg(R, 11, 21, Role::End { far: B }, [1, 2])));
        assert!(b.install(&leg(R, 12, 22, Role::End { far: A }, [3, 4])));
        assert!(relay.install(&leg(A, 21, 11, Role::Relay { to: 22 }, [2, 1])));
        assert!(relay.install(&leg(B, 22, 12, Role::Relay { to: 21 }, [4, 3])));
        Self { a, b, relay }
    }

    fn send(&mut self, inside: &[u8]) -> Vec<u8> {
        let mut datagram = outer_room(inside);
        assert!(self.a.sealer(TO_B).unwrap().seal(&mut datagram));
        datagram
    }
}

fn leg(peer: PeerIx, ours: u32, theirs: u32, role: Role, keys: [u8; 2]) -> Leg {
    let [send, receive] = keys.map(|key| Zeroizing::new([key; 32]));
    Leg {
        peer,
        ours,
        theirs,
        role,
        ends: now() + Duration::from_secs(120),
        keys: LegKeys { send, receive },
    }
}

fn outer_room(inside: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; OUTER_BYTES];
    datagram.extend_from_slice(inside);
    datagram
}

fn frame(bytes: usize) -> Vec<u8> {
    let header = Header {
        kind: FrameType::Data,
        flags: Flags::NONE,
        receiver: 5,
        counter: 6,
    };
    let mut frame = header.encode().to_vec();
    frame.resize(bytes + 32, 0xaa);
    frame
}

fn now() -> Mono {
    Mono::default() + Duration::from_secs(1)
}
