//! What people paste: tickets, endpoints, ids, openings.
#![no_main]

use conflux_core::plane::Opening;
use conflux_core::routes::{check_client_range, check_ipv4};
use conflux_proto::id::AnchorId;
use conflux_proto::taint::Taint;
use conflux_proto::ticket::{Endpoint, Ticket};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(ticket) = text.parse::<Ticket>() {
        assert!(ticket.to_text().parse::<Ticket>().is_ok());
    }
    if let Ok(endpoint) = text.parse::<Endpoint>() {
        assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
    }
    if let Ok(opening) = text.parse::<Opening>() {
        assert_eq!(opening.to_string().parse(), Ok(opening));
    }
    if let Ok(id) = text.parse::<AnchorId>() {
        assert_eq!(id.to_string(), text.to_ascii_lowercase());
    }
    let _ = text.parse::<Taint>();
    let _ = check_ipv4(text);
    let _ = check_client_range(text);
});
