//! For whom this anchor carries: it gets the asks of both ends, and says what to tell whom. Both
//! must be its connected peers with direct ways, which the owner knows; keys are the owner's too.

use std::collections::BTreeMap;
use std::time::Duration;

use conflux_proto::control::RelayRefusal;

use super::LEASE;
use crate::ids::PeerIx;
use crate::time::Mono;

/// Leases granted at once: with both legs 4 MiB.
const MAX_PAIRS: usize = 1024;

/// Of these, one peer's: no member can keep the others out.
const MAX_PAIRS_EACH: usize = 128;

/// How long an ask waits for the other end's.
const ASK_STANDS: Duration = Duration::from_secs(10);

/// One end of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Side {
    /// Who.
    pub peer: PeerIx,
    /// The index at which it receives.
    pub theirs: u32,
    /// The index at which this anchor receives from it.
    pub ours: u32,
}

/// A lease that was granted or made longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Both ends; the one that asked first.
    pub sides: [Side; 2],
    /// When it ends.
    pub ends: Mono,
}

impl Granted {
    /// Returns the indices at which this anchor receives.
    pub fn indices(&self) -> [u32; 2] {
        self.sides.map(|side| side.ours)
    }
}

/// What follows from an ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Refuse it.
    Refuse(RelayRefusal),
    /// Tell the other end that it is asked for; it may have been told before.
    Tell,
    /// Make two legs with new keys, drop those with these indices of ours, and tell both.
    Grant(Granted, Vec<u32>),
    /// The legs last longer: tell both.
    Extend(Granted),
}

/// Who has asked, and what was granted.
#[derive(Debug, Default)]
pub struct Desk {
    is_closed: bool,
    asks: BTreeMap<(PeerIx, PeerIx), Ask>,
    pairs: BTreeMap<(PeerIx, PeerIx), Granted>,
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    index: u32,
    at: Mono,
}

impl Desk {
    /// Carries for others, or for nobody from now on: returns the leases that end by that.
    pub fn set_open(&mut self, is_open: bool) -> Vec<Granted> {
        self.is_closed = !is_open;
        if is_open {
            return Vec::new();
        }
        self.asks.clear();
        std::mem::take(&mut self.pairs).into_values().collect()
    }

    /// Takes an ask of `from` for datagrams to and from `to`, to be received at `index`.
    /// `is_reached` says whether both have direct ways to this anchor; `fresh` yields indices.
    pub fn handle_ask(
        &mut self,
        now: Mono,
        (from, to): (PeerIx, PeerIx),
        index: u32,
        is_reached: bool,
        mut fresh: impl FnMut() -> u32,
    ) -> Answer {
        self.expire(now);
        if self.is_closed {
            return Answer::Refuse(RelayRefusal::Off);
        }
        if !is_reached || from == to {
            return Answer::Refuse(RelayRefusal::NotReached);
        }
        let theirs = match self.pairs.get_mut(&pair(from, to)) {
            Some(granted) => {
                let [one, two] = granted.sides;
                let (own, other) = if one.peer == from {
                    (one, two)
                } else {
                    (two, one)
                };
                if own.theirs == index {
                    granted.ends = now + LEASE;
                    return Answer::Extend(*granted);
                }
                Some(other.theirs)
            }
            None => self.asks.remove(&(to, from)).map(|ask| ask.index),
        };
        let is_known = self.pairs.contains_key(&pair(from, to));
        if !is_known && (self.is_full_for(from) || self.is_full_for(to)) {
            return Answer::Refuse(RelayRefusal::Full);
        }
        let Some(theirs) = theirs else {
            self.asks.insert((from, to), Ask { index, at: now });
            return Answer::Tell;
        };
        self.asks.remove(&(from, to));
        let side = |peer, theirs, ours| Side { peer, theirs, ours };
        let granted = Granted {
            sides: [side(from, index, fresh()), side(to, theirs, fresh())],
            ends: now + LEASE,
        };
        let replaced = self.pairs.insert(pair(from, to), granted);
        Answer::Grant(
            granted,
            replaced.iter().flat_map(Granted::indices).collect(),
        )
    }

    /// A peer has no direct way to this anchor any more: returns the leases that end by that.
    pub fn forget(&mut self, peer: PeerIx) -> Vec<Granted> {
        self.asks
            .retain(|(from, to), _| *from != peer && *to != peer);
        let mut gone = Vec::new();
        self.pairs.retain(|(one, two), granted| {
            let stays = *one != peer && *two != peer;
            if !stays {
                gone.push(*granted);
            }
            stays
        });
        gone
    }

    /// Returns how many leases stand.
    pub fn pairs(&self, now: Mono) -> usize {
        let live = |granted: &&Granted| granted.ends > now;
        self.pairs.values().filter(live).count()
    }

    fn expire(&mut self, now: Mono) {
        self.asks.retain(|_, ask| now.since(ask.at) < ASK_STANDS);
        self.pairs.retain(|_, granted| granted.ends > now);
    }

