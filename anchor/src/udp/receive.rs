//! Many datagrams by one call: recvmmsg into one long buffer, runs glued by UDP_GRO.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// What one call brought, and the memory it is brought to; made once per thread.
pub struct RecvBatch {
    bytes: Box<[u8]>,
    received: Vec<Received>,
    truncated: u64,
}

/// A run of datagrams from one sender: each `stride_bytes` long, the last perhaps shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Who sent it, as the kernel saw it.
    pub source: SocketAddr,
    /// To which of our addresses it was sent; none for a socket that is bound to one.
    pub local: Option<IpAddr>,
    /// Where the run starts in the batch's memory.
    pub start: usize,
    /// How long the run is.
    pub bytes: usize,
    /// How long each datagram of it is; never 0.
    pub stride_bytes: usize,
}

impl Received {
    /// Walks the datagrams: where each starts in the batch's memory, and its length.
    pub fn datagrams(self) -> impl Iterator<Item = (usize, usize)> {
        let end = self.start + self.bytes;
        (self.start..end)
            .step_by(self.stride_bytes)
            .map(move |start| (start, self.stride_bytes.min(end - start)))
    }
}

impl RecvBatch {
    /// Makes room for a full batch; allocates about 2 MiB, touched only as datagrams come.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; MAX_RUNS * SLOT_BYTES].into(),
            received: Vec::with_capacity(MAX_RUNS),
            truncated: 0,
        }
    }

    /// Returns what came, and the memory it lies in.
    pub fn parts(&mut self) -> (&[Received], &mut [u8]) {
        (&self.received, &mut self.bytes)
    }

    /// Returns what came, in the order it came.
    pub fn received(&self) -> &[Received] {
        &self.received
    }

    /// Returns the memory the batch lies in.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns how many runs were dropped since the start, because the kernel could not tell
    /// all about them.
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    /// Fills the batch anew with at most `most` runs; returns how many came.
    pub(super) fn fill(&mut self, socket: &impl AsFd, most: usize) -> io::Result<usize> {
        let most = most.clamp(1, MAX_RUNS);
        self.received.clear();
        // Only as many of them as are used are ever written: together they are 8 KiB.
        let mut names = [const { MaybeUninit::<libc::sockaddr_in6>::uninit() }; MAX_RUNS];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; MAX_RUNS];
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_RUNS];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_RUNS];
        let slots = self.bytes.chunks_exact_mut(SLOT_BYTES).take(most);
        for (place, slot) in slots.enumerate() {
            let vector = vectors[place].write(libc::iovec {
                iov_base: slot.as_mut_ptr().cast(),
                iov_len: SLOT_BYTES,
            });
            // SAFETY: plain data of the kernel's, for which all zeros is a valid value; so is a
            // name the kernel left alone.
            let (mut header, name) = unsafe {
                let header = MaybeUninit::<libc::mmsghdr>::zeroed().assume_init();
                (
                    header,
                    names[place].write(MaybeUninit::zeroed().assume_init()),
                )
            };
            header.msg_hdr.msg_name = ptr::from_mut(name).cast();
            header.msg_hdr.msg_namelen = NAME_BYTES;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls[place].as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of::<Control>() as _;
            headers[place].write(header);
        }

        let count = loop {
            // SAFETY: the first `most` of `headers` are valid headers; each points to a name, a
            // control buffer, one iovec and through that to a slot of its own, all with their true
            // sizes and all alive and borrowed by nobody else until the call returns.
            let count = unsafe {
                libc::recvmmsg(
                    socket.as_fd().as_raw_fd(),
                    headers.as_mut_ptr().cast(),
                    most as _,
                    libc::MSG_DONTWAIT as _,
                    ptr::null_mut(),
                )
            };
            match usize::try_from(count) {
                Ok(count) => break count,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                    error => return Err(error),
                },
            }
        };
        for (place, (header, name)) in headers.iter().zip(&names).take(count).enumerate() {
            // SAFETY: both were written above, for as many places as the kernel may fill.
            let (header, name) = unsafe { (header.assume_init_ref(), name.assume_init_ref()) };
            self.note(place, header, name);
        }
        Ok(self.received.len())
    }

    fn note(&mut self, place: usize, message: &libc::mmsghdr, name: &libc::sockaddr_in6) {
        let bytes = message.msg_len as usize;
        if message.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            self.truncated += 1;
            return;
        }
        let Some(source) = address(name) else { return };
        if bytes == 0 {
            return;
        }
        let told = Told::read(&message.msg_hdr);
        let stride_bytes = told.stride_bytes.unwrap_or(bytes);
        self.received.push(Received {
            source,
            local: told.local,
            start: place * SLOT_BYTES,
            bytes,
            stride_bytes,
        });
    }
}

impl Default for RecvBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RecvBatch")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

/// What the kernel tells beside the bytes.
#[derive(Default)]
struct Told {
    /// The length of one datagram, where it glued several.
    stride_bytes: Option<usize>,
    local: Option<IpAddr>,
}

impl Told {
    fn read(header: &libc::msghdr) -> Self {
        let mut told = Self::default();
        // SAFETY: `header` is one the kernel just filled: its control pointer and length describe
        // control messages it wrote, which lie in an aligned buffer that is still alive; the CMSG
        // functions stay inside that length. Each kind carries what is read of it, copied out
        // unaligned.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(header);
            while let Some(control) = message.as_ref() {
                let data = libc::CMSG_DATA(message);
                match (control.cmsg_level, control.cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let stride: libc::c_int = ptr::read_unaligned(data.cast());
                        told.stride_bytes = usize::try_from(stride).ok().filter(|bytes| *bytes > 0);
                    }
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        let info: libc::in_pktinfo = ptr::read_unaligned(data.cast());
                        let local = u32::from_be(info.ipi_spec_dst.s_addr);
                        told.local = Some(Ipv4Addr::from(local).into());
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        let info: libc::in6_pktinfo = ptr::read_unaligned(data.cast());
                        told.local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    }
                    _ => {}
                }
                message = libc::CMSG_NXTHDR(header, message);
            }
        }
        told
    }
}

fn address(name: &libc::sockaddr_in6) -> Option<SocketAddr> {
    match libc::c_int::from(name.sin6_family) {
        libc::AF_INET => {
            // SAFETY: a sockaddr_in is shorter than, and aligned no stricter than, the
            // sockaddr_in6 it was written to, and any bytes are a valid one.
            let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Room for the control messages of one run, aligned as their headers want it. With 32 bytes
/// the kernel drops UDP_GRO as soon as another message is on too, and whole runs are lost.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 128]);

/// The most runs taken by one call: measured 30 % over 8 where the network card does not glue; more
/// brings nothing.
pub const MAX_RUNS: usize = 32;

/// One run: the longest UDP can be, and 25 cache lines, so that the slots' beginnings do not all
/// fall into the same sets of the processor's cache.
const SLOT_BYTES: usize = 65_536 + 1_600;

const NAME_BYTES: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
