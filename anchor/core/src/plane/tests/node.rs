//! One anchor of the realm and its machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use conflux_proto::id::{AnchorKey, RealmId};
use ipnet::{IpNet, Ipv4Net};

use super::host::Server;
use crate::clients::Clients;
use crate::identity::Identity;
use crate::plane::{Event, Limits, OWN_HOST, Own, Plane};
use crate::routes::{self, OwnFacts};
use crate::session::{Local, Remote};
use crate::time::Mono;

pub(super) const REALM: RealmId = RealmId([9; 32]);

/// What an anchor is set up as.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) ipv4: Option<Ipv4Addr>,
    pub(super) subnets: Vec<IpNet>,
    /// Addresses of the machine beside those on the interface.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) client_range: Ipv4Net,
    pub(super) limits: Limits,
}

/// One anchor and its machine.
pub(super) struct Node {
    pub(super) spec: Spec,
    pub(super) identity: Identity,
    pub(super) plane: Plane,
    pub(super) server: Server,
    /// Everything written to the interface.
    pub(super) inbox: Vec<(Mono, Vec<u8>)>,
    pub(super) events: Vec<(Mono, Event)>,
    /// Where its datagrams come from, and all addresses it takes datagrams at.
    pub(super) source: SocketAddr,
    pub(super) endpoints: Vec<SocketAddr>,
    pub(super) is_alive: bool,
    /// Data packets of each peer that were opened.
    pub(super) opened: u64,
}

impl Spec {
    pub(super) fn client() -> Self {
        Self {
            ipv4: None,
            subnets: Vec::new(),
            addresses: Vec::new(),
            client_range: "198.18.0.0/15".parse().unwrap(),
            limits: Limits::default(),
        }
    }

    pub(super) fn holder(address: Ipv4Addr) -> Self {
        Self {
            ipv4: Some(address),
            ..Self::client()
        }
    }

    pub(super) fn with_subnet(mut self, subnet: &str) -> Self {
        self.subnets.push(subnet.parse().unwrap());
        self
    }

    pub(super) fn with_address(mut self, address: &str) -> Self {
        self.addresses.push(address.parse().unwrap());
        self
    }
}

impl Node {
    pub(super) fn new(at: usize, spec: Spec, seed: u64) -> Self {
        let identity = Identity::from_seed(&seed32(at as u32 + 1));
        let endpoint = |port| SocketAddr::from((Ipv4Addr::new(203, 0, 113, at as u8 + 1), port));
        let endpoints = vec![endpoint(7000), endpoint(7001)];
        let overlay = identity.key().overlay(&REALM);
        let interface = spec.ipv4.unwrap_or(OWN_HOST);
        let mut addresses = spec.addresses.clone();
        addresses.extend([IpAddr::V6(overlay), IpAddr::V4(interface)]);
        let own = Own {
            overlay,
            ipv4: spec.ipv4,
            addresses,
            subnets: spec.subnets.clone(),
            client_range: spec.client_range,
        };
        let clients = Clients::new(spec.client_range, seed);
        let seed = seed.wrapping_mul(31).wrapping_add(at as u64);
        let mut node = Self {
            plane: Plane::new(
                own,
                Arc::new(empty(&identity, &spec)),
                clients,
                spec.limits,
                seed,
            ),
            spec,
            identity,
            server: Server::new(at),
            inbox: Vec::new(),
            events: Vec::new(),
            source: endpoints[0],
            endpoints,
            is_alive: true,
            opened: 0,
        };
        node.server.name = at as u8;
        node
    }

    pub(super) fn key(&self) -> AnchorKey {
        self.identity.key()
    }

    pub(super) fn overlay(&self) -> Ipv6Addr {
        self.key().overlay(&REALM)
    }

    pub(super) fn own_facts(&self) -> OwnFacts {
        own_facts(&self.identity, &self.spec)
    }

    pub(super) fn local<'a>(&'a self, index: u32, seed: &'a [u8; 32]) -> Local<'a> {
        let noise_secret = self.identity.noise_secret();
        Local {
            noise_secret,
            key: self.key(),
            index,
            aes: true,
            seed,
        }
    }

    pub(super) fn remote(&self) -> Remote {
        Remote {
            key: self.key(),
            noise_key: self.identity.noise_key(),
        }
    }
}

fn own_facts(identity: &Identity, spec: &Spec) -> OwnFacts {
    OwnFacts {
        key: identity.key(),
        overlay: identity.key().overlay(&REALM),
        ipv4: spec.ipv4,
        ipv4_advertised: spec.ipv4.is_some(),
        networks: spec.subnets.clone(),
        local_networks: Vec::new(),
        client_range: spec.client_range,
    }
}

fn empty(identity: &Identity, spec: &Spec) -> routes::Routes {
    routes::build(&own_facts(identity, spec), &[])
}

pub(super) fn seed32(number: u32) -> [u8; 32] {
    let mut seed = [5; 32];
    seed[..4].copy_from_slice(&number.to_be_bytes());
    seed
}
