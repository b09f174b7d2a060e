//! One way to reach a peer, as the data thread knows it. Not which one is in use (`ways`, `moved`).

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

/// One way to reach a peer: which of our sockets, and where to. Two that differ in `local` alone are
/// the same path: a peer does not become another by writing to another address of ours.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The shell's number of the socket.
    pub socket: u8,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Our own address to which the peer writes, and which stays our source: a translator or firewall
    /// before the peer may let in nothing else. The kernel's choice if none.
    pub local: Option<IpAddr>,
}

impl Path {
    /// Takes over by which of our addresses the same path was used last.
    pub(super) const fn follow_local(&mut self, other: &Self) {
        if other.local.is_some() {
            self.local = other.local;
        }
    }

    const fn identity(&self) -> (u8, SocketAddr) {
        (self.socket, self.remote)
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Path {}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Path {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl Hash for Path {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}
