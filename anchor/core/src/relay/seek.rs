//! Whom this anchor asks to carry for it, when, and which leases it holds. The cost of a lease is
//! this anchor's round trip to the relay and the relay's to the other end, as it says, until a probe
//! through it has told the truth; that also ranks the relay when leases are asked for again.

use std::collections::BTreeMap;
use std::time::Duration;

use conflux_proto::control::RelayRefusal;

use super::RENEW_AFTER;
use crate::ids::{PeerIx, Relayed};
use crate::time::Mono;

/// Leases held towards one far end: the one in use, and another for when its relay goes.
const HELD_EACH: usize = 2;

/// Leases and asks kept at once, those that others asked for included.
const MAX_HELD: usize = 1024;

/// How long an ask keeps others from being asked: the relay may have to ask the far end first.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How long a relay that does not carry is not asked again, and one that has not answered: the far
/// end may not have heard of this anchor yet, or the relay be of a release that knows none. A grant
/// that comes within is taken.
const OFF_FOR: Duration = Duration::from_secs(600);
const NOT_REACHED_FOR: Duration = Duration::from_secs(10);
const FULL_FOR: Duration = Duration::from_secs(60);
const SILENT_FOR: Duration = Duration::from_secs(10);

/// How long what a probe took counts after the lease: longer than the longest pause between probes,
/// and not so long that a relay is passed over for what was busy an hour ago.
const MEASURED_FOR: Duration = Duration::from_secs(600);

/// How often a far end is looked at that wants another lease, and one that has all it wants.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const CONTENT_FOR: Duration = Duration::from_secs(15);

/// A peer with a direct way that may be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Who.
    pub relay: PeerIx,
    /// How far it is.
    pub rtt: Duration,
}

/// An ask to be sent to a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Whom to ask, and for whom.
    pub way: Relayed,
    /// Where this anchor will receive.
    pub index: u32,
}

/// Far ends that are sought, asks under way, leases held.
#[derive(Debug, Default)]
pub struct Seeker {
    /// When each is looked at next.
    sought: BTreeMap<PeerIx, Mono>,
    legs: BTreeMap<(PeerIx, PeerIx), Leg>,
    /// What the last probe to a far end took by a relay, and when it was back, of those that had a
    /// lease then; at most [`MAX_HELD`].
    measured: BTreeMap<(PeerIx, PeerIx), (Duration, Mono)>,
}

#[derive(Clone, Copy, Debug)]
enum Leg {
    Asked {
        index: u32,
        at: Mono,
    },
    Held {
        index: u32,
        renew_at: Mono,
        ends: Mono,
        cost: Duration,
    },
    Refused {
        until: Mono,
    },
}

impl Seeker {
    /// Relays are to be asked for `far` from `at` on, until [`Self::stop`].
    pub fn seek(&mut self, at: Mono, far: PeerIx) {
        let look = self.sought.entry(far).or_insert(at);
        *look = (*look).min(at);
    }

    /// No relay is needed any more: leases held end when they end.
    pub fn stop(&mut self, far: PeerIx) {
        self.sought.remove(&far);
    }

    /// Returns the far ends for which relays are asked.
    pub fn sought(&self) -> Vec<PeerIx> {
        self.sought.keys().copied().collect()
    }

