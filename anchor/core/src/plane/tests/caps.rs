//! Invariants after any sequence of operations, and caps.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use proptest::prelude::*;

use super::host::{ACK, ECHO, FIN, HTTP, RST, SYN, parse, ping, tcp_packet, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms};
use crate::connections;
use crate::plane::{Limits, OWN_HOST, Plane};

const FLOWS: usize = 12;
const CONNECTIONS: usize = 40;
const HOLDERS: usize = 3;
/// The client, three holders of the shared address of which one has a subnet too, and a bystander.
const NODES: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    /// A host behind the client, or its machine, sends something.
    Send {
        host: u8,
        far: u8,
        what: What,
    },
    /// A holder sends something to a client address that it gave out.
    Dial {
        holder: usize,
        what: What,
    },
    Wait {
        millis: u64,
    },
    /// Long enough for keys, holds and idleness.
    WaitLong {
        minutes: u64,
    },
    Cut {
        from: usize,
        to: usize,
    },
    Mend,
    Lose {
        percent: u8,
    },
    Leave {
        holder: usize,
    },
    Forbid {
        holder: usize,
    },
    Advertise,
    Handshake {
        from: usize,
        to: usize,
    },
    Restart {
        holder: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum What {
    Segment { port: u8, flags: u8, bytes: u8 },
    Datagram { port: u8 },
    Ping,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn tables_stay_true_and_within_their_caps(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut realm = small_realm(seed);
        for step in &steps {
            take(&mut realm, step);
            for node in &realm.nodes {
                check(&node.plane);
                prop_assert!(node.plane.sizes().flows <= FLOWS);
                prop_assert!(node.plane.sizes().connections <= CONNECTIONS);
            }
        }
        realm.cuts.clear();
        realm.loss = 0.0;
        realm.pass(ms(3 * 3600 * 1000));
        for node in &realm.nodes {
            check(&node.plane);
            prop_assert_eq!(node.plane.sizes().flows, 0);
            prop_assert_eq!(node.plane.sizes().connections, 0);
        }
        let sent: u64 =
            realm.nodes.iter().map(|node| node.plane.counters().frames_sent).sum();
        realm.pass(ms(3600 * 1000));
        let later: u64 =
            realm.nodes.iter().map(|node| node.plane.counters().frames_sent).sum();
        prop_assert_eq!(sent, later, "an idle realm is silent");
    }
}

fn small_realm(seed: u64) -> Realm {
    let limits = Limits {
        flows: FLOWS,
        connections: connections::Limits {
            connections: CONNECTIONS,
            syns: 4,
        },
    };
    let client = Spec {
        limits,
        ..Spec::client().with_subnet("10.1.0.0/16")
    };
    let holder = Spec {
        limits,
        ..Spec::holder(SHARED)
    };
    let router = holder.clone().with_subnet("10.2.0.0/24");
    let bystander = Spec {
        limits,
        ..Spec::client().with_subnet("10.2.0.0/16")
    };
    Realm::new(
        seed % 1000,
        vec![client, holder.clone(), holder, router, bystander],
    )
}

fn take(realm: &mut Realm, step: &Step) {
    match *step {
        Step::Send { host, far, what } => {
            let source = match host {
                0 => OWN_HOST,
                host => Ipv4Addr::new(10, 1, 0, host),
            };
            let far = match far {
                0 | 1 => SHARED,
                far => Ipv4Addr::new(10, 2, far % 2, 7),
            };
            let packet = packet(source, far, what, false);
            realm.send(0, &packet);
        }
        Step::Dial { holder, what } => {
            let seen = realm.nodes[holder].inbox.iter().rev();
            let client =
                seen.map(|(_, bytes)| parse(bytes).source)
                    .find_map(|source| match source {
                        std::net::IpAddr::V4(source) if source.octets()[0] == 198 => Some(source),
                        std::net::IpAddr::V4(_) | std::net::IpAddr::V6(_) => None,
                    });
            if let Some(client) = client {
                let packet = packet(SHARED, client, what, true);
                realm.send(holder, &packet);
            }
        }
        Step::Wait { millis } => realm.pass(ms(millis)),
        Step::WaitLong { minutes } => realm.pass(ms(minutes * 60_000)),
        Step::Cut { from, to } => {
            realm.cuts.insert((from, to));
        }
        Step::Mend => realm.cuts.clear(),
        Step::Lose { percent } => realm.loss = f64::from(percent) / 100.0,
        Step::Leave { holder } => realm.leave(holder),
        Step::Forbid { holder } => {
            if !realm.forbidden.remove(&(0, holder)) {
                realm.forbidden.insert((0, holder));
            }
            realm.spread_routes();
        }
        Step::Advertise => {
            realm.gone.clear();
            realm.spread_routes();
            for holder in 1..NODES {
                realm.set_paths(0, holder);
                realm.set_paths(holder, 0);
            }
        }
        Step::Handshake { from, to } => {
            if from != to {
                realm.handshake(from, to);
            }
        }
        Step::Restart { holder } => realm.restart(holder),
    }
}

fn packet(source: Ipv4Addr, far: Ipv4Addr, what: What, is_answer: bool) -> Vec<u8> {
    let ends = |port: u8, service: u16| -> (SocketAddr, SocketAddr) {
        let port = 40_000 + u16::from(port);
        if is_answer {
            ((source, service).into(), (far, port).into())
        } else {
            ((source, port).into(), (far, service).into())
        }
    };
    match what {
        What::Segment { port, flags, bytes } => {
            let (from, to) = ends(port, HTTP);
            let payload = vec![1; usize::from(bytes)];
            tcp_packet(from, to, 1000 + u32::from(bytes), 5000, flags, &payload)
        }
        What::Datagram { port } => {
            let (from, to) = ends(port, ECHO);
            udp_packet(from, to, b"datagram")
        }
        What::Ping => ping(source.into(), far.into(), 5),
    }
}

fn what() -> impl Strategy<Value = What> {
    let flags = prop_oneof![
        4 => Just(SYN), 6 => Just(ACK), 1 => Just(FIN | ACK), 1 => Just(RST), 1 => Just(SYN | ACK)
    ];
    prop_oneof![
        6 => (0..4_u8, flags, 0..3_u8)
            .prop_map(|(port, flags, bytes)| What::Segment { port, flags, bytes }),
        2 => (0..4_u8).prop_map(|port| What::Datagram { port }),
        1 => Just(What::Ping),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let holder = || 1..=HOLDERS;
    let nodes = || (0..NODES, 0..NODES);
    prop_oneof![
        20 => (0..20_u8, 0..4_u8, what())
            .prop_map(|(host, far, what)| Step::Send { host, far, what }),
        4 => (holder(), what()).prop_map(|(holder, what)| Step::Dial { holder, what }),
        12 => (0..700_u64).prop_map(|millis| Step::Wait { millis }),
        3 => (2000..9000_u64).prop_map(|millis| Step::Wait { millis }),
        2 => (1..40_u64).prop_map(|minutes| Step::WaitLong { minutes }),
        3 => nodes().prop_map(|(from, to)| Step::Cut { from, to }),
        2 => Just(Step::Mend),
        1 => (0..40_u8).prop_map(|percent| Step::Lose { percent }),
        2 => holder().prop_map(|holder| Step::Leave { holder }),
        2 => holder().prop_map(|holder| Step::Forbid { holder }),
        3 => Just(Step::Advertise),
        2 => nodes().prop_map(|(from, to)| Step::Handshake { from, to }),
        1 => holder().prop_map(|holder| Step::Restart { holder }),
    ]
}

/// Panics unless tables, counters and facts agree.
pub(super) fn check(plane: &Plane) {
    let mut used = BTreeMap::new();
    let mut watched = BTreeMap::new();
    for (id, flow) in plane.flows.iter() {
        let network = crate::plane::timers::network_of(flow.key.destination, flow.prefix_len);
        *used.entry(network).or_insert(0) += 1;
        let Some(holder) = flow.holder else {
            assert!(!plane.flows.is_watched(id), "nobody to watch: {flow:?}");
            continue;
        };
        assert!(
            !plane.liveness.is_failed(holder),
            "on a failed holder: {flow:?}"
        );
        assert!(
            plane.may_exchange(holder),
            "on a forbidden holder: {flow:?}"
        );
        assert!(
            plane.routes.holds(holder, network),
            "on one that does not hold it: {flow:?}"
        );
        assert_eq!(
            plane.flows.is_watched(id),
            plane.connections.has_open(id),
            "{flow:?}"
        );
        if plane.flows.is_watched(id) {
            *watched.entry(holder).or_insert(0) += 1;
        }
    }
    let by_plane = |map: &crate::table::Map<_, u32>| -> BTreeMap<_, u32> {
        map.iter().map(|(key, count)| (*key, *count)).collect()
    };
    assert_eq!(by_plane(&plane.watched), watched);
    let used_by_plane: BTreeMap<_, u32> = plane.used.iter().map(|(k, c)| (*k, *c)).collect();
    assert_eq!(used_by_plane, used);
    plane.holds.check(&plane.flows);
}
