//! The JSON of the local socket, both ways.
#![no_main]

use conflux_proto::api::{Flows, InviteRequest, Members, Peers, RevokeRequest, Routes, Status};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = serde_json::from_slice::<InviteRequest>(bytes);
    let _ = serde_json::from_slice::<RevokeRequest>(bytes);
    let _ = serde_json::from_slice::<Status>(bytes);
    let _ = serde_json::from_slice::<Routes>(bytes);
    let _ = serde_json::from_slice::<Peers>(bytes);
    let _ = serde_json::from_slice::<Flows>(bytes);
    let _ = serde_json::from_slice::<Members>(bytes);
});
