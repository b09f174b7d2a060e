//! Datagrams larger than a packet.

use std::net::{IpAddr, SocketAddr};

use super::host::{ECHO, between, joined, parse, payload, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, as_kernel_sends, ms};
use crate::packet::testing::Recipe;
use crate::translate::spelled;

#[test]
fn a_datagram_of_3000_bytes_is_echoed_whole_to_every_address() {
    let client = Spec::holder([10, 128, 0, 77].into())
        .with_subnet("10.1.0.0/16")
        .with_address("192.168.7.5");
    let mut realm = Realm::new(1, vec![client, Spec::holder(SHARED)]);
    for source in ["10.128.0.77", "192.168.7.5", "192.0.0.2", "10.1.0.5"] {
        let source = SocketAddr::new(source.parse().unwrap(), 5000);
        let datagram = udp_packet(source, (SHARED, ECHO).into(), &content());

        for piece in as_kernel_sends(datagram) {
            realm.send(0, &piece);
        }
        realm.pass(ms(50));

        let whole = joined(&realm.take(0)).expect("every fragment arrives");
        assert_eq!(payload(&whole)[1..], content()[1..]);
        assert_eq!(parse(&whole).destination, source.ip());
        realm.pass(ms(40_000));
    }
}

#[test]
fn a_datagram_of_3000_bytes_is_echoed_whole_in_the_other_spelling() {
    let mut realm = Realm::of_holders(1, 1);
    let overlay: IpAddr = realm.nodes[0].overlay().into();
    let far: IpAddr = spelled(SHARED).into();

    for piece in six_fragments(overlay, far) {
        realm.send(0, &piece);
    }
    realm.pass(ms(50));

    let whole = joined(&realm.take(0)).expect("every fragment arrives");
    assert_eq!(payload(&whole)[1..], content()[1..]);
    assert_eq!(
        (parse(&whole).source, parse(&whole).destination),
        (far, overlay)
    );
}

#[test]
fn fragments_that_wait_for_a_holder_arrive_in_order() {
    let mut realm = Realm::of_holders(1, 2);
    realm.pass(ms(60_000));
    let source = SocketAddr::new([192, 0, 0, 2].into(), 5000);

    for piece in as_kernel_sends(udp_packet(source, (SHARED, ECHO).into(), &content())) {
        realm.send(0, &piece);
    }
    realm.pass(ms(300));

    assert!(joined(&realm.take(0)).is_some());
}

/// Returns the fragments of a datagram as an IPv6 host sends them.
fn six_fragments(source: IpAddr, destination: IpAddr) -> Vec<Vec<u8>> {
    let whole = udp_packet(
        SocketAddr::new(source, 5000),
        SocketAddr::new(destination, ECHO),
        &content(),
    );
    let message = &whole[40..];
    let step = 1232;
    let pieces = message.chunks(step).enumerate();
    pieces
        .map(|(at, chunk)| {
            let offset = at * step;
            let more = offset + chunk.len() < message.len();
            let recipe = Recipe {
                fragment: Some((offset as u16, more)),
                ..between(source, destination)
            };
            recipe.wrap(17, chunk)
        })
        .collect()
}

fn content() -> Vec<u8> {
    (0..3000_u32).map(|at| (at % 251) as u8).collect()
}
