//! TCP and UDP services inside hosts: each a few threads on sockets of the host's network, ended
//! by shutting the sockets down.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use crate::host::Host;
use crate::wait;

/// How often a UDP service looks whether it is to end.
const LOOK_UP: Duration = Duration::from_millis(200);

/// No datagram is longer.
pub(super) const MAX_DATAGRAM: usize = 65_535;

/// A TCP service; its listener and connections are shut down when it is dropped.
pub struct TcpService {
    listener: TcpListener,
    /// Guards the connections to be shut down at the end, those that still are.
    open: Arc<Mutex<Vec<Weak<TcpStream>>>>,
}

/// An HTTP server that answers every request with its name and notes who asked.
pub struct HttpServer {
    /// Guards the sources seen, in order.
    seen: Arc<Mutex<Vec<IpAddr>>>,
    delay_micros: Arc<AtomicU64>,
    _service: TcpService,
}

/// A UDP service; ended when dropped.
pub struct UdpService {
    stop: Arc<AtomicBool>,
}

/// A UDP service that only notes what arrives.
pub struct UdpSink {
    /// Guards the datagrams noted, in order.
    arrived: Arc<Mutex<Vec<Arrival>>>,
    _service: UdpService,
}

/// One datagram of a [`super::OneWay`] sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When it came.
    pub at: Instant,
    /// Its sequence number.
    pub number: u64,
    /// Who sent it.
    pub from: SocketAddr,
}

impl TcpService {
    /// Serves each connection to `port` on a thread of its own.
    ///
    /// # Panics
    ///
    /// When the port is taken.
    pub fn start(
        host: &Host,
        port: u16,
        serve: impl Fn(&TcpStream, SocketAddr) + Send + Sync + 'static,
    ) -> Self {
        let listener = host
            .enter(|| listen(port))
            .unwrap_or_else(|error| panic!("TCP port {port} of {}: {error}", host.name()));
        let accepting = listener.try_clone().expect("a socket can be shared");
        let open: Arc<Mutex<Vec<Weak<TcpStream>>>> = Arc::default();
        let connections = Arc::clone(&open);
        let serve = Arc::new(serve);
        host.thread("tcp", move || {
            while let Ok((stream, from)) = accepting.accept() {
                let stream = Arc::new(stream);
                let mut connections = lock(&connections);
                connections.retain(|stream| stream.strong_count() > 0);
                connections.push(Arc::downgrade(&stream));
                drop(connections);
                let serve = Arc::clone(&serve);
                thread::spawn(move || {
                    serve(
                        &stream,
                        SocketAddr::new(from.ip().to_canonical(), from.port()),
                    );
                });
            }
        });
        Self { listener, open }
    }

    /// Serves an echo of every byte.
    pub fn echo(host: &Host, port: u16) -> Self {
        Self::start(host, port, |stream, _| {
            // Ends with the connection, in whatever way.
            let _ = io::copy(&mut &*stream, &mut &*stream);
        })
    }

    /// Greets with `hello`, swallows what comes and never says another word.
    pub fn silent(host: &Host, port: u16) -> Self {
        Self::start(host, port, |stream, _| {
            if (&*stream).write_all(b"hello").is_ok() {
                let _ = io::copy(&mut &*stream, &mut io::sink());
            }
        })
    }

    /// Sends bytes without end at about `bytes_per_second`.
    pub fn endless(host: &Host, port: u16, bytes_per_second: usize) -> Self {
        /// Short against every bar, long enough to cost little.
        const STEP: Duration = Duration::from_millis(10);
        Self::start(host, port, move |mut stream: &TcpStream, _| {
            let chunk = vec![0x5a; bytes_per_second / 100];
            while stream.write_all(&chunk).is_ok() {
                wait::pass(STEP);
            }
        })
    }
}

