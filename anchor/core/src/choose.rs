//! The draw that gives a new flow its holder, as a pure function of the candidates' costs and
//! one random number. Which holders are candidates is not decided here, nor when a flow draws
//! again (SPEC section 4): the flow table decides that, and the plane calls [`choose`].
//!
//! Nine tenths of the flows follow the costs, `w = 1/(cost + 1 ms)`; one tenth is spread evenly,
//! so that every holder gets some flows and its cost stays known:
//! `p = `[`BY_COST`]` · w/Σw + (1 - `[`BY_COST`]`)/n`.

use std::time::Duration;

use smallvec::SmallVec;

use crate::cost::Cost;

/// The part of the flows that follows the costs. The rest, a tenth, measures: a holder of ten
/// still sees one flow in a hundred however costly it is, and at twice that a holder that is
/// slow would serve a noticeable part of all flows.
pub const BY_COST: f64 = 0.9;

/// Added to each cost before it is inverted: below it, differences are noise of the scheduler,
/// and a cost of zero must not take everything.
pub const COST_FLOOR: Duration = Duration::from_millis(1);

/// Returns the probability of each candidate, in their order; they add up to one.
pub fn shares(costs: &[Cost]) -> SmallVec<[f64; 8]> {
    let mut shares: SmallVec<[f64; 8]> = costs
        .iter()
        .map(|cost| 1.0 / (cost.total() + COST_FLOOR).as_secs_f64())
        .collect();
    let sum: f64 = shares.iter().sum();
    let even = (1.0 - BY_COST) / shares.len() as f64;
    for share in &mut shares {
        *share = BY_COST * *share / sum + even;
    }
    shares
}

/// Draws one of the candidates by `random`, which is uniform over all of `u64`, and returns its
/// place in `costs`; `None` when there is no candidate.
pub fn choose(costs: &[Cost], random: u64) -> Option<usize> {
    let last = costs.len().checked_sub(1)?;
    // The upper 53 bits are what an f64 holds exactly.
    let point = (random >> 11) as f64 / (1_u64 << 53) as f64;
    let mut below = 0.0;
    for (place, share) in shares(costs).into_iter().enumerate() {
        below += share;
        if point < below {
            return Some(place);
        }
    }
    // Only reached when rounding left the sum a hair below one.
    Some(last)
}

#[cfg(test)]
mod tests;
