//! What a running anchor could still do if somebody took it over: as root by name, with one
//! capability, and with keys that no core dump and no other process shows.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use e2e::{Anchor, Lab, Options};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

#[test]
fn a_running_anchor_has_one_capability_and_cannot_gain_others() {
    let lab = Lab::new();
    let anchor = Anchor::start(&lab.host("a"), &Options::of("--ipv4 10.128.0.9"));

    for task in tasks(&anchor) {
        let status = fs::read_to_string(task.join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };

        let net_admin = format!("{:016x}", 1_u64 << 12);
        for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
            assert_eq!(field(set), net_admin, "{set} of {}", task.display());
        }
        for set in ["CapInh:", "CapAmb:"] {
            assert_eq!(field(set), "0".repeat(16), "{set}");
        }
        assert_eq!(field("NoNewPrivs:"), "1");
        assert_eq!(field("Groups:"), "");
    }
}

#[test]
fn a_running_anchors_memory_is_in_no_core_dump() {
    let lab = Lab::new();
    let mut anchor = Anchor::start(&lab.host("a"), &Options::of("--ipv4 10.128.0.9"));

    let place = tempfile::tempdir().unwrap();
    let mut other = Command::new("sleep")
        .arg("60")
        .current_dir(place.path())
        .spawn()
        .unwrap();
    let other_id = Pid::from_raw(other.id().cast_signed());
    for process in [anchor.pid(), other_id] {
        let allowed = Command::new("prlimit")
            .args(["--core=unlimited", "--pid", &process.to_string()])
            .status();
        assert!(allowed.unwrap().success());
    }

    signal::kill(other_id, Signal::SIGABRT).unwrap();
    anchor.signal(Signal::SIGABRT);

    let others = other.wait().unwrap();
    assert!(others.core_dumped(), "others do dump core here: {others}");
    let ended = anchor.ended_by_signal_within(Duration::from_secs(5));
    assert_eq!(ended, Some(false), "it ended, and dumped nothing");
}

#[test]
fn a_configuration_that_others_can_write_is_refused_at_the_start() {
    let lab = Lab::new();
    let mut anchor = Anchor::start(&lab.host("a"), &Options::of("--ipv4 10.128.0.9"));
    anchor.down();
    let directory = anchor.host().outside_path(anchor.directory());
    let config = directory.join("etc/conflux.toml");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o666)).unwrap();

    let answer = anchor.cli(["run"]);

    assert_eq!(answer.code, 78, "{answer:?}");
    assert!(answer.stderr.contains("chmod go-w"), "{answer:?}");
}

#[test]
fn a_log_and_the_tables_show_no_secret() {
    let lab = Lab::new();
    let options = Options::of("--ipv4 10.128.0.9 --log-level trace");
    let first = Anchor::start(&lab.host("a"), &options);
    let ticket = first.invite("");
    let second = Anchor::start(&lab.host("b"), &options.clone().joining(&ticket));
    e2e::wait::until(e2e::scenario::SETTLE_LIMIT, "both to be connected", || {
        first.peers().iter().any(|peer| peer.rtt_micros.is_some())
    });

    let mut said = first.log() + &second.log();
    for table in ["status", "routes", "peers", "flows", "members"] {
        said += &first.say([table, "--json"]);
    }
    said += &first.say(["metrics"]);
    for anchor in [&first, &second] {
        let state = anchor
            .host()
            .outside_path(&format!("{}/state", anchor.directory()));
        for name in ["identity.seed", "realm.seed"] {
            let Ok(file) = fs::read(state.join(name)) else {
                continue;
            };
            let seed = &file[file.len() - 32..];
            for form in spellings(seed) {
                assert!(!said.contains(&form), "{name} is shown as {form}");
            }
        }
    }
    assert!(!said.contains(&ticket[8..60]), "the ticket is shown");
}

#[test]
fn a_ticket_stays_in_no_memory_of_who_made_it_and_who_used_it() {
    let lab = Lab::new();
    let first = Anchor::start(&lab.host("a"), &Options::of("--ipv4 10.128.0.9"));
    let ticket = first.invite("");
    let second = Anchor::start(&lab.host("b"), &Options::default().joining(&ticket));
    e2e::wait::until(e2e::scenario::SETTLE_LIMIT, "both to be connected", || {
        first.connected() == 1 && second.connected() == 1
    });
    second.wait_written();

    for anchor in [&first, &second] {
        let id = anchor.id().as_bytes();
        assert!(is_in_memory(anchor, id), "the search finds what is there");
        let middle = &ticket.as_bytes()[ticket.len() / 2..][..60];
        assert!(!is_in_memory(anchor, middle), "{}", anchor.host().name());
    }
}

/// Says whether these bytes stand in an anchor's writable memory.
fn is_in_memory(anchor: &Anchor, bytes: &[u8]) -> bool {
    let process = format!("/proc/{}", anchor.pid());
    let memory = fs::File::open(format!("{process}/mem")).unwrap();
    let maps = fs::read_to_string(format!("{process}/maps")).unwrap();
    let writable = maps.lines().filter(|line| line.contains(" rw"));
    let mut ranges = writable.map(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        (number(from), number(to))
    });
    ranges.any(|(from, to)| {
        let mut content = vec![0; usize::try_from(to - from).unwrap()];
        // Some ranges of the kernel's cannot be read.
        let read = memory.read_at(&mut content, from).unwrap_or(0);
        content[..read]
            .windows(bytes.len())
            .any(|window| window == bytes)
    })
}

/// Returns the directories of an anchor's threads.
fn tasks(anchor: &Anchor) -> Vec<std::path::PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{}/task", anchor.pid())).unwrap();
    let tasks: Vec<_> = tasks.map(|task| task.unwrap().path()).collect();
    assert!(tasks.len() > 1, "{tasks:?}");
    tasks
}

/// Returns the ways in which bytes are written in logs.
fn spellings(bytes: &[u8]) -> [String; 3] {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let list = format!("{bytes:?}");
    [
        hex.to_uppercase(),
        hex,
        list.trim_matches(['[', ']']).to_owned(),
    ]
}
