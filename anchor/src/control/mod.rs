//! The control loop: it owns what this anchor knows of its realm, drives the state machines of
//! `core` that are not on the packet way, and sleeps until something comes or a deadline is due.
//! QUIC tasks, the data thread, the host's network, the local socket and signals talk to it by
//! bounded channels; it tells the data thread what follows.
//!
//! | file | what it does |
//! |---|---|
//! | `start` | from files to a running anchor |
//! | `standing` | who this anchor is in the realm: founder, member, joiner |
//! | `peers` | numbers, connections, dial times |
//! | `link` | connections: hello, admission, messages |
//! | `discover` | places to knock: on the machine's links, and those the operator named |
//! | `paced` | what changes often and is acted on now and then |
//! | `named` | addresses that others name: which are used |
//! | `meet` | where others see this anchor; trying direct paths together |
//! | `relay` | who carries for this anchor, and for whom it does |
//! | `handshake` | data keys for each peer |
//! | `gossip` | adverts and leaves: what is told to whom |
//! | `trust`, `members` | revocations; the credentials known |
//! | `renew` | fresh credentials for members whose own end soon |
//! | `clones` | identities that two machines use |
//! | `routing` | from adverts to routes, paths and interface |
//! | `host` | the interface and the machine's network |
//! | `moved` | what follows when that network has changed |
//! | `check` | what the check of this machine's own service means for its advert |
//! | `drain` | holders that take no new flows, on both ends |
//! | `answers`, `explain`, `metrics`, `reload` | the local socket |
//! | `carry` | what an anchor that starts anew goes on with |

mod answers;
mod carry;
mod check;
mod clones;
mod discover;
mod drain;
mod explain;
mod gossip;
mod handshake;
mod host;
mod link;
mod meet;
mod members;
mod metrics;
mod moved;
mod named;
mod paced;
mod peers;
mod relay;
mod reload;
mod renew;
mod routing;
mod standing;
mod start;
mod trust;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use conflux_core::identity::Identity;
use conflux_core::ids::{PeerIx, Relayed};
use conflux_core::membership::Membership;
use conflux_core::paths::Way;
use conflux_core::plane::{Event, Path};
use conflux_core::reach::Observations;
use conflux_core::reason::Reason;
use conflux_core::routes::Routes;
use conflux_core::time::Mono;
use conflux_proto::id::AnchorKey;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::api::Request;
use crate::check::Ran;
use crate::clock;
use crate::data::{DataHandle, Notice};
use crate::discovery::Discovery;
use crate::files::{Config, State};
use crate::logging::RateLimit;
use crate::quic::{DialTarget, QuicEvent, QuicHandle, SharedPaths};
use clones::Clones;
use discover::Insist;
use drain::Draining;
use host::{Facts, Host};
use paced::Paced;
use peers::Peers;
use relay::Relays;
use standing::Standing;

pub(crate) use carry::{Asked, Carried};
pub(crate) use start::start;

/// Goodbyes have this long to be delivered (SPEC section 5).
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);
/// How often client mappings are written down while they change.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// News of peers is written down this soon: a machine that has just joined and loses its power
/// knows nobody otherwise, its ticket being used up.
const SAVE_NEWS_WITHIN: Duration = Duration::from_secs(2);

/// How an anchor's run ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was told to stop and said goodbye.
    Stopped,
    /// It is to start again with the changed configuration; no goodbye was said.
    Restart(Asked),
    /// Its interface was taken away.
    InterfaceGone,
}

