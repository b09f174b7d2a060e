//! The UDP socket quinn is given: several control sockets and the strays of the data thread,
//! with every address translated by [`Paths`]. Never fails upwards: an error of one send or
//! receive is a lost packet, because quinn takes errors of its socket for the end of all.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use conflux_core::gate::{Gate, Opening};
use conflux_core::ids::Relayed;
use conflux_core::paths::{Paths, Way, is_made_up};
use conflux_core::time::Mono;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{self, ControlMessage, MsgFlags, SockaddrStorage, sockopt};
use nix::time::{ClockId, clock_gettime};
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::io::Interest;
use tokio::sync::mpsc;

use super::carried::CarrySender;

/// QUIC datagrams the data thread may have handed over and quinn not yet taken; a glued burst
/// holds at most 64. More are dropped, and QUIC sends them again.
const MAX_STRAYS: usize = 256;

/// Receive errors borne in one call before others get their turn: each call takes one pending
/// ICMP error off the socket.
const MAX_ERRORS_PER_POLL: usize = 16;

/// The table of ways, shared by the QUIC socket and the control loop; the lock guards the whole
/// table, is taken per batch and never held across a system call or an await.
#[derive(Clone)]
pub struct SharedPaths(Arc<Mutex<Paths>>);

impl SharedPaths {
    /// Returns a shared table.
    pub fn new(paths: Paths) -> Self {
        Self(Arc::new(Mutex::new(paths)))
    }

    /// Locks the table; not to be held across an await.
    pub fn lock(&self) -> MutexGuard<'_, Paths> {
        // The table is consistent after each of its methods, so a panic elsewhere taints nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedPaths")
    }
}

/// Hands QUIC datagrams that arrived at a data socket over to quinn, from any thread.
#[derive(Clone, Debug)]
pub struct StraySender {
    queue: mpsc::Sender<Stray>,
    dropped: Arc<AtomicU64>,
}

