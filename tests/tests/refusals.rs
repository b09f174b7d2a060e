//! Bad values, bad tickets and bad places: refused before anything is written, with words that
//! say why.

use std::fs;
use std::time::Duration;

use e2e::anchor::binary;
use e2e::host::Answer;
use e2e::{Anchor, Host, Lab, Options};

/// The directory that must not come into being.
const DIRECTORY: &str = "/run/fresh";

#[test]
fn every_address_of_the_contracts_table_is_taken_or_refused_as_it_says() {
    let lab = Lab::new();
    let host = lab.host("host");
    let refused = [
        ("198.18.0.1", "198.18.0.0/15"),
        ("198.19.255.1/24", "198.18.0.0/15"),
        ("198.0.0.1/8", "198.18.0.0/15"),
        ("127.0.0.1", "loopback"),
        ("169.254.1.1", "link-local"),
        ("224.0.0.5", "multicast"),
        ("239.1.2.3/32", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("0.0.0.0", "0.0.0.0"),
        ("fd00::1", "IPv6"),
        ("10.128.0.9/0", "0"),
    ];

    for (value, reason) in refused {
        let answer = run(&host, &["--ipv4", value]);

        let address = value.split('/').next().unwrap();
        assert_eq!(answer.code, 2, "{value}: {answer:?}");
        assert!(answer.stdout.is_empty(), "{value}: {answer:?}");
        for word in [address, reason] {
            assert!(
                answer.stderr.to_lowercase().contains(&word.to_lowercase()),
                "{value}: no {word} in {answer:?}"
            );
        }
        assert!(!is_written(&host), "{value}: something was written");
    }
}

#[test]
fn private_and_carrier_addresses_are_advertised_and_public_ones_are_not() {
    let lab = Lab::new();
    let maker = Anchor::start(&lab.host("maker"), &Options::of("--ipv4 10.128.0.9"));
    let ticket = maker.invite("");

    for (number, value) in ["10.1.2.3", "172.16.0.1/12", "192.168.7.7", "100.64.0.1"]
        .iter()
        .enumerate()
    {
        let host = lab.host(&format!("host{number}"));
        let _anchor = Anchor::start(
            &host,
            &Options::of(&format!("--ipv4 {value}")).joining(&ticket),
        );
        let network = format!("{}/32", value.split('/').next().unwrap());

        e2e::wait::until(
            Duration::from_secs(10),
            "the advert of a private address",
            || {
                maker
                    .route(&network)
                    .is_some_and(|row| row.state == "accepted")
            },
        );
    }
    let host = lab.host("public");
    let public = Anchor::start(&host, &Options::of("--ipv4 8.8.4.4").joining(&ticket));
    let row = public.route("8.8.4.4/32").expect("its own row");
    assert_eq!(
        (row.state.as_str(), row.why.as_deref()),
        ("unadvertised", Some("public address"))
    );
    e2e::wait::until(Duration::from_secs(10), "the newcomer to be known", || {
        maker.peers().iter().any(|peer| peer.anchor == public.id())
    });
    assert_eq!(maker.route("8.8.4.4/32"), None);
}

#[test]
fn other_values_that_cannot_work_are_refused_before_anything_is_written() {
    let lab = Lab::new();
    let host = lab.host("host");

    for flags in [
        &["--ipv4", "10.128.0.9", "--ipv4", "10.128.0.10"][..],
        &["--ipv4", "10.128.0"],
        &["--ipv4", "10.128.0.9/33"],
        &["--taint", "with space"],
        &["--taint", "a,b"],
        &["--taint", ""],
        &["--interface", "a-name-that-is-too-long"],
        &["--listen", "nowhere"],
        &["--subnet", "198.18.0.0/16"],
        &["--subnet", "192.168.1.1/24"],
        &["--client-range", "10.0.0.0"],
        &["--join", "@/run/no-such-file"],
        &["--no-such-flag"],
    ] {
        let answer = run(&host, flags);

        assert_eq!(answer.code, 2, "{flags:?}: {answer:?}");
        assert!(
            !answer.stderr.is_empty() && answer.stdout.is_empty(),
            "{flags:?}: {answer:?}"
        );
        assert!(!is_written(&host), "{flags:?}: something was written");
    }
}

#[test]
fn a_damaged_ticket_is_told_from_a_foreign_text() {
    let lab = Lab::new();
    let maker = Anchor::start(&lab.host("maker"), &Options::of("--ipv4 10.128.0.9"));
    let ticket = maker.invite("");
    let host = lab.host("joiner");
    let truncated = &ticket[..ticket.len() - 7];
    let mut typo = ticket.clone().into_bytes();
    let middle = typo.len() / 2;
    typo[middle] = if typo[middle] == b'a' { b'b' } else { b'a' };
    let typo = String::from_utf8(typo).unwrap();

    let mut told = Vec::new();
    for text in [
        "",
        "hello",
        "conflux1",
        truncated,
        &typo,
        &format!("{ticket}{ticket}"),
    ] {
        let answer = run(&host, &["--join", text]);

        assert_eq!(answer.code, 2, "{text:?}: {answer:?}");
        assert!(!is_written(&host), "{text:?}: something was written");
        told.push(answer.stderr);
    }
    assert_ne!(
        told[1], told[3],
        "a foreign text and a truncated ticket read alike"
    );
}

#[test]
fn a_ticket_by_argument_file_stdin_or_variable_lets_a_machine_in() {
    let lab = Lab::new();
    let maker = Anchor::start(&lab.host("maker"), &Options::of("--ipv4 10.128.0.9"));
    let ticket = maker.invite("");

    let by_argument = Options::of(&format!("--join {ticket}"));
    let by_file = Options::default().joining(&ticket);
    let variable = vec![("CONFLUX_JOIN_FILE".into(), "/run/secret".into())];
    let by_variable = Options::default().with_env(variable);
    for (number, options) in [by_argument, by_file, by_variable].iter().enumerate() {
        let host = lab.host(&format!("host{number}"));
        fs::write(host.outside_path("/run/secret"), format!("{ticket}\n")).unwrap();
        let anchor = Anchor::start(&host, options);

        e2e::wait::until(Duration::from_secs(10), "the joiner to be admitted", || {
            anchor.json("status")["joining"].is_null() && anchor.route("10.128.0.9/32").is_some()
        });
    }
}

#[test]
fn an_expired_ticket_is_refused_by_name() {
    let lab = Lab::new();
    let past = Options::of("--ipv4 10.128.0.9").with_env(e2e::clock::shifted_by(-2 * 86_400));
    let maker = Anchor::start(&lab.host("maker"), &past);
    let ticket = maker.invite("--expires 1h");
    let host = lab.host("late");

    let answer = run(&host, &["--join", &ticket]);

    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.stderr.contains("expired"), "{answer:?}");
    assert!(!is_written(&host), "something was written");
}

