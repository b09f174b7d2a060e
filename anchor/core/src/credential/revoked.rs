//! Revocations: which are held, and whom they put out. The order in which they come does not
//! matter, so that all anchors that hold the same ones agree.
//!
//! **Who may revoke whom.** The realm key anybody. An issuer the anchors and tickets it granted,
//! and whomever it could have invited as a plain member: no issuer, with taints among its own. Any anchor itself.
//!
//! **What falls.** A revoked anchor, for good. What it signed as an issuer or admitter stays when
//! it is dated before the revocation and falls when it is dated later; a date is its author's
//! word, so `with_anchors` takes everything that it granted. A revoked ticket admits nobody any
//! more; with `with_anchors` those that joined by it fall, renewed or not.
//!
//! A revocation dated after its author's own revocation, by the realm key or by itself, has no
//! effect. Others stay in force: whoever was put out by a stolen issuer joins anew.

use std::collections::BTreeMap;

use conflux_proto::control::RevocationDigest;
use conflux_proto::credential::{Grant, Serial};
use conflux_proto::id::{AnchorKey, RealmKey};
use conflux_proto::revocation::{Revocation, SignedRevocation, Target};
use conflux_proto::signed::{BadSignature, Signed, Version1};
use thiserror::Error;

use super::check::was_member;
use super::{Bearer, GrantRefused, Granter, Lineage, Member, Refused, Step, verify_chain};
use crate::time::UnixTime;

/// The revocations an anchor holds; only grows.
#[derive(Clone, Debug)]
pub struct Revocations {
    realm: RealmKey,
    /// By place among all, then by hash: digests list stretches of this order.
    held: BTreeMap<(u64, [u8; 32]), SignedRevocation>,
    about: BTreeMap<Target, Vec<Effect>>,
    by_author: BTreeMap<AnchorKey, usize>,
    by_realm: Pool,
    by_issuers: Pool,
    by_selves: Pool,
}

/// How much room the revocations of one kind of author take.
#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    count: usize,
    bytes: usize,
}

/// What a held revocation does.
#[derive(Clone, Debug)]
struct Effect {
    /// None: the realm key.
    author: Option<Bearer>,
    with_anchors: bool,
    made_at: UnixTime,
}

