//! Reads the kernel's messages into our types. Attributes not named here are of no interest.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "attributes are the kernel's, an open set that grows with each release"
)]

use std::net::IpAddr;

use ipnet::IpNet;
use rtnetlink::packet_core::Nla;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoTun, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric};

use super::{Address, Link, Route, WayOut};

pub(super) fn read_link(message: &LinkMessage) -> Option<Link> {
    let attributes = &message.attributes;
    let name = attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })?;
    let is_held = !attributes
        .iter()
        .any(|attribute| matches!(attribute, LinkAttribute::Carrier(0)));
    let mtu_bytes = attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(bytes) => Some(*bytes),
        _ => None,
    });
    Some(Link {
        index: message.header.index,
        name,
        mtu_bytes: mtu_bytes.unwrap_or(0),
        is_up: message.header.flags.contains(LinkFlags::Up),
        is_running: message
            .header
            .flags
            .contains(LinkFlags::Up | LinkFlags::LowerUp),
        is_loopback: message.header.flags.contains(LinkFlags::Loopback),
        is_abandoned_tun: !is_held && is_persistent_tun(attributes),
    })
}

fn is_persistent_tun(attributes: &[LinkAttribute]) -> bool {
    let infos = attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    let infos: Vec<&LinkInfo> = infos.flatten().collect();
    infos.contains(&&LinkInfo::Kind(InfoKind::Tun))
        && infos.iter().any(|info| match info {
            LinkInfo::Data(InfoData::Tun(tun)) => {
                tun.iter().any(|info| is_flag(info, IFLA_TUN_PERSIST))
            }
            _ => false,
        })
}

fn is_flag(info: &InfoTun, kind: u16) -> bool {
    let mut value = [0; 1];
    if info.kind() != kind || info.value_len() != value.len() {
        return false;
    }
    info.emit_value(&mut value);
    value[0] == 1
}

pub(super) fn read_address(message: &AddressMessage) -> Option<Address> {
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            // On a point-to-point link `Address` is the far end's, and `Local` is given too.
            AddressAttribute::Local(ip) => address = Some(*ip),
            AddressAttribute::Address(ip) => address = address.or(Some(*ip)),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let unusable = AddressFlags::Tentative | AddressFlags::Dadfailed | AddressFlags::Deprecated;
    let address: IpAddr = address?;
    Some(Address {
        interface: message.header.index,
        network: IpNet::new(address, message.header.prefix_len).ok()?,
        is_usable: !flags.intersects(unusable),
        // The kernel uses one bit for both: `secondary` of IPv4 is `temporary` of IPv6.
        is_temporary: address.is_ipv6() && flags.contains(AddressFlags::Secondary),
    })
}

pub(super) fn output_interface(message: &RouteMessage) -> Option<u32> {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        })
}

pub(super) fn destination(message: &RouteMessage) -> Option<IpNet> {
    let prefix_len = message.header.destination_prefix_length;
    let given = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(IpAddr::from(*ip)),
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(IpAddr::from(*ip)),
            _ => None,
        });
    IpNet::new(given?, prefix_len).ok()
}

/// Returns the route as [`Route::normal`] has it.
pub(super) fn read_route(message: &RouteMessage) -> Option<Route> {
    let any = if message.header.address_family == AddressFamily::Inet6 {
        ANY_V6
    } else {
        ANY_V4
    };
    let destination = destination(message)
        .or_else(|| IpNet::new(any, message.header.destination_prefix_length).ok())?;
    let mut route = Route {
        destination,
        metric: None,
        mtu_bytes: None,
        source: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Priority(metric) => route.metric = Some(*metric),
            RouteAttribute::PrefSource(RouteAddress::Inet(ip)) => route.source = Some((*ip).into()),
            RouteAttribute::PrefSource(RouteAddress::Inet6(ip)) => {
                route.source = Some((*ip).into())
            }
            RouteAttribute::Metrics(metrics) => {
                route.mtu_bytes = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(bytes) => Some(*bytes),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(route.normal())
}

pub(super) fn read_way_out(message: &RouteMessage) -> Option<WayOut> {
    let mut gateway = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(ip)) => gateway = Some((*ip).into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => gateway = Some((*ip).into()),
            _ => {}
        }
    }
    let Route {
        destination,
        metric,
        ..
    } = read_route(message)?;
    Some(WayOut {
        destination,
        interface: output_interface(message)?,
        gateway,
        metric: metric.unwrap_or(0),
    })
}

const ANY_V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
const ANY_V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED);

/// From linux/if_link.h, which the libraries do not name.
const IFLA_TUN_PERSIST: u16 = 6;
