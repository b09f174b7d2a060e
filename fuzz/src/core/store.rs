//! The store of adverts and revocations, told right and wrong things by members.

use std::net::Ipv4Addr;
use std::time::Duration;

use conflux_core::credential::{Granter, first_machine, revoke, verify};
use conflux_core::membership::{Event, Own};
use conflux_core::time::UnixTime;
use conflux_proto::advert::{Advert, Edition, Leave, Reach, SignedAdvert};
use conflux_proto::control::{Decoded, Digest, DigestEntry, Message, RevocationDigest, Turn};
use conflux_proto::credential::{Credential, Serial};
use conflux_proto::id::AnchorKey;
use conflux_proto::revocation::{Revocation, SignedRevocation, Target};
use conflux_proto::signed::{Signed, Version1};

use super::{Core, own};
use crate::input::Input;
use crate::samples::{MEMBERS, NOW, Sample, member, realm, taints, ticket};

/// More than any step may want said.
const EVENTS: usize = 10_000;

impl Core {
    /// Has this anchor say what it is.
    pub(super) fn say_own(&mut self) {
        static CREDENTIAL: std::sync::LazyLock<Credential> = std::sync::LazyLock::new(|| {
            let labels = taints(["a"]);
            first_machine(realm(), own().key(), labels, Serial([9; 16]), NOW)
        });
        let said = Own {
            endpoints: vec!["192.0.2.77:47474".parse().expect("it is an address")],
            ipv4: Some(super::OWN),
            networks: Vec::new(),
            taints: taints(["a"]),
            reach: Reach::Public,
            aes: true,
            credential: CREDENTIAL.clone(),
            draining: false,
        };
        self.membership.set_own(self.now.mono, said);
    }

    pub(super) fn message_comes(&mut self, input: &mut Input<'_>) {
        if let Ok(Decoded::Message(message)) = Message::decode(input.piece()) {
            self.takes(message);
        }
    }

    fn takes(&mut self, message: Message) {
        let (now, from) = (self.now.mono, Some(member(1).key()));
        match message {
            Message::Adverts(adverts) => {
                for aged in adverts.adverts {
                    let age = Duration::from_millis(aged.age_millis);
                    self.membership
                        .handle_advert(now, NOW, &aged.advert, age, from);
                }
            }
            Message::Leave(leave) => {
                self.membership.handle_leave(now, &leave, from);
            }
            Message::Digest(digest) => can_be_sent(self.membership.handle_digest(now, &digest)),
            Message::Revocations(said) => {
                self.membership
                    .handle_revocations(now, &said.revocations, from);
            }
            Message::RevocationDigest(digest) => {
                can_be_sent(self.membership.handle_revocation_digest(&digest));
            }
            Message::Hello(_)
            | Message::Refused(_)
            | Message::Admitted(_)
            | Message::Noise1(_)
            | Message::Noise2(_)
            | Message::Ping(_)
            | Message::Pong(_)
            | Message::Resting(_)
            | Message::Relay(_)
            | Message::Meet(_) => {}
        }
    }

    /// An advert, signed by whom it is about, and wrong in what the script says.
    pub(super) fn advert_comes(&mut self, input: &mut Input<'_>) {
        let author = author(input);
        let edition = edition(input);
        let choices = input.byte();
        let advert = author.advert(edition, |advert| twist(advert, choices, input));
        let credential = match input.byte() % 4 {
            0 | 1 => Some(author.credential.clone()),
            2 => None,
            _ => Some(
                member(usize::from(input.byte()) % MEMBERS)
                    .credential
                    .clone(),
            ),
        };
        let advert = SignedAdvert { advert, credential };
        let age = match input.byte() {
            0..200 => input.span(),
            _ => Duration::from_millis(input.long()),
        };
        let from = Some(author.key());
        self.membership
            .handle_advert(self.now.mono, NOW, &advert, age, from);
    }

    pub(super) fn leave_comes(&mut self, input: &mut Input<'_>) {
        let (author, signer) = (author(input), author(input));
        let leave = Leave {
            version: Version1,
            realm: realm().id(),
            key: author.key(),
            edition: edition(input),
        };
        let known = self.membership.get(&author.key()).is_some();
        let leave = Signed::sign(leave, signer.identity.signing());
        self.membership.handle_leave(self.now.mono, &leave, None);
        if author.key() != signer.key() {
            let is_known = self.membership.get(&author.key()).is_some();
            assert_eq!(is_known, known, "gone by another's word");
        }
    }

    pub(super) fn revocation_comes(&mut self, input: &mut Input<'_>) {
        let (author, subject) = (author(input), author(input));
        let target = if input.flag() {
            Target::Ticket(ticket().grant().claimed().serial)
        } else {
            Target::Anchor(subject.key().id())
        };
        let with_anchors = input.flag();
        let at = UnixTime(NOW.0 + u64::from(input.short()));
        let is_forged = input.flag();
        let said = if is_forged {
            forged(&author, target, with_anchors, at)
        } else {
            let granter = Granter::Issuer {
                identity: &author.identity,
                credential: &author.credential,
                realm: &realm().key(),
            };
            let Ok(said) = revoke(granter, target, with_anchors, at) else {
                return;
            };
            said
        };
        let before = self.membership.revocations().len();
        let outcome = self
            .membership
            .handle_revocations(self.now.mono, &[said], None);
        assert_eq!(self.membership.revocations().len(), before + outcome.added);
        let plain = [member(1).key(), member(3).key()].contains(&author.key());
        if plain && target != Target::Anchor(author.key().id()) {
            assert_eq!(outcome.added, 0, "a plain member revoked another");
        }
    }

