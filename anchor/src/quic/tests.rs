//! Two and more endpoints over real loopback sockets.

mod lab;
mod lock_tests;
mod tls_tests;

use std::net::{IpAddr, Ipv4Addr};

use tokio::time::timeout;

use super::*;
use lab::{AMBER, Anchor, BLUE, CORAL, PATIENCE, Raw, key, pair, peer, target};

#[tokio::test]
async fn both_sides_learn_the_proven_key_and_share_a_secret() {
    let mut amber = Anchor::new(AMBER);
    let mut blue = Anchor::new(BLUE);

    amber.dial(&blue);
    let (at_amber, at_blue) = (amber.connected().await, blue.connected().await);

    assert_eq!(at_amber.key, key(BLUE));
    assert_eq!(at_blue.key, key(AMBER));
    assert_eq!(at_amber.dialled, Some(target(&blue)));
    assert_eq!(at_blue.dialled, None);
    assert_eq!(at_amber.way.remote, blue.addr);
    assert_eq!(at_blue.way.remote, amber.addr);
    assert_eq!(at_blue.way.local, Some(blue.addr.ip()));
    assert_eq!(at_amber.psk.bytes(), at_blue.psk.bytes());
    assert_ne!(at_amber.psk.bytes(), &[0; 32]);
    assert_eq!(format!("{:?}", at_amber.psk), "Psk(..)");
}

#[tokio::test]
async fn frames_cross_both_ways_in_order() {
    let (mut amber, mut blue, at_amber, at_blue) = pair().await;
    let largest = Bytes::from(vec![7; MAX_FRAME_BYTES]);

    for frame in [
        Bytes::from_static(b"hello"),
        largest.clone(),
        Bytes::from_static(b"again"),
    ] {
        amber.handle.send(at_amber, frame).unwrap();
    }
    blue.handle
        .send(at_blue, Bytes::from_static(b"welcome"))
        .unwrap();

    assert_eq!(blue.frame(at_blue).await, b"hello"[..]);
    assert_eq!(blue.frame(at_blue).await, largest);
    assert_eq!(blue.frame(at_blue).await, b"again"[..]);
    assert_eq!(amber.frame(at_amber).await, b"welcome"[..]);
}

#[tokio::test]
async fn datagrams_never_outgrow_the_smallest_underlay_behind_a_relay() {
    let mut blue = Anchor::new(BLUE);
    let amber = Raw::new(AMBER);
    let (connection, mut send, _recv) = amber.connect(blue.addr).await;
    let at_amber = blue.connected().await.conn;
    blue.handle.bind(at_amber, peer(AMBER));

    let frame = [&1024_u32.to_be_bytes()[..], &[9; 1024]].concat();
    for _ in 0..100 {
        send.write_all(&frame).await.unwrap();
        blue.frame(at_amber).await;
    }

    // 1280 bytes without 40 of IPv6, 8 of UDP and 32 of a relay.
    let path = connection.stats().path;
    assert_eq!((path.current_mtu, path.sent_plpmtud_probes), (1200, 0));
}

#[tokio::test]
async fn accepted_side_may_speak_first() {
    let (mut amber, blue, at_amber, at_blue) = pair().await;

    blue.handle
        .send(at_blue, Bytes::from_static(b"first"))
        .unwrap();

    assert_eq!(amber.frame(at_amber).await, b"first"[..]);
}

#[tokio::test]
async fn another_anchor_at_the_address_is_refused_by_name() {
    let mut amber = Anchor::new(AMBER);
    let blue = Anchor::new(BLUE);
    let coral = DialTarget::Peer {
        peer: peer(CORAL),
        key: key(CORAL),
    };
    amber.paths.lock().set_candidates(peer(CORAL), &[blue.addr]);

    amber.handle.dial(coral);
    let error = amber.dial_failed(coral).await;

    let wrong = WrongAnchor {
        expected: key(CORAL),
        found: key(BLUE),
    };
    assert_eq!(error, DialError::WrongAnchor(wrong));
    let (found, expected) = (key(BLUE).id().short(), key(CORAL).id().short());
    assert_eq!(
        error.to_string(),
        format!("another anchor answers there: {found} instead of {expected}")
    );
    amber.dial(&blue);
    assert_eq!(amber.connected().await.key, key(BLUE));
}

