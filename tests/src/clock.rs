//! Another time of day for a single program: a small library that is loaded before the C library
//! and shifts CLOCK_REALTIME. The machine's own clock is never touched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What the library is made of; `cc` is needed to build the product too.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, clock, time);
    const char *shift = getenv("LAB_CLOCK_SHIFT");
    if (!failed && clock == CLOCK_REALTIME && shift) time->tv_sec += atoll(shift);
    return failed;
}
"#;

/// Returns the environment that makes a dynamically linked program see a shifted time of day.
///
/// # Panics
///
/// When the library cannot be built.
pub fn shifted_by(seconds: i64) -> Vec<(String, String)> {
    let library = library().to_string_lossy().into_owned();
    vec![
        ("LD_PRELOAD".to_owned(), library),
        ("LAB_CLOCK_SHIFT".to_owned(), seconds.to_string()),
    ]
}

/// Builds the library beside this program, once for each process.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = std::env::current_exe().expect("a program knows its own path");
        let library = program.with_file_name("lab-clock.so");
        let draft = library.with_extension(std::process::id().to_string());
        let source = tempfile::Builder::new().suffix(".c").tempfile();
        let source = source.expect("a temporary file can be made");
        fs::write(source.path(), SOURCE).expect("a temporary file can be written");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([draft.as_path(), source.path()])
            .status();
        assert!(
            built.is_ok_and(|status| status.success()),
            "cc could not build the clock"
        );
        // At once and whole, since other tests may be loading it.
        fs::rename(&draft, &library).expect("a file can be renamed in its directory");
        library
    })
}
