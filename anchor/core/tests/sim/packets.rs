//! The packets of applications, as a kernel would make and read them. Bytes only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use conflux_core::packet::checksum::{complete_at, pseudo_header, verify, write_ipv4_header};
use conflux_core::packet::{Packet, Protocol};

const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const TCP_BYTES: usize = 20;

pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// The fields of a TCP segment that vary here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: u8,
    /// Whose segment it is in truth, in the one field that nobody on the way looks at.
    pub(crate) window: u16,
}

/// Returns a UDP datagram.
pub(crate) fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let message_bytes = UDP_BYTES + payload.len();
    let mut packet = start(from, to, Protocol::UDP, message_bytes);
    packet[IP_BYTES + 4..IP_BYTES + 6].copy_from_slice(&length_of(message_bytes));
    packet[IP_BYTES + UDP_BYTES..].copy_from_slice(payload);
    finish(packet, from, to, Protocol::UDP, 6)
}

/// Returns a TCP segment without options.
pub(crate) fn tcp(from: SocketAddr, to: SocketAddr, segment: Segment, payload: &[u8]) -> Vec<u8> {
    let mut packet = start(from, to, Protocol::TCP, TCP_BYTES + payload.len());
    let header = &mut packet[IP_BYTES..];
    header[4..8].copy_from_slice(&segment.sequence.to_be_bytes());
    header[8..12].copy_from_slice(&segment.acknowledgment.to_be_bytes());
    header[12] = 5 << 4;
    header[13] = segment.flags;
    header[14..16].copy_from_slice(&segment.window.to_be_bytes());
    header[TCP_BYTES..].copy_from_slice(payload);
    finish(packet, from, to, Protocol::TCP, 16)
}

/// Returns what a packet's headers say; panics when one that the product wrote is not sound.
pub(crate) fn read(bytes: &[u8]) -> Packet {
    let packet = Packet::parse(bytes, bytes.len()).expect("a well-formed packet");
    assert!(verify(bytes, &packet), "a wrong checksum: {packet:?}");
    packet
}

fn start(from: SocketAddr, to: SocketAddr, protocol: Protocol, message_bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; IP_BYTES + message_bytes];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length_of(IP_BYTES + message_bytes));
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = protocol.0;
    packet[12..16].copy_from_slice(&ipv4(from).octets());
    packet[16..20].copy_from_slice(&ipv4(to).octets());
    write_ipv4_header(&mut packet, IP_BYTES);
    packet[IP_BYTES..IP_BYTES + 2].copy_from_slice(&from.port().to_be_bytes());
    packet[IP_BYTES + 2..IP_BYTES + 4].copy_from_slice(&to.port().to_be_bytes());
    packet
}

fn finish(
    mut packet: Vec<u8>,
    from: SocketAddr,
    to: SocketAddr,
    protocol: Protocol,
    checksum_at: usize,
) -> Vec<u8> {
    let pseudo = pseudo_header(from.ip(), to.ip(), protocol, packet.len() - IP_BYTES).fold();
    let place = IP_BYTES + checksum_at;
    packet[place..place + 2].copy_from_slice(&pseudo.to_be_bytes());
    complete_at(&mut packet, IP_BYTES, checksum_at);
    packet
}

fn length_of(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes)
        .expect("packets here are small")
        .to_be_bytes()
}

fn ipv4(at: SocketAddr) -> Ipv4Addr {
    match at.ip() {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => panic!("{address} is IPv6"),
    }
}
