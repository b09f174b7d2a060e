//! Workloads that run along while something is done to the network, each with a log of instants
//! on the same clock as the test's own.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::ask::{connect_here, get_here};
use super::service::lock;
use crate::host::Host;
use crate::wait;

/// Longer than any outage of the product: a request that takes this long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// One request of [`Requests`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// When it was begun.
    pub began: Instant,
    /// When it succeeded or failed.
    pub ended: Instant,
    /// Who answered, or why nobody did.
    pub outcome: Result<String, io::ErrorKind>,
}

/// A client that begins a request every so often, whatever became of the ones before.
pub struct Requests {
    /// Guards the log of ended requests.
    log: Arc<Mutex<Vec<Request>>>,
    begun: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Ended requests, by the time they were begun.
#[derive(Clone)]
pub struct RequestLog(pub Vec<Request>);

/// A client blocked in `read()`.
pub struct Reader {
    stream: TcpStream,
    thread: JoinHandle<(Instant, io::Result<usize>)>,
}

/// A client that reads an endless answer.
pub struct Download {
    bytes: Arc<AtomicU64>,
    /// Guards the end, when there was one.
    ended: Arc<Mutex<Option<DownloadEnd>>>,
    stream: TcpStream,
}

/// How a [`Download`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DownloadEnd {
    /// When.
    pub at: Instant,
    /// Why; nothing for an orderly end.
    pub why: Option<io::ErrorKind>,
}

/// A sender of numbered datagrams that nobody answers.
pub struct OneWay {
    sent: Arc<AtomicU64>,
    errors: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Requests {
    /// Begins `per_second` requests a second from `source`, each on a connection of its own.
    pub fn start(host: &Host, source: Option<IpAddr>, target: SocketAddr, per_second: u32) -> Self {
        let log: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (begun, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (noted, counted, stopped) = (Arc::clone(&log), Arc::clone(&begun), Arc::clone(&stop));
        let step = Duration::from_secs(1) / per_second;
        let thread = host.thread("requests", move || {
            let mut next = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let log = Arc::clone(&noted);
                counted.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || {
                    let began = Instant::now();
                    let outcome = get_here(source, target, PATIENCE).map_err(|e| e.kind());
                    let ended = Instant::now();
                    lock(&log).push(Request {
                        began,
                        ended,
                        outcome,
                    });
                });
                next += step;
                wait::pass(next.saturating_duration_since(Instant::now()));
            }
        });
        Self {
            log,
            begun,
            stop,
            thread: Some(thread),
        }
    }

    /// Returns the requests that have ended so far.
    pub fn log(&self) -> RequestLog {
        let mut requests = lock(&self.log).clone();
        requests.sort_by_key(|request| request.began);
        RequestLog(requests)
    }

    /// Waits until somebody has answered and returns who did last.
    ///
    /// # Panics
    ///
    /// When nobody does for 10 seconds.
    pub fn answered_by(&self) -> String {
        let since = Instant::now();
        wait::until_some(PATIENCE, "an answer to a request", || {
            let log = self.log();
            let answers = log.0.iter().rev().filter(|request| request.began >= since);
            answers
                .filter_map(|request| request.outcome.clone().ok())
                .next()
        })
    }

    /// Waits for a success of a request begun after `since`, at most `limit`.
    pub fn next_success(&self, since: Instant, limit: Duration) -> Option<Duration> {
        let end = Instant::now() + limit;
        loop {
            let success = self.log().next_success(since);
            if success.is_some() || Instant::now() > end {
                return success;
            }
            wait::pass(Duration::from_millis(5));
        }
    }

    /// Begins no more, waits for those under way and returns all.
    pub fn stop(mut self) -> RequestLog {
        self.end();
        wait::until(PATIENCE + PATIENCE, "the last requests to end", || {
            lock(&self.log).len() as u64 >= self.begun.load(Ordering::Relaxed)
        });
        self.log()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does nothing that can panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.end();
    }
}

impl RequestLog {
    /// Returns how long after `since` the first request begun after it succeeded.
    pub fn next_success(&self, since: Instant) -> Option<Duration> {
        let later = self.0.iter().filter(|request| request.began >= since);
        let ends = later
            .filter(|request| request.outcome.is_ok())
            .map(|request| request.ended);
        ends.min().map(|end| end - since)
    }

    /// Returns the requests begun from `since` on.
    pub fn since(&self, since: Instant) -> Self {
        let requests = self.0.iter().filter(|request| request.began >= since);
        Self(requests.cloned().collect())
    }

