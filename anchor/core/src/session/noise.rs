//! The data plane's handshake: `Noise_IKpsk2_25519_ChaChaPoly_SHA256` by `snow`.
//!
//! | message | payload, encrypted |
//! |---|---|
//! | 1, initiator to responder | version 1, flags (bit 0: this CPU has AES), receiver index `u32` BE |
//! | 2, responder to initiator | the same of the responder |
//!
//! The prologue binds realm and both identity keys; the pre-shared key is the TLS exporter of the
//! QUIC connection that carries the messages. The responder accepts only the static key that the
//! peer's signed advert names. Later bytes of a payload are ignored: room to grow.

use conflux_proto::id::{AnchorKey, RealmId};
use sha2::{Digest, Sha256};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::keys::Suite;

const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_SHA256";
const PAYLOAD_VERSION: u8 = 1;
const PAYLOAD_BYTES: usize = if cfg!(feature = "next") { 10 } else { 6 };
const FLAG_AES: u8 = 1;
/// Message 1 of IK is 96 bytes and message 2 is 48, plus payload and room to grow.
const MESSAGE_BYTES: usize = 512;

/// Why a handshake came to nothing; no state was kept.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeFailed {
    /// The message does not decrypt under the keys and pre-shared key expected.
    #[error("the peer's handshake message does not authenticate")]
    NotAuthentic,
    /// The message authenticates but its payload is no payload of ours.
    #[error("the peer's handshake payload is malformed or of an unknown version")]
    Payload,
    /// The initiator proved another static key than the one its advert names.
    #[error("the peer used another static key than its advert names")]
    OtherStaticKey,
    /// The library refused keys or parameters.
    #[error("the handshake could not be set up: {0}")]
    Setup(String),
}

/// This side of a handshake.
#[derive(Clone, Copy)]
pub struct Local<'a> {
    /// X25519 static secret.
    pub noise_secret: &'a [u8; 32],
    /// Identity key.
    pub key: AnchorKey,
    /// Receiver index under which this side wants to be sent to; unique among its sessions.
    pub index: u32,
    /// Whether this CPU has AES instructions.
    pub aes: bool,
    /// 32 fresh random bytes: the ephemeral key comes from them and nothing else.
    pub seed: &'a [u8; 32],
}

/// The other side of a handshake, as its advert names it.
#[derive(Clone, Copy)]
pub struct Remote {
    /// Identity key.
    pub key: AnchorKey,
    /// X25519 static public key.
    pub noise_key: [u8; 32],
}

/// What a finished handshake yields; wiped when dropped.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct SessionKeys {
    #[zeroize(skip)]
    pub(super) suite: Suite,
    pub(super) our_index: u32,
    pub(super) their_index: u32,
    pub(super) send: [u8; 32],
    pub(super) receive: [u8; 32],
    pub(super) initiator: bool,
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "SessionKeys({:?}, {:08x} -> {:08x})",
            self.suite, self.our_index, self.their_index
        )
    }
}

/// A handshake begun by this side, waiting for message 2.
pub struct Initiator {
    state: HandshakeState,
    index: u32,
    aes: bool,
}

impl std::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Initiator({:08x})", self.index)
    }
}

impl Initiator {
    /// Begins a handshake and returns message 1.
    ///
    /// # Errors
    /// [`HandshakeFailed::Setup`] when the keys are unusable.
    pub fn start(
        local: Local<'_>,
        remote: Remote,
        realm: &RealmId,
        psk: &[u8; 32],
    ) -> Result<(Self, Vec<u8>), HandshakeFailed> {
        let prologue = prologue(realm, &local.key, &remote.key);
        let mut state = builder(&local, psk, &prologue)?
            .remote_public_key(&remote.noise_key)
            .map_err(setup)?
            .build_initiator()
            .map_err(setup)?;
        let message = write(&mut state, &payload(local.index, local.aes))?;
        Ok((
            Self {
                state,
                index: local.index,
                aes: local.aes,
            },
            message,
        ))
    }

    /// Takes message 2 and returns the keys.
    ///
    /// # Errors
    /// [`HandshakeFailed`] when the message is not authentic or malformed.
    pub fn finish(mut self, message: &[u8]) -> Result<SessionKeys, HandshakeFailed> {
        let (their_index, their_aes) = read(&mut self.state, message)?;
        let (send, receive) = self.state.dangerously_get_raw_split();
        Ok(SessionKeys {
            suite: Suite::for_cpus(self.aes, their_aes),
            our_index: self.index,
            their_index,
            send,
            receive,
            initiator: true,
        })
    }
}

