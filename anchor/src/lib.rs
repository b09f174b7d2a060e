//! The daemon.
pub mod clock;
pub mod netlink;
pub mod poll;
pub mod tun;
pub mod udp;

#[cfg(test)]
mod netns;
