//! What is known of one peer, and its timers. [`super::Liveness`] holds the peers, sleeps until
//! the earliest timer and turns what is due into events.

use std::time::Duration;

use super::Sent;
use super::count::{Count, Due, Pace, Wish};
use super::marks::Marks;
use super::opening::Opening;
use super::probes::OpenProbes;
use super::readmission::Readmission;
use crate::time::Mono;

/// How often a peer with an open TCP connection on it is probed while nothing is sent: with the
/// deadline after it, a silent reader learns of a failure in 7 s (SPEC bar: 7.5 s).
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// After the last DATA of a burst to a watched peer, one probe goes out this much later unless a
/// proof from then or later came, so that a holder which dies within 200 ms of a request, having
/// proved receipt of it, is still noticed in 2.0 to 2.5 s instead of 7.5 s.
const CONFIRM_DELAY: Duration = Duration::from_millis(200);

/// How long after DATA came its keepalive goes: with one open at a time, also 5/s at most.
pub(super) const KEEPALIVE_DELAY: Duration = Duration::from_millis(200);

/// How often a peer in use is probed only to know its round-trip time.
const REFRESH_INTERVAL: Duration = Duration::from_secs(15);

/// How often a question is repeated (of a 2,000 ms deadline), and when over every path.
const ASK_AGAIN_MILLIS: u32 = 200;
const ASK_ON_ALL_PATHS_MILLIS: u32 = 900;

/// A question this soon after a probe waits before it sends one: many new flows at once ask a
/// peer 20 times a second at most.
const PROBE_GAP: Duration = Duration::from_millis(50);

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    marks: Marks,
    open: OpenProbes,
    /// Probes of packet sizes: they prove what these do, but measure nothing.
    open_sizes: OpenProbes,
    count: Option<Count>,
    readmission: Readmission,
    rtt: Duration,
    last_heard: Option<Mono>,
    /// Everything sent up to here was received, or something sent later was.
    proven_until: Option<Mono>,
    /// When the last proof came; later, when it began to be watched.
    quiet_since: Mono,
    /// No count starts before this.
    floor: Mono,
    last_sent: Mono,
    last_probe: Option<Mono>,
    is_watched: bool,
    must_confirm: bool,
    /// The oldest unanswered probe of those that count like DATA.
    watch_probe: Option<Mono>,
    ask: Option<Ask>,
    opening: Option<Opening>,
    refresh: Option<Mono>,
    keepalive: Option<Mono>,
    /// The earliest entry for this peer among the owner's deadlines.
    pub(super) queued: Option<Mono>,
}

/// What one peer's timers want done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fired {
    pub(super) count: Due,
    pub(super) since: Option<Mono>,
    pub(super) wish: Wish,
    pub(super) is_keepalive_due: bool,
}

/// What an echo meant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echoed {
    pub(super) sent_at: Mono,
    pub(super) is_back: bool,
    /// The time since it was sent is a round trip, and not the end of an outage.
    pub(super) is_measure: bool,
}

/// A question that is repeated until it is answered or too old.
#[derive(Clone, Copy, Debug)]
struct Ask {
    since: Mono,
    next: Mono,
}

impl Peer {
    pub(super) fn new() -> Self {
        let origin = Mono::default();
        Self {
            marks: Marks::new(),
            open: OpenProbes::new(),
            open_sizes: OpenProbes::new(),
            count: None,
            readmission: Readmission::default(),
            rtt: Duration::ZERO,
            last_heard: None,
            proven_until: None,
            quiet_since: origin,
            floor: origin,
            last_sent: origin,
            last_probe: None,
            is_watched: false,
            must_confirm: false,
            watch_probe: None,
            ask: None,
            opening: None,
            refresh: None,
            keepalive: None,
            queued: None,
        }
    }

    /// Notes DATA; returns whether a count begins with it.
    pub(super) fn handle_sent(&mut self, now: Mono, highest: Sent, anew: Mono) -> bool {
        if self.is_failed() {
            return false;
        }
        self.last_sent = now;
        let was_empty = self.marks.oldest().is_none();
        self.marks.note(now, highest, self.pace().deadline());
        if was_empty {
            self.update_count(now, anew);
        }
        was_empty
    }

    /// Returns whether that was news.
    pub(super) fn handle_proof(&mut self, now: Mono, received: Sent, anew: Mono) -> bool {
        let proven = self.marks.prove_received(received);
        if let Some(until) = proven {
            self.handle_proven(now, until, anew);
        }
        proven.is_some()
    }

