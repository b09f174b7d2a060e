//! The verbs that only ask: `status`, `routes`, `peers`, `flows`, `invite`, `metrics`, `version`.

use conflux_anchor::files::Layout;
use conflux_proto::SOFTWARE;
use conflux_proto::api::{Invite, InviteRequest, VERSION};
use hyper::Method;
use hyper::body::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::{InviteFlags, MetricsFlags, TableFlags};
use crate::client;
use crate::exit::{Outcome, answer, note};

/// Prints one of the daemon's answers: as it came with `--json`, else by `show`.
pub(crate) fn print<T: DeserializeOwned>(
    layout: &Layout,
    path: &str,
    flags: TableFlags,
    show: impl FnOnce(&T) -> String,
) -> Outcome {
    let told = client::get(layout, path)?;
    client::note_other_version(&told);
    if flags.json {
        return answer(&(told.text()? + "\n"));
    }
    answer(&show(&told.read()?))
}

/// Prints a ticket, alone.
pub(crate) fn invite(layout: &Layout, flags: &InviteFlags) -> Outcome {
    let request = InviteRequest {
        version: VERSION,
        taints: flags.taints.iter().map(ToString::to_string).collect(),
        advertise: flags.advertise.clone(),
        expires_seconds: flags.expires.as_secs(),
        issuer: flags.issuer,
    };
    let told = client::post(layout, "/v1/invite", &request)?;
    client::note_other_version(&told);
    let invite: Invite = told.read()?;
    for warning in &invite.warnings {
        note(format!("warning: {warning}"));
    }
    answer(&format!("{}\n", invite.ticket))
}

/// Prints all series.
pub(crate) fn metrics(layout: &Layout, flags: MetricsFlags) -> Outcome {
    let told = client::get(layout, "/v1/metrics")?;
    client::note_other_version(&told);
    let text = told.text()?;
    answer(&if flags.help_text { text } else { series(&text) })
}

/// Prints versions; without a daemon, or without the right to ask it, only this command's.
pub(crate) fn version(layout: &Layout, flags: TableFlags) -> Outcome {
    #[derive(Serialize)]
    struct Versions<'a> {
        version: u32,
        software: &'a str,
        daemon: Option<String>,
    }
    let software = SOFTWARE;
    let daemon = client::request(layout, Method::GET, "/v1/status", Bytes::new())
        .ok()
        .and_then(|told| told.software);
    if flags.json {
        let versions = Versions {
            version: VERSION,
            software,
            daemon,
        };
        return answer(&(serde_json::to_string(&versions).map_err(anyhow::Error::from)? + "\n"));
    }
    let daemon = daemon.map_or_else(String::new, |daemon| format!("daemon {daemon}\n"));
    answer(&format!("conflux {software}\n{daemon}"))
}

fn series(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_one_line_per_series() {
        let text = "# HELP anchor_route_groups Groups.\n# TYPE anchor_route_groups gauge\n\
                    anchor_route_groups 1\nanchor_flows 7\n# EOF\n";

        assert_eq!(series(text), "anchor_route_groups 1\nanchor_flows 7\n");
    }
}
