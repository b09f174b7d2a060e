//! Who is let in before it is known who it is: places for connections not bound yet, so many in all
//! and so many for one source. A place is given back when it is dropped.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::MAX_UNBOUND;

/// Places that one source can have: a site of as many anchors behind one address. An IPv6 network
/// of a single machine is a source as well, see [`source_of`].
pub(super) const MAX_PER_SOURCE: usize = MAX_UNBOUND / 4;

/// The places.
#[derive(Clone, Default)]
pub(super) struct Strangers(Arc<Mutex<Taken>>);

/// Guarded for moments only. Holds at most as many sources as there are places.
#[derive(Default)]
struct Taken {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// A place, while it is held.
pub(super) struct Place {
    strangers: Strangers,
    source: IpAddr,
}

impl Strangers {
    /// Returns how many places are taken.
    pub(super) fn count(&self) -> usize {
        self.lock().all
    }

    /// Takes a place for somebody at `address`; none when too many are taken, or too many by it.
    pub(super) fn take(&self, address: IpAddr) -> Option<Place> {
        let source = source_of(address);
        let mut taken = self.lock();
        if taken.all >= MAX_UNBOUND {
            return None;
        }
        let own = taken.by_source.entry(source).or_default();
        if *own >= MAX_PER_SOURCE {
            return None;
        }
        *own += 1;
        taken.all += 1;
        Some(Place {
            strangers: self.clone(),
            source,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Every method leaves the counts right, so a panic elsewhere taints nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.strangers.lock();
        taken.all -= 1;
        if let Some(own) = taken.by_source.get_mut(&self.source) {
            *own -= 1;
            if *own == 0 {
                taken.by_source.remove(&self.source);
            }
        }
    }
}

/// Returns an IPv4 address as it is and an IPv6 one by its /64: whoever has one of these has all.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let bits = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(bits.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> IpAddr {
        let last = u32::try_from(number).unwrap();
        IpAddr::V4((0x0a00_0000 + last).into())
    }

    #[test]
    fn one_source_leaves_places_to_others_and_gets_its_own_back() {
        let strangers = Strangers::default();
        let mut held: Vec<Place> = Vec::new();
        held.extend((0..MAX_UNBOUND).filter_map(|_| strangers.take(host(1))));
        assert_eq!(held.len(), MAX_PER_SOURCE);

        assert!(strangers.take(host(2)).is_some());
        held.pop();

        assert!(strangers.take(host(1)).is_some());
        drop(held);
        assert_eq!(strangers.count(), 0);
        assert!(strangers.lock().by_source.is_empty());
    }

    #[test]
    fn there_are_so_many_places_in_all() {
        let strangers = Strangers::default();
        let held: Vec<Place> = (0..2 * MAX_UNBOUND)
            .filter_map(|number| strangers.take(host(number)))
            .collect();

        assert_eq!(held.len(), MAX_UNBOUND);
        assert!(strangers.take(host(1)).is_none());
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_source() {
        let strangers = Strangers::default();
        let at = |last: usize| format!("2001:db8::{last:x}").parse().unwrap();
        let held: Vec<Place> = (0..MAX_UNBOUND)
            .filter_map(|last| strangers.take(at(last)))
            .collect();

        assert_eq!(held.len(), MAX_PER_SOURCE);
    }
}
