//! Which of a peer's paths is in use, and the trials that find a better one.
//!
//! A path takes over when the one in use was silent for [`ROAM_AFTER`]: whoever is heard by another
//! way is there now; or when it answers and the one in use does not (`moved`). While a peer is
//! reached by a relay, all its known paths are tried in rounds: one probe each, whose echo proves
//! both directions; so is one by which the peer is heard while the relay is silent. A direct path
//! that answers takes over at once; another relay when it was better by a margin in
//! [`ROUNDS_WON`] rounds in a row (`relay::prefer`).
//! Both may be in use for a while without harm: frames are taken from any path, so nothing is lost.
//! Rounds become rare while they are fruitless, and after a direct path that did not last.
//!
//! Who holds a flow is nothing to do with it: proofs of receipt count whichever way they came.

use std::time::Duration;

use conflux_proto::frame::{Flags, FrameType, Probe};
use smallvec::SmallVec;

use super::{Event, Output, Path, Plane};
use crate::ids::PeerIx;
use crate::relay::{Measured, prefer};
use crate::table::{Map, map};
use crate::time::Mono;

/// A path takes over from the one in use only when that was silent for this long, so that two
/// paths that both work never alternate.
pub(super) const ROAM_AFTER: Duration = Duration::from_secs(1);

/// Paths tried in one round; more of a peer's are left out.
const MAX_TRIALS: usize = 8;

/// The pause after the first round of a peer, doubled up to [`LONGEST_PAUSE`] while rounds are
/// fruitless: with [`MAX_TRIALS`] each, less than a packet a second from the first minute on.
const FIRST_PAUSE: Duration = Duration::from_secs(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(256);

/// A path by which a peer is heard is tried this often until it answers.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// A direct path that gave way to a relay sooner than this was none to rely on: the next trial
/// waits twice as long as before.
const LASTED: Duration = Duration::from_secs(60);

/// Rounds in a row that another relay must win.
const ROUNDS_WON: u32 = 2;

/// Trials of direct paths within [`BUDGET_FOR`], all peers together: each may cost a NAT on the way
/// a mapping.
const BUDGET: usize = 60;
const BUDGET_FOR: Duration = Duration::from_secs(60);

/// Trials of all peers that are reached by relays.
#[derive(Debug)]
pub(super) struct Trials {
    rounds: Map<PeerIx, Round>,
    budget_since: Mono,
    spent: usize,
}

#[derive(Debug)]
struct Round {
    trials: SmallVec<[Trial; MAX_TRIALS]>,
    pause: Duration,
    next: Mono,
    /// What the path in use answered in this round.
    current: Option<Duration>,
    /// The best other relay's answer in this round.
    best: Option<(Path, Duration)>,
    /// The relay that won the last rounds, and how many.
    winner: Option<(Path, u32)>,
    /// When a direct path took over.
    direct_since: Option<Mono>,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    id: u64,
    path: Path,
    sent: Mono,
}

impl Trials {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rounds: map(seed),
            budget_since: Mono::default(),
            spent: 0,
        }
    }

    pub(super) fn forget(&mut self, peer: PeerIx) {
        self.rounds.remove(&peer);
    }

    pub(super) fn poll_timeout(&self) -> Option<Mono> {
        let waiting = |round: &&Round| round.direct_since.is_none();
        self.rounds
            .values()
            .filter(waiting)
            .map(|round| round.next)
            .min()
    }

    /// Takes as many trials out of the budget as there are left of it.
    fn spend(&mut self, now: Mono, wanted: usize) -> usize {
        if now.since(self.budget_since) >= BUDGET_FOR {
            self.budget_since = now;
            self.spent = 0;
        }
        let granted = wanted.min(BUDGET - self.spent);
        self.spent += granted;
        granted
    }
}

