//! Whether this machine carries datagrams for other anchors, and how many bits a second: the values
//! of `relay` in the configuration and of `--relay-limit`.

use std::fmt;
use std::str::FromStr;

use super::settings::BadValue;

/// Slower ones would not carry the smallest conversation: a relayed datagram has 1,300 bytes.
const LEAST_BITS: u64 = 64_000;

/// Faster ones than any machine forwards.
const MOST_BITS: u64 = 1_000_000_000_000;

/// What this anchor carries for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RelayChoice {
    /// Whatever comes.
    #[default]
    On,
    /// Nothing.
    Off,
    /// At most so much.
    Limited {
        /// 64,000 to 10^12, outer headers counted.
        bits_per_second: u64,
    },
}

impl RelayChoice {
    /// Reads a rate.
    ///
    /// # Errors
    /// When it is none, or out of bounds.
    pub fn parse_limit(text: &str) -> Result<Self, BadValue> {
        let bad = || {
            BadValue(format!(
                "\"{text}\" is not a rate: a whole number of kbit, mbit or gbit, 64kbit to \
                 1000gbit, as in 100mbit"
            ))
        };
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let unit = match &text[digits.len()..] {
            "kbit" => 1_000,
            "mbit" => 1_000_000,
            "gbit" => 1_000_000_000,
            _ => return Err(bad()),
        };
        let number: u64 = digits.parse().map_err(|_| bad())?;
        let bits_per_second = number
            .checked_mul(unit)
            .filter(|bits| (LEAST_BITS..=MOST_BITS).contains(bits))
            .ok_or_else(bad)?;
        Ok(Self::Limited { bits_per_second })
    }
}

impl FromStr for RelayChoice {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            rate => Self::parse_limit(rate)
                .map_err(|BadValue(fault)| BadValue(format!("{fault}; or on, or off"))),
        }
    }
}

impl fmt::Display for RelayChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Limited { bits_per_second } = self else {
            return f.pad(if *self == Self::Off { "off" } else { "on" });
        };
        let bits = *bits_per_second;
        match (bits % 1_000_000_000, bits % 1_000_000) {
            (0, _) => write!(f, "{}gbit", bits / 1_000_000_000),
            (_, 0) => write!(f, "{}mbit", bits / 1_000_000),
            (_, _) => write!(f, "{}kbit", bits / 1_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_read_as_it_is_shown() {
        for text in [
            "on", "off", "64kbit", "1500kbit", "100mbit", "2gbit", "1000gbit",
        ] {
            let choice: RelayChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
        }
        assert_eq!(
            "1000mbit".parse(),
            Ok(RelayChoice::Limited {
                bits_per_second: 1_000_000_000
            })
        );
    }

    #[test]
    fn what_is_no_rate_is_refused_with_what_is_one() {
        let bad = [
            "",
            "100",
            "mbit",
            "63kbit",
            "1001gbit",
            "-1mbit",
            "1.5mbit",
            "100 mbit",
            "100MBit",
            "99999999999999999999gbit",
            "ünit",
        ];
        for text in bad {
            let refused = text.parse::<RelayChoice>().unwrap_err().to_string();
            assert!(refused.contains("64kbit to 1000gbit"), "{refused}");
        }
    }
}
