//! What `explain` says: of a flow that moved, of one that stays beside a cheaper holder, and of one
//! whose group is empty.

use std::time::Duration;

use e2e::scenario::{Client, Fault, Holder, Plan, Realm};
use e2e::{Lab, wait};

use crate::Effort;
use crate::report::Report;

/// How far away the dear holder is: much more than the lab's own ways.
const FAR: Duration = Duration::from_millis(40);

pub(crate) fn transcripts(report: &mut Report, _effort: &Effort) {
    moved(report);
    stayed(report);
    stranded(report);
}

fn moved(report: &mut Report) {
    let mut realm = Realm::start(&Plan::of(3, 1));
    let Ok(first) = realm.clients[0].get() else {
        report.row("a flow that moved", "an answer", "none".into(), false);
        return;
    };
    let place = realm.place_of(&first);
    Fault::Kill.strike(&mut realm, place);
    wait::until(Duration::from_secs(5), "the flow to move", || {
        realm.clients[0].get().is_ok_and(|name| name != first)
    });
    tell(report, &realm, "a flow whose holder was killed", "failed");
}

fn stayed(report: &mut Report) {
    let mut realm = Realm::start_in(Lab::new(), &Plan::of(1, 0));
    let far = realm.lab.host("far-client");
    realm
        .lab
        .between(&far, &realm.holders[0].host)
        .change(|way| way.delay = FAR);
    let client = Client::start(&far, &realm.ticket);
    realm.clients.push(client);
    realm.settle();
    let _ = realm.clients[0].get();
    let near = realm.lab.host("near");
    let near = Holder::start(&near, Some(&realm.ticket));
    realm.holders.push(near);
    realm.settle();
    let _ = realm.clients[0].get();
    tell(report, &realm, "a flow that stays far away", "stays");
}

fn stranded(report: &mut Report) {
    let mut realm = Realm::start(&Plan::of(1, 1));
    let _ = realm.clients[0].get();
    Fault::Kill.strike(&mut realm, 0);
    wait::until(Duration::from_secs(8), "the flow to end", || {
        let _ = realm.clients[0].get();
        text(&realm).contains("unreachable")
    });
    tell(report, &realm, "a flow whose group is empty", "unreachable");
}

fn text(realm: &Realm) -> String {
    realm.clients[0].anchor.say(["explain", "10.128.0.9"])
}

fn tell(report: &mut Report, realm: &Realm, what: &str, word: &'static str) {
    let said = text(realm);
    report.say(&format!(
        "{what}\nclient$ conflux explain 10.128.0.9\n{said}"
    ));
    report.row(what, "says why", word.into(), said.contains(word));
}
