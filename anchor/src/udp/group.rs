//! Binding a group of two sockets to one port, so that nobody else can join it.
//!
//! SO_REUSEPORT lets any process of our user add a socket and so take a share of our datagrams,
//! without an error on either side. So the port is first bound alone, which fails when anyone
//! has it, under a lock that two anchors binding one address at once cannot both hold.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tracing::debug;

use super::filter::{self, Direction};
use super::{DataSocket, is_stray};

/// Two sockets on one port, and the claim to it.
#[derive(Debug)]
pub struct Group {
    /// For the data thread: frames of ours. Nonblocking, glued by UDP_GRO.
    pub data: DataSocket,
    /// For QUIC: everything else. Nonblocking.
    pub control: UdpSocket,
    /// What is bound, the port never 0.
    pub local: SocketAddr,
    /// Keeps other anchors from binding this address; must live as long as the sockets.
    pub claim: Claim,
}

/// Held while an address and port are ours. The kernel lets go of it with the process.
#[derive(Debug)]
pub struct Claim {
    _lock: UnixDatagram,
}

/// Binds `address`; port 0 picks a free one.
///
/// # Errors
/// One [`BindError`] per thing a user can mend; nothing stays bound.
pub fn bind_group(address: SocketAddr) -> Result<Group, BindError> {
    let local = find_free(address)?;
    let claim = claim(local)?;
    // Bound alone once more, now under the lock: port 0 was free a moment ago only.
    drop(bind(local, Sharing::Alone)?);
    let data = bind(local, Sharing::First)?;
    let control = bind(local, Sharing::Second)?;
    let data: UdpSocket = data.into();
    let control: UdpSocket = control.into();
    if let Sorting::Wrong = test_sorting(&data, &control, local) {
        return Err(BindError::Unsorted { address: local });
    }

    Ok(Group {
        data: DataSocket::new(data, local),
        control,
        local,
        claim,
    })
}

/// Why a group could not be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process has the port.
    #[error("UDP {address} is in use by another process: stop it, or choose another `--listen`")]
    InUse {
        /// What was asked for.
        address: SocketAddr,
    },
    /// No interface of this host has the address.
    #[error("UDP {address}: this host has no such address")]
    NoSuchAddress {
        /// What was asked for.
        address: SocketAddr,
    },
    /// The host has no IPv4, or no IPv6.
    #[error("UDP {address}: this host does not speak that family")]
    NoFamily {
        /// What was asked for.
        address: SocketAddr,
    },
    /// A port below 1024 without CAP_NET_BIND_SERVICE.
    #[error("not permitted to bind UDP {address}: choose a port above 1023")]
    NotPermitted {
        /// What was asked for.
        address: SocketAddr,
    },
    /// The kernel handed datagrams to the wrong socket.
    #[error("UDP {address}: this kernel does not sort datagrams between two sockets as asked")]
    Unsorted {
        /// What was asked for.
        address: SocketAddr,
    },
    /// Anything else the kernel said.
    #[error("could not {doing} for UDP {address}: {source}")]
    Failed {
        /// What was being tried.
        doing: &'static str,
        /// What was asked for.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn find_free(address: SocketAddr) -> Result<SocketAddr, BindError> {
    let socket = bind(address, Sharing::Alone)?;
    let local = socket
        .local_addr()
        .map_err(failed("read the port", address))?;
    Ok(local.as_socket().unwrap_or(address))
}

/// The lock is a name in the network namespace, as the port is: nothing on disk, nothing left.
fn claim(address: SocketAddr) -> Result<Claim, BindError> {
    let name = UnixAddress::from_abstract_name(format!("conflux/udp/{address}"))
        .map_err(failed("name the lock", address))?;
    match UnixDatagram::bind_addr(&name) {
        Ok(lock) => Ok(Claim { _lock: lock }),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(BindError::InUse { address }),
        Err(error) => Err(failed("take the lock", address)(error)),
    }
}

fn bind(address: SocketAddr, sharing: Sharing) -> Result<Socket, BindError> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )
    .map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => BindError::NoFamily { address },
        _ => failed("make a socket", address)(error),
    })?;
    prepare(&socket, address, sharing).map_err(failed("set up a socket", address))?;
    socket
        .bind(&address.into())
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => BindError::InUse { address },
            Some(libc::EADDRNOTAVAIL) => BindError::NoSuchAddress { address },
            Some(libc::EACCES | libc::EPERM) => BindError::NotPermitted { address },
            _ => failed("bind", address)(error),
        })?;
    Ok(socket)
}

