//! Keeps the SYN of each connection that has no answer yet, so that it can be sent again to
//! another holder: fixed slots, a fixed number of them. Without one nothing is lost but time: the
//! host sends its SYN again by itself after a second.

use std::num::NonZeroU16;

use super::store::Ix;
use crate::packet::{IPV6_BYTES, Packet, Protocol, Tcp, checksum};

/// The longest SYN kept: the largest TCP header behind the largest IPv4 header; an IPv6 header
/// with a few extension bytes fits too.
const LONGEST_SYN_BYTES: usize = 120;

/// A stored SYN: a whole packet without payload whose checksums are complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredSyn {
    bytes: [u8; LONGEST_SYN_BYTES],
    length: u8,
}

impl StoredSyn {
    /// Copies the SYN at the start of `head`. Payload (TCP Fast Open) is left out: the far end
    /// acknowledges what it got, and the host sends the rest again. Returns `None` when the
    /// headers are longer than a slot or do not lie in `head`.
    pub(super) fn new(packet: &Packet, tcp: &Tcp, head: &[u8]) -> Option<Self> {
        let total = packet.header_bytes + tcp.header_bytes;
        let head = head.get(..total)?;
        let mut bytes = [0; LONGEST_SYN_BYTES];
        bytes.get_mut(..total)?.copy_from_slice(head);

        finish_ip(&mut bytes[..total], packet)?;
        finish_tcp(&mut bytes[..total], packet)?;
        Some(Self {
            bytes,
            length: total as u8,
        })
    }

    /// Returns the packet.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A stored SYN's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot(NonZeroU16);

/// The stored SYNs.
#[derive(Debug)]
pub(super) struct SynPool {
    slots: Vec<(Ix, StoredSyn)>,
    free: Vec<Slot>,
    /// Where the next one is taken from when none is free; goes around, so that each SYN is kept
    /// for as long as there are newer ones to fill the pool.
    hand: usize,
    limit: usize,
}

impl SynPool {
    pub(super) fn new(limit: u16) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            limit: usize::from(limit),
        }
    }

    /// Stores a SYN for `owner`. Returns its place and who lost it, if anybody; `None` when there
    /// are no slots at all.
    pub(super) fn keep(&mut self, owner: Ix, syn: StoredSyn) -> Option<(Slot, Option<Ix>)> {
        if let Some(slot) = self.free.pop() {
            self.slots[slot.at()] = (owner, syn);
            return Some((slot, None));
        }
        if self.slots.len() < self.limit {
            self.slots.push((owner, syn));
            return Some((Slot::new(self.slots.len() - 1), None));
        }

        let at = self.hand;
        let (robbed, _) = std::mem::replace(self.slots.get_mut(at)?, (owner, syn));
        self.hand = (at + 1) % self.slots.len();
        Some((Slot::new(at), Some(robbed)))
    }

    /// Gives a place back.
    pub(super) fn release(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// Returns how many SYNs are stored.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn at(&self, slot: Slot) -> &StoredSyn {
        &self.slots[slot.at()].1
    }
}

impl Slot {
    fn new(at: usize) -> Self {
        let number = u16::try_from(at + 1).ok().and_then(NonZeroU16::new);
        Self(number.expect("the pool's limit is a u16, so a place plus one fits"))
    }

    fn at(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

/// Makes the IP header tell the length of `bytes`.
fn finish_ip(bytes: &mut [u8], packet: &Packet) -> Option<()> {
    let total = u16::try_from(bytes.len()).ok()?;
    if packet.is_ipv4() {
        bytes.get_mut(2..4)?.copy_from_slice(&total.to_be_bytes());
        checksum::write_ipv4_header(bytes, packet.header_bytes);
    } else {
        let payload = total.checked_sub(IPV6_BYTES as u16)?;
        bytes.get_mut(4..6)?.copy_from_slice(&payload.to_be_bytes());
    }
    Some(())
}

/// Writes the complete TCP checksum, whatever stood there.
fn finish_tcp(bytes: &mut [u8], packet: &Packet) -> Option<()> {
    let segment = bytes.get_mut(packet.header_bytes..)?;
    segment.get_mut(16..18)?.fill(0);
    let (source, destination) = (packet.source, packet.destination);
    let mut sum = checksum::pseudo_header(source, destination, Protocol::TCP, segment.len());
    sum.add_bytes(segment);
    segment[16..18].copy_from_slice(&(!sum.fold()).to_be_bytes());
    Some(())
}
