//! What goes in and out of [`super::Connections`].

use std::net::IpAddr;
use std::time::Duration;

use super::StoredSyn;
use crate::ids::{FlowId, FlowTag};
use crate::packet::{Packet, Protocol, Transport};

/// The limits of a table of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How many connections are remembered; 144 bytes each, at least 1.
    pub connections: usize,
    /// How many SYNs are kept for a replay; 128 bytes each.
    pub syns: u16,
}

impl Default for Limits {
    /// Returns room for all ports of four busy destinations (38 MB when full), and for the SYNs of
    /// 20,000 new connections a second at 200 ms of round-trip time.
    fn default() -> Self {
        Self {
            connections: 1 << 18,
            syns: 4096,
        }
    }
}

/// What a packet tells of its connection before its flow has been found. The index goes by this
/// alone, so that it can be asked while the flow is still being looked up; by the tag, the same
/// ports in many flows do not meet there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WireKey {
    /// The tag of the flow.
    pub tag: FlowTag,
    /// The IANA protocol number; ICMP also where the host writes ICMPv6.
    pub protocol: u8,
    /// The host's port, or the identifier of an echo; 0 without either.
    pub host_port: u16,
    /// The far end's port; 0 without.
    pub far_port: u16,
}

/// A connection: its flow stands for both addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionKey {
    /// The flow.
    pub flow: FlowId,
    /// The flow's tag, protocol and ports.
    pub wire: WireKey,
}

impl WireKey {
    /// Returns the connection of a packet the host sent, for an ICMP error that of the packet it
    /// is about. `None` for a later fragment, which does not tell; see
    /// [`super::Connections::last_origin`].
    pub fn of_outbound(tag: FlowTag, packet: &Packet) -> Option<Self> {
        let (protocol, source, destination) = ends(packet)?;
        let is_error = matches!(packet.transport, Transport::IcmpError(_));
        let (host, far) = if is_error {
            (destination, source)
        } else {
            (source, destination)
        };
        Some(Self::new(tag, protocol, host, far))
    }

    /// Returns the connection of a packet the far end sent, for an ICMP error that of the packet
    /// it is about. `None` for a later fragment, as in [`Self::of_outbound`].
    pub fn of_inbound(tag: FlowTag, packet: &Packet) -> Option<Self> {
        let (protocol, source, destination) = ends(packet)?;
        let is_error = matches!(packet.transport, Transport::IcmpError(_));
        let (host, far) = if is_error {
            (source, destination)
        } else {
            (destination, source)
        };
        Some(Self::new(tag, protocol, host, far))
    }

    /// Returns the key of this connection in `flow`, whose tag it has.
    pub const fn in_flow(self, flow: FlowId) -> ConnectionKey {
        ConnectionKey { flow, wire: self }
    }

    fn new(tag: FlowTag, protocol: Protocol, host_port: u16, far_port: u16) -> Self {
        if protocol == Protocol::ICMP || protocol == Protocol::ICMPV6 {
            // An echo has one identifier, which stands on either side.
            let host_port = host_port | far_port;
            return Self {
                tag,
                protocol: Protocol::ICMP.0,
                host_port,
                far_port: 0,
            };
        }
        Self {
            tag,
            protocol: protocol.0,
            host_port,
            far_port,
        }
    }

    pub(super) fn has_ports(&self) -> bool {
        self.host_port != 0 || self.far_port != 0
    }
}

/// What to do with a packet of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outbound {
    /// Send it.
    Pass,
    /// Another local address uses the same 5-tuple of the wire: refuse it (TCP: RST; else ICMP).
    Clash,
    /// The connection was reset: drop the segment and answer it by a RST with this number.
    Answer {
        /// The sequence number of the RST.
        sequence: u32,
        /// The acknowledgment number of the RST, when it needs one.
        acknowledgment: Option<u32>,
    },
}

/// What to do with a packet of the flow's holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inbound {
    /// Deliver it to the host.
    Pass {
        /// The local address the application uses: the destination to write into the packet.
        origin: IpAddr,
        /// How long this answer took, the round trip included.
        answer: Option<Duration>,
        /// Whether this refuses a connection (SPEC section 4: a sample of at least 1 s).
        refused: bool,
    },
    /// No such connection. When it may begin one, [`super::Connections::admit`] says so.
    Unknown,
    /// The connection was reset by us: drop it, and answer a TCP segment by a RST.
    Dead,
}

/// What is to be done for a flow that moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Tell the host that this connection has ended: a RST from the far end's address.
    Reset {
        /// The connection.
        key: ConnectionKey,
        /// The local address the application uses.
        origin: IpAddr,
        /// The sequence number the host waits for.
        sequence: u32,
    },
    /// Take this SYN as if the host had sent it again.
    ReplaySyn {
        /// The connection.
        key: ConnectionKey,
        /// The local address the application uses.
        origin: IpAddr,
        /// The packet, as it was given to [`super::Connections::note_outbound`], with complete
        /// checksums.
        syn: StoredSyn,
    },
}

/// A flow that has got its first, or lost its last, open TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenChange {
    /// The flow.
    pub flow: FlowId,
    /// Whether it has one now.
    pub has_open: bool,
}

/// Returns protocol, source port and destination port of what a packet is about.
fn ends(packet: &Packet) -> Option<(Protocol, u16, u16)> {
    match &packet.transport {
        Transport::Tcp(tcp) => Some((packet.protocol, tcp.source_port, tcp.destination_port)),
        Transport::Udp(udp) => Some((packet.protocol, udp.source_port, udp.destination_port)),
        Transport::Echo(echo) => Some((packet.protocol, echo.identifier, 0)),
        Transport::IcmpError(error) => {
            let inner = &error.inner;
            Some((inner.protocol, inner.source_port, inner.destination_port))
        }
        Transport::Icmp | Transport::Other => Some((packet.protocol, 0, 0)),
        Transport::LaterFragment => None,
    }
}
