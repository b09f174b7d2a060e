//! Packets of up to 1280 bytes over paths that take less. IPv6 promises its hosts that such packets
//! always pass (RFC 8200 section 5: a link with less must fragment below IP), and QUIC relies on it
//! in IPv4 too, so they go in fragments whatever their sender said of that. The far host puts them
//! together as if the near one had fragmented them.

use super::{
    Checksum, Fragment, Fragments, IPV4_BYTES, IPV6_BYTES, Packet, Uncuttable, checksum,
    fragment_ipv4, read_u16, write_u16, write_u32,
};

/// Packets up to this size always pass, in pieces if need be.
pub const SMALL_BYTES: usize = 1280;

/// Bytes of an IPv6 fragment header, and its number.
const FRAGMENT_BYTES: usize = 8;
const FRAGMENT: u8 = 44;

/// Headers that stand before a fragment header; packets with one are not fragmented here.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;

/// The fragments of one small packet.
#[derive(Debug)]
pub struct SmallFragments<'a>(Family<'a>);

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack while one packet is sent; a box would allocate for each"
)]
enum Family<'a> {
    Ipv4(Fragments<'a>),
    Ipv6(Ipv6Fragments<'a>),
}

#[derive(Debug)]
struct Ipv6Fragments<'a> {
    bytes: &'a [u8],
    /// What comes behind the fragment header.
    next_header: u8,
    identification: u32,
    step_bytes: usize,
    /// Where the payload starts, and how much of it is done.
    start: usize,
    done_bytes: usize,
    /// Where the packet itself sat, when it was a fragment already.
    offset_bytes: usize,
    more: bool,
    piece: [u8; SMALL_BYTES],
}

/// Plans to fragment `bytes`, one whole IP packet of at most [`SMALL_BYTES`], into pieces of at
/// most `limit_bytes`. A partial checksum is finished first. `identification` is used when the
/// packet is no fragment yet and must not repeat soon.
///
/// # Errors
/// [`Uncuttable::TooBig`] when the packet is bigger, has headers that go before a fragment header,
/// or more headers than one piece holds; the packet is as it was.
pub fn fragment_small(
    bytes: &mut [u8],
    checksum: Checksum,
    limit_bytes: usize,
    identification: u32,
) -> Result<SmallFragments<'_>, Uncuttable> {
    let too_big = Uncuttable::TooBig { limit_bytes };
    if bytes.len() > SMALL_BYTES {
        return Err(too_big);
    }
    let packet = Packet::parse(bytes, bytes.len())?;
    if packet.is_ipv4() {
        let step_bytes = limit_bytes.saturating_sub(packet.header_bytes) & !7;
        if step_bytes == 0 {
            return Err(too_big);
        }
        allow_fragments(bytes, &packet, identification as u16);
        return fragment_ipv4(bytes, checksum, limit_bytes)
            .map(|fragments| SmallFragments(Family::Ipv4(fragments)));
    }
    let step_bytes = limit_bytes.saturating_sub(IPV6_BYTES + FRAGMENT_BYTES) & !7;
    let is_behind_others = match bytes[6] {
        HOP_BY_HOP | ROUTING => true,
        next => packet.fragment.is_some() && next != FRAGMENT,
    };
    // The first piece has all headers, or nobody could tell what it is (RFC 7112).
    let is_cut_in_headers = packet.all_header_bytes() > IPV6_BYTES + step_bytes;
    if step_bytes == 0 || is_behind_others || is_cut_in_headers {
        return Err(too_big);
    }
    if checksum.for_packet(&packet) == Checksum::Partial {
        checksum::complete(bytes, &packet);
    }
    Ok(SmallFragments(Family::Ipv6(Ipv6Fragments::new(
        bytes,
        packet.fragment,
        step_bytes,
        identification,
    ))))
}

impl SmallFragments<'_> {
    /// Returns the next fragment. It is overwritten by the next call.
    #[expect(
        clippy::should_implement_trait,
        reason = "lends from itself, which Iterator cannot"
    )]
    pub fn next(&mut self) -> Option<&[u8]> {
        match &mut self.0 {
            Family::Ipv4(fragments) => fragments.next(),
            Family::Ipv6(fragments) => fragments.next(),
        }
    }
}

impl<'a> Ipv6Fragments<'a> {
    fn new(
        bytes: &'a [u8],
        fragment: Option<Fragment>,
        step_bytes: usize,
        identification: u32,
    ) -> Self {
        let (header_bytes, identification) = match fragment {
            Some(fragment) => (FRAGMENT_BYTES, fragment.identification),
            None => (0, identification),
        };
        let next_header = if fragment.is_some() {
            bytes[IPV6_BYTES]
        } else {
            bytes[6]
        };
        Self {
            bytes,
            next_header,
            identification,
            step_bytes,
            start: IPV6_BYTES + header_bytes,
            done_bytes: 0,
            offset_bytes: fragment.map_or(0, |fragment| usize::from(fragment.offset_bytes)),
            more: fragment.is_some_and(|fragment| fragment.more),
            piece: [0; SMALL_BYTES],
        }
    }

