//! The client's end of a TCP connection: what its kernel knows of it, and believes.

use std::net::SocketAddr;

use super::host::{ACK, SYN, parse, tcp_packet};
use super::realm::{Realm, ms};
use crate::packet::{Packet, Tcp, TcpFlags, Transport};
use crate::plane::ToPeer;
use crate::time::Mono;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Syn,
    Open,
    /// When a reset came whose number the kernel believes.
    Reset(Mono),
}

/// One connection of an application.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) at: usize,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) sequence: u32,
    pub(super) expected: u32,
    pub(super) life: Life,
    /// Who sent the last payload.
    pub(super) answered_by: Option<u8>,
    /// Resets with a number that is not believed.
    pub(super) wrong_resets: u32,
}

impl Connection {
    /// Sends a SYN.
    pub(super) fn begin(
        realm: &mut Realm,
        at: usize,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> Self {
        let connection = Self {
            at,
            source,
            destination,
            sequence: 1_000_000,
            expected: 0,
            life: Life::Syn,
            answered_by: None,
            wrong_resets: 0,
        };
        realm.send(at, &connection.segment(SYN, &[]));
        connection
    }

    /// Opens a connection and waits until it is.
    pub(super) fn open(
        realm: &mut Realm,
        at: usize,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> Self {
        let mut connection = Self::begin(realm, at, source, destination);
        realm.pass(ms(400));
        connection.take(realm);
        assert_eq!(connection.life, Life::Open, "{connection:?}");
        connection
    }

    /// Sends a request and returns who answered.
    pub(super) fn ask(&mut self, realm: &mut Realm) -> Option<u8> {
        self.answered_by = None;
        self.send(realm, b"request");
        realm.pass(ms(100));
        self.take(realm);
        self.answered_by
    }

    pub(super) fn send(&mut self, realm: &mut Realm, payload: &[u8]) -> ToPeer {
        let verdict = realm.send(self.at, &self.segment(ACK, payload));
        self.sequence = self.sequence.wrapping_add(payload.len() as u32);
        verdict
    }

    /// Takes the segments of this connection out of what was written to the interface.
    pub(super) fn take(&mut self, realm: &mut Realm) {
        let inbox = std::mem::take(&mut realm.nodes[self.at].inbox);
        for (time, bytes) in inbox {
            let packet = parse(&bytes);
            match self.own(&packet) {
                Some(tcp) => {
                    self.take_segment(realm, time, &bytes[packet.all_header_bytes()..], tcp)
                }
                None => realm.nodes[self.at].inbox.push((time, bytes)),
            }
        }
    }

    pub(super) fn is_reset(&self) -> bool {
        matches!(self.life, Life::Reset(_))
    }

    fn own(&self, packet: &Packet) -> Option<Tcp> {
        let Transport::Tcp(tcp) = packet.transport else {
            return None;
        };
        let is_ours = packet.source == self.destination.ip()
            && packet.destination == self.source.ip()
            && tcp.source_port == self.destination.port()
            && tcp.destination_port == self.source.port();
        is_ours.then_some(tcp)
    }

    fn take_segment(&mut self, realm: &mut Realm, time: Mono, payload: &[u8], tcp: Tcp) {
        if tcp.flags.contains(TcpFlags::RST) {
            let is_believed = match self.life {
                Life::Syn => {
                    tcp.flags.contains(TcpFlags::ACK)
                        && tcp.acknowledgment == self.sequence.wrapping_add(1)
                }
                Life::Open => tcp.sequence == self.expected,
                Life::Reset(_) => return,
            };
            if is_believed {
                self.life = Life::Reset(time);
            } else {
                self.wrong_resets += 1;
            }
            return;
        }
        match self.life {
            Life::Syn if tcp.flags.contains(TcpFlags::SYN) => {
                self.sequence = self.sequence.wrapping_add(1);
                self.expected = tcp.sequence.wrapping_add(1);
                self.life = Life::Open;
                realm.send(self.at, &self.segment(ACK, &[]));
            }
            Life::Open if tcp.sequence == self.expected => {
                self.expected = self.expected.wrapping_add(payload.len() as u32);
                if let Some(name) = payload.first() {
                    self.answered_by = Some(*name);
                    realm.send(self.at, &self.segment(ACK, &[]));
                }
            }
            Life::Syn | Life::Open | Life::Reset(_) => {}
        }
    }

    fn segment(&self, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (sequence, expected) = (self.sequence, self.expected);
        tcp_packet(
            self.source,
            self.destination,
            sequence,
            expected,
            flags,
            payload,
        )
    }
}
