//! Taints: the labels that decide which anchors may exchange data. Who holds which is the
//! credential's business.

use std::fmt;
use std::str::FromStr;

use minicbor::data::Type;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use thiserror::Error;

/// One label: 1 to [`MAX_LABEL_BYTES`] of UTF-8 without separators or invisible characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Taint(String);

/// The labels of one anchor, sorted, each once, at most [`MAX_TAINTS`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TaintSet(Vec<Taint>);

/// Why a text is not a taint, or taints are not a set.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BadTaint {
    /// An empty label.
    #[error("a taint needs at least one character")]
    Empty,
    /// A label of too many bytes.
    #[error("taint {0:?} is longer than {MAX_LABEL_BYTES} bytes")]
    Long(String),
    /// A character that separates labels elsewhere, or that cannot be seen.
    #[error(
        "taint {label:?} contains {character:?}: spaces, control and invisible characters, \
         and any of , = @ + are not allowed"
    )]
    Character {
        /// The label as given.
        label: String,
        /// The first character at fault.
        character: char,
    },
    /// More labels than one anchor may have.
    #[error("more than {MAX_TAINTS} taints")]
    TooMany,
}

impl Taint {
    /// Returns the label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Taint {
    type Err = BadTaint;

    fn from_str(label: &str) -> Result<Self, BadTaint> {
        if label.is_empty() {
            return Err(BadTaint::Empty);
        }
        if label.len() > MAX_LABEL_BYTES {
            return Err(BadTaint::Long(label.to_owned()));
        }
        match label.chars().find(|&character| is_forbidden(character)) {
            Some(character) => Err(BadTaint::Character {
                label: label.to_owned(),
                character,
            }),
            None => Ok(Self(label.to_owned())),
        }
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TaintSet {
    /// Returns the set of `taints`, in whatever order, repeated or not.
    ///
    /// # Errors
    /// When there are more than [`MAX_TAINTS`] different ones.
    pub fn new(taints: impl IntoIterator<Item = Taint>) -> Result<Self, BadTaint> {
        let mut taints: Vec<Taint> = taints.into_iter().collect();
        taints.sort_unstable();
        taints.dedup();
        if taints.len() > MAX_TAINTS {
            return Err(BadTaint::TooMany);
        }
        Ok(Self(taints))
    }

    /// Returns the set of the labels given as text.
    ///
    /// # Errors
    /// When a label is not a taint, or there are too many.
    pub fn parse<S: AsRef<str>>(labels: impl IntoIterator<Item = S>) -> Result<Self, BadTaint> {
        let taints: Result<Vec<Taint>, BadTaint> = labels
            .into_iter()
            .map(|label| label.as_ref().parse())
            .collect();
        Self::new(taints?)
    }

    /// Returns what a realm's first machine has when it asks for nothing: `default`.
    pub fn first_machine() -> Self {
        Self(vec![Taint("default".to_owned())])
    }

    /// Returns whether anchors with these two sets may exchange data: both have at least one
    /// taint and one set contains the other.
    pub fn may_exchange(&self, other: &Self) -> bool {
        !self.is_empty()
            && !other.is_empty()
            && (self.contains_all(other) || other.contains_all(self))
    }

    /// Returns whether every taint of `other` is one of these.
    pub fn contains_all(&self, other: &Self) -> bool {
        other
            .0
            .iter()
            .all(|taint| self.0.binary_search(taint).is_ok())
    }

    /// Returns the taints, sorted.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Taint> {
        self.0.iter()
    }

    /// Returns how many taints there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for TaintSet {
    /// Writes the labels, sorted and comma-joined.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, taint) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            f.write_str(&taint.0)?;
        }
        Ok(())
    }
}

