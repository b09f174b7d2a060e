//! Who is a member, with which rights: checks chains ([`verify`], offline, with no coordinator)
//! and makes new links ([`make_ticket`], [`join`], [`admit`], [`renew`]). The formats are `conflux_proto::credential`'s.
//!
//! The realm key may grant anything. Whoever it, or an issuer, grants membership directly is a
//! member until the grant ends. Whoever joins by a ticket is one from the moment a member
//! countersigned the join, which must be before the ticket ended, for [`LIFETIME`].
//!
//! A link's authority and admitter must have been members *when they signed*, by the time they
//! wrote down: an issuer whose own credential has ended since does not take with it those it
//! let in. A member that lies about the time can so admit somebody after a ticket's end; the
//! revocation of the ticket is the answer to that.

mod check;
mod issue;
mod lineage;
mod revoked;

pub use check::{Joiner, Member, Refused, verify, verify_chain, verify_join};
pub use issue::{
    AdmitRefused, GrantRefused, Granter, JoinRefused, TicketTerms, admit, first_machine, join,
    make_ticket, renew, wants_renewal,
};
pub use lineage::{Admitted, Bearer, Lineage, Step};
pub use revoked::{RevocationRefused, Revocations, RevokeRefused, revoke};

use std::time::Duration;

/// How far wall clocks may differ, SPEC section 7.
pub const SKEW: Duration = Duration::from_secs(10 * 60);

/// How long a membership lasts, SPEC section 7.
pub const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// An issuer renews a chain of more links than this although it is fresh, by one direct grant:
/// a third of what a chain may have, so that several machines can still join behind its bearer
/// before an issuer is met.
pub const LONG_CHAIN_LINKS: usize = 5;

#[cfg(test)]
mod revoked_tests;
#[cfg(test)]
mod tests;
