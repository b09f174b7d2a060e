//! Every decision of Conflux, as sans-IO state machines and pure functions: `now` and the seed
//! come in, effects go out. Nothing here reads a clock, a socket, a file or a generator.
//!
//! A module imports the leaves [`time`], [`ids`], [`reason`] and [`table`], and none of its
//! neighbours: values pass through the owner, [`plane`] for packets and the daemon's control loop
//! for the rest. Exceptions: [`choose`] imports [`cost`]; [`connections`] and [`translate`] import
//! [`packet`]; [`credential`] imports [`identity`]; [`endpoints`] imports [`paths`] for the one
//! spelling of an address; [`membership`] imports [`credential`] and
//! [`identity`]; [`relay`] imports [`session`] for its replay window; [`plane`] imports every module of
//! the packet way.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod choose;
pub mod clients;
pub mod connections;
pub mod cost;
pub mod credential;
pub mod discovery;
pub mod endpoints;
pub mod flows;
pub mod gate;
pub mod health;
pub mod identity;
pub mod ids;
pub mod liveness;
pub mod membership;
pub mod mtu;
pub mod packet;
pub mod paths;
pub mod plane;
pub mod reach;
pub mod reason;
pub mod redial;
pub mod relay;
pub mod routes;
pub mod session;
pub mod table;
pub mod time;
pub mod translate;
