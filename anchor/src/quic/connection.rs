//! The life of one connection: its task reads frames for the control loop and carries out the
//! orders given to it, each way at its own pace, until the connection ends.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use conflux_core::paths::Way;
use conflux_proto::id::AnchorKey;
use quinn::{
    ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, VarInt, WriteError,
};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::dial::Attempt;
use super::registry::{self, Entry, Order, Unsent};
use super::strangers::Place;
use super::{
    BIND_WITHIN, Closed, ConnId, Connected, DialTarget, Frame, MAX_FRAME_BYTES, Psk, QuicEvent,
    Shared,
};

/// The one code with which we close; the words tell the rest.
pub(super) const CLOSED_HERE: VarInt = VarInt::from_u32(0);

/// Time for what was sent last to arrive, and for the far end to say farewell in turn.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// Frames of one connection the control loop may have in hand or before it; reading goes on as
/// it drops them. Bounds what one peer can make us keep to half a MiB, and its share of the
/// control loop's queue.
pub(super) const MAX_UNREAD_FRAMES: usize = 8;

/// Time a frame may wait for a far end that keeps the connection alive but does not read.
const STALL: Duration = Duration::from_secs(20);

/// Letters kept of what a far end says when it closes.
const MAX_WORDS: usize = 200;

/// The label of the exported secret; another label gives another secret.
const PSK_LABEL: &[u8] = b"conflux noise psk 1";

/// A connection with its stream open and its key proven.
pub(super) struct Link {
    pub(super) connection: quinn::Connection,
    pub(super) send: SendStream,
    pub(super) recv: RecvStream,
    pub(super) key: AnchorKey,
    pub(super) psk: Psk,
    pub(super) way: Way,
    pub(super) origin: Origin,
}

/// How a connection came to be.
pub(super) enum Origin {
    /// Dialled; the attempt's made-up address is kept while the connection lives.
    Dialled(Attempt),
    /// Accepted from somebody not bound yet.
    Accepted(Place),
}

/// Runs the connection to its end.
pub(super) async fn run(shared: Arc<Shared>, link: Link) {
    let conn = ConnId(shared.next_conn.fetch_add(1, Ordering::Relaxed));
    let Link {
        connection,
        send,
        recv,
        key,
        psk,
        way,
        origin,
    } = link;
    let (mut attempt, stranger) = match origin {
        Origin::Dialled(attempt) => (Some(attempt), None),
        Origin::Accepted(place) => (None, Some(place)),
    };
    let dialled = attempt.as_ref().map(Attempt::target);
    let words: Words = Arc::default();
    let writer = enter(&shared, conn, &connection, send, stranger, &words);
    if let Some(DialTarget::Peer { peer, .. }) = dialled {
        shared
            .registry
            .bind(conn, peer, |_| shared.paths.lock().confirm(peer, way));
    }
    if let Some(attempt) = &mut attempt {
        attempt.settle();
    }
    let connected = Connected {
        conn,
        key,
        dialled,
        way,
        psk,
    };
    // An error means the control loop is gone; the exchange below then ends by itself.
    let _ = shared.events.send(QuicEvent::Connected(connected)).await;

    let reason = exchange(&shared, conn, &connection, recv, writer, &words).await;

    connection.close(CLOSED_HERE, reason.to_string().as_bytes());
    // Beneath the registry's lock a new connection of the peer cannot be bound in between.
    shared
        .registry
        .remove(conn, |peer| shared.paths.lock().demote(peer));
    drop(attempt);
    let _ = shared
        .events
        .send(QuicEvent::Closed { conn, key, reason })
        .await;
}

/// Enters a connection into the registry; returns what carries out the orders that come from it.
fn enter(
    shared: &Shared,
    conn: ConnId,
    connection: &quinn::Connection,
    send: SendStream,
    stranger: Option<Place>,
    words: &Words,
) -> Writer {
    let (orders, queue) = registry::orders();
    let unsent = Unsent::default();
    let entry = Entry {
        connection: connection.clone(),
        orders,
        unsent: unsent.clone(),
        words: words.clone(),
        peer: None,
        stranger,
    };
    shared.registry.insert(conn, entry);
    Writer {
        connection: connection.clone(),
        send,
        queue,
        unsent,
    }
}

/// What this side said when it closed, for its own record.
pub(super) type Words = Arc<OnceLock<String>>;

/// Returns what a far end said, fit for a log.
pub(crate) fn readable(words: &[u8]) -> String {
    let text = String::from_utf8_lossy(words);
    text.chars()
        .filter(|letter| !letter.is_control())
        .take(MAX_WORDS)
        .collect()
}

async fn exchange(
    shared: &Shared,
    conn: ConnId,
    connection: &quinn::Connection,
    recv: RecvStream,
    writer: Writer,
    words: &Words,
) -> Closed {
    let reader = read_frames(conn, recv, &shared.events);
    let others = async {
        tokio::join!(
            write_frames(writer),
            disconnect_stranger(shared, conn, connection, words)
        );
        std::future::pending::<Infallible>().await
    };
    tokio::pin!(reader, others);
    // The reader alone tells the end: it first gives what has arrived before the end.
    let end = tokio::select! {
        end = &mut reader => end,
        never = &mut others => match never {},
    };
    match end {
        End::Lost(error) => closed(error, words),
        End::Misbehaved(how) => Closed::Misbehaved(how),
        End::Unheard => Closed::Here("shutting down".to_owned()),
        End::Finished => tokio::select! {
            // What the far end acknowledges meanwhile is still waited for.
            never = &mut others => match never {},
            farewell = timeout(FAREWELL, connection.closed()) => match farewell {
                Ok(error) => closed(error, words),
                Err(_) => Closed::There("it ended its stream".to_owned()),
            },
        },
    }
}

