//! What a membership rests on, kept beside it: who granted, by which ticket, who admitted, and
//! when each of them signed. A revocation is held against this, long after the chain was checked.

use conflux_proto::credential::Serial;
use conflux_proto::id::AnchorKey;
use conflux_proto::taint::TaintSet;

use super::Member;
use crate::time::UnixTime;

/// An anchor and those of its rights that say who may revoke it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bearer {
    /// Who it is.
    pub anchor: AnchorKey,
    /// Its taints.
    pub taints: TaintSet,
    /// Whether it may grant.
    pub issuer: bool,
}

/// A member's word on a join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admitted {
    /// Who gave it.
    pub by: Bearer,
    /// When, as it wrote.
    pub at: UnixTime,
}

/// One anchor on the way from a member up to the realm key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The anchor.
    pub who: Bearer,
    /// Who granted; none: the realm key.
    pub granted_by: Option<AnchorKey>,
    /// When the grant was made, or the ticket's.
    pub granted_at: UnixTime,
    /// The ticket it joined by, now or before a renewal.
    pub ticket: Option<Serial>,
    /// Who admitted it, where that was needed.
    pub admitted: Option<Admitted>,
}

/// The steps from a member up to the realm key, the member's own first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lineage {
    own: Step,
    above: Vec<Step>,
}

impl Bearer {
    pub(super) fn of(member: &Member) -> Self {
        Self {
            anchor: member.key,
            taints: member.taints.clone(),
            issuer: member.issuer,
        }
    }
}

impl Step {
    /// Returns the lineage that begins with this step, granted by `authority`.
    pub(super) fn onto(self, authority: Option<&Member>) -> Lineage {
        let above =
            authority.map_or_else(Vec::new, |member| member.lineage.steps().cloned().collect());
        Lineage { own: self, above }
    }
}

impl Lineage {
    pub(super) fn admit(&mut self, admitted: Admitted) {
        self.own.admitted = Some(admitted);
    }

    /// Returns the member's own step.
    pub fn own(&self) -> &Step {
        &self.own
    }

    /// Returns all steps, the member's own first.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        std::iter::once(&self.own).chain(&self.above)
    }
}
