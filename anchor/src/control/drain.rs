//! Draining, on both of its ends. As a holder: this anchor's advert asks for no new flows, and
//! clients tell what still rests here. As a client: flows at rest leave a holder that drains
//! (`core::plane` decides which), and that holder is told how many are left.
//!
//! The wish to drain outlives restarts, so that a machine taken out of service stays out until
//! `undrain`.

use std::collections::BTreeMap;
use std::time::Duration;

use conflux_core::flows::IDLE_AFTER;
use conflux_core::ids::PeerIx;
use conflux_core::time::{Mono, UnixTime};
use conflux_proto::api::{Drain, DrainRequest, DrainWait, VERSION};
use conflux_proto::control::{Message, Resting};
use conflux_proto::id::AnchorKey;
use tracing::{info, warn};

use super::Anchor;
use super::answers::no_data_thread;
use crate::api::Refusal;
use crate::clock;
use crate::files::{State, StateFile};
use crate::quic::ConnId;

/// How often a client looks at what rests on holders that drain. An operator waits by the second.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A holder is told again this often though nothing changed: it may have forgotten.
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// The advert and the clients' first word about it need this long at most.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// That this anchor drains.
#[derive(Debug)]
pub(super) struct Draining {
    /// When the operator asked for it.
    since: UnixTime,
    /// When this process began to.
    began: Mono,
    /// What peers say rests here; of anchors of the realm only, whose number is bounded.
    told: BTreeMap<AnchorKey, u64>,
}

/// What this anchor has told a holder that drains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    conn: ConnId,
    flows: u32,
    at: Mono,
}

impl Draining {
    fn begin(since: UnixTime, now: Mono) -> Self {
        Self {
            since,
            began: now,
            told: BTreeMap::new(),
        }
    }

    /// Reads whether this anchor drained when it last ran.
    pub(super) fn load(state: &State, now: Mono) -> Option<Self> {
        let content = match state.read(StateFile::Draining) {
            Ok(content) => content?,
            Err(error) => {
                warn!(%error, "whether this anchor drains cannot be read: it takes new flows");
                return None;
            }
        };
        // The file is what counts; a damaged time in it is only shown.
        let seconds = std::str::from_utf8(&content)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        Some(Self::begin(seconds.map_or_else(clock::unix, UnixTime), now))
    }
}

impl Anchor {
    /// Begins or ends draining.
    pub(super) async fn set_drain(
        &mut self,
        now: Mono,
        request: DrainRequest,
    ) -> Result<Drain, Refusal> {
        let holds = self.shared_address().is_some() || !self.config.subnets.is_empty();
        if request.draining && !holds {
            return Err(Refusal::Unavailable(
                "this anchor holds nothing: it advertises no address (`up --ipv4`) and no subnet \
                 (`up --subnet`), so there is nothing to drain; nothing was changed"
                    .to_owned(),
            ));
        }
        let failed = |error: crate::files::StateError| {
            Refusal::Failed(format!("{error}; nothing was changed"))
        };
        match (request.draining, self.drain.is_some()) {
            (true, false) => {
                let since = clock::unix();
                self.state
                    .write(StateFile::Draining, since.0.to_string().as_bytes())
                    .map_err(failed)?;
                self.drain = Some(Draining::begin(since, now));
                info!("draining: new flows go to other holders");
            }
            (false, true) => {
                self.state.remove(StateFile::Draining).map_err(failed)?;
                self.drain = None;
                info!("not draining any more");
            }
            (true, true) | (false, false) => {}
        }
        self.readvertise(now);
        self.drain_answer(now).await
    }

    /// Returns how far draining has come.
    pub(super) async fn drain_answer(&self, now: Mono) -> Result<Drain, Refusal> {
        let Some(drain) = &self.drain else {
            return Ok(Drain {
                version: VERSION,
                draining: false,
                since_seconds: 0,
                empty: false,
                flows: 0,
                waits_for: Vec::new(),
            });
        };
        let idle = self
            .data
            .ask(|plane, now| plane.clients().idle_by_peer(now.boot))
            .await
            .ok_or_else(no_data_thread)?;
        let mut waits_for: Vec<DrainWait> = idle
            .into_iter()
            .filter(|(_, idle)| *idle < IDLE_AFTER)
            .filter_map(|(peer, _)| self.waits_for(drain, peer))
            .collect();
        waits_for.sort_by(|a, b| a.anchor.cmp(&b.anchor));
        Ok(Drain {
            version: VERSION,
            draining: true,
            since_seconds: clock::unix().since(drain.since).as_secs(),
            empty: waits_for.is_empty() && now.since(drain.began) >= HEARD_WITHIN,
            flows: waits_for.iter().filter_map(|wait| wait.flows).sum(),
            waits_for,
        })
    }

    /// Says what a client that was heard within 15 minutes is waited for.
    fn waits_for(&self, drain: &Draining, peer: PeerIx) -> Option<DrainWait> {
        let key = self.peers.get(peer)?.key;
        // One that has left, or has not been heard of for too long, has no flows.
        self.membership.get(&key)?;
        let flows = drain.told.get(&key).copied();
        (flows != Some(0)).then(|| DrainWait {
            anchor: key.id().to_string(),
            flows,
        })
    }

    /// A client tells what rests here.
    pub(super) fn take_resting(&mut self, key: AnchorKey, resting: Resting) {
        let is_member = self.membership.get(&key).is_some();
        if let Some(drain) = &mut self.drain
            && is_member
        {
            drain.told.insert(key, resting.flows);
        }
    }

    /// Begins or ends looking at flows on holders that drain, as the routes say.
    pub(super) fn watch_draining(&mut self, now: Mono) {
        if !self.routes.has_draining() {
            self.look_at_draining = None;
            self.told_resting.clear();
        } else if self.look_at_draining.is_none() {
            self.look_at_draining = Some(now);
        }
    }

    /// Lets flows at rest leave holders that drain, and tells those what is left.
    pub(super) async fn release_draining(&mut self, now: Mono) {
        if self.look_at_draining.is_none_or(|at| at > now) {
            return;
        }
        self.look_at_draining = Some(now + LOOK_EVERY);
        let Some(released) = self
            .data
            .ask(|plane, now| plane.release_draining(now))
            .await
        else {
            return;
        };
        let own = self.identity.key();
        self.told_resting
            .retain(|peer, _| released.iter().any(|resting| resting.peer == *peer));
        for resting in released {
            if resting.moved > 0 {
                info!(
                    anchor = %self.short(resting.peer),
                    reason = %conflux_core::reason::Reason::Left,
                    moved = resting.moved,
                    "flows at rest left their draining holder"
                );
            }
            let Some(conn) = self.peers.in_use(resting.peer, &own).map(|conn| conn.id) else {
                continue;
            };
            let is_known = self.told_resting.get(&resting.peer).is_some_and(|told| {
                told.conn == conn && told.flows == resting.flows && now.since(told.at) < TELL_AGAIN
            });
            if is_known {
                continue;
            }
            let flows = u64::from(resting.flows);
            self.tell(conn, &Message::Resting(Resting { flows }));
            let told = Told {
                conn,
                flows: resting.flows,
                at: now,
            };
            self.told_resting.insert(resting.peer, told);
        }
    }
}
