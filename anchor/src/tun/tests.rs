use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

use super::*;
use crate::netns::{in_namespace, ip};
use crate::poll::{Waker, wait};

#[test]
fn a_name_is_taken_by_another_tun_or_any_other_interface() {
    in_namespace(|| {
        let _first = Tun::open("anchor0").unwrap();
        ip("link add anchor1 type veth peer name other1");

        for name in ["anchor0", "anchor1"] {
            let refused = Tun::open(name).unwrap_err();
            assert!(matches!(&refused, OpenError::NameTaken { name: taken } if taken == name));
            assert!(refused.to_string().contains(name));
        }
    });
}

#[test]
fn a_device_is_gone_once_closed_and_its_name_free() {
    in_namespace(|| {
        let first = Tun::open("anchor0").unwrap();
        let index = first.index();

        drop(first);
        assert!(!ip("-o link").contains("anchor0"));
        let second = Tun::open("anchor0").unwrap();

        assert_ne!(second.index(), 0);
        assert_ne!(second.index(), index);
    });
}

#[test]
fn a_missing_driver_is_told_with_what_to_do() {
    let refused = in_namespace(|| {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(
            Some("tmpfs"),
            "/dev/net",
            Some("tmpfs"),
            MsFlags::empty(),
            none,
        )
        .unwrap();
        Tun::open("anchor0").unwrap_err()
    });

    assert!(matches!(refused, OpenError::NoDriver));
    assert!(refused.to_string().contains("--device /dev/net/tun"));
}

#[test]
fn a_forbidden_driver_is_not_a_missing_one() {
    let refused = OpenError::from_node(io::Error::from_raw_os_error(libc::EPERM));

    assert!(matches!(refused, OpenError::NotPermitted { .. }));
    assert!(refused.to_string().contains("CAP_NET_ADMIN"));
}

#[test]
fn names_the_kernel_would_change_or_refuse_are_refused_before() {
    for name in ["anchor0", "a", "exactly15bytes_", "a.b-c"] {
        assert!(is_valid_name(name), "{name}");
    }
    for name in [
        "",
        ".",
        "..",
        "tun%d",
        "a/b",
        "a b",
        "a:1",
        "sixteen_bytes_xx",
        "\u{e4}",
        "a\n",
    ] {
        assert!(!is_valid_name(name), "{name}");
        assert!(matches!(Tun::open(name), Err(OpenError::BadName { .. })));
    }
}

#[test]
fn a_packet_of_the_host_is_read_behind_headroom_with_its_checksum_still_partial() {
    in_namespace(|| {
        let mut tun = open_up();
        let mut buffer = ReadBuffer::new();
        let socket = UdpSocket::bind("10.1.2.3:0").unwrap();

        socket.send_to(b"hello", "10.5.0.9:7").unwrap();
        read_to(&mut tun, &mut buffer, "10.5.0.9");

        assert!(tun.offloads().checksum);
        assert_eq!(buffer.virtio()[0], VIRTIO_NET_HDR_F_NEEDS_CSUM);
        assert_eq!(buffer.packet().len(), 20 + 8 + 5);
        let (bytes, start) = buffer.with_headroom();
        assert!(start >= VIRTIO_BYTES + 28);
        assert_eq!(&bytes[start + 28..], b"hello");
        assert!(!tun.read(&mut buffer).unwrap());
    });
}