    pub(super) fn handle_echo(&mut self, now: Mono, id: u64, anew: Mono) -> Option<Echoed> {
        let answered = self.open.take(id)?;
        let sent_at = answered.sent_at;
        self.handle_round_trip(now, sent_at, anew);
        self.refresh = self.refresh.map(|_| now + REFRESH_INTERVAL);
        let is_back = self.readmission.handle_echo(now, sent_at);
        Some(Echoed {
            sent_at,
            is_back,
            is_measure: answered.is_newest && !self.is_failed(),
        })
    }

    /// Takes the echo of a size probe. It is none of a failed peer's answers in a row: a search
    /// of sizes sends several at once.
    pub(super) fn handle_size_echo(&mut self, now: Mono, id: u64, anew: Mono) {
        if let Some(answered) = self.open_sizes.take(id) {
            self.handle_round_trip(now, answered.sent_at, anew);
        }
    }

    pub(super) fn handle_heard(&mut self, now: Mono) {
        self.last_heard = Some(now);
    }

    /// Returns whether that set the timer.
    pub(super) fn handle_data_received(&mut self, now: Mono) -> bool {
        let is_new = self.keepalive.is_none();
        if is_new {
            self.keepalive = Some(now + KEEPALIVE_DELAY);
        }
        is_new
    }

    pub(super) const fn handle_echo_sent(&mut self) {
        self.keepalive = None;
    }

    pub(super) const fn handle_session(&mut self, now: Mono) {
        self.opening = Some(Opening::new(now));
    }

    /// The peer has new keys beside those of before.
    pub(super) fn handle_keys(&mut self, now: Mono) {
        if self.opening.is_some_and(|opening| !opening.is_answered()) {
            self.handle_session(now);
        }
        self.ask(now);
    }

    pub(super) fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    pub(super) fn set_watched(&mut self, now: Mono, is_watched: bool, anew: Mono) {
        if self.is_watched == is_watched {
            return;
        }
        self.is_watched = is_watched;
        self.must_confirm = false;
        self.quiet_since = now;
        self.watch_probe = None;
        self.update_count(now, anew);
    }

    pub(super) fn set_wanted(&mut self, now: Mono, is_wanted: bool) {
        self.readmission.set_wanted(now, is_wanted);
    }

    pub(super) fn handle_stranded(&mut self, now: Mono) {
        self.readmission.handle_stranded(now);
    }

    /// `spread` keeps the peers of a large group from being refreshed all at once.
    pub(super) fn set_used(&mut self, now: Mono, is_used: bool, spread: Duration) {
        if !is_used {
            self.refresh = None;
        } else if self.refresh.is_none() {
            let fresh_until = self
                .last_probe
                .map(|at| at + REFRESH_INTERVAL)
                .unwrap_or_default();
            self.refresh = Some(fresh_until.max(now + spread));
        }
    }

    pub(super) fn ask(&mut self, now: Mono) {
        let recent = self.last_probe.filter(|at| now.since(*at) < PROBE_GAP);
        let next = match recent {
            Some(at) if at == now => now + self.pace().stretch(ASK_AGAIN_MILLIS),
            // What is asked is who answers from now on: an echo of before does not tell.
            Some(at) => at + PROBE_GAP,
            None => now,
        };
        let next = self.ask.map_or(next, |ask| ask.next.min(next));
        self.ask = Some(Ask { since: now, next });
    }

    pub(super) fn fail(&mut self, now: Mono) {
        self.marks.clear();
        self.count = None;
        self.watch_probe = None;
        self.must_confirm = false;
        self.readmission.fail(now);
    }

    /// Acts on what is due by `now`; nothing is due by `now` after it.
    pub(super) fn handle_timeout(&mut self, now: Mono, anew: Mono) -> Fired {
        let mut fired = Fired::default();
        if self.keepalive.is_some_and(|at| at <= now) {
            self.keepalive = None;
            fired.is_keepalive_due = true;
        }
        self.update_count(now, anew);
        let pace = self.pace();
        if let Some(count) = &mut self.count {
            fired.count = count.handle_timeout(now, pace);
            fired.since = Some(count.since());
        }
        fired.wish = fired.count.wish.max(self.poll_wish(now));
        if fired.wish != Wish::None {
            self.last_probe = Some(now);
        }
        if self.watch_due().is_some_and(|at| at <= now) {
            self.must_confirm = false;
            self.watch_probe = Some(now);
            self.last_probe = Some(now);
            fired.wish = fired.wish.max(Wish::One);
            self.update_count(now, anew);
        }
        fired
    }

    pub(super) fn note_probe(&mut self, now: Mono, id: u64) {
        self.open.note(now, id);
    }

    pub(super) fn note_size_probe(&mut self, now: Mono, id: u64) {
        self.open_sizes.note(now, id);
    }

