//! Two and more endpoints over real loopback sockets.

mod lab;
mod lock_tests;
mod tls_tests;

use std::net::{IpAddr, Ipv4Addr};

use tokio::time::timeout;

use super::*;
use lab::{ALICE, Anchor, BOB, CAROL, PATIENCE, Raw, key, pair, peer, target};

#[tokio::test]
async fn both_sides_learn_the_proven_key_and_share_a_secret() {
    let mut alice = Anchor::new(ALICE);
    let mut bob = Anchor::new(BOB);

    alice.dial(&bob);
    let (at_alice, at_bob) = (alice.connected().await, bob.connected().await);

    assert_eq!(at_alice.key, key(BOB));
    assert_eq!(at_bob.key, key(ALICE));
    assert_eq!(at_alice.dialled, Some(target(&bob)));
    assert_eq!(at_bob.dialled, None);
    assert_eq!(at_alice.way.remote, bob.addr);
    assert_eq!(at_bob.way.remote, alice.addr);
    assert_eq!(at_bob.way.local, Some(bob.addr.ip()));
    assert_eq!(at_alice.psk.bytes(), at_bob.psk.bytes());
    assert_ne!(at_alice.psk.bytes(), &[0; 32]);
    assert_eq!(format!("{:?}", at_alice.psk), "Psk(..)");
}

#[tokio::test]
async fn frames_cross_both_ways_in_order() {
    let (mut alice, mut bob, at_alice, at_bob) = pair().await;
    let largest = Bytes::from(vec![7; MAX_FRAME_BYTES]);

    for frame in [
        Bytes::from_static(b"hello"),
        largest.clone(),
        Bytes::from_static(b"again"),
    ] {
        alice.handle.send(at_alice, frame).unwrap();
    }
    bob.handle
        .send(at_bob, Bytes::from_static(b"welcome"))
        .unwrap();

    assert_eq!(bob.frame(at_bob).await, b"hello"[..]);
    assert_eq!(bob.frame(at_bob).await, largest);
    assert_eq!(bob.frame(at_bob).await, b"again"[..]);
    assert_eq!(alice.frame(at_alice).await, b"welcome"[..]);
}

#[tokio::test]
async fn accepted_side_may_speak_first() {
    let (mut alice, bob, at_alice, at_bob) = pair().await;

    bob.handle
        .send(at_bob, Bytes::from_static(b"first"))
        .unwrap();

    assert_eq!(alice.frame(at_alice).await, b"first"[..]);
}

#[tokio::test]
async fn another_anchor_at_the_address_is_refused_by_name() {
    let mut alice = Anchor::new(ALICE);
    let bob = Anchor::new(BOB);
    let carol = DialTarget::Peer {
        peer: peer(CAROL),
        key: key(CAROL),
    };
    alice.paths.lock().set_candidates(peer(CAROL), &[bob.addr]);

    alice.handle.dial(carol);
    let error = alice.dial_failed(carol).await;

    let wrong = WrongAnchor {
        expected: key(CAROL),
        found: key(BOB),
    };
    assert_eq!(error, DialError::WrongAnchor(wrong));
    let (found, expected) = (key(BOB).id().short(), key(CAROL).id().short());
    assert_eq!(
        error.to_string(),
        format!("another anchor answers there: {found} instead of {expected}")
    );
    alice.dial(&bob);
    assert_eq!(alice.connected().await.key, key(BOB));
}

#[tokio::test]
async fn dead_candidate_does_not_keep_a_dial_from_the_living_one() {
    let mut alice = Anchor::new(ALICE);
    let mut bob = Anchor::new(BOB);
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    let candidates = [dead.local_addr().unwrap(), bob.addr];
    alice.paths.lock().set_candidates(peer(BOB), &candidates);

    alice.handle.dial(target(&bob));
    let (at_alice, at_bob) = (alice.connected().await, bob.connected().await);

    assert_eq!(at_alice.way.remote, bob.addr);
    assert_eq!(alice.paths.lock().current(peer(BOB)), Some(at_alice.way));
    bob.handle.bind(at_bob.conn, peer(ALICE));
    alice
        .handle
        .send(at_alice.conn, Bytes::from_static(b"hello"))
        .unwrap();
    assert_eq!(bob.frame(at_bob.conn).await, b"hello"[..]);
    assert_eq!(
        bob.paths.lock().current(peer(ALICE)).map(|way| way.remote),
        Some(alice.addr)
    );
}

