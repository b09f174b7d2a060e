//! The packet way, carried as the daemon carries it: cut, sealed, opened, joined.

use std::time::Duration;

use conflux_core::ids::PeerIx;
use conflux_core::packet::checksum::verify;
use conflux_core::packet::{Cut, Offload, Packet, fragment_ipv4, fragment_small};
use conflux_core::plane::{Head, Output, Path, Received as Taken, ToHost, ToPeer};
use conflux_core::session::MAX_FRAME_OVERHEAD;
use conflux_core::translate::HEADROOM;
use conflux_proto::frame::{Echo, Flags, FrameType, Probe, Received};

use super::packet::{is_ours, packet};
use super::{APART, BEHIND, CONNECTIONS, Core, FLOWS, SHARED, path, peer, routes};
use crate::input::Input;
use crate::samples::MEMBERS;

/// More than any step may want done: a loop is a fault.
const OUTPUTS: usize = 10_000;

/// Times that a deadline may lead to another one of the same moment.
const ROUNDS: usize = 4;

impl Core {
    /// Time passes, in one step or in many as a daemon would sleep.
    pub(super) fn pass(&mut self, input: &mut Input<'_>) {
        let end = self.now + input.span();
        for _ in 0..64 {
            let timers = [self.plane.poll_timeout(), self.membership.poll_timeout()];
            let Some(next) = timers.into_iter().flatten().min() else {
                break;
            };
            if next >= end.mono {
                break;
            }
            self.now = self.now + next.since(self.now.mono);
            self.timers();
        }
        self.now = end;
        self.timers();
    }

    fn timers(&mut self) {
        for _ in 0..ROUNDS {
            self.plane.handle_timeout(self.now);
            self.membership.handle_timeout(self.now.mono);
            self.rests();
            let timers = [self.plane.poll_timeout(), self.membership.poll_timeout()];
            if timers.iter().flatten().all(|next| *next > self.now.mono) {
                return;
            }
        }
        // Whoever sleeps until a deadline that stays in the past never sleeps again.
        panic!("a deadline that stays in the past");
    }

    pub(super) fn host_sends(&mut self, input: &mut Input<'_>) {
        let bytes = packet(input);
        self.carry_out(&bytes, Offload::PLAIN);
    }

    pub(super) fn host_sends_bytes(&mut self, input: &mut Input<'_>) {
        let bytes = input.piece();
        self.carry_out(bytes, Offload::PLAIN);
    }

    fn carry_out(&mut self, packet: &[u8], mut offload: Offload) {
        let mut bytes = [&[0; HEADROOM][..], packet].concat();
        let mut head = Head {
            total: packet.len(),
            bytes: &mut bytes,
            start: HEADROOM,
        };
        match self.plane.from_host(self.now, &mut head, &mut offload) {
            ToPeer::Send { peer, flags } => {
                let start = head.start;
                self.send(peer, flags, offload, &mut bytes[start..]);
            }
            ToPeer::Held | ToPeer::Dropped(_) => {}
        }
    }

    /// Cuts and seals, and has the peer open each frame.
    fn send(&mut self, to: PeerIx, flags: Flags, offload: Offload, packet: &mut [u8]) {
        assert_ne!(to, APART, "data to a peer that may have none");
        let Ok((_, _, limit)) = self.plane.sealer(to) else {
            return;
        };
        let whole = Packet::parse(packet, packet.len()).expect("what is sent is a packet");
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let identification = self.plane.next_fragment_id();
        if let Ok(mut cut) = Cut::new(packet, offload, limit) {
            while let Some(piece) = cut.next() {
                pieces.push(piece.to_vec());
            }
        } else if let Ok(mut cut) = fragment_ipv4(packet, offload.checksum, limit) {
            while let Some(piece) = cut.next() {
                pieces.push(piece.to_vec());
            }
        } else if let Ok(mut cut) = fragment_small(packet, offload.checksum, limit, identification)
        {
            while let Some(piece) = cut.next() {
                pieces.push(piece.to_vec());
            }
        } else {
            self.plane.refuse_too_big(to, flags, packet, limit);
        }
        for piece in pieces {
            assert!(piece.len() <= limit, "{whole:?} in {} bytes", piece.len());
            let Ok((mut sealer, _, _)) = self.plane.sealer(to) else {
                return;
            };
            let mut frame = vec![0; piece.len() + MAX_FRAME_OVERHEAD];
            let sealed = sealer.seal(FrameType::Data, flags, &piece, &mut frame);
            let (bytes, at) = sealed.expect("there is room, and the key is young");
            frame.truncate(bytes);
            self.plane.note_sent(self.now.mono, to, flags, 1, at);
            self.plane.note_largest(self.now.mono, to, piece.len());
            self.reaches(to, &mut frame, Some(&piece));
        }
    }

