//! The legs of all leases, as relay and as end. Two look-ups in a small table and two tags of 16
//! bytes per datagram carried; nothing is copied or allocated.

use conflux_proto::relay::Outer;

use super::leg::{Checked, Leg, LegSealer, Role, State};
use super::limit::Limit;
use crate::ids::{PeerIx, Relayed};
use crate::table::{Map, map};
use crate::time::Mono;

/// Legs known at once, 2 KiB each; the control loop grants and asks for fewer.
const MAX_LEGS: usize = 16_384;

/// Why a datagram with an outer header went no further. No state has changed then, except that
/// what is over the limit counts as seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotCarried {
    /// No outer header, or not one that fits the datagram.
    #[error("malformed outer header")]
    Malformed,
    /// No lease has this index.
    #[error("unknown lease")]
    Unknown,
    /// The counter was seen before or lies behind the window.
    #[error("replayed outer header")]
    Replayed,
    /// The tag does not fit.
    #[error("outer header does not authenticate")]
    Forged,
    /// More than this anchor is allowed to carry.
    #[error("over the relay limit")]
    OverLimit,
}

/// What a datagram with an outer header was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed {
    /// The datagram behind the header is for this anchor.
    Inside {
        /// The way it came by.
        by: Relayed,
    },
    /// The header has been written anew: send the whole on.
    Onward {
        /// Who sent it here.
        from: PeerIx,
        /// To whom.
        to: PeerIx,
    },
}

/// The legs.
pub struct Links {
    legs: Map<u32, Box<State>>,
    /// As an end: which leg is used towards a far one.
    ways: Map<Relayed, u32>,
    limit: Option<Limit>,
    next_end: Option<Mono>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Links({} legs)", self.legs.len())
    }
}

impl Links {
    /// Returns a table without legs; `seed` seeds its hashing.
    pub fn new(seed: u64) -> Self {
        Self {
            legs: map(seed),
            ways: map(seed ^ 1),
            limit: None,
            next_end: None,
        }
    }

    /// Sets how many bytes per second this anchor carries for others; none for no limit.
    pub fn set_limit(&mut self, now: Mono, bytes_per_second: Option<u64>) {
        self.limit = bytes_per_second.map(|rate| Limit::new(now, rate));
    }

    /// Takes a leg; an earlier one of the same peer under the same index goes. False when another
    /// peer's leg has the index, or the table is full: nothing has changed, and the lease is of no
    /// use here. A later leg of the same way takes over from an earlier one under another index,
    /// which still receives until it ends.
    pub fn install(&mut self, leg: &Leg) -> bool {
        let known = self.legs.get(&leg.ours).map(|known| known.peer);
        if known.is_some_and(|peer| peer != leg.peer) || self.legs.len() >= MAX_LEGS {
            return false;
        }
        self.legs.insert(leg.ours, Box::new(State::new(leg)));
        if let Role::End { far } = leg.role {
            let relay = leg.peer;
            self.ways.insert(Relayed { relay, far }, leg.ours);
        }
        self.next_end = Some(self.next_end.map_or(leg.ends, |at| at.min(leg.ends)));
        true
    }

    /// Makes a leg end at another time.
    pub fn extend(&mut self, ours: u32, ends: Mono) {
        if let Some(leg) = self.legs.get_mut(&ours) {
            leg.ends = ends;
        }
        self.note_next_end();
    }

    /// Forgets a leg.
    pub fn remove(&mut self, ours: u32) {
        self.keep(|index, _| index != ours);
    }

    /// Forgets all legs with a peer.
    pub fn remove_peer(&mut self, peer: PeerIx) {
        self.keep(|_, leg| leg.peer != peer);
    }

    /// Forgets all legs.
    pub fn clear(&mut self) {
        self.keep(|_, _| false);
    }

    /// Forgets all legs that have ended by `now`.
    pub fn handle_timeout(&mut self, now: Mono) {
        self.keep(|_, leg| leg.ends > now);
    }

    /// Returns when [`Self::handle_timeout`] wants to be called.
    pub const fn poll_timeout(&self) -> Option<Mono> {
        self.next_end
    }

    /// Returns what puts outer headers in front of datagrams for a way; none without a lease.
    pub fn sealer(&mut self, way: Relayed) -> Option<LegSealer<'_>> {
        let ours = self.ways.get(&way)?;
        self.legs.get_mut(ours).map(|leg| LegSealer::new(leg))
    }

    /// Says whether there is a lease for a way.
    pub fn has(&self, way: Relayed) -> bool {
        self.ways.contains_key(&way)
    }

    /// Checks a datagram with an outer header, and writes the next one where it is to be sent on.
    ///
    /// # Errors
    /// [`NotCarried`].
    pub fn open(&mut self, now: Mono, datagram: &mut [u8]) -> Result<Passed, NotCarried> {
        let header = Outer::decode(datagram).map_err(|_| NotCarried::Malformed)?;
        let leg = self
            .legs
            .get_mut(&header.receiver)
            .ok_or(NotCarried::Unknown)?;
        match leg.check(&header, datagram) {
            Checked::Authentic => {}
            Checked::Replayed => return Err(NotCarried::Replayed),
            Checked::Forged => return Err(NotCarried::Forged),
        }
        let peer = leg.peer;
        let onward = match leg.role {
            Role::End { far } => {
                let relay = peer;
                return Ok(Passed::Inside {
                    by: Relayed { relay, far },
                });
            }
            Role::Relay { to } => to,
        };
        let next = self.legs.get_mut(&onward).ok_or(NotCarried::Unknown)?;
        if let Some(limit) = &mut self.limit
            && !limit.take(now, datagram.len())
        {
            return Err(NotCarried::OverLimit);
        }
        if !next.seal(datagram) {
            return Err(NotCarried::Malformed);
        }
        Ok(Passed::Onward {
            from: peer,
            to: next.peer,
        })
    }

    fn keep(&mut self, mut wanted: impl FnMut(u32, &State) -> bool) {
        self.legs.retain(|&index, leg| wanted(index, leg));
        let legs = &self.legs;
        self.ways.retain(|_, index| legs.contains_key(index));
        self.note_next_end();
    }

    fn note_next_end(&mut self) {
        self.next_end = self.legs.values().map(|leg| leg.ends).min();
    }
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
