//! Why a flow is where it is, for `conflux explain` (SPEC section 8): the flow, every holder a draw
//! would look at with its cost and probability, and everybody who claims the address and is left
//! out, with the reason. Reads and changes nothing, costs included, so that asking moves nothing.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use smallvec::SmallVec;

use super::outbound::Holders;
use super::timers::network_of;
use super::{FlowView, Plane};
use crate::choose::shares;
use crate::cost::Cost;
use crate::flows::FlowKey;
use crate::ids::{Host, PeerIx};
use crate::routes::{Route, Standing, Why};
use crate::time::Now;
use crate::translate::unspell;

/// What is known of one client host's traffic to one address.
#[derive(Clone, Debug)]
pub struct Explained {
    /// Who talks.
    pub host: Host,
    /// To which address, in its IPv4 spelling where there are two.
    pub destination: IpAddr,
    /// Where the address lies.
    pub found: Found,
    /// The flow, when there is one.
    pub flow: Option<FlowView>,
    /// The flow's first packet waits for a holder to answer.
    pub waits: bool,
    /// The flow's holder drains.
    pub holder_drains: bool,
    /// Everybody who claims the address, candidates first, by falling share.
    pub holders: Vec<HolderView>,
}

/// Where an address lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Here: this machine's kernel answers.
    Local,
    /// With the holders of this network.
    Group(IpNet),
    /// Advertised, and nobody who does is believed.
    Refused(Why),
    /// Nobody advertises it.
    Nobody,
}

/// One who claims the address.
#[derive(Clone, Copy, Debug)]
pub struct HolderView {
    /// Who.
    pub peer: PeerIx,
    /// By which network.
    pub network: IpNet,
    /// The probability by which a new flow is given to it; `None` for those left out.
    pub share: Option<f64>,
    /// Why it is left out; `None` for a candidate.
    pub excluded: Option<Excluded>,
    /// What it costs, measured or assumed.
    pub cost: Cost,
    /// Data can be sealed for it now; otherwise the first packet waits for keys.
    pub has_session: bool,
    /// Time since its last authentic frame.
    pub silent: Option<Duration>,
}

/// Why one who claims an address gets no new flow. A closed list, in the order in which the
/// reasons are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excluded {
    /// Its taints and this anchor's forbid data.
    Taint,
    /// Its claim is not believed.
    Refused(Why),
    /// Its network is wider than another one that holds the address.
    Wider,
    /// It said goodbye.
    Left,
    /// It failed for this client.
    Failed,
    /// It drains.
    Draining,
}

/// A host this anchor does not speak for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuchHost;

impl Excluded {
    /// Returns the word that scripts see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Taint => "taint",
            Self::Refused(_) => "refused",
            Self::Wider => "wider",
            Self::Left => "left",
            Self::Failed => "failed",
            Self::Draining => "draining",
        }
    }
}

impl Plane {
    /// Explains the traffic of `from` (this machine when absent) to `destination`.
    ///
    /// # Errors
    /// When `from` is neither an address of this machine nor inside one of its subnets.
    pub fn explain(
        &self,
        now: Now,
        destination: IpAddr,
        from: Option<IpAddr>,
    ) -> Result<Explained, NoSuchHost> {
        let destination = match destination {
            IpAddr::V6(address) => unspell(address).map_or(destination, IpAddr::V4),
            IpAddr::V4(_) => destination,
        };
        let host = match from {
            None => Host::Own,
            Some(address) => self.host_of(address).ok_or(NoSuchHost)?,
        };
        let key = FlowKey { host, destination };
        let id = self.flows.find(&key);
        let flow = id.and_then(|id| self.view_flow(now, id));
        let found = match self.routes.lookup(destination) {
            Some(Route::Local) => Found::Local,
            Some(Route::Group(group)) => Found::Group(group.network),
            Some(Route::Refused(why)) => Found::Refused(why),
            None => Found::Nobody,
        };
        Ok(Explained {
            host,
            destination,
            found,
            waits: id.is_some_and(|id| self.holds.contains(id)),
            holder_drains: self.is_on_draining(flow.as_ref().and_then(|view| view.flow.holder)),
            flow,
            holders: self.view_holders(now, destination, found),
        })
    }

    fn view_holders(&self, now: Now, destination: IpAddr, found: Found) -> Vec<HolderView> {
        let eligible = match self.eligible(destination) {
            Ok((_, holders)) => holders,
            Err(_) => Holders::new(),
        };
        let mut costs = SmallVec::<[Cost; 8]>::new();
        self.costs.costs(now.mono, &eligible, &mut costs);
        let shares = shares(&costs);
        let claimants = self.routes.claimants(destination);
        let mut views: Vec<HolderView> = Vec::with_capacity(claimants.len());
        for claim in claimants {
            let peer = claim.facts.peer;
            let place = match found {
                Found::Group(network) if claim.network == network => {
                    eligible.iter().position(|&candidate| candidate == peer)
                }
                Found::Group(_) | Found::Local | Found::Refused(_) | Found::Nobody => None,
            };
            let cost = match place {
                Some(place) => costs[place],
                None => self.cost_beside(now, peer, &eligible),
            };
            let view = self.view_peer(now.mono, peer);
            views.push(HolderView {
                peer,
                network: claim.network,
                share: place.map(|place| shares[place]),
                excluded: match place {
                    Some(_) => None,
                    None => Some(self.excluded(peer, claim.network, claim.standing, found)),
                },
                cost,
                has_session: view.has_session,
                silent: view.silent,
            });
        }
        views.sort_by(|a, b| {
            let share = |view: &HolderView| view.share.unwrap_or(-1.0);
            share(b).total_cmp(&share(a)).then(a.peer.cmp(&b.peer))
        });
        views
    }

    /// Returns what one that is left out would cost beside those that are not.
    fn cost_beside(&self, now: Now, peer: PeerIx, eligible: &[PeerIx]) -> Cost {
        let mut group: Holders = SmallVec::from_slice(eligible);
        group.push(peer);
        let mut costs = SmallVec::<[Cost; 8]>::new();
        self.costs.costs(now.mono, &group, &mut costs);
        costs[group.len() - 1]
    }

    fn excluded(&self, peer: PeerIx, network: IpNet, standing: Standing, found: Found) -> Excluded {
        match standing {
            Standing::Taint => return Excluded::Taint,
            Standing::Refused(why) => return Excluded::Refused(why),
            Standing::Holder => {}
        }
        if let Found::Group(chosen) = found
            && chosen != network
        {
            return Excluded::Wider;
        }
        if self.left.contains(&peer) {
            Excluded::Left
        } else if self.liveness.is_failed(peer) {
            Excluded::Failed
        } else if self.routes.is_draining(peer) {
            Excluded::Draining
        } else {
            // A network of this machine's own is narrower, or as narrow, and wins.
            Excluded::Wider
        }
    }
}

impl FlowView {
    /// Returns the network whose group the flow's holder is in.
    pub fn network(&self) -> IpNet {
        network_of(self.flow.key.destination, self.flow.prefix_len)
    }
}
