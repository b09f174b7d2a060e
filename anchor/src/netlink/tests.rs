use std::time::Duration;

use super::*;
use crate::netns::{in_namespace, in_namespace_async, ip};
use crate::tun::Tun;

const OVERLAY: &str = "fd80:1:2::7/128";

#[test]
fn an_interface_comes_up_with_its_mtu_and_no_link_local_address() {
    in_namespace_async(async || {
        let (_tun, interface) = up().await;

        let link = ip("link show anchor0");
        assert!(
            link.contains("mtu 1420") && link.contains("qlen 4096"),
            "{link}"
        );
        assert_eq!(ip("-6 addr show dev anchor0"), "");

        interface.set_mtu(1300).await.unwrap();
        assert!(ip("link show anchor0").contains("mtu 1300"));
    });
}

#[test]
fn addresses_become_exactly_what_is_wanted() {
    in_namespace_async(async || {
        let (_tun, interface) = up().await;
        ip("addr add 10.9.9.9/24 dev anchor0");

        interface
            .set_addresses(&nets(&["10.1.2.3/24", "10.1.2.4/24", OVERLAY]))
            .await
            .unwrap();
        let first = addresses();
        interface
            .set_addresses(&nets(&["10.1.2.4/24", OVERLAY]))
            .await
            .unwrap();
        let second = addresses();
        interface
            .set_addresses(&nets(&["10.1.2.4/24", OVERLAY]))
            .await
            .unwrap();

        assert_eq!(first, nets(&["10.1.2.3/24", "10.1.2.4/24", OVERLAY]));
        assert_eq!(second, nets(&["10.1.2.4/24", OVERLAY]));
        assert_eq!(addresses(), second);
        assert_eq!(ip("route show dev anchor0"), "");
    });
}

#[test]
fn routes_become_exactly_what_is_wanted_and_carry_mtu_metric_and_source() {
    in_namespace_async(async || {
        let (_tun, interface) = up().await;
        interface
            .set_addresses(&nets(&["10.1.2.3/32", OVERLAY]))
            .await
            .unwrap();
        let v4 = Route {
            destination: "10.128.0.0/16".parse().unwrap(),
            metric: Some(7),
            mtu_bytes: Some(1400),
            source: Some("10.1.2.3".parse().unwrap()),
        };
        let v6 = plain("fd80:1::/48");

        let faults = interface
            .set_routes(&[v4, v6, plain("10.5.0.0/16")])
            .await
            .unwrap();
        assert!(faults.is_empty(), "{faults:?}");
        let routes = ip("route show dev anchor0");
        assert!(
            routes.contains("10.128.0.0/16 proto 199 scope link src 10.1.2.3 metric 7 mtu 1400"),
            "{routes}"
        );
        assert!(ip("-6 route show dev anchor0").contains("fd80:1::/48 proto 199 metric 1024"));

        let smaller = Route {
            mtu_bytes: Some(1300),
            ..v4
        };
        let faults = interface.set_routes(&[smaller, v6]).await.unwrap();
        assert!(faults.is_empty(), "{faults:?}");
        let routes = ip("route show dev anchor0");
        assert!(
            routes.contains("mtu 1300") && !routes.contains("10.5.0.0"),
            "{routes}"
        );

        let faults = interface.set_routes(&[smaller, v6]).await.unwrap();
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(ip("route show dev anchor0"), routes);
    });
}

#[test]
fn a_route_of_another_interface_is_never_taken() {
    in_namespace_async(async || {
        let (_tun, interface) = up().await;
        lan();
        ip("route add 10.5.0.0/16 dev lan0");

        let wanted = [plain("10.5.0.0/16"), plain("10.6.0.0/16")];
        let faults = interface.set_routes(&wanted).await.unwrap();

        assert_eq!(faults.len(), 1);
        assert_eq!(
            faults[0].destination,
            "10.5.0.0/16".parse::<IpNet>().unwrap()
        );
        assert!(faults[0].is_taken());
        assert!(ip("route show 10.5.0.0/16").contains("dev lan0"));
        assert!(ip("route show 10.6.0.0/16").contains("dev anchor0"));
    });
}

