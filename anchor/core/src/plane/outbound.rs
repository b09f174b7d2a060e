//! From the interface to a peer: whose packet it is, which flow, which holder, and the form it
//! has on the wire. Each super-packet passes here once.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use conflux_proto::frame::Flags;

use super::{Head, OWN_HOST, Output, Plane, name_by_quote, reset_numbers};
use crate::choose::choose;
use crate::connections::{Outbound, WireKey};
use crate::cost::Cost;
use crate::flows::{Direction, Flow, FlowKey, IDLE_AFTER};
use crate::ids::{FlowId, FlowTag, Host, PeerIx};
use crate::packet::{
    Offload, Packet, Reason as Unreachable, TcpFlags, Transport, build_reset, build_unreachable,
};
use crate::plane::counters::DropReason;
use crate::reason::Reason;
use crate::routes::Route;
use crate::time::Now;
use crate::translate::{rewrite_destination, rewrite_source, six_to_four, unspell};
use smallvec::SmallVec;

/// What becomes of a packet from the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToPeer {
    /// Cut it, seal it for `peer` and send it.
    Send {
        /// To whom.
        peer: PeerIx,
        /// DATA frame flags, [`Flags::PARTIAL_CHECKSUM`] excepted: the shell knows its cuts.
        flags: Flags,
    },
    /// It waits for a holder to answer; a copy is kept.
    Held,
    /// It went nowhere; the sender was told where that is due.
    Dropped(DropReason),
}

/// Holders to draw from.
pub(super) type Holders = SmallVec<[PeerIx; 8]>;

/// What [`Plane::place`] found for a flow.
pub(super) enum Placed {
    /// On this holder.
    On(FlowId, PeerIx),
    /// A copy of the packet waits.
    Held,
}

impl Plane {
    /// Takes a packet from the interface, `head` holding all of it, and rewrites it to the form
    /// it has on the wire.
    pub fn from_host(&mut self, now: Now, head: &mut Head<'_>, offload: &mut Offload) -> ToPeer {
        self.counters.host_packets += 1;
        self.counters.host_bytes += head.total as u64;
        match self.outbound(now, head, offload) {
            Ok(verdict) => verdict,
            Err(reason) => {
                self.counters.drop_packet(reason);
                ToPeer::Dropped(reason)
            }
        }
    }

    fn outbound(
        &mut self,
        now: Now,
        head: &mut Head<'_>,
        offload: &mut Offload,
    ) -> Result<ToPeer, DropReason> {
        let total = head.total;
        let packet = Packet::parse(head.packet(), total).map_err(|_| DropReason::Malformed)?;
        if let IpAddr::V4(destination) = packet.destination
            && self.own.client_range.contains(&destination)
        {
            return self.answer_client(now, head, offload, &packet);
        }
        let spelled = spelled_by(&packet);
        let (packet, host) = self.identify(head, packet, offload)?;
        let key = FlowKey {
            host,
            destination: spelled.map_or(packet.destination, IpAddr::from),
        };
        let tag = self.flows.tag(&key);
        let wire = WireKey::of_outbound(tag, &packet);
        if let Some(wire) = &wire {
            self.connections.look_ahead(wire);
        }
        let (flow, peer) = match self.place(now, key, tag, head, offload, &packet)? {
            Placed::On(flow, peer) => (flow, peer),
            Placed::Held => return Ok(ToPeer::Held),
        };
        self.note_connection(now, flow, wire, head, &packet)?;
        if !self.sessions.can_send(peer) {
            self.ask_for_session(now.mono, peer);
            return Err(DropReason::NoSession);
        }
        self.flows.note(now.boot, flow, total, Direction::FromHost);
        self.expose
            .note_sent(now.boot, host, key.destination, &packet);
        match (spelled, packet.source) {
            (Some(destination), _) => {
                six_to_four_in_place(head, &packet, offload, destination)?;
            }
            (None, IpAddr::V4(source)) if host == Host::Own && source != OWN_HOST => {
                rewrite_source(head.packet(), &packet, offload.checksum, OWN_HOST.into())
                    .map_err(|_| DropReason::Untranslatable)?;
            }
            (None, _) => {}
        }
        Ok(ToPeer::Send {
            peer,
            flags: Flags::NONE,
        })
    }