/// Why a revocation is not held.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RevocationRefused {
    /// Of another realm.
    #[error("it is about another realm")]
    Realm,
    /// Not signed by whom it says.
    #[error(transparent)]
    Signature(#[from] BadSignature),
    /// Its author's credential does not hold.
    #[error("its author's credential does not hold: {0}")]
    Authority(#[from] Refused),
    /// By somebody whose credential is missing, or is another's.
    #[error("its author's credential is another's, or missing")]
    OtherAuthority,
    /// By a plain member, about somebody else.
    #[error("anchor {0} is not an issuer and may revoke itself only")]
    NotAnIssuer(String),
    /// Dated when its author was no member.
    #[error("anchor {0} was not a member at that time")]
    NotAMember(String),
    /// No room.
    #[error("no room for another revocation of this author")]
    Full,
}

/// Why a revocation cannot be made here.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RevokeRefused {
    /// The author may not revoke others.
    #[error(
        "this anchor is not an issuer: run revoke on the realm's first machine, or on one that \
         joined by a ticket made with --issuer"
    )]
    NotAnIssuer,
    /// The author's own credential does not hold.
    #[error("this anchor's own credential does not hold: {0}")]
    Authority(#[from] Refused),
    /// What is to be revoked is not within the author's power.
    #[error("{0} is beyond what this anchor granted or could grant: the realm key can revoke it")]
    Powerless(String),
    /// Any other reason for which it would not be held.
    #[error(transparent)]
    Held(#[from] RevocationRefused),
}

/// Returns the revocation of `target` by `granter`, dated `now`.
///
/// # Errors
/// When the granter is no member, or no issuer and the target somebody else.
pub fn revoke(
    granter: Granter<'_>,
    target: Target,
    with_anchors: bool,
    now: UnixTime,
) -> Result<SignedRevocation, RevokeRefused> {
    let own = granter.rights(now).map_err(|error| match error {
        GrantRefused::Granter(refused) => RevokeRefused::Authority(refused),
        GrantRefused::NotAnIssuer
        | GrantRefused::Taints { .. }
        | GrantRefused::NoTaints
        | GrantRefused::Advertise { .. }
        | GrantRefused::Past
        | GrantRefused::Chain(_)
        | GrantRefused::Ticket(_) => RevokeRefused::NotAnIssuer,
    })?;
    let is_itself = |own: &Member| target == Target::Anchor(own.key.id());
    if own
        .as_ref()
        .is_some_and(|own| !own.issuer && !is_itself(own))
    {
        return Err(RevokeRefused::NotAnIssuer);
    }
    let revocation = Revocation {
        version: Version1,
        realm: granter.realm().id(),
        target,
        with_anchors,
        by: own.map(|own| own.key),
        made_at: now.0,
    };
    Ok(SignedRevocation {
        revocation: Signed::sign(revocation, granter.signing()),
        authority: granter.chain().cloned(),
    })
}

impl Revocations {
    /// Returns none, of `realm`.
    pub fn new(realm: RealmKey) -> Self {
        Self {
            realm,
            held: BTreeMap::new(),
            about: BTreeMap::new(),
            by_author: BTreeMap::new(),
            by_realm: Pool::default(),
            by_issuers: Pool::default(),
            by_selves: Pool::default(),
        }
    }

    /// Takes one; false when it was held already.
    ///
    /// # Errors
    /// When it does not hold, or there is no room; nothing has changed then.
    pub fn insert(&mut self, signed: &SignedRevocation) -> Result<bool, RevocationRefused> {
        let hash = signed.revocation.hash();
        let place = (RevocationDigest::place_of(&hash), hash);
        if self.held.contains_key(&place) {
            return Ok(false);
        }
        let (revocation, author) = check(signed, &self.realm)?;
        self.make_room(author.as_ref(), signed.to_bytes().len())?;
        let effect = Effect {
            author,
            with_anchors: revocation.with_anchors,
            made_at: UnixTime(revocation.made_at),
        };
        self.about
            .entry(revocation.target)
            .or_default()
            .push(effect);
        self.held.insert(place, signed.clone());
        Ok(true)
    }

    /// Says whether a member is still one.
    ///
    /// # Errors
    /// [`Refused::Revoked`], saying what was revoked.
    pub fn judge(&self, member: &Member) -> Result<(), Refused> {
        self.judge_lineage(&member.lineage)
    }

    /// Says whether somebody may still be admitted: a ticket that was revoked admits nobody.
    ///
    /// # Errors
    /// [`Refused::Revoked`], saying what was revoked.
    pub fn judge_joiner(&self, lineage: &Lineage) -> Result<(), Refused> {
        let steps: Vec<&Step> = lineage.steps().collect();
        if let Some(ticket) = lineage.own().ticket
            && self
                .against(Target::Ticket(ticket), &lineage.own().who, &steps[1..])
                .next()
                .is_some()
        {
            return Err(ticket_revoked(ticket));
        }
        self.judge_lineage(lineage)
    }

    /// Says whether a revocation of `target` by `author` would touch this member at all.
    pub fn would_reach(&self, author: Option<&Member>, target: Target, member: &Member) -> bool {
        let steps: Vec<&Step> = member.lineage.steps().collect();
        let author = author.map(Bearer::of);
        steps.iter().enumerate().any(|(place, step)| {
            let is_about = Target::Anchor(step.who.anchor.id()) == target
                || step.ticket.map(Target::Ticket) == Some(target);
            is_about && has_power(author.as_ref(), &step.who, &steps[place + 1..])
        })
    }

    /// Says whether a ticket, granted by that anchor or the realm key, admits nobody any more.
    pub fn is_ticket_revoked(&self, grant: &Grant, granted_by: Option<AnchorKey>) -> bool {
        let effects = self.about.get(&Target::Ticket(grant.serial));
        effects.into_iter().flatten().any(|effect| {
            let Some(author) = &effect.author else {
                return true;
            };
            let could_grant = !grant.issuer && author.taints.contains_all(&grant.taints);
            author.issuer
                && (could_grant || granted_by == Some(author.anchor))
                && !self.is_void(author, effect.made_at)
        })
    }

    /// Says whether a revocation of `target` is held, with effect or without.
    pub fn mentions(&self, target: Target) -> bool {
        self.about.contains_key(&target)
    }

    /// Returns every statement, in the order of digests.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &SignedRevocation> {
        self.held.values()
    }

    /// Returns how many are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Says whether none is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns those of a stretch of the order, both ends included, with their places.
    pub fn between(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, &SignedRevocation)> {
        let whole = if first <= last {
            Some(self.held.range((first, [0; 32])..=(last, [0xff; 32])))
        } else {
            None
        };
        whole
            .into_iter()
            .flatten()
            .map(|((place, _), signed)| (*place, signed))
    }

    fn judge_lineage(&self, lineage: &Lineage) -> Result<(), Refused> {
        if self.held.is_empty() {
            return Ok(());
        }
        let steps: Vec<&Step> = lineage.steps().collect();
        // What the step below has of this one: the date of its grant.
        let mut below: Option<&Step> = None;
        for (place, step) in steps.iter().enumerate() {
            let above = &steps[place + 1..];
            let anchor = Target::Anchor(step.who.anchor.id());
            for effect in self.against(anchor, &step.who, above) {
                match below {
                    None => return Err(anchor_revoked(&step.who.anchor)),
                    Some(below) if effect.with_anchors || below.granted_at > effect.made_at => {
                        return Err(granter_revoked(&step.who.anchor));
                    }
                    Some(_) => {}
                }
            }
            if let Some(ticket) = step.ticket {
                let joined = step.admitted.as_ref().map(|admitted| admitted.at);
                let is_out = self
                    .against(Target::Ticket(ticket), &step.who, above)
                    .any(|effect| {
                        effect.with_anchors || joined.is_some_and(|at| at > effect.made_at)
                    });
                if is_out {
                    return Err(ticket_revoked(ticket));
                }
            }
            if let Some(admitted) = &step.admitted {
                let admitter = Target::Anchor(admitted.by.anchor.id());
                let is_out = self
                    .against(admitter, &admitted.by, &[])
                    .any(|effect| admitted.at > effect.made_at);
                if is_out {
                    return Err(Refused::Revoked(format!(
                        "the admission was signed by anchor {} after that was revoked: join again",
                        admitted.by.anchor.id().short()
                    )));
                }
            }
            below = Some(step);
        }
        Ok(())
    }

    /// Returns the revocations of `target` that have effect on `who`, which rests on `above`.
    fn against<'a>(
        &'a self,
        target: Target,
        who: &'a Bearer,
        above: &'a [&'a Step],
    ) -> impl Iterator<Item = &'a Effect> {
        let effects = self.about.get(&target).into_iter().flatten();
        effects.filter(move |effect| {
            has_power(effect.author.as_ref(), who, above)
                && effect
                    .author
                    .as_ref()
                    .is_none_or(|author| !self.is_void(author, effect.made_at))
        })
    }

    /// Says whether `author` had been revoked, by the realm key or itself, when it signed.
    fn is_void(&self, author: &Bearer, made_at: UnixTime) -> bool {
        let target = Target::Anchor(author.anchor.id());
        self.about.get(&target).is_some_and(|effects| {
            effects.iter().any(|effect| {
                let is_sound = effect
                    .author
                    .as_ref()
                    .is_none_or(|by| by.anchor == author.anchor);
                is_sound && made_at > effect.made_at
            })
        })
    }

    /// Counts another one in, unless its author, or all of its author's kind, have said enough.
    fn make_room(
        &mut self,
        author: Option<&Bearer>,
        bytes: usize,
    ) -> Result<(), RevocationRefused> {
        let (pool, of_author, most) = match author {
            None => (&mut self.by_realm, MAX_BY_REALM, MAX_BY_REALM),
            Some(author) if author.issuer => (&mut self.by_issuers, MAX_BY_ISSUER, MAX_BY_ISSUERS),
            Some(_) => (&mut self.by_selves, 1, MAX_BY_SELVES),
        };
        let said = author.map_or(0, |author| {
            self.by_author.get(&author.anchor).copied().unwrap_or(0)
        });
        if said >= of_author || pool.count >= most || pool.bytes + bytes > MAX_POOL_BYTES {
            return Err(RevocationRefused::Full);
        }
        pool.count += 1;
        pool.bytes += bytes;
        if let Some(author) = author {
            self.by_author.insert(author.anchor, said + 1);
        }
        Ok(())
    }
}

