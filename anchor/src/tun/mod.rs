//! The TUN device: opened exclusively, never persistent, so that the kernel takes it away with
//! its addresses and routes when the process ends in whatever way.
//!
//! Packets cross it as the kernel has them, up to 64 KiB each behind a `virtio_net_hdr`, with
//! checksums still partial. Cutting, joining and finishing them is `core`'s business; addresses,
//! routes and MTU are [`crate::netlink`]'s. The data thread owns the device and drives it through
//! [`crate::poll`].

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use smallvec::SmallVec;

mod device;

/// An open TUN device. It is gone from the host when this is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    index: u32,
    offloads: Offloads,
}

impl Tun {
    /// Makes the device `name`, with every offload this kernel has. It is still down and without
    /// address: see [`crate::netlink::Interface`].
    ///
    /// # Errors
    /// One [`OpenError`] per thing a user can mend; the host is left as it was.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        if !is_valid_name(name) {
            return Err(OpenError::BadName {
                name: name.to_owned(),
            });
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(DEVICE)
            .map_err(OpenError::from_node)?;
        let virtio = device::attach(&file, name)?;
        let offloads = device::choose_offloads(&file, virtio);
        let index = nix::net::if_::if_nametoindex(name).map_err(|errno| OpenError::Failed {
            doing: "find the new interface",
            source: errno.into(),
        })?;

        Ok(Self {
            file,
            name: name.to_owned(),
            index,
            offloads,
        })
    }

    /// Reads the next packet into `buffer`; `false` when none waits.
    ///
    /// # Errors
    /// The device was deleted under us ([`is_gone`]), or the kernel failed.
    pub fn read(&mut self, buffer: &mut ReadBuffer) -> io::Result<bool> {
        let start = if self.offloads.virtio {
            HEADROOM - VIRTIO_BYTES
        } else {
            HEADROOM
        };
        buffer.bytes[HEADROOM - VIRTIO_BYTES..HEADROOM].fill(0);
        loop {
            match (&self.file).read(&mut buffer.bytes[start..]) {
                Ok(read) => {
                    buffer.end = (start + read).max(HEADROOM);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Hands one packet to the kernel: `header`, then the pieces of `payload` in order, without
    /// copying them together.
    ///
    /// On a device without [`Offloads::virtio`] the virtio header must be
    /// [plain](PLAIN_VIRTIO), for there is nowhere to put it.
    ///
    /// # Errors
    /// The packet was dropped, for the reason named; all but [`WriteError::Gone`] concern this
    /// packet only.
    pub fn write<'a>(
        &mut self,
        virtio: &'a [u8; VIRTIO_BYTES],
        header: &'a [u8],
        payload: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), WriteError> {
        let mut pieces: SmallVec<[IoSlice<'a>; PIECES]> = SmallVec::new();
        if self.offloads.virtio {
            pieces.push(IoSlice::new(virtio));
        } else if virtio != &PLAIN_VIRTIO {
            return Err(WriteError::Refused);
        }
        pieces.push(IoSlice::new(header));
        pieces.extend(payload.into_iter().map(IoSlice::new));
        if pieces.len() > MAX_PIECES {
            return Err(WriteError::Refused);
        }
        loop {
            match (&self.file).write_vectored(&pieces) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(WriteError::from_kernel(error)),
            }
        }
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the interface's index, as netlink wants it.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns what the kernel agreed to leave undone in packets it hands us, and will do for
    /// packets we hand it.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What the kernel and we leave undone for each other. Each holds in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    /// Packets carry a virtio header. Without it every packet is plain and whole.
    pub virtio: bool,
    /// Layer 4 checksums may be partial.
    pub checksum: bool,
    /// TCP super-packets pass, over IPv4 and IPv6.
    pub tcp: bool,
    /// ... those with CWR set too.
    pub ecn: bool,
    /// UDP super-packets pass (Linux 6.2).
    pub udp: bool,
}

impl Offloads {
    /// Names what costs speed by not being there, the gravest only.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Self { virtio: false, .. } => Some("virtio headers"),
            Self {
                checksum: false, ..
            } => Some("checksum offload"),
            Self { tcp: false, .. } => Some("TCP segmentation offload"),
            Self { udp: false, .. } => Some("UDP segmentation offload (Linux 6.2)"),
            _ => None,
        }
    }
}

/// Where a packet is read to: with room in front for a longer header, so that IPv4 can become
/// IPv6 without moving the payload.
pub struct ReadBuffer {
    bytes: Box<[u8]>,
    end: usize,
}

impl ReadBuffer {
    /// Makes an empty buffer that holds the longest packet; allocates about 64 KiB.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; HEADROOM + MAX_PACKET_BYTES + TAILROOM].into(),
            end: HEADROOM,
        }
    }

    /// Returns the headroom and the packet as one slice, and where in it the packet starts.
    pub fn with_headroom(&mut self) -> (&mut [u8], usize) {
        (&mut self.bytes[..self.end], HEADROOM)
    }

    /// Returns the packet last read.
    pub fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[HEADROOM..self.end]
    }

    /// Returns the packet last read; empty when nothing or a fragment of a header was read.
    pub fn packet(&self) -> &[u8] {
        &self.bytes[HEADROOM..self.end]
    }

    /// Returns its virtio header, all zero on a device that has none.
    pub fn virtio(&self) -> &[u8; VIRTIO_BYTES] {
        self.bytes[HEADROOM - VIRTIO_BYTES..]
            .first_chunk()
            .expect("the headroom holds the virtio header")
    }
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for ReadBuffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ReadBuffer")
            .field("packet_bytes", &self.packet().len())
            .finish()
    }
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kernel has no TUN driver, or the node was not given to this container.
    #[error(
        "{DEVICE} is missing: load the kernel module `tun`, or give the container the device \
         (docker and podman: `--device {DEVICE}`)"
    )]
    NoDriver,
    /// The node or the network is not ours to touch.
    #[error("not permitted to {doing}: CAP_NET_ADMIN and access to {DEVICE} are needed")]
    NotPermitted {
        /// What was refused.
        doing: &'static str,
    },
    /// Another process, or another kind of interface, has that name.
    #[error("interface {name} exists already: stop what made it, or choose another `--interface`")]
    NameTaken {
        /// The name asked for.
        name: String,
    },
    /// The kernel would not take such a name.
    #[error(
        "`{name}` cannot name an interface: 1 to 15 letters, digits or `-`, `_`, `.`, not `.` or `..`"
    )]
    BadName {
        /// The name asked for.
        name: String,
    },
    /// Anything else the kernel said.
    #[error("could not {doing}: {source}")]
    Failed {
        /// What was being tried.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl OpenError {
    fn from_node(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Self::NoDriver,
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted {
                doing: "open the TUN driver",
            },
            _ => Self::Failed {
                doing: "open the TUN driver",
                source: error,
            },
        }
    }
}

