//! Relays: asking others to carry for this anchor, and carrying for others. What is decided is
//! `core::relay`'s; this gathers its facts, makes keys, and tells ends and data thread.

use std::collections::BTreeMap;
use std::time::Duration;

use conflux_core::ids::{PeerIx, Relayed};
use conflux_core::plane::Path;
use conflux_core::relay::{Answer, Candidate, Desk, Granted, Leg, LegKeys, Role, Seeker, Side};
use conflux_core::time::Mono;
use conflux_proto::control::{
    Message, RELAY_KEYS_BYTES, Relay, RelayAsk, RelayGrant, RelayRefusal, RelayRefused, RelayWanted,
};
use conflux_proto::id::AnchorKey;
use tracing::{debug, info};
use zeroize::Zeroizing;

use super::Anchor;
use super::standing::random_bytes;
use crate::files::RelayChoice;
use crate::quic::ConnId;

/// How long a direct dial has before relays are asked: most are answered within, and then nobody
/// is bothered.
const ASK_AFTER: Duration = Duration::from_millis(300);

/// A peer that did not answer by its direct path is not left without a relay before it has answered
/// for so long.
const UNSURE_FOR: Duration = Duration::from_secs(30);

/// The longest lease taken from a relay, and the shortest: what it says is its own word.
const LEASE_BOUNDS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));

/// What the control loop knows of relays.
#[derive(Debug, Default)]
pub(super) struct Relays {
    desk: Desk,
    seeker: Seeker,
    /// The ways that paths and data thread were told of.
    told: BTreeMap<PeerIx, Vec<Relayed>>,
    /// Peers that did not answer lately.
    unsure: BTreeMap<PeerIx, Mono>,
}

impl Relays {
    pub(super) fn poll_timeout(&self) -> Option<Mono> {
        self.seeker.poll_timeout()
    }

    /// Returns the ways by which relays carry to a peer, the least cost first.
    pub(super) fn ways(&self, peer: PeerIx) -> &[Relayed] {
        self.told.get(&peer).map_or(&[], Vec::as_slice)
    }

    /// Returns for how many pairs this anchor carries.
    pub(super) fn pairs(&self, now: Mono) -> usize {
        self.desk.pairs(now)
    }
}

impl Anchor {
    /// A dial has begun: relays are asked if it takes long.
    pub(super) fn seek_relays_after_dial(&mut self, now: Mono, peer: PeerIx) {
        self.relays.seeker.seek(now + ASK_AFTER, peer);
    }

    /// A peer does not answer by the path in use: a relay may know another.
    pub(super) fn seek_relays_at_once(&mut self, now: Mono, peer: PeerIx) {
        self.relays.unsure.insert(peer, now);
        self.relays.seeker.seek(now, peer);
    }

    /// Asks whom there is to ask, and follows leases that have ended.
    pub(super) fn run_relays(&mut self, now: Mono) {
        if self.relays.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        self.stop_seeking(now);
        let candidates = self.relay_candidates();
        let fresh = || u32::from_ne_bytes(*random_bytes::<4>());
        let asks = self.relays.seeker.poll_asks(now, &candidates, fresh);
        for ask in asks {
            self.ask_relay(ask.way, ask.index);
        }
        let told: Vec<PeerIx> = self.relays.told.keys().copied().collect();
        for far in told {
            self.follow_ways(now, far);
        }
    }

