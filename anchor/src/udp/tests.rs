use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use conflux_core::paths::Way;
use socket2::{Domain, SockRef, Socket, Type};

use super::*;
use crate::netns::{in_namespace, ip};
use crate::poll::wait;

#[test]
fn frames_go_to_the_data_socket_and_all_else_to_control() {
    in_namespace(|| {
        for address in ["0.0.0.0:0", "[::]:0", "127.0.0.1:0", "[::1]:0"] {
            let mut group = bind_group(address.parse().unwrap()).unwrap();
            let mut batch = RecvBatch::new();
            let to = at_loopback(group.local);

            for number in 0..16 {
                let sender = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).unwrap();
                let source = sender.local_addr().unwrap();
                sender.send_to(&[0x10 + number, 1, 2], to).unwrap();
                sender.send_to(&[0x40 + number * 12, 3, 4], to).unwrap();

                recv(&mut group.data, &mut batch);
                let received = batch.received();
                assert_eq!(received.len(), 1);
                assert_eq!((received[0].source, received[0].bytes), (source, 3));
                assert_eq!(batch.bytes()[received[0].start], 0x10 + number);
                let mut got = [0; 8];
                assert!(wait(&[group.control.as_fd()], LONG).unwrap().has(0));
                assert_eq!(group.control.recv_from(&mut got).unwrap(), (3, source));
                assert_eq!(got[0], 0x40 + number * 12);
            }
        }
    });
}

#[test]
fn the_two_families_share_a_port_number() {
    in_namespace(|| {
        let v4 = bind_group("0.0.0.0:47474".parse().unwrap()).unwrap();
        let v6 = bind_group("[::]:47474".parse().unwrap()).unwrap();

        assert!(v4.data.serves("192.0.2.1:9".parse().unwrap()));
        assert!(v6.data.serves("[2001:db8::1]:9".parse().unwrap()));
        assert!(!v4.data.serves("[2001:db8::1]:9".parse().unwrap()));
        assert_eq!(v6.data.local_addr(), v6.local);
    });
}

#[test]
fn a_port_somebody_has_is_refused_however_they_share_it() {
    in_namespace(|| {
        let wanted: SocketAddr = "127.0.0.1:47474".parse().unwrap();
        let alone = UdpSocket::bind(wanted).unwrap();
        assert_in_use(wanted);
        drop(alone);

        let sharing = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        sharing.set_reuse_port(true).unwrap();
        sharing
            .bind(&SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 47474).into())
            .unwrap();
        assert_in_use(wanted);
        drop(sharing);

        let ours = bind_group(wanted).unwrap();
        assert_in_use(wanted);
        assert_in_use("0.0.0.0:47474".parse().unwrap());
        assert!(bind_group("127.0.0.2:47474".parse().unwrap()).is_ok());
        drop(ours);

        assert!(bind_group(wanted).is_ok());
    });
}

#[test]
fn what_cannot_be_bound_is_told_apart() {
    in_namespace(|| {
        let absent = bind_group("192.0.2.1:47474".parse().unwrap()).unwrap_err();

        assert!(matches!(absent, BindError::NoSuchAddress { .. }));
        assert!(absent.to_string().contains("192.0.2.1:47474"));
    });
}

#[test]
fn a_host_whose_loopback_is_down_can_bind_all_the_same() {
    in_namespace(|| {
        ip("link set lo down");

        assert!(bind_group("0.0.0.0:0".parse().unwrap()).is_ok());
    });
}

#[test]
fn buffers_are_larger_than_the_host_would_grant() {
    in_namespace(|| {
        let group = bind_group("127.0.0.1:0".parse().unwrap()).unwrap();

        for socket in [
            SockRef::from(&group.data.as_fd()),
            SockRef::from(&group.control),
        ] {
            assert_eq!(socket.recv_buffer_size().unwrap(), 14_000_000);
            assert_eq!(socket.send_buffer_size().unwrap(), 14_000_000);
        }
    });
}

