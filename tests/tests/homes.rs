//! An anchor whose machine has several addresses: it is heard by whoever reaches it at any of them.

use std::time::Duration;

use e2e::nat::{Nat, Site};
use e2e::scenario::{Client, Holder};
use e2e::{Lab, wait};

/// For connections, keys and a first answer, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(15);

/// The router before the client lets in only what comes from where the client sent to; what the
/// kernel would send from by itself is the other address.
#[test]
fn a_holder_answers_from_the_address_at_which_it_is_reached() {
    let lab = Lab::new();
    let host = lab.host("holder");
    let first = host.ipv4();
    host.ip(["addr add 10.99.0.200/24 dev eth0"]);
    let rules = format!(
        "table ip closed {{ chain in {{ type filter hook input priority 0; ip daddr {first} udp dport 47474 drop; }}; }}\n"
    );
    host.command("nft").args(["-f", "-"]).input(rules).must();
    let holder = Holder::start(&host, None);
    let home = Site::start(&lab, "laptop", Nat::PortRestricted);

    let client = Client::start(&home.machine, &holder.anchor.invite(""));

    wait::until(PATIENCE, "an answer from the other address", || {
        client.get().is_ok_and(|answer| answer.trim() == "holder")
    });
    let peers = client.anchor.peers();
    let endpoints: Vec<_> = peers.iter().filter_map(|peer| peer.endpoint).collect();
    assert_eq!(
        endpoints,
        ["10.99.0.200:47474".parse().expect("an address")]
    );
}
