//! Long talks: clients that ask over and over, on one connection where there are connections, and
//! log each question as [`Requests`](super::Requests) do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::ask::{ask_udp_here, connect_here};
use super::service::lock;
use super::steady::{Request, RequestLog};
use crate::host::Host;
use crate::wait;

/// Longer than any outage of the product: a question that takes this long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client in the middle of a long talk.
pub struct Talker {
    /// Guards the log of ended questions.
    log: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Talker {
    /// Asks redis for the value of `holder`, every `step` on one connection, and connects anew
    /// when that ends.
    pub fn redis(host: &Host, target: SocketAddr, step: Duration) -> Self {
        let mut connection: Option<BufReader<TcpStream>> = None;
        Self::start(host, "redis", step, move || {
            let mut open = match connection.take() {
                Some(open) => open,
                None => BufReader::new(connect_here(None, target, PATIENCE)?),
            };
            open.get_mut().write_all(b"GET holder\r\n")?;
            let answer = bulk(&mut open)?;
            connection = Some(open);
            Ok(answer)
        })
    }

    /// Asks by datagram who is there, every `step`, again each half second while nothing comes.
    pub fn datagrams(host: &Host, target: SocketAddr, step: Duration) -> Self {
        Self::start(host, "datagrams", step, move || {
            ask_udp_here(None, target, PATIENCE)
        })
    }

    /// Connects to a service that greets and then is silent, and waits for what never comes. Each
    /// time it is released counts as a failed question; who it was connected to is not told.
    pub fn silent_reader(host: &Host, target: SocketAddr) -> Self {
        Self::start(host, "reader", Duration::from_millis(100), move || {
            let mut stream = connect_here(None, target, PATIENCE)?;
            let mut byte = [0; 64];
            stream.read_exact(&mut byte[..5])?;
            stream.set_read_timeout(None)?;
            match stream.read(&mut byte)? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        })
    }

    /// Returns the questions that have ended so far.
    pub fn log(&self) -> RequestLog {
        RequestLog(lock(&self.log).clone())
    }

    /// Asks no more and returns all; a silent reader is left where it is.
    pub fn stop(mut self) -> RequestLog {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let end = Instant::now() + PATIENCE;
            while !thread.is_finished() && Instant::now() < end {
                wait::pass(Duration::from_millis(10));
            }
        }
        self.log()
    }

    fn start(
        host: &Host,
        name: &str,
        step: Duration,
        mut ask: impl FnMut() -> io::Result<String> + Send + 'static,
    ) -> Self {
        let log: Arc<Mutex<Vec<Request>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (noted, stopped) = (Arc::clone(&log), Arc::clone(&stop));
        let thread = host.thread(name, move || {
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                let outcome = ask().map_err(|error| error.kind());
                let ended = Instant::now();
                lock(&noted).push(Request {
                    began,
                    ended,
                    outcome,
                });
                wait::pass((began + step).saturating_duration_since(Instant::now()));
            }
        });
        Self {
            log,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Tells the redis server of a host the host's name.
///
/// # Errors
///
/// As the connection fails.
pub fn name_redis(host: &Host, port: u16) -> io::Result<()> {
    let name = host.name().to_owned();
    host.enter(move || {
        let local = SocketAddr::from(([127, 0, 0, 1], port));
        let mut open = BufReader::new(connect_here(None, local, PATIENCE)?);
        open.get_mut()
            .write_all(format!("SET holder {name}\r\n").as_bytes())?;
        let mut answer = String::new();
        open.read_line(&mut answer)?;
        if answer == "+OK\r\n" {
            Ok(())
        } else {
            Err(io::Error::other(answer))
        }
    })
}

/// Reads one bulk string of redis.
fn bulk(from: &mut impl BufRead) -> io::Result<String> {
    let mut length = String::new();
    if from.read_line(&mut length)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut value = String::new();
    if !length.starts_with('$') || from.read_line(&mut value)? == 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(value.trim_end().to_owned())
}
