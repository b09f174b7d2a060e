//! A network in one process: hosts on one segment, LANs behind hosts, and the ways between them,
//! which can be slowed, thinned and cut while everything runs.
//!
//! Nothing has a name outside, so labs run side by side; nothing outlives the test process.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use ipnet::Ipv4Net;

use crate::host::Host;
use crate::kernel::Hub;
use crate::links::{Carried, Conditions, Links, MAX_PORTS, Way};
use crate::switch::{Switch, Tap};

/// The segment and its hosts.
pub struct Lab {
    segment: Segment,
    links: Arc<Links>,
    hosts: RefCell<Vec<Host>>,
    lans: Cell<usize>,
}

enum Segment {
    Switch(Switch),
    Kernel(Hub),
}

/// Some of a lab's directed pairs, to be changed together.
pub struct Ways<'a> {
    lab: &'a Lab,
    ways: Vec<Way>,
}

impl Lab {
    /// Makes an empty lab on the userspace switch.
    pub fn new() -> Self {
        Self::with_seed(0x1ab)
    }

    /// Makes an empty lab whose losses and jitter follow `seed`.
    pub fn with_seed(seed: u64) -> Self {
        let links = Arc::new(Links::new());
        Self::on(
            Segment::Switch(Switch::start(Arc::clone(&links), seed)),
            links,
        )
    }

    /// Makes an empty lab on a kernel bridge: full speed, cuts and losses only.
    pub fn at_kernel_speed() -> Self {
        Self::on(Segment::Kernel(Hub::new()), Arc::new(Links::new()))
    }

    fn on(segment: Segment, links: Arc<Links>) -> Self {
        Self {
            segment,
            links,
            hosts: RefCell::new(Vec::new()),
            lans: Cell::new(0),
        }
    }

    /// Adds a host: 10.99.0.N/24 and `fd00:99::N`/64 on `eth0`, N counting from 1.
    ///
    /// # Panics
    ///
    /// When the lab is full, or not run by root.
    pub fn host(&self, name: &str) -> Host {
        let mut hosts = self.hosts.borrow_mut();
        let port = hosts.len();
        assert!(port < MAX_PORTS, "a segment has {MAX_PORTS} places");
        let host = Host::new(name, port);
        match &self.segment {
            Segment::Switch(switch) => {
                let tap = host
                    .enter(|| Tap::open("eth0"))
                    .unwrap_or_else(|error| panic!("no TAP device for host {name}: {error}"));
                switch.plug(port, tap);
            }
            Segment::Kernel(hub) => hub.plug(&host),
        }
        host.ip([
            format!(
                "link set eth0 address 02:00:00:00:{:02x}:{:02x}",
                port >> 8,
                port & 0xff
            ),
            format!("addr add {}/24 dev eth0", host.ipv4()),
            format!("addr add {}/64 dev eth0 nodad", host.ipv6()),
            "link set eth0 up".to_owned(),
        ]);
        hosts.push(host.clone());
        host
    }

    /// Adds a machine on a LAN of its own behind `router`: the first address of `network` is the
    /// machine's, the last the router's, which forwards.
    ///
    /// # Panics
    ///
    /// When the network is in use there already.
    pub fn lan(&self, router: &Host, name: &str, network: Ipv4Net) -> Host {
        let machine = Host::new(name, MAX_PORTS + 1 + self.lans.get());
        let gateway = self.wire(router, &machine, "eth0", network);
        machine.ip([format!("route add default via {gateway}")]);
        machine
    }

