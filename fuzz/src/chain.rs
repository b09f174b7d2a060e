//! Credentials forged by members that lie together: whatever links they put together out of their
//! own signatures and of what honest anchors once signed, nobody gets more than one of them had.
//!
//! The liars are the plain member, everybody who has its ticket, a stranger, and (in half of the
//! inputs) the issuer of the samples. The realm key, the first machine and the anchor of the other
//! compartment are honest: of theirs only what they signed is at hand.

use conflux_core::credential::{verify, verify_chain, verify_join};
use conflux_core::time::UnixTime;
use conflux_proto::credential::{
    Admission, Advertise, Countersigned, Credential, Grant, Join, Kind, Link, Serial,
};
use conflux_proto::id::AnchorKey;
use conflux_proto::signed::{Signed, SigningSecret, Version1};
use conflux_proto::taint::TaintSet;

use crate::input::Input;
use crate::samples::{MEMBERS, NOW, member, realm, taints, ticket};

/// More links than chains may have, so that the limit is met too.
const MOST_LINKS: u8 = 12;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let liars = Liars {
        with_issuer: input.flag(),
    };
    let count = input.byte() % MOST_LINKS;
    let links = (0..count).map(|_| liars.link(&mut input)).collect();
    let Ok(credential) = Credential::new(links) else {
        return;
    };
    assert_eq!(
        Credential::from_bytes(&credential.to_bytes()).as_ref(),
        Ok(&credential)
    );
    let (realm, now) = (realm().key(), liars.date(&mut input));
    if let Ok(joiner) = verify_join(&credential, &realm, now) {
        liars.check(&joiner.key, &joiner.taints, None, false);
    }
    if let Ok(member) = verify(&credential, &realm, now) {
        assert_eq!(verify_chain(&credential, &realm).as_ref(), Ok(&member));
    }
    if let Ok(member) = verify_chain(&credential, &realm) {
        let rights = Some(&member.advertise);
        liars.check(&member.key, &member.taints, rights, member.issuer);
    }
}

struct Liars {
    with_issuer: bool,
}

impl Liars {
    /// Panics when these rights of `key` are more than the liars could give.
    fn check(&self, key: &AnchorKey, has: &TaintSet, may: Option<&Advertise>, issuer: bool) {
        let honest = |number: usize| *key == member(number).key();
        if honest(0) || honest(2) {
            return;
        }
        let most = if self.with_issuer {
            taints(["a", "b"])
        } else {
            taints(["a"])
        };
        let is_own = honest(3) && taints(["c"]).contains_all(has);
        assert!(most.contains_all(has) || is_own, "{key:?} has {has}");
        let granted = &ticket().grant().claimed().advertise;
        assert!(may.is_none_or(|may| may.is_within(granted)), "{may:?}");
        assert!(!issuer || self.with_issuer, "{key:?} may grant");
    }

    fn secret(&self, input: &mut Input<'_>) -> SigningSecret {
        match input.byte() % 4 {
            0 => member(1).identity.signing().clone(),
            1 => ticket().secret().clone(),
            2 if self.with_issuer => member(2).identity.signing().clone(),
            _ => SigningSecret::from_seed(&[50; 32]),
        }
    }

    fn link(&self, input: &mut Input<'_>) -> Link {
        let authority = input.flag().then(|| input.byte() % MOST_LINKS);
        let signed_before = honest_link(input);
        let grant = match input.byte() % 3 {
            0 => ticket().grant().clone(),
            1 => Signed::sign(self.grant(input), &self.secret(input)),
            _ => signed_before.grant,
        };
        let join = match input.byte() % 3 {
            0 => None,
            1 => Some(Signed::sign(self.join(input, &grant), &self.secret(input))),
            _ => signed_before.join,
        };
        let admission = match (input.byte() % 3, &join) {
            (1, Some(join)) => Some(Countersigned {
                admitter: input.byte() % MOST_LINKS,
                admission: Signed::sign(self.admission(input, join), &self.secret(input)),
            }),
            (2, _) => signed_before.admission,
            _ => None,
        };
        Link {
            authority,
            grant,
            join,
            admission,
        }
    }