    pub(super) fn handle_relay(&mut self, now: Mono, conn: ConnId, key: AnchorKey, said: &Relay) {
        let Some(from) = self.peers.known(&key) else {
            return;
        };
        match said {
            Relay::Ask(ask) => self.answer_ask(now, conn, from, *ask),
            Relay::Wanted(wanted) => {
                let Some(far) = self.peers.known(&wanted.far).filter(|far| *far != from) else {
                    return;
                };
                if self.membership.get(&wanted.far).is_none() || !self.is_direct(from) {
                    return;
                }
                let fresh = || u32::from_ne_bytes(*random_bytes::<4>());
                let way = Relayed { relay: from, far };
                if let Some(ask) = self.relays.seeker.handle_wanted(now, way, fresh) {
                    self.ask_relay(way, ask.index);
                }
            }
            Relay::Grant(grant) => self.take_grant(now, conn, from, grant),
            Relay::Refused(refused) => {
                let Some(far) = self.peers.known(&refused.far) else {
                    return;
                };
                debug!(relay = %self.short(from), anchor = %self.short(far), why = ?refused.why, "not carried");
                let way = Relayed { relay: from, far };
                self.relays.seeker.handle_refused(now, way, refused.why);
                self.follow_ways(now, far);
            }
        }
    }

    /// A peer's last connection has ended, or its way is not direct any more: it carries for us no
    /// longer, and we not for it.
    pub(super) fn lose_relay(&mut self, now: Mono, peer: PeerIx) {
        self.relays.seeker.handle_relay_gone(now, peer);
        let gone = self.relays.desk.forget(peer);
        self.end_leases(&gone, RelayRefusal::NotReached);
        self.data.run(move |plane, _| plane.remove_legs_of(peer));
        let told: Vec<PeerIx> = self.relays.told.keys().copied().collect();
        for far in told {
            self.follow_ways(now, far);
        }
    }

    /// A probe went to a peer and back by a relay: what it took ranks that relay from now on.
    pub(super) fn handle_measured(&mut self, now: Mono, way: Relayed, rtt: Duration) {
        self.relays.seeker.handle_measured(now, way, rtt);
        self.follow_ways(now, way.far);
    }

    /// The data thread follows a peer to another path.
    pub(super) fn follow_roaming(&mut self, now: Mono, peer: PeerIx, path: Path) {
        let anchor = self.short(peer);
        match path.way() {
            Some(way) => {
                info!(%anchor, relay = %self.short(way.relay), "reached by a relay");
                self.lose_relay(now, peer);
                self.relays.seeker.seek(now, peer);
            }
            None => debug!(%anchor, "reached directly"),
        }
    }

    /// Carries as the configuration says.
    pub(super) fn apply_relay_choice(&mut self) {
        let choice = self.config.relay;
        let gone = self.relays.desk.set_open(choice != RelayChoice::Off);
        let limit = match choice {
            RelayChoice::On | RelayChoice::Off => None,
            RelayChoice::Limited { bits_per_second } => Some(bits_per_second / 8),
        };
        self.end_leases(&gone, RelayRefusal::Off);
        self.data
            .run(move |plane, now| plane.set_relay_limit(now.mono, limit));
    }

    /// Carries for these no longer, and tells those of the ends that can be told.
    fn end_leases(&self, gone: &[Granted], why: RelayRefusal) {
        if gone.is_empty() {
            return;
        }
        let own = self.identity.key();
        for granted in gone {
            let [one, two] = granted.sides.map(|side| side.peer);
            for (told, far) in [(one, two), (two, one)] {
                let conn = self.peers.in_use(told, &own).map(|conn| conn.id);
                let far = self.peers.get(far).map(|peer| peer.key);
                if let (Some(conn), Some(far)) = (conn, far) {
                    let refused = RelayRefused { far, why };
                    self.tell(conn, &Message::Relay(Relay::Refused(refused)));
                }
            }
        }
        let legs: Vec<u32> = gone.iter().flat_map(Granted::indices).collect();
        self.data.run(move |plane, _| plane.remove_legs(&legs));
    }

    /// Says whether a peer is connected without a relay.
    fn is_direct(&self, peer: PeerIx) -> bool {
        let way = self.paths.lock().current(peer);
        way.is_some_and(|way| Relayed::from_address(&way.remote).is_none())
            && self.peers.is_connected(peer)
    }

