//! Two anchors that cannot reach each other, and others that both reach, which may carry for them.

use std::time::Duration;

use super::realm::{Client, Holder, SETTLE_LIMIT, at, port};
use crate::anchor::{Anchor, Options};
use crate::host::Host;
use crate::lab::Lab;
use crate::wait;
use crate::work::{Direction, Transfer};

/// A relay without a limit, which is the default: a first start wants some flag.
pub const OPEN: &str = "--no-relay=false";

/// For transfers, on a machine that is busy.
pub const TRANSFER_LIMIT: Duration = Duration::from_secs(60);

/// Trials of direct paths come 4, 12 and 28 s after the first.
const TRIAL_LIMIT: Duration = Duration::from_secs(40);

/// A client and a holder between whom nothing passes, and anchors that both reach.
pub struct Apart {
    /// The client.
    pub client: Client,
    /// The holder.
    pub holder: Holder,
    /// The relays; the first is the realm's maker.
    pub relays: Vec<Anchor>,
    /// The network.
    pub lab: Lab,
}

impl Apart {
    /// Starts them, with one relay for each of `relays`, its flags, and waits until client and
    /// holder reach each other.
    ///
    /// # Panics
    ///
    /// When they do not, or `relays` is empty.
    pub fn start(lab: Lab, relays: &[&str]) -> Self {
        Self::start_with(lab, relays, [""; 2])
    }

    /// As [`Self::start`], where client and holder are invited with these flags.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    pub fn start_with(lab: Lab, relays: &[&str], ends: [&str; 2]) -> Self {
        let [a, b] = ["a", "b"].map(|name| lab.host(name));
        let hosts: Vec<Host> = (0..relays.len())
            .map(|number| lab.host(&format!("r{number}")))
            .collect();
        lab.between(&a, &b).cut();
        let mut started: Vec<Anchor> = Vec::new();
        let mut ticket = None;
        for (host, flags) in hosts.iter().zip(relays) {
            let mut options = Options::of(flags);
            options.join.clone_from(&ticket);
            let relay = Anchor::start(host, &options);
            ticket.get_or_insert_with(|| relay.invite("--advertise any"));
            started.push(relay);
        }
        let [client, holder] =
            ends.map(|flags| started[0].invite(&format!("{flags} --advertise any")));
        let holder = Holder::start(&b, Some(&holder));
        let client = Client::start(&a, &client);
        let realm = Self {
            client,
            holder,
            relays: started,
            lab,
        };
        wait::until(SETTLE_LIMIT, "the client to reach the holder", || {
            let peers = realm.client.anchor.peers();
            peers.iter().any(|peer| {
                peer.anchor == realm.holder.anchor.id()
                    && peer.state == "connected"
                    && peer.rtt_micros.is_some()
            })
        });
        realm
    }

    /// Begins a transfer between client and holder.
    ///
    /// # Panics
    ///
    /// When the holder does not answer.
    pub fn start_transfer(&self, direction: Direction, bytes: u64) -> Transfer {
        Transfer::start(&self.client.host, at(port::TRANSFER), direction, bytes)
            .expect("the holder answers")
    }

    /// Says whether a transfer is whole, with equal checksums, within [`TRANSFER_LIMIT`].
    ///
    /// # Panics
    ///
    /// As [`Self::start_transfer`].
    pub fn transfer(&self, direction: Direction, bytes: u64) -> bool {
        let transfer = self.start_transfer(direction, bytes);
        transfer.end_within(TRANSFER_LIMIT).is_whole()
    }

    /// Returns by whom client and holder reach each other, as each of them says.
    pub fn relays_in_use(&self) -> [Option<String>; 2] {
        let ends = [
            (&self.client.anchor, &self.holder.anchor),
            (&self.holder.anchor, &self.client.anchor),
        ];
        ends.map(|(near, far)| {
            let peers = near.peers().into_iter();
            let mut rows = peers.filter(|peer| peer.anchor == far.id());
            rows.next().and_then(|peer| peer.relay)
        })
    }

    /// Lets everything pass between client and holder, and waits until both have noticed.
    ///
    /// # Panics
    ///
    /// When they do not.
    pub fn mend(&self) {
        self.lab
            .between(&self.client.host, &self.holder.host)
            .mend();
        wait::until(TRIAL_LIMIT, "both to use the direct path", || {
            self.relays_in_use().iter().all(Option::is_none)
        });
    }

    /// Waits until both ends say that one of these relays is in use.
    ///
    /// # Panics
    ///
    /// When they do not.
    pub fn assert_relayed(&self, by: &[usize]) {
        let allowed: Vec<&str> = by.iter().map(|at| self.relays[*at].id()).collect();
        wait::until(SETTLE_LIMIT, "both ends to tell their relay", || {
            self.relays_in_use()
                .iter()
                .all(|relay| relay.as_deref().is_some_and(|id| allowed.contains(&id)))
        });
    }
}
