//! Sending runs of equal datagrams by one call (UDP_SEGMENT), one by one where a path's device
//! cannot.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use conflux_core::paths::Way;
use socket2::SockAddr;

use super::{MAX_SEGMENTS, MAX_SEND_BYTES, RecvBatch};

/// The data thread's socket: takes frames of ours from anyone, sends to anyone.
#[derive(Debug)]
pub struct DataSocket {
    socket: UdpSocket,
    local: SocketAddr,
    one_by_one: HashMap<SocketAddr, u32>,
    first_one_by_one: Option<SocketAddr>,
    stats: SendStats,
}

impl DataSocket {
    pub(super) fn new(socket: UdpSocket, local: SocketAddr) -> Self {
        let one_by_one = HashMap::with_capacity(MAX_REMEMBERED);
        Self {
            socket,
            local,
            one_by_one,
            first_one_by_one: None,
            stats: SendStats::default(),
        }
    }

    /// Fills `batch` with what has come, at most `most` runs of it (1 to 32); returns how many
    /// runs, 0 when nothing waits. Each run more that is asked for and not there costs the kernel
    /// a look.
    ///
    /// # Errors
    /// What the kernel said; the batch is empty then. A socket of ours is never connected, so
    /// this is not about one peer.
    pub fn recv_batch(&mut self, batch: &mut RecvBatch, most: usize) -> io::Result<usize> {
        batch.fill(&self.socket, most)
    }

    /// Sends `bytes` by `way` as datagrams of `segment_bytes`, the last perhaps shorter. Runs
    /// above [`MAX_SEND_BYTES`] or [`MAX_SEGMENTS`] take more than one call to the kernel. From
    /// an address that is ours no longer they go out all the same, from one that is. Never blocks.
    ///
    /// # Errors
    /// The first datagram not sent names the reason; those behind it were not sent either.
    pub fn send(&mut self, way: Way, bytes: &[u8], segment_bytes: usize) -> Result<(), SendError> {
        let mut ends = Ends {
            to: SockAddr::from(way.remote),
            // Bound to one address, the socket sends from no other.
            from: way.local.filter(|_| self.local.ip().is_unspecified()),
        };
        let result = self.send_runs(way.remote, &mut ends, bytes, segment_bytes.max(1));
        if let Err(SendError::Full) = result {
            self.stats.full += 1;
        }
        result
    }

    /// Returns the address bound to; its port is never 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns whether this socket can send to `to` at all.
    pub fn serves(&self, to: SocketAddr) -> bool {
        self.local.is_ipv4() == to.is_ipv4()
    }

    /// Returns, once, the first address whose runs could not go out whole.
    pub fn take_first_one_by_one(&mut self) -> Option<SocketAddr> {
        self.first_one_by_one.take()
    }

    /// Returns what was counted since the start.
    pub fn stats(&self) -> SendStats {
        self.stats
    }

    fn send_runs(
        &mut self,
        to: SocketAddr,
        ends: &mut Ends,
        bytes: &[u8],
        segment_bytes: usize,
    ) -> Result<(), SendError> {
        let run_bytes = segment_bytes * MAX_SEGMENTS.min(MAX_SEND_BYTES / segment_bytes).max(1);
        for run in bytes.chunks(run_bytes) {
            let is_long = run.len() > segment_bytes;
            let mut is_unable = false;
            if is_long && !self.goes_one_by_one(to) {
                match self.send_once(ends, run, Some(segment_bytes)) {
                    Ok(()) => continue,
                    Err(error) if is_about_segments(&error) => is_unable = true,
                    Err(error) => return Err(SendError::from_kernel(error)),
                }
            }
            for datagram in run.chunks(segment_bytes) {
                self.send_once(ends, datagram, None)
                    .map_err(SendError::from_kernel)?;
            }
            // Not for datagrams that do not fit alone either: there will be none when the limit
            // is known.
            if is_unable {
                self.remember(to);
            }
        }
        Ok(())
    }

    fn send_once(
        &mut self,
        ends: &mut Ends,
        bytes: &[u8],
        segment_bytes: Option<usize>,
    ) -> io::Result<()> {
        loop {
            self.stats.calls += 1;
            match send_message(&self.socket, ends, bytes, segment_bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if ends.from.is_some() && is_about_source(&error) => ends.from = None,
                result => return result,
            }
        }
    }

    /// Counts down to the next attempt, so that a path that changed gets its speed back.
    fn goes_one_by_one(&mut self, to: SocketAddr) -> bool {
        // The map is empty on nearly every host; then this costs one comparison.
        if self.one_by_one.is_empty() {
            return false;
        }
        let Some(left) = self.one_by_one.get_mut(&to) else {
            return false;
        };
        *left -= 1;
        if *left == 0 {
            self.one_by_one.remove(&to);
        }
        true
    }

    fn remember(&mut self, to: SocketAddr) {
        if self.stats.fallbacks == 0 {
            self.first_one_by_one = Some(to);
        }
        self.stats.fallbacks += 1;
        if self.one_by_one.len() >= MAX_REMEMBERED {
            self.one_by_one.clear();
        }
        self.one_by_one.insert(to, RUNS_UNTIL_RETRY);
    }
}

