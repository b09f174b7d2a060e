//! Credentials in use: renewal by issuers, the realm's key on another machine, cloned identities,
//! and changed taints in a running anchor.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use conflux_anchor::clock;
use conflux_anchor::files::StateFile;
use conflux_core::credential::{Granter, LIFETIME, renew, verify_chain};
use conflux_core::identity::RealmSecret;
use conflux_core::time::UnixTime;
use conflux_proto::credential::{Credential, Serial};
use e2e::host::Host;
use e2e::hostile::state_of;
use e2e::scenario::{SETTLE_LIMIT, port};
use e2e::work::TcpService;
use e2e::{Anchor, Lab, Options, wait};

const DAY: u64 = 24 * 3600;

/// Both clones have said something by then: refreshes come every 30 s.
const CLONE_TOLD_WITHIN: Duration = Duration::from_secs(90);

#[test]
fn a_credential_in_its_last_third_is_renewed_by_the_issuer_it_meets() {
    let lab = Lab::new();
    let first = Anchor::start(&lab.host("first"), &Options::of("--ipv4 none"));
    let ticket = first.invite("--taint default");
    let mut member = Anchor::start(&lab.host("member"), &Options::default().joining(&ticket));
    wait::until(SETTLE_LIMIT, "the member to be in", || {
        first.connected() == 1
    });
    let joined_by = first.member(member.id()).unwrap()["ticket"].clone();
    member.wait_written();
    member.kill();
    age_credential(&first, &member, 300 * DAY);

    member.run();

    let fresh = clock::unix().0 + LIFETIME.as_secs() - DAY;
    wait::until(SETTLE_LIMIT, "the credential to be renewed", || {
        member.json("status")["valid_until_unix"].as_u64() > Some(fresh)
    });
    wait::until(SETTLE_LIMIT, "the issuer to see it", || {
        first
            .member(member.id())
            .is_some_and(|row| row["state"] == "valid")
    });
    let renewed = first.member(member.id()).unwrap();
    assert_eq!(
        renewed["ticket"], joined_by,
        "its ticket can still take it along"
    );
    assert_eq!(renewed["taints"], serde_json::json!(["default"]));
}

#[test]
fn a_long_chain_of_admissions_becomes_one_grant_when_an_issuer_is_met() {
    let lab = Lab::new();
    let first = Anchor::start(&lab.host("a0"), &Options::of("--ipv4 none"));
    let ticket = first.invite("");
    // Each of them finds only the one before it, which admits it.
    let mut chain = vec![first];
    for number in 1..8 {
        let host = lab.host(&format!("a{number}"));
        for earlier in &chain[..chain.len() - 1] {
            lab.between(earlier.host(), &host).cut();
        }
        let before = chain.last().unwrap().host().ipv4();
        let options = Options::of(&format!("--peer {before}:47474")).joining(&ticket);
        let anchor = Anchor::start(&host, &options);
        wait::until(SETTLE_LIMIT, "the next one to be in", || {
            anchor.json("status")["valid_until_unix"].is_u64()
        });
        chain.push(anchor);
    }
    let last = chain.last().unwrap();
    assert!(links_of(last) > 5, "{} links", links_of(last));

    lab.everywhere().mend();

    wait::until(SETTLE_LIMIT * 3, "the chain to be replaced", || {
        links_of(last) == 1
    });
}

#[test]
fn a_realm_outlives_its_first_machine_by_an_export() {
    let lab = Lab::new();
    let mut first = Anchor::start(&lab.host("first"), &Options::of("--ipv4 none"));
    let ticket = first.invite("");
    let member = Anchor::start(&lab.host("member"), &Options::default().joining(&ticket));
    wait::until(SETTLE_LIMIT, "the member to be in", || {
        first.connected() == 1
    });
    first.wait_written();
    let host = lab.host("restored");
    fs::write(
        host.outside_path("/run/passphrase"),
        "a passphrase of some length\n",
    )
    .unwrap();
    fs::write(
        first.host().outside_path("/run/passphrase"),
        "a passphrase of some length\n",
    )
    .unwrap();
    let export = first.say(["realm", "export", "--passphrase-file", "/run/passphrase"]);
    first.kill();
    fs::remove_dir_all(first.host().outside_path(first.directory())).unwrap();

    fs::write(host.outside_path("/run/export.age"), export).unwrap();
    let imported = host
        .command(e2e::anchor::binary())
        .env("CONFLUX_DIR", "/run/anchor")
        .args([
            "realm",
            "import",
            "/run/export.age",
            "--passphrase-file",
            "/run/passphrase",
        ])
        .answer();
    assert_eq!(imported.code, 0, "{imported:?}");
    let restored = Anchor::start(&host, &Options::of("--taint default"));

    wait::until(SETTLE_LIMIT, "the realm to be together again", || {
        restored.connected() == 1 && member.connected() >= 1
    });
    let status = restored.json("status");
    assert_eq!(status["realm"], member.json("status")["realm"]);
    assert_eq!(status["issuer"], true);
    restored.say(["revoke", member.id()]);
    let ticket = restored.invite("--taint new");
    let joined = Anchor::start(&lab.host("later"), &Options::default().joining(&ticket));
    wait::until(SETTLE_LIMIT, "a new one to join by it", || {
        joined.connected() == 1
    });
}