/// Checks signature and authority, whether or not that has been revoked.
fn check<'a>(
    signed: &'a SignedRevocation,
    realm: &RealmKey,
) -> Result<(&'a Revocation, Option<Bearer>), RevocationRefused> {
    let claimed = signed.revocation.claimed();
    if claimed.realm != realm.id() {
        return Err(RevocationRefused::Realm);
    }
    let Some(by) = claimed.by else {
        return Ok((signed.revocation.verify(&realm.0)?, None));
    };
    let revocation = signed.revocation.verify(&by.0)?;
    let authority = signed
        .authority
        .as_ref()
        .ok_or(RevocationRefused::OtherAuthority)?;
    let author = verify_chain(authority, realm)?;
    if author.key != by {
        return Err(RevocationRefused::OtherAuthority);
    }
    let short = || by.id().short();
    if !author.issuer && revocation.target != Target::Anchor(by.id()) {
        return Err(RevocationRefused::NotAnIssuer(short()));
    }
    if !was_member(&author, UnixTime(revocation.made_at)) {
        return Err(RevocationRefused::NotAMember(short()));
    }
    Ok((revocation, Some(Bearer::of(&author))))
}

/// The realm key has power over all; an anchor over itself and, as an issuer, over whom it
/// granted or could have granted.
fn has_power(author: Option<&Bearer>, who: &Bearer, above: &[&Step]) -> bool {
    let Some(author) = author else { return true };
    let granted = above.iter().any(|step| step.who.anchor == author.anchor);
    let could_grant = !who.issuer && author.taints.contains_all(&who.taints);
    author.anchor == who.anchor || (author.issuer && (granted || could_grant))
}

