//! Encryption by a passphrase in the format of age (age-encryption.org/v1, with its `scrypt`
//! recipient and its armour), so that any age tool opens what is sealed here and the other way
//! round. Why it is written out: `docs/decisions/0013-export-format.md`. Primitives are those of
//! aws-lc-rs, hkdf and scrypt. One chunk: at most [`MAX_PLAIN_BYTES`].

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::{constant_time, hmac};
use data_encoding::{BASE64, BASE64_NOPAD};
use hkdf::Hkdf;
use sha2::Sha256;
use thiserror::Error;
use zeroize::Zeroizing;

/// The most that is sealed: a chunk of the format.
pub(crate) const MAX_PLAIN_BYTES: usize = 64 << 10;

/// The longest text that is opened: a full chunk, its armour, and room for what others write.
pub(crate) const MAX_SEALED_BYTES: u64 = 256 << 10;

/// A passphrase and the cost of one guess.
pub(crate) struct Lock<'a> {
    /// What has to be known.
    pub(crate) passphrase: &'a [u8],
    /// The logarithm of scrypt's N.
    pub(crate) log_n: u8,
}

/// Why a text cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum CannotOpen {
    #[error("this is not a file encrypted by `conflux realm export` or age")]
    NotSealed,
    #[error("the file is encrypted to a key, not with a passphrase")]
    OtherRecipient,
    #[error(
        "the file is encrypted at a cost this command does not pay (2^{0}; 2^{MAX_LOG_N} at most)"
    )]
    Cost(u8),
    #[error("the passphrase is wrong, or the file is damaged")]
    Wrong,
    #[error("the file is longer than an export can be")]
    Long,
}

/// A guess takes a fifth of a second and 128 MiB: the least that is advised for passphrases today.
pub(crate) const LOG_N: u8 = 17;

/// What a file may ask of the machine that opens it: 1 GiB.
const MAX_LOG_N: u8 = 20;

const VERSION: &str = "age-encryption.org/v1";
const BEGIN: &str = "-----BEGIN AGE ENCRYPTED FILE-----";
const END: &str = "-----END AGE ENCRYPTED FILE-----";
const TAG_BYTES: usize = 16;
const COLUMNS: usize = 64;

type Key = Zeroizing<[u8; 32]>;

/// Returns `plain` encrypted, as text.
///
/// # Panics
/// When `plain` is longer than [`MAX_PLAIN_BYTES`].
pub(crate) fn seal(plain: &[u8], lock: &Lock<'_>) -> String {
    assert!(plain.len() <= MAX_PLAIN_BYTES, "one chunk");
    let file_key: Zeroizing<[u8; 16]> = Zeroizing::new(random());
    let salt: [u8; 16] = random();
    let nonce: [u8; 16] = random();
    let mut wrapped = file_key.to_vec();
    encrypt(&wrap_key(lock, &salt), [0; 12], &mut wrapped);
    let header = format!(
        "{VERSION}\n-> scrypt {} {}\n{}\n---",
        BASE64_NOPAD.encode(&salt),
        lock.log_n,
        BASE64_NOPAD.encode(&wrapped)
    );
    let tag = hmac::sign(&header_key(&file_key), header.as_bytes());
    let mut payload = plain.to_vec();
    encrypt(&payload_key(&file_key, &nonce), LAST_CHUNK, &mut payload);
    let mut bytes = format!("{header} {}\n", BASE64_NOPAD.encode(tag.as_ref())).into_bytes();
    bytes.extend(nonce);
    bytes.extend(payload);
    armour(&bytes)
}

