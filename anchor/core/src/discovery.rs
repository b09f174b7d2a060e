//! When an anchor asks its own link for others of the realm, when it answers, and which answers it
//! takes: the timing of multicast DNS (RFC 6762) and the limits. Not for messages and sockets, which
//! are the shell's, nor for whether somebody found is a member, which its connection shows.
//!
//! - It asks at the start and after each change of the network, then after pauses that grow: twofold
//!   up to [`LONELY_PAUSE`] while it is connected with nobody, eightfold up to [`LONGEST_PAUSE`]
//!   otherwise.
//! - It tells of itself twice at the start and after each change, and when asked, at most once in
//!   [`ANSWER_GAP`] whoever asks.
//! - What it hears is a place to knock, no more. Anybody on the link can say anything, so at most
//!   [`MAX_FOUND`] places are taken in [`FOUND_FOR`]; more are ignored until then.

use std::net::SocketAddr;
use std::time::Duration;

use smallvec::SmallVec;

use crate::time::Mono;

/// Between the first two questions (RFC 6762 section 5.2: at least a second).
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause while nobody is connected: a machine that comes up beside this one asks by itself,
/// so this is for answers that were lost.
pub const LONELY_PAUSE: Duration = Duration::from_secs(60);

/// Longest pause otherwise (RFC 6762 section 5.2).
pub const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// How much longer each pause is than the one before (RFC 6762 section 5.2: at least twice), while
/// nobody is connected.
const LONELY_GROWTH: u32 = 2;

/// The same while somebody is: adverts tell of the others, so there is little to be found, and each
/// question wakes every anchor of the link. Four questions until the longest pause.
const GROWTH: u32 = 8;

/// Between two answers (RFC 6762 section 6).
pub const ANSWER_GAP: Duration = Duration::from_secs(1);

/// An answer waits 20 to 120 ms, so that those of several anchors do not collide (RFC 6762 section 6).
const ANSWER_DELAY_MILLIS: std::ops::RangeInclusive<u64> = 20..=120;

/// Places taken within [`FOUND_FOR`]: more anchors than a link has that know nobody. Each costs one
/// dial, of some 5 kB when nobody is there.
pub const MAX_FOUND: usize = 32;

/// How long a place is remembered, and not taken again.
pub const FOUND_FOR: Duration = Duration::from_secs(60);

/// What is to be sent on every link now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Send {
    /// The question who else is here.
    Question,
    /// That this anchor is here.
    Answer,
}

/// The state machine; 2 KiB, whatever is heard.
#[derive(Debug)]
pub struct Discovery {
    ask_at: Mono,
    pause: Duration,
    answer_at: Option<Mono>,
    /// Answers still to be given without being asked.
    unasked: u8,
    answered_at: Option<Mono>,
    is_lonely: bool,
    found: SmallVec<[(SocketAddr, Mono); MAX_FOUND]>,
    random: fastrand::Rng,
}

