//! Signed statements and credentials, and the checks that follow the reading.
#![no_main]

use conflux_core::credential::{verify, verify_join};
use conflux_core::time::UnixTime;
use conflux_proto::advert::{Advert, Leave, SignedAdvert};
use conflux_proto::credential::{Admission, Credential, Grant, Join};
use conflux_proto::id::RealmKey;
use conflux_proto::revocation::SignedRevocation;
use conflux_proto::signed::{Signed, Statement};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    stays_itself::<Advert>(bytes);
    stays_itself::<Leave>(bytes);
    stays_itself::<Grant>(bytes);
    stays_itself::<Join>(bytes);
    stays_itself::<Admission>(bytes);
    let _ = SignedRevocation::from_bytes(bytes);
    let _ = minicbor::decode::<SignedAdvert>(bytes);
    if let Ok(credential) = Credential::from_bytes(bytes) {
        let realm = RealmKey([7; 32]);
        let now = UnixTime(1_800_000_000);
        let _ = verify(&credential, &realm, now);
        let _ = verify_join(&credential, &realm, now);
    }
});

/// What was signed is passed on to the letter.
fn stays_itself<T: Statement>(bytes: &[u8]) {
    if let Ok(signed) = Signed::<T>::from_bytes(bytes) {
        let again = Signed::<T>::from_bytes(&signed.to_bytes());
        assert!(again.is_ok_and(|again| again == signed));
    }
}
