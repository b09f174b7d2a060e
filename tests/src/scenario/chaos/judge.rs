//! Judges what clients saw by what was done to the holders. The rules are the product's bars (SPEC
//! section 5), with [`SLACK`] for a busy machine's scheduling:
//!
//! * A request fails only when its own holder was struck, and by 2.5 s after that; when that holder
//!   said goodbye, only one that was under way then. Of a connection that is kept, its own holder is
//!   also who answered on it last: others of the client's may be answered elsewhere already.
//! * A silent reader is released only by 7.5 s after a fault of its holder.
//! * Who answers a client changes only when the one that answered before was struck, left or
//!   drained since. A change without a cause, a change back included, is two holders at once.
//! * Slow networks and drains fail nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use super::{Deed, Done, Seen};
use crate::scenario::{Fault, Realm};
use crate::work::{Request, RequestLog};

/// The bar for a request after a fault of its own holder.
const FAILS_WITHIN: Duration = Duration::from_millis(2500);
/// The bar for a silent reader.
const RELEASED_WITHIN: Duration = Duration::from_millis(7500);
/// A request under way when its holder says goodbye ends within this: the command itself takes
/// some time until peers hear of it, resets are spread over 200 ms.
const LEFT_WITHIN: Duration = Duration::from_millis(1500);
/// What two cores shared with seven machines and their load may be late.
const SLACK: Duration = Duration::from_millis(300);
/// The conversations that go on by one connection until it fails.
const KEPT: [&str; 1] = ["redis"];
/// A holder that is back is used again a while after; what was done to it may show until then.
const AFTERMATH: Duration = Duration::from_secs(3);
/// Violations printed; the rest are counted.
const SHOWN: usize = 20;

/// What clients saw, judged.
#[derive(Debug, Default)]
pub struct Judged {
    /// Questions by client and kind: all, failed.
    pub counts: BTreeMap<(String, &'static str), (usize, usize)>,
    /// Times a silent reader was released.
    pub releases: usize,
    /// Times a client's holder changed.
    pub changes: usize,
    /// The longest from a request's beginning to its failure.
    pub slowest_failure: Duration,
    /// The longest from a fault to the failure of a request that it excuses.
    pub latest_failure: Duration,
    /// What broke a rule, a sentence each.
    pub violations: Vec<String>,
}

/// Memory and descriptors of one anchor that ran all along.
#[derive(Clone, Debug)]
pub struct Memory {
    name: String,
    /// Time since the beginning, resident bytes, descriptors.
    samples: Vec<(Duration, u64, usize)>,
}

/// An answer: when asked, when given, by whom.
type Answer<'a> = (Instant, Instant, &'a str);

impl Judged {
    pub(super) fn of(holders: &[String], done: &[Done], seen: &[Seen]) -> Self {
        let mut judged = Self::default();
        for client in seen {
            let answers = answers_of(client);
            for (kind, log) in &client.talks {
                let key = (client.client.clone(), *kind);
                judged.counts.insert(key, (log.0.len(), log.failed().len()));
                for request in log.failed() {
                    let own = own_holders(&answers, log, kind, request);
                    judged.failure(holders, done, &own, client, kind, request);
                }
            }
            judged.stays(holders, done, &answers, client);
            if let Some(log) = &client.releases {
                judged.released(holders, done, &answers, client, log);
            }
        }
        judged
    }

    fn failure(
        &mut self,
        holders: &[String],
        done: &[Done],
        own: &[&str],
        client: &Seen,
        kind: &str,
        request: &Request,
    ) {
        self.slowest_failure = self.slowest_failure.max(request.ended - request.began);
        let excuse = excuse(holders, done, own, request, FAILS_WITHIN);
        match excuse {
            Some(after) => self.latest_failure = self.latest_failure.max(after),
            None => self.violations.push(format!(
                "{} {kind}: {:?} after {:.2} s without a fault of its holder in time{}",
                client.client,
                request.outcome,
                (request.ended - request.began).as_secs_f64(),
                around(holders, done, own, request)
            )),
        }
    }

