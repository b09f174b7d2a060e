//! A flood of handshakes: first flights as an anchor sends them, by the hundred thousand, from
//! one address or from forged ones. Each has a connection id of its own, is properly sealed and
//! asks for all the work that a handshake is.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::anchor::{Anchor, Options};
use crate::host::Host;
use crate::initial::{self, Initial, InitialKeys, Sender};
use crate::lab::Lab;
use crate::wait;

/// The port anchors listen on by default.
const ANCHOR_PORT: u16 = 47_474;

/// Flights kept; each is sent again when all have been. A server that answers by Retry has
/// forgotten it by then, one that does not has long given it up.
const FLIGHTS: usize = 8192;

/// Bytes of an IPv4 and a UDP header.
const HEADER_BYTES: usize = 20 + 8;

/// IPPROTO_RAW: the sender writes the IPv4 header.
const RAW: i32 = 255;

/// The forged sources: a network that is routed to the sender, which drops what comes back.
const FORGED: &str = "10.200.0.0/16";

/// A prepared flood.
pub struct Handshakes {
    host: Host,
    /// Both datagrams of each flight, with room for headers in front.
    datagrams: Arc<Vec<Vec<u8>>>,
}

/// A running flood; ends when told to.
pub struct Sent {
    end: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Duration)>,
}

impl Handshakes {
    /// Adds a host to the lab that has learnt from an anchor what its first flight looks like.
    ///
    /// # Panics
    ///
    /// When no anchor dials it.
    pub fn prepare(lab: &Lab) -> Self {
        let host = lab.host("flood");
        host.ip([format!("route add blackhole {FORGED}")]);
        let hello = client_hello(lab, &host);
        let mut chance = fastrand::Rng::with_seed(9);
        let datagrams = (0..FLIGHTS)
            .flat_map(|_| flight(&hello, &mut chance))
            .map(|datagram| [&[0; HEADER_BYTES][..], &datagram].concat())
            .collect();
        Self {
            host,
            datagrams: Arc::new(datagrams),
        }
    }

    /// Has answers to forged sources sent to the flooding host, as a network would.
    pub fn route_answers(&self, victim: &Host) {
        victim.ip([format!("route add {FORGED} via {}", self.host.ipv4())]);
    }

    /// Begins to send `per_second` datagrams, or as many as the machine gives, to `victim`; from
    /// `sources` addresses, one meaning the host's own.
    ///
    /// # Panics
    ///
    /// When a raw socket cannot be had.
    pub fn start(&self, victim: &Host, per_second: u64, sources: u16) -> Sent {
        let end = Arc::new(AtomicBool::new(false));
        let (stop, datagrams) = (Arc::clone(&end), Arc::clone(&self.datagrams));
        let (own, target) = (self.host.ipv4(), victim.ipv4());
        let thread = self.host.thread("handshakes", move || {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)));
            let socket = socket.expect("root may send what it likes");
            let to = SocketAddr::from((target, 0)).into();
            let mut packet = Vec::new();
            let (began, mut sent) = (Instant::now(), 0_u64);
            while !stop.load(Ordering::Relaxed) {
                let due = began.elapsed().as_micros() as u64 * per_second / 1_000_000;
                if sent >= due {
                    wait::pass(Duration::from_micros(200));
                    continue;
                }
                for _ in 0..(due - sent).min(64) {
                    packet.clone_from(&datagrams[sent as usize % datagrams.len()]);
                    // Both datagrams of a flight come from the same address.
                    let source = match sources {
                        1 => own,
                        many => {
                            let number = (sent / 2 % u64::from(many)) as u16;
                            Ipv4Addr::from(0x0ac8_0000 + u32::from(number))
                        }
                    };
                    let port = 1024 + (sent / 2 % 60_000) as u16;
                    write_headers(&mut packet, SocketAddrV4::new(source, port), target);
                    // A full queue of the network card loses it, as a network would.
                    let _ = socket.send_to(&packet, &to);
                    sent += 1;
                }
            }
            (sent, began.elapsed())
        });
        Sent { end, thread }
    }
}

impl Sent {
    /// Ends the flood; how many datagrams were sent in what time.
    ///
    /// # Panics
    ///
    /// When the sender could not go on.
    pub fn stop(self) -> (u64, Duration) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().expect("the flood ran to its end")
    }
}

/// Returns what an anchor says first when it dials: its connection id and the ClientHello.
fn client_hello(lab: &Lab, host: &Host) -> Initial {
    let socket = host.enter(|| UdpSocket::bind(("0.0.0.0", ANCHOR_PORT)));
    let socket = socket.expect("the port is free");
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a socket can have a limit");
    let flags = format!("--ipv4 none --peer {}:{ANCHOR_PORT}", host.ipv4());
    let _bait = Anchor::start(&lab.host("bait"), &Options::of(&flags));
    let mut buffer = [0; 2048];
    let mut hello: Option<Initial> = None;
    loop {
        let (length, _) = socket.recv_from(&mut buffer).expect("the anchor dials");
        let datagram = &buffer[..length];
        let Some(first) = initial::destination_of(datagram) else {
            continue;
        };
        let Some(opened) = InitialKeys::of(&first, Sender::Client).open(datagram) else {
            continue;
        };
        let known = hello.get_or_insert_with(|| Initial {
            crypto: Vec::new(),
            ..opened.clone()
        });
        if known.destination != opened.destination {
            continue;
        }
        known.crypto.extend(opened.crypto);
        if let Some(whole) = initial::handshake_message(&known.crypto) {
            known.crypto = vec![(0, whole)];
            return known.clone();
        }
    }
}

/// Returns the two datagrams of the same flight under a fresh connection id.
fn flight(hello: &Initial, chance: &mut fastrand::Rng) -> [Vec<u8>; 2] {
    let mut destination = vec![0; 8];
    chance.fill(&mut destination);
    let keys = InitialKeys::of(&destination, Sender::Client);
    let whole = &hello.crypto[0].1;
    let (front, back) = whole.split_at(whole.len().min(1100));
    let pieces = [(0, front.to_vec()), (front.len() as u64, back.to_vec())];
    let mut number = 0;
    pieces.map(|piece| {
        let packet = Initial {
            destination: destination.clone(),
            source: hello.source.clone(),
            token: Vec::new(),
            crypto: vec![piece],
        };
        number += 1;
        keys.seal(&packet, number - 1)
    })
}

/// Writes an IPv4 and a UDP header; the kernel fills in length and checksum of the first, and a
/// datagram over IPv4 may go without one.
fn write_headers(packet: &mut [u8], from: SocketAddrV4, to: Ipv4Addr) {
    let udp_bytes = u16::try_from(packet.len() - 20).expect("it is short");
    packet[0] = 0x45;
    packet[6] = 0x40;
    (packet[8], packet[9]) = (64, 17);
    packet[12..16].copy_from_slice(&from.ip().octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet[20..22].copy_from_slice(&from.port().to_be_bytes());
    packet[22..24].copy_from_slice(&ANCHOR_PORT.to_be_bytes());
    packet[24..26].copy_from_slice(&udp_bytes.to_be_bytes());
    packet[26..28].fill(0);
}
