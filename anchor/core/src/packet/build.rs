//! The packets we write ourselves: TCP resets, and ICMP errors about packets we cannot deliver.
//! Their checksums are complete.

use std::net::{IpAddr, SocketAddr};

use super::checksum::{self, pseudo_header};
use super::parse::parse_quote;
use super::{
    IPV4_BYTES, IPV6_BYTES, Malformed, Packet, Protocol, SHORT_BYTES, TCP_BYTES, TcpFlags,
    Transport, read_u16, write_u16, write_u32,
};

/// What our own packets start with; hosts are at most one router away, so any usual value does.
const HOP_LIMIT: u8 = 64;
/// RFC 1812 section 4.3.2.3: an ICMP error has at most 576 bytes.
const MAX_ICMP_BYTES: usize = 576;
/// RFC 4443 section 2.4 (c): an ICMPv6 error has at most the minimum MTU.
const MAX_ICMPV6_BYTES: usize = 1280;

/// Why a packet cannot be delivered, for its sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Nobody answers at the destination.
    HostUnreachable,
    /// It may not go there.
    AdminProhibited,
    /// Nobody listens at that port.
    PortUnreachable,
}

/// Why no packet was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unanswerable {
    /// The addresses are not of one family.
    #[error("addresses of two families")]
    Family,
    /// ICMP errors are never sent about ICMP errors, about later fragments, or to or about
    /// multicast, broadcast and unspecified addresses (RFC 1122 section 3.2.2); nor about a packet
    /// whose headers are longer than what an error may quote: nobody could tell whose it is
    /// (RFC 4443 section 2.4 (d)).
    #[error("no ICMP error may be sent about this packet")]
    NotAbout,
    /// What it would be about is not a packet.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Writes into `out` (cleared first) a TCP reset from `from` to `to`: with `acknowledgment` as
/// the answer to a segment, without as one in a connection's own sequence.
///
/// # Errors
/// [`Unanswerable::Family`]; `out` is empty then.
pub fn build_reset(
    out: &mut Vec<u8>,
    from: SocketAddr,
    to: SocketAddr,
    sequence: u32,
    acknowledgment: Option<u32>,
) -> Result<(), Unanswerable> {
    let at = start(out, from.ip(), to.ip(), Protocol::TCP, TCP_BYTES)?;
    write_u16(out, at, from.port());
    write_u16(out, at + 2, to.port());
    write_u32(out, at + 4, sequence);
    write_u32(out, at + 8, acknowledgment.unwrap_or(0));
    out[at + 12] = 5 << 4;
    let answers = if acknowledgment.is_some() {
        TcpFlags::ACK
    } else {
        TcpFlags(0)
    };
    out[at + 13] = TcpFlags::RST.with(answers).0;
    let pseudo = pseudo_header(from.ip(), to.ip(), Protocol::TCP, TCP_BYTES);
    write_u16(out, at + 16, pseudo.fold());
    checksum::complete_at(out, at, 16);
    Ok(())
}

/// Writes into `out` (cleared first) the ICMP error, from `from` to the sender of `original`,
/// that its packet cannot be delivered. `original` starts with all headers of that packet.
///
/// # Errors
/// [`Unanswerable`] when there must be none; `out` is empty then.
pub fn build_unreachable(
    out: &mut Vec<u8>,
    original: &[u8],
    from: IpAddr,
    reason: Reason,
) -> Result<(), Unanswerable> {
    let (kind, code) = match (from, reason) {
        (IpAddr::V4(_), Reason::HostUnreachable) => (3, 1),
        (IpAddr::V4(_), Reason::AdminProhibited) => (3, 13),
        (IpAddr::V4(_), Reason::PortUnreachable) => (3, 3),
        (IpAddr::V6(_), Reason::HostUnreachable) => (1, 3),
        (IpAddr::V6(_), Reason::AdminProhibited) => (1, 1),
        (IpAddr::V6(_), Reason::PortUnreachable) => (1, 4),
    };
    build_error(out, original, from, kind, code, 0)
}

/// Writes into `out` (cleared first) the ICMP error that `original` is bigger than `mtu` bytes.
///
/// # Errors
/// [`Unanswerable`] when there must be none; `out` is empty then.
pub fn build_too_big(
    out: &mut Vec<u8>,
    original: &[u8],
    from: IpAddr,
    mtu: u16,
) -> Result<(), Unanswerable> {
    let (kind, code) = if from.is_ipv4() { (3, 4) } else { (2, 0) };
    build_error(out, original, from, kind, code, u32::from(mtu))
}

