//! What an export says, once it is opened: lines of a word and a value, the first one with the
//! version. Words of later releases are skipped.

use conflux_core::identity::RealmSecret;
use conflux_proto::advert::Advert;
use conflux_proto::signed::Signed;
use data_encoding::BASE64;
use thiserror::Error;
use zeroize::Zeroizing;

use super::sealed::MAX_PLAIN_BYTES;

/// The realm's key, and whom to look for.
pub(crate) struct Content {
    /// The key.
    pub(crate) secret: RealmSecret,
    /// What some anchors last said of themselves: their addresses.
    pub(crate) adverts: Vec<Signed<Advert>>,
}

/// Why a text is not an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum BadContent {
    #[error("what is encrypted in it is not an export of a realm")]
    NotAnExport,
    #[error("it was made by a later release of conflux; this one cannot read it")]
    Version,
    #[error("its key is damaged")]
    Seed,
}

const KIND: &str = "conflux-realm";
const VERSION: &str = "1";

/// Adverts of so many anchors, at about 450 letters each: some will still be where they were.
const MAX_ADVERTS: usize = 64;

impl Content {
    /// Returns the text, as many adverts as fit in it.
    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        let seed = Zeroizing::new(BASE64.encode(self.secret.seed()));
        let mut text = Zeroizing::new(String::with_capacity(MAX_PLAIN_BYTES));
        text.push_str(&format!("{KIND} {VERSION}\nrealm {}\n", self.secret.id()));
        text.push_str("seed ");
        text.push_str(&seed);
        text.push('\n');
        for advert in self.adverts.iter().take(MAX_ADVERTS) {
            let line = format!("advert {}\n", BASE64.encode(&advert.to_bytes()));
            if text.len() + line.len() <= MAX_PLAIN_BYTES {
                text.push_str(&line);
            }
        }
        text
    }

    /// Reads a text; adverts that are damaged are left out.
    ///
    /// # Errors
    /// When it is no export, of a later release, or without its key.
    pub(crate) fn from_text(text: &str) -> Result<Self, BadContent> {
        let mut lines = text.lines();
        let version = lines
            .next()
            .and_then(|line| line.strip_prefix(KIND)?.strip_prefix(' '))
            .ok_or(BadContent::NotAnExport)?;
        if version != VERSION {
            return Err(BadContent::Version);
        }
        let mut secret = None;
        let mut adverts = Vec::new();
        for line in lines {
            match line.split_once(' ') {
                Some(("seed", value)) => {
                    let bytes = Zeroizing::new(
                        BASE64
                            .decode(value.as_bytes())
                            .map_err(|_| BadContent::Seed)?,
                    );
                    let seed: &[u8; 32] =
                        bytes.as_slice().try_into().map_err(|_| BadContent::Seed)?;
                    secret = Some(RealmSecret::from_seed(seed));
                }
                Some(("advert", value)) => {
                    let bytes = BASE64.decode(value.as_bytes()).ok();
                    adverts.extend(bytes.and_then(|bytes| Signed::from_bytes(&bytes).ok()));
                }
                Some(_) | None => {}
            }
        }
        Ok(Self {
            secret: secret.ok_or(BadContent::Seed)?,
            adverts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_survives_its_text() {
        let content = Content {
            secret: RealmSecret::from_seed(&[7; 32]),
            adverts: Vec::new(),
        };

        let text = content.to_text();
        let read = Content::from_text(&format!("{}later word\n", *text)).unwrap();

        assert_eq!(read.secret.seed(), &[7; 32]);
    }

    #[test]
    fn other_texts_are_refused_for_what_they_are() {
        for (text, why) in [
            ("", BadContent::NotAnExport),
            ("hello\n", BadContent::NotAnExport),
            ("conflux-realm 2\nseed x\n", BadContent::Version),
            ("conflux-realm 1\n", BadContent::Seed),
            ("conflux-realm 1\nseed AAAA\n", BadContent::Seed),
        ] {
            assert_eq!(Content::from_text(text).err(), Some(why), "{text}");
        }
    }
}
