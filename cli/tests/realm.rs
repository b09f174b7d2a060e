//! The realm's key on its way from one machine to another. Needs root, as the commands do.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod support;

use std::fs;
use std::path::PathBuf;

use conflux_anchor::files::{State, StateFile};
use conflux_core::identity::RealmSecret;
use support::Machine;

#[test]
fn a_realms_key_gets_to_another_machine_by_an_encrypted_export() {
    let (first, second) = (holder(7), Machine::new());
    let passphrase = passphrase(&first, "a passphrase of some length");

    let exported = first.conflux(&["realm", "export", "--passphrase-file", &passphrase]);
    let file = save(&first, &exported.stdout);
    let imported = second.conflux(&["realm", "import", &file, "--passphrase-file", &passphrase]);

    assert_eq!(exported.code, 0, "{}", exported.stderr);
    assert!(
        exported
            .stdout
            .starts_with("-----BEGIN AGE ENCRYPTED FILE-----\n")
    );
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    assert!(
        imported.stdout.contains("conflux up"),
        "{}",
        imported.stdout
    );
    let state = State::open(&second.layout).unwrap();
    let seed = state.read_key(StateFile::RealmSecret).unwrap().unwrap();
    assert_eq!(*seed, [7; 32]);
    assert_eq!(
        state.realm().unwrap(),
        Some(RealmSecret::from_seed(&[7; 32]).key())
    );
}

#[test]
fn a_wrong_passphrase_or_file_changes_nothing() {
    let (first, second) = (holder(7), Machine::new());
    let right = passphrase(&first, "a passphrase of some length");
    let exported = first.conflux(&["realm", "export", "--passphrase-file", &right]);
    let file = save(&first, &exported.stdout);
    let wrong = passphrase(&second, "another passphrase of some length");
    let garbage = save(&second, "garbage");

    for (file, passphrase, why) in [
        (file.as_str(), wrong.as_str(), "passphrase is wrong"),
        (garbage.as_str(), right.as_str(), "is not a file encrypted"),
        ("/nowhere", right.as_str(), "No such file"),
    ] {
        let done = second.conflux(&["realm", "import", file, "--passphrase-file", passphrase]);

        assert_eq!(done.code, 2, "{}", done.stderr);
        assert!(
            done.stderr.contains(why) && done.stderr.contains("nothing was changed"),
            "{}",
            done.stderr
        );
        assert!(second.is_untouched());
    }
}

#[test]
fn a_machine_of_another_realm_keeps_its_own_key() {
    let (first, second) = (holder(7), holder(8));
    let passphrase = passphrase(&first, "a passphrase of some length");
    let exported = first.conflux(&["realm", "export", "--passphrase-file", &passphrase]);
    let file = save(&first, &exported.stdout);

    let done = second.conflux(&["realm", "import", &file, "--passphrase-file", &passphrase]);

    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(done.stderr.contains("uninstall"), "{}", done.stderr);
    let state = State::open(&second.layout).unwrap();
    assert_eq!(
        *state.read_key(StateFile::RealmSecret).unwrap().unwrap(),
        [8; 32]
    );
}

#[test]
fn an_export_needs_the_key_and_a_passphrase_worth_the_name() {
    let without = Machine::new();
    let member = Machine::new();
    State::open(&member.layout).unwrap();
    let short = passphrase(&member, "short");

    let nowhere = without.conflux(&["realm", "export", "--passphrase-file", &short]);
    let keyless = member.conflux(&["realm", "export", "--passphrase-file", &short]);
    let weak = holder(7).conflux(&["realm", "export", "--passphrase-file", &short]);
    let unasked = holder(7).conflux(&["realm", "export", "--passphrase-file", "/nowhere"]);

    assert_eq!(nowhere.code, 78, "{}", nowhere.stderr);
    assert_eq!(keyless.code, 1, "{}", keyless.stderr);
    assert!(
        keyless.stderr.contains("does not hold"),
        "{}",
        keyless.stderr
    );
    assert_eq!(weak.code, 2, "{}", weak.stderr);
    assert!(weak.stderr.contains("too short"), "{}", weak.stderr);
    assert_eq!((unasked.code, unasked.stdout.as_str()), (2, ""));
}

/// A machine whose state has the realm key of a seed.
fn holder(seed: u8) -> Machine {
    let machine = Machine::new();
    let state = State::open(&machine.layout).unwrap();
    let realm = RealmSecret::from_seed(&[seed; 32]);
    state.write(StateFile::RealmSecret, realm.seed()).unwrap();
    state.write(StateFile::Realm, &realm.key().0).unwrap();
    machine
}

fn passphrase(machine: &Machine, text: &str) -> String {
    write(machine, "passphrase", text)
}

fn save(machine: &Machine, export: &str) -> String {
    write(machine, "export.age", export)
}

fn write(machine: &Machine, name: &str, text: &str) -> String {
    let path: PathBuf = machine.directory.path().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}
