//! Where one installation keeps its files: the system's places, or everything below one
//! directory (`--dir`), so that several anchors can live on one machine. Only names; nothing here
//! touches a disk, [`Layout::below`] making its argument absolute excepted.

use std::io;
use std::path::{Path, PathBuf};

/// The paths of one installation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    root: Option<PathBuf>,
    /// The configuration file.
    pub config: PathBuf,
    /// The directory of identity, credential and everything else worth keeping; mode 0700.
    pub state: PathBuf,
    /// The socket the daemon answers the CLI on.
    pub socket: PathBuf,
    /// The log of a daemon that no service manager runs.
    pub log: PathBuf,
}

impl Layout {
    /// Returns the system's layout: `/etc/conflux`, `/var/lib/conflux`, `/run/conflux`.
    pub fn system() -> Self {
        Self {
            root: None,
            config: PathBuf::from("/etc/conflux/conflux.toml"),
            state: PathBuf::from("/var/lib/conflux"),
            socket: PathBuf::from("/run/conflux/conflux.sock"),
            log: PathBuf::from("/var/log/conflux.log"),
        }
    }

    /// Returns the layout below `dir`, which need not exist: `etc/conflux.toml`, `state`,
    /// `run/conflux.sock`, `log/conflux.log`.
    ///
    /// # Errors
    ///
    /// When `dir` is empty, or relative and the working directory is gone.
    pub fn below(dir: &Path) -> io::Result<Self> {
        let root = std::path::absolute(dir)?;
        Ok(Self {
            config: root.join("etc/conflux.toml"),
            state: root.join("state"),
            socket: root.join("run/conflux.sock"),
            log: root.join("log/conflux.log"),
            root: Some(root),
        })
    }

    /// Returns the directory of `--dir`, none for the system's installation.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Returns the directories this installation owns alone; `uninstall` removes them when empty.
    pub fn directories(&self) -> Vec<&Path> {
        let mut directories: Vec<&Path> = [&self.config, &self.socket, &self.log]
            .into_iter()
            .filter_map(|file| file.parent())
            .filter(|directory| *directory != Path::new("/var/log"))
            .collect();
        directories.push(&self.state);
        directories.extend(self.root());
        directories
    }

    /// Returns the name of the boot service, another one for each `--dir`.
    pub fn unit(&self) -> String {
        let Some(root) = self.root() else {
            return "conflux.service".to_owned();
        };
        let mut name = String::from("conflux");
        for part in root.components().skip(1) {
            name.push('-');
            for byte in part.as_os_str().as_encoded_bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' => {
                        name.push(char::from(*byte));
                    }
                    other => name.push_str(&format!("\\x{other:02x}")),
                }
            }
        }
        name + ".service"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_roots_a_whole_installation() {
        let layout = Layout::below(Path::new("/srv/a")).unwrap();

        assert_eq!(layout.config, Path::new("/srv/a/etc/conflux.toml"));
        assert_eq!(layout.state, Path::new("/srv/a/state"));
        assert_eq!(layout.socket, Path::new("/srv/a/run/conflux.sock"));
        assert_eq!(layout.log, Path::new("/srv/a/log/conflux.log"));
        assert!(Layout::below(Path::new("rel")).unwrap().state.is_absolute());
    }

    #[test]
    fn two_directories_never_share_a_service_name() {
        let names = ["/a/b", "/a-b", "/a", "/a/ b"]
            .map(|dir| Layout::below(Path::new(dir)).unwrap().unit());

        assert_eq!(Layout::system().unit(), "conflux.service");
        assert_eq!(
            names,
            [
                "conflux-a-b.service",
                "conflux-a\\x2db.service",
                "conflux-a.service",
                "conflux-a-\\x20b.service"
            ]
        );
    }

    #[test]
    fn the_shared_log_directory_is_not_ours_to_remove() {
        assert!(
            !Layout::system()
                .directories()
                .contains(&Path::new("/var/log"))
        );
    }
}
