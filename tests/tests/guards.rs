//! Rules about the source itself: how long files are, what the pure crates may reach, and what
//! may not be written down. They read the tree and `cargo metadata`, and start nothing.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A file past this is a room too big to know.
const MAX_LINES: usize = 600;

/// What a pure crate must not reach, each with what it would let in.
const IMPURE: [(&str, &str); 17] = [
    ("tokio", "a runtime"),
    ("mio", "sockets"),
    ("async-io", "sockets"),
    ("quinn", "sockets"),
    ("quinn-udp", "sockets"),
    ("socket2", "sockets"),
    ("hyper", "a server"),
    ("axum", "a server"),
    ("tun", "a device"),
    ("tun-rs", "a device"),
    ("rtnetlink", "netlink"),
    ("netlink-sys", "netlink"),
    ("netlink-proto", "netlink"),
    ("netlink-packet-route", "netlink"),
    ("nix", "system calls"),
    ("tracing-subscriber", "output"),
    ("tempfile", "files"),
];

/// What would let the clock, chance, the environment, a file or the network into a pure crate.
const IMPURE_CODE: [&str; 14] = [
    "Instant::now",
    "SystemTime::now",
    "std::env::",
    "std::fs",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::process::",
    "std::thread::",
    "fastrand::u64(",
    "fastrand::u32(",
    "fastrand::Rng::new()",
    "getrandom",
    "SystemRandom",
];

#[test]
fn no_source_file_is_longer_than_600_lines() {
    let long: Vec<String> = sources()
        .iter()
        .map(|file| (file, text(file).lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(file, lines)| format!("{}: {lines}", shown(file)))
        .collect();

    assert!(
        long.is_empty(),
        "longer than {MAX_LINES} lines:\n{}",
        long.join("\n")
    );
}

#[test]
fn every_module_says_what_it_is_for() {
    let files = sources();
    let tests = test_modules(&files);
    let silent: Vec<String> = files
        .iter()
        .filter(|file| !is_test(file, &tests))
        .filter(|file| !text(file).trim_start().starts_with("//!"))
        .map(|file| shown(file))
        .collect();

    assert!(
        silent.is_empty(),
        "no //! at the top of:\n{}",
        silent.join("\n")
    );
}

#[test]
fn every_page_that_is_named_exists() {
    let mut missing = Vec::new();
    for file in sources().into_iter().chain(pages()) {
        let text = text(&file);
        let named = mentions(&text).map(|page| workspace().join(page));
        let folder = file.parent().unwrap();
        let linked = links(&text)
            .filter(|_| file.extension().is_some_and(|extension| extension == "md"))
            .map(|page| folder.join(page));
        missing.extend(
            named
                .chain(linked)
                .filter(|page| !page.exists())
                .map(|page| format!("{}: {}", shown(&file), page.display())),
        );
    }

    assert!(
        missing.is_empty(),
        "named, not there:\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_decision_is_in_the_index() {
    let index = text(&workspace().join("docs/decisions/README.md"));
    let absent: Vec<String> = pages()
        .iter()
        .filter(|page| page.parent().unwrap().ends_with("decisions"))
        .map(|page| page.file_name().unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "README.md" && !index.contains(&format!("({name})")))
        .collect();

    assert!(absent.is_empty(), "{}", absent.join("\n"));
}

#[test]
fn core_modules_import_leaves_and_the_exceptions_of_the_crate_only() {
    let leaves = ["time", "ids", "reason", "table"];
    let exceptions: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("choose", &["cost"][..]),
        ("connections", &["packet"]),
        ("translate", &["packet"]),
        ("credential", &["identity"]),
        ("endpoints", &["paths"]),
        ("membership", &["credential", "identity"]),
        ("relay", &["session"]),
    ]);
    let beside_the_packet_way = ["credential", "identity", "membership", "paths"];
    let root = workspace().join("anchor/core/src");
    let files = sources();
    let tests = test_modules(&files);
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.starts_with(&root)) {
        let place = file.strip_prefix(&root).unwrap().with_extension("");
        let module = place.iter().next().unwrap().to_string_lossy().into_owned();
        if is_test(file, &tests) {
            continue;
        }
        for (place, line) in code_lines(file) {
            for rest in line.split("crate::").skip(1) {
                let import = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
                let import = import.into_iter().next().unwrap_or("");
                let allowed = import == module
                    || match module.as_str() {
                        "plane" => !import.is_empty() && !beside_the_packet_way.contains(&import),
                        leaf if leaves.contains(&leaf) => false,
                        other => {
                            leaves.contains(&import)
                                || exceptions.get(other).is_some_and(|to| to.contains(&import))
                        }
                    };
                if !allowed {
                    found.push(format!("{place}: {}", line.trim()));
                }
            }
        }
    }

    assert!(
        found.is_empty(),
        "see the head of anchor/core/src/lib.rs:\n{}",
        found.join("\n")
    );
}

