//! Changes to an input as fuzzers make them, from a seed: for the test that runs without one.

/// The longest input a change grows to.
const MAX_BYTES: usize = 4096;

/// Numbers at the ends of their ranges.
const EDGES: [u8; 8] = [0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe, 0x3f, 0x40];

/// Returns `input` with one to eight random changes; some take a part of `other`.
pub fn mutate(random: &mut fastrand::Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.usize(1..=8) {
        change(random, &mut bytes, other);
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

fn change(random: &mut fastrand::Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.usize(..=bytes.len());
    let end = (at + random.usize(1..=16)).min(bytes.len());
    match random.u8(..7) {
        0 => bytes.insert(at, random.u8(..)),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        3 => {
            let from = random.usize(..=other.len());
            let to = (from + random.usize(1..=64)).min(other.len());
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        4 if at < bytes.len() => bytes[at] = EDGES[random.usize(..EDGES.len())],
        5 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(random.u8(..9)).wrapping_sub(4),
        _ if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
        _ => {}
    }
}
