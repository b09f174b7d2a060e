//! The header of a data frame and the plaintexts of the small frames. Sealing, replay windows
//! and key rotation are the session's; this is bytes only.
//!
//! ```text
//!  0      type      0x10 data, 0x11 keepalive, 0x12 probe, 0x13 echo (0x10..=0x3f are ours)
//!  1      flags     data: bit 0 partial checksum, bit 1 to client; all others 0
//!  2..4   reserved  0
//!  4..8   receiver  session index at the receiver, big endian
//!  8..16  counter   packet number under this key, big endian
//!  16..   ciphertext and a 16-byte tag; the 16 bytes above are the associated data
//! ```
//! The nonce is four zero bytes and the counter, little endian; all types share one key and one
//! counter space. The first byte tells frames from QUIC, whose first byte has one of the two top
//! bits set ([`is_quic`]).
//!
//! A flag that is not known changes what the plaintext means, so it is refused, not ignored: a
//! sender may use a new one only towards a peer that said it knows it.

use thiserror::Error;

/// Bytes of the header in front of every frame's ciphertext.
pub const HEADER_BYTES: usize = 16;

/// Bytes of the authentication tag behind every frame's ciphertext.
pub const TAG_BYTES: usize = 16;

/// Bytes a frame adds to its plaintext.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameType {
    /// An inner IPv4 or IPv6 packet.
    Data,
    /// A [`Received`]: proof of receipt from a holder that gets data.
    Keepalive,
    /// A [`Probe`], to be answered by an echo at once.
    Probe,
    /// An [`Echo`].
    Echo,
}

/// Flags of a data frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(u8);

/// The header of a frame; its bytes are the associated data of the seal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// What the frame carries.
    pub kind: FrameType,
    /// How a data frame's packet is to be read; none on other types.
    pub flags: Flags,
    /// The session's index at the receiver, which the receiver chose.
    pub receiver: u32,
    /// The packet's number under the session's key.
    pub counter: u64,
}

/// How far data has come: the plaintext of a keepalive, and a part of an echo.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Received {
    /// The receiver index under which the data came (which key of the data's sender is meant).
    pub receiver: u32,
    /// The highest counter of an authenticated data frame received under that index.
    pub highest: u64,
}

/// The plaintext of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Probe {
    /// Chosen by the sender, returned by the echo.
    pub id: u64,
}

/// The plaintext of an echo.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Echo {
    /// The probe that is answered.
    pub id: u64,
    /// How far the probing side's data has come.
    pub received: Received,
}

/// Why bytes are not a frame, or not one of its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadFrame {
    /// Fewer bytes than a header and a tag.
    #[error("frame of {0} bytes is too short")]
    Short(usize),
    /// A type this version does not know.
    #[error("unknown frame type {0:#04x}")]
    Type(u8),
    /// A flag this version does not know, or one on a type that has none.
    #[error("unknown frame flags {0:#04x}")]
    Flags(u8),
    /// A reserved field in use.
    #[error("reserved field of the frame is {0:#06x}")]
    Reserved(u16),
    /// A plaintext of the wrong length for its type.
    #[error("frame plaintext of {0} bytes has the wrong length")]
    Length(usize),
}

/// Returns whether a datagram that begins with `first` is QUIC's, not a frame.
pub const fn is_quic(first: u8) -> bool {
    first & 0xc0 != 0
}

/// Returns the nonce for the packet numbered `counter`.
pub fn nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

impl FrameType {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0x10 => Some(Self::Data),
            0x11 => Some(Self::Keepalive),
            0x12 => Some(Self::Probe),
            0x13 => Some(Self::Echo),
            _ => None,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Data => 0x10,
            Self::Keepalive => 0x11,
            Self::Probe => 0x12,
            Self::Echo => 0x13,
        }
    }

    const fn allowed_flags(self) -> u8 {
        match self {
            Self::Data => Flags::PARTIAL_CHECKSUM.0 | Flags::TO_CLIENT.0,
            Self::Keepalive | Self::Probe | Self::Echo => 0,
        }
    }
}

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);

    /// The packet's TCP or UDP checksum holds the pseudo-header sum only.
    pub const PARTIAL_CHECKSUM: Self = Self(0x01);

    /// The sender is a holder that answers: it found the destination in its client table. Without
    /// it the packet is a request, or plain overlay traffic.
    pub const TO_CLIENT: Self = Self(0x02);

    /// Returns the flags of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether all of `other`'s flags are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags as they stand in the header.
    pub const fn bits(self) -> u8 {
        self.0
    }
}