    /// Peers that are reached directly, or not wanted any more, need no relay.
    fn stop_seeking(&mut self, now: Mono) {
        self.relays
            .unsure
            .retain(|_, at| now.since(*at) < UNSURE_FOR);
        let wanted = self.wanted_peers();
        for far in self.relays.seeker.sought() {
            let is_settled = self.is_direct(far) && !self.relays.unsure.contains_key(&far);
            let is_unwanted = !self.peers.is_connected(far) && !wanted.contains(&far);
            if is_settled || is_unwanted {
                self.relays.seeker.stop(far);
            }
        }
    }

    fn relay_candidates(&self) -> Vec<Candidate> {
        let own = self.identity.key();
        self.peers
            .neighbours(&own)
            .into_iter()
            .filter(|(peer, _)| self.is_direct(*peer))
            .filter_map(|(relay, conn)| {
                let rtt = self.quic.rtt(conn)?;
                Some(Candidate { relay, rtt })
            })
            .collect()
    }

    fn ask_relay(&self, way: Relayed, index: u32) {
        let own = self.identity.key();
        let far = self.peers.get(way.far).map(|peer| peer.key);
        let conn = self.peers.in_use(way.relay, &own).map(|conn| conn.id);
        if let (Some(conn), Some(far)) = (conn, far) {
            self.tell(conn, &Message::Relay(Relay::Ask(RelayAsk { far, index })));
        }
    }

    fn answer_ask(&mut self, now: Mono, conn: ConnId, from: PeerIx, ask: RelayAsk) {
        let to = self.peers.known(&ask.far);
        let is_reached = self.is_direct(from) && to.is_some_and(|to| self.is_direct(to));
        // A stranger has no number; nobody's does for the answer.
        let ends = (from, to.unwrap_or(from));
        let fresh = || u32::from_ne_bytes(*random_bytes::<4>());
        let answer = self
            .relays
            .desk
            .handle_ask(now, ends, ask.index, is_reached, fresh);
        match answer {
            Answer::Refuse(why) => {
                let far = ask.far;
                let refused = RelayRefused { far, why };
                self.tell(conn, &Message::Relay(Relay::Refused(refused)));
            }
            Answer::Tell => {
                let own = self.identity.key();
                let far = self.peers.get(from).map(|peer| peer.key);
                let told = self.peers.in_use(ends.1, &own).map(|conn| conn.id);
                if let (Some(far), Some(told)) = (far, told) {
                    let wanted = RelayWanted { far };
                    self.tell(told, &Message::Relay(Relay::Wanted(wanted)));
                }
            }
            Answer::Grant(granted, replaced) => self.grant(now, granted, replaced),
            Answer::Extend(granted) => {
                let indices = granted.sides.map(|side| side.ours);
                self.data.run(move |plane, _| {
                    for index in indices {
                        plane.extend_leg(index, granted.ends);
                    }
                });
                self.tell_granted(now, granted, [None, None]);
            }
        }
    }

    fn grant(&mut self, now: Mono, granted: Granted, replaced: Vec<u32>) {
        let keys = [(); 2].map(|()| random_bytes::<RELAY_KEYS_BYTES>());
        let [one, two] = granted.sides;
        let leg = |side: Side, other: Side, keys: &[u8; RELAY_KEYS_BYTES]| {
            let (receive, send) = split(keys);
            Leg {
                peer: side.peer,
                ours: side.ours,
                theirs: side.theirs,
                role: Role::Relay { to: other.ours },
                ends: granted.ends,
                keys: LegKeys { send, receive },
            }
        };
        let legs = [leg(one, two, &keys[0]), leg(two, one, &keys[1])];
        self.data.run(move |plane, _| {
            plane.remove_legs(&replaced);
            for leg in &legs {
                if !plane.install_leg(leg) {
                    debug!("a lease's index was in use already; the next one picks another");
                }
            }
        });
        debug!(one = %self.short(one.peer), two = %self.short(two.peer), "carrying for two anchors");
        self.tell_granted(now, granted, [Some(&*keys[0]), Some(&*keys[1])]);
    }

