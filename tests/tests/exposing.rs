//! `--expose`: only chosen ports are let in from the overlay, by the anchor and not by the host's
//! firewall; what this machine asks is answered; a change takes effect at once.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use e2e::scenario::{ANSWER_LIMIT, Client, Holder, SETTLE_LIMIT, SHARED, at, port};
use e2e::work::{self, UdpService};
use e2e::{Lab, Options, wait};

/// A refusal is told, and not waited for.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

#[test]
fn only_exposed_ports_are_reached_and_refusals_are_told_at_once() {
    let realm = Exposing::start();
    let (host, holder) = (&realm.client.host, &realm.holder);

    assert_eq!(realm.client.get().unwrap(), holder.host.name());
    let who = work::ask_udp(host, None, at(port::WHO), ANSWER_LIMIT);
    assert!(who.is_ok(), "{who:?}");
    for target in [
        at(port::HTTP_TOO),
        SocketAddr::new(holder.anchor.overlay().into(), port::HTTP_TOO),
    ] {
        let begun = Instant::now();
        let refused = work::get(host, None, target, ANSWER_LIMIT);

        assert!(refused.is_err(), "{target}: {refused:?}");
        assert!(
            begun.elapsed() < TOLD_WITHIN,
            "{target}: {:?}",
            begun.elapsed()
        );
    }
    let overlay = SocketAddr::new(holder.anchor.overlay().into(), port::HTTP);
    assert!(work::get(host, None, overlay, ANSWER_LIMIT).is_ok());
    let here = SocketAddr::new(IpAddr::V4(SHARED), port::HTTP_TOO);
    assert!(
        work::get(&holder.host, None, here, ANSWER_LIMIT).is_ok(),
        "its own"
    );
    let dropped = holder.anchor.say(["metrics"]);
    let counted = dropped
        .lines()
        .find(|line| line.contains("reason=\"not-exposed\""))
        .unwrap();
    assert!(!counted.ends_with(" 0"), "{counted}");
}

#[test]
fn what_an_exposing_machine_asks_is_answered() {
    let realm = Exposing::start();
    let (asking, asked) = (&realm.holder.host, &realm.client);
    let _who = UdpService::echo(&asked.host, port::WHO, "p");
    let target = SocketAddr::new(asked.anchor.overlay().into(), port::WHO);

    let answer = work::ask_udp(asking, None, target, ANSWER_LIMIT);

    assert!(answer.is_ok(), "{answer:?}");
}

#[test]
fn another_choice_of_ports_holds_at_once_and_is_shown() {
    let realm = Exposing::start();
    let anchor = &realm.holder.anchor;
    assert!(
        anchor
            .say(["status"])
            .contains("exposed     tcp:80,udp:70\n")
    );

    anchor.say(["up", "--no-service", "--expose", "tcp:81"]);
    assert!(realm.get(port::HTTP).is_err());
    assert!(realm.get(port::HTTP_TOO).is_ok());
    anchor.say(["up", "--no-service", "--expose", "none"]);
    assert!(realm.get(port::HTTP).is_ok());

    assert!(anchor.say(["status"]).contains("exposed     all ports\n"));
    let wrong = anchor.cli(["up", "--no-service", "--expose", "80"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
}

/// A holder that lets in HTTP and one service by UDP, and a client.
struct Exposing {
    client: Client,
    holder: Holder,
    _lab: Lab,
}

impl Exposing {
    fn start() -> Self {
        let lab = Lab::new();
        let options = Options::of("--ipv4 10.128.0.9 --expose tcp:80,udp:70");
        let holder = Holder::start_with(&lab.host("a"), &options);
        let ticket = holder.anchor.invite("");
        let client = Client::start(&lab.host("p"), &ticket);
        wait::until(SETTLE_LIMIT, "the client to see the holder", || {
            let peers = client.anchor.peers();
            peers
                .iter()
                .any(|peer| peer.data == Some(true) && peer.rtt_micros.is_some())
        });
        Self {
            client,
            holder,
            _lab: lab,
        }
    }

    fn get(&self, port: u16) -> std::io::Result<String> {
        work::get(&self.client.host, None, at(port), ANSWER_LIMIT)
    }
}