    /// Returns those that failed.
    pub fn failed(&self) -> Vec<&Request> {
        self.0
            .iter()
            .filter(|request| request.outcome.is_err())
            .collect()
    }

    /// Returns who answered, each once, in the order of their first answer.
    pub fn answerers(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self
            .0
            .iter()
            .filter_map(|request| request.outcome.as_ref().ok())
        {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Returns the longest time from a wish to the next success: for each request, from its
    /// beginning to the first success at or after it.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.0
            .iter()
            .map(|request| self.next_success(request.began))
            .max()?
    }
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.0.first() else {
            return f.write_str("no requests");
        };
        for request in &self.0 {
            let (began, ended) = (request.began - first.began, request.ended - first.began);
            writeln!(
                f,
                "{:>9.1} ms  +{:>8.1} ms  {:?}",
                began.as_secs_f64() * 1e3,
                (ended - began).as_secs_f64() * 1e3,
                request.outcome
            )?;
        }
        Ok(())
    }
}

impl Reader {
    /// Connects to a silent service, waits for its greeting and blocks in `read()`.
    ///
    /// # Errors
    ///
    /// When the service cannot be reached.
    pub fn start(host: &Host, target: SocketAddr) -> io::Result<Self> {
        let mut stream = host.enter(|| connect_here(None, target, PATIENCE))?;
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting)?;
        stream.set_read_timeout(None)?;
        let mut reading = stream.try_clone()?;
        let thread = host.thread("reader", move || {
            let mut byte = [0];
            let read = reading.read(&mut byte);
            (Instant::now(), read)
        });
        Ok(Self { stream, thread })
    }

    /// Sends a request that will not be answered.
    ///
    /// # Errors
    ///
    /// As writing fails.
    pub fn say(&mut self) -> io::Result<()> {
        self.stream.write_all(b"are you there?")
    }

    /// Waits until `read()` returns; how long after `since`, and with what.
    ///
    /// # Panics
    ///
    /// When it does not within `limit`.
    pub fn released(self, since: Instant, limit: Duration) -> (Duration, io::Result<usize>) {
        wait::until(limit, "a blocked read() to return", || {
            self.thread.is_finished()
        });
        let (at, read) = self.thread.join().expect("a reader does not panic");
        (at.saturating_duration_since(since), read)
    }
}

impl Download {
    /// Connects to an endless service and reads for ever.
    ///
    /// # Errors
    ///
    /// When the service cannot be reached.
    pub fn start(host: &Host, target: SocketAddr) -> io::Result<Self> {
        let stream = host.enter(|| connect_here(None, target, PATIENCE))?;
        stream.set_read_timeout(None)?;
        let bytes = Arc::new(AtomicU64::new(0));
        let ended: Arc<Mutex<Option<_>>> = Arc::default();
        let (count, end, mut reading) =
            (Arc::clone(&bytes), Arc::clone(&ended), stream.try_clone()?);
        host.thread("download", move || {
            let mut buffer = vec![0; 64 * 1024];
            let why = loop {
                match reading.read(&mut buffer) {
                    Ok(0) => break None,
                    Ok(length) => count.fetch_add(length as u64, Ordering::Relaxed),
                    Err(error) => break Some(error.kind()),
                };
            };
            let at = Instant::now();
            *lock(&end) = Some(DownloadEnd { at, why });
        });
        Ok(Self {
            bytes,
            ended,
            stream,
        })
    }

    /// Returns how many bytes have come.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns when and why it ended, if it did.
    pub fn ended(&self) -> Option<DownloadEnd> {
        *lock(&self.ended)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        // Fails only when the connection has ended.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl OneWay {
    /// Sends a numbered datagram every `step`.
    ///
    /// # Panics
    ///
    /// When the host has no way to `target`.
    pub fn start(host: &Host, target: SocketAddr, step: Duration) -> Self {
        let socket = host.enter(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
            socket.connect(target).expect("the target has a route");
            socket
        });
        let (sent, errors) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let (count, refused, stopped) = (Arc::clone(&sent), Arc::clone(&errors), Arc::clone(&stop));
        host.thread("one-way", move || {
            let mut next = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let mut datagram = [0x5a; 200];
                datagram[..8].copy_from_slice(&number.to_be_bytes());
                if socket.send(&datagram).is_err() {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                next += step;
                wait::pass(next.saturating_duration_since(Instant::now()));
            }
        });
        Self { sent, errors, stop }
    }

    /// Returns how many datagrams were sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns how many the host refused to send, by ICMP for one.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

impl Drop for OneWay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
