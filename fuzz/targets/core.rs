//! The whole of core, driven by what a member may send: control messages into the store of
//! adverts and revocations, frames and packets into the packet way.
//!
//! The input is a list of pieces, each with a byte for its kind, two for its length, and one for
//! the time that has passed before it.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use conflux_core::clients::Clients;
use conflux_core::identity::{Identity, RealmSecret};
use conflux_core::membership::Membership;
use conflux_core::packet::Offload;
use conflux_core::plane::{Head, Limits, Own, Path, Plane};
use conflux_core::routes::{self, DEFAULT_CLIENT_RANGE, OwnFacts};
use conflux_core::time::{Boot, Mono, Now, UnixTime};
use conflux_proto::control::{Decoded, Message};
use conflux_proto::id::AnchorKey;
use libfuzzer_sys::fuzz_target;

/// Room in front of a packet, for headers that grow.
const ROOM: usize = 128;

fuzz_target!(|bytes: &[u8]| {
    let mut core = Core::new();
    let mut rest = bytes;
    while let [kind, high, low, pause, tail @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (piece, after) = tail.split_at(length);
        core.pass(Duration::from_millis(u64::from(*pause) * 40));
        core.take(*kind, piece);
        rest = after;
    }
});

struct Core {
    now: Now,
    membership: Membership,
    plane: Plane,
}

impl Core {
    fn new() -> Self {
        let identity = Identity::from_seed(&[1; 32]);
        let realm = RealmSecret::from_seed(&[2; 32]).key();
        let (key, ipv4) = (identity.key(), Some(Ipv4Addr::new(10, 128, 0, 9)));
        let overlay = key.overlay(&realm.id());
        let facts = OwnFacts {
            key,
            overlay,
            ipv4,
            ipv4_advertised: true,
            networks: Vec::new(),
            local_networks: Vec::new(),
            client_range: DEFAULT_CLIENT_RANGE,
        };
        let own = Own {
            overlay,
            ipv4,
            addresses: vec![overlay.into(), Ipv4Addr::new(10, 128, 0, 9).into()],
            subnets: Vec::new(),
            client_range: DEFAULT_CLIENT_RANGE,
        };
        let routes = Arc::new(routes::build(&facts, &[]));
        let limits = Limits {
            flows: 64,
            ..Limits::default()
        };
        let clients = Clients::new(DEFAULT_CLIENT_RANGE, 3);
        Self {
            now: Now {
                mono: Mono::from_nanos(1_000_000_000_000),
                boot: Boot::from_nanos(1_000_000_000_000),
            },
            membership: Membership::new(realm, identity, 1, 4),
            plane: Plane::new(own, routes, clients, limits, 5),
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.membership.handle_timeout(self.now.mono);
        while self.membership.poll_event().is_some() {}
    }

    fn take(&mut self, kind: u8, piece: &[u8]) {
        match kind % 3 {
            0 => self.take_message(piece),
            1 => {
                let from = Path {
                    socket: 0,
                    remote: SocketAddr::from(([192, 0, 2, 1], 47_474)),
                };
                self.plane.receive(self.now, from, &mut piece.to_vec());
            }
            _ => {
                let mut bytes = vec![0; ROOM];
                bytes.extend_from_slice(piece);
                let mut head = Head {
                    total: piece.len(),
                    bytes: &mut bytes,
                    start: ROOM,
                };
                self.plane
                    .from_host(self.now, &mut head, &mut Offload::PLAIN.clone());
            }
        }
    }

    fn take_message(&mut self, piece: &[u8]) {
        let now = self.now.mono;
        let from = Some(AnchorKey([9; 32]));
        let Ok(Decoded::Message(message)) = Message::decode(piece) else {
            return;
        };
        match message {
            Message::Adverts(adverts) => {
                for aged in adverts.adverts {
                    let age = Duration::from_millis(aged.age_millis);
                    let unix = UnixTime(1_800_000_000);
                    self.membership
                        .handle_advert(now, unix, &aged.advert, age, from);
                }
            }
            Message::Leave(leave) => {
                self.membership.handle_leave(now, &leave, from);
            }
            Message::Digest(digest) => answers(self.membership.handle_digest(now, &digest)),
            Message::Revocations(said) => {
                self.membership
                    .handle_revocations(now, &said.revocations, from);
            }
            Message::RevocationDigest(digest) => {
                answers(self.membership.handle_revocation_digest(&digest));
            }
            Message::Hello(_)
            | Message::Refused(_)
            | Message::Admitted(_)
            | Message::Noise1(_)
            | Message::Noise2(_)
            | Message::Ping(_)
            | Message::Pong(_) => {}
        }
    }
}

/// What is answered can be sent.
fn answers(messages: Vec<Message>) {
    for message in messages {
        assert!(message.encode().is_ok());
    }
}
