//! The program by which the kernel picks a socket of a group, and the socket options that no
//! safe wrapper offers.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::CONTROL_BITS;

/// Makes the kernel choose the group's first socket for datagrams of ours and its second for
/// all others. Must come before the first bind, so that no datagram is sorted otherwise.
pub(super) fn attach_sorting(socket: &impl AsFd) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).expect("classic BPF's codes have 16 bits"),
        jt,
        jf,
        k,
    };
    // An empty datagram ends the program at the load, which means 0: data, where it is dropped.
    let mut program = [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
            0,
            1,
            u32::from(CONTROL_BITS),
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, CONTROL_PLACE),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, DATA_PLACE),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    set(
        socket,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        &program,
    )
}

/// Lets the kernel hand over runs of equal datagrams as one buffer.
pub(super) fn enable_gro(socket: &impl AsFd) -> io::Result<()> {
    set::<c_int>(socket, libc::SOL_UDP, libc::UDP_GRO, &1)
}

/// Has the kernel tell to which of this host's addresses a datagram came.
pub(super) fn tell_local(socket: &impl AsFd, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        set::<c_int>(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1)
    } else {
        set::<c_int>(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, &1)
    }
}

/// Has datagrams leave whole or not at all, whatever the kernel believes of the path: what fits
/// is found by probes (`docs/decisions/0008-path-mtu.md`). Only a datagram that the interface
/// itself cannot take is refused, with EMSGSIZE.
pub(super) fn forbid_fragments(socket: &impl AsFd, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        let probe = libc::IPV6_PMTUDISC_PROBE;
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &probe)
    } else {
        let probe = libc::IP_PMTUDISC_PROBE;
        set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &probe)
    }
}

/// Sets a buffer size past the host's limit, which takes CAP_NET_ADMIN.
pub(super) fn force_buffer(
    socket: &impl AsFd,
    direction: Direction,
    bytes: c_int,
) -> io::Result<()> {
    let option = match direction {
        Direction::Receive => libc::SO_RCVBUFFORCE,
        Direction::Send => libc::SO_SNDBUFFORCE,
    };
    set(socket, libc::SOL_SOCKET, option, &bytes)
}

#[derive(Clone, Copy)]
pub(super) enum Direction {
    Receive,
    Send,
}

fn set<T>(socket: &impl AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` bytes of `value`, which outlives the call; sock_fprog's
    // own pointer is to an array its caller still holds.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            bytes,
        )
    };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Place in the group, by the order of the binds.
const DATA_PLACE: u32 = 0;
const CONTROL_PLACE: u32 = 1;
