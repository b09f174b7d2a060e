//! The control plane's transport: QUIC connections with other anchors, one stream of frames each.
//! It proves keys, carries opaque frames and tells what happened; what a frame means, whom to
//! dial, when to try again and whether a key may stay is the control loop's affair.
//!
//! - The dialer opens the one stream of a connection; both sides send frames on it: a length
//!   (u32, big endian, at most [`MAX_FRAME_BYTES`]) and that many bytes. An empty frame says
//!   nothing; the dialer sends one to open the stream.
//! - Every connection has a task of its own. A peer that floods waits for the control loop to
//!   drop its earlier [`Frame`]s; one that does not read fills its own queue only; one that
//!   sends too large a frame, or is not [bound](QuicHandle::bind) within [`BIND_WITHIN`], is
//!   disconnected. No method of [`QuicHandle`] waits, those that say so excepted.
//! - Events come by one bounded channel; each [`QuicEvent::Connected`] is followed by exactly
//!   one [`QuicEvent::Closed`], each dial ends in `Connected` or [`QuicEvent::DialFailed`].

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use conflux_core::ids::PeerIx;
use conflux_core::paths::{CannotDial, Way};
use conflux_proto::id::AnchorKey;
use quinn::{EndpointConfig, IdleTimeout, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use zeroize::Zeroizing;

mod carried;
mod connection;
mod dial;
mod handle;
mod registry;
mod restart;
mod socket;
mod strangers;
mod tls;

pub use carried::{Carries, Carry};
pub(crate) use connection::readable;
pub use handle::QuicHandle;
pub use socket::{SharedPaths, StraySender};
pub use tls::{TlsIdentity, WrongAnchor};

/// Largest frame, either way; a credential is at most a quarter of that, and adverts
/// travel several to a frame.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;

/// Time a dial has until the stream is open: five lost flights at the initial round-trip time.
pub const DIAL_WITHIN: Duration = Duration::from_secs(5);

/// Time the control loop has to bind an accepted connection: it covers Hello, admission and a
/// slow link, and ends connections of strangers that merely hold on.
pub const BIND_WITHIN: Duration = Duration::from_secs(10);

/// Silence after which a connection is over; two keepalives may be lost.
const IDLE: Duration = Duration::from_secs(75);

/// NAT mappings of UDP live 30 s or more (RFC 4787 asks for 120 s); a third of [`IDLE`]. With a
/// hundred peers each second less costs a wake-up a second.
const KEEPALIVE: Duration = Duration::from_secs(25);

/// Events the control loop has not taken yet. Tasks wait when it is full, each with at most
/// [`connection::MAX_UNREAD_FRAMES`] frames, and are let in by order of coming.
const EVENTS: usize = 1024;

/// Dials under way at once; further ones wait for their turn.
const MAX_DIALS: usize = 64;

/// Accepted connections not bound yet, handshakes included; more are ignored.
const MAX_UNBOUND: usize = 512;

/// Unbound connections from which on a stranger must first prove its address (QUIC Retry).
const RETRY_FROM: usize = 64;

/// Bytes in flight either way on a connection: four of the largest frames.
const WINDOW_BYTES: u32 = 4 * MAX_FRAME_BYTES as u32;

/// One connection of this process; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(u64);

/// Whom a dial is to reach.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DialTarget {
    /// A known peer, at its candidates in [`SharedPaths`]; nobody else will do.
    Peer {
        /// Its number.
        peer: PeerIx,
        /// The key it must prove.
        key: AnchorKey,
    },
    /// Whoever answers at an address, as from a ticket.
    Address(SocketAddr),
}

/// What happened.
#[derive(Debug)]
pub enum QuicEvent {
    /// A connection stands: keys are proven and the stream is open.
    Connected(Connected),
    /// A frame arrived, in order.
    Frame {
        /// On this connection.
        conn: ConnId,
        /// Its content.
        frame: Frame,
    },
    /// A connection is over; all its frames have been given before.
    Closed {
        /// This connection.
        conn: ConnId,
        /// Of this anchor.
        key: AnchorKey,
        /// Why.
        reason: Closed,
    },
    /// A dial came to nothing.
    DialFailed {
        /// The dial.
        target: DialTarget,
        /// Why.
        error: DialError,
    },
}

