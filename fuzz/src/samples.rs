//! A realm of four anchors, the same in every run: keys, credentials, and what they would sign.
//! The first has all rights, the second is a plain member, the third an issuer with fewer rights;
//! the fourth has joined in another compartment.

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use conflux_core::credential::{
    Granter, TicketTerms, admit, first_machine, join, make_ticket, revoke,
};
use conflux_core::identity::{Identity, RealmSecret};
use conflux_core::time::UnixTime;
use conflux_proto::advert::{Advert, Edition, Reach};
use conflux_proto::credential::{Advertise, Credential, Serial};
use conflux_proto::id::AnchorKey;
use conflux_proto::revocation::{SignedRevocation, Target};
use conflux_proto::signed::{Signed, Version1};
use conflux_proto::taint::TaintSet;
use conflux_proto::ticket::{Endpoint, Ticket};

/// The wall clock of all runs.
pub(crate) const NOW: UnixTime = UnixTime(1_800_000_000);

/// The anchors there are.
pub(crate) const MEMBERS: usize = 4;

/// One anchor.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) identity: Identity,
    pub(crate) credential: Credential,
}

/// Returns anchor `number`, from 0 on.
pub(crate) fn member(number: usize) -> &'static Sample {
    static ALL: LazyLock<[Sample; MEMBERS]> = LazyLock::new(make);
    &ALL[number]
}

/// Returns the realm's secret.
pub(crate) fn realm() -> &'static RealmSecret {
    static REALM: LazyLock<RealmSecret> = LazyLock::new(|| RealmSecret::from_seed(&[200; 32]));
    &REALM
}

/// Returns the ticket by which the second anchor joined.
pub(crate) fn ticket() -> &'static Ticket {
    static TICKET: LazyLock<Ticket> = LazyLock::new(|| {
        let first = member(0);
        ticket_of(&first.identity, &first.credential, terms(["a"], false, 2))
    });
    &TICKET
}

pub(crate) fn taints<const N: usize>(labels: [&str; N]) -> TaintSet {
    TaintSet::parse(labels).expect("these are labels")
}

impl Sample {
    pub(crate) fn key(&self) -> AnchorKey {
        self.identity.key()
    }

    /// Returns what it says about itself, after `change`, signed.
    pub(crate) fn advert(
        &self,
        edition: Edition,
        change: impl FnOnce(&mut Advert),
    ) -> Signed<Advert> {
        let key = self.key();
        let mut advert = Advert {
            version: Version1,
            realm: realm().id(),
            key,
            edition,
            lifetime_secs: 120,
            overlay: key.overlay(&realm().id()),
            noise_key: self.identity.noise_key(),
            endpoints: vec!["192.0.2.1:47474".parse().expect("it is an address")],
            ipv4: Some(Ipv4Addr::new(10, 128, 0, 10)),
            networks: Vec::new(),
            taints: taints(["a"]),
            reach: Reach::Public,
            aes: true,
            credential: self.credential.hash(),
            draining: false,
        };
        change(&mut advert);
        Signed::sign(advert, self.identity.signing())
    }

    /// Returns its revocation of another.
    pub(crate) fn revokes(&self, other: &Self) -> SignedRevocation {
        let granter = Granter::Issuer {
            identity: &self.identity,
            credential: &self.credential,
            realm: &realm().key(),
        };
        revoke(granter, Target::Anchor(other.key().id()), true, NOW).expect("it has the right to")
    }
}

fn make() -> [Sample; MEMBERS] {
    let identities: [Identity; MEMBERS] = std::array::from_fn(|number| {
        let seed = u8::try_from(number + 1).expect("few anchors");
        Identity::from_seed(&[seed; 32])
    });
    let all = taints(["a", "b", "c"]);
    let first = first_machine(realm(), identities[0].key(), all, Serial([1; 16]), NOW);
    let with = |number: usize, terms: TicketTerms| {
        let ticket = ticket_of(&identities[0], &first, terms);
        let joiner = join(&ticket, identities[number].key(), None, NOW).expect("the ticket holds");
        admit(&joiner, &identities[0], &first, &realm().key(), NOW).expect("it joins in time")
    };
    let credentials = [
        first.clone(),
        with(1, terms(["a"], false, 2)),
        with(2, terms(["a", "b"], true, 3)),
        with(3, terms(["c"], false, 4)),
    ];
    let mut credentials = credentials.into_iter();
    identities.map(|identity| Sample {
        identity,
        credential: credentials.next().expect("one for each"),
    })
}

fn terms<const N: usize>(labels: [&str; N], issuer: bool, serial: u8) -> TicketTerms {
    TicketTerms {
        taints: Some(taints(labels)),
        advertise: Advertise {
            private_hosts: true,
            networks: vec!["10.9.0.0/16".parse().expect("it is a network")],
            any: false,
        },
        issuer,
        expires: UnixTime(NOW.0 + 3600),
        endpoints: vec![
            "192.0.2.1:47474"
                .parse::<Endpoint>()
                .expect("it is an endpoint"),
            "anchor.example:1".parse().expect("it is an endpoint"),
        ],
        serial: Serial([serial; 16]),
    }
}

fn ticket_of(identity: &Identity, credential: &Credential, terms: TicketTerms) -> Ticket {
    let seed = [terms.serial.0[0].wrapping_add(100); 32];
    let granter = Granter::Issuer {
        identity,
        credential,
        realm: &realm().key(),
    };
    make_ticket(granter, terms, &seed, NOW).expect("the first machine may grant all")
}
