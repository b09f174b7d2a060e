//! Costs by distance: three holders at round trips of 6, 25 and 105 ms, and how many new flows
//! each one gets.

use std::collections::BTreeMap;
use std::time::Duration;

use super::realm::{Plan, Realm, SETTLE_LIMIT};
use crate::lab::Lab;
use crate::wait;

/// Round trips of holders a, b and c in milliseconds, and the share SPEC section 4 gives each.
pub const DISTANCES: [(u32, f64); 3] = [(6, 0.707), (25, 0.215), (105, 0.078)];

/// Starts three holders at [`DISTANCES`] from a client with a LAN, and waits until it has
/// measured them.
///
/// # Panics
///
/// When the realm does not come up or the measures do not come near.
pub fn distant_realm() -> Realm {
    let realm = Realm::start_in(Lab::new(), &Plan::of(3, 0).with_lan());
    let host = realm.lab.host("far-client");
    for (holder, (round_trip, _)) in realm.holders.iter().zip(DISTANCES) {
        let one_way = Duration::from_millis(round_trip.into()) / 2;
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
    realm
}

/// Opens `flows` new flows, each from a LAN host of its own, and returns each holder's share.
///
/// # Panics
///
/// When one is not answered.
pub fn shares_of(realm: &Realm, flows: u32) -> BTreeMap<String, f64> {
    let lan = realm.clients[0]
        .lan
        .as_ref()
        .expect("the realm was made with a LAN");
    let mut shares = BTreeMap::new();
    for name in lan.who_answers(&lan.addresses(1, flows)) {
        *shares.entry(name).or_insert(0.0) += 1.0 / f64::from(flows);
    }
    shares
}
