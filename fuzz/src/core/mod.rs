//! The whole of core, driven by a script of what hosts, members, strangers and time may do: the
//! packet way with real data keys ([`way`]), the store of adverts and revocations with real
//! signatures ([`store`]). After each step both must be at rest and within their limits.

mod packet;
mod store;
mod way;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use conflux_core::clients::Clients;
use conflux_core::connections;
use conflux_core::identity::Identity;
use conflux_core::ids::PeerIx;
use conflux_core::membership::Membership;
use conflux_core::plane::{Limits, Own, Path, Plane};
use conflux_core::routes::{self, Claim, DEFAULT_CLIENT_RANGE, OwnFacts, PeerFacts, Routes};
use conflux_core::session::{Initiator, Local, Remote, SessionKeys, Sessions, respond};
use conflux_core::time::{Boot, Mono, Now};
use ipnet::IpNet;

use crate::input::Input;
use crate::samples::{MEMBERS, Sample, member, realm};

/// The address this anchor holds.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 9);
/// The address the first two peers hold.
const SHARED: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 10);
/// An address in the network behind the third peer.
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 1);
/// A host behind this anchor.
const GUEST: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 7);

/// The peer whose taints allow no data.
const APART: PeerIx = PeerIx(3);

/// Pairs of keys prepared per peer: those in use, and later ones.
const PAIRS: usize = 3;

/// Small, so that a short script meets them.
const FLOWS: usize = 8;
const CONNECTIONS: usize = 16;

struct Core {
    now: Now,
    membership: Membership,
    plane: Plane,
    peers: Vec<Peer>,
    /// Whether the shared address is drained by its first holder.
    drains: bool,
}

/// The other end of a session.
struct Peer {
    sessions: Sessions,
    /// Pairs installed so far.
    pairs: usize,
    /// The last probe that came.
    probe: u64,
    /// The last frame it sent.
    last: Vec<u8>,
}

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut core = Core::new();
    while !input.is_empty() {
        let kind = input.byte();
        match kind % 16 {
            0 => core.pass(&mut input),
            1 => core.host_sends(&mut input),
            2 => core.host_sends_bytes(&mut input),
            3 => core.peer_sends(&mut input),
            4 => core.peer_sends_bytes(&mut input),
            5 => core.peer_answers(&mut input),
            6 => core.peer_repeats(&mut input),
            7 => core.stranger_sends(&mut input),
            8 => core.peers_change(&mut input),
            9 => core.message_comes(&mut input),
            10 | 11 => core.advert_comes(&mut input),
            12 => core.leave_comes(&mut input),
            13 => core.revocation_comes(&mut input),
            14 => core.digests_come(&mut input),
            _ => core.is_looked_at(&mut input),
        }
        core.rests();
    }
}

impl Core {
    fn new() -> Self {
        let now = Now {
            mono: Mono::from_nanos(1_000_000_000_000),
            boot: Boot::from_nanos(1_000_000_000_000),
        };
        let own = own();
        let overlay = own.key().overlay(&realm().id());
        let plane_own = Own {
            overlay,
            ipv4: Some(OWN),
            addresses: vec![
                overlay.into(),
                OWN.into(),
                Ipv4Addr::new(192, 0, 2, 77).into(),
            ],
            subnets: vec![net("192.168.7.0/24")],
            client_range: DEFAULT_CLIENT_RANGE,
        };
        let limits = Limits {
            flows: FLOWS,
            connections: connections::Limits {
                connections: CONNECTIONS,
                ..connections::Limits::default()
            },
        };
        let clients = Clients::new(DEFAULT_CLIENT_RANGE, 3);
        let mut core = Self {
            now,
            membership: Membership::new(realm().key(), own.clone(), 1, 4),
            plane: Plane::new(plane_own, routes(false), clients, limits, 5),
            peers: Vec::new(),
            drains: false,
        };
        core.say_own();
        for number in 0..MEMBERS {
            let peer = peer(number);
            core.peers.push(Peer {
                sessions: Sessions::new(6),
                pairs: 0,
                probe: 0,
                last: Vec::new(),
            });
            core.install(number);
            core.plane
                .set_paths(now.mono, peer, &[path(number, 0), path(number, 1)]);
        }
        core.rests();
        core
    }

    /// Has both sides use their next pair of keys; none when all have been used.
    fn install(&mut self, number: usize) {
        let Some((ours, theirs)) = keys(number).get(self.peers[number].pairs) else {
            return;
        };
        self.peers[number].pairs += 1;
        let (mono, key) = (self.now.mono, member(number).key());
        assert!(self.plane.install(self.now, peer(number), key, ours));
        assert!(self.peers[number].sessions.install(mono, PeerIx(0), theirs));
    }
}

fn peer(number: usize) -> PeerIx {
    PeerIx(u32::try_from(number).expect("few peers"))
}

