//! A member that keeps no rules: it takes an anchor's identity and credential over and speaks the
//! protocol by hand. It asks for data keys it may not have, claims taints it was not granted, and
//! sends packets no honest anchor would. Built from the product's own parts, so that it fails for
//! the right reason; the one place here that knows more than the built binary.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use bytes::Bytes;
use conflux_anchor::clock;
use conflux_anchor::files::{Layout, State, StateFile};
use conflux_anchor::quic::{self, ConnId, DialTarget, Psk, Quic, QuicEvent, QuicOptions};
use conflux_anchor::quic::{SharedPaths, TlsIdentity};
use conflux_core::identity::Identity;
use conflux_core::ids::PeerIx;
use conflux_core::paths::Paths;
use conflux_core::session::{Initiator, Local, Remote, Sessions};
use conflux_proto::advert::{Advert, Edition, Reach, SignedAdvert};
use conflux_proto::control::{Decoded, Hello, Message, Noise, PROTOCOL_VERSION};
use conflux_proto::credential::Credential;
use conflux_proto::frame::{Flags, FrameType};
use conflux_proto::id::{AnchorKey, RealmId};
use conflux_proto::signed::{Signed, Version1};
use conflux_proto::taint::TaintSet;
use minicbor::bytes::ByteVec;
use tokio::runtime::Runtime;

use crate::anchor::Anchor;

/// The port anchors listen on by default.
const ANCHOR_PORT: u16 = 47_474;

/// Longer than any answer over the lab's segment takes.
const PATIENCE: Duration = Duration::from_secs(2);

/// A rule-breaking member.
pub struct Hostile {
    runtime: Runtime,
    quic: Quic,
    socket: UdpSocket,
    identity: std::sync::Arc<Identity>,
    credential: Credential,
    realm: RealmId,
    epoch: u64,
    claimed: TaintSet,
    sessions: Sessions,
    victims: u32,
}

/// An anchor that the hostile one has a connection with.
pub struct Victim {
    conn: ConnId,
    psk: Psk,
    remote: Remote,
    address: SocketAddr,
    peer: PeerIx,
}

impl Hostile {
    /// Kills an anchor and speaks for it from now on, claiming `taints`.
    ///
    /// # Panics
    ///
    /// When the anchor is no member yet.
    pub fn take_over(anchor: &mut Anchor, taints: &[&str]) -> Self {
        let claimed = taints.iter().map(|taint| taint.parse().expect("a label"));
        anchor.kill();
        let state = state_of(anchor);
        let seed = state
            .read_key(StateFile::Identity)
            .expect("a readable identity");
        let credential = state
            .read(StateFile::Credential)
            .expect("a readable credential");
        let credential = Credential::from_bytes(&credential.expect("it was a member"));
        let realm = state
            .realm()
            .expect("a readable realm")
            .expect("it was in a realm");
        let identity = std::sync::Arc::new(Identity::from_seed(&seed.expect("it had started")));
        let socket = anchor
            .host()
            .enter(|| UdpSocket::bind(("0.0.0.0", ANCHOR_PORT)));
        let socket = socket.expect("the port is free again");
        let runtime = Runtime::new().expect("a runtime can be started");
        let quic = {
            let _inside = runtime.enter();
            let signer = identity.clone();
            quic::start(QuicOptions {
                identity: TlsIdentity::new(identity.key(), move |message| {
                    signer.signing().sign_bytes(message)
                }),
                sockets: vec![socket.try_clone().expect("a socket can be shared")],
                paths: SharedPaths::new(Paths::new(1)),
            })
        };
        Self {
            runtime,
            quic: quic.expect("QUIC can be started"),
            socket,
            identity,
            credential: credential.expect("a whole credential"),
            realm: realm.id(),
            epoch: state.next_epoch().expect("a writable state"),
            claimed: TaintSet::new(claimed).expect("few labels"),
            sessions: Sessions::new(1),
            victims: 0,
        }
    }

