//! `members`: the credentials known here, and the tickets. Tickets made here are written down,
//! without their keys; others are known by the chains of those who joined by them.

use std::collections::{BTreeMap, BTreeSet};

use conflux_core::credential::{Member, wants_renewal};
use conflux_core::time::UnixTime;
use conflux_proto::api::{MemberKind, MemberRow, MemberState, Members, VERSION, id_letters};
use conflux_proto::credential::{Credential, Grant, Kind, Serial};
use conflux_proto::id::{AnchorId, AnchorKey};
use conflux_proto::revocation::Target;
use conflux_proto::signed::Signed;
use conflux_proto::taint::TaintSet;
use tracing::warn;

use super::Anchor;
use crate::clock;
use crate::files::StateFile;

/// Tickets made here that are remembered; those that ended longest ago go first.
const MAX_TICKETS: usize = 256;

/// A ticket and who granted it; none: the realm key.
type KnownTickets = BTreeMap<Serial, (Grant, Option<AnchorKey>)>;

impl Anchor {
    pub(super) fn members_answer(&self) -> Members {
        let now = clock::unix();
        let mut rows: Vec<MemberRow> = self
            .credentials()
            .map(|(credential, member)| self.anchor_row(credential, member, now))
            .collect();
        let tickets = self.known_tickets();
        rows.extend(
            tickets
                .values()
                .map(|(grant, by)| self.ticket_row(grant, *by, now)),
        );
        let listed: BTreeSet<String> = rows.iter().map(|row| row.id.clone()).collect();
        let revoked: BTreeSet<Target> = self
            .membership
            .revocations()
            .iter()
            .map(|signed| signed.revocation.claimed().target)
            .collect();
        rows.extend(
            revoked
                .into_iter()
                .map(revoked_row)
                .filter(|row| !listed.contains(&row.id)),
        );
        rows.sort_by(|a, b| (a.kind, &a.id).cmp(&(b.kind, &b.id)));
        Members {
            version: VERSION,
            id_letters: id_letters(rows.iter().map(|row| row.id.as_str())),
            members: rows,
        }
    }

    /// Returns the ids that an operator may shorten.
    pub(super) fn known_ids(&self) -> (BTreeSet<AnchorId>, BTreeSet<Serial>) {
        let mut anchors: BTreeSet<AnchorId> = self
            .membership
            .entries()
            .map(|(key, _)| key.id())
            .chain([self.identity.key().id()])
            .chain(self.peers.accepted().map(|conn| conn.key.id()))
            .collect();
        let mut tickets: BTreeSet<Serial> = self.known_tickets().into_keys().collect();
        for signed in self.membership.revocations().iter() {
            match signed.revocation.claimed().target {
                Target::Anchor(id) => {
                    anchors.insert(id);
                }
                Target::Ticket(serial) => {
                    tickets.insert(serial);
                }
            }
        }
        (anchors, tickets)
    }

    /// Writes down what a ticket made here grants; the error says why `members` will not list it.
    pub(super) fn remember_ticket(&self, grant: &Signed<Grant>) -> Result<(), String> {
        let mut grants = self.own_tickets();
        grants.push(grant.clone());
        grants.sort_by_key(|grant| std::cmp::Reverse(grant.claimed().expires));
        grants.truncate(MAX_TICKETS);
        let bytes: Vec<Vec<u8>> = grants.iter().map(Signed::to_bytes).collect();
        self.state
            .write_list(StateFile::Tickets, bytes.iter().map(Vec::as_slice))
            .map_err(|error| {
                format!(
                    "the ticket could not be written down, so `members` will not list it: {error}"
                )
            })
    }

    fn own_tickets(&self) -> Vec<Signed<Grant>> {
        match self.state.read_list(StateFile::Tickets) {
            Ok(saved) => saved
                .iter()
                .filter_map(|bytes| Signed::from_bytes(bytes).ok())
                .collect(),
            Err(error) => {
                warn!(%error, "the tickets made here are not known any more");
                Vec::new()
            }
        }
    }

    fn known_tickets(&self) -> KnownTickets {
        let mut known = KnownTickets::new();
        let own_key = self.identity.key();
        let maker = (!self.standing.has_realm_key()).then_some(own_key);
        for grant in self.own_tickets() {
            let grant = grant.claimed().clone();
            known.insert(grant.serial, (grant, maker));
        }
        for (credential, _) in self.credentials() {
            for link in credential.links() {
                let grant = link.grant.claimed();
                if grant.kind == Kind::Ticket {
                    let by = link.authority.and_then(|index| {
                        let authority = credential.links().get(usize::from(index));
                        authority.map(conflux_proto::credential::Link::anchor)
                    });
                    known.insert(grant.serial, (grant.clone(), by));
                }
            }
        }
        known
    }

    /// Returns this anchor's own credential and those of all others known.
    fn credentials(&self) -> impl Iterator<Item = (&Credential, &Member)> {
        let own = self.standing.credential().zip(self.standing.member());
        let others = self
            .membership
            .entries()
            .map(|(_, entry)| (entry.credential(), entry.member()));
        own.into_iter().chain(others)
    }

    fn anchor_row(&self, credential: &Credential, member: &Member, now: UnixTime) -> MemberRow {
        let state = if self.membership.revocations().judge(member).is_err() {
            MemberState::Revoked
        } else if member.check_at(now).is_err() {
            MemberState::Expired
        } else if wants_renewal(credential, member, now) {
            MemberState::Ending
        } else {
            MemberState::Valid
        };
        MemberRow {
            kind: MemberKind::Anchor,
            id: member.key.id().to_string(),
            own: member.key == self.identity.key(),
            taints: labels(&member.taints),
            advertise: Some(member.advertise.to_string()),
            issuer: member.issuer,
            issued_by: member
                .lineage
                .own()
                .granted_by
                .map(|key| key.id().to_string()),
            ticket: member.ticket().map(|serial| serial.to_string()),
            valid_until_unix: Some(member.valid_until.0),
            state,
        }
    }

    fn ticket_row(&self, grant: &Grant, by: Option<AnchorKey>, now: UnixTime) -> MemberRow {
        let state = if self.membership.revocations().is_ticket_revoked(grant, by) {
            MemberState::Revoked
        } else if now.0 > grant.expires {
            MemberState::Expired
        } else {
            MemberState::Valid
        };
        MemberRow {
            kind: MemberKind::Ticket,
            id: grant.serial.to_string(),
            own: false,
            taints: labels(&grant.taints),
            advertise: Some(grant.advertise.to_string()),
            issuer: grant.issuer,
            issued_by: by.map(|key| key.id().to_string()),
            ticket: None,
            valid_until_unix: Some(grant.expires),
            state,
        }
    }
}

/// What is known of somebody whose credential is gone.
fn revoked_row(target: Target) -> MemberRow {
    let (kind, id) = match target {
        Target::Anchor(id) => (MemberKind::Anchor, id.to_string()),
        Target::Ticket(serial) => (MemberKind::Ticket, serial.to_string()),
    };
    MemberRow {
        kind,
        id,
        own: false,
        taints: Vec::new(),
        advertise: None,
        issuer: false,
        issued_by: None,
        ticket: None,
        valid_until_unix: None,
        state: MemberState::Revoked,
    }
}

fn labels(taints: &TaintSet) -> Vec<String> {
    taints
        .iter()
        .map(|taint| taint.as_str().to_owned())
        .collect()
}
