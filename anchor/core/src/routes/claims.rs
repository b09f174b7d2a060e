//! Who says that it holds a destination, and what this anchor thinks of each such claim: for
//! `explain`, where those left out matter as much as the group itself. Walks all peers, so it is
//! not for the packet way; [`super::Routes::lookup`] is.

use std::net::IpAddr;

use ipnet::IpNet;

use super::build::claims;
use super::{PeerFacts, Routes, Why};

/// One peer's claim on a destination.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// Who claims it.
    pub facts: &'a PeerFacts,
    /// The network by which it does, without host bits.
    pub network: IpNet,
    /// What this anchor makes of it.
    pub standing: Standing,
}

/// What a claim is worth here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is believed: its maker is a holder of the network.
    Holder,
    /// Taints forbid data between its maker and this anchor.
    Taint,
    /// It is not believed.
    Refused(Why),
}

impl Routes {
    /// Returns every claim on `destination`, an IPv4 address in its IPv4 spelling, the narrowest
    /// networks first, and within a network in the order of the peers' numbers.
    pub fn claimants(&self, destination: IpAddr) -> Vec<Claimant<'_>> {
        let mut found: Vec<Claimant<'_>> = Vec::new();
        for known in &self.peers {
            let facts = &known.facts;
            let overlay = (destination == IpAddr::V6(facts.overlay)).then(|| destination.into());
            let claimed = claims(facts)
                .map(|claim| claim.network)
                .chain(overlay)
                .filter(|network| network.contains(&destination));
            for network in claimed {
                let refused = known.refused.iter().find(|(what, _)| *what == network);
                let standing = match refused {
                    _ if !facts.may_exchange => Standing::Taint,
                    Some((_, why)) => Standing::Refused(*why),
                    None => Standing::Holder,
                };
                found.push(Claimant {
                    facts,
                    network,
                    standing,
                });
            }
        }
        found.sort_by_key(|claim| {
            (
                std::cmp::Reverse(claim.network.prefix_len()),
                claim.facts.peer,
            )
        });
        // A subnet that somebody names twice is one claim.
        found.dedup_by_key(|claim| (claim.network, claim.facts.peer));
        found
    }
}
