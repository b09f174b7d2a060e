//! The configuration file: read with every fault told at once, written so that the operator's
//! comments and the keys of other versions stay. What a single value may be is said in
//! [`super::settings`].

use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conflux_core::routes::DEFAULT_CLIENT_RANGE;
use ipnet::{IpNet, Ipv4Net};
use toml_edit::{Array, DocumentMut, Item, Value};

use super::atomic;
use super::check_spec::CheckSpec;
use super::layout::Layout;
use super::relay_choice::RelayChoice;
use super::settings::{
    BadValue, DEFAULT_PORT, Endpoint, InterfaceName, Ipv4Choice, LogFormat, LogLevel, Opening,
    TaintSet, ipv4_text, parse_client_range, parse_endpoint, parse_ipv4, parse_listen,
    parse_opening, parse_subnet, parse_taint,
};

/// The format's version; a file with a greater one is left alone.
const VERSION: i64 = 1;

/// A configuration is a page, not a database; anything larger is not ours.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The longest the data thread may look before it sleeps: beyond it, whoever waits does not notice
/// the wake-up.
const MAX_SPIN: Duration = Duration::from_micros(1000);
/// The bits of group and others.
const WRITABLE_BY_OTHERS: u32 = 0o022;

const TEMPLATE: &str = include_str!("template.toml");

/// What the operator chose. The default is a machine that only calls others.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The address this machine answers at.
    pub ipv4: Option<Ipv4Choice>,
    /// Taints asked for; none: all that are granted.
    pub taints: TaintSet,
    /// Where to listen; none: see [`Config::listen_addresses`].
    pub listen: Vec<SocketAddr>,
    /// Endpoints to try besides the known ones.
    pub peers: Vec<Endpoint>,
    /// The network interface.
    pub interface: InterfaceName,
    /// Networks behind this machine.
    pub subnets: Vec<IpNet>,
    /// Where clients appear on this machine.
    pub client_range: Ipv4Net,
    /// How this machine's own service is checked.
    pub check: Option<CheckSpec>,
    /// Ports let in from the overlay; none: all.
    pub expose: Vec<Opening>,
    /// Whether anchors on the machine's own links are looked for, and told of this one.
    pub discovery: bool,
    /// Whether this anchor carries datagrams for others, and how much.
    pub relay: RelayChoice,
    /// Whether `up` registers the boot service.
    pub boot_service: bool,
    /// How long the data thread looks for packets before it sleeps; zero: not at all. At most a
    /// millisecond.
    pub spin: Duration,
    /// How much is logged.
    pub log_level: LogLevel,
    /// How lines are written.
    pub log_format: LogFormat,
    /// Keys in the file that this version does not know; they are kept.
    pub unknown_keys: Vec<String>,
}

/// Why there is no configuration to work with. The file is never changed then.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No file.
    #[error("{path} does not exist: this machine is not configured; run `conflux up`")]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A newer version wrote it.
    #[error(
        "{path} has format version {found}, this conflux knows {VERSION}: it was left as it is; \
         install a newer conflux"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// Others could change it.
    #[error(
        "{path} can be written by others than its owner (mode {mode:04o}), who could change whom \
         this machine trusts; `chmod go-w {path}` takes that back"
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Its text or its values are wrong.
    #[error("{path} was left as it is; it has {}", Faults(.faults))]
    Faulty {
        /// The file.
        path: PathBuf,
        /// Every fault, one sentence each.
        faults: Vec<String>,
    },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ipv4: None,
            taints: TaintSet::default(),
            listen: Vec::new(),
            peers: Vec::new(),
            interface: InterfaceName::default(),
            subnets: Vec::new(),
            client_range: DEFAULT_CLIENT_RANGE,
            check: None,
            expose: Vec::new(),
            discovery: true,
            relay: RelayChoice::default(),
            boot_service: true,
            spin: Duration::ZERO,
            log_level: LogLevel::default(),
            log_format: LogFormat::default(),
            unknown_keys: Vec::new(),
        }
    }
}

impl Config {
    /// Reads the installation's configuration.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]; all faults of a file are told at once.
    pub fn load(layout: &Layout) -> Result<Self, ConfigError> {
        let path = &layout.config;
        let text = read(path)?.ok_or_else(|| ConfigError::Missing { path: path.clone() })?;
        Self::parse_at(&text, path)
    }

