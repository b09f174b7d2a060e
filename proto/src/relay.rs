//! The outer header of a datagram that a relay carries. Bytes only: keys, replay windows and who may
//! have what carried are the session's and the relay's.
//!
//! ```text
//!  0      type      0x14
//!  1      flags     0
//!  2..4   length    bytes of the datagram inside, big endian
//!  4..8   receiver  the lease's index at the receiver, big endian
//!  8..16  counter   number under this key, big endian
//!  16..32 tag       of the 16 bytes above: AES-256-GCM over them and no plaintext
//!  32..             the datagram inside: QUIC's, or a frame of `crate::frame`
//! ```
//! What is inside protects itself, as it must on a direct path; the tag proves that its sender holds
//! the lease. The relay writes a header of its own in place of the one it got, so the datagram moves
//! on where it lies. A datagram inside never has an outer header itself: one relay at most.

use thiserror::Error;

/// Bytes in front of the datagram inside, tag included.
pub const OUTER_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// The first byte of an outer header.
pub const OUTER_TYPE: u8 = 0x14;

/// Bytes of the header that the tag covers.
pub const HEADER_BYTES: usize = 16;

/// Bytes of the tag.
pub const TAG_BYTES: usize = 16;

/// What stands in front of a relayed datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outer {
    /// Bytes of the datagram inside, which ends with the outer one.
    pub length: u16,
    /// Which lease of the receiver's is meant.
    pub receiver: u32,
    /// Number under the key of this direction.
    pub counter: u64,
}

/// Why bytes are not a relayed datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BadOuter {
    /// Nothing behind the header.
    #[error("relayed datagram of {0} bytes is too short")]
    Short(usize),
    /// Another type, or a flag this version does not know.
    #[error("outer header begins with {0:#06x}")]
    Type(u16),
    /// The length is not that of the datagram inside.
    #[error("outer header says {said} bytes, {found} are there")]
    Length {
        /// What the header says.
        said: u16,
        /// What is there.
        found: usize,
    },
    /// An outer header inside of an outer header.
    #[error("relayed twice")]
    Nested,
}

/// Returns whether a datagram claims to have an outer header.
pub const fn is_outer(first: u8) -> bool {
    first == OUTER_TYPE
}

impl Outer {
    /// Reads the header of a whole datagram. Nothing is authentic yet.
    ///
    /// # Errors
    /// When it is too short, of another type, its length is not what the header says, or the
    /// datagram inside is relayed itself.
    pub fn decode(datagram: &[u8]) -> Result<Self, BadOuter> {
        let short = BadOuter::Short(datagram.len());
        let (head, inside) = datagram.split_first_chunk::<OUTER_BYTES>().ok_or(short)?;
        let (words, _) = head.as_chunks::<4>();
        let [first, receiver, high, low, ..] = *words else {
            return Err(short);
        };
        let [kind, flags, length @ ..] = first;
        if kind != OUTER_TYPE || flags != 0 {
            return Err(BadOuter::Type(u16::from_be_bytes([kind, flags])));
        }
        let said = u16::from_be_bytes(length);
        match inside.first() {
            None => return Err(short),
            Some(&first) if is_outer(first) => return Err(BadOuter::Nested),
            Some(_) => {}
        }
        if usize::from(said) != inside.len() {
            return Err(BadOuter::Length {
                said,
                found: inside.len(),
            });
        }
        Ok(Self {
            length: said,
            receiver: u32::from_be_bytes(receiver),
            counter: u64::from(u32::from_be_bytes(high)) << 32 | u64::from(u32::from_be_bytes(low)),
        })
    }

    /// Returns the bytes that the tag covers.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = OUTER_TYPE;
        bytes[2..4].copy_from_slice(&self.length.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.receiver.to_be_bytes());
        bytes[8..].copy_from_slice(&self.counter.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_outer_header_comes_back_as_it_was(
            receiver: u32, counter: u64, first in 0_u8..=255, length in 1_u16..2_000,
        ) {
            prop_assume!(!is_outer(first));
            let outer = Outer { length, receiver, counter };
            let mut datagram = outer.encode().to_vec();
            datagram.resize(OUTER_BYTES + usize::from(length), first);
            datagram[OUTER_BYTES] = first;

            prop_assert_eq!(Outer::decode(&datagram), Ok(outer));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(outer) = Outer::decode(&bytes) {
                prop_assert_eq!(&outer.encode()[..], &bytes[..HEADER_BYTES]);
            }
        }
    }

    #[test]
    fn what_is_relayed_twice_is_refused() {
        let outer = Outer {
            length: 1,
            receiver: 1,
            counter: 2,
        };
        let mut datagram = outer.encode().to_vec();
        datagram.resize(OUTER_BYTES, 0);
        datagram.push(OUTER_TYPE);

        assert_eq!(Outer::decode(&datagram), Err(BadOuter::Nested));
    }

    #[test]
    fn wrong_lengths_types_and_flags_are_refused() {
        let outer = Outer {
            length: 4,
            receiver: 1,
            counter: 2,
        };
        let mut datagram = outer.encode().to_vec();
        datagram.resize(OUTER_BYTES + 4, 0x40);

        let cut = BadOuter::Length { said: 4, found: 3 };
        assert_eq!(Outer::decode(&datagram[..OUTER_BYTES + 3]), Err(cut));
        let empty = BadOuter::Short(OUTER_BYTES);
        assert_eq!(Outer::decode(&datagram[..OUTER_BYTES]), Err(empty));
        datagram[1] = 1;
        assert_eq!(Outer::decode(&datagram), Err(BadOuter::Type(0x1401)));
        datagram[..2].copy_from_slice(&[0x10, 0]);
        assert_eq!(Outer::decode(&datagram), Err(BadOuter::Type(0x1000)));
    }
}
