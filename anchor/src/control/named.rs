//! The addresses that others name: which of them are used, and how many are not. The judgement is
//! `core::endpoints`'; this gathers its facts.

use std::net::SocketAddr;

use conflux_core::endpoints::{Here, Unfit};
use conflux_core::plane::OWN_HOST;
use conflux_core::routes::Route;
use conflux_proto::id::AnchorKey;
use ipnet::{IpNet, Ipv4Net};

use super::Anchor;
use super::routing::SPELLED;

impl Anchor {
    /// Returns those of some addresses to which a datagram may go, in their order.
    pub(super) fn usable(&self, named: &[SocketAddr]) -> Vec<SocketAddr> {
        let judged = self.judge(named).into_iter();
        judged.filter_map(Result::ok).collect()
    }

    /// As [`Self::usable`], and counts the others.
    pub(super) fn usable_and_counted(&mut self, named: &[SocketAddr]) -> Vec<SocketAddr> {
        let mut usable = Vec::new();
        for judged in self.judge(named) {
            match judged {
                Ok(at) => usable.push(at),
                Err(why) => self.peers.unfit.note(why),
            }
        }
        usable
    }

    /// Says whether an address that somebody claims to see this anchor at can be one of its.
    pub(super) fn may_be_ours(&mut self, seen: SocketAddr) -> bool {
        match self.judge(&[seen])[..] {
            [Ok(_) | Err(Unfit::Own)] => true,
            [Err(why)] => {
                self.peers.unfit.note(why);
                false
            }
            _ => false,
        }
    }

    /// An advert is believed: counts what in it is of no use.
    pub(super) fn count_endpoints(&mut self, of: &AnchorKey) {
        let named = self
            .membership
            .get(of)
            .map(|entry| entry.advert().endpoints.clone());
        self.usable_and_counted(&named.unwrap_or_default());
    }

    fn judge(&self, named: &[SocketAddr]) -> Vec<Result<SocketAddr, Unfit>> {
        let own = self.config.ipv4.as_ref();
        let own = own.map(|choice| Ipv4Net::from(choice.address));
        let overlay: Vec<IpNet> = [OWN_HOST.into(), self.config.client_range]
            .into_iter()
            .chain(own)
            .map(IpNet::V4)
            .chain([self.standing.realm.overlay_prefix(), SPELLED].map(IpNet::V6))
            .collect();
        let here = Here {
            sockets: &self.sockets,
            addresses: &self.facts.addresses,
            connected: &self.facts.connected,
            overlay: &overlay,
        };
        let is_tunnelled = |ip| matches!(self.routes.lookup(ip), Some(Route::Group(_)));
        let judge = |at: &SocketAddr| here.judge(*at, is_tunnelled);
        named.iter().map(judge).collect()
    }
}