    /// Opens a control connection and exchanges hellos; nobody when it is turned away.
    pub fn approach(&mut self, host: Ipv4Addr) -> Option<Victim> {
        let address = SocketAddr::new(host.into(), ANCHOR_PORT);
        let target = DialTarget::Address(address);
        self.quic.handle.dial(target);
        // The others notice that the anchor before it is gone and dial too: only the own dial counts.
        let connected = self.next(|event| match event {
            QuicEvent::Connected(connected) if connected.dialled == Some(target) => Some(connected),
            QuicEvent::Connected(_)
            | QuicEvent::Frame { .. }
            | QuicEvent::Closed { .. }
            | QuicEvent::DialFailed { .. } => None,
        })?;
        let hello = Message::Hello(Box::new(Hello {
            version: PROTOCOL_VERSION,
            realm: self.realm,
            credential: self.credential.clone(),
            epoch: self.epoch,
            advert: Some(self.advert()),
            software: "hostile".to_owned(),
            unix_time: clock::unix().0,
        }));
        self.say(connected.conn, &hello);
        let theirs = self.hear(connected.conn, |message| {
            let Message::Hello(hello) = message else {
                return None;
            };
            hello.advert
        })?;
        self.victims += 1;
        let peer = PeerIx(self.victims);
        self.quic.handle.bind(connected.conn, peer);
        Some(Victim {
            conn: connected.conn,
            psk: connected.psk,
            remote: remote(&theirs, connected.key),
            address,
            peer,
        })
    }

    /// Asks for data keys, whether they are due or not; true when the victim gives them.
    ///
    /// # Panics
    ///
    /// When the victim's keys are unusable.
    pub fn obtain_keys(&mut self, victim: &Victim) -> bool {
        let local = Local {
            noise_secret: self.identity.noise_secret(),
            key: self.identity.key(),
            index: 0x0bad_0000 + self.victims,
            aes: true,
            seed: &[7; 32],
        };
        let started = Initiator::start(local, victim.remote, &self.realm, victim.psk.bytes());
        let (initiator, bytes) = started.expect("usable keys");
        let handshake = self.victims;
        let bytes = ByteVec::from(bytes);
        self.say(victim.conn, &Message::Noise1(Noise { handshake, bytes }));
        let answer = self.hear(victim.conn, |message| {
            let Message::Noise2(noise) = message else {
                return None;
            };
            Some(noise.bytes)
        });
        let keys = answer.and_then(|bytes| initiator.finish(&bytes).ok());
        let now = clock::now().mono;
        keys.is_some_and(|keys| self.sessions.install(now, victim.peer, &keys))
    }

    /// Tells a victim whatever it likes.
    pub fn tell(&self, victim: &Victim, message: &Message) {
        self.say(victim.conn, message);
    }

    /// Ends the connection with a victim.
    pub fn part(&self, victim: &Victim) {
        self.quic.handle.close(victim.conn, "enough");
    }

    /// Says whether a victim still answers on its connection, and so has read all before.
    pub fn is_heard(&mut self, victim: &Victim) -> bool {
        const NUMBER: u64 = 0x0bad;
        self.say(victim.conn, &Message::Ping(NUMBER));
        let answered = self.hear(victim.conn, |message| {
            matches!(message, Message::Pong(NUMBER)).then_some(())
        });
        answered.is_some()
    }

    /// Returns the key it took over.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the credential it took over.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Returns its realm.
    pub fn realm(&self) -> RealmId {
        self.realm
    }

    /// Returns its advert of edition `sequence`, with an endpoint that is new each time.
    pub fn advert_of(&self, sequence: u64) -> SignedAdvert {
        let port = u16::try_from(sequence % 60_000).unwrap_or(0) + 1;
        self.advert_at(sequence, vec![SocketAddr::from(([203, 0, 113, 1], port))])
    }

    /// Returns its advert of edition `sequence`, with these endpoints.
    pub fn advert_at(&self, sequence: u64, endpoints: Vec<SocketAddr>) -> SignedAdvert {
        let mut advert = self.advert().advert.claimed().clone();
        advert.edition.sequence = sequence;
        advert.endpoints = endpoints;
        SignedAdvert {
            advert: Signed::sign(advert, self.identity.signing()),
            credential: Some(self.credential.clone()),
        }
    }