    /// The peer opens a frame of ours.
    fn reaches(&mut self, to: PeerIx, frame: &mut [u8], data: Option<&[u8]>) {
        let peer = &mut self.peers[to.0 as usize];
        let Ok(opened) = peer.sessions.open(frame) else {
            // The peer's older keys were pushed out; that is how it is.
            return;
        };
        if let Some(data) = data {
            assert_eq!(opened.plaintext, data);
        } else if opened.header.kind == FrameType::Probe {
            peer.probe = Probe::decode(opened.plaintext).expect("probes have ids").id;
        }
    }

    pub(super) fn peer_sends(&mut self, input: &mut Input<'_>) {
        let from = usize::from(input.byte()) % MEMBERS;
        let flags = flags(input.byte());
        let bytes = packet(input);
        self.carry_in(from, FrameType::Data, flags, &bytes);
    }

    pub(super) fn peer_sends_bytes(&mut self, input: &mut Input<'_>) {
        let from = usize::from(input.byte()) % MEMBERS;
        let kind = kind(input.byte());
        let flags = match kind {
            FrameType::Data => flags(input.byte()),
            FrameType::Keepalive | FrameType::Probe | FrameType::Echo => Flags::NONE,
        };
        let bytes = input.piece();
        self.carry_in(from, kind, flags, bytes);
    }

    /// Proof of receipt, right or made up.
    pub(super) fn peer_answers(&mut self, input: &mut Input<'_>) {
        let from = usize::from(input.byte()) % MEMBERS;
        let is_true = !input.flag();
        let received = if is_true {
            let told = self.peers[from].sessions.received(PeerIx(0));
            told.map_or_else(Received::default, |told| Received {
                receiver: told.index,
                highest: told.counter,
            })
        } else {
            Received {
                receiver: input.word(),
                highest: input.long(),
            }
        };
        let id = if is_true {
            self.peers[from].probe
        } else {
            input.long()
        };
        if id == 0 {
            self.carry_in(from, FrameType::Keepalive, Flags::NONE, &received.encode());
        } else {
            let echo = Echo { id, received };
            self.carry_in(from, FrameType::Echo, Flags::NONE, &echo.encode());
        }
    }

    /// The last frame of a peer once more, or a bit of it changed, or from elsewhere.
    pub(super) fn peer_repeats(&mut self, input: &mut Input<'_>) {
        let from = usize::from(input.byte()) % MEMBERS;
        let mut frame = self.peers[from].last.clone();
        let at = usize::from(input.short());
        if let Some(byte) = frame.get_mut(at) {
            *byte ^= 1 << (input.byte() & 7);
        }
        let taken = self.plane.receive(self.now, path(from, 1), &mut frame);
        assert!(matches!(taken, Taken::Dropped(_)), "{taken:?}");
    }

    pub(super) fn stranger_sends(&mut self, input: &mut Input<'_>) {
        let from = Path {
            socket: 0,
            remote: ([203, 0, 113, 1], 9).into(),
            local: None,
        };
        let mut bytes = input.piece().to_vec();
        let taken = self.plane.receive(self.now, from, &mut bytes);
        assert!(matches!(taken, Taken::Dropped(_)), "{taken:?}");
    }

    fn carry_in(&mut self, from: usize, kind: FrameType, flags: Flags, plaintext: &[u8]) {
        let mut frame = vec![0; plaintext.len() + MAX_FRAME_OVERHEAD];
        let Some(mut sealer) = self.peers[from].sessions.sealer(PeerIx(0)) else {
            return;
        };
        let sealed = sealer.seal(kind, flags, plaintext, &mut frame);
        let (bytes, _) = sealed.expect("there is room, and the key is young");
        frame.truncate(bytes);
        self.peers[from].last.clone_from(&frame);
        let Taken::Data {
            peer,
            flags,
            packet,
        } = self.plane.receive(self.now, path(from, 0), &mut frame)
        else {
            return;
        };
        let packet = packet.to_vec();
        self.deliver(peer, flags, &packet);
    }

