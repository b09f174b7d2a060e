//! One anchor of the simulated realm: the real packet way and the real store of adverts, and the
//! little of the daemon's control loop that joins the two. What crosses wires is the world's.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use conflux_core::clients::Clients;
use conflux_core::connections;
use conflux_core::credential::first_machine;
use conflux_core::identity::{Identity, RealmSecret};
use conflux_core::ids::PeerIx;
use conflux_core::membership::{self, Membership};
use conflux_core::plane::{Limits, OWN_HOST, Own, Path, Plane};
use conflux_core::routes::{self, Claim, OwnFacts, PeerFacts, Routes};
use conflux_core::session::{Initiator, Local, Remote};
use conflux_core::time::{Boot, Mono, Now, UnixTime};
use conflux_proto::advert::Reach;
use conflux_proto::credential::{Credential, Serial};
use conflux_proto::id::AnchorKey;
use conflux_proto::taint::TaintSet;
use ipnet::{IpNet, Ipv4Net};

use crate::machine::Machine;
use crate::nat::Nat;

/// The wall clock when a schedule begins.
const START_SECS: u64 = 1_800_000_000;

/// The port of every anchor.
pub(crate) const PORT: u16 = 47_474;

/// What an anchor is set up as; it may change while it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spec {
    pub(crate) ipv4: Option<Ipv4Addr>,
    /// The LAN behind it, for which it speaks.
    pub(crate) subnet: Option<IpNet>,
    pub(crate) taints: TaintSet,
    pub(crate) client_range: Ipv4Net,
    pub(crate) flows_cap: usize,
    pub(crate) connections_cap: usize,
    pub(crate) is_dual: bool,
}

/// What the machine is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    Running,
    /// The process gets no time (SIGSTOP, an overloaded machine) until then.
    Stopped(Mono),
    /// The machine sleeps: CLOCK_MONOTONIC stands still.
    Suspended {
        /// Since when.
        since: Mono,
        /// Until when, unless it is woken.
        until: Mono,
    },
    /// Power off, or the daemon is not running.
    Off,
}

/// A handshake begun and not finished.
pub(crate) struct Handshake {
    pub(crate) with: usize,
    /// The receiver index it is for: no two have the same.
    pub(crate) number: u32,
    pub(crate) initiator: Initiator,
    pub(crate) began: Mono,
}

/// One anchor and its machine.
pub(crate) struct Anchor {
    pub(crate) number: usize,
    pub(crate) spec: Spec,
    pub(crate) identity: Identity,
    pub(crate) plane: Plane,
    pub(crate) membership: Membership,
    pub(crate) machine: Machine,
    pub(crate) nat: Option<Nat>,
    pub(crate) condition: Condition,
    /// How far CLOCK_MONOTONIC is behind the world's time.
    pub(crate) suspended: Duration,
    /// How far the wall clock is ahead, in seconds.
    pub(crate) wall_ahead_secs: i64,
    /// How late timers fire.
    pub(crate) timer_lag: Duration,
    pub(crate) epoch: u64,
    /// Handshakes under way.
    pub(crate) handshakes: Vec<Handshake>,
    pub(crate) indices: u32,
    pub(crate) next_digest: Mono,
    pub(crate) next_dial: Mono,
    pub(crate) random: fastrand::Rng,
    credential: Credential,
    serving: Arc<Routes>,
}

impl Anchor {
    /// Returns anchor `number`, started for the first time.
    pub(crate) fn new(number: usize, spec: Spec, seed: u64) -> Self {
        let identity = identity(number);
        let credential = first_machine(
            &realm(),
            identity.key(),
            TaintSet::parse(["a", "b", "c"]).expect("these are labels"),
            Serial([u8::try_from(number).expect("few anchors"); 16]),
            UnixTime(START_SECS),
        );
        let serving = Arc::new(routes::build(&own_facts(&identity, &spec), &[]));
        let mut random = fastrand::Rng::with_seed(seed);
        let clients = Clients::new(spec.client_range, random.u64(..));
        Self {
            number,
            plane: plane(&identity, &spec, &serving, clients, random.u64(..)),
            membership: Membership::new(realm().key(), identity.clone(), 1, random.u64(..)),
            machine: Machine::new(number),
            nat: None,
            condition: Condition::Running,
            suspended: Duration::ZERO,
            wall_ahead_secs: 0,
            timer_lag: Duration::ZERO,
            epoch: 1,
            handshakes: Vec::new(),
            indices: 1,
            next_digest: Mono::default(),
            next_dial: Mono::default(),
            random,
            credential,
            serving,
            spec,
            identity,
        }
    }