#[tokio::test]
async fn two_living_candidates_of_two_families_give_one_connection() {
    let mut alice = Anchor::on(ALICE, &["127.0.0.1:0", "[::1]:0"]);
    let mut bob = Anchor::on(BOB, &["127.0.0.1:0", "[::1]:0"]);
    alice
        .paths
        .lock()
        .set_candidates(peer(BOB), bob.handle.locals());

    alice.handle.dial(target(&bob));
    let (at_alice, at_bob) = (alice.connected().await, bob.connected().await);
    bob.handle.bind(at_bob.conn, peer(ALICE));

    for round in 0..20_u8 {
        alice
            .handle
            .send(at_alice.conn, Bytes::copy_from_slice(&[round]))
            .unwrap();
        assert_eq!(bob.frame(at_bob.conn).await, [round][..]);
        bob.handle
            .send(at_bob.conn, Bytes::copy_from_slice(&[round]))
            .unwrap();
        assert_eq!(alice.frame(at_alice.conn).await, [round][..]);
    }
    assert_eq!(bob.handle.connections(), 1);
}

#[tokio::test]
async fn connection_survives_a_move_of_the_way_beneath_it() {
    let mut alice = Anchor::on(ALICE, &["127.0.0.1:0"]);
    let mut bob = Anchor::on(BOB, &["127.0.0.1:0", "127.0.0.1:0"]);
    let [first, second] = bob.handle.locals() else {
        panic!("two sockets")
    };
    let (first, second) = (*first, *second);
    alice.paths.lock().set_candidates(peer(BOB), &[first]);
    alice.handle.dial(target(&bob));
    let (at_alice, at_bob) = (alice.connected().await.conn, bob.connected().await.conn);
    bob.handle.bind(at_bob, peer(ALICE));

    let moved = Way {
        remote: second,
        local: None,
    };
    assert!(alice.paths.lock().roam(peer(BOB), moved));
    alice
        .handle
        .send(at_alice, Bytes::from_static(b"by the other way"))
        .unwrap();

    assert_eq!(bob.frame(at_bob).await, b"by the other way"[..]);
}

#[tokio::test]
async fn address_alone_can_be_dialled_and_the_connection_lives_on_as_the_peers() {
    let mut alice = Anchor::new(ALICE);
    let mut bob = Anchor::new(BOB);

    alice.handle.dial(DialTarget::Address(bob.addr));
    let (at_alice, at_bob) = (alice.connected().await, bob.connected().await);
    assert_eq!(at_alice.key, key(BOB));
    alice.handle.bind(at_alice.conn, peer(BOB));
    bob.handle.bind(at_bob.conn, peer(ALICE));

    for round in 0..5_u8 {
        alice
            .handle
            .send(at_alice.conn, Bytes::copy_from_slice(&[round]))
            .unwrap();
        assert_eq!(bob.frame(at_bob.conn).await, [round][..]);
        bob.handle
            .send(at_bob.conn, Bytes::copy_from_slice(&[round]))
            .unwrap();
        assert_eq!(alice.frame(at_alice.conn).await, [round][..]);
    }
    assert_eq!(
        alice.paths.lock().current(peer(BOB)).map(|way| way.remote),
        Some(bob.addr)
    );
}

#[tokio::test]
async fn simultaneous_dials_give_two_working_connections() {
    let mut alice = Anchor::new(ALICE);
    let mut bob = Anchor::new(BOB);

    alice.dial(&bob);
    bob.dial(&alice);
    let first = [alice.connected().await, alice.connected().await];
    let second = [bob.connected().await, bob.connected().await];
    for (anchor, connected) in [(&alice, &first), (&bob, &second)] {
        for one in connected.iter().filter(|one| one.dialled.is_none()) {
            let other = if anchor.addr == alice.addr {
                BOB
            } else {
                ALICE
            };
            anchor.handle.bind(one.conn, peer(other));
        }
    }
    for one in &first {
        alice
            .handle
            .send(one.conn, Bytes::from_static(b"hello"))
            .unwrap();
    }

    for _ in &second {
        assert_eq!(bob.any_frame().await.1[..], b"hello"[..]);
    }
}

#[tokio::test]
async fn own_address_is_recognised() {
    let mut alice = Anchor::new(ALICE);
    let own = DialTarget::Address(alice.addr);

    alice.handle.dial(own);

    assert_eq!(alice.dial_failed(own).await, DialError::Own);
}