    fn next(&mut self) -> Option<&[u8]> {
        let payload = &self.bytes[self.start + self.done_bytes..];
        if payload.is_empty() {
            return None;
        }
        let payload_bytes = payload.len().min(self.step_bytes);
        let more = self.more || payload_bytes < payload.len();
        let offset = (self.offset_bytes + self.done_bytes) as u16;
        let (head, rest) = self.piece.split_at_mut(IPV6_BYTES + FRAGMENT_BYTES);
        head[..IPV6_BYTES].copy_from_slice(&self.bytes[..IPV6_BYTES]);
        write_u16(head, 4, (FRAGMENT_BYTES + payload_bytes) as u16);
        head[6] = FRAGMENT;
        head[IPV6_BYTES] = self.next_header;
        head[IPV6_BYTES + 1] = 0;
        write_u16(head, IPV6_BYTES + 2, offset | u16::from(more));
        write_u32(head, IPV6_BYTES + 4, self.identification);
        rest[..payload_bytes].copy_from_slice(&payload[..payload_bytes]);
        self.done_bytes += payload_bytes;
        Some(&self.piece[..IPV6_BYTES + FRAGMENT_BYTES + payload_bytes])
    }
}

/// Takes DF off an IPv4 packet. Its identification meant nothing (RFC 6864), and does now.
fn allow_fragments(bytes: &mut [u8], packet: &Packet, identification: u16) {
    if !packet.dont_fragment {
        return;
    }
    if packet.fragment.is_none() {
        write_u16(bytes, 4, identification);
    }
    let field = read_u16(bytes, 6);
    write_u16(bytes, 6, field & !0x4000);
    debug_assert!(bytes.len() >= IPV4_BYTES);
    checksum::write_ipv4_header(bytes, packet.header_bytes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::testing::{reassemble, recipe, recipes};

    fn fragments(bytes: &[u8], checksum: Checksum, limit: usize) -> Option<Vec<Vec<u8>>> {
        let mut bytes = bytes.to_vec();
        let mut fragments = fragment_small(&mut bytes, checksum, limit, 0x0001_0002).ok()?;
        let mut all = Vec::new();
        while let Some(fragment) = fragments.next() {
            all.push(fragment.to_vec());
        }
        Some(all)
    }

    proptest! {
        #[test]
        fn fragments_make_up_the_packet_of_either_family(
            recipe in recipes(), bytes in 900_usize..1200, limit in 400_usize..900,
        ) {
            let partial = recipe.udp((1, 2), &vec![0xa5; bytes], Checksum::Partial);
            let complete = recipe.udp((1, 2), &vec![0xa5; bytes], Checksum::Complete);
            let header_bytes = if recipe.source.is_ipv4() { 20 } else { 40 };
            prop_assume!(partial.len() <= SMALL_BYTES);

            let pieces = fragments(&partial, Checksum::Partial, limit).unwrap();

            prop_assert!(pieces.iter().all(|piece| piece.len() <= limit));
            prop_assert!(pieces.len() >= 2);
            if recipe.extensions == 0 {
                prop_assert_eq!(&reassemble(&pieces), &complete[header_bytes..]);
            }
        }
    }

    #[test]
    fn a_fragment_is_parted_under_its_own_identification() {
        for is_ipv4 in [true, false] {
            let mut recipe = recipe(is_ipv4);
            recipe.fragment = Some((2400, true));
            let whole = recipe.wrap(17, &[0x5a; 1200]);

            let pieces = fragments(&whole, Checksum::Complete, 800).unwrap();

            let places: Vec<_> = pieces
                .iter()
                .map(|piece| Packet::parse(piece, piece.len()).unwrap().fragment.unwrap())
                .collect();
            assert!(
                places
                    .iter()
                    .all(|place| place.identification == 7 && place.more)
            );
            assert_eq!(places[0].offset_bytes, 2400);
            let first_bytes = if is_ipv4 { 776 } else { 752 };
            assert_eq!(places[1].offset_bytes, 2400 + first_bytes);
        }
    }

    #[test]
    fn an_identification_is_given_where_there_was_none() {
        let v4 = recipe(true).udp((1, 2), &[0; 1200], Checksum::Complete);
        let v6 = recipe(false).udp((1, 2), &[0; 1200], Checksum::Complete);

        for (bytes, expected) in [(v4, 2), (v6, 0x0001_0002)] {
            for piece in fragments(&bytes, Checksum::Complete, 1200).unwrap() {
                let packet = Packet::parse(&piece, piece.len()).unwrap();
                assert_eq!(packet.fragment.unwrap().identification, expected);
            }
        }
    }

    #[test]
    fn what_is_larger_is_its_senders_to_make_smaller() {
        let v4 = recipe(true).udp((1, 2), &[0; 1253], Checksum::Complete);
        let v6 = recipe(false).udp((1, 2), &[0; 1233], Checksum::Complete);

        assert_eq!((v4.len(), v6.len()), (1281, 1281));
        assert_eq!(fragments(&v4, Checksum::Complete, 1200), None);
        assert_eq!(fragments(&v6, Checksum::Complete, 1200), None);
    }

    #[test]
    fn headers_that_go_before_a_fragment_header_are_left_alone() {
        for next in [HOP_BY_HOP, ROUTING] {
            let mut bytes = recipe(false).udp((1, 2), &[0; 1200], Checksum::Complete);
            bytes[6] = next;

            assert_eq!(fragments(&bytes, Checksum::Complete, 1200), None);
        }
    }

    #[test]
    fn headers_longer_than_a_piece_are_refused() {
        // A destination option header of 1024 bytes, whose end the first piece would lack.
        let mut options = vec![0; 1024];
        (options[0], options[1]) = (59, 127);
        let bytes = recipe(false).wrap(60, &options);

        assert_eq!(fragments(&bytes, Checksum::Complete, 800), None);
        let pieces = fragments(&bytes, Checksum::Complete, 1200);
        assert!(pieces.is_some_and(|pieces| pieces.len() == 1));
    }
}
