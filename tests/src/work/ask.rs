//! One question, one answer: what a client host asks a service. The functions ending in `_here`
//! run on a thread that is in the client's network already.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::service::{MAX_DATAGRAM, lock};
use crate::host::Host;

/// How long a client of a datagram service waits before it asks again, as one does.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Asks over HTTP from `source` (any when absent) and returns the body.
///
/// # Errors
///
/// As the connection fails, or when it takes longer than `limit` at any step.
pub fn get(
    host: &Host,
    source: Option<IpAddr>,
    target: SocketAddr,
    limit: Duration,
) -> io::Result<String> {
    host.enter(|| get_here(source, target, limit))
}

/// As [`get`], in the network of the calling thread.
///
/// # Errors
///
/// As [`get`].
pub fn get_here(source: Option<IpAddr>, target: SocketAddr, limit: Duration) -> io::Result<String> {
    let mut stream = connect_here(source, target, limit)?;
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    body.filter(|body| !body.is_empty())
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Opens a connection from `source` (any when absent).
///
/// # Errors
///
/// As the connection fails, or when it takes longer than `limit`.
pub fn connect_here(
    source: Option<IpAddr>,
    target: SocketAddr,
    limit: Duration,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    socket.connect_timeout(&target.into(), limit)?;
    socket.set_read_timeout(Some(limit))?;
    socket.set_write_timeout(Some(limit))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Asks by datagram, again while nothing comes, and returns the answer of a [`super::UdpService::echo`], without the echo.
///
/// # Errors
///
/// When no answer comes within `limit`, or an ICMP error does.
pub fn ask_udp(
    host: &Host,
    source: Option<IpAddr>,
    target: SocketAddr,
    limit: Duration,
) -> io::Result<String> {
    host.enter(|| ask_udp_here(source, target, limit))
}

/// As [`ask_udp`], in the network of the calling thread.
///
/// # Errors
///
/// As [`ask_udp`].
pub fn ask_udp_here(
    source: Option<IpAddr>,
    target: SocketAddr,
    limit: Duration,
) -> io::Result<String> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((source.unwrap_or(any), 0))?;
    socket.set_read_timeout(Some(ASK_AGAIN.min(limit)))?;
    socket.connect(target)?;
    let end = Instant::now() + limit;
    let mut buffer = [0; 2048];
    let length = loop {
        socket.send(b"who")?;
        match socket.recv(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {}
            received => break received?,
        }
    };
    let answer = String::from_utf8_lossy(&buffer[..length]).into_owned();
    answer
        .strip_suffix(" who")
        .map(str::to_owned)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Sends one datagram of `bytes` to a [`super::UdpService::echo`] and returns whether it came back
/// whole; never asks twice.
///
/// # Errors
///
/// When nothing comes within `limit`, or an ICMP error does.
pub fn echoes_whole(
    host: &Host,
    target: SocketAddr,
    bytes: usize,
    limit: Duration,
) -> io::Result<bool> {
    let socket = host.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    socket.set_read_timeout(Some(limit))?;
    socket.connect(target)?;
    let mut datagram = vec![0; bytes];
    fastrand::Rng::new().fill(&mut datagram);
    socket.send(&datagram)?;
    let mut answer = vec![0; MAX_DATAGRAM];
    let length = socket.recv(&mut answer)?;
    // The service's name and a space stand before the echo.
    Ok(length > bytes && answer[..length].ends_with(&datagram))
}

/// Asks once from each source, `threads` at a time, and returns the answers in the same order.
pub fn ask_udp_from_each(
    host: &Host,
    sources: &[IpAddr],
    target: SocketAddr,
    threads: usize,
    limit: Duration,
) -> Vec<io::Result<String>> {
    let next = Mutex::new(0..sources.len());
    let answers = Mutex::new(Vec::with_capacity(sources.len()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                host.enter(|| {
                    loop {
                        let Some(place) = lock(&next).next() else {
                            return;
                        };
                        let answer = ask_udp_here(Some(sources[place]), target, limit);
                        lock(&answers).push((place, answer));
                    }
                });
            });
        }
    });
    let mut answers = std::mem::take(&mut *lock(&answers));
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Reads an HTTP head to its empty line.
pub(super) fn read_head(stream: &mut impl Read) -> io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > 8192 || stream.read(&mut byte)? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(byte[0]);
    }
    Ok(())
}
