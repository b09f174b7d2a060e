//! From adverts to what follows: routes for the data thread, paths to peers, and what the
//! interface carries. Judging is `core::routes`'; this gathers its facts.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use conflux_core::identity::Identity;
use conflux_core::ids::{PeerIx, Relayed};
use conflux_core::membership::{Candidate, neighbours};
use conflux_core::paths::{MAX_CANDIDATES, Way};
use conflux_core::plane::{OWN_HOST, Path};
use conflux_core::routes::{self, Claim, OwnFacts, PeerFacts, Routes, State};
use conflux_core::time::Mono;
use conflux_proto::advert::Reach;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Anchor;
use super::host::{Facts, Wanted};
use super::standing::Standing;
use super::start::plane_own;
use crate::clock;
use crate::files::Config;
use crate::netlink::Route;

/// The IPv6 spelling of IPv4 destinations (RFC 8215).
pub(super) const SPELLED: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 96);
/// Translation to IPv6 makes a packet 20 bytes longer.
const TRANSLATION_BYTES: u16 = 20;

impl Anchor {
    /// Builds the routes anew and passes on what changed.
    pub(super) fn rebuild(&mut self, now: Mono) {
        let own = own_facts(&self.identity, &self.standing, &self.config, &self.facts);
        let taints = self.standing.taints(&self.config);
        let mut facts = Vec::new();
        let mut ways = Vec::new();
        for (_, entry) in self.membership.entries() {
            let advert = entry.advert();
            let peer = self.peers.number(advert.key, now);
            let permits = |network: &IpNet| entry.member().advertise.permits(network);
            facts.push(PeerFacts {
                peer,
                key: advert.key,
                overlay: advert.overlay,
                ipv4: advert.ipv4.map(|address| Claim {
                    network: address,
                    granted: permits(&IpNet::from(IpAddr::V4(address))),
                }),
                networks: advert
                    .networks
                    .iter()
                    .map(|&network| Claim {
                        network,
                        granted: permits(&network),
                    })
                    .collect(),
                may_exchange: taints.may_exchange(&advert.taints),
                draining: advert.draining,
            });
            ways.push((peer, advert.endpoints.clone()));
        }
        let routes = Arc::new(routes::build(&own, &facts));
        self.routes = routes.clone();
        for (peer, endpoints) in ways {
            self.set_endpoints(peer, &endpoints);
        }
        let overlay = self.identity.key().overlay(&self.standing.realm);
        self.host.want(wanted(
            &self.config,
            overlay,
            self.facts.mtu_bytes,
            Some(&routes),
        ));
        self.watch_draining(now);
        let own = plane_own(&self.config, overlay, &self.facts);
        let mtu_bytes = self.facts.mtu_bytes;
        let expose = self.config.expose.clone();
        self.data.run(move |plane, now| {
            plane.set_expose(expose);
            plane.set_mtu(now.mono, mtu_bytes);
            plane.set_own(own);
            plane.set_routes(now, routes);
        });
    }

    /// Takes the endpoints a peer advertises, for QUIC and data alike.
    fn set_endpoints(&mut self, peer: PeerIx, endpoints: &[SocketAddr]) {
        let usable = self.usable(endpoints);
        let current = {
            let mut paths = self.paths.lock();
            // One family at a time, the other after a dial that failed: QUIC follows one way of a
            // peer, and answers over two at once make it drop one side's handshake.
            let wants_v6 = self.peers.get(peer).is_some_and(|peer| peer.dials_v6);
            let has_both =
                usable.iter().any(SocketAddr::is_ipv4) && usable.iter().any(SocketAddr::is_ipv6);
            let dialled: Vec<SocketAddr> = usable
                .iter()
                .copied()
                .filter(|at| !has_both || at.is_ipv6() == wants_v6)
                .collect();
            let relayed = self.relays.ways(peer);
            let direct = MAX_CANDIDATES.saturating_sub(relayed.len());
            let dialled: Vec<SocketAddr> = dialled
                .into_iter()
                .take(direct)
                .chain(relayed.iter().map(|way| way.address()))
                .collect();
            paths.set_candidates(peer, &dialled);
            paths.current(peer)
        };
        let relayed = self.relays.ways(peer).iter().map(|way| way.address());
        let others = usable
            .iter()
            .copied()
            .chain(relayed)
            .filter(|at| Some(*at) != current.map(|way| way.remote))
            .map(Way::to);
        let all: Vec<Path> = current
            .into_iter()
            .chain(others)
            .filter_map(|way| self.path_to(way))
            .collect();
        self.data
            .run(move |plane, now| plane.set_paths(now.mono, peer, &all));
    }

    /// Passes the current way to a peer on to the data thread.
    pub(super) fn refresh_paths(&mut self, peer: PeerIx) {
        let key = self.peers.get(peer).map(|peer| peer.key);
        let advert = key.and_then(|key| self.membership.get(&key));
        let endpoints = match advert {
            Some(entry) => entry.advert().endpoints.clone(),
            None => {
                let mut known = self.paths.lock().candidates(peer).to_vec();
                known.retain(|at| Relayed::from_address(at).is_none());
                known
            }
        };
        self.set_endpoints(peer, &endpoints);
    }

