//! The command line: every verb and flag, each value checked by the same rules as the
//! configuration file's. Reading it has no effect; a value that does not fit ends with exit 2
//! before anything is written.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use conflux_anchor::files::settings::{
    self, BadValue, Endpoint, InterfaceName, Ipv4Choice, LogFormat, LogLevel, Opening, Taint,
};
use conflux_anchor::files::{CheckSpec, RelayChoice};
use conflux_proto::api::Advertise;
use ipnet::{IpNet, Ipv4Net};

/// The word that clears a setting.
const CLEAR: &str = "none";

/// How long a ticket lets machines in when nothing else is asked for.
const DEFAULT_EXPIRY: &str = "24h";

/// Several machines answer at one private address; each client chooses for itself.
#[derive(Debug, Parser)]
#[command(
    name = "conflux",
    disable_version_flag = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 ok, 1 failure, 2 usage, 13 needs root, 69 not running or not \
                  installed, 78 not configured."
)]
pub(crate) struct Cli {
    /// Root a whole installation (configuration, state, socket, log) in this directory
    #[arg(
        long,
        global = true,
        env = "CONFLUX_DIR",
        value_name = "DIR",
        hide_env_values = true
    )]
    pub(crate) dir: Option<PathBuf>,

    /// Print the version of this command and, when it runs, of the daemon
    #[arg(short = 'V', long = "version")]
    pub(crate) version: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Configure this machine, register the boot service, start
    Up(Box<UpFlags>),
    /// Stop now, saying goodbye; registration, configuration and identity stay
    Down,
    /// Start again from the saved configuration
    Start,
    /// Say goodbye, then remove service, configuration, identity and state
    Uninstall(UninstallFlags),
    /// Run in the foreground; with flags, configure first as `up` does
    Run(Box<RunFlags>),
    /// One screen about this machine
    Status(TableFlags),
    /// The networks and who holds them
    Routes(TableFlags),
    /// The other anchors
    Peers(TableFlags),
    /// Which holder each flow has
    Flows(TableFlags),
    /// Why a flow is where it is: its holder, the other candidates, those left out
    Explain(ExplainFlags),
    /// Take no new flows, let old ones end
    Drain(DrainFlags),
    /// Take new flows again
    Undrain,
    /// The credentials of anchors and tickets
    Members(TableFlags),
    /// Print a ticket that lets other machines join
    Invite(InviteFlags),
    /// End an anchor's membership, or a ticket, for good
    Revoke(RevokeFlags),
    /// Hand the realm's key on, so that no machine is the only one to have it
    #[command(subcommand)]
    Realm(RealmCommand),
    /// Print all metrics in Prometheus text
    Metrics(MetricsFlags),
    /// Print the version of this command and, when it runs, of the daemon
    Version(TableFlags),
}

/// The settings that `up` and `run` write.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct UpFlags {
    /// The address this machine answers at; "none": it only calls others
    #[arg(long, value_name = "A[/LEN]", value_parser = setting(settings::parse_ipv4))]
    pub(crate) ipv4: Option<Setting<Ipv4Choice>>,

    /// A label that decides who may exchange data with this machine (repeatable)
    #[arg(long = "taint", value_name = "T", value_parser = setting(settings::parse_taint))]
    pub(crate) taints: Vec<Setting<Taint>>,

    /// Join the realm of this ticket; @FILE and - read it from a file or stdin
    #[arg(long, value_name = "TICKET")]
    pub(crate) join: Option<String>,

    /// Where to listen (repeatable) [default: UDP 47474, IPv4 and IPv6]
    #[arg(long, value_name = "ADDR:PORT", value_parser = setting(settings::parse_listen))]
    pub(crate) listen: Vec<Setting<SocketAddr>>,

    /// An anchor to try besides the known ones (repeatable)
    #[arg(long = "peer", value_name = "HOST:PORT", value_parser = setting(settings::parse_endpoint))]
    pub(crate) peers: Vec<Setting<Endpoint>>,

    /// The name of the network interface [default: anchor0]
    #[arg(long, value_name = "NAME", value_parser = setting(InterfaceName::from_str))]
    pub(crate) interface: Option<Setting<InterfaceName>>,

    /// A network behind this machine to offer to the realm (repeatable)
    #[arg(long = "subnet", value_name = "NET", value_parser = setting(settings::parse_subnet))]
    pub(crate) subnets: Vec<Setting<IpNet>>,

    /// Where clients appear on this machine [default: 198.18.0.0/15]
    #[arg(long, value_name = "NET", value_parser = setting(settings::parse_client_range))]
    pub(crate) client_range: Option<Setting<Ipv4Net>>,

    /// How this machine's own service is checked; while it fails, others are not told of the
    /// address: tcp:PORT, http://127.0.0.1:PORT/path, or exec:/path/of/program, run as nobody
    #[arg(long, value_name = "SPEC", value_parser = setting(CheckSpec::from_str))]
    pub(crate) check: Option<Setting<CheckSpec>>,
    /// Let only these ports in from the overlay, like tcp:80,udp:53 [default: all]
    #[arg(
        long,
        value_name = "PORTS",
        value_delimiter = ',',
        value_parser = setting(settings::parse_opening)
    )]
    pub(crate) expose: Vec<Setting<Opening>>,

    /// Carry at most so much for anchors that cannot reach each other, like 100mbit [default: all]
    #[arg(
        long,
        value_name = "RATE",
        value_parser = setting(RelayChoice::parse_limit),
        conflicts_with = "no_relay"
    )]
    pub(crate) relay_limit: Option<Setting<RelayChoice>>,

    /// Carry nothing for other anchors; =false carries again
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub(crate) no_relay: Option<bool>,

    /// Do not register a boot service; =false registers it again
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub(crate) no_service: Option<bool>,

    /// error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", value_parser = setting(LogLevel::from_str))]
    pub(crate) log_level: Option<Setting<LogLevel>>,

    /// text or json
    #[arg(long, value_name = "FORMAT", value_parser = setting(LogFormat::from_str))]
    pub(crate) log_format: Option<Setting<LogFormat>>,
}

