//! Points 7 and 8: bad networks that move nothing, and holders that come back or come new.

use std::time::Duration;

use e2e::scenario::{Fault, Holder, Lan, Plan, Realm, Staying};
use e2e::wait;

use crate::Effort;
use crate::report::{Report, tally};

pub(crate) fn bad_networks(report: &mut Report, effort: &Effort) {
    let realm = Realm::start(&Plan::of(3, 1));
    let staying = Staying::start(&realm);
    for _ in 0..effort.runs {
        let client = &realm.clients[0].host;
        realm.lab.around(client).cut();
        wait::pass(Duration::from_secs(1));
        realm.lab.around(client).mend();
        wait::pass(Duration::from_secs(3));
    }
    let stayed = staying.look(&realm);
    report.row(
        format!("{} x 1 s of total loss", effort.runs),
        "nothing moves",
        format!("{stayed:?}"),
        stayed.is_calm(),
    );

    let before = stayed;
    realm.lab.everywhere().change(|way| way.loss = 0.1);
    let time = Duration::from_secs(if effort.is_short { 30 } else { 300 });
    wait::pass(time);
    let stayed = staying.look(&realm);
    report.row(
        format!("10 % random loss for {} s", time.as_secs()),
        "nothing moves",
        format!("{stayed:?}"),
        stayed.is_calm() && stayed.bytes > before.bytes,
    );
}

pub(crate) fn returning(report: &mut Report, _effort: &Effort) {
    for fault in [Fault::Down, Fault::Kill, Fault::Cut] {
        let mut realm = Realm::start(&Plan::of(3, 1).with_lan());
        let hosts = lan(&realm).addresses(1, 60);
        let first = lan(&realm).who_answers(&hosts);
        let (name, place) = (first[0].clone(), realm.place_of(&first[0]));
        fault.strike(&mut realm, place);
        let moved = lan(&realm).who_answers(&hosts);
        fault.undo(&mut realm, place);
        realm.settle();
        let after = lan(&realm).who_answers(&hosts);
        let new = lan(&realm).who_answers(&lan(&realm).addresses(1000, 60));
        let (old, fresh) = (count(&after, &name), count(&new, &name));
        report.row(
            format!("{name} back after {fault}"),
            "no old flow, some new ones",
            format!(
                "{old} of its {} old flows, {fresh} of 60 new ones",
                count(&first, &name)
            ),
            old == 0 && fresh > 0 && after == moved,
        );
    }
    let mut realm = Realm::start(&Plan::of(2, 1).with_lan());
    let hosts = lan(&realm).addresses(1, 60);
    let before = lan(&realm).who_answers(&hosts);
    let host = realm.lab.host("new");
    let holder = Holder::start(&host, Some(&realm.ticket));
    realm.holders.push(holder);
    realm.settle();
    let after = lan(&realm).who_answers(&hosts);
    let new = lan(&realm).who_answers(&lan(&realm).addresses(1000, 60));
    report.row(
        "a new holder of a running group",
        "no old flow, some new ones",
        format!("old: {}; new: {}", tally(&after), tally(&new)),
        after == before && count(&new, "new") > 0,
    );
}

fn lan(realm: &Realm) -> &Lan {
    realm.clients[0].lan.as_ref().expect("the plan has a LAN")
}

fn count(names: &[String], name: &str) -> usize {
    names.iter().filter(|one| *one == name).count()
}
