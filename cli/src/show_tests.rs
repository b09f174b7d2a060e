//! Tables and screens, letter by letter.

use conflux_proto::api::{
    InterfaceStatus, Ipv4Status, Joining, PeerRow, PeerState, Reach, RouteRow, RouteState,
};

use super::*;

#[test]
fn routes_look_as_the_contract_has_them() {
    let ids = ["dfyspsc5lk", "qh5av2ricp", "z7kok3zv2m"];
    let answer = Routes {
        version: 1,
        id_letters: 10,
        routes: vec![
            RouteRow {
                network: "10.128.0.9/32".parse().unwrap(),
                spelled: Some("64:ff9b:1::a80:9/128".parse().unwrap()),
                via: ids.iter().map(|id| format!("{id}restofit")).collect(),
                state: RouteState::Accepted,
                why: None,
            },
            RouteRow {
                network: "10.128.0.101/32".parse().unwrap(),
                spelled: Some("64:ff9b:1::a80:65/128".parse().unwrap()),
                via: vec![],
                state: RouteState::Served,
                why: None,
            },
        ],
    };

    assert_eq!(
        routes(&answer),
        "NETWORK                                  VIA                               STATE     WHY\n\
         10.128.0.9/32 (64:ff9b:1::a80:9/128)     dfyspsc5lk,qh5av2ricp,z7kok3zv2m  accepted  -\n\
         10.128.0.101/32 (64:ff9b:1::a80:65/128)  -                                 served    -\n"
    );
}

#[test]
fn peers_look_as_the_contract_has_them() {
    let both = PeerConnections {
        outgoing: true,
        incoming: true,
        in_use: Some(Direction::Outgoing),
    };
    let one = PeerConnections {
        outgoing: true,
        incoming: false,
        in_use: Some(Direction::Outgoing),
    };
    let rows = [
        (
            "dfyspsc5lk",
            "fd80:c4b9:99ae:3e07:9c2a:41d6:b0f3:8e15",
            "6a:1f:c3:08:d2:94",
            both,
            Reach::Public,
            1_400,
        ),
        (
            "qh5av2ricp",
            "fd80:c4b9:99ae:7b52:e0c9:16a4:5d38:c2a1",
            "be:43:9e:71:05:ca",
            both,
            Reach::NatCone,
            2_100,
        ),
        (
            "z7kok3zv2m",
            "fd80:c4b9:99ae:d4ad:1a8a:1eca:5e42:c961",
            "f2:8d:26:b4:7e:13",
            one,
            Reach::Public,
            990,
        ),
    ];
    let answer = Peers {
        version: 1,
        id_letters: 10,
        peers: rows
            .map(
                |(id, overlay, hardware, connections, reach, rtt_micros)| PeerRow {
                    anchor: format!("{id}restofit"),
                    overlay: overlay.parse().unwrap(),
                    ipv4: Some("10.128.0.9".parse().unwrap()),
                    hardware: hardware.to_owned(),
                    state: PeerState::Connected,
                    connections,
                    data: Some(true),
                    reach,
                    rtt_micros: Some(rtt_micros),
                    path: None,
                    endpoint: None,
                    packet_limit_bytes: None,
                    failed: false,
                    draining: false,
                },
            )
            .into(),
    };

    assert_eq!(
        peers(&answer),
        "ANCHOR      OVERLAY                                  IPV4        HARDWARE           STATE      CONN     DATA  REACH     RTT\n\
         dfyspsc5lk  fd80:c4b9:99ae:3e07:9c2a:41d6:b0f3:8e15  10.128.0.9  6a:1f:c3:08:d2:94  connected  out*,in  yes   public    1.4ms\n\
         qh5av2ricp  fd80:c4b9:99ae:7b52:e0c9:16a4:5d38:c2a1  10.128.0.9  be:43:9e:71:05:ca  connected  out*,in  yes   nat-cone  2.1ms\n\
         z7kok3zv2m  fd80:c4b9:99ae:d4ad:1a8a:1eca:5e42:c961  10.128.0.9  f2:8d:26:b4:7e:13  connected  out      yes   public    990µs\n"
    );
}