    /// Reads the installation's configuration, or none when there is no file yet.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], but never `Missing`.
    pub fn load_if_present(layout: &Layout) -> Result<Option<Self>, ConfigError> {
        let path = &layout.config;
        read(path)?
            .map(|text| Self::parse_at(&text, path))
            .transpose()
    }

    /// Writes the configuration at one stroke (mode 0644: it holds no secret). Values that did
    /// not change keep their form; comments and unknown keys stay.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]; the file is as before then.
    pub fn save(&self, layout: &Layout) -> Result<(), ConfigError> {
        let path = &layout.config;
        let existing = read(path)?;
        let base = existing.as_deref().unwrap_or(TEMPLATE);
        let before = Self::parse_at(base, path)?;
        let text = self
            .edit(base, &before)
            .map_err(|fault| ConfigError::Faulty {
                path: path.clone(),
                faults: vec![fault],
            })?;
        if existing.as_deref() == Some(text.as_str()) {
            return Ok(());
        }
        atomic::write(path, text.as_bytes(), atomic::Mode::Readable).map_err(|source| {
            ConfigError::Io {
                path: path.clone(),
                source,
            }
        })
    }

    /// Returns where to listen: what was chosen, else the default port on every IPv4 and every
    /// IPv6 address. The IPv6 one may fail on a machine without IPv6 only when it is the default.
    pub fn listen_addresses(&self) -> Vec<SocketAddr> {
        if !self.listen.is_empty() {
            return self.listen.clone();
        }
        vec![
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)),
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT)),
        ]
    }

    /// Returns what single values cannot tell: whether they fit each other.
    pub fn conflicts(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(ipv4) = &self.ipv4
            && self.client_range.contains(&ipv4.address)
        {
            faults.push(format!(
                "ipv4: {} lies inside the client range {}",
                ipv4.address, self.client_range
            ));
        }
        for subnet in &self.subnets {
            let clash = match subnet {
                IpNet::V4(v4) => v4.contains(&self.client_range) || self.client_range.contains(v4),
                IpNet::V6(_) => false,
            };
            if clash {
                faults.push(format!(
                    "subnets: {subnet} and the client range {} overlap",
                    self.client_range
                ));
            }
        }
        faults
    }

    fn parse_at(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let faulty = |faults| ConfigError::Faulty {
            path: path.to_owned(),
            faults,
        };
        let document: DocumentMut = text
            .parse()
            .map_err(|e: toml_edit::TomlError| faulty(vec![e.to_string()]))?;
        if let Some(found) = document.get("version").and_then(Item::as_integer)
            && found > VERSION
        {
            return Err(ConfigError::Newer {
                path: path.to_owned(),
                found,
            });
        }
        let mut config = Self::default();
        let mut faults = Vec::new();
        for (key, item) in document.iter() {
            if let Err(BadValue(fault)) = config.take(key, item) {
                faults.push(format!("{key}: {fault}"));
            }
        }
        faults.extend(config.conflicts());
        if faults.is_empty() {
            Ok(config)
        } else {
            Err(faulty(faults))
        }
    }

    /// Says whether a program is run as a check.
    pub fn runs_programs(&self) -> bool {
        matches!(self.check, Some(CheckSpec::Exec { .. }))
    }

    fn take(&mut self, key: &str, item: &Item) -> Result<(), BadValue> {
        match key {
            "version" => match item.as_integer() {
                Some(VERSION) => {}
                Some(_) | None => return Err(BadValue(format!("only {VERSION} is known"))),
            },
            "ipv4" => {
                let text = string(item)?;
                self.ipv4 = if text == "none" {
                    None
                } else {
                    Some(parse_ipv4(text)?)
                };
            }
            "taints" => {
                self.taints = TaintSet::new(list(item, parse_taint)?)
                    .map_err(|refused| BadValue(refused.to_string()))?;
            }
            "listen" => self.listen = list(item, parse_listen)?,
            "peers" => self.peers = list(item, parse_endpoint)?,
            "interface" => self.interface = string(item)?.parse()?,
            "subnets" => self.subnets = list(item, parse_subnet)?,
            "client_range" => self.client_range = parse_client_range(string(item)?)?,
            "check" => {
                let text = string(item)?;
                self.check = if text == "none" {
                    None
                } else {
                    Some(text.parse()?)
                };
            }
            "expose" => self.expose = list(item, parse_opening)?,
            "discovery" => self.discovery = boolean(item)?,
            "relay" => self.relay = string(item)?.parse()?,
            "boot_service" => self.boot_service = boolean(item)?,
            "spin_us" => {
                let micros = item.as_integer().and_then(|us| u64::try_from(us).ok());
                self.spin = micros
                    .map(Duration::from_micros)
                    .filter(|span| *span <= MAX_SPIN)
                    .ok_or_else(|| {
                        let most = MAX_SPIN.as_micros();
                        BadValue(format!("is a number of microseconds from 0 to {most}"))
                    })?;
            }
            "log_level" => self.log_level = string(item)?.parse()?,
            "log_format" => self.log_format = string(item)?.parse()?,
            unknown => self.unknown_keys.push(unknown.to_owned()),
        }
        Ok(())
    }

    fn edit(&self, base: &str, before: &Self) -> Result<String, String> {
        let mut document: DocumentMut = base
            .parse()
            .map_err(|e: toml_edit::TomlError| e.to_string())?;
        for ((key, new), (_, old)) in self.values().into_iter().zip(before.values()) {
            if document.contains_key(key) && new.to_string() == old.to_string() {
                continue;
            }
            replace(&mut document, key, new);
        }
        Ok(document.to_string())
    }

    fn values(&self) -> [(&'static str, Value); 15] {
        let ipv4 = self
            .ipv4
            .as_ref()
            .map_or_else(|| "none".to_owned(), ipv4_text);
        let check = self
            .check
            .as_ref()
            .map_or_else(|| "none".to_owned(), ToString::to_string);
        [
            ("ipv4", ipv4.into()),
            ("taints", array(self.taints.iter())),
            ("listen", array(&self.listen)),
            ("peers", array(&self.peers)),
            ("interface", self.interface.as_str().into()),
            ("subnets", array(&self.subnets)),
            ("client_range", self.client_range.to_string().into()),
            ("check", check.into()),
            ("expose", array(&self.expose)),
            ("discovery", self.discovery.into()),
            ("relay", self.relay.to_string().into()),
            ("boot_service", self.boot_service.into()),
            ("spin_us", (self.spin.as_micros() as i64).into()),
            ("log_level", self.log_level.as_str().into()),
            ("log_format", self.log_format.as_str().into()),
        ]
    }
}

