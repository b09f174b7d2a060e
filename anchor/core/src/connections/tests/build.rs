//! A table with a clock, and the packets the tests put through it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::connections::*;
use crate::ids::FlowTag;
use crate::packet::{IcmpError, Inner, TcpFlags, Udp};

pub(super) const FLOW: FlowId = FlowId(3);
pub(super) const TAG: FlowTag = FlowTag(3_000);
pub(super) const ORIGIN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 2));
pub(super) const OTHER_ORIGIN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 1, 1));
pub(super) const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 128, 0, 9));

pub(super) const FIN: u8 = TcpFlags::FIN.0;
pub(super) const SYN: u8 = TcpFlags::SYN.0;
pub(super) const RST: u8 = TcpFlags::RST.0;
pub(super) const ACK: u8 = TcpFlags::ACK.0;

const HOST_PORT: u16 = 40_000;
const FAR_PORT: u16 = 80;

pub(super) struct Table {
    pub(super) connections: Connections,
    pub(super) now: Now,
    pub(super) flow: FlowId,
    pub(super) origin: IpAddr,
    pub(super) host_port: u16,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            connections: Connections::new(Limits::default(), 7),
            now: Now::default() + Duration::from_secs(1000),
            flow: FLOW,
            origin: ORIGIN,
            host_port: HOST_PORT,
        }
    }
}

impl Table {
    pub(super) fn advance(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub(super) fn key(&self) -> ConnectionKey {
        ConnectionKey {
            flow: self.flow,
            wire: WireKey {
                host_port: self.host_port,
                ..key().wire
            },
        }
    }

    /// Opens a connection; its first payload has the numbers after these.
    pub(super) fn open(&mut self, first: u32, far_first: u32) {
        self.syn(first);
        self.inbound(far_first, first.wrapping_add(1), SYN | ACK, 0);
        self.outbound(first.wrapping_add(1), far_first.wrapping_add(1), ACK, 0);
    }

    pub(super) fn syn(&mut self, sequence: u32) -> Outbound {
        let bytes = syn_bytes(sequence, 0);
        let packet = Packet::parse(&bytes, bytes.len()).unwrap();
        let key = self.key();
        self.connections
            .note_outbound(self.now, key, self.origin, &packet, &bytes)
    }

    pub(super) fn outbound(&mut self, sequence: u32, ack: u32, flags: u8, bytes: u32) -> Outbound {
        let packet = segment(true, sequence, ack, flags, bytes);
        self.connections
            .note_outbound(self.now, self.key(), self.origin, &packet, &[])
    }

    pub(super) fn inbound(&mut self, sequence: u32, ack: u32, flags: u8, bytes: u32) -> Inbound {
        let packet = segment(false, sequence, ack, flags, bytes);
        self.connections.note_inbound(self.now, self.key(), &packet)
    }

    pub(super) fn datagram_out(&mut self) -> Outbound {
        self.connections
            .note_outbound(self.now, udp_key(), self.origin, &udp(true), &[])
    }

    pub(super) fn datagram_in(&mut self) -> Inbound {
        self.connections
            .note_inbound(self.now, udp_key(), &udp(false))
    }

    pub(super) fn note_error(
        &mut self,
        key: ConnectionKey,
        kind: IcmpKind,
        protocol: Protocol,
        sequence: u32,
    ) -> Inbound {
        self.connections
            .note_inbound(self.now, key, &icmp_error(kind, protocol, sequence))
    }

    pub(super) fn move_flow(&mut self) {
        self.connections.move_flow(self.now, self.flow);
    }

    pub(super) fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.connections.poll_action(self.now)).collect()
    }

    pub(super) fn changes(&mut self) -> Vec<OpenChange> {
        std::iter::from_fn(|| self.connections.poll_change()).collect()
    }
}

pub(super) fn key() -> ConnectionKey {
    ConnectionKey {
        flow: FLOW,
        wire: WireKey {
            tag: TAG,
            protocol: 6,
            host_port: HOST_PORT,
            far_port: FAR_PORT,
        },
    }
}

