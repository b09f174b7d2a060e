//! When a peer without a connection is dialled again. Not where (`paths`), nor whether it is wanted.
//!
//! A dial that failed is repeated after a pause that doubles; news of the peer, or traffic for it,
//! makes the next one due at once. Beneath both lies an allowance of packets, for there may be news
//! and traffic all the time: each address dialled costs [`PACKETS_EACH`], of which [`AT_ONCE`] may be
//! spent after a while of quiet and [`PER_SECOND`] from then on. So two anchors that dial each other
//! and can never meet send at most a packet a second between them in any ten minutes. A connection
//! makes good for everything spent before it.

use std::time::Duration;

use crate::time::Mono;

/// First pause after a failed dial; doubled up to [`LONGEST_PAUSE`].
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// A peer that is long gone is asked for this often, when it has few addresses.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Datagrams to one address in a dial that nobody answers: a first flight of two, twice again, and
/// a last word.
pub const PACKETS_EACH: u32 = 7;

/// Packets an end may send in dials to one peer after a while of quiet; the last dial may exceed it.
pub const AT_ONCE: u32 = 60;

/// Packets an end may send in dials to one peer, in the long run.
pub const PER_SECOND: f64 = 0.25;

/// When one peer is dialled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redial {
    at: Mono,
    pause: Duration,
    is_under_way: bool,
    /// When what was spent is made good for.
    settled: Mono,
}

impl Redial {
    /// Returns a peer's that is to be dialled at once.
    pub const fn new(now: Mono) -> Self {
        Self {
            at: now,
            pause: FIRST_PAUSE,
            is_under_way: false,
            settled: now,
        }
    }

    /// Returns when to dial; `None` while that is being done.
    pub fn due(&self) -> Option<Mono> {
        let allowed = self.settled - spending(AT_ONCE);
        (!self.is_under_way).then(|| self.at.max(allowed))
    }

    /// Says whether to dial now, which is then under way; at so many addresses.
    pub fn take(&mut self, now: Mono, addresses: usize) -> bool {
        let is_due = self.due().is_some_and(|at| at <= now);
        if is_due {
            self.is_under_way = true;
            let packets = u32::try_from(addresses).unwrap_or(u32::MAX);
            let cost = spending(packets.saturating_mul(PACKETS_EACH));
            self.settled = self.settled.max(now) + cost;
        }
        is_due
    }

    /// Says whether a dial is under way.
    pub const fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Notes a dial that came to nothing. `spread` in 0..1 keeps a realm's restarts apart.
    pub fn end_failed(&mut self, now: Mono, spread: f64) {
        self.is_under_way = false;
        self.at = now + self.pause.mul_f64(0.75 + spread / 2.0);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Notes a dial that has reached the peer.
    pub fn end_reached(&mut self, now: Mono) {
        *self = Self::new(now);
    }

    /// There is a connection, whoever has dialled.
    pub fn handle_connected(&mut self, now: Mono) {
        self.settled = now;
    }

    /// The last connection is gone.
    pub fn handle_lost(&mut self, now: Mono) {
        self.at = now;
    }

    /// There is news of the peer, or traffic for it.
    pub fn hurry(&mut self, now: Mono) {
        self.at = self.at.min(now);
        self.pause = FIRST_PAUSE;
    }
}

/// Returns how long so many packets take to be made good for.
fn spending(packets: u32) -> Duration {
    Duration::from_secs_f64(f64::from(packets) / PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Mono = Mono::from_nanos(1_000_000_000_000_000);

    /// What QUIC gives up after.
    const DIAL: Duration = Duration::from_secs(5);

    const TEN_MINUTES: Duration = Duration::from_secs(600);

    #[test]
    fn pauses_double_up_to_half_a_minute_and_begin_anew_with_news() {
        let mut redial = Redial::new(START);
        let mut now = START;
        let mut pauses = Vec::new();

        for _ in 0..8 {
            assert!(redial.take(now, 1));
            assert_eq!(redial.due(), None);
            redial.end_failed(now, 0.5);
            let next = redial.due().unwrap();
            pauses.push(next.since(now).as_secs());
            now = next;
        }

        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        redial.hurry(now - Duration::from_secs(1));
        assert!(redial.take(now - Duration::from_secs(1), 1));
        redial.end_failed(now, 0.5);
        assert_eq!(redial.due(), Some(now + FIRST_PAUSE));
    }

    #[test]
    fn two_that_never_meet_send_less_than_a_packet_a_second_in_any_ten_minutes() {
        for addresses in 1..=8 {
            for has_news in [false, true] {
                let dials = dials_of(addresses, has_news);

                for from in &dials {
                    let window = dials
                        .iter()
                        .filter(|at| **at >= *from && at.since(*from) < TEN_MINUTES);
                    let packets = window.count() as u32 * addresses as u32 * PACKETS_EACH;
                    assert!(
                        2 * packets <= 600,
                        "{addresses} addresses, news {has_news}: {packets} packets of one end"
                    );
                }
            }
        }
    }

    #[test]
    fn a_peer_with_few_addresses_is_dialled_as_often_as_pauses_say() {
        let one = dials_of(1, false);

        let last = one[one.len() - 1].since(one[one.len() - 2]);
        assert_eq!(last, LONGEST_PAUSE + DIAL);
    }

    #[test]
    fn a_connection_makes_good_for_what_was_spent() {
        let mut redial = Redial::new(START);
        let mut now = START;
        while redial.take(now, 8) {
            redial.hurry(now);
            redial.end_failed(now, 0.0);
            redial.hurry(now);
        }
        assert!(redial.due().unwrap() > now);

        redial.handle_connected(now);
        redial.handle_lost(now);
        assert_eq!(redial.due(), Some(now));

        now += DIAL;
        assert!(redial.take(now, 8));
        redial.end_reached(now);
        assert_eq!(redial, Redial::new(now));
    }

    /// When a peer is dialled that never answers, within an hour.
    fn dials_of(addresses: usize, has_news: bool) -> Vec<Mono> {
        let mut redial = Redial::new(START);
        let mut dials = Vec::new();
        while let Some(at) = redial.due() {
            if at.since(START) > 6 * TEN_MINUTES {
                break;
            }
            assert!(redial.take(at, addresses));
            dials.push(at);
            redial.end_failed(at + DIAL, 0.5);
            if has_news {
                redial.hurry(at + DIAL);
            }
        }
        dials
    }
}
