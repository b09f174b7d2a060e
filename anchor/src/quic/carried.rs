//! QUIC datagrams for peers that a relay reaches: the data thread has the keys of relays, so it
//! sends them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use conflux_proto::relay::OUTER_BYTES;

use crate::poll::Waker;

/// Datagrams handed over and not yet sent; more are dropped, and QUIC sends them again.
const MAX_CARRIED: usize = 256;

/// One datagram, [`OUTER_BYTES`] of room in front, and the address of the way it is to take.
pub type Carry = (SocketAddr, Vec<u8>);

/// The QUIC socket's end.
#[derive(Clone, Debug)]
pub(super) struct CarrySender {
    queue: SyncSender<Carry>,
    waker: Arc<OnceLock<Waker>>,
    dropped: Arc<AtomicU64>,
}

/// The data thread's end.
#[derive(Debug)]
pub struct Carries {
    queue: Receiver<Carry>,
    waker: Arc<OnceLock<Waker>>,
}

pub(super) fn carries() -> (CarrySender, Carries) {
    let (sender, receiver) = sync_channel(MAX_CARRIED);
    let waker: Arc<OnceLock<Waker>> = Arc::default();
    let sender = CarrySender {
        queue: sender,
        waker: waker.clone(),
        dropped: Arc::default(),
    };
    let queue = receiver;
    (sender, Carries { queue, waker })
}

impl CarrySender {
    /// Copies one datagram into the queue; a full queue drops it and counts. Never waits.
    pub(super) fn give(&self, to: SocketAddr, contents: &[u8]) {
        let mut datagram = Vec::with_capacity(OUTER_BYTES + contents.len());
        datagram.resize(OUTER_BYTES, 0);
        datagram.extend_from_slice(contents);
        if self.queue.try_send((to, datagram)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

impl Carries {
    /// Has `waker` rung whenever something is put into the queue, from now on; the first one
    /// stays.
    pub fn wake(&self, waker: Waker) {
        // There is one data thread per endpoint.
        let _ = self.waker.set(waker);
    }

    /// Returns the next datagram, none when the queue is empty.
    pub fn next(&self) -> Option<Carry> {
        self.queue.try_recv().ok()
    }
}
