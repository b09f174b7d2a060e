//! Points 1 to 3: who answers, what the tables print, how clients look.

use std::collections::BTreeSet;
use std::thread;

use e2e::scenario::{ANSWER_LIMIT, Client, Plan, Realm, at, port};
use e2e::work;

use crate::Effort;
use crate::report::{Report, tally};

pub(crate) fn one_holder(report: &mut Report, effort: &Effort) {
    let realm = Realm::start(&Plan::usual());
    for client in &realm.clients {
        let mut names = Vec::new();
        for _ in 0..effort.runs {
            names.extend(fifty(client));
        }
        let ping = ["-c", "50", "-i", "0.01", "-W", "2", "10.128.0.9"];
        let pinged = client.host.command("ping").args(ping).answer();
        let line = pinged.stdout.lines().find(|line| line.contains("received"));
        let flows = client.holders_of_flows().len();
        let met: BTreeSet<&String> = names.iter().collect();
        report.row(
            format!("client {}: TCP 80, TCP 81, UDP, ping", client.host.name()),
            "one holder",
            format!(
                "{}; {flows} flow; ping: {}",
                tally(&names),
                line.unwrap_or("nothing")
            ),
            met.len() == 1 && flows == 1 && pinged.code == 0,
        );
    }
    drop(realm);
    let realm = Realm::start(&Plan::of(3, 1).with_lan());
    let lan = realm.clients[0].lan.as_ref().expect("the plan has a LAN");
    let names = lan.who_answers(&lan.addresses(1, 60));
    let again = lan.who_answers(&lan.addresses(1, 60));
    let met: BTreeSet<&String> = names.iter().collect();
    report.row(
        "60 hosts behind a --subnet client",
        "all three holders, each host keeps its own",
        format!(
            "{}; {}",
            tally(&names),
            if names == again { "kept" } else { "moved" }
        ),
        met.len() == 3 && names == again,
    );
}

/// Fifty requests in a row and fifty at once, over TCP 80, TCP 81 and UDP in turn.
fn fifty(client: &Client) -> Vec<String> {
    let ask = |number: usize| {
        let answer = match number % 3 {
            0 => work::get(&client.host, None, at(port::HTTP), ANSWER_LIMIT),
            1 => work::get(&client.host, None, at(port::HTTP_TOO), ANSWER_LIMIT),
            _ => work::ask_udp(&client.host, None, at(port::WHO), ANSWER_LIMIT),
        };
        answer.unwrap_or_else(|error| format!("({error})"))
    };
    let mut names: Vec<String> = (0..50).map(ask).collect();
    thread::scope(|scope| {
        let asking: Vec<_> = (0..50)
            .map(|number| scope.spawn(move || ask(number)))
            .collect();
        names.extend(asking.into_iter().filter_map(|thread| thread.join().ok()));
    });
    names
}

pub(crate) fn tables(report: &mut Report, _effort: &Effort) {
    let realm = Realm::start(&Plan::usual());
    let sides = [
        ("client", &realm.clients[0].anchor),
        ("holder", &realm.holders[0].anchor),
    ];
    for (side, anchor) in sides {
        for table in ["routes", "peers"] {
            report.say(&format!("{side}$ conflux {table}\n{}", anchor.say([table])));
        }
        let metrics = anchor.say(["metrics"]);
        let lines: Vec<&str> = metrics
            .lines()
            .filter(|line| line.contains("anchor_route_groups"))
            .collect();
        let wanted = if side == "client" {
            "anchor_route_groups 1"
        } else {
            "anchor_route_groups 0"
        };
        report.row(
            format!("{side}: metrics | grep anchor_route_groups"),
            "one line: 1 on the client, 0 on a holder",
            lines.join(" / "),
            lines == [wanted],
        );
    }
}

pub(crate) fn sources(report: &mut Report, _effort: &Effort) {
    let realm = Realm::start(&Plan::of(1, 2));
    for client in &realm.clients {
        for _ in 0..10 {
            let answer = client.get();
            answer.unwrap_or_else(|error| panic!("{}: {error}", client.host.name()));
        }
    }
    let seen: Vec<String> = realm.holders[0]
        .http
        .seen()
        .iter()
        .map(ToString::to_string)
        .collect();
    let inside = seen
        .iter()
        .all(|ip| ip.starts_with("198.18.") || ip.starts_with("198.19."));
    let different: BTreeSet<&String> = seen.iter().collect();
    report.row(
        "sources in the server's log, 2 clients x 10",
        "two addresses of 198.18.0.0/15",
        tally(&seen),
        inside && different.len() == 2,
    );
}
