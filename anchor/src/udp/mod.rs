//! The two UDP sockets that share one port: frames of ours go to the data thread's
//! [`DataSocket`], everything else to the control socket, which is QUIC's.
//!
//! The kernel sorts by the first byte, so control stays quick under full data load. It sorts
//! buffers, not datagrams: UDP_GRO may glue a short QUIC packet behind a burst of ours, so the
//! data thread looks at every datagram all the same and hands [strays](is_stray) on.
//! A group is one address of one family; the two sockets of a group are made together.

mod filter;
mod group;
mod receive;
mod send;

pub use group::{BindError, Claim, Group, bind_group};
pub use receive::{MAX_RUNS, Received, RecvBatch};
pub use send::{DataSocket, SendError, SendStats};

/// Returns whether a datagram that came by the data socket is not ours but QUIC's.
pub fn is_stray(datagram: &[u8]) -> bool {
    datagram
        .first()
        .is_some_and(|first| first & CONTROL_BITS != 0)
}

/// Bits of the first byte of which QUIC sets at least one (RFC 9000 section 17, the fixed bit
/// not greased) and our frame types 0x10 to 0x3f none.
pub const CONTROL_BITS: u8 = 0xC0;

/// Longest run of datagrams one [`DataSocket::send`] takes to the kernel at once: UDP's limit
/// over IPv4, a little below that of IPv6.
pub const MAX_SEND_BYTES: usize = 65_507;

/// Most datagrams in one such run: UDP_MAX_SEGMENTS of kernels before 6.9.
pub const MAX_SEGMENTS: usize = 64;

#[cfg(test)]
mod tests;
