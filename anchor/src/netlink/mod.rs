//! The host's network as the kernel tells it, and our own interface in it.
//!
//! [`Interface`] makes the kernel agree with what is wanted by asking it what is there and
//! changing the difference: so it mends what others broke, and doing it twice does nothing.
//! [`Watcher`] says when to look again. Nothing here decides which networks may be routed; but a
//! route of another interface is never replaced. All of it needs a tokio runtime, and acts in
//! the network namespace of the thread that called [`Netlink::connect`].

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use futures_util::{Stream, TryStreamExt};
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};

mod host;
mod interface;
mod read;
mod watch;

pub use host::{forwards_ipv4, forwards_ipv6, has_ipv6};
pub use interface::{Interface, Route, RouteFault};
pub use watch::{Changes, Watcher};

use read::{destination, output_interface, read_address, read_link, read_way_out};

/// A connection to the kernel's routing tables; clones share it.
#[derive(Clone, Debug)]
pub struct Netlink {
    handle: rtnetlink::Handle,
}

impl Netlink {
    /// Connects, and leaves a task on the current runtime that ends with the last clone.
    ///
    /// # Errors
    /// The kernel refused the socket.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn connect() -> io::Result<Self> {
        // Strict checking (Linux 4.20) lets the kernel pick the routes of one interface, which
        // matters on a router with a full table.
        let (connection, handle, _) = rtnetlink::new_connection_with_strict_check()
            .or_else(|_| rtnetlink::new_connection())?;
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    /// Deletes the interface `name` when it is one that a process left behind: a persistent TUN
    /// that nobody holds open. Returns whether there was one. Ours are never persistent, so this
    /// is for what other hands made.
    ///
    /// # Errors
    /// The kernel refused; the interface is still there.
    pub async fn remove_leftover(&self, name: &str) -> Result<bool, Error> {
        let Some(link) = self.find_link(name).await? else {
            return Ok(false);
        };
        if !link.is_abandoned_tun {
            return Ok(false);
        }
        let deleted = self.handle.link().del(link.index).execute().await;
        deleted.map_err(failed("delete a leftover interface"))?;
        Ok(true)
    }

    /// Returns our interface's hand.
    pub fn interface(&self, index: u32) -> Interface {
        Interface::new(self.clone(), index)
    }

    /// Returns the interface of that name, if there is one.
    ///
    /// # Errors
    /// The kernel refused the question.
    pub async fn find_link(&self, name: &str) -> Result<Option<Link>, Error> {
        Ok(self
            .links()
            .await?
            .into_iter()
            .find(|link| link.name == name))
    }

    /// Returns all interfaces of the host.
    ///
    /// # Errors
    /// The kernel refused the question.
    pub async fn links(&self) -> Result<Vec<Link>, Error> {
        let links = collect(self.handle.link().get().execute());
        Ok(links
            .await
            .map_err(failed("list interfaces"))?
            .iter()
            .filter_map(read_link)
            .collect())
    }

    /// Returns all addresses of the host.
    ///
    /// # Errors
    /// The kernel refused the question.
    pub async fn addresses(&self) -> Result<Vec<Address>, Error> {
        let addresses = collect(self.handle.address().get().execute()).await;
        Ok(addresses
            .map_err(failed("list addresses"))?
            .iter()
            .filter_map(read_address)
            .collect())
    }

