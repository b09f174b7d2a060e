//! How this anchor can be reached, from what others say: the addresses as which they see it, and
//! those at which they dialled it (RFC 5780 in spirit, without its servers). What one peer says
//! counts once, and only for the class that is told to others; nobody is put under an address by it
//! but this anchor.
//!
//! - Nobody sees an address that is not this machine's own: there is no NAT, and the anchor is
//!   public once somebody has dialled it.
//! - Somebody does: there is a NAT. Whoever dialled the anchor at such an address proves that the NAT
//!   lets anybody in (a forwarded port). Else two observers at different addresses tell its kind: the
//!   same mapping for both, or one for each.
//!
//! IPv4 and IPv6 are told apart, and the better of the two counts.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::ids::PeerIx;

/// Observers remembered; more tell nothing new.
const MAX_OBSERVERS: usize = 256;

/// Outside addresses worth telling a peer that is to try them.
const MAX_OUTSIDE: usize = 4;

/// How an anchor can be reached, the better the later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Nobody has said enough.
    Unknown,
    /// Behind a NAT of a kind not known yet.
    Nat,
    /// Behind a NAT with a mapping for each destination.
    NatSymmetric,
    /// Behind a NAT with one mapping for all destinations.
    NatCone,
    /// By anybody.
    Public,
}

/// What was observed.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    all: BTreeMap<PeerIx, Observation>,
}

#[derive(Clone, Copy, Debug)]
struct Observation {
    from: IpAddr,
    address: SocketAddr,
    /// It dialled this anchor there.
    dialled: bool,
}

impl Observations {
    /// A peer at `from` sees this anchor at `address`; `dialled`: it has dialled it there.
    pub fn note(&mut self, peer: PeerIx, from: IpAddr, address: SocketAddr, dialled: bool) {
        if self.all.len() >= MAX_OBSERVERS && !self.all.contains_key(&peer) {
            return;
        }
        let observation = Observation {
            from,
            address,
            dialled,
        };
        self.all.insert(peer, observation);
    }

    /// What a peer said was said over a connection that is gone.
    pub fn forget(&mut self, peer: PeerIx) {
        self.all.remove(&peer);
    }

    /// Returns the class of an anchor whose machine has the addresses `own`, ports included.
    pub fn class(&self, own: &[SocketAddr]) -> Class {
        [true, false]
            .map(|is_v4| self.class_of(own, is_v4))
            .into_iter()
            .max()
            .unwrap_or(Class::Unknown)
    }

    /// Returns the addresses as which others see this anchor and which are not its machine's, those
    /// that most see first.
    pub fn outside(&self, own: &[SocketAddr]) -> Vec<SocketAddr> {
        let seen = self.counted(own).into_iter().map(|(address, _)| address);
        seen.take(MAX_OUTSIDE).collect()
    }

    /// As [`Self::outside`], without those that few see beside the one of their family that most do:
    /// what is told to everybody should not be one liar's choice.
    pub fn outside_agreed(&self, own: &[SocketAddr]) -> Vec<SocketAddr> {
        let counted = self.counted(own);
        let most = |is_v4: bool| {
            let mut family = counted.iter().filter(|(at, _)| at.is_ipv4() == is_v4);
            family.next().map_or(0, |(_, count)| *count)
        };
        let [most_v4, most_v6] = [true, false].map(most);
        let is_agreed = |(at, count): &&(SocketAddr, usize)| {
            let most = if at.is_ipv4() { most_v4 } else { most_v6 };
            2 * count >= most
        };
        let agreed = counted.iter().filter(is_agreed);
        agreed.map(|(at, _)| *at).take(MAX_OUTSIDE).collect()
    }

    /// Returns addresses that are not the machine's and by how many each is seen, the most first.
    fn counted(&self, own: &[SocketAddr]) -> Vec<(SocketAddr, usize)> {
        let mut counts: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        for observation in self.all.values() {
            if !own.contains(&observation.address) {
                *counts.entry(observation.address).or_default() += 1;
            }
        }
        let mut outside: Vec<(SocketAddr, usize)> = counts.into_iter().collect();
        outside.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        outside
    }

