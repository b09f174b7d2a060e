//! Packets and frames of the simulated world: from an application through its anchor's packet way to
//! the wire, and back. Each step tells the reference what it is to know.

use std::net::{IpAddr, SocketAddr};

use conflux_core::flows::FlowKey;
use conflux_core::ids::{Host, PeerIx};
use conflux_core::packet::{Checksum, Offload};
use conflux_core::plane::{Head, Path, Received, ToHost, ToPeer};
use conflux_core::time::Mono;
use conflux_proto::frame::{Flags, FrameType};

use crate::machine::Seen;
use crate::packets::read;
use crate::world::{Happening, PROBE, World};

const HEADROOM: usize = 64;

/// A sealed frame on its way.
pub(crate) struct Frame {
    from: usize,
    source: SocketAddr,
    pub(crate) to: SocketAddr,
    bytes: Vec<u8>,
    /// When it was sent, by its sender's clock.
    sent: Mono,
    /// What it proves to its receiver: receipt of all that was sent until then.
    proves: Option<Mono>,
}

impl World {
    /// Has the host of `at` send a packet.
    pub(crate) fn emit(&mut self, at: usize, packet: &[u8]) {
        let mut bytes = vec![0; HEADROOM];
        bytes.extend_from_slice(packet);
        let mut head = Head {
            bytes: &mut bytes,
            start: HEADROOM,
            total: packet.len(),
        };
        let mut offload = Offload::PLAIN;
        self.note_lateness(at);
        let anchor = &mut self.anchors[at];
        let now = anchor.now(self.at);
        let verdict = anchor.plane.from_host(now, &mut head, &mut offload);
        self.trace(2, at, || {
            let packet = read(packet);
            format!(
                "{} -> {}: {verdict:?}, {:?}",
                packet.source, packet.destination, packet.transport
            )
        });
        self.check(at);
        let boot = self.at;
        let key = self.flow_key(at, packet);
        match (verdict, key) {
            (ToPeer::Send { .. }, Some(key)) => self.models[at].flow_sent(boot, key),
            (ToPeer::Held, Some(key)) => self.models[at].flow_held(boot, key),
            (ToPeer::Send { .. } | ToPeer::Held, None) => {
                self.models[at].answered_client(boot, read(packet).destination);
            }
            (ToPeer::Dropped(_), _) => {}
        }
        if let ToPeer::Send { peer, flags } = verdict {
            let start = head.start;
            self.seal(at, peer, flags, &bytes[start..]);
        }
    }

    pub(crate) fn arrive(&mut self, at: usize, frame: Frame) {
        let Frame {
            from,
            source,
            to,
            mut bytes,
            sent,
            proves,
        } = frame;
        let now_at = self.at;
        let anchor = &mut self.anchors[at];
        let is_filtered = match &mut anchor.nat {
            Some(nat) => !nat.admits(now_at, source, to),
            None => false,
        };
        if self.dead.contains(&to) || is_filtered {
            return;
        }
        self.note_lateness(at);
        let anchor = &mut self.anchors[at];
        let now = anchor.now(now_at);
        let kind = bytes[0];
        let path = Path {
            socket: 0,
            remote: source,
            local: anchor.nat.is_none().then_some(to.ip()),
        };
        self.counts.frames += 1;
        let received = anchor.plane.receive(now, path, &mut bytes);
        if let Received::Dropped(reason) = received {
            self.trace(2, at, || {
                format!("frame {kind:02x} of {from} dropped: {reason:?}")
            });
            self.settle(at);
            return;
        }
        self.trace(2, at, || format!("frame {kind:02x} of {from}"));
        match received {
            Received::Data {
                peer,
                flags,
                packet,
            } => {
                let packet = packet.to_vec();
                let model = &mut self.models[at];
                model.heard(now.mono);
                if !flags.contains(Flags::TO_CLIENT) {
                    model.data_came(from, sent);
                }
                self.bring(at, peer, flags, &packet);
            }
            Received::Handled => {
                let model = &mut self.models[at];
                model.heard(now.mono);
                if kind == PROBE {
                    self.echoing = Some(sent).max(model.received(from));
                } else if let Some(proves) = proves {
                    model.proof_came(now.mono, from, proves);
                }
            }
            Received::Dropped(_) => {}
        }
        self.settle(at);
        self.echoing = None;
    }