    fn tell_granted(
        &self,
        now: Mono,
        granted: Granted,
        keys: [Option<&[u8; RELAY_KEYS_BYTES]>; 2],
    ) {
        let own = self.identity.key();
        let [one, two] = granted.sides;
        for (side, far, keys) in [(one, two, keys[0]), (two, one, keys[1])] {
            let conn = self.peers.in_use(side.peer, &own).map(|conn| conn.id);
            let key = self.peers.get(far.peer).map(|peer| peer.key);
            let (Some(conn), Some(key)) = (conn, key) else {
                continue;
            };
            let rtt = self
                .peers
                .in_use(far.peer, &own)
                .and_then(|conn| self.quic.rtt(conn.id));
            let grant = RelayGrant {
                far: key,
                index: side.theirs,
                receiver: side.ours,
                seconds: u32::try_from(granted.ends.since(now).as_secs()).unwrap_or(0),
                keys: keys.map(|keys| keys.to_vec().into()),
                rtt_micros: rtt.and_then(|rtt| u64::try_from(rtt.as_micros()).ok()),
            };
            self.tell(conn, &Message::Relay(Relay::Grant(grant)));
        }
    }

    fn take_grant(&mut self, now: Mono, conn: ConnId, relay: PeerIx, grant: &RelayGrant) {
        let Some(far) = self.peers.known(&grant.far) else {
            return;
        };
        let way = Relayed { relay, far };
        let (least, most) = LEASE_BOUNDS;
        let lasts = Duration::from_secs(u64::from(grant.seconds)).clamp(least, most);
        let beyond = Duration::from_micros(grant.rtt_micros.unwrap_or(0));
        let cost = self
            .quic
            .rtt(conn)
            .unwrap_or_default()
            .saturating_add(beyond);
        let taken = self
            .relays
            .seeker
            .handle_grant(now, way, grant.index, lasts, cost);
        if !taken {
            debug!(relay = %self.short(relay), "a lease that was not asked for");
            return;
        }
        let (ours, theirs, ends) = (grant.index, grant.receiver, now + lasts);
        match &grant.keys {
            None => self.data.run(move |plane, _| plane.extend_leg(ours, ends)),
            Some(keys) => {
                let Ok(keys) = <&[u8; RELAY_KEYS_BYTES]>::try_from(keys.as_slice()) else {
                    debug!(relay = %self.short(relay), "a lease with keys of another length");
                    return;
                };
                let (send, receive) = split(keys);
                let leg = Leg {
                    peer: relay,
                    ours,
                    theirs,
                    role: Role::End { far },
                    ends,
                    keys: LegKeys { send, receive },
                };
                self.data.run(move |plane, _| {
                    if !plane.install_leg(&leg) {
                        debug!("another relay has a lease of this index; the next picks another");
                    }
                });
            }
        }
        self.follow_ways(now, far);
    }

    /// Tells paths and data thread by which relays a peer can be reached now.
    fn follow_ways(&mut self, now: Mono, far: PeerIx) {
        let ways = self.relays.seeker.ways(far);
        if self.relays.ways(far) == ways {
            return;
        }
        let had = !self.relays.ways(far).is_empty();
        if ways.is_empty() {
            self.relays.told.remove(&far);
        } else {
            if !had {
                let relay = self.short(ways[0].relay);
                info!(anchor = %self.short(far), %relay, "a relay carries to an anchor");
            }
            let mut paths = self.paths.lock();
            for way in &ways {
                paths.widen_dial(now, far, way.address());
            }
            drop(paths);
            self.relays.told.insert(far, ways);
        }
        self.refresh_paths(far);
        if !had {
            self.hurry(now, far);
        }
    }
}

/// Returns the key for what goes to the relay, and the one for what comes from it.
fn split(keys: &[u8; RELAY_KEYS_BYTES]) -> (Zeroizing<[u8; 32]>, Zeroizing<[u8; 32]>) {
    let mut to_relay = Zeroizing::new([0; 32]);
    let mut from_relay = Zeroizing::new([0; 32]);
    let (first, second) = keys.split_at(32);
    to_relay.copy_from_slice(first);
    from_relay.copy_from_slice(second);
    (to_relay, from_relay)
}
