//! One path's search, confirmation and limit; the owner keeps the time.

use std::collections::VecDeque;
use std::time::Duration;

use super::ladder::{self, SLOTS, Sizes, Underlay};
use super::{BASE_BYTES, SizeProbe};
use crate::ids::PeerIx;
use crate::time::Mono;

/// Probes of one size before it counts as lost: at 10 % loss each way all four of a size that
/// passes are lost once in 770 searches, and the next search mends it.
pub(super) const SEARCH_TRIES: usize = 4;

/// Probes of the limit's size before the path counts as shrunk. All three are lost by chance once
/// in 150 times at 10 % loss each way, which costs one round trip at the base size.
const CONFIRM_TRIES: usize = 3;

/// How often the limit is confirmed while large packets are sent, and once after the last of them:
/// TCP falls silent when its window has been lost. With three tries of a round trip and
/// [`OVERTAKEN`] a shrunk path is so known before TCP's second retransmission, 0.6 s after the
/// loss; five probes a second are no load.
pub(super) const CONFIRM_EVERY: Duration = Duration::from_millis(400);

/// When a search is repeated in which nothing was answered, not even a probe of the base size: the
/// path was down, or the peer not ready.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// How long a limit below the ceiling stands (RFC 8899 section 5.1.1, PMTU_RAISE_TIMER).
pub(super) const RAISE_AFTER: Duration = Duration::from_secs(600);

/// Packets from here on count as large: a little less than the base, for what a path at the base
/// carries are fragments and cut segments just below it.
const LARGE_BYTES: usize = BASE_BYTES - 100;

/// How long a probe's echo may come behind that of a smaller one sent after it.
const OVERTAKEN: Duration = Duration::from_millis(40);

/// A confirmation's small probe: as large as liveness's, so that what passes those passes it.
const SMALL_BYTES: usize = 8;

/// Shortest and longest wait for an echo, and the wait before any round trip was measured.
const MIN_WAIT: Duration = Duration::from_millis(120);
const MAX_WAIT: Duration = Duration::from_secs(2);
const FIRST_WAIT: Duration = Duration::from_millis(400);

/// What a change may use of the owner.
pub(super) struct Tools<'a> {
    pub(super) peer: PeerIx,
    pub(super) ids: &'a mut fastrand::Rng,
    pub(super) probes: &'a mut VecDeque<SizeProbe>,
}

impl Tools<'_> {
    fn send(&mut self, id: u64, bytes: usize) {
        let peer = self.peer;
        self.probes.push_back(SizeProbe { peer, id, bytes });
    }
}

#[derive(Debug)]
pub(super) struct PathMtu {
    underlay: Underlay,
    ceiling: u16,
    limit: u16,
    search: Option<Search>,
    confirm: Option<Confirm>,
    confirm_at: Mono,
    /// Large packets were sent since the limit was confirmed last: it is again at `confirm_at`.
    owes_confirm: bool,
    raise_at: Mono,
    rtt: RoundTrip,
    /// The owner's heap holds an entry for this time.
    pub(super) queued: Option<Mono>,
}

/// One round of a search.
#[derive(Debug)]
struct Search {
    /// Ascending by size; only the first `used` are of this round.
    asked: [Asked; SLOTS],
    used: usize,
    /// The smallest size known not to pass.
    too_big: u16,
    /// The size that the path is taken to pass in any case.
    base_bytes: u16,
    /// Probes of that size, the last of each try.
    base: [u64; SEARCH_TRIES],
    /// Anything was answered since the search began.
    is_answered: bool,
    /// Tries begun.
    tries: usize,
    sent_at: Mono,
    due: Mono,
}

#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    id: u64,
    bytes: u16,
}

/// Tries of one confirmation, each a large probe and a small one behind it.
#[derive(Debug)]
struct Confirm {
    large: [u64; CONFIRM_TRIES],
    small: [u64; CONFIRM_TRIES],
    bytes: u16,
    /// Tries begun.
    tries: usize,
    is_small_answered: bool,
    sent_at: Mono,
    due: Mono,
}

impl PathMtu {
    pub(super) fn new(now: Mono, underlay: Underlay, ceiling: u16, rtt: Option<Duration>) -> Self {
        Self {
            underlay,
            ceiling,
            limit: underlay.base_bytes(),
            search: None,
            confirm: None,
            confirm_at: now,
            owes_confirm: false,
            raise_at: now,
            rtt: RoundTrip::new(rtt),
            queued: None,
        }
    }

    /// Begins a search above the limit.
    pub(super) fn search(&mut self, now: Mono, tools: &mut Tools<'_>) {
        self.search_below(now, self.ceiling + 1, tools);
    }

    /// Begins to confirm the limit, unless that is under way or there is nothing to confirm.
    pub(super) fn confirm(&mut self, now: Mono, tools: &mut Tools<'_>) {
        self.owes_confirm = false;
        if self.confirm.is_some() || self.limit == self.base() {
            return;
        }
        let mut confirm = Confirm {
            large: [0; CONFIRM_TRIES],
            small: [0; CONFIRM_TRIES],
            bytes: self.limit,
            tries: 0,
            is_small_answered: false,
            sent_at: now,
            due: now,
        };
        confirm.send(now, self.rtt.wait(), tools);
        self.confirm = Some(confirm);
    }

