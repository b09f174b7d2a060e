//! Situations that tests, `show` and `demo` have in common, and how they are measured.

mod apart;
mod chaos;
mod fault;
mod flood;
mod handshakes;
mod homes;
mod moves;
mod paths;
mod realm;
mod shares;
mod stay;
mod town;

pub use apart::{Apart, OPEN, TRANSFER_LIMIT};
pub use chaos::{Chaos, Deed, Done, Judged, Memory, Seen, Summary};
pub use fault::{Fault, Noticed, REQUESTS_PER_SECOND};
pub use flood::Flood;
pub use handshakes::{Handshakes, Sent};
pub use homes::{Home, Homes, can_meet};
pub use moves::{Alone, Released, Talk, connect_across_a_kill, leave_alone, release_reader};
pub use paths::{Path, offloads};
pub use realm::{
    ANSWER_LIMIT, Client, Holder, Lan, Plan, Realm, SETTLE_LIMIT, SHARED, SHARED_NETWORK, at, port,
};
pub use shares::{DISTANCES, distant_realm, shares_of};
pub use stay::{Stayed, Staying};
pub use town::{COMPARTMENTS, Town};
