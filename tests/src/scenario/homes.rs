//! Machines behind routers of every kind in one realm, and one machine that anybody reaches.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::apart::OPEN;
use super::realm::port;
use crate::anchor::{Anchor, Options};
use crate::host::Host;
use crate::lab::Lab;
use crate::nat::{Nat, Site};
use crate::wait;
use crate::work::{HttpServer, get_here};

/// Nobody relays.
const CLOSED: &str = "--no-relay";

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
    /// Those that are not behind any; the first has made the realm.
    pub public: Vec<Anchor>,
}

impl Homes {
    /// Starts a machine behind a router of each of these kinds, and waits until all are connected
    /// with all.
    ///
    /// # Panics
    ///
    /// As [`Site::start`] and [`Anchor::start`], and when they do not connect.
    pub fn start(lab: &Lab, kinds: &[Nat]) -> Self {
        let realm = Self::raise(lab, kinds, 1, OPEN);
        let missing = || -> Vec<(Nat, usize)> {
            let counts = realm
                .homes
                .iter()
                .map(|home| (home.site.nat(), home.anchor.connected()));
            let is_short = |(_, count): &(Nat, usize)| *count != realm.homes.len();
            counts.filter(is_short).collect()
        };
        let all = "all to be connected with all";
        wait::until_equal(CONNECT_LIMIT, all, &Vec::new(), missing);
        realm
    }

    /// Starts a machine behind a router of each of these kinds in a realm where nobody relays and two
    /// tell each how it is seen, counts what each sends to the others from its start on, and waits until
    /// all have heard of all.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    pub fn without_relays(lab: &Lab, kinds: &[Nat]) -> Self {
        let realm = Self::raise(lab, kinds, 2, CLOSED);
        wait::until(CONNECT_LIMIT, "all to have heard of all", || {
            let mut anchors = realm.homes.iter().map(|home| &home.anchor);
            anchors.all(|anchor| anchor.peers().len() == realm.homes.len() + 1)
        });
        realm
    }

    fn raise(lab: &Lab, kinds: &[Nat], publics: usize, flags: &str) -> Self {
        let hosts: Vec<Host> = (1..=publics)
            .map(|number| lab.host(&format!("public{number}")))
            .collect();
        let mut public = vec![Anchor::start(&hosts[0], &Options::of(flags))];
        let ticket = public[0].invite("");
        let others = hosts[1..].iter();
        let options = Options::of(flags).joining(&ticket);
        public.extend(others.map(|host| Anchor::start(host, &options)));
        let sites: Vec<Site> = (1..)
            .zip(kinds)
            .map(|(number, nat)| Site::start(lab, &format!("h{number}"), *nat))
            .collect();
        for site in &sites {
            for host in &hosts {
                site.route_to(host);
            }
            for other in &sites {
                site.route_to(other.outermost());
            }
            count_apart_from(&site.machine, &hosts);
        }
        let homes = sites.into_iter().map(|site| Home {
            anchor: Anchor::start(&site.machine, &options),
            _http: HttpServer::start(&site.machine, port::HTTP, site.machine.name()),
            site,
        });
        Self {
            homes: homes.collect(),
            public,
        }
    }

    /// Returns how many packets a machine has put on its wire for the machines of other homes.
    ///
    /// # Panics
    ///
    /// When its counter cannot be read.
    pub fn packets_to_others(&self, at: usize) -> u64 {
        let machine = &self.homes[at].site.machine;
        let list = ["list", "counter", "inet", "apart", "sent"];
        let said = machine.command("nft").args(list).must();
        let mut words = said
            .split_whitespace()
            .skip_while(|word| *word != "packets");
        let count = words.nth(1).and_then(|count| count.parse().ok());
        count.unwrap_or_else(|| panic!("no count in {said:?}"))
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

/// Counts what leaves a machine by its card for anybody but these.
fn count_apart_from(machine: &Host, public: &[Host]) {
    let public: Vec<String> = public.iter().map(|host| host.ipv4().to_string()).collect();
    let rules = format!(
        "table inet apart {{\n\
         counter sent {{ }}\n\
         chain out {{ type filter hook output priority 0; oifname \"anchor0\" accept\n\
         oifname \"lo\" accept\n\
         meta nfproto ipv4 ip daddr != {{ {} }} counter name sent\n\
         }}\n\
         }}\n",
        public.join(", ")
    );
    machine.command("nft").args(["-f", "-"]).input(rules).must();
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