#[tokio::test]
async fn dead_candidate_does_not_keep_a_dial_from_the_living_one() {
    let mut amber = Anchor::new(AMBER);
    let mut blue = Anchor::new(BLUE);
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    let candidates = [dead.local_addr().unwrap(), blue.addr];
    amber.paths.lock().set_candidates(peer(BLUE), &candidates);

    amber.handle.dial(target(&blue));
    let (at_amber, at_blue) = (amber.connected().await, blue.connected().await);

    assert_eq!(at_amber.way.remote, blue.addr);
    assert_eq!(amber.paths.lock().current(peer(BLUE)), Some(at_amber.way));
    blue.handle.bind(at_blue.conn, peer(AMBER));
    amber
        .handle
        .send(at_amber.conn, Bytes::from_static(b"hello"))
        .unwrap();
    assert_eq!(blue.frame(at_blue.conn).await, b"hello"[..]);
    assert_eq!(
        blue.paths.lock().current(peer(AMBER)).map(|way| way.remote),
        Some(amber.addr)
    );
}

#[tokio::test]
async fn another_anchor_that_answers_first_does_not_keep_a_dial_from_the_right_one() {
    let coral = Anchor::new(CORAL);
    let mut amber = Anchor::new(AMBER);
    // Its own address, too: two homes may use the same private network.
    let blue_at = UdpSocket::bind("127.0.0.1:0").unwrap();
    let candidates = [coral.addr, amber.addr, blue_at.local_addr().unwrap()];
    amber.paths.lock().set_candidates(peer(BLUE), &candidates);
    let blue = DialTarget::Peer {
        peer: peer(BLUE),
        key: key(BLUE),
    };

    amber.handle.dial(blue);
    // Each of the others has answered, and made the dial begin anew.
    let blue_at = tokio::task::spawn_blocking(move || until_dialled_for_the(3, blue_at));
    let blue = Anchor::with(BLUE, vec![blue_at.await.unwrap()]);

    assert_eq!(amber.connected().await.way.remote, blue.addr);
}

#[tokio::test]
async fn two_living_candidates_of_two_families_give_one_connection() {
    let mut amber = Anchor::on(AMBER, &["127.0.0.1:0", "[::1]:0"]);
    let mut blue = Anchor::on(BLUE, &["127.0.0.1:0", "[::1]:0"]);
    amber
        .paths
        .lock()
        .set_candidates(peer(BLUE), blue.handle.locals());

    amber.handle.dial(target(&blue));
    let (at_amber, at_blue) = (amber.connected().await, blue.connected().await);
    blue.handle.bind(at_blue.conn, peer(AMBER));

    for round in 0..20_u8 {
        amber
            .handle
            .send(at_amber.conn, Bytes::copy_from_slice(&[round]))
            .unwrap();
        assert_eq!(blue.frame(at_blue.conn).await, [round][..]);
        blue.handle
            .send(at_blue.conn, Bytes::copy_from_slice(&[round]))
            .unwrap();
        assert_eq!(amber.frame(at_amber.conn).await, [round][..]);
    }
    assert_eq!(blue.handle.connections(), 1);
}

#[tokio::test]
async fn connection_survives_a_move_of_the_way_beneath_it() {
    let mut amber = Anchor::on(AMBER, &["127.0.0.1:0"]);
    let mut blue = Anchor::on(BLUE, &["127.0.0.1:0", "127.0.0.1:0"]);
    let [first, second] = blue.handle.locals() else {
        panic!("two sockets")
    };
    let (first, second) = (*first, *second);
    amber.paths.lock().set_candidates(peer(BLUE), &[first]);
    amber.handle.dial(target(&blue));
    let (at_amber, at_blue) = (amber.connected().await.conn, blue.connected().await.conn);
    blue.handle.bind(at_blue, peer(AMBER));

    let moved = Way {
        remote: second,
        local: None,
    };
    assert!(amber.paths.lock().roam(peer(BLUE), moved));
    amber
        .handle
        .send(at_amber, Bytes::from_static(b"by the other way"))
        .unwrap();

    assert_eq!(blue.frame(at_blue).await, b"by the other way"[..]);
}

