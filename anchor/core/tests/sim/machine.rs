//! What runs on a machine: its services, and the applications that use those of others.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use conflux_core::packet::{Packet, Transport};
use conflux_core::time::Mono;

use crate::packets::{read, udp};
use crate::tcp::{self, Dialogue};

/// The service that sends each datagram back, with its number in it.
pub(crate) const ECHO: u16 = 7;
/// The service that takes datagrams and says nothing.
pub(crate) const SINK: u16 = 9;
/// The service that answers requests on TCP connections.
pub(crate) const HTTP: u16 = 80;

/// What an application does.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Sends datagrams to which nothing comes back.
    OneWay,
    /// Asks and is answered by a datagram.
    Request,
    /// Asks on a TCP connection, and opens another when that is reset.
    Tcp(Dialogue),
}

/// An application of one host.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) from: SocketAddr,
    pub(crate) to: IpAddr,
    pub(crate) work: Work,
    pub(crate) gap: Duration,
    pub(crate) is_on: bool,
    /// When the last answer came, and from whom.
    pub(crate) answered: Option<(Mono, u8)>,
}

/// What a packet from the interface meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// A client's host asked a service here.
    Request {
        /// Where it seems to come from.
        client: IpAddr,
        /// Whose host it is in truth.
        who: Who,
    },
    /// A service answered an application here.
    Answer {
        /// The host that asked.
        host: IpAddr,
        /// The address that was asked.
        far: IpAddr,
        /// Who answered in truth.
        server: u8,
    },
    /// A TCP connection of an application here was reset.
    Reset,
    /// Nothing the model asks about.
    Other,
}

/// A host: its anchor's number and the last byte of its address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Who {
    pub(crate) anchor: u8,
    pub(crate) host: u8,
}

/// The services and applications of one machine, and of the LAN behind it.
#[derive(Debug)]
pub(crate) struct Machine {
    number: u8,
    pub(crate) is_serving: bool,
    pub(crate) apps: Vec<App>,
    server: tcp::Server,
}

impl Machine {
    pub(crate) fn new(number: usize) -> Self {
        let number = u8::try_from(number).expect("few anchors");
        Self {
            number,
            is_serving: true,
            apps: Vec::new(),
            server: tcp::Server::new(number),
        }
    }

    /// Takes a packet from the interface; returns what it meant and what the machine sends for it.
    pub(crate) fn take(&mut self, now: Mono, bytes: &[u8]) -> (Seen, Vec<Vec<u8>>) {
        let packet = read(bytes);
        let payload = &bytes[packet.all_header_bytes()..];
        match packet.transport {
            Transport::Udp(udp) if udp.destination_port == SINK => {
                (self.request(&packet, payload), Vec::new())
            }
            Transport::Udp(udp) if udp.destination_port == ECHO && self.is_serving => {
                let seen = self.request(&packet, payload);
                (seen, self.echo(&packet, udp.source_port, payload))
            }
            Transport::Udp(udp) if udp.source_port == ECHO => {
                (self.answer(now, &packet, payload), Vec::new())
            }
            Transport::Tcp(tcp) if tcp.destination_port == HTTP => {
                let answers = self
                    .server
                    .take(now, &packet, &tcp, payload, self.is_serving);
                (self.request(&packet, &who_of(tcp.window)), answers)
            }
            Transport::Tcp(tcp) if tcp.source_port == HTTP => {
                let to = SocketAddr::new(packet.destination, tcp.destination_port);
                let far = packet.source;
                let own = |app: &&mut App| app.from == to && app.to == far;
                let Some(app) = self.apps.iter_mut().find(own) else {
                    return (Seen::Other, Vec::new());
                };
                let Work::Tcp(dialogue) = &mut app.work else {
                    return (Seen::Other, Vec::new());
                };
                let (seen, answers) = dialogue.take(now, app.from, app.to, &tcp, payload);
                if let Seen::Answer { server, .. } = seen {
                    app.answered = Some((now, server));
                }
                (seen, answers)
            }
            Transport::Tcp(_)
            | Transport::Udp(_)
            | Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => (Seen::Other, Vec::new()),
        }
    }

    /// Returns the packets application `at` sends now, and when it wants to go on.
    pub(crate) fn work(&mut self, now: Mono, at: usize) -> (Vec<Vec<u8>>, Option<Mono>) {
        let number = self.number;
        let app = &mut self.apps[at];
        if !app.is_on {
            return (Vec::new(), None);
        }
        let payload = [number, last_byte(app.from.ip())];
        let next = Some(now + app.gap);
        match &mut app.work {
            Work::OneWay => (
                vec![udp(app.from, SocketAddr::new(app.to, SINK), &payload)],
                next,
            ),
            Work::Request => (
                vec![udp(app.from, SocketAddr::new(app.to, ECHO), &payload)],
                next,
            ),
            Work::Tcp(dialogue) => {
                let (packets, next) = dialogue.work(now, &mut app.from, app.to, &payload, app.gap);
                (packets, Some(next))
            }
        }
    }

    fn request(&self, packet: &Packet, payload: &[u8]) -> Seen {
        match payload {
            [anchor, host, ..] => Seen::Request {
                client: packet.source,
                who: Who {
                    anchor: *anchor,
                    host: *host,
                },
            },
            _ => Seen::Other,
        }
    }

    fn echo(&self, packet: &Packet, port: u16, payload: &[u8]) -> Vec<Vec<u8>> {
        let from = SocketAddr::new(packet.destination, ECHO);
        let to = SocketAddr::new(packet.source, port);
        let mut answer = payload.to_vec();
        answer.push(self.number);
        vec![udp(from, to, &answer)]
    }

    fn answer(&mut self, now: Mono, packet: &Packet, payload: &[u8]) -> Seen {
        let Some(&server) = payload.get(2) else {
            return Seen::Other;
        };
        let (host, far) = (packet.destination, packet.source);
        for app in &mut self.apps {
            if app.from.ip() == host && app.to == far {
                app.answered = Some((now, server));
            }
        }
        Seen::Answer { host, far, server }
    }
}

/// Returns whose segment has this window; nothing for one that an anchor made.
fn who_of(window: u16) -> Vec<u8> {
    match window.to_be_bytes() {
        [0, _] => Vec::new(),
        [anchor, host] => vec![anchor - 1, host],
    }
}

pub(crate) fn last_byte(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    }
}
