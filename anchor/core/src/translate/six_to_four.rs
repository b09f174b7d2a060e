use super::Untranslatable;
use crate::packet::{Offload, Packet};
use std::net::Ipv4Addr;
/// Being written.
///
/// # Errors
/// [`Untranslatable`].
pub fn six_to_four(
    _buffer: &mut [u8],
    _packet: &Packet,
    _offload: &mut Offload,
    _source: Ipv4Addr,
    _destination: Ipv4Addr,
) -> Result<usize, Untranslatable> {
    Err(Untranslatable::NoEquivalent)
}
