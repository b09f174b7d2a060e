//! The check of a chain: one pass, front to back.

use conflux_proto::control::RefusalCode;
use conflux_proto::credential::{Advertise, Credential, Grant, Kind, Link, MAX_NETWORKS, Serial};
use conflux_proto::id::{AnchorKey, RealmId, RealmKey};
use conflux_proto::signed::BadSignature;
use conflux_proto::taint::TaintSet;
use thiserror::Error;

use super::lineage::{Admitted, Bearer, Lineage, Step};
use super::{LIFETIME, SKEW};
use crate::time::UnixTime;

/// A member and its rights, as a checked chain gives them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Who it is.
    pub key: AnchorKey,
    /// Its taints; what it says about itself may name fewer.
    pub taints: TaintSet,
    /// What it may advertise.
    pub advertise: Advertise,
    /// Whether it may grant in turn.
    pub issuer: bool,
    /// The grant it rests on: its own or its ticket's.
    pub serial: Serial,
    /// Since when it is one.
    pub valid_from: UnixTime,
    /// Until when.
    pub valid_until: UnixTime,
    /// Whom and which tickets that rests on, its own step first.
    pub lineage: Lineage,
}

/// Somebody whose ticket holds and whom no member has admitted yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joiner {
    /// Who it is.
    pub key: AnchorKey,
    /// The taints it asks for, which its ticket grants.
    pub taints: TaintSet,
    /// When its ticket ends.
    pub ticket_expires: UnixTime,
    /// Whom and which tickets that rests on, its own step first.
    pub lineage: Lineage,
}

/// Why a credential does not make its bearer a member.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Refused {
    /// Of another realm.
    #[error("the credential is of another realm ({0})")]
    Realm(RealmId),
    /// Not signed by whom it rests on.
    #[error(transparent)]
    Signature(#[from] BadSignature),
    /// The membership has ended.
    #[error("the credential of anchor {anchor} has expired: an issuer of the realm can renew it")]
    Expired {
        /// Whose.
        anchor: String,
        /// When it ended.
        at: UnixTime,
    },
    /// The membership has not begun by our clock.
    #[error("the credential of anchor {anchor} is not valid yet: one of the two clocks is wrong")]
    NotYet {
        /// Whose.
        anchor: String,
        /// When it begins.
        at: UnixTime,
    },
    /// The ticket ended before anybody admitted its user.
    #[error("the ticket has expired: ask for a new one (conflux invite)")]
    TicketExpired {
        /// When it ended.
        at: UnixTime,
    },
    /// Revoked, or resting on something that was.
    #[error("{0}")]
    Revoked(String),
    /// A join that nobody has admitted.
    #[error("anchor {0} has not been admitted by a member yet")]
    NotAdmitted(String),
    /// A grant or admission by somebody who could not give it.
    #[error("anchor {by} could not {what}: {why}")]
    Powerless {
        /// Who signed.
        by: String,
        /// What was signed.
        what: &'static str,
        /// What was lacking.
        why: &'static str,
    },
    /// Parts that do not belong together.
    #[error("the credential contradicts itself: {0}")]
    Inconsistent(&'static str),
}

impl Member {
    /// Returns the ticket it joined by, if it did by one.
    pub fn ticket(&self) -> Option<Serial> {
        self.lineage.own().ticket
    }

    /// Returns whether the membership holds at `now`, for one that was checked earlier.
    ///
    /// # Errors
    /// When it has ended or not begun, the clocks' skew allowed for.
    pub fn check_at(&self, now: UnixTime) -> Result<(), Refused> {
        let anchor = short(&self.key);
        if now > self.valid_until + SKEW {
            return Err(Refused::Expired {
                anchor,
                at: self.valid_until,
            });
        }
        if self.valid_from > now + SKEW {
            return Err(Refused::NotYet {
                anchor,
                at: self.valid_from,
            });
        }
        Ok(())
    }
}

impl Refused {
    /// Returns the kind of reason, as the other side is told.
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::Realm(_) => RefusalCode::Realm,
            Self::Expired { .. } => RefusalCode::Expired,
            Self::TicketExpired { .. } => RefusalCode::TicketExpired,
            Self::Revoked(_) => RefusalCode::Revoked,
            Self::Signature(_)
            | Self::NotYet { .. }
            | Self::NotAdmitted(_)
            | Self::Powerless { .. }
            | Self::Inconsistent(_) => RefusalCode::Credential,
        }
    }
}

