//! The local server, spoken to as any client would: over its socket.

use std::path::PathBuf;

use conflux_proto::api::{Invite, Routes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[tokio::test]
async fn a_table_is_answered_as_json_with_the_daemons_version() {
    let (path, _directory) = start(|request| {
        if let Request::Routes(reply) = request {
            reply
                .send(Ok(Routes {
                    version: 1,
                    id_letters: 10,
                    routes: vec![],
                }))
                .unwrap();
        }
    });

    let answer = speak(
        &path,
        b"GET /v1/routes HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;

    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(&format!("conflux-version: {}\r\n", SOFTWARE)));
    assert!(
        answer.ends_with(r#"{"version":1,"id_letters":10,"routes":[]}"#),
        "{answer}"
    );
}

#[tokio::test]
async fn an_invitation_reaches_the_control_loop_typed() {
    let (path, _directory) = start(|request| {
        if let Request::Invite(invite, reply) = request {
            let ticket = invite.taints.join("/");
            reply
                .send(Ok(Invite {
                    version: 1,
                    ticket,
                    expires_unix: 7,
                    warnings: vec![],
                }))
                .unwrap();
        }
    });

    let answer = post(
        &path,
        "/v1/invite",
        r#"{"version":1,"taints":["a","b"],"expires_seconds":60}"#,
    )
    .await;

    assert!(answer.contains(r#""ticket":"a/b""#), "{answer}");
}

#[tokio::test]
async fn garbage_is_answered_with_400_and_nothing_is_asked() {
    let (path, _directory) = start(|request| panic!("{request:?}"));

    let no_http = speak(&path, b"\x00\x01\x02 garbage\r\n\r\n").await;
    let no_json = post(&path, "/v1/invite", "garbage").await;
    let wrong_type = post(
        &path,
        "/v1/invite",
        r#"{"version":1,"expires_seconds":"soon"}"#,
    )
    .await;
    let other_version = post(&path, "/v1/invite", r#"{"version":9,"expires_seconds":1}"#).await;
    let too_long = post(&path, "/v1/invite", &"x".repeat(MAX_BODY_BYTES + 1)).await;

    for answer in [no_http, no_json, wrong_type, other_version, too_long] {
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[tokio::test]
async fn a_question_to_explain_reaches_the_control_loop_as_addresses() {
    let (path, _directory) = start(|request| {
        if let Request::Explain(query, reply) = request {
            let told = format!("{} from {:?}", query.address, query.from);
            reply.send(Err(Refusal::Unknown(told))).unwrap();
        }
    });

    let plain = get(&path, "/v1/explain?address=10.128.0.9").await;
    let both = get(&path, "/v1/explain?later=1&from=10.1.0.7&address=fd80::1").await;

    assert!(plain.starts_with("HTTP/1.1 404 "), "{plain}");
    assert!(plain.contains("10.128.0.9 from None"), "{plain}");
    assert!(both.contains("fd80::1 from Some(10.1.0.7)"), "{both}");
}

#[tokio::test]
async fn what_is_no_question_to_explain_is_told() {
    let (path, _directory) = start(|request| panic!("{request:?}"));

    for (query, word) in [
        ("", "an address is missing"),
        ("?from=10.1.0.7", "an address is missing"),
        ("?address=", "is not an IP address"),
        ("?address=printer", "is not an IP address"),
        ("?address=10.0.0.1&from=x", "from:"),
    ] {
        let answer = get(&path, &format!("/v1/explain{query}")).await;

        assert!(answer.starts_with("HTTP/1.1 400 "), "{query}: {answer}");
        assert!(answer.contains(word), "{query}: {answer}");
    }
}

#[tokio::test]
async fn draining_is_asked_by_get_and_changed_by_post() {
    let (path, _directory) = start(|request| {
        if let Request::Drain(reply) = request {
            reply
                .send(Err(Refusal::Failed("asked".to_owned())))
                .unwrap();
        } else if let Request::SetDrain(drain, reply) = request {
            let told = format!("set to {}", drain.draining);
            reply.send(Err(Refusal::Failed(told))).unwrap();
        }
    });

    let asked = get(&path, "/v1/drain").await;
    let set = post(&path, "/v1/drain", r#"{"version":1,"draining":true}"#).await;
    let other_version = post(&path, "/v1/drain", r#"{"version":2,"draining":true}"#).await;

    assert!(asked.contains("asked"), "{asked}");
    assert!(set.contains("set to true"), "{set}");
    assert!(
        other_version.starts_with("HTTP/1.1 400 "),
        "{other_version}"
    );
}

#[tokio::test]
async fn other_paths_and_methods_are_told_apart() {
    let (path, _directory) = start(|request| panic!("{request:?}"));

    let nowhere = post(&path, "/v2/status", "").await;
    let wrong_method = post(&path, "/v1/status", "").await;

    assert!(nowhere.starts_with("HTTP/1.1 404 "), "{nowhere}");
    assert!(wrong_method.starts_with("HTTP/1.1 405 "), "{wrong_method}");
    assert!(wrong_method.contains("allow: GET\r\n"), "{wrong_method}");
}

#[tokio::test]
async fn refusals_keep_their_words_and_their_class() {
    let (path, _directory) = start(|request| {
        if let Request::Reload(reply) = request {
            reply
                .send(Err(Refusal::Invalid("no such taint: x".to_owned())))
                .unwrap();
        }
    });

    let refused = post(&path, "/v1/reload", "").await;
    let dropped = post(&path, "/v1/shutdown", "").await;

    assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains("no such taint: x"));
    assert!(
        dropped.starts_with("HTTP/1.1 503 ") && dropped.contains("stopping"),
        "{dropped}"
    );
}

/// Starts a server whose control loop is `control`; the directory lives as long as the test.
fn start(mut control: impl FnMut(Request) + Send + 'static) -> (PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (sender, mut receiver) = mpsc::channel(4);
    tokio::spawn(serve(listener, sender));
    tokio::spawn(async move {
        while let Some(request) = receiver.recv().await {
            control(request);
        }
    });
    (path, directory)
}

async fn get(path: &PathBuf, target: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    speak(path, request.as_bytes()).await
}

async fn post(path: &PathBuf, target: &str, body: &str) -> String {
    let request = format!(
        "POST {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    speak(path, request.as_bytes()).await
}

async fn speak(path: &PathBuf, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}