#[test]
fn a_ticket_of_another_realm_is_refused_and_of_the_own_one_ignored() {
    let lab = Lab::new();
    let one = Anchor::start(&lab.host("one"), &Options::of("--ipv4 10.128.0.9"));
    let other = Anchor::start(&lab.host("other"), &Options::of("--taint other"));
    let (own, foreign) = (one.invite(""), other.invite(""));
    let host = lab.host("member");
    let mut member = Anchor::start(&host, &Options::default().joining(&own));
    e2e::wait::until(Duration::from_secs(10), "the member to be admitted", || {
        member.json("status")["joining"].is_null()
    });
    member.down();
    let with = |ticket: &str| {
        member
            .command()
            .args(["run", "--join", ticket])
            .answer_within(Duration::from_secs(5))
    };

    let refused = with(&foreign);
    member.run();

    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("uninstall"), "{refused:?}");
    assert!(member.log().contains("already"), "{}", member.log());
}

#[test]
fn an_interface_name_in_use_is_a_clear_failure() {
    let lab = Lab::new();
    let host = lab.host("host");
    host.ip(["link add anchor0 type bridge"]);

    let answer = run(&host, &["--ipv4", "10.128.0.9"]);

    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("anchor0"), "{answer:?}");
    host.command("ip").args(["link", "show", "anchor0"]).must();
}

