//! UDP datagrams out of a capture file of the lab's switch.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of a pcap file's header, and of the one in front of each frame.
const FILE_HEADER: usize = 24;
const FRAME_HEADER: usize = 16;

const ETHERNET: usize = 14;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;

/// One datagram that crossed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Whose it was.
    pub from: SocketAddr,
    /// Where it went.
    pub to: SocketAddr,
    /// What it carried.
    pub payload: Vec<u8>,
}

/// Returns the datagrams of a pcap file, in order; fragments and everything else are left out.
pub fn datagrams(pcap: &[u8]) -> Vec<Datagram> {
    let mut found = Vec::new();
    let mut rest = pcap.get(FILE_HEADER..).unwrap_or(&[]);
    while let Some((head, tail)) = rest.split_at_checked(FRAME_HEADER) {
        let length = head[8..12].try_into().map_or(0, u32::from_ne_bytes) as usize;
        let Some((frame, next)) = tail.split_at_checked(length) else {
            break;
        };
        rest = next;
        found.extend(datagram(frame));
    }
    found
}

fn datagram(frame: &[u8]) -> Option<Datagram> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
    let (from, to, udp): (IpAddr, IpAddr, &[u8]) = match ethernet[12..] {
        [8, 0] if packet.first() == Some(&0x45) && packet.get(9) == Some(&UDP) => {
            let address = |at: usize| {
                let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
                Some(IpAddr::V4(Ipv4Addr::from(bytes)))
            };
            (address(12)?, address(16)?, packet.get(20..)?)
        }
        [0x86, 0xdd] if packet.get(6) == Some(&UDP) => {
            let address = |at: usize| {
                let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
                Some(IpAddr::V6(Ipv6Addr::from(bytes)))
            };
            (address(8)?, address(24)?, packet.get(40..)?)
        }
        _ => return None,
    };
    let (header, payload) = udp.split_at_checked(UDP_HEADER)?;
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Some(Datagram {
        from: SocketAddr::new(from, port(0)),
        to: SocketAddr::new(to, port(2)),
        payload: payload.to_vec(),
    })
}
