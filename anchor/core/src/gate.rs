//! Which datagrams that would open a QUIC connection are let through to QUIC. Anybody can send
//! them, from any address, and each costs a key derivation, a decryption and an answer; so they
//! are counted before anything is done with them. What is let through is bounded in total and per
//! source, in memory that does not grow; what belongs to a connection is none of this module's
//! business. The owner of the control sockets asks for each datagram.
//!
//! Three budgets, so that a flood of one sort leaves the others alone:
//!
//! | opening | allowed in all | per source |
//! |---|---|---|
//! | from where a known peer was, or is said to be | [`KNOWN`] | - |
//! | with a token, as after a Retry: its source has proved that it hears us | [`PROVED`] | [`SOURCE`] |
//! | any other | [`STRANGERS`] | [`SOURCE`] |
//!
//! A source is an IPv4 address or an IPv6 /64. Forged sources can use up the last budget; then
//! openings are let through in the order of coming, whose share the flood has, and an anchor that
//! sends its opening again and again gets one through, is sent a Retry and is in another class.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

use crate::time::Mono;

/// So many in a second, and so many at once after a quiet time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// In a second.
    pub per_second: u32,
    /// At once.
    pub burst: u32,
}

/// A realm of 10,000 anchors meets a restarted one within a few seconds.
pub const KNOWN: Rate = Rate {
    per_second: 2_000,
    burst: 2_000,
};

/// A token that is made up costs what a Retry does. One that is true is another matter: then each
/// source has [`SOURCE`], and the places for strangers are counted where handshakes begin.
pub const PROVED: Rate = Rate {
    per_second: 8_000,
    burst: 4_000,
};

/// So many Retries a second at most: of 100,000 openings a second each sixth is answered by one.
pub const STRANGERS: Rate = Rate {
    per_second: 16_000,
    burst: 4_000,
};

/// A site of 100 anchors behind one address that all start at once, two datagrams each, twice.
pub const SOURCE: Rate = Rate {
    per_second: 100,
    burst: 400,
};

/// Sources told apart, 8 bytes each; those that share a place share an allowance.
const PLACES: usize = 4096;

/// A datagram that would open a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// The first of a handshake.
    Plain,
    /// With a token of ours, or what looks like one.
    WithToken,
}

/// Counts openings.
pub struct Gate {
    hasher: SeedableRandomState,
    sources: Box<[Bucket]>,
    known: Bucket,
    proved: Bucket,
    strangers: Bucket,
    turned_away: u64,
}

/// What has been let through, as the moment at which it is all paid for.
#[derive(Clone, Copy, Default)]
struct Bucket(Mono);

impl Opening {
    /// Returns what a QUIC datagram would open; none when it belongs to a connection or is nothing.
    /// A version that is not spoken counts as well: it would be answered too.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (&first, rest) = datagram.split_first()?;
        if first & 0x80 == 0 {
            return None;
        }
        let (version, rest) = rest.split_first_chunk::<4>()?;
        if u32::from_be_bytes(*version) != 1 {
            return Some(Self::Plain);
        }
        // Types of long headers: Initial is 0.
        if first & 0x30 != 0 {
            return None;
        }
        let rest = behind_counted(rest).and_then(behind_counted)?;
        // The token's length, in 1, 2, 4 or 8 bytes as the first two bits say: nothing, however
        // long it is written, is no token.
        let (&first, more) = rest.split_first()?;
        let more = more.get(..(1 << (first >> 6)) - 1)?;
        if first & 0x3f == 0 && more.iter().all(|byte| *byte == 0) {
            Some(Self::Plain)
        } else {
            Some(Self::WithToken)
        }
    }
}

impl Gate {
    /// Returns a gate that has let nothing through yet.
    pub fn new(seed: u64) -> Self {
        Self {
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            sources: vec![Bucket::default(); PLACES].into_boxed_slice(),
            known: Bucket::default(),
            proved: Bucket::default(),
            strangers: Bucket::default(),
            turned_away: 0,
        }
    }

    /// Says whether an opening from `source` is let through; `is_known` when a peer is expected
    /// there.
    pub fn admits(&mut self, now: Mono, opening: Opening, source: IpAddr, is_known: bool) -> bool {
        let admitted = if is_known {
            self.known.take(now, KNOWN)
        } else {
            let place = self.hasher.hash_one(prefix(source)) as usize % PLACES;
            let class = match opening {
                Opening::Plain => (&mut self.strangers, STRANGERS),
                Opening::WithToken => (&mut self.proved, PROVED),
            };
            // Only what passes the first costs the second anything.
            self.sources[place].take(now, SOURCE) && class.0.take(now, class.1)
        };
        self.turned_away += u64::from(!admitted);
        admitted
    }

    /// Returns how many openings were turned away.
    pub const fn turned_away(&self) -> u64 {
        self.turned_away
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate({} turned away)", self.turned_away)
    }
}

impl Bucket {
    fn take(&mut self, now: Mono, rate: Rate) -> bool {
        let each = Duration::from_secs(1) / rate.per_second;
        let paid = self.0.max(now);
        if paid.since(now) + each > each * rate.burst {
            return false;
        }
        self.0 = paid + each;
        true
    }
}

