//! Packets of the interface on their way to a peer: cut to what the path carries, sealed, and
//! queued. What the path refuses goes back to the state machine.

use conflux_core::ids::PeerIx;
use conflux_core::packet::{
    Checksum, Cut, Offload, Segmentation, Uncuttable, fragment_ipv4, fragment_small,
};
use conflux_core::plane::{DropReason, Path, Plane, Sealing as FrameSealer};
use conflux_core::session::SentAt;
use conflux_core::time::Now;
use conflux_proto::frame::{Flags, FrameType, OVERHEAD_BYTES};

use super::transmit::{Lost, Transmit};
use crate::udp::DataSocket;

/// A packet ready to be cut and sealed.
#[derive(Clone, Copy)]
pub(super) struct Outgoing {
    pub(super) peer: PeerIx,
    pub(super) flags: Flags,
    pub(super) offload: Offload,
}

/// What sending takes, lent by the thread.
pub(super) struct Link<'a> {
    pub(super) plane: &'a mut Plane,
    pub(super) transmit: &'a mut Transmit,
    pub(super) sockets: &'a mut [DataSocket],
    pub(super) now: Now,
}

impl Link<'_> {
    /// Cuts, seals and queues one packet.
    pub(super) fn send(&mut self, out: Outgoing, packet: &mut [u8]) {
        if let Err(reason) = self.cut(out, packet) {
            self.plane.note_drop(reason);
        }
    }

    /// Sends a frame that the state machine sealed itself.
    pub(super) fn send_frame(&mut self, path: Path, frame: &[u8]) {
        let lost = self.transmit.send_alone(self.sockets, path, frame);
        self.note_lost(lost);
    }

    pub(super) fn flush(&mut self) {
        let lost = self.transmit.flush(self.sockets);
        self.note_lost(lost);
    }

    fn cut(&mut self, out: Outgoing, packet: &mut [u8]) -> Result<(), DropReason> {
        let (mut sealer, path, limit_bytes) = self.plane.sealer(out.peer)?;
        let mut batch = Batch::new(path, flags_of(out));
        match Cut::new(packet, out.offload, limit_bytes) {
            Ok(mut cut) => {
                let mut sealed = Ok(());
                while let Some(piece) = cut.next() {
                    sealed = batch.seal(&mut sealer, self.transmit, self.sockets, piece);
                    if sealed.is_err() {
                        break;
                    }
                }
                self.note(batch, out);
                sealed
            }
            Err(Uncuttable::TooBig { .. }) if out.offload.segmentation == Segmentation::Udp => {
                self.fragment_each(out, packet, limit_bytes)
            }
            Err(Uncuttable::TooBig { .. }) => self.fragment(out, packet, limit_bytes),
            Err(_) => Err(DropReason::Malformed),
        }
    }

    /// A super-packet of UDP whose datagrams do not fit: each stands for itself.
    fn fragment_each(
        &mut self,
        out: Outgoing,
        packet: &mut [u8],
        limit_bytes: usize,
    ) -> Result<(), DropReason> {
        let mut cut =
            Cut::new(packet, out.offload, usize::MAX).map_err(|_| DropReason::Malformed)?;
        // The next datagram's headers are made from this one's, so fragments go elsewhere.
        let mut datagram = std::mem::take(&mut self.transmit.scratch);
        let mut sent = Ok(());
        while let Some(piece) = cut.next() {
            datagram.clear();
            datagram.extend_from_slice(piece);
            sent = self.fragment(out, &mut datagram, limit_bytes);
            if sent.is_err() {
                break;
            }
        }
        self.transmit.scratch = datagram;
        sent
    }

    /// A packet that neither fits nor may be cut: IPv4 without DF goes in fragments, and so does
    /// anything of up to 1280 bytes; the sender of anything else is told.
    fn fragment(
        &mut self,
        out: Outgoing,
        packet: &mut [u8],
        limit_bytes: usize,
    ) -> Result<(), DropReason> {
        if packet.len() <= limit_bytes {
            let mut pieces = Some(&*packet);
            return self.seal_all(out, flags_of(out), |batch| batch.piece(pieces.take()));
        }
        let checksum = out.offload.checksum;
        if let Ok(mut pieces) = fragment_ipv4(packet, checksum, limit_bytes) {
            return self.seal_all(out, out.flags, |batch| batch.piece(pieces.next()));
        }
        let identification = self.plane.next_fragment_id();
        if let Ok(mut pieces) = fragment_small(packet, checksum, limit_bytes, identification) {
            return self.seal_all(out, out.flags, |batch| batch.piece(pieces.next()));
        }
        self.plane
            .refuse_too_big(out.peer, out.flags, packet, limit_bytes);
        Err(DropReason::TooBig)
    }

    /// Seals pieces until `next` has no more.
    fn seal_all(
        &mut self,
        out: Outgoing,
        flags: Flags,
        mut next: impl FnMut(&mut Sealing<'_, '_>) -> Option<Result<(), DropReason>>,
    ) -> Result<(), DropReason> {
        let (mut sealer, path, _) = self.plane.sealer(out.peer)?;
        let mut sealing = Sealing {
            batch: Batch::new(path, flags),
            sealer: &mut sealer,
            transmit: self.transmit,
            sockets: self.sockets,
        };
        let mut sealed = Ok(());
        while let Some(result) = next(&mut sealing) {
            sealed = result;
            if sealed.is_err() {
                break;
            }
        }
        let batch = sealing.batch;
        self.note(batch, out);
        sealed
    }

    fn note(&mut self, batch: Batch, out: Outgoing) {
        let now = self.now.mono;
        if let Some(highest) = batch.highest {
            self.plane
                .note_sent(now, out.peer, out.flags, batch.frames, highest);
            self.plane.note_largest(now, out.peer, batch.largest_bytes);
        }
        self.note_lost(batch.lost);
    }

    /// Tells the state machine what the kernel did not take.
    pub(super) fn note_lost(&mut self, lost: Lost) {
        for _ in 0..lost.frames {
            self.plane.note_drop(DropReason::SendFailed);
        }
        if let Some((path, frame_bytes)) = lost.refused {
            let bytes = frame_bytes.saturating_sub(OVERHEAD_BYTES);
            self.plane.handle_refused(self.now.mono, path, bytes);
        }
    }
}