#[test]
fn connected_networks_are_those_of_other_interfaces_without_a_gateway() {
    in_namespace_async(async || {
        let (tun, interface) = up().await;
        interface
            .set_routes(&[plain("10.77.0.0/16")])
            .await
            .unwrap();
        lan();
        ip("route add 10.5.0.0/16 dev lan0");
        ip("route add 10.6.0.0/16 via 192.168.7.1");
        ip("route add default via 192.168.7.1");

        let networks = Netlink::connect()
            .unwrap()
            .connected_networks(tun.index())
            .await
            .unwrap();

        let wanted: BTreeSet<IpNet> = nets(&["10.5.0.0/16", "192.168.7.0/24", "fd00:7::/64"])
            .into_iter()
            .collect();
        assert_eq!(networks, wanted);
    });
}

#[test]
fn the_hosts_addresses_are_told_with_their_interface() {
    in_namespace_async(async || {
        let netlink = Netlink::connect().unwrap();
        lan();

        let lan0 = netlink.find_link("lan0").await.unwrap().unwrap();
        let addresses = netlink.addresses().await.unwrap();

        let on_lan: BTreeSet<IpNet> = addresses
            .iter()
            .filter(|address| address.interface == lan0.index && address.is_usable)
            .map(|address| address.network)
            .collect();
        assert!(lan0.is_up && !lan0.is_loopback);
        assert!(on_lan.contains(&"192.168.7.5/24".parse().unwrap()));
        assert!(on_lan.contains(&"fd00:7::5/64".parse().unwrap()));
    });
}

#[test]
fn nothing_is_left_when_the_device_is_closed() {
    in_namespace_async(async || {
        let (tun, interface) = up().await;
        let clean = in_namespace(state);
        interface
            .set_addresses(&nets(&["10.1.2.3/24", OVERLAY]))
            .await
            .unwrap();
        interface
            .set_routes(&[plain("10.5.0.0/16"), plain("fd80:1::/48")])
            .await
            .unwrap();

        drop(tun);

        assert_eq!(state(), clean);
        assert_eq!(
            Netlink::connect()
                .unwrap()
                .find_link("anchor0")
                .await
                .unwrap(),
            None
        );
    });
}

#[test]
fn questions_and_changes_may_move_between_threads() {
    fn may_move(_: impl Future + Send) {}

    in_namespace_async(async || {
        let netlink = Netlink::connect().unwrap();
        let interface = netlink.interface(1);
        let mut watcher = Watcher::start(1).unwrap();

        may_move(netlink.connected_networks(1));
        may_move(interface.bring_up(1420));
        may_move(interface.set_addresses(&[]));
        may_move(interface.set_routes(&[]));
        may_move(watcher.changed());
    });
}

#[test]
fn only_an_abandoned_tun_is_a_leftover() {
    in_namespace_async(async || {
        let netlink = Netlink::connect().unwrap();
        ip("tuntap add anchor0 mode tun");
        ip("link add anchor1 type veth peer name other1");
        let held = Tun::open("anchor2").unwrap();

        assert!(netlink.remove_leftover("anchor0").await.unwrap());
        assert!(!netlink.remove_leftover("anchor1").await.unwrap());
        assert!(!netlink.remove_leftover("anchor2").await.unwrap());
        assert!(!netlink.remove_leftover("anchor3").await.unwrap());

        assert_eq!(netlink.find_link("anchor0").await.unwrap(), None);
        assert!(netlink.find_link("anchor1").await.unwrap().is_some());
        assert!(netlink.find_link(held.name()).await.unwrap().is_some());
    });
}

