//! The locks of the registry, the ways and quinn's connections are taken by several threads, and
//! sockets do not outlive the end.

use std::net::UdpSocket;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::lab::{ALICE, PATIENCE, pair, peer};

/// Enough for an inversion of locks to show in every run on two cores.
const BINDS: usize = 100_000;

#[test]
fn binding_a_connection_while_it_sends_blocks_nobody() {
    // A runtime whose threads wait for each other cannot time itself out.
    let (done, wait) = channel();
    thread::spawn(move || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
            .block_on(send_while_binding());
        done.send(()).unwrap();
    });

    assert_eq!(wait.recv_timeout(PATIENCE), Ok(()));
}

async fn send_while_binding() {
    let (mut alice, bob, at_alice, at_bob) = pair().await;
    let handle = bob.handle.clone();
    let binding = thread::spawn(move || {
        for _ in 0..BINDS {
            handle.bind(at_bob, peer(ALICE));
        }
    });
    let frame = Bytes::from_static(b"to and fro");
    while !binding.is_finished() {
        bob.handle.send(at_bob, frame.clone()).unwrap();
        assert_eq!(alice.frame(at_alice).await, frame);
    }
}

#[tokio::test]
async fn ports_are_free_once_shut_down_while_connections_still_drain() {
    let (alice, bob, _, _) = pair().await;

    alice
        .handle
        .shut_down("starting anew", Duration::ZERO)
        .await;

    assert!(UdpSocket::bind(alice.addr).is_ok());
    drop(bob);
}
