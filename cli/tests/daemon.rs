//! The commands against a daemon that is played by the test: it holds the installation's lock,
//! serves the local socket and answers what the test wants it to.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod support;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use conflux_anchor::api::{LocalSocket, QUEUE_LENGTH, Refusal, Request, serve};
use conflux_anchor::files::{Config, State, StateFile};
use conflux_proto::api::{
    Drain, DrainWait, Flows, InterfaceStatus, Invite, MemberKind, Members, Peers, Reach, Reloaded,
    Revoked, Routes, Status, Stopping,
};
use support::Machine;
use tokio::sync::mpsc;

/// What the played daemon was asked, and how it answers a reload.
#[derive(Default)]
struct Script {
    asked: Vec<String>,
    refuse_reload: bool,
    drained: u32,
    never_empty: bool,
}

#[test]
fn tables_are_printed_and_json_is_the_daemons_own() {
    let machine = configured("");
    let (_script, daemon) = play(&machine);

    let table = machine.conflux(&["routes"]);
    let json = machine.conflux(&["routes", "--json"]);
    let status = machine.conflux(&["status"]);
    let metrics = machine.conflux(&["metrics"]);
    let help = machine.conflux(&["metrics", "--help-text"]);

    assert_eq!(
        table.stdout, "NETWORK  VIA  STATE  WHY\n",
        "{}",
        table.stderr
    );
    assert_eq!(
        json.stdout,
        "{\"version\":1,\"id_letters\":10,\"routes\":[]}\n"
    );
    assert!(
        status.stdout.starts_with("anchor      me\n"),
        "{}",
        status.stdout
    );
    assert_eq!(metrics.stdout, "anchor_route_groups 0\n");
    assert!(help.stdout.starts_with("# HELP"), "{}", help.stdout);
    end(&machine, daemon);
}

#[test]
fn a_drain_returns_at_once_or_waits_until_nothing_rests() {
    let machine = configured("");
    let (script, daemon) = play(&machine);

    let at_once = machine.conflux(&["drain"]);
    let waited = machine.conflux(&["drain", "--wait", "30s"]);
    let ended = machine.conflux(&["undrain"]);

    assert_eq!(at_once.code, 0, "{}", at_once.stderr);
    assert!(at_once.stdout.contains("client1 (2)"), "{}", at_once.stdout);
    assert_eq!(waited.code, 0, "{}", waited.stderr);
    assert!(waited.stdout.starts_with("drained"), "{}", waited.stdout);
    assert!(ended.stdout.contains("not draining any more"));
    assert_eq!(
        script.lock().unwrap().asked,
        ["drain true", "drain true", "drain false"]
    );
    end(&machine, daemon);
}

#[test]
fn a_drain_that_is_not_empty_in_time_is_a_failure_that_names_who_is_left() {
    let machine = configured("");
    let (script, daemon) = play(&machine);
    script.lock().unwrap().never_empty = true;

    let waited = machine.conflux(&["drain", "--wait", "1s"]);

    assert_eq!(waited.code, 1);
    assert!(
        waited.stderr.contains("not empty in time") && waited.stderr.contains("client1 (2)"),
        "{}",
        waited.stderr
    );
    assert!(waited.stdout.is_empty());
    end(&machine, daemon);
}

#[test]
fn what_cannot_be_explained_is_a_failure_with_a_sentence() {
    let machine = configured("");
    let (_script, daemon) = play(&machine);

    let unknown = machine.conflux(&["explain", "10.9.9.9"]);
    let name = machine.conflux(&["explain", "printer"]);

    assert_eq!(unknown.code, 1);
    assert_eq!(unknown.stderr, "error: nobody advertises 10.9.9.9\n");
    assert_eq!(name.code, 2);
    end(&machine, daemon);
}

#[test]
fn a_revocation_names_what_was_asked_for() {
    let machine = configured("");
    let (script, daemon) = play(&machine);

    let done = machine.conflux(&["revoke", "dfyspsc5lk", "--with-anchors"]);

    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(
        done.stdout
            .starts_with("revoked anchor dfyspsc5lk; 2 connected anchors were told"),
        "{}",
        done.stdout
    );
    let asked = script.lock().unwrap().asked.join("\n");
    assert!(asked.contains("with_anchors: true"), "{asked}");
    assert_eq!(machine.conflux(&["revoke"]).code, 2);
    end(&machine, daemon);
}

#[test]
fn an_invitation_prints_the_ticket_alone() {
    let machine = configured("");
    let (script, daemon) = play(&machine);

    let done = machine.conflux(&[
        "invite",
        "--taint",
        "a",
        "--advertise",
        "10.0.0.0/8",
        "--expires",
        "7d",
        "--issuer",
    ]);

    assert_eq!((done.code, done.stdout.as_str()), (0, "conflux1ticket\n"));
    let asked = script.lock().unwrap().asked.join("\n");
    for part in [
        "\"a\"",
        "Network(10.0.0.0/8)",
        "expires_seconds: 604800",
        "issuer: true",
    ] {
        assert!(asked.contains(part), "{part} in {asked}");
    }
    end(&machine, daemon);
}

