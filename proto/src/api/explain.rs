//! The answer to `GET /v1/explain?address=A[&from=HOST]`: why a flow is where it is.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::{FlowRow, RouteState};

/// Why the traffic of one client host to one address goes where it goes, sorted with the holders
/// that new flows may get first, by falling share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Explain {
    /// [`super::VERSION`].
    pub version: u32,
    /// As in [`super::Status::id_letters`].
    pub id_letters: usize,
    /// The client host behind this anchor; absent for this machine itself.
    pub host: Option<IpAddr>,
    /// The destination, IPv4 spelled as IPv4.
    pub destination: IpAddr,
    /// What this anchor does with the address.
    pub state: RouteState,
    /// Why, when it is refused.
    pub why: Option<String>,
    /// The network by which it is found.
    pub network: Option<IpNet>,
    /// That network's IPv6 spelling.
    pub spelled: Option<Ipv6Net>,
    /// The flow, while there is one.
    pub flow: Option<FlowRow>,
    /// Whether the flow's first packet waits for a holder to answer.
    pub waits: bool,
    /// What becomes of the next packet.
    pub next: NextPacket,
    /// Everybody who claims the address.
    pub holders: Vec<ExplainedHolder>,
}

/// What becomes of the next packet of this host to this address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NextPacket {
    /// It goes to the flow's holder.
    Stays,
    /// It goes to the flow's holder; once the flow is at rest it leaves that one, which drains.
    StaysWhileBusy,
    /// It waits for a holder to answer, as the flow's first packet does.
    Waits,
    /// It draws a holder; one of an open TCP connection stays with the flow's.
    Draws,
    /// It is answered with ICMP host unreachable: no holder answers.
    Unreachable,
    /// It is answered with ICMP administratively prohibited: the network is refused.
    Refused,
    /// This machine's kernel takes it.
    Local,
    /// A value of a newer daemon.
    #[serde(other)]
    Unknown,
}

/// One who claims the address.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExplainedHolder {
    /// Full id.
    pub anchor: String,
    /// The network by which it claims the address.
    pub network: IpNet,
    /// Whether the flow is on it.
    pub in_use: bool,
    /// The probability by which a new flow is given to it, 0 to 1; absent for those left out.
    pub share: Option<f64>,
    /// Why it gets no new flow: taint, refused, wider, left, failed, draining.
    pub excluded: Option<String>,
    /// More about that, for people.
    pub excluded_detail: Option<String>,
    /// Whether it drains; it is a candidate all the same when all do.
    pub draining: bool,
    /// Round-trip time in microseconds.
    pub rtt_micros: u64,
    /// Whether it was measured; an assumed one is the larger of the group's median and 50 ms.
    pub rtt_measured: bool,
    /// Answer time in microseconds, after ageing.
    pub answer_micros: u64,
    /// Whether it was measured within 15 minutes; an assumed one is the group's median, or 0.
    pub answer_measured: bool,
    /// What a draw goes by, in microseconds: the sum of the two.
    pub cost_micros: u64,
    /// Whether data can be sealed for it now.
    pub has_session: bool,
    /// Milliseconds since it was last heard.
    pub silent_millis: Option<u64>,
}
