//! The lab itself: delay, loss, cuts, rate, captures, addresses, and that nothing of it is left
//! behind. Plain sockets and programs only; no anchor runs here.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot set up has failed its test"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::work::{self, Direction, Transfer};
use e2e::{Host, Lab, wait};

const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn hosts_reach_each_other_over_ipv4_and_ipv6() {
    let lab = Lab::new();
    let (one, two) = (lab.host("one"), lab.host("two"));

    let four = ping(&one, &two.ipv4().into(), 3);
    let six = ping(&one, &two.ipv6().into(), 3);

    assert_eq!((four, six), (3, 3));
}

#[test]
fn delay_is_added_each_way_and_only_where_asked() {
    let lab = Lab::new();
    let (near, far, other) = (lab.host("near"), lab.host("far"), lab.host("other"));
    lab.between(&near, &far)
        .change(|way| way.delay = 20 * MILLISECOND);

    let slow = round_trips(&near, &far, 9);
    let quick = round_trips(&near, &other, 9);

    assert!(slow[0] >= 40 * MILLISECOND, "{slow:?}");
    assert!(slow[4] <= 60 * MILLISECOND, "{slow:?}");
    assert!(quick[4] <= 10 * MILLISECOND, "{quick:?}");
}

#[test]
fn loss_takes_about_the_asked_share_and_follows_the_seed() {
    let shares: Vec<usize> = (0..2)
        .map(|_| {
            let lab = Lab::with_seed(7);
            let (from, to) = (lab.host("from"), lab.host("to"));
            let (sender, receiver) = pair(&from, &to);
            sender.send(b"warm").unwrap();
            let mut buffer = [0; 64];
            receiver.recv(&mut buffer).unwrap();
            lab.way(&from, &to).change(|way| way.loss = 0.1);

            let before = lab.way(&from, &to).carried();
            let passed = || {
                let now = lab.way(&from, &to).carried();
                now.frames + now.lost - before.frames - before.lost
            };
            for number in 1..=1000 {
                sender.send(b"x").unwrap();
                // Few at a time: a device's queue is short.
                wait::until(Duration::from_secs(5), "the switch to keep up", || {
                    passed() + 100 > number
                });
            }
            wait::until(Duration::from_secs(5), "1000 frames on the switch", || {
                passed() >= 1000
            });
            usize::try_from(lab.way(&from, &to).carried().lost - before.lost).unwrap()
        })
        .collect();

    assert!((60..=140).contains(&shares[0]), "{shares:?} of 1000 lost");
    assert!(
        shares[0].abs_diff(shares[1]) <= 3,
        "one seed, two outcomes: {shares:?}"
    );
}

#[test]
fn a_cut_one_way_leaves_the_other_way_open() {
    let lab = Lab::new();
    let (from, to) = (lab.host("from"), lab.host("to"));
    let (sender, receiver) = pair(&from, &to);
    receiver.connect(sender.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 64];
    sender.send(b"there").unwrap();
    receiver.recv(&mut buffer).unwrap();
    lab.way(&from, &to).cut();

    sender.send(b"there").unwrap();
    receiver.send(b"back").unwrap();
    let back = sender.recv(&mut buffer);
    receiver.set_read_timeout(Some(100 * MILLISECOND)).unwrap();
    let there = receiver.recv(&mut buffer);
    lab.way(&from, &to).mend();
    sender.send(b"again").unwrap();
    let again = receiver.recv(&mut buffer);

    assert_eq!(back.unwrap(), 4);
    assert!(there.is_err());
    assert_eq!(again.unwrap(), 5);
}

#[test]
fn a_rate_paces_what_is_sent() {
    let lab = Lab::new();
    let (from, to) = (lab.host("from"), lab.host("to"));
    let (sender, receiver) = pair(&from, &to);
    sender.send(b"warm").unwrap();
    let mut buffer = [0; 2000];
    receiver.recv(&mut buffer).unwrap();
    lab.way(&from, &to).change(|way| {
        way.rate = Some(10_000_000);
        way.queue_bytes = 1_000_000;
    });

    let began = Instant::now();
    for _ in 0..250 {
        sender.send(&[0; 958]).unwrap();
    }
    for _ in 0..250 {
        receiver.recv(&mut buffer).unwrap();
    }

    // 250 frames of 1,000 bytes at 10 Mbit/s take 200 ms.
    let took = began.elapsed();
    assert!((190..300).contains(&took.as_millis()), "{took:?}");
}

