//! The check of this machine's own service: what its outcomes mean for what others are told. While
//! the service is unfit the advert goes without the shared address, so that clients move as after
//! a goodbye; the address stays on the interface, for this machine itself and for what is still on
//! its way.

use std::net::Ipv4Addr;

use conflux_core::health::{Health, Verdict};
use conflux_core::time::Mono;
use conflux_proto::api::{Check, CheckState};
use tracing::{info, warn};

use super::Anchor;
use crate::check::{Checker, Ran};
use crate::files::CheckSpec;

/// A check that is being run.
#[derive(Debug)]
pub(super) struct Checked {
    spec: CheckSpec,
    address: Ipv4Addr,
    checker: Checker,
    health: Health,
}

impl Anchor {
    /// Begins, replaces or ends the check as the configuration says. `is_start`: the address has
    /// not been offered until now.
    pub(super) fn apply_check(&mut self, now: Mono, is_start: bool) {
        let wanted = match (&self.config.check, self.shared_address()) {
            (Some(spec), Some(address)) => Some((spec.clone(), address)),
            (Some(_) | None, Some(_) | None) => None,
        };
        let running = self
            .check
            .as_ref()
            .map(|checked| (checked.spec.clone(), checked.address));
        if wanted == running {
            return;
        }
        // What was offered stays offered until the new check speaks against it.
        let is_offered = !is_start && !self.is_withdrawn();
        self.check = None;
        let Some((spec, address)) = wanted else {
            return;
        };
        self.checkers += 1;
        let outcomes = self.check_outcomes.clone();
        match Checker::start(self.checkers, spec.clone(), address, outcomes) {
            Ok(checker) => {
                self.check = Some(Checked {
                    spec,
                    address,
                    checker,
                    health: Health::new(now, is_offered),
                });
            }
            Err(error) => {
                warn!(%error, "the check cannot be run: the address is offered unchecked")
            }
        }
    }

    /// Takes the outcome of a run.
    pub(super) fn handle_check(&mut self, now: Mono, ran: Ran) {
        let Some(checked) = &mut self.check else {
            return;
        };
        if checked.checker.number() != ran.checker {
            return;
        }
        if !checked.health.handle_run(now, ran.outcome) {
            return;
        }
        let (address, error) = (checked.address, checked.health.last_error());
        match checked.health.verdict() {
            Verdict::Fit => info!(%address, "the service passes its check: the address is offered"),
            Verdict::Unfit => warn!(
                %address,
                error,
                "the service fails its check: the address is withdrawn"
            ),
            Verdict::Open => {}
        }
        self.readvertise(now);
    }

    /// Says whether the check keeps the shared address out of the advert.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.check.as_ref().is_some_and(|checked| {
            matches!(checked.health.verdict(), Verdict::Open | Verdict::Unfit)
        })
    }

    /// Returns the address others are told of when nothing speaks against it.
    pub(super) fn shared_address(&self) -> Option<Ipv4Addr> {
        self.config
            .ipv4
            .as_ref()
            .filter(|choice| choice.advertised)
            .map(|choice| choice.address)
    }

    /// Returns the check as `status` shows it.
    pub(super) fn check_status(&self, now: Mono) -> Option<Check> {
        let spec = self.config.check.as_ref()?.to_string();
        let Some(checked) = &self.check else {
            return Some(Check {
                spec,
                state: CheckState::Idle,
                withdrawn: false,
                since_seconds: now.since(self.started).as_secs(),
                failures: 0,
                last_error: None,
            });
        };
        let health = &checked.health;
        Some(Check {
            spec,
            state: match health.verdict() {
                Verdict::Open => CheckState::Starting,
                Verdict::Fit => CheckState::Passing,
                Verdict::Unfit => CheckState::Failing,
            },
            withdrawn: self.is_withdrawn(),
            since_seconds: now.since(health.since()).as_secs(),
            failures: health.failures(),
            last_error: health.last_error().map(str::to_owned),
        })
    }

    /// Returns what the operator has to do about the check.
    pub(super) fn check_warning(&self) -> Option<String> {
        let checked = self.check.as_ref()?;
        let health = &checked.health;
        if health.verdict() != Verdict::Unfit {
            return None;
        }
        let error = health.last_error().map_or_else(
            || {
                format!(
                    "it succeeds again and has to {} times in a row",
                    health.successes_needed()
                )
            },
            str::to_owned,
        );
        Some(format!(
            "the check {} fails, so others are not told of {}: mend the service, or `conflux up \
             --check none` ({error})",
            checked.spec, checked.address
        ))
    }
}
