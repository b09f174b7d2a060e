//! Messages of the control stream: one bidirectional QUIC stream per connection, opened by the
//! dialer, carrying length-prefixed messages both ways. Codec only; who answers what is the
//! control loop's.
//!
//! ```text
//! message  u32 length of what follows, big endian, 1..=65536
//!          CBOR array [kind, body]; a body is a map (lists stand in maps) unless said otherwise
//! ```
//! A kind that is not known is skipped by the reader ([`Decoded::Unknown`]), unknown map keys are
//! ignored, elements behind the body too: so a later release can say more.
//!
//! Both sides begin with [`Hello`]. A side that does not accept the other's says [`Refusal`] and
//! closes. To one whose credential lacks its admission, a member answers [`Admitted`] first.

mod digest;
mod meet;
mod numbered;
mod relay;
mod revoked;

pub use digest::{Digest, DigestEntry, Turn};
pub use meet::{Meet, Seen, Try};
pub use relay::{
    RELAY_KEYS_BYTES, Relay, RelayAsk, RelayGrant, RelayRefusal, RelayRefused, RelayWanted,
};
pub use revoked::{RevocationDigest, Revocations};

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Decoder, Encode};
use thiserror::Error;

use crate::advert::{Leave, SignedAdvert};
use crate::credential::Credential;
use crate::id::RealmId;
use crate::signed::{self, Signed};
use numbered::numbered;

/// Bytes of the length in front of a message.
pub const PREFIX_BYTES: usize = 4;

/// The longest message: holds a full credential and advert several times over, and bounds what
/// one peer can make us buffer.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// What anchors tell each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// First of all, from both sides.
    Hello(Box<Hello>),
    /// Why the sender is about to close.
    Refused(Refusal),
    /// To a joiner, or to one whose credential ends soon: its new credential.
    Admitted(Admitted),
    /// Adverts the receiver may lack.
    Adverts(Adverts),
    /// What the sender knows, so that the receiver can send the rest.
    Digest(Digest),
    /// Somebody's goodbye.
    Leave(Signed<Leave>),
    /// The first message of a Noise handshake.
    Noise1(Noise),
    /// The second message of a Noise handshake.
    Noise2(Noise),
    /// To be answered by [`Message::Pong`] with the same number (the body).
    Ping(u64),
    /// The answer to a ping (the body is its number).
    Pong(u64),
    /// To a holder that drains: what of the sender still rests on it.
    Resting(Resting),
    /// Revocations the receiver may lack.
    Revocations(Revocations),
    /// Which revocations the sender has, so that the receiver can send the others.
    RevocationDigest(RevocationDigest),
    /// To a relay or from one.
    Relay(Relay),
    /// Of addresses at which the two may meet.
    Meet(Meet),
}

/// Who speaks.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    /// Of the control protocol; [`PROTOCOL_VERSION`] here.
    #[n(0)]
    pub version: u32,
    /// The realm the sender is in, or wants to join.
    #[n(1)]
    pub realm: RealmId,
    /// What makes it a member, or a joiner.
    #[n(2)]
    pub credential: Credential,
    /// How often it has started.
    #[n(3)]
    pub epoch: u64,
    /// Its advert; a joiner has none that anybody would accept yet.
    #[n(4)]
    pub advert: Option<SignedAdvert>,
    /// Its release, for people.
    #[n(5)]
    pub software: String,
    /// Its wall clock, in seconds since 1970, so that a wrong one can be told of.
    #[n(6)]
    pub unix_time: u64,
}

/// Why a peer is not accepted.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Refusal {
    /// The kind of reason.
    #[n(0)]
    pub code: RefusalCode,
    /// The reason for people, as the refusing side sees it.
    #[n(1)]
    pub text: String,
}

/// Kinds of refusal; one of a later release is kept as its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefusalCode {
    /// No common protocol version.
    Version,
    /// Another realm.
    Realm,
    /// A credential that does not hold.
    Credential,
    /// A credential that has ended.
    Expired,
    /// A ticket that has ended before anybody admitted its user.
    TicketExpired,
    /// A revoked credential or ticket.
    Revoked,
    /// Something the protocol does not allow.
    Protocol,
    /// The refusing side is at a limit; later may be better.
    Busy,
    /// Known to later releases.
    Other(u32),
}

/// A new credential for the receiver.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Admitted {
    /// The whole chain; its bearer checks it before use.
    #[n(0)]
    pub credential: Credential,
}

/// Adverts with their ages.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(map)]
pub struct Adverts {
    /// The adverts.
    #[n(0)]
    pub adverts: Vec<AgedAdvert>,
    /// Whether the receiver may lack more than fitted: a digest now brings it.
    #[n(1)]
    pub more: bool,
}

/// An advert and how long ago it was signed, as far as its carriers know.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct AgedAdvert {
    /// The advert.
    #[n(0)]
    pub advert: SignedAdvert,
    /// Its age in milliseconds, the time in transit not counted.
    #[n(1)]
    pub age_millis: u64,
}

/// A message of a Noise handshake.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Noise {
    /// Chosen by the initiator, returned by the responder: which handshake this is.
    #[n(0)]
    pub handshake: u32,
    /// The message; the indices travel inside, encrypted.
    #[n(1)]
    pub bytes: ByteVec,
}

/// What a client still has on a holder that drains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Resting {
    /// Flows that are not at rest. Told within seconds of the holder's advert, on change, and
    /// every 10 s while it drains; 0 means that it can go.
    #[n(0)]
    pub flows: u64,
}

/// The version of the control protocol; ALPN `conflux/1` says the same.
pub const PROTOCOL_VERSION: u32 = 1;

