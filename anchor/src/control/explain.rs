//! The answer to `explain`: the packet way's view of one flow, with names, and the addresses that
//! cannot be explained told apart by what is wrong with them.

use std::net::IpAddr;
use std::time::Duration;

use conflux_core::ids::Host;
use conflux_core::plane::{Excluded, Explained, Found, HolderView};
use conflux_core::routes::{is_public, reserved_range, spelled_network};
use conflux_proto::api::{Explain, ExplainedHolder, NextPacket, RouteState, VERSION};
use ipnet::{IpNet, Ipv4Net};

use super::Anchor;
use super::answers::no_data_thread;
use super::routing::SPELLED;
use crate::api::{ExplainQuery, Refusal};

impl Anchor {
    /// Explains why a host's traffic to an address goes where it goes.
    pub(super) async fn explain(&self, query: ExplainQuery) -> Result<Explain, Refusal> {
        let ExplainQuery { address, from } = query;
        let explained = self
            .data
            .ask(move |plane, now| plane.explain(now, address, from))
            .await
            .ok_or_else(no_data_thread)?;
        let explained = explained.map_err(|_| {
            let from = from.unwrap_or(address);
            Refusal::Invalid(format!(
                "--from {from}: this anchor speaks for no such host; it takes an address of this \
                 machine or of one of its --subnet networks"
            ))
        })?;
        if explained.flow.is_none()
            && let Some(refusal) = self.not_explained(&explained)
        {
            return Err(refusal);
        }
        Ok(self.explain_answer(&explained))
    }

    /// Says what is wrong with an address that leads nowhere.
    fn not_explained(&self, explained: &Explained) -> Option<Refusal> {
        let address = explained.destination;
        if let IpAddr::V4(host) = address
            && let Some((range, what)) = reserved_range(Ipv4Net::from(host))
        {
            return Some(Refusal::Invalid(format!(
                "{address} lies in {range} ({what}): no anchor can hold it"
            )));
        }
        match explained.found {
            Found::Local | Found::Group(_) => return None,
            Found::Refused(_) if !explained.holders.is_empty() => return None,
            Found::Refused(_) | Found::Nobody => {}
        }
        // Claimed by some, and none of them may be used: the table says why.
        if !explained.holders.is_empty() {
            return None;
        }
        Some(match address {
            IpAddr::V4(host) if self.config.client_range.contains(&host) => {
                Refusal::Invalid(format!(
                    "{address} lies in {}, where clients appear on this machine: no anchor can \
                     hold it",
                    self.config.client_range
                ))
            }
            IpAddr::V4(host) if is_public(Ipv4Net::from(host)) => Refusal::Invalid(format!(
                "{address} is a public address: anchors advertise only 10.0.0.0/8, \
                 172.16.0.0/12, 192.168.0.0/16 and 100.64.0.0/10, so its traffic never enters \
                 the overlay"
            )),
            IpAddr::V6(host) if self.standing.realm.overlay_prefix().contains(&host) => {
                Refusal::Unknown(format!(
                    "{address} is an overlay address of this realm, and no anchor with it is \
                     known; `conflux peers` lists those that are"
                ))
            }
            IpAddr::V6(_) => Refusal::Invalid(format!(
                "{address} is neither an overlay address of this realm, nor in {SPELLED}, nor in \
                 a subnet that an anchor advertises: its traffic never enters the overlay"
            )),
            IpAddr::V4(_) => Refusal::Unknown(format!(
                "nobody advertises {address}: a packet for it that enters {} is answered with \
                 ICMP host unreachable; `conflux routes` lists what is advertised",
                self.interface
            )),
        })
    }

    fn explain_answer(&self, explained: &Explained) -> Explain {
        let network = match explained.found {
            Found::Group(network) => Some(network),
            Found::Local | Found::Refused(_) | Found::Nobody => None,
        };
        let why = match explained.found {
            Found::Refused(why) => Some(why.to_string()),
            Found::Nobody => Some("nobody who claims it may be used".to_owned()),
            Found::Local | Found::Group(_) => None,
        };
        let used = explained.flow.as_ref().and_then(|view| view.flow.holder);
        Explain {
            version: VERSION,
            id_letters: self.letters(),
            host: match explained.host {
                Host::Own => None,
                Host::Behind(address) => Some(address),
            },
            destination: explained.destination,
            state: match explained.found {
                Found::Local => RouteState::Served,
                Found::Group(_) => RouteState::Accepted,
                Found::Refused(_) | Found::Nobody => RouteState::Refused,
            },
            why,
            network,
            spelled: match network {
                Some(IpNet::V4(network)) => Some(spelled_network(network)),
                Some(IpNet::V6(_)) | None => None,
            },
            flow: explained.flow.as_ref().map(|view| self.flow_row(view)),
            waits: explained.waits,
            next: next_packet(explained),
            holders: explained
                .holders
                .iter()
                .filter_map(|view| self.explained_holder(view, used == Some(view.peer)))
                .collect(),
        }
    }

    fn explained_holder(&self, view: &HolderView, in_use: bool) -> Option<ExplainedHolder> {
        let key = self.peers.get(view.peer)?.key;
        Some(ExplainedHolder {
            anchor: key.id().to_string(),
            network: view.network,
            in_use,
            share: view.share,
            excluded: view.excluded.map(|why| why.as_str().to_owned()),
            excluded_detail: view.excluded.map(detail),
            draining: self.routes.is_draining(view.peer),
            rtt_micros: micros(view.cost.rtt),
            rtt_measured: view.cost.rtt_measured,
            answer_micros: micros(view.cost.answer),
            answer_measured: view.cost.answer_measured,
            cost_micros: micros(view.cost.total()),
            has_session: view.has_session,
            silent_millis: view
                .silent
                .map(|silent| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX)),
        })
    }
}

fn next_packet(explained: &Explained) -> NextPacket {
    let has_candidates = explained.holders.iter().any(|view| view.share.is_some());
    match (&explained.flow, explained.found) {
        (_, Found::Local) => NextPacket::Local,
        (_, Found::Refused(_)) => NextPacket::Refused,
        (_, Found::Nobody) => NextPacket::Unreachable,
        (_, Found::Group(_)) if explained.waits => NextPacket::Waits,
        (Some(view), Found::Group(_)) if view.flow.holder.is_some() => {
            if view.idle >= conflux_core::flows::IDLE_AFTER {
                NextPacket::Draws
            } else if explained.holder_drains {
                NextPacket::StaysWhileBusy
            } else {
                NextPacket::Stays
            }
        }
        (Some(_) | None, Found::Group(_)) if has_candidates => NextPacket::Draws,
        (Some(_) | None, Found::Group(_)) => NextPacket::Unreachable,
    }
}

fn detail(why: Excluded) -> String {
    match why {
        Excluded::Taint => "its taints and this anchor's forbid data between them".to_owned(),
        Excluded::Refused(why) => why.to_string(),
        Excluded::Wider => "a narrower network has the address".to_owned(),
        Excluded::Left => "it said goodbye".to_owned(),
        Excluded::Failed => "it failed for this machine and has not returned".to_owned(),
        Excluded::Draining => "it asks for no new flows".to_owned(),
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
