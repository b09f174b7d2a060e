//! The lab: machines as network namespaces in one process, the links between them, anchors and
//! workloads on them, and what the end-to-end tests, `show` and `demo` measure with it all.
//!
//! A panic here is a failed test; messages say what was being tried. Only the built `conflux`
//! binary is under test, never a part of it linked in.

pub mod anchor;
pub mod clock;
pub mod host;
mod kernel;
mod lab;
mod links;
pub mod scenario;
mod switch;
pub mod wait;
pub mod work;

pub use anchor::{Anchor, Options};
pub use host::Host;
pub use lab::{Lab, Ways};
pub use links::{Carried, Conditions};
