//! The verbs that change whether the daemon runs: `up`, `start`, `down`, `uninstall`, `run`.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use conflux_anchor::files::{CheckSpec, Config, Layout, State, StateFile};
use conflux_anchor::logging::{self, Target};
use conflux_anchor::service::{self, Detached, Manager, Unit};
use conflux_anchor::{RunOptions, run as run_daemon};
use conflux_proto::api::{Invite, InviteRequest, Reloaded, Status, VERSION};

use crate::args::{RunFlags, UninstallFlags, UpFlags};
use crate::client;
use crate::configure::{Configured, configure, is_ticket_offered, needs_no_daemon, needs_root};
use crate::exit::{Exit, Outcome, answer, note};
use crate::show;

/// A start takes a second; this is for a machine under heavy load.
const READY_LIMIT: Duration = Duration::from_secs(20);

/// A first admission takes two round trips and some tries; then it goes on in the background.
const JOIN_LIMIT: Duration = Duration::from_secs(3);

/// Goodbyes take at most a second. With the time for one answer this stays below 5 s.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// How often a wait looks again.
const PAUSE: Duration = Duration::from_millis(50);

/// What the printed ticket is good for.
const FIRST_TICKET: Duration = Duration::from_secs(24 * 3600);

/// Configures, registers, starts or changes the running daemon, and says how it stands.
pub(crate) fn up(layout: &Layout, flags: &UpFlags) -> Outcome {
    let configured = configure(layout, flags)?;
    let manager = service::manager(layout, &configured.now);
    let mut lacks_rights = false;
    match &manager {
        Manager::Systemd(unit) => {
            unit.register(&binary()?)?;
            let runs_programs = matches!(configured.now.check, Some(CheckSpec::Exec { .. }));
            lacks_rights = unit.allow_programs(runs_programs)? && runs_programs;
        }
        Manager::Nobody(service::NobodyWhy::NotWanted) if Unit::of(layout).is_registered() => {
            Unit::of(layout).unregister()?;
        }
        Manager::Nobody(_) => {}
    }
    let is_live = is_running(layout)?
        && !configured.has_new_ticket
        && reload(layout, &configured)?
        && !lacks_rights;
    let status = if is_live {
        wait_ready(layout, None)?
    } else {
        bring_up(layout, &manager)?
    };
    let status = wait_joined(layout, status)?;
    let address = configured.now.ipv4.map_or_else(
        || "this machine reaches others, and answers at no shared address".to_owned(),
        |ipv4| format!("this machine answers at {}", ipv4.address),
    );
    answer(&format!(
        "conflux is up: {address}\n\n{}",
        show::status(&status)
    ))?;
    tell_how_to_join(layout, &configured.now)
}

/// Starts from the saved configuration, or starts again.
pub(crate) fn start(layout: &Layout) -> Outcome {
    let config = Config::load(layout)?;
    needs_root()?;
    let status = bring_up(layout, &service::manager(layout, &config))?;
    answer(&format!("conflux has started\n\n{}", show::status(&status)))
}

/// Stops, and says what stays.
pub(crate) fn down(layout: &Layout) -> Outcome {
    needs_installation(layout)?;
    needs_root()?;
    let stopped = if stop(layout)? {
        "conflux has stopped"
    } else {
        "conflux was not running"
    };
    let service = if Unit::of(layout).is_registered() {
        "The boot service is still registered and the configuration is intact: the next reboot \
         brings this machine back as it was."
    } else {
        "No boot service is registered, so a reboot does not start it; the configuration is intact."
    };
    let command = command(layout);
    answer(&format!(
        "{stopped}.\n{service}\nTo start it again now:  {command} start\n\
         To remove it for good:  {command} uninstall\n"
    ))
}

/// Stops and removes everything.
pub(crate) fn uninstall(layout: &Layout, flags: UninstallFlags) -> Outcome {
    needs_installation(layout)?;
    needs_root()?;
    // Refuses a state directory of another user before anything is removed.
    State::open_if_present(layout)?;
    if !flags.yes && !confirmed(layout)? {
        return Err(Exit::Failed.because("nothing was removed"));
    }
    stop(layout)?;
    let unit = Unit::of(layout);
    if unit.is_registered() {
        unit.unregister()?;
    }
    remove_files(layout)?;
    answer("conflux is uninstalled: service, configuration, identity and state are removed.\n")
}

