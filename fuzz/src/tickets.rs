//! What people paste and type: tickets, endpoints, ids, openings, addresses. An input that begins
//! with a zero byte is the inside of a ticket, for which length, checksum and letters are made.

use conflux_core::plane::Opening;
use conflux_core::routes::{check_client_range, check_ipv4};
use conflux_proto::credential::Serial;
use conflux_proto::id::AnchorId;
use conflux_proto::taint::Taint;
use conflux_proto::ticket::{Endpoint, Ticket};
use data_encoding::BASE32_NOPAD;
use sha2::{Digest, Sha256};

use crate::samples::ticket as sample;

pub(crate) fn run(bytes: &[u8]) {
    if let [0, inside @ ..] = bytes {
        ticket(&wrap(inside));
    } else if let Ok(text) = std::str::from_utf8(bytes) {
        ticket(text);
        words(text);
    }
}

/// A ticket that is read is written and read again the same, wrapped by a mail program or not.
fn ticket(text: &str) {
    let Ok(ticket) = text.parse::<Ticket>() else {
        return;
    };
    let written = ticket.to_text();
    let mut wrapped = String::new();
    for (at, letter) in written.chars().enumerate() {
        if at % 72 == 71 {
            wrapped.push_str("\r\n  ");
        }
        wrapped.push(letter);
    }
    for text in [written, wrapped] {
        let again = text.parse::<Ticket>().expect("a ticket of ours is read");
        assert_eq!(again.grant(), ticket.grant());
        assert_eq!(again.realm_key(), ticket.realm_key());
        assert_eq!(again.endpoints(), ticket.endpoints());
        assert_eq!(again.issuer(), ticket.issuer());
        assert_eq!(again.secret().seed(), ticket.secret().seed());
    }
    assert_eq!(ticket.grant().claimed().subject, ticket.secret().public());
}

fn words(text: &str) {
    if let Ok(endpoint) = text.parse::<Endpoint>() {
        assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
    }
    if let Ok(opening) = text.parse::<Opening>() {
        assert_eq!(opening.to_string().parse(), Ok(opening));
    }
    if let Ok(id) = text.parse::<AnchorId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
    }
    if let Ok(serial) = text.parse::<Serial>() {
        assert_eq!(serial.to_string(), text);
    }
    if let Ok(taint) = text.parse::<Taint>() {
        assert_eq!(taint.as_str(), text);
        assert!((1..=64).contains(&text.len()));
    }
    if let Ok(range) = check_client_range(text) {
        assert_eq!(check_client_range(&range.to_string()), Ok(range));
    }
    let _ = check_ipv4(text);
}

fn wrap(inside: &[u8]) -> String {
    let length = u16::try_from(inside.len()).unwrap_or(u16::MAX);
    let sum = Sha256::digest(inside);
    let bytes = [&length.to_be_bytes()[..], inside, &sum[..4]].concat();
    format!("conflux1{}", BASE32_NOPAD.encode(&bytes).to_lowercase())
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let text = sample().to_text();
    let letters = text.trim_start_matches("conflux1").to_uppercase();
    let bytes = BASE32_NOPAD
        .decode(letters.as_bytes())
        .expect("a ticket is base32");
    let mut inside = bytes[1..bytes.len() - 4].to_vec();
    inside[0] = 0;
    let words = [
        "192.0.2.1:47474",
        "[2001:db8::1]:1",
        "anchor.example:65535",
        "tcp:80",
        "udp:1-1024",
        "default",
        "10.128.0.9/24",
        "100.64.0.1",
        "198.18.0.0/15",
        "dfyspsc5lkqh5av2ricpz7kok3zv2mdfyspsc5lkqh5av2ricpza",
        "000102030405060708090a0b0c0d0e0f",
    ];
    let mut seeds: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).into();
    seeds.push(text.into_bytes());
    seeds.push(inside);
    seeds
}
