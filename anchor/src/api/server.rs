//! Serves the local socket: one HTTP/1.1 connection at a time per client, few clients, small
//! requests, nothing that waits for ever. Hand-routed, because there are a dozen requests and each
//! answer to garbage is ours to word.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conflux_proto::SOFTWARE;
use conflux_proto::api::{
    DrainRequest, Failure, InviteRequest, RevokeRequest, SOFTWARE_HEADER, VERSION,
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::unistd::{Gid, Uid};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use zeroize::Zeroizing;

use super::access::Access;
use super::{ExplainQuery, Refusal, Reply, Request};

/// Clients at once; an operator, a scraper and a few scripts are far below.
const MAX_CONNECTIONS: usize = 32;

/// Our longest request is an invitation with 32 taints of 64 bytes and a few networks.
const MAX_BODY_BYTES: usize = 16 * 1024;

/// Also the smallest that hyper takes.
const MAX_HEADER_BYTES: usize = 8 * 1024;

/// A local client sends its request's body at once.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// A local client sends its request's head at once; this also ends idle connections, so that
/// hundreds of them keep an operator waiting for seconds only.
const HEAD_LIMIT: Duration = Duration::from_secs(1);

/// How long the control loop may take. The CLI gives up after 5 s; a goodbye takes 1 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A pause after a failed accept (no descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

type Response = hyper::Response<Full<Bytes>>;

/// Accepts clients for ever; ends only by being dropped.
///
/// # Errors
///
/// When the listener cannot be handed to the runtime.
///
/// # Cancel safety
///
/// Dropping it stops accepting; connections already open run to their end.
pub async fn serve(
    listener: std::os::unix::net::UnixListener,
    requests: mpsc::Sender<Request>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return Ok(());
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let requests = requests.clone();
                tokio::spawn(async move {
                    serve_connection(stream, requests).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "local socket cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: UnixStream, requests: mpsc::Sender<Request>) {
    let access = match stream.peer_cred() {
        Ok(cred) => judge(Uid::from_raw(cred.uid()), Gid::from_raw(cred.gid())).await,
        Err(_) => Access::Nothing,
    };
    let service = service_fn(move |request| {
        let requests = requests.clone();
        async move { Ok::<_, Infallible>(answer(request, access, &requests).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "local client went away");
    }
}

async fn judge(uid: Uid, gid: Gid) -> Access {
    if uid.is_root() {
        return Access::Change;
    }
    tokio::task::spawn_blocking(move || Access::of(uid, gid))
        .await
        .unwrap_or(Access::Nothing)
}

async fn answer(
    request: hyper::Request<Incoming>,
    access: Access,
    requests: &mpsc::Sender<Request>,
) -> Response {
    let (head, body) = request.into_parts();
    let (method, needed) = match head.uri.path() {
        "/v1/status" | "/v1/routes" | "/v1/peers" | "/v1/flows" | "/v1/explain" | "/v1/members"
        | "/v1/metrics" => (Method::GET, Access::Read),
        "/v1/drain" if head.method == Method::POST => (Method::POST, Access::Change),
        "/v1/drain" => (Method::GET, Access::Read),
        "/v1/invite" | "/v1/revoke" | "/v1/reload" | "/v1/shutdown" => {
            (Method::POST, Access::Change)
        }
        other => {
            return failure(
                StatusCode::NOT_FOUND,
                format!("there is nothing at {other}"),
            );
        }
    };
    if access < needed {
        let who = if needed == Access::Read {
            "root and group conflux"
        } else {
            "root"
        };
        return failure(
            StatusCode::FORBIDDEN,
            format!("only {who} may ask for this"),
        );
    }
    if head.method != method {
        let mut response = failure(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("this takes {method}"),
        );
        if let Ok(value) = HeaderValue::from_str(method.as_str()) {
            response.headers_mut().insert(ALLOW, value);
        }
        return response;
    }
    match head.uri.path() {
        "/v1/status" => json(ask(requests, Request::Status).await),
        "/v1/routes" => json(ask(requests, Request::Routes).await),
        "/v1/peers" => json(ask(requests, Request::Peers).await),
        "/v1/flows" => json(ask(requests, Request::Flows).await),
        "/v1/explain" => match explain_query(head.uri.query()) {
            Ok(query) => json(ask(requests, |reply| Request::Explain(query, reply)).await),
            Err(error) => failure(StatusCode::BAD_REQUEST, error),
        },
        "/v1/drain" if method == Method::GET => json(ask(requests, Request::Drain).await),
        "/v1/drain" => match read_body::<DrainRequest>(body, |drain| drain.version).await {
            Ok(drain) => json(ask(requests, |reply| Request::SetDrain(drain, reply)).await),
            Err(response) => response,
        },
        "/v1/metrics" => match ask(requests, Request::Metrics).await {
            Ok(text) => response(StatusCode::OK, PROMETHEUS, text.into_bytes()),
            Err(refusal) => refused(&refusal),
        },
        "/v1/members" => json(ask(requests, Request::Members).await),
        "/v1/invite" => match read_body::<InviteRequest>(body, |invite| invite.version).await {
            Ok(invite) => secret(ask(requests, |reply| Request::Invite(invite, reply)).await),
            Err(response) => response,
        },
        "/v1/revoke" => match read_body::<RevokeRequest>(body, |revoke| revoke.version).await {
            Ok(revoke) => json(ask(requests, |reply| Request::Revoke(revoke, reply)).await),
            Err(response) => response,
        },
        "/v1/reload" => json(ask(requests, Request::Reload).await),
        // The paths were sorted above: this is the last one, shutdown.
        _ => json(ask(requests, Request::Shutdown).await),
    }
}

/// Reads `address=A[&from=HOST]`. Addresses need no escapes.
fn explain_query(query: Option<&str>) -> Result<ExplainQuery, String> {
    let mut address = None;
    let mut from = None;
    for part in query.unwrap_or_default().split('&') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let place = match name {
            "address" => &mut address,
            "from" => &mut from,
            // Of a later release, or none at all.
            _ => continue,
        };
        let parsed: IpAddr = value
            .parse()
            .map_err(|_| format!("{name}: \"{value}\" is not an IP address"))?;
        *place = Some(parsed);
    }
    let address = address.ok_or("an address is missing: /v1/explain?address=A[&from=HOST]")?;
    Ok(ExplainQuery { address, from })
}

/// Reads a request's body, whose version `version` finds.
async fn read_body<T: DeserializeOwned>(
    body: Incoming,
    version: impl FnOnce(&T) -> u32,
) -> Result<T, Response> {
    let limited = Limited::new(body, MAX_BODY_BYTES).collect();
    let bytes = match tokio::time::timeout(READ_LIMIT, limited).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => {
            return Err(failure(
                StatusCode::BAD_REQUEST,
                format!("the body: {error}"),
            ));
        }
        Err(_) => {
            return Err(failure(
                StatusCode::REQUEST_TIMEOUT,
                "the body never came".to_owned(),
            ));
        }
    };
    let request: T = serde_json::from_slice(&bytes)
        .map_err(|error| failure(StatusCode::BAD_REQUEST, format!("the body: {error}")))?;
    let version = version(&request);
    if version != VERSION {
        let told = format!("version {version} is not known, only {VERSION}");
        return Err(failure(StatusCode::BAD_REQUEST, told));
    }
    Ok(request)
}

async fn ask<T>(
    requests: &mpsc::Sender<Request>,
    request: impl FnOnce(Reply<T>) -> Request,
) -> Result<T, Refusal> {
    let (reply, answer) = oneshot::channel();
    if requests.try_send(request(reply)).is_err() {
        return Err(Refusal::Unavailable(
            "the daemon is busy or stopping; ask again".to_owned(),
        ));
    }
    match tokio::time::timeout(ANSWER_LIMIT, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(Refusal::Unavailable("the daemon is stopping".to_owned())),
        Err(_) => Err(Refusal::Unavailable(
            "the daemon did not answer in time".to_owned(),
        )),
    }
}

fn json<T: Serialize>(answer: Result<T, Refusal>) -> Response {
    #[cfg(feature = "next")]
    let answer = answer.map(|answer| grown(&answer));
    match answer.map(|answer| serde_json::to_vec(&answer)) {
        Ok(Ok(bytes)) => response(StatusCode::OK, JSON, bytes),
        Ok(Err(error)) => failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        Err(refusal) => refused(&refusal),
    }
}

/// Returns an answer with a field more in each object, as a later release may give it.
#[cfg(feature = "next")]
fn grown(answer: &impl Serialize) -> serde_json::Value {
    fn grow(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.values_mut().for_each(grow);
                fields.insert("later".to_owned(), serde_json::json!({ "of": [1, "more"] }));
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(grow),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => {}
        }
    }
    let mut value = serde_json::to_value(answer).unwrap_or_default();
    grow(&mut value);
    value
}

/// As [`json`], for an answer that is worth something to whoever reads it: its bytes are wiped once
/// they are sent, and are written into one piece of memory of the right size, for one that grows
/// leaves copies behind.
fn secret<T: Serialize>(answer: Result<T, Refusal>) -> Response {
    let answer = match answer {
        Ok(answer) => answer,
        Err(refusal) => return refused(&refusal),
    };
    let mut size = Size(0);
    let mut bytes = Zeroizing::new(Vec::new());
    let written = serde_json::to_writer(&mut size, &answer).and_then(|()| {
        bytes.reserve_exact(size.0);
        serde_json::to_writer(&mut *bytes, &answer)
    });
    match written {
        Ok(()) => response(StatusCode::OK, JSON, Bytes::from_owner(bytes)),
        Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Counts what is written.
struct Size(usize);

impl io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn refused(refusal: &Refusal) -> Response {
    let status = match refusal {
        Refusal::Invalid(_) => StatusCode::BAD_REQUEST,
        Refusal::Unknown(_) => StatusCode::NOT_FOUND,
        Refusal::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    failure(status, refusal.to_string())
}

fn failure(status: StatusCode, error: String) -> Response {
    let bytes = serde_json::to_vec(&Failure {
        version: VERSION,
        error,
    })
    .expect("a number and a text are JSON");
    response(status, JSON, bytes)
}

fn response(status: StatusCode, kind: HeaderValue, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(SOFTWARE_HEADER, HeaderValue::from_static(SOFTWARE));
    response
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