    fn released(
        &mut self,
        holders: &[String],
        done: &[Done],
        answers: &[Answer<'_>],
        client: &Seen,
        log: &RequestLog,
    ) {
        for request in log.failed() {
            self.releases += 1;
            let own = own_holders(answers, log, "reader", request);
            if excuse(holders, done, &own, request, RELEASED_WITHIN).is_none() {
                self.violations.push(format!(
                    "{} silent reader released ({:?}) without a fault of its holder in time{}",
                    client.client,
                    request.outcome,
                    around(holders, done, &own, request)
                ));
            }
        }
    }

    /// Looks at each change of who answers.
    fn stays(&mut self, holders: &[String], done: &[Done], answers: &[Answer<'_>], client: &Seen) {
        for pair in answers.windows(2) {
            let ((asked_before, _, before), (_, given, after)) = (pair[0], pair[1]);
            if before == after {
                continue;
            }
            self.changes += 1;
            let has_cause = done.iter().any(|done| {
                holders[done.holder] == before
                    && done.deed != Deed::Slow
                    && done.began <= given
                    && done.ended + AFTERMATH >= asked_before
            });
            if !has_cause {
                self.violations.push(format!(
                    "{}: {before} answered, then {after}, and nothing had been done to {before}",
                    client.client
                ));
            }
        }
    }
}

/// Returns how long after a deed that excuses it a request failed.
fn excuse(
    holders: &[String],
    done: &[Done],
    own: &[&str],
    request: &Request,
    within: Duration,
) -> Option<Duration> {
    done.iter()
        .filter(|done| own.iter().any(|name| *name == holders[done.holder]))
        .filter_map(|done| {
            let within = match done.deed {
                Deed::Fault(Fault::Down) => LEFT_WITHIN,
                Deed::Fault(Fault::Kill | Fault::Cut | Fault::Deaf | Fault::Mute | Fault::Stop) => {
                    within
                }
                Deed::Slow | Deed::Drain => return None,
            };
            let after = request.ended.checked_duration_since(done.began)?;
            (after <= within + SLACK).then_some(after)
        })
        .min()
}

/// Returns who the client's holder was while a request of `log` was under way: who answered last
/// before it, whoever answered until it ended, and who answered last on its connection.
fn own_holders<'a>(
    answers: &[Answer<'a>],
    log: &'a RequestLog,
    kind: &str,
    request: &Request,
) -> Vec<&'a str> {
    let before = answers
        .iter()
        .rev()
        .find(|(_, given, _)| *given <= request.began);
    let during = answers
        .iter()
        .filter(|(asked, given, _)| *asked <= request.ended && *given >= request.began);
    let on_its_connection = log
        .0
        .iter()
        .rev()
        .filter(|other| KEPT.contains(&kind) && other.ended <= request.began)
        .find_map(|other| other.outcome.as_deref().ok());
    let all = before.into_iter().chain(during).map(|at| at.2);
    let mut own: Vec<&str> = all.chain(on_its_connection).collect();
    own.sort_unstable();
    own.dedup();
    own
}

/// Tells what was done and who answered around a request.
fn around(holders: &[String], done: &[Done], own: &[&str], request: &Request) -> String {
    let since = |at: Instant| {
        if at >= request.began {
            (at - request.began).as_secs_f64()
        } else {
            -(request.began - at).as_secs_f64()
        }
    };
    let deeds: Vec<String> = done
        .iter()
        .filter(|done| since(done.began).abs() < 12.0)
        .map(|done| {
            format!(
                "{} {} {:+.2}..{:+.2} s",
                done.deed,
                holders[done.holder],
                since(done.began),
                since(done.ended)
            )
        })
        .collect();
    format!(" (own: {}; done: {})", own.join(","), deeds.join(", "))
}

/// Returns every answer a client got, in the order in which it asked.
fn answers_of(client: &Seen) -> Vec<Answer<'_>> {
    let mut answers: Vec<Answer<'_>> = client
        .talks
        .iter()
        .flat_map(|(_, log)| &log.0)
        .filter_map(|request| {
            let name = request.outcome.as_deref().ok()?;
            Some((request.began, request.ended, name))
        })
        .collect();
    // By the end: one that waited across a move was answered by the new holder, after others that
    // were asked later.
    answers.sort_by_key(|(_, given, _)| *given);
    answers
}

impl Memory {
    pub(super) fn sample(all: &mut Vec<Self>, realm: &Realm, at: Duration) {
        for (place, client) in realm.clients.iter().enumerate() {
            if all.len() <= place {
                all.push(Self {
                    name: client.host.name().to_owned(),
                    samples: Vec::new(),
                });
            }
            let anchor = &client.anchor;
            all[place]
                .samples
                .push((at, anchor.resident_bytes(), anchor.descriptors()));
        }
    }

