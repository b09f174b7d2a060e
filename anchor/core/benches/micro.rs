//! What single steps of the packet way cost, each for itself and mostly in the cache; `scale`
//! tells what they cost together in a large realm. `fastest` is the figure to compare: the others
//! show what else ran on the machine.

mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use common::{End, INNER_BYTES, SUPER_BYTES, sample_segment, shake, super_offload};
use conflux_core::choose::choose;
use conflux_core::cost::Cost;
use conflux_core::flows::{Direction, FlowKey, Flows};
use conflux_core::ids::{Host, PeerIx};
use conflux_core::packet::{Checksum, Cut, Joinable, Joiner, Offload, Packet};
use conflux_core::reason::Reason;
use conflux_core::session::Sessions;
use conflux_core::translate::{four_to_six, rewrite_source, six_to_four, spelled};
use conflux_proto::frame::{Flags, FrameType};
use divan::{Bencher, black_box, counter::BytesCount};

fn main() {
    divan::main();
}

#[divan::bench(args = [1, 10_000])]
fn route_lookup(bencher: Bencher<'_, '_>, networks: u32) {
    let routes = common::world_routes(networks, 1_000.min(networks), 3);
    let mut random = fastrand::Rng::with_seed(1);
    bencher
        .with_inputs(|| {
            let network = common::network(random.u32(..networks)).network();
            IpAddr::V4(Ipv4Addr::from(u32::from(network) + random.u32(..256)))
        })
        .bench_local_values(|address| routes.lookup(address).is_some());
}

fn flow_key(number: u32) -> FlowKey {
    FlowKey {
        host: Host::Behind(IpAddr::V4(Ipv4Addr::from(0xc0a8_0000 + number % 1_000))),
        destination: IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number / 1_000)),
    }
}

#[divan::bench(args = [1, 1_000_000])]
fn flow_find_and_note(bencher: Bencher<'_, '_>, count: u32) {
    let now = common::at(0).boot;
    let mut flows = Flows::new(1 << 20, 1);
    for number in 0..count {
        flows.insert(
            now,
            flow_key(number),
            24,
            Some(PeerIx(number % 16)),
            Reason::New,
        );
    }
    let mut random = fastrand::Rng::with_seed(1);
    bencher
        .with_inputs(|| flow_key(random.u32(..count)))
        .bench_local_values(|key| {
            let id = flows.find(&key).expect("it was put in");
            flows.note(now, id, SUPER_BYTES, Direction::FromHost);
            id
        });
}

#[divan::bench(args = [3, 16])]
fn draw_a_holder(bencher: Bencher<'_, '_>, holders: u32) {
    let costs: Vec<Cost> = (0..holders)
        .map(|number| Cost {
            peer: PeerIx(number),
            rtt: Duration::from_millis(u64::from(number) + 1),
            rtt_measured: true,
            answer: Duration::from_millis(3),
            answer_measured: true,
        })
        .collect();
    bencher.bench_local(|| choose(black_box(&costs), black_box(1 << 63)));
}

/// One end of a session and the other, with which it has spoken.
fn sessions(aes: bool) -> (Sessions, Sessions) {
    let (one, two) = (End::new(1), End::new(2));
    let now = common::at(0).mono;
    let (initiator, responder) = shake((&one, 11), (&two, 22), aes);
    let (mut a, mut b) = (Sessions::new(1), Sessions::new(2));
    a.install(now, PeerIx(0), &initiator);
    b.install(now, PeerIx(0), &responder);
    (a, b)
}

const FRAME_BYTES: usize = INNER_BYTES + 32;

#[divan::bench(args = [true, false])]
fn seal_a_frame(bencher: Bencher<'_, '_>, aes: bool) {
    let (mut sender, _) = sessions(aes);
    let plaintext = vec![7; INNER_BYTES];
    let mut out = vec![0; FRAME_BYTES];
    bencher
        .counter(BytesCount::new(INNER_BYTES))
        .bench_local(|| {
            let mut sealer = sender.sealer(PeerIx(0)).expect("it has keys");
            sealer
                .seal(
                    FrameType::Data,
                    Flags::NONE,
                    black_box(&plaintext),
                    &mut out,
                )
                .is_some()
        });
}