/// Runs the daemon in the foreground, configured first when there are flags.
pub(crate) fn run(layout: &Layout, flags: &RunFlags) -> Outcome {
    let config = if flags.up.is_empty() && !is_ticket_offered(&flags.up) {
        needs_root()?;
        Config::load(layout)?
    } else {
        if service::is_root() {
            needs_no_daemon(layout)?;
        }
        configure(layout, &flags.up)?.now
    };
    let target = if flags.detached {
        service::detach_from_terminal();
        Target::File(layout.log.clone())
    } else {
        Target::Stderr
    };
    logging::start(config.log_level, config.log_format, &target).context("starting the log")?;
    let ticket = State::open(layout)?.ticket()?;
    run_daemon(RunOptions {
        layout: layout.clone(),
        ticket,
    })?;
    Ok(())
}

/// Applies a changed configuration to the running daemon; false when it must start again. A
/// change that the daemon refuses is taken back.
fn reload(layout: &Layout, configured: &Configured) -> Outcome<bool> {
    let failure = match client::post(layout, "/v1/reload", &()) {
        Ok(answer) => return Ok(answer.read::<Reloaded>()?.needs_restart.is_empty()),
        Err(failure) if failure.exit == Exit::NotRunning => return Ok(false),
        Err(failure) => failure,
    };
    if let Some(before) = &configured.before {
        before.save(layout)?;
    }
    Err(failure.exit.because(format!(
        "{:#}; the configuration is as it was",
        failure.error
    )))
}

/// Starts the daemon, or starts it again, and waits until addresses can be bound.
fn bring_up(layout: &Layout, manager: &Manager) -> Outcome<Status> {
    let why = match manager {
        Manager::Systemd(unit) => {
            if !unit.is_running() {
                stop(layout)?;
            }
            unit.restart()?;
            return wait_ready(layout, None);
        }
        Manager::Nobody(why) => why,
    };
    stop(layout)?;
    let mut detached = service::spawn(layout, &binary()?).context("starting the daemon")?;
    let status = wait_ready(layout, Some(&mut detached))?;
    note(format!(
        "note: {}: conflux runs detached and will not return at boot; its log is {}",
        why.as_str(),
        layout.log.display()
    ));
    Ok(status)
}

fn wait_ready(layout: &Layout, mut child: Option<&mut Detached>) -> Outcome<Status> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let ended = match child.as_deref_mut() {
            Some(child) => child.ended()?.map(|how| (how, child.last_lines())),
            None => None,
        };
        if let Some((how, last_lines)) = ended {
            return Err(Exit::Failed.because(format!(
                "conflux did not start ({how}); the end of {}:\n{last_lines}",
                layout.log.display()
            )));
        }
        match client::get(layout, "/v1/status") {
            Ok(answer) => {
                let status: Status = answer.read()?;
                if status.ready {
                    return Ok(status);
                }
            }
            Err(failure) if failure.exit == Exit::NotRunning => {}
            Err(failure) => return Err(failure),
        }
        if Instant::now() >= deadline {
            return Err(Exit::Failed.because(format!(
                "conflux is not ready after {} s; it goes on trying, `conflux status` tells",
                READY_LIMIT.as_secs()
            )));
        }
        sleep(PAUSE);
    }
}

/// Gives a join its first seconds, then warns and leaves it to the daemon.
fn wait_joined(layout: &Layout, mut status: Status) -> Outcome<Status> {
    let deadline = Instant::now() + JOIN_LIMIT;
    while status.joining.is_some() && Instant::now() < deadline {
        sleep(PAUSE);
        status = client::get(layout, "/v1/status")?.read()?;
    }
    if let Some(joining) = &status.joining {
        let why = joining.last_error.as_deref().unwrap_or("no answer yet");
        note(format!(
            "warning: no member of the realm could be reached at {} ({why}); conflux keeps trying",
            joining.endpoints.join(", ")
        ));
    }
    Ok(status)
}

