//! The loop: sleep until something comes or a deadline is due; commands, deadlines, packets of
//! the interface, frames of the sockets, and after each what the state machine wants done.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use conflux_core::ids::Relayed;
use conflux_core::packet::{BadOffload, Offload, Packet, checksum};
use conflux_core::paths::Way;
use conflux_core::plane::{Carried, DropReason, Head, Output, Path, Plane, Received, ToPeer};
use conflux_core::time::{Mono, Now};
use conflux_proto::frame::HEADER_BYTES;
use conflux_proto::relay::{OUTER_BYTES, is_outer};
use tokio::sync::mpsc;
use tracing::{error, trace, warn};

use super::deliver::Deliver;
use super::forward::Forward;
use super::send::{Link, Outgoing};
use super::spin::Spin;
use super::transmit::{Lost, Transmit};
use super::{Command, DataParts, Notice};
use crate::clock;
use crate::poll::{Poller, Ready, Waker};
use crate::quic::{Carries, StraySender};
use crate::tun::{self, PLAIN_VIRTIO, ReadBuffer, Tun, WriteError};
use crate::udp::{DataSocket, MAX_RUNS, MAX_SEGMENTS, RecvBatch, is_stray};

/// Packets read from the interface before sockets get their turn, and bytes: as many as one run of
/// frames takes when they are small, 16 when they are super-packets. More adds delay for the other
/// direction only.
const READS_PER_TURN: usize = MAX_SEGMENTS;
const BYTES_PER_TURN: usize = 16 * 65_536;
/// A sleep shorter than this was none: what came had been there before.
const NO_SLEEP: Duration = Duration::from_micros(2);
/// Effects carried out in one go; a state machine that never ends would be a fault of ours.
const OUTPUTS_PER_TURN: usize = 65_536;

pub(super) struct Thread {
    tun: Tun,
    sockets: Vec<DataSocket>,
    plane: Plane,
    strays: StraySender,
    carries: Carries,
    inbox: Receiver<Command>,
    waker: Waker,
    poller: Poller,
    spin: Spin,
    notices: mpsc::Sender<Notice>,
    lost_events: Arc<AtomicU64>,
    read: ReadBuffer,
    batch: RecvBatch,
    transmit: Transmit,
    forward: Forward,
    deliver: Deliver,
    /// Packets come faster than one by one: asking for more than one is worth a system call that
    /// may bring nothing.
    host_is_busy: bool,
    peers_are_busy: bool,
}

/// Whether the thread goes on.
#[derive(PartialEq, Eq)]
enum Go {
    On,
    End,
}

impl Thread {
    pub(super) fn new(
        parts: DataParts,
        inbox: Receiver<Command>,
        waker: Waker,
        notices: mpsc::Sender<Notice>,
        lost_events: Arc<AtomicU64>,
    ) -> std::io::Result<Self> {
        let mut sources = vec![waker.as_fd(), parts.tun.as_fd()];
        sources.extend(parts.sockets.iter().map(AsFd::as_fd));
        let poller = Poller::new(&sources)?;
        let deliver = Deliver::new(parts.tun.offloads().udp);
        Ok(Self {
            tun: parts.tun,
            sockets: parts.sockets,
            plane: parts.plane,
            strays: parts.strays,
            carries: parts.carries,
            inbox,
            waker,
            poller,
            spin: Spin::new(parts.spin),
            notices,
            lost_events,
            read: ReadBuffer::new(),
            batch: RecvBatch::new(),
            transmit: Transmit::new(),
            forward: Forward::default(),
            deliver,
            host_is_busy: false,
            peers_are_busy: false,
        })
    }

    /// Runs to the end; returns what another thread may go on with.
    pub(super) fn run(mut self) -> Plane {
        while self.turn() == Go::On {}
        self.plane
    }

    fn turn(&mut self) -> Go {
        let slept_from = clock::mono();
        let ready = match self.wait(slept_from) {
            Ok(ready) => ready,
            Err(error) => {
                error!(%error, "the data thread cannot wait for packets; it ends");
                return Go::End;
            }
        };
        let now = clock::now();
        if !ready.is_empty() {
            self.spin.note(now.mono.since(slept_from));
        }
        if now.mono.since(slept_from) < NO_SLEEP {
            self.host_is_busy |= ready.has(1);
            self.peers_are_busy |= (0..self.sockets.len()).any(|at| ready.has(2 + at));
        }
        if ready.has(0) && self.take_commands(now) == Go::End {
            return Go::End;
        }
        if self.plane.poll_timeout().is_some_and(|at| now.mono >= at) {
            self.plane.handle_timeout(now);
        }
        if ready.has(1) && self.take_host_packets(now) == Go::End {
            return Go::End;
        }
        for at in 0..self.sockets.len() {
            if ready.has(2 + at) && self.take_frames(now, at) == Go::End {
                return Go::End;
            }
        }
        self.carry_out(now)
    }

