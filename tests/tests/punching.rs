//! Two anchors behind NATs that let nobody in find a direct path: each learns from others how it is
//! seen, and both try at one moment what a relay has brought them.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::time::Duration;

use e2e::scenario::{Client, Holder, SETTLE_LIMIT};
use e2e::wait;
use e2e::{Anchor, Host, Lab, Options};

/// Trials come 4, 12 and 28 s after the first.
const TRIAL_LIMIT: Duration = Duration::from_secs(40);

/// A mapping for each inner port, kept for all destinations; only who was sent to is let in.
const CONE: &str = "masquerade";

/// A mapping for each destination, at a port that nobody can foresee.
const SYMMETRIC: &str = "masquerade fully-random";

#[test]
fn two_behind_cone_nats_meet_directly() {
    let realm = Behind::start([CONE, CONE]);

    assert_eq!(realm.client.get().unwrap().trim(), "b");
    wait::until(TRIAL_LIMIT, "a direct path both ways", || {
        realm.relays_in_use().iter().all(Option::is_none)
    });

    assert_eq!(realm.client.get().unwrap().trim(), "b");
    assert_eq!(realm.client.anchor.json("status")["reach"], "nat-cone");
    let failures = realm.client.anchor.metric("anchor_holder_failures_total");
    assert_eq!(failures, 0.0);
}

#[test]
fn two_behind_symmetric_nats_stay_with_their_relay_and_say_so() {
    let realm = Behind::start([SYMMETRIC, SYMMETRIC]);

    assert_eq!(realm.client.get().unwrap().trim(), "b");

    let reach = || realm.client.anchor.json("status")["reach"].clone();
    wait::until(SETTLE_LIMIT, "the class of the NAT", || {
        reach() == "nat-symmetric"
    });
    assert!(realm.relays_in_use().iter().all(Option::is_some));
    assert_eq!(realm.client.get().unwrap().trim(), "b");
}

/// A client and a holder, each behind a router that translates, and two anchors that are not.
struct Behind {
    client: Client,
    holder: Holder,
    _relays: [Anchor; 2],
    _lab: Lab,
}

impl Behind {
    fn start(nats: [&str; 2]) -> Self {
        let lab = Lab::new();
        let [near, far] = ["ra", "rb"].map(|name| lab.host(name));
        let [one, two] = ["one", "two"].map(|name| lab.host(name));
        let a = lab.lan(&near, "a", "192.168.1.0/24".parse().unwrap());
        let b = lab.lan(&far, "b", "192.168.2.0/24".parse().unwrap());
        for (router, nat) in [(&near, nats[0]), (&far, nats[1])] {
            translate(router, nat);
        }
        let first = Anchor::start(&one, &Options::of("--no-relay=false"));
        let ticket = first.invite("--advertise any");
        let second = Anchor::start(&two, &Options::default().joining(&ticket));
        let holder = Holder::start(&b, Some(&ticket));
        let client = Client::start(&a, &ticket);
        let realm = Self {
            client,
            holder,
            _relays: [first, second],
            _lab: lab,
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

    /// By whom client and holder reach each other, as each of them says.
    fn relays_in_use(&self) -> [Option<String>; 2] {
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
}

/// Has a router translate what leaves it, and drop what nobody behind it has asked for.
fn translate(router: &Host, nat: &str) {
    let rules = format!(
        "table ip nat {{\n\
         chain out {{ type nat hook postrouting priority 100; oifname \"eth0\" {nat} }}\n\
         chain in {{ type filter hook input priority 0; iifname \"eth0\" udp dport 1-65535 drop }}\n\
         chain through {{ type filter hook forward priority 0;\n\
         iifname \"eth0\" ct state new drop }}\n\
         }}\n"
    );
    router.command("nft").args(["-f", "-"]).input(rules).must();
}
