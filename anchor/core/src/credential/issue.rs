//! The making of links: the first machine's, tickets, joins, admissions, renewals. Seeds,
//! serials and the time come from the caller. What is made here is checked by [`verify`] before
//! it is returned wherever it rests on another's rights, so nothing leaves that would be refused.

use conflux_proto::credential::{
    Admission, Advertise, BadCredential, Countersigned, Credential, Grant, Join, Kind, Link, Serial,
};
use conflux_proto::id::{AnchorKey, RealmKey};
use conflux_proto::signed::{Signed, SigningSecret, Version1};
use conflux_proto::taint::TaintSet;
use conflux_proto::ticket::{BadTicket, Endpoint, Ticket};
use thiserror::Error;

use super::{LIFETIME, LONG_CHAIN_LINKS, Member, Refused, SKEW, verify, verify_join};
use crate::identity::{Identity, RealmSecret};
use crate::time::UnixTime;

/// Who grants.
#[derive(Clone, Copy, Debug)]
pub enum Granter<'a> {
    /// The holder of the realm key: may grant anything.
    Realm(&'a RealmSecret),
    /// An issuer: may grant its own rights or fewer.
    Issuer {
        /// Its secret.
        identity: &'a Identity,
        /// What makes it an issuer.
        credential: &'a Credential,
        /// Its realm.
        realm: &'a RealmKey,
    },
}

/// What a ticket is to say.
#[derive(Clone, Debug)]
pub struct TicketTerms {
    /// The taints granted; none given: all the issuer's (the realm key must name some).
    pub taints: Option<TaintSet>,
    /// What may be advertised.
    pub advertise: Advertise,
    /// Whether those who join become issuers.
    pub issuer: bool,
    /// The end of joining.
    pub expires: UnixTime,
    /// Where anchors of the realm may be met.
    pub endpoints: Vec<Endpoint>,
    /// A random name.
    pub serial: Serial,
}

