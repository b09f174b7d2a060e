//! What the module promises, sentence by sentence; `model` drives it against a plain TCP host.

mod build;
mod model;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use self::build::{
    ACK, FIN, FLOW, ORIGIN, OTHER_ORIGIN, RST, SYN, TAG, Table, icmp_error, key, segment,
    syn_bytes, syn_bytes_v6, udp, udp_key,
};
use super::*;
use crate::packet::{IcmpKind, Protocol, checksum};

#[test]
fn an_open_connection_is_reset_with_the_next_number_not_delivered() {
    let mut table = Table::default();
    table.open(1000, 5000);
    table.inbound(5001, 1001, ACK, 65_000);
    table.inbound(80_001, 1001, ACK, 100);

    table.move_flow();

    assert_eq!(
        table.actions(),
        [Action::Reset {
            key: key(),
            origin: ORIGIN,
            sequence: 70_001
        }]
    );
    assert_eq!(table.inbound(70_001, 1001, ACK, 10), Inbound::Dead);
    assert!(!table.connections.has_open(FLOW));
}

#[test]
fn numbers_wrap_around() {
    let mut table = Table::default();
    table.open(u32::MAX, u32::MAX - 10);
    table.inbound(u32::MAX - 9, 0, ACK, 100);

    table.move_flow();

    assert_eq!(
        table.actions(),
        [Action::Reset {
            key: key(),
            origin: ORIGIN,
            sequence: 90
        }]
    );
}

#[test]
fn a_segment_sent_before_the_reset_went_out_is_answered_by_it_at_once() {
    let mut table = Table::default();
    table.open(1000, 5000);
    table.inbound(5001, 1001, ACK, 100);

    table.move_flow();

    let expected = Outbound::Answer {
        sequence: 5101,
        acknowledgment: None,
    };
    assert_eq!(table.outbound(1001, 5051, ACK, 10), expected);
    assert_eq!(table.actions(), [], "the answer was the reset");
}

#[test]
fn a_challenge_is_answered_with_its_own_number() {
    let mut table = Table::default();
    table.open(1000, 5000);
    table.inbound(5001, 1001, ACK, 100);
    table.move_flow();
    assert_eq!(table.actions().len(), 1);

    let expected = Outbound::Answer {
        sequence: 5051,
        acknowledgment: None,
    };

    assert_eq!(table.outbound(1001, 5051, ACK, 0), expected);
}

#[test]
fn a_connection_in_syn_is_replayed_and_not_reset() {
    let mut table = Table::default();
    table.syn(1000);

    table.move_flow();
    let actions = table.actions();

    let [
        Action::ReplaySyn {
            key: replayed,
            origin: ORIGIN,
            syn,
        },
    ] = &actions[..]
    else {
        panic!("{actions:?}");
    };
    assert_eq!(*replayed, key());
    let packet = Packet::parse(syn.as_bytes(), syn.as_bytes().len()).unwrap();
    let Transport::Tcp(tcp) = packet.transport else {
        panic!("{packet:?}")
    };
    assert_eq!((tcp.sequence, tcp.payload_bytes), (1000, 0));
    table.move_flow();
    assert_eq!(table.actions(), [], "it was not sent since");
    assert!(matches!(
        table.inbound(9000, 1001, SYN | ACK, 0),
        Inbound::Pass { .. }
    ));
    assert_eq!(table.connections.open_count(FLOW), 1);
}

#[test]
fn a_replayed_syn_is_a_sound_packet_without_its_payload() {
    for bytes in [syn_bytes(7, 333), syn_bytes_v6(7, 333)] {
        let packet = Packet::parse(&bytes, bytes.len()).unwrap();
        let Transport::Tcp(tcp) = packet.transport else {
            panic!("{packet:?}")
        };

        let syn = StoredSyn::new(&packet, &tcp, &bytes).unwrap();

        let kept = Packet::parse(syn.as_bytes(), syn.as_bytes().len()).unwrap();
        assert_eq!(kept.total_bytes, packet.total_bytes - 333);
        assert!(checksum::verify_header(syn.as_bytes(), &kept));
        assert!(checksum::verify(syn.as_bytes(), &kept));
    }
}

