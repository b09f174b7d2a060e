//! How connections come to be: dialling peers and addresses, accepting whoever dials us.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError};

use conflux_core::paths::{CannotDial, Way};
use conflux_proto::id::AnchorKey;
use quinn::{
    ClientConfig, Connecting, Connection, ConnectionError, Incoming, RecvStream, SendStream,
};
use tokio::time::timeout;

use super::connection::{self, CLOSED_HERE, Link, Origin, readable};
use super::{DIAL_WITHIN, DialError, DialTarget, Psk, QuicEvent, RETRY_FROM, Shared};
use super::{tls, transport};

/// The frame that opens the stream: an empty one.
const OPENING: [u8; 4] = [0; 4];

/// A dial as [`Paths`](conflux_core::paths::Paths) and the set of dials know it; given back on drop.
pub(super) struct Attempt {
    shared: Arc<Shared>,
    target: DialTarget,
    /// Whether the target is in the set of dials because of this attempt.
    listed: bool,
    address: Option<SocketAddr>,
}

/// Dials and, if that works, runs the connection.
pub(super) async fn dial(shared: Arc<Shared>, target: DialTarget) {
    let Some(mut attempt) = Attempt::new(&shared, target) else {
        return;
    };
    let linked = {
        let _turn = shared.dials.acquire().await.expect("never closed");
        timeout(DIAL_WITHIN, attempt.establish())
            .await
            .unwrap_or(Err(DialError::NoAnswer))
    };
    match linked {
        Ok((connection, send, recv, key, psk)) => {
            let way = attempt.way(&connection);
            let origin = Origin::Dialled(attempt);
            let link = Link {
                connection,
                send,
                recv,
                key,
                psk,
                way,
                origin,
            };
            connection::run(shared, link).await;
        }
        Err(error) => {
            drop(attempt);
            // An error means the control loop is gone.
            let _ = shared
                .events
                .send(QuicEvent::DialFailed { target, error })
                .await;
        }
    }
}

/// Accepts connections until the endpoint is closed.
pub(super) async fn accept(shared: Arc<Shared>) {
    while let Some(incoming) = shared.endpoint.accept().await {
        if shared.strangers.count() >= RETRY_FROM
            && !incoming.remote_address_validated()
            && incoming.may_retry()
        {
            // A retry that cannot be made drops the attempt, as it should be.
            let _ = incoming.retry();
            continue;
        }
        // Known peers have made-up addresses here, which lie side by side.
        let seen = incoming.remote_address();
        let behind = shared.paths.lock().behind(seen);
        let address = behind.map_or(seen, |way| way.remote).ip();
        let Some(place) = shared.strangers.take(address) else {
            tracing::debug!("too many unknown connections, one ignored");
            incoming.ignore();
            continue;
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let welcomed = timeout(DIAL_WITHIN, welcome(&shared, incoming)).await;
            let Ok(Ok(((connection, send, recv, key, psk), way))) = welcomed else {
                tracing::debug!("an incoming connection came to nothing");
                return;
            };
            let origin = Origin::Accepted(place);
            connection::run(
                shared,
                Link {
                    connection,
                    send,
                    recv,
                    key,
                    psk,
                    way,
                    origin,
                },
            )
            .await;
        });
    }
}

type Established = (Connection, SendStream, RecvStream, AnchorKey, Psk);

async fn establish(
    shared: &Shared,
    target: DialTarget,
    address: SocketAddr,
) -> Result<Established, DialError> {
    let expected = match target {
        DialTarget::Peer { key, .. } => Some(key),
        DialTarget::Address(_) => None,
    };
    let mismatch: tls::Mismatch = Arc::new(OnceLock::new());
    let connecting = connect(shared, expected, &mismatch, address)?;
    let refused = |error| match mismatch.get() {
        Some(wrong) => DialError::WrongAnchor(*wrong),
        None => dial_error(error),
    };
    let connection = connecting.await.map_err(refused)?;
    let key = tls::proven_key(&connection)
        .ok_or_else(|| DialError::Handshake("no key was shown".to_owned()))?;
    if key == shared.own {
        connection.close(CLOSED_HERE, b"that was myself");
        return Err(DialError::Own);
    }
    let (mut send, recv) = connection.open_bi().await.map_err(refused)?;
    send.write_all(&OPENING)
        .await
        .map_err(|error| DialError::Handshake(error.to_string()))?;
    let psk = connection::export_psk(&connection)
        .ok_or_else(|| DialError::Handshake("no secret could be exported".to_owned()))?;
    Ok((connection, send, recv, key, psk))
}

fn connect(
    shared: &Shared,
    expected: Option<AnchorKey>,
    mismatch: &tls::Mismatch,
    address: SocketAddr,
) -> Result<Connecting, DialError> {
    let mut config = ClientConfig::new(Arc::new(shared.tls.client(expected, mismatch.clone())));
    config.transport_config(Arc::new(transport(0)));
    shared
        .endpoint
        .connect_with(config, address, tls::NAME)
        .map_err(|error| DialError::Handshake(error.to_string()))
}