fn boolean(item: &Item) -> Result<bool, BadValue> {
    item.as_bool()
        .ok_or_else(|| BadValue("is true or false".to_owned()))
}

struct Faults<'a>(&'a [String]);

impl fmt::Display for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.0.len() == 1 { "fault" } else { "faults" };
        write!(f, "{} {noun}:", self.0.len())?;
        for fault in self.0 {
            write!(f, "\n  {}", fault.trim_end().replace('\n', "\n  "))?;
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<String>, ConfigError> {
    let mode = fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode() & 0o7777);
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(ConfigError::Writable {
            path: path.to_owned(),
            mode,
        });
    }
    atomic::read_text(path, MAX_FILE_BYTES).map_err(|source| ConfigError::Io {
        path: path.to_owned(),
        source,
    })
}

fn string(item: &Item) -> Result<&str, BadValue> {
    item.as_str()
        .ok_or_else(|| BadValue("is a text in quotes".to_owned()))
}

fn list<T>(item: &Item, parse: impl Fn(&str) -> Result<T, BadValue>) -> Result<Vec<T>, BadValue> {
    let array = item
        .as_array()
        .ok_or_else(|| BadValue("is a list of texts in [ ]".to_owned()))?;
    let mut values = Vec::new();
    let mut faults = Vec::new();
    for value in array {
        match value.as_str().map(&parse) {
            Some(Ok(value)) => values.push(value),
            Some(Err(BadValue(fault))) => faults.push(fault),
            None => faults.push(format!(
                "{} is not a text in quotes",
                value.to_string().trim()
            )),
        }
    }
    if faults.is_empty() {
        Ok(values)
    } else {
        Err(BadValue(faults.join("; ")))
    }
}

fn array(values: impl IntoIterator<Item = impl fmt::Display>) -> Value {
    values
        .into_iter()
        .map(|value| value.to_string())
        .collect::<Array>()
        .into()
}

fn replace(document: &mut DocumentMut, key: &str, mut value: Value) {
    if let Some(old) = document.get(key).and_then(Item::as_value) {
        *value.decor_mut() = old.decor().clone();
    }
    document[key] = Item::Value(value);
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
