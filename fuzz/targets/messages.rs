//! Control messages: what is read is written and read again the same.
#![no_main]

use conflux_proto::control::{Decoded, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Decoded::Message(message)) = Message::decode(bytes)
        && let Ok(written) = message.encode()
    {
        assert_eq!(Message::decode(&written), Ok(Decoded::Message(message)));
    }
});