/// A message as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decoded {
    /// One of ours.
    Message(Message),
    /// One of a later release, to be skipped.
    Unknown {
        /// Its kind.
        kind: u32,
    },
}

/// Why bytes are not a message.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BadMessage {
    /// A length of nothing, or above the limit.
    #[error("control message of {0} bytes, where 1 to {MAX_MESSAGE_BYTES} are allowed")]
    Length(usize),
    /// Not a message.
    #[error("malformed control message: {0}")]
    Malformed(String),
}

impl Message {
    /// Returns the message without its length.
    ///
    /// # Errors
    /// When it is longer than [`MAX_MESSAGE_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, BadMessage> {
        let bytes = match self {
            Self::Hello(hello) => body(1, hello.as_ref()),
            Self::Refused(refusal) => body(2, refusal),
            Self::Admitted(admitted) => body(3, admitted),
            Self::Adverts(adverts) => body(4, adverts),
            Self::Digest(digest) => body(5, digest),
            Self::Leave(leave) => body(6, leave),
            Self::Noise1(noise) => body(7, noise),
            Self::Noise2(noise) => body(8, noise),
            Self::Ping(number) => body(9, number),
            Self::Pong(number) => body(10, number),
            Self::Resting(resting) => body(20, resting),
            Self::Revocations(revocations) => body(11, revocations),
            Self::RevocationDigest(digest) => body(12, digest),
            Self::Relay(Relay::Ask(ask)) => body(30, ask),
            Self::Relay(Relay::Wanted(wanted)) => body(31, wanted),
            Self::Relay(Relay::Grant(grant)) => body(32, grant),
            Self::Relay(Relay::Refused(refused)) => body(33, refused),
            Self::Meet(Meet::Seen(seen)) => body(34, seen),
            Self::Meet(Meet::Try(tried)) => body(35, tried),
        };
        #[cfg(feature = "next")]
        let bytes = crate::next::grow_message(bytes);
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(BadMessage::Length(bytes.len()));
        }
        Ok(bytes)
    }

    /// Reads a message without its length. Memory taken is bounded by a small multiple of the
    /// input's size.
    ///
    /// # Errors
    /// When the length is out of bounds or the bytes are not a message.
    pub fn decode(bytes: &[u8]) -> Result<Decoded, BadMessage> {
        if bytes.is_empty() || bytes.len() > MAX_MESSAGE_BYTES {
            return Err(BadMessage::Length(bytes.len()));
        }
        decode(bytes).map_err(|error| BadMessage::Malformed(error.to_string()))
    }
}

/// Appends a message's bytes to `out`, its length first.
///
/// # Errors
/// When it is empty or longer than [`MAX_MESSAGE_BYTES`]; `out` is then unchanged.
pub fn write_frame(message: &[u8], out: &mut Vec<u8>) -> Result<(), BadMessage> {
    let length = checked_length(message.len())?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    Ok(())
}

/// The first message of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The message without its length.
    pub message: &'a [u8],
    /// What follows it.
    pub rest: &'a [u8],
}

/// Returns the first whole message of `buffer`; none when more bytes are needed.
///
/// # Errors
/// When its length is out of bounds: the stream cannot go on.
pub fn read_frame(buffer: &[u8]) -> Result<Option<Frame<'_>>, BadMessage> {
    let Some((length, rest)) = buffer.split_first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    checked_length(length)?;
    Ok(rest
        .split_at_checked(length)
        .map(|(message, rest)| Frame { message, rest }))
}

fn checked_length(length: usize) -> Result<u32, BadMessage> {
    match u32::try_from(length) {
        Ok(short @ 1..) if length <= MAX_MESSAGE_BYTES => Ok(short),
        Ok(_) | Err(_) => Err(BadMessage::Length(length)),
    }
}

fn body<T: Encode<()>>(kind: u32, body: &T) -> Vec<u8> {
    signed::to_bytes(&(kind, body))
}

fn decode(bytes: &[u8]) -> Result<Decoded, minicbor::decode::Error> {
    let mut d = Decoder::new(bytes);
    match d.array()? {
        Some(2..) => {}
        Some(_) | None => return Err(minicbor::decode::Error::message("not a kind and a body")),
    }
    Ok(Decoded::Message(match d.u32()? {
        1 => Message::Hello(Box::new(d.decode()?)),
        2 => Message::Refused(d.decode()?),
        3 => Message::Admitted(d.decode()?),
        4 => Message::Adverts(d.decode()?),
        5 => Message::Digest(d.decode()?),
        6 => Message::Leave(d.decode()?),
        7 => Message::Noise1(d.decode()?),
        8 => Message::Noise2(d.decode()?),
        9 => Message::Ping(d.decode()?),
        10 => Message::Pong(d.decode()?),
        20 => Message::Resting(d.decode()?),
        11 => Message::Revocations(d.decode()?),
        12 => Message::RevocationDigest(d.decode()?),
        30 => Message::Relay(Relay::Ask(d.decode()?)),
        31 => Message::Relay(Relay::Wanted(d.decode()?)),
        32 => Message::Relay(Relay::Grant(d.decode()?)),
        33 => Message::Relay(Relay::Refused(d.decode()?)),
        34 => Message::Meet(Meet::Seen(d.decode()?)),
        35 => Message::Meet(Meet::Try(d.decode()?)),
        kind => return Ok(Decoded::Unknown { kind }),
    }))
}

numbered!(RefusalCode {
    Version = 1,
    Realm = 2,
    Credential = 3,
    Expired = 4,
    TicketExpired = 5,
    Revoked = 6,
    Protocol = 7,
    Busy = 8,
});

#[cfg(test)]
mod tests;
