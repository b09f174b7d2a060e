//! Renewal: an issuer that meets a member whose credential is in its last third, or rests on a
//! long chain, sends it a fresh one with the same rights (SPEC section 7).

use std::time::Duration;

use conflux_core::credential::{self, Member, renew, wants_renewal};
use conflux_core::time::Mono;
use conflux_proto::control::{Admitted, Message};
use conflux_proto::credential::{Credential, Serial};
use conflux_proto::id::AnchorKey;
use tracing::{debug, info, warn};

use super::Anchor;
use super::standing::random_bytes;
use crate::clock;
use crate::quic::ConnId;

/// A member that did not take what it was sent, for want of disk or of agreement, is sent it
/// again this often.
const OFFER_EVERY: Duration = Duration::from_secs(3600);

impl Anchor {
    /// Renews what is due: this anchor's own credential where it holds the realm's key, and those
    /// of connected members where it is an issuer.
    pub(super) fn renew_due(&mut self, now: Mono) {
        if !self.standing.is_issuer() {
            return;
        }
        let unix = clock::unix();
        let before = self.standing.credential().cloned();
        if let Err(error) = self
            .standing
            .renew_own(&self.state, &self.identity, &self.config, unix)
        {
            warn!(%error, "this anchor's own credential could not be renewed");
        }
        if self.standing.credential() != before.as_ref() {
            info!("this anchor's credential was renewed");
            self.readvertise(now);
        }
        let own = self.identity.key();
        for (_, conn) in self.peers.neighbours(&own) {
            let Some(key) = self.peers.conn(conn).map(|conn| conn.key) else {
                continue;
            };
            let Some(entry) = self.membership.get(&key) else {
                continue;
            };
            if wants_renewal(entry.credential(), entry.member(), unix) {
                let (credential, member) = (entry.credential().clone(), entry.member().clone());
                self.offer_renewal(now, conn, key, &credential, &member);
            }
        }
    }

    /// Sends a member on a connection a fresh credential, when it wants one and this anchor may
    /// give it.
    pub(super) fn offer_renewal(
        &mut self,
        now: Mono,
        conn: ConnId,
        key: AnchorKey,
        credential: &Credential,
        member: &Member,
    ) {
        let unix = clock::unix();
        if !self.standing.is_issuer()
            || !wants_renewal(credential, member, unix)
            || self.own_revocation().is_some()
            || !self.peers.may_offer(&key, now, OFFER_EVERY)
        {
            return;
        }
        let Some(granter) = self.standing.granter(&self.identity) else {
            return;
        };
        let serial = Serial(*random_bytes::<16>());
        match renew(granter, member, serial, unix) {
            Ok(fresh) => {
                info!(anchor = %key.id().short(), "renewed a member's credential");
                self.tell(conn, &Message::Admitted(Admitted { credential: fresh }));
            }
            // Another issuer may have more rights.
            Err(error) => {
                debug!(anchor = %key.id().short(), %error, "cannot renew a member's credential");
            }
        }
    }

    /// Says why a credential that a peer sent must not replace the one that is held: issuers add
    /// rights and time, and do not take any away.
    pub(super) fn refuse_lesser(&self, offered: &Credential) -> Result<(), String> {
        let realm = &self.standing.realm_key;
        let offered =
            credential::verify(offered, realm, clock::unix()).map_err(|error| error.to_string())?;
        self.membership
            .revocations()
            .judge(&offered)
            .map_err(|error| error.to_string())?;
        let Some(held) = self.standing.member() else {
            return Ok(());
        };
        let keeps_all = offered.taints.contains_all(&held.taints)
            && held.advertise.is_within(&offered.advertise)
            && (offered.issuer || !held.issuer);
        if keeps_all || self.own_revocation().is_some() {
            Ok(())
        } else {
            Err("it grants less than the one that is held".to_owned())
        }
    }
}
