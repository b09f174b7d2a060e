//! With whom an anchor keeps control connections: with everybody in a small realm. In a larger one
//! with those whose data it needs, and with a few others in an order of its own, so that the realm
//! stays in one piece and nobody is dialled by all.

use conflux_proto::id::AnchorKey;
use sha2::{Digest, Sha256};

use crate::ids::PeerIx;

/// Realms up to this size connect everybody.
pub const FULL_MESH: usize = 64;

/// Connections that an anchor of a larger realm sees to, beside those it needs for data. Others
/// dial it too, so it has about twice as many. A random graph of 10,000 is in one piece with far
/// fewer, and a flood crosses this one in three steps; each connection more carries every flood once
/// more.
pub const NEIGHBOURS: usize = 16;

/// An anchor that may be connected with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its number in this process.
    pub peer: PeerIx,
    /// Its identity.
    pub key: AnchorKey,
    /// There is a connection.
    pub is_connected: bool,
    /// Data thread wants keys for it.
    pub is_needed: bool,
}

/// Returns with whom `own` is to be connected, of all that are known.
pub fn neighbours(own: &AnchorKey, mut all: Vec<Candidate>) -> Vec<PeerIx> {
    if all.len() > FULL_MESH {
        all.sort_by_cached_key(|one| (!one.is_needed, !one.is_connected, rank(own, &one.key)));
        let needed = all.iter().filter(|one| one.is_needed).count();
        all.truncate(needed + NEIGHBOURS);
    }
    all.into_iter().map(|one| one.peer).collect()
}

/// Returns a number that is as good as random over the pairs, and the same at each call.
fn rank(own: &AnchorKey, other: &AnchorKey) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(b"conflux neighbour 1");
    hasher.update(own.0);
    hasher.update(other.0);
    let digest: [u8; 32] = hasher.finalize().into();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_realm_connects_everybody() {
        let all: Vec<Candidate> = (0..64).map(candidate).collect();

        assert_eq!(neighbours(&key(99), all).len(), 64);
    }

    #[test]
    fn in_a_large_realm_nobody_is_dialled_by_all_and_nobody_by_none() {
        let mut dialled = [0; 600];
        for own in 0..600 {
            let others = (0..600).filter(|other| *other != own).map(candidate);
            for peer in neighbours(&key(own), others.collect()) {
                dialled[peer.0 as usize] += 1;
            }
        }

        // Sixteen on average, with a deviation of four.
        assert!(
            dialled.iter().all(|count| (1..44).contains(count)),
            "{dialled:?}"
        );
    }

    #[test]
    fn whom_data_needs_is_dialled_whatever_its_rank_and_connections_are_kept() {
        let mut all: Vec<Candidate> = (0..600).map(candidate).collect();
        for one in &mut all {
            one.is_needed = one.peer.0 % 200 == 7;
            one.is_connected = one.peer.0 % 60 == 5;
        }

        let wanted = neighbours(&key(999), all);

        assert_eq!(wanted.len(), 3 + NEIGHBOURS);
        assert!(
            [7, 207, 407]
                .iter()
                .all(|peer| wanted.contains(&PeerIx(*peer)))
        );
        let connected = (0..600).filter(|number| number % 60 == 5);
        assert!(
            connected
                .into_iter()
                .all(|peer| wanted.contains(&PeerIx(peer)))
        );
    }

    fn candidate(number: u32) -> Candidate {
        Candidate {
            peer: PeerIx(number),
            key: key(number),
            is_connected: false,
            is_needed: false,
        }
    }

    fn key(number: u32) -> AnchorKey {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        AnchorKey(bytes)
    }
}
