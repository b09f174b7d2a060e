//! Datagrams carried for others, sent from where they were received: neighbours in the batch's
//! memory that are as long and go to the same peer leave by one call.

use conflux_core::plane::Path;

use super::transmit::{Lost, send};
use crate::udp::{DataSocket, MAX_SEGMENTS, MAX_SEND_BYTES};

/// A run being gathered, by its place in the batch.
#[derive(Default)]
pub(super) struct Forward {
    to: Option<Path>,
    start: usize,
    end: usize,
    frames: usize,
    segment_bytes: usize,
    closed: bool,
}

impl Forward {
    /// Adds the datagram of `bytes` at `start` of `memory`, sending the run before it where it does
    /// not fit.
    pub(super) fn push(
        &mut self,
        sockets: &mut [DataSocket],
        memory: &[u8],
        to: Path,
        (start, bytes): (usize, usize),
    ) -> Lost {
        let fits = self.to == Some(to)
            && !self.closed
            && self.end == start
            && bytes <= self.segment_bytes
            && self.frames < MAX_SEGMENTS
            && start + bytes - self.start <= MAX_SEND_BYTES;
        let mut lost = Lost::default();
        if !fits {
            lost = self.flush(sockets, memory);
            self.to = Some(to);
            self.start = start;
            self.frames = 0;
            self.segment_bytes = bytes;
        }
        self.end = start + bytes;
        self.frames += 1;
        self.closed = bytes < self.segment_bytes;
        lost
    }

    /// Sends what is there; returns what the kernel did not take.
    pub(super) fn flush(&mut self, sockets: &mut [DataSocket], memory: &[u8]) -> Lost {
        let Some(to) = self.to.take() else {
            return Lost::default();
        };
        send(
            sockets,
            to,
            &memory[self.start..self.end],
            self.segment_bytes,
        )
    }
}