#[test]
fn a_new_syn_of_the_host_begins_anew_after_a_reset() {
    let mut table = Table::default();
    table.open(1000, 5000);
    table.move_flow();

    assert_eq!(table.syn(77_000), Outbound::Pass);

    assert_eq!(
        table.actions(),
        [],
        "the host has forgotten the old one itself"
    );
    assert!(matches!(
        table.inbound(1, 77_001, SYN | ACK, 0),
        Inbound::Pass { .. }
    ));
    assert!(table.connections.has_open(FLOW));
}

#[test]
fn many_resets_are_spread_over_at_most_200_ms() {
    let mut table = Table::default();
    for port in 0..10_000 {
        table.host_port = port;
        table.open(1000, 5000);
    }

    table.move_flow();
    let mut seen = 0;
    let start = table.now.mono;
    let mut most_at_once = 0;
    while let Some(due) = table.connections.poll_timeout() {
        assert!(due.since(start) <= Duration::from_millis(200));
        table.now.mono = due.max(table.now.mono) + Duration::from_millis(1);
        let count = table.actions().len();
        most_at_once = most_at_once.max(count);
        seen += count;
    }

    assert_eq!(seen, 10_000);
    assert!(most_at_once < 100, "{most_at_once} in a millisecond");
}

#[test]
fn another_local_address_may_not_use_the_same_ports_while_they_are_in_use() {
    let mut table = Table::default();
    table.open(1000, 5000);
    table.origin = OTHER_ORIGIN;
    assert_eq!(table.syn(1), Outbound::Clash);

    table.origin = ORIGIN;
    table.outbound(1001, 5001, RST, 0);
    table.origin = OTHER_ORIGIN;

    assert_eq!(table.syn(1), Outbound::Pass);
    let inbound = table.inbound(9, 2, SYN | ACK, 0);
    assert_eq!(
        inbound,
        Inbound::Pass {
            origin: OTHER_ORIGIN,
            answer: None,
            refused: false
        }
    );
    assert_eq!(table.connections.last_origin(FLOW), Some(OTHER_ORIGIN));
}

#[test]
fn a_silent_datagram_socket_gives_its_ports_up() {
    let mut table = Table::default();
    table.datagram_out();
    table.origin = OTHER_ORIGIN;

    table.advance(Duration::from_secs(29));
    assert_eq!(table.datagram_out(), Outbound::Clash);
    table.advance(Duration::from_secs(1));
    assert_eq!(table.datagram_out(), Outbound::Pass);
}

#[test]
fn a_rst_that_answers_a_syn_is_a_refusal_and_one_in_an_open_connection_is_not() {
    let mut table = Table::default();
    table.syn(1000);
    let stray = table.inbound(0, 999, RST | ACK, 0);
    let refusal = table.inbound(0, 1001, RST | ACK, 0);
    table.open(2000, 5000);
    let end = table.inbound(5001, 2001, RST, 0);

    assert_eq!(
        refusal,
        Inbound::Pass {
            origin: ORIGIN,
            answer: None,
            refused: true
        }
    );
    for other in [stray, end] {
        assert_eq!(
            other,
            Inbound::Pass {
                origin: ORIGIN,
                answer: None,
                refused: false
            }
        );
    }
    assert!(!table.connections.has_open(FLOW));
}

#[test]
fn an_unreachable_refuses_what_was_asked() {
    let mut table = Table::default();
    table.syn(1000);
    table.datagram_out();
    let unreachable = IcmpKind::Unreachable { code: 3 };

    let of_tcp = table.note_error(key(), unreachable, Protocol::TCP, 1000);
    let of_old_tcp = table.note_error(key(), unreachable, Protocol::TCP, 1);
    let of_udp = table.note_error(udp_key(), unreachable, Protocol::UDP, 0);
    let too_big = table.note_error(udp_key(), IcmpKind::TooBig { mtu: 1280 }, Protocol::UDP, 0);

    let pass = |refused| Inbound::Pass {
        origin: ORIGIN,
        answer: None,
        refused,
    };
    assert_eq!([of_tcp, of_udp], [pass(true); 2]);
    assert_eq!([of_old_tcp, too_big], [pass(false); 2]);
}

