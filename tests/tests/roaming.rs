//! A machine changes its network while it talks: the conversation goes on with the same holder
//! within two seconds of a network being usable, and news of the realm arrive as soon.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot set up has failed its test"
)]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use e2e::nat::{Nat, Site};
use e2e::scenario::{Holder, SHARED_NETWORK, at, port};
use e2e::work::Pulse;
use e2e::{Anchor, Host, Lab, Options, wait};
use nix::sys::signal::Signal;

/// SPEC section 11.
const BAR: Duration = Duration::from_secs(2);

/// Far more than the bar, to see by how much a move misses it.
const PATIENCE: Duration = Duration::from_secs(15);

#[test]
fn another_address_on_the_same_card() {
    let lab = Lab::new();
    let machine = lab.host("laptop");
    machine.ip([format!("addr del {}/64 dev eth0", machine.ipv6())]);
    let realm = Realm::start(lab, machine);

    let moved = realm.moves(|realm| renumber(&realm.machine, 77));

    moved.is_in_time("another address");
}

#[test]
fn another_address_of_both_ends_at_once() {
    let lab = Lab::new();
    let machine = lab.host("laptop");
    machine.ip([format!("addr del {}/64 dev eth0", machine.ipv6())]);
    let realm = Realm::start(lab, machine);

    let moved = realm.moves(|realm| {
        let holder = realm.holder_in_use();
        holder
            .host
            .ip([format!("addr del {}/64 dev eth0", holder.host.ipv6())]);
        renumber(&holder.host, 78);
        renumber(&realm.machine, 77)
    });

    moved.is_in_time("another address of both ends");
}

#[test]
fn another_uplink_after_the_first_went_down() {
    let lab = Lab::new();
    let home = Site::start(&lab, "laptop", Nat::PortRestricted);
    let mobile = Site::start(&lab, "mobile", Nat::Symmetric);
    second_uplink(&lab, &home.machine, mobile.outermost());
    let realm = Realm::start(lab, home.machine.clone());

    let moved = realm.moves(|realm| {
        realm.machine.ip(["link set eth0 down"]);
        Instant::now()
    });

    moved.is_in_time("another uplink");
}

#[test]
fn a_better_uplink_beside_the_first() {
    let lab = Lab::new();
    let home = Site::start(&lab, "laptop", Nat::PortRestricted);
    let office = Site::start(&lab, "office", Nat::PortRestricted);
    second_uplink(&lab, &home.machine, office.outermost());
    let realm = Realm::start(lab, home.machine.clone());

    let moved = realm.moves(|realm| {
        realm
            .machine
            .ip(["route add default via 192.168.2.254 metric 1"]);
        Instant::now()
    });

    moved.is_in_time("a better uplink");
}

#[test]
fn a_router_that_rebinds() {
    for nat in [Nat::PortRestricted, Nat::Symmetric] {
        let lab = Lab::new();
        let home = Site::start(&lab, "laptop", nat);
        let realm = Realm::start(lab, home.machine.clone());

        let moved = realm.moves(|_| {
            home.rebind();
            Instant::now()
        });

        moved.is_in_time(&format!("a rebind, {nat}"));
    }
}

#[test]
fn a_line_that_was_dialled_anew() {
    let lab = Lab::new();
    let home = Site::start(&lab, "laptop", Nat::PortRestricted);
    let realm = Realm::start(lab, home.machine.clone());

    let moved = realm.moves(|_| {
        home.renumber(200);
        Instant::now()
    });

    moved.is_in_time("a line dialled anew");
}