    /// Does what large packets give rise to; see [`Self::is_due`].
    pub(super) fn act_on_traffic(&mut self, now: Mono, tools: &mut Tools<'_>) {
        if self.wants_raise(now) {
            self.search(now, tools);
        }
        if now >= self.confirm_at {
            self.confirm(now, tools);
        } else {
            self.owes_confirm = true;
        }
    }

    pub(super) fn set_ceiling(&mut self, now: Mono, ceiling: u16) {
        self.ceiling = ceiling;
        self.limit = self.limit.min(ceiling);
        self.search = None;
        self.raise_at = now;
    }

    pub(super) fn handle_refused(&mut self, now: Mono, bytes: u16, tools: &mut Tools<'_>) {
        if self.limit >= bytes {
            self.limit = self.base();
            self.confirm = None;
            self.search_below(now, bytes, tools);
            return;
        }
        let Some(search) = &mut self.search else {
            return;
        };
        search.too_big = search.too_big.min(bytes);
        self.go_on(now, tools);
    }

    /// Returns whether the echo answers a probe of this path.
    pub(super) fn handle_echo(&mut self, now: Mono, id: u64, tools: &mut Tools<'_>) -> bool {
        if let Some(confirm) = &mut self.confirm {
            if confirm.handle_small(now, id) {
                return true;
            }
            if confirm.large().contains(&id) {
                if confirm.tries == 1 {
                    self.rtt.take(now.since(confirm.sent_at));
                }
                self.confirm = None;
                self.confirm_at = now + CONFIRM_EVERY;
                return true;
            }
        }
        let Some(search) = &mut self.search else {
            return false;
        };
        let Some(bytes) = search.handle_echo(now, id) else {
            return false;
        };
        if search.tries == 1 {
            self.rtt.take(now.since(search.sent_at));
        }
        if bytes > self.limit && bytes <= self.ceiling {
            self.limit = bytes;
            self.confirm_at = now + CONFIRM_EVERY;
        }
        self.go_on(now, tools);
        true
    }

    pub(super) fn handle_timeout(&mut self, now: Mono, tools: &mut Tools<'_>) {
        if self
            .confirm
            .as_ref()
            .is_some_and(|confirm| now >= confirm.due)
        {
            self.miss_confirm(now, tools);
        }
        if self.search.as_ref().is_some_and(|search| now >= search.due) {
            self.miss_search(now, tools);
        }
        if self.owes_confirm && self.confirm.is_none() && now >= self.confirm_at {
            self.confirm(now, tools);
        }
    }

    const fn base(&self) -> u16 {
        self.underlay.base_bytes()
    }

    /// Returns whether packets of `largest_bytes` give rise to anything now.
    pub(super) fn is_due(&self, now: Mono, largest_bytes: usize) -> bool {
        if largest_bytes < LARGE_BYTES {
            return false;
        }
        let wants_confirm = (now >= self.confirm_at || !self.owes_confirm)
            && self.confirm.is_none()
            && largest_bytes > usize::from(self.base())
            && self.limit > self.base();
        wants_confirm || self.wants_raise(now)
    }

    pub(super) fn due(&self) -> Option<Mono> {
        let search = self.search.as_ref().map(|search| search.due);
        let confirm = match &self.confirm {
            Some(confirm) => Some(confirm.due),
            None => self.owes_confirm.then_some(self.confirm_at),
        };
        search.into_iter().chain(confirm).min()
    }

    pub(super) const fn limit_bytes(&self) -> usize {
        self.limit as usize
    }

    fn wants_raise(&self, now: Mono) -> bool {
        self.search.is_none() && self.limit < self.ceiling && now >= self.raise_at
    }

    fn search_below(&mut self, now: Mono, too_big: u16, tools: &mut Tools<'_>) {
        let sizes = ladder::first(self.underlay, self.limit, too_big);
        self.ask(now, &sizes, too_big, false, tools);
    }

    /// Begins a round; without sizes the search is over.
    fn ask(
        &mut self,
        now: Mono,
        sizes: &Sizes,
        too_big: u16,
        is_answered: bool,
        tools: &mut Tools<'_>,
    ) {
        if sizes.is_empty() {
            self.search = None;
            self.raise_at = now + RAISE_AFTER;
            return;
        }
        let mut search = Search {
            asked: [Asked::default(); SLOTS],
            used: sizes.len(),
            too_big,
            base_bytes: self.base(),
            base: [0; SEARCH_TRIES],
            is_answered,
            tries: 0,
            sent_at: now,
            due: now,
        };
        for (asked, &bytes) in search.asked.iter_mut().zip(sizes) {
            *asked = Asked {
                id: tools.ids.u64(..),
                bytes,
            };
        }
        search.send(now, self.rtt.wait(), self.limit, tools);
        self.search = Some(search);
    }

