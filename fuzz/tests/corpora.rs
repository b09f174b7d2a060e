//! The fuzz targets without a fuzzer: on what they begin with, on the committed corpora, and on
//! seeded mutations of both. An input that fails is printed and kept; committed below
//! `corpora/TARGET`, it is tried for ever after.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use conflux_fuzz::{TARGETS, Target, mutate};

/// Mutations of a target's inputs that are tried; `FUZZ_MUTATIONS` says otherwise. They take a few
/// seconds for all targets together in a debug build.
const MUTATIONS: usize = 4000;

/// Where the mutations begin; `FUZZ_SEED` says otherwise.
const SEED: u64 = 1;

#[test]
fn committed_inputs_hold() {
    for target in &TARGETS {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "{}: no corpus", target.name);
        for input in inputs {
            attempt(target, &input);
        }
    }
}

#[test]
fn mutations_of_frames_hold() {
    mutations_hold("frames");
}

#[test]
fn mutations_of_messages_hold() {
    mutations_hold("messages");
}

#[test]
fn mutations_of_statements_hold() {
    mutations_hold("statements");
}

#[test]
fn mutations_of_chains_hold() {
    mutations_hold("chain");
}

#[test]
fn mutations_of_tickets_hold() {
    mutations_hold("tickets");
}

#[test]
fn mutations_of_requests_hold() {
    mutations_hold("requests");
}

#[test]
fn mutations_of_packets_hold() {
    mutations_hold("packets");
}

#[test]
fn mutations_of_translated_packets_hold() {
    mutations_hold("translate");
}

#[test]
fn mutations_of_scripts_of_the_whole_core_hold() {
    mutations_hold("core");
}

#[test]
fn every_target_has_its_fuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let makefile = fs::read_to_string(folder.join("../../Makefile")).unwrap();
    for target in TARGETS {
        let file = folder.join(format!("targets/{}.rs", target.name));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("run(\"{}\", bytes)", target.name)));
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)));
        let listed = makefile
            .lines()
            .find(|line| line.starts_with("FUZZ_TARGETS"));
        let listed = listed.unwrap().split_whitespace();
        assert!(listed.into_iter().any(|word| word == target.name));
    }
}

fn mutations_hold(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let inputs = inputs(target);
    let mut random = fastrand::Rng::with_seed(setting("FUZZ_SEED").unwrap_or(SEED));
    let count = setting("FUZZ_MUTATIONS").unwrap_or(MUTATIONS as u64);
    for _ in 0..count {
        let one = &inputs[random.usize(..inputs.len())];
        let other = &inputs[random.usize(..inputs.len())];
        attempt(target, &mutate(&mut random, one, other));
    }
}

/// Tries an input; one that fails is written beside the fuzzer's own finds and named.
fn attempt(target: &Target, input: &[u8]) {
    let tried = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    if tried.is_ok() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer/artifacts");
    let file = folder.join(format!("{}-failed", target.name));
    fs::create_dir_all(&folder).unwrap();
    fs::write(&file, input).unwrap();
    panic!("{} fails on {} ({input:02x?})", target.name, file.display());
}

/// Returns what there is to begin with: in a fixed order, for the mutations to be the same again.
fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpora")
        .join(target.name);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = files.iter().map(|file| fs::read(file).unwrap());
    (target.seeds)().into_iter().chain(read).collect()
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}
