//! The kernel's table of mappings, forgotten at once: one message of ctnetlink, for which no
//! program is installed on most machines.

use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use crate::host::Host;

/// `NFNL_SUBSYS_CTNETLINK`, `IPCTNL_MSG_CT_DELETE`: without attributes it means every entry.
const DELETE: u16 = (1 << 8) | 2;

/// `NLM_F_REQUEST | NLM_F_ACK`.
const REQUEST_WITH_ANSWER: u16 = 5;

/// `NLMSG_ERROR`, which carries 0 for success.
const ANSWER: u16 = 2;

/// Forgets every entry of a host.
///
/// # Panics
///
/// When the kernel refuses.
pub(super) fn flush(host: &Host) {
    let answer = host.enter(ask).unwrap_or_else(|error| {
        panic!(
            "mappings of {} could not be forgotten: {error}",
            host.name()
        )
    });
    assert!(
        answer == (ANSWER, 0),
        "mappings of {} could not be forgotten: the kernel answered {answer:?}",
        host.name()
    );
}

/// Returns the answer's kind and error number.
fn ask() -> nix::Result<(u16, i32)> {
    let kernel = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    let mut message = Vec::new();
    message.extend(20u32.to_ne_bytes());
    message.extend(DELETE.to_ne_bytes());
    message.extend(REQUEST_WITH_ANSWER.to_ne_bytes());
    // Sequence number and sender; then any family, version 0, no resource.
    message.extend([0; 12]);
    send(kernel.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut answer = [0; 64];
    recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    let error = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    Ok((kind, error))
}
