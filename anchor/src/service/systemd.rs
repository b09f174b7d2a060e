//! The boot service as systemd has it. The unit of a package is used as it is; otherwise one is
//! written from the same text, with the path of the running binary and the installation's own
//! directories.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

use crate::api::has_group;
use crate::files::{Layout, atomic};

const TEMPLATE: &str = include_str!("../../../systemd/conflux.service");

const WRITTEN_UNITS: &str = "/etc/systemd/system";

/// Where packages put theirs.
const PACKAGED_UNITS: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];

/// To start a program as nobody, and to end it again.
const PROGRAMS: &str = "# Written by `conflux up --check exec:...`; another check removes it.\n\
                        [Service]\n\
                        CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_KILL\n\
                        SystemCallFilter=@setuid\n";

/// Journal lines shown when a start fails.
const SHOWN_LINES: &str = "15";

/// One installation's unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    name: String,
    layout: Layout,
}

impl Unit {
    /// Returns the installation's unit, registered or not.
    pub fn of(layout: &Layout) -> Self {
        Self {
            name: layout.unit(),
            layout: layout.clone(),
        }
    }

    /// Makes systemd start the daemon at boot. `binary` is what the unit runs.
    ///
    /// # Errors
    ///
    /// When the unit cannot be written or enabled.
    pub fn register(&self, binary: &Path) -> anyhow::Result<()> {
        if !self.is_packaged() {
            let text = unit_text(&self.layout, binary, has_group());
            let path = self.written();
            if atomic::read_text(&path, 1 << 20).ok().flatten().as_deref() != Some(text.as_str()) {
                atomic::write(&path, text.as_bytes(), atomic::Mode::Readable)
                    .with_context(|| format!("writing {}", path.display()))?;
                systemctl(&["daemon-reload"])?;
            }
        }
        systemctl(&["enable", "--quiet", &self.name])
    }

    /// Gives the daemon, or takes from it, what it needs to run programs as another user: nobody
    /// else is to have it. Returns whether the unit has changed, so that a daemon that runs lacks
    /// it until it starts again.
    ///
    /// # Errors
    ///
    /// When the addition cannot be written or removed.
    pub fn allow_programs(&self, wanted: bool) -> anyhow::Result<bool> {
        let path = self.addition();
        let present = atomic::read_text(&path, 1 << 20).ok().flatten();
        if present.as_deref() == wanted.then_some(PROGRAMS) {
            return Ok(false);
        }
        if wanted {
            atomic::write(&path, PROGRAMS.as_bytes(), atomic::Mode::Readable)
                .with_context(|| format!("writing {}", path.display()))?;
        } else {
            self.remove_addition()?;
        }
        systemctl(&["daemon-reload"])?;
        Ok(true)
    }

    /// Stops the daemon and forgets the unit.
    ///
    /// # Errors
    ///
    /// When systemd refuses, or the file cannot be removed.
    pub fn unregister(&self) -> anyhow::Result<()> {
        systemctl(&["disable", "--now", "--quiet", &self.name])?;
        self.remove_addition()?;
        let path = self.written();
        if path.exists() {
            atomic::remove(&path).with_context(|| format!("removing {}", path.display()))?;
            systemctl(&["daemon-reload"])?;
        }
        Ok(())
    }

    /// Starts the daemon, or starts it again, and returns when it is ready.
    ///
    /// # Errors
    ///
    /// When it does not come up; the message has its last log lines.
    pub fn restart(&self) -> anyhow::Result<()> {
        if let Err(error) = systemctl(&["restart", &self.name]) {
            bail!("{error:#}\n{}", self.last_lines());
        }
        Ok(())
    }

    /// Stops the daemon and returns when it has ended.
    ///
    /// # Errors
    ///
    /// When systemd refuses.
    pub fn stop(&self) -> anyhow::Result<()> {
        systemctl(&["stop", &self.name])
    }

    /// Returns whether the daemon returns at boot.
    pub fn is_registered(&self) -> bool {
        query(&["is-enabled", "--quiet", &self.name])
    }

    /// Returns whether systemd runs, starts or stops the daemon now.
    pub fn is_running(&self) -> bool {
        run(&["show", "--property=ActiveState", "--value", &self.name]).is_ok_and(|output| {
            matches!(
                String::from_utf8_lossy(&output.stdout).trim(),
                "active" | "activating" | "deactivating" | "reloading"
            )
        })
    }