#[test]
fn a_frame_longer_than_the_largest_vanishes_and_no_other() {
    let lab = Lab::new();
    let (from, to) = (lab.host("from"), lab.host("to"));
    let (sender, receiver) = pair(&from, &to);
    let mut buffer = [0; 2000];
    lab.way(&from, &to)
        .change(|way| way.largest_frame_bytes = Some(1280));

    // 28 bytes of headers make packets of 1281 and 1280 bytes.
    sender.send(&[1; 1253]).unwrap();
    sender.send(&[2; 1252]).unwrap();
    let length = receiver.recv(&mut buffer).unwrap();

    assert_eq!((length, buffer[0]), (1252, 2));
    assert_eq!(lab.way(&from, &to).carried().lost, 1);
}

#[test]
fn what_the_kernel_sends_in_one_piece_is_judged_by_its_segments() {
    let lab = Lab::new();
    let (from, to) = (lab.host("from"), lab.host("to"));
    lab.everywhere()
        .change(|way| way.largest_frame_bytes = Some(1500));
    let _service = work::serve_transfers(&to, 21);

    let target = SocketAddr::new(to.ipv4().into(), 21);
    let transfer = Transfer::start(&from, target, Direction::Up, 8_000_000).unwrap();
    let transferred = transfer.end_within(Duration::from_secs(10));

    assert!(transferred.is_whole(), "{transferred:?}");
    assert_eq!(lab.everywhere().carried().lost, 0);
    // So many that no frame had more than one segment.
    assert!(lab.way(&from, &to).carried().frames > 8_000_000 / 1460);
}

#[test]
fn a_capture_holds_what_crossed_and_nothing_else() {
    let lab = Lab::new();
    let (from, to) = (lab.host("from"), lab.host("to"));
    let (sender, receiver) = pair(&from, &to);
    let mut buffer = [0; 64];
    let file = tempfile::NamedTempFile::new().unwrap();

    sender.send(b"before-the-capture").unwrap();
    receiver.recv(&mut buffer).unwrap();
    lab.capture(file.path());
    sender.send(b"marker-in-the-capture").unwrap();
    receiver.recv(&mut buffer).unwrap();
    lab.end_capture();
    sender.send(b"after-the-capture").unwrap();
    receiver.recv(&mut buffer).unwrap();

    let bytes = std::fs::read(file.path()).unwrap();
    let holds = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(holds(b"marker-in-the-capture"));
    assert!(!holds(b"before-the-capture") && !holds(b"after-the-capture"));
    let read = Command::new("tcpdump")
        .arg("-nr")
        .arg(file.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&read.stdout).contains("UDP, length 21"));
}

#[test]
fn a_lan_behind_a_host_has_as_many_addresses_as_wanted() {
    let lab = Lab::new();
    let (router, far) = (lab.host("router"), lab.host("far"));
    let machine = lab.lan(&router, "machine", "192.168.50.0/24".parse().unwrap());
    router.ip(["route add 10.50.0.0/16 via 192.168.50.1"]);
    machine.own_range("10.50.0.0/16".parse().unwrap());
    far.ip([format!("route add 10.50.0.0/16 via {}", router.ipv4())]);

    let receiver = socket(&far, far.ipv4().into());
    let mut buffer = [0; 64];
    for last in [1, 77, 200] {
        let source = Ipv4Addr::new(10, 50, 3, last);
        let sender = socket(&machine, source.into());
        sender
            .send_to(b"hello", receiver.local_addr().unwrap())
            .unwrap();
        let (_, from) = receiver.recv_from(&mut buffer).unwrap();
        receiver.send_to(b"back", from).unwrap();

        assert_eq!(from.ip(), IpAddr::V4(source));
        assert_eq!(sender.recv(&mut buffer).unwrap(), 4);
    }
}