/// A running anchor.
pub(crate) struct Anchor {
    state: State,
    layout: crate::files::Layout,
    config: Config,
    identity: Arc<Identity>,
    standing: Standing,
    epoch: u64,
    membership: Membership,
    peers: Peers,
    quic: QuicHandle,
    quic_events: mpsc::Receiver<QuicEvent>,
    paths: SharedPaths,
    /// Above the data thread, so that it has ended when the interface goes.
    host: Host,
    facts: Facts,
    data: DataHandle,
    notices: mpsc::Receiver<Notice>,
    routes: Arc<Routes>,
    /// Local addresses of the sockets, by the number the data thread has for them.
    sockets: Vec<SocketAddr>,
    interface: String,
    moves: Paced,
    aes: bool,
    /// Somebody dialled us and was accepted: this anchor can be reached at an endpoint.
    was_reached: bool,
    seeds: BTreeMap<SocketAddr, Seed>,
    /// None while it is switched off.
    discovery: Option<Discovery>,
    seeds_resolve_at: Option<Mono>,
    resolved: mpsc::Receiver<Vec<(SocketAddr, Insist)>>,
    resolver: mpsc::Sender<Vec<(SocketAddr, Insist)>>,
    last_join_error: Option<String>,
    /// Who would not have this anchor, when and why.
    refused: Option<(Mono, String)>,
    clones: Clones,
    relays: Relays,
    observations: Observations,
    /// How it can be reached may have changed.
    reach_changes: Paced,
    /// Peers of the last run that have not been heard of since.
    remembered: BTreeMap<PeerIx, AnchorKey>,
    adverts_changed: bool,
    digest_at: Mono,
    refreshes: gossip::Refreshes,
    /// The check that is being run.
    check: Option<check::Checked>,
    /// Checks that were begun: numbers for their outcomes.
    checkers: u64,
    checked: mpsc::Receiver<Ran>,
    check_outcomes: mpsc::Sender<Ran>,
    /// Set while this anchor drains.
    drain: Option<Draining>,
    /// When flows on holders that drain are looked at, while there are such.
    look_at_draining: Option<Mono>,
    told_resting: BTreeMap<PeerIx, drain::Told>,
    /// Peers whose clocks differ much from ours: seconds ours is ahead.
    skewed: BTreeMap<AnchorKey, i64>,
    save_at: Mono,
    saved_leases: u64,
    handshakes: u32,
    /// For lines that anybody who finds the port can cause.
    remote_lines: RateLimit,
    started: Mono,
    random: fastrand::Rng,
    _claims: Vec<crate::udp::Claim>,
}

/// An endpoint to try while it is not known whose it is.
#[derive(Clone, Copy, Debug)]
struct Seed {
    at: Mono,
    pause: Duration,
    under_way: bool,
    insist: Insist,
}

/// What made the loop turn.
enum Input {
    Quic(Option<QuicEvent>),
    Data(Option<Notice>),
    Host(Option<Facts>),
    Request(Option<Request>),
    Resolved(Vec<(SocketAddr, Insist)>),
    Found(SocketAddr),
    Checked(Ran),
    Terminate,
    Timer,
}

impl Anchor {
    /// Runs until something ends it; what another one can go on with comes back, unless it was
    /// stopped. `terminate` yields when the process was asked to stop.
    pub(crate) async fn run(
        mut self,
        requests: &mut mpsc::Receiver<Request>,
        terminate: &mut mpsc::Receiver<()>,
    ) -> (Ended, Option<Carried>) {
        loop {
            let deadline = self.next_deadline();
            let now = clock::now().mono;
            let wait = deadline.map(|at| {
                if at > now {
                    at.since(now)
                } else {
                    Duration::ZERO
                }
            });
            let wake = Instant::now() + wait.unwrap_or(Duration::from_secs(3600));
            let input = tokio::select! {
                biased;
                _ = terminate.recv() => Input::Terminate,
                // The operator is heard also while peers flood this anchor with messages.
                request = requests.recv() => Input::Request(request),
                notice = self.notices.recv() => Input::Data(notice),
                facts = self.host.facts.recv() => Input::Host(facts),
                event = self.quic_events.recv() => Input::Quic(event),
                Some(seeds) = self.resolved.recv() => Input::Resolved(seeds),
                place = found_by(&mut self.discovery) => Input::Found(place),
                Some(ran) = self.checked.recv() => Input::Checked(ran),
                () = sleep_until(wake) => Input::Timer,
            };
            let ended = match self.handle(input).await {
                None if self.data.has_ended() => Ended::InterfaceGone,
                None => continue,
                Some(ended) => ended,
            };
            return match ended {
                Ended::Stopped => (ended, None),
                Ended::Restart(_) | Ended::InterfaceGone => (ended, Some(self.end().await)),
            };
        }
    }

