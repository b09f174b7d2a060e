//! The requests that make a TUN device out of an open `/dev/net/tun`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::{Offloads, OpenError, VIRTIO_BYTES};

/// Attaches `file` to a new device `name` and returns whether its packets carry a virtio header.
pub(super) fn attach(file: &File, name: &str) -> Result<bool, OpenError> {
    let plain = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;
    let virtio = match set_interface(file, name, plain | libc::IFF_VNET_HDR) {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            set_interface(file, name, plain).map_err(|error| refused(error, name))?;
            false
        }
        Err(error) => return Err(refused(error, name)),
    };
    if virtio {
        let bytes = VIRTIO_BYTES as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one int from the pointer, which outlives the call.
        let answer =
            unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const bytes) };
        succeeded(answer).map_err(|source| OpenError::Failed {
            doing: "set the virtio header's size",
            source,
        })?;
    }
    Ok(virtio)
}

/// Asks for every offload, then for fewer, and returns what the kernel agreed to.
pub(super) fn choose_offloads(file: &File, virtio: bool) -> Offloads {
    let none = Offloads {
        virtio,
        ..Offloads::default()
    };
    if !virtio {
        return none;
    }
    let checksum = Offloads {
        checksum: true,
        ..none
    };
    let tcp = Offloads {
        tcp: true,
        ..checksum
    };
    let tcp_ecn = Offloads { ecn: true, ..tcp };
    let all = Offloads {
        udp: true,
        ..tcp_ecn
    };

    [all, tcp_ecn, tcp, checksum]
        .into_iter()
        .find(|offloads| set_offloads(file, *offloads).is_ok())
        .unwrap_or(none)
}

fn set_offloads(file: &File, offloads: Offloads) -> io::Result<()> {
    let wanted = [
        (offloads.checksum, libc::TUN_F_CSUM),
        (offloads.tcp, libc::TUN_F_TSO4 | libc::TUN_F_TSO6),
        (offloads.ecn, libc::TUN_F_TSO_ECN),
        (offloads.udp, libc::TUN_F_USO4 | libc::TUN_F_USO6),
    ];
    let flags = wanted
        .iter()
        .filter(|(on, _)| *on)
        .fold(0, |flags, (_, bits)| flags | bits);
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    succeeded(unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(flags),
        )
    })
}

fn set_interface(file: &File, name: &str, flags: libc::c_int) -> io::Result<()> {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            // The flags are 16 bits wide here; IFF_TUN_EXCL is their sign bit.
            ifru_flags: flags as libc::c_short,
        },
    };
    for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    // SAFETY: TUNSETIFF reads and writes one ifreq at the pointer, which outlives the call. The
    // name ends in a zero, being shorter than the array.
    succeeded(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
}

fn refused(error: io::Error, name: &str) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => OpenError::NameTaken {
            name: name.to_owned(),
        },
        Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted {
            doing: "make an interface",
        },
        _ => OpenError::Failed {
            doing: "make the interface",
            source: error,
        },
    }
}

fn succeeded(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