#[test]
fn up_changes_only_what_is_given_and_the_running_daemon_takes_it_up() {
    let machine = configured("# mine\nipv4 = \"10.0.0.9\"\ntaints = [\"a\", \"b\"]\n");
    let (script, daemon) = play(&machine);

    let done = machine.conflux(&["up", "--no-service", "--taint", "c", "--peer", "n1:47474"]);

    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(
        done.stdout
            .starts_with("conflux is up: this machine answers at 10.0.0.9\n")
    );
    let config = machine.config();
    for line in [
        "# mine",
        "ipv4 = \"10.0.0.9\"",
        "taints = [\"c\"]",
        "peers = [\"n1:47474\"]",
    ] {
        assert!(config.contains(line), "{line} in {config}");
    }
    assert_eq!(
        script
            .lock()
            .unwrap()
            .asked
            .iter()
            .filter(|a| *a == "reload")
            .count(),
        1
    );
    end(&machine, daemon);
}

#[test]
fn a_realms_first_machine_tells_once_how_the_next_one_joins() {
    let machine = configured("ipv4 = \"10.0.0.9\"\nboot_service = false\n");
    let (_script, daemon) = play(&machine);
    let state = State::open(&machine.layout).unwrap();
    state.write(StateFile::RealmSecret, &[7; 32]).unwrap();

    let first = machine.conflux(&["up"]);
    let second = machine.conflux(&["up"]);

    assert_eq!((first.code, second.code), (0, 0), "{}", first.stderr);
    let command = "\n  echo conflux1ticket | sudo conflux up --join -\n";
    assert!(first.stdout.contains(command), "{}", first.stdout);
    assert!(first.stdout.contains("--ipv4 10.0.0.9"), "{}", first.stdout);
    assert!(
        !second.stdout.contains("conflux1ticket"),
        "{}",
        second.stdout
    );
    end(&machine, daemon);
}

#[test]
fn a_change_that_the_daemon_refuses_is_taken_back() {
    let machine = configured("version = 1\nipv4 = \"10.0.0.9\"\nboot_service = false\n");
    let (script, daemon) = play(&machine);
    script.lock().unwrap().refuse_reload = true;

    let done = machine.conflux(&["up", "--taint", "never-granted"]);

    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(
        done.stderr.contains("never-granted is not granted"),
        "{}",
        done.stderr
    );
    assert_eq!(Config::load(&machine.layout).unwrap().taints.len(), 0);
    end(&machine, daemon);
}

#[test]
fn down_says_goodbye_and_what_stays() {
    let machine = configured("");
    let (script, daemon) = play(&machine);

    let done = machine.conflux(&["down"]);
    daemon.join().unwrap();
    let again = machine.conflux(&["down"]);

    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(script.lock().unwrap().asked, ["shutdown"]);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", done.stdout);
    assert_eq!(lines[0], "conflux has stopped.");
    assert!(
        lines[1].contains("the configuration is intact"),
        "{}",
        lines[1]
    );
    assert!(
        lines[2].ends_with(" start") && lines[3].ends_with(" uninstall"),
        "{}",
        done.stdout
    );
    assert_eq!(again.code, 0);
    assert!(
        again.stdout.starts_with("conflux was not running.\n"),
        "{}",
        again.stdout
    );
    assert_eq!(machine.conflux(&["status"]).code, 69);
}

#[test]
fn uninstall_asks_and_then_leaves_nothing() {
    let machine = configured("");
    let (_script, daemon) = play(&machine);

    let unasked = machine.conflux(&["uninstall"]);
    assert_eq!(unasked.code, 2, "{}", unasked.stderr);
    assert!(machine.layout.state.exists());
    let done = machine.conflux(&["uninstall", "--yes"]);
    daemon.join().unwrap();

    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(machine.is_untouched());
}

#[test]
fn run_refuses_beside_a_running_daemon_before_it_writes() {
    let machine = configured("version = 1\n");
    let (_script, daemon) = play(&machine);

    let done = machine.conflux(&["run", "--ipv4", "10.0.0.9"]);

    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(
        done.stderr.contains("another conflux daemon runs"),
        "{}",
        done.stderr
    );
    assert_eq!(machine.config(), "version = 1\n");
    end(&machine, daemon);
}

fn configured(config: &str) -> Machine {
    let machine = Machine::new();
    machine.write_config(config);
    machine
}