/// A new connection.
#[derive(Debug)]
pub struct Connected {
    /// Its number.
    pub conn: ConnId,
    /// The key the far end has proven.
    pub key: AnchorKey,
    /// The dial it came from, none if the far end dialled. Only a connection from
    /// [`DialTarget::Peer`] is bound already.
    pub dialled: Option<DialTarget>,
    /// Where the far end was during the handshake.
    pub way: Way,
    /// The same on both sides and known to nobody else.
    pub psk: Psk,
}

/// A secret exported from the TLS session for the data plane's handshake.
#[derive(Clone)]
pub struct Psk(Zeroizing<[u8; 32]>);

/// A received frame. Its connection reads on only as these are dropped: drop each when done.
#[derive(Debug)]
pub struct Frame {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

/// Why a dial failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DialError {
    /// It could not even start.
    #[error(transparent)]
    CannotDial(#[from] CannotDial),
    /// Nobody, or somebody too slow.
    #[error("no answer within {} s", DIAL_WITHIN.as_secs())]
    NoAnswer,
    /// Another anchor.
    #[error(transparent)]
    WrongAnchor(#[from] WrongAnchor),
    /// This very anchor.
    #[error("the address is this anchor's own")]
    Own,
    /// Somebody with whom TLS comes to nothing.
    #[error("no anchor answers there, or one of another kind: {0}")]
    Foreign(String),
    /// The far end refused.
    #[error("refused by the far end: {0}")]
    Refused(String),
    /// The far end does not speak our protocol, or spoke it wrongly.
    #[error("the handshake failed: {0}")]
    Handshake(String),
}

impl DialError {
    /// Says whether somebody answered who is not the one dialled: another address may be its.
    fn is_of_another(&self) -> bool {
        match self {
            Self::WrongAnchor(_) | Self::Own | Self::Foreign(_) => true,
            Self::CannotDial(_) | Self::NoAnswer | Self::Refused(_) | Self::Handshake(_) => false,
        }
    }
}

/// Why a connection is over.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Closed {
    /// This side closed it.
    #[error("closed here: {0}")]
    Here(String),
    /// The far end closed it, with its words.
    #[error("closed by the far end: {0}")]
    There(String),
    /// Nothing was heard for too long.
    #[error("silent for {} s", IDLE.as_secs())]
    Silent,
    /// The far end lost its state: it restarted.
    #[error("the far end has restarted")]
    Reset,
    /// The far end broke the protocol.
    #[error("the far end misbehaved: {0}")]
    Misbehaved(String),
}

/// Why a frame was not taken. Nothing has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// No such connection, or it is ending.
    #[error("the connection is closed")]
    Closed,
    /// The far end does not read fast enough.
    #[error("the far end does not read")]
    Full,
    /// Larger than [`MAX_FRAME_BYTES`].
    #[error("the frame is too large")]
    TooLarge,
}

/// Why delivery of a last frame is not certain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum NotDelivered {
    /// It was not sent.
    #[error(transparent)]
    NotSent(#[from] SendError),
    /// The connection ended before the acknowledgement.
    #[error("the connection ended before delivery was acknowledged")]
    Lost,
    /// No acknowledgement came in time.
    #[error("delivery was not acknowledged in time")]
    TimedOut,
}

/// What [`start`] needs.
#[derive(Debug)]
pub struct QuicOptions {
    /// Whom this anchor is.
    pub identity: TlsIdentity,
    /// Bound, unconnected UDP sockets, of any number and family.
    pub sockets: Vec<UdpSocket>,
    /// The table of ways.
    pub paths: SharedPaths,
}

