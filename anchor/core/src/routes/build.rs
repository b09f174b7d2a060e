//! The building of a snapshot from facts: each claim judged once, accepted ones gathered into
//! groups, and every network given its one row.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use conflux_proto::id::AnchorKey;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::joint::JointPrefixMap;

use super::ranges::{covering, fault, host, is_public, realm_of};
use super::sources::Sources;
use super::{Claim, Group, Known, OwnFacts, PeerFacts, Routes, Row, State, Target, Why};
use crate::ids::PeerIx;

/// What was said about one network by all who claim it.
#[derive(Default)]
struct Draft {
    /// This anchor's own word about it, which wins.
    own: Option<(State, Option<Why>)>,
    /// Accepted advertisers, in the order of their ids.
    accepted: Vec<(PeerIx, AnchorKey)>,
    /// The first reason by which a claim was refused.
    refused: Option<Why>,
}

/// Builds the snapshot of `own` and `peers`. The order of `peers` does not matter.
pub fn build(own: &OwnFacts, peers: &[PeerFacts]) -> Routes {
    let realm = realm_of(own.overlay);
    let mut drafts = BTreeMap::new();
    draft_own(&mut drafts, own, realm);

    let mut known = Vec::with_capacity(peers.len());
    for facts in sorted_by_id(peers) {
        let mut entry = Known {
            facts: facts.clone(),
            held: Vec::new(),
            refused: Vec::new(),
            sources: Sources::default(),
        };
        if facts.may_exchange {
            for claim in claims(facts) {
                draft_claim(&mut drafts, &mut entry, own, claim);
            }
        }
        entry.held.sort_unstable();
        entry.sources.seal();
        known.push(entry);
    }
    known.sort_by_key(|entry| entry.facts.peer);
    let numbers = numbers(&known);

    let mut routes = Routes {
        targets: JointPrefixMap::new(),
        refusals: JointPrefixMap::new(),
        groups: Vec::new(),
        overlays: overlays(&known),
        rows: Vec::with_capacity(drafts.len()),
        peers: known,
        numbers,
        own_overlay: own.overlay,
        realm,
        served: Vec::new(),
        has_draining: peers
            .iter()
            .any(|facts| facts.draining && facts.may_exchange),
    };
    routes
        .targets
        .insert(IpNet::V4(own.client_range.trunc()), Target::Clients);
    for (network, draft) in drafts {
        settle(&mut routes, network, draft);
    }
    routes
}

/// Sorts by the text of the anchor id, which is what tables are sorted by: base32 puts its
/// digits after its letters, ASCII before them, so the bytes would sort otherwise.
fn sorted_by_id(peers: &[PeerFacts]) -> Vec<&PeerFacts> {
    let mut sorted: Vec<_> = peers.iter().collect();
    sorted.sort_by_cached_key(|facts| facts.key.id().to_string());
    sorted
}

pub(super) fn claims(facts: &PeerFacts) -> impl Iterator<Item = Claim<IpNet>> {
    let ipv4 = facts.ipv4.map(|claim| Claim {
        network: host(claim.network),
        granted: claim.granted,
    });
    let networks = facts.networks.iter().map(|claim| Claim {
        network: claim.network.trunc(),
        granted: claim.granted,
    });
    ipv4.into_iter().chain(networks)
}

fn draft_own(drafts: &mut BTreeMap<IpNet, Draft>, own: &OwnFacts, realm: Ipv6Net) {
    for network in own.networks.iter().map(IpNet::trunc) {
        let word = match fault(network, realm) {
            Some(why) => (State::Refused, Some(why)),
            None => (State::Served, None),
        };
        drafts.entry(network).or_default().own = Some(word);
    }
    if let Some(address) = own.ipv4 {
        let word = if own.ipv4_advertised {
            (State::Served, None)
        } else if is_public(Ipv4Net::from(address)) {
            (State::Unadvertised, Some(Why::PublicAddress))
        } else {
            (State::Unadvertised, Some(Why::NotGranted))
        };
        drafts.entry(host(address)).or_default().own = Some(word);
    }
}

fn draft_claim(
    drafts: &mut BTreeMap<IpNet, Draft>,
    entry: &mut Known,
    own: &OwnFacts,
    claim: Claim<IpNet>,
) {
    let network = claim.network;
    let why = judge(own, claim);
    let draft = drafts.entry(network).or_default();
    match why {
        None if entry.held.contains(&network) => {}
        None => {
            draft.accepted.push((entry.facts.peer, entry.facts.key));
            entry.held.push(network);
            entry.sources.push(network);
        }
        Some(why) => {
            // IPv4 sources are mapped to client addresses, so a LAN of the same numbers here
            // does no harm; IPv6 sources arrive as they are.
            if matches!((why, network), (Why::OverlapsLocal(_), IpNet::V4(_))) {
                entry.sources.push(network);
            }
            draft.refused.get_or_insert(why);
            entry.refused.push((network, why));
        }
    }
}

/// Returns why `claim` is not believed.
fn judge(own: &OwnFacts, claim: Claim<IpNet>) -> Option<Why> {
    if let Some(why) = fault(claim.network, realm_of(own.overlay)) {
        return Some(why);
    }
    if IpNet::V4(own.client_range).contains(&claim.network) {
        return Some(Why::ReservedRange);
    }
    if !claim.granted {
        return Some(Why::NotGranted);
    }
    covering(&own.local_networks, claim.network).map(Why::OverlapsLocal)
}

/// Returns the place of each peer by its number; the numbers given so far are not many more than
/// the peers that are known.
fn numbers(known: &[Known]) -> Vec<u32> {
    let count = known
        .last()
        .map_or(0, |last| last.facts.peer.0 as usize + 1);
    let mut numbers = vec![u32::MAX; count];
    for (place, entry) in known.iter().enumerate() {
        numbers[entry.facts.peer.0 as usize] = place as u32;
    }
    numbers
}

fn overlays(known: &[Known]) -> Vec<(Ipv6Addr, Group)> {
    let mut overlays: Vec<_> = known
        .iter()
        .filter(|entry| entry.facts.may_exchange)
        .map(|entry| {
            let overlay = entry.facts.overlay;
            (
                overlay,
                Group {
                    network: host(overlay),
                    holders: vec![entry.facts.peer],
                },
            )
        })
        .collect();
    overlays.sort_by_key(|(overlay, _)| *overlay);
    overlays
}

/// Gives `network` its row and, when it leads somewhere, its target.
fn settle(routes: &mut Routes, network: IpNet, draft: Draft) {
    let (state, why, via) = match draft.own {
        Some((state, why)) => (state, why, Vec::new()),
        None if draft.accepted.is_empty() => (State::Refused, draft.refused, Vec::new()),
        None => {
            let via = draft.accepted.iter().map(|(_, key)| *key).collect();
            (State::Accepted, None, via)
        }
    };
    match state {
        State::Accepted => {
            let holders = draft.accepted.into_iter().map(|(peer, _)| peer).collect();
            routes
                .targets
                .insert(network, Target::Group(routes.groups.len()));
            routes.groups.push(Group { network, holders });
        }
        State::Served => {
            routes.targets.insert(network, Target::Local);
            routes.served.push(network);
        }
        State::Unadvertised => {
            routes.targets.insert(network, Target::Local);
        }
        State::Refused => {
            if let Some(why) = why {
                routes.refusals.insert(network, why);
            }
        }
    }
    routes.rows.push(Row {
        network,
        via,
        state,
        why,
    });
}
