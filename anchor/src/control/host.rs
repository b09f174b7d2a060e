//! The control loop's hand on the host's network: a task that keeps the interface as wanted and
//! tells what else the machine has. It reads and sets; which routes are wanted is the loop's.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Context;
use conflux_core::mtu::{MAX_BYTES, Underlay};
use conflux_core::plane::MTU_BYTES;
use ipnet::IpNet;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::netlink::{self, Interface, Netlink, Route, Watcher, WayOut};

/// What a frame over IPv6 adds to a packet.
const OVERHEAD_BYTES: u32 = Underlay::Ipv6.overhead_bytes() as u32;

/// What the interface is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) addresses: Vec<IpNet>,
    pub(super) routes: Vec<Route>,
}

/// What the machine has besides the interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Every address of the machine, the interface's own included.
    pub(super) addresses: Vec<IpAddr>,
    /// Addresses that peers may reach the machine at: usable, stable, of other interfaces.
    pub(super) outward: Vec<IpAddr>,
    /// The MTU our interface is to have, by what those other interfaces take.
    pub(super) mtu_bytes: u16,
    /// By which of those interfaces, and how, packets leave the machine.
    pub(super) uplinks: Uplinks,
    /// Networks connected by other interfaces.
    pub(super) connected: Vec<IpNet>,
    /// IPv6 works on the interface.
    pub(super) ipv6: bool,
    /// The kernel forwards IPv4 and IPv6 packets.
    pub(super) forwards: (bool, bool),
    /// Wanted networks that another interface has.
    pub(super) taken: Vec<IpNet>,
}

/// What decides where packets to peers leave the machine: once it differs, paths are found anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Uplinks {
    addresses: BTreeSet<(u32, IpAddr)>,
    ways: BTreeSet<WayOut>,
}

impl Uplinks {
    /// Returns the addresses that peers may reach the machine at, with their interfaces.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        self.addresses.iter().copied()
    }
}

/// The task and its ends.
pub(super) struct Host {
    wanted: watch::Sender<Wanted>,
    pub(super) facts: mpsc::Receiver<Facts>,
    task: JoinHandle<()>,
}

impl Host {
    /// Brings the interface up with `wanted`, and returns once its addresses can be bound.
    pub(super) async fn start(
        name: &str,
        index: u32,
        mut wanted: Wanted,
    ) -> anyhow::Result<(Self, Facts)> {
        let netlink = Netlink::connect().context("cannot talk to the kernel's network")?;
        let interface = netlink.interface(index);
        interface.bring_up(u32::from(MTU_BYTES)).await?;
        let watcher = Watcher::start(index).context("cannot watch the kernel's network")?;
        let ipv6 = netlink::has_ipv6(name);
        if !ipv6 {
            without_ipv6(&mut wanted);
            info!("IPv6 is disabled on this host: the overlay carries IPv4 only");
        }
        let mut worker = Worker {
            netlink,
            interface,
            index,
            name: name.to_owned(),
            mtu_bytes: MTU_BYTES,
            taken: Vec::new(),
        };
        worker.apply(&wanted).await?;
        let facts = worker.facts().await?;
        worker.resize(facts.mtu_bytes).await;
        let (wanted, changes) = watch::channel(wanted);
        let (tell, told) = mpsc::channel(4);
        let first = facts.clone();
        let task = tokio::spawn(worker.run(watcher, changes, tell, first));
        Ok((
            Self {
                wanted,
                facts: told,
                task,
            },
            facts,
        ))
    }

