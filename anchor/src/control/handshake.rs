//! Data keys: Noise handshakes inside control connections, by `core::session`. The dialer of a
//! connection begins one when the connection stands, so that a restarted peer has keys at once;
//! later either side does when its data thread says that keys are due.

use conflux_core::ids::PeerIx;
use conflux_core::session::{Initiator, Local, Remote, SessionKeys, respond};
use conflux_core::time::Mono;
use conflux_proto::control::{Message, Noise};
use conflux_proto::id::AnchorKey;
use minicbor::bytes::ByteVec;
use tracing::{debug, warn};

use super::Anchor;
use super::peers::Handshake;
use super::standing::random_bytes;
use crate::quic::ConnId;

impl Anchor {
    /// Begins a handshake on a connection, unless one is under way or data may not be exchanged.
    pub(super) fn shake_hands(&mut self, now: Mono, peer: PeerIx, conn: ConnId) {
        if self.peers.is_shaking_hands(peer, now) || self.standing.member().is_none() {
            return;
        }
        let Some(entry) = self.peers.conn(conn) else {
            return;
        };
        let Some(remote) = self.exchange_partner(entry.key) else {
            return;
        };
        let seed = random_bytes::<32>();
        let local = Local {
            noise_secret: self.identity.noise_secret(),
            key: self.identity.key(),
            index: self.fresh_index(),
            aes: self.aes,
            seed: &seed,
        };
        let started = Initiator::start(local, remote, &self.standing.realm, entry.psk.bytes());
        let (initiator, bytes) = match started {
            Ok(started) => started,
            Err(error) => {
                warn!(anchor = %remote.key.id().short(), %error, "no data keys");
                return;
            }
        };
        self.handshakes = self.handshakes.wrapping_add(1);
        let number = self.handshakes;
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.handshake = Some(Handshake {
                conn,
                number,
                initiator,
                started: now,
            });
        }
        let bytes = ByteVec::from(bytes);
        self.tell(
            conn,
            &Message::Noise1(Noise {
                handshake: number,
                bytes,
            }),
        );
    }

    /// Answers message 1.
    pub(super) fn answer_handshake(
        &mut self,
        _now: Mono,
        conn: ConnId,
        key: AnchorKey,
        noise: &Noise,
    ) {
        let Some(entry) = self.peers.conn(conn) else {
            return;
        };
        let Some(remote) = self.exchange_partner(key) else {
            debug!(anchor = %key.id().short(), "no data keys: the taints do not allow it");
            return;
        };
        let seed = random_bytes::<32>();
        let local = Local {
            noise_secret: self.identity.noise_secret(),
            key: self.identity.key(),
            index: self.fresh_index(),
            aes: self.aes,
            seed: &seed,
        };
        let answered = respond(
            local,
            remote,
            &self.standing.realm,
            entry.psk.bytes(),
            &noise.bytes,
        );
        match answered {
            Ok((keys, bytes)) => {
                self.install(key, keys);
                let bytes = ByteVec::from(bytes);
                self.tell(
                    conn,
                    &Message::Noise2(Noise {
                        handshake: noise.handshake,
                        bytes,
                    }),
                );
            }
            Err(error) => {
                warn!(anchor = %key.id().short(), %error, "refused a handshake for data keys");
            }
        }
    }

    /// Takes message 2.
    pub(super) fn finish_handshake(&mut self, conn: ConnId, noise: &Noise) {
        let Some(key) = self.peers.conn(conn).map(|conn| conn.key) else {
            return;
        };
        let Some(peer) = self.peers.known(&key) else {
            return;
        };
        let Some(entry) = self.peers.get_mut(peer) else {
            return;
        };
        let is_ours = entry
            .handshake
            .as_ref()
            .is_some_and(|handshake| handshake.conn == conn && handshake.number == noise.handshake);
        let Some(handshake) = entry.handshake.take_if(|_| is_ours) else {
            return;
        };
        match handshake.initiator.finish(&noise.bytes) {
            Ok(keys) => {
                self.install(key, keys);
            }
            Err(error) => warn!(anchor = %key.id().short(), %error, "no data keys"),
        }
    }

    /// The data thread lacks keys for a peer that packets want.
    pub(super) fn need_session(&mut self, now: Mono, peer: PeerIx) {
        match self
            .peers
            .in_use(peer, &self.identity.key())
            .map(|conn| conn.id)
        {
            Some(conn) => self.shake_hands(now, peer, conn),
            None => {
                if let Some(peer) = self.peers.get_mut(peer) {
                    peer.is_needed = true;
                }
                self.hurry(now, peer);
            }
        }
    }

    /// The keys of a peer are due: the dialer of the connection in use begins; the other side
    /// does when it is asked again, so that two handshakes seldom cross.
    pub(super) fn rotate(&mut self, now: Mono, peer: PeerIx) {
        let own = self.identity.key();
        let Some((conn, outgoing)) = self
            .peers
            .in_use(peer, &own)
            .map(|conn| (conn.id, conn.outgoing))
        else {
            return;
        };
        let Some(entry) = self.peers.get_mut(peer) else {
            return;
        };
        entry.rotations_asked += 1;
        if outgoing || entry.rotations_asked > 1 {
            self.shake_hands(now, peer, conn);
        }
    }

    fn install(&mut self, key: AnchorKey, keys: SessionKeys) {
        let Some(peer) = self.peers.known(&key) else {
            return;
        };
        if let Some(entry) = self.peers.get_mut(peer) {
            entry.rotations_asked = 0;
            entry.has_keys = true;
        }
        self.data.run(move |plane, now| {
            if !plane.install(now, peer, key, &keys) {
                debug!("a receiver index was in use already; the next handshake picks another");
            }
        });
    }

    /// Returns how to shake hands with a peer, when data may be exchanged with it.
    fn exchange_partner(&self, key: AnchorKey) -> Option<Remote> {
        let advert = self.membership.get(&key)?.advert();
        let taints = self.standing.taints(&self.config);
        taints.may_exchange(&advert.taints).then_some(Remote {
            key,
            noise_key: advert.noise_key,
        })
    }

    fn fresh_index(&self) -> u32 {
        u32::from_ne_bytes(*random_bytes::<4>())
    }
}
