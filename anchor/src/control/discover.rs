//! Places to knock that this anchor found or was told: anchors on its own links, and those of
//! `--peer`. Whoever answers there is nobody until its Hello.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use conflux_core::time::Mono;
use tracing::debug;

use super::{Anchor, Seed};
use crate::discovery::{Discovery, Wanted};

/// Places that are kept; a link with more anchors that know nobody of each other is none.
const MAX_SEEDS: usize = 64;

/// Longest pause between two tries of a `--peer` while others are connected: a dial that nobody
/// answers costs some 5 kB.
pub(super) const LONGEST_INSISTING_PAUSE: Duration = Duration::from_secs(300);

/// How often a place that was found is tried while others are connected: it has just told of itself.
const TRIES: u8 = 3;

/// Whether a seed is tried although this anchor is connected with somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Insist {
    /// It is not.
    No,
    /// So many times more.
    Times(u8),
    /// Until somebody has answered there.
    UntilMet,
}

impl Insist {
    /// Returns what is left after a try that failed.
    pub(super) fn after_failure(self) -> Self {
        match self {
            Self::No | Self::Times(0 | 1) => Self::No,
            Self::Times(left) => Self::Times(left - 1),
            Self::UntilMet => Self::UntilMet,
        }
    }
}

impl Anchor {
    /// Starts or ends discovery as the configuration says, and tells it what it has to know.
    pub(super) fn follow_discovery(&mut self) {
        if !self.config.discovery || self.own_revocation().is_some() {
            self.discovery = None;
            return;
        }
        let wanted = Wanted {
            addresses: self.facts.uplinks.addresses().collect(),
            is_lonely: self.needs_seeds(),
        };
        match &self.discovery {
            Some(discovery) => discovery.want(wanted),
            None => {
                let port = |is_v4| {
                    let mut locals = self.sockets.iter();
                    locals
                        .find(|local| local.is_ipv4() == is_v4)
                        .map(SocketAddr::port)
                };
                // One family: a neighbour with both tells of itself over both, and would be
                // dialled a second time over the one that is not in use.
                let mut own = wanted.addresses.iter().map(|(_, address)| address);
                let has_v6_alone = !wanted.addresses.is_empty() && own.all(IpAddr::is_ipv6);
                let ports = if has_v6_alone {
                    [None, port(false)]
                } else {
                    [port(true), None]
                };
                self.discovery = Some(Discovery::start(
                    &self.standing.realm.beacon(),
                    ports,
                    wanted,
                    self.random.fork(),
                ));
            }
        }
    }

    /// An anchor of the realm, or somebody who says so, is on the link.
    pub(super) fn take_found(&mut self, now: Mono, place: SocketAddr) {
        let is_known = self.paths.lock().confirmed_at(place).is_some();
        if is_known || !self.is_on_link(place) || self.usable(&[place]).is_empty() {
            return;
        }
        let is_new = !self.seeds.contains_key(&place);
        if is_new && self.seeds.len() >= MAX_SEEDS {
            return;
        }
        debug!(%place, "an anchor was found on the link");
        let seed = self
            .seeds
            .entry(place)
            .or_insert_with(|| Self::new_seed(now));
        if !seed.under_way {
            *seed = Seed {
                insist: Insist::Times(TRIES),
                ..Self::new_seed(now)
            };
        }
    }

    fn is_on_link(&self, place: SocketAddr) -> bool {
        let is_near = match place.ip() {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let mut networks = self.facts.connected.iter();
        is_near || networks.any(|network| network.contains(&place.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_found_is_given_up_and_one_the_operator_named_is_not() {
        let mut found = Insist::Times(TRIES);
        let mut named = Insist::UntilMet;

        for _ in 0..TRIES {
            assert_ne!(found, Insist::No);
            found = found.after_failure();
            named = named.after_failure();
        }

        assert_eq!((found, named), (Insist::No, Insist::UntilMet));
        assert_eq!(found.after_failure(), Insist::No);
    }
}
