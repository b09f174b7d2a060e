//! One client and one holder over a path that is narrow, shrinks or loses: what it is to be like,
//! and what both ends believe of it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::realm::{ANSWER_LIMIT, Plan, Realm, at, port};
use crate::host::Host;
use crate::lab::Lab;
use crate::links::Conditions;
use crate::wait;
use crate::work::{self, Direction, Transfer};

/// Inside IPv4: its header, UDP's, and those of a frame (docs/decisions/0008-path-mtu.md).
const OVERHEAD_IPV4_BYTES: u64 = 20 + 8 + 32;

/// As above inside IPv6.
const OVERHEAD_IPV6_BYTES: u64 = 40 + 8 + 32;

/// What an anchor's own interface takes over Ethernet; more is not searched for.
const INTERFACE_BYTES: u64 = 1420;

/// A search takes a round trip or ten; this is for a machine that is busy.
const SEARCH_LIMIT: Duration = Duration::from_secs(8);

/// Far more than any path of the lab holds, so that UDP has to be cut.
const LARGE_DATAGRAM_BYTES: usize = 3000;

/// What a card does for its host, by the names of `ethtool`.
const OFFLOADS: [&str; 6] = ["tx", "rx", "tso", "gso", "gro", "tx-udp-segmentation"];

/// A holder and a client with one path between them.
pub struct Path {
    /// The two, and the lab.
    pub realm: Realm,
}

impl Path {
    /// Starts both over a path that is as `change` says from the first frame on.
    ///
    /// # Panics
    ///
    /// When they do not find together.
    pub fn start(change: impl Fn(&mut Conditions)) -> Self {
        let lab = Lab::new();
        lab.everywhere().change(change);
        Self {
            realm: Realm::start_in(lab, &Plan::of(1, 1)),
        }
    }

    /// Starts both on the kernel's own bridge, where network cards have offloads.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    pub fn at_kernel_speed() -> Self {
        Self {
            realm: Realm::start_in(Lab::at_kernel_speed(), &Plan::of(1, 1)),
        }
    }

    /// Changes the path, both ways.
    pub fn change(&self, change: impl Fn(&mut Conditions)) {
        let lab = &self.realm.lab;
        lab.between(self.holder(), self.client()).change(change);
    }

    /// Begins a transfer through the shared address.
    ///
    /// # Errors
    ///
    /// As the connection fails.
    pub fn transfer(&self, direction: Direction, bytes: u64) -> io::Result<Transfer> {
        Transfer::start(self.client(), at(port::TRANSFER), direction, bytes)
    }

    /// Begins a transfer beside the tunnel, between the same machines over the same path.
    ///
    /// # Errors
    ///
    /// As the connection fails.
    pub fn bare_transfer(&self, direction: Direction, bytes: u64) -> io::Result<Transfer> {
        let target = SocketAddr::new(self.holder().ipv4().into(), port::TRANSFER);
        Transfer::start(self.client(), target, direction, bytes)
    }

    /// Has datagrams of 3,000 bytes echoed one after the other; how many came back whole.
    pub fn large_echoes(&self, count: usize) -> usize {
        let echo = |_: &usize| {
            let target = at(port::WHO);
            work::echoes_whole(self.client(), target, LARGE_DATAGRAM_BYTES, ANSWER_LIMIT)
                .unwrap_or(false)
        };
        (0..count).filter(echo).count()
    }

    /// Waits until both ends believe what an underlay of `bytes` carries: to the byte, so only for
    /// sizes that are probed as they are, 1280 and 1500 among them.
    ///
    /// # Panics
    ///
    /// When one of them does not come to believe that.
    pub fn settle_at(&self, bytes: u64) {
        let anchors = [&self.realm.clients[0].anchor, &self.realm.holders[0].anchor];
        for anchor in anchors {
            let name = anchor.host().name();
            let is_right = || {
                let peers = anchor.peers();
                let peer = peers.first()?;
                let overhead = match peer.endpoint? {
                    SocketAddr::V4(_) => OVERHEAD_IPV4_BYTES,
                    SocketAddr::V6(_) => OVERHEAD_IPV6_BYTES,
                };
                let carried = INTERFACE_BYTES.min(bytes - overhead);
                (peer.packet_limit_bytes? == carried).then_some(())
            };
            wait::until_some(
                SEARCH_LIMIT,
                &format!("{name} to find what {bytes} bytes carry"),
                is_right,
            );
        }
    }

    /// Returns what client and holder believe the path carries, as `peers` tells.
    pub fn limits_bytes(&self) -> [Option<u64>; 2] {
        let anchors = [&self.realm.clients[0].anchor, &self.realm.holders[0].anchor];
        anchors.map(|anchor| anchor.peers().first()?.packet_limit_bytes)
    }

    /// Has both network cards do nothing for their hosts any more.
    ///
    /// # Panics
    ///
    /// When one keeps an offload.
    pub fn switch_offloads_off(&self) {
        for host in [self.client(), self.holder()] {
            let off = OFFLOADS.iter().flat_map(|name| [*name, "off"]);
            host.command("ethtool")
                .args(["-K", "eth0"])
                .args(off)
                .must();
            let left = offloads(host);
            assert!(left.is_empty(), "{} still has {left:?}", host.name());
        }
    }

    /// Has TCP of both machines use this congestion control from now on: what a loss costs is its
    /// choice.
    ///
    /// # Panics
    ///
    /// When the kernel has no such thing.
    pub fn let_tcp_use(&self, congestion: &str) {
        for host in [self.client(), self.holder()] {
            host.enter(|| std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", congestion))
                .unwrap_or_else(|error| panic!("{congestion}: {error}"));
        }
    }

    /// Returns the client's machine.
    pub fn client(&self) -> &Host {
        &self.realm.clients[0].host
    }

    /// Returns the holder's machine.
    pub fn holder(&self) -> &Host {
        &self.realm.holders[0].host
    }
}

/// The offloads that a host's network card has on.
pub fn offloads(host: &Host) -> Vec<String> {
    /// The long names under which `ethtool` lists what [`OFFLOADS`] switches.
    const LISTED: [&str; 6] = [
        "rx-checksumming",
        "tx-checksumming",
        "tcp-segmentation-offload",
        "generic-segmentation-offload",
        "generic-receive-offload",
        "tx-udp-segmentation",
    ];
    let list = host.command("ethtool").args(["-k", "eth0"]).must();
    list.lines()
        .filter_map(|line| line.split_once(": on"))
        .map(|(name, _)| name.trim().to_owned())
        .filter(|name| LISTED.contains(&name.as_str()))
        .collect()
}