    /// Ends the round when every size of it is known to pass or not to.
    fn go_on(&mut self, now: Mono, tools: &mut Tools<'_>) {
        let Some(search) = &self.search else {
            return;
        };
        if search.is_open(self.limit) {
            return;
        }
        let (too_big, is_answered) = (search.too_big, search.is_answered);
        let sizes = ladder::even(self.limit, too_big);
        self.ask(now, &sizes, too_big, is_answered, tools);
    }

    fn miss_search(&mut self, now: Mono, tools: &mut Tools<'_>) {
        let limit = self.limit;
        let Some(search) = &mut self.search else {
            return;
        };
        if search.tries < SEARCH_TRIES {
            search.send(now, self.rtt.wait(), limit, tools);
            return;
        }
        if !search.is_answered {
            self.search = None;
            self.raise_at = now + AGAIN_AFTER;
            return;
        }
        let smallest_lost = search
            .asked()
            .iter()
            .map(|asked| asked.bytes)
            .find(|&at| at > limit);
        if let Some(lost) = smallest_lost {
            search.too_big = search.too_big.min(lost);
        }
        self.go_on(now, tools);
    }

    fn miss_confirm(&mut self, now: Mono, tools: &mut Tools<'_>) {
        let wait = self.rtt.wait();
        let Some(confirm) = &mut self.confirm else {
            return;
        };
        if confirm.tries < CONFIRM_TRIES {
            confirm.send(now, wait, tools);
            return;
        }
        let has_shrunk = confirm.is_small_answered;
        self.confirm = None;
        if has_shrunk {
            self.limit = self.base();
            self.search(now, tools);
        } else {
            self.rtt.back_off();
            self.confirm_at = now + CONFIRM_EVERY;
        }
    }
}

impl Confirm {
    fn send(&mut self, now: Mono, wait: Duration, tools: &mut Tools<'_>) {
        let (large, small) = (tools.ids.u64(..), tools.ids.u64(..));
        self.large[self.tries] = large;
        self.small[self.tries] = small;
        self.tries += 1;
        self.due = now + wait;
        tools.send(large, usize::from(self.bytes));
        tools.send(small, SMALL_BYTES);
    }

    /// Returns whether the echo answers a small probe. The large one left before it, so that of
    /// the last try is most likely lost, and the next need not wait for the timer.
    fn handle_small(&mut self, now: Mono, id: u64) -> bool {
        let Some(at) = self.small[..self.tries]
            .iter()
            .position(|&small| small == id)
        else {
            return false;
        };
        self.is_small_answered = true;
        if at + 1 == self.tries {
            self.due = self.due.min(now + OVERTAKEN);
        }
        true
    }

    fn large(&self) -> &[u64] {
        &self.large[..self.tries]
    }
}

impl Search {
    fn asked(&self) -> &[Asked] {
        &self.asked[..self.used]
    }

    /// Returns the size of the probe that the echo answers. That of the base size left last, so
    /// that what its try still lacks is most likely lost.
    fn handle_echo(&mut self, now: Mono, id: u64) -> Option<u16> {
        if let Some(at) = self.base[..self.tries].iter().position(|&base| base == id) {
            if at + 1 == self.tries {
                self.due = self.due.min(now + OVERTAKEN);
            }
            self.is_answered = true;
            return Some(self.base_bytes);
        }
        let bytes = self.asked().iter().find(|asked| asked.id == id)?.bytes;
        self.is_answered = true;
        Some(bytes)
    }

    /// Returns whether a size above `limit` may still be answered.
    fn is_open(&self, limit: u16) -> bool {
        self.asked()
            .iter()
            .any(|asked| asked.bytes > limit && asked.bytes < self.too_big)
    }

    fn send(&mut self, now: Mono, wait: Duration, limit: u16, tools: &mut Tools<'_>) {
        for asked in self.asked() {
            if asked.bytes > limit && asked.bytes < self.too_big {
                tools.send(asked.id, usize::from(asked.bytes));
            }
        }
        let base = tools.ids.u64(..);
        tools.send(base, usize::from(self.base_bytes));
        self.base[self.tries] = base;
        self.tries += 1;
        self.due = now + wait;
    }
}

/// A smoothed round-trip time and its spread (RFC 6298), for how long an echo is waited for.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smooth: Option<Duration>,
    spread: Duration,
}

impl RoundTrip {
    fn new(known: Option<Duration>) -> Self {
        Self {
            smooth: known,
            spread: known.unwrap_or_default() / 4,
        }
    }

    fn take(&mut self, sample: Duration) {
        let Some(smooth) = self.smooth else {
            *self = Self::new(Some(sample));
            return;
        };
        self.spread = (self.spread * 3 + smooth.abs_diff(sample)) / 4;
        self.smooth = Some((smooth * 7 + sample) / 8);
    }

    /// Waits twice as long from now on, until samples say otherwise.
    fn back_off(&mut self) {
        self.spread = (self.spread + self.wait() / 4).min(MAX_WAIT);
    }

    fn wait(&self) -> Duration {
        let Some(smooth) = self.smooth else {
            return FIRST_WAIT;
        };
        (smooth + smooth / 4 + self.spread * 4).clamp(MIN_WAIT, MAX_WAIT)
    }
}
