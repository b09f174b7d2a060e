//! Writes what each target begins with below a folder: `seeds FOLDER`. Files are named by their
//! content, so that writing them twice changes nothing.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use conflux_fuzz::TARGETS;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return ExitCode::from(2);
    };
    for target in TARGETS {
        let folder = folder.join(target.name);
        let written = fs::create_dir_all(&folder).and_then(|()| {
            (target.seeds)().iter().try_for_each(|seed| {
                let name = HEXLOWER.encode(&Sha256::digest(seed)[..20]);
                fs::write(folder.join(name), seed)
            })
        });
        if written.is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
