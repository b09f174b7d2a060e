//! How large packets may be: the interface's MTU, each path's limit, probes of it, and what hosts
//! are told whose packets do not fit.

use std::net::IpAddr;

use conflux_proto::frame::{Flags, FrameType, Probe};
use conflux_proto::relay::OUTER_BYTES;
use smallvec::SmallVec;

use super::{Output, Path, Plane};
use crate::ids::PeerIx;
use crate::mtu::{SizeProbe, Underlay};
use crate::packet::{Checksum, Packet, SMALL_BYTES, build_too_big, clamp_mss};
use crate::time::Mono;

/// The interface's MTU over an underlay of 1500 bytes: 40 of IPv6, 8 of UDP and 32 of a frame
/// are ours.
pub const MTU_BYTES: u16 = 1420;

impl Plane {
    /// Takes the interface's MTU; [`MTU_BYTES`] until then.
    pub fn set_mtu(&mut self, now: Mono, bytes: u16) {
        self.mtu_bytes = bytes;
        self.sizes.set_ceiling(now, usize::from(bytes));
    }

    /// Notes the largest packet sealed for `peer` of those that [`Plane::note_sent`] notes.
    pub fn note_largest(&mut self, now: Mono, peer: PeerIx, bytes: usize) {
        self.sizes.handle_sent(now, peer, bytes);
    }

    /// The interface under `path` refused a frame as too long that carried `bytes`.
    pub fn handle_refused(&mut self, now: Mono, path: Path, bytes: usize) {
        let peers: SmallVec<[(PeerIx, usize); 2]> = self
            .paths
            .iter()
            .filter_map(|(peer, paths)| match paths.current?.way() {
                None => (paths.current == Some(path)).then_some((*peer, bytes)),
                Some(way) => (self.direct_path(way.relay) == Some(path))
                    .then_some((*peer, bytes.saturating_sub(OUTER_BYTES))),
            })
            .collect();
        for (peer, bytes) in peers {
            self.sizes.handle_refused(now, peer, bytes);
        }
    }

    /// Returns an identification for fragments that this anchor makes of a whole packet.
    pub const fn next_fragment_id(&mut self) -> u32 {
        self.fragment_id = self.fragment_id.wrapping_add(1);
        self.fragment_id
    }

    /// Tells the sender of a packet that was to be sealed that it is too big for the path.
    pub fn refuse_too_big(
        &mut self,
        peer: PeerIx,
        flags: Flags,
        packet: &[u8],
        limit_bytes: usize,
    ) {
        let Ok(parsed) = Packet::parse(packet, packet.len()) else {
            return;
        };
        // IPv6 hosts believe no less than 1280 bytes, and such packets do pass.
        let told_bytes = match parsed.destination {
            IpAddr::V4(_) => limit_bytes,
            IpAddr::V6(_) => limit_bytes.max(SMALL_BYTES),
        };
        let told = u16::try_from(told_bytes).unwrap_or(u16::MAX);
        let mut error = Vec::new();
        if build_too_big(&mut error, packet, parsed.destination, told).is_err() {
            return;
        }
        // The packet has its wire form already. The error is made to look as if the peer had sent
        // it, so that it finds the sender the way a peer's own error would.
        let back = match (flags.contains(Flags::TO_CLIENT), parsed.destination) {
            (true, _) | (false, IpAddr::V6(_)) => Flags::NONE,
            (false, IpAddr::V4(_)) => Flags::TO_CLIENT,
        };
        self.loop_back(peer, back, error);
    }

    /// Finds the size of a peer's path anew: the path or the keys are.
    pub(super) fn follow_path(&mut self, now: Mono, peer: PeerIx) {
        let path = self.paths.get(&peer).and_then(|paths| paths.current);
        let Some(path) = path.filter(|_| self.sessions.can_send(peer)) else {
            return;
        };
        let leg = match path.way() {
            None => Some(path),
            Some(way) => self.direct_path(way.relay),
        };
        let is_v4 = leg.is_some_and(|leg| leg.remote.ip().to_canonical().is_ipv4());
        let underlay = match (path.is_relayed(), is_v4) {
            (false, true) => Underlay::Ipv4,
            (false, false) => Underlay::Ipv6,
            (true, true) => Underlay::RelayedIpv4,
            (true, false) => Underlay::RelayedIpv6,
        };
        self.sizes.start(now, peer, underlay, self.costs.rtt(peer));
    }

    /// Seals a probe that is as long as data of its size.
    pub(super) fn send_size_probe(&mut self, now: Mono, probe: SizeProbe) {
        let Ok((mut sealer, path, _)) = self.sealer(probe.peer) else {
            return;
        };
        let mut payload = vec![0; probe.bytes];
        let id = Probe { id: probe.id }.encode();
        payload[..id.len()].copy_from_slice(&id);
        let mut frame = SmallVec::from_elem(0, probe.bytes + sealer.overhead_bytes());
        let sealed = sealer.seal(FrameType::Probe, Flags::NONE, &payload, &mut frame);
        let Some((bytes, _)) = sealed else { return };
        frame.truncate(bytes);
        self.counters.frames_sent += 1;
        self.liveness.note_size_probe(now, probe.peer, probe.id);
        self.outputs.push_back(Output::Datagram { path, frame });
    }

    /// Lowers what a SYN of or to a host behind us offers, so that its segments fit the interface;
    /// `end` is that host's address, whose family counts.
    pub(super) fn fit_segments(
        &self,
        head: &mut [u8],
        packet: &Packet,
        checksum: Checksum,
        end: IpAddr,
    ) {
        let header_bytes = if end.is_ipv4() { 40 } else { 60 };
        clamp_mss(head, packet, checksum, self.mtu_bytes - header_bytes);
    }
}
