use proptest::prelude::*;

use super::*;
use crate::advert::Edition;
use crate::credential::{Advertise, Grant, Kind, Link, Serial};
use crate::id::{AnchorKey, RealmKey};
use crate::revocation::{Revocation, SignedRevocation, Target};
use crate::signed::{SigningSecret, Version1};
use crate::taint::TaintSet;

#[test]
fn every_message_survives_the_wire() {
    for message in messages() {
        let bytes = message.encode().unwrap();

        assert_eq!(Message::decode(&bytes), Ok(Decoded::Message(message)));
    }
}

#[test]
fn messages_of_a_later_release_are_skipped() {
    let later = signed::to_bytes(&(77_u32, "what?"));

    assert_eq!(Message::decode(&later), Ok(Decoded::Unknown { kind: 77 }));
}

#[test]
fn refusals_of_a_later_release_keep_their_number() {
    let refusal = Refusal {
        code: RefusalCode::Other(99),
        text: "for a new reason".to_owned(),
    };
    let bytes = Message::Refused(refusal.clone()).encode().unwrap();

    assert_eq!(
        Message::decode(&bytes),
        Ok(Decoded::Message(Message::Refused(refusal)))
    );
}

#[test]
fn every_refusal_code_reads_back() {
    for number in 0..20 {
        assert_eq!(RefusalCode::from_number(number).number(), number);
    }
}

#[test]
fn frames_come_out_of_a_stream_whole_and_in_order() {
    let mut stream = Vec::new();
    write_frame(b"one", &mut stream).unwrap();
    write_frame(b"three", &mut stream).unwrap();

    for cut in 0..7 {
        assert_eq!(read_frame(&stream[..cut]), Ok(None));
    }
    let first = read_frame(&stream).unwrap().unwrap();
    let second = read_frame(first.rest).unwrap().unwrap();
    assert_eq!(
        (first.message, second.message),
        (&b"one"[..], &b"three"[..])
    );
    assert!(second.rest.is_empty());
}

#[test]
fn a_length_out_of_bounds_is_refused_before_its_bytes_come() {
    assert_eq!(read_frame(&[0, 0, 0, 0]), Err(BadMessage::Length(0)));
    assert_eq!(read_frame(&[0, 1, 0, 1]), Err(BadMessage::Length(65537)));
    assert_eq!(read_frame(&[0, 1, 0, 0]), Ok(None));
    assert!(write_frame(&[], &mut Vec::new()).is_err());
    assert!(write_frame(&[0; MAX_MESSAGE_BYTES + 1], &mut Vec::new()).is_err());
}

