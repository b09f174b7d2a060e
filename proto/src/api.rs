//! The JSON of the local socket: what the daemon answers and what the CLI asks. The same text is
//! what `--json` prints, so these types are a contract: each answer carries `version`, fields are
//! only ever added, and a reader skips fields and values it does not know.
//!
//! Not for the wire between anchors (that is CBOR, in [`crate::control`]). Driven by the daemon's
//! local server on one end and the CLI on the other.

mod drain;
mod explain;

pub use drain::{Check, CheckState, Drain, DrainRequest, DrainWait};
pub use explain::{Explain, ExplainedHolder, NextPacket};

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::id::SHORT_ID_LETTERS;

mod trust;

pub use trust::{MemberKind, MemberRow, MemberState, Members, RevokeRequest, Revoked};

/// The version of every answer and request on this page.
pub const VERSION: u32 = 1;

/// The response header that carries the daemon's software version.
pub const SOFTWARE_HEADER: &str = "conflux-version";

/// The answer to `GET /v1/status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// [`VERSION`].
    pub version: u32,
    /// The daemon's software version.
    pub software: String,
    /// Whether the interface is up and its addresses can be bound.
    pub ready: bool,
    /// This anchor's full id.
    pub anchor: String,
    /// How many letters of an id tables show, so that no two known anchors look alike.
    pub id_letters: usize,
    /// The realm's name.
    pub realm: String,
    /// This anchor's overlay address.
    pub overlay: Ipv6Addr,
    /// This anchor's hardware address.
    pub hardware: String,
    /// The IPv4 address the operator chose, if any.
    pub ipv4: Option<Ipv4Status>,
    /// The interface and its MTU.
    pub interface: InterfaceStatus,
    /// This anchor's taints, sorted.
    pub taints: Vec<String>,
    /// Where the daemon listens.
    pub listen: Vec<SocketAddr>,
    /// Subnets behind this anchor.
    pub subnets: Vec<IpNet>,
    /// Ports let in from the overlay, as `tcp:80`; none: all.
    #[serde(default)]
    pub exposed: Vec<String>,
    /// How peers can reach this anchor.
    pub reach: Reach,
    /// Peers with a session.
    pub peers_connected: usize,
    /// Anchors known, this one not counted.
    pub peers_known: usize,
    /// Whether this anchor may invite and renew.
    pub issuer: bool,
    /// When the credential ends, in seconds since 1970.
    pub valid_until_unix: Option<u64>,
    /// Set while no member has admitted this anchor yet.
    pub joining: Option<Joining>,
    /// Seconds since the daemon started.
    pub uptime_seconds: u64,
    /// Set while this anchor drains.
    #[serde(default)]
    pub drain: Option<Drain>,
    /// Set when the configuration has a check.
    #[serde(default)]
    pub check: Option<Check>,
    /// What this anchor carries for others: `on`, `off`, or at most so much, like `100mbit`.
    #[serde(default)]
    pub relay: Option<String>,
    /// What needs the operator's action, one sentence each.
    pub warnings: Vec<String>,
}

/// The operator's IPv4 address in [`Status`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ipv4Status {
    /// The address.
    pub address: Ipv4Addr,
    /// How much of the address space this machine's kernel sends into the interface.
    pub prefix_len: u8,
    /// Whether peers are told; a public address is not.
    pub advertised: bool,
}

/// The interface in [`Status`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Its MTU in bytes.
    pub mtu_bytes: u32,
}

/// How far an unfinished join has come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Joining {
    /// The endpoints that are being tried.
    pub endpoints: Vec<String>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

/// How peers can reach an anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// Anybody can open a path to it.
    Public,
    /// Behind a NAT that keeps one outer address for all destinations.
    NatCone,
    /// Behind a NAT that takes another outer address for each destination.
    NatSymmetric,
    /// Only through another anchor.
    RelayOnly,
    /// Not known yet, or a value of a newer daemon.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Public => "public",
            Self::NatCone => "nat-cone",
            Self::NatSymmetric => "nat-symmetric",
            Self::RelayOnly => "relay-only",
            Self::Unknown => "unknown",
        })
    }
}

/// The answer to `GET /v1/routes`, sorted by network: IPv4 first, then numerically.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Routes {
    /// [`VERSION`].
    pub version: u32,
    /// As in [`Status::id_letters`].
    pub id_letters: usize,
    /// One row per network.
    pub routes: Vec<RouteRow>,
}