/// Returns what is behind a byte that counts and so many bytes.
fn behind_counted(bytes: &[u8]) -> Option<&[u8]> {
    let (count, rest) = bytes.split_first()?;
    rest.get(usize::from(*count)..)
}

/// Returns the source as it is counted: whoever has one address of an IPv6 network has them all.
fn prefix(source: IpAddr) -> u64 {
    match source.to_canonical() {
        IpAddr::V4(source) => u64::from(source.to_bits()),
        IpAddr::V6(source) => (source.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const START: Mono = Mono::from_nanos(1_000_000_000_000);

    fn host(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number))
    }

    fn passed(
        gate: &mut Gate,
        count: u32,
        opening: Opening,
        source: impl Fn(u32) -> IpAddr,
    ) -> u32 {
        (0..count)
            .map(|number| u32::from(gate.admits(START, opening, source(number), false)))
            .sum()
    }

    #[test]
    fn initials_are_openings_and_what_belongs_to_connections_is_none() {
        let initial = [0xc3, 0, 0, 0, 1, 2, 7, 7, 1, 9, 0, 0x44, 0xb0];
        let with_token = [0xcf, 0, 0, 0, 1, 2, 7, 7, 1, 9, 3, 1, 2, 3];
        let handshake = [0xe3, 0, 0, 0, 1, 2, 7, 7, 1, 9, 0];
        let short = [0x43, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        let other_version = [0xc3, 0x1a, 0x2a, 0x3a, 0x4a, 8];
        // The same lengths of a token, written in two bytes.
        let no_token = [0xc3, 0, 0, 0, 1, 2, 7, 7, 1, 9, 0x40, 0, 0x44, 0xb0];
        let token = [0xc3, 0, 0, 0, 1, 2, 7, 7, 1, 9, 0x40, 2, 7, 7];

        assert_eq!(Opening::read(&initial), Some(Opening::Plain));
        assert_eq!(Opening::read(&with_token), Some(Opening::WithToken));
        assert_eq!(Opening::read(&handshake), None);
        assert_eq!(Opening::read(&short), None);
        assert_eq!(Opening::read(&other_version), Some(Opening::Plain));
        assert_eq!(Opening::read(&no_token), Some(Opening::Plain));
        assert_eq!(Opening::read(&token), Some(Opening::WithToken));
        for length in 0..initial.len() {
            // Cut off anywhere it is read or not, and nothing else.
            let _ = Opening::read(&initial[..length]);
        }
    }

    #[test]
    fn one_source_takes_its_own_allowance_and_leaves_that_of_others() {
        let mut gate = Gate::new(1);

        assert_eq!(
            passed(&mut gate, 100_000, Opening::Plain, |_| host(1)),
            SOURCE.burst
        );

        assert!(gate.admits(START, Opening::Plain, host(2), false));
        assert_eq!(gate.turned_away(), u64::from(100_000 - SOURCE.burst));
        let later = START + Duration::from_secs(1);
        assert!(gate.admits(later, Opening::Plain, host(1), false));
    }

    #[test]
    fn one_ipv6_network_is_one_source() {
        let mut gate = Gate::new(1);
        let of = |number: u32| {
            let network = u128::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0));
            IpAddr::V6(Ipv6Addr::from(network + u128::from(number)))
        };

        assert_eq!(passed(&mut gate, 5_000, Opening::Plain, of), SOURCE.burst);
    }

    #[test]
    fn forged_sources_take_one_budget_and_leave_the_others() {
        let mut gate = Gate::new(1);

        let strangers = passed(&mut gate, 100_000, Opening::Plain, host);

        assert_eq!(strangers, STRANGERS.burst);
        assert!(gate.admits(START, Opening::WithToken, host(5), false));
        assert!(gate.admits(START, Opening::Plain, host(5), true));
    }

    #[test]
    fn made_up_tokens_take_their_own_budget_only() {
        let mut gate = Gate::new(1);

        let made_up = passed(&mut gate, 100_000, Opening::WithToken, host);

        assert_eq!(made_up, PROVED.burst);
        assert!(gate.admits(START, Opening::Plain, host(500_000), false));
        assert!(gate.admits(START, Opening::WithToken, host(1), true));
    }

    #[test]
    fn a_flood_is_let_through_at_the_rate_that_is_allowed() {
        for seed in 0..8_u64 {
            let mut gate = Gate::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut passed = 0;
            for number in 0..300_000_u32 {
                // 100,000 a second, two from each of 60,000 sources in turn.
                let now = START + Duration::from_micros(10) * number;
                let source = host(0x00c8_0000 + number / 2 % 60_000);
                passed += u32::from(gate.admits(now, Opening::Plain, source, false));
            }

            let allowed = STRANGERS.burst + 3 * STRANGERS.per_second;
            let off = passed.abs_diff(allowed);
            assert!(off < allowed / 50, "{passed} of {allowed}");
        }
    }
}
