//! The keys of two anchors under handshakes that cross.

use conflux_proto::frame::{Flags, FrameType};

use super::{Received, SentAt, SessionKeys, Sessions, Suite};
use crate::ids::PeerIx;
use crate::time::Mono;

const PEER: PeerIx = PeerIx(1);

/// The two ends' keys of one handshake, its initiator's first; `number` makes keys and indices.
fn handshake(number: u32) -> [SessionKeys; 2] {
    let keys = |ours: u8, theirs: u8, initiator| SessionKeys {
        our_index: number * 10 + u32::from(ours),
        their_index: number * 10 + u32::from(theirs),
        suite: Suite::Aes256Gcm,
        initiator,
        send: [ours; 32],
        receive: [theirs; 32],
    };
    [keys(1, 2, true), keys(2, 1, false)]
}

/// Sends one frame and returns its position.
fn pass(kind: FrameType, from: &mut Sessions, to: &mut Sessions) -> SentAt {
    let mut frame = [0; 64];
    let mut sealer = from.sealer(PEER).expect("there are keys");
    let (bytes, at) = sealer
        .seal(kind, Flags::NONE, b"packet", &mut frame)
        .expect("there is room");
    to.open(&mut frame[..bytes]).expect("it is authentic");
    at
}

#[test]
fn what_is_reported_received_is_what_was_sent_last_when_handshakes_crossed() {
    let (mut client, mut holder) = (Sessions::new(1), Sessions::new(2));
    let now = Mono::from_nanos(0);
    let [clients, asked_of_holder] = handshake(1);
    let [holders, asked_of_client] = handshake(2);
    // The holder finishes its own handshake last, the client its own.
    assert!(holder.install(now, PEER, &asked_of_holder));
    assert!(client.install(now, PEER, &asked_of_client));
    assert!(holder.install(now, PEER, &holders));
    pass(FrameType::Probe, &mut holder, &mut client);
    pass(FrameType::Data, &mut client, &mut holder);
    assert!(client.install(now, PEER, &clients));

    pass(FrameType::Data, &mut client, &mut holder);
    let last = pass(FrameType::Data, &mut client, &mut holder);

    let Received { index, counter } = holder.received(PEER).expect("data came");
    assert_eq!(client.proved(PEER, index, counter), Some(last));
}
