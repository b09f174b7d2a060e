//! Exit codes and what is on disk after commands that must not change anything. Needs root, as
//! the commands themselves do.

mod support;

use support::Machine;

#[test]
fn wrong_addresses_are_refused_before_anything_is_written() {
    for (address, reason) in [
        ("198.18.0.9", "198.18.0.0/15"),
        ("127.0.0.1", "loopback"),
        ("fd00::1", "IPv6"),
        ("10.0.0.9/0", "0"),
    ] {
        let machine = Machine::new();

        for verb in ["up", "run"] {
            let done = machine.conflux(&[verb, "--ipv4", address]);

            assert_eq!(done.code, 2, "{}", done.stderr);
            assert!(
                done.stderr.contains(address) && done.stderr.contains(reason),
                "{}",
                done.stderr
            );
            assert_eq!(done.stdout, "");
        }
        assert!(machine.is_untouched());
    }
}

#[test]
fn settings_that_do_not_fit_each_other_are_refused_before_anything_is_written() {
    let machine = Machine::new();

    let done = machine.conflux(&["up", "--ipv4", "10.9.0.9", "--client-range", "10.9.0.0/16"]);

    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(
        done.stderr
            .contains("10.9.0.9 lies inside the client range"),
        "{}",
        done.stderr
    );
    assert!(machine.is_untouched());
}

#[test]
fn a_text_that_is_no_ticket_is_refused_before_anything_is_written() {
    let machine = Machine::new();
    let file = machine.directory.path().join("ticket");
    std::fs::write(&file, "garbage").unwrap();

    for join in [
        "garbage".to_owned(),
        format!("@{}", file.display()),
        "@/nowhere".to_owned(),
    ] {
        let done = machine.conflux(&["up", "--join", &join]);

        assert_eq!(done.code, 2, "{}", done.stderr);
        assert!(done.stderr.contains("--join"), "{}", done.stderr);
    }
    assert!(machine.is_untouched());
}

#[test]
fn a_machine_that_is_not_installed_says_so() {
    let machine = Machine::new();

    for verb in [
        "status", "routes", "peers", "flows", "metrics", "invite", "down",
    ] {
        let done = machine.conflux(&[verb]);

        assert_eq!(done.code, 69, "{verb}: {}", done.stderr);
        assert!(done.stderr.contains("not installed"), "{}", done.stderr);
        assert_eq!(done.stdout, "");
    }
    assert_eq!(machine.conflux(&["uninstall", "--yes"]).code, 69);
    assert!(machine.is_untouched());
}

#[test]
fn without_a_configuration_there_is_nothing_to_start() {
    let machine = Machine::new();

    for verb in ["start", "run"] {
        let done = machine.conflux(&[verb]);

        assert_eq!(done.code, 78, "{verb}: {}", done.stderr);
        assert!(done.stderr.contains("conflux up"), "{}", done.stderr);
    }
    assert!(machine.is_untouched());
}

#[test]
fn a_faulty_configuration_is_told_in_full_and_left_alone() {
    let machine = Machine::new();
    let text = "version = 1\nipv4 = \"127.0.0.1\"\ninterface = \"no/slash\"\n";
    machine.write_config(text);

    for arguments in [&["start"][..], &["run"], &["up", "--ipv4", "10.0.0.9"]] {
        let done = machine.conflux(arguments);

        assert_eq!(done.code, 78, "{}", done.stderr);
        assert!(done.stderr.contains("2 faults"), "{}", done.stderr);
    }
    assert_eq!(machine.config(), text);
}

#[test]
fn versions_are_told_without_a_daemon() {
    let machine = Machine::new();

    for arguments in [["version"], ["--version"], ["-V"]] {
        let done = machine.conflux(&arguments);

        assert_eq!((done.code, done.stdout.as_str()), (0, "conflux 0.1.0\n"));
    }
}

#[test]
fn wrong_usage_is_exit_2_and_help_is_exit_0() {
    let machine = Machine::new();

    assert_eq!(machine.conflux(&["fly"]).code, 2);
    assert_eq!(machine.conflux(&[]).code, 2);
    assert_eq!(
        machine
            .conflux(&["up", "--taint", "a", "--taint", "none"])
            .code,
        2
    );
    assert_eq!(machine.conflux(&["invite", "--expires", "24"]).code, 2);
    assert_eq!(machine.conflux(&["--help"]).code, 0);
    assert!(machine.is_untouched());
}
