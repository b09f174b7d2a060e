//! The verbs about who is trusted: `members` and `revoke`.

use std::io::{self, Read};

use conflux_anchor::files::Layout;
use conflux_proto::api::{
    MemberKind, MemberRow, Members, RevokeRequest, Revoked, VERSION, short_id,
};

use crate::args::RevokeFlags;
use crate::client;
use crate::exit::{Exit, Outcome, answer, note};
use crate::show::date;
use crate::table::Table;

/// Many times the longest ticket, and below what the daemon reads.
const MAX_TARGET_BYTES: u64 = 12 * 1024;

/// Returns the table of `members`.
pub(crate) fn members(members: &Members) -> String {
    let mut table = Table::new(&[
        "KIND",
        "ID",
        "TAINTS",
        "ISSUER",
        "ISSUED BY",
        "TICKET",
        "VALID UNTIL",
        "STATE",
    ]);
    for row in &members.members {
        table.push(member(row, members.id_letters));
    }
    table.text()
}

/// Revokes an anchor or a ticket and says whom that put out.
pub(crate) fn revoke(layout: &Layout, flags: &RevokeFlags) -> Outcome {
    let request = RevokeRequest {
        version: VERSION,
        target: target(&flags.target)?,
        with_anchors: flags.with_anchors,
    };
    let told = client::post(layout, "/v1/revoke", &request)?;
    client::note_other_version(&told);
    let revoked: Revoked = told.read()?;
    for warning in &revoked.warnings {
        note(format!("warning: {warning}"));
    }
    answer(&sentence(&revoked))
}

fn target(words: &str) -> Outcome<String> {
    if words != "-" {
        return Ok(words.to_owned());
    }
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(MAX_TARGET_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| Exit::Usage.because(format!("-: {error}")))?;
    Ok(text)
}

fn sentence(revoked: &Revoked) -> String {
    let mut text = format!(
        "revoked {} {}; {} connected {} told, the others hear of it from them\n",
        revoked.kind,
        revoked.id,
        revoked.told,
        if revoked.told == 1 {
            "anchor was"
        } else {
            "anchors were"
        },
    );
    for anchor in &revoked.anchors {
        text.push_str(&format!("out: anchor {anchor}\n"));
    }
    if revoked.kind == MemberKind::Ticket && revoked.anchors.is_empty() {
        text.push_str("those who joined by it stay; --with-anchors puts them out too\n");
    }
    text
}

fn member(row: &MemberRow, letters: usize) -> [String; 8] {
    let short = |id: &String| short_id(id, letters).to_owned();
    let is_known = row.valid_until_unix.is_some();
    [
        row.kind.to_string(),
        short(&row.id),
        row.taints.join(","),
        if !is_known {
            String::new()
        } else if row.issuer {
            "yes".to_owned()
        } else {
            "no".to_owned()
        },
        match &row.issued_by {
            Some(by) => short(by),
            None if is_known => "realm".to_owned(),
            None => String::new(),
        },
        row.ticket.as_ref().map_or_else(String::new, short),
        row.valid_until_unix.map_or_else(String::new, date),
        row.state.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use conflux_proto::api::MemberState;

    use super::*;

    #[test]
    fn members_look_as_the_contract_has_them() {
        let anchor = MemberRow {
            kind: MemberKind::Anchor,
            id: "dfyspsc5lkrestofit".to_owned(),
            own: true,
            taints: vec!["a".to_owned(), "b".to_owned()],
            advertise: Some("any".to_owned()),
            issuer: true,
            issued_by: None,
            ticket: None,
            valid_until_unix: Some(1_831_536_000),
            state: MemberState::Valid,
        };
        let joined = MemberRow {
            id: "qh5av2ricprestofit".to_owned(),
            own: false,
            taints: vec!["a".to_owned()],
            issuer: false,
            issued_by: Some("dfyspsc5lkrestofit".to_owned()),
            ticket: Some("0123456789abcdef".to_owned()),
            state: MemberState::Ending,
            ..anchor.clone()
        };
        let gone = MemberRow {
            kind: MemberKind::Ticket,
            id: "fedcba98765432100000000000000000".to_owned(),
            taints: vec![],
            advertise: None,
            ticket: None,
            valid_until_unix: None,
            state: MemberState::Revoked,
            ..joined.clone()
        };
        let gone = MemberRow {
            issued_by: None,
            ..gone
        };
        let answer = Members {
            version: 1,
            id_letters: 10,
            members: vec![anchor, joined, gone],
        };

        assert_eq!(
            members(&answer),
            "KIND    ID          TAINTS  ISSUER  ISSUED BY   TICKET      VALID UNTIL  STATE\n\
             anchor  dfyspsc5lk  a,b     yes     realm       -           2028-01-15   valid\n\
             anchor  qh5av2ricp  a       no      dfyspsc5lk  0123456789  2028-01-15   ending\n\
             ticket  fedcba9876  -       -       -           -           -            revoked\n"
        );
    }

    #[test]
    fn a_revocation_names_whom_it_put_out() {
        let mut revoked = Revoked {
            version: 1,
            kind: MemberKind::Ticket,
            id: "abc".to_owned(),
            anchors: vec![],
            told: 1,
            warnings: vec![],
        };
        assert!(sentence(&revoked).contains("1 connected anchor was told"));
        assert!(sentence(&revoked).contains("--with-anchors"));

        revoked.anchors = vec!["xyz".to_owned()];
        assert!(sentence(&revoked).ends_with("out: anchor xyz\n"));
    }
}