/// Returns what `text` holds.
///
/// # Errors
/// [`CannotOpen`].
pub(crate) fn open(text: &[u8], passphrase: &[u8]) -> Result<Zeroizing<Vec<u8>>, CannotOpen> {
    let bytes = unarmour(text)?;
    let parts = Parts::read(&bytes)?;
    if parts.log_n > MAX_LOG_N {
        return Err(CannotOpen::Cost(parts.log_n));
    }
    let lock = Lock {
        passphrase,
        log_n: parts.log_n,
    };
    let mut wrapped = parts.wrapped.clone();
    let file_key = decrypt(&wrap_key(&lock, &parts.salt), [0; 12], &mut wrapped)?;
    let file_key = Zeroizing::new(<[u8; 16]>::try_from(file_key).map_err(|_| CannotOpen::Wrong)?);
    let tag = hmac::sign(&header_key(&file_key), parts.header);
    constant_time::verify_slices_are_equal(tag.as_ref(), &parts.tag)
        .map_err(|_| CannotOpen::Wrong)?;
    let (nonce, payload) = parts.rest.split_at_checked(16).ok_or(CannotOpen::Wrong)?;
    if payload.len() > MAX_PLAIN_BYTES + TAG_BYTES {
        return Err(CannotOpen::Long);
    }
    let mut payload = Zeroizing::new(payload.to_vec());
    let length = decrypt(&payload_key(&file_key, nonce), LAST_CHUNK, &mut payload)?.len();
    payload.truncate(length);
    Ok(payload)
}

/// What a header says.
struct Parts<'a> {
    salt: [u8; 16],
    log_n: u8,
    wrapped: Vec<u8>,
    /// What the tag is over.
    header: &'a [u8],
    tag: Vec<u8>,
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, CannotOpen> {
        let mut at = 0;
        let mut line = || {
            let rest = &bytes[at..];
            let length = rest.iter().position(|byte| *byte == b'\n')?;
            at += length + 1;
            std::str::from_utf8(&rest[..length]).ok()
        };
        let sealed = |line: Option<&'a str>| line.ok_or(CannotOpen::NotSealed);
        if sealed(line())? != VERSION {
            return Err(CannotOpen::NotSealed);
        }
        let stanza = sealed(line())?;
        let words: Vec<&str> = stanza.split(' ').collect();
        let [_, kind, salt, log_n] = words[..] else {
            return Err(CannotOpen::OtherRecipient);
        };
        if kind != "scrypt" {
            return Err(CannotOpen::OtherRecipient);
        }
        let decode = |text: &str| {
            BASE64_NOPAD
                .decode(text.as_bytes())
                .map_err(|_| CannotOpen::NotSealed)
        };
        let salt = decode(salt)?
            .try_into()
            .map_err(|_| CannotOpen::NotSealed)?;
        let log_n = log_n.parse().map_err(|_| CannotOpen::NotSealed)?;
        let wrapped = decode(sealed(line())?)?;
        let last = sealed(line())?;
        let tag = decode(last.strip_prefix("--- ").ok_or(CannotOpen::NotSealed)?)?;
        let header = &bytes[..at - last.len() - 1 + "---".len()];
        Ok(Self {
            salt,
            log_n,
            wrapped,
            header,
            tag,
            rest: &bytes[at..],
        })
    }
}

/// The nonce of a first chunk that is the last one too.
const LAST_CHUNK: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn wrap_key(lock: &Lock<'_>, salt: &[u8; 16]) -> Key {
    let parameters = scrypt::Params::new(lock.log_n, 8, 1).expect("r and p are small");
    let salt = [b"age-encryption.org/v1/scrypt".as_slice(), salt].concat();
    let mut key = Key::default();
    scrypt::scrypt(lock.passphrase, &salt, &parameters, key.as_mut_slice())
        .expect("32 bytes are a length scrypt gives");
    key
}

fn header_key(file_key: &[u8; 16]) -> hmac::Key {
    hmac::Key::new(
        hmac::HMAC_SHA256,
        derive(file_key, None, b"header").as_slice(),
    )
}

fn payload_key(file_key: &[u8; 16], nonce: &[u8]) -> Key {
    derive(file_key, Some(nonce), b"payload")
}

