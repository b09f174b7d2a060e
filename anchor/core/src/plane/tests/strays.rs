//! Packets from holders that have no business with a flow.

use std::net::SocketAddr;

use conflux_proto::frame::Flags;

use super::host::{ECHO, HTTP, RST, SERVER_FIRST, parse, socket, tcp_packet, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms, peer};
use super::tcp::Connection;
use crate::packet::{TcpFlags, Transport};
use crate::plane::{DropReason, OWN_HOST};

#[test]
fn packets_of_a_holder_that_is_not_the_flows_own_are_dropped_and_tcp_is_reset() {
    let mut realm = Realm::of_holders(3, 2);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    let holder = realm.holder(0, SHARED).unwrap();
    let other = 3 - holder;
    // The other one knows this client by an address too.
    let ask = udp_packet(socket("192.0.0.2", 40_000), shared(ECHO), b"x");
    realm.bring(other, peer(0), Flags::NONE, &ask);
    let client = parse(&realm.take(other)[0]).source;
    realm.take(0);
    realm.take(other);

    let stray = tcp_packet(
        shared(HTTP),
        (client, 40_000).into(),
        SERVER_FIRST + 1,
        77,
        0x10,
        b"x",
    );
    realm.send(other, &stray);
    realm.pass(ms(50));

    assert!(realm.take(0).is_empty());
    assert_eq!(
        realm.dropped(0, DropReason::NotPinned),
        2,
        "the answer to the datagram too"
    );
    let reset = parse(&realm.take(other)[0]);
    assert_eq!((reset.source, reset.destination), (client, SHARED.into()));
    let Transport::Tcp(tcp) = reset.transport else {
        panic!("{reset:?}")
    };
    assert_eq!((tcp.flags.0, tcp.sequence), (RST, 77));
    assert_eq!(connection.ask(&mut realm), Some(holder as u8));
}

#[test]
fn a_syn_of_a_holder_that_is_not_the_flows_own_is_refused() {
    let mut realm = Realm::of_holders(3, 2);
    Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    let other = 3 - realm.holder(0, SHARED).unwrap();
    realm.take(0);

    let syn = tcp_packet(shared(5000), (OWN_HOST, HTTP).into(), 500, 0, 0x02, &[]);
    realm.bring(0, peer(other), Flags::TO_CLIENT, &syn);
    let sent = realm.nodes[0].plane.poll_output(realm.now);

    let Some(crate::plane::Output::ToPeer { packet, .. }) = sent else {
        panic!("{sent:?}")
    };
    let reset = parse(&packet);
    let Transport::Tcp(tcp) = reset.transport else {
        panic!("{reset:?}")
    };
    assert!(tcp.flags.contains(TcpFlags::RST));
    assert_eq!(tcp.acknowledgment, 501);
    assert!(realm.take(0).is_empty());
}

#[test]
fn a_peer_that_holds_nothing_cannot_answer_for_a_holder() {
    let mut realm = Realm::new(
        3,
        vec![Spec::client(), Spec::holder(SHARED), Spec::client()],
    );
    realm.send(0, &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"x"));
    realm.pass(ms(50));
    realm.take(0);

    let forged = udp_packet(shared(ECHO), socket("192.0.0.2", 9), b"forged");
    realm.bring(0, peer(2), Flags::TO_CLIENT, &forged);

    assert!(realm.take(0).is_empty());
    assert_eq!(realm.dropped(0, DropReason::PeerSource), 1);
}

#[test]
fn a_destination_that_is_not_served_here_is_refused_to_the_peer() {
    let mut realm = Realm::of_holders(3, 1);
    Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    realm.pass(ms(10));
    // The holder gave its address up; the client does not know yet.
    realm.nodes[1].spec.ipv4 = None;
    let routes = realm.nodes[0].plane.routes.clone();
    realm.spread_routes();
    let now = realm.now;
    realm.nodes[0].plane.set_routes(now, routes);
    realm.take(0);

    realm.send(0, &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"x"));
    realm.pass(ms(50));

    assert_eq!(realm.dropped(1, DropReason::NotServed), 1);
    let told = realm.take(0);
    assert_eq!(told.last().unwrap()[20..22], [3, 1]);
}

#[test]
fn garbage_of_a_peer_is_dropped() {
    let mut realm = Realm::of_holders(3, 1);

    for flags in [Flags::NONE, Flags::TO_CLIENT] {
        realm.bring(1, peer(0), flags, &[0x45, 0, 0, 3, 9]);
        realm.bring(1, peer(0), flags, &[]);
    }

    assert_eq!(realm.dropped(1, DropReason::MalformedInner), 4);
}

#[test]
fn a_source_that_is_not_ours_goes_nowhere() {
    // The second is an address of this machine, but peers know it by its overlay address.
    let foreign_six = "2001:db8::1";
    let client = Spec::client().with_address(foreign_six);
    let mut realm = Realm::new(3, vec![client, Spec::holder(SHARED)]);

    realm.send(0, &udp_packet(socket("172.16.0.1", 9), shared(ECHO), b"x"));
    let overlay = SocketAddr::new(realm.nodes[1].overlay().into(), ECHO);
    realm.send(0, &udp_packet(socket(foreign_six, 9), overlay, b"x"));

    assert_eq!(realm.dropped(0, DropReason::ForeignSource), 2);
    assert_eq!(realm.take(0).len(), 2, "both are told");
}

fn shared(port: u16) -> SocketAddr {
    (SHARED, port).into()
}
