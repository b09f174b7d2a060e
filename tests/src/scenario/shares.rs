//! Costs by distance: three holders at round trips of 6, 25 and 105 ms, and how many new flows
//! each one gets.

use std::collections::BTreeMap;
use std::time::Duration;

use super::realm::{Lan, Plan, Realm, SETTLE_LIMIT};
use crate::lab::Lab;
use crate::wait;

/// Costs of holders a, b and c in milliseconds, and the share SPEC section 4 gives each.
pub const DISTANCES: [(u32, f64); 3] = [(6, 0.707), (25, 0.215), (105, 0.078)];

/// The first of the LAN's hosts that only warm up.
const WARM_UP_HOST: u32 = 50_000;

/// What hosts, forwarder and service add to each way themselves, about: a holder's cost is all of
/// it, the round trip and the answer time.
const OWN_DELAY: Duration = Duration::from_micros(200);

/// Starts three holders at [`DISTANCES`] from a client with a LAN, and waits until it has
/// measured them and their services.
///
/// # Panics
///
/// When the realm does not come up or the measures do not come near.
pub fn distant_realm() -> Realm {
    let realm = Realm::start_in(Lab::new(), &Plan::of(3, 0).with_lan());
    let host = realm.lab.host("far-client");
    for (holder, (round_trip, _)) in realm.holders.iter().zip(DISTANCES) {
        let one_way = Duration::from_millis(round_trip.into()) / 2 - OWN_DELAY;
        realm
            .lab
            .between(&host, &holder.host)
            .change(|way| way.delay = one_way);
    }
    let client = super::Client::with_lan(&realm.lab, &host, 0, &realm.ticket);
    let mut realm = realm;
    realm.clients.push(client);
    realm.settle();
    wait::until(SETTLE_LIMIT, "round trips near the real ones", || {
        let peers = realm.clients[0].anchor.peers();
        realm
            .holders
            .iter()
            .zip(DISTANCES)
            .all(|(holder, (round_trip, _))| {
                let peer = peers.iter().find(|peer| peer.anchor == holder.anchor.id());
                let measured = peer.and_then(|peer| peer.rtt_micros).unwrap_or(0) as f64 / 1000.0;
                (measured / f64::from(round_trip) - 1.0).abs() < 0.25
            })
    });
    warm_up(&realm);
    realm
}

/// Has the client measure how fast the services answer, as it has after some minutes of use: one
/// answer alone, which may have come late, would stand for all.
fn warm_up(realm: &Realm) {
    const ROUNDS: u32 = 6;
    const FLOWS: u32 = 40;
    let lan = lan(realm);
    for round in 0..ROUNDS {
        lan.who_answers(&lan.addresses(WARM_UP_HOST + round * FLOWS, FLOWS));
        // No holder's answers count more often than once a second.
        wait::pass(Duration::from_secs(1));
    }
}

fn lan(realm: &Realm) -> &Lan {
    let lan = realm.clients[0].lan.as_ref();
    lan.expect("the realm was made with a LAN")
}

/// Opens `flows` new flows, each from a LAN host of its own, and returns each holder's share.
///
/// # Panics
///
/// When one is not answered.
pub fn shares_of(realm: &Realm, flows: u32) -> BTreeMap<String, f64> {
    let lan = lan(realm);
    let mut shares = BTreeMap::new();
    for name in lan.who_answers(&lan.addresses(1, flows)) {
        *shares.entry(name).or_insert(0.0) += 1.0 / f64::from(flows);
    }
    shares
}
