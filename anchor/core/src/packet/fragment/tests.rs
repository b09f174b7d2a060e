use proptest::prelude::*;

use super::*;
use crate::packet::testing::{reassemble, recipe, recipes};

fn fragments(bytes: &[u8], checksum: Checksum, limit: usize) -> Result<Vec<Vec<u8>>, Uncuttable> {
    let mut bytes = bytes.to_vec();
    let mut fragments = fragment_ipv4(&mut bytes, checksum, limit)?;
    let mut all = Vec::new();
    while let Some(fragment) = fragments.next() {
        all.push(fragment.to_vec());
    }
    Ok(all)
}

proptest! {
    #[test]
    fn fragments_make_up_the_datagram(
        recipe in recipes(), bytes in 1400usize..4000, limit in 68usize..1300,
    ) {
        let mut recipe = recipe;
        recipe.dont_fragment = false;
        let partial = recipe.udp((1, 2), &vec![0xa5; bytes], Checksum::Partial);
        let complete = recipe.udp((1, 2), &vec![0xa5; bytes], Checksum::Complete);
        if !recipe.source.is_ipv4() {
            prop_assert!(fragments(&partial, Checksum::Partial, limit).is_err());
            return Ok(());
        }

        let pieces = fragments(&partial, Checksum::Partial, limit).unwrap();

        prop_assert!(pieces.iter().all(|piece| piece.len() <= limit));
        prop_assert_eq!(&reassemble(&pieces), &complete[20..]);
    }

    #[test]
    fn fragments_of_fragments_make_up_the_datagram(inner_limit in 36usize..600) {
        let mut recipe = recipe(true);
        recipe.dont_fragment = false;
        let whole = recipe.udp((1, 2), &[0x5a; 3000], Checksum::Complete);

        let pieces: Vec<_> = fragments(&whole, Checksum::Complete, 1000)
            .unwrap()
            .iter()
            .flat_map(|piece| fragments(piece, Checksum::Complete, inner_limit).unwrap())
            .collect();

        prop_assert_eq!(&reassemble(&pieces), &whole[20..]);
    }
}

#[test]
fn packet_with_df_is_not_fragmented() {
    let bytes = recipe(true).udp((1, 2), &[0; 1200], Checksum::Complete);

    let outcome = fragments(&bytes, Checksum::Complete, 1000);

    assert_eq!(outcome, Err(Uncuttable::TooBig { limit_bytes: 1000 }));
}

#[test]
fn only_copied_options_stay_in_later_fragments() {
    let mut options = [7, 3, 4, 0x94, 4, 0, 0, 0];

    blank_uncopied_options(&mut options);

    assert_eq!(options, [1, 1, 1, 0x94, 4, 0, 0, 0]);
}
