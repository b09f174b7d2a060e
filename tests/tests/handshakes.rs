//! Handshakes as the network sees them: what they agree on and give away, and what a flood of
//! them does.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use e2e::captured::{self, Datagram};
use e2e::initial::{self, InitialKeys, Sender};
use e2e::scenario::{Client, Handshakes, Plan, Realm, SETTLE_LIMIT, Staying, at, port};
use e2e::work::Requests;
use e2e::{Anchor, Lab, Options, wait};

/// The number of X25519MLKEM768 among TLS groups.
const HYBRID: u16 = 0x11ec;

/// Extensions of TLS.
const SERVER_NAME: u16 = 0;
const KEY_SHARE: u16 = 51;

/// What the flood is to bring; the machine may give less, which the test prints.
const FLOOD_PER_SECOND: u64 = 100_000;

/// Long enough for handshakes begun by the flood to be given up, and for keys to be asked for.
const FLOOD_TIME: Duration = Duration::from_secs(12);

/// What a flood may cost in memory, whatever it brings: 512 handshakes begun, each within 64 KiB.
const FLOOD_BYTES: u64 = 48 << 20;

/// Counts what the flood's victim did not look at.
const TURNED_AWAY: &str = "anchor_handshakes_turned_away_total";

/// How long a machine may take to get in while the flood goes on.
const JOIN_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn a_captured_handshake_agrees_on_the_hybrid_group_and_names_nobody() {
    let lab = Lab::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    lab.capture(file.path());
    let first = Anchor::start(
        &lab.host("host-of-alice"),
        &Options::of("--ipv4 10.128.0.9"),
    );
    let ticket = first.invite("");
    let second = Anchor::start(
        &lab.host("host-of-bob"),
        &Options::of("--ipv4 10.128.0.9").joining(&ticket),
    );
    wait::until(SETTLE_LIMIT, "the two to be connected", || {
        first.connected() == 1 && second.connected() == 1
    });
    lab.end_capture();

    let flights = first_flights(&captured::datagrams(&std::fs::read(file.path()).unwrap()));

    assert!(!flights.is_empty(), "no handshake was captured");
    for flight in flights {
        let (hello, answer) = (extensions(&flight.client), extensions(&flight.server));
        assert_eq!(client_groups(&hello[&KEY_SHARE]), [HYBRID]);
        assert_eq!(answer[&KEY_SHARE][..2], HYBRID.to_be_bytes());
        assert!(!hello.contains_key(&SERVER_NAME), "a name in clear");
        let names = [
            "host-of-alice",
            "host-of-bob",
            "10.99.0",
            "10.128.0.9",
            "eth0",
        ];
        let overlays = [first.overlay().octets(), second.overlay().octets()];
        let ids = [first.id(), second.id()];
        for bytes in [&flight.client, &flight.server] {
            for word in names.into_iter().chain(ids) {
                assert!(!holds(bytes, word.as_bytes()), "{word} in clear");
            }
            for overlay in &overlays {
                assert!(!holds(bytes, overlay), "an overlay address in clear");
            }
            for host in [first.host(), second.host()] {
                assert!(!holds(bytes, &host.ipv4().octets()), "an address in clear");
                assert!(!holds(bytes, &host.ipv6().octets()), "an address in clear");
            }
        }
    }
}

#[test]
fn a_flood_of_handshakes_from_one_address_leaves_the_realm_alive() {
    flood(1);
}

#[test]
fn a_flood_of_handshakes_from_forged_addresses_leaves_the_realm_alive() {
    flood(60_000);
}