    /// Runs a wire of its own from `router`, which forwards, to the card `card` of `machine`: the
    /// first address of `network` is the machine's, the last the router's, which is returned. No
    /// route is added.
    ///
    /// # Panics
    ///
    /// When the card or the network is in use there already.
    pub fn wire(&self, router: &Host, machine: &Host, card: &str, network: Ipv4Net) -> Ipv4Addr {
        let number = self.lans.get();
        self.lans.set(number + 1);
        let (near, far) = (first(network), last(network));
        router.ip([
            format!(
                "link add lan{number} type veth peer name {card} netns {}",
                machine.init()
            ),
            format!("addr add {far}/{} dev lan{number}", network.prefix_len()),
            format!("link set lan{number} up"),
        ]);
        machine.ip([
            format!("addr add {near}/{} dev {card}", network.prefix_len()),
            format!("link set {card} up"),
        ]);
        router
            .enter(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
            .expect("a router may forward");
        far
    }

    /// Returns the way from one host to another.
    pub fn way(&self, from: &Host, to: &Host) -> Ways<'_> {
        self.ways([(from.port(), to.port())])
    }

    /// Returns both ways between two hosts.
    pub fn between(&self, one: &Host, other: &Host) -> Ways<'_> {
        let (one, other) = (one.port(), other.port());
        self.ways([(one, other), (other, one)])
    }

    /// Returns every way that leads into `host`.
    pub fn towards(&self, host: &Host) -> Ways<'_> {
        let to = host.port();
        self.ways((0..MAX_PORTS).map(|from| (from, to)))
    }

    /// Returns every way that leads out of `host`.
    pub fn out_of(&self, host: &Host) -> Ways<'_> {
        let from = host.port();
        self.ways((0..MAX_PORTS).map(|to| (from, to)))
    }

    /// Returns every way into and out of `host`.
    pub fn around(&self, host: &Host) -> Ways<'_> {
        let port = host.port();
        self.ways((0..MAX_PORTS).flat_map(|other| [(port, other), (other, port)]))
    }

    /// Returns every way there is.
    pub fn everywhere(&self) -> Ways<'_> {
        self.ways((0..MAX_PORTS).flat_map(|from| (0..MAX_PORTS).map(move |to| (from, to))))
    }

    /// Writes every frame on the switch to the pcap file `path` from now on.
    ///
    /// # Panics
    ///
    /// When the file cannot be made, and at kernel speed.
    pub fn capture(&self, path: &Path) {
        self.switch()
            .capture(path)
            .expect("a capture file can be made");
    }

    /// Ends the capture; its file is complete afterwards.
    ///
    /// # Panics
    ///
    /// At kernel speed.
    pub fn end_capture(&self) {
        self.switch().end_capture();
    }

    fn switch(&self) -> &Switch {
        match &self.segment {
            Segment::Switch(switch) => switch,
            Segment::Kernel(_) => panic!("at kernel speed, capture with tcpdump in a host"),
        }
    }

    fn ways(&self, pairs: impl IntoIterator<Item = (usize, usize)>) -> Ways<'_> {
        let ways = pairs
            .into_iter()
            .filter(|(from, to)| from != to)
            .map(|(from, to)| Way { from, to })
            .collect();
        Ways { lab: self, ways }
    }
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl Ways<'_> {
    /// Changes their conditions, at once for frames that have not entered the switch.
    pub fn change(&self, change: impl Fn(&mut Conditions)) {
        for way in &self.ways {
            self.lab.links.change(*way, &change);
        }
        if let Segment::Kernel(hub) = &self.lab.segment {
            hub.follow(&self.lab.links, self.lab.hosts.borrow().len());
        }
    }

    /// Lets nothing pass.
    pub fn cut(&self) {
        self.change(|conditions| conditions.cut = true);
    }

    /// Lets everything pass again, as on the first day.
    pub fn mend(&self) {
        self.change(|conditions| *conditions = Conditions::default());
    }

    /// Returns what they have carried, added up.
    pub fn carried(&self) -> Carried {
        self.ways
            .iter()
            .map(|way| self.lab.links.carried(*way))
            .fold(Carried::default(), |sum, one| Carried {
                frames: sum.frames + one.frames,
                bytes: sum.bytes + one.bytes,
                lost: sum.lost + one.lost,
            })
    }
}

fn first(network: Ipv4Net) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(network.network()) + 1)
}

fn last(network: Ipv4Net) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(network.broadcast()) - 1)
}
