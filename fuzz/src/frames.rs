//! Headers of our frames, what stands in the small ones, and how control messages follow each
//! other on a stream.

use conflux_proto::control::{PREFIX_BYTES, read_frame, write_frame};
use conflux_proto::frame::{
    Echo, Flags, FrameType, HEADER_BYTES, Header, OVERHEAD_BYTES, Probe, Received,
};

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(header) = Header::decode(bytes) {
        assert!(bytes.len() >= OVERHEAD_BYTES);
        assert_eq!(header.encode()[..], bytes[..HEADER_BYTES]);
    }
    match Probe::decode(bytes) {
        Ok(probe) => assert_eq!(probe.encode()[..], bytes[..Probe::BYTES]),
        Err(_) => assert!(bytes.len() < Probe::BYTES),
    }
    match Received::decode(bytes) {
        Ok(received) => assert_eq!(received.encode()[..], bytes[..Received::BYTES]),
        Err(_) => assert!(bytes.len() < Received::BYTES),
    }
    match Echo::decode(bytes) {
        Ok(echo) => assert_eq!(echo.encode()[..], bytes[..Echo::BYTES]),
        Err(_) => assert!(bytes.len() < Echo::BYTES),
    }
    stream(bytes);
}

/// What is read one by one is what was written, and no byte is lost between.
fn stream(bytes: &[u8]) {
    let (mut rest, mut again) = (bytes, Vec::new());
    while let Ok(Some(frame)) = read_frame(rest) {
        assert!(write_frame(frame.message, &mut again).is_ok());
        assert_eq!(
            frame.message.len() + PREFIX_BYTES + frame.rest.len(),
            rest.len()
        );
        rest = frame.rest;
    }
    assert_eq!(again[..], bytes[..bytes.len() - rest.len()]);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let kinds = [
        (FrameType::Data, Flags::NONE),
        (FrameType::Data, Flags::PARTIAL_CHECKSUM),
        (FrameType::Data, Flags::TO_CLIENT),
        (FrameType::Keepalive, Flags::NONE),
        (FrameType::Probe, Flags::NONE),
        (FrameType::Echo, Flags::NONE),
    ];
    let frame = |(kind, flags)| {
        let header = Header {
            kind,
            flags,
            receiver: 7,
            counter: 1 << 40,
        };
        [&header.encode()[..], &[0xa5; 40]].concat()
    };
    let mut seeds: Vec<_> = kinds.map(frame).into();
    let mut stream = Vec::new();
    for message in crate::messages::seeds().iter().take(3) {
        write_frame(message, &mut stream).expect("it is short");
    }
    seeds.push(stream);
    seeds
}
