//! The first process of a host: a fork of the test that holds the host's namespaces (net, mount,
//! pid, uts) open and reaps what its children leave. It dies with the test, and the kernel then
//! kills everything in its pid namespace and drops the rest, so no clean-up code is ever needed.
//!
//! Started on the spawner's thread only, since PR_SET_PDEATHSIG follows the thread that forked.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// A running first process and handles on its namespaces.
pub(super) struct Cradle {
    pub(super) init: Pid,
    pub(super) net: OwnedFd,
    pub(super) mount: OwnedFd,
    pub(super) pid: OwnedFd,
    pub(super) uts: OwnedFd,
}

impl Cradle {
    /// Forks a first process into new namespaces with its own `/proc`, `/run` and `/sys`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses a namespace or a mount; nothing is left behind then.
    pub(super) fn start() -> io::Result<Self> {
        let (mut ready, tell) = io::pipe()?;
        let flags = libc::CLONE_NEWNET
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWUTS
            | libc::SIGCHLD;
        // SAFETY: without CLONE_VM and with a null stack, clone behaves like fork; the child below
        // makes only async-signal-safe calls and never returns.
        let forked =
            unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) };
        if forked == 0 {
            // SAFETY: this is the child of the fork, which `settle` requires.
            unsafe { settle(tell.as_raw_fd()) }
        }
        drop(tell);
        if forked < 0 {
            return Err(io::Error::last_os_error());
        }
        let init = Pid::from_raw(i32::try_from(forked).map_err(io::Error::other)?);
        let mut errno = [0u8; 4];
        let opened = ready
            .read_exact(&mut errno)
            .and_then(|()| match i32::from_ne_bytes(errno) {
                0 => Self::open(init),
                errno => Err(io::Error::from_raw_os_error(errno)),
            });
        if opened.is_err() {
            end(init);
        }
        opened
    }

    fn open(init: Pid) -> io::Result<Self> {
        let namespace =
            |kind: &str| File::open(format!("/proc/{init}/ns/{kind}")).map(OwnedFd::from);
        Ok(Self {
            init,
            net: namespace("net")?,
            mount: namespace("mnt")?,
            pid: namespace("pid")?,
            uts: namespace("uts")?,
        })
    }
}

impl Drop for Cradle {
    fn drop(&mut self) {
        end(self.init);
    }
}

fn end(init: Pid) {
    // Either call fails only when the process is gone already.
    let _ = kill(init, Signal::SIGKILL);
    let _ = waitpid(init, None);
}

/// Sets the namespaces up, reports an errno (0 for success) and reaps children for ever.
///
/// # Safety
///
/// Only for the child of a fork: it closes every descriptor and never returns.
unsafe fn settle(tell: i32) -> ! {
    // SAFETY: plain system calls on constant strings and descriptors this process owns.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let done = own_mounts();
        let errno = if done { 0 } else { *libc::__errno_location() };
        let bytes = errno.to_ne_bytes();
        libc::write(tell, bytes.as_ptr().cast(), bytes.len());
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            libc::dup2(null, standard);
        }
        libc::close_range(3, u32::MAX, 0);
        let mut every = std::mem::zeroed();
        libc::sigemptyset(&raw mut every);
        libc::sigaddset(&raw mut every, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const every, ptr::null_mut());
        loop {
            while libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) > 0 {}
            libc::sigwaitinfo(&raw const every, ptr::null_mut());
        }
    }
}

/// Gives the mount namespace its own `/proc`, `/run`, `/sys` and `/etc/resolv.conf`.
///
/// # Safety
///
/// As for [`settle`].
unsafe fn own_mounts() -> bool {
    // SAFETY: plain system calls on constant strings.
    unsafe {
        let private = libc::mount(
            c"none".as_ptr(),
            c"/".as_ptr(),
            ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            ptr::null(),
        ) == 0;
        let fresh = |kind: &CStr, place: &CStr| {
            libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, ptr::null()) == 0
        };
        if !(private
            && fresh(c"proc", c"/proc")
            && fresh(c"sysfs", c"/sys")
            && fresh(c"tmpfs", c"/run"))
        {
            return false;
        }
        let file = libc::open(
            c"/run/resolv.conf".as_ptr(),
            libc::O_CREAT | libc::O_WRONLY,
            0o644,
        );
        libc::close(file);
        // A machine without the file has nothing to hide.
        libc::mount(
            c"/run/resolv.conf".as_ptr(),
            c"/etc/resolv.conf".as_ptr(),
            ptr::null(),
            libc::MS_BIND,
            ptr::null(),
        );
        true
    }
}