#[test]
fn without_a_tun_device_the_failure_names_it() {
    let lab = Lab::new();
    let host = lab.host("host");
    host.command("mount")
        .args(["-t", "tmpfs", "none", "/dev/net"])
        .must();

    let answer = run(&host, &["--ipv4", "10.128.0.9"]);

    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("/dev/net/tun"), "{answer:?}");
}

#[test]
fn whoever_is_not_root_is_told_so_with_13() {
    let lab = Lab::new();
    let host = lab.host("host");
    host.command("chmod").args(["1777", "/run"]).must();
    let copy = "/run/conflux-for-all";
    host.command("install")
        .args(["-m", "755"])
        .arg(binary())
        .arg(copy)
        .must();

    for verb in ["up", "run", "down", "start", "uninstall"] {
        if verb == "down" {
            // The latter three ask for an installation first.
            host.command("mkdir").args(["-p", "/run/fresh/etc"]).must();
            fs::write(host.outside_path("/run/fresh/etc/conflux.toml"), "").unwrap();
        }
        let extra: &[&str] = if verb == "uninstall" { &["--yes"] } else { &[] };
        let answer = host
            .command("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", copy])
            .args(["--dir", DIRECTORY, verb])
            .args(extra)
            .answer();

        assert_eq!(answer.code, 13, "{verb}: {answer:?}");
        assert!(answer.stderr.contains("root"), "{verb}: {answer:?}");
    }
}

#[test]
fn a_state_directory_of_another_user_is_left_alone() {
    let lab = Lab::new();
    let host = lab.host("host");
    host.command("mkdir")
        .args(["-p", "/run/fresh/state"])
        .must();
    host.command("chown")
        .args(["65534:65534", "/run/fresh/state"])
        .must();

    let answer = run(&host, &["--ipv4", "10.128.0.9"]);

    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("/run/fresh/state"), "{answer:?}");
    let kept = fs::read_dir(host.outside_path("/run/fresh/state"))
        .unwrap()
        .count();
    assert_eq!(kept, 0, "something was written into it");
}

#[test]
fn a_port_in_use_is_a_clear_failure() {
    let lab = Lab::new();
    let host = lab.host("host");
    let _taken = host
        .enter(|| std::net::UdpSocket::bind(("0.0.0.0", 47474)))
        .unwrap();

    let answer = run(&host, &["--ipv4", "10.128.0.9"]);

    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("47474"), "{answer:?}");
}

#[test]
fn a_client_range_in_use_on_the_host_is_a_clear_failure() {
    let lab = Lab::new();
    let host = lab.host("host");
    host.ip(["addr add 198.18.5.1/24 dev eth0"]);

    let answer = run(&host, &["--ipv4", "10.128.0.9"]);
    let moved = Options::of("--ipv4 10.128.0.9 --client-range 172.20.0.0/16");
    let anchor = Anchor::start(&host, &moved);

    assert_ne!(answer.code, 0, "{answer:?}");
    assert!(answer.stderr.contains("--client-range"), "{answer:?}");
    assert!(anchor.is_running());
}

fn run(host: &Host, flags: &[&str]) -> Answer {
    host.command(binary())
        .args(["--dir", DIRECTORY, "run"])
        .args(flags)
        .answer_within(Duration::from_secs(8))
}

fn is_written(host: &Host) -> bool {
    host.outside_path(DIRECTORY).exists()
}
