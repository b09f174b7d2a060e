//! The switch's end of a host's network card: a TAP device without offloads, so that every packet
//! is a real frame of real size with a finished checksum.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// A TAP device of the network namespace it was opened in.
pub(crate) struct Tap {
    file: File,
}

impl Tap {
    /// Opens a new device named `name` in the calling thread's network.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun")?;
        // SAFETY: an all-zero ifreq is a valid one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (place, byte) in request.ifr_name.iter_mut().take(15).zip(name.bytes()) {
            *place = byte.cast_signed();
        }
        let flags = libc::IFF_TAP | libc::IFF_NO_PI;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: the descriptor is a fresh /dev/net/tun and the request lives through the call.
        let set =
            unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw const request) };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { file })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // A persistent device goes with its namespace, in the kernel's own time and batch; closing
        // a plain one waits for an RCU period each. Refused only for a device that is gone.
        // SAFETY: the descriptor is an attached TAP.
        unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETPERSIST as _, 1) };
    }
}
