//! The connections that stand: how to reach each one's task, and whose it is.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use conflux_core::ids::PeerIx;
use tokio::sync::{mpsc, oneshot};

use super::connection::Words;
use super::strangers::Place;
use super::{ConnId, MAX_FRAME_BYTES, SendError};

/// Frames a connection has not sent yet; many small adverts may come at once.
const MAX_UNSENT_FRAMES: usize = 256;

/// Bytes a connection has not sent yet: what bounds a peer that does not read.
const MAX_UNSENT_BYTES: usize = 16 * MAX_FRAME_BYTES;

/// An order for a connection's task.
pub(super) enum Order {
    /// Send it.
    Send(Bytes),
    /// Send it, end the stream, tell when the far end has acknowledged all of it.
    SendLast(Bytes, oneshot::Sender<()>),
    /// See that what was sent arrives, then close with these words.
    Close(String),
}

/// The connections by number. The lock guards the map and each entry, for moments only.
#[derive(Default)]
pub(super) struct Registry {
    entries: Mutex<HashMap<ConnId, Entry>>,
}

/// A connection as its owners see it.
pub(super) struct Entry {
    pub(super) connection: quinn::Connection,
    pub(super) orders: mpsc::Sender<Order>,
    pub(super) unsent: Unsent,
    pub(super) words: Words,
    pub(super) peer: Option<PeerIx>,
    /// Held while the connection is accepted but not bound.
    pub(super) stranger: Option<Place>,
}

/// Between which addresses a connection runs, as quinn knows them.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) remote: SocketAddr,
    pub(super) local: Option<IpAddr>,
}

/// Counts the bytes in a connection's queue.
#[derive(Clone, Default)]
pub(super) struct Unsent(Arc<AtomicUsize>);

impl Registry {
    pub(super) fn insert(&self, conn: ConnId, entry: Entry) {
        self.lock().insert(conn, entry);
    }

    /// Removes a connection; `last` is told the peer whose last one it was.
    pub(super) fn remove(&self, conn: ConnId, last: impl FnOnce(PeerIx)) {
        let mut entries = self.lock();
        let Some(peer) = entries.remove(&conn).and_then(|entry| entry.peer) else {
            return;
        };
        if !entries.values().any(|entry| entry.peer == Some(peer)) {
            last(peer);
        }
    }

    /// Notes whose connection it is and has `bound` follow suit, unless the connection is gone.
    ///
    /// `bound` is given the addresses instead of the connection: quinn sends with the
    /// connection's lock held and the socket then takes that of the ways, so whoever holds the
    /// ways must never ask a connection.
    pub(super) fn bind(&self, conn: ConnId, peer: PeerIx, bound: impl FnOnce(Ends)) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(&conn) else {
            return;
        };
        entry.peer = Some(peer);
        entry.stranger = None;
        bound(Ends {
            remote: entry.connection.remote_address(),
            local: entry.connection.local_ip(),
        });
    }

    /// Gives an order to the connection's task. Never waits.
    pub(super) fn order(&self, conn: ConnId, order: Order) -> Result<(), SendError> {
        let entries = self.lock();
        let entry = entries.get(&conn).ok_or(SendError::Closed)?;
        let bytes = order.frame_bytes();
        if bytes > MAX_FRAME_BYTES {
            return Err(SendError::TooLarge);
        }
        if !entry.unsent.take(bytes) {
            return Err(SendError::Full);
        }
        entry.orders.try_send(order).map_err(|error| {
            entry.unsent.give_back(bytes);
            match error {
                mpsc::error::TrySendError::Full(_) => SendError::Full,
                mpsc::error::TrySendError::Closed(_) => SendError::Closed,
            }
        })
    }

    /// Notes what is said at the close and returns the QUIC connection.
    pub(super) fn part(&self, conn: ConnId, words: &str) -> Option<quinn::Connection> {
        let entries = self.lock();
        let entry = entries.get(&conn)?;
        // What was said first counts.
        let _ = entry.words.set(words.to_owned());
        Some(entry.connection.clone())
    }

    pub(super) fn connection(&self, conn: ConnId) -> Option<quinn::Connection> {
        self.lock().get(&conn).map(|entry| entry.connection.clone())
    }

    pub(super) fn is_bound(&self, conn: ConnId) -> bool {
        self.lock()
            .get(&conn)
            .is_some_and(|entry| entry.peer.is_some())
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnId, Entry>> {
        // Every method leaves the map whole, so a panic elsewhere taints nothing.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn orders() -> (mpsc::Sender<Order>, mpsc::Receiver<Order>) {
    mpsc::channel(MAX_UNSENT_FRAMES)
}

impl Order {
    pub(super) fn frame_bytes(&self) -> usize {
        match self {
            Self::Send(frame) | Self::SendLast(frame, _) => frame.len(),
            Self::Close(_) => 0,
        }
    }
}

impl Unsent {
    fn take(&self, bytes: usize) -> bool {
        let within = |unsent: usize| {
            let total = unsent + bytes;
            (total <= MAX_UNSENT_BYTES).then_some(total)
        };
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .is_ok()
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}
