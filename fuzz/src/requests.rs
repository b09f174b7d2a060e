//! The JSON of the local socket, both ways: what is read is written and read again the same, and
//! unknown fields are skipped.

use std::fmt::Debug;

use conflux_proto::api::{
    Drain, DrainRequest, Explain, Flows, Invite, InviteRequest, Members, Peers, RevokeRequest,
    Revoked, Routes, Status,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) fn run(bytes: &[u8]) {
    let Some((kind, json)) = bytes.split_first() else {
        return;
    };
    match kind % 12 {
        0 => stays::<InviteRequest>(json),
        1 => stays::<RevokeRequest>(json),
        2 => stays::<DrainRequest>(json),
        3 => stays::<Status>(json),
        4 => stays::<Routes>(json),
        5 => stays::<Peers>(json),
        6 => stays::<Flows>(json),
        7 => stays::<Members>(json),
        8 => stays::<Explain>(json),
        9 => stays::<Drain>(json),
        10 => stays::<Revoked>(json),
        _ => stays::<Invite>(json),
    }
}

fn stays<T: Serialize + DeserializeOwned + Debug + PartialEq>(json: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(json) else {
        return;
    };
    let written = serde_json::to_string(&read).expect("answers are JSON");
    let again: T = serde_json::from_str(&written).expect("what was written is read");
    assert_eq!(again, read);
    let grown = written.replacen('{', "{\"of_a_later_release\":[1,{}],", 1);
    let again: T = serde_json::from_str(&grown).expect("an unknown field is skipped");
    assert_eq!(again, read);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        (
            0,
            r#"{"version":1,"taints":["a"],"advertise":["any",{"network":"10.0.0.0/8"}],"expires_seconds":86400,"issuer":true}"#,
        ),
        (
            1,
            r#"{"version":1,"target":"dfyspsc5lk","with_anchors":true}"#,
        ),
        (2, r#"{"version":1,"draining":true}"#),
    ];
    texts
        .map(|(kind, text)| [&[kind][..], text.as_bytes()].concat())
        .into()
}
