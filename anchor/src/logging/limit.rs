//! Keeps a remote from filling the log: so many lines in a span, the rest counted.

use std::time::Duration;

use conflux_core::time::Mono;

/// A budget of log lines for one kind of line.
#[derive(Clone, Debug)]
pub struct RateLimit {
    lines: u32,
    span: Duration,
    started: Mono,
    spent: u32,
    suppressed: u64,
}

impl RateLimit {
    /// Returns a budget of `lines` in each `span`.
    pub fn new(lines: u32, span: Duration) -> Self {
        Self {
            lines,
            span,
            started: Mono::default(),
            spent: 0,
            suppressed: 0,
        }
    }

    /// Returns how many lines were held back before this one, or none when this one is to be
    /// held back too.
    pub fn admit(&mut self, now: Mono) -> Option<u64> {
        if now.since(self.started) >= self.span {
            self.started = now;
            self.spent = 0;
        }
        if self.spent >= self.lines {
            self.suppressed += 1;
            return None;
        }
        self.spent += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_over_the_budget_are_counted_and_told_with_the_next_one() {
        let mut limit = RateLimit::new(2, Duration::from_secs(60));
        let start = Mono::from_nanos(1) + Duration::from_secs(3600);

        let admitted: Vec<_> = (0..5).map(|_| limit.admit(start)).collect();
        let later = limit.admit(start + Duration::from_secs(60));

        assert_eq!(admitted, [Some(0), Some(0), None, None, None]);
        assert_eq!(later, Some(3));
    }
}
