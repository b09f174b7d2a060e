//! What `explain` says to people: the flow, who could have it and why not, and what comes next.

use conflux_anchor::files::Layout;
use conflux_proto::api::{Explain, ExplainedHolder, FlowRow, NextPacket, RouteState, short_id};

use crate::args::ExplainFlags;
use crate::exit::Outcome;
use crate::show::{network, rtt, span};
use crate::table::Table;
use crate::tables;

/// Asks the daemon and prints what it says.
pub(crate) fn explain(layout: &Layout, flags: &ExplainFlags) -> Outcome {
    let from = flags
        .from
        .map_or_else(String::new, |from| format!("&from={from}"));
    let path = format!("/v1/explain?address={}{from}", flags.address);
    tables::print(layout, &path, flags.table, show)
}

/// Returns the text of an explanation.
fn show(explain: &Explain) -> String {
    let host = explain
        .host
        .map_or_else(|| "this machine".to_owned(), |host| host.to_string());
    let mut text = line("flow", &format!("{host} -> {}", explain.destination));
    if let Some(found) = explain.network {
        text.push_str(&line("network", &network(found, explain.spelled)));
    }
    match &explain.flow {
        Some(flow) => text.push_str(&flow_lines(flow, explain)),
        None => text.push_str(&line("holder", "none: there is no such flow now")),
    }
    text.push_str(&line("next packet", &next(explain)));
    if !explain.holders.is_empty() {
        text.push('\n');
        text.push_str(&holders(explain));
    }
    text
}

fn flow_lines(flow: &FlowRow, explain: &Explain) -> String {
    let held = span(flow.held_seconds);
    let why = reason(&flow.reason);
    let holder = flow.holder.as_deref().map_or_else(
        || {
            format!(
                "none for {held}, {}: {why}, and nobody else was left",
                flow.reason
            )
        },
        |id| {
            let id = short_id(id, explain.id_letters);
            format!("{id} for {held}, {}: {why}", flow.reason)
        },
    );
    let connections = match flow.open_connections {
        0 => "no open connection".to_owned(),
        1 => "1 open connection".to_owned(),
        many => format!("{many} open connections"),
    };
    line("holder", &holder)
        + &line(
            "last packet",
            &format!("{} ago, {connections}", span(flow.idle_seconds)),
        )
}

fn reason(word: &str) -> &'static str {
    match word {
        "new" => "drawn for its first packet",
        "idle" => "drawn again after 15 minutes without traffic",
        "left" => "its holder before said goodbye, drains or no longer has the address",
        "failed" => "its holder before failed for this machine",
        "taint" => "its holder before may no longer exchange data with this machine",
        "single" => "there was no other to draw from",
        _ => "for a reason of a newer daemon",
    }
}

fn next(explain: &Explain) -> String {
    let why = explain.why.as_deref().unwrap_or("it is refused");
    match explain.next {
        NextPacket::Stays => "stays there, whatever costs do and whoever joins; the flow draws \
                              again after 15 minutes without traffic, or when its holder leaves \
                              or fails"
            .to_owned(),
        NextPacket::StaysWhileBusy => {
            if explain
                .holders
                .iter()
                .any(|holder| holder.share.is_some() && !holder.draining)
            {
                "stays there while a connection is open or datagrams flow; the holder drains, so \
                 the flow leaves it once at rest"
                    .to_owned()
            } else {
                "stays there: the holder drains, and so does every other one".to_owned()
            }
        }
        NextPacket::Waits => "waits while the holders are asked: the drawn one has not been heard \
                              from for 10 s"
            .to_owned(),
        NextPacket::Draws if explain.flow.is_some() => "draws by the shares below; one of an open \
                                                        TCP connection stays"
            .to_owned(),
        NextPacket::Draws => "draws by the shares below".to_owned(),
        NextPacket::Unreachable => "is answered with ICMP host unreachable: no holder answers, \
                                    and those that failed are being asked"
            .to_owned(),
        NextPacket::Refused => format!("is answered with ICMP administratively prohibited: {why}"),
        NextPacket::Local => "stays on this machine, which has the address itself".to_owned(),
        NextPacket::Unknown if explain.state == RouteState::Refused => why.to_owned(),
        NextPacket::Unknown => "as a newer daemon decides".to_owned(),
    }
}

fn holders(explain: &Explain) -> String {
    let mut table = Table::new(&["HOLDER", "SHARE", "COST", "RTT", "ANSWER", "HEARD", "WHY"]);
    let mut assumes = false;
    for holder in &explain.holders {
        let star = if holder.in_use { "*" } else { "" };
        assumes |= !holder.rtt_measured || !holder.answer_measured;
        table.push([
            format!("{}{star}", short_id(&holder.anchor, explain.id_letters)),
            holder.share.map_or_else(String::new, percent),
            rtt(holder.cost_micros),
            measured(holder.rtt_micros, holder.rtt_measured),
            measured(holder.answer_micros, holder.answer_measured),
            holder
                .silent_millis
                .map_or_else(String::new, |millis| span(millis / 1000)),
            why(holder, explain),
        ]);
    }
    let mut text = table.text();
    if explain.holders.iter().any(|holder| holder.in_use) {
        text.push_str("* has the flow\n");
    }
    if assumes {
        text.push_str("~ not measured from here: assumed from the others\n");
    }
    text
}

