//! Which sizes a round of probes asks for.

use conflux_proto::relay::OUTER_BYTES;
use smallvec::SmallVec;

use super::BASE_BYTES;

/// Most sizes asked for at once: the usual ones, 9000 bytes, and the ceiling.
pub(super) const SLOTS: usize = USUAL.len() + 1;

/// A path's limit is exact to so many bytes: half a percent, not worth another round.
pub const GRAIN_BYTES: usize = 8;

/// MTUs that paths really have: the least one, tunnels in tunnels (1340 to 1460), IP in IP,
/// PPPoE, Ethernet, and jumbo frames.
const USUAL: [u16; 9] = [1280, 1340, 1380, 1420, 1460, 1480, 1492, 1500, 9000];

/// Sizes asked for at once where nothing usual is left to ask for.
const EVEN_SIZES: usize = 8;

/// What a relay's header takes.
const OUTER: u16 = OUTER_BYTES as u16;

/// The IP version that carries the frames and whether a relay does, which decides how much of an
/// MTU is left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Underlay {
    /// Frames in IPv4.
    Ipv4,
    /// Frames in IPv6.
    Ipv6,
    /// Frames behind an outer header in IPv4, as far as the relay.
    RelayedIpv4,
    /// Frames behind an outer header in IPv6, as far as the relay.
    RelayedIpv6,
}

impl Underlay {
    /// Returns how many bytes a frame in a datagram adds to the packet it carries.
    pub const fn overhead_bytes(self) -> u16 {
        match self {
            Self::Ipv4 => 20 + 8 + 32,
            Self::Ipv6 => 40 + 8 + 32,
            Self::RelayedIpv4 => 20 + 8 + 32 + OUTER,
            Self::RelayedIpv6 => 40 + 8 + 32 + OUTER,
        }
    }

    /// Returns what is taken to pass before anything was measured: all that 1280 bytes of either IP
    /// version leave, whichever there may be behind a relay.
    pub(super) const fn base_bytes(self) -> u16 {
        match self {
            Self::Ipv4 | Self::Ipv6 => BASE_BYTES as u16,
            Self::RelayedIpv4 | Self::RelayedIpv6 => BASE_BYTES as u16 - OUTER,
        }
    }
}

/// Sizes of one round, ascending, all above the limit and below what is too big.
pub(super) type Sizes = SmallVec<[u16; SLOTS]>;

/// Returns the sizes that a search begins with: the usual ones, and the largest possible.
pub(super) fn first(underlay: Underlay, limit: u16, too_big: u16) -> Sizes {
    let mut sizes: Sizes = USUAL
        .iter()
        .map(|mtu| mtu - underlay.overhead_bytes())
        .filter(|&size| size > limit && size < too_big)
        .collect();
    if too_big > limit + 1 && sizes.last() != Some(&(too_big - 1)) {
        sizes.push(too_big - 1);
    }
    sizes
}

/// Returns sizes that part the gap evenly; none when it is as small as it needs to be.
pub(super) fn even(limit: u16, too_big: u16) -> Sizes {
    let gap = too_big.saturating_sub(limit);
    if usize::from(gap) <= GRAIN_BYTES {
        return Sizes::new();
    }
    let parts = EVEN_SIZES as u32 + 1;
    (1..parts)
        .map(|part| limit + (u32::from(gap) * part / parts) as u16)
        .filter(|&size| size > limit)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_begins_with_the_usual_sizes_and_the_ceiling() {
        let v6 = [1260, 1300, 1340, 1380, 1400, 1412, 1420];
        assert_eq!(first(Underlay::Ipv6, 1200, 1421)[..], v6);
        assert_eq!(
            first(Underlay::Ipv4, 1200, 1421)[..],
            [1220, 1280, 1320, 1360, 1400, 1420]
        );
        assert_eq!(
            first(Underlay::RelayedIpv4, 1168, 1421)[..],
            [1188, 1248, 1288, 1328, 1368, 1388, 1400, 1408, 1420]
        );
        assert_eq!(first(Underlay::Ipv6, 1412, 8921)[..], [1420, 8920]);
        assert_eq!(first(Underlay::Ipv6, 1420, 9137)[..], [8920, 9136]);
        assert!(first(Underlay::Ipv6, 1420, 1421).is_empty());
    }

    #[test]
    fn a_gap_is_parted_evenly_until_it_is_small() {
        assert_eq!(
            even(1200, 1260)[..],
            [1206, 1213, 1220, 1226, 1233, 1240, 1246, 1253]
        );
        assert_eq!(
            even(1206, 1215)[..],
            [1207, 1208, 1209, 1210, 1211, 1212, 1213, 1214]
        );
        assert!(even(1206, 1213).is_empty());
        assert!(even(1420, 1400).is_empty());
    }
}
