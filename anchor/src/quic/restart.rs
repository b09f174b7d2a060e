//! What lets a peer notice at its next packet, and not after a long silence, that this anchor
//! has restarted: stateless resets (RFC 9000 section 10.3) whose keys are the same after a
//! restart. Driven once, at the start.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hmac, rand};
use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig};

use super::TlsIdentity;

/// What is signed to derive the key. Ed25519 gives one message one signature, and this one
/// never leaves the process.
const LABEL: &[u8] = b"conflux quic reset key 1";

/// 64 random bits: connections do not meet by chance, and an outsider does not guess one.
const ID_BYTES: usize = 8;

/// Has an endpoint answer packets of its former life by resets that their sender believes.
/// Noise is answered too, at most once in 20 ms and by less than it brought.
pub(super) fn answer_former_life(identity: &TlsIdentity, config: &mut EndpointConfig) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &identity.sign(LABEL));
    // quinn's own generator is keyed at random and disowns the ids of a former life.
    config
        .reset_key(Arc::new(key))
        .cid_generator(|| Box::new(RandomIds));
}

struct RandomIds;

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        rand::fill(&mut id).expect("the system has randomness once it has booted");
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
