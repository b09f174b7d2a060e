//! What the benchmarks share: hand-made packets, a pair of sessions, a world of many holders.

#![allow(
    dead_code,
    reason = "each benchmark is a crate of its own and uses a part"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use conflux_core::identity::Identity;
use conflux_core::ids::PeerIx;
use conflux_core::packet::{Checksum, Offload, Segmentation};
use conflux_core::routes::{self, Claim, OwnFacts, PeerFacts, Routes};
use conflux_core::session::{Initiator, Local, Remote, SessionKeys, respond};
use conflux_core::time::{Boot, Mono, Now};
use conflux_proto::id::{AnchorKey, RealmId};
use ipnet::{IpNet, Ipv4Net};

/// The payload of a full frame with 1,500 bytes of IPv6 underlay.
pub(crate) const INNER_BYTES: usize = 1420;

/// The longest super-packet a TUN hands out.
pub(crate) const SUPER_BYTES: usize = 65_535;

pub(crate) const SYN: u8 = 0x02;
pub(crate) const ACK: u8 = 0x10;

/// A TCP segment over IPv4 with a 12-byte timestamp option, payload of zeros.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) ports: (u16, u16),
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: u8,
}

/// IPv4 and TCP headers with the timestamp option.
pub(crate) const HEADER_BYTES: usize = 20 + 32;

impl Segment {
    /// Writes the headers of a packet of `total` bytes; the TCP checksum is left partial.
    pub(crate) fn write(&self, out: &mut [u8], total: usize) {
        out[..HEADER_BYTES].fill(0);
        out[0] = 0x45;
        let length = u16::try_from(total).expect("a packet fits 16 bits of length");
        out[2..4].copy_from_slice(&length.to_be_bytes());
        out[6] = 0x40;
        out[8] = 64;
        out[9] = 6;
        out[12..16].copy_from_slice(&self.source.octets());
        out[16..20].copy_from_slice(&self.destination.octets());
        let sum = !fold(&out[..20]);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
        out[20..22].copy_from_slice(&self.ports.0.to_be_bytes());
        out[22..24].copy_from_slice(&self.ports.1.to_be_bytes());
        out[24..28].copy_from_slice(&self.sequence.to_be_bytes());
        out[28..32].copy_from_slice(&self.acknowledgment.to_be_bytes());
        out[32] = 8 << 4;
        out[33] = self.flags;
        out[34..36].copy_from_slice(&1024_u16.to_be_bytes());
        out[40..44].copy_from_slice(&[1, 1, 8, 10]);
        let mut pseudo = [0; 12];
        pseudo[..8].copy_from_slice(&out[12..20]);
        pseudo[9] = 6;
        pseudo[10..12].copy_from_slice(&(length - 20).to_be_bytes());
        let sum = fold(&pseudo);
        out[36..38].copy_from_slice(&sum.to_be_bytes());
    }

    pub(crate) fn packet(&self, total: usize) -> Vec<u8> {
        let mut bytes = vec![0; total];
        self.write(&mut bytes, total);
        bytes
    }

    pub(crate) fn to_host(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            ports: (self.ports.1, self.ports.0),
            sequence: self.acknowledgment,
            acknowledgment: self.sequence,
            flags: self.flags,
        }
    }
}

pub(crate) fn sample_segment() -> Segment {
    Segment {
        source: Ipv4Addr::new(10, 128, 0, 9),
        destination: Ipv4Addr::new(10, 9, 8, 7),
        ports: (40_000, 443),
        sequence: 1_000,
        acknowledgment: 5_000,
        flags: ACK,
    }
}

/// What the kernel says about a TCP super-packet.
pub(crate) fn super_offload() -> Offload {
    Offload {
        checksum: Checksum::Partial,
        segmentation: Segmentation::Tcp,
        segment_bytes: u16::try_from(INNER_BYTES - HEADER_BYTES).expect("it is 1,368"),
        ecn: false,
    }
}

/// Turns the TCP segment into an IPv6 one with the same ends in 64:ff9b:1::/96.
pub(crate) fn six(packet: &[u8], source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let mut out = vec![0; 40];
    out[0] = 0x60;
    let length = u16::try_from(packet.len() - 20).expect("it came from 16 bits");
    out[4..6].copy_from_slice(&length.to_be_bytes());
    out[6] = 6;
    out[7] = 64;
    out[8..24].copy_from_slice(&source.octets());
    out[24..40].copy_from_slice(&destination.octets());
    out.extend_from_slice(&packet[20..]);
    out
}

