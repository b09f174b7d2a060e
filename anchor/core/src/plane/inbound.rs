//! From a peer to the interface: open the frame, check that this peer may send that, find whose
//! flow or client it is, and give the packet the form the host expects. Frames are opened one by
//! one ([`Plane::receive`]); packets come back joined ([`Plane::from_peer`]).

use std::net::{IpAddr, SocketAddr};

use conflux_proto::frame::{Echo, Flags, FrameType, Probe, Received as Progress};

use super::{Head, OWN_HOST, Output, Path, Plane, name_by_quote, position, reset_numbers};
use crate::connections::{Inbound, WireKey};
use crate::flows::{Direction, FlowKey};
use crate::ids::{FlowId, FlowTag, Host, PeerIx};
use crate::packet::{
    Offload, Packet, Reason as Unreachable, TcpFlags, Transport, build_reset, build_unreachable,
};
use crate::plane::counters::DropReason;
use crate::reason::Reason;
use crate::session::OpenFailed;
use crate::time::{Mono, Now};
use crate::translate::{four_to_six, rewrite_destination, rewrite_source, spelled};

/// What a frame was.
#[derive(Debug)]
pub enum Received<'a> {
    /// A packet: join it with its neighbours, then [`Plane::from_peer`].
    Data {
        /// Who sent it.
        peer: PeerIx,
        /// DATA frame flags.
        flags: Flags,
        /// The packet, in place.
        packet: &'a mut [u8],
    },
    /// A probe, echo or keepalive; done.
    Handled,
    /// Nothing of ours, or not authentic.
    Dropped(DropReason),
}

/// What becomes of a packet from a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToHost {
    /// Write it to the interface.
    Write,
    /// It went nowhere.
    Dropped(DropReason),
}

