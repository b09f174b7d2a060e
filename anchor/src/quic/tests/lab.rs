//! Anchors for tests: ours, and raw QUIC clients that need not behave.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use bytes::Bytes;
use conflux_core::ids::PeerIx;
use conflux_core::paths::Paths;
use conflux_proto::id::AnchorKey;
use quinn::{ClientConfig, Endpoint, EndpointConfig, RecvStream, SendStream, TokioRuntime};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::quic::tls::{NAME, Tls};
use crate::quic::{
    Closed, ConnId, Connected, DialError, DialTarget, Frame, Quic, QuicEvent, QuicHandle,
    QuicOptions, SharedPaths, StraySender, TlsIdentity, start, transport,
};

/// Longer than any limit of ours: what does not happen within it does not happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const AMBER: u8 = 1;
pub(super) const BLUE: u8 = 2;
pub(super) const CORAL: u8 = 3;

pub(super) struct Anchor {
    seed: u8,
    pub(super) handle: QuicHandle,
    events: mpsc::Receiver<QuicEvent>,
    pub(super) strays: StraySender,
    pub(super) paths: SharedPaths,
    pub(super) addr: SocketAddr,
}

impl Anchor {
    pub(super) fn new(seed: u8) -> Self {
        Self::on(seed, &["127.0.0.1:0"])
    }

    pub(super) fn on(seed: u8, addrs: &[&str]) -> Self {
        let sockets = addrs.iter().map(|addr| UdpSocket::bind(addr).unwrap());
        Self::with(seed, sockets.collect())
    }

    pub(super) fn with(seed: u8, sockets: Vec<UdpSocket>) -> Self {
        let paths = SharedPaths::new(Paths::new(u64::from(seed)));
        let identity = identity(seed);
        let options = QuicOptions {
            identity,
            sockets,
            paths: paths.clone(),
        };
        let Quic {
            handle,
            events,
            strays,
            carries: _,
        } = start(options).unwrap();
        let addr = handle.locals()[0];
        Self {
            seed,
            handle,
            events,
            strays,
            paths,
            addr,
        }
    }

    pub(super) fn dial(&self, other: &Self) {
        self.paths
            .lock()
            .set_candidates(peer(other.seed), &[other.addr]);
        self.handle.dial(target(other));
    }

    pub(super) async fn event(&mut self) -> QuicEvent {
        timeout(PATIENCE, self.events.recv())
            .await
            .expect("no event came")
            .unwrap()
    }

    pub(super) async fn connected(&mut self) -> Connected {
        let event = self.event().await;
        let QuicEvent::Connected(connected) = event else {
            panic!("{event:?}")
        };
        connected
    }

    pub(super) async fn any_frame(&mut self) -> (ConnId, Frame) {
        let event = self.event().await;
        let QuicEvent::Frame { conn, frame } = event else {
            panic!("{event:?}")
        };
        (conn, frame)
    }

    pub(super) async fn frame(&mut self, expected: ConnId) -> Bytes {
        let (conn, frame) = self.any_frame().await;
        assert_eq!(conn, expected);
        frame.bytes().clone()
    }

    pub(super) async fn closed(&mut self, expected: ConnId) -> Closed {
        let event = self.event().await;
        let QuicEvent::Closed { conn, reason, .. } = event else {
            panic!("{event:?}")
        };
        assert_eq!(conn, expected);
        reason
    }

    pub(super) async fn dial_failed(&mut self, expected: DialTarget) -> DialError {
        let event = self.event().await;
        let QuicEvent::DialFailed { target, error } = event else {
            panic!("{event:?}")
        };
        assert_eq!(target, expected);
        error
    }
}

/// Returns Amber and Blue, connected and bound, and the connection as each of them knows it.
pub(super) async fn pair() -> (Anchor, Anchor, ConnId, ConnId) {
    let mut amber = Anchor::new(AMBER);
    let mut blue = Anchor::new(BLUE);
    amber.dial(&blue);
    let (at_amber, at_blue) = (amber.connected().await.conn, blue.connected().await.conn);
    blue.handle.bind(at_blue, peer(AMBER));
    (amber, blue, at_amber, at_blue)
}

/// A QUIC client that proves a key and is free to break every other rule.
pub(super) struct Raw {
    endpoint: Endpoint,
    tls: Tls,
}

impl Raw {
    pub(super) fn new(seed: u8) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut config = EndpointConfig::default();
        config.grease_quic_bit(false);
        let endpoint = Endpoint::new(config, None, socket, Arc::new(TokioRuntime)).unwrap();
        Self {
            endpoint,
            tls: Tls::new(identity(seed)),
        }
    }

    pub(super) async fn connect(
        &self,
        to: SocketAddr,
    ) -> (quinn::Connection, SendStream, RecvStream) {
        let tls = self.tls.client(None, Arc::default());
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport(0)));
        let connection = self
            .endpoint
            .connect_with(config, to, NAME)
            .unwrap()
            .await
            .unwrap();
        let (mut send, recv) = connection.open_bi().await.unwrap();
        send.write_all(&[0; 4]).await.unwrap();
        (connection, send, recv)
    }
}

pub(super) fn target(anchor: &Anchor) -> DialTarget {
    DialTarget::Peer {
        peer: peer(anchor.seed),
        key: key(anchor.seed),
    }
}

pub(super) fn peer(seed: u8) -> PeerIx {
    PeerIx(u32::from(seed))
}

pub(super) fn key(seed: u8) -> AnchorKey {
    AnchorKey(key_pair(seed).public_key().as_ref().try_into().unwrap())
}

pub(super) fn identity(seed: u8) -> TlsIdentity {
    TlsIdentity::new(key(seed), signer(seed))
}

pub(super) fn signer(seed: u8) -> impl Fn(&[u8]) -> [u8; 64] + Send + Sync + 'static {
    let key_pair = key_pair(seed);
    move |message| key_pair.sign(message).as_ref().try_into().unwrap()
}

fn key_pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}
