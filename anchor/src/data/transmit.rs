//! Sealed frames on their way to the sockets: runs of equal size for one peer go out by one call.

use conflux_core::plane::{DropReason, Path};
use tracing::trace;

use crate::udp::{DataSocket, MAX_SEGMENTS, MAX_SEND_BYTES};

/// A run of frames to one path, each as long as the first, the last perhaps shorter.
pub(super) struct Transmit {
    bytes: Box<[u8]>,
    used: usize,
    frames: usize,
    frame_bytes: usize,
    to: Option<Path>,
    closed: bool,
}

impl Transmit {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; MAX_SEND_BYTES].into_boxed_slice(),
            used: 0,
            frames: 0,
            frame_bytes: 0,
            to: None,
            closed: false,
        }
    }

    /// Returns room for one frame of `bytes` to `to`, sending what is in the way. Follow it by
    /// [`Self::commit`].
    pub(super) fn room(
        &mut self,
        sockets: &mut [DataSocket],
        to: Path,
        bytes: usize,
    ) -> (&mut [u8], u64) {
        let fits = self.to == Some(to)
            && !self.closed
            && bytes <= self.frame_bytes
            && self.frames < MAX_SEGMENTS
            && self.used + bytes <= self.bytes.len();
        let mut lost = 0;
        if !fits {
            lost = self.flush(sockets);
            self.to = Some(to);
            self.frame_bytes = bytes;
        }
        (&mut self.bytes[self.used..], lost)
    }

    /// Adds the frame of `bytes` that was written to the room.
    pub(super) fn commit(&mut self, bytes: usize) {
        self.used += bytes;
        self.frames += 1;
        self.closed = bytes < self.frame_bytes;
    }

    /// Sends what is there; returns the frames that the kernel did not take.
    pub(super) fn flush(&mut self, sockets: &mut [DataSocket]) -> u64 {
        let frames = self.frames;
        let Some(to) = self.to.take().filter(|_| frames > 0) else {
            return 0;
        };
        let run = &self.bytes[..self.used];
        let sent = match sockets.get_mut(usize::from(to.socket)) {
            Some(socket) => socket.send(to.remote, run, self.frame_bytes),
            None => Ok(()),
        };
        self.used = 0;
        self.frames = 0;
        self.closed = false;
        match sent {
            Ok(()) => 0,
            Err(error) => {
                trace!(%error, reason = DropReason::SendFailed.as_str(), "frames dropped");
                frames as u64
            }
        }
    }
}
