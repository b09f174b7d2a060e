//! Signed statements and credentials. The first byte picks a kind; for those that have a
//! signature the rest is a body, signed here, so that what is behind the signature is read too.

use conflux_core::credential::{verify, verify_join};
use conflux_proto::advert::{Advert, Edition, Leave, SignedAdvert};
use conflux_proto::credential::{Admission, Credential, Grant, Join, Link};
use conflux_proto::revocation::{Revocation, SignedRevocation};
use conflux_proto::signed::{Signed, SigningSecret, Statement};

use crate::samples::{MEMBERS, NOW, member, realm, ticket};

pub(crate) fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 9 {
        0 => holds::<Advert>(rest),
        1 => holds::<Leave>(rest),
        2 => holds::<Grant>(rest),
        3 => holds::<Join>(rest),
        4 => holds::<Admission>(rest),
        5 => holds::<Revocation>(rest),
        6 => {
            if let Ok(revocation) = SignedRevocation::from_bytes(rest) {
                let again = SignedRevocation::from_bytes(&revocation.to_bytes());
                assert_eq!(again, Ok(revocation));
            }
        }
        7 => {
            if let Ok(advert) = minicbor::decode::<SignedAdvert>(rest) {
                let bytes = minicbor::to_vec(&advert).expect("memory takes all");
                assert_eq!(minicbor::decode(&bytes).ok(), Some(advert));
            }
        }
        _ => credential(rest),
    }
}

fn credential(bytes: &[u8]) {
    let Ok(credential) = Credential::from_bytes(bytes) else {
        return;
    };
    let again = Credential::from_bytes(&credential.to_bytes());
    assert_eq!(again.as_ref(), Ok(&credential));
    assert_eq!(again.map(|again| again.hash()), Ok(credential.hash()));
    let realm = realm().key();
    if let Ok(member) = verify(&credential, &realm, NOW) {
        assert!(known_credential(&credential), "{member:?} was made up");
    }
    // Whoever sees a credential can leave its admission out; that is how its owner began.
    if let Ok(joiner) = verify_join(&credential, &realm, NOW) {
        assert!(known_credential(&credential), "{joiner:?} was made up");
    }
}

/// Whoever has no key of the realm can pass on what was signed, and nothing else: the statements
/// that count are among the samples'.
fn known_credential(credential: &Credential) -> bool {
    let known = |link: &Link| {
        (0..MEMBERS)
            .flat_map(|number| member(number).credential.links())
            .any(|sample| sample.grant == link.grant && sample.join == link.join)
    };
    credential.links().iter().all(known)
}

/// A body that is read is kept to the letter, is its signer's and nobody else's, and cannot be
/// shown as another kind.
fn holds<T: Statement + PartialEq>(body: &[u8]) {
    let (secret, other) = (SigningSecret::from_seed(&[60; 32]), [61; 32]);
    let message = [T::LABEL.as_bytes(), &[0], body].concat();
    let bytes = {
        let mut encoder = minicbor::Encoder::new(Vec::new());
        encoder
            .array(2)
            .and_then(|encoder| encoder.bytes(body))
            .and_then(|encoder| encoder.bytes(&secret.sign_bytes(&message)))
            .expect("memory takes all");
        encoder.into_writer()
    };
    let Ok(signed) = Signed::<T>::from_bytes(&bytes) else {
        return;
    };
    assert!(body.len() <= T::MAX_BYTES);
    assert_eq!(signed.to_bytes(), bytes);
    assert!(signed.verify(&secret.public()).is_ok());
    assert!(signed.verify(&other).is_err());
    let again = Signed::<T>::from_bytes(&bytes).expect("it was read before");
    assert!(again == signed && again.hash() == signed.hash());
    if let Ok(other) = Signed::<Relabelled>::from_bytes(&bytes) {
        assert!(other.verify(&secret.public()).is_err());
    }
}

/// A statement of another kind, whatever it says.
struct Relabelled;

impl Statement for Relabelled {
    const LABEL: &'static str = "conflux other 1";
    const MAX_BYTES: usize = 64 << 10;
}

impl<C> minicbor::Encode<C> for Relabelled {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.map(0)?.ok()
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Relabelled {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        d.skip().map(|()| Self)
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let (first, second, issuer) = (member(0), member(1), member(2));
    let advert = second.advert(Edition::first(1), |advert| {
        advert.networks = vec!["10.9.1.0/24".parse().expect("it is a network")];
        advert.draining = true;
    });
    let leave = Leave {
        version: conflux_proto::signed::Version1,
        realm: realm().id(),
        key: second.key(),
        edition: Edition::first(2),
    };
    let link = second.credential.last();
    let join = link.join.as_ref().expect("it joined by a ticket");
    let admission = link.admission.as_ref().expect("it was admitted");
    let revocation = first.revokes(issuer);
    let with = SignedAdvert {
        advert: advert.clone(),
        credential: Some(second.credential.clone()),
    };
    [
        (0, body(&advert.to_bytes())),
        (1, minicbor::to_vec(&leave).expect("memory takes all")),
        (2, body(&ticket().grant().to_bytes())),
        (3, body(&join.to_bytes())),
        (4, body(&admission.admission.to_bytes())),
        (5, body(&revocation.revocation.to_bytes())),
        (6, revocation.to_bytes()),
        (7, minicbor::to_vec(&with).expect("memory takes all")),
        (8, first.credential.to_bytes()),
        (8, issuer.credential.to_bytes()),
    ]
    .map(|(kind, bytes)| [&[kind][..], &bytes].concat())
    .into()
}

/// Returns the body inside of a signed statement's bytes.
fn body(signed: &[u8]) -> Vec<u8> {
    let mut decoder = minicbor::Decoder::new(signed);
    decoder
        .array()
        .and_then(|_| decoder.bytes())
        .expect("it has a body")
        .to_vec()
}
