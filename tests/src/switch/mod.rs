//! The userspace switch: one thread that moves Ethernet frames between the hosts' TAP devices and
//! does to each directed pair what its [`Conditions`] say. The kernel at hand has no netem, and a
//! switch of our own also gives one-way cuts, seeded chance and captures.
//!
//! A frame is judged when it arrives: cut, too long, lost, or given a due time by the pair's rate and
//! delay; then it may be doubled, or get a wrong bit.
//! Frames of one pair never overtake each other. What is due at once is handed over at once.

mod capture;
mod garble;
mod tap;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use crate::links::{Conditions, Links, Way};
use capture::Capture;
use garble::garble;
pub(crate) use tap::Tap;

/// Frames taken from one host before the others have their turn.
const TURN: usize = 64;

/// Bytes of a frame before its IP packet.
const ETHERNET_BYTES: usize = 14;

/// Larger than any frame of a jumbo MTU.
const FRAME_BYTES: usize = 16 * 1024;

/// A running switch; stops when dropped.
pub(crate) struct Switch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    links: Arc<Links>,
    wake: EventFd,
    /// Guards what the lab hands over while the switch runs; taken when it is woken.
    orders: Mutex<Orders>,
}

#[derive(Default)]
struct Orders {
    plugged: Vec<(usize, Tap)>,
    capture: Option<Option<Capture>>,
    captures_done: u64,
    stop: bool,
}

