//! The realm most tests share: some holders of 10.128.0.9 with every service on them, some
//! clients, one of which may carry a LAN with any number of hosts.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::anchor::{Anchor, Options};
use crate::host::Host;
use crate::lab::Lab;
use crate::wait;
use crate::work::{self, HttpServer, TcpService, UdpService, UdpSink};

/// The address the holders share.
pub const SHARED: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 9);

/// The network of [`SHARED`], as `routes` prints it.
pub const SHARED_NETWORK: &str = "10.128.0.9/32";

/// Ports of every holder's services.
pub mod port {
    /// HTTP that answers the holder's name.
    pub const HTTP: u16 = 80;
    /// The same again.
    pub const HTTP_TOO: u16 = 81;
    /// TCP that echoes.
    pub const ECHO: u16 = 7;
    /// UDP that answers the holder's name and the datagram.
    pub const WHO: u16 = 70;
    /// TCP that greets and never says another word.
    pub const SILENT: u16 = 90;
    /// TCP that sends without end.
    pub const ENDLESS: u16 = 19;
    /// TCP that gives and takes bytes with a checksum.
    pub const TRANSFER: u16 = 21;
    /// UDP that streams to whoever asks.
    pub const STREAM: u16 = 20;
    /// UDP that only takes.
    pub const SINK: u16 = 9;
}

/// One way between any two hosts of a realm with LANs.
const EQUAL_DISTANCE: Duration = Duration::from_millis(5);

/// Long enough for a realm to find together on a busy machine.
pub const SETTLE_LIMIT: Duration = Duration::from_secs(20);

/// Longer than any answer takes in a whole network.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A holder and its services.
pub struct Holder {
    /// The machine.
    pub host: Host,
    /// Its anchor.
    pub anchor: Anchor,
    /// Port 80.
    pub http: HttpServer,
    /// Port 9 of UDP.
    pub sink: UdpSink,
    _http_too: HttpServer,
    _tcp: [TcpService; 4],
    _udp: [UdpService; 2],
}

/// A client; its anchor holds nothing.
pub struct Client {
    /// The machine.
    pub host: Host,
    /// Its anchor.
    pub anchor: Anchor,
    /// The machine on the LAN behind it, when it has one.
    pub lan: Option<Lan>,
}

/// A machine that stands for a whole LAN behind a client.
pub struct Lan {
    /// The machine; every address of the LAN is its own.
    pub host: Host,
    /// What is offered with `--subnet`.
    pub network: ipnet::Ipv4Net,
}

/// Who takes part in a realm.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many holders, named `a`, `b`, `c`, …
    pub holders: usize,
    /// How many clients, named `p`, `q`, …
    pub clients: usize,
    /// How many of the clients, from the first, carry a LAN: 10.50.0.0/16, 10.51.0.0/16, …
    pub lans: usize,
}

/// A running realm. The first holder made it; the others joined by its ticket.
pub struct Realm {
    /// The holders, first the realm's maker.
    pub holders: Vec<Holder>,
    /// The clients.
    pub clients: Vec<Client>,
    /// The network.
    pub lab: Lab,
    /// A ticket that lets more in.
    pub ticket: String,
}

impl Holder {
    /// Starts a holder of [`SHARED`] and its services on `host`.
    ///
    /// # Panics
    ///
    /// As [`Anchor::start`].
    pub fn start(host: &Host, ticket: Option<&str>) -> Self {
        let mut options = Options::of("--ipv4 10.128.0.9");
        options.join = ticket.map(str::to_owned);
        Self::start_with(host, &options)
    }