    fn is_packaged(&self) -> bool {
        PACKAGED_UNITS
            .iter()
            .any(|directory| Path::new(directory).join(&self.name).exists())
    }

    fn written(&self) -> PathBuf {
        Path::new(WRITTEN_UNITS).join(&self.name)
    }

    /// What checks by programs need, beside the unit so that a packaged one stays as it is.
    fn addition(&self) -> PathBuf {
        Path::new(WRITTEN_UNITS)
            .join(format!("{}.d", self.name))
            .join("conflux-check.conf")
    }

    fn remove_addition(&self) -> anyhow::Result<()> {
        let path = self.addition();
        atomic::remove(&path).with_context(|| format!("removing {}", path.display()))?;
        if let Some(directory) = path.parent() {
            // The operator's own additions keep it.
            let _ = std::fs::remove_dir(directory);
        }
        Ok(())
    }

    fn last_lines(&self) -> String {
        Command::new("journalctl")
            .args([
                "--no-pager",
                "--quiet",
                "--output=cat",
                "-n",
                SHOWN_LINES,
                "-u",
                &self.name,
            ])
            .stdin(Stdio::null())
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default()
    }
}

/// Returns the text of an installation's unit.
fn unit_text(layout: &Layout, binary: &Path, with_group: bool) -> String {
    let mut text = String::from("# Written by `conflux up`; `conflux uninstall` removes it.\n");
    // The template's head speaks of the template.
    for line in TEMPLATE.lines().skip_while(|line| line.starts_with('#')) {
        let (key, _) = line.split_once('=').unwrap_or((line, ""));
        match (key, layout.root()) {
            ("SupplementaryGroups", _) if !with_group => continue,
            ("ExecStart", None) => text.push_str(&format!("ExecStart={} run", quoted(binary))),
            ("ExecStart", Some(root)) => text.push_str(&format!(
                "ExecStart={} --dir {} run\nReadWritePaths={}",
                quoted(binary),
                quoted(root),
                quoted(root)
            )),
            ("ConfigurationDirectory" | "StateDirectory" | "RuntimeDirectory", Some(_))
            | ("StateDirectoryMode", Some(_)) => continue,
            // The directory may well lie in somebody's home or in /tmp.
            ("ProtectHome" | "PrivateTmp", Some(_)) => continue,
            (_, None | Some(_)) => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Writes a path so that systemd reads one word: quoted, its specifiers and variables escaped.
fn quoted(path: &Path) -> String {
    let mut text = String::from("\"");
    for letter in path.to_string_lossy().chars() {
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            '%' | '$' => text.extend([letter, letter]),
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

fn systemctl(arguments: &[&str]) -> anyhow::Result<()> {
    let output = run(arguments)?;
    if !output.status.success() {
        bail!(
            "systemctl {} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

fn query(arguments: &[&str]) -> bool {
    run(arguments).is_ok_and(|output| output.status.success())
}

fn run(arguments: &[&str]) -> anyhow::Result<Output> {
    Command::new("systemctl")
        .arg("--no-ask-password")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("systemctl cannot be run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_unit_runs_the_calling_binary_and_keeps_its_hardening() {
        let text = unit_text(&Layout::system(), Path::new("/opt/a b/conflux"), true);

        assert!(
            text.contains("\nExecStart=\"/opt/a b/conflux\" run\n"),
            "{text}"
        );
        for line in [
            "Type=notify",
            "SupplementaryGroups=conflux",
            "CapabilityBoundingSet=CAP_NET_ADMIN",
            "StateDirectory=conflux",
            "ProtectHome=yes",
            "[Install]",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        assert!(!text.contains("Packages install it"), "{text}");
    }

    #[test]
    fn a_units_own_directory_is_writable_and_the_systems_are_not_made() {
        let layout = Layout::below(Path::new("/srv/100%")).unwrap();

        let text = unit_text(&layout, Path::new("/usr/bin/conflux"), false);

        assert!(
            text.contains("\nExecStart=\"/usr/bin/conflux\" --dir \"/srv/100%%\" run\n"),
            "{text}"
        );
        assert!(text.contains("\nReadWritePaths=\"/srv/100%%\"\n"), "{text}");
        for key in [
            "StateDirectory",
            "RuntimeDirectory",
            "ProtectHome",
            "SupplementaryGroups",
        ] {
            assert!(!text.contains(key), "{key} in {text}");
        }
    }
}
