//! Control messages: what is read is written and read again the same, and takes no more room.

use conflux_proto::advert::{Edition, Leave, SignedAdvert};
use conflux_proto::control::{
    Admitted, Adverts, AgedAdvert, Decoded, Digest, DigestEntry, Hello, Message, Noise,
    PROTOCOL_VERSION, Refusal, RefusalCode, Resting, RevocationDigest, Revocations, Turn,
};
use conflux_proto::signed::{Signed, Version1};

use crate::samples::{member, realm};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(Decoded::Message(message)) = Message::decode(bytes) else {
        return;
    };
    let written = message.encode().expect("it was short enough to be read");
    assert!(written.len() <= bytes.len(), "{message:?} grew");
    assert_eq!(Message::decode(&written), Ok(Decoded::Message(message)));
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let (first, second) = (member(0), member(1));
    let edition = Edition::first(3);
    let advert = first.advert(edition, |_| {});
    let with = SignedAdvert {
        advert: advert.clone(),
        credential: Some(first.credential.clone()),
    };
    let without = SignedAdvert {
        advert,
        credential: None,
    };
    let leave = Leave {
        version: Version1,
        realm: realm().id(),
        key: second.key(),
        edition: edition.next(),
    };
    let entry = DigestEntry {
        key: first.key(),
        edition,
    };
    let noise = Noise {
        handshake: 5,
        bytes: vec![3; 96].into(),
    };
    [
        Message::Ping(u64::MAX),
        Message::Pong(0),
        Message::Noise1(noise.clone()),
        Message::Noise2(noise),
        Message::Resting(Resting { flows: 3 }),
        Message::Refused(Refusal {
            code: RefusalCode::Expired,
            text: "it has ended".to_owned(),
        }),
        Message::Hello(Box::new(Hello {
            version: PROTOCOL_VERSION,
            realm: realm().id(),
            credential: second.credential.clone(),
            epoch: 4,
            advert: Some(without.clone()),
            software: "0.1.0".to_owned(),
            unix_time: 1_800_000_000,
        })),
        Message::Admitted(Admitted {
            credential: second.credential.clone(),
        }),
        Message::Adverts(Adverts {
            adverts: vec![
                AgedAdvert {
                    advert: with,
                    age_millis: 0,
                },
                AgedAdvert {
                    advert: without,
                    age_millis: 4_000,
                },
            ],
            more: true,
        }),
        Message::Digest(Digest::Fingerprints(vec![1, u64::MAX, 0])),
        Message::Digest(Digest::Editions {
            turn: Turn::Ask,
            buckets: vec![1, 200],
            editions: vec![entry],
        }),
        Message::Leave(Signed::sign(leave, second.identity.signing())),
        Message::Revocations(Revocations {
            revocations: vec![first.revokes(second)],
        }),
        Message::RevocationDigest(RevocationDigest::new(Turn::Answer, 0, u64::MAX, [7, 9])),
    ]
    .iter()
    .map(|message| message.encode().expect("samples are short"))
    .collect()
}