    /// As [`Self::start`], with other options.
    ///
    /// # Panics
    ///
    /// As [`Anchor::start`].
    pub fn start_with(host: &Host, options: &Options) -> Self {
        /// A download of 16 Mbit/s: never silent, and cheap.
        const ENDLESS_BYTES_PER_SECOND: usize = 2_000_000;
        /// Longer than any failure is watched.
        const STREAM_TIME: Duration = Duration::from_secs(60);
        let name = host.name();
        Self {
            anchor: Anchor::start(host, options),
            http: HttpServer::start(host, port::HTTP, name),
            sink: UdpSink::start(host, port::SINK),
            _http_too: HttpServer::start(host, port::HTTP_TOO, name),
            _tcp: [
                TcpService::echo(host, port::ECHO),
                TcpService::silent(host, port::SILENT),
                TcpService::endless(host, port::ENDLESS, ENDLESS_BYTES_PER_SECOND),
                work::serve_transfers(host, port::TRANSFER),
            ],
            _udp: [
                UdpService::echo(host, port::WHO, name),
                UdpService::stream(host, port::STREAM, STREAM_TIME),
            ],
            host: host.clone(),
        }
    }
}

impl Client {
    /// Starts a client without a LAN.
    ///
    /// # Panics
    ///
    /// As [`Anchor::start`].
    pub fn start(host: &Host, ticket: &str) -> Self {
        Self {
            anchor: Anchor::start(host, &Options::default().joining(ticket)),
            host: host.clone(),
            lan: None,
        }
    }

    /// Starts a client that carries LAN number `number`.
    ///
    /// # Panics
    ///
    /// As [`Anchor::start`].
    pub fn with_lan(lab: &Lab, host: &Host, number: usize, ticket: &str) -> Self {
        let name = format!("lan-of-{}", host.name());
        let network = format!("10.{}.0.0/16", 50 + number)
            .parse()
            .expect("a network");
        let near = "192.168.50.0/24".parse().expect("a network");
        let machine = lab.lan(host, &name, near);
        machine.own_range(network);
        host.ip([format!("route add {network} via 192.168.50.1")]);
        let options = Options::of(&format!("--subnet {network}")).joining(ticket);
        Self {
            anchor: Anchor::start(host, &options),
            host: host.clone(),
            lan: Some(Lan {
                host: machine,
                network,
            }),
        }
    }

    /// Asks the shared address over HTTP.
    ///
    /// # Errors
    ///
    /// As the connection fails.
    pub fn get(&self) -> std::io::Result<String> {
        work::get(&self.host, None, at(port::HTTP), ANSWER_LIMIT)
    }

    /// Returns the full id of the holder of this machine's own flow to the shared address.
    pub fn holder_id(&self) -> Option<String> {
        let own = |flow: &crate::anchor::FlowRow| {
            flow.host.is_none() && flow.destination == IpAddr::V4(SHARED)
        };
        self.anchor.flows().into_iter().find(own)?.holder
    }

    /// Returns the holders of all flows to the shared address, by client host.
    pub fn holders_of_flows(&self) -> BTreeMap<Option<IpAddr>, Option<String>> {
        let flows = self.anchor.flows().into_iter();
        flows
            .filter(|flow| flow.destination == IpAddr::V4(SHARED))
            .map(|flow| (flow.host, flow.holder))
            .collect()
    }
}

impl Lan {
    /// Returns `count` addresses of the LAN, the first being number `from`.
    pub fn addresses(&self, from: u32, count: u32) -> Vec<IpAddr> {
        let base = u32::from(self.network.network());
        (from..from + count)
            .map(|number| IpAddr::V4(Ipv4Addr::from(base + number)))
            .collect()
    }

    /// Asks the shared address once from each source: who answered.
    ///
    /// # Panics
    ///
    /// When one is not answered.
    pub fn who_answers(&self, sources: &[IpAddr]) -> Vec<String> {
        /// Enough to keep the far ways full.
        const AT_ONCE: usize = 16;
        work::ask_udp_from_each(&self.host, sources, at(port::WHO), AT_ONCE, ANSWER_LIMIT)
            .into_iter()
            .zip(sources)
            .map(|(answer, source)| answer.unwrap_or_else(|error| panic!("{source}: {error}")))
            .collect()
    }
}