/// As long as a keepalive: nearly nothing but what is not the cipher.
#[divan::bench(args = [true, false])]
fn seal_a_tiny_frame(bencher: Bencher<'_, '_>, aes: bool) {
    let (mut sender, _) = sessions(aes);
    let mut out = vec![0; FRAME_BYTES];
    bencher.bench_local(|| {
        let mut sealer = sender.sealer(PeerIx(0)).expect("it has keys");
        sealer
            .seal(FrameType::Data, Flags::NONE, black_box(&[1; 12]), &mut out)
            .is_some()
    });
}

fn open(bencher: Bencher<'_, '_>, aes: bool, bytes: usize) {
    let (mut sender, mut receiver) = sessions(aes);
    let plaintext = vec![7; bytes];
    bencher
        .with_inputs(|| {
            let mut frame = vec![0; bytes + 32];
            let mut sealer = sender.sealer(PeerIx(0)).expect("it has keys");
            sealer
                .seal(FrameType::Data, Flags::NONE, &plaintext, &mut frame)
                .expect("it fits");
            frame
        })
        .bench_local_refs(|frame| {
            receiver
                .open(frame)
                .expect("it is authentic")
                .plaintext
                .len()
        });
}

#[divan::bench(args = [true, false])]
fn open_a_frame(bencher: Bencher<'_, '_>, aes: bool) {
    open(
        bencher.counter(BytesCount::new(INNER_BYTES)),
        aes,
        INNER_BYTES,
    );
}

#[divan::bench(args = [true, false])]
fn open_a_tiny_frame(bencher: Bencher<'_, '_>, aes: bool) {
    open(bencher, aes, 12);
}

#[divan::bench]
fn parse(bencher: Bencher<'_, '_>) {
    let packet = sample_segment().packet(INNER_BYTES);
    bencher.bench_local(|| Packet::parse(black_box(&packet), INNER_BYTES).is_ok());
}

#[divan::bench]
fn rewrite_a_source(bencher: Bencher<'_, '_>) {
    let mut bytes = sample_segment().packet(SUPER_BYTES);
    let packet = Packet::parse(&bytes, SUPER_BYTES).expect("it is sound");
    let to = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 2));
    bencher.bench_local(|| {
        rewrite_source(black_box(&mut bytes), &packet, Checksum::Partial, to).is_ok()
    });
}

#[divan::bench]
fn translate_there_and_back(bencher: Bencher<'_, '_>) {
    const START: usize = 64;
    let far = Ipv4Addr::new(10, 9, 8, 7);
    let own = common::overlay(1);
    let four = sample_segment().packet(SUPER_BYTES - 20);
    let mut bytes = vec![0; START];
    bytes.extend_from_slice(&common::six(&four, own, spelled(far)));
    bencher.bench_local(|| {
        let mut offload = super_offload();
        let start = black_box(START);
        let packet = Packet::parse(&bytes[start..], SUPER_BYTES).expect("it is sound");
        let client = Ipv4Addr::new(192, 0, 0, 2);
        let moved = six_to_four(&mut bytes[start..], &packet, &mut offload, client, far);
        let start = start + moved.expect("TCP can be translated");
        let packet = Packet::parse(&bytes[start..], SUPER_BYTES - 20).expect("it is sound");
        four_to_six(&mut bytes, start, &packet, &mut offload, own, spelled(far)).is_ok()
    });
}

