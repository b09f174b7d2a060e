//! `--expose`: which ports are let in from the overlay. Without a choice everything is, and this
//! costs a comparison. With one, what nobody here asked for is let in by port alone:
//!
//! - TCP by the segment that opens a connection; all others belong to one that was let in, or are
//!   for the host's kernel to refuse.
//! - UDP by its port, or because it answers: the host sent to there from that port within
//!   [`ANSWERS_WITHIN`].
//! - ICMP echoes and errors, without which paths and people could not be told what is wrong.
//! - Later fragments, which are worth nothing without their first.
//!
//! Everything else is not let in. It holds for this machine and for the hosts behind it.

use std::fmt;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use thiserror::Error;

use crate::ids::Host;
use crate::packet::{Packet, TcpFlags, Transport};
use crate::time::Boot;

/// Ports that are let in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Opening {
    carrier: Carrier,
    first: u16,
    last: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Carrier {
    Tcp,
    Udp,
}

/// A text that is not an [`Opening`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("\"{0}\" is not tcp:PORT, udp:PORT or a range like tcp:8000-8010, ports 1 to 65535")]
pub struct BadOpening(pub String);

/// What is let in, and what the hosts have asked.
#[derive(Debug)]
pub(super) struct Expose {
    openings: Vec<Opening>,
    asked: Asked,
}

/// Where UDP answers may come from: a table of fixed size, in which the oldest of four gives way,
/// so that a packet costs the same however many there are.
#[derive(Debug)]
struct Asked {
    places: Vec<Option<(Question, Boot)>>,
    hasher: SeedableRandomState,
}

/// Who asked whom, by which ports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Question {
    host: Host,
    port: u16,
    far: IpAddr,
    far_port: u16,
}

impl Opening {
    const fn covers(&self, carrier: Carrier, port: u16) -> bool {
        let same = matches!(
            (self.carrier, carrier),
            (Carrier::Tcp, Carrier::Tcp) | (Carrier::Udp, Carrier::Udp)
        );
        same && self.first <= port && port <= self.last
    }
}

impl FromStr for Opening {
    type Err = BadOpening;

    fn from_str(text: &str) -> Result<Self, BadOpening> {
        let refused = || BadOpening(text.to_owned());
        let (carrier, ports) = text.split_once(':').ok_or_else(refused)?;
        let carrier = match carrier {
            "tcp" => Carrier::Tcp,
            "udp" => Carrier::Udp,
            _ => return Err(refused()),
        };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>()
                .ok()
                .filter(|port| is_plain && *port > 0)
        };
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self {
                carrier,
                first,
                last,
            }),
            (Some(_), Some(_)) | (Some(_), None) | (None, _) => Err(refused()),
        }
    }
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let carrier = match self.carrier {
            Carrier::Tcp => "tcp",
            Carrier::Udp => "udp",
        };
        if self.first == self.last {
            write!(f, "{carrier}:{}", self.first)
        } else {
            write!(f, "{carrier}:{}-{}", self.first, self.last)
        }
    }
}

impl Expose {
    /// Returns one that lets everything in.
    pub(super) fn everything(seed: u64) -> Self {
        Self {
            openings: Vec::new(),
            asked: Asked {
                places: Vec::new(),
                hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            },
        }
    }

    /// Lets in what `openings` say; none of them: everything.
    pub(super) fn set(&mut self, openings: Vec<Opening>) {
        if openings.is_empty() {
            self.asked.places = Vec::new();
        } else if self.asked.places.is_empty() {
            self.asked.places = vec![None; ROWS * ROW];
        }
        self.openings = openings;
    }

    /// Says whether there is a choice at all.
    pub(super) fn is_restricted(&self) -> bool {
        !self.openings.is_empty()
    }

    /// Notes what a host sent to `far`.
    pub(super) fn note_sent(&mut self, now: Boot, host: Host, far: IpAddr, packet: &Packet) {
        if let (true, Transport::Udp(udp)) = (self.is_restricted(), packet.transport) {
            let question = Question {
                host,
                port: udp.source_port,
                far,
                far_port: udp.destination_port,
            };
            self.asked.note(now, question);
        }
    }