    /// Starts the daemon again: client addresses, epoch and identity are what is kept.
    pub(crate) fn restart(&mut self, at: Mono, number_of: impl Fn(AnchorKey) -> Option<PeerIx>) {
        let now = self.now(at);
        let leases = self.plane.clients().export();
        let mut clients = Clients::new(self.spec.client_range, self.random.u64(..));
        let known = leases.into_iter();
        clients.import(
            now.boot,
            known.filter_map(|lease| Some((number_of(lease.key)?, lease))),
        );
        self.epoch += 1;
        let own = own_facts(&self.identity, &self.spec);
        self.serving = Arc::new(routes::build(&own, &[]));
        let (identity, spec) = (&self.identity, &self.spec);
        self.plane = plane(identity, spec, &self.serving, clients, self.random.u64(..));
        self.membership = Membership::new(
            realm().key(),
            self.identity.clone(),
            self.epoch,
            self.random.u64(..),
        );
        self.handshakes.clear();
        self.condition = Condition::Running;
        self.next_dial = at;
        self.next_digest = at + membership::DIGEST_INTERVAL;
        self.advertise(at);
    }

    /// Says anew what it is.
    pub(crate) fn advertise(&mut self, at: Mono) {
        let own = membership::Own {
            endpoints: self.endpoints(),
            ipv4: self.spec.ipv4,
            networks: self.spec.subnet.into_iter().collect(),
            taints: self.spec.taints.clone(),
            reach: Reach::Public,
            aes: true,
            draining: false,
            credential: self.credential.clone(),
        };
        let now = self.now(at);
        self.membership.set_own(now.mono, own);
    }

    /// Has routes follow from the adverts known, and tells the plane.
    pub(crate) fn rebuild(&mut self, at: Mono, number_of: impl Fn(AnchorKey) -> Option<PeerIx>) {
        let now = self.now(at);
        let mut facts = Vec::new();
        for (key, entry) in self.membership.entries() {
            let Some(peer) = number_of(*key) else {
                continue;
            };
            let advert = entry.advert();
            facts.push(PeerFacts {
                peer,
                key: *key,
                overlay: advert.overlay,
                ipv4: advert.ipv4.map(granted),
                networks: advert.networks.iter().copied().map(granted).collect(),
                may_exchange: self.spec.taints.may_exchange(&advert.taints),
                draining: false,
            });
        }
        self.serving = Arc::new(routes::build(
            &own_facts(&self.identity, &self.spec),
            &facts,
        ));
        self.plane.set_own(plane_own(&self.identity, &self.spec));
        self.plane.set_routes(now, Arc::clone(&self.serving));
    }

    /// Tells the plane how a peer is reached: where it was seen last, then where it says it is.
    pub(crate) fn set_paths(
        &mut self,
        at: Mono,
        peer: PeerIx,
        key: AnchorKey,
        seen: Option<SocketAddr>,
        local: Option<IpAddr>,
    ) {
        let told = self.membership.get(&key);
        let told = told.map(|entry| entry.advert().endpoints.clone());
        let all = seen.into_iter().chain(told.unwrap_or_default());
        let mut known = BTreeSet::new();
        let paths: Vec<Path> = all
            .filter(|remote| known.insert(*remote))
            .map(|remote| Path {
                socket: 0,
                remote,
                local: local.filter(|_| seen == Some(remote)),
            })
            .collect();
        let now = self.now(at);
        self.plane.set_paths(now.mono, peer, &paths);
    }

    /// Returns its clocks.
    pub(crate) fn now(&self, at: Mono) -> Now {
        Now {
            mono: at - self.suspended,
            boot: Boot::from_nanos(at.as_nanos()),
        }
    }

    /// Returns its wall clock.
    pub(crate) fn unix(&self, at: Mono) -> UnixTime {
        let secs = START_SECS + at.as_nanos() / 1_000_000_000;
        UnixTime(secs.saturating_add_signed(self.wall_ahead_secs))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.condition == Condition::Running
    }

