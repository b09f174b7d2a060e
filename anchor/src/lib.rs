//! The daemon: sockets, TUN, files, netlink and signals around `conflux-core`. It carries bytes
//! and decides nothing.

pub mod api;
pub mod files;
pub mod logging;
mod run;
pub mod service;

pub use run::{RunOptions, run};