/// Answers message 1: returns the keys and message 2.
///
/// # Errors
/// [`HandshakeFailed`] when the message is not authentic, malformed, or proves another static
/// key than `remote` names.
pub fn respond(
    local: Local<'_>,
    remote: Remote,
    realm: &RealmId,
    psk: &[u8; 32],
    message: &[u8],
) -> Result<(SessionKeys, Vec<u8>), HandshakeFailed> {
    let prologue = prologue(realm, &remote.key, &local.key);
    let mut state = builder(&local, psk, &prologue)?
        .build_responder()
        .map_err(setup)?;
    let (their_index, their_aes) = read(&mut state, message)?;
    if state.get_remote_static() != Some(&remote.noise_key[..]) {
        return Err(HandshakeFailed::OtherStaticKey);
    }
    let reply = write(&mut state, &payload(local.index, local.aes))?;
    let (receive, send) = state.dangerously_get_raw_split();
    let keys = SessionKeys {
        suite: Suite::for_cpus(local.aes, their_aes),
        our_index: local.index,
        their_index,
        send,
        receive,
        initiator: false,
    };
    Ok((keys, reply))
}

fn setup(error: snow::Error) -> HandshakeFailed {
    HandshakeFailed::Setup(error.to_string())
}

fn prologue(realm: &RealmId, initiator: &AnchorKey, responder: &AnchorKey) -> Vec<u8> {
    [
        &b"conflux noise 1"[..],
        &realm.0,
        &initiator.0,
        &responder.0,
    ]
    .concat()
}

fn builder<'a>(
    local: &Local<'a>,
    psk: &'a [u8; 32],
    prologue: &'a [u8],
) -> Result<Builder<'a>, HandshakeFailed> {
    let params: NoiseParams = PATTERN.parse().map_err(setup)?;
    Builder::with_resolver(params, Box::new(Seeded { seed: *local.seed }))
        .local_private_key(local.noise_secret)
        .and_then(|builder| builder.psk(2, psk))
        .and_then(|builder| builder.prologue(prologue))
        .map_err(setup)
}

fn payload(index: u32, aes: bool) -> [u8; PAYLOAD_BYTES] {
    let mut payload = [0; PAYLOAD_BYTES];
    payload[0] = PAYLOAD_VERSION;
    payload[1] = if aes { FLAG_AES } else { 0 };
    payload[2..6].copy_from_slice(&index.to_be_bytes());
    payload
}

fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, HandshakeFailed> {
    let mut message = vec![0_u8; MESSAGE_BYTES];
    let length = state.write_message(payload, &mut message).map_err(setup)?;
    message.truncate(length);
    Ok(message)
}

fn read(state: &mut HandshakeState, message: &[u8]) -> Result<(u32, bool), HandshakeFailed> {
    let mut payload = [0_u8; MESSAGE_BYTES];
    if message.len() > MESSAGE_BYTES {
        return Err(HandshakeFailed::Payload);
    }
    let length = state
        .read_message(message, &mut payload)
        .map_err(|_| HandshakeFailed::NotAuthentic)?;
    let [version, flags, a, b, c, d, ..] = payload[..length] else {
        return Err(HandshakeFailed::Payload);
    };
    if version != PAYLOAD_VERSION {
        return Err(HandshakeFailed::Payload);
    }
    Ok((u32::from_be_bytes([a, b, c, d]), flags & FLAG_AES != 0))
}

/// `snow`'s own primitives with randomness from the caller's seed.
struct Seeded {
    seed: [u8; 32],
}

impl CryptoResolver for Seeded {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Stream {
            seed: self.seed,
            blocks: 0,
        }))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

impl Drop for Seeded {
    fn drop(&mut self) {
        self.seed.zeroize();
    }
}

/// SHA-256 in counter mode over the seed: enough for the one ephemeral key a handshake needs.
#[derive(ZeroizeOnDrop)]
struct Stream {
    seed: [u8; 32],
    blocks: u64,
}

