//! Relayed paths on the packet way: outer headers put in front and taken off, and datagrams that
//! this anchor carries for others. Whom it carries for, and who carries for it, is the control
//! loop's to say; it brings the legs.

use std::net::SocketAddr;

use conflux_proto::frame::{Flags, FrameType};
use conflux_proto::relay::OUTER_BYTES;

use super::{DropReason, Path, Plane};
use crate::ids::{PeerIx, Relayed};
use crate::relay::{Leg, LegSealer, NotCarried, Passed};
use crate::session::{MAX_FRAME_OVERHEAD, Sealer, SentAt};
use crate::time::{Mono, Now};

/// What a datagram with an outer header was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carried {
    /// What is behind the header came by this path: QUIC's or a frame.
    Inside(Path),
    /// Its header has been written anew: send all of it by this path.
    Onward(Path),
    /// It goes no further.
    Dropped(DropReason),
}

impl Path {
    /// The number of no socket: the path is by a relay.
    const RELAYED: u8 = u8::MAX;

    /// Returns the path that stands for a way by a relay.
    pub fn relayed(way: Relayed) -> Self {
        Self {
            socket: Self::RELAYED,
            remote: way.address(),
            local: None,
        }
    }

    /// Says whether a relay carries what takes this path.
    pub const fn is_relayed(&self) -> bool {
        self.socket == Self::RELAYED
    }

    /// Returns the relay and the far end of a path by a relay.
    pub fn way(&self) -> Option<Relayed> {
        self.is_relayed()
            .then(|| Relayed::from_address(&self.remote))
            .flatten()
    }
}

/// Seals frames for one peer, behind an outer header where a relay carries them.
#[derive(Debug)]
pub struct Sealing<'a> {
    frames: Sealer<'a>,
    leg: Option<LegSealer<'a>>,
}

impl Sealing<'_> {
    /// Returns how many bytes are added to a packet.
    pub const fn overhead_bytes(&self) -> usize {
        match self.leg {
            Some(_) => OUTER_BYTES + MAX_FRAME_OVERHEAD,
            None => MAX_FRAME_OVERHEAD,
        }
    }

    /// Seals one frame into `out`; returns its bytes with all headers and its position, `None` when
    /// `out` is too small or the key is used up.
    pub fn seal(
        &mut self,
        kind: FrameType,
        flags: Flags,
        plaintext: &[u8],
        out: &mut [u8],
    ) -> Option<(usize, SentAt)> {
        let Some(leg) = &mut self.leg else {
            return self.frames.seal(kind, flags, plaintext, out);
        };
        let inside = out.get_mut(OUTER_BYTES..)?;
        let (bytes, at) = self.frames.seal(kind, flags, plaintext, inside)?;
        let total = OUTER_BYTES + bytes;
        leg.seal(&mut out[..total]).then_some((total, at))
    }
}

impl Plane {
    /// Takes a leg of a lease; see [`Links::install`](crate::relay::Links::install).
    pub fn install_leg(&mut self, leg: &Leg) -> bool {
        self.links.install(leg)
    }

    /// Makes a leg end at another time.
    pub fn extend_leg(&mut self, ours: u32, ends: Mono) {
        self.links.extend(ours, ends);
    }

    /// Forgets legs.
    pub fn remove_legs(&mut self, ours: &[u32]) {
        for index in ours {
            self.links.remove(*index);
        }
    }

    /// Forgets all legs with a peer.
    pub fn remove_legs_of(&mut self, peer: PeerIx) {
        self.links.remove_peer(peer);
    }

    /// Forgets all legs: the control connections that brought them are gone.
    pub fn remove_all_legs(&mut self) {
        self.links.clear();
    }

    /// Limits what this anchor carries for others, in bytes per second; none: no limit.
    pub fn set_relay_limit(&mut self, now: Mono, bytes_per_second: Option<u64>) {
        self.links.set_limit(now, bytes_per_second);
    }

    /// Takes a datagram with an outer header that came by `from`.
    pub fn receive_outer(&mut self, now: Now, from: Path, datagram: &mut [u8]) -> Carried {
        let passed = match self.links.open(now.mono, datagram) {
            Ok(passed) => passed,
            Err(error) => {
                let reason = match error {
                    NotCarried::Malformed => DropReason::MalformedFrame,
                    NotCarried::Unknown => DropReason::NoLease,
                    NotCarried::Replayed => DropReason::Replayed,
                    NotCarried::Forged => DropReason::NotAuthentic,
                    NotCarried::OverLimit => DropReason::RelayLimit,
                };
                self.counters.drop_packet(reason);
                return Carried::Dropped(reason);
            }
        };
        match passed {
            Passed::Inside { by } => {
                self.heard_by(now.mono, by.relay, from);
                Carried::Inside(Path::relayed(by))
            }
            Passed::Onward { from: sender, to } => {
                self.heard_by(now.mono, sender, from);
                let Some(path) = self.direct_path(to) else {
                    self.counters.drop_packet(DropReason::NoPath);
                    return Carried::Dropped(DropReason::NoPath);
                };
                self.counters.relayed_datagrams += 1;
                self.counters.relayed_bytes += datagram.len() as u64;
                Carried::Onward(path)
            }
        }
    }

    /// Puts an outer header in front of a datagram of QUIC's: `datagram` has [`OUTER_BYTES`] of
    /// room before it. Returns by which path to send all of it.
    ///
    /// # Errors
    /// When there is no lease for that way, or no direct path to its relay.
    pub fn wrap(&mut self, to: SocketAddr, datagram: &mut [u8]) -> Result<Path, DropReason> {
        let way = Relayed::from_address(&to).ok_or(DropReason::NoPath)?;
        let path = self.direct_path(way.relay).ok_or(DropReason::NoPath)?;
        let mut leg = self.links.sealer(way).ok_or(DropReason::NoLease)?;
        if leg.seal(datagram) {
            Ok(path)
        } else {
            Err(DropReason::MalformedFrame)
        }
    }

    /// Returns what seals frames for `peer` that take `path`, and the path to the peer or relay
    /// that they really take.
    pub(super) fn sealing_by(
        &mut self,
        peer: PeerIx,
        path: Path,
    ) -> Result<(Sealing<'_>, Path), DropReason> {
        let (leg, path) = match path.way() {
            None => (None, path),
            Some(way) => {
                let path = self.direct_path(way.relay).ok_or(DropReason::NoPath)?;
                (
                    Some(self.links.sealer(way).ok_or(DropReason::NoLease)?),
                    path,
                )
            }
        };
        let frames = self.sessions.sealer(peer).ok_or(DropReason::NoSession)?;
        Ok((Sealing { frames, leg }, path))
    }

    /// Returns the path in use to a peer that is reached without a relay.
    pub(super) fn direct_path(&self, peer: PeerIx) -> Option<Path> {
        let current = self.paths.get(&peer)?.current?;
        (!current.is_relayed()).then_some(current)
    }
}
