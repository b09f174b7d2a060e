//! One path's search, confirmation and limit; the owner keeps the time.

use std::collections::VecDeque;
use std::time::Duration;

use super::ladder::{self, SLOTS, Sizes, Underlay};
use super::{BASE_BYTES, SizeProbe};
use crate::ids::PeerIx;
use crate::time::Mono;

/// Probes of one size before it counts as lost: at 10 % loss each way all four of a size that
/// passes are lost once in 770 searches, and the next search mends it.
pub(super) const SEARCH_TRIES: u8 = 4;

/// Probes of the limit's size before the path may have shrunk. All three are lost by chance once
/// in 150 times at 10 % loss each way, which costs one round trip at the base size.
const CONFIRM_TRIES: u8 = 3;

/// How often the limit is confirmed while large packets are sent: with three tries of at least
/// [`MIN_WAIT`] a shrunk path is noticed within a second; one probe per 0.6 s is no load.
pub(super) const CONFIRM_EVERY: Duration = Duration::from_millis(600);

/// When a search is repeated in which nothing was answered, not even a probe of the base size: the
/// path was down, or the peer not ready.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// How long a limit below the ceiling stands (RFC 8899 section 5.1.1, PMTU_RAISE_TIMER).
pub(super) const RAISE_AFTER: Duration = Duration::from_secs(600);

/// Packets from here on count as large: a little less than the base, for what a path at the base
/// carries are fragments and cut segments just below it.
const LARGE_BYTES: usize = BASE_BYTES - 100;

/// A confirmation's small probe: as large as liveness's, so that what passes those passes it.
const SMALL_BYTES: usize = 8;

/// Shortest and longest wait for an echo, and the wait before any round trip was measured.
const MIN_WAIT: Duration = Duration::from_millis(120);
const MAX_WAIT: Duration = Duration::from_secs(2);
const FIRST_WAIT: Duration = Duration::from_millis(400);

const BASE: u16 = BASE_BYTES as u16;

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
    /// A probe of the base size, sent with the others until anything is answered.
    base: u64,
    is_answered: bool,
    tries: u8,
    sent_at: Mono,
    due: Mono,
}

#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    id: u64,
    bytes: u16,
}

#[derive(Debug)]
struct Confirm {
    large: u64,
    small: u64,
    bytes: u16,
    tries: u8,
    is_small_answered: bool,
    sent_at: Mono,
    due: Mono,
}

impl PathMtu {
    pub(super) fn new(now: Mono, underlay: Underlay, ceiling: u16, rtt: Option<Duration>) -> Self {
        Self {
            underlay,
            ceiling,
            limit: BASE,
            search: None,
            confirm: None,
            confirm_at: now,
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
        if self.confirm.is_some() || self.limit == BASE {
            return;
        }
        let confirm = Confirm {
            large: tools.ids.u64(..),
            small: tools.ids.u64(..),
            bytes: self.limit,
            tries: 1,
            is_small_answered: false,
            sent_at: now,
            due: now + self.rtt.wait(),
        };
        tools.send(confirm.large, usize::from(confirm.bytes));
        self.confirm = Some(confirm);
    }

    /// Does what large packets give rise to; see [`Self::is_due`].
    pub(super) fn act_on_traffic(&mut self, now: Mono, tools: &mut Tools<'_>) {
        if self.wants_raise(now) {
            self.search(now, tools);
        }
        if now >= self.confirm_at {
            self.confirm(now, tools);
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
            self.limit = BASE;
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
            if confirm.small == id {
                confirm.is_small_answered = true;
                return true;
            }
            if confirm.large == id {
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
        let Some(bytes) = search.size_of(id) else {
            return false;
        };
        search.is_answered = true;
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
    }

    /// Returns whether packets of `largest_bytes` give rise to anything now.
    pub(super) fn is_due(&self, now: Mono, largest_bytes: usize) -> bool {
        if largest_bytes < LARGE_BYTES {
            return false;
        }
        let wants_confirm = now >= self.confirm_at
            && self.confirm.is_none()
            && largest_bytes > BASE_BYTES
            && self.limit > BASE;
        wants_confirm || self.wants_raise(now)
    }

    pub(super) fn due(&self) -> Option<Mono> {
        let search = self.search.as_ref().map(|search| search.due);
        let confirm = self.confirm.as_ref().map(|confirm| confirm.due);
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
            base: tools.ids.u64(..),
            is_answered,
            tries: 1,
            sent_at: now,
            due: now + self.rtt.wait(),
        };
        for (asked, &bytes) in search.asked.iter_mut().zip(sizes) {
            *asked = Asked {
                id: tools.ids.u64(..),
                bytes,
            };
        }
        search.send(self.limit, tools);
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
            search.tries += 1;
            search.due = now + self.rtt.wait();
            search.send(limit, tools);
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
            confirm.tries += 1;
            confirm.due = now + wait;
            tools.send(confirm.large, usize::from(confirm.bytes));
            tools.send(confirm.small, SMALL_BYTES);
            return;
        }
        let has_shrunk = confirm.is_small_answered;
        self.confirm = None;
        if has_shrunk {
            self.limit = BASE;
            self.search(now, tools);
        } else {
            self.rtt.back_off();
            self.confirm_at = now + CONFIRM_EVERY;
        }
    }
}

impl Search {
    fn asked(&self) -> &[Asked] {
        &self.asked[..self.used]
    }

    /// Returns the size of the probe with that id.
    fn size_of(&self, id: u64) -> Option<u16> {
        let asked = self.asked().iter().find(|asked| asked.id == id);
        let base = (self.base == id).then_some(BASE);
        asked.map(|asked| asked.bytes).or(base)
    }

    /// Returns whether a size above `limit` may still be answered.
    fn is_open(&self, limit: u16) -> bool {
        self.asked()
            .iter()
            .any(|asked| asked.bytes > limit && asked.bytes < self.too_big)
    }

    fn send(&self, limit: u16, tools: &mut Tools<'_>) {
        if !self.is_answered {
            tools.send(self.base, BASE_BYTES);
        }
        for asked in self.asked() {
            if asked.bytes > limit && asked.bytes < self.too_big {
                tools.send(asked.id, usize::from(asked.bytes));
            }
        }
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
