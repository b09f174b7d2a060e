//! The target of this name in `conflux_fuzz`, given to libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| conflux_fuzz::run("statements", bytes));