#[test]
fn a_member_takes_an_imported_key_up_without_a_restart() {
    let lab = Lab::new();
    let first = Anchor::start(&lab.host("first"), &Options::of("--ipv4 none"));
    let ticket = first.invite("");
    let member = Anchor::start(&lab.host("member"), &Options::default().joining(&ticket));
    wait::until(SETTLE_LIMIT, "the member to be in", || {
        first.connected() == 1
    });
    assert_eq!(member.cli(["invite"]).code, 2);
    for anchor in [&first, &member] {
        let file = anchor.host().outside_path("/run/passphrase");
        fs::write(file, "a passphrase of some length\n").unwrap();
    }
    let export = first.say(["realm", "export", "--passphrase-file", "/run/passphrase"]);
    fs::write(member.host().outside_path("/run/export.age"), export).unwrap();

    member.say([
        "realm",
        "import",
        "/run/export.age",
        "--passphrase-file",
        "/run/passphrase",
    ]);

    assert!(member.invite("--taint anything").starts_with("conflux1"));
    assert_eq!(first.connected(), 1, "nothing was interrupted");
}

#[test]
fn a_joiner_that_loses_power_at_once_finds_the_realm_again() {
    let lab = Lab::new();
    let first = Anchor::start(&lab.host("first"), &Options::of("--ipv4 none"));
    let ticket = first.invite("");
    let host = lab.host("joiner");
    let mut joiner = Anchor::start(&host, &Options::default().joining(&ticket));
    let file = |name: &str| host.outside_path(&format!("/run/anchor/state/{name}"));
    wait::until(SETTLE_LIMIT, "the joiner to be a member", || {
        joiner.json("status")["valid_until_unix"].is_u64()
    });
    joiner.kill();
    assert!(
        !file("adverts").exists(),
        "killed before it wrote down whom it knows"
    );

    joiner.run();

    wait::until(SETTLE_LIMIT, "it to find the realm again", || {
        joiner.connected() == 1
    });
    joiner.wait_written();
    wait::until(SETTLE_LIMIT, "the ticket to be forgotten then", || {
        !file("join.ticket").exists()
    });
}

#[test]
fn a_cloned_identity_is_reported_by_both_clones() {
    let lab = Lab::new();
    let witness = Anchor::start(&lab.host("witness"), &Options::of("--ipv4 none"));
    let ticket = witness.invite("");
    let original = Anchor::start(&lab.host("original"), &Options::default().joining(&ticket));
    wait::until(SETTLE_LIMIT, "the original to be in", || {
        witness.connected() == 1
    });
    let host = lab.host("copy");
    original.wait_written();
    copy_state(&original, &host);

    let copy = Anchor::start(&host, &Options::default());

    assert_eq!(copy.id(), original.id());
    for anchor in [&original, &copy] {
        wait::until(CLONE_TOLD_WITHIN, "the clone to be reported", || {
            anchor.warns("cloned identity")
        });
    }
}

#[test]
fn a_cloned_identity_is_reported_by_every_anchor_that_has_met_both() {
    let lab = Lab::new();
    let first = Anchor::start(&lab.host("first"), &Options::of("--ipv4 none"));
    let ticket = first.invite("");
    let second = Anchor::start(&lab.host("second"), &Options::default().joining(&ticket));
    let original = Anchor::start(&lab.host("original"), &Options::default().joining(&ticket));
    for anchor in [&first, &second, &original] {
        wait::until(SETTLE_LIMIT, "all to be connected", || {
            anchor.connected() == 2
        });
    }
    let host = lab.host("copy");
    original.wait_written();
    copy_state(&original, &host);

    let _copy = Anchor::start(&host, &Options::default());

    for witness in [&first, &second] {
        wait::until(CLONE_TOLD_WITHIN, "a witness to report the clone", || {
            witness.warns("cloned identity: two machines use that of anchor")
        });
    }
}

