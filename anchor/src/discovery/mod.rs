//! Finding members of the realm on the machine's own links, by multicast DNS: a task with one socket
//! for each family, on the port that all such programs share. When to send and what to believe is
//! `core::discovery`'s; who is a member shows the connection that follows.
//!
//! A place to knock is the address a message came from, with the port it names: whoever lies can
//! send this anchor to nobody but himself.

mod message;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use conflux_core::discovery::{self, Send};
use conflux_core::time::Mono;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{debug, info};

use crate::clock;
use message::{Heard, MAX_BYTES, Names};

/// The port and groups of multicast DNS (RFC 6762 section 3).
const PORT: u16 = 5353;
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);

/// Places the control loop has not taken yet; more are dropped, and heard again.
const UNTAKEN: usize = 8;

/// Cards listened on; a machine with more listens on the first.
const MAX_LINKS: usize = 32;

/// What the task is to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The machine's own addresses and the cards that carry them.
    pub(crate) addresses: Vec<(u32, IpAddr)>,
    /// Nobody is connected.
    pub(crate) is_lonely: bool,
}

/// The running task; ends when dropped.
pub(crate) struct Discovery {
    wanted: watch::Sender<Wanted>,
    found: mpsc::Receiver<SocketAddr>,
    task: JoinHandle<()>,
}

impl Discovery {
    /// Starts to look for anchors of the realm with this beacon, and to tell of this one, which
    /// listens at `ports` (IPv4, IPv6). A family that cannot be used is left out.
    ///
    /// Needs a tokio runtime around it.
    pub(crate) fn start(
        beacon: &str,
        ports: [Option<u16>; 2],
        wanted: Wanted,
        mut random: fastrand::Rng,
    ) -> Self {
        let start: String = std::iter::repeat_with(|| random.lowercase())
            .take(16)
            .collect();
        let state = discovery::Discovery::new(clock::mono(), random.u64(..));
        let [v4, v6] = ports;
        let sockets = [
            v4.and_then(|port| Link::open(Ipv4Addr::UNSPECIFIED.into(), port)),
            v6.and_then(|port| Link::open(Ipv6Addr::UNSPECIFIED.into(), port)),
        ];
        let (wanted, changes) = watch::channel(wanted);
        let (tell, found) = mpsc::channel(UNTAKEN);
        let task = Task {
            names: Names::new(beacon, &start),
            state,
            links: sockets.into_iter().flatten().collect(),
            wanted: Wanted::default(),
            tell,
        };
        Self {
            wanted,
            found,
            task: tokio::spawn(task.run(changes)),
        }
    }

    /// Tells what has changed; nothing happens when nothing has.
    pub(crate) fn want(&self, wanted: Wanted) {
        self.wanted.send_if_modified(|current| {
            let has_changed = *current != wanted;
            if has_changed {
                *current = wanted;
            }
            has_changed
        });
    }

    /// Waits for a place where an anchor of the realm may be.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn found(&mut self) -> SocketAddr {
        match self.found.recv().await {
            Some(place) => place,
            // The task has ended: nothing will be found any more.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The socket of one family.
struct Link {
    socket: UdpSocket,
    /// Where our own anchor listens.
    port: u16,
    group: SocketAddr,
    joined: Vec<(u32, IpAddr)>,
}

struct Task {
    names: Names,
    state: discovery::Discovery,
    links: Vec<Link>,
    wanted: Wanted,
    tell: mpsc::Sender<SocketAddr>,
}

impl Task {
    async fn run(mut self, mut changes: watch::Receiver<Wanted>) {
        changes.mark_changed();
        let mut buffers = [[0; MAX_BYTES + 1]; 2];
        loop {
            let now = clock::mono();
            while let Some(send) = self.state.poll_send(now) {
                self.send(send);
            }
            let wait = self.state.poll_timeout();
            let wait = if wait > now {
                wait.since(now)
            } else {
                Duration::ZERO
            };
            let [first, second] = &mut buffers;
            let heard = tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.follow(changes.borrow_and_update().clone());
                    continue;
                }
                () = sleep(wait) => continue,
                heard = receive(self.links.first(), first) => (heard, 0),
                heard = receive(self.links.get(1), second) => (heard, 1),
            };
            match heard {
                (Ok((length, from)), at) => self.hear(clock::mono(), &buffers[at][..length], from),
                (Err(error), _) => debug!(%error, "no message of discovery was received"),
            }
        }
    }

