//! What each holder costs this anchor: its round-trip time plus the time its service takes to
//! answer, both learned from this anchor's own traffic (SPEC section 4). The plane hands in
//! the round trips of probes and handshakes and the answers its connection notes measured, and
//! reads costs when a flow draws. What a cost means for the draw is told in [`crate::choose`].
//!
//! * Round-trip time: the least of the first [`RTT_FIRST`] samples, from then on EWMA, each sample
//!   counts [`RTT_WEIGHT`]. Unknown: the group's median, at least [`RTT_UNKNOWN`].
//! * Answer time: EWMA of `ln(1 + ms)` with time constant [`ANSWER_CONSTANT`], so that a sample's
//!   weight follows from the time since the last one; the first samples weigh the same, so that
//!   one cold request does not decide for two minutes. As its last sample ages, a value slides
//!   towards the group's median, and has reached it after [`ANSWER_LIFETIME`]. A holder without a
//!   value counts as the median, and as zero when nobody in the group is measured.
//!
//! Reading never changes state: two reads at one `now` agree.

use std::time::Duration;

use smallvec::SmallVec;

use crate::ids::PeerIx;
use crate::table::{self, Map};
use crate::time::Mono;

/// The weight of one round-trip sample, the one TCP uses (RFC 6298).
pub const RTT_WEIGHT: f64 = 1.0 / 8.0;

/// The samples of which the least is taken: those of the probes a session starts with. They meet
/// two anchors busy with handshakes, which only ever adds, and an idle path is not measured
/// again until it is used.
pub const RTT_FIRST: u8 = 3;

/// The least cost of a holder whose round trip is not known yet: more than any within a city, so
/// that measured near ones go first, less than one across an ocean.
pub const RTT_UNKNOWN: Duration = Duration::from_millis(50);

/// The time constant of the answer time: some minutes of service decide, not single requests.
pub const ANSWER_CONSTANT: Duration = Duration::from_secs(120);

/// The age at which an answer time says nothing any more; equal to the idleness after which a
/// flow draws again.
pub const ANSWER_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// The least distance of two answer samples of one holder: a busy connection must not outweigh
/// all others.
pub const SAMPLE_SPACING: Duration = Duration::from_secs(1);

/// The most any single sample counts, so that a long poll does not ban its holder.
pub const SAMPLE_LIMIT: Duration = Duration::from_secs(10);

/// The least a refused connection counts.
pub const REFUSED_COST: Duration = Duration::from_secs(1);

/// The cost of one candidate at the time it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// The candidate.
    pub peer: PeerIx,
    /// Its round-trip time, measured or assumed.
    pub rtt: Duration,
    /// The round-trip time was measured.
    pub rtt_measured: bool,
    /// Its answer time, measured or assumed, after ageing.
    pub answer: Duration,
    /// The answer time was measured within [`ANSWER_LIFETIME`].
    pub answer_measured: bool,
}

impl Cost {
    /// Returns the sum that the draw goes by.
    pub fn total(&self) -> Duration {
        self.rtt + self.answer
    }
}

/// The measurements of every peer that was ever measured; one small entry per peer, whose number
/// membership bounds.
#[derive(Debug)]
pub struct Costs {
    peers: Map<PeerIx, Record>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Record {
    rtt_secs: Option<f64>,
    /// How many samples `rtt_secs` is of, counted up to [`RTT_FIRST`].
    rtt_samples: u8,
    answer: Option<Answer>,
    last_answer: Option<Mono>,
    last_refused: Option<Mono>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    /// The EWMA of `ln(1 + ms)`.
    log: f64,
    /// How many samples it is of.
    samples: u16,
    /// The time of the last sample.
    at: Mono,
}

impl Costs {
    /// Returns an empty table.
    pub fn new() -> Self {
        // The keys are this process's own numbers: nobody can aim for a bucket.
        Self {
            peers: table::map(0),
        }
    }

    /// Takes a round trip that the session to `peer` has measured.
    pub fn handle_rtt(&mut self, _now: Mono, peer: PeerIx, rtt: Duration) {
        let sample = rtt.min(SAMPLE_LIMIT).as_secs_f64();
        let record = self.peers.entry(peer).or_default();
        record.rtt_secs = Some(match record.rtt_secs {
            None => sample,
            Some(least) if record.rtt_samples < RTT_FIRST => least.min(sample),
            Some(old) => old + RTT_WEIGHT * (sample - old),
        });
        record.rtt_samples = record.rtt_samples.saturating_add(1).min(RTT_FIRST);
    }

