//! Paths that change: this machine's own network did, so that which paths still work has to be found
//! out anew, at once and of every peer, before anybody's two seconds are over; or a peer's did; or
//! the one in use no longer answers while another does.

use std::time::Duration;

use conflux_proto::frame::{FrameType, Probe};

use super::{Event, Output, Path, Paths, Plane, ROAM_AFTER};
use crate::ids::PeerIx;
use crate::time::Mono;

/// How long probes by the path in use may go unanswered while another path answers. A count asks
/// every path 600 ms after it first asked the one in use.
const UNANSWERED_FOR: Duration = Duration::from_millis(500);

/// Probes by the path in use that it has not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// When the first of them left.
    since: Mono,
    /// When the first of them left by all other paths too.
    widely: Option<Mono>,
}

impl Plane {
    /// Asks every peer over every known path, and follows the first that answers, whatever was in
    /// use and however lately it was heard. Goes on until each has answered or a deadline's time
    /// is over; no flow moves by that. Costs one frame per peer and path every 200 ms.
    pub fn handle_moved(&mut self, now: Mono) {
        let mut peers: Vec<PeerIx> = Vec::with_capacity(self.paths.len());
        for (peer, paths) in &mut self.paths {
            paths.doubt();
            if self.sessions.can_send(*peer) {
                peers.push(*peer);
            }
        }
        peers.sort_unstable();
        for peer in peers {
            // What the path carries may have changed with it, though its far end has not.
            self.follow_path(now, peer);
            self.liveness.probe_now(now, peer);
        }
    }

    /// A peer says that its network has changed, in a probe that came by `from`: what was in use
    /// before is not waited for. The same probe by a second path changes nothing, but where a relay
    /// is in use a direct path is tried by which any of them comes.
    pub(super) fn handle_peer_moved(&mut self, now: Mono, peer: PeerIx, from: Path, probe: u64) {
        let Some(paths) = self.paths.get_mut(&peer) else {
            return;
        };
        let is_first = paths.moved_by.replace(probe) != Some(probe);
        if paths.current == Some(from) {
            return;
        }
        let is_relayed = paths.current.as_ref().is_some_and(Path::is_relayed);
        if is_relayed && !from.is_relayed() {
            self.try_heard(now, peer, from);
        } else if is_first {
            self.roam(now, peer, from);
        }
    }

    /// Uses another path to a peer from now on, by which it was just heard.
    pub(super) fn roam(&mut self, now: Mono, peer: PeerIx, to: Path) {
        let Some(paths) = self.paths.get_mut(&peer) else {
            return;
        };
        paths.other = paths.current.replace(to);
        paths.note_heard(now);
        paths.asked = None;
        paths.tells_move = None;
        let event = Event::Roamed(peer, to);
        self.outputs.push_back(Output::Event(event));
        self.follow_path(now, peer);
        self.watch_trials(now, peer);
    }

    /// Sends a probe of liveness's. Where this machine's network changed, by every path that it
    /// did; where only the path in use did, by that one alone, so that no other copy is first.
    pub(super) fn send_probe(&mut self, now: Mono, peer: PeerIx, probe: Probe, all_paths: bool) {
        let can_send = self.sessions.can_send(peer);
        let Some(entry) = self.paths.get_mut(&peer) else {
            return;
        };
        if can_send {
            let fresh = || Asked {
                since: now,
                widely: None,
            };
            let asked = entry.asked.get_or_insert_with(fresh);
            if all_paths && asked.widely.is_none() {
                asked.widely = Some(now);
            }
        }
        let paths = entry.to_probe(all_paths);
        let telling = if entry.is_doubtful {
            paths.len()
        } else {
            usize::from(entry.tells_move.is_some()).min(paths.len())
        };
        let (told, rest) = paths.split_at(telling);
        self.send_frame(peer, FrameType::Probe, &probe.encode_moved(), told);
        self.send_frame(peer, FrameType::Probe, &probe.encode(), rest);
    }

    /// An echo came by `from`, of a probe that did not try another path. By the path in use it
    /// proves that one. By another it proves what was sent, so that nobody asks any more; but the
    /// path in use may be dead all the same, and what is heard by it says nothing of the way there.
    /// It is left if it was silent, or if it has not answered for long what the other has; and the
    /// peer, which may hear nothing else from here, is told to follow. Else it is asked on until it
    /// answers or is left. `asked` says when liveness sent the probe, `None` for others and copies.
    pub(super) fn answered_by(&mut self, now: Mono, peer: PeerIx, from: Path, asked: Option<Mono>) {
        let patience = UNANSWERED_FOR.max(self.costs.rtt(peer).unwrap_or_default() * 2);
        let Some(paths) = self.paths.get_mut(&peer) else {
            return;
        };
        let must_ask = if paths.current == Some(from) {
            paths.asked = None;
            let is_told = |since: &mut Mono| asked.is_some_and(|at| at >= *since);
            paths.tells_move.take_if(is_told);
            paths.tells_move.is_some()
        } else if paths.is_live(now, ROAM_AFTER) && !paths.is_unanswered(now, patience, asked) {
            paths.other = Some(from);
            paths.asked.is_some()
        } else {
            self.roam(now, peer, from);
            if let Some(paths) = self.paths.get_mut(&peer) {
                paths.tells_move = Some(now);
            }
            true
        };
        // The probes of a failed peer are its readmission's alone.
        if must_ask && !self.liveness.is_failed(peer) {
            self.liveness.probe_now(now, peer);
        }
    }
}

impl Paths {
    /// Says whether the path in use has not answered for `patience`, while another did a probe that
    /// left at `asked`. Of probes by the path in use alone no echo comes by another, unless somebody
    /// on the way brings it there.
    fn is_unanswered(&self, now: Mono, patience: Duration, asked: Option<Mono>) -> bool {
        self.asked.is_some_and(|unanswered| {
            let is_wide = unanswered
                .widely
                .zip(asked)
                .is_some_and(|(widely, at)| at >= widely);
            is_wide && now.since(unanswered.since) >= patience
        })
    }
}