#[tokio::test]
async fn address_alone_can_be_dialled_and_the_connection_lives_on_as_the_peers() {
    let mut amber = Anchor::new(AMBER);
    let mut blue = Anchor::new(BLUE);

    amber.handle.dial(DialTarget::Address(blue.addr));
    let (at_amber, at_blue) = (amber.connected().await, blue.connected().await);
    assert_eq!(at_amber.key, key(BLUE));
    amber.handle.bind(at_amber.conn, peer(BLUE));
    blue.handle.bind(at_blue.conn, peer(AMBER));

    for round in 0..5_u8 {
        amber
            .handle
            .send(at_amber.conn, Bytes::copy_from_slice(&[round]))
            .unwrap();
        assert_eq!(blue.frame(at_blue.conn).await, [round][..]);
        blue.handle
            .send(at_blue.conn, Bytes::copy_from_slice(&[round]))
            .unwrap();
        assert_eq!(amber.frame(at_amber.conn).await, [round][..]);
    }
    assert_eq!(
        amber.paths.lock().current(peer(BLUE)).map(|way| way.remote),
        Some(blue.addr)
    );
}

#[tokio::test]
async fn simultaneous_dials_give_two_working_connections() {
    let mut amber = Anchor::new(AMBER);
    let mut blue = Anchor::new(BLUE);

    amber.dial(&blue);
    blue.dial(&amber);
    let first = [amber.connected().await, amber.connected().await];
    let second = [blue.connected().await, blue.connected().await];
    for (anchor, connected) in [(&amber, &first), (&blue, &second)] {
        for one in connected.iter().filter(|one| one.dialled.is_none()) {
            let other = if anchor.addr == amber.addr {
                BLUE
            } else {
                AMBER
            };
            anchor.handle.bind(one.conn, peer(other));
        }
    }
    for one in &first {
        amber
            .handle
            .send(one.conn, Bytes::from_static(b"hello"))
            .unwrap();
    }

    for _ in &second {
        assert_eq!(blue.any_frame().await.1[..], b"hello"[..]);
    }
}

#[tokio::test]
async fn own_address_is_recognised() {
    let mut amber = Anchor::new(AMBER);
    let own = DialTarget::Address(amber.addr);

    amber.handle.dial(own);

    assert_eq!(amber.dial_failed(own).await, DialError::Own);
}

