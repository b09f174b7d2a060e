//! Who this anchor is in its realm: the founder, a member, or a joiner that waits to be admitted.
//! Reads and writes the state directory's credentials; checks are `core::credential`'s.

use anyhow::{Context, bail};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use conflux_core::credential::{self, Granter, Member};
use conflux_core::identity::{Identity, RealmSecret};
use conflux_core::time::UnixTime;
use conflux_proto::credential::{Credential, Serial};
use conflux_proto::id::{RealmId, RealmKey};
use conflux_proto::taint::TaintSet;
use conflux_proto::ticket::{Endpoint, Ticket};
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::files::{Config, State, StateError, StateFile};

/// This anchor's place in its realm.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) realm_key: RealmKey,
    pub(super) realm: RealmId,
    secret: Option<RealmSecret>,
    membership: Option<(Credential, Member)>,
    joining: Option<Joining>,
    /// Where the ticket that brought this machine in says that anchors may be met; kept until
    /// others are on disk.
    introduced: Vec<Endpoint>,
}

/// A join under way.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) ticket: Ticket,
    pub(super) credential: Credential,
}

impl Standing {
    /// Reads the standing; makes a realm when there is none and no ticket, and a join when there
    /// is a ticket.
    pub(super) fn load(
        state: &State,
        config: &Config,
        identity: &Identity,
        ticket: Option<&str>,
        now: UnixTime,
    ) -> anyhow::Result<Self> {
        let secret = state
            .read_key(StateFile::RealmSecret)?
            .map(|seed| RealmSecret::from_seed(&seed));
        let ticket = match ticket {
            Some(text) => Some(
                text.parse::<Ticket>()
                    .context("the ticket cannot be used")?,
            ),
            None => None,
        };
        let known = state
            .realm()?
            .or_else(|| secret.as_ref().map(RealmSecret::key));
        let Some(realm_key) = known.or_else(|| ticket.as_ref().map(Ticket::realm_key)) else {
            return Self::found(state, config, identity, now);
        };
        if known.is_none() {
            state.write(StateFile::Realm, &realm_key.0)?;
        }
        let mut standing = Self {
            realm_key,
            realm: realm_key.id(),
            secret,
            membership: None,
            joining: None,
            introduced: ticket
                .as_ref()
                .map(|ticket| ticket.endpoints().to_vec())
                .unwrap_or_default(),
        };
        if let Some(bytes) = state.read(StateFile::Credential)? {
            let credential = Credential::from_bytes(&bytes)
                .context("this anchor's credential is damaged; join again with a new ticket")?;
            match credential::verify(&credential, &realm_key, now) {
                Ok(member) if member.key == identity.key() => {
                    standing.membership = Some((credential, member));
                }
                Ok(_) => {
                    bail!("this anchor's credential is of another identity: it was left as it is")
                }
                Err(error) => warn!(%error, "this anchor's credential does not hold"),
            }
        }
        standing.renew_own(state, identity, config, now)?;
        if standing.membership.is_none()
            && let Some(ticket) = ticket
        {
            standing.begin_join(ticket, config, identity, now)?;
        }
        if standing.membership.is_none() && standing.joining.is_none() {
            bail!(
                "this machine knows realm {} but is no member of it: run `conflux up --join` with \
                 a ticket of that realm",
                standing.realm
            );
        }
        Ok(standing)
    }

    /// Makes a realm with this anchor as its first machine.
    fn found(
        state: &State,
        config: &Config,
        identity: &Identity,
        now: UnixTime,
    ) -> anyhow::Result<Self> {
        let seed = random_bytes::<32>();
        let secret = RealmSecret::from_seed(&seed);
        let taints = if config.taints.is_empty() {
            TaintSet::first_machine()
        } else {
            config.taints.clone()
        };
        let realm_key = secret.key();
        let serial = Serial(*random_bytes::<16>());
        let credential = credential::first_machine(&secret, identity.key(), taints, serial, now);
        let member = credential::verify(&credential, &realm_key, now)?;
        state.write(StateFile::RealmSecret, seed.as_slice())?;
        state.write(StateFile::Realm, &realm_key.0)?;
        state.write(StateFile::Credential, &credential.to_bytes())?;
        info!(realm = %realm_key.id(), "made a new realm");
        Ok(Self {
            realm_key,
            realm: realm_key.id(),
            secret: Some(secret),
            membership: Some((credential, member)),
            joining: None,
            introduced: Vec::new(),
        })
    }

    /// The holder of the realm key needs nobody to renew its own credential, nor to give it
    /// other taints.
    pub(super) fn renew_own(
        &mut self,
        state: &State,
        identity: &Identity,
        config: &Config,
        now: UnixTime,
    ) -> anyhow::Result<()> {
        let Some(secret) = &self.secret else {
            return Ok(());
        };
        let fits = self
            .membership
            .as_ref()
            .is_some_and(|(credential, member)| {
                !credential::wants_renewal(credential, member, now)
                    && member.taints.contains_all(&config.taints)
            });
        if fits {
            return Ok(());
        }
        let taints = match (&config.taints, &self.membership) {
            (asked, _) if !asked.is_empty() => asked.clone(),
            (_, Some((_, member))) => member.taints.clone(),
            (_, None) => TaintSet::first_machine(),
        };
        let serial = Serial(*random_bytes::<16>());
        let credential = credential::first_machine(secret, identity.key(), taints, serial, now);
        self.take_credential(state, identity, credential, now)
    }

