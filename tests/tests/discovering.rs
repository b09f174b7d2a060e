//! How anchors find each other when the one that everybody was told of is gone: on their own link,
//! by what they knew before, by what the operator names, by a ticket that names several.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot set up has failed its test"
)]

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use e2e::{Anchor, Host, Lab, Options, wait};

/// Questions go out at once and after a second; this is for a machine that is busy.
const MEETING_LIMIT: Duration = Duration::from_secs(15);

/// A tenth of the limit passes without a meeting where none may be.
const NO_MEETING: Duration = Duration::from_secs(5);

#[test]
fn a_joiner_finds_a_member_on_its_link_though_its_ticket_names_nobody_who_lives() {
    let lab = Lab::new();
    let (one, ticket) = founder(&lab);
    let mut two = Anchor::start(&lab.host("two"), &Options::default().joining(&ticket));
    wait::until(MEETING_LIMIT, "the second member", || two.connected() == 1);
    two.wait_written();
    // The ticket names the founder alone, and that one is gone for good.
    let mut one = one;
    one.kill();
    two.kill();
    two.run();

    let three = Anchor::start(&lab.host("three"), &Options::default().joining(&ticket));

    wait::until(MEETING_LIMIT, "a member on the link", || {
        three.is_connected_with(two.id())
    });
}

