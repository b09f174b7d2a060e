//! Answers to the local socket: status, routes, peers, flows, invitations. Gathers; the JSON's
//! shape is `conflux_proto::api`'s.

use std::net::SocketAddr;
use std::time::Duration;

use conflux_core::credential::{TicketTerms, make_ticket};
use conflux_core::ids::{Host, PeerIx, Relayed};
use conflux_core::plane::{FlowView, PeerView};
use conflux_core::routes::{State, spelled_network};
use conflux_core::time::Mono;
use conflux_proto::advert::Reach;
use conflux_proto::api::{
    self, Direction, FlowRow, Flows, InterfaceStatus, Invite, InviteRequest, Ipv4Status,
    MAX_FLOW_ROWS, PeerConnections, PeerPath, PeerRow, PeerState, Peers, RouteRow, RouteState,
    Routes, Status, Stopping, VERSION, id_letters,
};
use conflux_proto::credential::{Advertise, Serial};
use conflux_proto::id::AnchorKey;
use conflux_proto::taint::TaintSet;
use conflux_proto::ticket::Endpoint;
use ipnet::IpNet;

use super::carry::Asked;
use super::reload::Applied;
use super::standing::random_bytes;
use super::{Anchor, Ended};
use crate::api::{Refusal, Request};
use crate::clock;

/// `status` warns this long before a credential ends (SPEC section 7).
const WARN_BEFORE_EXPIRY: Duration = Duration::from_secs(90 * 24 * 3600);
/// A refusal is told this long: whoever refused is dialled again within it.
const REFUSALS_TOLD_FOR: Duration = Duration::from_secs(120);
/// Longest life of a ticket: as long as the membership it gives.
const LONGEST_TICKET: Duration = Duration::from_secs(365 * 24 * 3600);
/// Endpoints named by a ticket: this anchor's and a few others', so that a realm whose first
/// machine is gone can still be joined.
const TICKET_ENDPOINTS: usize = 8;

impl Anchor {
    /// Answers a request; returns how the anchor ends when that was asked for.
    pub(super) async fn handle_request(&mut self, now: Mono, request: Request) -> Option<Ended> {
        // Whoever asked may have hung up: a reply that cannot be given is nobody's loss.
        match request {
            Request::Status(reply) => {
                let _ = reply.send(self.status(now).await);
            }
            Request::Routes(reply) => {
                let _ = reply.send(Ok(self.routes_answer()));
            }
            Request::Peers(reply) => {
                let _ = reply.send(self.peers_answer().await);
            }
            Request::Flows(reply) => {
                let _ = reply.send(self.flows_answer().await);
            }
            Request::Explain(query, reply) => {
                let _ = reply.send(self.explain(query).await);
            }
            Request::Drain(reply) => {
                let _ = reply.send(self.drain_answer(now).await);
            }
            Request::SetDrain(request, reply) => {
                let _ = reply.send(self.set_drain(now, request).await);
            }
            Request::Metrics(reply) => {
                let _ = reply.send(self.metrics(now).await);
            }
            Request::Members(reply) => {
                let _ = reply.send(Ok(self.members_answer()));
            }
            Request::Invite(request, reply) => {
                let _ = reply.send(self.invite(&request));
            }
            Request::Revoke(request, reply) => {
                let _ = reply.send(self.revoke(now, &request));
            }
            Request::Reload(reply) => match self.reload(now) {
                Ok((reloaded, Applied::Already)) => {
                    let _ = reply.send(Ok(reloaded));
                }
                Ok((reloaded, Applied::ByStartingAnew)) => {
                    return Some(Ended::Restart(Asked { reply, reloaded }));
                }
                Err(refusal) => {
                    let _ = reply.send(Err(refusal));
                }
            },
            Request::Shutdown(reply) => {
                self.say_goodbye().await;
                let _ = reply.send(Ok(Stopping { version: VERSION }));
                return Some(Ended::Stopped);
            }
        }
        None
    }

