//! What an anchor does to its machine, and what it leaves there: nothing after `down` or a crash,
//! and no hold on networks that were there before.

use std::time::Duration;

use e2e::scenario::{ANSWER_LIMIT, Fault, Plan, Realm, at, port};
use e2e::{Anchor, Host, Lab, Options, wait, work};

#[test]
fn down_and_a_crash_leave_addresses_routes_and_rules_as_they_were() {
    for fault in [Fault::Down, Fault::Kill] {
        let lab = Lab::new();
        let host = lab.host("host");
        let before = network_of(&host);
        let mut anchor = Anchor::start(&host, &Options::of("--ipv4 10.128.0.9/16"));
        assert_ne!(network_of(&host), before);

        if fault == Fault::Down {
            anchor.down();
        } else {
            anchor.kill();
        }

        wait::until_equal(Duration::from_secs(3), &format!("{fault}"), &before, || {
            network_of(&host)
        });
    }
}

#[test]
fn a_start_after_a_crash_works_again_at_once() {
    let lab = Lab::new();
    let mut anchor = Anchor::start(&lab.host("host"), &Options::of("--ipv4 10.128.0.9"));

    for _ in 0..3 {
        anchor.kill();
        anchor.run();
    }

    assert_eq!(anchor.cli(["status"]).code, 0);
}

#[test]
fn a_wider_length_sends_the_whole_range_into_the_interface_and_advertises_one_address() {
    let realm = Realm::start(&Plan::of(1, 0));
    let host = realm.lab.host("wide");
    let wide = Options::of("--ipv4 10.128.0.101/16").joining(&realm.ticket);
    let anchor = Anchor::start(&host, &wide);
    wait::until(Duration::from_secs(10), "the holder in routes", || {
        anchor.route("10.128.0.9/32").is_some()
    });

    let answer = work::get(&host, None, at(port::HTTP), ANSWER_LIMIT);
    let route = host
        .command("ip")
        .args(["route", "get", "10.128.77.1"])
        .must();

    assert_eq!(answer.unwrap(), "a");
    assert!(route.contains("dev anchor0"), "{route}");
    wait::until(Duration::from_secs(5), "the advert of the newcomer", || {
        realm.holders[0].anchor.route("10.128.0.101/32").is_some()
    });
    assert_eq!(realm.holders[0].anchor.routes().len(), 2);
}

#[test]
fn a_network_inside_a_local_one_is_refused_and_still_reached_locally() {
    let realm = Realm::start(&Plan::of(1, 0));
    let host = realm.lab.host("local");
    host.ip([
        "link add lan type bridge",
        "addr add 10.128.0.1/24 dev lan",
        "link set lan up",
    ]);
    let anchor = Anchor::start(&host, &Options::default().joining(&realm.ticket));

    let row = wait::until_some(Duration::from_secs(10), "the refused network", || {
        anchor.route("10.128.0.9/32")
    });
    let route = host
        .command("ip")
        .args(["route", "get", "10.128.0.9"])
        .must();

    assert_eq!(row.state, "refused");
    assert_eq!(
        row.why.as_deref(),
        Some("overlaps local network 10.128.0.0/24")
    );
    assert!(route.contains("dev lan"), "{route}");
}

#[test]
fn a_subnet_that_was_not_granted_is_refused_by_name() {
    let realm = Realm::start(&Plan::of(1, 0));
    let host = realm.lab.host("greedy");
    let ticket = realm.holders[0].anchor.invite("");
    let greedy = Options::of("--subnet 10.77.0.0/16").joining(&ticket);

    let _anchor = Anchor::start(&host, &greedy);

    let row = wait::until_some(Duration::from_secs(10), "the row of the subnet", || {
        realm.holders[0].anchor.route("10.77.0.0/16")
    });
    assert_eq!(
        (row.state.as_str(), row.why.as_deref()),
        ("refused", Some("not granted"))
    );
}

#[test]
fn a_host_without_ipv6_works_on_ipv4_and_says_so() {
    let realm = Realm::start(&Plan::of(1, 0));
    let host = realm.lab.host("four");
    let disable = [
        "-w",
        "net.ipv6.conf.all.disable_ipv6=1",
        "net.ipv6.conf.default.disable_ipv6=1",
    ];
    host.command("sysctl").args(disable).must();

    let anchor = Anchor::start(&host, &Options::default().joining(&realm.ticket));
    wait::until(Duration::from_secs(10), "the holder in routes", || {
        anchor.route("10.128.0.9/32").is_some()
    });

    let answer = work::get(&host, None, at(port::HTTP), ANSWER_LIMIT);
    assert_eq!(answer.unwrap(), "a");
    assert!(
        anchor.say(["status"]).contains("IPv6"),
        "{}",
        anchor.say(["status"])
    );
}

#[test]
fn an_underlay_of_ipv6_alone_carries_everything() {
    let lab = Lab::new();
    let (one, two) = (lab.host("one"), lab.host("two"));
    for host in [&one, &two] {
        host.ip([format!("addr del {}/24 dev eth0", host.ipv4())]);
    }
    let holder = e2e::scenario::Holder::start(&one, None);
    let ticket = holder.anchor.invite("");
    let client = Anchor::start(&two, &Options::default().joining(&ticket));
    wait::until(Duration::from_secs(10), "the holder in routes", || {
        client.route("10.128.0.9/32").is_some()
    });

    let answer = work::get(&two, None, at(port::HTTP), ANSWER_LIMIT);

    assert_eq!(answer.unwrap(), "one");
}

#[test]
fn an_underlay_of_1280_bytes_black_holes_nothing() {
    let lab = Lab::new();
    let hosts = [lab.host("one"), lab.host("two")];
    for host in &hosts {
        host.ip(["link set eth0 mtu 1280"]);
    }
    let holder = e2e::scenario::Holder::start(&hosts[0], None);
    let ticket = holder.anchor.invite("");
    let client = Anchor::start(&hosts[1], &Options::default().joining(&ticket));
    wait::until(Duration::from_secs(10), "the holder in routes", || {
        client.route("10.128.0.9/32").is_some()
    });

    let download = work::Download::start(&hosts[1], at(port::ENDLESS)).unwrap();

    wait::until(Duration::from_secs(10), "five megabytes", || {
        download.bytes() > 5_000_000
    });
}

#[test]
fn another_interface_name_port_and_directory_make_a_second_anchor_on_one_host() {
    let lab = Lab::new();
    let host = lab.host("host");
    let first = Anchor::start(&host, &Options::of("--ipv4 10.128.0.9"));
    let mut options =
        Options::of("--interface anchor1 --listen 0.0.0.0:47475 --client-range 172.20.0.0/16");
    options.name = Some("second".into());

    let second = Anchor::start(&host, &options);

    assert_ne!(first.id(), second.id());
    let links = host.command("ip").args(["-br", "link"]).must();
    assert!(
        links.contains("anchor0") && links.contains("anchor1"),
        "{links}"
    );
}

/// Addresses, routes, rules and links, without counters.
fn network_of(host: &Host) -> String {
    let show = |args: &[&str]| host.command("ip").args(args).must();
    [
        show(&["-br", "addr"]),
        show(&["-4", "route", "show", "table", "all"]),
        show(&["-6", "route", "show", "table", "all"]),
        show(&["-4", "rule"]),
        show(&["-6", "rule"]),
        host.command("nft").args(["list", "ruleset"]).must(),
    ]
    .concat()
}