    fn follow(&mut self, wanted: Wanted) {
        let now = clock::mono();
        self.state.set_lonely(now, wanted.is_lonely);
        if wanted.addresses != self.wanted.addresses {
            for link in &mut self.links {
                link.join(&wanted.addresses);
            }
            self.state.handle_moved(now);
        }
        self.wanted = wanted;
    }

    fn hear(&mut self, now: Mono, message: &[u8], from: SocketAddr) {
        // Others than members of the group are not on the link (RFC 6762 section 11), and answers
        // come from its port.
        if from.port() != PORT {
            return;
        }
        match self.names.read(message) {
            Some(Heard::Question) => self.state.handle_question(now),
            Some(Heard::Answer(port)) => {
                let place = with_port(from, port);
                let is_own = self
                    .wanted
                    .addresses
                    .iter()
                    .any(|(_, own)| *own == from.ip())
                    && self.links.iter().any(|link| link.port == port);
                if !is_own && self.state.handle_answer(now, place) {
                    // Full: it will be heard again.
                    let _ = self.tell.try_send(place);
                }
            }
            None => {}
        }
    }

    fn send(&self, send: Send) {
        for link in &self.links {
            let own = self.wanted.addresses.iter().map(|(_, address)| *address);
            let message = match send {
                Send::Question => self.names.question(),
                Send::Answer => self.names.answer(link.port, &own.collect::<Vec<_>>()),
            };
            if let Some(message) = message {
                link.send(&message);
            }
        }
    }
}

impl Link {
    fn open(any: IpAddr, port: u16) -> Option<Self> {
        let group = match any {
            IpAddr::V4(_) => (GROUP_V4, PORT).into(),
            IpAddr::V6(_) => (GROUP_V6, PORT).into(),
        };
        match bind(SocketAddr::new(any, PORT)) {
            Ok(socket) => Some(Self {
                socket,
                port,
                group,
                joined: Vec::new(),
            }),
            Err(error) => {
                info!(%error, %any, "anchors on the same link are not looked for over this family");
                None
            }
        }
    }

    /// Listens on the cards of these addresses from now on, and no others.
    fn join(&mut self, addresses: &[(u32, IpAddr)]) {
        let socket = socket2::SockRef::from(&self.socket);
        for (card, address) in self.joined.drain(..) {
            // Fails when the card has gone, and the membership with it.
            let _ = match address {
                IpAddr::V4(address) => socket.leave_multicast_v4(&GROUP_V4, &address),
                IpAddr::V6(_) => socket.leave_multicast_v6(&GROUP_V6, card),
            };
        }
        let is_v4 = self.group.is_ipv4();
        for &(card, address) in addresses.iter().filter(|(_, own)| own.is_ipv4() == is_v4) {
            if self.joined.len() >= MAX_LINKS || self.joined.iter().any(|(one, _)| *one == card) {
                continue;
            }
            let joined = match address {
                IpAddr::V4(address) => socket.join_multicast_v4(&GROUP_V4, &address),
                IpAddr::V6(_) => socket.join_multicast_v6(&GROUP_V6, card),
            };
            match joined {
                Ok(()) => self.joined.push((card, address)),
                Err(error) => debug!(%error, card, "a card takes no part in discovery"),
            }
        }
    }

    /// Sends by every card. What a full buffer or a card without a cable loses is sent again later.
    fn send(&self, message: &[u8]) {
        let socket = socket2::SockRef::from(&self.socket);
        for (card, address) in &self.joined {
            let chosen = match address {
                IpAddr::V4(address) => socket.set_multicast_if_v4(address),
                IpAddr::V6(_) => socket.set_multicast_if_v6(*card),
            };
            let sent = chosen.and_then(|()| socket.send_to(message, &self.group.into()));
            if let Err(error) = sent {
                debug!(%error, card, "a message of discovery was not sent");
            }
        }
    }
}

async fn receive(link: Option<&Link>, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    match link {
        Some(link) => link.socket.recv_from(buffer).await,
        None => std::future::pending().await,
    }
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    // Other programs of the machine listen there too.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_multicast_hops_v6(255)?;
    } else {
        socket.set_multicast_ttl_v4(255)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

fn with_port(address: SocketAddr, port: u16) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => (*v4.ip(), port).into(),
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), port, 0, v6.scope_id()).into(),
    }
}
