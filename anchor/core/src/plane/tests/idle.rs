//! Flows after 15 minutes of silence.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::host::{ECHO, HTTP, payload, socket, udp_packet};
use super::node::Spec;
use super::realm::{Realm, SHARED, ms};
use super::tcp::{Connection, Life};
use crate::reason::Reason;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_flow_is_drawn_anew_after_fifteen_minutes_without_traffic() {
    let mut moved = 0;
    for seed in 0..30 {
        let mut realm = Realm::of_holders(seed, 2);
        let before = ask(&mut realm);
        realm.pass(MINUTE * 14);
        assert_eq!(ask(&mut realm), before, "not yet");
        realm.pass(MINUTE * 15 + ms(2000));
        moved += u32::from(ask(&mut realm) != before);
    }
    assert!((5..=25).contains(&moved), "{moved} of 30 moved");
}

#[test]
fn answers_keep_a_flow_from_being_idle() {
    let mut realm = Realm::of_holders(4, 2);
    ask(&mut realm);
    let holder = realm.holder(0, SHARED).unwrap();
    let client = super::host::parse(&realm.take(holder)[0]).source;

    for _ in 0..4 {
        realm.pass(MINUTE * 10);
        realm.send(
            holder,
            &udp_packet(shared(ECHO), (client, 9).into(), b"news"),
        );
        realm.pass(ms(10));
    }

    assert_eq!(realm.take(0).len(), 4);
    let view = realm.nodes[0].plane.view_flows(realm.now, 1).remove(0);
    assert_eq!(
        (view.flow.reason, view.flow.holder.map(|holder| holder.0)),
        (Reason::New, Some(holder as u32))
    );
}

#[test]
fn an_open_connection_keeps_its_holder_through_two_idle_hours() {
    for seed in 0..10 {
        let mut realm = Realm::of_holders(seed, 3);
        let mut connection =
            Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
        let by = connection.ask(&mut realm);
        realm.pass(MINUTE * 120);

        assert_eq!(connection.ask(&mut realm), by);
        // Re-pinned: what comes next goes there too.
        assert_eq!(ask(&mut realm), by.unwrap());
    }
}

#[test]
fn anything_else_first_draws_and_resets_what_is_open_when_the_draw_differs() {
    let (mut moved, mut stayed) = (0, 0);
    for seed in 0..30 {
        let mut realm = Realm::of_holders(seed, 2);
        let mut connection =
            Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
        let by = connection.ask(&mut realm).unwrap();
        realm.pass(MINUTE * 60);

        let now_by = ask(&mut realm);
        connection.take(&mut realm);
        if now_by == by {
            stayed += 1;
            assert_eq!(connection.ask(&mut realm), Some(by));
        } else {
            moved += 1;
            assert!(matches!(connection.life, Life::Reset(_)), "seed {seed}");
            assert_eq!(connection.wrong_resets, 0);
        }
        let view = realm.nodes[0].plane.view_flows(realm.now, 1).remove(0);
        assert_eq!(view.flow.reason, Reason::Idle);
        super::caps::check(&realm.nodes[0].plane);
    }
    assert!(moved > 3 && stayed > 3, "{moved} moved, {stayed} stayed");
}

#[test]
fn a_redrawn_flow_that_waits_is_not_drawn_a_second_time() {
    for seed in 0..30 {
        let mut realm = Realm::new(
            seed,
            vec![
                Spec::client().with_subnet("10.1.0.0/16"),
                Spec::holder(SHARED),
                Spec::holder(SHARED),
            ],
        );
        let source = SocketAddr::from((Ipv4Addr::new(10, 1, 0, 3), 40_000));
        let mut connection = Connection::open(&mut realm, 0, source, shared(HTTP));
        connection.ask(&mut realm);
        realm.pass(MINUTE * 20);
        let chosen = realm.nodes[0].plane.counters().chosen(Reason::Idle);
        // Nobody is fresh: the first packet waits.
        realm.pass(ms(500 * seed));

        let datagram = udp_packet((source.ip(), 9).into(), shared(ECHO), b"hello");
        realm.send(0, &datagram);
        realm.pass(ms(300));

        assert_eq!(
            realm.nodes[0].plane.counters().chosen(Reason::Idle),
            chosen + 1
        );
        super::caps::check(&realm.nodes[0].plane);
    }
}

#[test]
fn the_only_holder_is_single_also_after_a_silence() {
    let mut realm = Realm::of_holders(4, 1);
    let mut connection = Connection::open(&mut realm, 0, socket("192.0.0.2", 40_000), shared(HTTP));
    realm.pass(MINUTE * 20);

    ask(&mut realm);

    let view = realm.nodes[0].plane.view_flows(realm.now, 1).remove(0);
    assert_eq!(view.flow.reason, Reason::Single);
    assert_eq!(connection.ask(&mut realm), Some(1));
}

#[test]
fn idle_flows_and_their_notes_are_forgotten() {
    let mut realm = Realm::of_holders(4, 2);
    for port in 0..3000 {
        realm.send(
            0,
            &udp_packet(socket("192.0.0.2", port + 100), shared(ECHO), b"x"),
        );
    }
    realm.pass(ms(100));
    assert_eq!(realm.nodes[0].plane.sizes().connections, 3000);

    realm.pass(MINUTE * 18);

    let sizes = realm.nodes[0].plane.sizes();
    assert_eq!((sizes.flows, sizes.connections), (0, 0));
    let frames = realm.nodes[0].plane.counters().frames_sent;
    realm.pass(MINUTE * 60);
    assert_eq!(
        realm.nodes[0].plane.counters().frames_sent,
        frames,
        "idle peers cost nothing"
    );
}

#[test]
fn many_notes_of_a_busy_flow_are_forgotten_in_time() {
    let mut realm = Realm::of_holders(4, 2);
    for port in 0..8000 {
        realm.send(
            0,
            &udp_packet(socket("192.0.0.2", port + 100), shared(ECHO), b"x"),
        );
    }

    for _ in 0..33 {
        realm.pass(ms(30_000));
        ask(&mut realm);
    }

    assert_eq!(realm.nodes[0].plane.sizes().connections, 1);
}

fn ask(realm: &mut Realm) -> u8 {
    realm.send(
        0,
        &udp_packet(socket("192.0.0.2", 9), shared(ECHO), b"hello"),
    );
    realm.pass(ms(300));
    let inbox = &mut realm.nodes[0].inbox;
    let at = inbox
        .iter()
        .position(|(_, bytes)| bytes[9] == 17)
        .expect("the datagram is answered");
    payload(&inbox.remove(at).1)[0]
}

fn shared(port: u16) -> SocketAddr {
    (SHARED, port).into()
}
