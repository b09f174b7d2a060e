//! The probes with which a session opens: a few quick ones measure its round trip, and more follow
//! while none is echoed. Not the count to the deadline, nor how a failed peer comes back.
//!
//! The peer cannot send under new keys before it hears from whoever asked for them. One that still
//! has older keys, lost here in a restart, sends under those until then, and nothing of it arrives:
//! what opens a session is repeated until it is answered.

use std::time::Duration;

use super::count::Wish;
use crate::time::Mono;

/// The quick probes, and how far apart they are.
const QUICK_PROBES: u32 = 3;
const QUICK_INTERVAL: Duration = Duration::from_millis(100);

/// The longest pause between those that follow.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long they follow: by then a peer that is gone is known to be, and one behind a cut that
/// lasts longer shakes hands anew when that ends.
const GIVE_UP_AFTER: Duration = Duration::from_secs(600);

/// The opening of one session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    since: Mono,
    next: Option<Mono>,
    sent: u32,
    is_answered: bool,
}

impl Opening {
    pub(super) const fn new(now: Mono) -> Self {
        Self {
            since: now,
            next: Some(now),
            sent: 0,
            is_answered: false,
        }
    }

    /// Something sent at `until` has arrived.
    pub(super) fn handle_proven(&mut self, until: Mono) {
        self.is_answered |= self.since <= until;
        if self.sent >= QUICK_PROBES && self.is_answered {
            self.next = None;
        }
    }

    pub(super) const fn is_answered(&self) -> bool {
        self.is_answered
    }

    pub(super) const fn due(&self) -> Option<Mono> {
        self.next
    }

    /// Returns what to send now.
    pub(super) fn handle_timeout(&mut self, now: Mono) -> Wish {
        if self.next.is_none_or(|at| at > now) {
            return Wish::None;
        }
        self.sent = self.sent.saturating_add(1);
        let repeated = self.sent.saturating_sub(QUICK_PROBES);
        let is_over = if self.is_answered {
            self.sent >= QUICK_PROBES
        } else {
            now.since(self.since) >= GIVE_UP_AFTER
        };
        // Beyond 2^6 intervals the longest pause applies anyway.
        let pause = (QUICK_INTERVAL * (1 << repeated.min(6))).min(LONGEST_PAUSE);
        self.next = (!is_over).then(|| now + pause);
        if repeated == 0 {
            Wish::One
        } else {
            Wish::AllPaths
        }
    }
}