#[test]
fn kernel_speed_cuts_and_loses_too() {
    let lab = Lab::at_kernel_speed();
    let (one, two) = (lab.host("one"), lab.host("two"));

    let whole = ping(&one, &two.ipv4().into(), 3);
    lab.way(&two, &one).cut();
    let cut = ping(&one, &two.ipv4().into(), 3);
    lab.around(&two).mend();
    lab.way(&one, &two).change(|way| way.loss = 0.5);
    let half = ping(&one, &two.ipv4().into(), 60);

    assert_eq!((whole, cut), (3, 0));
    assert!(
        (10..50).contains(&half),
        "{half} of 60 answered at 50 % loss"
    );
}

#[test]
fn a_host_has_mounts_and_processes_of_its_own() {
    let lab = Lab::new();
    let host = lab.host("host");

    host.command("sh")
        .args(["-c", "echo kept > /run/file"])
        .must();
    let seen = std::fs::read_to_string(host.outside_path("/run/file")).unwrap();
    let cards = host.command("ls").arg("/sys/class/net").must();
    let processes = host
        .command("sh")
        .args(["-c", "ls -d /proc/[0-9]* | wc -l"])
        .must();

    assert_eq!(seen, "kept\n");
    assert!(!std::path::Path::new("/run/file").exists());
    assert!(
        cards
            .split_whitespace()
            .all(|card| matches!(card, "lo" | "eth0" | "sit0")),
        "{cards}"
    );
    assert!(processes.trim().parse::<u32>().unwrap() <= 6, "{processes}");
}

#[test]
fn a_killed_lab_takes_its_daemons_along() {
    // This very test is run as a child that is killed: it starts a detached program and waits.
    if let Ok(marker) = std::env::var("LAB_TO_BE_KILLED") {
        let lab = Lab::new();
        let host = lab.host("host");
        host.command("sh")
            .args(["-c", &format!("setsid sleep {marker} & exit 0")])
            .must();
        wait::until(Duration::from_secs(60), "being killed", || false);
    }
    let marker = format!("86{}", std::process::id());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_lab_takes_its_daemons_along"])
        .env("LAB_TO_BE_KILLED", &marker)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait::until(Duration::from_secs(20), "the detached program", || {
        is_running(&marker)
    });

    child.kill().unwrap();
    child.wait().unwrap();

    wait::until(Duration::from_secs(5), "its end", || !is_running(&marker));
}

/// Whether some process has `sleep MARKER` as its command line.
fn is_running(marker: &str) -> bool {
    let line = format!("sleep\0{marker}\0");
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == line.as_bytes())
    })
}

fn ping(from: &Host, to: &IpAddr, count: usize) -> usize {
    let answer = from
        .command("ping")
        .args([
            "-c",
            &count.to_string(),
            "-i",
            "0.02",
            "-W",
            "0.5",
            &to.to_string(),
        ])
        .answer();
    let received = answer
        .stdout
        .lines()
        .find(|line| line.contains(" received"))
        .unwrap();
    received
        .split(", ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

fn socket(host: &Host, address: IpAddr) -> UdpSocket {
    let socket = host
        .enter(|| UdpSocket::bind(SocketAddr::new(address, 0)))
        .unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}

fn pair(from: &Host, to: &Host) -> (UdpSocket, UdpSocket) {
    let (sender, receiver) = (
        socket(from, from.ipv4().into()),
        socket(to, to.ipv4().into()),
    );
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    (sender, receiver)
}

/// Sorted times of datagrams there and back; the first, which waits for ARP, left out.
fn round_trips(from: &Host, to: &Host, count: usize) -> Vec<Duration> {
    let (near, far) = pair(from, to);
    far.connect(near.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 64];
    let mut times: Vec<Duration> = (0..=count)
        .map(|_| {
            let began = Instant::now();
            near.send(b"there").unwrap();
            far.recv(&mut buffer).unwrap();
            far.send(b"back").unwrap();
            near.recv(&mut buffer).unwrap();
            began.elapsed()
        })
        .skip(1)
        .collect();
    times.sort_unstable();
    times
}