impl Random for Stream {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        for chunk in dest.chunks_mut(32) {
            let mut hasher = Sha256::new();
            hasher.update(b"conflux noise seed 1");
            hasher.update(self.seed);
            hasher.update(self.blocks.to_be_bytes());
            self.blocks += 1;
            chunk.copy_from_slice(&hasher.finalize()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use snow::resolvers::DefaultResolver;

    use super::*;

    const REALM: RealmId = RealmId([9; 32]);

    #[test]
    fn both_sides_get_the_same_keys_crosswise() {
        let (a, b) = (side(1), side(2));
        let (initiator, first) =
            Initiator::start(a.local(11, true), b.remote(), &REALM, &[7; 32]).unwrap();

        let (theirs, second) =
            respond(b.local(22, true), a.remote(), &REALM, &[7; 32], &first).unwrap();
        let ours = initiator.finish(&second).unwrap();

        assert_eq!(ours.send, theirs.receive);
        assert_eq!(ours.receive, theirs.send);
        assert_eq!((ours.our_index, ours.their_index), (11, 22));
        assert_eq!((theirs.our_index, theirs.their_index), (22, 11));
        assert_eq!(ours.suite, Suite::Aes256Gcm);
    }

    #[test]
    fn one_cpu_without_aes_means_chacha() {
        let (a, b) = (side(1), side(2));
        let (initiator, first) =
            Initiator::start(a.local(1, true), b.remote(), &REALM, &[7; 32]).unwrap();

        let (theirs, second) =
            respond(b.local(2, false), a.remote(), &REALM, &[7; 32], &first).unwrap();

        assert_eq!(theirs.suite, Suite::ChaCha20Poly1305);
        assert_eq!(
            initiator.finish(&second).unwrap().suite,
            Suite::ChaCha20Poly1305
        );
    }

    #[test]
    fn another_psk_realm_or_static_key_is_refused() {
        let (a, b, c) = (side(1), side(2), side(3));
        let (_, first) = Initiator::start(a.local(1, true), b.remote(), &REALM, &[7; 32]).unwrap();

        let other_psk = respond(b.local(2, true), a.remote(), &REALM, &[8; 32], &first);
        let other_realm = respond(
            b.local(2, true),
            a.remote(),
            &RealmId([1; 32]),
            &[7; 32],
            &first,
        );
        let impostor = Remote {
            key: a.key,
            noise_key: c.remote().noise_key,
        };
        let other_static = respond(b.local(2, true), impostor, &REALM, &[7; 32], &first);

        // The pre-shared key is mixed in by message 2 (psk2), so only the initiator can notice.
        let (keys, second) = other_psk.unwrap();
        let (initiator, _) =
            Initiator::start(a.local(1, true), b.remote(), &REALM, &[7; 32]).unwrap();
        assert_eq!(
            initiator.finish(&second).unwrap_err(),
            HandshakeFailed::NotAuthentic
        );
        drop(keys);
        assert_eq!(other_realm.unwrap_err(), HandshakeFailed::NotAuthentic);
        assert_eq!(other_static.unwrap_err(), HandshakeFailed::OtherStaticKey);
    }

    #[test]
    fn mutated_messages_are_refused() {
        let (a, b) = (side(1), side(2));
        let (_, first) = Initiator::start(a.local(1, true), b.remote(), &REALM, &[7; 32]).unwrap();
        for at in 0..first.len() {
            let mut broken = first.clone();
            broken[at] ^= 0x40;

            assert!(respond(b.local(2, true), a.remote(), &REALM, &[7; 32], &broken).is_err());
        }
    }

    struct Side {
        key: AnchorKey,
        secret: [u8; 32],
        seed: [u8; 32],
    }

    impl Side {
        fn local(&self, index: u32, aes: bool) -> Local<'_> {
            Local {
                noise_secret: &self.secret,
                key: self.key,
                index,
                aes,
                seed: &self.seed,
            }
        }

        fn remote(&self) -> Remote {
            let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519).unwrap();
            dh.set(&self.secret);
            Remote {
                key: self.key,
                noise_key: dh.pubkey().try_into().unwrap(),
            }
        }
    }

    fn side(number: u8) -> Side {
        Side {
            key: AnchorKey([number; 32]),
            secret: [number + 100; 32],
            seed: [number + 50; 32],
        }
    }
}
