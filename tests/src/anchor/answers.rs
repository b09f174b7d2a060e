//! What an anchor's tables say, read from `--json` as a script would: a missing field is a fault.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::Value;

use super::Anchor;
use crate::wait;

/// News of peers is written down within two seconds; this is for a busy machine.
const WRITTEN_WITHIN: Duration = Duration::from_secs(20);

/// One row of `routes`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteRow {
    /// The network.
    pub network: String,
    /// Full ids of its accepted advertisers.
    pub via: Vec<String>,
    /// `accepted`, `served`, `refused`, `unadvertised`.
    pub state: String,
    /// The reason, where there is one.
    pub why: Option<String>,
}

/// One row of `peers`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerRow {
    /// The full id of the anchor that carries, when it is reached by a relay.
    pub relay: Option<String>,
    /// Full id.
    pub anchor: String,
    /// `connected`, `connecting`, `known`, `lost`.
    pub state: String,
    /// Its shared address, when it may exchange data with the one asked.
    pub ipv4: Option<String>,
    /// Whether data may be exchanged.
    pub data: Option<bool>,
    /// The round-trip time in microseconds.
    pub rtt_micros: Option<u64>,
    /// The real address in use.
    pub endpoint: Option<SocketAddr>,
    /// The largest packet its path is known to carry in one piece.
    pub packet_limit_bytes: Option<u64>,
    /// Whether the one asked holds it for failed.
    pub failed: bool,
}

/// One row of `flows`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRow {
    /// The client host behind the anchor; none for its own machine.
    pub host: Option<IpAddr>,
    /// The destination.
    pub destination: IpAddr,
    /// The holder's full id.
    pub holder: Option<String>,
    /// Why this holder.
    pub reason: String,
    /// Open TCP connections.
    pub open_connections: u64,
}

impl Anchor {
    /// Returns the answer of one table's `--json`.
    ///
    /// # Panics
    ///
    /// When the command fails or prints no JSON.
    pub fn json(&self, table: &str) -> Value {
        self.json_of([table])
    }

    /// Returns the answer of a command with `--json`.
    ///
    /// # Panics
    ///
    /// As [`Self::json`].
    pub fn json_of<'a>(&self, command: impl IntoIterator<Item = &'a str>) -> Value {
        let command: Vec<&str> = command.into_iter().chain(["--json"]).collect();
        let text = self.say(&command);
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}: {text}", command.join(" ")))
    }

    /// Returns the rows of `peers` as they were printed.
    pub fn peers_raw(&self) -> Vec<Value> {
        list(&self.json("peers"), "peers").to_vec()
    }

    /// Returns the rows of `routes`.
    pub fn routes(&self) -> Vec<RouteRow> {
        let read = |row: &Value| RouteRow {
            network: text(row, "network"),
            via: ids(row, "via"),
            state: text(row, "state"),
            why: row["why"].as_str().map(str::to_owned),
        };
        list(&self.json("routes"), "routes")
            .iter()
            .map(read)
            .collect()
    }

    /// Returns the row of one network, as `routes` prints it.
    pub fn route(&self, network: &str) -> Option<RouteRow> {
        self.routes().into_iter().find(|row| row.network == network)
    }

    /// Returns the rows of `peers`.
    pub fn peers(&self) -> Vec<PeerRow> {
        let read = |row: &Value| PeerRow {
            relay: row["path"]["relay"].as_str().map(str::to_owned),
            anchor: text(row, "anchor"),
            state: text(row, "state"),
            ipv4: row["ipv4"].as_str().map(str::to_owned),
            data: row["data"].as_bool(),
            rtt_micros: row["rtt_micros"].as_u64(),
            endpoint: row["endpoint"].as_str().and_then(|text| text.parse().ok()),
            packet_limit_bytes: row["packet_limit_bytes"].as_u64(),
            failed: row["failed"].as_bool().unwrap_or(false),
        };
        list(&self.json("peers"), "peers")
            .iter()
            .map(read)
            .collect()
    }

    /// Returns how many peers it is connected with.
    pub fn connected(&self) -> usize {
        let peers = self.peers();
        let connected = peers.iter().filter(|peer| peer.state == "connected");
        connected.count()
    }

    /// Says whether it is connected with the anchor of this id.
    pub fn is_connected_with(&self, id: &str) -> bool {
        let mut peers = self.peers().into_iter();
        peers.any(|peer| peer.anchor == id && peer.state == "connected")
    }

    /// Returns the row of `members` with this id.
    pub fn member(&self, id: &str) -> Option<Value> {
        let answer = self.json("members");
        let mut rows = list(&answer, "members").iter();
        rows.find(|row| row["id"] == id).cloned()
    }

    /// Says whether `status` warns in these words.
    pub fn warns(&self, words: &str) -> bool {
        let warnings = list(&self.json("status"), "warnings").to_vec();
        let mut texts = warnings.iter().filter_map(Value::as_str);
        texts.any(|warning| warning.contains(words))
    }

    /// Waits until it has written down whom it knows, which a restart or a copy begins with.
    ///
    /// # Panics
    ///
    /// When it does not within `WRITTEN_WITHIN`.
    pub fn wait_written(&self) {
        let file = format!("{}/state/adverts", self.directory());
        let file = self.host().outside_path(&file);
        wait::until(WRITTEN_WITHIN, "known anchors to be written down", || {
            file.exists()
        });
    }

    /// Returns the rows of `flows`.
    pub fn flows(&self) -> Vec<FlowRow> {
        let read = |row: &Value| FlowRow {
            host: row["host"].as_str().and_then(|text| text.parse().ok()),
            destination: text(row, "destination").parse().expect("an address"),
            holder: row["holder"].as_str().map(str::to_owned),
            reason: text(row, "reason"),
            open_connections: row["open_connections"].as_u64().expect("a number"),
        };
        list(&self.json("flows"), "flows")
            .iter()
            .map(read)
            .collect()
    }

    /// Returns the value of a metric without labels.
    ///
    /// # Panics
    ///
    /// When it does not stand on exactly one line.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.say(["metrics"]);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(name)).collect();
        let [line] = lines[..] else {
            panic!("{} lines with {name}: {lines:?}", lines.len());
        };
        let value = line
            .split_whitespace()
            .nth(1)
            .and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no number in {line:?}"))
    }
}

pub(super) fn text(row: &Value, field: &str) -> String {
    let text = row[field].as_str();
    text.unwrap_or_else(|| panic!("no text {field}: {row}"))
        .to_owned()
}

fn ids(row: &Value, field: &str) -> Vec<String> {
    let texts = list(row, field).iter().map(Value::as_str);
    let ids: Option<Vec<&str>> = texts.collect();
    let ids = ids.unwrap_or_else(|| panic!("not only text in {field}: {row}"));
    ids.into_iter().map(str::to_owned).collect()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field]
        .as_array()
        .unwrap_or_else(|| panic!("no list {field}: {value}"))
}