impl Discovery {
    /// Returns a machine that asks and tells at once.
    pub fn new(now: Mono, seed: u64) -> Self {
        Self {
            ask_at: now,
            pause: FIRST_PAUSE,
            answer_at: Some(now),
            unasked: 1,
            answered_at: None,
            is_lonely: true,
            found: SmallVec::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The network changed: others are on the link now.
    pub fn handle_moved(&mut self, now: Mono) {
        self.ask_at = now;
        self.pause = FIRST_PAUSE;
        self.unasked = 1;
        self.answer_soon(now);
        self.found.clear();
    }

    /// Says whether this anchor is connected with nobody; questions go on at the pace for that.
    pub fn set_lonely(&mut self, now: Mono, is_lonely: bool) {
        if is_lonely && !self.is_lonely {
            self.ask_at = self.ask_at.min(now + FIRST_PAUSE);
            self.pause = FIRST_PAUSE;
        }
        self.is_lonely = is_lonely;
    }

    /// Somebody asks who is here.
    pub fn handle_question(&mut self, now: Mono) {
        self.answer_soon(now);
    }

    /// Somebody says to be at `place`; whether it is to be tried.
    pub fn handle_answer(&mut self, now: Mono, place: SocketAddr) -> bool {
        self.found.retain(|(_, at)| now.since(*at) < FOUND_FOR);
        let is_known = self.found.iter().any(|(known, _)| *known == place);
        if is_known || self.found.len() >= MAX_FOUND {
            return false;
        }
        self.found.push((place, now));
        true
    }

    /// Returns what is to be sent by now; call it until it returns `None`.
    pub fn poll_send(&mut self, now: Mono) -> Option<Send> {
        if self.ask_at <= now {
            let (growth, longest) = if self.is_lonely {
                (LONELY_GROWTH, LONELY_PAUSE)
            } else {
                (GROWTH, LONGEST_PAUSE)
            };
            self.ask_at = now + self.pause;
            self.pause = (self.pause * growth).min(longest);
            return Some(Send::Question);
        }
        if self.answer_at.is_some_and(|at| at <= now) {
            self.answered_at = Some(now);
            self.answer_at = (self.unasked > 0).then(|| now + ANSWER_GAP);
            self.unasked = self.unasked.saturating_sub(1);
            return Some(Send::Answer);
        }
        None
    }

    /// Returns when [`Self::poll_send`] has something next.
    pub fn poll_timeout(&self) -> Mono {
        self.answer_at
            .map_or(self.ask_at, |answer| answer.min(self.ask_at))
    }

    fn answer_soon(&mut self, now: Mono) {
        let delay = Duration::from_millis(self.random.u64(ANSWER_DELAY_MILLIS));
        let allowed = self.answered_at.map_or(now, |last| last + ANSWER_GAP);
        let at = (now + delay).max(allowed);
        self.answer_at.get_or_insert(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Mono = Mono::from_nanos(1 << 40);

    #[test]
    fn it_asks_and_tells_at_once_then_less_and_less() {
        let mut discovery = Discovery::new(START, 1);

        let (asked, told) = run(&mut discovery, START, Duration::from_secs(400));

        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]);
        assert_eq!(told, [0, 1]);
    }

    #[test]
    fn one_that_is_connected_asks_hourly_in_the_end() {
        let mut discovery = Discovery::new(START, 1);
        discovery.set_lonely(START, false);

        let (asked, _) = run(&mut discovery, START, Duration::from_secs(6 * 3600));

        assert_eq!(
            asked,
            [0, 1, 9, 73, 585, 4_185, 7_785, 11_385, 14_985, 18_585]
        );
    }

    #[test]
    fn one_that_lost_everybody_asks_again_soon() {
        let mut discovery = Discovery::new(START, 1);
        discovery.set_lonely(START, false);
        run(&mut discovery, START, Duration::from_secs(4000));
        let later = START + Duration::from_secs(4000);

        discovery.set_lonely(later, true);
        let (asked, _) = run(&mut discovery, later, Duration::from_secs(4));

        assert_eq!(asked, [1, 2]);
    }

    #[test]
    fn a_flood_of_questions_is_answered_once_a_second() {
        let mut discovery = Discovery::new(START, 1);
        let mut told = 0;

        for millis in 0..10_000 {
            let now = START + Duration::from_millis(millis);
            discovery.handle_question(now);
            while let Some(send) = discovery.poll_send(now) {
                told += usize::from(send == Send::Answer);
            }
        }

        assert!((9..=10).contains(&told), "{told}");
    }

    #[test]
    fn ten_thousand_places_are_a_few_dials() {
        let mut discovery = Discovery::new(START, 1);
        let place = |number: u16| SocketAddr::from(([10, 0, 0, 1], number));

        let taken = (1..=10_000).filter(|port| discovery.handle_answer(START, place(*port)));

        assert_eq!(taken.count(), MAX_FOUND);
        let later = START + FOUND_FOR;
        assert!(!discovery.handle_answer(later - Duration::from_secs(1), place(1)));
        assert!(discovery.handle_answer(later, place(1)));
    }

    #[test]
    fn a_new_network_is_asked_and_told_at_once() {
        let mut discovery = Discovery::new(START, 1);
        run(&mut discovery, START, Duration::from_secs(100));
        let later = START + Duration::from_secs(100);
        discovery.handle_answer(later, ([10, 0, 0, 1], 1).into());

        discovery.handle_moved(later);
        let (asked, told) = run(&mut discovery, later, Duration::from_secs(4));

        assert_eq!(asked, [0, 1, 3]);
        assert_eq!(told.len(), 2);
        assert!(discovery.handle_answer(later, ([10, 0, 0, 1], 1).into()));
    }

    /// Lets time pass; the seconds after `from` at which it asked and told.
    fn run(discovery: &mut Discovery, from: Mono, time: Duration) -> (Vec<u64>, Vec<u64>) {
        let (mut asked, mut told) = (Vec::new(), Vec::new());
        let mut now = discovery.poll_timeout().max(from);
        while now < from + time {
            while let Some(send) = discovery.poll_send(now) {
                let at = now.since(from).as_secs();
                match send {
                    Send::Question => asked.push(at),
                    Send::Answer => told.push(at),
                }
            }
            now = discovery.poll_timeout();
        }
        (asked, told)
    }
}