/// Floods the only holder; what lived before lives on, and machines get in meanwhile.
#[expect(
    clippy::print_stdout,
    reason = "the figures of a run, for whoever asks"
)]
fn flood(sources: u16) {
    let mut realm = Realm::start_in(Lab::at_kernel_speed(), &Plan::of(1, 2));
    let handshakes = Handshakes::prepare(&realm.lab);
    let victim = realm.holders[0].host.clone();
    handshakes.route_answers(&victim);
    let staying = Staying::start(&realm);
    let requests = Requests::start(&realm.clients[0].host, None, at(port::HTTP), 20);
    let late = realm.lab.host("late");
    let before = realm.holders[0].anchor.resident_bytes();

    let flood = handshakes.start(&victim, FLOOD_PER_SECOND, sources);
    let began = Instant::now();
    let most = |now: u64| now.max(realm.holders[0].anchor.resident_bytes());
    let turned_away = || realm.holders[0].anchor.metric(TURNED_AWAY);
    let mut resident = 0;
    wait::until(FLOOD_TIME, "the flood to be felt", || {
        resident = most(resident);
        turned_away() > FLOOD_PER_SECOND as f64
    });
    let began_joining = Instant::now();
    let newcomer = Client::start(&late, &realm.ticket);
    wait::until(JOIN_WITHIN, "a new machine to get in", || {
        resident = most(resident);
        newcomer.get().is_ok_and(|name| name == "a")
    });
    let joined = began_joining.elapsed();
    let began_again = Instant::now();
    realm.clients[1].anchor.kill();
    realm.clients[1].anchor.run();
    wait::until(JOIN_WITHIN, "a member to be back", || {
        resident = most(resident);
        realm.clients[1].get().is_ok()
    });
    let back = began_again.elapsed();
    wait::until(FLOOD_TIME, "the flood to have lasted", || {
        resident = most(resident);
        began.elapsed() >= FLOOD_TIME
    });
    let (sent, took) = flood.stop();
    let turned = turned_away();
    let log = requests.stop();

    println!(
        "{sources} sources: {:.0} datagrams/s for {took:.1?}, {turned} turned away; joined after {joined:.1?}, back \
         after {back:.1?}; {} requests, {} failed; {} KiB more at most",
        sent as f64 / took.as_secs_f64(),
        log.0.len(),
        log.failed().len(),
        resident.saturating_sub(before) >> 10,
    );
    let stayed = staying.look(&realm);
    assert!(stayed.is_calm(), "{stayed:?}");
    assert!(log.failed().is_empty(), "{log:?}");
    assert!(resident.saturating_sub(before) < FLOOD_BYTES);
}

/// What both sides said first.
struct Flight {
    client: Vec<u8>,
    server: Vec<u8>,
}

/// A connection as it is captured.
struct Opened {
    client: SocketAddr,
    server: SocketAddr,
    /// Where the client's first packet went.
    first: Vec<u8>,
    said: [Vec<(u64, Vec<u8>)>; 2],
}

impl Opened {
    /// Takes a packet that belongs to this connection.
    fn takes(&mut self, datagram: &Datagram) -> bool {
        let (sender, place) = match (datagram.from, datagram.to) {
            ends if ends == (self.client, self.server) => (Sender::Client, 0),
            ends if ends == (self.server, self.client) => (Sender::Server, 1),
            _ => return false,
        };
        let read = InitialKeys::of(&self.first, sender).open(&datagram.payload);
        let is_taken = read.is_some();
        self.said[place].extend(read.map(|read| read.crypto).unwrap_or_default());
        is_taken
    }
}

/// Returns ClientHello and ServerHello of each connection captured whole.
fn first_flights(datagrams: &[Datagram]) -> Vec<Flight> {
    let mut all: Vec<Opened> = Vec::new();
    for datagram in datagrams {
        let Some(first) = initial::destination_of(&datagram.payload) else {
            continue;
        };
        if all.iter_mut().any(|known| known.takes(datagram)) {
            continue;
        }
        let mut new = Opened {
            client: datagram.from,
            server: datagram.to,
            first,
            said: Default::default(),
        };
        if new.takes(datagram) {
            all.push(new);
        }
    }
    all.iter()
        .filter_map(|known| {
            let [client, server] = &known.said;
            Some(Flight {
                client: initial::handshake_message(client)?,
                server: initial::handshake_message(server)?,
            })
        })
        .collect()
}

/// Returns the extensions of a ClientHello or ServerHello by their numbers.
fn extensions(hello: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    let short = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    // Type and length, version, random.
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(hello[at]);
    at += match hello[0] {
        1 => {
            let suites = 2 + short(at);
            suites + 1 + usize::from(hello[at + suites])
        }
        2 => 3,
        other => panic!("a handshake begins with message {other}"),
    };
    let end = at + 2 + short(at);
    at += 2;
    let mut found = BTreeMap::new();
    while at < end {
        let (kind, length) = (short(at), short(at + 2));
        let content = hello[at + 4..at + 4 + length].to_vec();
        found.insert(u16::try_from(kind).unwrap(), content);
        at += 4 + length;
    }
    found
}

/// Returns the groups for which a ClientHello brings a key.
fn client_groups(shares: &[u8]) -> Vec<u16> {
    let (mut rest, mut groups) = (&shares[2..], Vec::new());
    while let [group @ .., _, _] = &rest[..rest.len().min(4)] {
        groups.push(u16::from_be_bytes([group[0], group[1]]));
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        rest = &rest[4 + length..];
    }
    groups
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
