//! Holders that drain (SPEC section 8): they get no new flow while another holder answers, and
//! keep those they have until these come to rest. What that means is decided here, on the client;
//! a draining holder turns nobody away, and is told how many flows it still has.
//!
//! A flow is at rest when nothing would be hurt by another holder: no open TCP connection, no
//! datagrams lately ([`crate::connections::Connections::is_at_rest`]). It moves then as it does
//! after a leave, either when looked at ([`Plane::release_draining`], driven by the control loop)
//! or at the SYN of its next connection, whichever comes first. A flow that is never at rest stays:
//! it is the operator's to decide how long to wait.

use std::net::IpAddr;
use std::time::Duration;

use super::outbound::Holders;
use super::{DropReason, Plane};
use crate::ids::{FlowId, PeerIx};
use crate::packet::Reason as Unreachable;
use crate::reason::Reason;
use crate::routes::Route;
use crate::time::Now;

/// Flows of one draining holder looked at in one go, so that packets never wait for the upkeep of
/// a large table: some 2 ms.
const LOOKED_AT: usize = 16_384;

/// After a SYN that found its flow busy, none is looked at for this long: a look takes time in
/// proportion to the flow's connections, and the next turn of the control loop looks anyway.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What rests on a draining holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resting {
    /// The holder.
    pub peer: PeerIx,
    /// Flows of this anchor it still has that are not at rest; at least this many when there are
    /// more than can be looked at in one go.
    pub flows: u32,
    /// Flows that left it just now.
    pub moved: u32,
}

impl Plane {
    /// Moves the flows that have come to rest away from each draining holder, and returns what
    /// remains on those with whom data may be exchanged. Call it every second or so while
    /// [`crate::routes::Routes::has_draining`].
    pub fn release_draining(&mut self, now: Now) -> Vec<Resting> {
        let draining: Vec<PeerIx> = self
            .routes
            .peers()
            .filter(|facts| facts.draining && facts.may_exchange)
            .map(|facts| facts.peer)
            .collect();
        draining
            .into_iter()
            .map(|peer| self.release_one(now, peer))
            .collect()
    }

    /// Says whether a flow's holder drains; `explain` and `flows` show it.
    pub(super) fn is_on_draining(&self, holder: Option<PeerIx>) -> bool {
        holder.is_some_and(|holder| self.routes.is_draining(holder))
    }

    /// As [`Plane::candidates`], without those that drain while another one does not.
    pub(super) fn eligible(
        &self,
        destination: IpAddr,
    ) -> Result<(u8, Holders), (DropReason, Unreachable)> {
        let (prefix_len, mut holders) = self.candidates(destination)?;
        self.spare_draining(&mut holders);
        Ok((prefix_len, holders))
    }

    /// Leaves out the holders that drain, unless all do: an address that nobody would answer at
    /// helps nobody.
    pub(super) fn spare_draining(&self, holders: &mut Holders) {
        if self.routes.has_draining()
            && holders
                .iter()
                .any(|&holder| !self.routes.is_draining(holder))
        {
            holders.retain(|holder| !self.routes.is_draining(*holder));
        }
    }

    /// A flow's host opens a connection: moves the flow away from a draining holder first, when it
    /// is at rest and has somewhere to go. Returns whether it moved.
    pub(super) fn leave_draining(&mut self, now: Now, id: FlowId) -> bool {
        let Some(&flow) = self.flows.get(id) else {
            return false;
        };
        let Some(holder) = flow
            .holder
            .filter(|&holder| self.routes.is_draining(holder))
        else {
            return false;
        };
        if self.connections.has_open(id)
            || now.mono < self.next_look
            || !self.has_alternative(flow.key.destination)
        {
            return false;
        }
        if !self.connections.is_at_rest(now.mono, id) {
            self.next_look = now.mono + LOOK_AGAIN;
            return false;
        }
        self.move_flow(now, id, holder, Reason::Left, None);
        true
    }

    fn release_one(&mut self, now: Now, peer: PeerIx) -> Resting {
        let mut resting = Resting {
            peer,
            flows: 0,
            moved: 0,
        };
        let mut next = self.flows.first_on_holder(peer);
        for _ in 0..LOOKED_AT {
            let Some(id) = next else {
                return resting;
            };
            next = self.flows.next_on_holder(id);
            let Some(destination) = self.flows.get(id).map(|flow| flow.key.destination) else {
                continue;
            };
            if !self.connections.is_at_rest(now.mono, id) {
                resting.flows += 1;
            } else if self.has_alternative(destination) {
                self.move_flow(now, id, peer, Reason::Left, None);
                resting.moved += 1;
            }
        }
        // What was not looked at may well be in use.
        if next.is_some() {
            resting.flows = resting.flows.max(1);
        }
        resting
    }

    /// Says whether a holder that does not drain answers at `destination`.
    fn has_alternative(&self, destination: IpAddr) -> bool {
        let Some(Route::Group(group)) = self.routes.lookup(destination) else {
            return false;
        };
        group
            .holders
            .iter()
            .any(|&holder| self.is_answering(holder) && !self.routes.is_draining(holder))
    }
}
