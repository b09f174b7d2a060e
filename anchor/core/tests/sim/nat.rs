//! An address translator before one machine, in the words of RFC 4787: how it maps what goes out,
//! and what it filters of what comes in. A mapping lives from the last packet that went out (REQ-6).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use conflux_core::time::Mono;

/// On what a mapping or a filter depends (RFC 4787 sections 4.1 and 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dependence {
    /// On nothing outside.
    EndpointIndependent,
    /// On the address outside.
    AddressDependent,
    /// On address and port outside.
    AddressAndPortDependent,
}

/// The translator, with one machine inside that uses one port.
#[derive(Debug)]
pub(crate) struct Nat {
    pub(crate) mapping: Dependence,
    pub(crate) filtering: Dependence,
    pub(crate) lifetime: Duration,
    outside: IpAddr,
    next_port: u16,
    mappings: Vec<Mapping>,
}

#[derive(Debug)]
struct Mapping {
    /// Whom it is for, as far as the mapping depends on that.
    to: SocketAddr,
    port: u16,
    last_out: Mono,
    /// Who was sent to by it, and when last.
    sent: Vec<(SocketAddr, Mono)>,
}

impl Nat {
    /// Returns a translator whose outside has this address.
    pub(crate) fn new(
        outside: IpAddr,
        mapping: Dependence,
        filtering: Dependence,
        lifetime: Duration,
    ) -> Self {
        Self {
            mapping,
            filtering,
            lifetime,
            outside,
            next_port: 20_000,
            mappings: Vec::new(),
        }
    }

    /// Takes a packet from inside to `to`; returns the source it has outside.
    pub(crate) fn send(&mut self, now: Mono, to: SocketAddr) -> SocketAddr {
        self.expire(now);
        let key = part(to, self.mapping);
        let place = self.mappings.iter().position(|entry| entry.to == key);
        let place = place.unwrap_or_else(|| {
            self.next_port += 1;
            self.mappings.push(Mapping {
                to: key,
                port: self.next_port,
                last_out: now,
                sent: Vec::new(),
            });
            self.mappings.len() - 1
        });
        let entry = &mut self.mappings[place];
        entry.last_out = now;
        entry.sent.retain(|(known, _)| *known != to);
        entry.sent.push((to, now));
        SocketAddr::new(self.outside, entry.port)
    }

    /// Says whether a packet from `from` to the outside address `to` comes in.
    pub(crate) fn admits(&mut self, now: Mono, from: SocketAddr, to: SocketAddr) -> bool {
        self.expire(now);
        let entry = self.mappings.iter().find(|entry| entry.port == to.port());
        entry.is_some_and(|entry| {
            let wanted = part(from, self.filtering);
            let mut sent = entry.sent.iter();
            sent.any(|(known, _)| part(*known, self.filtering) == wanted)
        })
    }

    /// Says whether this is an address of its outside.
    pub(crate) fn has(&self, at: SocketAddr) -> bool {
        at.ip() == self.outside
    }

    /// Forgets every mapping, as at a restart.
    pub(crate) fn forget(&mut self) {
        self.mappings.clear();
    }

    fn expire(&mut self, now: Mono) {
        let lifetime = self.lifetime;
        for entry in &mut self.mappings {
            entry.sent.retain(|(_, at)| now.since(*at) < lifetime);
        }
        self.mappings
            .retain(|entry| now.since(entry.last_out) < lifetime);
    }
}

/// Returns what of an outside address matters.
fn part(at: SocketAddr, dependence: Dependence) -> SocketAddr {
    match dependence {
        Dependence::EndpointIndependent => SocketAddr::new([0, 0, 0, 0].into(), 0),
        Dependence::AddressDependent => SocketAddr::new(at.ip(), 0),
        Dependence::AddressAndPortDependent => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Dependence::{AddressAndPortDependent, AddressDependent, EndpointIndependent};

    const START: Mono = Mono::from_nanos(1);

    #[test]
    fn mappings_depend_on_what_their_name_says() {
        let [one, other_port, other] = outside();
        for (mapping, ports) in [
            (EndpointIndependent, 1),
            (AddressDependent, 2),
            (AddressAndPortDependent, 3),
        ] {
            let mut nat = nat(mapping, EndpointIndependent);
            let mut seen: Vec<_> = [one, other_port, other]
                .map(|to| nat.send(START, to))
                .to_vec();

            assert_eq!(nat.send(START, one), seen[0], "a mapping is reused");
            seen.dedup();
            assert_eq!(seen.len(), ports, "{mapping:?}");
        }
    }

    #[test]
    fn filters_depend_on_what_their_name_says() {
        let [one, other_port, other] = outside();
        for (filtering, admitted) in [
            (EndpointIndependent, [true, true, true]),
            (AddressDependent, [true, true, false]),
            (AddressAndPortDependent, [true, false, false]),
        ] {
            let mut nat = nat(EndpointIndependent, filtering);
            let mapped = nat.send(START, one);

            let outcome = [one, other_port, other].map(|from| nat.admits(START, from, mapped));

            assert_eq!(outcome, admitted, "{filtering:?}");
        }
    }

    #[test]
    fn a_mapping_lives_from_the_last_packet_that_went_out() {
        let [one, ..] = outside();
        let mut nat = nat(EndpointIndependent, EndpointIndependent);
        let mapped = nat.send(START, one);
        let lifetime = nat.lifetime;

        assert!(nat.admits(START + lifetime - Duration::from_secs(1), one, mapped));
        assert!(!nat.admits(START + lifetime, one, mapped));
        assert_ne!(nat.send(START + lifetime, one), mapped);
    }

    fn nat(mapping: Dependence, filtering: Dependence) -> Nat {
        let lifetime = Duration::from_secs(120);
        Nat::new([198, 51, 100, 1].into(), mapping, filtering, lifetime)
    }

    fn outside() -> [SocketAddr; 3] {
        [
            ([203, 0, 113, 1], 1).into(),
            ([203, 0, 113, 1], 2).into(),
            ([203, 0, 113, 2], 1).into(),
        ]
    }
}