/// Returns the member that `credential` makes its bearer, at `now`. That the bearer holds the
/// member's key is for the transport to show.
///
/// # Errors
/// When the chain does not hold, or the membership has ended, not begun, or lacks its admission.
pub fn verify(credential: &Credential, realm: &RealmKey, now: UnixTime) -> Result<Member, Refused> {
    let member = verify_chain(credential, realm)?;
    member.check_at(now)?;
    Ok(member)
}

/// Returns the member that `credential` made its bearer, whether or not the membership holds now.
///
/// # Errors
/// When the chain does not hold, or lacks its admission.
pub fn verify_chain(credential: &Credential, realm: &RealmKey) -> Result<Member, Refused> {
    let (last, earlier) = split_last(credential, realm)?;
    check_link(last, &earlier, realm)
}

/// Returns the joiner that `credential` is of, at `now`: its last link is a ticket's use without
/// an admission, and the ticket has not ended.
///
/// # Errors
/// When the chain does not hold, is not a joiner's, or the ticket has ended.
pub fn verify_join(
    credential: &Credential,
    realm: &RealmKey,
    now: UnixTime,
) -> Result<Joiner, Refused> {
    let (last, earlier) = split_last(credential, realm)?;
    let grant = check_grant(last, &earlier, realm)?;
    let joiner = check_join(last, grant, &earlier)?;
    if last.admission.is_some() {
        return Err(Refused::Inconsistent("a joiner that is admitted"));
    }
    if now > joiner.ticket_expires + SKEW {
        return Err(Refused::TicketExpired {
            at: joiner.ticket_expires,
        });
    }
    if UnixTime(grant.made_at) > now + SKEW {
        return Err(Refused::NotYet {
            anchor: short(&joiner.key),
            at: UnixTime(grant.made_at),
        });
    }
    Ok(joiner)
}

/// Checks all links but the last, for what they were worth when they were used.
fn split_last<'a>(
    credential: &'a Credential,
    realm: &RealmKey,
) -> Result<(&'a Link, Vec<Member>), Refused> {
    let (last, rest) = credential
        .links()
        .split_last()
        .ok_or(Refused::Inconsistent("a chain without links"))?;
    let mut earlier = Vec::with_capacity(rest.len());
    for link in rest {
        let member = check_link(link, &earlier, realm)?;
        earlier.push(member);
    }
    Ok((last, earlier))
}

fn check_link(link: &Link, earlier: &[Member], realm: &RealmKey) -> Result<Member, Refused> {
    let grant = check_grant(link, earlier, realm)?;
    let made_at = UnixTime(grant.made_at);
    match grant.kind {
        Kind::Anchor => {
            if link.join.is_some() || link.admission.is_some() {
                return Err(Refused::Inconsistent("an anchor's own grant with a join"));
            }
            let until = UnixTime(grant.expires).min(made_at + LIFETIME);
            let key = AnchorKey(grant.subject);
            let own = step(link, grant, key, grant.taints.clone(), earlier);
            Ok(member(
                grant,
                own.onto(authority(link, earlier)),
                made_at,
                until,
            ))
        }
        Kind::Ticket => {
            let mut joiner = check_join(link, grant, earlier)?;
            let (by, at) = check_admission(link, &joiner, made_at, earlier)?;
            joiner.lineage.admit(Admitted {
                by: Bearer::of(by),
                at,
            });
            Ok(member(grant, joiner.lineage, at, at + LIFETIME))
        }
    }
}

fn check_grant<'a>(
    link: &'a Link,
    earlier: &[Member],
    realm: &RealmKey,
) -> Result<&'a Grant, Refused> {
    check_realm(link.grant.claimed().realm, realm)?;
    let grant = match link.authority {
        None => link.grant.verify(&realm.0)?,
        Some(index) => {
            let authority = refer(earlier, index)?;
            let grant = link.grant.verify(&authority.key.0)?;
            check_delegation(grant, authority)?;
            grant
        }
    };
    if grant.taints.is_empty() {
        return Err(Refused::Inconsistent("a grant without taints"));
    }
    if grant.advertise.networks.len() > MAX_NETWORKS {
        return Err(Refused::Inconsistent("a grant of too many networks"));
    }
    if grant.expires < grant.made_at {
        return Err(Refused::Inconsistent("a grant that ends before it begins"));
    }
    Ok(grant)
}