fn path(number: usize, way: u8) -> Path {
    let last = u8::try_from(number).expect("few peers");
    Path {
        socket: 0,
        remote: SocketAddr::from(([192, 0, 2 + way, last], 47_474)),
        local: None,
    }
}

fn net(text: &str) -> IpNet {
    text.parse().expect("it is a network")
}

fn own() -> &'static Identity {
    static OWN: LazyLock<Identity> = LazyLock::new(|| Identity::from_seed(&[70; 32]));
    &OWN
}

/// Returns who holds what; the first holder of the shared address may be draining.
fn routes(drains: bool) -> Arc<Routes> {
    let key = own().key();
    let facts = OwnFacts {
        key,
        overlay: key.overlay(&realm().id()),
        ipv4: Some(OWN),
        ipv4_advertised: true,
        networks: vec![net("192.168.7.0/24")],
        local_networks: Vec::new(),
        client_range: DEFAULT_CLIENT_RANGE,
    };
    let peers: Vec<PeerFacts> = (0..MEMBERS)
        .map(|number| {
            let key = member(number).key();
            let networks = if number == 2 {
                vec![claim(net("10.9.0.0/16")), claim(net("fd00:9::/64"))]
            } else {
                Vec::new()
            };
            PeerFacts {
                peer: peer(number),
                key,
                overlay: key.overlay(&realm().id()),
                ipv4: (number != 2).then(|| claim(SHARED)),
                networks,
                may_exchange: peer(number) != APART,
                draining: drains && number == 0,
            }
        })
        .collect();
    Arc::new(routes::build(&facts, &peers))
}

fn claim<N>(network: N) -> Claim<N> {
    Claim {
        network,
        granted: true,
    }
}

/// Returns the pairs of keys with a peer: ours, then the peer's. Shaken once for all runs.
fn keys(number: usize) -> &'static [(SessionKeys, SessionKeys)] {
    static ALL: LazyLock<Vec<Vec<(SessionKeys, SessionKeys)>>> = LazyLock::new(|| {
        (0..MEMBERS)
            .map(|number| (0..PAIRS).map(|pair| shake(number, pair)).collect())
            .collect()
    });
    &ALL[number]
}

fn shake(number: usize, pair: usize) -> (SessionKeys, SessionKeys) {
    let (ours, theirs): (&Identity, &Sample) = (own(), member(number));
    let index = u32::try_from(16 * (number + 1) + pair).expect("it is small");
    let local = |identity: &'static Identity| Local {
        noise_secret: identity.noise_secret(),
        key: identity.key(),
        index,
        aes: true,
        seed: &[5; 32],
    };
    let remote = |identity: &Identity| Remote {
        key: identity.key(),
        noise_key: identity.noise_key(),
    };
    let (id, psk) = (realm().id(), [8; 32]);
    let (state, first) = Initiator::start(local(own()), remote(&theirs.identity), &id, &psk)
        .expect("the keys are sound");
    let (responder, second) = respond(
        local(&member(number).identity),
        remote(ours),
        &id,
        &psk,
        &first,
    )
    .expect("message 1 is authentic");
    let initiator = state.finish(&second).expect("message 2 is authentic");
    (initiator, responder)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let syn = |source: u8, destination: u8| [1, 0, source, destination, 0, 0, 0, 2, 0, 1, 1, 0, 0];
    let datagram = [1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 40];
    let answer = [3, 0, 1, 0, 1, 0, 0, 1, 0, 18, 0, 1, 1, 0, 0];
    let request = [3, 1, 0, 0, 4, 0, 0, 1, 0, 2, 0, 1, 1, 0, 9];
    let second = [0, 0xf0, 0x01];
    let echo = |number: u8| [5, number, 0];
    vec![
        syn(0, 1).to_vec(),
        [&syn(0, 1)[..], &answer, &second, &echo(0), &echo(1)].concat(),
        [&datagram[..], &second, &second, &echo(1), &second].concat(),
        [&request[..], &second, &[8, 1, 0], &request, &[6, 1, 0]].concat(),
        [&syn(0, 1)[..], &[8, 0, 1], &syn(0, 1), &[8, 4, 0], &second].concat(),
        [
            10, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 12, 1, 0, 2, 10, 1, 0, 1,
        ]
        .to_vec(),
        [
            10, 1, 0, 1, 0, 1, 13, 0, 1, 0, 0, 10, 1, 0, 2, 14, 0, 14, 1, 15, 0,
        ]
        .to_vec(),
        [&[9, 0, 80][..], &crate::messages::seeds()[8]].concat(),
        [
            &[4, 0, 0, 0, 0, 100][..],
            &crate::packets::sample_packets()[1],
        ]
        .concat(),
        [&[2, 0, 0, 40][..], &crate::packets::sample_packets()[0]].concat(),
    ]
}