impl Plane {
    /// Opens a frame that came by `from`.
    pub fn receive<'a>(&mut self, now: Now, from: Path, frame: &'a mut [u8]) -> Received<'a> {
        let opened = match self.sessions.open(frame) {
            Ok(opened) => opened,
            Err(error) => {
                let reason = match error {
                    OpenFailed::Malformed => DropReason::MalformedFrame,
                    OpenFailed::UnknownIndex => DropReason::UnknownIndex,
                    OpenFailed::Replayed => DropReason::Replayed,
                    OpenFailed::NotAuthentic => DropReason::NotAuthentic,
                };
                self.counters.drop_packet(reason);
                return Received::Dropped(reason);
            }
        };
        let (peer, header, confirms) = (opened.peer, opened.header, opened.confirms);
        let plaintext = opened.plaintext;
        self.counters.frames_received += 1;
        self.liveness.handle_heard(now.mono, peer);
        self.heard_frame(now.mono, peer, from, header.kind);
        if confirms && !self.sizes.is_started(peer) {
            self.follow_path(now.mono, peer);
        }
        match header.kind {
            FrameType::Data => {
                if !header.flags.contains(Flags::TO_CLIENT) {
                    self.liveness.handle_data_received(now.mono, peer);
                }
                return Received::Data {
                    peer,
                    flags: header.flags,
                    packet: plaintext,
                };
            }
            FrameType::Keepalive => {
                if let Ok(progress) = Progress::decode(plaintext) {
                    self.take_proof(now.mono, peer, progress);
                }
            }
            FrameType::Probe => {
                if let Ok(probe) = Probe::decode(plaintext) {
                    if Probe::says_moved(plaintext) {
                        self.handle_peer_moved(now.mono, peer, from, probe.id);
                    }
                    self.answer_probe(now.mono, peer, from, probe);
                }
            }
            FrameType::Echo => {
                if let Ok(echo) = Echo::decode(plaintext) {
                    self.take_echo(now, peer, from, echo);
                }
            }
        }
        Received::Handled
    }

    /// Takes a packet of `peer`, joined or not, and rewrites its head to what the host expects.
    pub fn from_peer(
        &mut self,
        now: Now,
        peer: PeerIx,
        flags: u8,
        head: &mut Head<'_>,
        offload: &mut Offload,
    ) -> ToHost {
        let verdict = if flags & Flags::TO_CLIENT.bits() != 0 {
            self.answer_from_holder(now, peer, head, offload)
        } else {
            self.request_from_peer(now, peer, head, offload)
        };
        match verdict {
            Ok(()) => {
                self.counters.delivered_packets += 1;
                self.counters.delivered_bytes += head.total as u64;
                ToHost::Write
            }
            Err(reason) => {
                self.counters.drop_packet(reason);
                ToHost::Dropped(reason)
            }
        }
    }

    /// A holder answers one of our hosts, or dials it back.
    fn answer_from_holder(
        &mut self,
        now: Now,
        peer: PeerIx,
        head: &mut Head<'_>,
        offload: &mut Offload,
    ) -> Result<(), DropReason> {
        let packet = self.parse_from(peer, head)?;
        let host = match packet.destination {
            IpAddr::V4(OWN_HOST) => Host::Own,
            IpAddr::V4(_) | IpAddr::V6(_) => match self.host_of(packet.destination) {
                Some(Host::Behind(address)) => Host::Behind(address),
                Some(Host::Own) | None => return Err(DropReason::NotServed),
            },
        };
        // An ICMP error may come from a router behind the holder; the flow is then named by the
        // packet it quotes.
        let far = match packet.transport {
            Transport::IcmpError(error) => error.inner.destination,
            Transport::Tcp(_)
            | Transport::Udp(_)
            | Transport::Echo(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => packet.source,
        };
        if !self.expose.admits(now.boot, host, Some(far), &packet) {
            self.reset_peer(peer, &packet);
            return Err(DropReason::NotExposed);
        }
        let key = FlowKey {
            host,
            destination: far,
        };
        let (tag, wire) = self.look_ahead_inbound(&key, &packet);
        let flow = match self.flow_from_holder(now, peer, key, tag) {
            Ok(flow) => flow,
            Err(reason) => {
                self.reset_peer(peer, &packet);
                return Err(reason);
            }
        };
        let origin = match self.note_inbound(now, flow, wire, peer, &packet) {
            Ok(origin) => origin,
            Err(reason) => {
                self.reset_peer(peer, &packet);
                return Err(reason);
            }
        };
        self.flows
            .note(now.boot, flow, head.total, Direction::ToHost);
        let origin = origin.unwrap_or_else(|| self.default_origin(flow, &packet));
        if self.is_behind(origin) {
            self.fit_segments(head.packet(), &packet, offload.checksum, origin);
        }
        match origin {
            IpAddr::V4(_) if origin == packet.destination => Ok(()),
            IpAddr::V4(_) => rewrite_destination(head.packet(), &packet, offload.checksum, origin)
                .map_err(|_| DropReason::Untranslatable),
            IpAddr::V6(origin) => four_to_six_in_place(head, &packet, offload, origin),
        }
    }

    /// Finds the flow a holder's packet belongs to, pinned to that holder. A holder that dials a
    /// client host back starts a flow on itself.
    fn flow_from_holder(
        &mut self,
        now: Now,
        peer: PeerIx,
        key: FlowKey,
        tag: FlowTag,
    ) -> Result<FlowId, DropReason> {
        if !self.routes.may_send(peer, key.destination) {
            return Err(DropReason::PeerSource);
        }
        if let Some(id) = self.flows.find_tagged(tag, &key) {
            return if self.is_pinned_to(now, id, peer) {
                Ok(id)
            } else {
                Err(DropReason::NotPinned)
            };
        }
        let (prefix_len, candidates) = self
            .candidates(key.destination)
            .map_err(|(reason, _)| reason)?;
        if !candidates.contains(&peer) {
            return Err(DropReason::PeerSource);
        }
        let reason = Reason::New.among(candidates.len());
        self.make_room(now);
        let id = self
            .flows
            .insert(now.boot, key, prefix_len, Some(peer), reason);
        self.counters.choose(reason);
        self.note_network(now, id);
        Ok(id)
    }

    /// Says whether a flow is on `peer`. One that lost its last holder, and found none since, goes
    /// to whoever of its group speaks first: it would wait for a packet from here otherwise.
    fn is_pinned_to(&mut self, now: Now, id: FlowId, peer: PeerIx) -> bool {
        let Some(flow) = self.flows.get(id) else {
            return false;
        };
        if let Some(holder) = flow.holder {
            return holder == peer;
        }
        let reason = flow.reason;
        match self.candidates(flow.key.destination) {
            Ok((prefix_len, candidates)) if candidates.contains(&peer) => {
                self.set_network(now.mono, id, prefix_len);
                self.repin(now, id, Some(peer), reason);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// A client sends to something served here, or a peer to our overlay address.
    fn request_from_peer(
        &mut self,
        now: Now,
        peer: PeerIx,
        head: &mut Head<'_>,
        offload: &mut Offload,
    ) -> Result<(), DropReason> {
        let packet = self.parse_from(peer, head)?;
        if !self.routes.serves(packet.destination) {
            self.refuse_peer(peer, head, &packet, Unreachable::HostUnreachable);
            return Err(DropReason::NotServed);
        }
        if self.expose.is_restricted() && !self.is_let_in(now, peer, &packet) {
            self.refuse_peer(peer, head, &packet, Unreachable::AdminProhibited);
            return Err(DropReason::NotExposed);
        }
        if self.is_behind(packet.destination) {
            self.fit_segments(head.packet(), &packet, offload.checksum, packet.destination);
        }
        match packet.source {
            IpAddr::V4(_) => self.request_of_client(now, peer, head, offload, &packet),
            IpAddr::V6(_) => self.request_by_overlay(now, peer, head.total, &packet),
        }
    }

    /// Says whether a peer's packet is for a port that is let in, or answers a host of ours. A
    /// client that has no address here cannot have been asked.
    fn is_let_in(&self, now: Now, peer: PeerIx, packet: &Packet) -> bool {
        let Some(host) = self.host_of(packet.destination) else {
            return false;
        };
        let far = match packet.source {
            IpAddr::V4(_) => self.clients.find(peer, packet.source).map(IpAddr::from),
            IpAddr::V6(_) => Some(packet.source),
        };
        self.expose.admits(now.boot, host, far, packet)
    }

    fn request_of_client(
        &mut self,
        now: Now,
        peer: PeerIx,
        head: &mut Head<'_>,
        offload: &Offload,
        packet: &Packet,
    ) -> Result<(), DropReason> {
        let packet = &name_by_quote(head, packet, offload.checksum)?;
        let source = packet.source;
        if !self.routes.may_send(peer, source) {
            return Err(DropReason::PeerSource);
        }
        let Some(key) = self.keys.get(&peer).copied() else {
            return Err(DropReason::PeerSource);
        };
        match self.clients.assign(now.boot, peer, &key, source) {
            Ok(address) => rewrite_source(head.packet(), packet, offload.checksum, address.into())
                .map_err(|_| DropReason::Untranslatable),
            Err(_) => {
                self.refuse_peer(peer, head, packet, Unreachable::AdminProhibited);
                Err(DropReason::PoolFull)
            }
        }
    }

    /// IPv6 crosses as it is; both ends keep a flow for it, so pins and resets work alike.
    fn request_by_overlay(
        &mut self,
        now: Now,
        peer: PeerIx,
        total: usize,
        packet: &Packet,
    ) -> Result<(), DropReason> {
        if !self.routes.may_send(peer, packet.source) {
            return Err(DropReason::PeerSource);
        }
        let Some(host) = self.host_of(packet.destination) else {
            return Err(DropReason::NotServed);
        };
        // A router may report an error; whose flow it is about its quote tells.
        let destination = match packet.transport {
            Transport::IcmpError(error) => error.inner.destination,
            Transport::Tcp(_)
            | Transport::Udp(_)
            | Transport::Echo(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => packet.source,
        };
        let key = FlowKey { host, destination };
        let (tag, wire) = self.look_ahead_inbound(&key, packet);
        let Some(id) = self.flows.find_tagged(tag, &key) else {
            return Ok(());
        };
        if !self.is_pinned_to(now, id, peer) {
            return Err(DropReason::NotPinned);
        }
        if let Err(reason) = self.note_inbound(now, id, wire, peer, packet) {
            self.reset_peer(peer, packet);
            return Err(reason);
        }
        self.flows.note(now.boot, id, total, Direction::ToHost);
        Ok(())
    }

    /// Parses a packet of a peer and checks that data may be exchanged with it at all.
    fn parse_from(&self, peer: PeerIx, head: &mut Head<'_>) -> Result<Packet, DropReason> {
        if !self.may_exchange(peer) {
            return Err(DropReason::Taint);
        }
        let total = head.total;
        Packet::parse(head.packet(), total).map_err(|_| DropReason::MalformedInner)
    }

    /// Begins the look-up of a packet's connection; the flow's comes next.
    fn look_ahead_inbound(&self, key: &FlowKey, packet: &Packet) -> (FlowTag, Option<WireKey>) {
        let tag = self.flows.tag(key);
        let wire = WireKey::of_inbound(tag, packet);
        if let Some(wire) = &wire {
            self.connections.look_ahead(wire);
        }
        (tag, wire)
    }

    /// Notes a packet to the host in the connection table; returns the local address its
    /// connection uses, where it is known.
    fn note_inbound(
        &mut self,
        now: Now,
        flow: FlowId,
        wire: Option<WireKey>,
        peer: PeerIx,
        packet: &Packet,
    ) -> Result<Option<IpAddr>, DropReason> {
        let Some(key) = wire.map(|wire| wire.in_flow(flow)) else {
            return Ok(None);
        };
        let mut noted = self.connections.note_inbound(now, key, packet);
        if noted == Inbound::Unknown {
            let origin = self.default_origin(flow, packet);
            noted = self.connections.admit(now, key, origin, packet);
        }
        match noted {
            Inbound::Pass {
                origin,
                answer,
                refused,
            } => {
                // While the round trip is unknown it can't be told from the answer time, and
                // would count twice for minutes.
                if let Some(answer) = answer
                    && let Some(rtt) = self.costs.rtt(peer)
                {
                    self.costs
                        .handle_answer(now.mono, peer, answer.saturating_sub(rtt));
                }
                if refused {
                    self.costs.handle_refused(now.mono, peer);
                }
                Ok(Some(origin))
            }
            Inbound::Unknown => Ok(None),
            Inbound::Dead => Err(DropReason::ResetConnection),
        }
    }

    /// Returns the local address a packet goes to whose connection is not known: the one its flow
    /// used last, else this machine's IPv4.
    fn default_origin(&self, flow: FlowId, packet: &Packet) -> IpAddr {
        if packet.destination != IpAddr::V4(OWN_HOST) {
            return packet.destination;
        }
        let own = || self.own.ipv4.unwrap_or(OWN_HOST).into();
        self.connections.last_origin(flow).unwrap_or_else(own)
    }

    /// Sends a RST to the holder for a segment that no connection of the host wants.
    fn reset_peer(&mut self, peer: PeerIx, packet: &Packet) {
        let Transport::Tcp(tcp) = packet.transport else {
            return;
        };
        if tcp.flags.contains(TcpFlags::RST) {
            return;
        }
        let (sequence, acknowledgment) = reset_numbers(&tcp);
        let mut reset = Vec::new();
        let from = SocketAddr::new(packet.destination, tcp.destination_port);
        let to = SocketAddr::new(packet.source, tcp.source_port);
        if build_reset(&mut reset, from, to, sequence, acknowledgment).is_ok() {
            let flags = Flags::NONE;
            self.outputs.push_back(Output::ToPeer {
                peer,
                flags,
                packet: reset,
            });
        }
    }

    /// Tells a client by ICMP that its packet goes nowhere.
    fn refuse_peer(
        &mut self,
        peer: PeerIx,
        head: &mut Head<'_>,
        packet: &Packet,
        why: Unreachable,
    ) {
        // The error comes from the address that was asked for: the one source the client's
        // anchor accepts from this holder.
        let from = packet.destination;
        let flags = if from.is_ipv4() {
            Flags::TO_CLIENT
        } else {
            Flags::NONE
        };
        if !from.is_ipv4() && !self.routes.serves(from) {
            return;
        }
        let mut error = Vec::new();
        if build_unreachable(&mut error, head.packet(), from, why).is_ok() {
            self.outputs.push_back(Output::ToPeer {
                peer,
                flags,
                packet: error,
            });
        }
    }

    fn take_proof(&mut self, now: Mono, peer: PeerIx, proof: Progress) {
        if let Some(sent) = self.sessions.proved(peer, proof.receiver, proof.highest) {
            self.liveness.handle_proof(now, peer, position(sent));
        }
    }

    fn take_echo(&mut self, now: Now, peer: PeerIx, from: Path, echo: Echo) {
        self.take_proof(now.mono, peer, echo.received);
        let is_trial = self.take_trial_echo(now.mono, peer, echo.id);
        self.sizes.handle_echo(now.mono, peer, echo.id);
        self.liveness.handle_size_echo(now.mono, peer, echo.id);
        let asked = self.liveness.asked_at(peer, echo.id);
        if let Some(rtt) = self.liveness.handle_echo(now.mono, peer, echo.id) {
            self.set_rtt(now.mono, peer, rtt);
        }
        if !is_trial {
            self.answered_by(now.mono, peer, from, asked);
        }
        self.release_holds(now, peer);
    }

    fn answer_probe(&mut self, now: Mono, peer: PeerIx, from: Path, probe: Probe) {
        let payload = Echo {
            id: probe.id,
            received: self.progress(peer),
        }
        .encode();
        self.send_frame(peer, FrameType::Echo, &payload, &[from]);
        self.liveness.handle_echo_sent(now, peer);
    }

    /// Returns how far data of `peer` has come; index 0 is nobody's.
    pub(super) fn progress(&self, peer: PeerIx) -> Progress {
        let received = self.sessions.received(peer);
        received.map_or(
            Progress {
                receiver: 0,
                highest: 0,
            },
            |received| Progress {
                receiver: received.index,
                highest: received.counter,
            },
        )
    }

    /// Brings a packet that this anchor made itself, in the form a peer would send it, to the
    /// host it is for.
    pub(super) fn loop_back(&mut self, peer: PeerIx, flags: Flags, packet: Vec<u8>) {
        self.outputs.push_back(Output::FromPeer {
            peer,
            flags,
            packet,
        });
    }
}

fn four_to_six_in_place(
    head: &mut Head<'_>,
    packet: &Packet,
    offload: &mut Offload,
    origin: std::net::Ipv6Addr,
) -> Result<(), DropReason> {
    let IpAddr::V4(source) = packet.source else {
        return Err(DropReason::Untranslatable);
    };
    let start = four_to_six(
        head.bytes,
        head.start,
        packet,
        offload,
        spelled(source),
        origin,
    )
    .map_err(|_| DropReason::Untranslatable)?;
    head.total += head.start - start;
    head.start = start;
    Ok(())
}