    /// Says whether an address of this machine lies outside of the overlay: never an endpoint otherwise.
    fn is_outside(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let is_own = self
                    .config
                    .ipv4
                    .as_ref()
                    .is_some_and(|choice| choice.address == address);
                !is_own && address != OWN_HOST && !self.config.client_range.contains(&address)
            }
            IpAddr::V6(address) => {
                !self.standing.realm.overlay_prefix().contains(&address)
                    && !SPELLED.contains(&address)
            }
        }
    }

    /// Returns the addresses peers are told to try: this machine's own, and those a NAT has for it
    /// where others than those it was made for may use them.
    pub(super) fn endpoints(&self) -> Vec<SocketAddr> {
        let mut endpoints = self.own_endpoints();
        if matches!(self.reach(), Reach::Public | Reach::NatCone) {
            endpoints.extend(self.observations.outside_agreed(&endpoints));
            endpoints.truncate(conflux_proto::advert::MAX_ENDPOINTS);
        }
        endpoints
    }

    /// Returns the addresses of this machine at which the anchor listens.
    pub(super) fn own_endpoints(&self) -> Vec<SocketAddr> {
        let mut endpoints = Vec::new();
        for local in &self.sockets {
            if !local.ip().is_unspecified() {
                endpoints.push(*local);
                continue;
            }
            let outward = self.facts.outward.iter().copied().filter(|address| {
                address.is_ipv4() == local.is_ipv4() && self.is_outside(*address)
            });
            endpoints.extend(outward.map(|address| SocketAddr::new(address, local.port())));
        }
        endpoints.dedup();
        endpoints.truncate(conflux_proto::advert::MAX_ENDPOINTS);
        endpoints
    }

    /// Returns the peers this anchor wants a connection with.
    pub(super) fn wanted_peers(&self) -> Vec<PeerIx> {
        let known = self
            .membership
            .entries()
            .filter_map(|(key, _)| self.peers.known(key));
        let mut wanted: Vec<PeerIx> = known.collect();
        wanted.extend(self.remembered());
        wanted.sort_unstable();
        wanted.dedup();
        let candidate = |peer: PeerIx| {
            let entry = self.peers.get(peer)?;
            Some(Candidate {
                peer,
                key: entry.key,
                is_connected: self.peers.is_connected(peer),
                is_needed: entry.is_needed,
            })
        };
        let all = wanted.into_iter().filter_map(candidate).collect();
        neighbours(&self.identity.key(), all)
    }
}

/// Returns this anchor's own facts as routes are judged by them.
pub(super) fn own_facts(
    identity: &Identity,
    standing: &Standing,
    config: &Config,
    facts: &Facts,
) -> OwnFacts {
    let key = identity.key();
    OwnFacts {
        key,
        overlay: key.overlay(&standing.realm),
        ipv4: config.ipv4.as_ref().map(|choice| choice.address),
        ipv4_advertised: config.ipv4.as_ref().is_some_and(|choice| choice.advertised),
        networks: config.subnets.clone(),
        local_networks: facts
            .connected
            .iter()
            .copied()
            .filter(|network| !config.subnets.contains(network))
            .collect(),
        client_range: config.client_range,
    }
}

/// Returns what the interface is to carry.
pub(super) fn wanted(
    config: &Config,
    overlay: Ipv6Addr,
    mtu_bytes: u16,
    routes: Option<&Routes>,
) -> Wanted {
    let source = config
        .ipv4
        .as_ref()
        .map_or(OWN_HOST, |choice| choice.address);
    let mut addresses = vec![
        IpNet::V6(Ipv6Net::from(overlay)),
        IpNet::V4(Ipv4Net::from(source)),
    ];
    let realm = Ipv6Net::new_assert(overlay, 48).trunc();
    let to = |destination: IpNet, mtu_bytes: Option<u32>| Route {
        destination,
        metric: None,
        mtu_bytes,
        source: Some(match destination {
            IpNet::V4(_) => source.into(),
            IpNet::V6(_) => overlay.into(),
        }),
    };
    let mut all = vec![
        to(realm.into(), None),
        to(
            SPELLED.into(),
            Some(u32::from(mtu_bytes - TRANSLATION_BYTES)),
        ),
        to(config.client_range.into(), None),
    ];
    if let Some(choice) = &config.ipv4
        && choice.prefix_len < 32
    {
        let network = Ipv4Net::new_assert(choice.address, choice.prefix_len).trunc();
        all.push(to(network.into(), None));
    }
    if let Some(routes) = routes {
        let accepted = routes
            .rows()
            .iter()
            .filter(|row| row.state == State::Accepted);
        all.extend(accepted.map(|row| to(row.network, None)));
    }
    all.sort();
    all.dedup_by_key(|route| route.destination);
    addresses.sort();
    Wanted {
        addresses,
        routes: all,
    }
}

/// Returns the present moment as the control loop counts.
pub(super) fn now() -> Mono {
    clock::now().mono
}
