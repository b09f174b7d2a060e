//! Paths that change: this machine's own network did, so that which paths still work has to be found
//! out anew, at once and of every peer, before anybody's two seconds are over; or a peer's did.

use super::{Event, Output, Path, Plane};
use crate::ids::PeerIx;
use crate::time::Mono;

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
        let event = Event::Roamed(peer, to);
        self.outputs.push_back(Output::Event(event));
        self.follow_path(now, peer);
        self.watch_trials(now, peer);
    }
}
