//! Which of several working ways to a peer is used: direct before relayed, then the shorter round
//! trip by a margin, so that two alike never alternate.

use std::time::Duration;

/// What one way answered in one round of probes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Nobody carries on it.
    pub is_direct: bool,
    /// How long its answer took.
    pub rtt: Duration,
}

/// A relay takes over from another only when it is shorter by this: less is within what queues and
/// schedulers add to a single probe.
const MARGIN: Duration = Duration::from_millis(5);

/// And by this part of the present round trip: what is 10 % longer is not felt.
const MARGIN_SHARE: f64 = 0.1;

/// Says whether `other` should take over from `current`, none when the way in use did not answer.
/// A direct way takes over from a relayed one at once, whatever it costs: it burdens nobody, and
/// fails with nobody. It never gives way to a relayed one that answers, as long as it answers.
pub fn prefer(current: Option<Measured>, other: Measured) -> bool {
    let Some(current) = current else {
        return true;
    };
    if current.is_direct != other.is_direct {
        return other.is_direct;
    }
    let margin = MARGIN.max(current.rtt.mul_f64(MARGIN_SHARE));
    !other.is_direct && other.rtt + margin < current.rtt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_take_over_as_the_table_says() {
        let table = [
            // current, other, takes over
            (relayed(20), direct(30), true),
            (relayed(20), direct(300), true),
            (direct(300), relayed(20), false),
            (relayed(20), relayed(16), false),
            (relayed(20), relayed(14), true),
            (relayed(200), relayed(185), false),
            (relayed(200), relayed(179), true),
            (direct(30), direct(10), false),
        ];

        for (current, other, takes_over) in table {
            assert_eq!(
                prefer(Some(current), other),
                takes_over,
                "{current:?} {other:?}"
            );
        }
        assert!(prefer(None, relayed(900)));
    }

    #[test]
    fn no_two_ways_each_take_over_from_the_other() {
        let all: Vec<Measured> = (1..400)
            .flat_map(|millis| [direct(millis), relayed(millis)])
            .collect();

        for one in &all {
            for two in &all {
                assert!(!(prefer(Some(*one), *two) && prefer(Some(*two), *one)));
            }
        }
    }

    fn direct(millis: u64) -> Measured {
        Measured {
            is_direct: true,
            rtt: Duration::from_millis(millis),
        }
    }

    fn relayed(millis: u64) -> Measured {
        Measured {
            is_direct: false,
            ..direct(millis)
        }
    }
}
