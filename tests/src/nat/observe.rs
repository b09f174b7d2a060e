//! What a machine's address translation does, found by raw datagrams between it and two hosts of
//! the segment, in the words of RFC 4787. That a datagram was kept out is known without waiting:
//! the next ones, which must come through, arrive and it has not.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::host::Host;

/// Datagrams cross the lab in under a millisecond; this is for a machine that is busy.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(5);

/// How a machine's sockets look from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// As they are.
    None,
    /// At one address and port, whomever they send to.
    EndpointIndependent,
    /// At another port for each address they send to.
    AddressDependent,
    /// At another port for each address and port they send to.
    AddressAndPortDependent,
}

/// Whose datagrams come through to a socket that has sent to one address and port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filtering {
    /// Everybody's, even when it has sent nothing at all.
    None,
    /// Everybody's.
    EndpointIndependent,
    /// Those of that address.
    AddressDependent,
    /// Those of that address and port.
    AddressAndPortDependent,
}

/// Both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behaviour {
    /// What others see.
    pub mapping: Mapping,
    /// What comes through.
    pub filtering: Filtering,
}

/// Finds the behaviour of what stands between `machine` and two hosts; `public` is the address at
/// which a stranger would look for the machine.
///
/// # Panics
///
/// When something that has to arrive does not.
pub fn observe(machine: &Host, public: Ipv4Addr, hosts: [&Host; 2]) -> Behaviour {
    Behaviour {
        mapping: mapping(machine, hosts),
        filtering: filtering(machine, public, hosts),
    }
}

fn mapping(machine: &Host, [one, other]: [&Host; 2]) -> Mapping {
    let inside = inside(machine);
    let servers = [outside(one), outside(one), outside(other)];
    let seen = servers.each_ref().map(|server| seen_by(&inside, server));
    let [first, same_address, same_port] = seen;
    let own = inside.local_addr().expect("a bound socket").port();
    if seen
        .iter()
        .all(|seen| *seen == SocketAddr::new(address_of(machine), own))
    {
        Mapping::None
    } else if first != same_address {
        Mapping::AddressAndPortDependent
    } else if first != same_port {
        Mapping::AddressDependent
    } else {
        Mapping::EndpointIndependent
    }
}

fn filtering(machine: &Host, public: Ipv4Addr, [one, other]: [&Host; 2]) -> Filtering {
    let (sender, silent) = (inside(machine), inside(machine));
    let (asked, same_address, stranger) = (outside(one), outside(one), outside(other));
    let mapped = seen_by(&sender, &asked);
    let silent_at = SocketAddr::new(public.into(), port(&silent));

    say(&stranger, "unasked", silent_at);
    say(&stranger, "stranger", mapped);
    say(&same_address, "address", mapped);
    let came = until_sentinels(&sender, &asked, mapped);

    let unasked = {
        silent
            .set_nonblocking(true)
            .expect("a socket's mode can be changed");
        heard(&silent).is_ok()
    };
    match (unasked, came.contains("stranger"), came.contains("address")) {
        (true, true, true) => Filtering::None,
        (false, true, true) => Filtering::EndpointIndependent,
        (false, false, true) => Filtering::AddressDependent,
        (false, false, false) => Filtering::AddressAndPortDependent,
        odd => panic!("no kind of filtering lets through {odd:?}"),
    }
}

/// Returns what arrives before the second of two datagrams that must. Everything sent earlier has
/// been handed on or dropped by then: the switch serves all hosts once between the two.
fn until_sentinels(socket: &UdpSocket, from: &UdpSocket, to: SocketAddr) -> BTreeSet<String> {
    let mut came = BTreeSet::new();
    for sentinel in ["first", "second"] {
        say(from, sentinel, to);
        loop {
            let word = heard(socket).unwrap_or_else(|error| panic!("the {sentinel}: {error}"));
            if word == sentinel {
                break;
            }
            came.insert(word);
        }
    }
    came
}

/// Returns the source `server` sees when `inside` sends to it.
///
/// # Panics
///
/// When the datagram or its answer is lost.
fn seen_by(inside: &UdpSocket, server: &UdpSocket) -> SocketAddr {
    say(
        inside,
        "there",
        server.local_addr().expect("a bound socket"),
    );
    let mut buffer = [0; 64];
    let (_, source) = server.recv_from(&mut buffer).expect("the way out is open");
    say(server, "back", source);
    assert_eq!(heard(inside).expect("an answer comes back"), "back");
    source
}

fn say(from: &UdpSocket, word: &str, to: SocketAddr) {
    from.send_to(word.as_bytes(), to)
        .unwrap_or_else(|error| panic!("{word} to {to}: {error}"));
}

fn heard(socket: &UdpSocket) -> io::Result<String> {
    let mut buffer = [0; 64];
    let (length, _) = socket.recv_from(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

fn inside(machine: &Host) -> UdpSocket {
    bound(machine, Ipv4Addr::UNSPECIFIED)
}

fn outside(host: &Host) -> UdpSocket {
    bound(host, host.ipv4())
}

fn bound(host: &Host, address: Ipv4Addr) -> UdpSocket {
    let socket = host.enter(|| UdpSocket::bind((address, 0)));
    let socket = socket.expect("a host has free ports");
    socket
        .set_read_timeout(Some(ARRIVAL_LIMIT))
        .expect("a socket's limit can be set");
    socket
}

fn port(socket: &UdpSocket) -> u16 {
    socket.local_addr().expect("a bound socket").port()
}

/// The address by which a machine sends to the outside.
fn address_of(machine: &Host) -> IpAddr {
    let socket = inside(machine);
    // Sends nothing: the kernel only chooses the source.
    machine
        .enter(|| socket.connect((Ipv4Addr::new(10, 99, 0, 1), 9)))
        .expect("a machine has a route to the segment");
    socket.local_addr().expect("a bound socket").ip()
}