#[test]
fn a_router_whose_address_another_one_takes_over() {
    let lab = Lab::new();
    let first = Site::start(&lab, "laptop", Nat::PortRestricted);
    let second = Site::start(&lab, "second", Nat::PortRestricted);
    let (machine, gateway) = (&first.machine, Ipv4Addr::new(192, 168, 1, 254));
    let network = "192.168.1.0/24".parse().unwrap();
    lab.wire(second.outermost(), machine, "eth1", network);
    machine.ip([
        "addr flush dev eth0",
        "addr flush dev eth1",
        "link add lan type bridge",
        "link set eth0 master lan",
        "link set eth1 master lan",
        "addr add 192.168.1.1/24 dev lan",
        "link set lan up",
        "route add default via 192.168.1.254",
    ]);
    let (old, new) = (first.outermost(), second.outermost());
    let (old_cards, new_cards) = (cards_at(old, gateway), cards_at(new, gateway));
    let (old_card, new_card) = (&old_cards[0], &new_cards[1]);
    // The other card leads to the machine of the second router's own site.
    new.ip(new_cards
        .iter()
        .map(|card| format!("addr del {gateway}/24 dev {card}")));
    let realm = Realm::start(lab, first.machine.clone());

    let moved = realm.moves(|_| {
        old.ip([format!("addr del {gateway}/24 dev {old_card}")]);
        new.ip([format!("addr add {gateway}/24 dev {new_card}")]);
        // What the gratuitous ARP of a router does that takes over.
        let file = format!("/sys/class/net/{new_card}/address");
        let link = new.command("cat").arg(file).must();
        machine.ip([format!(
            "neigh replace {gateway} lladdr {} dev lan",
            link.trim()
        )]);
        Instant::now()
    });

    moved.is_in_time("another router at the same address");
}

#[test]
fn a_card_that_was_down_for_five_seconds() {
    let lab = Lab::new();
    let home = Site::start(&lab, "laptop", Nat::PortRestricted);
    let realm = Realm::start(lab, home.machine.clone());

    let moved = realm.moves(|realm| {
        realm.machine.ip(["link set eth0 down"]);
        wait::pass(Duration::from_secs(5));
        realm
            .machine
            .ip(["link set eth0 up", "route add default via 192.168.1.254"]);
        Instant::now()
    });

    moved.is_in_time("a card down for 5 s");
}

#[test]
fn an_uplink_that_lost_everything_for_five_seconds() {
    let lab = Lab::new();
    let home = Site::start(&lab, "laptop", Nat::PortRestricted);
    let realm = Realm::start(lab, home.machine.clone());

    let moved = realm.moves(|realm| {
        realm.lab.around(home.outermost()).cut();
        wait::pass(Duration::from_secs(5));
        realm.lab.around(home.outermost()).mend();
        Instant::now()
    });

    moved.is_in_time("an uplink dead for 5 s");
}

/// What of a suspend can be had without one: the process stands still, its card is down, and it
/// wakes up in another network. The clocks that tell a suspend from a pause do not differ here.
#[test]
fn a_machine_that_slept_and_woke_elsewhere() {
    for seconds in [10, 80] {
        let lab = Lab::new();
        let home = Site::start(&lab, "laptop", Nat::PortRestricted);
        let away = Site::start(&lab, "away", Nat::PortRestricted);
        second_uplink(&lab, &home.machine, away.outermost());
        home.machine.ip(["link set eth1 down"]);
        let realm = Realm::start(lab, home.machine.clone());

        let moved = realm.moves(|realm| {
            realm.anchor.signal(Signal::SIGSTOP);
            realm.machine.ip(["link set eth0 down"]);
            wait::pass(Duration::from_secs(seconds));
            realm
                .machine
                .ip(["link set eth1 up", "route add default via 192.168.2.254"]);
            realm.anchor.signal(Signal::SIGCONT);
            Instant::now()
        });

        moved.is_in_time(&format!("asleep for {seconds} s"));
    }
}

/// Two holders of the shared address on the segment, and a machine that moves.
struct Realm {
    holders: Vec<Holder>,
    anchor: Anchor,
    machine: Host,
    lab: Lab,
}

/// What came of a move.
#[derive(Debug)]
struct Moved {
    /// Until the first answer to something sent after the network was usable.
    traffic: Option<Duration>,
    /// Until news that the holder spread then arrived.
    news: Option<Duration>,
    before: Option<String>,
    after: Option<String>,
    answerers: usize,
}

