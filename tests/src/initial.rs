//! QUIC's Initial packets (RFC 9000 section 17.2.2) as anybody on the path reads and writes them:
//! their keys follow from the first connection id (RFC 9001 section 5.2), so they hide nothing.
//! For looking at the first flights of a handshake, and for flooding with them. By the TLS
//! library's own functions; nothing here is the product's.

use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{DirectionalKeys, Keys, Version};

/// The least bytes of a datagram that opens a connection (RFC 9000 section 14.1).
pub const DATAGRAM_BYTES: usize = 1200;

/// Bytes of the sample that hides the header, and how far behind the packet number's place it is.
const SAMPLE_BYTES: usize = 16;
const SAMPLE_BEHIND: usize = 4;

const TAG_BYTES: usize = 16;

const VERSION_1: [u8; 4] = [0, 0, 0, 1];

/// Who sent a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// Whoever opened the connection.
    Client,
    /// Whoever answered.
    Server,
}

/// An Initial packet, opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Initial {
    /// The connection id it was sent to.
    pub destination: Vec<u8>,
    /// The connection id of its sender.
    pub source: Vec<u8>,
    /// The token of a Retry.
    pub token: Vec<u8>,
    /// Pieces of the TLS handshake with their offsets.
    pub crypto: Vec<(u64, Vec<u8>)>,
}

/// Keys of the Initial packets of one connection, for one direction.
pub struct InitialKeys(DirectionalKeys);

impl InitialKeys {
    /// Returns the keys of what `sender` sends; `first` is the connection id that the client's
    /// first packet went to.
    pub fn of(first: &[u8], sender: Sender) -> Self {
        let suite = TLS13_AES_128_GCM_SHA256
            .tls13()
            .expect("it is a suite of TLS 1.3");
        let quic = suite.quic.expect("the provider has keys for QUIC");
        let side = match sender {
            Sender::Client => Side::Client,
            Sender::Server => Side::Server,
        };
        Self(Keys::initial(Version::V1, suite, quic, first, side).local)
    }

    /// Opens the first packet of a datagram; none when it is no Initial or does not authenticate.
    pub fn open(&self, datagram: &[u8]) -> Option<Initial> {
        let mut bytes = datagram.to_vec();
        let head = Head::read(&bytes)?;
        let at = head.number_at;
        let sample_at = at + SAMPLE_BEHIND;
        let sample = bytes.get(sample_at..sample_at + SAMPLE_BYTES)?.to_vec();
        let (front, back) = bytes.split_at_mut(at);
        let (number, _) = back.split_at_mut(SAMPLE_BEHIND);
        self.0
            .header
            .decrypt_in_place(&sample, &mut front[0], number)
            .ok()?;
        let number_bytes = usize::from(bytes[0] & 3) + 1;
        let body_at = at + number_bytes;
        let number = bytes[at..body_at]
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        let end = at.checked_add(head.length)?;
        let (header, body) = bytes.get_mut(..end)?.split_at_mut_checked(body_at)?;
        let frames = self.0.packet.decrypt_in_place(number, header, body).ok()?;
        Some(Initial {
            destination: head.destination,
            source: head.source,
            token: head.token,
            crypto: crypto_frames(frames)?,
        })
    }

    /// Returns a datagram of [`DATAGRAM_BYTES`] with one packet of this content.
    ///
    /// # Panics
    /// When there is more than one piece of handshake, or more than fits.
    pub fn seal(&self, initial: &Initial, number: u8) -> Vec<u8> {
        let mut bytes = vec![0xc0];
        bytes.extend(VERSION_1);
        for id in [&initial.destination, &initial.source] {
            bytes.push(u8::try_from(id.len()).expect("ids are short"));
            bytes.extend(id);
        }
        put_number(&mut bytes, initial.token.len());
        bytes.extend(&initial.token);
        let at = bytes.len() + 2;
        let length = DATAGRAM_BYTES - at;
        put_number(&mut bytes, length);
        bytes.push(number);
        let [(offset, piece)] = &initial.crypto[..] else {
            panic!("one piece to a packet");
        };
        let mut body = vec![0x06];
        put_number(&mut body, usize::try_from(*offset).expect("it is small"));
        put_number(&mut body, piece.len());
        body.extend(piece);
        assert!(body.len() + 1 + TAG_BYTES <= length, "too much to say");
        body.resize(length - 1 - TAG_BYTES, 0);
        let tag = self
            .0
            .packet
            .encrypt_in_place(number.into(), &bytes, &mut body);
        bytes.extend(body);
        bytes.extend(tag.expect("it is short").as_ref());
        let sample_at = at + SAMPLE_BEHIND;
        let sample = bytes[sample_at..sample_at + SAMPLE_BYTES].to_vec();
        let (front, back) = bytes.split_at_mut(at);
        self.0
            .header
            .encrypt_in_place(&sample, &mut front[0], &mut back[..1])
            .expect("the sample is whole");
        bytes
    }
}