#[test]
fn pure_crates_reach_no_runtime_socket_device_or_netlink_crate() {
    let metadata = metadata();

    for root in ["conflux-core", "conflux-proto"] {
        let reached = reached_from(&metadata, root);

        let impure: Vec<String> = IMPURE
            .iter()
            .filter(|(name, _)| reached.contains(*name))
            .map(|(name, brings)| format!("{name} ({brings})"))
            .collect();
        assert!(impure.is_empty(), "{root} reaches {}", impure.join(", "));
        assert!(
            reached.contains("sha2"),
            "the walk went nowhere: {reached:?}"
        );
    }
}

#[test]
fn crates_depend_on_each_other_in_one_direction() {
    let metadata = metadata();

    for (root, forbidden) in [
        (
            "conflux-proto",
            &["conflux-core", "conflux-anchor", "conflux"][..],
        ),
        ("conflux-core", &["conflux-anchor", "conflux"]),
        ("conflux-anchor", &["conflux"]),
        ("e2e", &["conflux"]),
    ] {
        let reached = reached_from(&metadata, root);

        for name in forbidden {
            assert!(!reached.contains(*name), "{root} reaches {name}");
        }
    }
}

#[test]
fn only_lies_and_handmade_credentials_know_more_of_the_product_than_its_binary() {
    let parts = ["conflux_proto::", "conflux_core::", "conflux_anchor::"];

    let found: Vec<String> = sources()
        .iter()
        .filter(|file| shown(file).starts_with("tests/"))
        .filter(|file| !shown(file).ends_with("tests/guards.rs"))
        .filter(|file| parts.iter().any(|part| text(file).contains(part)))
        .map(|file| shown(file).to_string())
        .collect();

    let allowed = [
        "tests/src/hostile.rs",
        "tests/tests/lying.rs",
        "tests/tests/trust.rs",
    ];
    assert_eq!(found, allowed);
}

