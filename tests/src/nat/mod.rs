//! Sites behind address translation: a machine, and between it and the lab's segment one router or
//! two that translate as RFC 4787 sorts them. The kernel's own translator does the work; where it
//! has no such kind, a map filled by outgoing packets lets answers back in.
//!
//! Sites translate IPv4 only, as nearly all routers do; their machines have no IPv6. What a kind
//! claims to be is proved from outside by [`observe`].

mod conntrack;
mod observe;
mod rules;

use std::cell::Cell;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

pub use observe::{Behaviour, Filtering, Mapping, observe};
use rules::Ports;

use crate::host::Host;
use crate::lab::Lab;

/// How long an idle mapping lives unless a test says otherwise: two minutes is what RFC 4787 asks
/// for at least.
const LIFETIME: Duration = Duration::from_secs(120);

/// What stands between a machine and the lab's segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Nat {
    /// A router that translates nothing and lets everything in.
    Open,
    /// One mapping for all destinations; anybody may answer to it while it lives.
    FullCone,
    /// One mapping for all destinations; any port of an address sent to may answer.
    Restricted,
    /// One mapping for all destinations; only addresses and ports sent to may answer.
    PortRestricted,
    /// A mapping for each destination and port; only that may answer.
    Symmetric,
    /// A port-restricted router at home, and one of the carrier's that renumbers ports.
    Carrier,
}

/// A machine behind its routers.
pub struct Site {
    /// The machine.
    pub machine: Host,
    /// The routers, the one next to the machine first, the one on the lab's segment last.
    pub routers: Vec<Host>,
    nat: Nat,
    public: Cell<Ipv4Addr>,
    lifetime: Cell<Duration>,
    rebinds: Cell<u16>,
}

impl Nat {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Open,
        Self::FullCone,
        Self::Restricted,
        Self::PortRestricted,
        Self::Symmetric,
        Self::Carrier,
    ];

    /// Returns how a machine behind it looks from outside.
    pub fn behaviour(self) -> Behaviour {
        let (mapping, filtering) = match self {
            Self::Open => (Mapping::None, Filtering::None),
            Self::FullCone => (Mapping::EndpointIndependent, Filtering::EndpointIndependent),
            Self::Restricted => (Mapping::EndpointIndependent, Filtering::AddressDependent),
            Self::PortRestricted | Self::Carrier => (
                Mapping::EndpointIndependent,
                Filtering::AddressAndPortDependent,
            ),
            Self::Symmetric => (
                Mapping::AddressAndPortDependent,
                Filtering::AddressAndPortDependent,
            ),
        };
        Behaviour { mapping, filtering }
    }
}

impl fmt::Display for Nat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::FullCone => "full cone",
            Self::Restricted => "restricted",
            Self::PortRestricted => "port-restricted",
            Self::Symmetric => "symmetric",
            Self::Carrier => "carrier-grade twice",
        })
    }
}

