//! The verbs, as a user without a service manager meets them: exit codes, what is printed, what
//! stays.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use e2e::anchor::binary;
use e2e::host::Answer;
use e2e::{Anchor, Host, Lab, Options, wait};

/// None of the commands may take longer on a stuck daemon.
const NO_HANG: Duration = Duration::from_millis(5500);

#[test]
fn up_down_start_and_uninstall_do_what_they_print() {
    let lab = Lab::new();
    let host = lab.host("host");

    let up = conflux(&host, &["up", "--ipv4", "10.128.0.9"]);
    let bound = host.enter(|| std::net::TcpListener::bind(("10.128.0.9", 80)).map(drop));
    let down = conflux(&host, &["down"]);
    let after_down = host.enter(|| std::net::TcpListener::bind(("10.128.0.9", 80)).map(drop));
    let started = conflux(&host, &["start"]);
    let status = conflux(&host, &["status"]);
    let uninstalled = conflux(&host, &["uninstall", "--yes"]);

    assert_eq!(up.code, 0, "{up:?}");
    assert!(up.stdout.contains("10.128.0.9"), "{up:?}");
    assert!(
        up.stdout.contains("--join"),
        "no command that joins the next one: {up:?}"
    );
    assert!(
        up.stderr.contains("boot"),
        "not told that it does not return at boot: {up:?}"
    );
    bound.expect("the address can be bound when `up` returns");
    assert_eq!(down.code, 0, "{down:?}");
    for word in ["stopped", "configuration", "start", "uninstall"] {
        assert!(down.stdout.contains(word), "no {word}: {down:?}");
    }
    assert!(after_down.is_err(), "the address is still there");
    assert_eq!(
        (started.code, status.code),
        (0, 0),
        "{started:?} {status:?}"
    );
    assert!(
        status.stdout.contains("10.128.0.9"),
        "the configuration was lost: {status:?}"
    );
    assert_eq!(uninstalled.code, 0, "{uninstalled:?}");
    assert!(!host.outside_path("/run/anchor/state").exists());
    assert!(!host.outside_path("/run/anchor/etc/conflux.toml").exists());
}

#[test]
fn the_printed_joining_command_works_on_the_next_machine() {
    let lab = Lab::new();
    let (one, two) = (lab.host("one"), lab.host("two"));
    let up = conflux(&one, &["up", "--ipv4", "10.128.0.9"]);
    let ticket = conflux(&one, &["invite"]).stdout;
    let hint = up
        .stdout
        .lines()
        .find(|line| line.contains("--join"))
        .expect("a hint");
    assert!(
        !hint.contains(ticket.trim()),
        "the hint shows the ticket in the process list"
    );

    let joined = two
        .command(binary())
        .args(["--dir", "/run/anchor", "up", "--join", "-"])
        .input(ticket)
        .answer_within(Duration::from_secs(25));
    let routes = conflux(&two, &["routes"]);

    assert_eq!(joined.code, 0, "{joined:?}");
    assert!(!joined.stderr.contains("warning"), "{joined:?}");
    assert!(routes.stdout.contains("10.128.0.9/32"), "{routes:?}");
}

#[test]
fn up_again_with_another_address_changes_it_live_and_keeps_the_rest() {
    let lab = Lab::new();
    let (one, two) = (lab.host("one"), lab.host("two"));
    let first = conflux(&one, &["up", "--ipv4", "10.128.0.9"]);
    let client = Anchor::start(&two, &Options::default().joining(&ticket(&one)));
    wait::until(Duration::from_secs(10), "the first address", || {
        client.route("10.128.0.9/32").is_some()
    });
    let id = id(&one);

    let again = conflux(&one, &["up", "--ipv4", "10.128.0.10"]);

    assert_eq!((first.code, again.code), (0, 0), "{again:?}");
    wait::until(Duration::from_secs(3), "the change to be told", || {
        client.route("10.128.0.9/32").is_none()
            && client
                .route("10.128.0.10/32")
                .is_some_and(|row| row.via == [id.clone()])
    });
    assert_eq!(client.peers().len(), 1, "the identity was kept");
}

