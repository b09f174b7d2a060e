//! The boot service as systemd judges it, where systemd's own tools are installed.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// SPEC section 11 asks for one capability and nothing else as root; this is systemd's measure.
const MOST_EXPOSED: f64 = 3.0;

#[test]
fn the_boot_service_is_sandboxed() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        return;
    }
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd/conflux.service");
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("conflux.service");
    let text = fs::read_to_string(unit).unwrap();
    fs::write(&copy, text.replace("/usr/bin/conflux", "/bin/true")).unwrap();

    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(&copy)
        .output()
        .unwrap();

    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let overall = report
        .lines()
        .find(|line| line.contains("Overall exposure level"));
    let level: f64 = overall
        .and_then(|line| line.rsplit_once(": "))
        .and_then(|(_, rest)| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no level in {report}"));
    assert!(level < MOST_EXPOSED, "{level}");
}
