//! Packets from a script: a few addresses, ports and flags, so that flows and connections meet
//! again, and right checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use conflux_core::translate::spelled;

use super::{BEHIND, GUEST, OWN, SHARED, own};
use crate::input::Input;
use crate::packets::mend;
use crate::samples::{member, realm};

const PORTS: [u16; 4] = [80, 53, 40_000, 40_001];

const FLAGS: [u8; 8] = [0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0x14, 0x00];

const NUMBERS: [u32; 6] = [0, 1, 1000, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// Returns a packet: both addresses from one list, by family.
pub(super) fn packet(input: &mut Input<'_>) -> Vec<u8> {
    let is_ipv6 = input.flag();
    let (source, destination) = (input.byte(), input.byte());
    let mut packet = header(is_ipv6, source, destination);
    let (protocol, transport) = transport(input, is_ipv6);
    packet[if is_ipv6 { 6 } else { 9 }] = protocol;
    packet.extend(transport);
    mend(&mut packet);
    packet
}

/// Returns an IP header of these two addresses; the rest is the caller's.
fn header(is_ipv6: bool, source: u8, destination: u8) -> Vec<u8> {
    if is_ipv6 {
        let mut header = vec![0; 40];
        (header[0], header[7]) = (0x60, 64);
        header[8..24].copy_from_slice(&six(source).octets());
        header[24..40].copy_from_slice(&six(destination).octets());
        return header;
    }
    let mut header = vec![0; 20];
    header[0] = 0x45;
    // Some may be fragmented.
    header[6] = if source & 0x80 == 0 { 0x40 } else { 0 };
    header[8] = 64;
    header[12..16].copy_from_slice(&four(source).octets());
    header[16..20].copy_from_slice(&four(destination).octets());
    header
}

fn transport(input: &mut Input<'_>, is_ipv6: bool) -> (u8, Vec<u8>) {
    let kind = input.byte() % 5;
    let (from, to) = (input.pick(&PORTS), input.pick(&PORTS));
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
    let protocol = match kind {
        0 => {
            let flags = input.pick(&FLAGS);
            bytes.extend(input.pick(&NUMBERS).to_be_bytes());
            bytes.extend(input.pick(&NUMBERS).to_be_bytes());
            bytes.extend([5 << 4, flags, 4, 0, 0, 0, 0, 0]);
            6
        }
        1 => {
            bytes.extend([0; 4]);
            17
        }
        2 => {
            let kind = if is_ipv6 { 128 } else { 8 };
            bytes = vec![kind, 0, 0, 0, 0, input.byte() & 1, 0, 1];
            if is_ipv6 { 58 } else { 1 }
        }
        3 => {
            // An error about a packet the other way round, or about any.
            let kind = if is_ipv6 { 1 } else { 3 };
            bytes = vec![kind, input.byte() % 5, 0, 0, 0, 0, 0, 0];
            bytes.extend(quoted(input, is_ipv6));
            return (if is_ipv6 { 58 } else { 1 }, bytes);
        }
        _ => input.byte(),
    };
    let payload = usize::from(input.short() % 3000);
    bytes.resize(bytes.len() + payload, b'x');
    (protocol, bytes)
}

fn quoted(input: &mut Input<'_>, is_ipv6: bool) -> Vec<u8> {
    let (source, destination) = (input.byte(), input.byte());
    let ports = [input.pick(&PORTS), input.pick(&PORTS)].map(u16::to_be_bytes);
    let numbers = [0; 16];
    let mut bytes = header(is_ipv6, source, destination);
    // TCP without options or payload.
    if is_ipv6 {
        (bytes[5], bytes[6]) = (20, 6);
    } else {
        (bytes[3], bytes[9]) = (40, 6);
    }
    bytes.extend(ports.concat());
    bytes.extend(numbers);
    bytes
}

fn four(choice: u8) -> Ipv4Addr {
    let all = [
        OWN,
        SHARED,
        Ipv4Addr::new(192, 0, 0, 2),
        BEHIND,
        GUEST,
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::new(198, 18, 0, choice),
        Ipv4Addr::new(192, 168, 7, choice),
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(8, 8, 8, 8),
    ];
    all[usize::from(choice & 0x7f) % all.len()]
}

fn six(choice: u8) -> Ipv6Addr {
    let overlay = |number: usize| member(number).key().overlay(&realm().id());
    let all = [
        own().key().overlay(&realm().id()),
        spelled(SHARED),
        overlay(0),
        overlay(1),
        overlay(2),
        overlay(3),
        spelled(BEHIND),
        spelled(OWN),
        Ipv6Addr::LOCALHOST,
        Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 1),
    ];
    all[usize::from(choice & 0x7f) % all.len()]
}

/// Says whether a packet for this address may be handed to this machine's kernel.
pub(super) fn is_ours(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address == OWN || address == Ipv4Addr::new(192, 0, 0, 2) || is_behind(address)
        }
        IpAddr::V6(address) => {
            address == own().key().overlay(&realm().id()) || address == spelled(OWN)
        }
    }
}

fn is_behind(address: Ipv4Addr) -> bool {
    address.octets()[..3] == [192, 168, 7]
}