#[test]
fn a_run_travels_as_one_and_comes_apart_as_it_was() {
    in_namespace(|| {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut sender, mut receiver) = pair(address);
            let mut batch = RecvBatch::new();
            let sent: Vec<u8> = (0..7).flat_map(|number| [0x10 + number; 1000]).collect();

            sender
                .send(Way::to(receiver.local_addr()), &sent[..6_400], 1000)
                .unwrap();
            recv(&mut receiver, &mut batch);

            assert_eq!(
                sender.stats(),
                SendStats {
                    calls: 1,
                    fallbacks: 0,
                    full: 0
                }
            );
            let (received, bytes) = batch.parts();
            assert_eq!(received.len(), 1);
            assert_eq!(received[0].source, sender.local_addr());
            assert_eq!((received[0].bytes, received[0].stride_bytes), (6_400, 1000));
            let lengths: Vec<usize> = received[0].datagrams().map(|(_, length)| length).collect();
            assert_eq!(lengths, [1000, 1000, 1000, 1000, 1000, 1000, 400]);
            for (number, (start, length)) in received[0].datagrams().enumerate() {
                assert!(
                    bytes[start..start + length]
                        .iter()
                        .all(|byte| *byte == 0x10 + number as u8)
                );
            }
        }
    });
}

#[test]
fn a_run_beyond_the_kernels_limits_takes_several_calls() {
    in_namespace(|| {
        let (mut sender, mut receiver) = pair("127.0.0.1:0");
        let to = receiver.local_addr();

        sender.send(Way::to(to), &[0x10; 100 * 130], 100).unwrap();
        sender.send(Way::to(to), &[0x10; 1452 * 60], 1452).unwrap();

        assert_eq!(sender.stats().calls, 3 + 2);
        assert_eq!(drain(&mut receiver, 100 * 130 + 1452 * 60), 130 + 60);
    });
}

#[test]
fn datagrams_longer_than_the_interface_takes_are_refused_and_never_cut() {
    in_namespace(|| {
        ip("link set lo mtu 1280");
        for (address, header_bytes) in [("127.0.0.1:0", 28), ("[::1]:0", 48)] {
            let (mut sender, mut receiver) = pair(address);
            let to = receiver.local_addr();
            let fits = 1280 - header_bytes;

            for (bytes, segment_bytes) in [(fits + 1, fits + 1), (2 * fits + 2, fits + 1)] {
                let refused = sender.send(Way::to(to), &vec![0x10; bytes], segment_bytes);
                assert!(matches!(refused, Err(SendError::TooBig)), "{refused:?}");
            }
            sender
                .send(Way::to(to), &vec![0x10; 2 * fits], fits)
                .unwrap();

            assert_eq!(drain(&mut receiver, 2 * fits), 2);
            assert_eq!(sender.stats().fallbacks, 0);
        }
    });
}

#[test]
fn what_the_kernel_believes_of_a_path_is_ignored() {
    in_namespace(|| {
        let (mut sender, mut receiver) = pair("127.0.0.1:0");
        let to = receiver.local_addr();
        ip("route add local 127.0.0.1 dev lo table local mtu lock 1280 proto static metric 1");
        ip("route del local 127.0.0.1 dev lo table local metric 0");

        sender.send(Way::to(to), &[0x10; 2800], 1400).unwrap();

        assert_eq!(drain(&mut receiver, 2800), 2);
    });
}

#[test]
fn what_cannot_be_sent_is_told_apart() {
    in_namespace(|| {
        let mut group = bind_group("0.0.0.0:0".parse().unwrap()).unwrap();
        let loopback = at_loopback(group.local);

        let nowhere = group
            .data
            .send(Way::to("192.0.2.1:9".parse().unwrap()), &[0x10; 10], 10)
            .unwrap_err();
        let too_big = group
            .data
            .send(Way::to(loopback), &[0x10; 66_000], 66_000)
            .unwrap_err();
        let other = group
            .data
            .send(Way::to("[::1]:9".parse().unwrap()), &[0x10; 10], 10)
            .unwrap_err();

        assert!(matches!(nowhere, SendError::Unreachable), "{nowhere}");
        assert!(matches!(too_big, SendError::TooBig), "{too_big}");
        assert!(matches!(other, SendError::Unreachable), "{other}");
    });
}