#[test]
fn a_packet_written_in_pieces_reaches_the_host() {
    in_namespace(|| {
        let mut tun = open_up();
        let mut buffer = ReadBuffer::new();
        let socket = UdpSocket::bind("10.1.2.3:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let own_port = socket.local_addr().unwrap().port();
        socket.send_to(b"hello", ("10.5.0.9", own_port)).unwrap();
        read_to(&mut tun, &mut buffer, "10.5.0.9");
        swap_addresses(buffer.packet_mut());

        let packet = buffer.packet();
        let pieces = [&packet[28..29], &packet[29..29], &packet[29..]];
        tun.write(buffer.virtio(), &packet[..28], pieces).unwrap();

        let mut got = [0; 16];
        let (bytes, from) = socket.recv_from(&mut got).unwrap();
        assert_eq!(
            (&got[..bytes], from),
            (
                &b"hello"[..],
                format!("10.5.0.9:{own_port}").parse().unwrap()
            )
        );
    });
}

#[test]
fn tcp_crosses_in_super_packets_over_ipv4_and_ipv6() {
    for (own, far) in [("10.1.2.3", "10.5.0.9"), ("fd80:1::3", "fd80:1::9")] {
        in_namespace(move || {
            let reflector = Reflector::start(open_up());
            let sent: Vec<u8> = (0..2_000_000_u32)
                .map(|at| (at ^ (at >> 8)) as u8)
                .collect();
            let listener = TcpListener::bind((own, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();

            let far: IpAddr = far.parse().unwrap();
            let receiver = thread::spawn(move || {
                let (mut stream, from) = listener.accept().unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                (got, from.ip())
            });
            let mut stream = TcpStream::connect((far, port)).unwrap();
            stream.write_all(&sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();

            let (got, from) = receiver.join().unwrap();
            assert!(got == sent && from == far);
            assert!(
                reflector.stop() > 10_000,
                "no packet was longer than the MTU"
            );
        });
    }
}

#[test]
fn a_run_of_datagrams_crosses_as_one_packet() {
    in_namespace(|| {
        let tun = open_up();
        let offloads = tun.offloads();
        let reflector = Reflector::start(tun);
        let socket = UdpSocket::bind("10.1.2.3:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let to: std::net::SocketAddr = (
            IpAddr::from([10, 5, 0, 9]),
            socket.local_addr().unwrap().port(),
        )
            .into();
        let sent: Vec<u8> = (0..10_000_u32).map(|at| (at / 1000) as u8).collect();

        let run = [ControlMessage::UdpGsoSegments(&1000)];
        let pieces = [IoSlice::new(&sent)];
        let to = SockaddrStorage::from(to);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        sendmsg(fd, &pieces, &run, MsgFlags::empty(), Some(&to)).unwrap();

        for number in 0..10 {
            let mut got = [0; 2000];
            let bytes = socket.recv(&mut got).unwrap();
            assert_eq!(got[..bytes], [number; 1000]);
        }
        let longest = reflector.stop();
        assert_eq!(longest > 1420, offloads.udp, "longest packet {longest}");
    });
}

#[test]
fn a_deleted_device_is_told_apart_from_a_bad_packet() {
    in_namespace(|| {
        let mut tun = Tun::open("anchor0").unwrap();
        let mut buffer = ReadBuffer::new();
        let packet = [0x45; 20];

        let while_down = tun.write(&PLAIN_VIRTIO, &packet, []).unwrap_err();
        ip("link set anchor0 up");
        let nonsense = tun.write(&PLAIN_VIRTIO, &[0; 20], []).unwrap_err();
        let too_many = tun
            .write(&PLAIN_VIRTIO, &packet, [&packet[..]; MAX_PIECES])
            .unwrap_err();
        ip("link del anchor0");
        let when_gone = tun.write(&PLAIN_VIRTIO, &packet, []).unwrap_err();

        assert!(matches!(while_down, WriteError::Down));
        assert!(matches!(nonsense, WriteError::Refused));
        assert!(matches!(too_many, WriteError::Refused));
        assert!(matches!(when_gone, WriteError::Gone));
        assert!(
            wait(&[tun.as_fd()], Some(Duration::from_secs(5)))
                .unwrap()
                .has(0)
        );
        assert!(is_gone(&tun.read(&mut buffer).unwrap_err()));
    });
}

/// Opens the device with 10.1.2.3 and fd80:1::3 on it, and everything near them behind it.
fn open_up() -> Tun {
    let tun = Tun::open("anchor0").unwrap();
    ip("link set anchor0 up mtu 1420");
    ip("addr add 10.1.2.3/32 dev anchor0");
    ip("addr add fd80:1::3/128 dev anchor0");
    ip("route add 10.5.0.0/16 dev anchor0");
    ip("route add fd80:1::/32 dev anchor0");
    tun
}

/// Reads past what the kernel sends of its own accord.
fn read_to(tun: &mut Tun, buffer: &mut ReadBuffer, destination: &str) {
    let destination: std::net::Ipv4Addr = destination.parse().unwrap();
    loop {
        let ready = wait(&[tun.as_fd()], Some(Duration::from_secs(10))).unwrap();
        assert!(ready.has(0), "no packet came");
        while tun.read(buffer).unwrap() {
            let packet = buffer.packet();
            if packet[0] >> 4 == 4 && packet[16..20] == destination.octets() {
                return;
            }
        }
    }
}

/// Exchanges source and destination, which changes no checksum.
fn swap_addresses(packet: &mut [u8]) {
    let (start, length) = if packet[0] >> 4 == 4 {
        (12, 4)
    } else {
        (8, 16)
    };
    let (source, destination) = packet[start..start + 2 * length].split_at_mut(length);
    source.swap_with_slice(destination);
}

/// Sends every packet back as if the far address had sent it, so that the host talks to itself
/// through the device.
struct Reflector {
    thread: JoinHandle<()>,
    bell: Waker,
    longest: Arc<AtomicUsize>,
}

impl Reflector {
    fn start(mut tun: Tun) -> Self {
        let bell = Waker::new().unwrap();
        let longest = Arc::new(AtomicUsize::new(0));
        let (stop, seen) = (bell.clone(), longest.clone());
        let thread = thread::spawn(move || {
            let mut buffer = ReadBuffer::new();
            while !wait(&[tun.as_fd(), stop.as_fd()], None).unwrap().has(1) {
                while tun.read(&mut buffer).unwrap() {
                    swap_addresses(buffer.packet_mut());
                    seen.fetch_max(buffer.packet().len(), Ordering::Relaxed);
                    let (header, payload) = buffer.packet().split_at(20);
                    let answer = tun.write(buffer.virtio(), header, [payload]);
                    // Its own chatter the kernel does not take back.
                    assert!(
                        matches!(answer, Ok(()) | Err(WriteError::Refused)),
                        "{answer:?}"
                    );
                }
            }
        });
        Self {
            thread,
            bell,
            longest,
        }
    }

    /// Returns the length of the longest packet seen.
    fn stop(self) -> usize {
        self.bell.wake();
        self.thread.join().unwrap();
        self.longest.load(Ordering::Relaxed)
    }
}

/// From linux/virtio_net.h.
const VIRTIO_NET_HDR_F_NEEDS_CSUM: u8 = 1;