/// Returns the connection id that a datagram's first packet goes to, if that is an Initial.
pub fn destination_of(datagram: &[u8]) -> Option<Vec<u8>> {
    Head::read(datagram).map(|head| head.destination)
}

/// Returns the first message of a handshake out of its pieces, once all of it is there.
pub fn handshake_message(pieces: &[(u64, Vec<u8>)]) -> Option<Vec<u8>> {
    let mut pieces: Vec<_> = pieces.iter().collect();
    pieces.sort();
    let mut whole = Vec::new();
    for (offset, piece) in pieces {
        let known = whole.len().checked_sub(usize::try_from(*offset).ok()?)?;
        whole.extend_from_slice(piece.get(known..).unwrap_or_default());
    }
    let length = whole.get(1..4)?;
    let length =
        usize::from(length[0]) << 16 | usize::from(length[1]) << 8 | usize::from(length[2]);
    whole.truncate(4 + length);
    (whole.len() == 4 + length).then_some(whole)
}

/// What stands in front of the packet number, in clear.
struct Head {
    destination: Vec<u8>,
    source: Vec<u8>,
    token: Vec<u8>,
    /// Bytes from the packet number to the packet's end.
    length: usize,
    number_at: usize,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (first, rest) = bytes.split_first()?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        if first & 0xf0 != 0xc0 || *version != VERSION_1 {
            return None;
        }
        let (destination, rest) = counted(rest)?;
        let (source, rest) = counted(rest)?;
        let (token_bytes, rest) = number(rest)?;
        let (token, rest) = rest.split_at_checked(token_bytes)?;
        let (length, rest) = number(rest)?;
        Some(Self {
            destination: destination.to_vec(),
            source: source.to_vec(),
            token: token.to_vec(),
            length,
            number_at: bytes.len() - rest.len(),
        })
    }
}

/// Reads a byte that counts, and so many bytes.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*count))
}

/// Reads a number of variable length (RFC 9000 section 16).
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let first = *bytes.first()?;
    let count = 1 << (first >> 6);
    let (own, rest) = bytes.split_at_checked(count)?;
    let start = usize::from(first & 0x3f);
    let value = own[1..]
        .iter()
        .fold(start, |value, byte| value << 8 | usize::from(*byte));
    Some((value, rest))
}

/// Writes a number in two bytes.
fn put_number(out: &mut Vec<u8>, value: usize) {
    let short = u16::try_from(value).expect("it is below 2^14");
    assert!(short < 1 << 14);
    out.extend((0x4000 | short).to_be_bytes());
}

/// Reads the frames that may stand in an Initial.
fn crypto_frames(mut frames: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    let mut pieces = Vec::new();
    while let Some((kind, rest)) = frames.split_first() {
        frames = match kind {
            // Padding, ping.
            0 | 1 => rest,
            2 | 3 => acknowledgement(rest, *kind == 3)?,
            6 => {
                let (offset, rest) = number(rest)?;
                let (bytes, rest) = number(rest)?;
                let (piece, rest) = rest.split_at_checked(bytes)?;
                pieces.push((u64::try_from(offset).ok()?, piece.to_vec()));
                rest
            }
            // A close; nothing of the handshake follows.
            _ => break,
        };
    }
    Some(pieces)
}

fn acknowledgement(frames: &[u8], counts_marks: bool) -> Option<&[u8]> {
    let (_, rest) = number(frames)?;
    let (_, rest) = number(rest)?;
    let (ranges, rest) = number(rest)?;
    let (_, mut rest) = number(rest)?;
    let more = 2 * ranges + if counts_marks { 3 } else { 0 };
    for _ in 0..more {
        (_, rest) = number(rest)?;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened_by_the_keys_of_its_connection_only() {
        let initial = Initial {
            destination: vec![1, 2, 3, 4, 5, 6, 7, 8],
            source: vec![9; 8],
            token: vec![7; 40],
            crypto: vec![(1000, b"a piece of a handshake".to_vec())],
        };
        let keys = InitialKeys::of(&initial.destination, Sender::Client);

        let datagram = keys.seal(&initial, 3);

        assert_eq!(datagram.len(), DATAGRAM_BYTES);
        assert_eq!(keys.open(&datagram), Some(initial.clone()));
        assert_eq!(destination_of(&datagram), Some(initial.destination));
        let other = InitialKeys::of(&[1, 2, 3, 4, 5, 6, 7, 9], Sender::Client);
        assert_eq!(other.open(&datagram), None);
    }
}
