//! The lab: machines as network namespaces in one process, the links between them, anchors and
//! workloads on them, and what the end-to-end tests, `show` and `demo` measure with it all.
//!
//! A panic here is a failed test; messages say what was being tried. Under test is the built `conflux`
//! binary; [`hostile`] alone links parts of the product.

pub mod anchor;
pub mod captured;
pub mod clock;
pub mod host;
pub mod hostile;
pub mod initial;
mod kernel;
mod lab;
mod links;
pub mod nat;
pub mod scenario;
mod switch;
pub mod wait;
pub mod work;

pub use anchor::{Anchor, Options};
pub use host::Host;
pub use lab::{Lab, Ways};
pub use links::{Carried, Conditions};
