//! A dial under way: which of the candidates its packets go to.

use std::net::SocketAddr;
use std::time::Duration;

use smallvec::SmallVec;

use super::{MAX_CANDIDATES, Way, Ways};
use crate::time::Mono;

/// How long the candidate that answered first is the only one sent to, since it was last heard
/// from: the first retransmission of a QUIC handshake falls after about one second, and must
/// reach the others again when the answer came from somebody who merely forged a source.
pub const ANSWER_HOLDS: Duration = Duration::from_secs(1);

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