    fn class_of(&self, own: &[SocketAddr], is_v4: bool) -> Class {
        let of_family = |seen: &&Observation| seen.address.is_ipv4() == is_v4;
        let seen = || self.all.values().filter(of_family);
        let outside = || seen().filter(|seen| !own.contains(&seen.address));
        let Some(first) = outside().next() else {
            return if seen().any(|seen| seen.dialled) {
                Class::Public
            } else {
                Class::Unknown
            };
        };
        if outside().any(|seen| seen.dialled) {
            return Class::Public;
        }
        match outside().find(|seen| seen.from != first.from) {
            None => Class::Nat,
            Some(_) if outside().all(|seen| seen.address == first.address) => Class::NatCone,
            Some(_) => Class::NatSymmetric,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who observed, what it saw, whether it dialled there.
    type Said = (&'static str, &'static str, bool);

    #[test]
    fn classes_follow_from_observations_as_the_table_says() {
        let own = ["10.0.0.2:47474", "198.51.100.2:47474"];
        let table: [(&[Said], Class); 9] = [
            (&[], Class::Unknown),
            (
                &[("192.0.2.1", "198.51.100.2:47474", false)],
                Class::Unknown,
            ),
            (&[("192.0.2.1", "198.51.100.2:47474", true)], Class::Public),
            (&[("192.0.2.1", "203.0.113.1:1000", false)], Class::Nat),
            (
                &[
                    ("192.0.2.1", "203.0.113.1:1000", false),
                    ("192.0.2.1", "203.0.113.1:1000", false),
                ],
                Class::Nat,
            ),
            (
                &[
                    ("192.0.2.1", "203.0.113.1:1000", false),
                    ("192.0.2.2", "203.0.113.1:1000", false),
                ],
                Class::NatCone,
            ),
            (
                &[
                    ("192.0.2.1", "203.0.113.1:1000", false),
                    ("192.0.2.2", "203.0.113.1:1001", false),
                ],
                Class::NatSymmetric,
            ),
            // A neighbour on the LAN dials the inner address: that makes nobody public.
            (
                &[
                    ("10.0.0.3", "10.0.0.2:47474", true),
                    ("192.0.2.2", "203.0.113.1:1001", false),
                ],
                Class::Nat,
            ),
            // The router forwards a port.
            (
                &[
                    ("192.0.2.1", "203.0.113.1:47474", true),
                    ("192.0.2.2", "203.0.113.1:1001", false),
                ],
                Class::Public,
            ),
        ];

        let own = own.map(|address| address.parse().unwrap());
        for (said, class) in table {
            assert_eq!(observations(said).class(&own), class, "{said:?}");
        }
    }

    #[test]
    fn the_better_family_counts() {
        let own = ["[2001:db8::2]:47474".parse().unwrap()];
        let said = observations(&[
            ("192.0.2.1", "203.0.113.1:1000", false),
            ("2001:db8::3", "[2001:db8::2]:47474", true),
        ]);

        assert_eq!(said.class(&own), Class::Public);
    }

    #[test]
    fn outside_addresses_are_few_and_the_most_seen_come_first() {
        let mut said = observations(&[
            ("192.0.2.1", "203.0.113.1:5", false),
            ("192.0.2.2", "203.0.113.1:7", false),
            ("192.0.2.3", "203.0.113.1:7", false),
        ]);
        let own = ["10.0.0.2:47474".parse().unwrap()];

        assert_eq!(said.outside(&own)[0], "203.0.113.1:7".parse().unwrap());
        for number in 0..10_000_u16 {
            let address = SocketAddr::from(([203, 0, 113, 2], number));
            said.note(PeerIx(u32::from(number)), address.ip(), address, false);
        }
        assert_eq!(said.outside(&own).len(), MAX_OUTSIDE);
        assert_eq!(said.all.len(), MAX_OBSERVERS);
    }

    #[test]
    fn one_liar_among_several_adds_no_address_to_an_advert() {
        let honest = [
            ("192.0.2.1", "203.0.113.1:7", true),
            ("192.0.2.2", "203.0.113.1:7", true),
            ("192.0.2.3", "203.0.113.1:7", true),
            ("2001:db8::3", "[2001:db8::9]:7", false),
        ];
        let victim = ("192.0.2.4", "198.51.100.66:53", true);
        let own = ["10.0.0.2:47474".parse().unwrap()];

        let said = observations(&[&honest[..], &[victim]].concat());

        let expected: [SocketAddr; 2] = [honest[0].1, honest[3].1].map(|at| at.parse().unwrap());
        assert_eq!(said.outside_agreed(&own), expected);
        assert_eq!(said.outside(&own).len(), 3);
    }

    #[test]
    fn what_a_peer_said_goes_with_it() {
        let mut said = observations(&[("192.0.2.1", "203.0.113.1:5", false)]);

        said.forget(PeerIx(0));

        assert_eq!(said.class(&[]), Class::Unknown);
        assert!(said.outside(&[]).is_empty());
    }

    fn observations(said: &[Said]) -> Observations {
        let mut observations = Observations::default();
        for (number, (from, address, dialled)) in (0..).zip(said) {
            let (from, address) = (from.parse().unwrap(), address.parse().unwrap());
            observations.note(PeerIx(number), from, address, *dialled);
        }
        observations
    }
}
