//! What the daemon and the CLI keep on disk: the configuration, and the state directory with
//! identity, credential and everything that survives a restart. Every file is written whole or
//! not at all, carries a version, and is left alone when a newer version wrote it.

pub mod atomic;
mod check_spec;
mod config;
mod layout;
mod leases;
mod relay_choice;
pub mod settings;
mod state;

pub use check_spec::CheckSpec;
pub use config::{Config, ConfigError};
pub use layout::Layout;
pub use leases::SavedLease;
pub use relay_choice::RelayChoice;
pub use state::{InstallLock, State, StateError, StateFile};
