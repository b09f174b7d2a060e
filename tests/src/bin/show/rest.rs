//! Points 9 to 11 and the garbage: compartments, shares, secrecy.

use std::net::Ipv4Addr;
use std::time::Duration;

use e2e::hostile::{Hostile, datagram};
use e2e::scenario::{
    COMPARTMENTS, DISTANCES, Flood, Plan, Realm, SHARED, Staying, Town, at, distant_realm, port,
    shares_of,
};
use e2e::wait;
use e2e::work::Requests;

use crate::Effort;
use crate::report::{Report, spread};

pub(crate) fn compartments(report: &mut Report, _effort: &Effort) {
    let mut town = Town::start();
    for (number, (name, _, wanted)) in COMPARTMENTS.iter().enumerate() {
        let met: Vec<String> = town.met_by(number).into_iter().collect();
        report.row(
            format!("a client of {name} and 60 hosts meet"),
            "exactly those it may",
            met.join(", "),
            met == *wanted,
        );
    }
    let (allowed, refused) = (town.holders[0].host.ipv4(), town.holders[1].host.ipv4());
    let mut hostile = Hostile::take_over(&mut town.clients[0].anchor, &["a"]);
    let friend = hostile.approach(allowed).expect("a member is heard");
    let victim = hostile.approach(refused).expect("a member is heard by all");
    let keys = (hostile.obtain_keys(&friend), hostile.obtain_keys(&victim));
    let own = Ipv4Addr::new(192, 0, 0, 2);
    for number in 0..1000 {
        hostile.send(
            &victim,
            &datagram(own, SHARED, port::SINK, number),
            Some(&friend),
        );
    }
    hostile.send(&friend, &datagram(own, SHARED, port::SINK, 1000), None);
    let sink = &town.holders[0].sink;
    wait::until(Duration::from_secs(3), "the allowed datagram", || {
        !sink.arrived().is_empty()
    });
    let arrived = (sink.arrived().len(), town.holders[1].sink.arrived().len());
    report.row(
        "a hostile {a} at {a} and at {b}: keys, packets",
        "at {a} only",
        format!("keys {keys:?}, packets {arrived:?} (1 and 1000 sent)"),
        keys == (true, false) && arrived == (1, 0),
    );
}

pub(crate) fn shares(report: &mut Report, _effort: &Effort) {
    let realm = distant_realm();
    report.say(&realm.clients[0].anchor.say(["peers"]));
    let shares = shares_of(&realm, 3000);
    for (holder, (round_trip, wanted)) in realm.holders.iter().zip(DISTANCES) {
        let share = shares.get(holder.host.name()).copied().unwrap_or(0.0);
        report.row(
            format!("{round_trip} ms: share of 3,000 flows"),
            "within 3 points",
            format!("{:.1} % (wanted {:.1} %)", share * 100.0, wanted * 100.0),
            (share - wanted).abs() <= 0.03,
        );
    }
}

pub(crate) fn secrecy(report: &mut Report, _effort: &Effort) {
    let realm = Realm::start(&Plan::of(1, 1));
    let client = &realm.clients[0];
    let watch = |file: &str| {
        let tcpdump = client.host.command("tcpdump");
        let started = tcpdump.args([
            "--immediate-mode",
            "-Z",
            "root",
            "-U",
            "-ni",
            "eth0",
            "-w",
            file,
        ]);
        let log = client.host.outside_path("/run/tcpdump.log");
        let program = started.spawn(&log).expect("tcpdump is installed");
        wait::until(Duration::from_secs(5), "tcpdump to listen", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("listening on eth0"))
        });
        program
    };
    let tcpdump = watch("/run/through.pcap");
    for _ in 0..50 {
        let answer = client.get();
        answer.unwrap_or_else(|error| panic!("no answer: {error}"));
    }
    wait::pass(Duration::from_millis(300));
    drop(tcpdump);
    let bytes = std::fs::read(client.host.outside_path("/run/through.pcap")).unwrap_or_default();
    for marker in ["GET / HTTP/1.1", "Host: 10.128.0.9", "200 OK"] {
        let found = bytes
            .windows(marker.len())
            .filter(|window| *window == marker.as_bytes());
        let found = found.count();
        report.row(
            format!("\"{marker}\" in tcpdump of 50 requests"),
            "never",
            format!("{found} times in {} bytes", bytes.len()),
            found == 0 && bytes.len() > 20_000,
        );
    }
}

pub(crate) fn garbage(report: &mut Report, effort: &Effort) {
    let count = if effort.is_short {
        1_000_000
    } else {
        10_000_000
    };
    let mut realm = Realm::start(&Plan::of(3, 1));
    let staying = Staying::start(&realm);
    let flood = Flood::prepare(&realm);
    let before: Vec<u64> = realm
        .holders
        .iter()
        .map(|h| h.anchor.resident_bytes())
        .collect();
    let client = realm.clients[0].host.clone();
    let requests = Requests::start(&client, None, at(port::HTTP), 20);
    let (took, arrived) = flood.send(&realm.lab, count);
    let log = requests.stop();
    let stayed = staying.look(&realm);
    let grown: Vec<u64> = realm
        .holders
        .iter()
        .zip(before)
        .map(|(holder, before)| holder.anchor.resident_bytes().saturating_sub(before) / 1024)
        .collect();
    let alive = realm.holders.iter_mut().all(|holder| {
        holder.anchor.ended_within(Duration::ZERO).is_none()
            && holder.anchor.cli(["status"]).code == 0
    });
    report.row(
        format!(
            "{arrived} datagrams handed over in {:.0} s",
            took.as_secs_f64()
        ),
        "no crash",
        format!("all answer: {alive}"),
        alive,
    );
    report.row(
        "resident memory of the holders grew by",
        "no growth (8 MiB of slack)",
        format!("{grown:?} KiB"),
        grown.iter().all(|kibibytes| *kibibytes < 8192),
    );
    let waits: Vec<Duration> = log
        .0
        .iter()
        .map(|request| request.ended - request.began)
        .collect();
    report.row(
        "flows meanwhile",
        "go on",
        format!(
            "{} of {} requests failed, {}; {stayed:?}",
            log.failed().len(),
            log.0.len(),
            spread(&waits)
        ),
        log.failed().is_empty() && stayed.is_calm(),
    );
}
