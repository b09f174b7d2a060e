//! Two releases side by side: this one, and one after it that the tests build from the same sources
//! with fields, messages and a state version that this one does not know.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use e2e::anchor::{binary, next_binary};
use e2e::scenario::{ANSWER_LIMIT, Holder, SETTLE_LIMIT, at, port};
use e2e::{Anchor, Lab, Options, wait, work};

/// What the later release calls itself.
const NEXT: &str = "0.2.0-next";

#[test]
fn two_releases_share_an_address_and_pass_on_what_they_do_not_know() {
    let lab = Lab::new();
    let old = Holder::start(&lab.host("a"), None);
    let ticket = old.anchor.invite("--issuer --advertise any");
    let options = Options::of("--ipv4 10.128.0.9").joining(&ticket);
    let new = Holder::start_with(&lab.host("b"), &options.of_binary(next_binary()));
    wait::until(SETTLE_LIMIT, "the two to be connected", || {
        old.anchor.connected() == 1 && new.anchor.connected() == 1
    });
    // Invited by the later release, let in by whichever answers.
    let newer_ticket = new.anchor.invite("--advertise any");
    let client = Anchor::start(&lab.host("p"), &Options::default().joining(&newer_ticket));
    let options = Options::default().joining(&ticket).of_binary(next_binary());
    // Hears of the later release through this one only.
    let far = lab.host("q");
    lab.between(new.anchor.host(), &far).cut();
    let far = Anchor::start(&far, &options);

    for anchor in [&client, &far] {
        wait::until(SETTLE_LIMIT, "both holders to be in `routes`", || {
            let row = anchor.route("10.128.0.9/32");
            row.is_some_and(|row| row.via.len() == 2)
        });
    }
    for holder in [&old, &new] {
        wait::until(SETTLE_LIMIT, "data with both releases", || {
            let target = SocketAddr::new(holder.anchor.overlay().into(), port::WHO);
            work::ask_udp(client.host(), None, target, ANSWER_LIMIT).is_ok()
        });
    }
    let name = work::get(client.host(), None, at(port::HTTP), ANSWER_LIMIT).unwrap();
    assert!(["a", "b"].contains(&name.as_str()), "{name}");
}

#[test]
fn a_goodbye_and_a_revocation_of_the_later_release_are_believed() {
    let lab = Lab::new();
    let first = Anchor::start(
        &lab.host("first"),
        &Options::of("--ipv4 none").of_binary(next_binary()),
    );
    let ticket = first.invite("");
    let witness = Anchor::start(&lab.host("witness"), &Options::default().joining(&ticket));
    let options = Options::default().joining(&ticket).of_binary(next_binary());
    let mut leaver = Anchor::start(&lab.host("leaver"), &options);
    let revoked = Anchor::start(&lab.host("revoked"), &Options::default().joining(&ticket));
    wait::until(SETTLE_LIMIT, "all to be connected", || {
        witness.connected() == 3
    });

    leaver.down();
    first.say(["revoke", revoked.id()]);

    wait::until(SETTLE_LIMIT, "both to be gone", || {
        let peers = witness.peers();
        let listed = |id: &str| {
            peers
                .iter()
                .any(|peer| peer.anchor == id && peer.state == "connected")
        };
        !listed(leaver.id()) && !listed(revoked.id())
    });
    assert!(witness.is_connected_with(first.id()));
}

#[test]
fn a_downgrade_is_refused_and_leaves_the_state_as_it_was() {
    let lab = Lab::new();
    let host = lab.host("a");
    let options = Options::of("--ipv4 10.128.0.9").of_binary(next_binary());
    let mut anchor = Anchor::start(&host, &options);
    let id = anchor.id().to_owned();
    anchor.down();
    let state = host.outside_path("/run/anchor");
    let before = contents(&state);
    assert!(before.keys().any(|name| name.ends_with("identity.seed")));

    let answer = anchor.command_of(&binary()).arg("run").answer();

    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("format version 2"), "{answer:?}");
    assert!(
        answer.stderr.contains("install a newer conflux"),
        "{answer:?}"
    );
    assert_eq!(contents(&state), before, "something was changed");
    anchor.run();
    assert_eq!(anchor.id(), id);
}

#[test]
fn an_upgrade_keeps_identity_and_realm() {
    let lab = Lab::new();
    let first = Anchor::start(&lab.host("first"), &Options::of("--ipv4 none"));
    let ticket = first.invite("");
    let host = lab.host("a");
    let mut old = Anchor::start(&host, &Options::default().joining(&ticket));
    wait::until(SETTLE_LIMIT, "it to be in", || first.connected() == 1);
    let id = old.id().to_owned();
    old.wait_written();
    old.down();

    let new = Anchor::start(&host, &Options::default().of_binary(next_binary()));

    assert_eq!(new.id(), id);
    wait::until(SETTLE_LIMIT, "it to be in again", || new.connected() == 1);
}

#[test]
fn the_command_line_of_one_release_reads_from_the_daemon_of_the_other_and_says_so() {
    let lab = Lab::new();
    let old = Anchor::start(&lab.host("a"), &Options::of("--ipv4 10.128.0.9"));
    let options = Options::of("--ipv4 10.128.0.9").of_binary(next_binary());
    let new = Anchor::start(&lab.host("b"), &options);
    let ours = env!("CARGO_PKG_VERSION");

    for (anchor, others, theirs) in [(&old, next_binary(), ours), (&new, binary(), NEXT)] {
        let reads: [&[&str]; 8] = [
            &["status"],
            &["status", "--json"],
            &["routes"],
            &["peers"],
            &["flows"],
            &["members"],
            &["metrics"],
            &["explain", "10.128.0.9"],
        ];
        for read in reads {
            let answer = anchor.command_of(&others).args(read).answer();

            assert_eq!(answer.code, 0, "{read:?}: {answer:?}");
            let note = format!("the daemon is version {theirs}");
            assert!(answer.stderr.contains(&note), "{read:?}: {answer:?}");
        }
        let versions = anchor.command_of(&others).arg("version").answer();
        assert!(versions.stdout.contains(theirs), "{versions:?}");
    }
}

/// Returns every file below a directory with its content; sockets and logs aside.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        let name = entry.path().display().to_string();
        if kind.is_dir() {
            found.extend(contents(&entry.path()));
        } else if kind.is_file() {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    found
}