impl Drop for TcpService {
    fn drop(&mut self) {
        // Wakes accept; both fail only for sockets that are closed already.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        for stream in lock(&self.open)
            .drain(..)
            .filter_map(|stream| stream.upgrade())
        {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl HttpServer {
    /// Serves `name` on `port`.
    ///
    /// # Panics
    ///
    /// When the port is taken.
    pub fn start(host: &Host, port: u16, name: &str) -> Self {
        let seen: Arc<Mutex<Vec<IpAddr>>> = Arc::default();
        let delay_micros = Arc::new(AtomicU64::new(0));
        let (noted, delay) = (Arc::clone(&seen), Arc::clone(&delay_micros));
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{name}",
            name.len()
        );
        let service = TcpService::start(host, port, move |mut stream: &TcpStream, from| {
            if super::read_head(&mut stream).is_ok() {
                lock(&noted).push(from.ip());
                wait::pass(Duration::from_micros(delay.load(Ordering::Relaxed)));
                // A client that left needs no answer.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self {
            seen,
            delay_micros,
            _service: service,
        }
    }

    /// Makes every answer take this much longer from now on.
    pub fn take(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).expect("a short time");
        self.delay_micros.store(micros, Ordering::Relaxed);
    }

    /// Returns who has asked so far, in order.
    pub fn seen(&self) -> Vec<IpAddr> {
        lock(&self.seen).clone()
    }
}

impl UdpService {
    /// Answers each datagram to `port` by what `answer` makes of it.
    ///
    /// # Panics
    ///
    /// When the port is taken.
    pub fn start(
        host: &Host,
        port: u16,
        mut answer: impl FnMut(&[u8], SocketAddr) -> Option<Vec<u8>> + Send + 'static,
    ) -> Self {
        let socket = Self::bind(host, port);
        let stop = Arc::new(AtomicBool::new(false));
        let (serving, stopped) = (socket, Arc::clone(&stop));
        host.thread("udp", move || {
            let mut buffer = vec![0; MAX_DATAGRAM];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, from)) = serving.recv_from(&mut buffer) else {
                    continue;
                };
                let from_plain = SocketAddr::new(from.ip().to_canonical(), from.port());
                if let Some(answer) = answer(&buffer[..length], from_plain) {
                    // Lost like any datagram.
                    let _ = serving.send_to(&answer, from);
                }
            }
        });
        Self { stop }
    }

    /// Answers each datagram with `name`, a space and the datagram.
    pub fn echo(host: &Host, port: u16, name: &str) -> Self {
        let name = name.to_owned();
        Self::start(host, port, move |datagram, _| {
            Some([name.as_bytes(), b" ", datagram].concat())
        })
    }

    /// Sends to whoever asks: a datagram every 5 ms for `time`.
    pub fn stream(host: &Host, port: u16, time: Duration) -> Self {
        /// 200 datagrams a second: never silent for long, cheap to carry.
        const STEP: Duration = Duration::from_millis(5);
        let socket = Self::bind(host, port);
        let stop = Arc::new(AtomicBool::new(false));
        let (serving, stopped) = (socket, Arc::clone(&stop));
        host.thread("stream", move || {
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((_, from)) = serving.recv_from(&mut buffer) else {
                    continue;
                };
                let (socket, stopped) = (Arc::clone(&serving), Arc::clone(&stopped));
                thread::spawn(move || {
                    let end = Instant::now() + time;
                    while Instant::now() < end && !stopped.load(Ordering::Relaxed) {
                        let _ = socket.send_to(&[0x5a; 1000], from);
                        wait::pass(STEP);
                    }
                });
            }
        });
        Self { stop }
    }

    fn bind(host: &Host, port: u16) -> Arc<UdpSocket> {
        let socket = host
            .enter(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)))
            .unwrap_or_else(|error| panic!("UDP port {port} of {}: {error}", host.name()));
        socket
            .set_read_timeout(Some(LOOK_UP))
            .expect("a socket takes a timeout");
        Arc::new(socket)
    }
}

impl Drop for UdpService {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl UdpSink {
    /// Notes every numbered datagram to `port`.
    ///
    /// # Panics
    ///
    /// When the port is taken.
    pub fn start(host: &Host, port: u16) -> Self {
        let arrived: Arc<Mutex<Vec<Arrival>>> = Arc::default();
        let noted = Arc::clone(&arrived);
        let service = UdpService::start(host, port, move |datagram, from| {
            let number = datagram
                .first_chunk()
                .map(|bytes| u64::from_be_bytes(*bytes))?;
            let at = Instant::now();
            lock(&noted).push(Arrival { at, number, from });
            None
        });
        Self {
            arrived,
            _service: service,
        }
    }

    /// Returns what has arrived so far, in order.
    pub fn arrived(&self) -> Vec<Arrival> {
        lock(&self.arrived).clone()
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_only_v6(false)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

pub(super) fn lock<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}