    /// Returns the earliest timer.
    pub(super) fn due(&self) -> Option<Mono> {
        let timers = [
            self.count.map(|count| count.due(self.pace())),
            self.watch_due(),
            self.ask.map(|ask| ask.next),
            self.opening.and_then(|opening| opening.due()),
            self.refresh,
            self.keepalive,
            self.readmission.due(),
        ];
        timers.into_iter().flatten().min()
    }

    pub(super) const fn last_heard(&self) -> Option<Mono> {
        self.last_heard
    }

    pub(super) fn asked_at(&self, probe: u64) -> Option<Mono> {
        self.open.sent_at(probe)
    }

    pub(super) const fn proven_until(&self) -> Option<Mono> {
        self.proven_until
    }

    pub(super) const fn is_failed(&self) -> bool {
        self.readmission.is_failed()
    }

    pub(super) fn is_suspect(&self, anew: Mono) -> bool {
        self.count
            .is_some_and(|count| count.is_suspect() && count.since() >= anew)
    }

    /// What went out at `sent_at` has arrived, so all that was sent before has had its time.
    fn handle_round_trip(&mut self, now: Mono, sent_at: Mono, anew: Mono) {
        self.marks.prove_until(sent_at);
        self.handle_proven(now, sent_at, anew);
    }

    fn handle_proven(&mut self, now: Mono, until: Mono, anew: Mono) {
        self.proven_until = self.proven_until.max(Some(until));
        self.quiet_since = now;
        self.floor = self.floor.max(self.pace().earliest_start(now));
        if self.watch_probe.is_some_and(|at| at <= until) {
            self.watch_probe = None;
        }
        if self.ask.is_some_and(|ask| ask.since <= until) {
            self.ask = None;
        }
        if let Some(opening) = &mut self.opening {
            opening.handle_proven(until);
        }
        self.update_count(now, anew);
        // The proof left the peer half a round trip ago.
        let is_early = now < self.last_sent + CONFIRM_DELAY + self.rtt / 2;
        self.must_confirm = self.count.is_none() && is_early && !self.is_failed();
    }

    /// Starts a running count anew; returns whether there was one.
    pub(super) fn start_anew(&mut self, now: Mono, anew: Mono) -> bool {
        let is_counting = self.count.is_some();
        if is_counting {
            self.update_count(now, anew);
        }
        is_counting
    }

    /// Starts, keeps or ends the count, as the oldest unanswered packet or watch probe has it.
    fn update_count(&mut self, now: Mono, anew: Mono) {
        let oldest = [self.marks.oldest(), self.watch_probe]
            .into_iter()
            .flatten()
            .min();
        let Some(oldest) = oldest.filter(|_| !self.is_failed()) else {
            self.count = None;
            return;
        };
        let since = oldest.max(self.floor).max(anew);
        if self.count.is_some_and(|count| count.since() == since) {
            return;
        }
        let pace = self.pace();
        let since = since.max(pace.earliest_start(now));
        self.floor = self.floor.max(since);
        self.count = Some(Count::new(now, since, pace));
    }

    /// Returns what the timers beside the count want.
    fn poll_wish(&mut self, now: Mono) -> Wish {
        let mut wish = self.poll_ask(now);
        if self.readmission.handle_timeout(now, self.rtt) {
            wish = wish.max(Wish::AllPaths);
        }
        if let Some(opening) = &mut self.opening {
            wish = wish.max(opening.handle_timeout(now));
        }
        if self.refresh.is_some_and(|at| at <= now) {
            self.refresh = Some(now + REFRESH_INTERVAL);
            // A failed peer's probes are its readmission's alone.
            if !self.is_failed() {
                wish = wish.max(Wish::One);
            }
        }
        wish
    }

    fn poll_ask(&mut self, now: Mono) -> Wish {
        let pace = self.pace();
        let Some(ask) = self.ask.as_mut().filter(|ask| ask.next <= now) else {
            return Wish::None;
        };
        let age = now.since(ask.since);
        if age >= pace.deadline() {
            self.ask = None;
            return Wish::None;
        }
        ask.next = now + pace.stretch(ASK_AGAIN_MILLIS);
        if self.last_probe.is_some_and(|at| now.since(at) < PROBE_GAP) {
            return Wish::None;
        }
        let is_late = age >= pace.stretch(ASK_ON_ALL_PATHS_MILLIS);
        if is_late { Wish::AllPaths } else { Wish::One }
    }

    fn watch_due(&self) -> Option<Mono> {
        if !self.is_watched || self.count.is_some() || self.is_failed() {
            return None;
        }
        let regular = self.quiet_since + WATCH_INTERVAL;
        if self.must_confirm {
            Some(regular.min(self.last_sent + CONFIRM_DELAY))
        } else {
            Some(regular)
        }
    }

    fn pace(&self) -> Pace {
        Pace::new(self.rtt)
    }
}