    fn grant(&self, input: &mut Input<'_>) -> Grant {
        let kind = input.pick(&[Kind::Anchor, Kind::Ticket]);
        let subject = match kind {
            Kind::Anchor => self.anchor(input).0,
            Kind::Ticket => self.secret(input).public(),
        };
        Grant {
            version: Version1,
            realm: realm().id(),
            subject,
            kind,
            taints: labels(input),
            advertise: advertise(input),
            issuer: input.flag(),
            serial: Serial([input.byte() % 6; 16]),
            made_at: self.date(input).0,
            expires: self.date(input).0,
            ticket: input.flag().then(|| Serial([input.byte() % 6; 16])),
        }
    }

    fn join(&self, input: &mut Input<'_>, grant: &Signed<Grant>) -> Join {
        Join {
            version: Version1,
            realm: realm().id(),
            ticket: if input.flag() {
                Serial([input.byte() % 6; 16])
            } else {
                grant.claimed().serial
            },
            anchor: self.anchor(input),
            taints: labels(input),
            made_at: self.date(input).0,
        }
    }

    fn admission(&self, input: &mut Input<'_>, join: &Signed<Join>) -> Admission {
        Admission {
            version: Version1,
            realm: realm().id(),
            anchor: if input.flag() {
                self.anchor(input)
            } else {
                join.claimed().anchor
            },
            join: if input.flag() { [3; 32] } else { join.hash() },
            by: self.anchor(input),
            admitted_at: self.date(input).0,
        }
    }

    fn anchor(&self, input: &mut Input<'_>) -> AnchorKey {
        match usize::from(input.byte() % 6) {
            number if number < MEMBERS => member(number).key(),
            _ => AnchorKey(self.secret(input).public()),
        }
    }

    fn date(&self, input: &mut Input<'_>) -> UnixTime {
        let day = 24 * 3600;
        let near = input.pick(&[
            0,
            NOW.0 - 400 * day,
            NOW.0 - day,
            NOW.0,
            NOW.0 + 600,
            NOW.0 + 2 * 3600,
            NOW.0 + 365 * day,
            u64::MAX,
        ]);
        UnixTime(near)
    }
}

/// Returns a link of an honest credential, as it was signed.
fn honest_link(input: &mut Input<'_>) -> Link {
    let links = member(usize::from(input.byte()) % MEMBERS)
        .credential
        .links();
    links[usize::from(input.byte()) % links.len()].clone()
}

fn labels(input: &mut Input<'_>) -> TaintSet {
    let labels: &[&str] = input.pick(&[
        &["a"][..],
        &["b"],
        &["a", "b"],
        &["c"],
        &["a", "b", "c"],
        &[],
    ]);
    TaintSet::parse(labels).expect("these are labels")
}

fn advertise(input: &mut Input<'_>) -> Advertise {
    let network = input.pick(&[
        "10.9.0.0/16",
        "10.9.1.0/24",
        "10.0.0.0/8",
        "0.0.0.0/0",
        "fd00::/8",
    ]);
    Advertise {
        private_hosts: input.flag(),
        networks: if input.flag() {
            vec![network.parse().expect("it is a network")]
        } else {
            Vec::new()
        },
        any: input.byte() & 7 == 7,
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    // The first machine's link; on it a link of the ticket, as signed; the same with a join and an
    // admission made anew; a grant by the issuer on top of its own two.
    let first = [0, 0, 0, 2, 0, 0];
    let joined = |number: u8| [1, 0, number, 1, 2, 2, 2];
    let forged = [1, 0, 1, 1, 0, 1, 0, 4, 0, 0, 3, 1, 1, 1, 0, 0, 0, 1, 3, 0];
    let granted = [1, 1, 2, 1, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3, 6, 0, 2, 0, 0];
    vec![
        [&[0, 1][..], &first, &[3]].concat(),
        [&[0, 2][..], &first, &joined(1), &[3]].concat(),
        [&[1, 2][..], &first, &joined(2), &[3]].concat(),
        [&[0, 3][..], &first, &joined(1), &forged, &[3]].concat(),
        [&[1, 3][..], &first, &joined(2), &granted, &[3]].concat(),
    ]
}
