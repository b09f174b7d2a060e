use super::Untranslatable;
use crate::packet::{Offload, Packet};
use std::net::Ipv6Addr;
/// Being written.
///
/// # Errors
/// [`Untranslatable`].
pub fn four_to_six(
    _buffer: &mut [u8],
    _start: usize,
    _packet: &Packet,
    _offload: &mut Offload,
    _source: Ipv6Addr,
    _destination: Ipv6Addr,
) -> Result<usize, Untranslatable> {
    Err(Untranslatable::NoEquivalent)
}
