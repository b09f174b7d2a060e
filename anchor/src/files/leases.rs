//! Client mappings on disk, so that a restart of the daemon gives every client the address it
//! had (SPEC section 3). Kept as plain records of fixed length: a full pool has 131,072 of them.
//!
//! Idleness is kept as seconds before the moment of writing, because CLOCK_BOOTTIME starts anew
//! with the machine; whoever reads adds the wall time that has passed since.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conflux_proto::id::AnchorKey;

use super::state::{State, StateError, StateFile};

/// Key 32, IPv6 form of the host 16, address 4, idle seconds 4.
const RECORD_BYTES: usize = 56;

/// One client's mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedLease {
    /// The client's anchor.
    pub key: AnchorKey,
    /// The client host as that anchor names it.
    pub host: IpAddr,
    /// The address it has here.
    pub address: Ipv4Addr,
    /// How long it had been idle; whole seconds are kept.
    pub idle: Duration,
}

impl State {
    /// Writes the mappings.
    ///
    /// # Errors
    ///
    /// As [`State::write`].
    pub fn write_leases(&self, leases: &[SavedLease]) -> Result<(), StateError> {
        let mut content = Vec::with_capacity(8 + leases.len() * RECORD_BYTES);
        content.extend_from_slice(&unix_seconds().to_be_bytes());
        for lease in leases {
            let host = match lease.host {
                IpAddr::V4(host) => host.to_ipv6_mapped(),
                IpAddr::V6(host) => host,
            };
            content.extend_from_slice(&lease.key.0);
            content.extend_from_slice(&host.octets());
            content.extend_from_slice(&lease.address.octets());
            let idle = u32::try_from(lease.idle.as_secs()).unwrap_or(u32::MAX);
            content.extend_from_slice(&idle.to_be_bytes());
        }
        self.write(StateFile::Leases, &content)
    }

    /// Returns the mappings, their idleness counted up to now.
    ///
    /// # Errors
    ///
    /// As [`State::read`].
    pub fn read_leases(&self) -> Result<Vec<SavedLease>, StateError> {
        let Some(content) = self.read(StateFile::Leases)? else {
            return Ok(Vec::new());
        };
        let leases = content
            .split_first_chunk::<8>()
            .and_then(|(saved, records)| {
                let passed = unix_seconds().saturating_sub(u64::from_be_bytes(*saved));
                let (records, rest) = records.as_chunks::<RECORD_BYTES>();
                let leases = records.iter().map(|record| lease(record, passed)).collect();
                rest.is_empty().then_some(leases)
            });
        leases.ok_or_else(|| self.damaged(StateFile::Leases, "it ends inside a record"))
    }
}

fn lease(record: &[u8; RECORD_BYTES], passed_seconds: u64) -> SavedLease {
    let mut key = [0_u8; 32];
    key.copy_from_slice(&record[..32]);
    let mut host = [0_u8; 16];
    host.copy_from_slice(&record[32..48]);
    let [.., a, b, c, d, i, j, k, l] = *record;
    let idle = u64::from(u32::from_be_bytes([i, j, k, l])).saturating_add(passed_seconds);
    SavedLease {
        key: AnchorKey(key),
        host: IpAddr::V6(Ipv6Addr::from(host)).to_canonical(),
        address: Ipv4Addr::new(a, b, c, d),
        idle: Duration::from_secs(idle),
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |past| past.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Layout;

    #[test]
    fn mappings_survive_with_their_idleness() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&Layout::below(directory.path()).unwrap()).unwrap();
        let saved = [lease_of("192.0.0.2", 5), lease_of("fd00::7", 70_000)];

        state.write_leases(&saved).unwrap();
        let read = state.read_leases().unwrap();

        for (read, saved) in read.iter().zip(&saved) {
            assert_eq!(
                (read.key, read.host, read.address),
                (saved.key, saved.host, saved.address)
            );
            assert!(read.idle >= saved.idle && read.idle < saved.idle + Duration::from_secs(60));
        }
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn a_cut_file_is_damaged_and_none_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(&Layout::below(directory.path()).unwrap()).unwrap();

        assert!(state.read_leases().unwrap().is_empty());
        state
            .write(StateFile::Leases, &[0; 8 + RECORD_BYTES - 1])
            .unwrap();

        assert!(matches!(
            state.read_leases(),
            Err(StateError::Damaged { .. })
        ));
    }

    fn lease_of(host: &str, idle_seconds: u64) -> SavedLease {
        SavedLease {
            key: AnchorKey([3; 32]),
            host: host.parse().unwrap(),
            address: Ipv4Addr::new(198, 18, 3, 4),
            idle: Duration::from_secs(idle_seconds),
        }
    }
}
