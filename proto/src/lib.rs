//! What crosses a wire or the local socket: identities, signed objects, frames, control
//! messages and the JSON of the local API. No IO, no clock, no decision.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod advert;
pub mod api;
pub mod control;
pub mod credential;
pub mod frame;
pub mod id;
mod network;
#[cfg(feature = "next")]
pub mod next;
pub mod relay;
pub mod revocation;
pub mod signed;
pub mod taint;
pub mod ticket;

/// The release, as people know it.
pub const SOFTWARE: &str = if cfg!(feature = "next") {
    "0.2.0-next"
} else {
    env!("CARGO_PKG_VERSION")
};
