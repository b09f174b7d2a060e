//! The daemon: sockets, TUN, files, netlink and signals around `conflux-core`. It carries bytes
//! and decides nothing.

pub mod api;
pub mod files;
mod run;

pub use run::{RunOptions, run};
