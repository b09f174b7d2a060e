//! What `up` and `run` write before anything starts: the flags become the configuration, the
//! ticket waits in the state directory. Everything is checked before the first byte is written,
//! against what is there already: a machine belongs to one realm.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conflux_anchor::files::settings::{BadValue, InterfaceName, TaintSet};
use conflux_anchor::files::{Config, Layout, RelayChoice, State, StateError, StateFile};
use conflux_anchor::service;
use conflux_proto::id::RealmKey;
use conflux_proto::ticket::Ticket;
use ipnet::IpNet;
use zeroize::Zeroizing;

use crate::args::{Setting, UpFlags};
use crate::exit::{Exit, Outcome, note};
use crate::show;

/// Names a file that holds the ticket, for containers that get secrets as files.
const JOIN_FILE_VARIABLE: &str = "CONFLUX_JOIN_FILE";

/// Many times the longest ticket.
const MAX_TICKET_BYTES: u64 = 256 * 1024;

/// How far wall clocks may be apart (SPEC section 7).
const CLOCK_SKEW: Duration = Duration::from_secs(600);

/// What was written.
#[derive(Debug)]
pub(crate) struct Configured {
    /// The configuration before, for taking a change back.
    pub(crate) before: Option<Config>,
    /// The configuration now.
    pub(crate) now: Config,
    /// A ticket waits to be used.
    pub(crate) has_new_ticket: bool,
}

/// Where a ticket comes from.
#[derive(Debug)]
enum Source {
    Text(String),
    Stdin,
    File(PathBuf),
    /// As `File`, named by the environment: given at every start of a container.
    Variable(PathBuf),
}

/// Returns whether a ticket is offered by flag or environment.
pub(crate) fn is_ticket_offered(flags: &UpFlags) -> bool {
    source(flags).is_some()
}

/// Checks the flags and writes what they change.
pub(crate) fn configure(layout: &Layout, flags: &UpFlags) -> Outcome<Configured> {
    let before = Config::load_if_present(layout)?;
    let mut now = before.clone().unwrap_or_default();
    apply(flags, &mut now)?;
    if let Some(conflict) = now.conflicts().first() {
        return Err(Exit::Usage.because(conflict));
    }
    let source = source(flags);
    let offered = match &source {
        Some(Source::Text(text)) => Some(parse(text)?),
        Some(Source::Stdin | Source::File(_) | Source::Variable(_)) | None => None,
    };
    needs_root()?;

    let state = State::open_if_present(layout)?;
    let realm = state.as_ref().map(State::realm).transpose()?.flatten();
    let offered = match (offered, &source) {
        (None, Some(source)) => read(source, realm.is_some())?,
        (offered, Some(_) | None) => offered,
    };
    let ticket = match offered {
        Some(ticket) => usable(ticket, realm, &now)?,
        None => None,
    };

    let state = State::open(layout)?;
    now.save(layout)?;
    if let Some(ticket) = &ticket {
        let text = Zeroizing::new(ticket.to_text());
        state.write(StateFile::Ticket, text.as_bytes())?;
    }
    for key in &now.unknown_keys {
        note(format!(
            "note: {} has the key \"{key}\", which this version does not know; it was kept",
            layout.config.display()
        ));
    }
    Ok(Configured {
        before,
        now,
        has_new_ticket: ticket.is_some(),
    })
}

/// Refuses whoever is not root.
pub(crate) fn needs_root() -> Outcome {
    if service::is_root() {
        return Ok(());
    }
    Err(Exit::NeedsRoot.because("this needs root: use sudo; nothing was changed"))
}

/// Refuses when a daemon of this installation runs, before a foreground start writes anything.
pub(crate) fn needs_no_daemon(layout: &Layout) -> Outcome {
    let locked = match State::open_if_present(layout)? {
        Some(state) => state.is_locked()?,
        None => false,
    };
    if locked {
        Err(StateError::Locked {
            path: layout.state.clone(),
        }
        .into())
    } else {
        Ok(())
    }
}

fn apply(flags: &UpFlags, config: &mut Config) -> Outcome {
    let default = Config::default();
    match &flags.ipv4 {
        Some(Setting::To(ipv4)) => config.ipv4 = Some(*ipv4),
        Some(Setting::Clear) => config.ipv4 = None,
        None => {}
    }
    match &flags.check {
        Some(Setting::To(check)) => config.check = Some(check.clone()),
        Some(Setting::Clear) => config.check = None,
        None => {}
    }
    if let Some(taints) = list("--taint", &flags.taints)? {
        config.taints = TaintSet::new(taints).map_err(|refused| Exit::Usage.because(refused))?;
    }
    if let Some(listen) = list("--listen", &flags.listen)? {
        config.listen = listen;
    }
    if let Some(peers) = list("--peer", &flags.peers)? {
        config.peers = peers;
    }
    if let Some(subnets) = list("--subnet", &flags.subnets)? {
        config.subnets = subnets;
    }
    if let Some(expose) = list("--expose", &flags.expose)? {
        config.expose = expose;
    }
    single(
        &flags.interface,
        &mut config.interface,
        InterfaceName::default(),
    );
    single(
        &flags.client_range,
        &mut config.client_range,
        default.client_range,
    );
    single(&flags.log_level, &mut config.log_level, default.log_level);
    single(
        &flags.log_format,
        &mut config.log_format,
        default.log_format,
    );
    single(&flags.relay_limit, &mut config.relay, default.relay);
    match flags.no_relay {
        Some(true) => config.relay = RelayChoice::Off,
        // A limit that stands is no refusal.
        Some(false) if config.relay == RelayChoice::Off => config.relay = RelayChoice::On,
        Some(false) | None => {}
    }
    if let Some(no_service) = flags.no_service {
        config.boot_service = !no_service;
    }
    Ok(())
}