fn fold(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let mut sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("it was folded")
}

/// Returns the moment `nanos` after an arbitrary start.
pub(crate) fn at(nanos: u64) -> Now {
    const START: u64 = 1_000_000_000_000;
    Now {
        mono: Mono::from_nanos(START + nanos),
        boot: Boot::from_nanos(START + nanos),
    }
}

/// An anchor as one end of handshakes.
pub(crate) struct End(Identity);

impl End {
    pub(crate) fn new(number: u32) -> Self {
        let mut seed = [1; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        Self(Identity::from_seed(&seed))
    }

    pub(crate) fn key(&self) -> AnchorKey {
        self.0.key()
    }

    fn remote(&self) -> Remote {
        Remote {
            key: self.0.key(),
            noise_key: self.0.noise_key(),
        }
    }

    fn local(&self, index: u32, aes: bool) -> Local<'_> {
        Local {
            noise_secret: self.0.noise_secret(),
            key: self.0.key(),
            index,
            aes,
            seed: &[5; 32],
        }
    }
}

/// Shakes hands; returns the keys of the initiator and those of the responder.
pub(crate) fn shake(
    initiator: (&End, u32),
    responder: (&End, u32),
    aes: bool,
) -> (SessionKeys, SessionKeys) {
    let (realm, psk) = (RealmId([7; 32]), [8; 32]);
    let (state, first) = Initiator::start(
        initiator.0.local(initiator.1, aes),
        responder.0.remote(),
        &realm,
        &psk,
    )
    .expect("the keys are sound");
    let (theirs, second) = respond(
        responder.0.local(responder.1, aes),
        initiator.0.remote(),
        &realm,
        &psk,
        &first,
    )
    .expect("message 1 is authentic");
    (
        state.finish(&second).expect("message 2 is authentic"),
        theirs,
    )
}

/// The networks of the world: /24s from 10.0.0.0 on.
pub(crate) fn network(number: u32) -> Ipv4Net {
    let address = Ipv4Addr::from(0x0a00_0000 + (number << 8));
    Ipv4Net::new(address, 24).expect("24 bits fit")
}

pub(crate) const CLIENT_RANGE: &str = "198.18.0.0/15";
/// The LAN of the hosts behind this anchor.
pub(crate) const LAN: &str = "192.168.0.0/16";

pub(crate) fn overlay(number: u32) -> Ipv6Addr {
    let base = u128::from(Ipv6Addr::new(0xfdcf, 1, 2, 0, 0, 0, 0, 0));
    Ipv6Addr::from(base + u128::from(number) + 1)
}

pub(crate) fn own_facts(own: &End) -> OwnFacts {
    OwnFacts {
        key: own.key(),
        overlay: overlay(u32::MAX - 1),
        ipv4: None,
        ipv4_advertised: false,
        networks: vec![LAN.parse().expect("it is a network")],
        local_networks: Vec::new(),
        client_range: CLIENT_RANGE.parse().expect("it is a network"),
    }
}

/// Facts in which network `n` is held by peers `n`, `n + 1`, ... modulo the number of peers.
pub(crate) fn peer_facts(keys: &[AnchorKey], networks: u32, holders: u32) -> Vec<PeerFacts> {
    let peers = u32::try_from(keys.len()).expect("there are fewer");
    let mut facts: Vec<_> = (0..peers)
        .map(|number| PeerFacts {
            peer: PeerIx(number),
            key: keys[number as usize],
            overlay: overlay(number),
            ipv4: None,
            networks: Vec::new(),
            may_exchange: true,
            draining: false,
        })
        .collect();
    for number in 0..networks {
        for holder in 0..holders.min(peers) {
            facts[((number + holder) % peers) as usize]
                .networks
                .push(Claim {
                    network: IpNet::V4(network(number)),
                    granted: true,
                });
        }
    }
    facts
}

pub(crate) fn world_routes(networks: u32, peers: u32, holders: u32) -> Routes {
    let keys: Vec<_> = (0..peers)
        .map(|number| AnchorKey(number_key(number)))
        .collect();
    routes::build(
        &own_facts(&End::new(u32::MAX)),
        &peer_facts(&keys, networks, holders),
    )
}

fn number_key(number: u32) -> [u8; 32] {
    let mut key = [3; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn v4(address: Ipv4Addr) -> IpAddr {
    IpAddr::V4(address)
}