    fn is_full_for(&self, peer: PeerIx) -> bool {
        let has = |(one, two): &(PeerIx, PeerIx)| *one == peer || *two == peer;
        let each = self.pairs.keys().filter(|key| has(key)).count()
            + self.asks.keys().filter(|key| has(key)).count();
        each >= MAX_PAIRS_EACH || self.pairs.len() + self.asks.len() >= MAX_PAIRS
    }
}

fn pair(one: PeerIx, two: PeerIx) -> (PeerIx, PeerIx) {
    (one.min(two), one.max(two))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerIx = PeerIx(1);
    const B: PeerIx = PeerIx(2);

    #[test]
    fn a_lease_needs_the_asks_of_both_ends() {
        let mut desk = Desk::default();
        let mut next = 100;

        assert_eq!(ask(&mut desk, 0, (A, B), 7, &mut next), Answer::Tell);
        assert_eq!(ask(&mut desk, 0, (A, B), 7, &mut next), Answer::Tell);
        let Answer::Grant(granted, replaced) = ask(&mut desk, 1, (B, A), 9, &mut next) else {
            panic!("both have asked");
        };

        let [b, a] = granted.sides;
        assert_eq!((b.peer, b.theirs, a.peer, a.theirs), (B, 9, A, 7));
        assert_ne!(a.ours, b.ours);
        assert_eq!(granted.ends, at(1) + LEASE);
        assert!(replaced.is_empty());
    }

    #[test]
    fn asking_again_makes_a_lease_longer_and_another_index_makes_it_anew() {
        let mut desk = Desk::default();
        let mut next = 100;
        let old = grant(&mut desk, &mut next);

        let longer = ask(&mut desk, 60, (A, B), 7, &mut next);
        let Answer::Grant(anew, replaced) = ask(&mut desk, 61, (A, B), 8, &mut next) else {
            panic!("an end that restarted asks with another index");
        };

        let ends = at(60) + LEASE;
        assert_eq!(longer, Answer::Extend(Granted { ends, ..old }));
        assert_eq!(anew.sides[0].theirs, 8);
        assert_eq!(anew.sides[1].theirs, 9);
        assert_eq!(replaced, old.indices());
        assert_eq!(desk.pairs(at(61)), 1);
    }

    #[test]
    fn a_lease_that_nobody_asks_for_again_ends() {
        let mut desk = Desk::default();
        let mut next = 100;
        grant(&mut desk, &mut next);

        assert_eq!(desk.pairs(at(119)), 1);
        assert_eq!(desk.pairs(at(121)), 0);
        assert_eq!(ask(&mut desk, 122, (A, B), 7, &mut next), Answer::Tell);
    }

    #[test]
    fn nobody_is_carried_for_to_itself_to_strangers_or_by_a_closed_desk() {
        let mut desk = Desk::default();

        let to_itself = desk.handle_ask(at(0), (A, A), 7, true, || 1);
        let to_stranger = desk.handle_ask(at(0), (A, B), 7, false, || 1);
        desk.set_open(false);
        let closed = desk.handle_ask(at(0), (A, B), 7, true, || 1);

        assert_eq!(to_itself, Answer::Refuse(RelayRefusal::NotReached));
        assert_eq!(to_stranger, Answer::Refuse(RelayRefusal::NotReached));
        assert_eq!(closed, Answer::Refuse(RelayRefusal::Off));
    }

    #[test]
    fn a_peer_that_goes_takes_its_leases_along_and_so_does_closing() {
        let mut desk = Desk::default();
        let mut next = 100;
        let granted = grant(&mut desk, &mut next);

        assert_eq!(desk.forget(B), [granted]);
        assert_eq!(desk.pairs(at(2)), 0);
        let granted = grant(&mut desk, &mut next);
        assert_eq!(desk.set_open(false), [granted]);
    }

    #[test]
    fn one_member_cannot_fill_the_desk() {
        let mut desk = Desk::default();
        let mut next = 100;

        let answers: Vec<Answer> = (0..1000)
            .map(|far| ask(&mut desk, 0, (A, PeerIx(10 + far)), far, &mut next))
            .collect();
        let others = ask(&mut desk, 0, (B, PeerIx(5)), 1, &mut next);

        let told = answers.iter().filter(|answer| **answer == Answer::Tell);
        assert_eq!(told.count(), MAX_PAIRS_EACH);
        assert_eq!(answers[999], Answer::Refuse(RelayRefusal::Full));
        assert_eq!(others, Answer::Tell);
    }

    fn grant(desk: &mut Desk, next: &mut u32) -> Granted {
        ask(desk, 0, (B, A), 9, next);
        let Answer::Grant(granted, _) = ask(desk, 0, (A, B), 7, next) else {
            panic!("both have asked");
        };
        granted
    }

    fn ask(
        desk: &mut Desk,
        seconds: u64,
        ends: (PeerIx, PeerIx),
        index: u32,
        next: &mut u32,
    ) -> Answer {
        desk.handle_ask(at(seconds), ends, index, true, || {
            *next += 1;
            *next
        })
    }

    fn at(seconds: u64) -> Mono {
        Mono::default() + Duration::from_secs(seconds)
    }
}
