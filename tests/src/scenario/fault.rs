//! What can happen to a holder, done and undone, with what a client noticed.

use std::fmt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::realm::{Realm, at, port};
use crate::wait;
use crate::work::{Download, RequestLog, Requests, ask_udp};

/// How often a client asks while a fault happens.
pub const REQUESTS_PER_SECOND: u32 = 20;

/// What happens to the holder in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// `conflux down`.
    Down,
    /// SIGKILL of its anchor.
    Kill,
    /// Nothing gets in or out of the machine.
    Cut,
    /// Nothing gets into the machine; what it sends arrives.
    Deaf,
    /// Nothing gets out of the machine; what is sent to it arrives.
    Mute,
    /// SIGSTOP of its anchor.
    Stop,
}

/// What one fault did.
#[derive(Clone)]
pub struct Noticed {
    /// The holder it was done to.
    pub holder: String,
    /// Who answered the next request.
    pub next_holder: Option<String>,
    /// From the fault to the first success of a request begun after it.
    pub next_success: Option<Duration>,
    /// From any request to the next success, at most.
    pub longest_wait: Option<Duration>,
    /// Requests that failed, of all that were begun from just before the fault on.
    pub failed: usize,
    /// The requests of the client, from one second before the fault on.
    pub log: RequestLog,
    /// Whether `routes` still listed the holder after the move.
    pub is_listed: bool,
    /// `anchor_route_groups` before and after the move.
    pub route_groups: (f64, f64),
}

impl Fault {
    /// Every fault that is not announced.
    pub const FAILURES: [Self; 5] = [Self::Kill, Self::Cut, Self::Deaf, Self::Mute, Self::Stop];

    /// Does it to holder `place`.
    ///
    /// # Panics
    ///
    /// When the holder does not run.
    pub fn strike(self, realm: &mut Realm, place: usize) {
        let host = realm.holders[place].host.clone();
        match self {
            Self::Down => {
                realm.holders[place].anchor.down();
            }
            Self::Kill => realm.holders[place].anchor.kill(),
            Self::Cut => realm.lab.around(&host).cut(),
            Self::Deaf => realm.lab.towards(&host).cut(),
            Self::Mute => realm.lab.out_of(&host).cut(),
            Self::Stop => realm.holders[place].anchor.signal(Signal::SIGSTOP),
        }
    }

    /// Takes it back; the holder may need a moment to be found again.
    ///
    /// # Panics
    ///
    /// When the holder does not start again.
    pub fn undo(self, realm: &mut Realm, place: usize) {
        let host = realm.holders[place].host.clone();
        match self {
            Self::Down | Self::Kill => realm.holders[place].anchor.run(),
            Self::Cut | Self::Deaf | Self::Mute => realm.lab.around(&host).mend(),
            Self::Stop => realm.holders[place].anchor.signal(Signal::SIGCONT),
        }
    }

    /// Does it to the holder the first client uses, while that client asks 20 times a second, and
    /// watches until somebody answers again. The fault is left in place.
    ///
    /// # Panics
    ///
    /// When nobody answers before the fault.
    pub fn watch(self, realm: &mut Realm) -> Noticed {
        /// Well past every bar, so that a late answer is measured and not only missed.
        const WATCH: Duration = Duration::from_secs(8);
        let client = &realm.clients[0];
        let requests = Requests::start(&client.host, None, at(port::HTTP), REQUESTS_PER_SECOND);
        let holder = requests.answered_by();
        let place = realm.place_of(&holder);
        let id = realm.holders[place].anchor.id().to_owned();
        // Packets keep coming from the holder while nothing reaches it, and the other way round.
        let download = Download::start(&client.host, at(port::ENDLESS));
        let _ = ask_udp(
            &client.host,
            None,
            at(port::STREAM),
            Duration::from_millis(100),
        );
        let groups_before = realm.clients[0].anchor.metric("anchor_route_groups");
        let since = Instant::now();
        wait::until(Duration::from_secs(5), "a second of answers", || {
            requests.log().since(since).0.len() >= REQUESTS_PER_SECOND as usize
        });

        let struck = Instant::now();
        self.strike(realm, place);
        // A leave is over when the command returns; a failure begins when it is struck.
        let since_when = if self == Self::Down {
            Instant::now()
        } else {
            struck
        };
        let next_success = requests.next_success(since_when, WATCH);
        let client = &realm.clients[0];
        let row = client.anchor.route(super::SHARED_NETWORK);
        let groups_after = client.anchor.metric("anchor_route_groups");
        drop(download);
        let log = requests.stop().since(since);
        let next = log.0.iter().filter(|request| request.began >= struck);
        Noticed {
            next_holder: next.rev().find_map(|request| request.outcome.clone().ok()),
            holder,
            next_success,
            longest_wait: log.longest_wait(),
            failed: log.failed().len(),
            is_listed: row.is_some_and(|row| row.via.contains(&id)),
            route_groups: (groups_before, groups_after),
            log,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Down => "down",
            Self::Kill => "SIGKILL",
            Self::Cut => "cut both ways",
            Self::Deaf => "cut towards it",
            Self::Mute => "cut from it",
            Self::Stop => "SIGSTOP",
        })
    }
}

impl fmt::Debug for Noticed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} -> {:?}: next success {:?}, longest wait {:?}, {} failed, listed {}, groups {:?}",
            self.holder,
            self.next_holder,
            self.next_success,
            self.longest_wait,
            self.failed,
            self.is_listed,
            self.route_groups
        )?;
        self.log.fmt(f)
    }
}
