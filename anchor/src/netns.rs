//! A network namespace for one test: the calling test's closure runs on a thread of its own that
//! has left everybody else's network. Nothing is named, so tests run side by side, and the
//! namespace goes when the last thing in it does.

use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Runs `test` as root in a fresh namespace whose loopback is up.
pub(crate) fn in_namespace<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("these tests run as root");
        ip("link set lo up");
        test()
    });
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// As [`in_namespace`], on a tokio runtime that never leaves the thread.
pub(crate) fn in_namespace_async<T: Send + 'static, F: Future<Output = T>>(
    test: impl FnOnce() -> F + Send + 'static,
) -> T {
    in_namespace(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(test())
    })
}

/// Runs iproute2 in the namespace of this thread and returns what it said.
pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