fn anchor_revoked(anchor: &AnchorKey) -> Refused {
    let anchor = anchor.id().short();
    Refused::Revoked(format!(
        "anchor {anchor} was revoked: `conflux uninstall` there, then join with a new ticket"
    ))
}

fn granter_revoked(anchor: &AnchorKey) -> Refused {
    let anchor = anchor.id().short();
    Refused::Revoked(format!(
        "the credential was granted by anchor {anchor}, which was revoked: join with a new ticket"
    ))
}

fn ticket_revoked(ticket: Serial) -> Refused {
    Refused::Revoked(format!("ticket {ticket} was revoked: ask for a new one"))
}

/// One for every anchor a store holds, at about 200 bytes each.
const MAX_BY_REALM: usize = 16_384;

/// What one issuer can make all others keep; with its credential about 1 KiB each.
const MAX_BY_ISSUER: usize = 512;

/// What all issuers together can make others keep.
const MAX_BY_ISSUERS: usize = 4096;

/// Anchors that revoked themselves, once each: they cannot take the issuers' room.
const MAX_BY_SELVES: usize = 4096;

/// What each kind of author can make others keep, their credentials included, which take 16 KiB
/// at the most and 1 KiB as a rule.
const MAX_POOL_BYTES: usize = 8 << 20;
