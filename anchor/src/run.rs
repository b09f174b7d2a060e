//! The daemon's entry.

use anyhow::anyhow;

use crate::files::Layout;

/// What a start needs to know besides the configuration in its layout.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where the installation keeps its files.
    pub layout: Layout,
    /// The text of a ticket to join with; also in the state directory as
    /// [`crate::files::StateFile::Ticket`], which goes once this anchor is a member.
    pub ticket: Option<String>,
}

/// Runs the anchor until it is told to stop.
///
/// # Errors
///
/// When it cannot start, or cannot go on.
pub fn run(options: RunOptions) -> anyhow::Result<()> {
    Err(anyhow!(
        "this build has no daemon; {} was left as it is",
        options.layout.state.display()
    ))
}