fn build_error(
    out: &mut Vec<u8>,
    original: &[u8],
    from: IpAddr,
    kind: u8,
    code: u8,
    rest: u32,
) -> Result<(), Unanswerable> {
    out.clear();
    let packet = Packet::parse(original, claimed_bytes(original))?;
    if !may_answer(&packet) {
        return Err(Unanswerable::NotAbout);
    }
    let (protocol, max_bytes, header_bytes) = match packet.source {
        IpAddr::V4(_) => (Protocol::ICMP, MAX_ICMP_BYTES, IPV4_BYTES),
        IpAddr::V6(_) => (Protocol::ICMPV6, MAX_ICMPV6_BYTES, IPV6_BYTES),
    };
    let quoted_bytes = original
        .len()
        .min(packet.total_bytes)
        .min(max_bytes - header_bytes - SHORT_BYTES);
    let quote = &original[..quoted_bytes];
    parse_quote(quote, packet.is_ipv4()).map_err(|_| Unanswerable::NotAbout)?;
    let message_bytes = SHORT_BYTES + quoted_bytes;
    let at = start(out, from, packet.source, protocol, message_bytes)?;
    out[at] = kind;
    out[at + 1] = code;
    write_u32(out, at + 4, rest);
    out[at + SHORT_BYTES..].copy_from_slice(quote);
    if protocol == Protocol::ICMPV6 {
        let pseudo = pseudo_header(from, packet.source, protocol, message_bytes);
        write_u16(out, at + 2, pseudo.fold());
    }
    checksum::complete_at(out, at, 2);
    Ok(())
}

/// Returns the bytes that the IP header at the start of `original` claims for its packet.
fn claimed_bytes(original: &[u8]) -> usize {
    match original.first().map(|first| first >> 4) {
        Some(4) if original.len() >= 4 => usize::from(read_u16(original, 2)),
        Some(6) if original.len() >= 6 => usize::from(read_u16(original, 4)) + IPV6_BYTES,
        Some(_) | None => original.len(),
    }
}

fn may_answer(packet: &Packet) -> bool {
    let is_about_unicast = match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let is_one_host = !source.is_unspecified()
                && !source.is_loopback()
                && !source.is_broadcast()
                && source.octets()[0] < 240;
            is_one_host && !destination.is_broadcast() && !source.is_multicast()
        }
        (source, _) => !source.is_unspecified() && !source.is_loopback() && !source.is_multicast(),
    };
    let is_about_first_piece = match &packet.transport {
        Transport::Tcp(_)
        | Transport::Udp(_)
        | Transport::Echo(_)
        | Transport::Icmp
        | Transport::Other => true,
        Transport::IcmpError(_) | Transport::LaterFragment => false,
    };
    is_about_unicast && is_about_first_piece && !packet.destination.is_multicast()
}

/// Puts an IP header into the emptied `out`, and zeroes for the rest; returns where that starts.
fn start(
    out: &mut Vec<u8>,
    from: IpAddr,
    to: IpAddr,
    protocol: Protocol,
    payload_bytes: usize,
) -> Result<usize, Unanswerable> {
    out.clear();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.resize(IPV4_BYTES + payload_bytes, 0);
            out[0] = 0x45;
            write_u16(out, 2, (IPV4_BYTES + payload_bytes) as u16);
            // DF, so that the identification may be zero (RFC 6864).
            out[6] = 0x40;
            out[8] = HOP_LIMIT;
            out[9] = protocol.0;
            out[12..16].copy_from_slice(&from.octets());
            out[16..20].copy_from_slice(&to.octets());
            checksum::write_ipv4_header(out, IPV4_BYTES);
            Ok(IPV4_BYTES)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            out.resize(IPV6_BYTES + payload_bytes, 0);
            out[0] = 0x60;
            write_u16(out, 4, payload_bytes as u16);
            out[6] = protocol.0;
            out[7] = HOP_LIMIT;
            out[8..24].copy_from_slice(&from.octets());
            out[24..40].copy_from_slice(&to.octets());
            Ok(IPV6_BYTES)
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
            Err(Unanswerable::Family)
        }
    }
}

#[cfg(test)]
mod tests;
