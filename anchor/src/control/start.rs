//! From the files of an installation to a running anchor. Nothing is changed on the host before
//! the configuration and the state directory have been read.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use conflux_core::clients::{Clients, Lease};
use conflux_core::identity::Identity;
use conflux_core::membership::DIGEST_INTERVAL;
use conflux_core::paths::Paths;
use conflux_core::plane::{Limits, MTU_BYTES, Own, Plane};
use conflux_core::reach::Observations;
use conflux_core::routes;
use ipnet::IpNet;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::drain::Draining;
use super::gossip::Refreshes;
use super::host::{Facts, Host};
use super::paced::Paced;
use super::peers::Peers;
use super::relay::Relays;
use super::routing::{own_facts, wanted};
use super::standing::{Standing, random_bytes};
use super::{Anchor, Carried, SAVE_EVERY};
use crate::check::OUTCOMES;
use crate::clock;
use crate::data::{self, DataParts};
use crate::files::{Config, Layout, State, StateFile};
use crate::logging::RateLimit;
use crate::quic::{self, QuicOptions, SharedPaths, TlsIdentity};
use crate::tun::Tun;
use crate::udp::{Claim, DataSocket, bind_group};

/// Log lines strangers can cause, and in what time.
const REMOTE_LINES: (u32, Duration) = (10, Duration::from_secs(60));

/// What is bound.
struct Sockets {
    data: Vec<DataSocket>,
    control: Vec<std::net::UdpSocket>,
    locals: Vec<SocketAddr>,
    claims: Vec<Claim>,
}

/// Starts the anchor; returns once its addresses can be bound. Goes on with what is `carried`,
/// which stays when the start fails.
pub(crate) async fn start(
    layout: &Layout,
    state: State,
    config: Config,
    ticket: Option<&str>,
    carried: &mut Option<Carried>,
) -> anyhow::Result<Anchor> {
    let identity = Arc::new(load_identity(&state)?);
    let standing = Standing::load(&state, &config, &identity, ticket, clock::unix())?;
    let epoch = match carried {
        Some(carried) => carried.epoch,
        None => state.next_epoch()?,
    };
    let sockets = bind(&config.listen_addresses(), !config.listen.is_empty())?;
    remove_leftover(config.interface.as_str()).await;
    let tun = Tun::open(config.interface.as_str())?;
    let interface = tun.name().to_owned();
    if let Some(missing) = tun.offloads().missing() {
        info!(%interface, missing, "this kernel leaves work to us: packets pass, but slower");
    }
    let overlay = identity.key().overlay(&standing.realm);
    let first = wanted(&config, overlay, MTU_BYTES, None);
    let (host, facts) = Host::start(&interface, tun.index(), first).await?;
    refuse_range_in_use(&config, &facts)?;

    let seed = u64::from_ne_bytes(*random_bytes::<8>());
    let now = clock::now();
    let own = own_facts(&identity, &standing, &config, &facts);
    let first_routes = Arc::new(routes::build(&own, &[]));
    let paths = SharedPaths::new(Paths::new(seed));
    let signer = identity.clone();
    let quic = quic::start(QuicOptions {
        identity: TlsIdentity::new(identity.key(), move |message| {
            signer.signing().sign_bytes(message)
        }),
        sockets: sockets.control,
        paths: paths.clone(),
    })
    .context("cannot start QUIC")?;
    let is_first = carried.is_none();
    let mut past = match carried.take() {
        Some(past) => past,
        None => Carried::none(&standing, &identity, epoch, seed, now.mono),
    };
    let own = plane_own(&config, overlay, &facts);
    let mut plane = match past.take_plane(config.client_range) {
        Some(mut plane) => {
            plane.set_own(own);
            plane.remove_all_legs();
            plane
        }
        None => {
            let clients = load_clients(&state, &config, &mut past.peers, seed);
            past.saved_leases = clients.revision();
            Plane::new(own, first_routes.clone(), clients, Limits::default(), seed)
        }
    };
    plane.set_mtu(now.mono, facts.mtu_bytes);
    plane.set_expose(config.expose.clone());
    let (data, notices) = data::start(DataParts {
        spin: config.spin,
        tun,
        sockets: sockets.data,
        plane,
        strays: quic.strays,
        carries: quic.carries,
    })
    .context("cannot start the data thread")?;
    let (resolver, resolved) = mpsc::channel(4);
    let (check_outcomes, checked) = mpsc::channel(OUTCOMES);
    let drain = Draining::load(&state, now.mono);
    let was_withdrawn = past.withdrawn;
    let mut anchor = Anchor {
        state,
        layout: layout.clone(),
        config,
        identity,
        standing,
        epoch,
        membership: past.membership,
        peers: past.peers,
        quic: quic.handle,
        quic_events: quic.events,
        paths,
        data,
        notices,
        host,
        facts,
        routes: first_routes,
        sockets: sockets.locals,
        interface,
        moves: Paced::new(super::moved::GAP),
        reach_changes: Paced::new(super::meet::REACH_GAP),
        aes: has_aes(),
        was_reached: past.was_reached,
        seeds: BTreeMap::new(),
        discovery: None,
        seeds_resolve_at: Some(now.mono),
        resolved,
        resolver,
        last_join_error: None,
        refused: None,
        clones: past.clones,
        relays: Relays::default(),
        observations: Observations::default(),
        remembered: past.remembered,
        adverts_changed: false,
        digest_at: now.mono + DIGEST_INTERVAL,
        refreshes: Refreshes::default(),
        check: None,
        checkers: 0,
        checked,
        check_outcomes,
        drain,
        look_at_draining: None,
        told_resting: BTreeMap::new(),
        skewed: past.skewed,
        save_at: now.mono + SAVE_EVERY,
        saved_leases: past.saved_leases,
        handshakes: past.handshakes,
        remote_lines: RateLimit::new(REMOTE_LINES.0, REMOTE_LINES.1),
        started: past.started,
        random: fastrand::Rng::with_seed(seed),
        _claims: sockets.claims,
    };
    if is_first {
        anchor.load_revocations(now.mono);
        anchor.load_adverts(now.mono);
    }
    anchor.apply_check(now.mono, is_first || was_withdrawn);
    anchor.apply_relay_choice();
    anchor.readvertise(now.mono);
    anchor.rebuild(now.mono);
    info!(
        anchor = %anchor.identity.key().id().short(),
        realm = %anchor.standing.realm,
        interface = %anchor.interface,
        "started"
    );
    Ok(anchor)
}

