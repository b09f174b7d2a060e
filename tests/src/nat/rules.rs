//! The kinds as rules of nftables, installed in a router whose outside is `eth0`.
//!
//! A packet from outside that belongs to no mapping is dropped before the router's own stack sees
//! it: the kernel would else remember it as the router's, and give the machine inside another port
//! for the same destination when it sends later, so that a cone would turn symmetric by a race.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::Nat;
use crate::host::Host;

/// Which ports mappings get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ports {
    /// The machine's own.
    Kept,
    /// Of a range that differs for each number up to 9, and never the machine's own.
    Renumbered(u16),
}

/// The first range of [`Ports::Renumbered`]; below what machines take by themselves.
const FIRST_PORT: u16 = 20_000;

/// Ports of a range; ten of them end below the ephemeral ones.
const RANGE_PORTS: u16 = 1_000;

/// Returns the rules of a router; `public` is its address outside.
pub(super) fn ruleset(nat: Nat, ports: Ports, public: Ipv4Addr, lifetime: Duration) -> String {
    let seconds = lifetime.as_secs();
    let masquerade = match ports {
        Ports::Kept => "masquerade".to_owned(),
        Ports::Renumbered(number) => {
            let first = FIRST_PORT + RANGE_PORTS * (number % 10);
            format!(
                "meta l4proto udp masquerade to :{first}-{}",
                first + RANGE_PORTS - 1
            )
        }
    };
    match nat {
        Nat::Open => String::new(),
        Nat::PortRestricted => table("", &masquerade, "", ""),
        Nat::Symmetric => table("", "masquerade fully-random", "", ""),
        Nat::FullCone => {
            table(
                &map("inet_service", seconds),
                &masquerade,
                "oifname \"eth0\" meta l4proto udp update @mapped { udp sport : ip saddr }",
                // Also from inside: such routers send a machine's packet for the outside address back
                // in, as if it had come from there.
                &format!("ip daddr {public} dnat to udp dport map @mapped"),
            ) + &hairpin(public)
        }
        Nat::Restricted => table(
            &map("inet_service . ipv4_addr", seconds),
            &masquerade,
            "oifname \"eth0\" meta l4proto udp update @mapped { udp sport . ip daddr : ip saddr }",
            "iifname \"eth0\" dnat to udp dport . ip saddr map @mapped",
        ),
        Nat::Carrier => unreachable!("two routers, each of a kind of its own"),
    }
}

/// Replaces whatever rules a router has and sets how long its mappings live.
///
/// # Panics
///
/// When the kernel refuses either.
pub(super) fn install(router: &Host, ruleset: &str, lifetime: Duration) {
    router
        .command("nft")
        .args(["-f", "-"])
        .input(format!("flush ruleset\n{ruleset}"))
        .must();
    router.enter(|| {
        for state in ["udp_timeout", "udp_timeout_stream"] {
            let setting = format!("/proc/sys/net/netfilter/nf_conntrack_{state}");
            // Absent until the first rule that needs it, as in an open router.
            if std::path::Path::new(&setting).exists() {
                std::fs::write(&setting, lifetime.as_secs().to_string())
                    .unwrap_or_else(|error| panic!("{setting}: {error}"));
            }
        }
    });
}

fn map(key: &str, seconds: u64) -> String {
    format!(
        "map mapped {{\n type {key} : ipv4_addr\n size 65535\n flags dynamic,timeout\n timeout {seconds}s\n }}\n"
    )
}

fn table(map: &str, outgoing: &str, note: &str, incoming: &str) -> String {
    format!(
        "table ip nat {{
            {map}
            chain outgoing {{
                type nat hook postrouting priority srcnat
                oifname \"eth0\" {outgoing}
            }}
            chain incoming {{
                type nat hook prerouting priority dstnat
                {incoming}
            }}
            chain through {{
                type filter hook forward priority filter
                iifname \"eth0\" ct state new ct status & dnat == 0 drop
                {note}
            }}
            chain own {{
                type filter hook input priority filter
                iifname \"eth0\" ct state new drop
            }}
        }}\n"
    )
}

fn hairpin(public: Ipv4Addr) -> String {
    format!(
        "table ip hairpin {{
            chain outgoing {{
                type nat hook postrouting priority srcnat + 1
                iifname \"lan*\" oifname \"lan*\" ct status dnat snat to {public}
            }}
        }}\n"
    )
}