    fn wait(&self, from: Mono) -> std::io::Result<Ready> {
        if let Some(end) = self.spin.until(from) {
            let end = self.plane.poll_timeout().map_or(end, |due| due.min(end));
            while clock::mono() < end {
                let ready = self.poller.wait(Some(Duration::ZERO))?;
                if !ready.is_empty() {
                    return Ok(ready);
                }
            }
        }
        self.sleep(from)
    }

    fn sleep(&self, now: Mono) -> std::io::Result<Ready> {
        let timeout = self.plane.poll_timeout().map(|at| {
            if at > now {
                at.since(now)
            } else {
                Duration::ZERO
            }
        });
        self.poller.wait(timeout)
    }

    fn take_commands(&mut self, now: Now) -> Go {
        self.waker.clear();
        loop {
            match self.inbox.try_recv() {
                Ok(Command::Run(job)) => job(&mut self.plane, now),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return Go::End,
                Err(TryRecvError::Empty) => break,
            }
        }
        while let Some((to, mut datagram)) = self.carries.next() {
            match self.plane.wrap(to, &mut datagram) {
                Ok(path) => self.link(now).send_frame(path, &datagram),
                Err(reason) => self.plane.note_drop(reason),
            }
        }
        Go::On
    }

    fn take_host_packets(&mut self, now: Now) -> Go {
        let most = if self.host_is_busy { READS_PER_TURN } else { 1 };
        let mut reads = 0;
        let mut bytes = 0;
        while reads < most && bytes < BYTES_PER_TURN {
            match self.tun.read(&mut self.read) {
                Ok(true) => {
                    reads += 1;
                    bytes += self.read.packet().len();
                    self.take_host_packet(now);
                }
                Ok(false) => break,
                Err(error) if tun::is_gone(&error) => {
                    warn!(%error, "the interface is gone");
                    return Go::End;
                }
                Err(error) => {
                    trace!(%error, "the interface gave no packet");
                    break;
                }
            }
        }
        self.host_is_busy = reads > 1;
        self.link(now).flush();
        Go::On
    }

    /// Passes on the packet in the read buffer.
    fn take_host_packet(&mut self, now: Now) {
        let virtio = *self.read.virtio();
        let (bytes, start) = self.read.with_headroom();
        let total = bytes.len() - start;
        let Ok(packet) = Packet::parse(&bytes[start..], total) else {
            self.plane.note_drop(DropReason::Malformed);
            return;
        };
        let mut offload = match Offload::from_virtio(&virtio, &packet) {
            Ok(offload) => offload,
            Err(BadOffload::ForeignChecksum { start: at, offset }) => {
                checksum::complete_at(&mut bytes[start..], at, offset);
                Offload::PLAIN
            }
            Err(_) => {
                self.plane.note_drop(DropReason::Malformed);
                return;
            }
        };
        let mut head = Head {
            bytes,
            start,
            total,
        };
        match self.plane.from_host(now, &mut head, &mut offload) {
            ToPeer::Send { peer, flags } => {
                let start = head.start;
                Link {
                    plane: &mut self.plane,
                    transmit: &mut self.transmit,
                    sockets: &mut self.sockets,
                    now,
                }
                .send(
                    Outgoing {
                        peer,
                        flags,
                        offload,
                    },
                    &mut head.bytes[start..],
                );
            }
            ToPeer::Held => {}
            ToPeer::Dropped(reason) => trace!(reason = reason.as_str(), "packet dropped"),
        }
    }