    async fn status(&self, now: Mono) -> Result<Status, Refusal> {
        let drain = match &self.drain {
            Some(_) => Some(self.drain_answer(now).await?),
            None => None,
        };
        let key = self.identity.key();
        let connected = self
            .peers
            .iter()
            .filter(|(peer, _)| self.peers.is_connected(*peer))
            .count();
        Ok(Status {
            version: VERSION,
            software: conflux_proto::SOFTWARE.to_owned(),
            ready: true,
            anchor: key.id().to_string(),
            id_letters: self.letters(),
            realm: self.standing.realm.to_string(),
            overlay: key.overlay(&self.standing.realm),
            hardware: key.hardware(&self.standing.realm).to_string(),
            ipv4: self.config.ipv4.as_ref().map(|choice| Ipv4Status {
                address: choice.address,
                prefix_len: choice.prefix_len,
                advertised: choice.advertised,
            }),
            interface: InterfaceStatus {
                name: self.interface.clone(),
                mtu_bytes: u32::from(self.facts.mtu_bytes),
            },
            taints: self
                .standing
                .taints(&self.config)
                .iter()
                .map(|taint| taint.as_str().to_owned())
                .collect(),
            listen: self.sockets.clone(),
            subnets: self.config.subnets.clone(),
            exposed: self.config.expose.iter().map(ToString::to_string).collect(),
            reach: reach(self.reach()),
            peers_connected: connected,
            peers_known: self.membership.realm_size() - 1,
            issuer: self.standing.is_issuer(),
            valid_until_unix: self.standing.member().map(|member| member.valid_until.0),
            joining: self.standing.joining().map(|joining| api::Joining {
                endpoints: joining
                    .ticket
                    .endpoints()
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                last_error: self.last_join_error.clone(),
            }),
            uptime_seconds: now.since(self.started).as_secs(),
            drain,
            relay: Some(self.config.relay.to_string()),
            check: self.check_status(now),
            warnings: self.warnings(now),
        })
    }

    /// What needs the operator's action, one sentence each.
    fn warnings(&self, now: Mono) -> Vec<String> {
        let mut warnings = self.clones.warnings(now);
        if let Some(revoked) = self.own_revocation() {
            warnings.push(format!("this anchor is out of the realm: {revoked}"));
        } else if let Some((at, refused)) = &self.refused
            && now.since(*at) < REFUSALS_TOLD_FOR
        {
            warnings.push(refused.clone());
        }
        if let Some(member) = self.standing.member() {
            let left = member.valid_until.since(clock::unix());
            if left < WARN_BEFORE_EXPIRY {
                warnings.push(format!(
                    "this anchor's credential ends in {} days: connect it with an issuer of the \
                     realm, which renews it",
                    left.as_secs() / 86_400
                ));
            }
        }
        for (key, ahead) in &self.skewed {
            let direction = if *ahead > 0 { "ahead of" } else { "behind" };
            warnings.push(format!(
                "this machine's clock is {} s {direction} that of anchor {}: set the wrong one",
                ahead.unsigned_abs(),
                key.id().short()
            ));
        }
        let has = |v4: bool| {
            self.config
                .subnets
                .iter()
                .any(|subnet| subnet.addr().is_ipv4() == v4)
        };
        if has(true) && !self.facts.forwards.0 {
            warnings.push(
                "the kernel does not forward IPv4, so hosts of --subnet are cut off: \
                 sysctl -w net.ipv4.ip_forward=1"
                    .to_owned(),
            );
        }
        if has(false) && !self.facts.forwards.1 {
            warnings.push(
                "the kernel does not forward IPv6, so hosts of --subnet are cut off: \
                 sysctl -w net.ipv6.conf.all.forwarding=1"
                    .to_owned(),
            );
        }
        if !self.facts.ipv6 {
            warnings
                .push("IPv6 is disabled on this host: the overlay carries IPv4 only".to_owned());
        }
        for network in &self.facts.taken {
            warnings.push(format!(
                "another interface has a route to {network}: traffic for it does not enter the \
                 overlay"
            ));
        }
        warnings.extend(self.check_warning());
        warnings.extend(self.split_addresses());
        warnings
    }

    /// The same address under incompatible taints is two groups.
    fn split_addresses(&self) -> Vec<String> {
        let taints = self.standing.taints(&self.config);
        let own = self.config.ipv4.as_ref().map(|choice| choice.address);
        let mut split: Vec<String> = self
            .membership
            .entries()
            .map(|(_, entry)| entry.advert())
            .filter(|advert| !taints.may_exchange(&advert.taints))
            .filter_map(|advert| advert.ipv4)
            .filter(|address| {
                Some(*address) == own
                    || self
                        .routes
                        .group(IpNet::from(std::net::IpAddr::V4(*address)))
                        .is_some()
            })
            .map(|address| {
                format!(
                    "{address} is also held under taints that are incompatible with this \
                     anchor's: it is two separate groups"
                )
            })
            .collect();
        split.sort();
        split.dedup();
        split
    }

    fn routes_answer(&self) -> Routes {
        let routes = self
            .routes
            .rows()
            .iter()
            .map(|row| RouteRow {
                network: row.network,
                spelled: match row.network {
                    IpNet::V4(network) => Some(spelled_network(network)),
                    IpNet::V6(_) => None,
                },
                via: row.via.iter().map(|key| key.id().to_string()).collect(),
                state: match row.state {
                    State::Accepted => RouteState::Accepted,
                    State::Served => RouteState::Served,
                    State::Refused => RouteState::Refused,
                    State::Unadvertised => RouteState::Unadvertised,
                },
                why: row.why.map(|why| why.to_string()),
            })
            .collect();
        Routes {
            version: VERSION,
            id_letters: self.letters(),
            routes,
        }
    }

