//! Packets of peers on their way to the interface: opened frames of a receive batch are joined
//! with their neighbours, given the form the host expects, and written once.

use conflux_core::ids::PeerIx;
use conflux_core::packet::{Checksum, HEADROOM, Joinable, Joiner, Packet, Refused};
use conflux_core::plane::{DropReason, Head, Plane, ToHost};
use conflux_core::time::Now;
use conflux_proto::frame::Flags;
use tracing::trace;

use crate::tun::{Tun, WriteError};

/// Packets joined between two drains: what one receive batch brings in GRO runs of 64.
const CAPACITY: usize = 4096;

/// The joiner and what it needs.
pub(super) struct Deliver {
    joiner: Joiner,
}

impl Deliver {
    pub(super) fn new(takes_udp: bool) -> Self {
        let joinable = if takes_udp {
            Joinable::TcpAndUdp
        } else {
            Joinable::Tcp
        };
        Self {
            joiner: Joiner::new(joinable, CAPACITY),
        }
    }

    /// Takes one opened packet at `position` of the batch; false when the joiner is full and
    /// wants to be drained first.
    pub(super) fn push(
        &mut self,
        plane: &mut Plane,
        peer: PeerIx,
        flags: Flags,
        position: usize,
        packet: &[u8],
    ) -> bool {
        let checksum = if flags.contains(Flags::PARTIAL_CHECKSUM) {
            Checksum::Partial
        } else {
            Checksum::Complete
        };
        match self
            .joiner
            .push(peer.0, flags.bits(), checksum, position, packet)
        {
            Ok(()) => true,
            Err(Refused::Full) => false,
            Err(refused) => {
                trace!(%refused, "packet of a peer dropped");
                plane.note_drop(DropReason::MalformedInner);
                true
            }
        }
    }

    /// Writes everything that was pushed; `batch` is the memory the positions point into.
    /// Returns false when the interface is gone.
    pub(super) fn drain(
        &mut self,
        plane: &mut Plane,
        tun: &mut Tun,
        now: Now,
        batch: &[u8],
    ) -> bool {
        while let Some(joined) = self.joiner.pop() {
            let spans = joined.spans();
            let mut offload = joined.offload;
            let total = joined.packet.total_bytes;
            let mut head = Head {
                bytes: joined.buffer,
                start: HEADROOM,
                total,
            };
            let peer = PeerIx(joined.tag);
            if let ToHost::Dropped(reason) =
                plane.from_peer(now, peer, joined.flags, &mut head, &mut offload)
            {
                trace!(reason = reason.as_str(), "packet of a peer dropped");
                continue;
            }
            let (start, total) = (head.start, head.total);
            let bytes = &head.bytes[start..];
            let Ok(packet) = Packet::parse(bytes, total) else {
                plane.note_drop(DropReason::MalformedInner);
                continue;
            };
            let virtio = offload.to_virtio(&packet);
            let payload = spans.map(|span| &batch[span.position..span.position + span.bytes]);
            match tun.write(&virtio, bytes, payload) {
                Ok(()) => {}
                Err(WriteError::Gone) => return false,
                Err(error) => {
                    trace!(%error, "the interface did not take a packet");
                    plane.note_drop(DropReason::InterfaceFailed);
                }
            }
        }
        true
    }
}
