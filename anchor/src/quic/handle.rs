//! Commands of the control loop to the QUIC tasks.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conflux_core::ids::PeerIx;
use conflux_core::paths::Way;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::{CLOSED_HERE, FAREWELL};
use super::registry::Order;
use super::{ConnId, DialTarget, NotDelivered, SendError, Shared, dial};

/// Gives commands; cheap to clone. [`Self::shut_down`] ends everything behind it.
#[derive(Clone)]
pub struct QuicHandle {
    shared: Arc<Shared>,
}

impl QuicHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Starts to dial. One event tells the outcome; a target being dialled already gets no
    /// second dial and no second event.
    pub fn dial(&self, target: DialTarget) {
        self.shared
            .runtime
            .spawn(dial::dial(self.shared.clone(), target));
    }

    /// Says that a connection is `peer`'s and may stay: its way becomes the peer's current one,
    /// until the last connection bound to the peer ends. Connections dialled by
    /// [`DialTarget::Peer`] are bound from the start; any other that is not bound within
    /// [`BIND_WITHIN`](super::BIND_WITHIN) is closed.
    pub fn bind(&self, conn: ConnId, peer: PeerIx) {
        self.shared.registry.bind(conn, peer, |ends| {
            let mut paths = self.shared.paths.lock();
            if let Some(way) = paths.behind(ends.remote) {
                let way = Way {
                    local: way.local.or(ends.local),
                    ..way
                };
                paths.confirm(peer, way);
            }
            paths.adopt(ends.remote, peer);
        });
    }

    /// Queues a frame.
    ///
    /// # Errors
    /// See [`SendError`]; [`SendError::Full`] means the far end does not read: close it.
    pub fn send(&self, conn: ConnId, frame: Bytes) -> Result<(), SendError> {
        self.shared.registry.order(conn, Order::Send(frame))
    }

    /// Sends the last frame of a connection behind those queued, and waits until the far end has
    /// acknowledged everything. No more can be sent on it; close it afterwards.
    ///
    /// # Errors
    /// See [`NotDelivered`].
    ///
    /// # Cancel safety
    /// When dropped, the frame goes its way all the same.
    pub async fn send_and_wait_acked(
        &self,
        conn: ConnId,
        frame: Bytes,
        within: Duration,
    ) -> Result<(), NotDelivered> {
        let (done, acknowledged) = oneshot::channel();
        self.shared
            .registry
            .order(conn, Order::SendLast(frame, done))?;
        match timeout(within, acknowledged).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(NotDelivered::Lost),
            Err(_) => Err(NotDelivered::TimedOut),
        }
    }

    /// Closes a connection with words for the far end. What was queued before is given
    /// one second to arrive first.
    pub fn close(&self, conn: ConnId, reason: &str) {
        let Some(connection) = self.shared.registry.part(conn, reason) else {
            return;
        };
        let order = Order::Close(reason.to_owned());
        let patience = match self.shared.registry.order(conn, order) {
            Ok(()) => FAREWELL,
            Err(SendError::Closed | SendError::Full | SendError::TooLarge) => Duration::ZERO,
        };
        let reason = reason.to_owned();
        self.shared.runtime.spawn(async move {
            // Ends early when the connection does, so that nothing is kept for a closed one.
            if timeout(patience, connection.closed()).await.is_err() {
                connection.close(CLOSED_HERE, reason.as_bytes());
            }
        });
    }

    /// Closes all connections at once with words for the far ends, waits until they are told or
    /// `within` has passed, and closes the sockets. Nothing works afterwards.
    pub async fn shut_down(&self, reason: &str, within: Duration) {
        self.shared.endpoint.close(CLOSED_HERE, reason.as_bytes());
        // Whether they were told in time is not known to matter to anybody.
        let _ = timeout(within, self.shared.endpoint.wait_idle()).await;
        self.shared.mux.unplug();
    }

    /// Returns the smoothed round-trip time of a connection.
    pub fn rtt(&self, conn: ConnId) -> Option<Duration> {
        self.shared
            .registry
            .connection(conn)
            .map(|connection| connection.rtt())
    }

    /// Returns how many openings of connections were turned away unread, for there were too many.
    pub fn turned_away(&self) -> u64 {
        self.shared.mux.turned_away()
    }

    /// Returns the number of connections that stand.
    pub fn connections(&self) -> usize {
        self.shared.registry.len()
    }

    /// Returns the addresses of the control sockets, in the order they were given.
    pub fn locals(&self) -> &[SocketAddr] {
        self.shared.mux.locals()
    }
}

impl fmt::Debug for QuicHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicHandle")
            .field("locals", &self.locals())
            .finish_non_exhaustive()
    }
}