#[tokio::test]
async fn dial_to_nobody_fails_within_its_limit() {
    let mut amber = Anchor::new(AMBER);
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = DialTarget::Address(dead.local_addr().unwrap());
    let start = std::time::Instant::now();

    amber.handle.dial(nobody);
    amber.handle.dial(nobody);
    let error = amber.dial_failed(nobody).await;

    assert_eq!(error.to_string(), "no answer within 5 s");
    assert!(
        start.elapsed() < DIAL_WITHIN + Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    let unknown = DialTarget::Peer {
        peer: peer(BLUE),
        key: key(BLUE),
    };
    amber.handle.dial(unknown);
    let error = amber.dial_failed(unknown).await;
    assert_eq!(error, DialError::CannotDial(CannotDial::NoCandidates));
}

#[tokio::test]
async fn last_frame_is_acknowledged_and_given_before_the_end() {
    let (amber, mut blue, at_amber, at_blue) = pair().await;
    amber
        .handle
        .send(at_amber, Bytes::from_static(b"before"))
        .unwrap();

    let leave = Bytes::from_static(b"leave");
    let acknowledged = amber
        .handle
        .send_and_wait_acked(at_amber, leave, PATIENCE)
        .await;
    amber.handle.shut_down("leaving", PATIENCE).await;

    assert_eq!(acknowledged, Ok(()));
    assert_eq!(blue.frame(at_blue).await, b"before"[..]);
    assert_eq!(blue.frame(at_blue).await, b"leave"[..]);
    assert_eq!(
        blue.closed(at_blue).await,
        Closed::There("leaving".to_owned())
    );
    assert_eq!(blue.paths.lock().current(peer(AMBER)), None);
}

#[tokio::test]
async fn last_frame_to_a_vanished_peer_is_not_called_delivered() {
    let (amber, _blue, at_amber, _) = pair().await;
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nowhere = Way {
        remote: silent.local_addr().unwrap(),
        local: None,
    };
    assert!(amber.paths.lock().roam(peer(BLUE), nowhere));

    let within = Duration::from_millis(300);
    let leave = Bytes::from_static(b"leave");
    let result = amber
        .handle
        .send_and_wait_acked(at_amber, leave, within)
        .await;

    assert_eq!(result, Err(NotDelivered::TimedOut));
}

#[tokio::test]
async fn restarted_anchor_is_noticed_at_the_next_packet() {
    let (mut amber, _former_blue, at_amber, _) = pair().await;
    let blue = Anchor::new(BLUE);
    let now_there = Way {
        remote: blue.addr,
        local: None,
    };
    assert!(amber.paths.lock().roam(peer(BLUE), now_there));

    amber
        .handle
        .send(at_amber, Bytes::from(vec![1; 100]))
        .unwrap();

    assert_eq!(amber.closed(at_amber).await, Closed::Reset);
}

#[tokio::test]
async fn close_lets_queued_frames_arrive_and_tells_both_sides_why() {
    let (mut amber, mut blue, at_amber, at_blue) = pair().await;

    amber
        .handle
        .send(at_amber, Bytes::from_static(b"refused: expired"))
        .unwrap();
    amber.handle.close(at_amber, "credential expired");

    assert_eq!(blue.frame(at_blue).await, b"refused: expired"[..]);
    assert_eq!(
        blue.closed(at_blue).await,
        Closed::There("credential expired".to_owned())
    );
    assert_eq!(
        amber.closed(at_amber).await,
        Closed::Here("credential expired".to_owned())
    );
    assert_eq!(
        amber.handle.send(at_amber, Bytes::new()),
        Err(SendError::Closed)
    );
    assert_eq!(amber.paths.lock().current(peer(BLUE)), None);
}

#[tokio::test]
async fn huge_frame_ends_its_connection_only() {
    let (mut amber, mut blue, at_amber, at_blue) = pair().await;
    let mallory = Raw::new(CORAL);
    let (connection, mut send, _recv) = mallory.connect(blue.addr).await;
    let at_mallory = blue.connected().await.conn;

    send.write_all(&(MAX_FRAME_BYTES as u32 + 1).to_be_bytes())
        .await
        .unwrap();

    let closed = blue.closed(at_mallory).await;
    assert_eq!(
        closed.to_string(),
        "the far end misbehaved: a frame of 65537 bytes"
    );
    timeout(PATIENCE, connection.closed()).await.unwrap();
    let too_large = Bytes::from(vec![0; MAX_FRAME_BYTES + 1]);
    assert_eq!(
        amber.handle.send(at_amber, too_large),
        Err(SendError::TooLarge)
    );
    blue.handle
        .send(at_blue, Bytes::from_static(b"still here"))
        .unwrap();
    assert_eq!(amber.frame(at_amber).await, b"still here"[..]);
}

#[tokio::test]
async fn flooding_peer_waits_while_others_are_heard() {
    let (amber, mut blue, at_amber, at_blue) = pair().await;
    let mallory = Raw::new(CORAL);
    let (_connection, mut send, _recv) = mallory.connect(blue.addr).await;
    let at_mallory = blue.connected().await.conn;
    let flood = tokio::spawn(async move {
        let frame = [&1024_u32.to_be_bytes()[..], &[9; 1024]].concat();
        while send.write_all(&frame).await.is_ok() {}
    });

    let mut held = Vec::new();
    while held.len() < connection::MAX_UNREAD_FRAMES {
        let (conn, frame) = blue.any_frame().await;
        assert_eq!(conn, at_mallory);
        held.push(frame);
    }
    amber
        .handle
        .send(at_amber, Bytes::from_static(b"hello"))
        .unwrap();

    assert_eq!(blue.frame(at_blue).await, b"hello"[..]);
    drop(held);
    blue.frame(at_mallory).await;
    flood.abort();
}

#[tokio::test]
async fn peer_that_does_not_read_fills_its_own_queue_only() {
    let (mut amber, blue, at_amber, at_blue) = pair().await;
    let mut blue = blue;
    let mallory = Raw::new(CORAL);
    let (_connection, _send, _recv) = mallory.connect(blue.addr).await;
    let at_mallory = blue.connected().await.conn;
    blue.handle.bind(at_mallory, peer(CORAL));

    let frame = Bytes::from(vec![5; MAX_FRAME_BYTES]);
    let mut taken = 0;
    let refused = loop {
        match blue.handle.send(at_mallory, frame.clone()) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 100, "the queue has no bound");
        tokio::task::yield_now().await;
    };
    blue.handle
        .send(at_blue, Bytes::from_static(b"hello"))
        .unwrap();

    assert_eq!(refused, SendError::Full);
    assert_eq!(amber.frame(at_amber).await, b"hello"[..]);
}