/// Prints, once, how the next machine joins the realm that this one made.
fn tell_how_to_join(layout: &Layout, config: &Config) -> Outcome {
    let state = State::open(layout)?;
    let made_realm = state.read_key(StateFile::RealmSecret)?.is_some();
    if !made_realm || state.read(StateFile::JoinTold)?.is_some() {
        return Ok(());
    }
    let request = InviteRequest {
        version: VERSION,
        taints: Vec::new(),
        advertise: Vec::new(),
        expires_seconds: FIRST_TICKET.as_secs(),
        issuer: false,
    };
    let invite: Invite = match client::post(layout, "/v1/invite", &request) {
        Ok(answer) => answer.read()?,
        Err(failure) => {
            note(format!(
                "note: no ticket for other machines yet: {:#}",
                failure.error
            ));
            return Ok(());
        }
    };
    let address = config.ipv4.map_or_else(String::new, |ipv4| {
        format!(
            "Add --ipv4 {} there when it offers the same service. ",
            ipv4.address
        )
    });
    for warning in &invite.warnings {
        note(format!("warning: {warning}"));
    }
    answer(&format!(
        "\nThis machine made a new realm. To let the next machine join, run this there:\n\n  \
         echo {} | sudo conflux up --join -\n\n{address}The ticket is a secret and good for 24 \
         hours; `conflux invite` makes others.\n",
        invite.ticket
    ))?;
    Ok(state.write(StateFile::JoinTold, b"")?)
}

/// Stops the daemon, however it was started; false when none ran.
fn stop(layout: &Layout) -> Outcome<bool> {
    let unit = Unit::of(layout);
    if unit.is_running() {
        unit.stop()?;
        return Ok(true);
    }
    if !is_running(layout)? {
        return Ok(false);
    }
    let deadline = Instant::now() + STOP_LIMIT;
    let process = client::process(layout);
    // A daemon that just starts has no socket yet.
    while let Err(failure) = client::post(layout, "/v1/shutdown", &()) {
        if failure.exit != Exit::NotRunning || !is_running(layout)? || Instant::now() >= deadline {
            break;
        }
        sleep(PAUSE);
    }
    while is_running(layout)? {
        if Instant::now() >= deadline {
            let Some(process) = process.or_else(|| client::process(layout)) else {
                return Err(Exit::Failed.because("the daemon neither answers nor ends"));
            };
            note("warning: the daemon did not stop by itself and was ended without a goodbye");
            service::end(process).context("ending the daemon")?;
            sleep(PAUSE);
            return Ok(true);
        }
        sleep(PAUSE);
    }
    Ok(true)
}

fn is_running(layout: &Layout) -> Outcome<bool> {
    match State::open_if_present(layout)? {
        Some(state) => Ok(state.is_locked()?),
        None => Ok(false),
    }
}

fn needs_installation(layout: &Layout) -> Outcome {
    if layout.config.exists() || layout.state.exists() {
        return Ok(());
    }
    Err(Exit::NotRunning.because("conflux is not installed on this machine; nothing to do"))
}

fn confirmed(layout: &Layout) -> Outcome<bool> {
    if !io::stdin().is_terminal() {
        return Err(
            Exit::Usage.because("uninstall asks before it removes; without a terminal: --yes")
        );
    }
    let mut stderr = io::stderr().lock();
    write!(
        stderr,
        "This removes this machine's identity and everything in {} and {}.\nType yes to go on: ",
        layout.state.display(),
        layout.config.display()
    )?;
    stderr.flush()?;
    drop(stderr);
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(line.trim() == "yes")
}

fn remove_files(layout: &Layout) -> Outcome {
    let told = |path: &PathBuf, error: io::Error| {
        Exit::Failed.because(format!("{} cannot be removed: {error}", path.display()))
    };
    let mut files = logging::log_files(&layout.log);
    files.extend([layout.config.clone(), layout.socket.clone()]);
    for file in files {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(told(&file, error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    match fs::remove_dir_all(&layout.state) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(told(&layout.state, error));
        }
        Ok(()) | Err(_) => {}
    }
    for directory in layout.directories() {
        // Somebody else's files in it keep it.
        let _ = fs::remove_dir(directory);
    }
    Ok(())
}

/// Returns the command's words for this installation.
fn command(layout: &Layout) -> String {
    match layout.root() {
        Some(root) => format!("conflux --dir {}", root.display()),
        None => "conflux".to_owned(),
    }
}

fn binary() -> Outcome<PathBuf> {
    Ok(std::env::current_exe().context("finding this command's own binary")?)
}
