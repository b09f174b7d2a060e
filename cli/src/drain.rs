//! `drain` and `undrain`: take this machine out of service without hurting anyone.

use std::thread::sleep;
use std::time::{Duration, Instant};

use conflux_anchor::files::Layout;
use conflux_proto::api::{Drain, DrainRequest, DrainWait, Status, VERSION, short_id};

use crate::args::DrainFlags;
use crate::client;
use crate::configure::needs_root;
use crate::exit::{Exit, Outcome, answer};

/// How often a wait looks again: what it waits for changes by the second.
const PAUSE: Duration = Duration::from_millis(250);

/// Clients named in a message; the rest are counted.
const NAMED: usize = 5;

/// Asks for no new flows; with `--wait` returns once nothing rests here any more.
pub(crate) fn drain(layout: &Layout, flags: &DrainFlags) -> Outcome {
    needs_root()?;
    let deadline = flags.wait.map(|wait| Instant::now() + wait);
    let mut drain = set(layout, true)?;
    let Some(deadline) = deadline else {
        if flags.json {
            return answer(&json(&drain)?);
        }
        return answer(&format!(
            "draining: new flows go to other holders. {}\n`conflux drain --wait 10m` waits, \
             `conflux undrain` takes new flows again.\n",
            left(&drain, letters(layout)?)
        ));
    };
    while !drain.empty && Instant::now() < deadline {
        sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now())));
        drain = client::get(layout, "/v1/drain")?.read()?;
        if !drain.draining {
            return Err(Exit::Failed.because("somebody ended the draining with `conflux undrain`"));
        }
    }
    if flags.json {
        answer(&json(&drain)?)?;
    }
    if !drain.empty {
        return Err(Exit::Failed.because(format!(
            "not empty in time: {} This machine still drains; wait again, stop it all the same, \
             or `conflux undrain`",
            left(&drain, letters(layout)?)
        )));
    }
    if flags.json {
        return Ok(());
    }
    answer(
        "drained: nothing rests here any more. `conflux down` and `conflux start` harm nobody \
         now; `conflux undrain` takes new flows again.\n",
    )
}

/// Takes new flows again.
pub(crate) fn undrain(layout: &Layout) -> Outcome {
    needs_root()?;
    let before: Drain = client::get(layout, "/v1/drain")?.read()?;
    set(layout, false)?;
    answer(if before.draining {
        "not draining any more: this machine takes new flows\n"
    } else {
        "this machine did not drain; nothing was changed\n"
    })
}

fn set(layout: &Layout, draining: bool) -> Outcome<Drain> {
    let request = DrainRequest {
        version: VERSION,
        draining,
    };
    let told = client::post(layout, "/v1/drain", &request)?;
    client::note_other_version(&told);
    told.read()
}

/// Says in a sentence what still rests here.
pub(crate) fn left(drain: &Drain, id_letters: usize) -> String {
    if drain.empty {
        return "Nothing rests here any more.".to_owned();
    }
    if drain.waits_for.is_empty() {
        return "Clients are being told.".to_owned();
    }
    let named: Vec<String> = drain
        .waits_for
        .iter()
        .take(NAMED)
        .map(|wait| waited(wait, id_letters))
        .collect();
    let more = match drain.waits_for.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "Flows of these clients rest here: {}{more}.",
        named.join(", ")
    )
}

fn waited(wait: &DrainWait, id_letters: usize) -> String {
    let id = short_id(&wait.anchor, id_letters);
    wait.flows.map_or_else(
        || format!("{id} (has not told how many)"),
        |flows| format!("{id} ({flows})"),
    )
}

fn letters(layout: &Layout) -> Outcome<usize> {
    let status: Status = client::get(layout, "/v1/status")?.read()?;
    Ok(status.id_letters)
}

fn json(drain: &Drain) -> Outcome<String> {
    Ok(serde_json::to_string(drain).map_err(anyhow::Error::from)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_named_and_counted() {
        let wait = |letter: char, flows| DrainWait {
            anchor: letter.to_string().repeat(52),
            flows,
        };
        let mut drain = Drain {
            version: VERSION,
            draining: true,
            since_seconds: 3,
            empty: false,
            flows: 2,
            waits_for: vec![wait('a', Some(2)), wait('b', None)],
        };

        assert_eq!(
            left(&drain, 10),
            "Flows of these clients rest here: aaaaaaaaaa (2), bbbbbbbbbb (has not told how many)."
        );
        drain
            .waits_for
            .extend(('c'..='g').map(|letter| wait(letter, Some(1))));
        assert!(left(&drain, 10).ends_with("eeeeeeeeee (1), and 2 more."));
        drain.waits_for.clear();
        assert_eq!(left(&drain, 10), "Clients are being told.");
    }
}
