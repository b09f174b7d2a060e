//! A log file that never grows beyond a limit: when it is full it becomes `NAME.1`, that one
//! `NAME.2`, and the oldest goes. Standard error follows the newest file, so that the last words
//! of a panic are found there too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The size at which a file is put aside.
pub const MAX_LOG_BYTES: u64 = 10 * 1024 * 1024;

/// How many files there are at most, the one written to included.
pub const KEPT_FILES: u32 = 3;

/// An open, rotated log file.
#[derive(Debug)]
pub struct RotatingFile {
    path: PathBuf,
    file: File,
    written_bytes: u64,
    max_bytes: u64,
    stderr_follows: bool,
}

impl RotatingFile {
    /// Opens the file for appending, making its directory when there is none, and sends standard
    /// error there too.
    ///
    /// # Errors
    ///
    /// What the system says, with the path.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut rotating = Self::with_limit(path, MAX_LOG_BYTES)?;
        rotating.stderr_follows = true;
        nix::unistd::dup2_stderr(&rotating.file)?;
        Ok(rotating)
    }

    fn with_limit(path: &Path, max_bytes: u64) -> io::Result<Self> {
        let file = open_append(path)?;
        let written_bytes = file.metadata()?.len();
        let path = path.to_owned();
        Ok(Self {
            path,
            file,
            written_bytes,
            max_bytes,
            stderr_follows: false,
        })
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..KEPT_FILES).rev() {
            let older = numbered(&self.path, number);
            let newer = match number {
                1 => self.path.clone(),
                number => numbered(&self.path, number - 1),
            };
            match fs::rename(newer, older) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        self.file = open_append(&self.path)?;
        self.written_bytes = 0;
        if self.stderr_follows {
            nix::unistd::dup2_stderr(&self.file)?;
        }
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.written_bytes > 0 && self.written_bytes + line.len() as u64 > self.max_bytes {
            self.rotate()?;
        }
        let written = self.file.write(line)?;
        self.written_bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the files a log may consist of, newest first.
pub fn log_files(path: &Path) -> Vec<PathBuf> {
    let mut files = vec![path.to_owned()];
    files.extend((1..KEPT_FILES).map(|number| numbered(path, number)));
    files
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Opens a log file that only the owner reads: addresses of users may be in it.
pub(crate) fn open_append(path: &Path) -> io::Result<File> {
    let told = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("log file {}: {error}", path.display()),
        )
    };
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)
            .map_err(told)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_files_are_kept_and_lines_stay_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log/conflux.log");
        let mut log = RotatingFile::with_limit(&path, 20).unwrap();

        for number in 0..9 {
            log.write_all(format!("line {number}\n").as_bytes())
                .unwrap();
        }

        let texts: Vec<String> = log_files(&path)
            .iter()
            .map(|file| fs::read_to_string(file).unwrap())
            .collect();
        assert_eq!(texts, ["line 8\n", "line 6\nline 7\n", "line 4\nline 5\n"]);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 3);
    }

    #[test]
    fn an_existing_log_is_continued() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("conflux.log");
        fs::write(&path, "before\n").unwrap();

        RotatingFile::with_limit(&path, 100)
            .unwrap()
            .write_all(b"after\n")
            .unwrap();

        assert_eq!(fs::read_to_string(&path).unwrap(), "before\nafter\n");
    }
}
