//! Runs the check of this machine's own service (`--check`) over and over, and tells each outcome.
//! What follows from them is `core::health`'s and the control loop's to say.
//!
//! A thread of its own: a check that hangs or floods must not slow anything else, and programs are
//! started from a thread that has given up gaining privileges for good ([`exec`]).

mod ask;
mod exec;

use std::io;
use std::net::Ipv4Addr;

use conflux_core::health::{LIMIT, PAUSE};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::files::CheckSpec;

/// Outcomes that wait for the control loop; a check is run again only once its last outcome was
/// taken.
pub(crate) const OUTCOMES: usize = 4;

/// What one run came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ran {
    /// Of which checker: one that was replaced may still have one on its way.
    pub(crate) checker: u64,
    /// Nothing, or why it failed.
    pub(crate) outcome: Result<(), String>,
}

/// A check that is being run; ends, with the program it may have started, when dropped.
#[derive(Debug)]
pub(crate) struct Checker {
    number: u64,
    _stop: oneshot::Sender<()>,
}

impl Checker {
    /// Starts to run `spec`, for the shared address `address`. `number` names it in [`Ran`].
    ///
    /// # Errors
    /// When the process has no thread or descriptor left.
    pub(crate) fn start(
        number: u64,
        spec: CheckSpec,
        address: Ipv4Addr,
        outcomes: mpsc::Sender<Ran>,
    ) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("conflux-check".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        // Also when the checker was dropped.
                        _ = stopped => {}
                        () = run(number, &spec, address, &outcomes) => {}
                    }
                });
            })?;
        Ok(Self {
            number,
            _stop: stop,
        })
    }

    /// Returns its number.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }
}

async fn run(number: u64, spec: &CheckSpec, address: Ipv4Addr, outcomes: &mpsc::Sender<Ran>) {
    loop {
        let outcome = match timeout(LIMIT, once(spec, address)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("no end after {} s", LIMIT.as_secs())),
        };
        let ran = Ran {
            checker: number,
            outcome,
        };
        if outcomes.send(ran).await.is_err() {
            return;
        }
        sleep(PAUSE).await;
    }
}

async fn once(spec: &CheckSpec, address: Ipv4Addr) -> Result<(), String> {
    match spec {
        CheckSpec::Tcp(port) => ask::tcp((address, *port).into()).await,
        CheckSpec::Http { address, path } => ask::http(*address, path).await,
        CheckSpec::Exec { program, arguments } => exec::run(program, arguments, &address).await,
    }
}
