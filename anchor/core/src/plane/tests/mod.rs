//! The packet way proved in a realm in memory: several planes with real keys, a network between
//! them that delays, loses and cuts, and hosts that speak IP.

mod caps;
mod choice;
mod draining;
mod errors;
mod explain;
mod expose;
mod failure;
mod fragments;
mod hold;
mod host;
mod idle;
mod leaving;
mod node;
mod overlay;
mod realm;
mod relay;
mod seen;
mod session;
mod sizes;
mod strays;
mod tcp;