/// Plays the daemon until it is asked to shut down.
fn play(machine: &Machine) -> (Arc<Mutex<Script>>, JoinHandle<()>) {
    let script = Arc::new(Mutex::new(Script::default()));
    let state = State::open(&machine.layout).unwrap();
    let lock = state.lock().unwrap();
    let socket = LocalSocket::bind(&machine.layout).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let shared = Arc::clone(&script);
    let daemon = std::thread::spawn(move || {
        runtime.block_on(async {
            let (sender, mut requests) = mpsc::channel(QUEUE_LENGTH);
            tokio::spawn(serve(socket.listener().unwrap(), sender));
            while let Some(request) = requests.recv().await {
                if answer(request, &mut shared.lock().unwrap()).is_break() {
                    break;
                }
            }
        });
        drop((socket, lock));
    });
    (script, daemon)
}

fn end(machine: &Machine, daemon: JoinHandle<()>) {
    assert_eq!(machine.conflux(&["down"]).code, 0);
    daemon.join().unwrap();
}

fn answer(request: Request, script: &mut Script) -> ControlFlow<()> {
    match request {
        Request::Status(reply) => drop(reply.send(Ok(status()))),
        Request::Routes(reply) => {
            drop(reply.send(Ok(Routes {
                version: 1,
                id_letters: 10,
                routes: vec![],
            })));
        }
        Request::Peers(reply) => {
            drop(reply.send(Ok(Peers {
                version: 1,
                id_letters: 10,
                peers: vec![],
            })));
        }
        Request::Flows(reply) => {
            let flows = Flows {
                version: 1,
                id_letters: 10,
                left_out: 0,
                flows: vec![],
            };
            drop(reply.send(Ok(flows)));
        }
        Request::Explain(query, reply) => {
            let text = format!("nobody advertises {}", query.address);
            drop(reply.send(Err(Refusal::Unknown(text))));
        }
        Request::SetDrain(request, reply) => {
            script.asked.push(format!("drain {}", request.draining));
            script.drained = 0;
            drop(reply.send(Ok(drain(request.draining, false))));
        }
        Request::Drain(reply) => {
            // Empty when asked for the third time.
            script.drained += 1;
            drop(reply.send(Ok(drain(true, script.drained >= 3 && !script.never_empty))));
        }
        Request::Metrics(reply) => {
            let text = "# HELP anchor_route_groups Groups.\nanchor_route_groups 0\n# EOF\n";
            drop(reply.send(Ok(text.to_owned())));
        }
        Request::Invite(invite, reply) => {
            script.asked.push(format!("{invite:?}"));
            let ticket = "conflux1ticket".to_owned();
            drop(reply.send(Ok(Invite {
                version: 1,
                ticket,
                expires_unix: 0,
                warnings: vec![],
            })));
        }
        Request::Members(reply) => {
            drop(reply.send(Ok(Members {
                version: 1,
                id_letters: 10,
                members: vec![],
            })));
        }
        Request::Revoke(revoke, reply) => {
            script.asked.push(format!("{revoke:?}"));
            drop(reply.send(Ok(Revoked {
                version: 1,
                kind: MemberKind::Anchor,
                id: revoke.target,
                anchors: vec![],
                told: 2,
                warnings: vec![],
            })));
        }
        Request::Reload(reply) => {
            script.asked.push("reload".to_owned());
            let told = if script.refuse_reload {
                Err(Refusal::Invalid("never-granted is not granted".to_owned()))
            } else {
                Ok(Reloaded {
                    version: 1,
                    changed: vec![],
                    needs_restart: vec![],
                })
            };
            drop(reply.send(told));
        }
        Request::Shutdown(reply) => {
            script.asked.push("shutdown".to_owned());
            drop(reply.send(Ok(Stopping { version: 1 })));
            return ControlFlow::Break(());
        }
    }
    ControlFlow::Continue(())
}

fn drain(draining: bool, empty: bool) -> Drain {
    let waits_for = DrainWait {
        anchor: "client1".to_owned(),
        flows: Some(2),
    };
    Drain {
        version: 1,
        draining,
        since_seconds: 1,
        empty,
        flows: 2,
        waits_for: if empty { vec![] } else { vec![waits_for] },
    }
}

fn status() -> Status {
    Status {
        version: 1,
        software: conflux_proto::SOFTWARE.to_owned(),
        ready: true,
        anchor: "me".to_owned(),
        id_letters: 10,
        realm: "realm".to_owned(),
        overlay: "fd80::1".parse().unwrap(),
        hardware: "02:00:00:00:00:01".to_owned(),
        ipv4: None,
        interface: InterfaceStatus {
            name: "anchor0".to_owned(),
            mtu_bytes: 1420,
        },
        taints: vec![],
        listen: vec![],
        subnets: vec![],
        exposed: vec![],
        reach: Reach::Unknown,
        peers_connected: 0,
        peers_known: 0,
        issuer: true,
        valid_until_unix: None,
        joining: None,
        uptime_seconds: 0,
        drain: None,
        check: None,
        relay: None,
        warnings: vec![],
    }
}
