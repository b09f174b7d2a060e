//! The packet way as one state machine: it owns flows, connection notes, client addresses, costs,
//! liveness and data keys, and brings their parts together. The shell reads and writes bytes and
//! drives it: [`Plane::from_host`] for each packet of the interface, [`Plane::receive`] and
//! [`Plane::from_peer`] for each frame, [`Plane::handle_timeout`] at [`Plane::poll_timeout`], and
//! [`Plane::poll_output`] until it returns `None` after each of these.
//!
//! What crosses the overlay (`docs/protocol.md` section 3): IPv4 as IPv4, IPv6 as IPv6. A client
//! writes its own machine as source [`OWN_HOST`], whichever of its addresses was used, and a host
//! behind it by its LAN address; the holder maps (peer, that source) to a client address and
//! back. [`Flags::TO_CLIENT`] marks what a holder sends back, so that both ends know whose tables rule.
//!
//! Not here: which anchors exist and what they may (`membership`, `routes`), handshakes
//! (`session::noise`), and cutting or joining super-packets (`packet`, called by the shell).

mod counters;
mod draining;
mod explain;
mod expose;
mod failover;
mod hold;
mod inbound;
mod moved;
mod outbound;
mod path;
mod relay;
mod sizes;
mod timers;
mod view;
mod ways;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use conflux_proto::frame::Flags;
use conflux_proto::id::AnchorKey;
use ipnet::{IpNet, Ipv4Net};
use smallvec::SmallVec;

pub use counters::{Counters, DropReason};
pub use draining::Resting;
pub use explain::{Excluded, Explained, Found, HolderView, NoSuchHost};
pub use expose::{BadOpening, Opening};
pub use inbound::{Received, ToHost};
pub use outbound::ToPeer;
pub use path::Path;
pub use relay::{Carried, Sealing};
pub use sizes::MTU_BYTES;
pub use view::{FlowView, PeerView, Sizes};

use crate::clients::Clients;
use crate::connections::{Connections, Limits as ConnectionLimits};
use crate::cost::Costs;
use crate::flows::Flows;
use crate::ids::{Host, PeerIx, Relayed};
use crate::liveness::{Liveness, Sent};
use crate::mtu::Mtu;
use crate::packet::{Checksum, Offload, Packet, Tcp, TcpFlags, Transport};
use crate::reason::Reason;
use crate::relay::Links;
use crate::routes::Routes;
use crate::session::{SentAt, SessionKeys, Sessions};
use crate::table::{Map, map};
use crate::time::{Mono, Now};
use crate::translate::rewrite_source;
use expose::Expose;
use hold::Holds;
use moved::Asked;
use ways::{ROAM_AFTER, Trials};

/// The source address by which a client writes its own machine on the wire, and the address an
/// anchor without an IPv4 of its own has on its interface (RFC 7335; never advertised).
pub const OWN_HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);

/// Limits of the tables; each entry's size is stated in its module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Flows; the longest idle one goes at the cap.
    pub flows: usize,
    /// Connection notes and stored SYNs.
    pub connections: ConnectionLimits,
}

impl Default for Limits {
    /// One million flows (150 MB when full) and 262,144 connection notes.
    fn default() -> Self {
        Self {
            flows: 1 << 20,
            connections: ConnectionLimits::default(),
        }
    }
}

/// What this anchor is on its own machine.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its overlay address.
    pub overlay: Ipv6Addr,
    /// Its IPv4 of choice, advertised or not.
    pub ipv4: Option<Ipv4Addr>,
    /// Every address of this machine, those on the interface included.
    pub addresses: Vec<IpAddr>,
    /// The networks behind this machine (`--subnet`).
    pub subnets: Vec<IpNet>,
    /// Where clients appear.
    pub client_range: Ipv4Net,
}