/// Why the kernel did not take a packet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The interface is down.
    #[error("the interface is down")]
    Down,
    /// The kernel found the packet or its virtio header malformed, or we did.
    #[error("the kernel refused the packet")]
    Refused,
    /// No memory for it just now.
    #[error("the kernel has no room")]
    Full,
    /// The device was deleted; it must be opened anew.
    #[error("the interface was deleted")]
    Gone,
    /// Anything else.
    #[error(transparent)]
    Failed(io::Error),
}

impl WriteError {
    fn from_kernel(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EIO) => Self::Down,
            Some(libc::EINVAL | libc::EMSGSIZE) => Self::Refused,
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Self::Full,
            Some(libc::EBADFD) => Self::Gone,
            _ => Self::Failed(error),
        }
    }
}

/// Returns whether a failed [`Tun::read`] means that somebody deleted the interface.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

/// Returns whether the kernel would give an interface this name, and give it as written: no
/// pattern like `tun%d`, nothing that breaks a path under /sys or a line of a log.
pub fn is_valid_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..libc::IFNAMSIZ).contains(&name.len())
        && name.bytes().all(plain)
        && !matches!(name, "." | "..")
}

/// Size of `struct virtio_net_hdr`, the form without `num_buffers`.
pub const VIRTIO_BYTES: usize = 10;

/// The virtio header of a packet that is whole: no offload used.
pub const PLAIN_VIRTIO: [u8; VIRTIO_BYTES] = [0; VIRTIO_BYTES];

/// Room before the packet: the virtio header (10), and 28 bytes by which IPv4 grows into a
/// fragment of IPv6; a cache line keeps the packet itself aligned.
pub const HEADROOM: usize = 64;

/// No IP packet the kernel hands over is longer: its super-packets are held below 64 KiB.
const MAX_PACKET_BYTES: usize = 65_535;

/// Rounds the buffer up to whole cache lines.
const TAILROOM: usize = 1;

/// As many pieces as fit a packet joined from one batch of 64 datagrams, without allocating.
const PIECES: usize = 72;

/// IOV_MAX of Linux: writev refuses more.
const MAX_PIECES: usize = 1024;

const DEVICE: &str = "/dev/net/tun";

#[cfg(test)]
mod tests;
