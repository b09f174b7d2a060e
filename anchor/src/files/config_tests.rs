//! The configuration file, through its public edge.

use std::path::Path;

use super::*;

#[test]
fn the_documented_template_is_the_default() {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::below(directory.path()).unwrap();

    Config::default().save(&layout).unwrap();

    assert_eq!(fs::read_to_string(&layout.config).unwrap(), TEMPLATE);
    assert_eq!(Config::load(&layout).unwrap(), Config::default());
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::below(directory.path()).unwrap();
    Config::default().save(&layout).unwrap();
    for mode in [0o664, 0o646] {
        fs::set_permissions(&layout.config, fs::Permissions::from_mode(mode)).unwrap();

        let error = Config::load(&layout).unwrap_err().to_string();

        assert!(error.contains("chmod go-w"), "{error}");
    }
}

#[test]
fn what_was_saved_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::below(directory.path()).unwrap();
    let config = Config {
        ipv4: Some(parse_ipv4("10.128.0.9/24").unwrap()),
        taints: TaintSet::parse(["blue", "größer"]).unwrap(),
        listen: vec!["[::]:5000".parse().unwrap()],
        peers: vec![
            "node1.example:47474".parse().unwrap(),
            "[2001:db8::1]:1".parse().unwrap(),
        ],
        interface: "cf1".parse().unwrap(),
        subnets: vec!["192.168.7.0/24".parse().unwrap()],
        client_range: "10.99.0.0/16".parse().unwrap(),
        check: Some("exec:/bin/true --really".parse().unwrap()),
        expose: vec![
            parse_opening("tcp:80").unwrap(),
            parse_opening("udp:5-9").unwrap(),
        ],
        discovery: false,
        relay: "20mbit".parse().unwrap(),
        boot_service: false,
        spin: Duration::from_micros(50),
        log_level: LogLevel::Debug,
        log_format: LogFormat::Json,
        unknown_keys: Vec::new(),
    };

    config.save(&layout).unwrap();

    assert_eq!(Config::load(&layout).unwrap(), config);
}

#[test]
fn a_change_keeps_comments_unknown_keys_and_the_form_of_other_values() {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::below(directory.path()).unwrap();
    fs::create_dir_all(layout.config.parent().unwrap()).unwrap();
    let text = "# mine\nversion = 1\nlisten = [\n  '0.0.0.0:1', # first\n]\nlater = 7\n\
                interface = \"an0\" # why\n\n[future]\nx = 1\n";
    fs::write(&layout.config, text).unwrap();
    let mut config = Config::load(&layout).unwrap();

    config.interface = "an1".parse().unwrap();
    config.save(&layout).unwrap();

    let saved = fs::read_to_string(&layout.config).unwrap();
    assert_eq!(config.unknown_keys, ["later", "future"]);
    for kept in [
        "# mine\n",
        "  '0.0.0.0:1', # first\n",
        "later = 7\n",
        "\"an1\" # why\n",
        "[future]\nx = 1\n",
    ] {
        assert!(saved.contains(kept), "{kept:?} in {saved}");
    }
    assert_eq!(Config::load(&layout).unwrap(), config);
}

#[test]
fn all_faults_are_told_at_once_and_the_file_is_left_alone() {
    let text = "version = 1\nipv4 = \"127.0.0.1\"\nlisten = [\"x\", 7]\ninterface = 3\n";

    let error = Config::parse_at(text, Path::new("/c.toml"))
        .unwrap_err()
        .to_string();

    assert!(
        error.starts_with("/c.toml was left as it is; it has 3 faults:\n"),
        "{error}"
    );
    for word in [
        "ipv4: ",
        "127.0.0.1",
        "listen: \"x\"",
        "7 is not a text",
        "interface: is a text",
    ] {
        assert!(error.contains(word), "{word:?} in {error}");
    }
}

#[test]
fn the_span_to_look_for_packets_is_bounded() {
    for text in ["1001", "-1", "0.5", "\"100\""] {
        let error = Config::parse_at(&format!("spin_us = {text}"), Path::new("/c.toml"));
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("spin_us: is a number of microseconds from 0 to 1000"),
            "{error}"
        );
    }
    let most = Config::parse_at("spin_us = 1000", Path::new("/c.toml")).unwrap();
    assert_eq!(most.spin, Duration::from_millis(1));
}

#[test]
fn a_newer_format_is_refused_and_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::below(directory.path()).unwrap();
    fs::create_dir_all(layout.config.parent().unwrap()).unwrap();
    fs::write(&layout.config, "version = 2\nipv4 = { later = true }\n").unwrap();

    let load = Config::load(&layout);
    let save = Config::default().save(&layout);

    assert!(
        matches!(load, Err(ConfigError::Newer { found: 2, .. })),
        "{load:?}"
    );
    assert!(
        matches!(save, Err(ConfigError::Newer { found: 2, .. })),
        "{save:?}"
    );
    assert!(
        fs::read_to_string(&layout.config)
            .unwrap()
            .starts_with("version = 2")
    );
}

#[test]
fn a_machine_without_a_file_is_not_configured() {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::below(directory.path()).unwrap();

    assert!(matches!(
        Config::load(&layout),
        Err(ConfigError::Missing { .. })
    ));
    assert!(Config::load_if_present(&layout).unwrap().is_none());
}

#[test]
fn values_must_fit_each_other() {
    let text =
        "ipv4 = \"10.99.0.9\"\nclient_range = \"10.99.0.0/16\"\nsubnets = [\"10.0.0.0/8\"]\n";

    let error = Config::parse_at(text, Path::new("/c.toml"))
        .unwrap_err()
        .to_string();

    assert!(
        error.contains("10.99.0.9 lies inside the client range 10.99.0.0/16"),
        "{error}"
    );
    assert!(
        error.contains("10.0.0.0/8 and the client range 10.99.0.0/16 overlap"),
        "{error}"
    );
}

#[test]
fn the_default_listens_on_both_families() {
    let listen = Config::default().listen_addresses();

    assert_eq!(
        listen,
        [
            "0.0.0.0:47474".parse().unwrap(),
            "[::]:47474".parse().unwrap()
        ]
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = Config::parse_at(&text, Path::new("/c.toml"));
    }
}
