//! One leg of a lease: keys, counters and what was seen of the other side's. Sealing and checking
//! of outer headers, nothing about where datagrams go.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use conflux_proto::relay::{HEADER_BYTES, OUTER_BYTES, Outer, TAG_BYTES};
use zeroize::Zeroizing;

use crate::ids::PeerIx;
use crate::session::Window;
use crate::time::Mono;

/// What this anchor is on a leg.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It sends and receives; the peer of the leg carries to `far` and from there.
    End {
        /// The other end.
        far: PeerIx,
    },
    /// It carries: what comes by this leg goes out by another.
    Relay {
        /// The other leg's [`Leg::ours`].
        to: u32,
    },
}

/// The two keys of a leg, as its relay made them.
pub struct LegKeys {
    /// For what this anchor sends.
    pub send: Zeroizing<[u8; 32]>,
    /// For what it receives.
    pub receive: Zeroizing<[u8; 32]>,
}

impl std::fmt::Debug for LegKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LegKeys(..)")
    }
}

/// A leg to be taken into [`Links`](super::Links).
#[derive(Debug)]
pub struct Leg {
    /// Who is at its other side.
    pub peer: PeerIx,
    /// The index at which this anchor receives.
    pub ours: u32,
    /// The index at which the peer receives.
    pub theirs: u32,
    /// What this anchor is on it.
    pub role: Role,
    /// When it ends.
    pub ends: Mono,
    /// Its keys.
    pub keys: LegKeys,
}

/// A leg in use.
pub(super) struct State {
    pub(super) peer: PeerIx,
    pub(super) role: Role,
    pub(super) ends: Mono,
    theirs: u32,
    send: LessSafeKey,
    receive: LessSafeKey,
    next_counter: u64,
    window: Window,
}

/// Puts outer headers in front of datagrams for one leg.
pub struct LegSealer<'a>(&'a mut State);

impl std::fmt::Debug for LegSealer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LegSealer({:08x})", self.0.theirs)
    }
}

impl<'a> LegSealer<'a> {
    pub(super) const fn new(state: &'a mut State) -> Self {
        Self(state)
    }

    /// Writes the header over the first [`OUTER_BYTES`] of a datagram; false when what follows
    /// them is empty or longer than any datagram.
    pub fn seal(&mut self, datagram: &mut [u8]) -> bool {
        self.0.seal(datagram)
    }
}

impl State {
    pub(super) fn new(leg: &Leg) -> Self {
        Self {
            peer: leg.peer,
            role: leg.role,
            ends: leg.ends,
            theirs: leg.theirs,
            send: key(&leg.keys.send),
            receive: key(&leg.keys.receive),
            next_counter: 0,
            window: Window::new(),
        }
    }

    pub(super) fn seal(&mut self, datagram: &mut [u8]) -> bool {
        let inside = datagram.len().saturating_sub(OUTER_BYTES);
        let Ok(length @ 1..) = u16::try_from(inside) else {
            return false;
        };
        let header = Outer {
            length,
            receiver: self.theirs,
            counter: self.next_counter,
        };
        let bytes = header.encode();
        let tag =
            self.send
                .seal_in_place_separate_tag(nonce(header.counter), Aad::from(&bytes), &mut []);
        let Ok(tag) = tag else { return false };
        datagram[..HEADER_BYTES].copy_from_slice(&bytes);
        datagram[HEADER_BYTES..OUTER_BYTES].copy_from_slice(tag.as_ref());
        self.next_counter += 1;
        true
    }

    /// Says whether the other side wrote the header of a datagram and this anchor has not seen it
    /// before; it counts as seen from then on.
    pub(super) fn check(&mut self, header: &Outer, datagram: &[u8]) -> Checked {
        if !self.window.is_new(header.counter) {
            return Checked::Replayed;
        }
        let Some(tag) = datagram.get(HEADER_BYTES..OUTER_BYTES) else {
            return Checked::Forged;
        };
        let mut scratch = [0; TAG_BYTES];
        scratch.copy_from_slice(tag);
        let nonce = nonce(header.counter);
        let opened = self
            .receive
            .open_in_place(nonce, Aad::from(header.encode()), &mut scratch);
        if opened.is_err() {
            return Checked::Forged;
        }
        self.window.mark(header.counter);
        Checked::Authentic
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Checked {
    Authentic,
    Replayed,
    Forged,
}

fn key(bytes: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("the suite takes 32-byte keys"))
}

/// Four zero bytes, then the counter, little endian, as for frames.
fn nonce(counter: u64) -> Nonce {
    Nonce::assume_unique_for_key(conflux_proto::frame::nonce(counter))
}
