//! Which of the addresses that others name are worth a datagram: peers say where they, and where we,
//! can be found, and each address named is one that this anchor will send to. Not whether anybody
//! answers there (`paths`, `plane`), nor how many are tried (`plane`).
//!
//! A private address that may be somebody else's is let through: it is where most peers of a LAN are.
//! Whoever lives there gets a few datagrams that mean nothing to it, within the limits of trials and
//! dials; nothing is answered to who cannot prove a peer's key.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::ids::Relayed;
use crate::paths::canonical;

/// Why nothing is sent to an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unfit {
    /// Port 0, or no address of one machine: unspecified, multicast, broadcast.
    NotUnicast,
    /// Loopback, while this anchor does not listen there itself: what lives on this machine is none
    /// of a peer's business.
    Loopback,
    /// Link-local of IPv6 without the interface it is on, which nobody can name for another machine.
    LinkLocal,
    /// Inside the overlay, or behind it: the packet would come back into the tunnel.
    Overlay,
    /// This anchor itself.
    Own,
}

impl Unfit {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::NotUnicast,
        Self::Loopback,
        Self::LinkLocal,
        Self::Overlay,
        Self::Own,
    ];

    /// Returns the word for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotUnicast => "not-unicast",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::Overlay => "overlay",
            Self::Own => "own",
        }
    }
}

/// How often each happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnfitCounts([u64; Unfit::ALL.len()]);

impl UnfitCounts {
    /// Notes one.
    pub const fn note(&mut self, why: Unfit) {
        self.0[why as usize] += 1;
    }

    /// Returns how often it happened.
    pub const fn of(&self, why: Unfit) -> u64 {
        self.0[why as usize]
    }
}

/// What this anchor knows of addresses.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// Where its sockets are bound; an unspecified address stands for all of its family.
    pub sockets: &'a [SocketAddr],
    /// The addresses of its machine.
    pub addresses: &'a [IpAddr],
    /// Networks that its machine is on, which kernels prefer to wider ones.
    pub connected: &'a [IpNet],
    /// Networks that are the overlay's whatever others advertise.
    pub overlay: &'a [IpNet],
}

impl Here<'_> {
    /// Returns an address in its one spelling if a datagram may go there. `is_tunnelled` says whether
    /// some anchor advertises a network around an address, which leads into the tunnel.
    ///
    /// # Errors
    /// See [`Unfit`].
    pub fn judge(
        &self,
        at: SocketAddr,
        is_tunnelled: impl FnOnce(IpAddr) -> bool,
    ) -> Result<SocketAddr, Unfit> {
        let at = canonical(at);
        let ip = at.ip();
        if at.port() == 0 || !is_unicast(ip) || Relayed::from_address(&at).is_some() {
            return Err(Unfit::NotUnicast);
        }
        if ip.is_loopback() && !self.sockets.iter().any(|local| local.ip().is_loopback()) {
            return Err(Unfit::Loopback);
        }
        if let SocketAddr::V6(v6) = at
            && v6.ip().is_unicast_link_local()
            && v6.scope_id() == 0
        {
            return Err(Unfit::LinkLocal);
        }
        let is_in = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&ip));
        if is_in(self.overlay) || (!is_in(self.connected) && is_tunnelled(ip)) {
            return Err(Unfit::Overlay);
        }
        if self.listens_at(&at) {
            return Err(Unfit::Own);
        }
        Ok(at)
    }

    /// Says whether what is sent to an address comes back to this anchor.
    fn listens_at(&self, at: &SocketAddr) -> bool {
        self.sockets.iter().any(|local| {
            let takes = local.is_ipv4() == at.is_ipv4() && local.port() == at.port();
            let is_here = if local.ip().is_unspecified() {
                at.ip().is_loopback() || self.addresses.contains(&at.ip())
            } else {
                local.ip() == at.ip()
            };
            takes && is_here
        })
    }
}