impl StraySender {
    /// Copies one datagram into the queue; a full queue drops it and counts.
    pub fn give(&self, way: Way, datagram: &[u8]) {
        let stray = Stray {
            way,
            datagram: Bytes::copy_from_slice(datagram),
        };
        if self.queue.try_send(stray).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of datagrams dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Stray {
    way: Way,
    datagram: Bytes,
}

/// Returns the time on CLOCK_MONOTONIC.
pub(super) fn now() -> Mono {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(Duration::from)
        .unwrap_or_default();
    Mono::default() + now
}

/// The control sockets of all listen addresses, as one.
pub(super) struct Mux {
    /// Guards the sockets, for moments only; none once unplugged.
    ports: Mutex<Arc<[Port]>>,
    locals: Vec<SocketAddr>,
    paths: SharedPaths,
    /// Guards the counts of openings; taken per batch, after the ways and never across a call.
    gate: Mutex<Gate>,
    strays: Mutex<mpsc::Receiver<Stray>>,
    carry: CarrySender,
    /// The port asked first at the next receive, so that a busy one does not starve the others.
    turn: AtomicUsize,
}

struct Port {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
}

impl Mux {
    /// Takes over bound, unconnected UDP sockets; needs a tokio runtime around it.
    pub(super) fn new(
        sockets: Vec<UdpSocket>,
        paths: SharedPaths,
        carry: CarrySender,
    ) -> io::Result<(Self, StraySender)> {
        if sockets.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no control socket",
            ));
        }
        let ports = sockets
            .into_iter()
            .map(Port::new)
            .collect::<io::Result<Vec<Port>>>()?;
        let locals = ports.iter().map(|port| port.local).collect();
        let (queue, strays) = mpsc::channel(MAX_STRAYS);
        let mut seed = [0; 8];
        aws_lc_rs::rand::fill(&mut seed).map_err(|_| io::Error::other("no random bytes"))?;
        let mux = Self {
            ports: Mutex::new(ports.into()),
            locals,
            paths,
            gate: Mutex::new(Gate::new(u64::from_ne_bytes(seed))),
            strays: Mutex::new(strays),
            carry,
            turn: AtomicUsize::new(0),
        };
        Ok((
            mux,
            StraySender {
                queue,
                dropped: Arc::default(),
            },
        ))
    }

    /// Returns the local addresses, in the order the sockets were given.
    pub(super) fn locals(&self) -> &[SocketAddr] {
        &self.locals
    }

    /// Closes the sockets at once: quinn keeps an endpoint while its connections drain, which
    /// would keep the ports from whoever binds them next.
    pub(super) fn unplug(&self) {
        *self.lock_ports() = Arc::new([]);
    }

    fn ports(&self) -> Arc<[Port]> {
        self.lock_ports().clone()
    }

    fn lock_ports(&self) -> MutexGuard<'_, Arc<[Port]>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_strays(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<usize> {
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        let mut filled = 0;
        for (buf, meta) in bufs.iter_mut().zip(metas.iter_mut()) {
            let Poll::Ready(Some(stray)) = strays.poll_recv(cx) else {
                break;
            };
            let len = stray.datagram.len().min(buf.len());
            buf[..len].copy_from_slice(&stray.datagram[..len]);
            *meta = RecvMeta {
                addr: stray.way.remote,
                len,
                stride: len,
                ecn: None,
                dst_ip: stray.way.local,
            };
            filled += 1;
        }
        if filled == 0 {
            Poll::Pending
        } else {
            Poll::Ready(filled)
        }
    }

    /// Returns how many openings of connections were turned away unread.
    pub(super) fn turned_away(&self) -> u64 {
        self.lock_gate().turned_away()
    }

    fn lock_gate(&self) -> MutexGuard<'_, Gate> {
        // The counts are whole after each call, so a panic elsewhere taints nothing.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the addresses quinn knows into a received batch and blanks what is not QUIC, what the
    /// network brought from addresses that no network has, and openings of connections beyond what
    /// is allowed: quinn would work for each of them.
    fn translate(&self, bufs: &[IoSliceMut<'_>], metas: &mut [RecvMeta], from: Origin) {
        let now = now();
        let mut paths = self.paths.lock();
        let mut gate = self.lock_gate();
        for (buf, meta) in bufs.iter().zip(metas) {
            let pretends = from == Origin::Network && Relayed::from_address(&meta.addr).is_some();
            let is_quic =
                meta.len > 0 && !pretends && buf.first().is_some_and(|first| first & 0xC0 != 0);
            let way = Way {
                remote: meta.addr,
                local: meta.dst_ip,
            };
            let Some(seen) = is_quic.then(|| paths.handle_inbound(now, way)).flatten() else {
                tracing::trace!(source = %meta.addr, bytes = meta.len, "not QUIC, dropped");
                meta.len = 0;
                continue;
            };
            let is_known = is_made_up(seen);
            if let Some(opening) = Opening::read(&buf[..meta.len])
                && !gate.admits(now, opening, meta.addr.ip(), is_known)
            {
                tracing::trace!(source = %meta.addr, "an opening too many, dropped");
                meta.len = 0;
                continue;
            }
            meta.addr = seen;
            if is_known {
                meta.dst_ip = None;
            }
        }
    }

    fn send(&self, way: Way, contents: &[u8]) -> Result<(), WouldBlock> {
        if Relayed::from_address(&way.remote).is_some() {
            self.carry.give(way.remote, contents);
            return Ok(());
        }
        let ports = self.ports();
        let Some(port) = port_for(&ports, way) else {
            tracing::trace!(remote = %way.remote, "no control socket of that family, dropped");
            return Ok(());
        };
        port.send(way, contents)
    }
}

fn port_for(ports: &[Port], way: Way) -> Option<&Port> {
    let same_family = |port: &&Port| port.local.is_ipv4() == way.remote.is_ipv4();
    let at_local = |port: &&Port| Some(port.local.ip()) == way.local;
    let anywhere = |port: &&Port| port.local.ip().is_unspecified();
    let mine = || ports.iter().filter(same_family);
    mine()
        .find(at_local)
        .or_else(|| mine().find(anywhere))
        .or_else(|| mine().next())
}

/// Who brought a datagram: the data thread has checked by whom a relay let it be carried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Network,
    DataThread,
}

/// The socket's buffer is full; quinn asks again.
struct WouldBlock;