fn single<T: Clone>(flag: &Option<Setting<T>>, value: &mut T, default: T) {
    match flag {
        Some(Setting::To(new)) => *value = new.clone(),
        Some(Setting::Clear) => *value = default,
        None => {}
    }
}

/// Returns a repeated flag's list, each value once, or none when the flag was not given.
fn list<T: Clone + PartialEq>(name: &str, flags: &[Setting<T>]) -> Outcome<Option<Vec<T>>> {
    if flags.is_empty() {
        return Ok(None);
    }
    let mut values = Vec::new();
    for flag in flags {
        match flag {
            Setting::To(value) if !values.contains(value) => values.push(value.clone()),
            Setting::To(_) => {}
            Setting::Clear if flags.len() == 1 => {}
            Setting::Clear => {
                let told = BadValue(format!("{name} none clears the list: it stands alone"));
                return Err(Exit::Usage.because(told));
            }
        }
    }
    Ok(Some(values))
}

fn source(flags: &UpFlags) -> Option<Source> {
    match flags.join.as_deref() {
        Some("-") => Some(Source::Stdin),
        Some(text) => Some(match text.strip_prefix('@') {
            Some(file) => Source::File(PathBuf::from(file)),
            None => Source::Text(text.to_owned()),
        }),
        None => std::env::var_os(JOIN_FILE_VARIABLE)
            .filter(|path| !path.is_empty())
            .map(|path| Source::Variable(PathBuf::from(path))),
    }
}

fn read(source: &Source, is_member: bool) -> Outcome<Option<Ticket>> {
    let text = match source {
        Source::Text(text) => Zeroizing::new(text.clone()),
        Source::Stdin => read_limited(io::stdin().lock())
            .map_err(|e| Exit::Usage.because(format!("--join -: {e}")))?,
        Source::File(path) => read_file(path)
            .map_err(|e| Exit::Usage.because(format!("--join @{}: {e}", path.display())))?,
        Source::Variable(path) => match read_file(path) {
            Ok(text) => text,
            // The secret may be gone once it has served.
            Err(error) if is_member && error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let told = format!("{JOIN_FILE_VARIABLE}={}: {error}", path.display());
                return Err(Exit::Usage.because(told));
            }
        },
    };
    parse(&text).map(Some)
}

fn read_file(path: &Path) -> io::Result<Zeroizing<String>> {
    read_limited(File::open(path)?)
}

/// `run` goes on as the daemon: no copy of a ticket stays behind, of which a text that grows leaves
/// some.
fn read_limited(reader: impl Read) -> io::Result<Zeroizing<String>> {
    let most = usize::try_from(MAX_TICKET_BYTES).unwrap_or(0);
    let mut text = Zeroizing::new(String::with_capacity(most));
    reader.take(MAX_TICKET_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn parse(text: &str) -> Outcome<Ticket> {
    text.trim()
        .parse()
        .map_err(|refused| Exit::Usage.because(format!("--join: {refused}")))
}

/// Returns the ticket when this machine has a use for it.
fn usable(ticket: Ticket, realm: Option<RealmKey>, config: &Config) -> Outcome<Option<Ticket>> {
    match realm {
        Some(realm) if realm == ticket.realm_key() => {
            note(format!(
                "note: this machine is in realm {} already; the ticket was ignored",
                realm.id()
            ));
            return Ok(None);
        }
        Some(realm) => {
            return Err(Exit::Usage.because(format!(
                "this machine belongs to realm {}, the ticket is of realm {}; `conflux uninstall` \
                 makes this machine forget the first",
                realm.id(),
                ticket.realm()
            )));
        }
        None => {}
    }
    let grant = ticket.grant().claimed();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    if now > Duration::from_secs(grant.expires).saturating_add(CLOCK_SKEW) {
        return Err(Exit::Usage.because(format!(
            "the ticket expired on {} (this machine's clock says {}); ask for a new one",
            show::date(grant.expires),
            show::date(now.as_secs())
        )));
    }
    if let Some(extra) = config
        .taints
        .iter()
        .find(|taint| !grant.taints.iter().any(|t| t == *taint))
    {
        let granted: Vec<&str> = grant.taints.iter().map(|taint| taint.as_str()).collect();
        return Err(Exit::Usage.because(format!(
            "--taint {extra}: the ticket does not grant it, only {}",
            granted.join(", ")
        )));
    }
    for network in advertised(config) {
        if !grant.advertise.permits(&network) {
            note(format!(
                "warning: the ticket does not let this machine advertise {network}: peers will \
                 refuse it"
            ));
        }
    }
    Ok(Some(ticket))
}

fn advertised(config: &Config) -> Vec<IpNet> {
    let own = config
        .ipv4
        .filter(|ipv4| ipv4.advertised)
        .map(|ipv4| IpNet::from(std::net::IpAddr::V4(ipv4.address)));
    own.into_iter()
        .chain(config.subnets.iter().copied())
        .collect()
}

#[cfg(test)]
#[path = "configure_tests.rs"]
mod tests;