/// Clients need a range of their own: one that another interface uses would cut that one off.
fn refuse_range_in_use(config: &Config, facts: &Facts) -> anyhow::Result<()> {
    let range = config.client_range;
    let used = facts.connected.iter().find(|network| match network {
        IpNet::V4(network) => range.contains(network) || network.contains(&range),
        IpNet::V6(_) => false,
    });
    if let Some(network) = used {
        bail!(
            "the client range {range} overlaps {network}, which another interface of this machine \
             has: nothing was started; choose a free range with --client-range NET"
        );
    }
    Ok(())
}

fn load_identity(state: &State) -> anyhow::Result<Identity> {
    if let Some(seed) = state.read_key(StateFile::Identity)? {
        return Ok(Identity::from_seed(&seed));
    }
    let seed = random_bytes::<32>();
    state.write(StateFile::Identity, seed.as_slice())?;
    Ok(Identity::from_seed(&seed))
}

/// Binds every address; of the default pair a missing family is left out.
fn bind(addresses: &[SocketAddr], chosen: bool) -> anyhow::Result<Sockets> {
    let mut sockets = Sockets {
        data: Vec::new(),
        control: Vec::new(),
        locals: Vec::new(),
        claims: Vec::new(),
    };
    for &address in addresses {
        match bind_group(address) {
            Ok(group) => {
                sockets.data.push(group.data);
                sockets.control.push(group.control);
                sockets.locals.push(group.local);
                sockets.claims.push(group.claim);
            }
            Err(error) if !chosen && address.is_ipv6() && !sockets.data.is_empty() => {
                warn!(%error, "IPv6 is left out");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sockets)
}

async fn remove_leftover(name: &str) {
    let Ok(netlink) = crate::netlink::Netlink::connect() else {
        return;
    };
    match netlink.remove_leftover(name).await {
        Ok(true) => info!(
            interface = name,
            "removed an interface left over from a crash"
        ),
        Ok(false) => {}
        Err(error) => warn!(%error, "a leftover interface could not be removed"),
    }
}

fn load_clients(state: &State, config: &Config, peers: &mut Peers, seed: u64) -> Clients {
    let mut clients = Clients::new(config.client_range, seed);
    let leases = match state.read_leases() {
        Ok(leases) => leases,
        Err(error) => {
            warn!(%error, "client addresses of the last run are not used");
            return clients;
        }
    };
    let now = clock::now();
    let leases: Vec<_> = leases
        .into_iter()
        .map(|lease| {
            let peer = peers.number(lease.key, now.mono);
            let last_used = now.boot - lease.idle;
            let (key, host, address) = (lease.key, lease.host, lease.address);
            (
                peer,
                Lease {
                    key,
                    host,
                    address,
                    last_used,
                },
            )
        })
        .collect();
    clients.import(now.boot, leases);
    clients
}

pub(super) fn plane_own(config: &Config, overlay: std::net::Ipv6Addr, facts: &Facts) -> Own {
    Own {
        overlay,
        ipv4: config.ipv4.as_ref().map(|choice| choice.address),
        addresses: facts.addresses.clone(),
        subnets: config.subnets.clone(),
        client_range: config.client_range,
    }
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("aes")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("aes")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}
