//! The daemon: sockets, TUN, files, netlink and signals around `conflux-core`. It carries bytes
//! and decides nothing.

pub mod api;
mod check;
pub mod clock;
pub mod control;
pub mod data;
mod discovery;
pub mod files;
pub mod logging;
pub mod netlink;
pub mod poll;
mod privileges;
pub mod quic;
mod run;
pub mod service;
pub mod tun;
pub mod udp;

#[cfg(test)]
mod netns;

pub use run::{RunOptions, run};
