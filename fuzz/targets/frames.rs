//! Headers of our frames, and what stands in the small ones.
#![no_main]

use conflux_proto::control::read_frame;
use conflux_proto::frame::{Echo, Header, Probe, Received};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = Header::decode(bytes) {
        assert_eq!(header.encode()[..], bytes[..header.encode().len()]);
    }
    let _ = Probe::decode(bytes);
    let _ = Echo::decode(bytes);
    let _ = Received::decode(bytes);
    let _ = read_frame(bytes);
});
