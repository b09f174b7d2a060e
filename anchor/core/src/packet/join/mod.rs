//! Neighbours into super-packets, the opposite of [`super::Cut`]: received packets of one TCP
//! connection, or equal-sized UDP datagrams of one socket pair, become one before the kernel sees
//! them. By the rules of Linux's own GRO, so that what comes out could have been cut into exactly
//! what came in.
//!
//! The data thread pushes each opened packet of a receive batch, then pops all. Payloads stay
//! where they are ([`Span`]s into the batch); headers are copied, so that they can be rewritten.
//! Packets of one connection leave in the order they came: a packet is only ever joined to the
//! last one of its connection, and places are given by first packets.

mod item;

use std::net::IpAddr;

use self::item::{HEAD_BYTES, Item, LONE_FLAGS, New};
use super::{Checksum, IPV4_BYTES, IPV6_BYTES, Malformed, Offload, Packet, Transport, checksum};

/// Bytes free before the headers of a [`Joined`]: enough for any family change
/// ([`crate::translate::HEADROOM`]).
pub const HEADROOM: usize = 64;

/// Places in the table that finds a connection's last packet; a clash only means less joining.
const SLOTS: usize = 256;

/// Stands for no item and no link.
const NONE: u32 = u32::MAX;

/// What may be joined: older kernels take no UDP super-packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joinable {
    /// TCP segments.
    Tcp,
    /// TCP segments and UDP datagrams.
    TcpAndUdp,
}

/// Why a packet was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// No place is left: pop everything, then push it again.
    #[error("the joiner is full")]
    Full,
    /// Its headers are longer than any this program carries.
    #[error("headers too long")]
    Headers,
    /// It is no packet.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Bytes of the receive batch, by the position that was given to [`Joiner::push`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Where they start.
    pub position: usize,
    /// How many they are.
    pub bytes: usize,
}

/// A packet, or several joined.
#[derive(Debug)]
pub struct Joined<'a> {
    /// As pushed.
    pub tag: u32,
    /// As pushed.
    pub flags: u8,
    /// What is left to do on it.
    pub offload: Offload,
    /// What its headers say; lengths are those of the whole.
    pub packet: Packet,
    /// [`HEADROOM`] free bytes, then the headers (and, for packets that were not joined, the
    /// start of the payload). The payload goes on in [`Joined::spans`].
    pub buffer: &'a mut [u8],
    spans: Spans<'a>,
}

impl<'a> Joined<'a> {
    /// Returns the headers, for rewriting.
    pub fn head(&mut self) -> &mut [u8] {
        &mut self.buffer[HEADROOM..]
    }

    /// Returns the payload behind what the buffer holds, in order.
    pub fn spans(&self) -> Spans<'a> {
        self.spans.clone()
    }
}

/// The payload of a [`Joined`] behind what its buffer holds, in order; none is empty.
#[derive(Clone, Debug)]
pub struct Spans<'a> {
    links: &'a [Link],
    next: u32,
}