enum End {
    Finished,
    Lost(ConnectionError),
    Misbehaved(String),
    /// The control loop takes no more events.
    Unheard,
}

async fn read_frames(conn: ConnId, mut recv: RecvStream, events: &mpsc::Sender<QuicEvent>) -> End {
    let permits = Arc::new(Semaphore::new(MAX_UNREAD_FRAMES));
    loop {
        let mut head = [0; 4];
        match recv.read_exact(&mut head).await {
            Ok(()) => {}
            Err(ReadExactError::FinishedEarly(0)) => return End::Finished,
            Err(error) => return read_failed(error),
        }
        let bytes = u32::from_be_bytes(head) as usize;
        if bytes == 0 {
            continue;
        }
        if bytes > MAX_FRAME_BYTES {
            return End::Misbehaved(format!("a frame of {bytes} bytes"));
        }
        let permit = permits.clone().acquire_owned().await.expect("never closed");
        let mut body = BytesMut::zeroed(bytes);
        if let Err(error) = recv.read_exact(&mut body).await {
            return read_failed(error);
        }
        let frame = Frame {
            bytes: body.freeze(),
            _permit: permit,
        };
        if events.send(QuicEvent::Frame { conn, frame }).await.is_err() {
            return End::Unheard;
        }
    }
}

fn read_failed(error: ReadExactError) -> End {
    match error {
        ReadExactError::FinishedEarly(_) => End::Misbehaved("a frame cut short".to_owned()),
        ReadExactError::ReadError(ReadError::ConnectionLost(error)) => End::Lost(error),
        ReadExactError::ReadError(
            error @ (ReadError::Reset(_)
            | ReadError::ClosedStream
            | ReadError::IllegalOrderedRead
            | ReadError::ZeroRttRejected),
        ) => End::Misbehaved(error.to_string()),
    }
}

struct Writer {
    connection: quinn::Connection,
    send: SendStream,
    queue: mpsc::Receiver<Order>,
    unsent: Unsent,
}

async fn write_frames(mut writer: Writer) {
    while let Some(order) = writer.queue.recv().await {
        let bytes = order.frame_bytes();
        let done = timeout(STALL, writer.carry_out(order)).await;
        writer.unsent.give_back(bytes);
        match done {
            Ok(Ok(())) => {}
            Ok(Err(WriteError::ConnectionLost(_))) => return,
            Ok(Err(WriteError::Stopped(_) | WriteError::ClosedStream))
            | Ok(Err(WriteError::ZeroRttRejected)) => {
                writer.connection.close(CLOSED_HERE, b"the stream is over");
                return;
            }
            Err(_) => {
                writer.connection.close(CLOSED_HERE, b"you do not read");
                return;
            }
        }
    }
}

impl Writer {
    async fn carry_out(&mut self, order: Order) -> Result<(), WriteError> {
        match order {
            Order::Send(frame) => self.write(frame).await,
            Order::SendLast(frame, done) => {
                self.write(frame).await?;
                if self.finish().await {
                    // Whoever asked may have stopped waiting.
                    let _ = done.send(());
                }
                Ok(())
            }
            Order::Close(words) => {
                // Closed in any case; who asked to close asked for no more.
                let _ = timeout(FAREWELL, self.finish()).await;
                self.connection.close(CLOSED_HERE, words.as_bytes());
                Ok(())
            }
        }
    }

    async fn write(&mut self, frame: Bytes) -> Result<(), WriteError> {
        let bytes = u32::try_from(frame.len()).expect("at most MAX_FRAME_BYTES, checked on entry");
        let head = Bytes::copy_from_slice(&bytes.to_be_bytes());
        self.send.write_all_chunks(&mut [head, frame]).await
    }

    /// Ends the stream; returns whether the far end has acknowledged all of it.
    async fn finish(&mut self) -> bool {
        // A stream finished before is waited for all the same.
        let _ = self.send.finish();
        matches!(self.send.stopped().await, Ok(None))
    }
}

async fn disconnect_stranger(
    shared: &Shared,
    conn: ConnId,
    connection: &quinn::Connection,
    words: &Words,
) {
    sleep(BIND_WITHIN).await;
    if !shared.registry.is_bound(conn) {
        let why = "not admitted in time";
        let _ = words.set(why.to_owned());
        connection.close(CLOSED_HERE, why.as_bytes());
    }
}

/// Returns the secret both ends of a connection can export, none before the handshake.
pub(super) fn export_psk(connection: &quinn::Connection) -> Option<Psk> {
    let mut secret = Zeroizing::new([0; 32]);
    connection
        .export_keying_material(&mut *secret, PSK_LABEL, b"")
        .ok()?;
    Some(Psk(secret))
}

fn closed(error: ConnectionError, words: &Words) -> Closed {
    match error {
        ConnectionError::ApplicationClosed(frame) => Closed::There(readable(&frame.reason)),
        ConnectionError::ConnectionClosed(frame) => {
            Closed::There(readable(frame.to_string().as_bytes()))
        }
        ConnectionError::LocallyClosed => {
            let words = words.get().map_or("shutting down", String::as_str);
            Closed::Here(words.to_owned())
        }
        ConnectionError::TimedOut => Closed::Silent,
        ConnectionError::Reset => Closed::Reset,
        error @ (ConnectionError::TransportError(_)
        | ConnectionError::VersionMismatch
        | ConnectionError::CidsExhausted) => Closed::Misbehaved(error.to_string()),
    }
}