fn is_unicast(ip: IpAddr) -> bool {
    let is_broadcast = match ip {
        IpAddr::V4(ip) => ip.is_broadcast(),
        IpAddr::V6(_) => false,
    };
    !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_refused_as_the_table_says() {
        let table: [(&str, Result<(), Unfit>); 19] = [
            ("198.51.100.7:47474", Ok(())),
            ("[2001:db8::7]:47474", Ok(())),
            ("[::ffff:198.51.100.7]:1", Ok(())),
            // Somebody's private address: perhaps a peer on this LAN.
            ("192.168.1.77:47474", Ok(())),
            // Another program on this machine is nobody's to reach, but a second anchor may be.
            ("192.168.1.2:47475", Ok(())),
            // On the network this machine is on, though somebody advertises a wider one.
            ("10.1.0.9:47474", Ok(())),
            ("198.51.100.7:0", Err(Unfit::NotUnicast)),
            ("0.0.0.0:47474", Err(Unfit::NotUnicast)),
            ("224.0.0.251:5353", Err(Unfit::NotUnicast)),
            ("[ff02::1]:47474", Err(Unfit::NotUnicast)),
            ("255.255.255.255:47474", Err(Unfit::NotUnicast)),
            ("[fd7f:636f:6e66:6c79::1]:1", Err(Unfit::NotUnicast)),
            ("127.0.0.1:53", Err(Unfit::Loopback)),
            ("[::1]:47474", Err(Unfit::Loopback)),
            ("[fe80::1]:47474", Err(Unfit::LinkLocal)),
            ("[fd80:1:2::7]:47474", Err(Unfit::Overlay)),
            ("198.18.0.7:47474", Err(Unfit::Overlay)),
            ("10.128.0.9:47474", Err(Unfit::Overlay)),
            ("192.168.1.2:47474", Err(Unfit::Own)),
        ];

        let sockets = ["0.0.0.0:47474", "[::]:47474"].map(|at| at.parse().unwrap());
        let addresses = ["192.168.1.2", "10.1.0.2"].map(|at| at.parse().unwrap());
        let connected = ["192.168.1.0/24", "10.1.0.0/24"].map(|at| at.parse().unwrap());
        let overlay = ["fd80:1:2::/48", "198.18.0.0/15"].map(|at| at.parse().unwrap());
        let here = Here {
            sockets: &sockets,
            addresses: &addresses,
            connected: &connected,
            overlay: &overlay,
        };
        let advertised = ["10.128.0.9/32", "10.1.0.0/16"].map(|at| at.parse::<IpNet>().unwrap());
        for (at, expected) in table {
            let at: SocketAddr = at.parse().unwrap();
            let tunnelled = |ip| advertised.iter().any(|network| network.contains(&ip));
            let judged = here.judge(at, tunnelled);
            assert_eq!(judged, expected.map(|()| canonical(at)), "{at}");
        }
    }

    #[test]
    fn an_anchor_on_loopback_takes_others_there_but_not_itself() {
        let sockets = ["127.0.0.1:47474".parse().unwrap()];
        let here = Here {
            sockets: &sockets,
            addresses: &[],
            connected: &[],
            overlay: &[],
        };
        let judge = |at: &str| here.judge(at.parse().unwrap(), |_| false).map(drop);

        assert_eq!(judge("127.0.0.1:47475"), Ok(()));
        assert_eq!(judge("127.0.0.1:47474"), Err(Unfit::Own));
    }

    #[test]
    fn each_reason_has_a_count_and_a_word_of_its_own() {
        let mut counts = UnfitCounts::default();
        for (times, why) in (1..).zip(Unfit::ALL) {
            (0..times).for_each(|_| counts.note(why));
        }

        let counted = Unfit::ALL.map(|why| counts.of(why));
        assert_eq!(counted, [1, 2, 3, 4, 5]);
        let words: std::collections::BTreeSet<_> = Unfit::ALL.map(Unfit::as_str).into();
        assert_eq!(words.len(), Unfit::ALL.len());
    }
}
