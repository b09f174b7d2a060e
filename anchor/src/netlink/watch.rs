//! Tells that something about the host's network changed, not what: the control loop reads anew
//! what it needs. So a storm of changes costs no memory, and a lost message nothing at all.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use futures_util::StreamExt;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::LinkFlags;
use rtnetlink::packet_route::route::{RouteHeader, RouteMessage};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::read::output_interface;

/// Hears of changes until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    news: Arc<News>,
    tasks: [JoinHandle<()>; 2],
}

impl Watcher {
    /// Listens from now on; `own` is the index of our interface, whose gains are not news.
    ///
    /// # Errors
    /// The kernel refused the socket.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(own: u32) -> io::Result<Self> {
        let (connection, _, mut messages) = rtnetlink::new_multicast_connection(&[
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ])?;
        let news = Arc::new(News::default());
        let heard = news.clone();
        let reader = tokio::spawn(async move {
            while let Some((message, _)) = messages.next().await {
                heard.add(classify(&message, own));
            }
            heard.add(CLOSED);
        });
        Ok(Self {
            news,
            tasks: [tokio::spawn(connection), reader],
        })
    }

    /// Waits for changes and returns all kinds heard of since the last call.
    ///
    /// # Errors
    /// The connection to the kernel broke: nothing will be heard any more.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn changed(&mut self) -> io::Result<Changes> {
        loop {
            let kinds = self.news.kinds.swap(0, Ordering::Relaxed);
            if kinds & CLOSED != 0 {
                self.news.add(CLOSED);
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if kinds != 0 {
                return Ok(Changes {
                    links: kinds & LINKS != 0,
                    addresses: kinds & ADDRESSES != 0,
                    routes: kinds & ROUTES != 0,
                    own: kinds & OWN != 0,
                });
            }
            self.news.bell.notified().await;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// What kinds of things changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Another interface came, went, or changed its state.
    pub links: bool,
    /// An address of another interface came, went, or changed its state.
    pub addresses: bool,
    /// A route by another interface came or went.
    pub routes: bool,
    /// Our interface was deleted or switched off, or lost an address or route; perhaps by us.
    pub own: bool,
}

#[derive(Debug, Default)]
struct News {
    kinds: AtomicU8,
    bell: Notify,
}

impl News {
    fn add(&self, kinds: u8) {
        if kinds != 0 {
            self.kinds.fetch_or(kinds, Ordering::Relaxed);
            self.bell.notify_one();
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's messages are an open set"
)]
fn classify(message: &NetlinkMessage<RouteNetlinkMessage>, own: u32) -> u8 {
    let NetlinkPayload::InnerMessage(message) = &message.payload else {
        // The kernel dropped messages, or sent something else without content: look at all.
        return LINKS | ADDRESSES | ROUTES | OWN;
    };
    let gained = |index, kind| if index == own { 0 } else { kind };
    let lost = |index, kind| if index == own { OWN } else { kind };
    match message {
        RouteNetlinkMessage::NewLink(link) if link.header.index == own => {
            if link.header.flags.contains(LinkFlags::Up) {
                0
            } else {
                OWN
            }
        }
        RouteNetlinkMessage::NewLink(_) => LINKS,
        RouteNetlinkMessage::DelLink(link) => lost(link.header.index, LINKS),
        RouteNetlinkMessage::NewAddress(address) => gained(address.header.index, ADDRESSES),
        RouteNetlinkMessage::DelAddress(address) => lost(address.header.index, ADDRESSES),
        RouteNetlinkMessage::NewRoute(route) if is_main(route) => {
            gained(output_interface(route).unwrap_or(0), ROUTES)
        }
        RouteNetlinkMessage::DelRoute(route) if is_main(route) => {
            lost(output_interface(route).unwrap_or(0), ROUTES)
        }
        _ => 0,
    }
}

/// The local table repeats every change of an address.
fn is_main(route: &RouteMessage) -> bool {
    route.header.table == RouteHeader::RT_TABLE_MAIN
}

const LINKS: u8 = 1;
const ADDRESSES: u8 = 2;
const ROUTES: u8 = 4;
const OWN: u8 = 8;
const CLOSED: u8 = 16;
