//! A directory to install into, and the binary run on it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses its part, and may stop"
)]

use std::fs;

use std::process::{Command, Stdio};

use conflux_anchor::files::Layout;

/// A machine of its own, as far as files go.
pub(crate) struct Machine {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) layout: Layout,
}

/// How a command ended.
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::below(&directory.path().join("install")).unwrap();
        Self { directory, layout }
    }

    pub(crate) fn conflux(&self, arguments: &[&str]) -> Done {
        let output = Command::new(env!("CARGO_BIN_EXE_conflux"))
            .env("CONFLUX_DIR", self.layout.root().unwrap())
            .env_remove("CONFLUX_JOIN_FILE")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Done {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn is_untouched(&self) -> bool {
        !self.layout.root().unwrap().exists()
    }

    pub(crate) fn config(&self) -> String {
        fs::read_to_string(&self.layout.config).unwrap()
    }

    pub(crate) fn write_config(&self, text: &str) {
        fs::create_dir_all(self.layout.config.parent().unwrap()).unwrap();
        fs::write(&self.layout.config, text).unwrap();
    }
}