/// An issuer grants its own rights or fewer, while it is a member.
fn check_delegation(grant: &Grant, authority: &Member) -> Result<(), Refused> {
    let powerless = |why| Refused::Powerless {
        by: short(&authority.key),
        what: "grant this",
        why,
    };
    if !authority.issuer {
        return Err(powerless("it is not an issuer"));
    }
    if !was_member(authority, UnixTime(grant.made_at)) {
        return Err(powerless("it was not a member at that time"));
    }
    if !authority.taints.contains_all(&grant.taints) {
        return Err(powerless("it does not have those taints itself"));
    }
    if !grant.advertise.is_within(&authority.advertise) {
        return Err(powerless("it may not advertise those networks itself"));
    }
    Ok(())
}

fn check_join(link: &Link, grant: &Grant, earlier: &[Member]) -> Result<Joiner, Refused> {
    if grant.kind != Kind::Ticket {
        return Err(Refused::Inconsistent("a joiner without a ticket"));
    }
    let join = link
        .join
        .as_ref()
        .ok_or(Refused::Inconsistent("a ticket that nobody has used"))?;
    let join = join.verify(&grant.subject)?;
    if join.realm != grant.realm || join.ticket != grant.serial {
        return Err(Refused::Inconsistent("a join by another ticket"));
    }
    if join.taints.is_empty() || !grant.taints.contains_all(&join.taints) {
        return Err(Refused::Inconsistent(
            "a join with taints the ticket does not grant",
        ));
    }
    let own = step(link, grant, join.anchor, join.taints.clone(), earlier);
    Ok(Joiner {
        key: join.anchor,
        taints: join.taints.clone(),
        ticket_expires: UnixTime(grant.expires),
        lineage: own.onto(authority(link, earlier)),
    })
}

fn check_admission<'a>(
    link: &Link,
    joiner: &Joiner,
    ticket_made_at: UnixTime,
    earlier: &'a [Member],
) -> Result<(&'a Member, UnixTime), Refused> {
    let (Some(join), Some(countersigned)) = (&link.join, &link.admission) else {
        return Err(Refused::NotAdmitted(short(&joiner.key)));
    };
    let admitter = refer(earlier, countersigned.admitter)?;
    let admission = countersigned.admission.verify(&admitter.key.0)?;
    if admission.realm != join.claimed().realm
        || admission.by != admitter.key
        || admission.anchor != joiner.key
        || admission.join != join.hash()
    {
        return Err(Refused::Inconsistent("an admission of another join"));
    }
    let at = UnixTime(admission.admitted_at);
    let powerless = |why| Refused::Powerless {
        by: short(&admitter.key),
        what: "admit this anchor",
        why,
    };
    if admitter.key == joiner.key {
        return Err(powerless("nobody admits itself"));
    }
    if !was_member(admitter, at) {
        return Err(powerless("it was not a member at that time"));
    }
    if at > joiner.ticket_expires + SKEW {
        return Err(powerless("the ticket had expired"));
    }
    if at + SKEW < ticket_made_at {
        return Err(powerless("the ticket had not been made"));
    }
    Ok((admitter, at))
}

fn check_realm(found: RealmId, realm: &RealmKey) -> Result<(), Refused> {
    if found == realm.id() {
        Ok(())
    } else {
        Err(Refused::Realm(found))
    }
}

pub(super) fn was_member(member: &Member, at: UnixTime) -> bool {
    member.valid_from <= at + SKEW && at <= member.valid_until + SKEW
}

/// The authority's member; a link was checked against it before.
fn authority<'a>(link: &Link, earlier: &'a [Member]) -> Option<&'a Member> {
    link.authority
        .and_then(|index| earlier.get(usize::from(index)))
}

fn step(
    link: &Link,
    grant: &Grant,
    anchor: AnchorKey,
    taints: TaintSet,
    earlier: &[Member],
) -> Step {
    Step {
        who: Bearer {
            anchor,
            taints,
            issuer: grant.issuer,
        },
        granted_by: authority(link, earlier).map(|member| member.key),
        granted_at: UnixTime(grant.made_at),
        ticket: match grant.kind {
            Kind::Ticket => Some(grant.serial),
            Kind::Anchor => grant.ticket,
        },
        admitted: None,
    }
}

fn refer(earlier: &[Member], index: u8) -> Result<&Member, Refused> {
    earlier
        .get(usize::from(index))
        .ok_or(Refused::Inconsistent("a link that rests on no earlier"))
}

fn member(grant: &Grant, lineage: Lineage, from: UnixTime, until: UnixTime) -> Member {
    let who = &lineage.own().who;
    Member {
        key: who.anchor,
        taints: who.taints.clone(),
        advertise: grant.advertise.clone(),
        issuer: grant.issuer,
        serial: grant.serial,
        valid_from: from,
        valid_until: until,
        lineage,
    }
}

fn short(key: &AnchorKey) -> String {
    key.id().short()
}
