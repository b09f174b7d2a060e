//! Asks the running daemon over its local socket, within five seconds or not at all.

use std::io;
use std::time::Duration;

use conflux_anchor::api::SocketPath;
use conflux_anchor::files::Layout;
use conflux_proto::SOFTWARE;
use conflux_proto::api::{Failure as Refusal, SOFTWARE_HEADER};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::exit::{Exit, Failure, Outcome, note};

/// No command hangs longer than this on a stuck daemon.
const ANSWER_LIMIT: Duration = Duration::from_millis(4500);

/// 10,000 flows at about 400 bytes are 4 MB; a daemon of ours never answers more than this.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// A daemon's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    body: Bytes,
    /// The daemon's software version, when it told one.
    pub(crate) software: Option<String>,
}

impl Answer {
    /// Returns the answer's text.
    pub(crate) fn text(&self) -> Outcome<String> {
        String::from_utf8(self.body.to_vec())
            .map_err(|_| Exit::Failed.because("the daemon's answer is not text"))
    }

    /// Returns the answer as what was asked for.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Outcome<T> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Exit::Failed.because(format!("the daemon's answer is odd: {error}")))
    }

    fn refusal(&self) -> Failure {
        let told = serde_json::from_slice::<Refusal>(&self.body).map_or_else(
            |_| format!("the daemon answered {}", self.status),
            |told| told.error,
        );
        let exit = match self.status {
            StatusCode::FORBIDDEN => Exit::NeedsRoot,
            StatusCode::BAD_REQUEST => Exit::Usage,
            _ => Exit::Failed,
        };
        exit.because(told)
    }
}

/// Asks for something that is there.
pub(crate) fn get(layout: &Layout, path: &str) -> Outcome<Answer> {
    accepted(request(layout, Method::GET, path, Bytes::new())?)
}

/// Asks for something to be done.
pub(crate) fn post(layout: &Layout, path: &str, body: &impl Serialize) -> Outcome<Answer> {
    let body = serde_json::to_vec(body).map_err(anyhow::Error::from)?;
    accepted(request(layout, Method::POST, path, body.into())?)
}

/// Returns the process that listens, as this command's process namespace numbers it, without
/// asking it anything.
pub(crate) fn process(layout: &Layout) -> Option<i32> {
    let stream = runtime()
        .ok()?
        .block_on(async { connect(layout).await.ok() })?;
    stream.peer_cred().ok()?.pid().filter(|pid| *pid > 0)
}

/// Asks, and returns whatever comes back, refusals included.
pub(crate) fn request(layout: &Layout, method: Method, path: &str, body: Bytes) -> Outcome<Answer> {
    runtime()?.block_on(async {
        match tokio::time::timeout(ANSWER_LIMIT, exchange(layout, method, path, body)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Exit::Failed.because(format!(
                "the daemon does not answer (waited {:.1} s); its log may tell why",
                ANSWER_LIMIT.as_secs_f32()
            ))),
        }
    })
}

/// Tells, once per command, that the daemon is of another version.
pub(crate) fn note_other_version(answer: &Answer) {
    let ours = SOFTWARE;
    if let Some(theirs) = &answer.software
        && theirs != ours
    {
        note(format!(
            "note: the daemon is version {theirs}, this command {ours}; `conflux start` starts \
             the installed one"
        ));
    }
}

fn accepted(answer: Answer) -> Outcome<Answer> {
    if answer.status == StatusCode::OK {
        Ok(answer)
    } else {
        Err(answer.refusal())
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

async fn connect(layout: &Layout) -> io::Result<UnixStream> {
    let path = SocketPath::of(&layout.socket)?;
    UnixStream::connect(path).await
}

async fn exchange(layout: &Layout, method: Method, path: &str, body: Bytes) -> Outcome<Answer> {
    let stream = connect(layout)
        .await
        .map_err(|error| cannot_connect(layout, &error))?;
    let lost = |error: hyper::Error| {
        Exit::Failed.because(format!("the daemon hung up before it answered: {error}"))
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(lost)?;
    let driver = tokio::spawn(connection);
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "conflux")
        .body(Full::new(body))
        .map_err(anyhow::Error::from)?;
    let (head, body) = sender
        .send_request(request)
        .await
        .map_err(lost)?
        .into_parts();
    let body = Limited::new(body, MAX_ANSWER_BYTES)
        .collect()
        .await
        .map_err(|error| Exit::Failed.because(format!("the daemon's answer broke off: {error}")))?;
    driver.abort();
    let software = head
        .headers
        .get(SOFTWARE_HEADER)
        .and_then(|value| value.to_str().ok())
        .map(ToOwned::to_owned);
    Ok(Answer {
        status: head.status,
        body: body.to_bytes(),
        software,
    })
}

fn cannot_connect(layout: &Layout, error: &io::Error) -> Failure {
    let kind = error.kind();
    if matches!(
        kind,
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    ) {
        return Exit::NotRunning.because(if layout.config.exists() {
            "conflux is not running; `conflux start` starts it"
        } else {
            "conflux is not installed on this machine; `conflux up` configures and starts it"
        });
    }
    if kind == io::ErrorKind::PermissionDenied {
        return Exit::NeedsRoot
            .because("only root and members of the group conflux may ask the daemon");
    }
    if kind == io::ErrorKind::WouldBlock {
        return Exit::Failed.because("the daemon does not answer: too many commands wait for it");
    }
    Exit::Failed.because(format!("{}: {error}", layout.socket.display()))
}