#[test]
fn pure_code_reads_no_clock_no_chance_and_no_file() {
    let found: Vec<String> = sources()
        .iter()
        .filter(|file| {
            shown(file).starts_with("anchor/core/src") || shown(file).starts_with("proto/src")
        })
        .flat_map(|file| code_lines(file))
        .filter(|(_, line)| IMPURE_CODE.iter().any(|word| line.contains(word)))
        .map(|(place, line)| format!("{place}: {}", line.trim()))
        .collect();

    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn nothing_unwraps_or_is_left_undone_outside_tests() {
    let words = [
        [".unw", "rap()"],
        ["tod", "o!("],
        ["unimple", "mented!("],
        ["db", "g!("],
    ]
    .map(|halves| halves.concat());
    let files = sources();
    let tests = test_modules(&files);
    let found: Vec<String> = files
        .iter()
        .filter(|file| !is_test(file, &tests))
        .flat_map(|file| code_lines(file))
        .filter(|(_, line)| words.iter().any(|word| line.contains(word)))
        .map(|(place, line)| format!("{place}: {}", line.trim()))
        .collect();

    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn unsafe_code_lives_with_devices_and_sockets_only() {
    let word = ["uns", "afe "].concat();
    let allowed = ["anchor/src/tun/", "anchor/src/udp/", "tests/"];
    let found: Vec<String> = sources()
        .iter()
        .filter(|file| !allowed.iter().any(|folder| shown(file).starts_with(folder)))
        .flat_map(|file| code_lines(file))
        .filter(|(_, line)| {
            line.contains(&format!("{word}{{")) || line.contains(&format!("{word}fn"))
        })
        .map(|(place, line)| format!("{place}: {}", line.trim()))
        .collect();

    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_test_is_switched_off_without_a_reason() {
    // Those with a reason are too long for every run: `make soak` runs them.
    let word = ["#[ig", "nore]"].concat();
    let found: Vec<String> = sources()
        .iter()
        .filter(|file| text(file).contains(&word))
        .map(|file| shown(file))
        .collect();

    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Returns every Rust file of the workspace's members.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = ["proto", "anchor", "cli", "tests"]
        .iter()
        .map(|name| workspace().join(name))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().unwrap() != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(files.len() > 20, "the sources were not found: {files:?}");
    files
}

/// Returns the pages of documentation.
fn pages() -> Vec<PathBuf> {
    let pages: Vec<PathBuf> = ["", "docs", "docs/decisions"]
        .iter()
        .flat_map(|folder| fs::read_dir(workspace().join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    assert!(pages.len() > 5, "the pages were not found: {pages:?}");
    pages
}

/// Returns the pages below `docs/` that a text names by their path from the root.
fn mentions(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("docs/").filter_map(|(at, _)| {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(byte);
        let before = text.as_bytes()[..at].last();
        if before.is_some_and(is_part) {
            return None;
        }
        let length = text.as_bytes()[at..]
            .iter()
            .take_while(|byte| is_part(byte));
        let name = text[at..at + length.count()].trim_end_matches('.');
        name.ends_with(".md").then_some(name)
    })
}

/// Returns the files a page links to, from where it lies.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#']).next())
        .filter(|target| !target.is_empty() && !target.contains("://"))
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap()
}

fn shown(file: &Path) -> String {
    file.strip_prefix(workspace())
        .unwrap()
        .display()
        .to_string()
}

/// Returns the places of modules that are declared for tests only, without their extension.
fn test_modules(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut places = BTreeSet::new();
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let folder = match name.as_str() {
            "mod" | "lib" | "main" => file.parent().unwrap().to_owned(),
            _ => file.with_extension(""),
        };
        let text = text(file);
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if line != "#[cfg(test)]" {
                continue;
            }
            let declared = lines
                .by_ref()
                .find(|line| !line.starts_with("#["))
                .unwrap_or("");
            let module = declared
                .rsplit_once("mod ")
                .and_then(|(_, name)| name.strip_suffix(';'));
            places.extend(module.map(|module| folder.join(module)));
        }
    }
    places
}

fn is_test(file: &Path, test_modules: &BTreeSet<PathBuf>) -> bool {
    let path = shown(file);
    let name = file.file_stem().unwrap().to_string_lossy();
    path.starts_with("tests/")
        || path.contains("/tests/")
        || path.contains("/benches/")
        || name.ends_with("_tests")
        || file
            .with_extension("")
            .ancestors()
            .any(|place| test_modules.contains(place))
}

/// Returns a file's lines with their places, up to its tests, comments left out.
fn code_lines(file: &Path) -> Vec<(String, String)> {
    text(file)
        .lines()
        .enumerate()
        .take_while(|(_, line)| !line.trim_start().starts_with("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(number, line)| (format!("{}:{}", shown(file), number + 1), line.to_owned()))
        .collect()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the names of every package a package is built with, tests' own dependencies left out.
fn reached_from(metadata: &Value, root: &str) -> BTreeSet<String> {
    let names: BTreeMap<&str, &str> = list(&metadata["packages"])
        .iter()
        .map(|package| (word(&package["id"]), word(&package["name"])))
        .collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| (word(&node["id"]), node))
        .collect();
    let start = names
        .iter()
        .find(|(_, name)| **name == root)
        .map(|(id, _)| *id)
        .unwrap();
    let mut reached = BTreeSet::new();
    let mut queue = vec![start];
    while let Some(id) = queue.pop() {
        for dependency in list(&nodes[id]["deps"]) {
            let is_built = list(&dependency["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null());
            let target = word(&dependency["pkg"]);
            if is_built && reached.insert(names[target].to_owned()) {
                queue.push(target);
            }
        }
    }
    reached
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap()
}
