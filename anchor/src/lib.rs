//! The daemon.

pub mod quic;
