//! Puts the daemon's answers into words and tables. The columns are a contract (scripts cut
//! them); the same answer in full is what `--json` prints.

use std::fmt::Display;

use conflux_proto::api::{
    Check, Direction, FlowRow, Flows, PeerConnections, Peers, Routes, Status, short_id,
};
use ipnet::{IpNet, Ipv6Net};

use crate::drain;
use crate::table::Table;

/// Returns the screen of `status`.
pub(crate) fn status(status: &Status) -> String {
    let ipv4 = status.ipv4.map_or_else(
        || "none: this machine only calls others".to_owned(),
        |ipv4| {
            let told = if ipv4.advertised {
                "advertised"
            } else {
                "public, not advertised"
            };
            format!("{}/{} ({told})", ipv4.address, ipv4.prefix_len)
        },
    );
    let credential = match (status.valid_until_unix, status.issuer) {
        (Some(until), true) => format!("valid until {}, may invite", date(until)),
        (Some(until), false) => format!("valid until {}", date(until)),
        (None, true) => "may invite".to_owned(),
        (None, false) => "-".to_owned(),
    };
    let mut rows = vec![
        ("anchor", status.anchor.clone()),
        ("realm", status.realm.clone()),
        ("overlay", status.overlay.to_string()),
        ("hardware", status.hardware.clone()),
        ("ipv4", ipv4),
        (
            "interface",
            format!(
                "{} (MTU {})",
                status.interface.name, status.interface.mtu_bytes
            ),
        ),
        ("taints", joined(&status.taints, ",")),
        ("subnets", joined(&status.subnets, ",")),
        (
            "exposed",
            if status.exposed.is_empty() {
                "all ports".to_owned()
            } else {
                joined(&status.exposed, ",")
            },
        ),
        ("listen", joined(&status.listen, ",")),
        ("reach", status.reach.to_string()),
        (
            "peers",
            format!(
                "{} connected, {} known",
                status.peers_connected, status.peers_known
            ),
        ),
        (
            "relay",
            match status.relay.as_deref() {
                None | Some("on") => "carries for others".to_owned(),
                Some("off") => "carries nothing for others".to_owned(),
                Some(rate) => format!("carries at most {rate} for others"),
            },
        ),
        ("credential", credential),
        ("uptime", span(status.uptime_seconds)),
    ];
    if let Some(drain) = &status.drain {
        let since = span(drain.since_seconds);
        let left = drain::left(drain, status.id_letters);
        rows.push(("draining", format!("for {since}. {left}")));
    }
    if let Some(check) = &status.check {
        rows.push(("check", self::check(check)));
    }
    if let Some(joining) = &status.joining {
        let why = joining
            .last_error
            .as_ref()
            .map_or_else(String::new, |why| format!(" ({why})"));
        rows.push((
            "joining",
            format!("asking {}{why}", joined(&joining.endpoints, ",")),
        ));
    }
    if !status.ready {
        rows.push(("state", "starting".to_owned()));
    }
    let mut text = String::new();
    for (name, value) in rows {
        let value = if value.is_empty() { "-" } else { &value };
        text.push_str(&format!("{name:<11} {value}\n"));
    }
    if status.warnings.is_empty() {
        text.push_str("warnings    none\n");
    }
    for warning in &status.warnings {
        text.push_str(&format!("warning     {warning}\n"));
    }
    text
}

fn check(check: &Check) -> String {
    let withdrawn = if check.withdrawn {
        ", address withdrawn"
    } else {
        ""
    };
    let error = check
        .last_error
        .as_ref()
        .map_or_else(String::new, |error| format!(" (last run: {error})"));
    format!(
        "{} for {}{withdrawn}: {}{error}",
        check.state,
        span(check.since_seconds),
        check.spec
    )
}

/// Returns the table of `routes`.
pub(crate) fn routes(routes: &Routes) -> String {
    let mut table = Table::new(&["NETWORK", "VIA", "STATE", "WHY"]);
    for row in &routes.routes {
        let via: Vec<&str> = row
            .via
            .iter()
            .map(|id| short_id(id, routes.id_letters))
            .collect();
        table.push([
            network(row.network, row.spelled),
            via.join(","),
            row.state.to_string(),
            row.why.clone().unwrap_or_default(),
        ]);
    }
    table.text()
}