#[test]
fn round_trip_times_are_rounded_by_their_size() {
    for (micros, text) in [
        (0, "0µs"),
        (4, "0µs"),
        (987, "990µs"),
        (994, "990µs"),
        (995, "1ms"),
        (1_040, "1ms"),
        (1_050, "1.1ms"),
        (99_949, "99.9ms"),
        (100_000, "100ms"),
        (999_949, "999.9ms"),
        (999_950, "1.0s"),
        (1_249_999, "1.2s"),
        (61_000_000, "61.0s"),
    ] {
        assert_eq!(rtt(micros), text, "{micros}");
    }
}

#[test]
fn connections_have_a_star_only_when_there_are_two() {
    let of = |outgoing, incoming, in_use| {
        connections(PeerConnections {
            outgoing,
            incoming,
            in_use,
        })
    };

    assert_eq!(of(false, false, None), "");
    assert_eq!(of(true, false, Some(Direction::Outgoing)), "out");
    assert_eq!(of(false, true, Some(Direction::Incoming)), "in");
    assert_eq!(of(true, true, Some(Direction::Incoming)), "out,in*");
}

#[test]
fn dates_are_civil() {
    for (unix_seconds, text) in [
        (0, "1970-01-01"),
        (951_782_400, "2000-02-29"),
        (1_709_251_199, "2024-02-29"),
        (1_798_675_200, "2026-12-31"),
        (4_107_542_400, "2100-03-01"),
    ] {
        assert_eq!(date(unix_seconds), text);
    }
}

#[test]
fn spans_and_sizes_are_short() {
    let spans = [0, 59, 61, 3_660, 90_061].map(span);
    let sizes = [0, 1023, 1536, 5 << 30].map(bytes);

    assert_eq!(spans, ["0s", "59s", "1m1s", "1h1m", "1d1h"]);
    assert_eq!(sizes, ["0B", "1023B", "1.5KiB", "5.0GiB"]);
}

#[test]
fn the_status_screen_ends_with_what_needs_action() {
    let mut answer = sample_status();

    let calm = status(&answer);
    answer.warnings = vec!["the clock is 12 min off".to_owned()];
    answer.joining = Some(Joining {
        endpoints: vec!["192.0.2.1:47474".to_owned()],
        last_error: Some("no answer".to_owned()),
    });
    let busy = status(&answer);

    assert!(
        calm.contains("ipv4        10.128.0.9/32 (advertised)\n"),
        "{calm}"
    );
    assert!(
        calm.contains("credential  valid until 2026-12-31, may invite\n"),
        "{calm}"
    );
    assert!(
        calm.contains("relay       carries at most 100mbit for others\n"),
        "{calm}"
    );
    assert!(calm.ends_with("warnings    none\n"), "{calm}");
    assert!(
        busy.contains("joining     asking 192.0.2.1:47474 (no answer)\n"),
        "{busy}"
    );
    assert!(
        busy.ends_with("warning     the clock is 12 min off\n"),
        "{busy}"
    );
}

fn sample_status() -> Status {
    Status {
        version: 1,
        software: "0.1.0".to_owned(),
        ready: true,
        anchor: "dfyspsc5lkrestofit".to_owned(),
        id_letters: 10,
        realm: "abcdefghij".to_owned(),
        overlay: "fd80::1".parse().unwrap(),
        hardware: "6a:1f:c3:08:d2:94".to_owned(),
        ipv4: Some(Ipv4Status {
            address: "10.128.0.9".parse().unwrap(),
            prefix_len: 32,
            advertised: true,
        }),
        interface: InterfaceStatus {
            name: "anchor0".to_owned(),
            mtu_bytes: 1420,
        },
        taints: vec!["default".to_owned()],
        listen: vec!["0.0.0.0:47474".parse().unwrap()],
        subnets: vec![],
        exposed: vec![],
        reach: Reach::Unknown,
        peers_connected: 2,
        peers_known: 3,
        issuer: true,
        valid_until_unix: Some(1_798_675_200),
        joining: None,
        uptime_seconds: 61,
        drain: None,
        check: None,
        relay: Some("100mbit".to_owned()),
        warnings: vec![],
    }
}
