//! Which tickets a machine takes, and how flags change a configuration.

use conflux_proto::credential::{Advertise, Grant, Kind, Serial};
use conflux_proto::signed::{Signed, SigningSecret, Version1};

use super::*;

const YEAR_2100: u64 = 4_102_444_800;

#[test]
fn a_machine_of_no_realm_takes_a_ticket() {
    let ticket = ticket(&["a", "b"], YEAR_2100);
    let text = ticket.to_text();

    let used = usable(ticket, None, &asking_for(&["b"])).unwrap().unwrap();

    assert_eq!(used.to_text(), text);
    assert_eq!(parse(&format!("  {text}\n")).unwrap().to_text(), text);
}

#[test]
fn a_ticket_of_the_own_realm_is_ignored_also_when_expired() {
    let ticket = ticket(&["a"], 1);
    let realm = ticket.realm_key();

    assert!(
        usable(ticket, Some(realm), &asking_for(&["z"]))
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_ticket_of_another_realm_is_refused_with_the_way_out() {
    let refused = usable(
        ticket(&["a"], YEAR_2100),
        Some(RealmKey([9; 32])),
        &Config::default(),
    )
    .unwrap_err();

    assert_eq!(refused.exit, Exit::Usage);
    assert!(
        refused.error.to_string().contains("conflux uninstall"),
        "{}",
        refused.error
    );
}

#[test]
fn an_expired_ticket_lets_nobody_in_and_ten_minutes_of_skew_are_allowed() {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();

    let refused = usable(ticket(&["a"], now - 700), None, &Config::default()).unwrap_err();
    let skewed = usable(ticket(&["a"], now - 500), None, &Config::default());

    assert_eq!(refused.exit, Exit::Usage);
    assert!(
        refused.error.to_string().contains("expired"),
        "{}",
        refused.error
    );
    assert!(skewed.unwrap().is_some());
}

#[test]
fn more_taints_than_the_ticket_grants_are_refused() {
    let refused = usable(
        ticket(&["a", "b"], YEAR_2100),
        None,
        &asking_for(&["a", "c"]),
    )
    .unwrap_err();

    assert_eq!(refused.exit, Exit::Usage);
    let told = refused.error.to_string();
    assert!(
        told.contains("--taint c") && told.contains("a, b"),
        "{told}"
    );
}

#[test]
fn a_repeated_flag_replaces_its_list_and_other_settings_stay() {
    let mut config = Config {
        subnets: vec!["10.1.0.0/16".parse().unwrap()],
        interface: "cf7".parse().unwrap(),
        ..Config::default()
    };
    let label = |text: &str| Setting::To(text.parse().unwrap());
    let flags = UpFlags {
        taints: vec![label("b"), label("a"), label("b")],
        subnets: vec![Setting::Clear],
        no_service: Some(true),
        ..UpFlags::default()
    };

    apply(&flags, &mut config).unwrap();

    assert_eq!(config.taints, TaintSet::parse(["a", "b"]).unwrap());
    assert!(config.subnets.is_empty() && !config.boot_service);
    assert_eq!(config.interface.as_str(), "cf7");
}

#[test]
fn the_word_none_stands_alone() {
    let flags = UpFlags {
        taints: vec![Setting::Clear, Setting::To("a".parse().unwrap())],
        ..UpFlags::default()
    };

    assert_eq!(
        apply(&flags, &mut Config::default()).unwrap_err().exit,
        Exit::Usage
    );
}

fn asking_for(taints: &[&str]) -> Config {
    Config {
        taints: TaintSet::parse(taints).unwrap(),
        ..Config::default()
    }
}

fn ticket(taints: &[&str], expires: u64) -> Ticket {
    let realm_secret = SigningSecret::from_seed(&[1; 32]);
    let realm = RealmKey(realm_secret.public());
    let secret = SigningSecret::from_seed(&[2; 32]);
    let grant = Grant {
        version: Version1,
        realm: realm.id(),
        subject: secret.public(),
        kind: Kind::Ticket,
        taints: TaintSet::parse(taints).unwrap(),
        advertise: Advertise::private_hosts(),
        issuer: false,
        serial: Serial([3; 16]),
        made_at: 0,
        expires,
        ticket: None,
    };
    Ticket::new(
        realm,
        Vec::new(),
        secret,
        None,
        Signed::sign(grant, &realm_secret),
    )
    .unwrap()
}