    /// Finds whose packet this is, and returns it with the source it is known by.
    fn identify(
        &mut self,
        head: &mut Head<'_>,
        mut packet: Packet,
        offload: &Offload,
    ) -> Result<(Packet, Host), DropReason> {
        let spelled = spelled_by(&packet);
        let mut about = None;
        if let Transport::IcmpError(error) = packet.transport {
            about = self.host_of(error.inner.destination);
            if about.is_some() && (packet.is_ipv4() || spelled.is_some()) {
                packet = name_by_quote(head, &packet, offload.checksum)?;
            }
        }
        let Some(sender) = self.sender_of(&packet) else {
            self.refuse(head, &packet, Unreachable::AdminProhibited);
            return Err(DropReason::ForeignSource);
        };
        let host = about.unwrap_or(sender);
        if matches!(host, Host::Behind(_)) {
            self.fit_segments(head.packet(), &packet, offload.checksum, packet.source);
        }
        // An IPv6 host behind us that spells an IPv4 destination has no IPv4 address to be told
        // apart by, so it shares this machine's.
        Ok((packet, if spelled.is_some() { Host::Own } else { host }))
    }

    /// Says whose host sent a packet; `None` when peers would not take it from us. IPv6 crosses
    /// as it is, so of this machine's own addresses only the overlay's will do there.
    fn sender_of(&self, packet: &Packet) -> Option<Host> {
        let host = self.host_of(packet.source)?;
        let crosses = match (host, packet.source, packet.destination) {
            (Host::Own, IpAddr::V6(source), IpAddr::V6(destination)) => {
                source == self.own.overlay || unspell(destination).is_some()
            }
            (Host::Own | Host::Behind(_), _, _) => true,
        };
        crosses.then_some(host)
    }