#[test]
fn discovery_that_is_switched_off_says_and_finds_nothing() {
    let lab = Lab::new();
    let (mut one, ticket) = founder(&lab);
    let two = Anchor::start(&lab.host("two"), &Options::default().joining(&ticket));
    wait::until(MEETING_LIMIT, "the second member", || two.connected() == 1);
    one.kill();
    let host = lab.host("three");
    write_config(&host, "discovery = false\n");
    let listener = listener(&host);

    let three = Anchor::start(&host, &Options::default().joining(&ticket));
    wait::pass(NO_MEETING);

    assert_eq!(three.connected(), 0);
    let three = format!("{}", host.ipv4());
    let said = heard(&listener).into_iter();
    let said: Vec<SocketAddr> = said.filter(|from| from.ip().to_string() == three).collect();
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn another_realm_on_the_link_is_not_met() {
    let lab = Lab::new();
    let (one, _) = founder(&lab);
    let other = Anchor::start(&lab.host("other"), &Options::of("--ipv4 10.128.0.9"));

    wait::pass(NO_MEETING);

    assert_eq!((one.connected(), other.connected()), (0, 0));
    assert!(!other.log().contains("refused"), "{}", other.log());
}

#[test]
fn what_is_said_on_the_link_names_neither_realm_nor_anchor() {
    let lab = Lab::new();
    let host = lab.host("one");
    let capture = tempfile::NamedTempFile::new().unwrap();
    lab.capture(capture.path());
    let listener = lab.host("listener");
    let one = Anchor::start(&host, &Options::of("--ipv4 10.128.0.9"));
    let socket = self::listener(&listener);
    wait::until(MEETING_LIMIT, "a message of discovery", || {
        one.say(["status"]);
        !heard(&socket).is_empty()
    });
    lab.end_capture();

    let bytes = std::fs::read(capture.path()).unwrap();
    let holds = |text: &str| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    let status = one.json("status");
    let realm = status["realm"].as_str().unwrap();
    assert!(holds("_conflux"));
    assert!(!holds(&one.id()[..10]) && !holds(&realm[..10]));
    assert!(!holds("10.128.0.9"));
}

#[test]
fn liars_on_the_link_cost_a_few_dials_and_nothing_else() {
    let lab = Lab::new();
    let (one, ticket) = founder(&lab);
    let liar = lab.host("liar");
    let beacon = listener(&liar);
    let question = wait::until_some(MEETING_LIMIT, "a question to learn the name from", || {
        one.say(["status"]);
        messages(&beacon)
            .into_iter()
            .find(|message| message[2] & 0x80 == 0)
    });
    // The name asked for stands behind the header of twelve bytes, up to its empty label.
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let name = &question[12..end];
    let before = one.resident_bytes();
    let socket = liar.enter(|| UdpSocket::bind((liar.ipv4(), 5353)));
    let socket = socket.or_else(|_| beacon.try_clone()).unwrap();

    for number in 0..10_000u32 {
        let port = u16::try_from(number % 60_000).unwrap() + 1024;
        let lie = answer(name, &format!("liar{number}"), port);
        socket.send_to(&lie, "224.0.0.251:5353").unwrap();
    }
    wait::pass(Duration::from_secs(2));

    let two = Anchor::start(&lab.host("two"), &Options::default().joining(&ticket));
    wait::until(MEETING_LIMIT, "a member to join", || two.connected() == 1);
    let grown = one.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
    let dialled = lab.way(one.host(), &liar).carried().bytes;
    assert!(dialled < 2_000_000, "{dialled} bytes sent to the liar");
}

#[test]
fn members_meet_again_after_a_restart_without_the_one_they_joined_at() {
    let lab = Lab::new();
    let (mut one, ticket) = founder(&lab);
    let quiet = |name| {
        let host = lab.host(name);
        write_config(&host, "discovery = false\n");
        Anchor::start(&host, &Options::default().joining(&ticket))
    };
    let (mut two, mut three) = (quiet("two"), quiet("three"));
    for anchor in [&two, &three] {
        wait::until(MEETING_LIMIT, "all three to meet", || {
            anchor.connected() == 2
        });
        anchor.wait_written();
    }
    one.kill();
    two.kill();
    three.kill();

    two.run();
    three.run();

    wait::until(MEETING_LIMIT, "the two to meet again", || {
        three.is_connected_with(two.id())
    });
}

#[test]
fn a_peer_that_is_named_while_others_are_connected_is_met() {
    let lab = Lab::new();
    let (one, ticket) = founder(&lab);
    let named = |name: &str, flags: &str| {
        let host = lab.host(name);
        write_config(&host, "discovery = false\n");
        Anchor::start(&host, &Options::of(flags).joining(&ticket))
    };
    let two = named("two", "");
    wait::until(MEETING_LIMIT, "the second member", || two.connected() == 1);
    // A part of the realm that nobody of the other part knows: it was cut off before it was told of.
    let host = lab.host("three");
    write_config(&host, "discovery = false\n");
    lab.between(&host, two.host()).cut();
    let three = Anchor::start(&host, &Options::default().joining(&ticket));
    wait::until(MEETING_LIMIT, "the third member", || {
        three.is_connected_with(one.id())
    });
    lab.between(&host, two.host()).mend();

    let peer = format!("{}:47474", host.ipv4());
    let said = two.cli(["up", "--peer", &peer]);

    assert_eq!(said.code, 0, "{said:?}");
    wait::until(MEETING_LIMIT, "the peer that was named", || {
        two.is_connected_with(three.id())
    });
}

#[test]
fn a_ticket_names_several_anchors_and_one_of_them_is_enough() {
    let lab = Lab::new();
    let (mut one, ticket) = founder(&lab);
    let host = lab.host("two");
    write_config(&host, "discovery = false\n");
    let two = Anchor::start(&host, &Options::default().joining(&ticket));
    wait::until(MEETING_LIMIT, "the second member", || {
        two.connected() == 1 && one.connected() == 1
    });
    let later = one.invite("");
    one.kill();

    let host = lab.host("three");
    write_config(&host, "discovery = false\n");
    let three = Anchor::start(&host, &Options::default().joining(&later));

    wait::until(MEETING_LIMIT, "the other one of the ticket", || {
        three.is_connected_with(two.id())
    });
}

fn founder(lab: &Lab) -> (Anchor, String) {
    let anchor = Anchor::start(&lab.host("one"), &Options::of("--ipv4 10.128.0.9"));
    let ticket = anchor.invite("");
    (anchor, ticket)
}

/// Leaves a configuration for an anchor that starts later.
fn write_config(host: &Host, text: &str) {
    let directory = host.outside_path("/run/anchor/etc");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(
        directory.join("conflux.toml"),
        format!("version = 1\n{text}"),
    )
    .unwrap();
}

/// A socket that hears what is said on the link.
fn listener(host: &Host) -> UdpSocket {
    host.enter(|| {
        let socket = socket2::Socket::new(
            socket2::Domain::IPV4,
            socket2::Type::DGRAM,
            Some(socket2::Protocol::UDP),
        )
        .unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.set_reuse_port(true).unwrap();
        let any: SocketAddr = "0.0.0.0:5353".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        let group = "224.0.0.251".parse().unwrap();
        socket.join_multicast_v4(&group, &host.ipv4()).unwrap();
        socket.set_multicast_if_v4(&host.ipv4()).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.into()
    })
}

/// Where what has been said came from.
fn heard(socket: &UdpSocket) -> Vec<SocketAddr> {
    let mut buffer = [0; 1500];
    let mut sources = Vec::new();
    while let Ok((_, from)) = socket.recv_from(&mut buffer) {
        sources.push(from);
    }
    sources
}

/// What has been said.
fn messages(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = [0; 1500];
    let mut all = Vec::new();
    while let Ok((length, _)) = socket.recv_from(&mut buffer) {
        all.push(buffer[..length].to_vec());
    }
    all
}

/// A message of multicast DNS that claims `instance` of the service `name` at `port`.
fn answer(name: &[u8], instance: &str, port: u16) -> Vec<u8> {
    let label = |text: &str| {
        let length = u8::try_from(text.len()).unwrap();
        [&[length], text.as_bytes()].concat()
    };
    let instance = [label(instance), label("local"), vec![0]].concat();
    let record = |owner: &[u8], kind: u16, data: &[u8]| {
        let length = u16::try_from(data.len()).unwrap();
        let [kind, length] = [kind, length].map(u16::to_be_bytes);
        [owner, &kind, &[0, 1, 0, 0, 0, 120], &length, data].concat()
    };
    let place = [&[0, 0, 0, 0], &port.to_be_bytes()[..], &instance].concat();
    [
        vec![0, 0, 0x84, 0, 0, 0, 0, 2, 0, 0, 0, 0],
        record(name, 12, &instance),
        record(&instance, 33, &place),
    ]
    .concat()
}