impl Realm {
    fn start(lab: Lab, machine: Host) -> Self {
        let one = Holder::start(&lab.host("a"), None);
        let ticket = one.anchor.invite("--advertise any");
        let two = Holder::start(&lab.host("b"), Some(&ticket));
        let anchor = Anchor::start(&machine, &Options::default().joining(&ticket));
        let realm = Self {
            holders: vec![one, two],
            anchor,
            machine,
            lab,
        };
        wait::until(PATIENCE, "both holders to be measured", || {
            let peers = realm.anchor.peers();
            let usable = peers.iter().filter(|peer| peer.rtt_micros.is_some());
            let row = realm.anchor.route(SHARED_NETWORK);
            usable.count() == 2 && row.is_some_and(|row| row.via.len() == 2)
        });
        realm
    }

    /// Has something done to the network while a pulse runs; `disturb` returns when the network
    /// was usable again.
    fn moves(&self, disturb: impl FnOnce(&Self) -> Instant) -> Moved {
        let pulse = Pulse::start(&self.machine, at(port::WHO));
        assert!(pulse.next_beat(Instant::now(), PATIENCE).is_some());
        // Long enough for the path to count as one that works.
        wait::pass(Duration::from_millis(1200));
        let before = self.holder_id();
        let holder = self.holder_in_use();

        let usable = disturb(self);
        let (traffic, news) = std::thread::scope(|scope| {
            let traffic = scope.spawn(|| pulse.next_beat(usable, PATIENCE));
            let news = self.news_of(holder, usable);
            (traffic.join().unwrap(), news)
        });
        Moved {
            traffic,
            news,
            before,
            after: self.holder_id(),
            answerers: pulse.answerers().len(),
        }
    }

    /// Has a holder say something new and waits until the machine knows.
    fn news_of(&self, holder: &Holder, since: Instant) -> Option<Duration> {
        holder.anchor.say(["drain"]);
        let knows = || {
            let mut peers = self.anchor.peers_raw().into_iter();
            peers.any(|peer| peer["anchor"] == holder.anchor.id() && peer["draining"] == true)
        };
        while !knows() {
            if since.elapsed() > PATIENCE {
                return None;
            }
            wait::pass(Duration::from_millis(5));
        }
        let took = since.elapsed();
        holder.anchor.say(["undrain"]);
        Some(took)
    }

    fn holder_in_use(&self) -> &Holder {
        let id = self.holder_id();
        let mut holders = self.holders.iter();
        holders
            .find(|holder| Some(holder.anchor.id()) == id.as_deref())
            .unwrap()
    }

    fn holder_id(&self) -> Option<String> {
        self.anchor.flows().into_iter().next()?.holder
    }
}

impl Moved {
    #[expect(
        clippy::print_stdout,
        reason = "what was measured belongs beside the verdict"
    )]
    fn is_in_time(&self, what: &str) {
        println!("{what}: traffic {:?}, news {:?}", self.traffic, self.news);
        assert!(
            self.before == self.after && self.answerers == 1,
            "{what} moved the flow: {self:?}"
        );
        assert!(
            self.traffic.is_some_and(|took| took < BAR),
            "{what}: {self:?}"
        );
        assert!(self.news.is_some_and(|took| took < BAR), "{what}: {self:?}");
    }
}

/// Gives a host of the segment another address in place of its own.
fn renumber(host: &Host, last: u8) -> Instant {
    host.ip([
        format!("addr del {}/24 dev eth0", host.ipv4()),
        format!("addr add 10.99.0.{last}/24 dev eth0"),
    ]);
    Instant::now()
}

/// Gives a machine a second uplink, used when the first has gone.
fn second_uplink(lab: &Lab, machine: &Host, router: &Host) {
    let gateway = lab.wire(router, machine, "eth1", "192.168.2.0/24".parse().unwrap());
    machine.ip([format!("route add default via {gateway} metric 500")]);
}

/// The cards of `router` that have this address, in the order they were made.
fn cards_at(router: &Host, address: Ipv4Addr) -> Vec<String> {
    let shown = router
        .command("ip")
        .args(["-br", "addr", "show", "to", &address.to_string()])
        .must();
    let names = shown.lines().filter_map(|line| line.split('@').next());
    names.map(str::to_owned).collect()
}
