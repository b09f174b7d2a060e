//! The one binary: the command line, and with `conflux run` the daemon.
#![forbid(unsafe_code)]

mod args;
mod client;
mod configure;
mod drain;
mod exit;
mod explain;
mod lifecycle;
mod realm;
mod show;
mod table;
mod tables;
mod trust;

use std::process::ExitCode;

use clap::Parser;
use conflux_anchor::files::Layout;

use args::{Cli, Command, RealmCommand, TableFlags};
use exit::{Exit, Outcome, note};

fn main() -> ExitCode {
    // Ends by itself with exit 2 on wrong usage, 0 after --help.
    let cli = Cli::parse();
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            note(format!("error: {:#}", failure.error));
            failure.exit.into()
        }
    }
}

fn dispatch(cli: Cli) -> Outcome {
    let layout = match &cli.dir {
        Some(dir) => Layout::below(dir)
            .map_err(|error| Exit::Usage.because(format!("--dir {}: {error}", dir.display())))?,
        None => Layout::system(),
    };
    if cli.version {
        return tables::version(&layout, TableFlags { json: false });
    }
    let Some(command) = cli.command else {
        return Err(Exit::Usage.because("a command is missing; `conflux --help` lists them"));
    };
    match command {
        Command::Up(flags) => lifecycle::up(&layout, &flags),
        Command::Down => lifecycle::down(&layout),
        Command::Start => lifecycle::start(&layout),
        Command::Uninstall(flags) => lifecycle::uninstall(&layout, flags),
        Command::Run(flags) => lifecycle::run(&layout, &flags),
        Command::Status(flags) => tables::print(&layout, "/v1/status", flags, show::status),
        Command::Routes(flags) => tables::print(&layout, "/v1/routes", flags, show::routes),
        Command::Peers(flags) => tables::print(&layout, "/v1/peers", flags, show::peers),
        Command::Flows(flags) => tables::print(&layout, "/v1/flows", flags, show::flows),
        Command::Explain(flags) => explain::explain(&layout, &flags),
        Command::Drain(flags) => drain::drain(&layout, &flags),
        Command::Undrain => drain::undrain(&layout),
        Command::Members(flags) => tables::print(&layout, "/v1/members", flags, trust::members),
        Command::Invite(flags) => tables::invite(&layout, &flags),
        Command::Revoke(flags) => trust::revoke(&layout, &flags),
        Command::Realm(RealmCommand::Export(flags)) => realm::export(&layout, &flags),
        Command::Realm(RealmCommand::Import(flags)) => realm::import(&layout, &flags),
        Command::Metrics(flags) => tables::metrics(&layout, flags),
        Command::Version(flags) => tables::version(&layout, flags),
    }
}