#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub(crate) up: UpFlags,

    /// Set by `up` and `start`: log to the log file, leave the terminal
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TableFlags {
    /// Print the daemon's JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ExplainFlags {
    /// The destination: a shared address in either spelling, or an overlay address
    #[arg(value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) address: IpAddr,

    /// A host behind this machine [default: this machine itself]
    #[arg(long, value_name = "HOST", value_parser = parse_address)]
    pub(crate) from: Option<IpAddr>,

    #[command(flatten)]
    pub(crate) table: TableFlags,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DrainFlags {
    /// Wait until nothing rests here any more, at most so long, like 30s or 10m; exit 1 then
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    pub(crate) wait: Option<Duration>,

    /// Print the daemon's JSON instead of a sentence
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct UninstallFlags {
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MetricsFlags {
    /// Print the HELP and TYPE lines too
    #[arg(long)]
    pub(crate) help_text: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct InviteFlags {
    /// A taint to grant (repeatable) [default: all of this machine's]
    #[arg(long = "taint", value_name = "T", value_parser = settings::parse_taint)]
    pub(crate) taints: Vec<Taint>,

    /// What joiners may advertise: a network, any, or none (repeatable) [default: any private /32]
    #[arg(long, value_name = "NET|any|none", value_parser = parse_advertise)]
    pub(crate) advertise: Vec<Advertise>,

    /// How long machines can join with it, like 30m, 24h or 7d
    #[arg(long, value_name = "TIME", default_value = DEFAULT_EXPIRY, value_parser = parse_expiry)]
    pub(crate) expires: Duration,

    /// Let joiners invite others and renew credentials
    #[arg(long)]
    pub(crate) issuer: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RevokeFlags {
    /// An id as `conflux members` shows it (the beginning is enough), or a ticket; - reads one from stdin
    #[arg(value_name = "ANCHOR|TICKET")]
    pub(crate) target: String,

    /// Those who joined by the ticket, or whom the anchor invited as an issuer, go too
    #[arg(long)]
    pub(crate) with_anchors: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RealmCommand {
    /// Print the realm's key, encrypted with a passphrase: keep it apart from this machine
    Export(ExportFlags),
    /// Take the realm's key from an export, on a member or on a new machine
    Import(ImportFlags),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ExportFlags {
    /// Read the passphrase from the first line of a file instead of the terminal
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ImportFlags {
    /// The export; - reads it from stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Read the passphrase from the first line of a file instead of the terminal
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// A setting's new value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Setting<T> {
    /// Back to the default, or to an empty list.
    Clear,
    /// This value.
    To(T),
}

impl UpFlags {
    /// Returns whether any setting or ticket was given.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            ipv4,
            taints,
            join,
            listen,
            peers,
            interface,
            subnets,
            client_range,
            check,
            expose,
            relay_limit,
            no_relay,
            no_service,
            log_level,
            log_format,
        } = self;
        ipv4.is_none()
            && taints.is_empty()
            && join.is_none()
            && listen.is_empty()
            && peers.is_empty()
            && interface.is_none()
            && subnets.is_empty()
            && client_range.is_none()
            && check.is_none()
            && expose.is_empty()
            && relay_limit.is_none()
            && no_relay.is_none()
            && no_service.is_none()
            && log_level.is_none()
            && log_format.is_none()
    }
}

/// Returns a parser that takes the clearing word besides what `parse` takes.
fn setting<T: 'static>(
    parse: fn(&str) -> Result<T, BadValue>,
) -> impl Fn(&str) -> Result<Setting<T>, BadValue> + Clone + Send + Sync + 'static {
    move |text| {
        if text == CLEAR {
            Ok(Setting::Clear)
        } else {
            parse(text).map(Setting::To)
        }
    }
}

fn parse_advertise(text: &str) -> Result<Advertise, BadValue> {
    match text {
        "any" => Ok(Advertise::Any),
        "none" => Ok(Advertise::None),
        network => settings::parse_subnet(network).map(Advertise::Network),
    }
}

fn parse_address(text: &str) -> Result<IpAddr, BadValue> {
    text.parse().map_err(|_| {
        BadValue(format!(
            "\"{text}\" is not an IP address, like 10.128.0.9 (names are not looked up)"
        ))
    })
}

/// A ticket is good for a minute to a year.
fn parse_expiry(text: &str) -> Result<Duration, BadValue> {
    let range = Duration::from_secs(60)..=Duration::from_secs(365 * 86_400);
    parse_span(text, range, "a minute at least and 365d at most")
}

/// A wait takes a second to a week.
fn parse_wait(text: &str) -> Result<Duration, BadValue> {
    let range = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
    parse_span(text, range, "1s at least and 7d at most")
}

/// Reads a time with its unit, s, m, h, d or w, within `range`, which `limits` puts into words.
fn parse_span(
    text: &str,
    range: RangeInclusive<Duration>,
    limits: &str,
) -> Result<Duration, BadValue> {
    let told = |why: &str| {
        BadValue(format!(
            "\"{text}\" is not a time like 30m, 24h or 7d: {why}"
        ))
    };
    let unit = text
        .chars()
        .next_back()
        .ok_or_else(|| told("it is empty"))?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return Err(told("it needs a unit: s, m, h, d or w")),
    };
    let number = &text[..text.len() - 1];
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(told("a whole number stands before the unit"));
    }
    let span = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(seconds))
        .map(Duration::from_secs)
        .filter(|span| range.contains(span));
    span.ok_or_else(|| told(&format!("it must be {limits}")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn repeated_flags_collect_and_none_clears() {
        let cli = parse(&["up", "--taint", "a", "--taint", "b", "--subnet", "none"]).unwrap();

        let Some(Command::Up(flags)) = cli.command else {
            panic!("{:?}", cli.command)
        };
        assert_eq!(flags.taints.len(), 2);
        assert_eq!(flags.subnets, [Setting::Clear]);
        assert!(!flags.is_empty());
        assert!(UpFlags::default().is_empty());
    }

    #[test]
    fn addresses_that_cannot_be_are_refused_with_address_and_reason() {
        for (given, reason) in [
            ("198.18.0.1", "198.18.0.0/15"),
            ("10.0.0.1/0", "0"),
            ("127.0.0.1", "loopback"),
            ("169.254.1.1", "link-local"),
            ("224.0.0.1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("0.0.0.0", "0.0.0.0/8"),
            ("fd00::1", "IPv6"),
            ("198.0.0.1/8", "198.18.0.0/15"),
            ("ten", "not an IPv4 address"),
        ] {
            let error = parse(&["up", "--ipv4", given]).unwrap_err().to_string();

            assert!(error.contains(given) && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_service_flag_can_be_taken_back() {
        for (flag, expected) in [("--no-service", true), ("--no-service=false", false)] {
            let cli = parse(&["up", flag]).unwrap();

            let Some(Command::Up(flags)) = cli.command else {
                panic!("{:?}", cli.command)
            };
            assert_eq!(flags.no_service, Some(expected));
        }
    }

    #[test]
    fn times_have_a_unit_and_a_range() {
        for (text, seconds) in [
            ("60s", 60),
            ("30m", 1800),
            ("24h", 86_400),
            ("365d", 31_536_000),
        ] {
            assert_eq!(parse_expiry(text).unwrap(), Duration::from_secs(seconds));
        }
        for text in [
            "",
            "24",
            "h",
            "59s",
            "366d",
            "-1h",
            "1.5h",
            "99999999999999999999w",
            "1µ",
        ] {
            assert!(parse_expiry(text).is_err(), "{text}");
        }
        assert_eq!(parse_wait("1s").unwrap(), Duration::from_secs(1));
        assert!(parse_wait("0s").is_err() && parse_wait("8d").is_err());
    }

    #[test]
    fn an_invitation_has_defaults() {
        let cli = parse(&["invite"]).unwrap();

        let Some(Command::Invite(flags)) = cli.command else {
            panic!("{:?}", cli.command)
        };
        assert_eq!(flags.expires, Duration::from_secs(86_400));
        assert!(flags.taints.is_empty() && flags.advertise.is_empty() && !flags.issuer);
    }

    #[test]
    fn the_directory_may_stand_before_or_after_the_verb() {
        for words in [["--dir", "/a", "status"], ["status", "--dir", "/a"]] {
            assert_eq!(parse(&words).unwrap().dir.unwrap(), PathBuf::from("/a"));
        }
    }

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["conflux"], words].concat())
    }
}