impl Plan {
    /// Three holders and two clients.
    pub fn usual() -> Self {
        Self {
            holders: 3,
            clients: 2,
            lans: 0,
        }
    }

    /// So many of each.
    pub fn of(holders: usize, clients: usize) -> Self {
        Self {
            holders,
            clients,
            lans: 0,
        }
    }

    /// Adds the LAN behind the first client.
    #[must_use]
    pub fn with_lan(mut self) -> Self {
        self.lans = 1;
        self
    }
}

impl Realm {
    /// Starts a realm and waits until every client can use every holder.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn start(plan: &Plan) -> Self {
        Self::start_in(Lab::new(), plan)
    }

    /// As [`Self::start`], in a lab made before.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn start_in(lab: Lab, plan: &Plan) -> Self {
        if plan.lans > 0 {
            // Many flows are drawn by cost: holders at an equal distance, beside which the noise
            // of a busy machine is small, get equal shares.
            lab.everywhere().change(|way| way.delay = EQUAL_DISTANCE);
        }
        let mut names = ('a'..='o').map(String::from);
        let mut holders: Vec<Holder> = Vec::new();
        let mut ticket = None;
        for name in names.by_ref().take(plan.holders) {
            let holder = Holder::start(&lab.host(&name), ticket.as_deref());
            ticket.get_or_insert_with(|| holder.anchor.invite("--advertise any"));
            holders.push(holder);
        }
        let ticket = ticket.expect("a realm has a holder");
        let clients = ('p'..='z')
            .take(plan.clients)
            .enumerate()
            .map(|(place, name)| {
                let host = lab.host(&name.to_string());
                if place < plan.lans {
                    Client::with_lan(&lab, &host, place, &ticket)
                } else {
                    let anchor = Anchor::start(&host, &Options::default().joining(&ticket));
                    Client {
                        host,
                        anchor,
                        lan: None,
                    }
                }
            });
        let clients = clients.collect();
        let realm = Self {
            holders,
            clients,
            lab,
            ticket,
        };
        realm.settle();
        realm
    }

    /// Waits until every client sees every running holder connected, measured and not failed.
    ///
    /// # Panics
    ///
    /// When that takes too long.
    pub fn settle(&self) {
        let running = self
            .holders
            .iter()
            .filter(|holder| holder.anchor.is_running());
        let mut wanted: Vec<&str> = running.map(|holder| holder.anchor.id()).collect();
        wanted.sort_unstable();
        for client in &self.clients {
            let what = format!("{} to see the holders", client.host.name());
            wait::until_equal(SETTLE_LIMIT, &what, &wanted.len(), || {
                let peers = client.anchor.peers();
                let usable = peers.iter().filter(|peer| {
                    wanted.contains(&peer.anchor.as_str())
                        && peer.state == "connected"
                        && peer.data == Some(true)
                        && peer.rtt_micros.is_some()
                        && !peer.failed
                });
                usable.count()
            });
            wait::until(
                SETTLE_LIMIT,
                "the shared network's holders in `routes`",
                || {
                    let row = client.anchor.route(SHARED_NETWORK);
                    row.is_some_and(|row| {
                        wanted.iter().all(|id| row.via.iter().any(|via| via == id))
                    })
                },
            );
        }
    }

    /// Returns the place of the holder with this host name.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn place_of(&self, name: &str) -> usize {
        let place = self
            .holders
            .iter()
            .position(|holder| holder.host.name() == name);
        place.unwrap_or_else(|| panic!("no holder named {name}"))
    }

    /// Returns the host name of the holder with this id.
    pub fn name_of(&self, id: &str) -> &str {
        let holder = self.holders.iter().find(|holder| holder.anchor.id() == id);
        holder.map_or("nobody", |holder| holder.host.name())
    }
}

/// Returns the shared address with a port.
pub fn at(port: u16) -> SocketAddr {
    SocketAddr::new(SHARED.into(), port)
}
