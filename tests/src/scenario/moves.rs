//! What open connections go through when their holder fails or leaves: each function strikes the
//! first client's holder, measures, and leaves the fault in place unless it says otherwise.

use std::io;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::fault::Fault;
use super::realm::{Realm, at, port};
use crate::wait;
use crate::work::{self, Reader};

/// Longer than any reader may be left waiting.
const READER_LIMIT: Duration = Duration::from_secs(12);

/// What a reader has said before its holder fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Talk {
    /// A request that is on its way.
    JustAsked,
    /// Nothing for a second, as a subscriber.
    Silent,
}

/// How a blocked reader was released.
#[derive(Debug)]
pub struct Released {
    /// From the fault to the return of `read()`; for a leave from the beginning of the command.
    pub after: Duration,
    /// With what.
    pub read: io::Result<usize>,
}

/// What a client with one holder only saw.
#[derive(Debug)]
pub struct Alone {
    /// How its open connection ended.
    pub released: Released,
    /// How a new connection was refused, and after what time.
    pub refused: (Option<io::ErrorKind>, Duration),
    /// From the holder's return to the next success.
    pub well_after: Duration,
}

impl Released {
    /// Returns whether it was by ECONNRESET.
    pub fn is_reset(&self) -> bool {
        let kind = self.read.as_ref().err().map(io::Error::kind);
        kind == Some(io::ErrorKind::ConnectionReset)
    }
}

/// Blocks a reader on the holder in use and strikes; also which holder it was.
///
/// # Panics
///
/// When the reader cannot connect or is never released.
pub fn release_reader(realm: &mut Realm, fault: Fault, talk: Talk) -> (usize, Released) {
    let client = realm.clients[0].host.clone();
    let holder = realm.clients[0].get().expect("a whole realm answers");
    let place = realm.place_of(&holder);
    let mut reader = Reader::start(&client, at(port::SILENT)).expect("a whole realm answers");
    match talk {
        Talk::JustAsked => reader.say().expect("an open connection takes a request"),
        Talk::Silent => wait::pass(Duration::from_secs(1)),
    }
    let struck = Instant::now();
    fault.strike(realm, place);
    let (after, read) = reader.released(struck, READER_LIMIT);
    (place, Released { after, read })
}

/// Begins a connection whose SYN certainly finds nobody, kills the holder and returns how
/// `connect()` ended and how long it took.
///
/// # Panics
///
/// When the client does not reach its holder before.
pub fn connect_across_a_kill(realm: &mut Realm) -> (io::Result<()>, Duration) {
    let holder = realm.clients[0].get().expect("a whole realm answers");
    let place = realm.place_of(&holder);
    realm.holders[place].anchor.signal(Signal::SIGSTOP);
    let began = Instant::now();
    let connecting = realm.clients[0].host.thread("connect", move || {
        let connected = work::connect_here(None, at(port::ECHO), READER_LIMIT);
        (connected.map(drop), began.elapsed())
    });
    realm.holders[place].anchor.kill();
    connecting.join().expect("connecting does not panic")
}

/// Takes a client's only holder away and gives it back.
///
/// # Panics
///
/// When the client does not recover.
pub fn leave_alone(realm: &mut Realm, fault: Fault) -> Alone {
    let (place, released) = release_reader(realm, fault, Talk::JustAsked);
    let asked = Instant::now();
    let refused = realm.clients[0].get().err().map(|error| error.kind());
    let refused = (refused, asked.elapsed());
    fault.undo(realm, place);
    let back = Instant::now();
    let client = realm.clients[0].host.clone();
    wait::until(
        Duration::from_secs(10),
        "the holder to answer again",
        || work::get(&client, None, at(port::HTTP), Duration::from_millis(200)).is_ok(),
    );
    Alone {
        released,
        refused,
        well_after: back.elapsed(),
    }
}
