//! The socket's place in the file system: made with the right owner and mode before anybody can
//! connect, taken over after a crash, and reachable even where its path is longer than the 107
//! bytes a Unix socket address holds.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::access::conflux_group;
use crate::files::Layout;

/// What `sun_path` holds, without the closing zero.
const MAX_ADDRESS_BYTES: usize = 107;

/// Root and the group read and write; connecting needs write.
const SOCKET_MODE: u32 = 0o660;

/// The bound socket; its file goes when this is dropped.
#[derive(Debug)]
pub struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalSocket {
    /// Binds the installation's socket. The caller holds the installation's lock, so that a file
    /// already there is a leftover of a crash and is replaced.
    ///
    /// # Errors
    ///
    /// What the system says, with the path.
    pub fn bind(layout: &Layout) -> io::Result<Self> {
        let path = layout.socket.clone();
        let told = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("local socket {}: {error}", path.display()),
            )
        };
        let parent = path
            .parent()
            .ok_or_else(|| io::Error::other("a socket has a directory"))?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)
            .map_err(told)?;
        crate::files::atomic::remove(&path).map_err(told)?;
        let listener = bind_restricted(&path).map_err(told)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path })
    }

    /// Returns another handle on the listening socket, for a runtime to accept from.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        // Nothing to tell anybody: the next start replaces a leftover.
        let _ = fs::remove_file(&self.path);
    }
}

/// A path that names a socket and fits an address: the path itself, or one through an open
/// descriptor of its directory, for as long as this lives.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    _directory: Option<File>,
}

impl SocketPath {
    /// Finds a path for `socket`.
    ///
    /// # Errors
    ///
    /// What opening the directory says.
    pub fn of(socket: &Path) -> io::Result<Self> {
        let plain = || Self {
            path: socket.to_owned(),
            _directory: None,
        };
        if socket.as_os_str().len() <= MAX_ADDRESS_BYTES {
            return Ok(plain());
        }
        let (Some(parent), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Ok(plain());
        };
        let directory = File::open(parent)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
        Ok(Self {
            path,
            _directory: Some(directory),
        })
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// Binds under a name nobody knows, sets owner and mode, and only then moves it into place.
fn bind_restricted(path: &Path) -> io::Result<UnixListener> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    crate::files::atomic::remove(&beside)?;
    let listener = UnixListener::bind(SocketPath::of(&beside)?)?;
    if let Some(group) = conflux_group()
        && let Err(error) = chown(&beside, None, Some(group.as_raw()))
    {
        tracing::warn!(%error, "the group conflux cannot be given the local socket");
    }
    fs::set_permissions(&beside, Permissions::from_mode(SOCKET_MODE))?;
    fs::rename(&beside, path)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_socket_is_for_root_and_the_group_and_goes_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::below(directory.path()).unwrap();

        let socket = LocalSocket::bind(&layout).unwrap();

        let mode = fs::metadata(&layout.socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, SOCKET_MODE);
        drop(socket);
        assert!(!layout.socket.exists());
    }

    #[test]
    fn a_leftover_of_a_crash_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::below(directory.path()).unwrap();
        fs::create_dir_all(layout.socket.parent().unwrap()).unwrap();
        drop(UnixListener::bind(&layout.socket).unwrap());

        let _socket = LocalSocket::bind(&layout).unwrap();

        assert!(UnixStream::connect(&layout.socket).is_ok());
    }

    #[test]
    fn a_path_too_long_for_an_address_works() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::below(&directory.path().join("d".repeat(120))).unwrap();

        let _socket = LocalSocket::bind(&layout).unwrap();

        UnixStream::connect(SocketPath::of(&layout.socket).unwrap()).unwrap();
    }
}