    /// Has the interface changed to `wanted`.
    pub(super) fn want(&self, wanted: Wanted) {
        self.wanted.send_if_modified(|current| {
            let changed = *current != wanted;
            if changed {
                *current = wanted;
            }
            changed
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Worker {
    netlink: Netlink,
    interface: Interface,
    index: u32,
    name: String,
    mtu_bytes: u16,
    taken: Vec<IpNet>,
}

impl Worker {
    async fn run(
        mut self,
        mut watcher: Watcher,
        mut changes: watch::Receiver<Wanted>,
        tell: mpsc::Sender<Facts>,
        mut told: Facts,
    ) {
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                heard = watcher.changed() => {
                    if let Err(error) = heard {
                        warn!(%error, "changes of the host's network are not noticed any more");
                        return;
                    }
                }
            }
            let mut wanted = changes.borrow_and_update().clone();
            if !netlink::has_ipv6(&self.name) {
                without_ipv6(&mut wanted);
            }
            if let Err(error) = self.apply(&wanted).await {
                warn!(%error, "the interface could not be brought to what is wanted");
            }
            match self.facts().await {
                Ok(facts) if facts != told => {
                    self.resize(facts.mtu_bytes).await;
                    told = facts.clone();
                    if tell.send(facts).await.is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(error) => debug!(%error, "the host's network could not be read"),
            }
        }
    }

    async fn apply(&mut self, wanted: &Wanted) -> Result<(), netlink::Error> {
        self.interface.set_addresses(&wanted.addresses).await?;
        let faults = self.interface.set_routes(&wanted.routes).await?;
        let mut taken = Vec::new();
        for fault in faults {
            if fault.is_taken() {
                taken.push(fault.destination);
            } else {
                warn!(error = %fault, "a route could not be set");
            }
        }
        self.taken = taken;
        Ok(())
    }

    /// Lets the interface take what the others can carry.
    async fn resize(&mut self, mtu_bytes: u16) {
        if mtu_bytes == self.mtu_bytes {
            return;
        }
        match self.interface.set_mtu(u32::from(mtu_bytes)).await {
            Ok(()) => {
                info!(mtu_bytes, "the interface's MTU follows the network's");
                self.mtu_bytes = mtu_bytes;
            }
            Err(error) => warn!(%error, mtu_bytes, "the interface keeps its MTU"),
        }
    }

    async fn facts(&self) -> Result<Facts, netlink::Error> {
        let links = self.netlink.links().await?;
        let loopback: BTreeSet<u32> = links
            .iter()
            .filter(|link| link.is_loopback)
            .map(|link| link.index)
            .collect();
        let all = self.netlink.addresses().await?;
        let outward: Vec<_> = all
            .iter()
            .filter(|address| {
                address.interface != self.index
                    && !loopback.contains(&address.interface)
                    && address.is_usable
                    && !address.is_temporary
                    && !is_link_local(address.network.addr())
            })
            .collect();
        let underlay = links.iter().filter(|link| {
            link.is_up
                && outward
                    .iter()
                    .any(|address| address.interface == link.index)
        });
        let mtu_bytes = interface_mtu(underlay.map(|link| link.mtu_bytes).max());
        let connected = self.netlink.connected_networks(self.index).await?;
        let from = outward
            .iter()
            .map(|address| (address.interface, address.network.addr()));
        let uplinks = Uplinks {
            addresses: from.collect(),
            ways: self.netlink.ways_out(self.index).await?,
        };
        Ok(Facts {
            addresses: all.iter().map(|address| address.network.addr()).collect(),
            outward: outward
                .iter()
                .map(|address| address.network.addr())
                .collect(),
            mtu_bytes,
            uplinks,
            connected: connected.into_iter().collect(),
            ipv6: netlink::has_ipv6(&self.name),
            forwards: (netlink::forwards_ipv4(), netlink::forwards_ipv6()),
            taken: self.taken.clone(),
        })
    }
}

/// Returns the MTU our interface is to have over interfaces of which the widest takes `underlay`
/// bytes. Never below that of Ethernet: what a narrower path does not take is cut for it.
fn interface_mtu(underlay: Option<u32>) -> u16 {
    let most = MAX_BYTES as u32;
    let inner = underlay.unwrap_or(0).saturating_sub(OVERHEAD_BYTES);
    let bytes = inner.clamp(u32::from(MTU_BYTES), most);
    u16::try_from(bytes).unwrap_or(MTU_BYTES)
}

fn without_ipv6(wanted: &mut Wanted) {
    wanted.addresses.retain(|network| network.addr().is_ipv4());
    wanted
        .routes
        .retain(|route| route.destination.addr().is_ipv4());
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_follows_a_wide_network_and_never_a_narrow_one() {
        assert_eq!(interface_mtu(None), 1420);
        assert_eq!(interface_mtu(Some(1280)), 1420);
        assert_eq!(interface_mtu(Some(1500)), 1420);
        assert_eq!(interface_mtu(Some(9000)), 8920);
        assert_eq!(interface_mtu(Some(65_535)), 9136);
    }
}