impl Port {
    fn new(socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new((&socket).into())?;
        // quinn-udp turns receive offload on; for little control traffic it would cost 3 MB of
        // buffers, and glues classes together.
        socket::setsockopt(&socket, sockopt::UdpGroSegment, &false)?;
        let local = socket.local_addr()?;
        Ok(Self {
            io: tokio::net::UdpSocket::from_std(socket)?,
            state,
            local,
        })
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<usize> {
        for _ in 0..MAX_ERRORS_PER_POLL {
            match self.io.poll_recv_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    tracing::warn!(local = %self.local, %error, "control socket is not polled");
                    return Poll::Pending;
                }
            }
            let received = self.io.try_io(Interest::READABLE, || {
                self.state.recv((&self.io).into(), bufs, metas)
            });
            match received {
                Ok(count) => return Poll::Ready(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => tracing::debug!(local = %self.local, %error, "control receive"),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends by plain `sendmsg`, not quinn-udp's: that one sets the whole TOS byte for ECN and
    /// so erases the DSCP that keeps control packets apart from data.
    fn send(&self, way: Way, contents: &[u8]) -> Result<(), WouldBlock> {
        let sent = self.io.try_io(Interest::WRITABLE, || {
            match send_msg(&self.io, way, contents) {
                // What kernels say of a source that is not, or no longer, an address of this machine.
                Err(Errno::EINVAL | Errno::EADDRNOTAVAIL | Errno::ENETUNREACH)
                    if way.local.is_some() =>
                {
                    send_msg(&self.io, Way { local: None, ..way }, contents)
                }
                other => other,
            }
            .map_err(io::Error::from)
        });
        match sent {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(WouldBlock),
            Err(error) => {
                tracing::debug!(remote = %way.remote, %error, "control packet not sent");
                Ok(())
            }
        }
    }
}

fn send_msg(io: &tokio::net::UdpSocket, way: Way, contents: &[u8]) -> nix::Result<()> {
    let parts = [IoSlice::new(contents)];
    let to = SockaddrStorage::from(way.remote);
    let flags = MsgFlags::MSG_DONTWAIT;
    let fd = io.as_raw_fd();
    match way.local {
        Some(IpAddr::V4(local)) if way.remote.is_ipv4() => {
            let source = libc::in_addr {
                s_addr: u32::from_ne_bytes(local.octets()),
            };
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: source,
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            socket::sendmsg(
                fd,
                &parts,
                &[ControlMessage::Ipv4PacketInfo(&info)],
                flags,
                Some(&to),
            )
        }
        // A link-local source needs the interface as well, which the scope of `to` names.
        Some(IpAddr::V6(local)) if way.remote.is_ipv6() && !local.is_unicast_link_local() => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: local.octets(),
                },
                ipi6_ifindex: 0,
            };
            socket::sendmsg(
                fd,
                &parts,
                &[ControlMessage::Ipv6PacketInfo(&info)],
                flags,
                Some(&to),
            )
        }
        Some(IpAddr::V4(_) | IpAddr::V6(_)) | None => {
            socket::sendmsg(fd, &parts, &[], flags, Some(&to))
        }
    }
    .map(drop)
}

impl AsyncUdpSocket for Mux {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable {
            mux: self,
            waiting: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let ways = if is_made_up(transmit.destination) {
            self.paths.lock().ways(now(), transmit.destination)
        } else {
            let way = Way {
                remote: transmit.destination,
                local: transmit.src_ip,
            };
            std::iter::once(way).collect()
        };
        if ways.is_empty() {
            tracing::trace!(to = %transmit.destination, "no way to the peer, dropped");
        }
        let mut blocked = 0;
        for way in &ways {
            if self.send(*way, transmit.contents).is_err() {
                blocked += 1;
            }
        }
        if blocked > 0 && blocked == ways.len() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        // The queue of strays takes its turn among the sockets, as the one after the last.
        let ports = self.ports();
        let sources = ports.len() + 1;
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for offset in 0..sources {
            let (from, received) = match ports.get(first.wrapping_add(offset) % sources) {
                Some(port) => (Origin::Network, port.poll_recv(cx, bufs, metas)),
                None => (Origin::DataThread, self.poll_strays(cx, bufs, metas)),
            };
            if let Poll::Ready(count) = received {
                self.translate(bufs, &mut metas[..count], from);
                return Poll::Ready(Ok(count));
            }
        }
        Poll::Pending
    }

    /// Made-up addresses are IPv6, so quinn must take this for an IPv6 socket.
    fn local_addr(&self) -> io::Result<SocketAddr> {
        let port = self.locals.first().map_or(0, SocketAddr::port);
        Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))
    }

    fn may_fragment(&self) -> bool {
        self.ports().iter().any(|port| port.state.may_fragment())
    }
}

impl fmt::Debug for Mux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mux")
            .field("locals", &self.locals())
            .finish_non_exhaustive()
    }
}

/// Waits until every control socket takes packets: which one was full is not worth knowing.
struct Writable {
    mux: Arc<Mux>,
    waiting: Option<WritableFuture>,
}

type WritableFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mux = self.mux.clone();
        let waiting = self.waiting.get_or_insert_with(|| {
            Box::pin(async move {
                for port in mux.ports().iter() {
                    port.io.writable().await?;
                }
                Ok(())
            })
        });
        let done = waiting.as_mut().poll(cx);
        if done.is_ready() {
            self.waiting = None;
        }
        done
    }
}

impl fmt::Debug for Writable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writable")
    }
}