/// One network in [`Routes`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RouteRow {
    /// The network.
    pub network: IpNet,
    /// The IPv6 spelling of an IPv4 network.
    pub spelled: Option<Ipv6Net>,
    /// Full ids of every accepted advertiser, sorted, answering or not.
    pub via: Vec<String>,
    /// What this anchor does with it.
    pub state: RouteState,
    /// Why, for states that need a reason.
    pub why: Option<String>,
}

/// What an anchor does with a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteState {
    /// Traffic goes to one of its holders.
    Accepted,
    /// This anchor answers itself.
    Served,
    /// Nobody may offer it to us.
    Refused,
    /// Ours, and not told to anybody.
    Unadvertised,
    /// A value of a newer daemon.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for RouteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Accepted => "accepted",
            Self::Served => "served",
            Self::Refused => "refused",
            Self::Unadvertised => "unadvertised",
            Self::Unknown => "unknown",
        })
    }
}

/// The answer to `GET /v1/peers`, sorted by anchor id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peers {
    /// [`VERSION`].
    pub version: u32,
    /// As in [`Status::id_letters`].
    pub id_letters: usize,
    /// One row per known anchor, this one not counted.
    pub peers: Vec<PeerRow>,
}

/// One anchor in [`Peers`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerRow {
    /// Full id.
    pub anchor: String,
    /// Overlay address.
    pub overlay: Ipv6Addr,
    /// Its IPv4, when it advertises one and may exchange data with us.
    pub ipv4: Option<Ipv4Addr>,
    /// Hardware address.
    pub hardware: String,
    /// How we stand with it.
    pub state: PeerState,
    /// The control connections that are open.
    pub connections: PeerConnections,
    /// Whether data may be exchanged; absent while its taints are not known.
    pub data: Option<bool>,
    /// How it can be reached.
    pub reach: Reach,
    /// Smoothed round-trip time in microseconds.
    pub rtt_micros: Option<u64>,
    /// By what it is reached, while that is known.
    #[serde(default)]
    pub path: Option<PeerPath>,
    /// The real address in use; none by a relay.
    pub endpoint: Option<SocketAddr>,
    /// The largest packet its path is known to carry in one piece, in bytes.
    #[serde(default)]
    pub packet_limit_bytes: Option<u32>,
    /// Whether this client holds it for failed (SPEC section 5); never said to others.
    #[serde(default)]
    pub failed: bool,
    /// Whether it asks for no new flows.
    #[serde(default)]
    pub draining: bool,
}

/// By what a peer is reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerPath {
    /// Its own address.
    Direct,
    /// Another anchor carries, whose full id this is.
    Relay(String),
}

/// How an anchor stands with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerState {
    /// A connection is open.
    Connected,
    /// One is being opened.
    Connecting,
    /// Known from adverts, no connection wanted.
    Known,
    /// There was a connection and it broke.
    Lost,
    /// A value of a newer daemon.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for PeerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Connected => "connected",
            Self::Connecting => "connecting",
            Self::Known => "known",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        })
    }
}

/// Open control connections with one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerConnections {
    /// One that we dialled.
    pub outgoing: bool,
    /// One that the peer dialled.
    pub incoming: bool,
    /// Which of them carries messages.
    pub in_use: Option<Direction>,
}

/// Who dialled a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// We did.
    Outgoing,
    /// The peer did.
    Incoming,
}

/// The answer to `GET /v1/flows`, sorted by host, then destination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Flows {
    /// [`VERSION`].
    pub version: u32,
    /// As in [`Status::id_letters`].
    pub id_letters: usize,
    /// Flows beyond [`MAX_FLOW_ROWS`] that the answer leaves out.
    pub left_out: usize,
    /// One row per flow.
    pub flows: Vec<FlowRow>,
}

/// Rows of one [`Flows`] answer; more are counted in [`Flows::left_out`].
pub const MAX_FLOW_ROWS: usize = 10_000;

/// One flow in [`Flows`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowRow {
    /// The client host behind this anchor; absent for this machine itself.
    pub host: Option<IpAddr>,
    /// The destination, IPv4 spelled as IPv4.
    pub destination: IpAddr,
    /// The network whose group the holder is in.
    pub network: IpNet,
    /// The holder's full id; absent while none answers.
    pub holder: Option<String>,
    /// Why this holder: new, idle, left, failed, taint, single.
    pub reason: String,
    /// Seconds since the holder was chosen.
    pub held_seconds: u64,
    /// Seconds since the last packet either way.
    pub idle_seconds: u64,
    /// Open TCP connections.
    pub open_connections: u32,
    /// Bytes of packets to the holder.
    pub sent_bytes: u64,
    /// Bytes of packets from the holder.
    pub received_bytes: u64,
    /// Packets to the holder; one that crosses the interface in one piece counts once.
    #[serde(default)]
    pub sent_packets: u64,
    /// Packets from the holder.
    #[serde(default)]
    pub received_packets: u64,
    /// Whether the holder drains: the flow leaves it once it is at rest.
    #[serde(default)]
    pub holder_drains: bool,
}

