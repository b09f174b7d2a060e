//! Between the hosts, nobody reads along.

use e2e::scenario::{ANSWER_LIMIT, Plan, Realm, port};
use e2e::work;

/// In every request and every answer below.
const MARKER: &[u8] = b"GET / HTTP/1.1";

#[test]
fn no_word_of_the_payload_crosses_the_wire_in_the_clear() {
    let realm = Realm::start(&Plan::of(1, 1));
    let client = &realm.clients[0];
    let file = tempfile::NamedTempFile::new().unwrap();
    let plainly = tempfile::NamedTempFile::new().unwrap();

    realm.lab.capture(file.path());
    for _ in 0..10 {
        client.get().unwrap();
    }
    realm.lab.end_capture();
    let through = std::fs::read(file.path()).unwrap();
    realm.lab.capture(plainly.path());
    // The same request outside the realm, to show that the capture would have caught it.
    let plain = std::net::SocketAddr::new(realm.holders[0].host.ipv4().into(), port::HTTP);
    work::get(&client.host, None, plain, ANSWER_LIMIT).unwrap();
    realm.lab.end_capture();
    let beside = std::fs::read(plainly.path()).unwrap();

    assert!(through.len() > 10_000, "{} bytes captured", through.len());
    assert!(!holds(&through, MARKER), "plaintext between the hosts");
    assert!(holds(&beside, MARKER), "the capture misses what is there");
}

#[test]
fn no_inner_address_crosses_the_wire_in_the_clear() {
    let realm = Realm::start(&Plan::of(1, 1));
    let file = tempfile::NamedTempFile::new().unwrap();

    realm.lab.capture(file.path());
    for _ in 0..10 {
        realm.clients[0].get().unwrap();
    }
    realm.lab.end_capture();

    let bytes = std::fs::read(file.path()).unwrap();
    // Source and destination as they stand in the inner header.
    assert!(!holds(&bytes, &[192, 0, 0, 2, 10, 128, 0, 9]));
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