impl Iterator for Spans<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        loop {
            let link = self.links.get(self.next as usize)?;
            self.next = link.next;
            if link.span.bytes > 0 {
                return Some(link.span);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Link {
    span: Span,
    next: u32,
}

/// Collects the packets of one receive batch. Holds about 600 bytes per packet of its capacity,
/// of which only what is used is touched.
#[derive(Debug)]
pub struct Joiner {
    joinable: Joinable,
    /// Room for `capacity`; grows into it, so that memory never used is never touched.
    items: Vec<Item>,
    capacity: usize,
    used: usize,
    popped: usize,
    /// One per pushed packet.
    links: Vec<Link>,
    slots: Box<[u32; SLOTS]>,
}

impl Joiner {
    /// Makes a joiner for up to `capacity` packets between two drains; it never allocates again.
    pub fn new(joinable: Joinable, capacity: usize) -> Self {
        Self {
            joinable,
            items: Vec::with_capacity(capacity),
            capacity,
            used: 0,
            popped: 0,
            links: Vec::with_capacity(capacity),
            slots: Box::new([NONE; SLOTS]),
        }
    }

    /// Takes one received packet, whose first byte lies at `position` of the batch. Only packets
    /// with the same `tag` and `flags` are joined, and never one whose complete checksum is
    /// wrong: the checksum of a super-packet says nothing about its pieces any more.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn push(
        &mut self,
        tag: u32,
        flags: u8,
        checksum: Checksum,
        position: usize,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let packet = Packet::parse(bytes, bytes.len())?;
        let header_bytes = packet.all_header_bytes();
        if header_bytes > HEAD_BYTES {
            return Err(Refused::Headers);
        }
        if self.links.len() == self.capacity || self.popped > 0 {
            return Err(Refused::Full);
        }
        let checksum = checksum.for_packet(&packet);
        let is_joinable = self.is_joinable(bytes, &packet, checksum);
        let head_bytes = if is_joinable {
            header_bytes
        } else {
            bytes.len().min(HEAD_BYTES)
        };
        let link = self.links.len() as u32;
        let span = Span {
            position: position + head_bytes,
            bytes: bytes.len() - head_bytes,
        };
        let new = New {
            tag,
            flags,
            checksum,
            packet: &packet,
            head: &bytes[..head_bytes],
            link,
        };

        let slot = self.slot(&new);
        if let (true, Some(slot)) = (is_joinable, slot)
            && let Some(item) = self.items[..self.used].get_mut(self.slots[slot] as usize)
            && item.takes(&new)
        {
            self.links[item.last_link as usize].next = link;
            item.join(&new);
        } else {
            if self.used == self.items.len() {
                self.items.push(Item::EMPTY);
            }
            self.items[self.used].start(&new, is_joinable);
            if let Some(slot) = slot {
                self.slots[slot] = self.used as u32;
            }
            self.used += 1;
        }
        self.links.push(Link { span, next: NONE });
        Ok(())
    }

    /// Gives out what was pushed, in order, until `None`: then all of it has been given out, and
    /// the joiner is empty again. Nothing can be pushed in between.
    pub fn pop(&mut self) -> Option<Joined<'_>> {
        if self.popped == self.used {
            self.clear();
            return None;
        }
        let item = &mut self.items[self.popped];
        self.popped += 1;
        let offload = item.finish();
        Some(Joined {
            tag: item.tag,
            flags: item.flags,
            offload,
            packet: item.packet,
            spans: Spans {
                links: &self.links,
                next: item.first_link,
            },
            buffer: &mut item.buffer[..HEADROOM + item.head_bytes],
        })
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        if self.used > 0 {
            self.slots.fill(NONE);
        }
        self.links.clear();
        self.used = 0;
        self.popped = 0;
    }

    /// Returns whether nothing is held.
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the place where the last packet of this packet's connection is remembered. A
    /// fragment, whose connection cannot be told, keeps its order against all of them.
    fn slot(&mut self, new: &New<'_>) -> Option<usize> {
        let packet = new.packet;
        if packet.fragment.is_some() {
            self.slots.fill(NONE);
            return None;
        }
        let ports = match &packet.transport {
            Transport::Tcp(tcp) => (tcp.source_port, tcp.destination_port),
            Transport::Udp(udp) => (udp.source_port, udp.destination_port),
            Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => return None,
        };
        let ports = u64::from(ports.0) << 16 | u64::from(ports.1);
        let mut hash = mix(ports << 32 | u64::from(new.tag));
        hash = mix(hash ^ address_bits(packet.source));
        hash = mix(hash ^ address_bits(packet.destination).rotate_left(32));
        Some(hash as usize % SLOTS)
    }

    /// Returns whether a packet may be joined to others at all.
    fn is_joinable(&self, bytes: &[u8], packet: &Packet, checksum: Checksum) -> bool {
        let ip_bytes = if packet.is_ipv4() {
            IPV4_BYTES
        } else {
            IPV6_BYTES
        };
        if packet.fragment.is_some() || packet.header_bytes != ip_bytes {
            return false;
        }
        let is_suited = match &packet.transport {
            Transport::Tcp(tcp) => tcp.payload_bytes > 0 && !tcp.flags.intersects(LONE_FLAGS),
            Transport::Udp(udp) => udp.payload_bytes > 0 && self.joinable == Joinable::TcpAndUdp,
            Transport::Echo(_)
            | Transport::IcmpError(_)
            | Transport::Icmp
            | Transport::LaterFragment
            | Transport::Other => false,
        };
        is_suited
            && checksum::verify_header(bytes, packet)
            && match checksum {
                Checksum::Partial => true,
                Checksum::Complete => checksum::verify(bytes, packet),
            }
    }
}

/// Spreads bits upwards and brings the well-mixed ones down.
const fn mix(bits: u64) -> u64 {
    let product = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 29)
}

fn address_bits(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits >> 64) as u64 ^ bits as u64
        }
    }
}

#[cfg(test)]
mod tests;