/// What [`start`] gives.
#[derive(Debug)]
pub struct Quic {
    /// For commands.
    pub handle: QuicHandle,
    /// For the control loop.
    pub events: mpsc::Receiver<QuicEvent>,
    /// For the data thread.
    pub strays: StraySender,
    /// For the data thread, too.
    pub carries: Carries,
}

/// Starts the endpoint and its tasks on the tokio runtime around the call.
///
/// # Errors
/// When a socket cannot be taken over, or there is no runtime.
pub fn start(options: QuicOptions) -> io::Result<Quic> {
    let QuicOptions {
        identity,
        sockets,
        paths,
    } = options;
    let runtime = Handle::try_current().map_err(io::Error::other)?;
    let (carry, carries) = carried::carries();
    let (mux, strays) = socket::Mux::new(sockets, paths.clone(), carry)?;
    let mux = Arc::new(mux);
    let own = identity.key();
    let mut endpoint_config = EndpointConfig::default();
    // Our data frames are told from QUIC by these bits.
    endpoint_config.grease_quic_bit(false);
    restart::answer_former_life(&identity, &mut endpoint_config);
    let tls = tls::Tls::new(identity);
    let endpoint = quinn::Endpoint::new_with_abstract_socket(
        endpoint_config,
        Some(server_config(&tls)),
        mux.clone(),
        Arc::new(TokioRuntime),
    )?;
    let (events, receiver) = mpsc::channel(EVENTS);
    let shared = Arc::new(Shared {
        endpoint,
        runtime: runtime.clone(),
        tls,
        own,
        paths,
        mux,
        events,
        registry: registry::Registry::default(),
        next_conn: AtomicU64::new(0),
        dialling: Mutex::new(HashSet::new()),
        dials: Semaphore::new(MAX_DIALS),
        strangers: strangers::Strangers::default(),
    });
    runtime.spawn(dial::accept(shared.clone()));
    Ok(Quic {
        handle: QuicHandle::new(shared),
        events: receiver,
        strays,
        carries,
    })
}

/// What all tasks share.
struct Shared {
    endpoint: quinn::Endpoint,
    runtime: Handle,
    tls: tls::Tls,
    own: AnchorKey,
    paths: SharedPaths,
    mux: Arc<socket::Mux>,
    events: mpsc::Sender<QuicEvent>,
    registry: registry::Registry,
    next_conn: AtomicU64,
    /// Guards the set of dials under way, so that one target is dialled once at a time.
    dialling: Mutex<HashSet<DialTarget>>,
    dials: Semaphore,
    strangers: strangers::Strangers,
}

fn server_config(tls: &tls::Tls) -> ServerConfig {
    let mut config = ServerConfig::with_crypto(Arc::new(tls.server()));
    config
        .transport_config(Arc::new(transport(1)))
        // A peer's connection moves to the peer's made-up address once it is known whose it is.
        .migration(true)
        .max_incoming(MAX_UNBOUND)
        // A first flight with X25519MLKEM768 is two packets; room for a few more.
        .incoming_buffer_size(16 * 1024)
        .incoming_buffer_size_total(4 << 20);
    config
}

/// Returns the transport of a side that lets the far end open `streams` streams.
fn transport(streams: u32) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(streams.into())
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(WINDOW_BYTES.into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(WINDOW_BYTES.into())
        .keep_alive_interval(Some(KEEPALIVE))
        .max_idle_timeout(Some(
            IdleTimeout::try_from(IDLE).expect("75 s is a valid idle timeout"),
        ))
        .enable_segmentation_offload(false)
        // No datagram of more than 1200 bytes: behind the headers of a relay, UDP and IPv6 that is
        // what the smallest underlay takes, so a connection may move to any path at any time.
        .mtu_discovery_config(None);
    config
}

#[cfg(test)]
impl ConnId {
    pub(crate) const fn numbered(number: u64) -> Self {
        Self(number)
    }
}

impl Psk {
    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self(Zeroizing::new([5; 32]))
    }

    /// Returns the secret.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(..)")
    }
}

impl Frame {
    /// Returns the content.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl std::ops::Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests;
