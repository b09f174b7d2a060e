//! The daemon's entry: the installation's lock, the local socket, signals, and one anchor after
//! another until one was told to stop.

use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{error, info, warn};
use zeroize::Zeroizing;

use crate::api::{self, LocalSocket, Refusal};
use crate::control::{self, Anchor, Asked, Carried, Ended};
use crate::files::{Config, Layout, State};
use crate::{privileges, service};

/// Pause before an anchor whose interface was taken away starts anew.
const PAUSE_BEFORE_RESTART: Duration = Duration::from_millis(500);

/// What a start needs to know besides the configuration in its layout.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where the installation keeps its files.
    pub layout: Layout,
    /// The text of a ticket to join with; also in the state directory as
    /// [`crate::files::StateFile::Ticket`], which goes once this anchor is a member that knows
    /// others.
    pub ticket: Option<Zeroizing<String>>,
}

/// Runs the anchor until it is told to stop, by a signal or the local socket. The process can do
/// less afterwards: it keeps CAP_NET_ADMIN and no other capability, but for those that a program
/// as check takes.
///
/// # Errors
/// When it cannot start, or cannot go on.
pub fn run(options: RunOptions) -> anyhow::Result<()> {
    // A configuration that cannot be read is reported where it is needed.
    let config = Config::load(&options.layout).ok();
    privileges::give_up(config.is_some_and(|config| config.runs_programs()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_name("conflux-control")
        .build()
        .context("cannot start the control threads")?;
    let result = runtime.block_on(run_anchors(options));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run_anchors(options: RunOptions) -> anyhow::Result<()> {
    let RunOptions { layout, mut ticket } = options;
    let state = State::open(&layout)?;
    let _lock = state.lock()?;
    let (mut terminate, _signals) = terminations()?;
    let mut first = true;
    let (ask, mut requests) = mpsc::channel(api::QUEUE_LENGTH);
    let mut socket = None;
    let mut change = Change::default();
    loop {
        let config = Config::load(&layout)?;
        for key in &config.unknown_keys {
            warn!(
                key,
                "this version does not know a setting; it is kept and ignored"
            );
        }
        let anchor = {
            // Not a moment longer than needed: whoever reads it can join.
            let ticket = match ticket.take() {
                Some(text) => Some(text),
                None => state.ticket()?,
            };
            let text = ticket.as_deref().map(String::as_str);
            change.start(&layout, &state, config, text).await?
        };
        if socket.is_none() {
            socket = Some(open_socket(&layout, &ask)?);
        }
        if first {
            service::notify_ready();
            first = false;
        }
        let (ended, carried) = anchor.run(&mut requests, &mut terminate).await;
        change.carried = carried;
        match ended {
            Ended::Stopped => {
                service::notify_stopping();
                info!("stopped");
                return Ok(());
            }
            Ended::Restart(asked) => {
                info!("starting anew with the changed configuration");
                change.asked = Some(asked);
            }
            Ended::InterfaceGone => {
                warn!("the interface was taken away; starting anew");
                tokio::time::sleep(PAUSE_BEFORE_RESTART).await;
            }
        }
    }
}

/// What one anchor leaves to the next.
#[derive(Default)]
struct Change {
    carried: Option<Carried>,
    /// The configuration an anchor last started with.
    proven: Option<Config>,
    /// Whoever asked for a change of it.
    asked: Option<Asked>,
}

impl Change {
    /// Starts an anchor. A change that somebody asked for and that does not work is refused, and
    /// the configuration of before goes on.
    async fn start(
        &mut self,
        layout: &Layout,
        state: &State,
        config: Config,
        ticket: Option<&str>,
    ) -> anyhow::Result<Anchor> {
        let carried = &mut self.carried;
        let started = control::start(layout, state.clone(), config.clone(), ticket, carried).await;
        let asked = self.asked.take();
        let error = match started {
            Ok(anchor) => {
                self.proven = Some(config);
                if let Some(asked) = asked {
                    asked.tell(Ok(()));
                }
                return Ok(anchor);
            }
            Err(error) => error,
        };
        let (Some(asked), Some(proven)) = (asked, self.proven.clone()) else {
            return Err(error);
        };
        warn!(
            error = format!("{error:#}"),
            "the changed configuration does not work; going on with the one before"
        );
        asked.tell(Err(Refusal::Failed(format!("{error:#}"))));
        control::start(layout, state.clone(), proven, ticket, &mut self.carried).await
    }
}

/// Binds the local socket and answers on it; both end with what is returned.
fn open_socket(
    layout: &Layout,
    ask: &mpsc::Sender<api::Request>,
) -> anyhow::Result<(LocalSocket, AbortOnDrop)> {
    let socket = LocalSocket::bind(layout).context("cannot open the local socket")?;
    let listener = socket.listener()?;
    let ask = ask.clone();
    let task = tokio::spawn(async move {
        if let Err(error) = api::serve(listener, ask).await {
            error!(%error, "the local socket is not answered any more");
        }
    });
    Ok((socket, AbortOnDrop(task)))
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns a channel that yields once for each SIGTERM or SIGINT.
fn terminations() -> anyhow::Result<(mpsc::Receiver<()>, AbortOnDrop)> {
    let mut term = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let (told, tell) = mpsc::channel(1);
    let task = tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
                // A terminal that went away is no reason to stop.
                _ = hangup.recv() => continue,
            }
            if told.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok((tell, AbortOnDrop(task)))
}