fn derive(file_key: &[u8; 16], salt: Option<&[u8]>, label: &[u8]) -> Key {
    let mut key = Key::default();
    Hkdf::<Sha256>::new(salt, file_key)
        .expand(label, key.as_mut_slice())
        .expect("HKDF-SHA-256 gives up to 8160 bytes");
    key
}

fn encrypt(key: &Key, nonce: [u8; 12], bytes: &mut Vec<u8>) {
    cipher(key)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), bytes)
        .expect("a chunk is far below the cipher's limit");
}

fn decrypt<'a>(
    key: &Key,
    nonce: [u8; 12],
    bytes: &'a mut [u8],
) -> Result<&'a mut [u8], CannotOpen> {
    cipher(key)
        .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), bytes)
        .map_err(|_| CannotOpen::Wrong)
}

fn cipher(key: &Key) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_slice());
    LessSafeKey::new(key.expect("ChaCha20-Poly1305 has keys of 32 bytes"))
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the kernel's generator does not fail once it is seeded");
    bytes
}

fn armour(bytes: &[u8]) -> String {
    let letters = BASE64.encode(bytes);
    let mut text = format!("{BEGIN}\n");
    for line in letters.as_bytes().chunks(COLUMNS) {
        text.extend(line.iter().map(|letter| char::from(*letter)));
        text.push('\n');
    }
    text + END + "\n"
}

/// Takes armour off, when there is any.
fn unarmour(text: &[u8]) -> Result<Vec<u8>, CannotOpen> {
    if text.starts_with(VERSION.as_bytes()) {
        return Ok(text.to_vec());
    }
    let text = std::str::from_utf8(text).map_err(|_| CannotOpen::NotSealed)?;
    let inside = text
        .trim()
        .strip_prefix(BEGIN)
        .and_then(|rest| rest.strip_suffix(END))
        .ok_or(CannotOpen::NotSealed)?;
    let letters: String = inside.split_whitespace().collect();
    BASE64
        .decode(letters.as_bytes())
        .map_err(|_| CannotOpen::NotSealed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cheap, for tests.
    const LIGHT: Lock<'_> = Lock {
        passphrase: b"correct horse",
        log_n: 4,
    };

    #[test]
    fn what_is_sealed_is_opened_by_its_passphrase_only() {
        for plain in [&b""[..], b"a secret", &[7; MAX_PLAIN_BYTES]] {
            let text = seal(plain, &LIGHT);

            assert_eq!(
                open(text.as_bytes(), b"correct horse").unwrap().as_slice(),
                plain
            );
            assert_eq!(open(text.as_bytes(), b"wrong"), Err(CannotOpen::Wrong));
            assert_ne!(text, seal(plain, &LIGHT));
        }
    }

    #[test]
    fn what_another_tool_sealed_is_opened() {
        let text = include_bytes!("by_another_tool.age");

        let plain = open(text, b"correct horse battery staple").unwrap();

        assert_eq!(plain.as_slice(), b"sealed by another implementation\n");
    }

    #[test]
    fn a_change_anywhere_is_noticed() {
        let text = seal(b"a secret", &LIGHT);
        let bytes = unarmour(text.as_bytes()).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(open(&changed, b"correct horse").is_err(), "byte {at}");
            assert!(open(&bytes[..at], b"correct horse").is_err(), "cut at {at}");
        }
    }

    #[test]
    fn other_files_are_told_apart() {
        let to_a_key = b"age-encryption.org/v1\n-> X25519 abc\nabc\n--- abc\n";
        let dear = seal(b"", &LIGHT);
        let dear = unarmour(dear.as_bytes()).unwrap();
        let dear = String::from_utf8_lossy(&dear).replacen(" 4\n", " 30\n", 1);

        assert_eq!(open(b"hello", b""), Err(CannotOpen::NotSealed));
        assert_eq!(open(to_a_key, b""), Err(CannotOpen::OtherRecipient));
        assert_eq!(open(dear.as_bytes(), b""), Err(CannotOpen::Cost(30)));
    }
}