#[tokio::test]
async fn dial_to_nobody_fails_within_its_limit() {
    let mut alice = Anchor::new(ALICE);
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = DialTarget::Address(dead.local_addr().unwrap());
    let start = std::time::Instant::now();

    alice.handle.dial(nobody);
    alice.handle.dial(nobody);
    let error = alice.dial_failed(nobody).await;

    assert_eq!(error.to_string(), "no answer within 5 s");
    assert!(
        start.elapsed() < DIAL_WITHIN + Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    let unknown = DialTarget::Peer {
        peer: peer(BOB),
        key: key(BOB),
    };
    alice.handle.dial(unknown);
    let error = alice.dial_failed(unknown).await;
    assert_eq!(error, DialError::CannotDial(CannotDial::NoCandidates));
}

#[tokio::test]
async fn last_frame_is_acknowledged_and_given_before_the_end() {
    let (alice, mut bob, at_alice, at_bob) = pair().await;
    alice
        .handle
        .send(at_alice, Bytes::from_static(b"before"))
        .unwrap();

    let leave = Bytes::from_static(b"leave");
    let acknowledged = alice
        .handle
        .send_and_wait_acked(at_alice, leave, PATIENCE)
        .await;
    alice.handle.shut_down("leaving", PATIENCE).await;

    assert_eq!(acknowledged, Ok(()));
    assert_eq!(bob.frame(at_bob).await, b"before"[..]);
    assert_eq!(bob.frame(at_bob).await, b"leave"[..]);
    assert_eq!(
        bob.closed(at_bob).await,
        Closed::There("leaving".to_owned())
    );
    assert_eq!(bob.paths.lock().current(peer(ALICE)), None);
}

#[tokio::test]
async fn last_frame_to_a_vanished_peer_is_not_called_delivered() {
    let (alice, _bob, at_alice, _) = pair().await;
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nowhere = Way {
        remote: silent.local_addr().unwrap(),
        local: None,
    };
    assert!(alice.paths.lock().roam(peer(BOB), nowhere));

    let within = Duration::from_millis(300);
    let leave = Bytes::from_static(b"leave");
    let result = alice
        .handle
        .send_and_wait_acked(at_alice, leave, within)
        .await;

    assert_eq!(result, Err(NotDelivered::TimedOut));
}

#[tokio::test]
async fn restarted_anchor_is_noticed_at_the_next_packet() {
    let (mut alice, _former_bob, at_alice, _) = pair().await;
    let bob = Anchor::new(BOB);
    let now_there = Way {
        remote: bob.addr,
        local: None,
    };
    assert!(alice.paths.lock().roam(peer(BOB), now_there));

    alice
        .handle
        .send(at_alice, Bytes::from(vec![1; 100]))
        .unwrap();

    assert_eq!(alice.closed(at_alice).await, Closed::Reset);
}

#[tokio::test]
async fn close_lets_queued_frames_arrive_and_tells_both_sides_why() {
    let (mut alice, mut bob, at_alice, at_bob) = pair().await;

    alice
        .handle
        .send(at_alice, Bytes::from_static(b"refused: expired"))
        .unwrap();
    alice.handle.close(at_alice, "credential expired");

    assert_eq!(bob.frame(at_bob).await, b"refused: expired"[..]);
    assert_eq!(
        bob.closed(at_bob).await,
        Closed::There("credential expired".to_owned())
    );
    assert_eq!(
        alice.closed(at_alice).await,
        Closed::Here("credential expired".to_owned())
    );
    assert_eq!(
        alice.handle.send(at_alice, Bytes::new()),
        Err(SendError::Closed)
    );
    assert_eq!(alice.paths.lock().current(peer(BOB)), None);
}

#[tokio::test]
async fn huge_frame_ends_its_connection_only() {
    let (mut alice, mut bob, at_alice, at_bob) = pair().await;
    let mallory = Raw::new(CAROL);
    let (connection, mut send, _recv) = mallory.connect(bob.addr).await;
    let at_mallory = bob.connected().await.conn;

    send.write_all(&(MAX_FRAME_BYTES as u32 + 1).to_be_bytes())
        .await
        .unwrap();

    let closed = bob.closed(at_mallory).await;
    assert_eq!(
        closed.to_string(),
        "the far end misbehaved: a frame of 65537 bytes"
    );
    timeout(PATIENCE, connection.closed()).await.unwrap();
    let too_large = Bytes::from(vec![0; MAX_FRAME_BYTES + 1]);
    assert_eq!(
        alice.handle.send(at_alice, too_large),
        Err(SendError::TooLarge)
    );
    bob.handle
        .send(at_bob, Bytes::from_static(b"still here"))
        .unwrap();
    assert_eq!(alice.frame(at_alice).await, b"still here"[..]);
}

#[tokio::test]
async fn flooding_peer_waits_while_others_are_heard() {
    let (alice, mut bob, at_alice, at_bob) = pair().await;
    let mallory = Raw::new(CAROL);
    let (_connection, mut send, _recv) = mallory.connect(bob.addr).await;
    let at_mallory = bob.connected().await.conn;
    let flood = tokio::spawn(async move {
        let frame = [&1024_u32.to_be_bytes()[..], &[9; 1024]].concat();
        while send.write_all(&frame).await.is_ok() {}
    });

    let mut held = Vec::new();
    while held.len() < connection::MAX_UNREAD_FRAMES {
        let (conn, frame) = bob.any_frame().await;
        assert_eq!(conn, at_mallory);
        held.push(frame);
    }
    alice
        .handle
        .send(at_alice, Bytes::from_static(b"hello"))
        .unwrap();

    assert_eq!(bob.frame(at_bob).await, b"hello"[..]);
    drop(held);
    bob.frame(at_mallory).await;
    flood.abort();
}

#[tokio::test]
async fn peer_that_does_not_read_fills_its_own_queue_only() {
    let (mut alice, bob, at_alice, at_bob) = pair().await;
    let mut bob = bob;
    let mallory = Raw::new(CAROL);
    let (_connection, _send, _recv) = mallory.connect(bob.addr).await;
    let at_mallory = bob.connected().await.conn;
    bob.handle.bind(at_mallory, peer(CAROL));

    let frame = Bytes::from(vec![5; MAX_FRAME_BYTES]);
    let mut taken = 0;
    let refused = loop {
        match bob.handle.send(at_mallory, frame.clone()) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 100, "the queue has no bound");
        tokio::task::yield_now().await;
    };
    bob.handle
        .send(at_bob, Bytes::from_static(b"hello"))
        .unwrap();

    assert_eq!(refused, SendError::Full);
    assert_eq!(alice.frame(at_alice).await, b"hello"[..]);
}

