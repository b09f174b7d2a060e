//! A transfer of many bytes that proves itself: both ends make the same stream from a seed, and the
//! checksum of what came is compared with that of what was sent. Either end may send, the network
//! may be changed while it runs, and one that is slow may be ended before its last byte.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::ask::connect_here;
use super::service::TcpService;
use crate::host::Host;
use crate::wait;

/// No byte for so long ends a transfer: longer than any pause of a path that works.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is made, sent and summed at a time; a multiple of a word.
const CHUNK_BYTES: usize = 64 * 1024;

/// Bytes of a request: who sends, the seed, how many bytes.
const REQUEST_BYTES: usize = 17;

/// Bytes of a receiver's answer: how many came, their sum, the longest pause in microseconds.
const ANSWER_BYTES: usize = 24;

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The service does.
    Down,
    /// The client does.
    Up,
}

/// A transfer under way; ended when dropped.
pub struct Transfer {
    wanted_bytes: u64,
    seed: u64,
    began: Instant,
    bytes: Arc<AtomicU64>,
    stream: TcpStream,
    thread: Option<JoinHandle<(Received, Instant)>>,
}

/// What became of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transferred {
    /// Bytes asked for.
    pub wanted_bytes: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// The checksum of what came.
    pub sum: u64,
    /// The checksum of as many bytes of what was sent.
    pub sent_sum: u64,
    /// From the request to the last byte.
    pub took: Duration,
    /// The longest time in which the receiver got nothing.
    pub longest_pause: Duration,
}

/// What a receiver notes.
#[derive(Clone, Copy, Default)]
struct Received {
    bytes: u64,
    sum: u64,
    longest_pause: Duration,
}

/// The stream both ends know: words mixed from a seed and their place.
struct Stream {
    next: u64,
}

/// Serves transfers to any [`Transfer`] on `port`.
///
/// # Panics
///
/// When the port is taken.
pub fn serve_transfers(host: &Host, port: u16) -> TcpService {
    TcpService::start(host, port, |stream, _| {
        // The client sees a failure as bytes or an answer that do not come.
        let _ = serve(stream);
    })
}

impl Transfer {
    /// Asks a transfer service for a transfer of `bytes`.
    ///
    /// # Errors
    ///
    /// When the service cannot be reached.
    pub fn start(
        host: &Host,
        target: SocketAddr,
        direction: Direction,
        bytes: u64,
    ) -> io::Result<Self> {
        let mut stream = host.enter(|| connect_here(None, target, PATIENCE))?;
        let seed = fastrand::u64(..);
        let began = Instant::now();
        stream.write_all(&request(direction, seed, bytes))?;
        let count = Arc::new(AtomicU64::new(0));
        let (counted, mut running) = (Arc::clone(&count), stream.try_clone()?);
        let thread = host.thread("transfer", move || {
            let received = match direction {
                Direction::Down => receive(&mut running, bytes, &counted),
                // An upload that was cut short has no answer.
                Direction::Up => send(&mut running, seed, bytes, &counted)
                    .and_then(|()| read_answer(&mut running))
                    .unwrap_or_default(),
            };
            (received, Instant::now())
        });
        Ok(Self {
            wanted_bytes: bytes,
            seed,
            began,
            bytes: count,
            stream,
            thread: Some(thread),
        })
    }

    /// Waits for the end, or ends it after `limit`; an upload that was ended counts as nothing.
    ///
    /// # Panics
    ///
    /// Never in health: its thread does nothing that can panic.
    pub fn end_within(mut self, limit: Duration) -> Transferred {
        let thread = self.thread.take().expect("ended once only");
        let end = Instant::now() + limit;
        while !thread.is_finished() && Instant::now() < end {
            wait::pass(Duration::from_millis(5));
        }
        self.shut_down();
        let (received, ended) = thread.join().expect("a transfer does not panic");
        Transferred {
            wanted_bytes: self.wanted_bytes,
            bytes: received.bytes,
            sum: received.sum,
            sent_sum: sum_of(self.seed, received.bytes),
            took: ended - self.began,
            longest_pause: received.longest_pause,
        }
    }