/// Returns the table of `peers`.
pub(crate) fn peers(peers: &Peers) -> String {
    let mut table = Table::new(&[
        "ANCHOR", "OVERLAY", "IPV4", "HARDWARE", "STATE", "CONN", "DATA", "REACH", "RTT",
    ]);
    for row in &peers.peers {
        let data = match row.data {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        table.push([
            short_id(&row.anchor, peers.id_letters).to_owned(),
            row.overlay.to_string(),
            row.ipv4.map_or_else(String::new, |ipv4| ipv4.to_string()),
            row.hardware.clone(),
            row.state.to_string(),
            connections(row.connections),
            data.to_owned(),
            row.reach.to_string(),
            row.rtt_micros.map_or_else(String::new, rtt),
        ]);
    }
    table.text()
}

/// Returns the table of `flows`.
pub(crate) fn flows(flows: &Flows) -> String {
    let mut table = Table::new(&[
        "HOST",
        "DESTINATION",
        "NETWORK",
        "HOLDER",
        "REASON",
        "HELD",
        "IDLE",
        "OPEN",
        "SENT",
        "RECEIVED",
    ]);
    for row in &flows.flows {
        table.push(flow(row, flows.id_letters));
    }
    table.text()
}

fn flow(row: &FlowRow, id_letters: usize) -> [String; 10] {
    let holder = row
        .holder
        .as_deref()
        .map_or("", |id| short_id(id, id_letters));
    [
        row.host
            .map_or_else(|| "own".to_owned(), |host| host.to_string()),
        row.destination.to_string(),
        row.network.to_string(),
        holder.to_owned(),
        row.reason.clone(),
        span(row.held_seconds),
        span(row.idle_seconds),
        row.open_connections.to_string(),
        bytes(row.sent_bytes),
        bytes(row.received_bytes),
    ]
}

/// Returns a wall time as a UTC date.
pub(crate) fn date(unix_seconds: u64) -> String {
    // Days to a civil date by eras of 400 years that begin on March 1st.
    let days = unix_seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Returns a span by its two largest units.
pub(crate) fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{minutes}m"),
        (_, _, _) => format!("{days}d{hours}h"),
    }
}

fn joined<T: Display>(values: &[T], separator: &str) -> String {
    values
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(separator)
}

/// Returns a network with its other spelling.
pub(crate) fn network(network: IpNet, spelled: Option<Ipv6Net>) -> String {
    spelled.map_or_else(
        || network.to_string(),
        |spelled| format!("{network} ({spelled})"),
    )
}

fn connections(connections: PeerConnections) -> String {
    let both = connections.outgoing && connections.incoming;
    let shown = |open: bool, name: &str, direction: Direction| {
        let star = if both && connections.in_use == Some(direction) {
            "*"
        } else {
            ""
        };
        open.then(|| format!("{name}{star}"))
    };
    [
        shown(connections.outgoing, "out", Direction::Outgoing),
        shown(connections.incoming, "in", Direction::Incoming),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(",")
}

/// Returns a round-trip time: below 1 ms rounded to 10 µs, below 1 s to 0.1 ms, else to 0.1 s.
pub(crate) fn rtt(micros: u64) -> String {
    let tens = (micros + 5) / 10;
    if tens < 100 {
        return format!("{}µs", tens * 10);
    }
    let tenths = (micros + 50) / 100;
    if tenths < 10_000 {
        return match tenths % 10 {
            0 => format!("{}ms", tenths / 10),
            tenth => format!("{}.{tenth}ms", tenths / 10),
        };
    }
    let tenths = (micros + 50_000) / 100_000;
    format!("{}.{}s", tenths / 10, tenths % 10)
}

fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut scaled = count;
    let mut rest = 0;
    while scaled >= 1024 && unit + 1 < units.len() {
        rest = scaled % 1024;
        scaled /= 1024;
        unit += 1;
    }
    if unit == 0 {
        format!("{scaled}B")
    } else {
        format!("{scaled}.{}{}", rest * 10 / 1024, units[unit])
    }
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