    /// Returns the networks this host reaches without a gateway by any interface but `except`
    /// and loopback: those that are nobody else's to route. Without host addresses of its own,
    /// default routes, link-local and multicast ones.
    ///
    /// # Errors
    /// The kernel refused the question.
    pub async fn connected_networks(&self, except: u32) -> Result<BTreeSet<IpNet>, Error> {
        let links = self.links().await?;
        let loopback: BTreeSet<u32> = links
            .iter()
            .filter(|link| link.is_loopback)
            .map(|link| link.index)
            .collect();
        let is_other = |index| index != except && !loopback.contains(&index);

        let mut networks = BTreeSet::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            for message in self.routes(family, None).await? {
                let attributes = &message.attributes;
                let has_gateway = attributes.iter().any(|attribute| {
                    matches!(
                        attribute,
                        RouteAttribute::Gateway(_) | RouteAttribute::Via(_)
                    )
                });
                if has_gateway || !output_interface(&message).is_some_and(is_other) {
                    continue;
                }
                networks.extend(destination(&message).filter(is_routable));
            }
        }
        Ok(networks)
    }

    /// Returns the ways out of this host: the unicast routes of the main table by any interface
    /// but `except` that can carry something, in no order of preference.
    ///
    /// # Errors
    /// The kernel refused the question.
    pub async fn ways_out(&self, except: u32) -> Result<BTreeSet<WayOut>, Error> {
        let links = self.links().await?;
        let usable: BTreeSet<u32> = links
            .iter()
            .filter(|link| link.index != except && !link.is_loopback && link.is_running)
            .map(|link| link.index)
            .collect();
        let mut ways = BTreeSet::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let routes = self.routes(family, None).await?;
            let read = routes.iter().filter_map(read_way_out);
            ways.extend(read.filter(|way| usable.contains(&way.interface)));
        }
        Ok(ways)
    }

    /// Returns the unicast routes of the main table, those of one interface only if one is given.
    async fn routes(
        &self,
        family: AddressFamily,
        interface: Option<u32>,
    ) -> Result<Vec<RouteMessage>, Error> {
        let mut question = RouteMessage::default();
        question.header.address_family = family;
        question
            .attributes
            .extend(interface.map(RouteAttribute::Oif));

        let routes = match collect(self.handle.route().get(question).execute()).await {
            Ok(routes) => routes,
            Err(error) => {
                let error = failed("list routes")(error);
                // A namespace without any route has no table yet, a kernel without IPv6 no
                // family to ask.
                let is_empty = matches!(error.errno(), Some(libc::ENOENT | libc::EAFNOSUPPORT));
                return if is_empty { Ok(Vec::new()) } else { Err(error) };
            }
        };
        let is_wanted = |message: &RouteMessage| {
            message.header.address_family == family
                && message.header.table == RouteHeader::RT_TABLE_MAIN
                && message.header.kind == RouteType::Unicast
                && interface.is_none_or(|index| output_interface(message) == Some(index))
        };
        Ok(routes.into_iter().filter(is_wanted).collect())
    }
}

/// An interface of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The largest packet it takes; 0 where the kernel does not say.
    pub mtu_bytes: u32,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it can carry something: switched on, and the far end of its cable is there.
    pub is_running: bool,
    /// Whether it is the host's way to itself.
    pub is_loopback: bool,
    /// Whether it is a persistent TUN that no process holds open.
    pub is_abandoned_tun: bool,
}

/// An address of this host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address {
    /// The interface that carries it.
    pub interface: u32,
    /// The address and the length of its network's prefix.
    pub network: IpNet,
    /// Whether it can be sent from and is meant to be: not tentative, duplicate or deprecated.
    pub is_usable: bool,
    /// Whether it is one the kernel changes by and by (RFC 8981).
    pub is_temporary: bool,
}

/// One way out of this host: enough of a route to tell that packets take another one now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WayOut {
    /// Where to.
    pub destination: IpNet,
    /// By which interface.
    pub interface: u32,
    /// The router in between.
    pub gateway: Option<IpAddr>,
    /// The smaller one of two to one destination is used.
    pub metric: u32,
}

/// What the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("could not {doing}: {source}")]
pub struct Error {
    /// What was being tried.
    pub doing: &'static str,
    /// The kernel's answer.
    pub source: io::Error,
}

impl Error {
    /// Returns the kernel's number for the fault.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

fn failed(doing: &'static str) -> impl Fn(rtnetlink::Error) -> Error {
    move |error| {
        let source = if let rtnetlink::Error::NetlinkError(message) = error {
            message.to_io()
        } else {
            io::Error::other(error.to_string())
        };
        Error { doing, source }
    }
}

async fn collect<T>(
    answers: impl Stream<Item = Result<T, rtnetlink::Error>>,
) -> Result<Vec<T>, rtnetlink::Error> {
    std::pin::pin!(answers).try_collect().await
}

/// Leaves out what no anchor can hold anyway.
fn is_routable(network: &IpNet) -> bool {
    let is_local = match network.addr() {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_multicast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_multicast(),
    };
    network.prefix_len() > 0 && !is_local
}

#[cfg(test)]
mod tests;