/// The body of `POST /v1/invite`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InviteRequest {
    /// [`VERSION`].
    pub version: u32,
    /// Granted taints; none: all the issuer's.
    #[serde(default)]
    pub taints: Vec<String>,
    /// What the joiner may advertise; none: any private /32, no subnet.
    #[serde(default)]
    pub advertise: Vec<Advertise>,
    /// How long machines can join with it, in seconds.
    pub expires_seconds: u64,
    /// Whether the joiner may invite and renew in turn.
    #[serde(default)]
    pub issuer: bool,
}

/// One `--advertise` of an invitation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advertise {
    /// Whatever receivers accept.
    Any,
    /// Nothing at all.
    None,
    /// This network and networks inside it.
    Network(IpNet),
}

/// The answer to `POST /v1/invite`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Invite {
    /// [`VERSION`].
    pub version: u32,
    /// The ticket's text.
    pub ticket: String,
    /// When it stops letting machines in, in seconds since 1970.
    pub expires_unix: u64,
    /// What the issuer should know, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl Drop for Invite {
    /// Whoever reads a ticket can join: no copy stays behind in memory.
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.ticket);
    }
}

/// The answer to `POST /v1/reload`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reloaded {
    /// [`VERSION`].
    pub version: u32,
    /// Settings that took effect now.
    pub changed: Vec<String>,
    /// Settings that take effect with the next start only.
    pub needs_restart: Vec<String>,
}

/// The answer to `POST /v1/shutdown`, given once the goodbyes are on their way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stopping {
    /// [`VERSION`].
    pub version: u32,
}

/// The answer to a request that was not carried out; the HTTP status tells the class.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// [`VERSION`].
    pub version: u32,
    /// What happened, what was kept and what to do.
    pub error: String,
}

/// Returns how many letters keep the given ids apart: at least [`SHORT_ID_LETTERS`].
pub fn id_letters<'a>(ids: impl IntoIterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.into_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    ids.windows(2)
        .map(|pair| shared_letters(pair[0], pair[1]) + 1)
        .max()
        .unwrap_or(SHORT_ID_LETTERS)
        .max(SHORT_ID_LETTERS)
}

/// Returns the first `letters` letters of an id, or all of it when it has fewer.
pub fn short_id(id: &str, letters: usize) -> &str {
    id.char_indices()
        .nth(letters)
        .map_or(id, |(end, _)| &id[..end])
}

fn shared_letters(first: &str, second: &str) -> usize {
    first
        .bytes()
        .zip(second.bytes())
        .take_while(|(a, b)| a == b)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shown_with_ten_letters_unless_two_would_look_alike() {
        assert_eq!(id_letters([]), 10);
        assert_eq!(id_letters(["abcdefghijklmn", "zbcdefghijklmn"]), 10);
        assert_eq!(id_letters(["abcdefghijklmn", "abcdefghijkxxx"]), 12);
        assert_eq!(short_id("abcdefghijklmn", 12), "abcdefghijkl");
        assert_eq!(short_id("abc", 12), "abc");
    }

    #[test]
    fn values_of_a_newer_daemon_are_read_as_unknown() {
        let reach: Reach = serde_json::from_str("\"teleport\"").unwrap();
        let state: RouteState = serde_json::from_str("\"quarantined\"").unwrap();

        assert_eq!(reach, Reach::Unknown);
        assert_eq!(state, RouteState::Unknown);
    }

    #[test]
    fn fields_of_a_newer_daemon_are_skipped() {
        let text = r#"{"version":1,"changed":[],"needs_restart":[],"later":true}"#;

        let reloaded: Reloaded = serde_json::from_str(text).unwrap();

        assert_eq!(
            reloaded,
            Reloaded {
                version: 1,
                changed: vec![],
                needs_restart: vec![]
            }
        );
    }

    #[test]
    fn an_advertise_is_a_word_or_a_network() {
        let list = vec![
            Advertise::Any,
            Advertise::None,
            Advertise::Network("10.0.0.0/8".parse().unwrap()),
        ];

        let text = serde_json::to_string(&list).unwrap();

        assert_eq!(text, r#"["any","none",{"network":"10.0.0.0/8"}]"#);
        assert_eq!(serde_json::from_str::<Vec<Advertise>>(&text).unwrap(), list);
    }
}
