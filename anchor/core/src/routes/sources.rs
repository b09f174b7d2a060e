//! The networks one peer's packets may come from, asked once for each of them: a peer may have
//! thousands.

use std::net::IpAddr;

use ipnet::IpNet;

/// A set of networks that is filled, then sealed, then asked.
#[derive(Clone, Default, Debug)]
pub(super) struct Sources {
    /// First and last addresses; once sealed, sorted and apart from each other.
    four: Vec<(u32, u32)>,
    six: Vec<(u128, u128)>,
}

impl Sources {
    /// Adds a network.
    pub(super) fn push(&mut self, network: IpNet) {
        match network {
            IpNet::V4(net) => self
                .four
                .push((net.network().into(), net.broadcast().into())),
            IpNet::V6(net) => self
                .six
                .push((net.network().into(), net.broadcast().into())),
        }
    }

    /// Makes the set ready to be asked.
    pub(super) fn seal(&mut self) {
        seal(&mut self.four);
        seal(&mut self.six);
    }

    /// Says whether one of the networks contains `source`.
    pub(super) fn contains(&self, source: IpAddr) -> bool {
        match source {
            IpAddr::V4(source) => contains(&self.four, source.into()),
            IpAddr::V6(source) => contains(&self.six, source.into()),
        }
    }
}

/// Sorts ranges and leaves out those inside of another; networks do not overlap otherwise.
fn seal<T: Copy + Ord>(ranges: &mut Vec<(T, T)>) {
    ranges.sort_unstable_by_key(|&(first, last)| (first, std::cmp::Reverse(last)));
    ranges.dedup_by(|inner, outer| inner.1 <= outer.1);
}

fn contains<T: Copy + Ord>(ranges: &[(T, T)], address: T) -> bool {
    let after = ranges.partition_point(|&(first, _)| first <= address);
    after > 0 && address <= ranges[after - 1].1
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ipnet::Ipv4Net;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn asking_agrees_with_asking_each_network(
            networks in proptest::collection::vec((any::<u16>(), 14_u8..=32), 0..40),
            addresses in proptest::collection::vec(any::<u16>(), 1..60)
        ) {
            let spread = |number: u16| Ipv4Addr::from(u32::from(number) << 4);
            let networks: Vec<_> = networks
                .into_iter()
                .map(|(at, length)| IpNet::V4(Ipv4Net::new(spread(at), length).unwrap().trunc()))
                .collect();
            let mut sources = Sources::default();
            for &network in &networks {
                sources.push(network);
            }
            sources.seal();

            for address in addresses {
                let address = IpAddr::V4(spread(address));
                let expected = networks.iter().any(|network| network.contains(&address));
                prop_assert_eq!(sources.contains(address), expected, "{}", address);
            }
        }
    }
}
