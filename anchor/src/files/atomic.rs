//! Files that are whole or absent: written beside their place, synced and renamed over it, so
//! that a crash or a full disk leaves the old text. Parents are made when they are missing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Who may read a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The owner only: 0600.
    Secret,
    /// Everybody: 0644.
    Readable,
}

impl Mode {
    fn bits(self) -> u32 {
        match self {
            Self::Secret => 0o600,
            Self::Readable => 0o644,
        }
    }
}

/// Writes a file at one stroke and waits until it is on the disk.
///
/// # Errors
///
/// What the system says; the file is as before then.
pub fn write(path: &Path, bytes: &[u8], mode: Mode) -> io::Result<()> {
    let parent = path
        .parent()
        .ok_or_else(|| io::Error::other("a file has a directory"))?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(parent)?;
    let beside = beside(path);
    let outcome = write_beside(&beside, bytes, mode).and_then(|()| fs::rename(&beside, path));
    if outcome.is_err() {
        // The error that is told is the first one; a leftover is overwritten next time.
        let _ = fs::remove_file(&beside);
    }
    outcome?;
    File::open(parent)?.sync_all()
}

/// Reads a file, or none when there is none.
///
/// # Errors
///
/// What the system says, or that the file has more than `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // In one piece: a buffer that grows leaves copies behind, of secrets too.
    let length = file.metadata()?.len().min(max_bytes);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0).saturating_add(1));
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::other(format!(
            "more than {max_bytes} bytes: not a file of ours"
        )));
    }
    Ok(Some(bytes))
}

/// Reads a text file, or none when there is none.
///
/// # Errors
///
/// As [`read`], and when it is not UTF-8.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<Option<String>> {
    read(path, max_bytes)?
        .map(|bytes| String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8 text")))
        .transpose()
}

/// Removes a file; one that is not there is fine.
///
/// # Errors
///
/// What the system says.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn write_beside(path: &Path, bytes: &[u8], mode: Mode) -> io::Result<()> {
    remove(path)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode.bits())
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_with_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/file");

        write(&path, b"first", Mode::Readable).unwrap();
        write(&path, b"second", Mode::Secret).unwrap();

        assert_eq!(read(&path, 100).unwrap().unwrap(), b"second");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_missing_is_told_from_what_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");

        assert!(read(&path, 3).unwrap().is_none());
        remove(&path).unwrap();
        fs::write(&path, b"\xff\xff\xff\xff").unwrap();

        assert!(read(&path, 3).is_err());
        assert!(read_text(&path, 4).is_err());
    }
}
