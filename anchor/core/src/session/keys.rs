//! One pair of data keys: sealing and opening of frames, by `aws-lc-rs`.
//!
//! Nonce: four zero bytes, then the frame's counter, little endian (RFC 5116 section 3.2 form).
//! The 16 header bytes are the additional data, so nothing of a frame can be altered.

use aws_lc_rs::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use super::noise::SessionKeys;
use super::replay::Window;
use crate::ids::PeerIx;
use conflux_proto::frame::{HEADER_BYTES, OVERHEAD_BYTES};

/// What a frame adds to the packet it carries: header and tag.
pub const MAX_FRAME_OVERHEAD: usize = OVERHEAD_BYTES;

/// The AEAD of a session's data frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// Where both CPUs have AES instructions: 40 Gbit/s per core here, ChaCha20 does 15.
    Aes256Gcm,
    /// Elsewhere.
    ChaCha20Poly1305,
}

impl Suite {
    pub(super) const fn for_cpus(ours: bool, theirs: bool) -> Self {
        if ours && theirs {
            Self::Aes256Gcm
        } else {
            Self::ChaCha20Poly1305
        }
    }
}

/// The two keys of one handshake with what was sent and received under them.
pub(super) struct Pair {
    pub(super) peer: PeerIx,
    pub(super) our_index: u32,
    pub(super) their_index: u32,
    pub(super) generation: u32,
    /// Whether the peer is known to have these keys, so that we may send under them.
    pub(super) confirmed: bool,
    pub(super) next_counter: u64,
    pub(super) highest_data: Option<u64>,
    /// Orders the pairs of this anchor by when `highest_data` grew last.
    pub(super) data_order: u64,
    pub(super) window: Window,
    send: LessSafeKey,
    receive: LessSafeKey,
}

impl Pair {
    pub(super) fn new(peer: PeerIx, keys: &SessionKeys, generation: u32) -> Self {
        Self {
            peer,
            our_index: keys.our_index,
            their_index: keys.their_index,
            generation,
            confirmed: keys.initiator,
            next_counter: 0,
            highest_data: None,
            data_order: 0,
            window: Window::new(),
            send: key(keys.suite, &keys.send),
            receive: key(keys.suite, &keys.receive),
        }
    }

    /// Seals `plaintext` behind `header` into `out`; returns the frame's bytes, `None` when `out`
    /// is too small.
    pub(super) fn seal(
        &self,
        header: &[u8; HEADER_BYTES],
        counter: u64,
        plaintext: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let total = MAX_FRAME_OVERHEAD + plaintext.len();
        let out = out.get_mut(..total)?;
        let (head, rest) = out.split_at_mut(HEADER_BYTES);
        let (body, tag) = rest.split_at_mut(plaintext.len());
        head.copy_from_slice(header);
        self.send
            .seal_out_of_place_scatter(nonce(counter), Aad::from(header), plaintext, body, &[], tag)
            .ok()?;
        Some(total)
    }

    /// Opens `body` (ciphertext and tag) in place; `None` when it is not authentic.
    pub(super) fn open<'a>(
        &self,
        header: &[u8; HEADER_BYTES],
        counter: u64,
        body: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        self.receive
            .open_in_place(nonce(counter), Aad::from(header), body)
            .ok()
    }
}

fn key(suite: Suite, bytes: &[u8; 32]) -> LessSafeKey {
    let algorithm = match suite {
        Suite::Aes256Gcm => &AES_256_GCM,
        Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    };
    LessSafeKey::new(UnboundKey::new(algorithm, bytes).expect("both suites take 32-byte keys"))
}

fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0_u8; 12];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}