    /// Takes up a realm key that was imported since the start.
    pub(super) fn reread_secret(&mut self, state: &State) -> anyhow::Result<()> {
        if self.secret.is_none() {
            let seed = state.read_key(StateFile::RealmSecret)?;
            let secret = seed.map(|seed| RealmSecret::from_seed(&seed));
            self.secret = secret.filter(|secret| secret.key() == self.realm_key);
        }
        Ok(())
    }

    /// Applies a changed choice of taints; only the holder of the realm key can go beyond its
    /// credential.
    pub(super) fn retaint(
        &mut self,
        state: &State,
        identity: &Identity,
        config: &Config,
        now: UnixTime,
    ) -> anyhow::Result<()> {
        self.renew_own(state, identity, config, now)
    }

    fn begin_join(
        &mut self,
        ticket: Ticket,
        config: &Config,
        identity: &Identity,
        now: UnixTime,
    ) -> anyhow::Result<()> {
        if ticket.realm_key() != self.realm_key {
            bail!(
                "the ticket is of realm {}, this machine is in realm {}: nothing was changed; \
                 `conflux uninstall` leaves the old realm",
                ticket.realm(),
                self.realm
            );
        }
        let taints = (!config.taints.is_empty()).then(|| config.taints.clone());
        let credential = credential::join(&ticket, identity.key(), taints, now)
            .context("this machine cannot join with that ticket")?;
        self.joining = Some(Joining { ticket, credential });
        Ok(())
    }

    /// Takes the credential that makes this anchor a member, or renews its membership.
    pub(super) fn take_credential(
        &mut self,
        state: &State,
        identity: &Identity,
        credential: Credential,
        now: UnixTime,
    ) -> anyhow::Result<()> {
        let member = credential::verify(&credential, &self.realm_key, now)?;
        if member.key != identity.key() {
            bail!("the credential is of another anchor");
        }
        if let Some((_, held)) = &self.membership
            && held.valid_until > member.valid_until
        {
            bail!("the credential ends before the one that is held");
        }
        state.write(StateFile::Credential, &credential.to_bytes())?;
        self.membership = Some((credential, member));
        self.joining = None;
        Ok(())
    }

    /// Removes the ticket of a finished join: others are on disk now, and the next start knows where
    /// to knock. Before that a loss of power would leave a member that knows nobody.
    pub(super) fn forget_ticket(&mut self, state: &State) -> Result<(), StateError> {
        if self.membership.is_some() && !self.introduced.is_empty() {
            state.remove(StateFile::Ticket)?;
            self.introduced.clear();
        }
        Ok(())
    }

    /// Returns where the ticket says that anchors may be met, as long as it is needed.
    pub(super) fn introduced(&self) -> &[Endpoint] {
        &self.introduced
    }

    /// Returns what proves this anchor's standing to others: its credential, or its join.
    pub(super) fn shown(&self) -> Option<&Credential> {
        self.credential()
            .or_else(|| self.joining.as_ref().map(|joining| &joining.credential))
    }

    pub(super) fn credential(&self) -> Option<&Credential> {
        self.membership.as_ref().map(|(credential, _)| credential)
    }

    pub(super) fn member(&self) -> Option<&Member> {
        self.membership.as_ref().map(|(_, member)| member)
    }

    pub(super) const fn joining(&self) -> Option<&Joining> {
        self.joining.as_ref()
    }

    /// Says whether this machine holds the realm's key.
    pub(super) const fn has_realm_key(&self) -> bool {
        self.secret.is_some()
    }

    /// Says whether this anchor may invite others.
    pub(super) fn is_issuer(&self) -> bool {
        self.secret.is_some() || self.member().is_some_and(|member| member.issuer)
    }

    /// Returns by what right tickets are made here.
    pub(super) fn granter<'a>(&'a self, identity: &'a Identity) -> Option<Granter<'a>> {
        if let Some(secret) = &self.secret {
            return Some(Granter::Realm(secret));
        }
        let credential = self.credential()?;
        Some(Granter::Issuer {
            identity,
            credential,
            realm: &self.realm_key,
        })
    }

    /// Returns the taints this anchor uses: those it was asked to, within what it was granted.
    pub(super) fn taints(&self, config: &Config) -> TaintSet {
        let granted = match (&self.membership, &self.joining) {
            (Some((_, member)), _) => &member.taints,
            (None, Some(joining)) => &joining.ticket.grant().claimed().taints,
            (None, None) => return TaintSet::default(),
        };
        if !config.taints.is_empty() && granted.contains_all(&config.taints) {
            config.taints.clone()
        } else {
            granted.clone()
        }
    }
}

/// Returns fresh secret bytes of the operating system.
pub(super) fn random_bytes<const N: usize>() -> Zeroizing<[u8; N]> {
    let mut bytes = Zeroizing::new([0; N]);
    SystemRandom::new()
        .fill(bytes.as_mut())
        .expect("the kernel's generator does not fail once it is seeded");
    bytes
}
