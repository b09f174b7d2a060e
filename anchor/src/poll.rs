//! How the data thread sleeps: until the TUN or a socket has something, a [`Waker`] was rung, or
//! the earliest deadline of `core` has come. Deadlines are kept to a millisecond: failure detection
//! has 50 ms to spend in all. Not for the control loop, which is tokio's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use smallvec::SmallVec;

/// Wakes a thread that sleeps in [`wait`]; clones ring the same bell.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// Makes a bell nobody has rung yet.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self(Arc::new(event)))
    }

    /// Rings: the sleeper's next or present [`wait`] returns at once. Never blocks.
    pub fn wake(&self) {
        // Fails only when the counter is full, and then the bell is ringing already.
        let _ = self.0.write(1);
    }

    /// Silences the bell. The sleeper calls it before it reads what it was woken for, so that
    /// nothing put there later goes unnoticed.
    pub fn clear(&self) {
        // Fails only when nobody rang.
        let _ = self.0.read();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Which of the sources given to [`wait`] have something to say, by their place in the slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready(u64);

impl Ready {
    /// Returns whether the source at `place` can be read, has failed or was closed.
    pub const fn has(self, place: usize) -> bool {
        place < MAX_SOURCES && self.0 & (1 << place) != 0
    }

    /// Returns whether the wait ended for another reason than a source.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Sources that stay the same from one sleep to the next: the kernel is told of them once and not
/// at every sleep, which is a microsecond less for each packet that comes alone.
#[derive(Debug)]
pub struct Poller(Epoll);

impl Poller {
    /// Takes the sources to wait for; each stays registered until it is closed.
    ///
    /// # Errors
    /// More than [`MAX_SOURCES`], one that cannot be waited for, or no file descriptor left.
    pub fn new(sources: &[BorrowedFd<'_>]) -> io::Result<Self> {
        check(sources)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (place, source) in sources.iter().enumerate() {
            epoll.add(source, EpollEvent::new(EpollFlags::EPOLLIN, place as u64))?;
        }
        Ok(Self(epoll))
    }

    /// Sleeps until a source is readable or `timeout` is over; without one, for as long as it
    /// takes. Whole milliseconds: a timeout may be up to one late, never early. As in [`wait`], a
    /// signal ends the sleep with nothing ready, and a source that failed counts as ready.
    ///
    /// # Errors
    /// A kernel out of memory.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Ready> {
        let mut events = [EpollEvent::empty(); MAX_SOURCES];
        let timeout = timeout.map_or(EpollTimeout::NONE, |time| {
            let millis = time.as_nanos().div_ceil(1_000_000);
            EpollTimeout::try_from(millis).unwrap_or(EpollTimeout::MAX)
        });
        match self.0.wait(&mut events, timeout) {
            Ok(count) => Ok(events[..count]
                .iter()
                .fold(Ready::default(), |ready, event| {
                    Ready(ready.0 | 1 << event.data())
                })),
            Err(Errno::EINTR) => Ok(Ready::default()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Sleeps until a source is readable or `timeout` is over; without one, for as long as it takes.
/// A signal ends the wait early with nothing ready.
///
/// A source that failed counts as ready: reading it tells the fault.
///
/// # Errors
/// More than [`MAX_SOURCES`] sources, one that is closed, or a kernel out of memory.
pub fn wait(sources: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Ready> {
    check(sources)?;
    let mut fds: SmallVec<[PollFd<'_>; 8]> = sources
        .iter()
        .map(|source| PollFd::new(*source, PollFlags::POLLIN))
        .collect();

    match ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(Ready::default()),
        Err(errno) => return Err(errno.into()),
    }

    let mut ready = 0;
    for (place, fd) in fds.iter().enumerate() {
        let events = fd.revents().unwrap_or(PollFlags::empty());
        if events.contains(PollFlags::POLLNVAL) {
            return Err(Errno::EBADF.into());
        }
        if !events.is_empty() {
            ready |= 1 << place;
        }
    }
    Ok(Ready(ready))
}

fn check(sources: &[BorrowedFd<'_>]) -> io::Result<()> {
    if sources.len() > MAX_SOURCES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too many sources to wait for",
        ));
    }
    Ok(())
}

/// One bit of [`Ready`] each.
pub const MAX_SOURCES: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_ends_when_the_bell_rings_and_only_once() {
        let waker = Waker::new().unwrap();
        let other = waker.clone();

        let ringer = std::thread::spawn(move || other.wake());
        let rung = wait(&[waker.as_fd()], None).unwrap();
        ringer.join().unwrap();
        waker.clear();
        let silent = wait(&[waker.as_fd()], Some(Duration::ZERO)).unwrap();

        assert!(rung.has(0));
        assert!(silent.is_empty());
    }

    #[test]
    fn ringing_twice_needs_one_silencing() {
        let waker = Waker::new().unwrap();

        waker.wake();
        waker.wake();
        waker.clear();

        assert!(
            wait(&[waker.as_fd()], Some(Duration::ZERO))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_wait_without_news_lasts_its_time_below_a_millisecond_too() {
        let waker = Waker::new().unwrap();
        let start = Instant::now();

        let ready = wait(&[waker.as_fd()], Some(Duration::from_micros(300))).unwrap();

        assert!(ready.is_empty());
        assert!(start.elapsed() >= Duration::from_micros(300));
    }

    #[test]
    fn ready_names_the_source_that_has_something() {
        let quiet = UdpSocket::bind("127.0.0.1:0").unwrap();
        let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
        quiet.send_to(b"x", busy.local_addr().unwrap()).unwrap();

        let ready = wait(&[quiet.as_fd(), busy.as_fd()], Some(Duration::from_secs(5))).unwrap();

        assert!(!ready.has(0) && ready.has(1) && !ready.has(64));
    }

    #[test]
    fn a_poller_tells_what_is_ready_for_as_long_as_it_is() {
        let quiet = UdpSocket::bind("127.0.0.1:0").unwrap();
        let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
        let poller = Poller::new(&[quiet.as_fd(), busy.as_fd()]).unwrap();
        quiet.send_to(b"x", busy.local_addr().unwrap()).unwrap();

        let first = poller.wait(Some(Duration::from_secs(5))).unwrap();
        let unread = poller.wait(None).unwrap();
        busy.recv(&mut [0; 8]).unwrap();
        let read = poller.wait(Some(Duration::ZERO)).unwrap();

        assert!(!first.has(0) && first.has(1));
        assert_eq!(unread, first);
        assert!(read.is_empty());
    }

    #[test]
    fn a_poller_waits_no_less_than_its_time() {
        let waker = Waker::new().unwrap();
        let poller = Poller::new(&[waker.as_fd()]).unwrap();
        let start = Instant::now();

        let ready = poller.wait(Some(Duration::from_micros(300))).unwrap();

        assert!(ready.is_empty());
        assert!(start.elapsed() >= Duration::from_micros(300));
    }

    #[test]
    fn more_sources_than_bits_are_refused() {
        let waker = Waker::new().unwrap();

        let refused = wait(&[waker.as_fd(); MAX_SOURCES + 1], Some(Duration::ZERO));

        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