    /// Returns what to ask for now: `candidates` are the peers with direct ways; `fresh` yields
    /// indices. Those come first that promise the shortest round trip: of a relay that has carried
    /// it is known, and of another it is no shorter than the way to it.
    pub fn poll_asks(
        &mut self,
        now: Mono,
        candidates: &[Candidate],
        mut fresh: impl FnMut() -> u32,
    ) -> Vec<Want> {
        self.expire(now);
        let mut asks = Vec::new();
        let due: Vec<PeerIx> = self
            .sought
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(far, _)| *far)
            .collect();
        for far in due {
            self.renew(now, far, &mut asks);
            let mut missing = HELD_EACH.saturating_sub(self.open_legs(now, far));
            let pause = if missing == 0 {
                CONTENT_FOR
            } else {
                LOOK_EVERY
            };
            self.sought.insert(far, now + pause);
            for relay in self.rank(far, candidates) {
                if missing == 0 || self.legs.len() >= MAX_HELD {
                    break;
                }
                if relay == far || self.legs.contains_key(&(far, relay)) {
                    continue;
                }
                missing -= 1;
                let index = fresh();
                let asked = Leg::Asked { index, at: now };
                self.legs.insert((far, relay), asked);
                asks.push(Want {
                    way: Relayed { relay, far },
                    index,
                });
            }
        }
        asks
    }

    /// A relay says that `way.far` asks for us: returns our ask, if there is room for another.
    pub fn handle_wanted(
        &mut self,
        now: Mono,
        way: Relayed,
        mut fresh: impl FnMut() -> u32,
    ) -> Option<Want> {
        self.expire(now);
        let index = match self.legs.get(&(way.far, way.relay)) {
            Some(Leg::Asked { index, .. } | Leg::Held { index, .. }) => *index,
            Some(Leg::Refused { .. }) | None => {
                if self.legs.len() >= MAX_HELD {
                    return None;
                }
                let index = fresh();
                let asked = Leg::Asked { index, at: now };
                self.legs.insert((way.far, way.relay), asked);
                index
            }
        };
        Some(Want { way, index })
    }

    /// A relay grants or prolongs. False when nothing of that kind was asked for.
    pub fn handle_grant(
        &mut self,
        now: Mono,
        way: Relayed,
        granted: u32,
        lasts: Duration,
        cost: Duration,
    ) -> bool {
        let Some(leg) = self.legs.get_mut(&(way.far, way.relay)) else {
            return false;
        };
        let index = match leg {
            Leg::Asked { index, .. } | Leg::Held { index, .. } => *index,
            Leg::Refused { .. } => return false,
        };
        if index != granted {
            return false;
        }
        *leg = Leg::Held {
            index,
            renew_at: now + RENEW_AFTER.min(lasts / 2),
            ends: now + lasts,
            cost,
        };
        true
    }

    /// A probe went `way` and back in `rtt`: from now on that is its cost, whatever the relay says.
    /// Nothing changes without a lease.
    pub fn handle_measured(&mut self, now: Mono, way: Relayed, rtt: Duration) {
        let key = (way.far, way.relay);
        let is_held = matches!(self.legs.get(&key), Some(Leg::Held { .. }));
        if is_held && (self.measured.len() < MAX_HELD || self.measured.contains_key(&key)) {
            self.measured.insert(key, (rtt, now));
        }
    }

    /// A relay refuses; its lease, if there was one, is over. Another is asked at the next
    /// [`Self::poll_asks`].
    pub fn handle_refused(&mut self, now: Mono, way: Relayed, why: RelayRefusal) {
        let pause = match why {
            RelayRefusal::Off => OFF_FOR,
            RelayRefusal::NotReached => NOT_REACHED_FOR,
            RelayRefusal::Full | RelayRefusal::Other(_) => FULL_FOR,
        };
        if let Some(leg) = self.legs.get_mut(&(way.far, way.relay)) {
            *leg = Leg::Refused { until: now + pause };
        }
        self.look_soon(now, way.far);
    }

    /// The way to a relay is gone, and with it all leases of its.
    pub fn handle_relay_gone(&mut self, now: Mono, relay: PeerIx) {
        let lost: Vec<PeerIx> = self
            .legs
            .keys()
            .filter(|(_, by)| *by == relay)
            .map(|(far, _)| *far)
            .collect();
        self.legs.retain(|(_, by), _| *by != relay);
        self.measured.retain(|(_, by), _| *by != relay);
        for far in lost {
            self.look_soon(now, far);
        }
    }

    /// Returns the relays by which `far` can be reached, the least cost first.
    pub fn ways(&self, far: PeerIx) -> Vec<Relayed> {
        let mut held: Vec<(Duration, PeerIx)> = self
            .of(far)
            .filter_map(|(relay, leg)| match leg {
                Leg::Held { cost, .. } => {
                    let measured = self.measured(far, relay);
                    Some((measured.unwrap_or(*cost), relay))
                }
                Leg::Asked { .. } | Leg::Refused { .. } => None,
            })
            .collect();
        held.sort_unstable();
        let way = |(_, relay)| Relayed { relay, far };
        held.into_iter().map(way).collect()
    }

    /// Returns when [`Self::poll_asks`] may have something to do, or a lease ends.
    pub fn poll_timeout(&self) -> Option<Mono> {
        let ends = self.legs.values().filter_map(|leg| match leg {
            Leg::Held { ends, .. } => Some(*ends),
            Leg::Asked { .. } | Leg::Refused { .. } => None,
        });
        self.sought.values().copied().chain(ends).min()
    }

    /// Returns whom to ask for `far`, in this order.
    fn rank(&self, far: PeerIx, candidates: &[Candidate]) -> Vec<PeerIx> {
        let promise = |candidate: &Candidate| {
            let measured = self.measured(far, candidate.relay);
            (measured.unwrap_or(candidate.rtt), candidate.relay)
        };
        let mut ranked: Vec<(Duration, PeerIx)> = candidates.iter().map(promise).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, relay)| relay).collect()
    }

    fn measured(&self, far: PeerIx, relay: PeerIx) -> Option<Duration> {
        self.measured.get(&(far, relay)).map(|(rtt, _)| *rtt)
    }

    fn renew(&mut self, now: Mono, far: PeerIx, asks: &mut Vec<Want>) {
        let first = (far, PeerIx(0));
        let last = (far, PeerIx(u32::MAX));
        for ((_, relay), leg) in self.legs.range_mut(first..=last) {
            if let Leg::Held {
                index, renew_at, ..
            } = leg
                && *renew_at <= now
            {
                // Again if this one is lost: a lease lasts twice as long as it takes to renew it.
                *renew_at = now + RENEW_AFTER / 4;
                let relay = *relay;
                asks.push(Want {
                    way: Relayed { relay, far },
                    index: *index,
                });
            }
        }
    }

    fn look_soon(&mut self, now: Mono, far: PeerIx) {
        if let Some(look) = self.sought.get_mut(&far) {
            *look = now;
        }
    }

    fn expire(&mut self, now: Mono) {
        self.legs.retain(|_, leg| match leg {
            Leg::Asked { at, .. } => now.since(*at) < SILENT_FOR,
            Leg::Held { ends: until, .. } | Leg::Refused { until } => *until > now,
        });
        let legs = &self.legs;
        self.measured.retain(|key, (_, at)| {
            let is_held = matches!(legs.get(key), Some(Leg::Held { .. }));
            is_held || now.since(*at) < MEASURED_FOR
        });
    }

    fn of(&self, far: PeerIx) -> impl Iterator<Item = (PeerIx, &Leg)> {
        let first = (far, PeerIx(0));
        let last = (far, PeerIx(u32::MAX));
        self.legs
            .range(first..=last)
            .map(|((_, relay), leg)| (*relay, leg))
    }

    /// Counts the leases held and the asks that may still be answered soon.
    fn open_legs(&self, now: Mono, far: PeerIx) -> usize {
        self.of(far)
            .filter(|(_, leg)| match leg {
                Leg::Asked { at, .. } => now.since(*at) < ANSWER_WITHIN,
                Leg::Held { .. } => true,
                Leg::Refused { .. } => false,
            })
            .count()
    }
}

#[cfg(test)]
#[path = "seek_tests.rs"]
mod tests;
