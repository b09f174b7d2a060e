//! What each directed pair of hosts does to the frames between them: a table the lab changes while
//! the switch (or, at kernel speed, the hub's nft rules) follows it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Hosts on one segment; the table is a square of this side.
pub(crate) const MAX_PORTS: usize = 64;

/// What happens to frames on the way from one host to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Conditions {
    /// One-way delay.
    pub delay: Duration,
    /// Up to this much more, evenly distributed; frames stay in order.
    pub jitter: Duration,
    /// The share of frames lost, 0 to 1.
    pub loss: f64,
    /// The share of frames that arrive twice, 0 to 1. On the userspace switch only.
    pub doubled: f64,
    /// The share of UDP datagrams with one wrong bit under a right checksum, 0 to 1. On the
    /// userspace switch only.
    pub garbled: f64,
    /// Nothing passes.
    pub cut: bool,
    /// Bits per second; none: as fast as the switch goes.
    pub rate: Option<u64>,
    /// Bytes that may wait for the rate; more are lost.
    pub queue_bytes: u64,
    /// The longest frame that passes, in bytes of its IP packet; longer ones vanish, as on a path
    /// whose ICMP is dropped. None: whatever the network cards send.
    pub largest_frame_bytes: Option<usize>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            doubled: 0.0,
            garbled: 0.0,
            cut: false,
            rate: None,
            queue_bytes: 256 * 1024,
            largest_frame_bytes: None,
        }
    }
}

/// What a directed pair has carried so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Carried {
    /// Frames handed over, or on their way.
    pub frames: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Frames lost or cut off.
    pub lost: u64,
}

/// The table; one entry per directed pair.
pub(crate) struct Links {
    /// Guards the entries; held per frame by the switch and for a moment by the lab.
    entries: Mutex<Vec<(Conditions, Carried)>>,
}

impl Links {
    pub(crate) fn new() -> Self {
        Self {
            entries: Mutex::new(vec![Default::default(); MAX_PORTS * MAX_PORTS]),
        }
    }

    pub(crate) fn change(&self, way: Way, change: impl FnOnce(&mut Conditions)) {
        change(&mut self.lock()[way.index()].0);
    }

    /// Reads a pair's conditions and lets `decide` say whether a frame is carried.
    pub(crate) fn carry(
        &self,
        way: Way,
        bytes: usize,
        decide: impl FnOnce(&Conditions) -> bool,
    ) -> bool {
        let mut entries = self.lock();
        let (conditions, carried) = &mut entries[way.index()];
        let passes = decide(conditions);
        if passes {
            carried.frames += 1;
            carried.bytes += bytes as u64;
        } else {
            carried.lost += 1;
        }
        passes
    }

    pub(crate) fn conditions(&self, way: Way) -> Conditions {
        self.lock()[way.index()].0.clone()
    }

    pub(crate) fn carried(&self, way: Way) -> Carried {
        self.lock()[way.index()].1
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Conditions, Carried)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A directed pair of ports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Way {
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Way {
    fn index(self) -> usize {
        self.from * MAX_PORTS + self.to
    }
}