pub(super) fn udp_key() -> ConnectionKey {
    let wire = WireKey {
        protocol: 17,
        ..key().wire
    };
    wire.in_flow(FLOW)
}

pub(super) fn action_port(action: &Action) -> u16 {
    match action {
        Action::Reset { key, .. } | Action::ReplaySyn { key, .. } => key.wire.host_port,
    }
}

/// Returns a segment between the two ports, of the host or of the far end.
pub(super) fn segment(
    is_hosts: bool,
    sequence: u32,
    acknowledgment: u32,
    flags: u8,
    payload_bytes: u32,
) -> Packet {
    let (source_port, destination_port) = ports(is_hosts);
    let tcp = Tcp {
        source_port,
        destination_port,
        sequence,
        acknowledgment,
        flags: TcpFlags(flags),
        header_bytes: 20,
        payload_bytes,
        window: 1000,
    };
    packet(
        is_hosts,
        Protocol::TCP,
        Transport::Tcp(tcp),
        20 + payload_bytes as usize,
    )
}

pub(super) fn udp(is_hosts: bool) -> Packet {
    let (source_port, destination_port) = ports(is_hosts);
    let udp = Udp {
        source_port,
        destination_port,
        payload_bytes: 10,
    };
    packet(is_hosts, Protocol::UDP, Transport::Udp(udp), 18)
}

/// Returns an error of the far end about a packet of the host.
pub(super) fn icmp_error(kind: IcmpKind, protocol: Protocol, sequence: u32) -> Packet {
    let (source_port, destination_port) = ports(true);
    let (source, destination) = (ORIGIN, FAR);
    let inner = Inner {
        source,
        destination,
        protocol,
        source_port,
        destination_port,
        sequence,
    };
    let transport = Transport::IcmpError(IcmpError { kind, inner });
    packet(false, Protocol::ICMP, transport, 36)
}

pub(super) fn syn_bytes(sequence: u32, payload_bytes: usize) -> Vec<u8> {
    let total = 20 + 40 + payload_bytes;
    let mut bytes = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0xde, 0xad];
    bytes[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    bytes.extend([192, 0, 0, 2, 10, 128, 0, 9]);
    append_syn(&mut bytes, sequence, payload_bytes);
    bytes
}

pub(super) fn syn_bytes_v6(sequence: u32, payload_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
    bytes[4..6].copy_from_slice(&(40 + payload_bytes as u16).to_be_bytes());
    bytes.extend(Ipv6Addr::new(0xfd80, 1, 2, 3, 4, 5, 6, 7).octets());
    bytes.extend(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0xa80, 9).octets());
    append_syn(&mut bytes, sequence, payload_bytes);
    bytes
}

/// Appends a SYN with 20 bytes of options, its checksum partial or plain wrong.
fn append_syn(bytes: &mut Vec<u8>, sequence: u32, payload_bytes: usize) {
    bytes.extend(HOST_PORT.to_be_bytes());
    bytes.extend(FAR_PORT.to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 0xa0, SYN, 0xfa, 0xf0, 0xbe, 0xef, 0, 0]);
    bytes.extend([
        2, 4, 5, 0x64, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7,
    ]);
    bytes.extend(std::iter::repeat_n(0xa5, payload_bytes));
}

fn ports(is_hosts: bool) -> (u16, u16) {
    if is_hosts {
        (HOST_PORT, FAR_PORT)
    } else {
        (FAR_PORT, HOST_PORT)
    }
}

fn packet(
    is_hosts: bool,
    protocol: Protocol,
    transport: Transport,
    transport_bytes: usize,
) -> Packet {
    let (source, destination) = if is_hosts {
        (ORIGIN, FAR)
    } else {
        (FAR, ORIGIN)
    };
    Packet {
        source,
        destination,
        protocol,
        hop_limit: 64,
        dont_fragment: true,
        total_bytes: 20 + transport_bytes,
        header_bytes: 20,
        fragment: None,
        transport,
    }
}