    /// Says whether a packet from `far` is let in to a host. `far` is none where it has no name
    /// here yet, so that nothing can have been sent to it.
    pub(super) fn admits(
        &self,
        now: Boot,
        host: Host,
        far: Option<IpAddr>,
        packet: &Packet,
    ) -> bool {
        if !self.is_restricted() {
            return true;
        }
        match packet.transport {
            Transport::Tcp(tcp) => {
                let opens = tcp.flags.contains(TcpFlags::SYN) && !tcp.flags.contains(TcpFlags::ACK);
                !opens || self.is_open(Carrier::Tcp, tcp.destination_port)
            }
            Transport::Udp(udp) => {
                self.is_open(Carrier::Udp, udp.destination_port)
                    || far.is_some_and(|far| {
                        let question = Question {
                            host,
                            port: udp.destination_port,
                            far,
                            far_port: udp.source_port,
                        };
                        self.asked.is_recent(now, &question)
                    })
            }
            Transport::Echo(_) | Transport::IcmpError(_) | Transport::LaterFragment => true,
            Transport::Icmp | Transport::Other => false,
        }
    }

    fn is_open(&self, carrier: Carrier, port: u16) -> bool {
        self.openings
            .iter()
            .any(|opening| opening.covers(carrier, port))
    }
}

impl Asked {
    fn note(&mut self, now: Boot, question: Question) {
        let row = self.row(&question);
        let Some(row) = self.places.get_mut(row) else {
            return;
        };
        let same = row
            .iter()
            .position(|place| place.is_some_and(|(known, _)| known == question));
        let oldest = || {
            let by_age = row.iter().enumerate();
            by_age.min_by_key(|(_, place)| place.map(|(_, at)| at))
        };
        let at = same.or_else(|| oldest().map(|(at, _)| at)).unwrap_or(0);
        row[at] = Some((question, now));
    }

    fn is_recent(&self, now: Boot, question: &Question) -> bool {
        let row = self.places.get(self.row(question)).unwrap_or_default();
        row.iter()
            .flatten()
            .any(|(known, at)| known == question && now.since(*at) < ANSWERS_WITHIN)
    }

    fn row(&self, question: &Question) -> std::ops::Range<usize> {
        let hash = self.hasher.hash_one(question);
        let row = usize::try_from(hash % ROWS as u64).unwrap_or(0);
        row * ROW..(row + 1) * ROW
    }
}

/// RFC 4787 has NATs keep UDP for five minutes; who hears nothing for longer asks again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(300);

/// With four places each: 16,384 questions, many times what a host asks in five minutes, in about
/// 1 MiB; only where ports are chosen.
const ROWS: usize = 4096;

/// Enough that a row is seldom full of living questions while others are empty.
const ROW: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Boot = Boot::from_nanos(1_000_000_000_000);

    #[test]
    fn openings_are_read_and_written_the_same() {
        for text in ["tcp:80", "udp:53", "tcp:8000-8010", "udp:1-65535"] {
            assert_eq!(text.parse::<Opening>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "80",
            "tcp:",
            "tcp:0",
            "tcp:65536",
            "sctp:1",
            "tcp:9-8",
            "tcp:+1",
            "tcp:1-",
            "TCP:1",
        ] {
            assert!(text.parse::<Opening>().is_err(), "{text}");
        }
    }

    #[test]
    fn questions_are_remembered_for_five_minutes_in_bounded_room() {
        let mut expose = Expose::everything(7);
        expose.set(vec!["tcp:1".parse().unwrap()]);
        let question = |port: u16| Question {
            host: Host::Own,
            port,
            far: [10, 0, 0, 1].into(),
            far_port: 53,
        };

        expose.asked.note(NOW, question(1));
        let last = NOW + (ANSWERS_WITHIN - Duration::from_nanos(1));
        assert!(expose.asked.is_recent(last, &question(1)));
        assert!(!expose.asked.is_recent(NOW + ANSWERS_WITHIN, &question(1)));
        for port in 2..60_000 {
            expose
                .asked
                .note(NOW + Duration::from_secs(1), question(port));
        }
        assert_eq!(expose.asked.places.len(), ROWS * ROW);
        let kept = (2..60_000).filter(|port| expose.asked.is_recent(last, &question(*port)));
        assert!(kept.count() > ROWS * ROW * 99 / 100);
        expose.set(Vec::new());
        assert!(expose.asked.places.is_empty());
    }
}