/// What sealing pieces one after the other takes.
struct Sealing<'a, 'k> {
    batch: Batch,
    sealer: &'a mut FrameSealer<'k>,
    transmit: &'a mut Transmit,
    sockets: &'a mut [DataSocket],
}

impl Sealing<'_, '_> {
    fn piece(&mut self, piece: Option<&[u8]>) -> Option<Result<(), DropReason>> {
        let piece = piece?;
        Some(
            self.batch
                .seal(self.sealer, self.transmit, self.sockets, piece),
        )
    }
}

/// The frames one packet became.
struct Batch {
    path: Path,
    flags: Flags,
    frames: u32,
    largest_bytes: usize,
    lost: Lost,
    highest: Option<SentAt>,
}

impl Batch {
    fn new(path: Path, flags: Flags) -> Self {
        Self {
            path,
            flags,
            frames: 0,
            largest_bytes: 0,
            lost: Lost::default(),
            highest: None,
        }
    }

    fn seal(
        &mut self,
        sealer: &mut FrameSealer<'_>,
        transmit: &mut Transmit,
        sockets: &mut [DataSocket],
        piece: &[u8],
    ) -> Result<(), DropReason> {
        let (room, lost) = transmit.room(sockets, self.path, piece.len() + sealer.overhead_bytes());
        self.lost.add(lost);
        let sealed = sealer.seal(FrameType::Data, self.flags, piece, room);
        let (bytes, at) = sealed.ok_or(DropReason::NoSession)?;
        transmit.commit(bytes);
        self.frames += 1;
        self.largest_bytes = self.largest_bytes.max(piece.len());
        self.highest = Some(at);
        Ok(())
    }
}

fn flags_of(out: Outgoing) -> Flags {
    match out.offload.checksum {
        Checksum::Partial => out.flags.with(Flags::PARTIAL_CHECKSUM),
        Checksum::Complete => out.flags,
    }
}