#[tokio::test]
async fn stranger_that_is_not_bound_is_disconnected() {
    let mut amber = Anchor::new(AMBER);
    let mut blue = Anchor::new(BLUE);
    amber.dial(&blue);
    let (at_amber, at_blue) = (amber.connected().await.conn, blue.connected().await.conn);

    assert_eq!(
        blue.closed(at_blue).await,
        Closed::Here("not admitted in time".to_owned())
    );
    assert_eq!(
        amber.closed(at_amber).await,
        Closed::There("not admitted in time".to_owned())
    );
}

#[tokio::test]
async fn crowd_of_strangers_keeps_no_member_out() {
    let mut amber = Anchor::on(AMBER, &["127.0.0.1:0", "[::1]:0"]);
    let mut blue = Anchor::on(BLUE, &["127.0.0.1:0", "[::1]:0"]);
    let mallory = Raw::new(CORAL);
    let mut crowd = Vec::new();
    for _ in 0..RETRY_FROM + 4 {
        crowd.push(mallory.connect(blue.addr).await);
        blue.connected().await;
    }

    // By now blue asks everybody to prove an address, and amber comes from two.
    amber
        .paths
        .lock()
        .set_candidates(peer(BLUE), blue.handle.locals());
    amber.handle.dial(target(&blue));

    assert_eq!(amber.connected().await.key, key(BLUE));
    assert_eq!(blue.connected().await.key, key(AMBER));
}

#[tokio::test]
async fn datagrams_handed_over_by_the_data_thread_reach_quinn() {
    let mut amber = Anchor::new(AMBER);
    let mut blue = Anchor::new(BLUE);
    // Everything for blue comes in here and is handed over, as if the kernel had missorted it.
    let front = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let front_addr = front.local_addr().unwrap();
    let strays = blue.strays.clone();
    let relay = tokio::spawn(async move {
        let mut buf = [0; 2048];
        while let Ok((len, remote)) = front.recv_from(&mut buf).await {
            let local = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
            strays.give(Way { remote, local }, &buf[..len]);
        }
    });
    // Blue answers from his own socket, so amber must know both addresses as his.
    amber
        .paths
        .lock()
        .set_candidates(peer(BLUE), &[front_addr, blue.addr]);
    let only_front = Way {
        remote: front_addr,
        local: None,
    };

    amber.handle.dial(target(&blue));
    let (at_amber, at_blue) = (amber.connected().await, blue.connected().await);
    amber.paths.lock().roam(peer(BLUE), only_front);
    amber
        .handle
        .send(at_amber.conn, Bytes::from_static(b"stray"))
        .unwrap();

    assert_eq!(blue.frame(at_blue.conn).await, b"stray"[..]);
    assert_eq!(blue.strays.dropped(), 0);
    relay.abort();
}

#[tokio::test]
async fn garbage_on_the_socket_disturbs_nobody() {
    let (mut amber, blue, at_amber, at_blue) = pair().await;
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..2000 {
        let mut bytes = vec![0; rng.usize(..1400)];
        rng.fill(&mut bytes);
        // A full buffer loses some, which is as good.
        let _ = noise.send_to(&bytes, blue.addr);
    }

    blue.handle
        .send(at_blue, Bytes::from_static(b"hello"))
        .unwrap();

    assert_eq!(amber.frame(at_amber).await, b"hello"[..]);
}

/// Reads a socket until so many connections have been dialled there.
fn until_dialled_for_the(times: usize, socket: UdpSocket) -> UdpSocket {
    socket.set_read_timeout(Some(DIAL_WITHIN / 2)).unwrap();
    let mut dialled = HashSet::new();
    let mut datagram = [0; 1500];
    while dialled.len() < times {
        socket
            .recv_from(&mut datagram)
            .expect("the dial to go on at this address");
        // Behind the first byte and the version: the name the dialler chose for the connection.
        let length = usize::from(datagram[5]);
        dialled.insert(datagram[6..6 + length].to_vec());
    }
    socket.set_read_timeout(None).unwrap();
    socket
}