async fn welcome(
    shared: &Shared,
    incoming: Incoming,
) -> Result<(Established, Way), ConnectionError> {
    let connection = incoming.await?;
    let (send, recv) = connection.accept_bi().await?;
    let address = connection.remote_address();
    let behind = shared.paths.lock().behind(address);
    let key = tls::proven_key(&connection).filter(|key| *key != shared.own);
    let psk = connection::export_psk(&connection);
    let (Some(behind), Some(key), Some(psk)) = (behind, key, psk) else {
        connection.close(CLOSED_HERE, b"not somebody to talk to");
        return Err(ConnectionError::LocallyClosed);
    };
    let way = Way {
        local: behind.local.or_else(|| connection.local_ip()),
        ..behind
    };
    Ok(((connection, send, recv, key, psk), way))
}

fn dial_error(error: ConnectionError) -> DialError {
    match error {
        ConnectionError::TimedOut => DialError::NoAnswer,
        ConnectionError::ApplicationClosed(frame) => DialError::Refused(readable(&frame.reason)),
        ConnectionError::ConnectionClosed(frame) if is_of_tls(frame.error_code) => {
            DialError::Foreign(readable(frame.to_string().as_bytes()))
        }
        ConnectionError::TransportError(error) if is_of_tls(error.code) => {
            DialError::Foreign(error.to_string())
        }
        ConnectionError::ConnectionClosed(frame) => {
            DialError::Refused(readable(frame.to_string().as_bytes()))
        }
        error @ (ConnectionError::TransportError(_)
        | ConnectionError::VersionMismatch
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted) => DialError::Handshake(error.to_string()),
    }
}

/// Says whether TLS gave up: codes of its alerts (RFC 9001 section 4.8).
fn is_of_tls(code: quinn::TransportErrorCode) -> bool {
    (0x100..0x200).contains(&u64::from(code))
}

impl Attempt {
    /// Enters the target into the set of dials, none if it is there.
    fn new(shared: &Arc<Shared>, target: DialTarget) -> Option<Self> {
        let fresh = shared
            .dialling
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(target);
        fresh.then(|| Self {
            listed: true,
            shared: shared.clone(),
            target,
            address: None,
        })
    }

    /// Dials until the target has answered, or somebody else at each of its addresses.
    async fn establish(&mut self) -> Result<Established, DialError> {
        loop {
            let address = self.start()?;
            let linked = establish(&self.shared, self.target, address).await;
            let is_another = linked.as_ref().is_err_and(DialError::is_of_another);
            match linked {
                Err(error) if is_another && self.leave_out() => {
                    tracing::debug!(%error, "dialling on without that address");
                }
                linked => return linked,
            }
        }
    }

    /// Leaves out of this dial where somebody else has answered; false when nothing remains.
    fn leave_out(&self) -> bool {
        match self.target {
            DialTarget::Peer { peer, .. } => {
                let now = crate::clock::now().mono;
                self.shared.paths.lock().shun_answerer(now, peer)
            }
            DialTarget::Address(_) => false,
        }
    }

    fn start(&mut self) -> Result<SocketAddr, CannotDial> {
        let mut paths = self.shared.paths.lock();
        let address = match self.target {
            DialTarget::Peer { peer, .. } => paths.start_dial(crate::clock::now().mono, peer)?,
            DialTarget::Address(remote) => paths.start_unknown_dial(remote)?,
        };
        self.address = Some(address);
        Ok(address)
    }

    /// Returns the way the dial worked by.
    fn way(&self, connection: &Connection) -> Way {
        let address = connection.remote_address();
        let behind = self.shared.paths.lock().behind(address);
        behind.unwrap_or(Way {
            remote: address,
            local: None,
        })
    }

    /// Ends the dial itself, which has worked, so that the target can be dialled again; what the
    /// connection needs of it stays.
    pub(super) fn settle(&mut self) {
        self.unlist();
        match self.target {
            DialTarget::Peer { peer, .. } => {
                self.address = None;
                self.shared.paths.lock().end_dial(peer);
            }
            DialTarget::Address(_) => {}
        }
    }

    pub(super) fn target(&self) -> DialTarget {
        self.target
    }

    fn unlist(&mut self) {
        if std::mem::take(&mut self.listed) {
            let mut dialling = self
                .shared
                .dialling
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            dialling.remove(&self.target);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.unlist();
        let Some(address) = self.address else {
            return;
        };
        let mut paths = self.shared.paths.lock();
        match self.target {
            DialTarget::Peer { peer, .. } => paths.end_dial(peer),
            DialTarget::Address(_) => paths.release(address),
        }
    }
}
