//! A changed configuration, applied to the running anchor (SPEC section 8: run `up` again). What
//! the interface or the sockets are made of needs a start anew, without a goodbye: flows
//! that others have on this holder survive it, and client addresses as last written down.

use conflux_core::time::Mono;
use conflux_proto::api::{Reloaded, VERSION};
use tracing::info;

use super::Anchor;
use super::discover::Insist;
use crate::api::Refusal;
use crate::clock;
use crate::files::Config;
use crate::privileges::may_run_programs;

/// How far a change has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Applied {
    Already,
    /// This anchor ends, and the next one has it.
    ByStartingAnew,
}

impl Anchor {
    /// Reads the configuration again and applies what changed; refused, nothing was applied.
    pub(super) fn reload(&mut self, now: Mono) -> Result<(Reloaded, Applied), Refusal> {
        let config =
            Config::load(&self.layout).map_err(|error| Refusal::Invalid(error.to_string()))?;
        self.standing
            .reread_secret(&self.state)
            .map_err(|error| Refusal::Failed(format!("{error:#}")))?;
        let changed = changes(&self.config, &config);
        if config.runs_programs() && !self.config.runs_programs() && !may_run_programs() {
            let reloaded = Reloaded {
                version: VERSION,
                changed,
                needs_restart: vec!["check".to_owned()],
            };
            return Ok((reloaded, Applied::Already));
        }
        info!(changed = changed.join(", "), "configuration read again");
        let starts_anew = self.config.interface != config.interface
            || self.config.listen != config.listen
            || self.config.client_range != config.client_range;
        let before = std::mem::replace(&mut self.config, config);
        if before.taints != self.config.taints {
            let retainted =
                self.standing
                    .retaint(&self.state, &self.identity, &self.config, clock::unix());
            if let Err(error) = retainted {
                self.config = before;
                return Err(Refusal::Invalid(error.to_string()));
            }
            if let Some(member) = self.standing.member()
                && !member.taints.contains_all(&self.config.taints)
            {
                let text = format!(
                    "taints {} are not all among those granted ({}): nothing was applied; join \
                     with a ticket that grants them",
                    self.config.taints, member.taints
                );
                self.config = before;
                return Err(Refusal::Invalid(text));
            }
        }
        crate::logging::set_level(self.config.log_level);
        let reloaded = Reloaded {
            version: VERSION,
            changed,
            needs_restart: Vec::new(),
        };
        if starts_anew {
            return Ok((reloaded, Applied::ByStartingAnew));
        }
        if before.peers != self.config.peers {
            // Those named before are tried no more; the new ones are found again below.
            for seed in self.seeds.values_mut() {
                seed.insist = Insist::No;
            }
            self.seeds.retain(|_, seed| seed.under_way);
            self.seeds_resolve_at = Some(now);
        }
        self.apply_check(now, false);
        self.apply_relay_choice();
        self.readvertise(now);
        self.rebuild(now);
        Ok((reloaded, Applied::Already))
    }
}

/// Returns the names of the settings that differ.
fn changes(before: &Config, after: &Config) -> Vec<String> {
    [
        ("ipv4", before.ipv4 != after.ipv4),
        ("taints", before.taints != after.taints),
        ("listen", before.listen != after.listen),
        ("peers", before.peers != after.peers),
        ("interface", before.interface != after.interface),
        ("subnets", before.subnets != after.subnets),
        ("client_range", before.client_range != after.client_range),
        ("check", before.check != after.check),
        ("expose", before.expose != after.expose),
        ("relay", before.relay != after.relay),
        ("boot_service", before.boot_service != after.boot_service),
        ("discovery", before.discovery != after.discovery),
        ("log_level", before.log_level != after.log_level),
        ("log_format", before.log_format != after.log_format),
    ]
    .into_iter()
    .filter(|(_, changed)| *changed)
    .map(|(name, _)| name.to_owned())
    .collect()
}