fn prepare(socket: &Socket, address: SocketAddr, sharing: Sharing) -> io::Result<()> {
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    match sharing {
        Sharing::Alone => return Ok(()),
        Sharing::First => {
            socket.set_reuse_port(true)?;
            filter::attach_sorting(socket)?;
            filter::enable_gro(socket)?;
            if address.ip().is_unspecified() {
                filter::tell_local(socket, address.is_ipv6())?;
            }
        }
        Sharing::Second => {
            socket.set_reuse_port(true)?;
            mark_control(socket, address)?;
        }
    }
    filter::forbid_fragments(socket, address.is_ipv6())?;
    for direction in [Direction::Receive, Direction::Send] {
        grow_buffer(socket, direction)?;
    }
    Ok(())
}

fn mark_control(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() {
        socket.set_tclass_v6(CONTROL_TRAFFIC_CLASS)
    } else {
        socket.set_tos_v4(CONTROL_TRAFFIC_CLASS)
    }
}

/// As much as the host grants: without CAP_NET_ADMIN its own limit, and the tunnel is slower.
fn grow_buffer(socket: &Socket, direction: Direction) -> io::Result<()> {
    if filter::force_buffer(socket, direction, BUFFER_BYTES).is_ok() {
        return Ok(());
    }
    let bytes = BUFFER_BYTES as usize;
    match direction {
        Direction::Receive => socket.set_recv_buffer_size(bytes),
        Direction::Send => socket.set_send_buffer_size(bytes),
    }
}

/// Sends a few datagrams of either kind to ourselves and looks where they come out. Inconclusive
/// where loopback is down or a firewall stands in between: then the data thread still sorts.
fn test_sorting(data: &UdpSocket, control: &UdpSocket, local: SocketAddr) -> Sorting {
    let to = SocketAddr::new(reachable(local.ip()), local.port());
    for _ in 0..PROBES {
        for first in [DATA_PROBE, CONTROL_PROBE] {
            let Ok(sender) = UdpSocket::bind(SocketAddr::new(to.ip(), 0)) else {
                return Sorting::Untested;
            };
            let probe = [first; PROBE_BYTES];
            let Ok(source) = sender.local_addr() else {
                return Sorting::Untested;
            };
            if sender.send_to(&probe, to).is_err() {
                debug!(%local, "sorting of datagrams not tested: loopback is down");
                return Sorting::Untested;
            }
            let (right, wrong) = if is_stray(&probe) {
                (control, data)
            } else {
                (data, control)
            };
            match await_probe(right, wrong, source) {
                Sorting::Right => {}
                Sorting::Wrong => return Sorting::Wrong,
                Sorting::Untested => {
                    debug!(%local, "sorting of datagrams not tested: a firewall took the probe");
                    return Sorting::Untested;
                }
            }
        }
    }
    Sorting::Right
}

/// Drops what strangers send meanwhile: their protocols send it again.
fn await_probe(right: &UdpSocket, wrong: &UdpSocket, source: SocketAddr) -> Sorting {
    let deadline = Instant::now() + PROBE_WAIT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let ready = crate::poll::wait(&[right.as_fd(), wrong.as_fd()], Some(left));
        if holds(right, source) {
            return Sorting::Right;
        }
        if holds(wrong, source) {
            return Sorting::Wrong;
        }
        if left.is_zero() || ready.is_err() {
            return Sorting::Untested;
        }
    }
}

fn holds(socket: &UdpSocket, source: SocketAddr) -> bool {
    let mut buffer = [0; PROBE_BYTES];
    while let Ok((_, from)) = socket.recv_from(&mut buffer) {
        if from == source {
            return true;
        }
    }
    false
}

fn reachable(bound: IpAddr) -> IpAddr {
    match bound {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => bound,
    }
}

fn failed(doing: &'static str, address: SocketAddr) -> impl Fn(io::Error) -> BindError {
    move |source| BindError::Failed {
        doing,
        address,
        source,
    }
}

#[derive(Clone, Copy)]
enum Sharing {
    Alone,
    First,
    Second,
}

enum Sorting {
    Right,
    Wrong,
    Untested,
}

/// As passed to setsockopt, the kernel doubles it. Throughput grew from 4.9 to 8.7 Gbit/s between
/// 100 KB and 4 MB; the rest is for paths with a longer round trip.
const BUFFER_BYTES: libc::c_int = 7_000_000;

/// DSCP CS2 (operations, RFC 4594): another class than data's, so that GRO keeps them apart.
const CONTROL_TRAFFIC_CLASS: u32 = 0x40;

/// First bytes for which the kernel's own spreading would be right by luck 1 time in 256 in all.
const PROBES: usize = 4;

/// In the range of our frame types, of which 0x3f is the last.
const DATA_PROBE: u8 = 0x3f;

/// A QUIC short header.
const CONTROL_PROBE: u8 = 0x40;

/// Too short to be a frame or a QUIC packet, should one ever be left in a socket.
const PROBE_BYTES: usize = 8;

/// Loopback delivers within the call; this is for a host whose cores are all taken.
const PROBE_WAIT: Duration = Duration::from_millis(250);
