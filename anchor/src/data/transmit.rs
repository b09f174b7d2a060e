//! Sealed frames on their way to the sockets: runs of equal size for one peer go out by one call.

use conflux_core::paths::Way;
use conflux_core::plane::{DropReason, Path};
use tracing::trace;

use crate::udp::{DataSocket, MAX_SEGMENTS, MAX_SEND_BYTES, SendError};

/// Frames that the kernel did not take.
#[derive(Clone, Copy, Default)]
pub(super) struct Lost {
    pub(super) frames: u64,
    /// The path whose interface takes no frames of so many bytes.
    pub(super) refused: Option<(Path, usize)>,
}

impl Lost {
    pub(super) fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.refused = other.refused.or(self.refused);
    }
}

/// A run of frames to one path, each as long as the first, the last perhaps shorter.
pub(super) struct Transmit {
    bytes: Box<[u8]>,
    used: usize,
    frames: usize,
    frame_bytes: usize,
    to: Option<Path>,
    closed: bool,
    /// Room for a packet on its way here.
    pub(super) scratch: Vec<u8>,
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
            scratch: Vec::new(),
        }
    }

    /// Returns room for one frame of `bytes` to `to`, sending what is in the way. Follow it by
    /// [`Self::commit`].
    pub(super) fn room(
        &mut self,
        sockets: &mut [DataSocket],
        to: Path,
        bytes: usize,
    ) -> (&mut [u8], Lost) {
        let fits = self.to == Some(to)
            && !self.closed
            && bytes <= self.frame_bytes
            && self.frames < MAX_SEGMENTS
            && self.used + bytes <= self.bytes.len();
        let mut lost = Lost::default();
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

    /// Sends one frame by itself, after what is there: it may be longer than the path takes, and
    /// must not take others with it.
    pub(super) fn send_alone(
        &mut self,
        sockets: &mut [DataSocket],
        to: Path,
        frame: &[u8],
    ) -> Lost {
        let mut lost = self.flush(sockets);
        lost.add(send(sockets, to, frame, frame.len()));
        lost
    }

    /// Sends what is there; returns what the kernel did not take.
    pub(super) fn flush(&mut self, sockets: &mut [DataSocket]) -> Lost {
        let frames = self.frames;
        let Some(to) = self.to.take().filter(|_| frames > 0) else {
            return Lost::default();
        };
        let lost = send(sockets, to, &self.bytes[..self.used], self.frame_bytes);
        self.used = 0;
        self.frames = 0;
        self.closed = false;
        lost
    }
}

/// Sends a run of frames; returns what the kernel did not take.
pub(super) fn send(sockets: &mut [DataSocket], to: Path, run: &[u8], frame_bytes: usize) -> Lost {
    let way = Way {
        remote: to.remote,
        local: to.local,
    };
    let sent = match sockets.get_mut(usize::from(to.socket)) {
        Some(socket) => socket.send(way, run, frame_bytes),
        None => Ok(()),
    };
    let Err(error) = sent else {
        return Lost::default();
    };
    trace!(%error, reason = DropReason::SendFailed.as_str(), "frames dropped");
    Lost {
        frames: run.len().div_ceil(frame_bytes.max(1)) as u64,
        refused: matches!(error, SendError::TooBig).then_some((to, frame_bytes)),
    }
}