/// A packet in a buffer of the caller: `bytes[start..]` begins with all of its headers. A joined
/// super-packet may have its payload elsewhere; then `total` exceeds what follows `start`.
#[derive(Debug)]
pub struct Head<'a> {
    /// The buffer; room before `start` is used when a header grows.
    pub bytes: &'a mut [u8],
    /// Where the packet begins; changes when it is translated.
    pub start: usize,
    /// IP bytes of the whole packet; changes when it is translated.
    pub total: usize,
}

impl Head<'_> {
    /// Returns the packet from its first byte on.
    pub fn packet(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

/// What the shell has to do.
#[derive(Debug)]
pub enum Output {
    /// Write this packet to the interface; its checksums are complete.
    ToHost(Vec<u8>),
    /// Seal this packet for the peer and send it; its checksums are complete.
    ToPeer {
        /// To whom.
        peer: PeerIx,
        /// DATA frame flags.
        flags: Flags,
        /// The packet as it crosses the wire.
        packet: Vec<u8>,
    },
    /// Pass this packet to [`Plane::from_host`] again: it had waited for a holder.
    FromHost {
        /// As it came from the interface.
        packet: Vec<u8>,
        /// Its offload.
        offload: Offload,
    },
    /// Pass this packet to [`Plane::from_peer`], as if the peer had sent it; its checksums are
    /// complete.
    FromPeer {
        /// The peer whose flow or client it is about.
        peer: PeerIx,
        /// DATA frame flags.
        flags: Flags,
        /// The packet in the form it would have on the wire.
        packet: Vec<u8>,
    },
    /// Send this sealed frame.
    Datagram {
        /// By which path.
        path: Path,
        /// The frame.
        frame: SmallVec<[u8; 64]>,
    },
    /// Tell the control loop.
    Event(Event),
}

/// What the control loop is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Packets wait for keys of this peer.
    NeedSession(PeerIx),
    /// The keys of this peer are due for replacement.
    Rotate(PeerIx),
    /// The peer's authentic frames come from this path now, or have been answered by it.
    Roamed(PeerIx, Path),
    /// A relay reaches this peer, and its other paths are being tried: it is to try ours.
    TryPaths(PeerIx),
    /// A probe went this way and back in so much time.
    Measured(Relayed, Duration),
    /// The peer is asked once more after it did not answer: should it have restarted, its control
    /// connection tells.
    Unanswered(PeerIx),
    /// The peer failed for this client; so many flows moved and so many found no other holder.
    Failed {
        /// Who.
        peer: PeerIx,
        /// Flows that went to another holder.
        moved: u32,
        /// Flows without a holder now.
        stranded: u32,
    },
    /// The peer's deadline passed but nobody else answers either.
    LocalFault(PeerIx),
    /// A failed peer may be used for new flows again.
    Returned(PeerIx),
    /// Flows were moved because the peer left or may not be used any more.
    Left {
        /// Who.
        peer: PeerIx,
        /// Why.
        reason: Reason,
        /// Flows that went to another holder.
        moved: u32,
        /// Flows without a holder now.
        stranded: u32,
    },
}

struct Paths {
    /// In order of preference.
    all: SmallVec<[Path; 4]>,
    current: Option<Path>,
    /// When the peer was last heard by the path in use.
    heard: Option<Mono>,
    /// Nothing has been heard by any path since this machine's network changed.
    is_doubtful: bool,
    /// Where the peer was heard last beside the path in use: behind a NAT it is in no list.
    other: Option<Path>,
    /// The probe by which the peer last said that it had moved; it may come by several paths.
    moved_by: Option<u64>,
    /// What the path in use has not answered since it last answered anything.
    asked: Option<Asked>,
    /// When the path in use took over because another did not answer, which the peer is told until
    /// it answers that.
    tells_move: Option<Mono>,
}

impl Paths {
    /// Says whether the path in use has proved itself within `span`.
    fn is_live(&self, now: Mono, span: Duration) -> bool {
        self.heard.is_some_and(|heard| now.since(heard) < span)
    }