    async fn peers_answer(&self) -> Result<Peers, Refusal> {
        let numbers: Vec<PeerIx> = self.peers.iter().map(|(peer, _)| peer).collect();
        let views = self
            .data
            .ask(move |plane, now| {
                numbers
                    .into_iter()
                    .map(|peer| (peer, plane.view_peer(now.mono, peer)))
                    .collect::<Vec<_>>()
            })
            .await
            .ok_or_else(no_data_thread)?;
        let mut rows: Vec<PeerRow> = views
            .into_iter()
            .filter_map(|(peer, view)| self.peer_row(peer, view))
            .collect();
        rows.sort_by(|a, b| a.anchor.cmp(&b.anchor));
        Ok(Peers {
            version: VERSION,
            id_letters: self.letters(),
            peers: rows,
        })
    }

    fn peer_row(&self, peer: PeerIx, view: PeerView) -> Option<PeerRow> {
        let entry = self.peers.get(peer)?;
        let key = entry.key;
        let known = self.membership.get(&key);
        let is_connected = self.peers.is_connected(peer);
        if known.is_none() && !is_connected && !self.remembered.contains_key(&peer) {
            return None;
        }
        let data = self.routes.peer(peer).map(|facts| facts.may_exchange);
        let state = if is_connected {
            PeerState::Connected
        } else if entry.was_connected {
            PeerState::Lost
        } else if self.peers.is_dialling(peer) || !entry.conns.is_empty() {
            PeerState::Connecting
        } else {
            PeerState::Known
        };
        let quic_rtt = || {
            let conn = self.peers.in_use(peer, &self.identity.key())?;
            self.quic.rtt(conn.id)
        };
        let current = self.paths.lock().current(peer);
        let remote = current
            .map(|way| way.remote)
            .or_else(|| view.path.map(|path| path.remote));
        let path = current.map(|way| match Relayed::from_address(&way.remote) {
            None => PeerPath::Direct,
            Some(way) => PeerPath::Relay(self.id_of(way.relay)),
        });
        Some(PeerRow {
            anchor: key.id().to_string(),
            overlay: key.overlay(&self.standing.realm),
            ipv4: known
                .and_then(|known| known.advert().ipv4)
                .filter(|_| data == Some(true)),
            hardware: key.hardware(&self.standing.realm).to_string(),
            state,
            connections: self.connections_of(peer, &key),
            data,
            reach: match path {
                Some(PeerPath::Relay(_)) => api::Reach::RelayOnly,
                Some(PeerPath::Direct) | None => {
                    known.map_or(api::Reach::Unknown, |known| reach(known.advert().reach))
                }
            },
            rtt_micros: view
                .rtt
                .or_else(quic_rtt)
                .and_then(|rtt| u64::try_from(rtt.as_micros()).ok()),
            path,
            endpoint: remote.filter(|remote| Relayed::from_address(remote).is_none()),
            packet_limit_bytes: view.limit_bytes.and_then(|bytes| u32::try_from(bytes).ok()),
            failed: view.is_failed,
            draining: known.is_some_and(|known| known.advert().draining),
        })
    }

    fn id_of(&self, peer: PeerIx) -> String {
        let entry = self.peers.get(peer);
        entry.map_or_else(String::new, |peer| peer.key.id().to_string())
    }

    fn connections_of(&self, peer: PeerIx, key: &AnchorKey) -> PeerConnections {
        let conns = || {
            self.peers
                .accepted()
                .filter(|conn| conn.key == *key)
                .map(|conn| conn.outgoing)
        };
        let in_use = self.peers.in_use(peer, &self.identity.key()).map(|conn| {
            if conn.outgoing {
                Direction::Outgoing
            } else {
                Direction::Incoming
            }
        });
        PeerConnections {
            outgoing: conns().any(|outgoing| outgoing),
            incoming: conns().any(|outgoing| !outgoing),
            in_use,
        }
    }

    async fn flows_answer(&self) -> Result<Flows, Refusal> {
        let (views, all) = self
            .data
            .ask(|plane, now| (plane.view_flows(now, MAX_FLOW_ROWS), plane.sizes().flows))
            .await
            .ok_or_else(no_data_thread)?;
        let flows: Vec<FlowRow> = views.iter().map(|view| self.flow_row(view)).collect();
        Ok(Flows {
            version: VERSION,
            id_letters: self.letters(),
            left_out: all.saturating_sub(flows.len()),
            flows,
        })
    }

