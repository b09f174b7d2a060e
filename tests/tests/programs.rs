//! Real programs through the realm: they know nothing of it.

use std::fs;
use std::time::Duration;

use e2e::host::Program;
use e2e::scenario::{Plan, Realm};
use e2e::work::start_nginx;
use e2e::{Host, wait};

#[test]
fn nginx_and_curl() {
    let realm = Realm::start(&Plan::of(1, 1));
    let holder = &realm.holders[0].host;
    let page = "a page of some length ".repeat(40_000);
    let _nginx = start_nginx(holder, 8080);
    fs::write(holder.outside_path("/run/site/page"), &page).unwrap();

    let got = wait::until_some(Duration::from_secs(10), "nginx", || {
        let curl = ["-sSf", "-m", "5", "http://10.128.0.9:8080/page"];
        let answer = realm.clients[0].host.command("curl").args(curl).answer();
        (answer.code == 0).then_some(answer.stdout)
    });

    assert_eq!(got.len(), page.len());
    assert!(got == page, "the page was damaged");
    let access = fs::read_to_string(holder.outside_path("/run/access.log")).unwrap();
    assert!(
        access.starts_with("198.18.") || access.starts_with("198.19."),
        "{access}"
    );
}

#[test]
fn redis_server_and_redis_cli() {
    let realm = Realm::start(&Plan::of(1, 1));
    let holder = &realm.holders[0].host;
    let settings = [
        "--port",
        "6379",
        "--bind",
        "0.0.0.0",
        "--protected-mode",
        "no",
    ];
    let _redis = start(
        holder,
        "redis-server",
        &[&settings[..], &["--dir", "/run", "--save", ""]].concat(),
    );
    let cli = |args: &[&str]| {
        let program = realm.clients[0]
            .host
            .command("redis-cli")
            .args(["-h", "10.128.0.9"]);
        program.args(args).answer()
    };
    wait::until(Duration::from_secs(10), "redis", || {
        cli(&["ping"]).stdout == "PONG\n"
    });

    let value = "v".repeat(100_000);
    let set = cli(&["set", "key", &value]);
    let got = cli(&["get", "key"]);

    assert_eq!(set.stdout, "OK\n");
    assert_eq!(got.stdout.trim(), value);
}

#[test]
fn iperf3_both_ways_on_tcp_and_udp() {
    let realm = Realm::start(&Plan::of(1, 1));
    let _server = start(&realm.holders[0].host, "iperf3", &["-s"]);

    for flags in [
        &["-t", "2"][..],
        &["-t", "2", "-R"],
        &["-t", "2", "-u", "-b", "20M"],
    ] {
        let end = if flags.contains(&"-u") {
            "sum"
        } else {
            "sum_received"
        };
        // A server that is still busy with the run before answers too, but not with a rate.
        let (json, rate) = wait::until_some(Duration::from_secs(15), "iperf3", || {
            let client = realm.clients[0]
                .host
                .command("iperf3")
                .args(["-J", "-c", "10.128.0.9"]);
            let answer = client.args(flags).answer_within(Duration::from_secs(30));
            let json: serde_json::Value = serde_json::from_str(&answer.stdout).ok()?;
            let rate = json["end"][end]["bits_per_second"].as_f64()?;
            Some((json, rate))
        });

        assert!(rate > 15e6, "{flags:?}: {:.1} Mbit/s", rate / 1e6);
        if let Some(lost) = json["end"]["sum"]["lost_percent"].as_f64() {
            assert!(lost < 5.0, "{lost} % of the datagrams lost");
        }
    }
}

#[test]
fn ping_of_any_size_over_both_spellings() {
    let realm = Realm::start(&Plan::of(1, 1));

    for (address, size) in [
        ("10.128.0.9", "56"),
        ("10.128.0.9", "1400"),
        ("10.128.0.9", "4000"),
        ("64:ff9b:1::a80:9", "56"),
        ("64:ff9b:1::a80:9", "1200"),
    ] {
        let ping = ["-c", "3", "-i", "0.05", "-W", "2", "-s", size, address];
        let answer = realm.clients[0].host.command("ping").args(ping).answer();

        assert!(
            answer.stdout.contains(" 3 received"),
            "{address} {size}: {answer:?}"
        );
    }
}

fn start(host: &Host, program: &str, args: &[&str]) -> Program {
    let log = host.outside_path(&format!("/run/{program}.out"));
    host.command(program)
        .args(args)
        .spawn(&log)
        .expect("the program is installed")
}
