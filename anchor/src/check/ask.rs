//! Asks a service of this machine over TCP or HTTP. The caller bounds the time.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Request;
use hyper::header::{CONNECTION, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Says whether a connection can be opened; it is closed again at once.
pub(super) async fn tcp(service: SocketAddr) -> Result<(), String> {
    connect(service).await.map(|_| ())
}

/// Says whether `path` is answered with a status of 200 to 399. The body is not read, so that its
/// length does not matter.
pub(super) async fn http(service: SocketAddr, path: &str) -> Result<(), String> {
    let told = |error: hyper::Error| format!("http://{service}{path}: {error}");
    let stream = connect(service).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(told)?;
    let request = Request::get(path)
        .header(HOST, service.to_string())
        .header(
            USER_AGENT,
            concat!("conflux-check/", env!("CARGO_PKG_VERSION")),
        )
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let asked = sender.send_request(request);
    tokio::pin!(asked);
    // The connection is driven here and nowhere else, so it ends with this function. One that the
    // service closes behind its answer ends in the same moment in which the answer is there.
    let answer = tokio::select! {
        answer = &mut asked => answer,
        _ = connection => asked.await,
    };
    let answer = answer.map_err(told)?;
    let status = answer.status();
    if status.is_success() || status.is_redirection() {
        return Ok(());
    }
    Err(format!("http://{service}{path}: {status}"))
}

async fn connect(service: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect(service)
        .await
        .map_err(|error| format!("{service}: {error}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_port_that_listens_passes_and_one_that_does_not_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = listener.local_addr().unwrap();

        assert_eq!(tcp(service).await, Ok(()));
        drop(listener);
        assert!(tcp(service).await.unwrap_err().contains("refused"));
    }

    #[tokio::test]
    async fn the_status_decides() {
        for (status, passes) in [
            ("200 OK", true),
            ("204 No Content", true),
            ("302 Found", true),
            ("404 Not Found", false),
            ("503 Service Unavailable", false),
        ] {
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            let service = serve(answer.into_bytes()).await;

            let outcome = http(service, "/health").await;

            assert_eq!(outcome.is_ok(), passes, "{status}: {outcome:?}");
            if let Err(why) = outcome {
                assert!(why.contains(status), "{why}");
            }
        }
    }

    #[tokio::test]
    async fn an_answer_behind_which_the_connection_closes_is_an_answer() {
        let service = serve(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nfine".to_vec()).await;

        for _ in 0..50 {
            assert_eq!(http(service, "/").await, Ok(()));
        }
    }

    #[tokio::test]
    async fn what_is_no_http_and_what_says_nothing_fails() {
        for answer in [&b"220 mail.example\r\n\r\n"[..], b""] {
            let service = serve(answer.to_vec()).await;

            assert!(http(service, "/").await.is_err());
        }
    }

    #[tokio::test]
    async fn an_endless_body_passes_by_its_head() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\nand so on".to_vec();
        let service = serve(head).await;

        assert_eq!(http(service, "/").await, Ok(()));
    }

    async fn serve(answer: Vec<u8>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(&answer).await;
            }
        });
        service
    }
}