#[test]
fn up_with_endpoints_that_cannot_be_reached_warns_and_keeps_trying() {
    let lab = Lab::new();
    let (one, two) = (lab.host("one"), lab.host("two"));
    let mut maker = Anchor::start(&one, &Options::of("--ipv4 10.128.0.9"));
    let ticket = maker.invite("");
    maker.kill();

    let up = two
        .command(binary())
        .args(["--dir", "/run/anchor", "up", "--join", "-"])
        .input(ticket)
        .answer_within(Duration::from_secs(25));
    maker.run();

    assert_eq!(up.code, 0, "{up:?}");
    assert!(up.stderr.contains("warning"), "{up:?}");
    wait::until(
        Duration::from_secs(15),
        "the join to succeed by itself",
        || conflux(&two, &["routes"]).stdout.contains("10.128.0.9/32"),
    );
}

#[test]
fn commands_without_a_daemon_end_with_69_or_78() {
    let lab = Lab::new();
    let host = lab.host("host");

    for verb in [
        "status", "routes", "peers", "flows", "metrics", "invite", "down",
    ] {
        let answer = conflux(&host, &[verb]);

        assert_eq!(answer.code, 69, "{verb}: {answer:?}");
        assert!(
            answer.stdout.is_empty() && !answer.stderr.is_empty(),
            "{verb}: {answer:?}"
        );
    }
    assert_eq!(conflux(&host, &["start"]).code, 78);
    assert_eq!(conflux(&host, &["uninstall", "--yes"]).code, 69);
    assert_eq!(conflux(&host, &["version"]).code, 0);
    assert_eq!(conflux(&host, &["nonsense"]).code, 2);
}

#[test]
fn no_command_hangs_on_a_stuck_daemon() {
    let lab = Lab::new();
    let host = lab.host("host");
    let mut anchor = Anchor::start(&host, &Options::of("--ipv4 10.128.0.9"));
    anchor.signal(Signal::SIGSTOP);

    for verb in [
        "status", "routes", "peers", "flows", "metrics", "invite", "version", "down",
    ] {
        let began = Instant::now();
        let answer = anchor.cli([verb]);

        let took = began.elapsed();
        assert!(took < NO_HANG, "{verb} took {took:?}");
        assert!(
            answer.code != 0 || matches!(verb, "version" | "down"),
            "{verb}: {answer:?}"
        );
    }
    anchor.kill();
}

#[test]
fn run_repeated_with_its_flags_keeps_the_identity_as_a_container_would() {
    let lab = Lab::new();
    let host = lab.host("host");
    let mut anchor = Anchor::start(&host, &Options::of("--ipv4 10.128.0.9"));
    let (id, overlay) = (anchor.id().to_owned(), anchor.overlay());

    anchor.down();
    anchor.run();

    assert_eq!((anchor.id(), anchor.overlay()), (id.as_str(), overlay));
}

#[test]
fn a_second_daemon_of_one_directory_is_refused() {
    let lab = Lab::new();
    let anchor = Anchor::start(&lab.host("host"), &Options::of("--ipv4 10.128.0.9"));

    let second = anchor
        .command()
        .arg("run")
        .answer_within(Duration::from_secs(5));

    assert_eq!(second.code, 1, "{second:?}");
    assert_eq!(anchor.cli(["status"]).code, 0);
}

#[test]
fn invite_prints_the_ticket_alone() {
    let lab = Lab::new();
    let anchor = Anchor::start(&lab.host("host"), &Options::of("--ipv4 10.128.0.9"));

    let ticket = anchor.say(["invite", "--expires", "30m", "--advertise", "none"]);

    assert_eq!(ticket.lines().count(), 1, "{ticket}");
    assert!(!ticket.trim().contains(' '), "{ticket}");
}

fn conflux(host: &Host, args: &[&str]) -> Answer {
    host.command(binary())
        .args(["--dir", "/run/anchor"])
        .args(args)
        .answer_within(Duration::from_secs(25))
}

fn ticket(host: &Host) -> String {
    conflux(host, &["invite"]).stdout.trim().to_owned()
}

fn id(host: &Host) -> String {
    let json = conflux(host, &["status", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    json["anchor"].as_str().expect("an id").to_owned()
}
