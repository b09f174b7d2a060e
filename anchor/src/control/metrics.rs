//! The metrics of an anchor in Prometheus text, by `prometheus-client`. Each series is declared
//! once here; labels come from closed lists, never from a peer.

use std::sync::atomic::AtomicU64;

use conflux_core::endpoints::Unfit;
use conflux_core::plane::{Counters, DropReason, Sizes};
use conflux_core::reason::Reason;
use conflux_core::time::Mono;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

use super::Anchor;
use super::answers::no_data_thread;
use crate::api::Refusal;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl Anchor {
    /// Returns all series, HELP and TYPE included.
    pub(super) async fn metrics(&self, now: Mono) -> Result<String, Refusal> {
        let (counters, sizes, groups) = self
            .data
            .ask(|plane, _| {
                (
                    plane.counters().clone(),
                    plane.sizes(),
                    plane.answering_groups(),
                )
            })
            .await
            .ok_or_else(no_data_thread)?;
        let mut registry = Registry::with_prefix("anchor");
        self.register_realm(&mut registry, now, groups);
        register_packets(&mut registry, &counters);
        register_flows(&mut registry, &counters, sizes);
        let mut text = String::new();
        encode(&mut text, &registry)
            .map_err(|_| Refusal::Failed("the metrics could not be written".to_owned()))?;
        Ok(text)
    }

    fn register_realm(&self, registry: &mut Registry, now: Mono, groups: usize) {
        let connected = self
            .peers
            .iter()
            .filter(|(peer, _)| self.peers.is_connected(*peer))
            .count();
        gauge(
            registry,
            "route_groups",
            "Accepted networks that at least two answering anchors offer to this one",
            groups as u64,
        );
        gauge(
            registry,
            "routes",
            "Networks known, in any state",
            self.routes.rows().len() as u64,
        );
        gauge(
            registry,
            "peers_known",
            "Anchors of the realm known, this one not counted",
            (self.membership.realm_size() - 1) as u64,
        );
        gauge(
            registry,
            "relay_pairs",
            "Pairs of anchors for which this one carries datagrams",
            self.relays.pairs(now) as u64,
        );
        let unfit: Family<ReasonLabel, Gauge<u64, AtomicU64>> = Family::default();
        for why in Unfit::ALL {
            let reason = why.as_str();
            let count = self.peers.unfit.of(why);
            unfit.get_or_create(&ReasonLabel { reason }).set(count);
        }
        registry.register(
            "endpoints_refused",
            "Addresses named by others to which nothing is sent, by reason",
            unfit,
        );
        gauge(
            registry,
            "draining",
            "Whether this anchor asks for no new flows",
            u64::from(self.drain.is_some()),
        );
        gauge(
            registry,
            "check_withdrawn",
            "Whether the check of this machine's own service keeps its address from others",
            u64::from(self.is_withdrawn()),
        );
        let check_failures = self.check_status(now).map_or(0, |check| check.failures);
        counter(
            registry,
            "check_failures",
            "Runs of the check of this machine's own service that failed",
            check_failures,
        );
        gauge(
            registry,
            "peers_connected",
            "Anchors with a control connection",
            connected as u64,
        );
        let uptime = now.since(self.started).as_secs_f64();
        registry.register_with_unit(
            "uptime",
            "Time since this anchor started",
            Unit::Seconds,
            ConstGauge::new(uptime),
        );
        let counts = self.membership.counts();
        counter(
            registry,
            "adverts_refused",
            "Adverts and goodbyes that did not hold",
            counts.refused,
        );
        counter(
            registry,
            "adverts_conflicting",
            "Adverts of an edition of which another was known",
            counts.conflicting,
        );
        counter(
            registry,
            "adverts_too_often",
            "Adverts of anchors that said too much",
            counts.too_often,
        );
        counter(
            registry,
            "handshakes_turned_away",
            "Datagrams that would have opened a control connection, too many to be looked at",
            self.quic.turned_away(),
        );
        gauge(
            registry,
            "revocations",
            "Revocations held",
            self.membership.revocations().len() as u64,
        );
        counter(
            registry,
            "events_lost",
            "Events of the packet way that found the control loop's queue full",
            self.data.lost_events(),
        );
    }
}

fn register_packets(registry: &mut Registry, counters: &Counters) {
    counter(
        registry,
        "host_packets",
        "Packets taken from the interface; a super-packet counts once",
        counters.host_packets,
    );
    counter(
        registry,
        "host_bytes",
        "Bytes taken from the interface",
        counters.host_bytes,
    );
    counter(
        registry,
        "delivered_packets",
        "Packets written to the interface; a super-packet counts once",
        counters.delivered_packets,
    );
    counter(
        registry,
        "delivered_bytes",
        "Bytes written to the interface",
        counters.delivered_bytes,
    );
    counter(
        registry,
        "frames_sent",
        "Frames sealed and sent",
        counters.frames_sent,
    );
    counter(
        registry,
        "frames_received",
        "Authentic frames received",
        counters.frames_received,
    );
    counter(
        registry,
        "relayed_datagrams",
        "Datagrams carried for others",
        counters.relayed_datagrams,
    );
    counter(
        registry,
        "relayed_bytes",
        "Bytes carried for others, outer headers included",
        counters.relayed_bytes,
    );
    let dropped: Family<ReasonLabel, Gauge<u64, AtomicU64>> = Family::default();
    for reason in DropReason::ALL {
        dropped
            .get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            })
            .set(counters.dropped(*reason));
    }
    registry.register(
        "dropped_packets",
        "Packets that went no further, by reason",
        dropped,
    );
}

fn register_flows(registry: &mut Registry, counters: &Counters, sizes: Sizes) {
    gauge(registry, "flows", "Flows in the table", sizes.flows as u64);
    gauge(
        registry,
        "connections",
        "Connections noted",
        sizes.connections as u64,
    );
    gauge(
        registry,
        "clients",
        "Client addresses given out",
        sizes.clients as u64,
    );
    counter(
        registry,
        "connections_reset",
        "Connections reset because their flow moved or lost its last holder",
        counters.resets,
    );
    counter(
        registry,
        "syn_replays",
        "SYNs sent again to a new holder",
        counters.syn_replays,
    );
    counter(
        registry,
        "holder_failures",
        "Times a holder failed for this machine",
        counters.holder_failures,
    );
    counter(
        registry,
        "local_faults",
        "Deadlines put down to this machine's own network",
        counters.local_faults,
    );
    counter(
        registry,
        "flows_evicted",
        "Flows removed because the table was full",
        counters.flows_evicted,
    );
    let chosen: Family<ReasonLabel, Gauge<u64, AtomicU64>> = Family::default();
    for reason in Reason::ALL {
        chosen
            .get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            })
            .set(counters.chosen(reason));
    }
    registry.register("holders_chosen", "Choices of a holder, by reason", chosen);
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(
        name,
        help,
        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)),
    );
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(name, help, ConstCounter::new(value));
}
