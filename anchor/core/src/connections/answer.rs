//! Answer times (SPEC section 4): how long the far end took from the last payload of a request to
//! the first payload of its response, the way there and back included. Only exchanges that leave
//! no doubt about which is which give a sample:
//!
//! * TCP: nothing of the request was sent twice, the response acknowledges all of it (else it
//!   overlaps the request and may answer an earlier one) and does not arrive beyond a gap.
//! * UDP: the first datagram after [`SILENCE`], and the first one back. When no answer came before
//!   the next such datagram, nobody can tell which of the two the answer belongs to.
//!
//! Clipping and the limit of one sample per second and holder belong to `cost`.

use std::time::Duration;

use super::sequence::{Arrival, Sequence};
use crate::time::Mono;

/// The pause that makes the next datagram a new request.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// Where a connection's current exchange stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Stage {
    /// Nothing was asked that is not answered.
    #[default]
    Quiet,
    /// A request is out.
    Asked,
    /// A request is out whose answer would prove nothing.
    Doubtful,
}

/// A connection's current exchange, and when its request went out.
/// Packed: there is one in every connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(Rust, packed(4))]
pub(super) struct Exchange {
    asked_at: Mono,
    stage: Stage,
}

impl Exchange {
    /// Notes TCP payload from the host that had not been sent before.
    pub(super) fn note_request(&mut self, now: Mono) {
        self.asked_at = now;
        if self.stage == Stage::Quiet {
            self.stage = Stage::Asked;
        }
    }

    /// Notes TCP payload from the host of which some had been sent before, and whether some had
    /// not.
    pub(super) fn note_repeated(&mut self, has_more: bool) {
        if has_more || self.stage != Stage::Quiet {
            self.stage = Stage::Doubtful;
        }
    }

    /// Notes TCP payload to the host; `asked_up_to` is the end of all that the host has sent.
    pub(super) fn note_response(
        &mut self,
        now: Mono,
        arrival: Arrival,
        acknowledgment: Sequence,
        asked_up_to: Sequence,
    ) -> Option<Duration> {
        if self.stage == Stage::Quiet || arrival == Arrival::Old {
            return None;
        }
        if !acknowledgment.has_reached(asked_up_to) {
            self.stage = Stage::Doubtful;
            return None;
        }

        let is_clear = self.stage == Stage::Asked && arrival == Arrival::Next;
        self.stage = Stage::Quiet;
        is_clear.then(|| now.since(self.asked_at))
    }

    /// Notes a datagram from the host; `last` is when the last one passed either way.
    pub(super) fn note_datagram_out(&mut self, now: Mono, last: Option<Mono>) {
        if last.is_some_and(|last| now.since(last) < SILENCE) {
            return;
        }
        self.asked_at = now;
        self.stage = match self.stage {
            Stage::Quiet => Stage::Asked,
            Stage::Asked | Stage::Doubtful => Stage::Doubtful,
        };
    }

    /// Notes a datagram to the host.
    pub(super) fn note_datagram_in(&mut self, now: Mono) -> Option<Duration> {
        let is_clear = self.stage == Stage::Asked;
        self.stage = Stage::Quiet;
        is_clear.then(|| now.since(self.asked_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_runs_from_the_last_payload_of_the_request() {
        let mut exchange = Exchange::default();
        exchange.note_request(ms(0));
        exchange.note_request(ms(40));

        assert_eq!(
            respond(&mut exchange, 100, 200),
            Some(Duration::from_millis(60))
        );
        assert_eq!(
            respond(&mut exchange, 101, 200),
            None,
            "only the first payload counts"
        );
    }

    #[test]
    fn a_repeated_request_gives_no_sample_and_the_next_one_does() {
        let mut exchange = Exchange::default();
        exchange.note_request(ms(0));
        exchange.note_repeated(false);

        assert_eq!(respond(&mut exchange, 100, 200), None);
        exchange.note_request(ms(150));
        assert_eq!(
            respond(&mut exchange, 160, 200),
            Some(Duration::from_millis(10))
        );
    }

    #[test]
    fn a_response_that_overlaps_the_request_gives_no_sample() {
        let mut exchange = Exchange::default();
        exchange.note_request(ms(0));

        assert_eq!(
            respond(&mut exchange, 10, 199),
            None,
            "it may answer an earlier request"
        );
        assert_eq!(respond(&mut exchange, 20, 200), None);
        assert_eq!(exchange.stage, Stage::Quiet);
    }

    #[test]
    fn a_response_beyond_a_gap_is_not_the_first() {
        let mut exchange = Exchange::default();
        exchange.note_request(ms(0));

        let sample = exchange.note_response(ms(10), Arrival::Gap, Sequence(200), Sequence(200));

        assert_eq!(sample, None);
        assert_eq!(respond(&mut exchange, 20, 200), None);
    }

    #[test]
    fn payload_nobody_asked_for_gives_no_sample() {
        let mut exchange = Exchange::default();

        assert_eq!(respond(&mut exchange, 10, 200), None);
        assert_eq!(exchange.note_datagram_in(ms(10)), None);
    }

    #[test]
    fn a_datagram_after_a_pause_is_timed_and_one_within_is_not() {
        let mut exchange = Exchange::default();
        exchange.note_datagram_out(ms(0), None);
        exchange.note_datagram_out(ms(5), Some(ms(0)));

        assert_eq!(
            exchange.note_datagram_in(ms(30)),
            Some(Duration::from_millis(30))
        );
        exchange.note_datagram_out(ms(1_029), Some(ms(30)));
        assert_eq!(
            exchange.note_datagram_in(ms(1_040)),
            None,
            "999 ms are no pause"
        );
        exchange.note_datagram_out(ms(2_040), Some(ms(1_040)));
        assert_eq!(
            exchange.note_datagram_in(ms(2_043)),
            Some(Duration::from_millis(3))
        );
    }

    #[test]
    fn an_answer_after_an_unanswered_datagram_proves_nothing() {
        let mut exchange = Exchange::default();
        exchange.note_datagram_out(ms(0), None);
        exchange.note_datagram_out(ms(5_000), Some(ms(0)));

        assert_eq!(exchange.note_datagram_in(ms(5_001)), None);
        exchange.note_datagram_out(ms(9_000), Some(ms(5_001)));
        assert_eq!(
            exchange.note_datagram_in(ms(9_002)),
            Some(Duration::from_millis(2))
        );
    }

    fn respond(exchange: &mut Exchange, at: u64, acknowledgment: u32) -> Option<Duration> {
        exchange.note_response(
            ms(at),
            Arrival::Next,
            Sequence(acknowledgment),
            Sequence(200),
        )
    }

    fn ms(millis: u64) -> Mono {
        Mono::from_nanos(millis * 1_000_000)
    }
}