    /// Returns how many bytes have come; of an upload, how many were handed to the kernel.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn shut_down(&self) {
        // Fails only when the connection has ended.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Transferred {
    /// Returns whether every byte came as it was sent.
    pub fn is_whole(&self) -> bool {
        self.bytes == self.wanted_bytes && self.is_sound()
    }

    /// Returns whether something came, and that as it was sent.
    pub fn is_sound(&self) -> bool {
        self.bytes > 0 && self.sum == self.sent_sum
    }

    /// Returns its speed.
    pub fn megabits_per_second(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.took.as_secs_f64()
    }
}

impl Stream {
    fn new(seed: u64) -> Self {
        Self { next: seed }
    }

    /// Fills the next bytes; only the last call may ask for a part of a word.
    fn fill(&mut self, buffer: &mut [u8]) {
        for place in buffer.chunks_mut(8) {
            // SplitMix64: a place of the stream can be told from every other.
            self.next = self.next.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = self.next;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
            place.copy_from_slice(&word.to_le_bytes()[..place.len()]);
        }
    }
}

fn serve(stream: &TcpStream) -> io::Result<()> {
    let mut stream = stream;
    let mut request = [0; REQUEST_BYTES];
    stream.read_exact(&mut request)?;
    let (seed, bytes) = (word(&request[1..]), word(&request[9..]));
    let count = AtomicU64::new(0);
    if request[0] == 0 {
        return send(&mut stream, seed, bytes, &count);
    }
    let received = receive(&mut stream, bytes, &count);
    let pause = u64::try_from(received.longest_pause.as_micros()).unwrap_or(u64::MAX);
    stream.write_all(
        &[received.bytes, received.sum, pause]
            .map(u64::to_le_bytes)
            .concat(),
    )
}

fn request(direction: Direction, seed: u64, bytes: u64) -> Vec<u8> {
    let sender = match direction {
        Direction::Down => 0,
        Direction::Up => 1,
    };
    [&[sender][..], &seed.to_le_bytes(), &bytes.to_le_bytes()].concat()
}

fn read_answer(stream: &mut impl Read) -> io::Result<Received> {
    let mut answer = [0; ANSWER_BYTES];
    stream.read_exact(&mut answer)?;
    Ok(Received {
        bytes: word(&answer),
        sum: word(&answer[8..]),
        longest_pause: Duration::from_micros(word(&answer[16..])),
    })
}

fn send(stream: &mut impl Write, seed: u64, bytes: u64, count: &AtomicU64) -> io::Result<()> {
    let mut made = Stream::new(seed);
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let chunk = &mut buffer[..chunk_bytes(left)];
        made.fill(chunk);
        stream.write_all(chunk)?;
        count.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        left -= chunk.len() as u64;
    }
    Ok(())
}

/// Takes bytes until all have come, or the connection ends or stays silent.
fn receive(stream: &mut impl Read, bytes: u64, count: &AtomicU64) -> Received {
    let mut received = Received::default();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut last = Instant::now();
    while received.bytes < bytes {
        let wanted = chunk_bytes(bytes - received.bytes);
        let mut filled = 0;
        while filled < wanted {
            let Ok(length @ 1..) = stream.read(&mut buffer[filled..wanted]) else {
                break;
            };
            let now = Instant::now();
            received.longest_pause = received.longest_pause.max(now - last);
            last = now;
            filled += length;
            count.fetch_add(length as u64, Ordering::Relaxed);
        }
        received.bytes += filled as u64;
        received.sum = add(received.sum, &buffer[..filled]);
        if filled < wanted {
            break;
        }
    }
    received
}

/// The sum of the first `bytes` of the stream of `seed`.
fn sum_of(seed: u64, bytes: u64) -> u64 {
    let mut made = Stream::new(seed);
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut sum, mut left) = (0, bytes);
    while left > 0 {
        let chunk = &mut buffer[..chunk_bytes(left)];
        made.fill(chunk);
        sum = add(sum, chunk);
        left -= chunk.len() as u64;
    }
    sum
}

/// Adds bytes to a checksum that sees every bit and the order of words, as FNV does.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(sum, |sum, part| {
        (sum ^ word(part))
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29)
    })
}

/// The first word of some bytes, with zeros for those that are missing.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let length = bytes.len().min(8);
    word[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(word)
}

fn chunk_bytes(left: u64) -> usize {
    usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES))
}
