//! Garbage: on the UDP port, random and made from real frames, and on the local socket. Nothing
//! crashes, nothing grows, the flows go on.

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use e2e::scenario::{Flood, Plan, Realm, Staying, at, port};
use e2e::work::Requests;

#[test]
fn a_hundred_thousand_garbage_datagrams_change_nothing() {
    let mut realm = Realm::start(&Plan::of(3, 1));
    let staying = Staying::start(&realm);
    let flood = Flood::prepare(&realm);
    let before = realm.holders[0].anchor.resident_bytes();
    let client = &realm.clients[0];
    let requests = Requests::start(&client.host, None, at(port::HTTP), 20);

    flood.send(100_000);
    let log = requests.stop();

    let stayed = staying.look(&realm);
    assert!(stayed.is_calm(), "{stayed:?}");
    assert!(log.failed().is_empty(), "{log:?}");
    let grown = realm.holders[0]
        .anchor
        .resident_bytes()
        .saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more");
    for holder in &mut realm.holders {
        assert_eq!(holder.anchor.ended_within(Duration::ZERO), None);
    }
}

#[test]
fn garbage_on_the_local_socket_is_answered_or_dropped_and_the_next_one_is_served() {
    let realm = Realm::start(&Plan::of(1, 0));
    let anchor = &realm.holders[0].anchor;
    let path = anchor
        .host()
        .outside_path(&format!("{}/run/conflux.sock", anchor.directory()));
    let mut chance = fastrand::Rng::with_seed(11);
    let random: Vec<u8> = (0..20_000).map(|_| chance.u8(..)).collect();
    let long = [
        b"GET /v1/status HTTP/1.1\r\nx: ".as_slice(),
        &[b'a'; 200_000],
    ]
    .concat();

    for bytes in [
        b"\n".as_slice(),
        b"hello\r\n\r\n",
        b"GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/invite HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{nope",
        b"POST /v1/invite HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
        &random,
        &long,
    ] {
        let mut socket = connect(&path);
        // The other end may have had enough before all is written.
        let _ = socket.write_all(bytes);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);

        let head = String::from_utf8_lossy(&answer);
        assert!(
            head.is_empty() || head.starts_with("HTTP/1.1 4"),
            "{:?} got {head}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(40)])
        );
        assert_eq!(anchor.cli(["status"]).code, 0);
    }
}

#[test]
fn idle_connections_to_the_local_socket_do_not_lock_the_operator_out() {
    let realm = Realm::start(&Plan::of(1, 0));
    let anchor = &realm.holders[0].anchor;
    let path = anchor
        .host()
        .outside_path(&format!("{}/run/conflux.sock", anchor.directory()));
    let _idle: Vec<UnixStream> = (0..300).filter_map(|_| try_connect(&path)).collect();

    e2e::wait::until(
        Duration::from_secs(30),
        "the operator to be served again",
        || anchor.cli(["status"]).code == 0,
    );
}

#[test]
fn a_stranger_on_the_quic_port_learns_nothing_and_breaks_nothing() {
    let realm = Realm::start(&Plan::of(1, 1));
    let stranger = realm.lab.host("stranger");
    let socket = stranger.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let target = SocketAddr::new(realm.holders[0].host.ipv4().into(), 47474);
    let mut chance = fastrand::Rng::with_seed(5);

    // Looks like the first packet of a connection of an unknown QUIC version.
    let mut datagram = vec![0u8; 1200];
    chance.fill(&mut datagram);
    datagram[..6].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8]);
    for _ in 0..1000 {
        socket.send_to(&datagram, target).unwrap();
    }
    let mut buffer = [0; 2048];
    let mut answered = 0;
    while let Ok((length, _)) = socket.recv_from(&mut buffer) {
        answered += length;
    }

    assert!(
        answered <= 1000 * 1200,
        "an amplifier: {answered} bytes for {}",
        1000 * 1200
    );
    assert_eq!(realm.clients[0].get().unwrap(), "a");
}

fn connect(path: &std::path::Path) -> UnixStream {
    try_connect(path).expect("the socket answers")
}

/// Through a link in the temporary directory: a path below /proc is too long for some.
fn try_connect(path: &std::path::Path) -> Option<UnixStream> {
    let directory = tempfile::tempdir().ok()?;
    let link = directory.path().join("socket");
    std::os::unix::fs::symlink(path, &link).ok()?;
    let socket = UnixStream::connect(link).ok()?;
    socket
        .set_read_timeout(Some(Duration::from_secs(15)))
        .ok()?;
    Some(socket)
}