    async fn handle(&mut self, input: Input) -> Option<Ended> {
        let now = clock::now().mono;
        match input {
            Input::Quic(Some(event)) => self.handle_quic(now, event),
            Input::Data(Some(notice)) => self.handle_notice(now, notice),
            Input::Host(Some(facts)) => self.handle_host(now, facts),
            Input::Resolved(seeds) => self.add_seeds(now, seeds),
            Input::Found(place) => self.take_found(now, place),
            Input::Checked(ran) => self.handle_check(now, ran),
            Input::Request(Some(request)) => {
                if let Some(ended) = self.handle_request(now, request).await {
                    return Some(ended);
                }
            }
            Input::Terminate => {
                self.say_goodbye().await;
                return Some(Ended::Stopped);
            }
            Input::Host(None) | Input::Request(None) | Input::Timer => {}
            Input::Quic(None) | Input::Data(None) => return Some(Ended::InterfaceGone),
        }
        self.handle_deadlines(now).await;
        None
    }

    fn handle_notice(&mut self, now: Mono, notice: Notice) {
        match notice {
            Notice::Plane(event) => self.handle_data(now, event),
            Notice::OneByOne(to) => {
                info!(%to, "an interface takes no runs of frames: they go one by one, which is slower");
            }
        }
    }

    fn handle_data(&mut self, now: Mono, event: Event) {
        match event {
            Event::NeedSession(peer) => self.need_session(now, peer),
            Event::Rotate(peer) => self.rotate(now, peer),
            Event::Roamed(peer, path) => {
                let way = Way {
                    remote: path.remote,
                    local: path.local,
                };
                self.paths.lock().roam(peer, way);
                self.nudge(peer);
                self.follow_roaming(now, peer, path);
                self.tell_seen_anew(peer, path.remote);
            }
            Event::Unanswered(peer) => {
                self.nudge(peer);
                self.seek_relays_at_once(now, peer);
            }
            Event::TryPaths(peer) => self.ask_to_try(peer),
            Event::Measured(way, rtt) => self.handle_measured(now, way, rtt),
            Event::Failed {
                peer,
                moved,
                stranded,
            } => {
                let anchor = self.short(peer);
                let reason = Reason::Failed;
                warn!(%anchor, %reason, moved, stranded, "holder failed for this machine");
                self.hurry(now, peer);
            }
            Event::LocalFault(peer) => {
                let anchor = self.short(peer);
                warn!(%anchor, "nobody answers: this machine's own network is at fault; flows stay");
            }
            Event::Returned(peer) => {
                info!(anchor = %self.short(peer), "holder answers again; new flows may use it");
            }
            Event::Left {
                peer,
                reason,
                moved,
                stranded,
            } => {
                let anchor = self.short(peer);
                info!(%anchor, %reason, moved, stranded, "flows left their holder");
            }
        }
    }

    fn handle_host(&mut self, now: Mono, facts: Facts) {
        let has_moved = self.facts.uplinks != facts.uplinks;
        self.facts = facts;
        if has_moved {
            self.moves.note(now);
            self.follow_moves(now);
        }
        self.readvertise(now);
        self.rebuild(now);
    }

