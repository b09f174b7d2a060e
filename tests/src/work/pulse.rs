//! A pulse: numbered datagrams from one socket to one service, a few dozen a second, and a note of
//! when each came back and from whom. It tells to a hundredth of a second how long a conversation
//! stood still, which requests that each make a connection cannot.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::service::lock;
use crate::host::Host;
use crate::wait;

/// Between two datagrams.
const STEP: Duration = Duration::from_millis(20);

/// One answered datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    /// When the datagram left.
    pub sent: Instant,
    /// When its answer came.
    pub answered: Instant,
    /// Who answered.
    pub by: String,
}

/// A running pulse; ends when dropped.
pub struct Pulse {
    /// Guards the instants of sending, by number, and the answered datagrams.
    log: Arc<Mutex<Log>>,
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct Log {
    sent: Vec<Instant>,
    beats: Vec<Beat>,
}

impl Pulse {
    /// Starts a pulse to a [`super::UdpService::echo`].
    ///
    /// # Panics
    ///
    /// When the host has no way to `target`.
    pub fn start(host: &Host, target: SocketAddr) -> Self {
        let socket = host.enter(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
            socket.connect(target).expect("the target has a route");
            socket
        });
        socket
            .set_read_timeout(Some(STEP))
            .expect("a socket's limit can be set");
        let (log, stop) = (
            Arc::<Mutex<Log>>::default(),
            Arc::new(AtomicBool::new(false)),
        );
        let receiving = socket.try_clone().expect("a socket can be shared");
        let (sent, sender_stops) = (Arc::clone(&log), Arc::clone(&stop));
        host.thread("pulse-out", move || {
            let mut next = Instant::now();
            while !sender_stops.load(Ordering::Relaxed) {
                let number = {
                    let mut log = lock(&sent);
                    log.sent.push(Instant::now());
                    log.sent.len() - 1
                };
                // Refused while the address has no holder, or by an ICMP error: a lost beat.
                let _ = socket.send(number.to_string().as_bytes());
                next += STEP;
                wait::pass(next.saturating_duration_since(Instant::now()));
            }
        });
        let (heard, receiver_stops) = (Arc::clone(&log), Arc::clone(&stop));
        host.thread("pulse-in", move || {
            let mut buffer = [0; 128];
            while !receiver_stops.load(Ordering::Relaxed) {
                // Silence, or an ICMP error.
                let Ok(length) = receiving.recv(&mut buffer) else {
                    continue;
                };
                let answered = Instant::now();
                let answer = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let Some((by, number)) = answer.rsplit_once(' ') else {
                    continue;
                };
                let mut log = lock(&heard);
                let number = number.parse().ok();
                let Some(sent) = number.and_then(|number: usize| log.sent.get(number).copied())
                else {
                    continue;
                };
                let by = by.to_owned();
                log.beats.push(Beat { sent, answered, by });
            }
        });
        Self { log, stop }
    }

    /// Waits for the answer of a datagram sent after `since`, at most `limit` from now; how long
    /// after `since` it came.
    pub fn next_beat(&self, since: Instant, limit: Duration) -> Option<Duration> {
        let end = Instant::now() + limit;
        loop {
            let beats = self.beats(since);
            if let Some(answered) = beats.iter().map(|beat| beat.answered).min() {
                return Some(answered - since);
            }
            if Instant::now() > end {
                return None;
            }
            wait::pass(STEP / 4);
        }
    }

    /// Returns the answered datagrams sent from `since` on.
    pub fn beats(&self, since: Instant) -> Vec<Beat> {
        let log = lock(&self.log);
        let late = log.beats.iter().filter(|beat| beat.sent >= since);
        late.cloned().collect()
    }

    /// Returns everybody who has answered.
    pub fn answerers(&self) -> BTreeSet<String> {
        let log = lock(&self.log);
        log.beats.iter().map(|beat| beat.by.clone()).collect()
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