    fn take_frames(&mut self, now: Now, at: usize) -> Go {
        let most = if self.peers_are_busy { MAX_RUNS } else { 1 };
        match self.sockets[at].recv_batch(&mut self.batch, most) {
            Ok(0) => {
                self.peers_are_busy = false;
                return Go::On;
            }
            Ok(runs) => self.peers_are_busy = runs > 1,
            Err(error) => {
                trace!(%error, "the socket gave no datagrams");
                return Go::On;
            }
        }
        let socket = u8::try_from(at).expect("there are at most a few sockets");
        let (runs, memory) = self.batch.parts();
        for run in runs {
            let from = Path {
                socket,
                remote: run.source,
                local: run.local,
            };
            if Relayed::from_address(&run.source).is_some() {
                // No network has such addresses: it is made to look like a relay's.
                continue;
            }
            for (start, bytes) in run.datagrams() {
                let datagram = &mut memory[start..start + bytes];
                let (from, start, bytes) = if datagram.first().copied().is_some_and(is_outer) {
                    match self.plane.receive_outer(now, from, datagram) {
                        Carried::Inside(path) => (path, start + OUTER_BYTES, bytes - OUTER_BYTES),
                        Carried::Onward(path) => {
                            let place = (start, bytes);
                            let sockets = &mut self.sockets;
                            let lost = self.forward.push(sockets, memory, path, place);
                            note_lost(
                                &mut self.plane,
                                &mut self.transmit,
                                &mut self.sockets,
                                now,
                                lost,
                            );
                            continue;
                        }
                        Carried::Dropped(reason) => {
                            trace!(reason = reason.as_str(), "relayed datagram dropped");
                            continue;
                        }
                    }
                } else {
                    (from, start, bytes)
                };
                let datagram = &mut memory[start..start + bytes];
                if is_stray(datagram) {
                    let way = Way {
                        remote: from.remote,
                        local: from.local,
                    };
                    self.strays.give(way, datagram);
                    continue;
                }
                let (peer, flags, place) = match self.plane.receive(now, from, datagram) {
                    Received::Data {
                        peer,
                        flags,
                        packet,
                    } => (
                        peer,
                        flags,
                        start + HEADER_BYTES..start + HEADER_BYTES + packet.len(),
                    ),
                    Received::Handled => continue,
                    Received::Dropped(reason) => {
                        trace!(reason = reason.as_str(), "frame dropped");
                        continue;
                    }
                };
                let packet = &memory[place.clone()];
                if self
                    .deliver
                    .push(&mut self.plane, peer, flags, place.start, packet)
                {
                    continue;
                }
                if !self
                    .deliver
                    .drain(&mut self.plane, &mut self.tun, now, memory)
                {
                    return Go::End;
                }
                let packet = &memory[place.clone()];
                self.deliver
                    .push(&mut self.plane, peer, flags, place.start, packet);
            }
        }
        let lost = self.forward.flush(&mut self.sockets, memory);
        note_lost(
            &mut self.plane,
            &mut self.transmit,
            &mut self.sockets,
            now,
            lost,
        );
        if self
            .deliver
            .drain(&mut self.plane, &mut self.tun, now, memory)
        {
            Go::On
        } else {
            Go::End
        }
    }

    /// Does what the state machine wants done.
    fn carry_out(&mut self, now: Now) -> Go {
        for _ in 0..OUTPUTS_PER_TURN {
            let Some(output) = self.plane.poll_output(now) else {
                break;
            };
            match output {
                Output::ToHost(packet) => {
                    if let Err(error) = self.tun.write(&PLAIN_VIRTIO, &packet, []) {
                        if let WriteError::Gone = error {
                            return Go::End;
                        }
                        self.plane.note_drop(DropReason::InterfaceFailed);
                    }
                }
                Output::ToPeer {
                    peer,
                    flags,
                    mut packet,
                } => Link {
                    plane: &mut self.plane,
                    transmit: &mut self.transmit,
                    sockets: &mut self.sockets,
                    now,
                }
                .send(
                    Outgoing {
                        peer,
                        flags,
                        offload: Offload::PLAIN,
                    },
                    &mut packet,
                ),
                Output::FromHost { packet, offload } => self.again(now, &packet, offload),
                Output::FromPeer {
                    peer,
                    flags,
                    packet,
                } => {
                    self.deliver.push(&mut self.plane, peer, flags, 0, &packet);
                    if !self
                        .deliver
                        .drain(&mut self.plane, &mut self.tun, now, &packet)
                    {
                        return Go::End;
                    }
                }
                Output::Datagram { path, frame } => {
                    self.link(now).send_frame(path, &frame);
                }
                Output::Event(event) => self.tell(Notice::Plane(event)),
            }
        }
        self.link(now).flush();
        for at in 0..self.sockets.len() {
            if let Some(to) = self.sockets[at].take_first_one_by_one() {
                self.tell(Notice::OneByOne(to));
            }
        }
        Go::On
    }

    fn tell(&self, notice: Notice) {
        if self.notices.try_send(notice).is_err() {
            self.lost_events.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Passes a packet on that had waited for a holder.
    fn again(&mut self, now: Now, packet: &[u8], mut offload: Offload) {
        let mut bytes = vec![0; tun::HEADROOM];
        bytes.extend_from_slice(packet);
        let mut head = Head {
            bytes: &mut bytes,
            start: tun::HEADROOM,
            total: packet.len(),
        };
        if let ToPeer::Send { peer, flags } = self.plane.from_host(now, &mut head, &mut offload) {
            let start = head.start;
            Link {
                plane: &mut self.plane,
                transmit: &mut self.transmit,
                sockets: &mut self.sockets,
                now,
            }
            .send(
                Outgoing {
                    peer,
                    flags,
                    offload,
                },
                &mut head.bytes[start..],
            );
        }
    }

    fn link(&mut self, now: Now) -> Link<'_> {
        Link {
            plane: &mut self.plane,
            transmit: &mut self.transmit,
            sockets: &mut self.sockets,
            now,
        }
    }
}

/// Tells the state machine what the kernel did not take, while a batch is lent out.
fn note_lost(
    plane: &mut Plane,
    transmit: &mut Transmit,
    sockets: &mut [DataSocket],
    now: Now,
    lost: Lost,
) {
    Link {
        plane,
        transmit,
        sockets,
        now,
    }
    .note_lost(lost);
}
