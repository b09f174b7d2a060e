//! The data thread: one run-to-completion thread that owns the TUN device, the data sockets and
//! the packet way's state machine. It carries bytes between them and decides nothing.
//!
//! The control loop reaches the state machine by [`DataHandle::run`] and [`DataHandle::ask`]:
//! closures that run on the thread between two packets, so nothing is shared and nothing locked.
//! What the state machine tells the control loop comes back by a bounded channel; when that is
//! full an event is dropped and counted, never waited for.

mod deliver;
mod forward;
mod send;
mod spin;
mod thread;
mod transmit;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use conflux_core::plane::{Event, Plane};
use conflux_core::time::Now;
use tokio::sync::{mpsc, oneshot};

use crate::poll::Waker;
use crate::quic::{Carries, StraySender};
use crate::tun::Tun;
use crate::udp::DataSocket;
use thread::Thread;

/// Commands that wait for the thread; a sender waits when there are more, which takes it as long
/// as the thread needs for one batch of packets.
const COMMANDS: usize = 1024;
/// Events that wait for the control loop.
const EVENTS: usize = 1024;

/// What the thread tells the control loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// What the state machine tells.
    Plane(Event),
    /// For the first time an interface did not take a run of frames in one call, on the way to
    /// this address: they go one by one, which costs speed and nothing else.
    OneByOne(SocketAddr),
}

type Job = Box<dyn FnOnce(&mut Plane, Now) + Send>;

enum Command {
    Run(Job),
    Stop,
}

/// What the thread takes over.
#[derive(Debug)]
pub struct DataParts {
    /// The interface.
    pub tun: Tun,
    /// The data sockets, in the order of [`conflux_core::plane::Path::socket`].
    pub sockets: Vec<DataSocket>,
    /// The state machine.
    pub plane: Plane,
    /// How long to look for packets before sleeping, zero for not at all: worth it only where
    /// cores are idle.
    pub spin: Duration,
    /// Where QUIC datagrams go that came by a data socket.
    pub strays: StraySender,
    /// QUIC datagrams for peers that relays reach.
    pub carries: Carries,
}

/// The control loop's hand on the thread. Dropping it stops the thread.
#[derive(Debug)]
pub struct DataHandle {
    commands: SyncSender<Command>,
    waker: Waker,
    thread: Option<JoinHandle<Plane>>,
    lost_events: Arc<AtomicU64>,
}

/// Starts the thread.
///
/// # Errors
/// When the process has no descriptor or thread left.
pub fn start(parts: DataParts) -> io::Result<(DataHandle, mpsc::Receiver<Notice>)> {
    let (commands, inbox): (_, Receiver<Command>) = sync_channel(COMMANDS);
    let (events, outbox) = mpsc::channel(EVENTS);
    let waker = Waker::new()?;
    parts.carries.wake(waker.clone());
    let lost_events = Arc::new(AtomicU64::new(0));
    let thread = Thread::new(parts, inbox, waker.clone(), events, lost_events.clone())?;
    let thread = std::thread::Builder::new()
        .name("conflux-data".to_owned())
        .spawn(move || thread.run())?;
    Ok((
        DataHandle {
            commands,
            waker,
            thread: Some(thread),
            lost_events,
        },
        outbox,
    ))
}

impl DataHandle {
    /// Has `job` run on the thread. A thread that is gone drops it.
    pub fn run(&self, job: impl FnOnce(&mut Plane, Now) + Send + 'static) {
        if self.commands.send(Command::Run(Box::new(job))).is_ok() {
            self.waker.wake();
        }
    }

    /// Has `question` run on the thread and returns its answer; `None` when the thread is gone.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Plane, Now) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.run(move |plane, now| {
            // Whoever asked may have given up.
            let _ = reply.send(question(plane, now));
        });
        answer.await.ok()
    }

    /// Ends the thread, closes the interface and the data sockets, and returns the state machine
    /// for another thread to go on with; `None` when it was stopped before or has panicked.
    pub fn stop(&mut self) -> Option<Plane> {
        let thread = self.thread.take()?;
        // A thread with a full channel of commands takes this one when it has worked them off;
        // one that has ended needs none.
        let _ = self.commands.send(Command::Stop);
        self.waker.wake();
        // A panic on the thread was already reported by its hook.
        thread.join().ok()
    }

    /// Says whether the thread has ended by itself: the interface is gone.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns how many events found the channel full.
    pub fn lost_events(&self) -> u64 {
        self.lost_events.load(Ordering::Relaxed)
    }
}

impl Drop for DataHandle {
    fn drop(&mut self) {
        self.stop();
    }
}
