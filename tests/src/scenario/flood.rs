//! A flood of garbage on a holder's UDP port: random datagrams, and real frames of the realm with
//! bits turned, cut short or replayed.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::realm::{ANSWER_LIMIT, Realm, at, port};
use crate::captured;
use crate::host::Host;
use crate::lab::Lab;
use crate::wait;
use crate::work;

/// The port anchors listen on by default.
const ANCHOR_PORT: u16 = 47_474;

/// Real datagrams kept to be mutated.
const MAX_SAMPLES: usize = 2000;

/// A sender beside the realm with samples of its traffic.
pub struct Flood {
    host: Host,
    targets: Vec<SocketAddr>,
    samples: Vec<Vec<u8>>,
}

impl Flood {
    /// Captures some of the realm's traffic and adds a sending host.
    ///
    /// # Panics
    ///
    /// When nothing can be captured.
    pub fn prepare(realm: &Realm) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
        realm.lab.capture(file.path());
        let client = &realm.clients[0];
        for _ in 0..50 {
            // What comes back does not matter here, only what crosses.
            let _ = work::get(&client.host, None, at(port::HTTP), ANSWER_LIMIT);
        }
        realm.lab.end_capture();
        let bytes = std::fs::read(file.path()).expect("a capture can be read");
        let samples = samples(&bytes);
        assert!(
            samples.len() > 100,
            "only {} datagrams captured",
            samples.len()
        );
        let holders = realm.holders.iter();
        Self {
            host: realm.lab.host("flood"),
            targets: holders
                .map(|holder| SocketAddr::new(holder.host.ipv4().into(), ANCHOR_PORT))
                .collect(),
            samples,
        }
    }

    /// Sends datagrams to the holders in turn, as fast as the lab carries them, until `count` have
    /// been handed over; how long that took and how many they were.
    ///
    /// # Panics
    ///
    /// When the host cannot send at all.
    pub fn send(&self, lab: &Lab, count: u64) -> (Duration, u64) {
        /// A network card's queue is short; what is beyond it is lost before the switch sees it.
        const AHEAD: u64 = 400;
        let out = lab.out_of(&self.host);
        let socket = self.host.enter(|| UdpSocket::bind("0.0.0.0:0"));
        let socket = socket.expect("a port is free");
        let mut chance = fastrand::Rng::with_seed(count);
        let mut datagram = Vec::with_capacity(2048);
        let (began, before) = (Instant::now(), out.carried().frames);
        let mut sent = 0;
        loop {
            let carried = out.carried().frames - before;
            if carried >= count {
                return (began.elapsed(), carried);
            }
            if sent > carried + AHEAD {
                // What was lost on the way is sent anew.
                sent = carried;
                wait::pass(Duration::from_millis(1));
            }
            for _ in 0..AHEAD / 4 {
                self.fill(&mut datagram, &mut chance);
                let place = usize::try_from(sent).unwrap_or(0) % self.targets.len();
                if socket.send_to(&datagram, self.targets[place]).is_ok() {
                    sent += 1;
                }
            }
        }
    }

    fn fill(&self, datagram: &mut Vec<u8>, chance: &mut fastrand::Rng) {
        datagram.clear();
        if chance.bool() {
            datagram.resize(chance.usize(0..1400), 0);
            chance.fill(datagram);
            // Half of these get past the sorting of control from data.
            if let Some(first) = datagram.first_mut()
                && chance.bool()
            {
                *first = chance.u8(0x10..0x14);
            }
            return;
        }
        datagram.extend_from_slice(&self.samples[chance.usize(..self.samples.len())]);
        match chance.u8(0..4) {
            0 => datagram.truncate(chance.usize(..=datagram.len())),
            1 => datagram.extend_from_slice(&[0; 16]),
            2 => {}
            _ => {
                for _ in 0..chance.usize(1..4) {
                    let place = chance.usize(..datagram.len());
                    datagram[place] ^= 1 << chance.u8(0..8);
                }
            }
        }
    }
}

/// The UDP payloads between anchors in a pcap file.
fn samples(pcap: &[u8]) -> Vec<Vec<u8>> {
    captured::datagrams(pcap)
        .into_iter()
        .filter(|datagram| datagram.to.port() == ANCHOR_PORT)
        .map(|datagram| datagram.payload)
        .take(MAX_SAMPLES)
        .collect()
}
