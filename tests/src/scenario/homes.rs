//! Machines behind routers of every kind in one realm, and one machine that anybody reaches.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::realm::port;
use crate::anchor::{Anchor, Options};
use crate::lab::Lab;
use crate::nat::{Nat, Site};
use crate::wait;
use crate::work::{HttpServer, get_here};

/// A first start wants some flag; this one is the default.
const OPEN: &str = "--no-relay=false";

/// For a dozen anchors of which most cannot be dialled.
const CONNECT_LIMIT: Duration = Duration::from_secs(40);

/// One try to connect; the tries follow each other.
const TRY_LIMIT: Duration = Duration::from_millis(250);

/// A machine and what stands before it.
pub struct Home {
    /// Its anchor.
    pub anchor: Anchor,
    /// Its routers.
    pub site: Site,
    _http: HttpServer,
}

/// The realm.
pub struct Homes {
    /// The machines behind routers, in the order of the kinds asked for.
    pub homes: Vec<Home>,
    /// The one that is not behind any: it relays.
    pub public: Anchor,
}

impl Homes {
    /// Starts a machine behind a router of each of these kinds, and waits until all are connected
    /// with all.
    ///
    /// # Panics
    ///
    /// As [`Site::start`] and [`Anchor::start`], and when they do not connect.
    pub fn start(lab: &Lab, kinds: &[Nat]) -> Self {
        let host = lab.host("public");
        let public = Anchor::start(&host, &Options::of(OPEN));
        let ticket = public.invite("");
        let sites: Vec<Site> = (1..)
            .zip(kinds)
            .map(|(number, nat)| Site::start(lab, &format!("h{number}"), *nat))
            .collect();
        for site in &sites {
            site.route_to(&host);
            for other in &sites {
                site.route_to(other.outermost());
            }
        }
        let homes = sites.into_iter().map(|site| Home {
            anchor: Anchor::start(&site.machine, &Options::default().joining(&ticket)),
            _http: HttpServer::start(&site.machine, port::HTTP, site.machine.name()),
            site,
        });
        let homes: Vec<Home> = homes.collect();
        let missing = || -> Vec<(Nat, usize)> {
            let counts = homes
                .iter()
                .map(|home| (home.site.nat(), home.anchor.connected()));
            counts.filter(|(_, count)| *count != homes.len()).collect()
        };
        wait::until_equal(
            CONNECT_LIMIT,
            "all to be connected with all",
            &Vec::new(),
            missing,
        );
        Self { homes, public }
    }

    /// Returns every pair once.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let count = self.homes.len();
        (0..count).flat_map(move |near| (near + 1..count).map(move |far| (near, far)))
    }

    /// Returns what stands before one.
    pub fn nat(&self, at: usize) -> Nat {
        self.homes[at].site.nat()
    }

    /// Returns whether `near` says that it reaches `far` without a relay.
    ///
    /// # Panics
    ///
    /// As [`Anchor::peers`].
    pub fn is_direct(&self, near: usize, far: usize) -> bool {
        let far = self.homes[far].anchor.id();
        let mut peers = self.homes[near].anchor.peers().into_iter();
        peers.any(|peer| peer.anchor == far && peer.state == "connected" && peer.relay.is_none())
    }

    /// Returns whether both say so.
    ///
    /// # Panics
    ///
    /// As [`Self::is_direct`].
    pub fn meet(&self, near: usize, far: usize) -> bool {
        self.is_direct(near, far) && self.is_direct(far, near)
    }

    /// Asks `far` from `near` over HTTP until there is an answer; how long that took.
    pub fn first_answer(&self, near: usize, far: usize, limit: Duration) -> Option<Duration> {
        let overlay = IpAddr::V6(self.homes[far].anchor.overlay());
        let target = SocketAddr::new(overlay, port::HTTP);
        let began = Instant::now();
        self.homes[near].site.machine.enter(|| {
            while began.elapsed() < limit {
                if get_here(None, target, TRY_LIMIT).is_ok() {
                    return Some(began.elapsed());
                }
            }
            None
        })
    }
}

/// Returns whether two machines behind such routers can meet without guessing ports, when each has
/// been told how others see the other.
pub fn can_meet(near: Nat, far: Nat) -> bool {
    let is_strict = |nat| matches!(nat, Nat::PortRestricted | Nat::Carrier | Nat::Symmetric);
    match (near, far) {
        (Nat::Symmetric, other) | (other, Nat::Symmetric) => !is_strict(other),
        _ => true,
    }
}
