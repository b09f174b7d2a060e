//! Our own interface: brought up, and given exactly the addresses and routes that are wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use rtnetlink::LinkUnspec;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute};
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};

use super::read::read_route;
use super::{Address, Error, Netlink, failed};

/// The interface of that index. Dropping it changes nothing: the kernel removes addresses and
/// routes with the device.
#[derive(Clone, Debug)]
pub struct Interface {
    netlink: Netlink,
    index: u32,
}

impl Interface {
    pub(super) fn new(netlink: Netlink, index: u32) -> Self {
        Self { netlink, index }
    }

    /// Sets MTU and queue length and switches the interface on, without a link-local address:
    /// there is no neighbour on it to talk to, and none must be asked for a router.
    ///
    /// # Errors
    /// The kernel refused.
    pub async fn bring_up(&self, mtu_bytes: u32) -> Result<(), Error> {
        let quiet =
            LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(
                In6AddrGenMode::None,
            )])]);
        let message = LinkUnspec::new_with_index(self.index)
            .append_extra_attribute(quiet)
            .build();
        // Fails only where IPv6 is off, and then there is nothing to keep quiet.
        let _ = self.netlink.handle.link().set(message).execute().await;

        let message = LinkUnspec::new_with_index(self.index)
            .mtu(mtu_bytes)
            .txqueuelen(QUEUE_PACKETS)
            .up()
            .build();
        let set = self.netlink.handle.link().set(message).execute().await;
        set.map_err(failed("bring the interface up"))
    }

    /// Changes the MTU; addresses and routes stay, but IPv6 goes below 1280 bytes.
    ///
    /// # Errors
    /// The kernel refused.
    pub async fn set_mtu(&self, mtu_bytes: u32) -> Result<(), Error> {
        let message = LinkUnspec::new_with_index(self.index)
            .mtu(mtu_bytes)
            .build();
        let set = self.netlink.handle.link().set(message).execute().await;
        set.map_err(failed("set the interface's MTU"))
    }

    /// Gives the interface exactly `wanted`: adds what is missing, removes what is not listed.
    /// No address brings a route with it; see [`Self::set_routes`], to be called afterwards, as
    /// removing an address also removes the routes that send from it.
    ///
    /// # Errors
    /// The first refusal; the addresses before it are set, and calling again goes on from there.
    pub async fn set_addresses(&self, wanted: &[IpNet]) -> Result<(), Error> {
        let wanted: BTreeSet<IpNet> = wanted.iter().copied().collect();
        // Removal first, and looked at anew: with the first address of an IPv4 network the
        // kernel removes the others in it.
        for network in self.own_addresses().await?.difference(&wanted) {
            let message = self.address_message(*network);
            let deleted = self.netlink.handle.address().del(message).execute().await;
            absent(
                deleted.map_err(failed("remove an address")),
                libc::EADDRNOTAVAIL,
            )?;
        }
        for network in wanted.difference(&self.own_addresses().await?) {
            let ip = network.addr();
            let mut request =
                self.netlink
                    .handle
                    .address()
                    .add(self.index, ip, network.prefix_len());
            *request.message_mut() = self.address_message(*network);
            absent(
                request.execute().await.map_err(failed("add an address")),
                libc::EEXIST,
            )?;
        }
        Ok(())
    }

    /// Gives the interface exactly `wanted`, in the main table: adds what is missing, replaces
    /// what differs, removes what is not listed. Of two with one destination the last counts.
    ///
    /// Returns what could not be set, each with its reason; the rest is set all the same. A
    /// destination another interface has with the same metric is never taken from it.
    ///
    /// # Errors
    /// The kernel would not tell which routes there are; nothing was changed.
    pub async fn set_routes(&self, wanted: &[Route]) -> Result<Vec<RouteFault>, Error> {
        let mut present = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            present.extend(self.netlink.routes(family, Some(self.index)).await?);
        }
        let mut missing: BTreeMap<IpNet, Route> = wanted
            .iter()
            .map(|route| (route.destination.trunc(), route.normal()))
            .collect();

        let mut faults = Vec::new();
        let mut surplus = Vec::new();
        for message in present {
            let Some(route) = read_route(&message) else {
                continue;
            };
            if missing.get(&route.destination) == Some(&route) {
                missing.remove(&route.destination);
            } else {
                surplus.push((route.destination, message));
            }
        }
        for (destination, message) in surplus {
            let deleted = self.netlink.handle.route().del(message).execute().await;
            let deleted = absent(deleted.map_err(failed("remove a route")), libc::ESRCH);
            faults.extend(deleted.err().map(|error| RouteFault { destination, error }));
        }
        for (destination, route) in missing {
            let added = self
                .netlink
                .handle
                .route()
                .add(route.message(self.index))
                .execute()
                .await;
            let added = added.map_err(failed("add a route"));
            faults.extend(added.err().map(|error| RouteFault { destination, error }));
        }
        Ok(faults)
    }

    async fn own_addresses(&self) -> Result<BTreeSet<IpNet>, Error> {
        let is_ours = |address: &Address| {
            address.interface == self.index
                && !matches!(address.network, IpNet::V6(net) if net.addr().is_unicast_link_local())
        };
        let addresses = self.netlink.addresses().await?;
        Ok(addresses
            .into_iter()
            .filter(is_ours)
            .map(|address| address.network)
            .collect())
    }

    fn address_message(&self, network: IpNet) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.family = family(network.addr());
        message.header.prefix_len = network.prefix_len();
        message.header.index = self.index;
        message.attributes = vec![
            AddressAttribute::Address(network.addr()),
            AddressAttribute::Local(network.addr()),
            AddressAttribute::Flags(AddressFlags::Noprefixroute | AddressFlags::Nodad),
        ];
        message
    }
}

