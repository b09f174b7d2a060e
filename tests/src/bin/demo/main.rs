//! A realm on one machine, told step by step: three machines answer at one address, two clients
//! ask, and the machine in use leaves, dies, is cut off and returns. Root only; about a minute.
//!
//! The machines are network namespaces of this process and go with it.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::{Duration, Instant};

use e2e::scenario::{Client, Fault, Holder, REQUESTS_PER_SECOND, Realm, at, port};
use e2e::work::Requests;
use e2e::{Lab, wait};

fn main() {
    println!("Conflux, {}\n", e2e::anchor::binary().display());
    let mut realm = found();
    who_answers(&realm);
    step("The machine in use says goodbye: conflux down");
    strike(&mut realm, Fault::Down);
    step("The next one dies without a word: kill -9");
    strike(&mut realm, Fault::Kill);
    step("A cable is pulled");
    strike(&mut realm, Fault::Cut);
    step("The end: every machine is up again");
    show(&realm.clients[0], "routes");
    show(&realm.clients[0], "peers");
    show(&realm.clients[0], "flows");
}

fn found() -> Realm {
    step("Three machines, each with a web server that answers its own name");
    let lab = Lab::new();
    let mut holders: Vec<Holder> = Vec::new();
    let mut ticket = None;
    for name in ["node-a", "node-b", "node-c"] {
        let host = lab.host(name);
        let joins = if ticket.is_some() {
            " --join TICKET"
        } else {
            ""
        };
        command(name, &format!("conflux run --ipv4 10.128.0.9{joins}"));
        let holder = Holder::start(&host, ticket.as_deref());
        if ticket.is_none() {
            command(name, "conflux invite");
            ticket = Some(holder.anchor.invite(""));
        }
        println!(
            "    {name} is {}, and answers at 10.128.0.9",
            &holder.anchor.id()[..10]
        );
        holders.push(holder);
    }
    step("Two clients of the realm");
    let ticket = ticket.unwrap_or_default();
    let join = |name: &str| {
        command(name, "conflux run --join TICKET");
        Client::start(&lab.host(name), &ticket)
    };
    let clients = ["client-p", "client-q"].map(join).into();
    let began = Instant::now();
    let realm = Realm {
        holders,
        clients,
        lab,
        ticket,
    };
    realm.settle();
    println!(
        "    all know and have measured each other after {}",
        seconds(began.elapsed())
    );
    show(&realm.clients[0], "routes");
    show(&realm.clients[0], "peers");
    realm
}

fn who_answers(realm: &Realm) {
    step("Who answers? Each client chooses for itself and stays");
    for client in &realm.clients {
        command(client.host.name(), "curl http://10.128.0.9/    (ten times)");
        let names: Vec<String> = (0..10)
            .map(|_| client.get().unwrap_or_else(|error| format!("({error})")))
            .collect();
        println!("    {}", names.join(" "));
    }
    let range = "198.18.0.0/15";
    for holder in &realm.holders {
        let mut seen: Vec<String> = holder.http.seen().iter().map(ToString::to_string).collect();
        seen.dedup();
        if !seen.is_empty() {
            let name = holder.host.name();
            println!(
                "    {name}'s server saw {} ({range}: never a client's own)",
                seen.join(", ")
            );
        }
    }
}

/// Does something to the holder the first client uses, tells what the client noticed, and brings
/// the holder back.
fn strike(realm: &mut Realm, fault: Fault) {
    /// Longer than any outage, so that a long one is told as such.
    const WATCH: Duration = Duration::from_secs(10);
    let client = realm.clients[0].host.clone();
    let requests = Requests::start(&client, None, at(port::HTTP), REQUESTS_PER_SECOND);
    let holder = requests.answered_by();
    let place = realm.place_of(&holder);
    println!(
        "    {} asks {REQUESTS_PER_SECOND} times a second; {holder} answers",
        client.name()
    );
    wait::pass(Duration::from_secs(1));

    let struck = Instant::now();
    let words = match fault {
        Fault::Down => "conflux down",
        Fault::Kill => "kill -9 $(pidof conflux)",
        Fault::Cut => "(cable pulled)",
        Fault::Deaf | Fault::Mute => "(cable damaged)",
        Fault::Stop => "kill -STOP $(pidof conflux)",
    };
    command(&holder, words);
    fault.strike(realm, place);
    let next = wait::until_some(WATCH, "somebody else to answer", || {
        let log = requests.log().since(struck).0;
        log.into_iter()
            .find(|one| one.outcome.as_ref().is_ok_and(|name| *name != holder))
    });
    let next_name = next.outcome.clone().unwrap_or_default();
    wait::pass(Duration::from_secs(1));
    let log = requests.stop();
    let longest = log.since(struck).longest_wait().unwrap_or(WATCH);
    let after = next.ended - struck;
    println!("    {next_name} answers {} later", seconds(after));
    println!(
        "    longest wait of a request: {}; failed requests: {} of {}",
        seconds(longest),
        log.failed().len(),
        log.0.len()
    );
    show(&realm.clients[0], "routes");

    command(&holder, "(returns)");
    fault.undo(realm, place);
    let back = Instant::now();
    realm.settle();
    println!(
        "    {holder} can be used again after {}",
        seconds(back.elapsed())
    );
    let answer = realm.clients[0].get();
    let answer = answer.unwrap_or_else(|error| format!("({error})"));
    println!(
        "    {} stays with {answer}: old flows do not move back",
        client.name()
    );
}

fn step(text: &str) {
    println!("\n── {text}");
}

fn command(host: &str, text: &str) {
    println!("  {host}# {text}");
}

fn show(client: &Client, table: &str) {
    command(client.host.name(), &format!("conflux {table}"));
    for line in client.anchor.say([table]).lines() {
        println!("    {line}");
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}