/// Where datagrams go, and from where.
struct Ends {
    to: SockAddr,
    /// The kernel's choice if none.
    from: Option<IpAddr>,
}

impl AsFd for DataSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Counters of a [`DataSocket`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendStats {
    /// Calls to the kernel.
    pub calls: u64,
    /// Times a run could not go out whole and was sent one by one.
    pub fallbacks: u64,
    /// Sends given up because a buffer or a queue was full.
    pub full: u64,
}

/// Why datagrams were dropped here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The socket's buffer or the device's queue is full.
    #[error("the send buffer is full")]
    Full,
    /// No route, or no address to send from.
    #[error("no route to the peer's address")]
    Unreachable,
    /// Longer than this host's own interface takes.
    #[error("the datagram is too big for the interface")]
    TooBig,
    /// The host's firewall forbids it.
    #[error("the host's firewall refused the datagram")]
    Refused,
    /// Anything else.
    #[error(transparent)]
    Failed(io::Error),
}

impl SendError {
    fn from_kernel(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Self::Full,
            Some(
                libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::EADDRNOTAVAIL
                | libc::EAFNOSUPPORT
                | libc::ENODEV,
            ) => Self::Unreachable,
            Some(libc::EMSGSIZE) => Self::TooBig,
            Some(libc::EPERM | libc::EACCES) => Self::Refused,
            _ => Self::Failed(error),
        }
    }
}

/// EIO: the device cannot checksum the pieces. EINVAL and EMSGSIZE: it cannot take such runs, or a
/// piece is longer than its MTU, which shows when the piece is sent alone.
fn is_about_segments(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE)
    )
}

/// EINVAL: the address to send from is not ours. The others: no way out begins at it.
fn is_about_source(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EADDRNOTAVAIL | libc::ENETUNREACH | libc::EHOSTUNREACH)
    )
}

fn send_message(
    socket: &UdpSocket,
    ends: &Ends,
    bytes: &[u8],
    segment_bytes: Option<usize>,
) -> io::Result<()> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control {
        bytes: [0; CONTROL_BYTES],
        used: 0,
    };
    if let Some(segment) = segment_bytes.and_then(|bytes| u16::try_from(bytes).ok()) {
        control.put(libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    match ends.from {
        Some(IpAddr::V4(from)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: u32::from_ne_bytes(from.octets()),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            control.put(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        // A link-local source needs the interface as well, which the scope of `to` names.
        Some(IpAddr::V6(from)) if !from.is_unicast_link_local() => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: from.octets(),
                },
                ipi6_ifindex: 0,
            };
            control.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        Some(IpAddr::V6(_)) | None => {}
    }
    // SAFETY: a msghdr is plain data for which all zeros is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = ends.to.as_ptr().cast_mut().cast();
    message.msg_namelen = ends.to.len();
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    if control.used > 0 {
        message.msg_control = (&raw mut control.bytes).cast();
        message.msg_controllen = control.used as _;
    }
    // SAFETY: name, iovec, payload and control buffer outlive the call, with their true
    // lengths; sendmsg only reads them.
    let sent = unsafe {
        libc::sendmsg(
            socket.as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Control messages for one call.
#[repr(C, align(8))]
struct Control {
    bytes: [u8; CONTROL_BYTES],
    used: usize,
}

impl Control {
    /// Adds a message; there is room for a run's length and the longer kind of source.
    fn put<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        let bytes = size_of::<T>() as libc::c_uint;
        let Some(room) = self.bytes.get_mut(self.used..self.used + space(bytes)) else {
            debug_assert!(false, "no room for another control message");
            return;
        };
        // SAFETY: `room` is as long as such a message, and aligned for its header: the buffer is,
        // and what was used of it is a multiple of that. The value is written unaligned.
        unsafe {
            let header: *mut libc::cmsghdr = room.as_mut_ptr().cast();
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
            std::ptr::write_unaligned(libc::CMSG_DATA(header).cast(), value);
        }
        self.used += space(bytes);
    }
}

/// Bytes a control message takes with this many of its own.
const fn space(bytes: libc::c_uint) -> usize {
    // SAFETY: CMSG_SPACE is arithmetic on its argument.
    (unsafe { libc::CMSG_SPACE(bytes) }) as usize
}

const CONTROL_BYTES: usize =
    space(size_of::<u16>() as libc::c_uint) + space(size_of::<libc::in6_pktinfo>() as libc::c_uint);

/// Paths remembered as unable; beyond that all are tried again. Peers of one anchor that share
/// such a device are few, and forgetting costs one failed call per run.
const MAX_REMEMBERED: usize = 256;

/// Runs sent one by one before the path is tried again: some 40 MB, so that the attempt that
/// fails is lost in the work.
const RUNS_UNTIL_RETRY: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_address_that_takes_no_runs_is_told_and_only_once() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        let mut socket = DataSocket::new(socket, local);
        let [first, second] = [1, 2].map(|port| SocketAddr::new(local.ip(), port));

        let before = socket.take_first_one_by_one();
        socket.remember(first);
        socket.remember(second);
        let told = socket.take_first_one_by_one();
        socket.remember(first);
        let again = socket.take_first_one_by_one();

        assert_eq!((before, told, again), (None, Some(first), None));
        assert_eq!(socket.stats().fallbacks, 3);
    }
}