    /// Lets the next path by which the peer is heard take over.
    fn doubt(&mut self) {
        self.heard = None;
        self.is_doubtful = true;
        for path in self
            .all
            .iter_mut()
            .chain(&mut self.current)
            .chain(&mut self.other)
        {
            // It may not be ours any more, or not lead out.
            path.local = None;
        }
    }

    fn note_heard(&mut self, now: Mono) {
        self.heard = Some(now);
        self.is_doubtful = false;
    }

    /// Returns the paths a probe goes by, the one in use first.
    fn to_probe(&self, all: bool) -> SmallVec<[Path; 4]> {
        let mut paths: SmallVec<[Path; 4]> = self.current.into_iter().collect();
        if all || self.is_doubtful {
            for path in self.all.iter().chain(&self.other) {
                if !paths.contains(path) {
                    paths.push(*path);
                }
            }
        }
        paths
    }
}

/// The state machine.
pub struct Plane {
    own: Own,
    routes: Arc<Routes>,
    sessions: Sessions,
    paths: Map<PeerIx, Paths>,
    keys: Map<PeerIx, AnchorKey>,
    flows: Flows,
    connections: Connections,
    clients: Clients,
    costs: Costs,
    liveness: Liveness,
    holds: Holds,
    expose: Expose,
    random: fastrand::Rng,
    outputs: VecDeque<Output>,
    rotation_asked: Map<PeerIx, Mono>,
    session_asked: Map<PeerIx, Mono>,
    /// Flows per network: the groups whose costs are kept fresh.
    used: Map<IpNet, u32>,
    /// Flows with an open connection per holder.
    watched: Map<PeerIx, u32>,
    /// When a packet last found no holder but this failed one, for want of a flow to count.
    wanted: Map<PeerIx, Mono>,
    /// Peers that said goodbye since the last snapshot of routes, which still lists them.
    left: SmallVec<[PeerIx; 4]>,
    /// Legs to relays, and those between which this anchor is one.
    links: Links,
    trials: Trials,
    /// How large packets each path takes.
    sizes: Mtu,
    /// The interface's MTU.
    mtu_bytes: u16,
    fragment_id: u32,
    next_expiry: Option<Mono>,
    /// Before this no SYN has its flow looked at for leaving a draining holder.
    next_look: Mono,
    counters: Counters,
}

impl std::fmt::Debug for Plane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plane({:?}, {:?})", self.flows, self.sessions)
    }
}

/// The control loop is asked for keys of one peer at most this often.
const ASK_EVERY: Duration = Duration::from_secs(1);

impl Plane {
    /// Returns a plane that knows no peer yet. `clients` may hold the leases of an earlier run.
    pub fn new(own: Own, routes: Arc<Routes>, clients: Clients, limits: Limits, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sub = || random.u64(..);
        Self {
            own,
            routes,
            sessions: Sessions::new(sub()),
            paths: map(sub()),
            keys: map(sub()),
            flows: Flows::new(limits.flows, sub()),
            connections: Connections::new(limits.connections, sub()),
            clients,
            costs: Costs::new(),
            liveness: Liveness::new(sub()),
            holds: Holds::new(sub()),
            expose: Expose::everything(sub()),
            rotation_asked: map(sub()),
            session_asked: map(sub()),
            used: map(sub()),
            watched: map(sub()),
            wanted: map(sub()),
            left: SmallVec::new(),
            links: Links::new(sub()),
            trials: Trials::new(sub()),
            sizes: Mtu::new(sub(), usize::from(MTU_BYTES)),
            mtu_bytes: MTU_BYTES,
            fragment_id: sub() as u32,
            random,
            outputs: VecDeque::new(),
            next_expiry: None,
            next_look: Mono::default(),
            counters: Counters::default(),
        }
    }

    /// Takes new facts about this machine.
    pub fn set_own(&mut self, own: Own) {
        self.own = own;
    }

    /// Lets only these ports in from peers, from now on; none: everything.
    pub fn set_expose(&mut self, openings: Vec<Opening>) {
        self.expose.set(openings);
    }