/// A way into our interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Route {
    /// What goes this way.
    pub destination: IpNet,
    /// Preferred over other interfaces' when lower; the kernel's default when none.
    pub metric: Option<u32>,
    /// Longest packet sent this way, when below the interface's.
    pub mtu_bytes: Option<u32>,
    /// The address sent from when the application chose none; the interface must carry it.
    pub source: Option<IpAddr>,
}

impl Route {
    /// As the kernel tells it back.
    pub(super) fn normal(&self) -> Self {
        let metric = match (self.metric.unwrap_or(0), self.destination) {
            (0, IpNet::V4(_)) => None,
            (0, IpNet::V6(_)) => Some(DEFAULT_METRIC_V6),
            (metric, _) => Some(metric),
        };
        Self {
            destination: self.destination.trunc(),
            metric,
            ..*self
        }
    }

    fn message(&self, interface: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family(self.destination.addr());
        message.header.destination_prefix_length = self.destination.prefix_len();
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Other(PROTOCOL);
        message.header.scope = match self.destination {
            IpNet::V4(_) => RouteScope::Link,
            IpNet::V6(_) => RouteScope::Universe,
        };
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            RouteAttribute::Destination(self.destination.addr().into()),
            RouteAttribute::Oif(interface),
        ];
        let metrics = self
            .mtu_bytes
            .map(|bytes| RouteAttribute::Metrics(vec![RouteMetric::Mtu(bytes)]));
        message
            .attributes
            .extend(self.metric.map(RouteAttribute::Priority));
        message.attributes.extend(metrics);
        message
            .attributes
            .extend(self.source.map(|ip| RouteAttribute::PrefSource(ip.into())));
        message
    }
}

/// A route that could not be set or removed.
#[derive(Debug, thiserror::Error)]
#[error("route to {destination}: {error}")]
pub struct RouteFault {
    /// Where it was to lead.
    pub destination: IpNet,
    /// Why not; EEXIST when another interface has it.
    pub error: Error,
}

impl RouteFault {
    /// Returns whether another interface has the destination.
    pub fn is_taken(&self) -> bool {
        self.error.errno() == Some(libc::EEXIST)
    }
}

/// Somebody else did first what was to be done.
fn absent(result: Result<(), Error>, done_already: i32) -> Result<(), Error> {
    match result {
        Err(error) if error.errno() == Some(done_already) => Ok(()),
        result => result,
    }
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

/// What the kernel makes of an IPv6 route without metric (IP6_RT_PRIO_USER).
const DEFAULT_METRIC_V6: u32 = 1024;

/// Marks our routes in `ip route show proto 199`; no routing daemon of iproute2's list has it.
const PROTOCOL: u8 = 199;

/// What comes while the data thread waits for a core, some 10 ms of plain packets at full speed:
/// of 1,200-byte datagrams, 1000 (as an Ethernet card has) pass 3.35 Gbit/s and 4000 3.86. TUN's
/// own 500 drops every burst.
const QUEUE_PACKETS: u32 = 4096;