impl Header {
    /// Reads the header of a whole frame, tag included.
    ///
    /// # Errors
    /// When the frame is shorter than header and tag, or uses a type, flag or reserved field
    /// this version does not know.
    pub fn decode(frame: &[u8]) -> Result<Self, BadFrame> {
        let short = BadFrame::Short(frame.len());
        if frame.len() < OVERHEAD_BYTES {
            return Err(short);
        }
        let (header, _) = frame.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
        let [
            kind,
            flags,
            reserved @ ..,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
        ] = *header;
        let kind = FrameType::from_byte(kind).ok_or(BadFrame::Type(kind))?;
        if flags & !kind.allowed_flags() != 0 {
            return Err(BadFrame::Flags(flags));
        }
        if reserved != [0; 2] {
            return Err(BadFrame::Reserved(u16::from_be_bytes(reserved)));
        }
        Ok(Self {
            kind,
            flags: Flags(flags),
            receiver: u32::from_be_bytes(field(header, 4)),
            counter: u64::from_be_bytes(field(header, 8)),
        })
    }

    /// Returns the header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind.byte();
        bytes[1] = self.flags.0;
        bytes[4..8].copy_from_slice(&self.receiver.to_be_bytes());
        bytes[8..].copy_from_slice(&self.counter.to_be_bytes());
        bytes
    }
}

impl Received {
    /// Bytes of the plaintext.
    pub const BYTES: usize = 12;

    /// Reads a keepalive's plaintext; bytes behind it are for later versions and are ignored.
    ///
    /// # Errors
    /// When there are too few bytes.
    pub fn decode(plaintext: &[u8]) -> Result<Self, BadFrame> {
        let bytes = prefix::<{ Self::BYTES }>(plaintext)?;
        Ok(Self {
            receiver: u32::from_be_bytes(field(bytes, 0)),
            highest: u64::from_be_bytes(field(bytes, 4)),
        })
    }

    /// Returns the plaintext.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.receiver.to_be_bytes());
        bytes[4..].copy_from_slice(&self.highest.to_be_bytes());
        bytes
    }
}

impl Probe {
    /// Bytes of the plaintext.
    pub const BYTES: usize = 8;

    /// Reads a probe's plaintext; bytes behind it (padding of a size probe) are ignored.
    ///
    /// # Errors
    /// When there are too few bytes.
    pub fn decode(plaintext: &[u8]) -> Result<Self, BadFrame> {
        Ok(Self {
            id: u64::from_be_bytes(*prefix(plaintext)?),
        })
    }

    /// Returns the plaintext.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        self.id.to_be_bytes()
    }

    /// Returns the plaintext of a sender whose network has changed: what it used before is not to
    /// be waited for. A receiver of an earlier release takes it for a probe with padding.
    pub fn encode_moved(&self) -> [u8; Self::BYTES + 1] {
        let mut bytes = [MOVED; Self::BYTES + 1];
        bytes[..Self::BYTES].copy_from_slice(&self.encode());
        bytes
    }

    /// Returns whether a probe's plaintext says that its sender's network has changed. The padding
    /// of a size probe is zero.
    pub fn says_moved(plaintext: &[u8]) -> bool {
        plaintext
            .get(Self::BYTES)
            .is_some_and(|flags| flags & MOVED != 0)
    }
}

/// In the byte behind a probe's id.
const MOVED: u8 = 0x01;

impl Echo {
    /// Bytes of the plaintext.
    pub const BYTES: usize = Probe::BYTES + Received::BYTES;

    /// Reads an echo's plaintext; bytes behind it are for later versions and are ignored.
    ///
    /// # Errors
    /// When there are too few bytes.
    pub fn decode(plaintext: &[u8]) -> Result<Self, BadFrame> {
        let bytes = prefix::<{ Self::BYTES }>(plaintext)?;
        let (id, received) = bytes.split_at(Probe::BYTES);
        Ok(Self {
            id: Probe::decode(id)?.id,
            received: Received::decode(received)?,
        })
    }