#[test]
fn a_watcher_tells_what_others_change_and_what_we_lose() {
    in_namespace_async(async || {
        let (tun, interface) = up().await;
        let mut watcher = Watcher::start(tun.index()).unwrap();

        interface
            .set_addresses(&nets(&["10.1.2.3/24"]))
            .await
            .unwrap();
        interface.set_routes(&[plain("10.5.0.0/16")]).await.unwrap();
        lan();
        ip("route add 10.6.0.0/16 dev lan0");
        await_changes(&mut watcher, |heard| {
            heard.links && heard.addresses && heard.routes
        })
        .await;

        ip("route del 10.5.0.0/16 dev anchor0");
        await_changes(&mut watcher, |heard| heard.own).await;
        ip("link set anchor0 down");
        await_changes(&mut watcher, |heard| heard.own).await;
    });
}

#[test]
fn a_watcher_says_nothing_of_what_we_gain() {
    in_namespace_async(async || {
        let (tun, interface) = up().await;
        let mut watcher = Watcher::start(tun.index()).unwrap();

        interface
            .set_addresses(&nets(&["10.1.2.3/24"]))
            .await
            .unwrap();
        interface.set_routes(&[plain("10.5.0.0/16")]).await.unwrap();
        lan();

        let first = await_changes(&mut watcher, |heard| heard.addresses).await;
        assert!(!first.own, "{first:?}");
    });
}

#[test]
fn ipv6_switched_off_is_noticed_and_leaves_ipv4_working() {
    in_namespace_async(async || {
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        let (_tun, interface) = up().await;

        interface
            .set_addresses(&nets(&["10.1.2.3/24"]))
            .await
            .unwrap();

        assert!(!has_ipv6("anchor0"));
        assert!(
            interface
                .set_addresses(&nets(&["10.1.2.3/24", OVERLAY]))
                .await
                .is_err()
        );
        assert_eq!(addresses(), nets(&["10.1.2.3/24"]));
    });
}

#[test]
fn forwarding_is_read_from_this_namespace() {
    in_namespace(|| {
        assert!(!forwards_ipv4() && !forwards_ipv6() && has_ipv6("lo") && !has_ipv6("none0"));

        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();

        assert!(forwards_ipv4() && forwards_ipv6());
    });
}

async fn up() -> (Tun, Interface) {
    let tun = Tun::open("anchor0").unwrap();
    let interface = Netlink::connect().unwrap().interface(tun.index());
    interface.bring_up(1420).await.unwrap();
    (tun, interface)
}

/// Another interface, with a network of its own in each family.
fn lan() {
    ip("link add lan0 type veth peer name lan1");
    ip("link set lan1 up");
    ip("link set lan0 up");
    ip("addr add 192.168.7.5/24 dev lan0");
    ip("addr add fd00:7::5/64 dev lan0 nodad");
}

fn plain(destination: &str) -> Route {
    let destination = destination.parse().unwrap();
    Route {
        destination,
        metric: None,
        mtu_bytes: None,
        source: None,
    }
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// What iproute2 sees on our interface, in the order of [`IpNet`].
fn addresses() -> Vec<IpNet> {
    let mut found: Vec<IpNet> = ip("-o addr show dev anchor0")
        .split_whitespace()
        .filter_map(|word| word.contains('/').then(|| word.parse().ok()).flatten())
        .collect();
    found.sort();
    found
}

/// All that an interface could leave behind.
fn state() -> String {
    [
        "-o link",
        "-o addr",
        "route show table all",
        "-6 route show table all",
        "rule",
        "-6 rule",
    ]
    .map(ip)
    .concat()
}

async fn await_changes(watcher: &mut Watcher, wanted: impl Fn(Changes) -> bool) -> Changes {
    let mut all = Changes::default();
    let waiting = async {
        while !wanted(all) {
            let heard = watcher.changed().await.unwrap();
            all.links |= heard.links;
            all.addresses |= heard.addresses;
            all.routes |= heard.routes;
            all.own |= heard.own;
        }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert!(outcome.is_ok(), "heard only {all:?}");
    all
}