#[test]
fn a_batch_takes_many_senders_and_ends_empty() {
    in_namespace(|| {
        let (_, mut receiver) = pair("127.0.0.1:0");
        let mut batch = RecvBatch::new();
        let senders: Vec<UdpSocket> = (0..40)
            .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        for (number, sender) in senders.iter().enumerate() {
            sender
                .send_to(&vec![0x11; number + 1], receiver.local_addr())
                .unwrap();
        }
        senders[0].send_to(&[], receiver.local_addr()).unwrap();

        let mut seen = Vec::new();
        while receiver.recv_batch(&mut batch, MAX_RUNS).unwrap() > 0 {
            seen.extend(batch.received().iter().map(|run| (run.source, run.bytes)));
        }

        let sent = senders.iter().enumerate();
        let sent: Vec<_> = sent
            .map(|(at, one)| (one.local_addr().unwrap(), at + 1))
            .collect();
        assert_eq!(seen, sent);
        assert!(batch.received().is_empty() && batch.truncated() == 0);
    });
}

#[test]
fn a_packet_glued_behind_a_run_is_seen_to_be_a_stray() {
    assert!(is_stray(&[0x40, 1]) && is_stray(&[0xc3]) && is_stray(&[0x80]));
    assert!(!is_stray(&[0x10]) && !is_stray(&[0x3f, 0xff]) && !is_stray(&[]));
}

fn pair(address: &str) -> (DataSocket, DataSocket) {
    let address = address.parse().unwrap();
    (
        bind_group(address).unwrap().data,
        bind_group(address).unwrap().data,
    )
}

fn at_loopback(bound: SocketAddr) -> SocketAddr {
    let ip = if bound.is_ipv4() { "127.0.0.1" } else { "::1" };
    SocketAddr::new(ip.parse().unwrap(), bound.port())
}

fn recv(socket: &mut DataSocket, batch: &mut RecvBatch) {
    assert!(
        wait(&[socket.as_fd()], LONG).unwrap().has(0),
        "nothing came"
    );
    socket.recv_batch(batch, MAX_RUNS).unwrap();
}

/// Receives until `bytes` have come and returns in how many datagrams.
fn drain(socket: &mut DataSocket, bytes: usize) -> usize {
    let mut batch = RecvBatch::new();
    let (mut got, mut datagrams) = (0, 0);
    while got < bytes {
        recv(socket, &mut batch);
        got += batch.received().iter().map(|run| run.bytes).sum::<usize>();
        datagrams += batch
            .received()
            .iter()
            .map(|run| run.datagrams().count())
            .sum::<usize>();
    }
    assert_eq!(got, bytes);
    datagrams
}

fn assert_in_use(address: SocketAddr) {
    let refused = bind_group(address).unwrap_err();
    assert!(matches!(refused, BindError::InUse { .. }), "{refused}");
    assert!(refused.to_string().contains("--listen"));
}

const LONG: Option<Duration> = Some(Duration::from_secs(10));

#[test]
fn datagrams_leave_from_the_address_asked_for_while_it_is_ours() {
    in_namespace(|| {
        for command in [
            "addr add 2001:db8::1/128 dev lo",
            "addr add 2001:db8::2/128 dev lo",
        ] {
            ip(command);
        }
        for (any, to, second, gone) in [
            ("0.0.0.0:0", "127.0.0.1", "127.0.0.2", "192.0.2.7"),
            ("[::]:0", "2001:db8::1", "2001:db8::2", "2001:db8::7"),
        ] {
            let mut group = bind_group(any.parse().unwrap()).unwrap();
            let mut batch = RecvBatch::new();
            let port = group.local.port();
            let [to, second, gone] = [to, second, gone].map(|text| text.parse().unwrap());
            let remote = SocketAddr::new(to, port);
            for (local, source) in [(None, to), (Some(second), second), (Some(gone), to)] {
                // A run, and one alone.
                for bytes in [20, 10] {
                    group
                        .data
                        .send(Way { remote, local }, &vec![0x10; bytes], 10)
                        .unwrap();
                    recv(&mut group.data, &mut batch);
                    let [received] = batch.received() else {
                        panic!("{:?}", batch.received());
                    };
                    let source = SocketAddr::new(source, port);
                    assert_eq!((received.source, received.bytes), (source, bytes));
                    assert_eq!(received.local, Some(to));
                }
            }
        }
    });
}
