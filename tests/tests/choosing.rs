//! Which holder answers: one per client host whatever the port, all of them over many hosts, and
//! how a client looks to the service.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;

use e2e::scenario::{ANSWER_LIMIT, Plan, Realm, at, port};
use e2e::work;

#[test]
fn fifty_requests_of_one_client_on_any_port_and_protocol_meet_one_holder() {
    let realm = Realm::start(&Plan::usual());
    let client = &realm.clients[0];
    let ask = |number: usize| match number % 3 {
        0 => work::get(&client.host, None, at(port::HTTP), ANSWER_LIMIT),
        1 => work::get(&client.host, None, at(port::HTTP_TOO), ANSWER_LIMIT),
        _ => work::ask_udp(&client.host, None, at(port::WHO), ANSWER_LIMIT),
    };

    let in_sequence: Vec<_> = (0..50).map(ask).collect();
    let at_once: Vec<_> = thread::scope(|scope| {
        let asking: Vec<_> = (0..50)
            .map(|number| scope.spawn(move || ask(number)))
            .collect();
        asking
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let ping = ["-c", "50", "-i", "0.01", "-W", "2", "10.128.0.9"];
    let pinged = client.host.command("ping").args(ping).must();

    let names: BTreeSet<String> = in_sequence
        .into_iter()
        .chain(at_once)
        .map(|answer| answer.unwrap())
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(pinged.contains(" 50 received"), "{pinged}");
    let flows = client.holders_of_flows();
    assert_eq!(flows.len(), 1, "one host, one flow: {flows:?}");
    let holder = client.holder_id().unwrap();
    assert_eq!(realm.name_of(&holder), names.first().unwrap());
}

#[test]
fn sixty_hosts_behind_one_client_use_all_three_holders_and_keep_them() {
    let realm = Realm::start(&Plan::of(3, 1).with_lan());
    let lan = realm.clients[0].lan.as_ref().unwrap();
    let hosts = lan.addresses(1, 60);

    let first = lan.who_answers(&hosts);
    let second = lan.who_answers(&hosts);

    let used: BTreeSet<&String> = first.iter().collect();
    assert_eq!(used.len(), 3, "{first:?}");
    assert_eq!(first, second, "a flow changed its holder");
}

#[test]
fn a_service_sees_each_client_as_one_address_of_198_18_and_can_call_it_back() {
    let realm = Realm::start(&Plan::of(1, 2));
    let holder = &realm.holders[0];

    for client in &realm.clients {
        for _ in 0..3 {
            client.get().unwrap();
        }
    }

    let seen = holder.http.seen();
    let range: ipnet::Ipv4Net = "198.18.0.0/15".parse().unwrap();
    assert!(seen.iter().all(|from| is_in(range, *from)), "{seen:?}");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 2, "{seen:?}");
    assert_eq!((seen[0], seen[3]), (seen[2], seen[5]), "{seen:?}");
    let back = ["-c", "2", "-W", "2", &seen[0].to_string()];
    holder.host.command("ping").args(back).must();
}

#[test]
fn each_host_behind_a_client_is_a_client_of_its_own() {
    let realm = Realm::start(&Plan::of(1, 1).with_lan());
    let lan = realm.clients[0].lan.as_ref().unwrap();

    for source in lan.addresses(1, 5) {
        work::get(&lan.host, Some(source), at(port::HTTP), ANSWER_LIMIT).unwrap();
    }

    let seen = realm.holders[0].http.seen();
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 5, "{seen:?}");
}

#[test]
fn both_spellings_of_an_address_are_one_flow() {
    let realm = Realm::start(&Plan::of(3, 1));
    let client = &realm.clients[0];
    let spelled = SocketAddr::new("64:ff9b:1::a80:9".parse().unwrap(), port::HTTP);

    let four: Vec<String> = (0..8).map(|_| client.get().unwrap()).collect();
    let six: Vec<String> = (0..8)
        .map(|_| work::get(&client.host, None, spelled, ANSWER_LIMIT).unwrap())
        .collect();
    let udp = SocketAddr::new(spelled.ip(), port::WHO);
    let udp = work::ask_udp(&client.host, None, udp, ANSWER_LIMIT).unwrap();
    let ping = ["-c", "3", "-i", "0.05", "-W", "2", "64:ff9b:1::a80:9"];
    client.host.command("ping").args(ping).must();

    assert!(
        four.iter()
            .chain(&six)
            .chain([&udp])
            .all(|name| *name == four[0]),
        "{four:?} {six:?}"
    );
    assert_eq!(client.holders_of_flows().len(), 1);
}

#[test]
fn one_particular_holder_is_reached_by_its_overlay_address() {
    let realm = Realm::start(&Plan::of(3, 1));
    let client = &realm.clients[0];

    for holder in &realm.holders {
        let target = SocketAddr::new(holder.anchor.overlay().into(), port::HTTP);
        let answer = work::get(&client.host, None, target, ANSWER_LIMIT).unwrap();

        assert_eq!(answer, holder.host.name());
    }
}

#[test]
fn a_holder_reaches_itself_at_the_shared_address() {
    let realm = Realm::start(&Plan::of(2, 1));

    for holder in &realm.holders {
        let answer = work::get(&holder.host, None, at(port::HTTP), ANSWER_LIMIT).unwrap();

        assert_eq!(answer, holder.host.name());
    }
}

#[test]
fn a_client_without_an_address_has_192_0_0_2_and_is_advertised_nowhere() {
    let realm = Realm::start(&Plan::of(1, 1));
    let client = &realm.clients[0];

    let addresses = client
        .host
        .command("ip")
        .args(["-4", "addr", "show", "anchor0"])
        .must();

    assert!(addresses.contains("192.0.0.2/32"), "{addresses}");
    assert_eq!(client.get().unwrap(), "a");
    let networks: Vec<String> = realm.holders[0]
        .anchor
        .routes()
        .into_iter()
        .map(|row| row.network)
        .collect();
    assert_eq!(networks, ["10.128.0.9/32"]);
}

#[test]
fn the_shared_address_never_reaches_a_listener_on_loopback() {
    let realm = Realm::start(&Plan::of(1, 1));
    let holder = &realm.holders[0];
    let loopback = holder
        .host
        .enter(|| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 8123)));

    let answer = work::get(&realm.clients[0].host, None, at(8123), ANSWER_LIMIT);

    assert_eq!(
        answer.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    drop(loopback);
    assert_eq!(realm.clients[0].get().unwrap(), holder.host.name());
}

fn is_in(range: ipnet::Ipv4Net, address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if range.contains(&address))
}