#[test]
fn a_restarted_anchor_is_not_taken_for_a_clone() {
    let lab = Lab::new();
    let witness = Anchor::start(&lab.host("witness"), &Options::of("--ipv4 none"));
    let ticket = witness.invite("");
    let mut other = Anchor::start(&lab.host("other"), &Options::default().joining(&ticket));
    wait::until(SETTLE_LIMIT, "the other to be in", || {
        witness.connected() == 1
    });

    other.wait_written();
    for _ in 0..3 {
        other.kill();
        other.run();
        wait::until(SETTLE_LIMIT, "the other to be back", || {
            other.connected() == 1
        });
    }

    assert!(!witness.warns("cloned"), "{}", witness.say(["status"]));
    assert!(!other.warns("cloned"), "{}", other.say(["status"]));
}

#[test]
fn changed_taints_end_what_they_forbid_and_nothing_else_without_a_restart() {
    let lab = Lab::new();
    let first = Anchor::start(&lab.host("ab"), &Options::of("--taint a --taint b"));
    let serve = |name: &str, taint: &str| {
        let host = lab.host(name);
        let ticket = first.invite(&format!("--taint {taint}"));
        let anchor = Anchor::start(&host, &Options::default().joining(&ticket));
        (TcpService::echo(&host, port::ECHO), anchor)
    };
    let (_echo_a, in_a) = serve("a", "a");
    let (_echo_b, in_b) = serve("b", "b");
    let host = lab.host("client");
    let ticket = first.invite("");
    let client = Anchor::start(&host, &Options::default().joining(&ticket));
    let to = |anchor: &Anchor| SocketAddr::new(anchor.overlay().into(), port::ECHO);
    wait::until(SETTLE_LIMIT, "the client to reach both", || {
        let peers = client.peers();
        [&in_a, &in_b].iter().all(|anchor| {
            let mut rows = peers.iter();
            rows.any(|peer| {
                peer.anchor == anchor.id() && peer.data == Some(true) && peer.rtt_micros.is_some()
            })
        })
    });
    let mut stays = Echoing::open(&host, to(&in_a)).unwrap();
    let mut ends = Echoing::open(&host, to(&in_b)).unwrap();
    stays.exchange().unwrap();
    ends.exchange().unwrap();

    client.say(["up", "--no-service", "--taint", "a"]);

    wait::until(Duration::from_secs(5), "what is forbidden to end", || {
        ends.exchange().is_err()
    });
    stays.exchange().unwrap();
    client.say(["up", "--no-service", "--taint", "a", "--taint", "b"]);
    wait::until(SETTLE_LIMIT, "what is allowed again to work", || {
        Echoing::open(&host, to(&in_b)).is_ok_and(|mut again| again.exchange().is_ok())
    });
    stays.exchange().unwrap();
}

/// A connection to an echo service.
struct Echoing(TcpStream);

impl Echoing {
    fn open(host: &Host, to: SocketAddr) -> io::Result<Self> {
        let limit = Duration::from_secs(2);
        let stream = host.enter(|| TcpStream::connect_timeout(&to, limit))?;
        stream.set_read_timeout(Some(limit))?;
        Ok(Self(stream))
    }

    fn exchange(&mut self) -> io::Result<()> {
        let mut answer = [0; 5];
        self.0.write_all(b"hello")?;
        self.0.read_exact(&mut answer)
    }
}

/// Rewrites a stopped member's credential as one granted `seconds` ago.
fn age_credential(first: &Anchor, member: &Anchor, seconds: u64) {
    let seed = state_of(first)
        .read_key(StateFile::RealmSecret)
        .unwrap()
        .unwrap();
    let secret = RealmSecret::from_seed(&seed);
    let state = state_of(member);
    let credential = state.read(StateFile::Credential).unwrap().unwrap();
    let credential = Credential::from_bytes(&credential).unwrap();
    let held = verify_chain(&credential, &secret.key()).unwrap();
    let past = UnixTime(clock::unix().0 - seconds);
    let old = renew(Granter::Realm(&secret), &held, Serial([9; 16]), past).unwrap();
    state.write(StateFile::Credential, &old.to_bytes()).unwrap();
}

/// Returns how many links an anchor's credential has.
fn links_of(anchor: &Anchor) -> usize {
    let bytes = state_of(anchor)
        .read(StateFile::Credential)
        .unwrap()
        .unwrap();
    Credential::from_bytes(&bytes).unwrap().links().len()
}

fn copy_state(from: &Anchor, to: &Host) {
    let source = from.host().outside_path(from.directory());
    let target = to.outside_path("/run/anchor");
    fs::create_dir_all(&target).unwrap();
    for part in ["etc", "state"] {
        let copied = Command::new("cp")
            .args([
                "-a".as_ref(),
                source.join(part).as_os_str(),
                target.as_os_str(),
            ])
            .status();
        assert!(copied.unwrap().success());
    }
}
