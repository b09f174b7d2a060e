//! What the machines of the realm run: a service that answers, and the packets of applications.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::packet::testing::{Recipe, TcpRecipe, assert_sound, recipe};
use crate::packet::{Checksum, Packet, TcpFlags, Transport};

pub(super) const SYN: u8 = TcpFlags::SYN.0;
pub(super) const ACK: u8 = TcpFlags::ACK.0;
pub(super) const RST: u8 = TcpFlags::RST.0;
pub(super) const FIN: u8 = TcpFlags::FIN.0;

/// The ports of the services.
pub(super) const HTTP: u16 = 80;
pub(super) const ECHO: u16 = 7;

/// The first number a service sends.
pub(super) const SERVER_FIRST: u32 = u32::MAX - 100;

/// A machine's services: TCP port 80 answers each request by its name, UDP port 7 and pings come
/// back. A segment of an unknown connection is reset, a datagram to another port refused.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: u8,
    pub(super) is_serving: bool,
    open: BTreeSet<(SocketAddr, SocketAddr)>,
    pieces: Vec<Vec<u8>>,
    /// Bytes of each answer on TCP.
    pub(super) answer_bytes: usize,
}

impl Server {
    pub(super) fn new(at: usize) -> Self {
        Self {
            name: at as u8,
            is_serving: true,
            open: BTreeSet::new(),
            pieces: Vec::new(),
            answer_bytes: 10,
        }
    }

    /// Takes a packet from the interface and returns what the machine sends for it.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let packet = assert_sound(bytes, Checksum::Complete);
        if !self.is_serving {
            return Vec::new();
        }
        if packet.fragment.is_some() {
            return self.take_piece(bytes);
        }
        let back = between(packet.destination, packet.source);
        match packet.transport {
            Transport::Tcp(tcp) if tcp.destination_port == HTTP => self.answer_tcp(&packet),
            Transport::Udp(udp) if udp.destination_port == ECHO => {
                let mut payload = bytes[packet.all_header_bytes()..].to_vec();
                payload[0] = self.name;
                let ports = (ECHO, udp.source_port);
                let back = Recipe {
                    dont_fragment: false,
                    ..back
                };
                vec![back.udp(ports, &payload, Checksum::Complete)]
            }
            Transport::Echo(echo) if echo.request => {
                let rest = u32::from(echo.identifier) << 16 | u32::from(echo.sequence);
                vec![back.icmp((0, 0), (129, 0), rest, &[self.name; 8])]
            }
            Transport::Tcp(_)
            | Transport::Udp(_)
            | Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => Vec::new(),
        }
    }

    fn answer_tcp(&mut self, packet: &Packet) -> Vec<Vec<u8>> {
        let Transport::Tcp(tcp) = packet.transport else {
            return Vec::new();
        };
        let here = SocketAddr::new(packet.destination, HTTP);
        let there = SocketAddr::new(packet.source, tcp.source_port);
        let next = tcp.sequence.wrapping_add(tcp.payload_bytes);
        let answer = |sequence, acknowledgment, flags, payload: &[u8]| {
            vec![tcp_packet(
                here,
                there,
                sequence,
                acknowledgment,
                flags,
                payload,
            )]
        };
        if tcp.flags.contains(TcpFlags::RST) {
            self.open.remove(&(here, there));
            return Vec::new();
        }
        if tcp.flags.contains(TcpFlags::SYN) {
            self.open.insert((here, there));
            return answer(SERVER_FIRST, next.wrapping_add(1), SYN | ACK, &[]);
        }
        if !self.open.contains(&(here, there)) {
            return answer(tcp.acknowledgment, 0, RST, &[]);
        }
        if tcp.payload_bytes > 0 {
            let payload = vec![self.name; self.answer_bytes];
            return answer(tcp.acknowledgment, next, ACK, &payload);
        }
        if tcp.flags.contains(TcpFlags::FIN) {
            return answer(tcp.acknowledgment, next.wrapping_add(1), FIN | ACK, &[]);
        }
        Vec::new()
    }

    /// Collects the fragments of a UDP datagram in order, and answers it when it is whole.
    fn take_piece(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.pieces.push(bytes.to_vec());
        let Some(whole) = joined(&self.pieces) else {
            return Vec::new();
        };
        self.pieces.clear();
        self.take(&whole)
    }
}

/// Returns the packet that these fragments are of, when they are all there, in order.
pub(super) fn joined(pieces: &[Vec<u8>]) -> Option<Vec<u8>> {
    let first = pieces.first()?;
    let packet = Packet::parse(first, first.len()).unwrap();
    let last = pieces.last()?;
    let last = Packet::parse(last, last.len()).unwrap();
    if last.fragment?.more {
        return None;
    }
    let mut message = Vec::new();
    for piece in pieces {
        let parsed = Packet::parse(piece, piece.len()).unwrap();
        assert_eq!(usize::from(parsed.fragment?.offset_bytes), message.len());
        message.extend_from_slice(&piece[parsed.header_bytes..]);
    }
    let whole = between(packet.source, packet.destination).wrap(packet.protocol.0, &message);
    assert_sound(&whole, Checksum::Complete);
    Some(whole)
}

pub(super) fn between(source: IpAddr, destination: IpAddr) -> Recipe {
    Recipe {
        source,
        destination,
        ..recipe(source.is_ipv4())
    }
}

pub(super) fn tcp_packet(
    source: SocketAddr,
    destination: SocketAddr,
    sequence: u32,
    acknowledgment: u32,
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let options = if flags & SYN == 0 {
        vec![]
    } else {
        vec![2, 4, 0x05, 0xb4]
    };
    let tcp = TcpRecipe {
        ports: (source.port(), destination.port()),
        sequence,
        acknowledgment,
        flags,
        options,
    };
    between(source.ip(), destination.ip()).tcp(&tcp, payload, Checksum::Complete)
}

pub(super) fn udp_packet(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let ports = (source.port(), destination.port());
    let recipe = Recipe {
        dont_fragment: false,
        ..between(source.ip(), destination.ip())
    };
    recipe.udp(ports, payload, Checksum::Complete)
}

pub(super) fn ping(source: IpAddr, destination: IpAddr, identifier: u16) -> Vec<u8> {
    let rest = u32::from(identifier) << 16 | 1;
    between(source, destination).icmp((8, 0), (128, 0), rest, &[0; 8])
}

pub(super) fn parse(bytes: &[u8]) -> Packet {
    assert_sound(bytes, Checksum::Complete)
}

/// Returns the payload behind all headers.
pub(super) fn payload(bytes: &[u8]) -> &[u8] {
    &bytes[parse(bytes).all_header_bytes()..]
}

pub(super) fn socket(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}