    /// Takes the keys of a finished handshake with `peer`. False when the receiver index is in
    /// use: pick another and shake hands again.
    pub fn install(
        &mut self,
        now: Now,
        peer: PeerIx,
        key: AnchorKey,
        session: &SessionKeys,
    ) -> bool {
        self.keys.insert(peer, key);
        let is_first = !self.sessions.can_send(peer) || self.liveness.is_failed(peer);
        if !self.sessions.install(now.mono, peer, session) {
            return false;
        }
        self.session_asked.remove(&peer);
        self.rotation_asked.remove(&peer);
        self.left.retain(|left| *left != peer);
        self.liveness.add_peer(peer);
        self.tell_use(now.mono, peer);
        if is_first {
            self.liveness.handle_session(now.mono, peer);
            self.follow_path(now.mono, peer);
        } else {
            // Tells the responder that its new keys arrived, and proves the path with them.
            self.liveness.handle_keys(now.mono, peer);
        }
        true
    }

    /// Takes the known paths to `peer`, in order of preference; the one in use stays in use while
    /// the peer is being heard by it, or was and it is still among them. A relay that comes first is
    /// used unless the peer is being heard: its control connection has come by it, for want of
    /// another.
    pub fn set_paths(&mut self, now: Mono, peer: PeerIx, all: &[Path]) {
        let entry = self.paths.entry(peer).or_insert_with(|| Paths {
            all: SmallVec::new(),
            current: None,
            heard: None,
            is_doubtful: false,
            other: None,
            moved_by: None,
            asked: None,
            tells_move: None,
        });
        entry.all = SmallVec::from_slice(all);
        let was_heard = entry.heard.is_some();
        let is_known = entry.current.is_some_and(|current| all.contains(&current));
        let preferred = all.first().copied();
        let wants_relay = preferred.as_ref().is_some_and(Path::is_relayed);
        if let (Some(current), Some(preferred)) = (&mut entry.current, &preferred)
            && current == preferred
        {
            current.follow_local(preferred);
        }
        let keeps = (is_known && was_heard && !wants_relay) || entry.current == preferred;
        if !keeps && !entry.is_live(now, ROAM_AFTER) {
            entry.current = preferred;
            entry.heard = None;
            entry.asked = None;
            entry.tells_move = None;
            self.follow_path(now, peer);
            self.watch_trials(now, peer);
        }
    }

    /// Takes a round-trip time measured elsewhere, by a handshake.
    pub fn set_rtt(&mut self, now: Mono, peer: PeerIx, rtt: Duration) {
        self.costs.handle_rtt(now, peer, rtt);
        if let Some(rtt) = self.costs.rtt(peer) {
            self.liveness.set_rtt(peer, rtt);
        }
    }

    /// Forgets a peer's keys and paths: it left, was refused, or its advert expired.
    pub fn forget(&mut self, peer: PeerIx) {
        self.sessions.remove(peer);
        self.paths.remove(&peer);
        self.liveness.remove_peer(peer);
        self.sizes.remove_peer(peer);
        self.trials.forget(peer);
        self.costs.forget(peer);
        self.rotation_asked.remove(&peer);
        self.session_asked.remove(&peer);
    }

    /// Returns what seals frames for `peer`, the path they take (to the peer, or to the relay that
    /// carries them), and the largest packet, in bytes, that this path carries in one frame.
    pub fn sealer(&mut self, peer: PeerIx) -> Result<(Sealing<'_>, Path, usize), DropReason> {
        let path = self
            .paths
            .get(&peer)
            .and_then(|paths| paths.current)
            .ok_or(DropReason::NoPath)?;
        let limit_bytes = self.sizes.limit_bytes(peer);
        let (sealing, path) = self.sealing_by(peer, path)?;
        Ok((sealing, path, limit_bytes))
    }

