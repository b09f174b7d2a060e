//! The locks of the registry, the ways and quinn's connections are taken by several threads, and
//! sockets do not outlive the end.

use std::net::UdpSocket;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::lab::{AMBER, PATIENCE, pair, peer};

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
    let (mut amber, blue, at_amber, at_blue) = pair().await;
    let handle = blue.handle.clone();
    let binding = thread::spawn(move || {
        for _ in 0..BINDS {
            handle.bind(at_blue, peer(AMBER));
        }
    });
    let frame = Bytes::from_static(b"to and fro");
    while !binding.is_finished() {
        blue.handle.send(at_blue, frame.clone()).unwrap();
        assert_eq!(amber.frame(at_amber).await, frame);
    }
}

#[tokio::test]
async fn ports_are_free_once_shut_down_while_connections_still_drain() {
    let (amber, blue, _, _) = pair().await;

    amber
        .handle
        .shut_down("starting anew", Duration::ZERO)
        .await;

    assert!(UdpSocket::bind(amber.addr).is_ok());
    drop(blue);
}
