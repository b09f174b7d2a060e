//! Packets for tests, made and checked the slow and obvious way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Checksum, Offload, Packet, Segmentation};

/// What a test packet is made of.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) identification: u16,
    pub(crate) dont_fragment: bool,
    /// Bytes between the IPv6 header and the transport: whole destination option headers.
    pub(crate) extensions: u8,
    pub(crate) fragment: Option<(u16, bool)>,
}

pub(crate) const A4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 2));
pub(crate) const B4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 128, 0, 9));
pub(crate) const A6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd80, 1, 2, 3, 4, 5, 6, 7));
pub(crate) const B6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0x0a80, 0x0009));

/// Returns a plain recipe in the family asked for.
pub(crate) fn recipe(is_ipv4: bool) -> Recipe {
    let (source, destination) = if is_ipv4 { (A4, B4) } else { (A6, B6) };
    Recipe {
        source,
        destination,
        hop_limit: 64,
        traffic_class: 0,
        identification: 7,
        dont_fragment: true,
        extensions: 0,
        fragment: None,
    }
}

impl Recipe {
    /// Returns the IP packet around a transport message.
    pub(crate) fn wrap(&self, protocol: u8, transport: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let total = 20 + transport.len();
                out.extend([0x45, self.traffic_class]);
                out.extend((total as u16).to_be_bytes());
                out.extend(self.identification.to_be_bytes());
                let (offset, more) = self.fragment.unwrap_or((0, false));
                let df = if self.dont_fragment { 0x4000 } else { 0 };
                let more = if more { 0x2000 } else { 0 };
                let field = df | more | (offset / 8);
                out.extend(field.to_be_bytes());
                out.extend([self.hop_limit, protocol, 0, 0]);
                out.extend(source.octets());
                out.extend(destination.octets());
                let checksum = !naive_sum(&out, 0);
                out[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut chain = Vec::new();
                let last = if self.fragment.is_some() {
                    44
                } else {
                    protocol
                };
                for n in 0..self.extensions {
                    let next = if n + 1 == self.extensions { last } else { 60 };
                    chain.extend([next, 0, 1, 4, 0, 0, 0, 0]);
                }
                if let Some((offset, more)) = self.fragment {
                    chain.extend([protocol, 0]);
                    chain.extend((offset | u16::from(more)).to_be_bytes());
                    chain.extend(u32::from(self.identification).to_be_bytes());
                }
                let class = 6u32 << 28 | u32::from(self.traffic_class) << 20;
                out.extend(class.to_be_bytes());
                out.extend(((chain.len() + transport.len()) as u16).to_be_bytes());
                out.extend([if self.extensions > 0 { 60 } else { last }, self.hop_limit]);
                out.extend(source.octets());
                out.extend(destination.octets());
                out.extend(chain);
            }
            _ => panic!("one family"),
        }
        out.extend(transport);
        out
    }

    fn sealed(&self, protocol: u8, at: usize, checksum: Checksum, mut message: Vec<u8>) -> Vec<u8> {
        let mut sum = u64::from(naive_sum(&addresses(self.source, self.destination), 0));
        sum += u64::from(protocol) + message.len() as u64;
        let field = match checksum {
            Checksum::Partial => naive_sum(&[], sum),
            Checksum::Complete if protocol == 1 => !naive_sum(&message, 0),
            Checksum::Complete => !naive_sum(&message, sum),
        };
        let field = if protocol == 17 && field == 0 {
            0xffff
        } else {
            field
        };
        message[at..at + 2].copy_from_slice(&field.to_be_bytes());
        self.wrap(protocol, &message)
    }

    pub(crate) fn tcp(&self, tcp: &TcpRecipe, payload: &[u8], checksum: Checksum) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(tcp.ports.0.to_be_bytes());
        message.extend(tcp.ports.1.to_be_bytes());
        message.extend(tcp.sequence.to_be_bytes());
        message.extend(tcp.acknowledgment.to_be_bytes());
        message.extend([(5 + tcp.options.len() as u8 / 4) << 4, tcp.flags]);
        message.extend([1, 0xf5, 0, 0, 0, 0]);
        message.extend(&tcp.options);
        message.extend(payload);
        self.sealed(6, 16, checksum, message)
    }

    pub(crate) fn udp(&self, ports: (u16, u16), payload: &[u8], checksum: Checksum) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(ports.0.to_be_bytes());
        message.extend(ports.1.to_be_bytes());
        message.extend((8 + payload.len() as u16).to_be_bytes());
        message.extend([0, 0]);
        message.extend(payload);
        self.sealed(17, 6, checksum, message)
    }

    /// Returns an ICMP message of the family, given both families' types and codes.
    pub(crate) fn icmp(&self, v4: (u8, u8), v6: (u8, u8), rest: u32, payload: &[u8]) -> Vec<u8> {
        let (protocol, (kind, code)) = if self.source.is_ipv4() {
            (1, v4)
        } else {
            (58, v6)
        };
        let mut message = vec![kind, code, 0, 0];
        message.extend(rest.to_be_bytes());
        message.extend(payload);
        self.sealed(protocol, 2, Checksum::Complete, message)
    }

    /// Returns the recipe for answers.
    pub(crate) fn reversed(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            ..self.clone()
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TcpRecipe {
    pub(crate) ports: (u16, u16),
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: u8,
    pub(crate) options: Vec<u8>,
}

pub(crate) fn tcp_recipe() -> TcpRecipe {
    TcpRecipe {
        ports: (40_000, 80),
        sequence: 1000,
        acknowledgment: 5,
        flags: 0x10,
        options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
    }
}

fn addresses(source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let octets = |address| match address {
        IpAddr::V4(address) => Ipv4Addr::octets(&address).to_vec(),
        IpAddr::V6(address) => Ipv6Addr::octets(&address).to_vec(),
    };
    [octets(source), octets(destination)].concat()
}

pub(crate) fn naive_sum(bytes: &[u8], start: u64) -> u16 {
    let mut sum = start;
    for word in bytes.chunks(2) {
        sum += u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// Asserts that all checksums of a whole packet are right, and returns what it says.
#[track_caller]
pub(crate) fn assert_sound(bytes: &[u8], checksum: Checksum) -> Packet {
    let packet = Packet::parse(bytes, bytes.len()).expect("packet is well-formed");
    if packet.is_ipv4() {
        assert_eq!(
            naive_sum(&bytes[..packet.header_bytes], 0),
            0xffff,
            "IPv4 header checksum"
        );
    }
    if packet.fragment.is_some() {
        return packet;
    }
    let message = &bytes[packet.header_bytes..];
    let addresses = addresses(packet.source, packet.destination);
    let mut sum = u64::from(naive_sum(&addresses, 0));
    sum += u64::from(packet.protocol.0) + message.len() as u64;
    let pseudo = naive_sum(&[], sum);
    match (packet.protocol.0, checksum) {
        (6 | 17, Checksum::Partial) => {
            let at = if packet.protocol.0 == 6 { 16 } else { 6 };
            let field = u16::from_be_bytes([message[at], message[at + 1]]);
            assert_eq!(field, pseudo, "pseudo-header sum");
        }
        (17, Checksum::Complete) if message[6..8] == [0, 0] => {}
        (6 | 17 | 58, _) => assert_eq!(naive_sum(message, sum), 0xffff, "transport checksum"),
        (1, _) => assert_eq!(naive_sum(message, 0), 0xffff, "ICMP checksum"),
        _ => {}
    }
    packet
}

/// A packet with what is left to do on it.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) bytes: Vec<u8>,
    pub(crate) offload: Offload,
}

/// Puts fragments together again, asserting that they fit seamlessly.
pub(crate) fn reassemble(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (n, bytes) in fragments.iter().enumerate() {
        let packet = assert_sound(bytes, Checksum::Complete);
        let place = packet.fragment.expect("is a fragment");
        assert_eq!(usize::from(place.offset_bytes), payload.len());
        assert_eq!(place.more, n + 1 < fragments.len());
        payload.extend_from_slice(&bytes[packet.header_bytes..]);
    }
    payload
}

pub(crate) fn recipes() -> impl Strategy<Value = Recipe> {
    let v4 = (any::<u32>(), any::<u32>())
        .prop_map(|(a, b)| (IpAddr::from(a.to_be_bytes()), IpAddr::from(b.to_be_bytes())));
    let v6 = (any::<u128>(), any::<u128>())
        .prop_map(|(a, b)| (IpAddr::from(a.to_be_bytes()), IpAddr::from(b.to_be_bytes())));
    let ends = prop_oneof![v4, v6];
    (
        ends,
        any::<u8>(),
        any::<u8>(),
        any::<u16>(),
        any::<bool>(),
        0u8..3,
    )
        .prop_map(
            |((source, destination), hop_limit, traffic_class, identification, df, extensions)| {
                Recipe {
                    source,
                    destination,
                    hop_limit,
                    traffic_class,
                    identification,
                    dont_fragment: df,
                    extensions: if source.is_ipv4() { 0 } else { extensions },
                    fragment: None,
                }
            },
        )
}

pub(crate) fn tcp_recipes() -> impl Strategy<Value = TcpRecipe> {
    let options = (0usize..11).prop_flat_map(|words| vec(Just(1u8), words * 4));
    (
        any::<(u16, u16)>(),
        any::<u32>(),
        any::<u32>(),
        any::<u8>(),
        options,
    )
        .prop_map(
            |(ports, sequence, acknowledgment, flags, options)| TcpRecipe {
                ports,
                sequence,
                acknowledgment,
                flags: flags & 0xd9 | 0x10,
                options,
            },
        )
}

pub(crate) fn checksums() -> impl Strategy<Value = Checksum> {
    prop_oneof![Just(Checksum::Partial), Just(Checksum::Complete)]
}

/// TCP and UDP packets, plain and super, of both families.
pub(crate) fn super_packets() -> impl Strategy<Value = Sample> {
    let kind = prop_oneof![Just(Segmentation::Tcp), Just(Segmentation::Udp)];
    (
        recipes(),
        tcp_recipes(),
        kind,
        checksums(),
        vec(any::<u8>(), 1..9000),
        1u16..1500,
    )
        .prop_map(|(recipe, tcp, kind, checksum, payload, segment_bytes)| {
            let bytes = match kind {
                Segmentation::Tcp => recipe.tcp(&tcp, &payload, checksum),
                Segmentation::Udp | Segmentation::None => recipe.udp(tcp.ports, &payload, checksum),
            };
            let ecn = kind == Segmentation::Tcp && tcp.flags & 0x80 != 0;
            let offload = Offload {
                checksum,
                segmentation: kind,
                segment_bytes,
                ecn,
            };
            Sample { bytes, offload }
        })
}

/// Packets of every kind that crosses unfragmented: TCP, UDP, echoes, and errors about those.
pub(crate) fn samples() -> impl Strategy<Value = Sample> {
    let small = (
        recipes(),
        tcp_recipes(),
        checksums(),
        vec(any::<u8>(), 0..200),
        0u8..5,
    );
    small.prop_map(|(recipe, tcp, checksum, payload, kind)| {
        let complete = Checksum::Complete;
        let id = tcp.sequence;
        let (bytes, checksum) = match kind {
            0 => (recipe.tcp(&tcp, &payload, checksum), checksum),
            1 => (recipe.udp(tcp.ports, &payload, checksum), checksum),
            2 => (recipe.icmp((8, 0), (128, 0), id, &payload), complete),
            3 => (recipe.icmp((0, 0), (129, 0), id, &payload), complete),
            _ => {
                let about = recipe.reversed();
                let quote = match tcp.ports.0 % 3 {
                    0 => about.tcp(&tcp, &payload, complete),
                    1 => about.udp(tcp.ports, &payload, complete),
                    _ => about.icmp((8, 0), (128, 0), id, &payload),
                };
                (recipe.icmp((3, 3), (1, 4), 0, &quote), complete)
            }
        };
        Sample {
            bytes,
            offload: Offload {
                checksum,
                ..Offload::PLAIN
            },
        }
    })
}