#[divan::bench]
fn cut_a_super_packet(bencher: Bencher<'_, '_>) {
    let packet = sample_segment().packet(SUPER_BYTES);
    bencher
        .with_inputs(|| packet.clone())
        .bench_local_refs(|packet| {
            let mut cut = Cut::new(packet, super_offload(), INNER_BYTES).expect("TCP can be cut");
            let mut bytes = 0;
            while let Some(piece) = cut.next() {
                bytes += black_box(piece).len();
            }
            bytes
        });
}

#[divan::bench]
fn join_a_super_packet(bencher: Bencher<'_, '_>) {
    let mut packet = sample_segment().packet(SUPER_BYTES);
    let mut cut = Cut::new(&mut packet, super_offload(), INNER_BYTES).expect("TCP can be cut");
    let mut pieces = Vec::new();
    while let Some(piece) = cut.next() {
        pieces.push(piece.to_vec());
    }
    let mut joiner = Joiner::new(Joinable::TcpAndUdp, 4096);
    bencher.bench_local(|| {
        for (number, piece) in pieces.iter().enumerate() {
            joiner
                .push(1, 1, Checksum::Partial, number * 1_500, black_box(piece))
                .expect("there is room");
        }
        let mut count = 0;
        while let Some(joined) = joiner.pop() {
            count += joined.spans().count();
        }
        assert_eq!(count, pieces.len());
    });
}

/// The ways `aws-lc-rs` has to seal a frame; the first is the one in use.
mod aead {
    use super::*;
    use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

    fn key() -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[9; 32]).expect("32 bytes fit"))
    }

    fn nonce() -> Nonce {
        Nonce::assume_unique_for_key(black_box([1; 12]))
    }

    #[divan::bench]
    fn out_of_place(bencher: Bencher<'_, '_>) {
        let (key, plaintext, mut out) = (key(), vec![7; INNER_BYTES], vec![0; FRAME_BYTES]);
        bencher
            .counter(BytesCount::new(INNER_BYTES))
            .bench_local(|| {
                let (head, rest) = out.split_at_mut(16);
                let (body, tag) = rest.split_at_mut(INNER_BYTES);
                let aad = Aad::from(&*head);
                let plaintext = black_box(&plaintext);
                key.seal_out_of_place_scatter(nonce(), aad, plaintext, body, &[], tag)
                    .is_ok()
            });
    }

    #[divan::bench]
    fn in_place(bencher: Bencher<'_, '_>) {
        let (key, mut out) = (key(), vec![7; FRAME_BYTES]);
        bencher
            .counter(BytesCount::new(INNER_BYTES))
            .bench_local(|| {
                let (head, rest) = out.split_at_mut(16);
                let body = &mut rest[..INNER_BYTES];
                key.seal_in_place_separate_tag(nonce(), Aad::from(&*head), black_box(body))
                    .is_ok()
            });
    }

    #[divan::bench]
    fn copy_then_in_place(bencher: Bencher<'_, '_>) {
        let (key, plaintext, mut out) = (key(), vec![7; INNER_BYTES], vec![0; FRAME_BYTES]);
        bencher
            .counter(BytesCount::new(INNER_BYTES))
            .bench_local(|| {
                let (head, rest) = out.split_at_mut(16);
                let (body, tag) = rest.split_at_mut(INNER_BYTES);
                body.copy_from_slice(black_box(&plaintext));
                let sealed = key.seal_in_place_separate_tag(nonce(), Aad::from(&*head), body);
                tag.copy_from_slice(sealed.expect("the frame is short").as_ref());
            });
    }
}

/// What [`Offload::from_virtio`] and back cost.
#[divan::bench]
fn virtio_header_both_ways(bencher: Bencher<'_, '_>) {
    let bytes = sample_segment().packet(SUPER_BYTES);
    let packet = Packet::parse(&bytes, SUPER_BYTES).expect("it is sound");
    let header = super_offload().to_virtio(&packet);
    bencher.bench_local(|| {
        Offload::from_virtio(black_box(&header), &packet).map(|offload| offload.to_virtio(&packet))
    });
}
