//! A dial under way: which of the candidates its packets go to, and which are left out because
//! somebody else lives there.
//!
//! Private addresses are anybody's: what a peer calls `192.168.1.2` at its place is another machine
//! here, perhaps another anchor, and being near it answers before the peer itself can. That must
//! not cost the dial its other candidates.

use std::net::SocketAddr;
use std::time::Duration;

use smallvec::SmallVec;

use super::{MAX_CANDIDATES, Paths, Way, Ways};
use crate::ids::{PeerIx, Relayed};
use crate::time::Mono;

/// How long the candidate that answered first is the only one sent to, since it was last heard
/// from: the first retransmission of a QUIC handshake falls after about one second, and must
/// reach the others again when the answer came from somebody who merely forged a source.
pub const ANSWER_HOLDS: Duration = Duration::from_secs(1);

/// How long an address at which another has proven to live is left out of a peer's dials while
/// there are others: a laptop that comes home finds the peer there after that at the latest.
pub const SHUN_FOR: Duration = Duration::from_secs(60);

pub(super) struct Dial {
    pub(super) remotes: SmallVec<[SocketAddr; MAX_CANDIDATES]>,
    pub(super) heard: Option<(Way, Mono)>,
}

impl Dial {
    pub(super) fn hear(&mut self, now: Mono, way: Way) {
        match self.heard {
            Some((held, at)) if held.remote != way.remote && now.since(at) < ANSWER_HOLDS => {}
            Some(_) | None => self.heard = Some((way, now)),
        }
    }

    pub(super) fn ways(&self, now: Mono) -> Ways {
        match self.heard {
            Some((way, at)) if now.since(at) < ANSWER_HOLDS => SmallVec::from_iter([way]),
            Some(_) | None => self
                .remotes
                .iter()
                .map(|remote| Way {
                    remote: *remote,
                    local: None,
                })
                .collect(),
        }
    }
}

/// Addresses of a peer's at which another lives, and since when that is known; the oldest goes when
/// there is no room.
#[derive(Default)]
pub(super) struct Shunned(SmallVec<[(SocketAddr, Mono); 2]>);

impl Shunned {
    pub(super) fn contains(&self, now: Mono, remote: &SocketAddr) -> bool {
        let is_shunned =
            |(at, since): &(SocketAddr, Mono)| at == remote && now.since(*since) < SHUN_FOR;
        self.0.iter().any(is_shunned)
    }

    fn add(&mut self, now: Mono, remote: SocketAddr) {
        self.0
            .retain(|(at, since)| *at != remote && now.since(*since) < SHUN_FOR);
        if self.0.len() >= MAX_CANDIDATES {
            self.0.remove(0);
        }
        self.0.push((remote, now));
    }

    /// Leaves these out of `remotes`, unless nothing remained.
    pub(super) fn leave_out(
        &self,
        now: Mono,
        remotes: &mut SmallVec<[SocketAddr; MAX_CANDIDATES]>,
    ) {
        let is_fine = |at: &SocketAddr| !self.contains(now, at);
        if remotes.iter().any(is_fine) {
            remotes.retain(|at| is_fine(at));
        }
    }
}

impl Paths {
    /// Whoever answered the dial of `peer` has proven to be somebody else, which ends that dial. The
    /// address is left out of the next ones for [`SHUN_FOR`], while there are others. Says whether
    /// there are: dialling again at once is then worth it. Relays answer for the peer they were
    /// asked for, so theirs are kept.
    pub fn shun_answerer(&mut self, now: Mono, peer: PeerIx) -> bool {
        let Some(entry) = self.peers.get_mut(&peer) else {
            return false;
        };
        let heard = entry.dial.as_ref().and_then(|dial| dial.heard);
        let remote = heard.map(|(way, _)| way.remote);
        let Some(remote) = remote.filter(|at| Relayed::from_address(at).is_none()) else {
            return false;
        };
        entry.shunned.add(now, remote);
        let mut candidates = entry.candidates.iter();
        let has_others = candidates.any(|at| !entry.shunned.contains(now, at));
        self.end_dial(peer);
        has_others
    }
}