#[test]
fn a_response_is_timed_from_the_request_and_a_handshake_is_not() {
    let mut table = Table::default();
    table.syn(1000);
    table.advance(Duration::from_millis(5));
    let reply = table.inbound(5000, 1001, SYN | ACK, 0);
    table.outbound(1001, 5001, ACK, 0);
    table.outbound(1001, 5001, ACK, 300);
    table.advance(Duration::from_millis(30));
    let acknowledged = table.inbound(5001, 1301, ACK, 0);
    table.advance(Duration::from_millis(12));
    let response = table.inbound(5001, 1301, ACK, 9000);

    let pass = |answer| Inbound::Pass {
        origin: ORIGIN,
        answer,
        refused: false,
    };
    assert_eq!([reply, acknowledged], [pass(None); 2]);
    assert_eq!(response, pass(Some(Duration::from_millis(42))));
}

#[test]
fn a_request_sent_twice_is_not_timed() {
    let mut table = Table::default();
    table.open(1000, 5000);
    table.outbound(1001, 5001, ACK, 300);
    table.advance(Duration::from_millis(200));
    table.outbound(1001, 5001, ACK, 300);

    let response = table.inbound(5001, 1301, ACK, 100);

    assert_eq!(
        response,
        Inbound::Pass {
            origin: ORIGIN,
            answer: None,
            refused: false
        }
    );
}

#[test]
fn a_datagrams_answer_is_timed_and_not_across_a_move() {
    let mut table = Table::default();
    table.datagram_out();
    table.advance(Duration::from_millis(7));
    let answer = table.datagram_in();
    table.advance(Duration::from_secs(2));
    table.datagram_out();
    table.move_flow();
    let late = table.datagram_in();

    let pass = |answer| Inbound::Pass {
        origin: ORIGIN,
        answer,
        refused: false,
    };
    assert_eq!(answer, pass(Some(Duration::from_millis(7))));
    assert_eq!(late, pass(None));
}

#[test]
fn a_connection_is_open_until_both_ends_have_closed_and_the_host_was_told() {
    let mut table = Table::default();
    table.open(1000, 5000);
    table.outbound(1001, 5001, FIN | ACK, 0);
    assert!(table.connections.is_open(table.now, &key()), "half closed");

    table.inbound(5101, 1002, FIN | ACK, 0);
    assert!(
        table.connections.is_open(table.now, &key()),
        "100 bytes before the end are missing"
    );
    table.inbound(5001, 1002, ACK, 100);

    assert!(!table.connections.is_open(table.now, &key()));
    table.move_flow();
    assert_eq!(table.actions(), []);
}

#[test]
fn an_open_connection_is_kept_for_two_hours_and_four_minutes() {
    let mut table = Table::default();
    table.open(1000, 5000);

    table.advance(Duration::from_secs(7439));
    table.connections.expire(table.now);
    assert!(table.connections.is_open(table.now, &key()));
    table.advance(Duration::from_secs(1));
    assert!(!table.connections.is_open(table.now, &key()));
    table.connections.expire(table.now);

    assert!(table.connections.is_empty());
    assert_eq!(table.connections.poll_expiry(), None);
}

#[test]
fn a_flow_is_told_to_be_open_once_and_closed_once() {
    let mut table = Table::default();
    table.open(1000, 5000);
    table.host_port += 1;
    table.open(1000, 5000);

    assert_eq!(
        table.changes(),
        [OpenChange {
            flow: FLOW,
            has_open: true
        }]
    );
    table.outbound(1001, 5001, RST, 0);
    assert_eq!(table.changes(), []);
    table.host_port -= 1;
    table.outbound(1001, 5001, RST, 0);
    assert_eq!(
        table.changes(),
        [OpenChange {
            flow: FLOW,
            has_open: false
        }]
    );
}

#[test]
fn at_the_limit_what_is_closed_goes_before_what_is_open() {
    let limits = Limits {
        connections: 3,
        syns: 4,
    };
    let mut table = Table {
        connections: Connections::new(limits, 1),
        ..Table::default()
    };
    for port in [1, 2, 3] {
        table.host_port = port;
        table.open(1000, 5000);
    }
    table.host_port = 2;
    table.outbound(1001, 5001, RST, 0);
    table.host_port = 4;
    table.open(1000, 5000);

    let is_open = |port| {
        let wire = WireKey {
            host_port: port,
            ..key().wire
        };
        table.connections.is_open(table.now, &wire.in_flow(FLOW))
    };

    assert_eq!(table.connections.len(), 3);
    assert_eq!([1, 2, 3, 4].map(is_open), [true, false, true, true]);
}