    /// Notes DATA frames sent to `peer`, up to `highest`.
    pub fn note_sent(
        &mut self,
        now: Mono,
        peer: PeerIx,
        flags: Flags,
        frames: u32,
        highest: SentAt,
    ) {
        self.counters.frames_sent += u64::from(frames);
        if !flags.contains(Flags::TO_CLIENT) {
            self.liveness.handle_sent(now, peer, position(highest));
        }
        if self.sessions.wants_rotation(now, peer)
            && is_due(&mut self.rotation_asked, now, peer, ASK_EVERY * 5)
        {
            self.outputs.push_back(Output::Event(Event::Rotate(peer)));
        }
    }

    /// Counts a packet that the shell could not bring on its way.
    pub const fn note_drop(&mut self, reason: DropReason) {
        self.counters.drop_packet(reason);
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the client leases, to be kept across a restart.
    pub const fn clients(&self) -> &Clients {
        &self.clients
    }

    fn ask_for_session(&mut self, now: Mono, peer: PeerIx) {
        if is_due(&mut self.session_asked, now, peer, ASK_EVERY) {
            self.outputs
                .push_back(Output::Event(Event::NeedSession(peer)));
        }
    }

    /// Says whether data may be exchanged with a peer.
    fn may_exchange(&self, peer: PeerIx) -> bool {
        self.routes
            .peer(peer)
            .is_some_and(|facts| facts.may_exchange)
    }

    /// Says whose host a source address is; `None` for a stranger's.
    fn host_of(&self, source: IpAddr) -> Option<Host> {
        let is_own = match source {
            IpAddr::V4(source) => Some(source) == self.own.ipv4 || source == OWN_HOST,
            IpAddr::V6(source) => source == self.own.overlay,
        };
        if is_own || self.own.addresses.contains(&source) {
            return Some(Host::Own);
        }
        let is_behind = self
            .own
            .subnets
            .iter()
            .any(|subnet| subnet.contains(&source));
        is_behind.then_some(Host::Behind(source))
    }

    /// Says whether an address is that of a host behind this machine.
    fn is_behind(&self, address: IpAddr) -> bool {
        matches!(self.host_of(address), Some(Host::Behind(_)))
    }
}

/// Returns a position among sent frames as liveness counts it.
const fn position(at: SentAt) -> Sent {
    Sent {
        generation: at.generation,
        counter: at.counter,
    }
}

/// Returns sequence and acknowledgment number of a RST that answers a segment (RFC 9293 section
/// 3.10.7.1).
fn reset_numbers(tcp: &Tcp) -> (u32, Option<u32>) {
    if tcp.flags.contains(TcpFlags::ACK) {
        return (tcp.acknowledgment, None);
    }
    let controls = [TcpFlags::SYN, TcpFlags::FIN].map(|flag| u32::from(tcp.flags.contains(flag)));
    let length = tcp.payload_bytes.wrapping_add(controls[0] + controls[1]);
    (0, Some(tcp.sequence.wrapping_add(length)))
}

/// An ICMP error may come from a router, but whose it is its quote tells: gives it the source that
/// the quoted packet was sent to, so that outside and inside are renamed alike.
fn name_by_quote(
    head: &mut Head<'_>,
    packet: &Packet,
    checksum: Checksum,
) -> Result<Packet, DropReason> {
    let quoted = match packet.transport {
        Transport::IcmpError(error) => error.inner.destination,
        Transport::Tcp(_)
        | Transport::Udp(_)
        | Transport::Echo(_)
        | Transport::Icmp
        | Transport::LaterFragment
        | Transport::Other => packet.source,
    };
    if quoted == packet.source {
        return Ok(*packet);
    }
    rewrite_source(head.packet(), packet, checksum, quoted)
        .map_err(|_| DropReason::Untranslatable)?;
    Ok(Packet {
        source: quoted,
        ..*packet
    })
}

/// Says whether something may be asked for `peer` again, and remembers that it was.
fn is_due(asked: &mut Map<PeerIx, Mono>, now: Mono, peer: PeerIx, every: Duration) -> bool {
    let due = asked
        .get(&peer)
        .is_none_or(|&last| now.since(last) >= every);
    if due {
        asked.insert(peer, now);
    }
    due
}

#[cfg(test)]
mod tests;