    /// Says whether neither has grown: the last quarter beside the second, so that tables that
    /// fill at first do not count.
    pub fn is_flat(&self) -> bool {
        /// Pages of an allocator's arenas come and go.
        const PLAY_BYTES: u64 = 4 << 20;
        /// Connections to holders that are just coming back.
        const PLAY_DESCRIPTORS: usize = 8;
        let quarter = self.samples.len() / 4;
        if quarter == 0 {
            return true;
        }
        let most = |part: &[(Duration, u64, usize)]| {
            let bytes = part.iter().map(|sample| sample.1).max().unwrap_or(0);
            let descriptors = part.iter().map(|sample| sample.2).max().unwrap_or(0);
            (bytes, descriptors)
        };
        let early = most(&self.samples[quarter..2 * quarter]);
        let late = most(&self.samples[3 * quarter..]);
        late.0 <= early.0 + early.0 / 10 + PLAY_BYTES && late.1 <= early.1 + PLAY_DESCRIPTORS
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |place: usize| {
            let (_, bytes, descriptors) = self.samples[place];
            format!("{:.1} MB, {descriptors} fd", bytes as f64 / 1e6)
        };
        let Some(last) = self.samples.len().checked_sub(1) else {
            return write!(f, "anchor of {}: not sampled", self.name);
        };
        write!(
            f,
            "anchor of {}: {} after the first deed, {} at half time, {} at the end: {}",
            self.name,
            at(0),
            at(last / 2),
            at(last),
            if self.is_flat() { "flat" } else { "GROWING" }
        )
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((client, kind), (all, failed)) in &self.counts {
            writeln!(
                f,
                "client {client} {kind}: {all} questions, {failed} failed"
            )?;
        }
        writeln!(
            f,
            "holders changed {} times, silent readers released {} times; latest failure {:.2} s \
             after its fault, slowest {:.2} s after it was asked",
            self.changes,
            self.releases,
            self.latest_failure.as_secs_f64(),
            self.slowest_failure.as_secs_f64()
        )?;
        writeln!(f, "against the rules: {}", self.violations.len())?;
        for violation in self.violations.iter().take(SHOWN) {
            writeln!(f, "  {violation}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_failure_in_time_after_a_fault_of_the_own_holder_is_allowed_and_a_later_one_is_not() {
        let story = Story::new();
        let killed = [story.done(Fault::Kill, 0, 10.0, 16.0)];
        let seen = |ended: f64| {
            story.seen(&[
                (9.0, 9.1, Ok("a")),
                (10.1, ended, Err(ErrorKind::ConnectionReset)),
                (13.2, 13.3, Ok("b")),
            ])
        };

        assert!(story.judge(&killed, seen(12.2)).violations.is_empty());
        let late = story.judge(&killed, seen(13.0));
        assert_eq!(late.violations.len(), 1, "{late}");
    }

    #[test]
    fn a_fault_of_another_holder_excuses_nothing() {
        let story = Story::new();
        let other = [story.done(Fault::Kill, 1, 10.0, 16.0)];

        let judged = story.judge(
            &other,
            story.seen(&[
                (9.0, 9.1, Ok("a")),
                (10.1, 10.2, Err(ErrorKind::ConnectionReset)),
                (10.3, 10.4, Ok("a")),
            ]),
        );

        assert_eq!(judged.violations.len(), 1, "{judged}");
    }

    #[test]
    fn an_answer_that_waited_across_the_move_does_not_hide_the_holder_before() {
        let story = Story::new();
        let killed = [story.done(Fault::Kill, 0, 10.0, 12.1)];

        let judged = story.judge(
            &killed,
            story.seen(&[
                (9.9, 9.95, Ok("a")),
                (9.98, 11.9, Ok("b")),
                (10.04, 11.84, Err(ErrorKind::ConnectionReset)),
            ]),
        );

        assert!(judged.violations.is_empty(), "{judged}");
    }

    #[test]
    fn a_kept_connection_belongs_to_who_answered_on_it_last() {
        let story = Story::new();
        let left = [story.done(Fault::Down, 0, 10.0, 14.0)];
        let seen = |kind| Seen {
            talks: vec![
                (
                    kind,
                    story.log(&[
                        (9.9, 9.95, Ok("a")),
                        (10.05, 10.05, Err(ErrorKind::ConnectionReset)),
                    ]),
                ),
                ("HTTP", story.log(&[(10.02, 10.04, Ok("b"))])),
            ],
            ..story.seen(&[])
        };

        assert!(story.judge(&left, seen("redis")).violations.is_empty());
        assert_eq!(story.judge(&left, seen("UDP")).violations.len(), 1);
    }

    #[test]
    fn slow_networks_and_drains_excuse_no_failure() {
        let story = Story::new();
        for deed in [Deed::Slow, Deed::Drain] {
            let done = [story.deed(deed, 0, 10.0, 16.0)];
            let seen = story.seen(&[
                (9.0, 9.1, Ok("a")),
                (10.1, 10.2, Err(ErrorKind::ConnectionReset)),
            ]);

            assert_eq!(story.judge(&done, seen).violations.len(), 1);
        }
    }

    #[test]
    fn a_change_of_the_holder_needs_a_cause() {
        let story = Story::new();
        let seen = || story.seen(&[(9.0, 9.1, Ok("a")), (10.5, 10.6, Ok("b"))]);

        assert_eq!(story.judge(&[], seen()).violations.len(), 1);
        let drained = [story.deed(Deed::Drain, 0, 10.0, 14.0)];
        assert!(story.judge(&drained, seen()).violations.is_empty());
        let other = [story.deed(Deed::Drain, 1, 10.0, 14.0)];
        assert_eq!(story.judge(&other, seen()).violations.len(), 1);
    }

    #[test]
    fn a_change_back_is_two_holders_at_once() {
        let story = Story::new();
        let killed = [story.done(Fault::Kill, 0, 9.5, 12.0)];

        let judged = story.judge(
            &killed,
            story.seen(&[
                (9.0, 9.1, Ok("a")),
                (11.9, 12.0, Ok("b")),
                (12.1, 12.2, Ok("a")),
            ]),
        );

        assert_eq!(judged.violations.len(), 1, "{judged}");
    }

    #[test]
    fn a_silent_reader_has_seven_and_a_half_seconds() {
        let story = Story::new();
        let cut = [story.done(Fault::Cut, 0, 10.0, 20.0)];
        let seen = |released: f64| Seen {
            releases: Some(story.log(&[(1.0, released, Err(ErrorKind::ConnectionReset))])),
            ..story.seen(&[(9.0, 9.1, Ok("a")), (18.5, 18.6, Ok("b"))])
        };

        assert!(story.judge(&cut, seen(17.0)).violations.is_empty());
        assert_eq!(story.judge(&cut, seen(18.2)).violations.len(), 1);
        assert_eq!(story.judge(&[], seen(17.0)).releases, 1);
    }

    #[test]
    fn memory_that_grows_all_along_is_not_flat() {
        let samples = |bytes: fn(u64) -> u64| Memory {
            name: "p".to_owned(),
            samples: (0..40)
                .map(|at| (Duration::from_secs(at), bytes(at), 30))
                .collect(),
        };

        assert!(samples(|_| 20 << 20).is_flat());
        assert!(samples(|at| (20 << 20) + (at % 3) * 100_000).is_flat());
        assert!(!samples(|at| (20 << 20) + at * 500_000).is_flat());
    }

    /// Two holders, `a` and `b`, one client, and a clock that begins at nought.
    struct Story {
        start: Instant,
    }

    type Told = (f64, f64, Result<&'static str, ErrorKind>);

    impl Story {
        fn new() -> Self {
            Self {
                start: Instant::now(),
            }
        }

        fn at(&self, seconds: f64) -> Instant {
            self.start + Duration::from_secs_f64(seconds)
        }

        fn done(&self, fault: Fault, holder: usize, began: f64, ended: f64) -> Done {
            self.deed(Deed::Fault(fault), holder, began, ended)
        }

        fn deed(&self, deed: Deed, holder: usize, began: f64, ended: f64) -> Done {
            Done {
                deed,
                holder,
                began: self.at(began),
                ended: self.at(ended),
            }
        }

        fn log(&self, told: &[Told]) -> RequestLog {
            let requests = told.iter().map(|(began, ended, outcome)| Request {
                began: self.at(*began),
                ended: self.at(*ended),
                outcome: outcome.map(str::to_owned),
            });
            RequestLog(requests.collect())
        }

        fn seen(&self, told: &[Told]) -> Seen {
            Seen {
                client: "p".to_owned(),
                talks: vec![("HTTP", self.log(told))],
                releases: None,
            }
        }

        fn judge(&self, done: &[Done], seen: Seen) -> Judged {
            Judged::of(&["a".to_owned(), "b".to_owned()], done, &[seen])
        }
    }
}