    /// Returns the plaintext.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..Probe::BYTES].copy_from_slice(&self.id.to_be_bytes());
        bytes[Probe::BYTES..].copy_from_slice(&self.received.encode());
        bytes
    }
}

fn prefix<const N: usize>(plaintext: &[u8]) -> Result<&[u8; N], BadFrame> {
    plaintext
        .first_chunk()
        .ok_or(BadFrame::Length(plaintext.len()))
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn header_bytes_stand_where_the_module_says() {
        let header = Header {
            kind: FrameType::Data,
            flags: Flags::PARTIAL_CHECKSUM.with(Flags::TO_CLIENT),
            receiver: 0x0102_0304,
            counter: 0x1112_1314_1516_1718,
        };

        let bytes = header.encode();

        assert_eq!(
            bytes,
            [
                0x10, 0x03, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18
            ]
        );
    }

    #[test]
    fn nonce_is_the_counter_behind_four_zeros() {
        assert_eq!(nonce(0x0102), [0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn no_frame_type_looks_like_quic() {
        for byte in 0..=u8::MAX {
            assert!(FrameType::from_byte(byte).is_none() || !is_quic(byte));
        }
        assert!(is_quic(0x40));
        assert!(is_quic(0xc3));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let mut frame = [0; OVERHEAD_BYTES];
        frame[0] = 0x10;
        let decode_with = |at: usize, value: u8| {
            let mut frame = frame;
            frame[at] = value;
            Header::decode(&frame)
        };

        assert_eq!(Header::decode(&frame[..31]), Err(BadFrame::Short(31)));
        assert_eq!(decode_with(0, 0x14), Err(BadFrame::Type(0x14)));
        assert_eq!(decode_with(1, 0x04), Err(BadFrame::Flags(0x04)));
        assert_eq!(decode_with(3, 0x01), Err(BadFrame::Reserved(1)));
    }

    #[test]
    fn only_data_frames_have_flags() {
        let mut frame = [0; OVERHEAD_BYTES];
        frame[..2].copy_from_slice(&[0x12, 0x01]);

        assert_eq!(Header::decode(&frame), Err(BadFrame::Flags(1)));
    }

    proptest! {
        #[test]
        fn header_survives_the_wire(receiver: u32, counter: u64, flags in 0_u8..4) {
            let header = Header { kind: FrameType::Data, flags: Flags(flags), receiver, counter };
            let mut frame = header.encode().to_vec();
            frame.extend([0; TAG_BYTES]);

            prop_assert_eq!(Header::decode(&frame), Ok(header));
        }

        #[test]
        fn a_header_that_is_read_is_written_the_same(frame: Vec<u8>) {
            if let Ok(header) = Header::decode(&frame) {
                prop_assert_eq!(&header.encode()[..], &frame[..HEADER_BYTES]);
            }
        }

        #[test]
        fn plaintexts_survive_the_wire(id: u64, receiver: u32, highest: u64) {
            let received = Received { receiver, highest };
            let echo = Echo { id, received };

            prop_assert_eq!(Received::decode(&received.encode()), Ok(received));
            let probe = Probe { id };
            let padded = [&probe.encode()[..], &[0; 1200]].concat();
            prop_assert_eq!(Probe::decode(&probe.encode()), Ok(probe));
            prop_assert_eq!(Probe::decode(&probe.encode_moved()), Ok(probe));
            prop_assert_eq!(Probe::says_moved(&probe.encode_moved()), true);
            prop_assert_eq!(Probe::says_moved(&probe.encode()), false);
            prop_assert_eq!(Probe::says_moved(&padded), false);
            prop_assert_eq!(Echo::decode(&echo.encode()), Ok(echo));
        }

        #[test]
        fn plaintexts_of_any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            prop_assert_eq!(Received::decode(&bytes).is_ok(), bytes.len() >= Received::BYTES);
            prop_assert_eq!(Probe::decode(&bytes).is_ok(), bytes.len() >= Probe::BYTES);
            prop_assert_eq!(Echo::decode(&bytes).is_ok(), bytes.len() >= Echo::BYTES);
        }
    }
}