impl<C> Encode<C> for TaintSet {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.array(self.0.len() as u64)?;
        for taint in &self.0 {
            e.str(&taint.0)?;
        }
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for TaintSet {
    /// Accepts the one form that is written: sorted, each label once.
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let count = d
            .array()?
            .ok_or_else(|| decode::Error::type_mismatch(Type::ArrayIndef))?;
        let mut taints: Vec<Taint> = Vec::new();
        for _ in 0..count {
            let taint: Taint = d.str()?.parse().map_err(decode::Error::custom)?;
            if taints.last().is_some_and(|last| *last >= taint) {
                return Err(decode::Error::message("taints are not sorted"));
            }
            if taints.len() == MAX_TAINTS {
                return Err(decode::Error::custom(BadTaint::TooMany));
            }
            taints.push(taint);
        }
        Ok(Self(taints))
    }
}

/// Separators of the command line and of credentials' texts, and whatever a table would not
/// show: two labels that look the same must be the same.
fn is_forbidden(character: char) -> bool {
    character.is_whitespace()
        || character.is_control()
        || matches!(character, ',' | '=' | '@' | '+')
        || matches!(character,
            '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// SPEC section 6; a label fits a table column and a metric attribute.
pub const MAX_LABEL_BYTES: usize = 64;

/// SPEC section 6; with labels of full length 2 KiB, so a credential with four links stays
/// within its own limit.
pub const MAX_TAINTS: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(labels: &str) -> TaintSet {
        TaintSet::parse(labels.split(',').filter(|label| !label.is_empty())).unwrap()
    }

    #[test]
    fn data_is_exchanged_when_one_set_contains_the_other() {
        let table = [
            ("a", "a", true),
            ("a", "a,b", true),
            ("a,b", "a", true),
            ("a,b", "a,c", false),
            ("a", "b", false),
            ("", "a", false),
            ("", "", false),
        ];
        for (left, right, expected) in table {
            assert_eq!(
                set(left).may_exchange(&set(right)),
                expected,
                "{left} and {right}"
            );
        }
    }

    #[test]
    fn label_is_refused_for_what_is_wrong_with_it() {
        assert_eq!("".parse::<Taint>(), Err(BadTaint::Empty));
        assert!(matches!(
            "x".repeat(65).parse::<Taint>(),
            Err(BadTaint::Long(_))
        ));
        for label in [
            "a b",
            "a,b",
            "a=b",
            "a@b",
            "a+b",
            "a\tb",
            "a\u{7f}",
            "a\u{200b}",
            "a\u{a0}",
        ] {
            assert!(
                matches!(label.parse::<Taint>(), Err(BadTaint::Character { .. })),
                "{label:?}"
            );
        }
    }

    #[test]
    fn label_of_64_bytes_and_of_any_script_is_accepted() {
        for label in [
            "x".repeat(64),
            "küche".to_owned(),
            "東京".to_owned(),
            "a-b_c/d:e".to_owned(),
        ] {
            assert_eq!(label.parse::<Taint>().unwrap().as_str(), label);
        }
    }

    #[test]
    fn set_is_sorted_without_repeats_and_bounded() {
        assert_eq!(set("b,a,b").to_string(), "a,b");
        let labels = (0..33).map(|number| format!("t{number}"));
        assert_eq!(TaintSet::parse(labels), Err(BadTaint::TooMany));
    }

    #[test]
    fn unsorted_or_repeated_labels_on_the_wire_are_refused() {
        for labels in [vec!["b", "a"], vec!["a", "a"]] {
            let bytes = minicbor::to_vec(labels).unwrap();
            assert!(decode::<TaintSet>(&bytes).is_err());
        }
    }

    proptest! {
        #[test]
        fn set_survives_the_wire(labels in prop::collection::vec("[a-z]{1,8}", 0..20)) {
            let taints = TaintSet::parse(labels).unwrap();
            let bytes = minicbor::to_vec(&taints).unwrap();

            prop_assert_eq!(decode::<TaintSet>(&bytes).unwrap(), taints);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = decode::<TaintSet>(&bytes);
        }
    }
}