    pub(super) fn digests_come(&mut self, input: &mut Input<'_>) {
        let turn = input.pick(&[Turn::Ask, Turn::Answer]);
        let digest = match input.byte() % 3 {
            0 => self.membership.digest(),
            1 => Digest::Fingerprints((0..input.short() % 300).map(u64::from).collect()),
            _ => {
                let entry = |key: AnchorKey, edition| DigestEntry { key, edition };
                let editions = (0..input.byte() % 8)
                    .map(|_| entry(author(input).key(), edition(input)))
                    .collect();
                Digest::Editions {
                    turn,
                    buckets: input.piece().to_vec(),
                    editions,
                }
            }
        };
        can_be_sent(self.membership.handle_digest(self.now.mono, &digest));
        let places = (0..input.byte() % 8).map(|_| input.long());
        let places: Vec<u64> = places.collect();
        let revocations = RevocationDigest::new(turn, input.long(), input.long(), places);
        can_be_sent(self.membership.handle_revocation_digest(&revocations));
        can_be_sent(vec![self.membership.revocation_digest()]);
    }

    /// Hears all the store has to say; who is in it may be there.
    pub(super) fn store_rests(&mut self) {
        let mut said = 0;
        while let Some(event) = self.membership.poll_event() {
            said += 1;
            assert!(said < EVENTS, "never at rest");
            match event {
                Event::Flood { message, .. } | Event::Tell { message, .. } => {
                    can_be_sent(vec![*message]);
                }
                Event::OwnAhead(edition) => {
                    self.membership
                        .set_epoch(self.now.mono, edition.epoch.saturating_add(1));
                }
                Event::Changed(_) | Event::Left(_) | Event::Expired(_) | Event::Revoked(_) => {}
            }
        }
        assert!(self.membership.realm_size() <= MEMBERS + 1);
        for (key, entry) in self.membership.entries() {
            let advert = entry.advert();
            let member = verify(entry.credential(), &realm().key(), NOW);
            let member = member.expect("who is listed is a member");
            assert_eq!((*key, advert.key), (member.key, member.key));
            assert_eq!(advert.overlay, key.overlay(&realm().id()));
            assert!(member.taints.contains_all(&advert.taints));
            assert!(!advert.taints.is_empty());
            assert!(self.membership.revocations().judge(&member).is_ok());
            assert!(entry.expires() > self.now.mono);
        }
    }
}

/// Changes what an advert says to what it must not say.
fn twist(advert: &mut Advert, choices: u8, input: &mut Input<'_>) {
    if choices & 1 != 0 {
        let labels: &[&str] = input.pick(&[&["a"][..], &["a", "b"], &["c"], &[], &["z"]]);
        advert.taints = conflux_proto::taint::TaintSet::parse(labels).expect("these are labels");
    }
    if choices & 2 != 0 {
        advert.lifetime_secs = input.word();
    }
    if choices & 4 != 0 {
        advert.ipv4 = Some(Ipv4Addr::from(input.word()));
    }
    if choices & 8 != 0 {
        let network = input.pick(&["0.0.0.0/0", "10.9.0.0/16", "::/0", "127.0.0.0/8"]);
        let count = usize::from(input.byte());
        advert.networks = vec![network.parse().expect("it is a network"); count];
    }
    if choices & 16 != 0 {
        let count = usize::from(input.byte());
        advert.endpoints = vec!["0.0.0.0:0".parse().expect("it is an address"); count];
    }
    match choices >> 5 {
        1 => advert.overlay = member(2).key().overlay(&realm().id()),
        2 => advert.key = member(2).key(),
        3 => advert.noise_key = [0; 32],
        4 => advert.credential = member(2).credential.hash(),
        5 => advert.realm = conflux_proto::id::RealmId([1; 32]),
        _ => {}
    }
}

/// Returns a member, or this anchor itself as somebody with its key would be.
fn author(input: &mut Input<'_>) -> Sample {
    match usize::from(input.byte()) % (MEMBERS + 1) {
        number if number < MEMBERS => member(number).clone(),
        _ => Sample {
            identity: own().clone(),
            credential: member(0).credential.clone(),
        },
    }
}

fn edition(input: &mut Input<'_>) -> Edition {
    if input.byte() == 0xff {
        return Edition {
            epoch: input.long(),
            sequence: input.long(),
        };
    }
    Edition {
        epoch: u64::from(input.byte() & 3),
        sequence: u64::from(input.byte() & 7),
    }
}

/// Returns a revocation that its author has no right to, signed all the same.
fn forged(author: &Sample, target: Target, with_anchors: bool, at: UnixTime) -> SignedRevocation {
    let revocation = Revocation {
        version: Version1,
        realm: realm().id(),
        target,
        with_anchors,
        by: Some(author.key()),
        made_at: at.0,
    };
    SignedRevocation {
        revocation: Signed::sign(revocation, author.identity.signing()),
        authority: Some(author.credential.clone()),
    }
}

fn can_be_sent(messages: Vec<Message>) {
    for message in messages {
        assert!(message.encode().is_ok(), "{message:?} is too long");
    }
}