#[test]
fn with_too_few_places_the_newest_syns_are_kept() {
    let limits = Limits {
        connections: 100,
        syns: 2,
    };
    let mut table = Table {
        connections: Connections::new(limits, 1),
        ..Table::default()
    };
    for port in 1..=5 {
        table.host_port = port;
        table.syn(1000);
    }

    table.move_flow();
    table.advance(Duration::from_millis(1));
    let mut ports: Vec<_> = table.actions().iter().map(build::action_port).collect();
    ports.sort_unstable();

    assert_eq!(ports, [4, 5]);
}

#[test]
fn a_connection_met_in_the_middle_is_learned_from_its_host() {
    let mut table = Table::default();
    assert_eq!(table.inbound(5000, 2000, ACK, 10), Inbound::Unknown);
    assert_eq!(table.outbound(2000, 5000, ACK, 10), Outbound::Pass);
    assert!(!table.connections.has_open(FLOW), "nobody has answered");

    table.inbound(5000, 2010, ACK, 10);
    assert!(table.connections.has_open(FLOW));
    table.move_flow();

    assert_eq!(
        table.actions(),
        [Action::Reset {
            key: key(),
            origin: ORIGIN,
            sequence: 5010
        }]
    );
}

#[test]
fn a_rst_that_the_host_did_not_believe_does_not_end_the_connection() {
    let mut table = Table::default();
    table.open(1000, 5000);
    table.inbound(5501, 1001, RST, 0);
    assert!(!table.connections.has_open(FLOW));

    table.outbound(1001, 5001, ACK, 0);
    table.inbound(5001, 1001, ACK, 50);

    assert!(table.connections.has_open(FLOW));
}

#[test]
fn a_holder_may_dial_back_when_it_is_admitted() {
    let mut table = Table::default();
    let midway = segment(false, 5000, 0, ACK, 10);
    let syn = segment(false, 5000, 0, SYN, 0);
    let pass = Inbound::Pass {
        origin: ORIGIN,
        answer: None,
        refused: false,
    };
    let Table {
        connections, now, ..
    } = &mut table;

    assert_eq!(
        connections.note_inbound(*now, key(), &syn),
        Inbound::Unknown
    );
    assert_eq!(
        connections.admit(*now, key(), ORIGIN, &midway),
        Inbound::Unknown
    );
    assert_eq!(connections.admit(*now, key(), ORIGIN, &syn), pass);
    table.outbound(800, 5001, SYN | ACK, 0);
    assert_eq!(table.inbound(5001, 801, ACK, 20), pass);
    assert!(table.connections.has_open(FLOW));
    table.outbound(801, 5021, ACK, 100);
    assert_eq!(
        table.inbound(5021, 901, ACK, 20),
        pass,
        "the host answers here, and is not timed"
    );

    table.move_flow();
    assert_eq!(
        table.actions(),
        [Action::Reset {
            key: key(),
            origin: ORIGIN,
            sequence: 5041
        }]
    );
}

#[test]
fn a_removed_flow_leaves_nothing_behind() {
    let mut table = Table::default();
    table.open(1000, 5000);
    table.host_port += 1;
    table.syn(1);
    table.datagram_out();
    table.changes();
    table.move_flow();

    table.connections.remove_flow(FLOW);

    assert!(table.connections.is_empty());
    assert_eq!(table.connections.last_origin(FLOW), None);
    table.advance(Duration::from_secs(1));
    assert_eq!(table.actions(), []);
    assert_eq!(table.changes(), []);
}

#[test]
fn an_error_belongs_to_the_connection_it_is_about() {
    let error = icmp_error(IcmpKind::Unreachable { code: 1 }, Protocol::UDP, 0);

    let udp_key = Some(udp_key().wire);
    assert_eq!(WireKey::of_inbound(TAG, &error), udp_key);
    assert_eq!(WireKey::of_inbound(TAG, &udp(false)), udp_key);
    assert_eq!(WireKey::of_outbound(TAG, &udp(true)), udp_key);
    let segment = segment(false, 0, 0, ACK, 0);
    assert_eq!(WireKey::of_inbound(TAG, &segment), Some(key().wire));
    assert_eq!(ORIGIN, IpAddr::V4(Ipv4Addr::new(192, 0, 0, 2)));
}
