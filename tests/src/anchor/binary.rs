//! Where the binary under test is.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the absolute path of the `conflux` binary: `CONFLUX_BIN`, else the release build, else
/// the debug build beside this program.
///
/// # Panics
///
/// When there is none; the text says how to make one.
pub fn binary() -> PathBuf {
    if let Some(named) = env::var_os("CONFLUX_BIN") {
        let path = absolute(Path::new(&named));
        assert!(path.is_file(), "CONFLUX_BIN={} is no file", path.display());
        return path;
    }
    let target = target_directory();
    let found = ["release", "debug"]
        .map(|profile| target.join(profile).join("conflux"))
        .into_iter()
        .find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "no conflux binary in {}/release or /debug: `cargo build --release --bin conflux` \
             makes one, CONFLUX_BIN names another",
            target.display()
        )
    })
}

/// Returns the absolute path of the binary of the release after this one, as `make next` builds it
/// from the same sources: `CONFLUX_NEXT_BIN`, else beside the other with `-next` behind its name.
///
/// # Panics
///
/// When there is none; the text says how to make one.
pub fn next_binary() -> PathBuf {
    let path = match env::var_os("CONFLUX_NEXT_BIN") {
        Some(named) => absolute(Path::new(&named)),
        None => {
            let mut name = binary().into_os_string();
            name.push("-next");
            name.into()
        }
    };
    assert!(
        path.is_file(),
        "{} is not there: `make next` makes it, CONFLUX_NEXT_BIN names another",
        path.display()
    );
    path
}

/// The directory cargo built this program in: two or three levels above it.
fn target_directory() -> PathBuf {
    let program = env::current_exe().expect("a program knows its own path");
    let profile = program
        .ancestors()
        .find(|path| path.ends_with("debug") || path.ends_with("release"));
    profile
        .and_then(Path::parent)
        .unwrap_or_else(|| Path::new("target"))
        .to_path_buf()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).expect("the working directory exists")
}