impl Site {
    /// Puts a machine named `name` behind a router of this kind on the lab's segment. Several
    /// sites may use the same private network: `192.168.1.0/24`, as at most homes.
    ///
    /// A machine behind [`Nat::Open`] has an address of its own, `10.98.N.1`, to which every other
    /// host needs a route through this site's router: see [`Self::route_to`].
    ///
    /// # Panics
    ///
    /// When the lab is full or the kernel refuses a rule.
    pub fn start(lab: &Lab, name: &str, nat: Nat) -> Self {
        let outermost = lab.host(&format!("{name}-router"));
        let mut routers = vec![outermost.clone()];
        let [.., number] = outermost.ipv4().octets();
        if nat == Nat::Carrier {
            let shared = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, number, 0), 24);
            routers.insert(0, lab.lan(&outermost, &format!("{name}-home"), shared));
        }
        let inside = match nat {
            Nat::Open => Ipv4Addr::new(10, 98, number, 0),
            Nat::FullCone
            | Nat::Restricted
            | Nat::PortRestricted
            | Nat::Symmetric
            | Nat::Carrier => Ipv4Addr::new(192, 168, 1, 0),
        };
        let machine = lab.lan(&routers[0], name, Ipv4Net::new_assert(inside, 24));
        let public = if nat == Nat::Open {
            Ipv4Addr::from(u32::from(inside) + 1)
        } else {
            outermost.ipv4()
        };
        let site = Self {
            machine,
            routers,
            nat,
            public: Cell::new(public),
            lifetime: Cell::new(LIFETIME),
            rebinds: Cell::new(0),
        };
        site.apply();
        site
    }

    /// Adds another machine behind the innermost router, on a LAN of its own.
    ///
    /// # Panics
    ///
    /// When `network` is in use there already.
    pub fn add_machine(&self, lab: &Lab, name: &str, network: Ipv4Net) -> Host {
        lab.lan(&self.routers[0], name, network)
    }

    /// Gives `host` a route to this site's machine: needed for [`Nat::Open`] alone, where it has
    /// an address that others may know. This site's own router knows it already.
    pub fn route_to(&self, host: &Host) {
        if self.nat == Nat::Open && host.init() != self.outermost().init() {
            let router = self.outermost().ipv4();
            host.ip([format!("route replace {}/32 via {router}", self.public())]);
        }
    }

    /// Has idle mappings end after this time, whole seconds, from the next packet on.
    ///
    /// # Panics
    ///
    /// When the kernel refuses it.
    pub fn set_lifetime(&self, lifetime: Duration) {
        self.lifetime.set(lifetime);
        self.apply();
    }

    /// Forgets every mapping, as a router does that was switched off and on: the next packet of
    /// the machine makes a new one with the same port where the kind keeps ports.
    ///
    /// # Panics
    ///
    /// When the kernel refuses it.
    pub fn forget_mappings(&self) {
        for router in &self.routers {
            conntrack::flush(router);
        }
        // Their maps are made anew with the rules.
        self.apply();
    }

    /// Forgets every mapping and gives new ones other ports than before.
    ///
    /// # Panics
    ///
    /// For the kinds that keep ports by their nature: open, full cone, restricted.
    pub fn rebind(&self) {
        assert!(
            !matches!(self.nat, Nat::Open | Nat::FullCone | Nat::Restricted),
            "a router that is {} keeps its ports",
            self.nat
        );
        self.rebinds.set(self.rebinds.get() + 1);
        self.forget_mappings();
    }

    /// Gives the outermost router another address on the segment and forgets every mapping: what
    /// a line does that was dialled anew. `last` is the address's last byte, to be nobody else's.
    ///
    /// # Panics
    ///
    /// For an open router, whose machine is known by its own address.
    pub fn renumber(&self, last: u8) {
        assert!(self.nat != Nat::Open, "an open router hides no address");
        let router = self.outermost();
        let (old, new) = (self.public.get(), Ipv4Addr::new(10, 99, 0, last));
        router.ip([
            format!("addr add {new}/24 dev eth0"),
            format!("addr del {old}/24 dev eth0"),
            // A second address goes with the first of its network, unless it was promoted.
            format!("addr replace {new}/24 dev eth0"),
        ]);
        self.public.set(new);
        self.forget_mappings();
    }

    /// Returns the address at which the segment sees the machine.
    pub fn public(&self) -> Ipv4Addr {
        self.public.get()
    }

    /// Returns the kind.
    pub fn nat(&self) -> Nat {
        self.nat
    }

    /// Returns the router on the lab's segment.
    pub fn outermost(&self) -> &Host {
        self.routers.last().unwrap_or(&self.machine)
    }

    fn apply(&self) {
        let (lifetime, public) = (self.lifetime.get(), self.public.get());
        let ports = match self.rebinds.get() {
            0 => Ports::Kept,
            times => Ports::Renumbered(times),
        };
        let rules = |nat, ports| rules::ruleset(nat, ports, public, lifetime);
        let [router, carriers @ ..] = &self.routers[..] else {
            return;
        };
        match self.nat {
            Nat::Carrier => {
                rules::install(router, &rules(Nat::PortRestricted, Ports::Kept), lifetime);
                let ports = Ports::Renumbered(self.rebinds.get());
                for carrier in carriers {
                    rules::install(carrier, &rules(Nat::PortRestricted, ports), lifetime);
                }
            }
            Nat::Open | Nat::FullCone | Nat::Restricted | Nat::PortRestricted | Nat::Symmetric => {
                rules::install(router, &rules(self.nat, ports), lifetime)
            }
        }
    }
}
