//! `--check`: a holder steps back while its own service does not work.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use e2e::scenario::{Client, Holder, SHARED_NETWORK, at, port};
use e2e::work::{HttpServer, Requests};
use e2e::{Anchor, Host, Lab, Options, wait};
use serde_json::Value;

/// The service whose health is checked.
const HEALTH: u16 = 8088;
/// Two runs that fail or three that succeed, each a second after the last, and a limit of five
/// seconds for one that hangs.
const TURNS: Duration = Duration::from_secs(15);

#[test]
fn a_holder_whose_service_stops_is_left_and_used_again_once_it_works() {
    let lab = Lab::new();
    let checked = lab.host("a");
    let health = HttpServer::start(&checked, HEALTH, "fine");
    let first = Holder::start_with(
        &checked,
        &Options::of("--ipv4 10.128.0.9 --check http://127.0.0.1:8088/health"),
    );
    let ticket = first.anchor.invite("--advertise any");
    let client = Client::start(&lab.host("p"), &ticket);
    wait::until(TURNS, "the checked holder to be offered", || {
        client.get().is_ok_and(|name| name == "a")
    });
    let second = Holder::start(&lab.host("b"), Some(&ticket));
    wait::until(TURNS, "both holders", || via(&client.anchor) == 2);
    let requests = Requests::start(&client.host, None, at(port::HTTP), 20);
    assert_eq!(requests.answered_by(), "a");

    drop(health);

    wait::until(TURNS, "the holder to be withdrawn", || {
        via(&client.anchor) == 1
    });
    assert_eq!(requests.answered_by(), "b");
    let check = check(&first.anchor);
    assert_eq!(check["state"], "failing", "{check}");
    assert_eq!(check["withdrawn"], true, "{check}");
    assert!(
        check["last_error"].as_str().unwrap().contains("refused"),
        "{check}"
    );
    let status = first.anchor.say(["status"]);
    assert!(status.contains("mend the service"), "{status}");
    assert_eq!(first.anchor.metric("anchor_check_withdrawn"), 1.0);
    // The machine itself still reaches its own service at the address.
    assert_eq!(
        e2e::work::get(&checked, None, at(port::HTTP), TURNS).unwrap(),
        "a"
    );
    // A move resets what is under way, as after a goodbye, and nothing else fails.
    assert!(requests.log().failed().len() <= 1, "{:?}", requests.log());

    let _health = HttpServer::start(&checked, HEALTH, "fine");
    wait::until(TURNS, "the holder to return", || via(&client.anchor) == 2);
    assert_eq!(requests.answered_by(), "b");
    drop(second);
}

#[test]
fn a_holder_is_not_offered_before_its_service_works_nor_after_the_check_is_cleared() {
    let lab = Lab::new();
    let host = lab.host("a");
    let holder = Anchor::start(&host, &Options::of("--ipv4 10.128.0.9 --check tcp:8088"));
    let ticket = holder.invite("--advertise any");
    let client = Client::start(&lab.host("p"), &ticket);
    wait::until(TURNS, "the check to fail", || {
        check(&holder)["state"] == "failing"
    });
    assert_eq!(via(&client.anchor), 0);

    let _service = HttpServer::start(&host, HEALTH, "fine");
    wait::until(TURNS, "the address", || via(&client.anchor) == 1);

    holder.say(["up", "--no-service", "--check", "tcp:1"]);
    wait::until(TURNS, "the new check to withdraw it", || {
        via(&client.anchor) == 0
    });
    holder.say(["up", "--no-service", "--check", "none"]);
    wait::until(TURNS, "the address without a check", || {
        via(&client.anchor) == 1
    });
    assert!(holder.json("status")["check"].is_null());
}

#[test]
fn a_program_runs_as_nobody_without_capabilities_or_a_way_to_gain_them() {
    let (holder, host, _lab) = holder_with_script(
        "id -u >/run/check/uid; id -G >>/run/check/uid
         grep -E '^(CapPrm|CapEff|CapAmb|NoNewPrivs)' /proc/self/status >/run/check/status
         env >/run/check/env; cat /run/anchor/state/identity.seed >/run/check/seed 2>&1
         echo $0 $@ >/run/check/args",
        "--fast twice",
    );
    wait::until(TURNS, "the check to pass", || {
        check(&holder)["state"] == "passing"
    });
    let said =
        |name: &str| fs::read_to_string(host.outside_path(&format!("/run/check/{name}"))).unwrap();

    let nobody = host.command("id").args(["-u", "nobody"]).must();
    let group = host.command("id").args(["-g", "nobody"]).must();
    assert_eq!(said("uid"), format!("{nobody}{group}"));
    let status = said("status");
    for line in status.lines() {
        let (name, value) = line.split_once(':').unwrap();
        let wanted = if name == "NoNewPrivs" { 1 } else { 0 };
        let value = u64::from_str_radix(value.trim(), 16).unwrap();
        assert_eq!(value, wanted, "{status}");
    }
    assert!(said("env").contains("CONFLUX_IPV4=10.128.0.9"));
    assert!(!said("env").contains("HOME="), "{}", said("env"));
    assert!(
        said("seed").contains("ermission denied"),
        "{}",
        said("seed")
    );
    assert!(said("args").contains("--fast twice"));
}