#[tokio::test]
async fn stranger_that_is_not_bound_is_disconnected() {
    let mut alice = Anchor::new(ALICE);
    let mut bob = Anchor::new(BOB);
    alice.dial(&bob);
    let (at_alice, at_bob) = (alice.connected().await.conn, bob.connected().await.conn);

    assert_eq!(
        bob.closed(at_bob).await,
        Closed::Here("not admitted in time".to_owned())
    );
    assert_eq!(
        alice.closed(at_alice).await,
        Closed::There("not admitted in time".to_owned())
    );
}

#[tokio::test]
async fn crowd_of_strangers_keeps_no_member_out() {
    let mut alice = Anchor::on(ALICE, &["127.0.0.1:0", "[::1]:0"]);
    let mut bob = Anchor::on(BOB, &["127.0.0.1:0", "[::1]:0"]);
    let mallory = Raw::new(CAROL);
    let mut crowd = Vec::new();
    for _ in 0..RETRY_FROM + 4 {
        crowd.push(mallory.connect(bob.addr).await);
        bob.connected().await;
    }

    // By now bob asks everybody to prove an address, and alice comes from two.
    alice
        .paths
        .lock()
        .set_candidates(peer(BOB), bob.handle.locals());
    alice.handle.dial(target(&bob));

    assert_eq!(alice.connected().await.key, key(BOB));
    assert_eq!(bob.connected().await.key, key(ALICE));
}

#[tokio::test]
async fn datagrams_handed_over_by_the_data_thread_reach_quinn() {
    let mut alice = Anchor::new(ALICE);
    let mut bob = Anchor::new(BOB);
    // Everything for bob comes in here and is handed over, as if the kernel had missorted it.
    let front = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let front_addr = front.local_addr().unwrap();
    let strays = bob.strays.clone();
    let relay = tokio::spawn(async move {
        let mut buf = [0; 2048];
        while let Ok((len, remote)) = front.recv_from(&mut buf).await {
            let local = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
            strays.give(Way { remote, local }, &buf[..len]);
        }
    });
    // Bob answers from his own socket, so alice must know both addresses as his.
    alice
        .paths
        .lock()
        .set_candidates(peer(BOB), &[front_addr, bob.addr]);
    let only_front = Way {
        remote: front_addr,
        local: None,
    };

    alice.handle.dial(target(&bob));
    let (at_alice, at_bob) = (alice.connected().await, bob.connected().await);
    alice.paths.lock().roam(peer(BOB), only_front);
    alice
        .handle
        .send(at_alice.conn, Bytes::from_static(b"stray"))
        .unwrap();

    assert_eq!(bob.frame(at_bob.conn).await, b"stray"[..]);
    assert_eq!(bob.strays.dropped(), 0);
    relay.abort();
}

#[tokio::test]
async fn garbage_on_the_socket_disturbs_nobody() {
    let (mut alice, bob, at_alice, at_bob) = pair().await;
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..2000 {
        let mut bytes = vec![0; rng.usize(..1400)];
        rng.fill(&mut bytes);
        // A full buffer loses some, which is as good.
        let _ = noise.send_to(&bytes, bob.addr);
    }

    bob.handle
        .send(at_bob, Bytes::from_static(b"hello"))
        .unwrap();

    assert_eq!(alice.frame(at_alice).await, b"hello"[..]);
}