fn why(holder: &ExplainedHolder, explain: &Explain) -> String {
    let Some(excluded) = &holder.excluded else {
        return match (holder.draining, holder.has_session) {
            (true, _) => "drains, as all do".to_owned(),
            (false, false) => "no data keys yet: a first packet waits for them".to_owned(),
            (false, true) => String::new(),
        };
    };
    let detail = holder.excluded_detail.as_deref().unwrap_or_default();
    let by = if explain
        .network
        .is_some_and(|network| network != holder.network)
    {
        format!(" (claims {})", holder.network)
    } else {
        String::new()
    };
    format!("{excluded}: {detail}{by}")
}

fn measured(micros: u64, is_measured: bool) -> String {
    let mark = if is_measured { "" } else { "~" };
    format!("{mark}{}", rtt(micros))
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn line(name: &str, value: &str) -> String {
    format!("{name:<11} {value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_told_with_its_holders_and_those_left_out() {
        let mut explain = explained();
        explain.flow = Some(flow());
        explain.next = NextPacket::Stays;

        let text = show(&explain);

        assert_eq!(
            text,
            "flow        this machine -> 10.128.0.9\n\
             network     10.128.0.9/32 (64:ff9b:1::a80:9/128)\n\
             holder      aaaaaaaaaa for 4m12s, failed: its holder before failed for this machine\n\
             last packet 2s ago, 3 open connections\n\
             next packet stays there, whatever costs do and whoever joins; the flow draws again \
             after 15 minutes without traffic, or when its holder leaves or fails\n\
             \n\
             HOLDER       SHARE  COST    RTT    ANSWER  HEARD  WHY\n\
             aaaaaaaaaa*  70.7%  6ms     1.4ms  4.6ms   1s     -\n\
             bbbbbbbbbb   -      50.9ms  ~50ms  ~900µs  -      failed: it failed for this machine \
             and has not returned\n\
             * has the flow\n\
             ~ not measured from here: assumed from the others\n"
        );
    }

    #[test]
    fn an_empty_group_says_what_a_packet_meets() {
        let mut explain = explained();
        explain.holders.remove(0);
        explain.next = NextPacket::Unreachable;

        let text = show(&explain);

        assert!(text.contains("none: there is no such flow now"), "{text}");
        assert!(text.contains("ICMP host unreachable"), "{text}");
    }

    #[test]
    fn every_reason_of_the_packet_way_has_words() {
        for reason in conflux_core_reasons() {
            assert!(!self::reason(reason).contains("newer daemon"), "{reason}");
        }
    }

    /// The closed list, as `docs/SPEC.md` section 10 has it.
    fn conflux_core_reasons() -> Vec<&'static str> {
        let page = include_str!("../../docs/SPEC.md");
        let section = page.split("## 10.").nth(1).unwrap();
        let list = section.split("## 11.").next().unwrap();
        let list = list.rsplit(':').next().unwrap();
        list.split([',', '.'])
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect()
    }

    fn explained() -> Explain {
        Explain {
            version: 1,
            id_letters: 10,
            host: None,
            destination: "10.128.0.9".parse().unwrap(),
            state: RouteState::Accepted,
            why: None,
            network: Some("10.128.0.9/32".parse().unwrap()),
            spelled: Some("64:ff9b:1::a80:9/128".parse().unwrap()),
            flow: None,
            waits: false,
            next: NextPacket::Draws,
            holders: vec![
                holder('a', Some(0.707), None),
                holder('b', None, Some("failed")),
            ],
        }
    }

    fn holder(letter: char, share: Option<f64>, excluded: Option<&str>) -> ExplainedHolder {
        let is_known = excluded.is_none();
        ExplainedHolder {
            anchor: letter.to_string().repeat(52),
            network: "10.128.0.9/32".parse().unwrap(),
            in_use: is_known,
            share,
            excluded: excluded.map(str::to_owned),
            excluded_detail: excluded
                .map(|_| "it failed for this machine and has not returned".to_owned()),
            draining: false,
            rtt_micros: if is_known { 1400 } else { 50_000 },
            rtt_measured: is_known,
            answer_micros: if is_known { 4600 } else { 900 },
            answer_measured: is_known,
            cost_micros: if is_known { 6000 } else { 50_900 },
            has_session: true,
            silent_millis: is_known.then_some(1200),
        }
    }

    fn flow() -> FlowRow {
        FlowRow {
            host: None,
            destination: "10.128.0.9".parse().unwrap(),
            network: "10.128.0.9/32".parse().unwrap(),
            holder: Some("a".repeat(52)),
            reason: "failed".to_owned(),
            held_seconds: 252,
            idle_seconds: 2,
            open_connections: 3,
            sent_bytes: 0,
            received_bytes: 0,
            sent_packets: 0,
            received_packets: 0,
            holder_drains: false,
        }
    }
}