impl Switch {
    pub(crate) fn start(links: Arc<Links>, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            links,
            wake: EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
                .expect("an eventfd can be made"),
            orders: Mutex::default(),
        });
        let run = Run::new(Arc::clone(&shared), seed);
        let thread = thread::Builder::new()
            .name("lab-switch".into())
            .spawn(move || run.run())
            .expect("a thread can be started");
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Connects a host's device.
    pub(crate) fn plug(&self, port: usize, tap: Tap) {
        self.shared.order(|orders| orders.plugged.push((port, tap)));
    }

    /// Writes every frame to `path` from now on.
    pub(crate) fn capture(&self, path: &Path) -> io::Result<()> {
        let capture = Capture::create(path)?;
        self.order_capture(Some(capture));
        Ok(())
    }

    /// Ends the capture; its file is complete afterwards.
    pub(crate) fn end_capture(&self) {
        self.order_capture(None);
    }

    fn order_capture(&self, capture: Option<Capture>) {
        let done = self.shared.orders().captures_done;
        self.shared.order(|orders| orders.capture = Some(capture));
        crate::wait::until(
            Duration::from_secs(5),
            "the switch to take an order",
            || self.shared.orders().captures_done > done,
        );
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.order(|orders| orders.stop = true);
        if let Some(thread) = self.thread.take() {
            // A switch that panicked has printed why.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut self.orders());
        // Fails only when the counter is full, and then the switch is awake.
        let _ = self.wake.write(1);
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A frame on its way.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    number: u64,
    to: usize,
    frame: Vec<u8>,
}

/// Until when a pair is busy, and when its last frame is due.
#[derive(Clone, Copy)]
struct Line {
    free_at: Instant,
    last_due: Instant,
}

/// The switch thread's own state.
struct Run {
    shared: Arc<Shared>,
    chance: fastrand::Rng,
    taps: Vec<(usize, Tap)>,
    places: HashMap<usize, usize>,
    lines: HashMap<Way, Line>,
    waiting: BinaryHeap<Reverse<Due>>,
    capture: Option<Capture>,
    number: u64,
}

impl Run {
    fn new(shared: Arc<Shared>, seed: u64) -> Self {
        Self {
            shared,
            chance: fastrand::Rng::with_seed(seed),
            taps: Vec::new(),
            places: HashMap::new(),
            lines: HashMap::new(),
            waiting: BinaryHeap::new(),
            capture: None,
            number: 0,
        }
    }

    fn run(mut self) {
        take_precedence();
        let mut buffer = vec![0u8; FRAME_BYTES];
        loop {
            let ready = self.wait();
            if ready.first() == Some(&true) && !self.take_orders() {
                break;
            }
            for (place, _) in ready
                .iter()
                .skip(1)
                .enumerate()
                .filter(|(_, ready)| **ready)
            {
                self.serve(place, &mut buffer);
            }
            self.hand_over_due();
        }
        if let Some(capture) = self.capture.take() {
            // A full disk shows in the short file.
            let _ = capture.finish();
        }
    }

    /// Sleeps until the next frame is due or something can be read: first the orders, then taps.
    fn wait(&self) -> Vec<bool> {
        let mut descriptors: Vec<PollFd<'_>> = std::iter::once(self.shared.wake.as_fd())
            .chain(self.taps.iter().map(|(_, tap)| tap.file().as_fd()))
            .map(|fd: BorrowedFd<'_>| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let timeout = self
            .waiting
            .peek()
            .map(|Reverse(due)| due.at.saturating_duration_since(Instant::now()));
        // Interrupted or not: what is ready is looked at again.
        let _ = ppoll(&mut descriptors, timeout.map(TimeSpec::from_duration), None);
        descriptors
            .iter()
            .map(|fd| fd.revents().is_some_and(|events| !events.is_empty()))
            .collect()
    }

    /// Takes what the lab handed over; false when the switch is to stop.
    fn take_orders(&mut self) -> bool {
        // Empty already when two orders came with one wake-up.
        let _ = self.shared.wake.read();
        let shared = Arc::clone(&self.shared);
        let mut orders = shared.orders();
        for (port, tap) in orders.plugged.drain(..) {
            self.places.insert(port, self.taps.len());
            self.taps.push((port, tap));
        }
        if let Some(next) = orders.capture.take() {
            if let Some(old) = std::mem::replace(&mut self.capture, next) {
                let _ = old.finish();
            }
            orders.captures_done += 1;
        }
        !orders.stop
    }

    fn serve(&mut self, place: usize, buffer: &mut [u8]) {
        for _ in 0..TURN {
            let (port, tap) = &self.taps[place];
            let port = *port;
            let Ok(length) = tap.file().read(buffer) else {
                return;
            };
            self.switch(port, &buffer[..length]);
        }
    }

    fn switch(&mut self, from: usize, frame: &[u8]) {
        if frame.len() < ETHERNET_BYTES || is_multicast_listening(frame) {
            return;
        }
        if let Some(capture) = &mut self.capture
            && capture.write(frame).is_err()
        {
            self.capture = None;
        }
        if frame[0] & 1 == 0 {
            let to = usize::from(u16::from_be_bytes([frame[4], frame[5]]));
            self.send(Way { from, to }, frame);
            return;
        }
        let others: Vec<usize> = self.taps.iter().map(|(port, _)| *port).collect();
        for to in others.into_iter().filter(|to| *to != from) {
            self.send(Way { from, to }, frame);
        }
    }

    fn send(&mut self, way: Way, frame: &[u8]) {
        let Some(place) = self.places.get(&way.to).copied() else {
            return;
        };
        let now = Instant::now();
        let mut due = now;
        let mut copies = 1;
        let mut frame = Cow::Borrowed(frame);
        let links = Arc::clone(&self.shared.links);
        let carried = links.carry(way, frame.len(), |conditions| {
            match self.due(way, conditions, frame.len(), now) {
                Some(at) => {
                    due = at;
                    copies += usize::from(self.happens(conditions.doubled));
                    if self.happens(conditions.garbled) {
                        garble(frame.to_mut(), self.chance.u64(..));
                    }
                    true
                }
                None => false,
            }
        });
        if !carried {
            return;
        }
        for _ in 0..copies {
            self.bring(place, due, now, &frame);
        }
    }

    /// Hands a frame over, or keeps it until it is due.
    fn bring(&mut self, to: usize, due: Instant, now: Instant, frame: &[u8]) {
        if due <= now {
            deliver(&self.taps[to].1, frame);
            return;
        }
        self.number += 1;
        self.waiting.push(Reverse(Due {
            at: due,
            number: self.number,
            to,
            frame: frame.to_vec(),
        }));
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.chance.f64() < share
    }

    /// Returns when a frame arrives, or nothing when it is lost.
    fn due(&mut self, way: Way, is: &Conditions, bytes: usize, now: Instant) -> Option<Instant> {
        // A TAP device hands over what a cable would carry, never segments glued together, so the
        // length at hand is the one to judge.
        let is_too_long = is
            .largest_frame_bytes
            .is_some_and(|most| bytes > ETHERNET_BYTES + most);
        if is.cut || is_too_long || self.happens(is.loss) {
            return None;
        }
        let line = self.lines.entry(way).or_insert(Line {
            free_at: now,
            last_due: now,
        });
        let mut leaves = now;
        if let Some(rate) = is.rate {
            let begins = line.free_at.max(now);
            let waiting_bytes = (begins - now).as_secs_f64() * rate as f64 / 8.0;
            if waiting_bytes > is.queue_bytes as f64 {
                return None;
            }
            leaves = begins + Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64);
            line.free_at = leaves;
        }
        let jitter = is.jitter.mul_f64(self.chance.f64());
        let due = (leaves + is.delay + jitter).max(line.last_due);
        line.last_due = due;
        Some(due)
    }

    fn hand_over_due(&mut self) {
        let now = Instant::now();
        while let Some(Reverse(due)) = self.waiting.peek()
            && due.at <= now
        {
            let Some(Reverse(due)) = self.waiting.pop() else {
                return;
            };
            deliver(&self.taps[due.to].1, &due.frame);
        }
    }
}

fn deliver(tap: &Tap, frame: &[u8]) {
    // Refused while the host's link is down, which loses the frame as a real one would.
    let _ = tap.file().write(frame);
}

/// MLD reports and router solicitations: noise that nobody here listens to.
fn is_multicast_listening(frame: &[u8]) -> bool {
    let ipv6 = frame[12..14] == [0x86, 0xdd] && frame.len() > 62;
    let hop_by_hop = ipv6 && frame[20] == 0 && matches!(frame[62], 131 | 132 | 143);
    hop_by_hop || (ipv6 && frame[20] == 58 && frame[54] == 133)
}

/// Gives the switch exact timers and a place before ordinary work: two cores are few.
fn take_precedence() {
    // SAFETY: both calls concern the calling thread only and take plain numbers; without the
    // right to be nicer to itself the switch works with more jitter.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::setpriority(libc::PRIO_PROCESS, 0, -15);
    }
}