    /// Says whether the daemon is there, awake or not.
    pub(crate) fn is_on(&self) -> bool {
        self.condition != Condition::Off
    }

    /// Returns when its timers want to be looked at.
    pub(crate) fn due(&self) -> Option<Mono> {
        if !self.is_running() {
            return None;
        }
        let timers = [self.plane.poll_timeout(), self.membership.poll_timeout()];
        let earliest = timers.into_iter().flatten().min()? + self.suspended;
        Some(earliest + self.timer_lag)
    }

    /// Returns the addresses at which it takes datagrams, without a translator before it.
    pub(crate) fn endpoints(&self) -> Vec<SocketAddr> {
        if self.nat.is_some() {
            return Vec::new();
        }
        let nets: &[u8] = if self.spec.is_dual {
            &[113, 114]
        } else {
            &[113]
        };
        nets.iter().map(|net| endpoint(*net, self.number)).collect()
    }

    /// Says whether it takes datagrams at this address.
    pub(crate) fn has_endpoint(&self, to: SocketAddr) -> bool {
        to == endpoint(113, self.number) || (self.spec.is_dual && to == endpoint(114, self.number))
    }

    /// Returns where what it sends comes from: `local`, or its first address; inside of a translator
    /// if there is one.
    pub(crate) fn source(&self, local: Option<IpAddr>) -> SocketAddr {
        let first = endpoint(113, self.number);
        local.map_or(first, |local| SocketAddr::new(local, first.port()))
    }

    /// Returns this side of a handshake under a fresh index.
    pub(crate) fn local<'a>(&'a mut self, seed: &'a [u8; 32]) -> Local<'a> {
        self.indices += 1;
        Local {
            noise_secret: self.identity.noise_secret(),
            key: self.identity.key(),
            index: self.indices,
            aes: true,
            seed,
        }
    }
}

/// Returns this identity as the other side of a handshake.
pub(crate) fn remote(identity: &Identity) -> Remote {
    Remote {
        key: identity.key(),
        noise_key: identity.noise_key(),
    }
}

pub(crate) fn identity(number: usize) -> Identity {
    let mut seed = [5; 32];
    seed[..8].copy_from_slice(&(number as u64).to_be_bytes());
    Identity::from_seed(&seed)
}

pub(crate) fn realm() -> RealmSecret {
    RealmSecret::from_seed(&[200; 32])
}

pub(crate) fn peer(number: usize) -> PeerIx {
    PeerIx(u32::try_from(number).expect("few anchors"))
}

fn endpoint(net: u8, number: usize) -> SocketAddr {
    let last = u8::try_from(number + 1).expect("few anchors");
    SocketAddr::from(([203, 0, net, last], PORT))
}

fn granted<N>(network: N) -> Claim<N> {
    Claim {
        network,
        granted: true,
    }
}

fn own_facts(identity: &Identity, spec: &Spec) -> OwnFacts {
    OwnFacts {
        key: identity.key(),
        overlay: identity.key().overlay(&realm().id()),
        ipv4: spec.ipv4,
        ipv4_advertised: spec.ipv4.is_some(),
        networks: spec.subnet.into_iter().collect(),
        local_networks: Vec::new(),
        client_range: spec.client_range,
    }
}

fn plane_own(identity: &Identity, spec: &Spec) -> Own {
    let overlay = identity.key().overlay(&realm().id());
    let interface = spec.ipv4.unwrap_or(OWN_HOST);
    Own {
        overlay,
        ipv4: spec.ipv4,
        addresses: vec![IpAddr::V6(overlay), IpAddr::V4(interface)],
        subnets: spec.subnet.into_iter().collect(),
        client_range: spec.client_range,
    }
}

fn plane(
    identity: &Identity,
    spec: &Spec,
    routes: &Arc<Routes>,
    clients: Clients,
    seed: u64,
) -> Plane {
    let limits = Limits {
        flows: spec.flows_cap,
        connections: connections::Limits {
            connections: spec.connections_cap,
            ..connections::Limits::default()
        },
    };
    Plane::new(
        plane_own(identity, spec),
        Arc::clone(routes),
        clients,
        limits,
        seed,
    )
}