    /// Sends an inner packet sealed with the keys of `victim`; under made-up keys of another
    /// session when there are none for it.
    ///
    /// # Panics
    ///
    /// When there are no keys at all.
    pub fn send(&mut self, victim: &Victim, packet: &[u8], keys_of: Option<&Victim>) {
        let mut frame = [0; 2048];
        let peer = keys_of.unwrap_or(victim).peer;
        let mut sealer = self.sessions.sealer(peer).expect("keys were obtained");
        let sealed = sealer.seal(FrameType::Data, Flags::NONE, packet, &mut frame);
        let (length, _) = sealed.expect("a small packet");
        self.socket
            .send_to(&frame[..length], victim.address)
            .expect("the victim has an address");
    }

    fn advert(&self) -> SignedAdvert {
        let key = self.identity.key();
        let advert = Advert {
            version: Version1,
            realm: self.realm,
            key,
            edition: Edition {
                epoch: self.epoch,
                sequence: 1,
            },
            lifetime_secs: 120,
            overlay: key.overlay(&self.realm),
            noise_key: self.identity.noise_key(),
            endpoints: Vec::new(),
            ipv4: None,
            networks: Vec::new(),
            taints: self.claimed.clone(),
            reach: Reach::Unknown,
            aes: true,
            credential: self.credential.hash(),
            draining: false,
        };
        SignedAdvert {
            advert: Signed::sign(advert, self.identity.signing()),
            credential: Some(self.credential.clone()),
        }
    }

    fn say(&self, conn: ConnId, message: &Message) {
        let bytes = message.encode().expect("a short message");
        // A connection the victim has closed takes nothing; then there will be no answer either.
        let _ = self.quic.handle.send(conn, Bytes::from(bytes));
    }

    fn hear<T>(&mut self, from: ConnId, wanted: impl Fn(Message) -> Option<T>) -> Option<T> {
        self.next(|event| match event {
            QuicEvent::Frame { conn, frame } if conn == from => {
                match Message::decode(frame.bytes()) {
                    Ok(Decoded::Message(message)) => wanted(message),
                    Ok(Decoded::Unknown { .. }) | Err(_) => None,
                }
            }
            QuicEvent::Frame { .. }
            | QuicEvent::Connected(_)
            | QuicEvent::Closed { .. }
            | QuicEvent::DialFailed { .. } => None,
        })
    }

    fn next<T>(&mut self, wanted: impl Fn(QuicEvent) -> Option<T>) -> Option<T> {
        let events = &mut self.quic.events;
        self.runtime.block_on(async {
            let found = async {
                loop {
                    if let Some(found) = wanted(events.recv().await?) {
                        return Some(found);
                    }
                }
            };
            tokio::time::timeout(PATIENCE, found).await.ok().flatten()
        })
    }
}

/// Returns the state directory of an anchor.
///
/// # Panics
///
/// When it has none yet.
pub fn state_of(anchor: &Anchor) -> State {
    let directory = anchor.host().outside_path(anchor.directory());
    let layout = Layout::below(&directory).expect("the directory has a path");
    State::open(&layout).expect("the anchor had a state")
}

/// Returns an IPv4 packet with a numbered UDP datagram, as [`crate::work::UdpSink`] counts them.
pub fn datagram(from: Ipv4Addr, to: Ipv4Addr, port: u16, number: u64) -> Vec<u8> {
    const TOTAL: u8 = 20 + 8 + 8;
    let mut packet = vec![0x45, 0, 0, TOTAL, 0, 1, 0, 0, 64, 17, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = packet
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = sum.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend(u16::from(TOTAL - 20).to_be_bytes());
    // No checksum, as IPv4 allows.
    packet.extend([0, 0]);
    packet.extend(number.to_be_bytes());
    packet
}

fn remote(advert: &SignedAdvert, key: AnchorKey) -> Remote {
    Remote {
        key,
        noise_key: advert.advert.claimed().noise_key,
    }
}