    /// Says whether a packet may go to a client: its source must be an address that clients ask
    /// for. A router of ours may report an error about such an address.
    fn may_answer(&self, packet: &Packet) -> bool {
        match packet.transport {
            Transport::IcmpError(error) => {
                self.host_of(packet.source).is_some() && self.routes.serves(error.inner.destination)
            }
            Transport::Tcp(_)
            | Transport::Udp(_)
            | Transport::Echo(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => self.routes.serves(packet.source),
        }
    }

    /// Sends a packet for a client address back to the client it stands for.
    fn answer_client(
        &mut self,
        now: Now,
        head: &mut Head<'_>,
        offload: &Offload,
        packet: &Packet,
    ) -> Result<ToPeer, DropReason> {
        let IpAddr::V4(address) = packet.destination else {
            return Err(DropReason::NoMapping);
        };
        if !self.may_answer(packet) {
            self.refuse(head, packet, Unreachable::AdminProhibited);
            return Err(DropReason::ForeignSource);
        }
        if self.is_behind(packet.source) {
            self.fit_segments(head.packet(), packet, offload.checksum, packet.source);
        }
        let Some((peer, host)) = self.clients.resolve(now.boot, address) else {
            self.refuse(head, packet, Unreachable::HostUnreachable);
            return Err(DropReason::NoMapping);
        };
        if !self.may_exchange(peer) {
            self.refuse(head, packet, Unreachable::AdminProhibited);
            return Err(DropReason::Taint);
        }
        if !self.sessions.can_send(peer) {
            self.ask_for_session(now.mono, peer);
            return Err(DropReason::NoSession);
        }
        if self.expose.is_restricted()
            && let Some(sender) = self.host_of(packet.source)
        {
            self.expose
                .note_sent(now.boot, sender, address.into(), packet);
        }
        rewrite_destination(head.packet(), packet, offload.checksum, host)
            .map_err(|_| DropReason::Untranslatable)?;
        Ok(ToPeer::Send {
            peer,
            flags: Flags::TO_CLIENT,
        })
    }

    /// Finds the flow of a packet and its holder; draws where SPEC section 4 says so.
    fn place(
        &mut self,
        now: Now,
        key: FlowKey,
        tag: FlowTag,
        head: &mut Head<'_>,
        offload: &Offload,
        packet: &Packet,
    ) -> Result<Placed, DropReason> {
        let Some(id) = self.flows.find_tagged(tag, &key) else {
            return self.place_new(now, key, head, offload, packet);
        };
        if self.holds.contains(id) {
            return self.hold_more(id, head, offload);
        }
        if self.routes.has_draining() && opens(packet) && self.leave_draining(now, id) {
            // The flow is on another holder now, or waits for one.
            return self.place(now, key, tag, head, offload, packet);
        }
        let Some(flow) = self.flows.get(id) else {
            return Err(DropReason::NoRoute);
        };
        let holder = flow
            .holder
            .filter(|&holder| !self.liveness.is_failed(holder));
        let Some(holder) = holder else {
            let flow = *flow;
            return self.place_stranded(now, id, &flow, head, offload, packet);
        };
        let is_idle = now.boot.since(flow.last) >= IDLE_AFTER;
        if !is_idle || self.continues_open(now, id, tag, packet) {
            return Ok(Placed::On(id, holder));
        }
        let flow = *flow;
        self.place_idle(now, id, &flow, holder, head, offload)
    }

    /// Says whether a packet belongs to a connection that is still open.
    fn continues_open(&self, now: Now, flow: FlowId, tag: FlowTag, packet: &Packet) -> bool {
        match packet.transport {
            Transport::Tcp(tcp) if !tcp.flags.contains(TcpFlags::SYN) => {
                WireKey::of_outbound(tag, packet)
                    .is_some_and(|wire| self.connections.is_open(now, &wire.in_flow(flow)))
            }
            Transport::Tcp(_)
            | Transport::Udp(_)
            | Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => false,
        }
    }

    /// A flow's first packet.
    fn place_new(
        &mut self,
        now: Now,
        key: FlowKey,
        head: &mut Head<'_>,
        offload: &Offload,
        packet: &Packet,
    ) -> Result<Placed, DropReason> {
        let (prefix_len, candidates) = match self.eligible(key.destination) {
            Ok(found) => found,
            Err((reason, answer)) => {
                self.refuse(head, packet, answer);
                return Err(reason);
            }
        };
        let Some(drawn) = self.draw(now, &candidates) else {
            self.want_group(now, key.destination);
            self.refuse(head, packet, Unreachable::HostUnreachable);
            return Err(DropReason::NoHolder);
        };
        let reason = Reason::New.among(candidates.len());
        self.make_room(now);
        let id = self
            .flows
            .insert(now.boot, key, prefix_len, Some(drawn), reason);
        self.counters.choose(reason);
        self.note_network(now, id);
        self.start(now, id, drawn, &candidates, head, offload)
    }

    /// The first packet of a flow that was idle for 15 minutes.
    fn place_idle(
        &mut self,
        now: Now,
        id: FlowId,
        flow: &Flow,
        holder: PeerIx,
        head: &mut Head<'_>,
        offload: &Offload,
    ) -> Result<Placed, DropReason> {
        let Ok((prefix_len, candidates)) = self.eligible(flow.key.destination) else {
            return Ok(Placed::On(id, holder));
        };
        let Some(drawn) = self.draw(now, &candidates) else {
            return Ok(Placed::On(id, holder));
        };
        let reason = Reason::Idle.among(candidates.len());
        self.counters.choose(reason);
        self.set_network(now.mono, id, prefix_len);
        if drawn == holder {
            self.flows.set_reason(now.boot, id, reason);
        } else {
            self.repin(now, id, Some(drawn), reason);
        }
        // The packet may wait, and must not be found idle a second time when it comes again.
        self.flows.touch(now.boot, id);
        self.start(now, id, drawn, &candidates, head, offload)
    }

    /// A packet of a flow whose holder left or failed while no other one was there.
    fn place_stranded(
        &mut self,
        now: Now,
        id: FlowId,
        flow: &Flow,
        head: &mut Head<'_>,
        offload: &Offload,
        packet: &Packet,
    ) -> Result<Placed, DropReason> {
        let (prefix_len, candidates) = self
            .eligible(flow.key.destination)
            .unwrap_or_else(|_| (flow.prefix_len, SmallVec::new()));
        let Some(drawn) = self.draw(now, &candidates) else {
            self.want_group(now, flow.key.destination);
            self.answer_reset(now, id, flow, head, packet);
            self.refuse(head, packet, Unreachable::HostUnreachable);
            return Err(DropReason::NoHolder);
        };
        // It keeps the cause for which it lost its holder.
        let reason = flow.reason;
        self.counters.choose(reason);
        self.set_network(now.mono, id, prefix_len);
        self.repin(now, id, Some(drawn), reason);
        self.start(now, id, drawn, &candidates, head, offload)
    }

    /// Lets a newly drawn flow start, or holds its packet when the drawn holder was not heard
    /// from lately.
    fn start(
        &mut self,
        now: Now,
        id: FlowId,
        drawn: PeerIx,
        candidates: &[PeerIx],
        head: &mut Head<'_>,
        offload: &Offload,
    ) -> Result<Placed, DropReason> {
        if self.is_fresh(now, drawn) || !self.hold(now, id, drawn, candidates) {
            return Ok(Placed::On(id, drawn));
        }
        self.hold_more(id, head, offload)
    }

    /// Returns the length of the prefix that leads to a destination, and its group without those that failed for this client.
    pub(super) fn candidates(
        &self,
        destination: IpAddr,
    ) -> Result<(u8, Holders), (DropReason, Unreachable)> {
        match self.routes.lookup(destination) {
            Some(Route::Group(group)) => {
                let answering = group
                    .holders
                    .iter()
                    .copied()
                    .filter(|&holder| self.is_answering(holder))
                    .collect();
                Ok((group.network.prefix_len(), answering))
            }
            Some(Route::Refused(_)) => {
                Err((DropReason::RefusedNetwork, Unreachable::AdminProhibited))
            }
            Some(Route::Local) | None => Err((DropReason::NoRoute, Unreachable::HostUnreachable)),
        }
    }

    /// Says whether a holder has neither left nor failed for this client.
    pub(super) fn is_answering(&self, holder: PeerIx) -> bool {
        !self.liveness.is_failed(holder) && !self.left.contains(&holder)
    }

    /// Draws one of `candidates` by cost.
    pub(super) fn draw(&mut self, now: Now, candidates: &[PeerIx]) -> Option<PeerIx> {
        let mut costs = SmallVec::<[Cost; 8]>::new();
        self.costs.costs(now.mono, candidates, &mut costs);
        choose(&costs, self.random.u64(..)).map(|at| candidates[at])
    }

    /// Notes the packet in the connection table; answers it here when its connection was reset.
    fn note_connection(
        &mut self,
        now: Now,
        flow: FlowId,
        wire: Option<WireKey>,
        head: &mut Head<'_>,
        packet: &Packet,
    ) -> Result<(), DropReason> {
        let Some(wire) = wire else {
            return Ok(());
        };
        let noted = self.connections.note_outbound(
            now,
            wire.in_flow(flow),
            packet.source,
            packet,
            &head.bytes[head.start..],
        );
        match noted {
            Outbound::Pass => Ok(()),
            Outbound::Clash => {
                self.refuse_clash(head, packet);
                Err(DropReason::Clash)
            }
            Outbound::Answer {
                sequence,
                acknowledgment,
            } => {
                self.reset_sender(packet, sequence, acknowledgment);
                Err(DropReason::ResetConnection)
            }
        }
    }

    /// Answers a segment of a connection that was reset when its flow lost its last holder.
    fn answer_reset(
        &mut self,
        now: Now,
        id: FlowId,
        flow: &Flow,
        head: &mut Head<'_>,
        packet: &Packet,
    ) {
        let Transport::Tcp(tcp) = packet.transport else {
            return;
        };
        if tcp.flags.contains(TcpFlags::SYN) {
            return;
        }
        // The reset itself is all that matters: the packet is dropped either way.
        let wire = WireKey::of_outbound(self.flows.tag(&flow.key), packet);
        let _ = self.note_connection(now, id, wire, head, packet);
    }

    fn refuse_clash(&mut self, head: &mut Head<'_>, packet: &Packet) {
        match packet.transport {
            Transport::Tcp(tcp) => {
                let (sequence, acknowledgment) = reset_numbers(&tcp);
                self.reset_sender(packet, sequence, acknowledgment);
            }
            Transport::Udp(_)
            | Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => self.refuse(head, packet, Unreachable::PortUnreachable),
        }
    }

    /// Sends a RST to the host that sent `packet`, as from its destination.
    fn reset_sender(&mut self, packet: &Packet, sequence: u32, acknowledgment: Option<u32>) {
        let Transport::Tcp(tcp) = packet.transport else {
            return;
        };
        let mut reset = Vec::new();
        let from = SocketAddr::new(packet.destination, tcp.destination_port);
        let to = SocketAddr::new(packet.source, tcp.source_port);
        if build_reset(&mut reset, from, to, sequence, acknowledgment).is_ok() {
            self.outputs.push_back(Output::ToHost(reset));
        }
    }

    /// Tells the sender of a packet by ICMP that it goes nowhere.
    fn refuse(&mut self, head: &mut Head<'_>, packet: &Packet, why: Unreachable) {
        // From the address asked for: a kernel drops what seems to come from itself.
        let from = packet.destination;
        let mut error = Vec::new();
        if build_unreachable(&mut error, head.packet(), from, why).is_ok() {
            self.outputs.push_back(Output::ToHost(error));
        }
    }
}

/// Says whether a packet opens a TCP connection.
fn opens(packet: &Packet) -> bool {
    matches!(packet.transport, Transport::Tcp(tcp) if tcp.flags.contains(TcpFlags::SYN))
}

/// Returns the IPv4 destination that an IPv6 packet spells.
fn spelled_by(packet: &Packet) -> Option<Ipv4Addr> {
    match packet.destination {
        IpAddr::V6(destination) => unspell(destination),
        IpAddr::V4(_) => None,
    }
}

fn six_to_four_in_place(
    head: &mut Head<'_>,
    packet: &Packet,
    offload: &mut Offload,
    destination: Ipv4Addr,
) -> Result<(), DropReason> {
    let moved = six_to_four(head.packet(), packet, offload, OWN_HOST, destination)
        .map_err(|_| DropReason::Untranslatable)?;
    head.start += moved;
    head.total -= moved;
    Ok(())
}