    pub(crate) fn bring(&mut self, at: usize, peer: PeerIx, flags: Flags, packet: &[u8]) {
        let mut bytes = vec![0; HEADROOM];
        bytes.extend_from_slice(packet);
        let mut head = Head {
            bytes: &mut bytes,
            start: HEADROOM,
            total: packet.len(),
        };
        let mut offload = Offload::PLAIN;
        if flags.contains(Flags::PARTIAL_CHECKSUM) {
            offload.checksum = Checksum::Partial;
        }
        let anchor = &mut self.anchors[at];
        let now = anchor.now(self.at);
        let verdict = anchor
            .plane
            .from_peer(now, peer, flags.bits(), &mut head, &mut offload);
        if verdict == ToHost::Write {
            let packet = head.packet().to_vec();
            self.write(at, &packet);
        }
    }

    /// Writes to the interface of `at`, whose host may answer.
    pub(crate) fn write(&mut self, at: usize, packet: &[u8]) {
        let (seen, answers) = self.anchors[at].machine.take(self.at, packet);
        let boot = self.at;
        match seen {
            Seen::Request { client, who } => self.models[at].served(boot, client, who),
            Seen::Answer { host, far, server } => {
                self.counts.answers += 1;
                let key = self.key_of(at, host, far);
                // What is written now belongs to the flow as it is after all that came before.
                self.check(at);
                self.models[at].flow_answered(boot, key, usize::from(server));
            }
            Seen::Reset => self.counts.resets += 1,
            Seen::Other => {}
        }
        for answer in answers {
            self.emit(at, &answer);
        }
    }

    pub(crate) fn seal(&mut self, at: usize, to: PeerIx, flags: Flags, packet: &[u8]) {
        let anchor = &mut self.anchors[at];
        let now = anchor.now(self.at);
        let mut frame = vec![0; packet.len() + 64];
        anchor.plane.note_largest(now.mono, to, packet.len());
        let sealed = anchor.plane.sealer(to).map(|(mut sealer, path, _)| {
            let sealed = sealer.seal(FrameType::Data, flags, packet, &mut frame);
            let (bytes, highest) = sealed.expect("there is room");
            (path, bytes, highest)
        });
        match sealed {
            Ok((path, bytes, highest)) => {
                anchor.plane.note_sent(now.mono, to, flags, 1, highest);
                frame.truncate(bytes);
                if !flags.contains(Flags::TO_CLIENT) {
                    self.models[at].data_sent(now.mono, to.0 as usize);
                }
                self.fly(at, path, frame, None);
            }
            Err(reason) => anchor.plane.note_drop(reason),
        }
    }

    pub(crate) fn fly(&mut self, from: usize, path: Path, bytes: Vec<u8>, proves: Option<Mono>) {
        let now = self.at;
        let to = path.remote;
        let Some(target) = self.site_of(to) else {
            self.trace(2, from, || {
                format!("frame {:02x} to nobody at {to}", bytes[0])
            });
            return;
        };
        let anchor = &mut self.anchors[from];
        let sent = anchor.now(now).mono;
        let source = match &mut anchor.nat {
            Some(nat) => nat.send(now, to),
            None => anchor.source(path.local),
        };
        let way = self.way(from, target);
        let (is_lost, delay) = (way.loses(now), way.delay);
        self.trace(2, from, || {
            let fate = if is_lost { "lost" } else { "sent" };
            format!("frame {:02x} to {target} {fate}", bytes[0])
        });
        if is_lost {
            return;
        }
        let frame = Frame {
            from,
            source,
            to,
            bytes,
            sent,
            proves,
        };
        self.later(delay, Happening::Frame(frame));
    }

    fn flow_key(&self, at: usize, packet: &[u8]) -> Option<FlowKey> {
        let packet = read(packet);
        let IpAddr::V4(destination) = packet.destination else {
            return None;
        };
        if self.anchors[at].spec.client_range.contains(&destination) {
            return None;
        }
        Some(self.key_of(at, packet.source, packet.destination))
    }

    fn key_of(&self, at: usize, host: IpAddr, destination: IpAddr) -> FlowKey {
        let is_behind = self.anchors[at]
            .spec
            .subnet
            .is_some_and(|subnet| subnet.contains(&host));
        let host = if is_behind {
            Host::Behind(host)
        } else {
            Host::Own
        };
        FlowKey { host, destination }
    }
}