impl Plane {
    /// Tries all known paths of a peer that a relay reaches, and these besides: the peer does the
    /// same at this moment, so that what filters between the two lets both in. One that is reached
    /// directly has not found that path yet, and is told of it. Does nothing for a peer without keys.
    pub fn try_paths(&mut self, now: Mono, peer: PeerIx, besides: &[Path]) {
        let Some(entry) = self.paths.get(&peer) else {
            return;
        };
        let Some(current) = entry.current else {
            return;
        };
        if !self.sessions.can_send(peer) {
            return;
        }
        if !current.is_relayed() {
            if self.trials.spend(now, 1) == 1 {
                self.tell_direct(peer, current);
            }
            return;
        }
        let mut relayed = SmallVec::<[Path; MAX_TRIALS]>::from_iter([current]);
        let mut direct = SmallVec::<[Path; MAX_TRIALS]>::new();
        // What the peer has just named is newer than its advert, and how others see it comes first.
        for path in besides.iter().chain(&entry.all) {
            let known = if path.is_relayed() {
                &mut relayed
            } else {
                &mut direct
            };
            if !known.contains(path) {
                known.push(*path);
            }
        }
        direct.truncate(MAX_TRIALS.saturating_sub(relayed.len()));
        direct.truncate(self.trials.spend(now, direct.len()));
        let paths = relayed.into_iter().chain(direct).take(MAX_TRIALS);
        self.end_round(now, peer);
        let mut trials = SmallVec::new();
        for path in paths {
            let id = self.random.u64(..);
            let sent = now;
            trials.push(Trial { id, path, sent });
            let payload = Probe { id }.encode();
            self.send_frame(peer, FrameType::Probe, &payload, &[path]);
        }
        if let Some(round) = self.trials.rounds.get_mut(&peer) {
            round.trials = trials;
            round.current = None;
            round.best = None;
            round.next = now + round.pause;
            round.pause = (round.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Begins trials for a peer that a relay has begun to reach, and ends them for one that is
    /// reached directly.
    pub(super) fn watch_trials(&mut self, now: Mono, peer: PeerIx) {
        let current = self.paths.get(&peer).and_then(|entry| entry.current);
        let Some(current) = current else { return };
        if !current.is_relayed() {
            if let Some(round) = self.trials.rounds.get_mut(&peer) {
                round.direct_since.get_or_insert(now);
                round.trials.clear();
            }
            return;
        }
        let fresh = || Round {
            trials: SmallVec::new(),
            pause: FIRST_PAUSE,
            next: now,
            current: None,
            best: None,
            winner: None,
            direct_since: None,
        };
        let round = self.trials.rounds.entry(peer).or_insert_with(fresh);
        let Some(since) = round.direct_since.take() else {
            return;
        };
        if now.since(since) >= LASTED {
            round.pause = FIRST_PAUSE;
        }
        round.next = now + round.pause;
    }

    /// Asks for rounds that are due: the control loop tells the peer, and both try at once.
    pub(super) fn start_trials(&mut self, now: Mono) {
        let mut due: SmallVec<[PeerIx; 8]> = self
            .trials
            .rounds
            .iter()
            .filter(|(_, round)| round.direct_since.is_none() && round.next <= now)
            .map(|(peer, _)| *peer)
            .collect();
        due.sort_unstable();
        for peer in due {
            let is_relayed = self
                .paths
                .get(&peer)
                .and_then(|entry| entry.current)
                .is_some_and(|current| current.is_relayed());
            if !is_relayed {
                self.trials.forget(peer);
                continue;
            }
            if let Some(round) = self.trials.rounds.get_mut(&peer) {
                round.next = now + round.pause;
            }
            self.outputs.push_back(Output::Event(Event::TryPaths(peer)));
            self.try_paths(now, peer, &[]);
        }
    }

    /// An echo arrived. Returns whether its probe tried another path than the one in use.
    pub(super) fn take_trial_echo(&mut self, now: Mono, peer: PeerIx, id: u64) -> bool {
        let Some(round) = self.trials.rounds.get_mut(&peer) else {
            return false;
        };
        let Some(at) = round.trials.iter().position(|trial| trial.id == id) else {
            return false;
        };
        let Trial { path, sent, .. } = round.trials.swap_remove(at);
        let rtt = now.since(sent);
        if let Some(way) = path.way() {
            let measured = Event::Measured(way, rtt);
            self.outputs.push_back(Output::Event(measured));
        }
        let in_use = self.paths.get(&peer).and_then(|entry| entry.current);
        let Some(in_use) = in_use.filter(Path::is_relayed) else {
            return true;
        };
        if path == in_use {
            round.current = Some(rtt);
            return false;
        }
        if path.is_relayed() {
            let is_better = round.best.is_none_or(|(_, best)| rtt < best);
            if is_better {
                round.best = Some((path, rtt));
            }
        } else {
            self.roam(now, peer, path);
            self.tell_direct(peer, path);
        }
        true
    }

    /// Tells a peer that a direct path works, by that path: behind a NAT with a mapping for each
    /// destination this anchor has an address there that it could not name before.
    fn tell_direct(&mut self, peer: PeerIx, path: Path) {
        let id = self.random.u64(..);
        let payload = Probe { id }.encode_moved();
        self.send_frame(peer, FrameType::Probe, &payload, &[path]);
    }

    /// Judges the round before the next one: what has not answered by now does not.
    fn end_round(&mut self, now: Mono, peer: PeerIx) {
        let Some(round) = self.trials.rounds.get_mut(&peer) else {
            return;
        };
        let relayed = |rtt| Measured {
            is_direct: false,
            rtt,
        };
        let best = round
            .best
            .filter(|(_, rtt)| prefer(round.current.map(relayed), relayed(*rtt)));
        let Some((path, _)) = best else {
            round.winner = None;
            return;
        };
        let before = round.winner.filter(|(winner, _)| *winner == path);
        let won = before.map_or(1, |(_, won)| won + 1);
        round.winner = Some((path, won));
        if won >= ROUNDS_WON {
            round.winner = None;
            self.roam(now, peer, path);
        }
    }

    /// Notes by which path a frame came. An echo by another path than the one in use is judged by
    /// what it answers. While a relay is in use, probes by another path may be the peer's trials,
    /// and say nothing of what is used.
    pub(super) fn heard_frame(&mut self, now: Mono, peer: PeerIx, from: Path, kind: FrameType) {
        let Some(paths) = self.paths.get(&peer) else {
            return;
        };
        let is_beside = paths.current != Some(from);
        let is_relayed = paths.current.as_ref().is_some_and(Path::is_relayed);
        match kind {
            FrameType::Echo if is_beside => {}
            FrameType::Probe if is_beside && is_relayed => {
                if !from.is_relayed() && !paths.is_live(now, ROAM_AFTER) {
                    self.try_heard(now, peer, from);
                }
            }
            FrameType::Data | FrameType::Keepalive | FrameType::Probe | FrameType::Echo => {
                self.heard_by(now, peer, from);
            }
        }
    }

    /// Follows a peer to a new path when the one in use has been silent. From a relay to a direct
    /// path only after that was tried: the peer's trials come by it, which prove one direction.
    pub(super) fn heard_by(&mut self, now: Mono, peer: PeerIx, from: Path) {
        let Some(paths) = self.paths.get_mut(&peer) else {
            return;
        };
        if let Some(current) = paths.current.as_mut().filter(|current| **current == from) {
            current.follow_local(&from);
            paths.note_heard(now);
            return;
        }
        if paths.is_live(now, ROAM_AFTER) {
            paths.other = Some(from);
            return;
        }
        let is_relayed = paths.current.as_ref().is_some_and(Path::is_relayed);
        if is_relayed && !from.is_relayed() {
            self.try_heard(now, peer, from);
        } else {
            self.roam(now, peer, from);
        }
    }

    /// Tries a path by which a peer was heard that a silent relay is to reach.
    pub(super) fn try_heard(&mut self, now: Mono, peer: PeerIx, path: Path) {
        self.watch_trials(now, peer);
        let Some(round) = self.trials.rounds.get_mut(&peer) else {
            return;
        };
        let before = round.trials.iter().position(|trial| trial.path == path);
        if let Some(at) = before {
            if now.since(round.trials[at].sent) < TRY_AGAIN {
                return;
            }
            round.trials.remove(at);
        }
        if round.trials.len() >= MAX_TRIALS {
            round.trials.remove(0);
        }
        let id = self.random.u64(..);
        let sent = now;
        round.trials.push(Trial { id, path, sent });
        let payload = Probe { id }.encode();
        self.send_frame(peer, FrameType::Probe, &payload, &[path]);
    }

    /// Seals a control frame once for each path.
    pub(super) fn send_frame(
        &mut self,
        peer: PeerIx,
        kind: FrameType,
        payload: &[u8],
        paths: &[Path],
    ) {
        for &path in paths {
            let Ok((mut sealing, path)) = self.sealing_by(peer, path) else {
                continue;
            };
            let room = payload.len() + sealing.overhead_bytes();
            let mut frame = SmallVec::<[u8; 64]>::from_elem(0, room);
            let Some((bytes, _)) = sealing.seal(kind, Flags::NONE, payload, &mut frame) else {
                return;
            };
            frame.truncate(bytes);
            self.counters.frames_sent += 1;
            self.outputs.push_back(Output::Datagram { path, frame });
        }
    }
}
