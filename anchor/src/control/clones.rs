//! Cloned identities: two machines that use one key. A peer hears one of them after the other, and
//! so an earlier start after a later one, in hellos or on connections that live on; the machines
//! themselves see later statements that they did not make, or each other, and then go on as still
//! later starts, so that either of them may be the later one at any time. Told in `status`; which
//! is the copy only people know.

use std::collections::BTreeMap;
use std::time::Duration;

use conflux_core::ids::PeerIx;
use conflux_core::time::Mono;
use conflux_proto::id::AnchorKey;
use tracing::warn;

use super::Anchor;
use crate::quic::ConnId;

/// What was seen of clones is told this long: both of them are heard of several times within it.
const TOLD_FOR: Duration = Duration::from_secs(30 * 60);

/// The pause before a second catching-up; doubled each time up to [`LONGEST_PAUSE`]. Without it
/// two clones would outbid each other as fast as the network lets them.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause between two catchings-up.
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);

/// What is known of clones, and how this anchor keeps being heard beside its own.
#[derive(Debug, Default)]
pub(super) struct Clones {
    /// When somebody else was last seen with this anchor's identity.
    own: Option<Mono>,
    /// When two machines were last seen with one of these.
    others: BTreeMap<AnchorKey, Mono>,
    /// The epoch that others have of this anchor, above its own.
    ahead: Option<u64>,
    next: Mono,
    pause: Duration,
}

impl Clones {
    /// Notes that another machine has this anchor's identity.
    pub(super) fn note_own(&mut self, now: Mono) {
        self.own = Some(now);
    }

    /// Notes that two machines have this one's; true when that is news.
    pub(super) fn note(&mut self, now: Mono, key: AnchorKey) -> bool {
        self.others.retain(|_, seen| now.since(*seen) < TOLD_FOR);
        self.others.insert(key, now).is_none()
    }

    /// Notes that others know statements of this anchor from start `epoch`.
    pub(super) fn note_ahead(&mut self, now: Mono, epoch: u64) {
        self.own = Some(now);
        self.ahead = self.ahead.max(Some(epoch));
    }

    /// Returns when [`Self::take_ahead`] has something.
    pub(super) fn due(&self) -> Option<Mono> {
        self.ahead.map(|_| self.next)
    }

    /// Returns the epoch to go beyond, when that is due.
    pub(super) fn take_ahead(&mut self, now: Mono) -> Option<u64> {
        if now < self.next {
            return None;
        }
        let epoch = self.ahead.take()?;
        let was_quiet = now.since(self.next) > LONGEST_PAUSE;
        self.pause = if was_quiet || self.pause.is_zero() {
            FIRST_PAUSE
        } else {
            (self.pause * 2).min(LONGEST_PAUSE)
        };
        self.next = now + self.pause;
        Some(epoch)
    }

    /// Returns what `status` warns of.
    pub(super) fn warnings(&self, now: Mono) -> Vec<String> {
        let is_fresh = |seen: &Mono| now.since(*seen) < TOLD_FOR;
        let mut warnings = Vec::new();
        if self.own.as_ref().is_some_and(is_fresh) {
            warnings.push(
                "cloned identity: another machine uses this anchor's, or this one was rolled \
                 back: run `conflux uninstall` on the copy and join it with a ticket"
                    .to_owned(),
            );
        }
        for (key, _) in self.others.iter().filter(|(_, seen)| is_fresh(seen)) {
            warnings.push(format!(
                "cloned identity: two machines use that of anchor {}, or it was rolled back: run \
                 `conflux uninstall` on the copy and join it with a ticket",
                key.id().short()
            ));
        }
        warnings
    }
}

impl Anchor {
    /// A peer said hello after start `epoch`. Starts only grow: an earlier one than before is
    /// another machine's, or of a disk that was rolled back.
    pub(super) fn watch_starts(&mut self, now: Mono, peer: PeerIx, key: AnchorKey, epoch: u64) {
        if self.peers.goes_back(peer, epoch, now) {
            self.note_clone(now, key);
        }
    }

    /// Something came by a connection: when it speaks for an earlier start than the last one,
    /// another machine is that one.
    pub(super) fn watch_connection(&mut self, now: Mono, conn: ConnId, key: AnchorKey) {
        if self.peers.speaks_from_before(conn, now) {
            self.note_clone(now, key);
        }
    }

    pub(super) fn note_clone(&mut self, now: Mono, key: AnchorKey) {
        if self.clones.note(now, key) {
            let anchor = key.id().short();
            warn!(%anchor, "cloned identity: two machines use it, or it was rolled back");
        }
    }

    /// Others have later statements by this anchor's key than its own: its state was rolled back,
    /// or another machine has its key. Going on with a later epoch makes it heard again.
    pub(super) fn catch_up(&mut self, now: Mono) {
        let Some(seen) = self.clones.take_ahead(now) else {
            return;
        };
        warn!(
            "others know later statements of this anchor: its state was rolled back, or another \
             machine uses its identity"
        );
        while self.epoch <= seen {
            match self.state.next_epoch() {
                Ok(epoch) if epoch > self.epoch => self.epoch = epoch,
                Ok(_) => self.epoch = seen + 1,
                Err(error) => {
                    warn!(%error, "the boot epoch could not be written down");
                    self.epoch = seen + 1;
                }
            }
        }
        self.membership.set_epoch(now, self.epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Mono = Mono::from_nanos(1_000_000_000_000);

    #[test]
    fn the_first_catching_up_is_at_once_and_clones_do_not_outbid_each_other_for_ever() {
        let mut clones = Clones::default();
        clones.note_ahead(START, 7);
        assert_eq!(clones.take_ahead(START), Some(7));

        let mut caught_up = 0;
        for seconds in 0..3600 {
            let now = START + Duration::from_secs(seconds);
            clones.note_ahead(now, 8 + seconds);
            caught_up += u32::from(clones.take_ahead(now).is_some());
        }

        assert!((10..=20).contains(&caught_up), "{caught_up}");
        assert!(clones.warnings(START + Duration::from_secs(3600)).len() == 1);
    }

    #[test]
    fn after_a_quiet_time_the_pause_is_short_again() {
        let mut clones = Clones::default();
        for number in 0..5 {
            clones.note_ahead(START + FIRST_PAUSE * 100 * number, 1);
            clones.take_ahead(START + FIRST_PAUSE * 100 * number);
        }
        let later = START + LONGEST_PAUSE * 3;
        clones.note_ahead(later, 2);

        assert_eq!(clones.take_ahead(later), Some(2));
        clones.note_ahead(later, 3);
        assert_eq!(clones.due(), Some(later + FIRST_PAUSE));
    }

    #[test]
    fn what_was_seen_of_clones_is_not_told_for_ever() {
        let mut clones = Clones::default();
        assert!(clones.note(START, AnchorKey([1; 32])));
        assert!(!clones.note(START, AnchorKey([1; 32])));
        clones.note_own(START);

        assert_eq!(clones.warnings(START).len(), 2);
        assert!(clones.warnings(START + TOLD_FOR).is_empty());
    }
}
