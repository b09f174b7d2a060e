//! The segment at kernel speed: a hub namespace with a bridge, one veth pair per host, and nft
//! rules for cuts and losses. No delay and no rate: this kernel has no netem. No largest frame
//! either: segments cross a veth glued together, and nft sees the length of the whole only.

use std::fmt::Write;

use crate::host::Host;
use crate::links::{Links, MAX_PORTS, Way};

/// The hub; its namespace holds the bridge.
pub(crate) struct Hub {
    host: Host,
}

impl Hub {
    pub(crate) fn new() -> Self {
        let host = Host::new("hub", MAX_PORTS);
        host.ip([
            "link add name hub type bridge forward_delay 0 mcast_snooping 0",
            "link set hub up",
        ]);
        Self { host }
    }

    /// Gives `host` a network card on the bridge.
    pub(crate) fn plug(&self, host: &Host) {
        let port = port_name(host.port());
        self.host.ip([
            format!(
                "link add {port} type veth peer name eth0 netns {}",
                host.init()
            ),
            format!("link set {port} master hub"),
            format!("link set {port} up"),
        ]);
    }

    /// Makes the bridge do what the table says.
    ///
    /// # Panics
    ///
    /// When the table asks for delay, jitter, rate or a largest frame.
    pub(crate) fn follow(&self, links: &Links, ports: usize) {
        let mut rules = String::from("add table bridge lab\ndelete table bridge lab\n");
        rules += "table bridge lab {\n chain ways {\n  type filter hook forward priority 0\n";
        for way in ways(ports) {
            let is = links.conditions(way);
            assert!(
                is.delay.is_zero() && is.jitter.is_zero() && is.rate.is_none(),
                "delay and rate need the lab's own switch: Lab::new"
            );
            assert!(
                is.largest_frame_bytes.is_none(),
                "a largest frame needs the lab's own switch: Lab::new"
            );
            let pair = format!(
                "  iifname \"{}\" oifname \"{}\"",
                port_name(way.from),
                port_name(way.to)
            );
            let lost = (is.loss * 1000.0).round();
            let written = if is.cut {
                writeln!(rules, "{pair} drop")
            } else if lost > 0.0 {
                writeln!(rules, "{pair} numgen random mod 1000 < {lost} drop")
            } else {
                Ok(())
            };
            written.expect("text can be appended to a string");
        }
        rules += " }\n}\n";
        self.host
            .command("nft")
            .args(["-f", "-"])
            .input(rules)
            .must();
    }
}

fn ways(ports: usize) -> impl Iterator<Item = Way> {
    (0..ports).flat_map(move |from| (0..ports).map(move |to| Way { from, to }))
}

fn port_name(port: usize) -> String {
    format!("port{port}")
}
