//! Three compartments at one address: a holder and a client with a LAN for each of {a}, {b} and
//! {a,b}, beside the realm's maker.

use std::collections::BTreeSet;
use std::time::Duration;

use super::realm::{Client, Holder, SETTLE_LIMIT, SHARED_NETWORK};
use crate::anchor::{Anchor, Options};
use crate::lab::Lab;
use crate::wait;

/// The compartments: a holder's name, the flags of its ticket, and the holders a client of it may
/// use.
pub const COMPARTMENTS: [(&str, &str, &[&str]); 3] = [
    ("a", "--taint a", &["a", "ab"]),
    ("b", "--taint b", &["ab", "b"]),
    ("ab", "--taint a --taint b", &["a", "ab", "b"]),
];

/// The running realm; clients and holders in the order of [`COMPARTMENTS`].
pub struct Town {
    /// One client for each compartment.
    pub clients: Vec<Client>,
    /// One holder for each compartment.
    pub holders: Vec<Holder>,
    /// A ticket for each compartment.
    pub tickets: Vec<String>,
    /// The network.
    pub lab: Lab,
    _maker: Anchor,
}

impl Town {
    /// Starts it and waits until every client knows all and has measured those it may use.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn start() -> Self {
        let lab = Lab::new();
        // Beside which the noise of a busy machine is small: equal costs.
        lab.everywhere()
            .change(|way| way.delay = Duration::from_millis(5));
        let maker = Anchor::start(&lab.host("maker"), &Options::of("--taint a --taint b"));
        let invite = |taints: &str| maker.invite(&format!("{taints} --advertise any"));
        let tickets: Vec<String> = COMPARTMENTS.map(|(_, taints, _)| invite(taints)).into();
        let named = || COMPARTMENTS.iter().zip(&tickets).enumerate();
        let holders = named()
            .map(|(_, ((name, _, _), ticket))| Holder::start(&lab.host(name), Some(ticket)))
            .collect();
        let clients = named()
            .map(|(number, ((name, _, _), ticket))| {
                Client::with_lan(&lab, &lab.host(&format!("client-{name}")), number, ticket)
            })
            .collect();
        let town = Self {
            clients,
            holders,
            tickets,
            lab,
            _maker: maker,
        };
        town.settle();
        town
    }

    /// Returns which holders 60 hosts behind client `number` meet.
    ///
    /// # Panics
    ///
    /// When one is not answered.
    pub fn met_by(&self, number: usize) -> BTreeSet<String> {
        let lan = self.clients[number]
            .lan
            .as_ref()
            .expect("each client has a LAN");
        lan.who_answers(&lan.addresses(1, 60)).into_iter().collect()
    }

    fn settle(&self) {
        for (client, (name, _, wanted)) in self.clients.iter().zip(COMPARTMENTS) {
            let what = format!("client {name} to know all and to have measured its holders");
            wait::until(SETTLE_LIMIT, &what, || {
                let peers = client.anchor.peers();
                let row = client.anchor.route(SHARED_NETWORK);
                let usable = peers.iter().filter(|peer| peer.ipv4.is_some());
                peers.len() == 2 * COMPARTMENTS.len()
                    && row.is_some_and(|row| row.via.len() == wanted.len())
                    && usable.clone().count() == wanted.len()
                    && usable.clone().all(|peer| peer.rtt_micros.is_some())
            });
        }
    }
}