    /// What reaches the host is for it or for a host behind it, and not from whom may not send.
    fn deliver(&mut self, from: PeerIx, flags: Flags, packet: &[u8]) {
        let Ok(parsed) = Packet::parse(packet, packet.len()) else {
            return;
        };
        let mut offload = Offload::PLAIN;
        if flags.contains(Flags::PARTIAL_CHECKSUM) {
            offload.checksum = conflux_core::packet::Checksum::Partial.for_packet(&parsed);
        }
        let mut bytes = [&[0; HEADROOM][..], packet].concat();
        let mut head = Head {
            total: packet.len(),
            bytes: &mut bytes,
            start: HEADROOM,
        };
        let verdict = self
            .plane
            .from_peer(self.now, from, flags.bits(), &mut head, &mut offload);
        if verdict == ToHost::Write {
            let written = head.packet();
            let read = Packet::parse(written, written.len()).expect("the host gets packets");
            assert_ne!(from, APART, "data of a peer that may send none");
            assert!(is_ours(read.destination), "{read:?} for the host");
        }
    }

    pub(super) fn peers_change(&mut self, input: &mut Input<'_>) {
        let number = usize::from(input.byte()) % MEMBERS;
        let (mono, who) = (self.now.mono, peer(number));
        match input.byte() % 8 {
            0 => self.install(number),
            1 => self.plane.handle_left(self.now, who),
            2 => self.plane.forget(who),
            3 => self
                .plane
                .set_paths(mono, who, &[path(number, input.byte() & 1)]),
            4 => {
                self.drains = !self.drains;
                self.plane.set_routes(self.now, routes(self.drains));
                let _ = self.plane.release_draining(self.now);
            }
            5 => {
                let openings: &[&str] =
                    input.pick(&[&[][..], &["tcp:80"], &["udp:53", "tcp:1-99"]]);
                let openings = openings.iter().map(|text| text.parse().expect("it is one"));
                self.plane.set_expose(openings.collect());
            }
            6 => self
                .plane
                .set_rtt(mono, who, input.span().min(Duration::from_secs(5))),
            _ => {
                let bytes = usize::from(input.short());
                self.plane.handle_refused(mono, path(number, 0), bytes);
            }
        }
    }

    pub(super) fn is_looked_at(&mut self, input: &mut Input<'_>) {
        let flows = self.plane.view_flows(self.now, FLOWS);
        assert!(flows.len() <= FLOWS);
        for number in 0..MEMBERS {
            let _ = self.plane.view_peer(self.now.mono, peer(number));
        }
        let destination = input.pick(&[SHARED, BEHIND, super::OWN]);
        let _ = self.plane.explain(self.now, destination.into(), None);
        assert!(self.plane.answering_groups() <= 1);
    }

    /// Does what is wanted until nothing is.
    pub(super) fn rests(&mut self) {
        for _ in 0..OUTPUTS {
            let Some(output) = self.plane.poll_output(self.now) else {
                self.store_rests();
                self.stays_within_limits();
                return;
            };
            match output {
                Output::ToHost(packet) => {
                    let read = Packet::parse(&packet, packet.len()).expect("packets of ours");
                    assert!(verify(&packet, &read), "{read:?} to the host");
                }
                Output::ToPeer {
                    peer,
                    flags,
                    mut packet,
                } => self.send(peer, flags, Offload::PLAIN, &mut packet),
                Output::FromHost { packet, offload } => self.carry_out(&packet, offload),
                Output::FromPeer {
                    peer,
                    flags,
                    packet,
                } => self.deliver(peer, flags, &packet),
                Output::Datagram { path: to, frame } => {
                    let mut frame = frame.to_vec();
                    let whose = (0..MEMBERS)
                        .find(|number| [path(*number, 0), path(*number, 1)].contains(&to));
                    let whose = whose.expect("frames go where peers were");
                    self.reaches(peer(whose), &mut frame, None);
                }
                Output::Event(_) => {}
            }
        }
        panic!("never at rest");
    }

    fn stays_within_limits(&self) {
        let sizes = self.plane.sizes();
        assert!(sizes.flows <= FLOWS && sizes.connections <= CONNECTIONS);
    }
}

fn flags(byte: u8) -> Flags {
    let mut flags = Flags::NONE;
    if byte & 1 != 0 {
        flags = flags.with(Flags::TO_CLIENT);
    }
    if byte & 2 != 0 {
        flags = flags.with(Flags::PARTIAL_CHECKSUM);
    }
    flags
}

const fn kind(byte: u8) -> FrameType {
    match byte & 3 {
        0 => FrameType::Data,
        1 => FrameType::Keepalive,
        2 => FrameType::Probe,
        _ => FrameType::Echo,
    }
}