    pub(super) fn flow_row(&self, view: &FlowView) -> FlowRow {
        let flow = &view.flow;
        let destination = flow.key.destination;
        FlowRow {
            host: match flow.key.host {
                Host::Own => None,
                Host::Behind(address) => Some(address),
            },
            destination,
            network: view.network(),
            holder: flow
                .holder
                .and_then(|holder| self.peers.get(holder))
                .map(|peer| peer.key.id().to_string()),
            reason: flow.reason.to_string(),
            held_seconds: view.age.as_secs(),
            idle_seconds: view.idle.as_secs(),
            open_connections: view.connections,
            sent_bytes: flow.sent.bytes,
            received_bytes: flow.received.bytes,
            sent_packets: flow.sent.packets,
            received_packets: flow.received.packets,
            holder_drains: view.holder_drains,
        }
    }

    fn invite(&self, request: &InviteRequest) -> Result<Invite, Refusal> {
        let invalid = |text: String| Refusal::Invalid(text);
        let granter = self.standing.granter(&self.identity).ok_or_else(|| {
            Refusal::Unavailable("this anchor is no member of a realm yet".to_owned())
        })?;
        let now = clock::unix();
        let life = Duration::from_secs(request.expires_seconds);
        if life.is_zero() || life > LONGEST_TICKET {
            return Err(invalid(
                "--expires takes a time above 0 and at most 365d".to_owned(),
            ));
        }
        let taints = if request.taints.is_empty() {
            self.standing.member().map(|member| member.taints.clone())
        } else {
            Some(TaintSet::parse(&request.taints).map_err(|error| invalid(error.to_string()))?)
        };
        let expires = now + life;
        let terms = TicketTerms {
            taints,
            advertise: advertise(&request.advertise),
            issuer: request.issuer,
            expires,
            endpoints: self.ticket_endpoints(),
            serial: Serial(*random_bytes::<16>()),
        };
        let mut warnings = if terms.endpoints.is_empty() {
            vec![
                "this machine has no address that others could reach: add --peer on the joining \
                 machine"
                    .to_owned(),
            ]
        } else {
            Vec::new()
        };
        let ticket = make_ticket(granter, terms, &random_bytes::<32>(), now)
            .map_err(|error| invalid(error.to_string()))?;
        warnings.extend(self.remember_ticket(ticket.grant()).err());
        Ok(Invite {
            version: VERSION,
            ticket: ticket.to_text(),
            expires_unix: expires.0,
            warnings,
        })
    }

    fn ticket_endpoints(&self) -> Vec<Endpoint> {
        let own = self.endpoints();
        // Half the places are for others, so that the ticket outlives this machine.
        let (first, rest) = own.split_at(own.len().min(TICKET_ENDPOINTS / 2));
        let mut others: Vec<(bool, SocketAddr)> = Vec::new();
        for (_, entry) in self.membership.entries() {
            let advert = entry.advert();
            let is_proved = match advert.reach {
                Reach::Public => true,
                // Perhaps nobody had a reason to dial it yet.
                Reach::Unknown => false,
                Reach::NatCone | Reach::NatSymmetric | Reach::RelayOnly => continue,
            };
            others.extend(advert.endpoints.first().map(|at| (is_proved, *at)));
        }
        others.sort_by_key(|(is_proved, _)| !is_proved);
        let others = others.into_iter().map(|(_, at)| at);
        first
            .iter()
            .copied()
            .chain(others)
            .chain(rest.iter().copied())
            .take(TICKET_ENDPOINTS)
            .map(|at| Endpoint {
                host: at.ip().to_string(),
                port: at.port(),
            })
            .collect()
    }

    /// Returns how many letters keep all known ids apart.
    pub(super) fn letters(&self) -> usize {
        let ids: Vec<String> = self
            .membership
            .entries()
            .map(|(key, _)| key.id().to_string())
            .chain([self.identity.key().id().to_string()])
            .collect();
        id_letters(ids.iter().map(String::as_str))
    }
}

pub(super) fn no_data_thread() -> Refusal {
    Refusal::Unavailable("the interface has just been taken away; try again".to_owned())
}

const fn reach(reach: Reach) -> api::Reach {
    match reach {
        Reach::Unknown => api::Reach::Unknown,
        Reach::Public => api::Reach::Public,
        Reach::NatCone => api::Reach::NatCone,
        Reach::NatSymmetric => api::Reach::NatSymmetric,
        Reach::RelayOnly => api::Reach::RelayOnly,
    }
}

/// Returns what the words of `--advertise` grant; none of them: any private address, no subnet.
fn advertise(words: &[api::Advertise]) -> Advertise {
    if words.is_empty() {
        return Advertise::private_hosts();
    }
    let mut granted = Advertise {
        any: false,
        private_hosts: false,
        networks: Vec::new(),
    };
    for word in words {
        match word {
            api::Advertise::Any => granted.any = true,
            api::Advertise::None => {}
            api::Advertise::Network(network) => granted.networks.push(*network),
        }
    }
    granted
}