/// Why a right cannot be granted.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum GrantRefused {
    /// The granter's own credential does not hold.
    #[error("this anchor's own credential does not hold: {0}")]
    Granter(#[source] Refused),
    /// The granter may not grant.
    #[error(
        "this anchor is not an issuer: run invite on the realm's first machine, or on one that \
         joined by a ticket made with --issuer"
    )]
    NotAnIssuer,
    /// Taints the granter lacks.
    #[error("taints {asked} are not all among this anchor's own ({own})")]
    Taints {
        /// What was asked for.
        asked: TaintSet,
        /// What the granter has.
        own: TaintSet,
    },
    /// No taints at all.
    #[error("at least one taint must be granted")]
    NoTaints,
    /// Networks the granter may not advertise itself.
    #[error("networks {asked} are not all among those this anchor may advertise ({own})")]
    Advertise {
        /// What was asked for.
        asked: Advertise,
        /// What the granter has.
        own: Advertise,
    },
    /// A grant that has ended already.
    #[error("the expiry lies in the past")]
    Past,
    /// A chain that would be too long.
    #[error(transparent)]
    Chain(#[from] BadCredential),
    /// A ticket that would not be read.
    #[error(transparent)]
    Ticket(#[from] BadTicket),
}

/// Why a ticket cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum JoinRefused {
    /// Taints the ticket does not grant.
    #[error("taints {asked} are not all among the ticket's ({granted})")]
    Taints {
        /// What was asked for.
        asked: TaintSet,
        /// What the ticket grants.
        granted: TaintSet,
    },
    /// The ticket does not hold.
    #[error(transparent)]
    Ticket(#[from] Refused),
    /// A chain that would be too long.
    #[error(transparent)]
    Chain(#[from] BadCredential),
}

/// Why a joiner is not admitted.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AdmitRefused {
    /// The joiner's credential does not hold.
    #[error(transparent)]
    Joiner(Refused),
    /// The admitter's own credential does not hold.
    #[error("this anchor cannot admit anybody: {0}")]
    Admitter(#[source] Refused),
    /// A chain that would be too long.
    #[error("{0}: let an issuer of the realm admit this anchor")]
    Chain(#[from] BadCredential),
}

/// Returns the credential of a realm's first machine: all rights, granted by the realm key.
pub fn first_machine(
    realm: &RealmSecret,
    anchor: AnchorKey,
    taints: TaintSet,
    serial: Serial,
    now: UnixTime,
) -> Credential {
    let grant = Grant {
        version: Version1,
        realm: realm.id(),
        subject: anchor.0,
        kind: Kind::Anchor,
        taints,
        advertise: Advertise::anything(),
        issuer: true,
        serial,
        made_at: now.0,
        expires: (now + LIFETIME).0,
        ticket: None,
    };
    let grant = Signed::sign(grant, realm.signing());
    Credential::new(vec![Link {
        authority: None,
        grant,
        join: None,
        admission: None,
    }])
    .expect("one link without references is a chain")
}

/// Returns a ticket with the key of `seed`.
///
/// # Errors
/// When the terms exceed the granter's rights, lie in the past or name nothing.
pub fn make_ticket(
    granter: Granter<'_>,
    terms: TicketTerms,
    seed: &[u8; 32],
    now: UnixTime,
) -> Result<Ticket, GrantRefused> {
    let secret = SigningSecret::from_seed(seed);
    let own = granter.rights(now)?;
    let taints = match (terms.taints, &own) {
        (Some(taints), _) => taints,
        (None, Some(own)) => own.taints.clone(),
        (None, None) => return Err(GrantRefused::NoTaints),
    };
    let grant = Grant {
        version: Version1,
        realm: granter.realm().id(),
        subject: secret.public(),
        kind: Kind::Ticket,
        taints,
        advertise: terms.advertise,
        issuer: terms.issuer,
        serial: terms.serial,
        made_at: now.0,
        expires: terms.expires.0,
        ticket: None,
    };
    check_rights(&grant, own.as_ref(), now)?;
    let grant = Signed::sign(grant, granter.signing());
    Ok(Ticket::new(
        granter.realm(),
        terms.endpoints,
        secret,
        granter.chain().cloned(),
        grant,
    )?)
}

/// Returns the credential of a joiner, to be admitted by the first member it meets. Without
/// `taints` it asks for all the ticket's.
///
/// # Errors
/// When the ticket does not hold or has expired, or does not grant the taints.
pub fn join(
    ticket: &Ticket,
    anchor: AnchorKey,
    taints: Option<TaintSet>,
    now: UnixTime,
) -> Result<Credential, JoinRefused> {
    let grant = ticket.grant().claimed();
    let taints = taints.unwrap_or_else(|| grant.taints.clone());
    if taints.is_empty() || !grant.taints.contains_all(&taints) {
        return Err(JoinRefused::Taints {
            asked: taints,
            granted: grant.taints.clone(),
        });
    }
    let join = Join {
        version: Version1,
        realm: grant.realm,
        ticket: grant.serial,
        anchor,
        taints,
        made_at: now.0,
    };
    let (links, authority) = on_top_of(ticket.issuer())?;
    let link = Link {
        authority,
        grant: ticket.grant().clone(),
        join: Some(Signed::sign(join, ticket.secret())),
        admission: None,
    };
    let credential = finish(links, link)?;
    verify_join(&credential, &ticket.realm_key(), now)?;
    Ok(credential)
}

/// Returns the joiner's credential, countersigned by a member.
///
/// # Errors
/// When the joiner's ticket does not hold or has expired, or the admitter is not a member.
pub fn admit(
    joiner: &Credential,
    admitter: &Identity,
    admitters: &Credential,
    realm: &RealmKey,
    now: UnixTime,
) -> Result<Credential, AdmitRefused> {
    let who = verify_join(joiner, realm, now).map_err(AdmitRefused::Joiner)?;
    let own = verify(admitters, realm, now).map_err(AdmitRefused::Admitter)?;
    let link = joiner.last();
    let (Some(join), true, false) = (&link.join, own.key == admitter.key(), own.key == who.key)
    else {
        return Err(AdmitRefused::Admitter(Refused::Inconsistent(
            "a credential of another key",
        )));
    };
    let admission = Admission {
        version: Version1,
        realm: realm.id(),
        anchor: who.key,
        join: join.hash(),
        by: own.key,
        // Within the skew a ticket holds after its end; what is written down must not exceed it.
        admitted_at: now.min(who.ticket_expires + SKEW).0,
    };
    let mut links = joiner.links().to_vec();
    links.pop();
    let admitter_index = append(&mut links, admitters)?;
    let countersigned = Countersigned {
        admitter: admitter_index,
        admission: Signed::sign(admission, admitter.signing()),
    };
    Ok(finish(
        links,
        Link {
            admission: Some(countersigned),
            ..link.clone()
        },
    )?)
}

/// Returns a fresh credential for `member`, with the same rights, by one direct grant.
///
/// # Errors
/// When the member's rights exceed the granter's.
pub fn renew(
    granter: Granter<'_>,
    member: &Member,
    serial: Serial,
    now: UnixTime,
) -> Result<Credential, GrantRefused> {
    let own = granter.rights(now)?;
    let grant = Grant {
        version: Version1,
        realm: granter.realm().id(),
        subject: member.key.0,
        kind: Kind::Anchor,
        taints: member.taints.clone(),
        advertise: member.advertise.clone(),
        issuer: member.issuer,
        serial,
        made_at: now.0,
        expires: (now + LIFETIME).0,
        ticket: member.ticket(),
    };
    check_rights(&grant, own.as_ref(), now)?;
    let (links, authority) = on_top_of(granter.chain())?;
    let grant = Signed::sign(grant, granter.signing());
    Ok(finish(
        links,
        Link {
            authority,
            grant,
            join: None,
            admission: None,
        },
    )?)
}

/// Returns whether an issuer that meets this member should renew its credential: in its last
/// third, or when its chain has grown long.
pub fn wants_renewal(credential: &Credential, member: &Member, now: UnixTime) -> bool {
    let lifetime = member.valid_until.since(member.valid_from);
    member.valid_until.since(now) < lifetime / 3 || credential.links().len() > LONG_CHAIN_LINKS
}

impl<'a> Granter<'a> {
    /// The rights that bound what is granted; none: nothing does.
    pub(super) fn rights(&self, now: UnixTime) -> Result<Option<Member>, GrantRefused> {
        match self {
            Self::Realm(_) => Ok(None),
            Self::Issuer {
                identity,
                credential,
                realm,
            } => {
                let own = verify(credential, realm, now).map_err(GrantRefused::Granter)?;
                if own.key != identity.key() {
                    let foreign = Refused::Inconsistent("a credential of another key");
                    return Err(GrantRefused::Granter(foreign));
                }
                Ok(Some(own))
            }
        }
    }

    pub(super) fn realm(&self) -> RealmKey {
        match self {
            Self::Realm(secret) => secret.key(),
            Self::Issuer { realm, .. } => **realm,
        }
    }

    pub(super) fn signing(&self) -> &'a SigningSecret {
        match self {
            Self::Realm(secret) => secret.signing(),
            Self::Issuer { identity, .. } => identity.signing(),
        }
    }

    pub(super) fn chain(&self) -> Option<&'a Credential> {
        match self {
            Self::Realm(_) => None,
            Self::Issuer { credential, .. } => Some(credential),
        }
    }
}

fn check_rights(grant: &Grant, own: Option<&Member>, now: UnixTime) -> Result<(), GrantRefused> {
    if grant.taints.is_empty() {
        return Err(GrantRefused::NoTaints);
    }
    if grant.expires <= now.0 {
        return Err(GrantRefused::Past);
    }
    let Some(own) = own else { return Ok(()) };
    if !own.issuer {
        return Err(GrantRefused::NotAnIssuer);
    }
    if !own.taints.contains_all(&grant.taints) {
        return Err(GrantRefused::Taints {
            asked: grant.taints.clone(),
            own: own.taints.clone(),
        });
    }
    if !grant.advertise.is_within(&own.advertise) {
        return Err(GrantRefused::Advertise {
            asked: grant.advertise.clone(),
            own: own.advertise.clone(),
        });
    }
    Ok(())
}

/// Returns the links a new one rests on, and which of them is its authority.
fn on_top_of(chain: Option<&Credential>) -> Result<(Vec<Link>, Option<u8>), BadCredential> {
    let mut links = Vec::new();
    let authority = match chain {
        Some(chain) => Some(append(&mut links, chain)?),
        None => None,
    };
    Ok((links, authority))
}

/// Adds a chain's links, those that are there already excepted, and returns where its last is.
fn append(links: &mut Vec<Link>, chain: &Credential) -> Result<u8, BadCredential> {
    let mut moved: Vec<u8> = Vec::with_capacity(chain.links().len());
    for link in chain.links() {
        let mut link = link.clone();
        link.authority = link.authority.map(|index| moved[usize::from(index)]);
        if let Some(countersigned) = &mut link.admission {
            countersigned.admitter = moved[usize::from(countersigned.admitter)];
        }
        let at = links
            .iter()
            .position(|known| *known == link)
            .unwrap_or_else(|| {
                links.push(link);
                links.len() - 1
            });
        moved.push(u8::try_from(at).map_err(|_| BadCredential::Links(links.len()))?);
    }
    moved.last().copied().ok_or(BadCredential::Links(0))
}

fn finish(mut links: Vec<Link>, last: Link) -> Result<Credential, BadCredential> {
    links.push(last);
    Credential::new(links)
}
