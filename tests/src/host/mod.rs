//! One machine of the lab: its own network, mounts, processes and host name, nothing of which has
//! a name outside. Programs and sockets are put into it; all of it ends with the last handle, or
//! with the test when that is killed.

mod cradle;
mod program;
mod spawner;

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use ipnet::Ipv4Net;
use nix::sched::{CloneFlags, setns};

use cradle::Cradle;
pub(crate) use program::Scope;
pub use program::{Answer, HostCommand, Program};

/// A machine of the lab; clones are handles on the same one.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    port: usize,
    cradle: Cradle,
}

impl Host {
    /// Makes a machine with nothing but a loopback; `port` is its place on the lab's segment.
    pub(crate) fn new(name: &str, port: usize) -> Self {
        let cradle = spawner::run(Cradle::start).unwrap_or_else(|error| {
            panic!("no namespaces for host {name}: {error}; the lab needs root")
        });
        let host = Self {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                port,
                cradle,
            }),
        };
        host.enter(|| {
            for (setting, value) in [("accept_dad", "0"), ("router_solicitations", "0")] {
                for scope in ["all", "default"] {
                    // Absent where the kernel has no IPv6.
                    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/{setting}"), value);
                }
            }
        });
        host.ip(["link set lo up"]);
        host
    }

    /// Runs `work` on a thread inside this host's network; sockets made there stay in it.
    ///
    /// # Panics
    ///
    /// When `work` does.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.join_network();
                work()
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Starts a thread inside this host's network.
    pub fn thread<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let host = self.clone();
        thread::Builder::new()
            .name(format!("{}-{name}", self.name()))
            .spawn(move || {
                host.join_network();
                work()
            })
            .expect("a thread can be started")
    }

    /// Returns a command that sees all of this host.
    pub fn command(&self, program: impl AsRef<OsStr>) -> HostCommand {
        HostCommand::new(self.clone(), program.as_ref(), Scope::Whole)
    }

    /// Runs lines of `ip -batch` on this host's network.
    ///
    /// # Panics
    ///
    /// When one of them is refused.
    pub fn ip<S: AsRef<str>>(&self, lines: impl IntoIterator<Item = S>) {
        let batch: Vec<String> = lines
            .into_iter()
            .map(|line| line.as_ref().to_owned())
            .collect();
        HostCommand::new(self.clone(), "ip".as_ref(), Scope::Network)
            .args(["-batch", "-"])
            .input(batch.join("\n") + "\n")
            .must();
    }

    /// Makes every address of `range` this host's own, without listing any.
    pub fn own_range(&self, range: Ipv4Net) {
        self.ip([format!("route add local {range} dev lo")]);
    }

    /// Returns where a path of this host is found from outside, `/run` and `/proc` included.
    pub fn outside_path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.inner.cradle.init))
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the process id that stands for its namespaces.
    pub fn init(&self) -> i32 {
        self.inner.cradle.init.as_raw()
    }

    /// Returns its IPv4 address on the lab's segment.
    pub fn ipv4(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 99, 0, 0)) + self.number())
    }

    /// Returns its IPv6 address on the lab's segment.
    pub fn ipv6(&self) -> Ipv6Addr {
        Ipv6Addr::from((0xfd00_0099 << 96) | u128::from(self.number()))
    }

    /// Returns its place on the lab's segment.
    pub(crate) fn port(&self) -> usize {
        self.inner.port
    }

    fn number(&self) -> u32 {
        u32::try_from(self.inner.port).expect("a lab is small") + 1
    }

    fn join_network(&self) {
        setns(&self.inner.cradle.net, CloneFlags::CLONE_NEWNET)
            .expect("a root thread can enter a namespace it holds");
    }
}
