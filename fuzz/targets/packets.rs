//! Packet views, and translation from one IP version to the other.
#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr};

use conflux_core::packet::{Offload, Packet};
use conflux_core::translate::{four_to_six, rewrite_destination, rewrite_source, six_to_four};
use libfuzzer_sys::fuzz_target;

/// Room in front of a packet, for headers that grow.
const ROOM: usize = 128;

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = Packet::parse(bytes, bytes.len()) else {
        return;
    };
    assert!(packet.all_header_bytes() <= bytes.len());
    let mut buffer = vec![0; ROOM];
    buffer.extend_from_slice(bytes);
    let mut offload = Offload::PLAIN;
    let (four, six) = (Ipv4Addr::new(10, 0, 0, 1), Ipv6Addr::LOCALHOST);
    if packet.is_ipv4() {
        let _ = rewrite_source(&mut buffer[ROOM..], &packet, offload.checksum, four.into());
        let _ = rewrite_destination(&mut buffer[ROOM..], &packet, offload.checksum, four.into());
        if let Ok(start) = four_to_six(&mut buffer, ROOM, &packet, &mut offload, six, six) {
            let total = buffer.len() - start;
            assert!(Packet::parse(&buffer[start..], total).is_ok());
        }
    } else if let Ok(start) = six_to_four(&mut buffer[ROOM..], &packet, &mut offload, four, four) {
        let packet = &buffer[ROOM + start..];
        assert!(Packet::parse(packet, packet.len()).is_ok());
    }
});