    async fn handle_deadlines(&mut self, now: Mono) {
        self.follow_moves(now);
        self.follow_discovery();
        self.follow_reach(now);
        self.run_membership(now);
        self.dial_due(now);
        self.run_relays(now);
        self.release_draining(now).await;
        if now >= self.save_at {
            self.save_at = now + SAVE_EVERY;
            self.save().await;
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        let is_out = self.own_revocation().is_some();
        let wanted = if is_out {
            Vec::new()
        } else {
            self.wanted_peers()
        };
        [
            Some(self.save_at),
            Some(self.digest_at),
            self.refreshes.due(),
            self.clones.due(),
            self.membership.poll_timeout(),
            self.peers.next_dial(wanted.into_iter()),
            self.next_seed().filter(|_| !is_out),
            self.seeds_resolve_at.filter(|_| !is_out),
            self.look_at_draining,
            self.relays.poll_timeout(),
            self.moves.due(),
            self.reach_changes.due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Writes down what a restart wants to find again.
    async fn save(&mut self) {
        self.save_adverts();
        let saved = self.saved_leases;
        let leases = self
            .data
            .ask(move |plane, now| {
                let clients = plane.clients();
                (clients.revision() != saved).then(|| (clients.revision(), clients.export(), now))
            })
            .await
            .flatten();
        let Some((revision, leases, now)) = leases else {
            return;
        };
        let leases: Vec<_> = leases
            .into_iter()
            .map(|lease| crate::files::SavedLease {
                key: lease.key,
                host: lease.host,
                address: lease.address,
                idle: now.boot.since(lease.last_used),
            })
            .collect();
        match self.state.write_leases(&leases) {
            Ok(()) => self.saved_leases = revision,
            Err(error) => warn!(%error, "client addresses could not be written down"),
        }
    }

    /// Tells every connected peer that this anchor leaves, and waits until they know.
    async fn say_goodbye(&mut self) {
        self.save().await;
        let waits = self.send_leaves(GOODBYE_WITHIN);
        let told = futures_util::future::join_all(waits).await;
        let missed = told.iter().filter(|told| told.is_err()).count();
        info!(told = told.len() - missed, missed, "said goodbye");
        self.quic
            .shut_down("left the realm's network", Duration::from_millis(200))
            .await;
    }

    fn short(&self, peer: PeerIx) -> String {
        self.peers
            .get(peer)
            .map(|peer| peer.key.id().short())
            .unwrap_or_default()
    }

    /// Returns the data thread's path for a way to a peer; `None` without a socket for it.
    fn path_to(&self, way: Way) -> Option<Path> {
        if let Some(way) = Relayed::from_address(&way.remote) {
            return Some(Path::relayed(way));
        }
        let is_bound = |local: &SocketAddr| Some(local.ip()) == way.local;
        let serves = |local: &SocketAddr| local.is_ipv4() == way.remote.is_ipv4();
        let mut sockets = self.sockets.iter();
        let socket = sockets
            .position(is_bound)
            .or_else(|| self.sockets.iter().position(serves))?;
        Some(Path {
            socket: u8::try_from(socket).ok()?,
            remote: way.remote,
            local: way.local,
        })
    }

    fn add_seeds(&mut self, now: Mono, seeds: Vec<(SocketAddr, Insist)>) {
        for (seed, insist) in seeds {
            let new = Seed {
                insist,
                ..Self::new_seed(now)
            };
            self.seeds.entry(seed).or_insert(new);
        }
    }

    fn next_seed(&self) -> Option<Mono> {
        let needs_any = self.needs_seeds();
        self.seeds
            .values()
            .filter(|seed| !seed.under_way && (needs_any || seed.insist != Insist::No))
            .map(|seed| seed.at)
            .min()
    }

    /// Seeds are tried while this anchor is connected with nobody; some beyond that.
    fn needs_seeds(&self) -> bool {
        self.peers.accepted().next().is_none()
    }

    fn dial_due(&mut self, now: Mono) {
        // Nobody would have it.
        if self.own_revocation().is_some() {
            return;
        }
        for peer in self.wanted_peers() {
            let paths = &self.paths;
            let addresses = || paths.lock().candidates(peer).len();
            if self.peers.take_dial(peer, now, addresses)
                && let Some(key) = self.peers.get(peer).map(|peer| peer.key)
            {
                self.quic.dial(DialTarget::Peer { peer, key });
                self.seek_relays_after_dial(now, peer);
            }
        }
        if self.seeds_resolve_at.is_some_and(|at| now >= at) {
            self.resolve_seeds(now);
        }
        let needs_any = self.needs_seeds();
        for (&address, seed) in &mut self.seeds {
            let is_wanted = needs_any || seed.insist != Insist::No;
            if is_wanted && !seed.under_way && seed.at <= now {
                seed.under_way = true;
                self.quic.dial(DialTarget::Address(address));
            }
        }
    }
}

async fn found_by(discovery: &mut Option<Discovery>) -> SocketAddr {
    match discovery {
        Some(discovery) => discovery.found().await,
        None => std::future::pending().await,
    }
}