    /// Takes the time from a request to its answer, the round trip already subtracted. Returns
    /// false when it was not counted because the last one is less than [`SAMPLE_SPACING`] ago.
    pub fn handle_answer(&mut self, now: Mono, peer: PeerIx, answer: Duration) -> bool {
        let record = self.peers.entry(peer).or_default();
        if !is_due(record.last_answer, now) {
            return false;
        }
        record.last_answer = Some(now);
        record.sample(now, log_of(answer.min(SAMPLE_LIMIT)));
        true
    }

    /// Takes a connection that `peer` refused: a sample of at least [`REFUSED_COST`], one per
    /// [`SAMPLE_SPACING`], and never one that makes the holder look better.
    pub fn handle_refused(&mut self, now: Mono, peer: PeerIx) {
        let record = self.peers.entry(peer).or_default();
        if !is_due(record.last_refused, now) {
            return;
        }
        record.last_refused = Some(now);
        let current = record.fresh(now).map_or(0.0, |answer| answer.log);
        record.sample(now, log_of(REFUSED_COST).max(current));
    }

    /// Forgets all that was measured of `peer`.
    pub fn forget(&mut self, peer: PeerIx) {
        self.peers.remove(&peer);
    }

    /// Returns the round-trip time of `peer`, when it was ever measured.
    pub fn rtt(&self, peer: PeerIx) -> Option<Duration> {
        self.peers.get(&peer)?.rtt_secs.map(Duration::from_secs_f64)
    }

    /// Writes the cost of each member of `group` to `out`, in the group's order; what `out` held
    /// before is gone.
    pub fn costs(&self, now: Mono, group: &[PeerIx], out: &mut SmallVec<[Cost; 8]>) {
        let record = |peer: &PeerIx| self.peers.get(peer).copied().unwrap_or_default();
        let rtt_median = median(group.iter().filter_map(|peer| record(peer).rtt_secs));
        let answer_median = median(
            group
                .iter()
                .filter_map(|peer| record(peer).fresh(now))
                .map(|fresh| fresh.log),
        );
        let rtt_assumed = rtt_median.unwrap_or(0.0).max(RTT_UNKNOWN.as_secs_f64());
        let answer_assumed = answer_median.unwrap_or(0.0);

        out.clear();
        out.extend(group.iter().map(|&peer| {
            let record = record(&peer);
            let fresh = record.fresh(now);
            let log = fresh.map_or(answer_assumed, |own| {
                let age = now.since(own.at).as_secs_f64() / ANSWER_LIFETIME.as_secs_f64();
                own.log + age * (answer_assumed - own.log)
            });
            Cost {
                peer,
                rtt: Duration::from_secs_f64(record.rtt_secs.unwrap_or(rtt_assumed)),
                rtt_measured: record.rtt_secs.is_some(),
                answer: duration_of(log),
                answer_measured: fresh.is_some(),
            }
        }));
    }
}

impl Default for Costs {
    fn default() -> Self {
        Self::new()
    }
}

impl Record {
    fn sample(&mut self, now: Mono, log: f64) {
        let samples = self.answer.map_or(0, |old| old.samples).saturating_add(1);
        let merged = self.answer.map_or(log, |old| {
            let gap = now.since(old.at).max(SAMPLE_SPACING);
            let weight = 1.0 - (-gap.as_secs_f64() / ANSWER_CONSTANT.as_secs_f64()).exp();
            old.log + weight.max(1.0 / f64::from(samples)) * (log - old.log)
        });
        self.answer = Some(Answer {
            log: merged,
            samples,
            at: now,
        });
    }

    /// Returns the answer time unless it is too old to mean anything.
    fn fresh(&self, now: Mono) -> Option<Answer> {
        self.answer
            .filter(|answer| now.since(answer.at) < ANSWER_LIFETIME)
    }
}

fn is_due(last: Option<Mono>, now: Mono) -> bool {
    last.is_none_or(|last| now.since(last) >= SAMPLE_SPACING)
}

fn log_of(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e3).ln_1p()
}

fn duration_of(log: f64) -> Duration {
    Duration::from_secs_f64(log.exp_m1().max(0.0) / 1e3)
}

/// Returns the middle value, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: SmallVec<[f64; 8]> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some((sorted[sorted.len() / 2 - 1] + upper) / 2.0)
}

#[cfg(test)]
mod tests;
