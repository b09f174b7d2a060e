//! What a later release may add, made up: fields and messages that nobody knows yet. Only there
//! with the feature `next`, by which the tests build a second binary to run beside this release's;
//! never in what ships.

/// A key no map of ours has: `60000`, in CBOR.
const KEY: [u8; 3] = [0x19, 0xea, 0x60];

/// The text `later`, in CBOR.
const TEXT: [u8; 6] = [0x65, b'l', b'a', b't', b'e', b'r'];

/// Maps and arrays up to this many entries have their count in the first byte.
const SHORT: u8 = 23;

/// Returns a control message of an unknown kind.
pub fn message() -> Vec<u8> {
    let body = [&[0xa1][..], &KEY, &TEXT].concat();
    [&[0x82, 0x18, 60][..], &body].concat()
}

/// Adds an entry to a map.
pub(crate) fn grow_map(map: Vec<u8>) -> Vec<u8> {
    grow_map_at(map, 0)
}

/// Adds an entry to a message's body, where that is a map, and an element behind the body.
pub(crate) fn grow_message(message: Vec<u8>) -> Vec<u8> {
    // An array of two, a kind below 24, the body.
    let mut bytes = grow_map_at(message, 2);
    bytes[0] += 1;
    bytes.extend(TEXT);
    bytes
}

fn grow_map_at(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    let is_short_map = bytes
        .get(at)
        .is_some_and(|first| (0xa0..0xa0 + SHORT).contains(first));
    if is_short_map {
        bytes[at] += 1;
        bytes.extend(KEY);
        bytes.extend(TEXT);
    }
    bytes
}