#[test]
fn programs_that_fail_hang_flood_or_are_not_there_are_failures_that_status_tells() {
    for (body, word) in [
        (
            "echo the database is away >&2; exit 3",
            "exit code 3: the database is away",
        ),
        ("sleep 1000 & sleep 1000", "no end after 5 s"),
        ("yes flood", "exit code 141: flood flood"),
        ("kill -9 $$", "ended by SIGKILL"),
    ] {
        let (holder, host, _lab) = holder_with_script(body, "");

        wait::until(TURNS, word, || {
            let check = check(&holder);
            check["state"] == "failing"
                && check["last_error"]
                    .as_str()
                    .is_some_and(|error| error.contains(word))
        });

        // Whoever hung was killed with all it had started: one run's processes at most are there.
        wait::until(TURNS, "no sleeper to be left behind", || {
            let sleepers = host.command("pgrep").args(["-c", "sleep"]).answer();
            sleepers
                .stdout
                .trim()
                .parse::<u32>()
                .is_ok_and(|count| count <= 2)
        });
        assert!(holder.resident_bytes() < 64 << 20);
    }
    let lab = Lab::new();
    let host = lab.host("a");
    let holder = Anchor::start(
        &host,
        &Options {
            flags: ["--ipv4", "10.128.0.9", "--check", "exec:/nowhere/check"]
                .map(str::to_owned)
                .to_vec(),
            ..Options::default()
        },
    );
    wait::until(TURNS, "a missing program to be told", || {
        check(&holder)["last_error"]
            .as_str()
            .is_some_and(|error| error.contains("/nowhere/check cannot be run"))
    });
}

#[test]
fn a_service_that_flaps_has_to_prove_itself_for_longer() {
    let (holder, host, _lab) = holder_with_script("exit $(cat /run/check/code)", "");
    let set = |code: &str| fs::write(host.outside_path("/run/check/code"), code).unwrap();
    let until = |state: &str| {
        wait::until(Duration::from_secs(30), state, || {
            check(&holder)["state"] == state
        });
    };
    set("0");
    until("passing");
    set("1");
    until("failing");
    set("0");
    until("passing");
    set("1");
    until("failing");
    set("0");
    wait::until(TURNS, "the runs to succeed again", || {
        check(&holder)["last_error"].is_null()
    });

    let status = holder.say(["status"]);

    assert!(status.contains("has to 6 times in a row"), "{status}");
}

#[test]
fn what_is_no_check_is_refused_and_one_without_an_address_is_idle() {
    let lab = Lab::new();
    let holder = Anchor::start(&lab.host("a"), &Options::of("--check tcp:8088"));

    for (spec, word) in [
        ("udp:53", "none of the known kinds"),
        ("tcp:99999", "1 to 65535"),
        ("http://10.1.1.1:80/", "of this machine"),
        ("exec:relative", "absolute path"),
    ] {
        let refused = holder.cli(["up", "--no-service", "--check", spec]);

        assert_eq!(refused.code, 2, "{spec}: {refused:?}");
        assert!(refused.stderr.contains(word), "{spec}: {refused:?}");
    }
    assert_eq!(check(&holder)["spec"], "tcp:8088");
    assert_eq!(check(&holder)["state"], "idle");
    assert_eq!(check(&holder)["withdrawn"], false);
}

/// A holder whose check is a script with this body, and these arguments.
fn holder_with_script(body: &str, arguments: &str) -> (Anchor, Host, Lab) {
    let lab = Lab::new();
    let host = lab.host("a");
    // Where the program, as nobody, may write.
    let notes = host.outside_path("/run/check");
    fs::create_dir(&notes).expect("a host's /run is writable");
    fs::set_permissions(&notes, fs::Permissions::from_mode(0o777))
        .expect("a host's /run is writable");
    let script = host.outside_path("/run/check.sh");
    fs::write(&script, format!("#!/bin/sh\n{body}\n")).expect("a host's /run is writable");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
        .expect("a host's /run is writable");
    let spec = format!("exec:/run/check.sh {arguments}");
    let flags = ["--ipv4", "10.128.0.9", "--check", spec.trim()];
    let options = Options {
        flags: flags.map(str::to_owned).to_vec(),
        ..Options::default()
    };
    (Anchor::start(&host, &options), host, lab)
}

fn check(anchor: &Anchor) -> Value {
    anchor.json("status")["check"].clone()
}

fn via(anchor: &Anchor) -> usize {
    anchor.route(SHARED_NETWORK).map_or(0, |row| row.via.len())
}
