//! What the tables print on a client and on a holder.

use e2e::scenario::{Plan, Realm};

#[test]
fn routes_lists_every_holder_once_sorted_with_both_spellings() {
    let realm = Realm::start(&Plan::usual());
    let mut ids: Vec<&str> = realm
        .holders
        .iter()
        .map(|holder| short(holder.anchor.id()))
        .collect();
    ids.sort_unstable();

    let on_client = realm.clients[0].anchor.say(["routes"]);
    let on_holder = realm.holders[0].anchor.say(["routes"]);

    let network = "10.128.0.9/32 (64:ff9b:1::a80:9/128)";
    assert_eq!(
        cells(&on_client),
        [
            vec!["NETWORK", "VIA", "STATE", "WHY"],
            vec![network, &ids.join(","), "accepted", "-"]
        ]
    );
    assert_eq!(cells(&on_holder)[1], [network, "-", "served", "-"]);
}

#[test]
fn peers_shows_each_anchor_with_its_address_and_connections() {
    let realm = Realm::start(&Plan::usual());

    let text = realm.clients[0].anchor.say(["peers"]);

    let rows = cells(&text);
    assert_eq!(
        rows[0],
        [
            "ANCHOR", "OVERLAY", "IPV4", "HARDWARE", "STATE", "CONN", "DATA", "REACH", "RTT"
        ]
    );
    for holder in &realm.holders {
        let id = short(holder.anchor.id());
        let row = rows
            .iter()
            .find(|row| row[0] == id)
            .unwrap_or_else(|| panic!("{id}: {text}"));
        assert_eq!(row[1], holder.anchor.overlay().to_string());
        assert_eq!(
            (row[2], row[4], row[6]),
            ("10.128.0.9", "connected", "yes"),
            "{text}"
        );
        assert!(
            ["in", "out", "out*,in", "out,in*"].contains(&row[5]),
            "{text}"
        );
        assert!(row[8].ends_with("ms") || row[8].ends_with("µs"), "{text}");
        assert_eq!(row[3].split(':').count(), 6, "{text}");
    }
    let other = realm.clients[1].anchor.id();
    let row = rows
        .iter()
        .find(|row| row[0] == short(other))
        .expect("clients know each other");
    assert_eq!(row[2], "-", "{text}");
}

#[test]
fn the_metric_of_route_groups_is_one_line_on_client_and_holder() {
    let realm = Realm::start(&Plan::usual());
    let grep = |anchor: &e2e::Anchor| {
        let text = anchor.say(["metrics"]);
        let lines = text
            .lines()
            .filter(|line| line.contains("anchor_route_groups"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };

    let on_client = grep(&realm.clients[0].anchor);
    let on_holder = grep(&realm.holders[0].anchor);

    assert_eq!(on_client, ["anchor_route_groups 1"]);
    assert_eq!(on_holder, ["anchor_route_groups 0"]);
}

#[test]
fn flows_shows_the_holder_and_the_reason() {
    let realm = Realm::start(&Plan::of(2, 1));
    let client = &realm.clients[0];
    let answered = client.get().unwrap();

    let flows = client.anchor.flows();

    assert_eq!(flows.len(), 1, "{flows:?}");
    assert_eq!(flows[0].reason, "new");
    assert_eq!(realm.name_of(flows[0].holder.as_deref().unwrap()), answered);
    assert!(
        client
            .anchor
            .say(["flows"])
            .contains(short(flows[0].holder.as_deref().unwrap()))
    );
}

#[test]
fn status_is_one_screen_that_names_the_anchor_and_its_address() {
    let realm = Realm::start(&Plan::of(1, 0));
    let anchor = &realm.holders[0].anchor;

    let text = anchor.say(["status"]);

    for part in [
        anchor.id(),
        &anchor.overlay().to_string(),
        "10.128.0.9",
        "anchor0",
        "default",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(text.lines().count() <= 24, "{text}");
}

#[test]
fn every_table_has_a_versioned_json_form() {
    let realm = Realm::start(&Plan::of(1, 1));

    for table in ["status", "routes", "peers", "flows", "version"] {
        let json = realm.clients[0].anchor.json(table);

        assert_eq!(json["version"].as_u64(), Some(1), "{table}: {json}");
    }
}

/// The first ten letters, as tables show an id.
fn short(id: &str) -> &str {
    &id[..10]
}

/// A table's cells: they are set apart by two spaces or more.
fn cells(table: &str) -> Vec<Vec<&str>> {
    table
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect()
}