#[test]
fn a_huge_claimed_list_takes_no_memory() {
    // [4, {0: array of 2^60 elements
    let bytes = [0x82, 0x04, 0xa1, 0x00, 0x9b, 0x10, 0, 0, 0, 0, 0, 0, 0];

    assert!(matches!(
        Message::decode(&bytes),
        Err(BadMessage::Malformed(_))
    ));
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    let as_body = vec![0x82, 0x04];
    let below_an_unknown_key = vec![0x82, 0x04, 0xa1, 0x18, 0x63];
    for mut bytes in [as_body, below_an_unknown_key] {
        bytes.resize(MAX_MESSAGE_BYTES, 0x81);

        assert!(Message::decode(&bytes).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = Message::decode(&bytes);
        let _ = read_frame(&bytes);
    }

    #[test]
    fn any_body_is_read_or_refused(kind in 0_u8..14, bytes: Vec<u8>) {
        let mut message = vec![0x82, kind];
        message.extend(bytes);
        let _ = Message::decode(&message);
    }

    #[test]
    fn any_body_of_a_later_kind_is_read_or_refused(kind in 24_u8..48, bytes: Vec<u8>) {
        let mut message = vec![0x82, 0x18, kind];
        message.extend(bytes);
        let _ = Message::decode(&message);
    }

    #[test]
    fn a_damaged_message_is_read_or_refused(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let messages = messages();
        let mut bytes = messages[which.index(messages.len())].encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Message::decode(&bytes);
    }
}

fn messages() -> Vec<Message> {
    let secret = SigningSecret::from_seed(&[1; 32]);
    let key = AnchorKey(secret.public());
    let realm = RealmKey([9; 32]).id();
    let edition = Edition {
        epoch: 2,
        sequence: 3,
    };
    let leave = Leave {
        version: Version1,
        realm,
        key,
        edition,
    };
    let entry = DigestEntry { key, edition };
    let advert = SignedAdvert {
        advert: Signed::sign(advert(key), &secret),
        credential: None,
    };
    let revocation = Revocation {
        version: Version1,
        realm,
        target: Target::Anchor(key.id()),
        with_anchors: false,
        by: Some(key),
        made_at: 1_800_000_000,
    };
    let noise = Noise {
        handshake: 8,
        bytes: vec![1, 2, 3].into(),
    };
    vec![
        Message::Hello(Box::new(Hello {
            version: PROTOCOL_VERSION,
            realm,
            credential: credential(&secret),
            epoch: 5,
            advert: Some(advert.clone()),
            software: "0.1.0".to_owned(),
            unix_time: 1_800_000_000,
        })),
        Message::Refused(Refusal {
            code: RefusalCode::Expired,
            text: "too late".to_owned(),
        }),
        Message::Admitted(Admitted {
            credential: credential(&secret),
        }),
        Message::Adverts(Adverts {
            adverts: vec![AgedAdvert {
                advert,
                age_millis: 1234,
            }],
            more: true,
        }),
        Message::Digest(Digest::Fingerprints(vec![7; Digest::BUCKETS])),
        Message::Digest(Digest::Editions {
            turn: Turn::Ask,
            buckets: vec![1, 255],
            editions: vec![entry, entry],
        }),
        Message::Leave(Signed::sign(leave, &secret)),
        Message::Noise1(noise.clone()),
        Message::Noise2(noise),
        Message::Ping(u64::MAX),
        Message::Pong(0),
        Message::Resting(Resting { flows: 70_000 }),
        Message::Revocations(Revocations {
            revocations: vec![SignedRevocation {
                revocation: Signed::sign(revocation, &secret),
                authority: Some(credential(&secret)),
            }],
        }),
        Message::RevocationDigest(RevocationDigest::new(Turn::Answer, 1, u64::MAX, [7, 9])),
        Message::Relay(Relay::Ask(RelayAsk { far: key, index: 7 })),
        Message::Relay(Relay::Wanted(RelayWanted { far: key })),
        Message::Relay(Relay::Grant(RelayGrant {
            far: key,
            index: 7,
            receiver: u32::MAX,
            seconds: 120,
            keys: Some(vec![5; RELAY_KEYS_BYTES].into()),
            rtt_micros: Some(20_000),
        })),
        Message::Relay(Relay::Grant(RelayGrant {
            far: key,
            index: 7,
            receiver: 8,
            seconds: 120,
            keys: None,
            rtt_micros: None,
        })),
        Message::Relay(Relay::Refused(RelayRefused {
            far: key,
            why: RelayRefusal::Other(70),
        })),
        Message::Meet(Meet::Seen(Seen {
            address: "192.0.2.1:5".parse().unwrap(),
        })),
        Message::Meet(Meet::Try(Try {
            candidates: vec!["[2001:db8::1]:47474".parse().unwrap()],
        })),
    ]
}

fn advert(key: AnchorKey) -> crate::advert::Advert {
    let realm = RealmKey([9; 32]).id();
    crate::advert::Advert {
        version: Version1,
        realm,
        key,
        edition: Edition::first(2),
        lifetime_secs: 120,
        overlay: key.overlay(&realm),
        noise_key: [5; 32],
        endpoints: vec!["192.0.2.1:47474".parse().unwrap()],
        ipv4: None,
        networks: Vec::new(),
        taints: TaintSet::first_machine(),
        reach: crate::advert::Reach::Unknown,
        aes: false,
        credential: crate::credential::CredentialHash([8; 32]),
        draining: false,
    }
}

fn credential(secret: &SigningSecret) -> Credential {
    let grant = Grant {
        version: Version1,
        realm: RealmKey([9; 32]).id(),
        subject: secret.public(),
        kind: Kind::Anchor,
        taints: TaintSet::first_machine(),
        advertise: Advertise::anything(),
        issuer: true,
        serial: Serial([4; 16]),
        made_at: 1_800_000_000,
        expires: 1_831_536_000,
        ticket: Some(Serial([5; 16])),
    };
    let grant = Signed::sign(grant, secret);
    Credential::new(vec![Link {
        authority: None,
        grant,
        join: None,
        admission: None,
    }])
    .unwrap()
}
