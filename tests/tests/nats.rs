//! The lab's routers are of the kinds they claim, seen by raw datagrams from both sides, alone and
//! towards each other.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot set up has failed its test"
)]

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use e2e::nat::{Nat, Site, observe};
use e2e::{Host, Lab, wait};

#[test]
fn each_router_translates_and_filters_as_its_kind_does() {
    for nat in Nat::ALL {
        let lab = Lab::new();
        let (one, other) = (lab.host("one"), lab.host("other"));
        let site = Site::start(&lab, "home", nat);
        for host in [&one, &other] {
            site.route_to(host);
        }

        let seen = observe(&site.machine, site.public(), [&one, &other]);

        assert_eq!(seen, nat.behaviour(), "a router that is {nat}");
    }
}

#[test]
fn each_pair_of_sites_meets_exactly_when_their_kinds_allow_it() {
    for (place, near) in Nat::ALL.into_iter().enumerate() {
        for far in Nat::ALL.into_iter().skip(place) {
            let lab = Lab::new();
            let server = lab.host("server");
            let sites = [
                Site::start(&lab, "near", near),
                Site::start(&lab, "far", far),
            ];
            for site in &sites {
                site.route_to(&server);
                for other in &sites {
                    site.route_to(other.outermost());
                }
            }

            let met = punch(&server, &sites);

            assert_eq!(met, can_meet(near, far), "{near} towards {far}");
        }
    }
}

#[test]
fn a_router_that_rebinds_shows_another_port_and_one_that_is_renumbered_another_address() {
    let lab = Lab::new();
    let server = lab.host("server");
    for nat in [Nat::PortRestricted, Nat::Symmetric, Nat::Carrier] {
        let site = Site::start(&lab, &nat.to_string(), nat);
        let (inside, outside) = (socket(&site.machine), socket(&server));
        let first = seen(&inside, &outside, &server);

        site.rebind();
        let rebound = seen(&inside, &outside, &server);
        site.renumber(200 + nat as u8);
        let renumbered = seen(&inside, &outside, &server);

        assert_eq!(first.ip(), rebound.ip());
        assert_ne!(first.port(), rebound.port());
        assert_eq!(renumbered.ip(), site.public());
        assert_ne!(first.ip(), renumbered.ip());
    }
}

#[test]
fn a_mapping_ends_after_the_lifetime_its_router_gives_it() {
    for nat in [Nat::FullCone, Nat::Restricted, Nat::PortRestricted] {
        let lab = Lab::new();
        let server = lab.host("server");
        let site = Site::start(&lab, "home", nat);
        site.set_lifetime(Duration::from_secs(1));
        let (inside, outside) = (socket(&site.machine), socket(&server));
        let mapped = seen(&inside, &outside, &server);

        // The kernel counts in seconds, and sweeps its maps once more in each.
        wait::pass(Duration::from_millis(3500));
        let fresh = socket(&site.machine);
        let open = seen(&fresh, &outside, &server);
        outside.send_to(b"late", mapped).unwrap();
        for _ in 0..2 {
            // What arrives here was sent after the late one, over the same way.
            outside.send_to(b"in time", open).unwrap();
            assert_eq!(fresh.recv(&mut [0; 64]).unwrap(), 7);
        }

        assert!(received(&inside).is_empty(), "a router that is {nat}");
    }
}

/// Has two machines learn from a server how they are seen, send to each other in turns, and answer
/// where they hear each other from: whether both have heard the other.
fn punch(server: &Host, sites: &[Site; 2]) -> bool {
    let outside = socket(server);
    let sockets = sites.each_ref().map(|site| socket(&site.machine));
    let at = sockets
        .each_ref()
        .map(|inside| seen(inside, &outside, server));
    let mut targets = [vec![at[1]], vec![at[0]]];
    for _ in 0..3 {
        for (inside, targets) in sockets.iter().zip(&targets) {
            for target in targets {
                inside.send_to(b"punch", target).unwrap();
            }
        }
        // What was sent before a datagram that has arrived has been handed on or dropped.
        for (inside, at) in sockets.iter().zip(at) {
            assert_eq!(seen(inside, &outside, server), at);
        }
        for (inside, targets) in sockets.iter().zip(&mut targets) {
            targets.extend(received(inside));
        }
    }
    targets.iter().all(|targets| targets.len() > 1)
}

/// Whether two machines that know how a server saw them can reach each other without guessing.
fn can_meet(near: Nat, far: Nat) -> bool {
    let is_strict = |nat| matches!(nat, Nat::PortRestricted | Nat::Carrier);
    match (near, far) {
        (Nat::Symmetric, Nat::Symmetric) => false,
        (Nat::Symmetric, other) | (other, Nat::Symmetric) => !is_strict(other),
        _ => true,
    }
}

/// Returns the source the server sees; what else waits at `inside` stays there.
fn seen(inside: &UdpSocket, outside: &UdpSocket, server: &Host) -> SocketAddr {
    let port = outside.local_addr().unwrap().port();
    inside.send_to(b"there", (server.ipv4(), port)).unwrap();
    let mut buffer = [0; 64];
    outside.recv_from(&mut buffer).unwrap().1
}

/// Takes everything that has arrived: where it came from.
fn received(socket: &UdpSocket) -> Vec<SocketAddr> {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 64];
    let mut all = Vec::new();
    while let Ok((_, source)) = socket.recv_from(&mut buffer) {
        all.push(source);
    }
    socket.set_nonblocking(false).unwrap();
    all
}

fn socket(host: &Host) -> UdpSocket {
    let socket = host.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}
