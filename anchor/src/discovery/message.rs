//! The two messages of discovery, as those of multicast DNS that carry DNS-SD (RFC 6762, 6763): who
//! offers the service of this realm, and: I do, at this port. Everything read here may come from
//! anybody on the link.

use std::net::IpAddr;

use simple_dns::rdata::{A, AAAA, PTR, RData, SRV, TXT};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, ResourceRecord, TYPE};

/// The service all anchors offer; what of it is of one realm is a subtype (RFC 6763 section 7.1).
const SERVICE: &str = "_conflux._udp.local";

/// How long others may believe it: RFC 6762 section 10 for names of hosts. Only who asks again
/// within that is spared an answer.
const LIFETIME_SECS: u32 = 120;

/// Addresses told; hosts rarely have more that matter.
const MAX_ADDRESSES: usize = 8;

/// The longest message read: RFC 6762 section 17 allows 9000 bytes, and ours have 300.
pub(super) const MAX_BYTES: usize = 1500;

/// The names of one anchor: they follow from realm and start, and name nobody.
#[derive(Clone, Debug)]
pub(super) struct Names {
    subtype: String,
    instance: String,
    host: String,
}

/// What a message says that matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// Somebody looks for anchors of this realm.
    Question,
    /// Somebody says that an anchor of this realm listens at this port of the machine that sent it.
    Answer(u16),
}

impl Names {
    /// `beacon` names the realm, `start` this start of the anchor; both lowercase letters and digits.
    pub(super) fn new(beacon: &str, start: &str) -> Self {
        Self {
            subtype: format!("_{beacon}._sub.{SERVICE}"),
            instance: format!("{start}.{SERVICE}"),
            host: format!("{start}.local"),
        }
    }

    /// Returns the question, none when it cannot be written.
    pub(super) fn question(&self) -> Option<Vec<u8>> {
        let mut packet = Packet::new_query(0);
        packet.questions.push(Question::new(
            Name::new(&self.subtype).ok()?,
            QTYPE::TYPE(TYPE::PTR),
            QCLASS::CLASS(CLASS::IN),
            false,
        ));
        packet.build_bytes_vec_compressed().ok()
    }

    /// Returns the answer, none when it cannot be written.
    pub(super) fn answer(&self, port: u16, addresses: &[IpAddr]) -> Option<Vec<u8>> {
        let [subtype, service, instance, host] =
            [&self.subtype, SERVICE, &self.instance, &self.host].map(Name::new);
        let (subtype, service) = (subtype.ok()?, service.ok()?);
        let (instance, host) = (instance.ok()?, host.ok()?);
        let mut packet = Packet::new_reply(0);
        packet.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
        let record = |name: &Name<'_>, data| {
            ResourceRecord::new(name.clone().into_owned(), CLASS::IN, LIFETIME_SECS, data)
        };
        for name in [&subtype, &service] {
            let data = RData::PTR(PTR(instance.clone()));
            packet.answers.push(record(name, data));
        }
        let place = SRV {
            priority: 0,
            weight: 0,
            port,
            target: host.clone(),
        };
        let alone = [RData::SRV(place), RData::TXT(TXT::new())];
        let alone = alone.map(|data| record(&instance, data).with_cache_flush(true));
        packet.additional_records.extend(alone);
        for address in addresses.iter().take(MAX_ADDRESSES) {
            let data = match address {
                IpAddr::V4(address) => RData::A(A::from(*address)),
                IpAddr::V6(address) => RData::AAAA(AAAA::from(*address)),
            };
            let record = record(&host, data).with_cache_flush(true);
            packet.additional_records.push(record);
        }
        packet.build_bytes_vec_compressed().ok()
    }

    /// Reads a message; none when it is about something else, this anchor's own, or malformed.
    pub(super) fn read(&self, bytes: &[u8]) -> Option<Heard> {
        if bytes.len() > MAX_BYTES {
            return None;
        }
        let packet = Packet::parse(bytes).ok()?;
        let subtype = Name::new(&self.subtype).ok()?;
        if !packet.has_flags(PacketFlag::RESPONSE) {
            let asks = |question: &Question<'_>| {
                let kinds = [QTYPE::TYPE(TYPE::PTR), QTYPE::ANY];
                question.qname == subtype && kinds.contains(&question.qtype)
            };
            return packet.questions.iter().any(asks).then_some(Heard::Question);
        }
        let records = || packet.answers.iter().chain(&packet.additional_records);
        let own = Name::new(&self.instance).ok()?;
        let instance = records().find_map(|record| {
            let RData::PTR(PTR(instance)) = &record.rdata else {
                return None;
            };
            (record.name == subtype).then(|| instance.clone())
        })?;
        let port = records().find_map(|record| {
            let RData::SRV(place) = &record.rdata else {
                return None;
            };
            // A goodbye is no place to knock.
            (record.name == instance && record.ttl > 0).then_some(place.port)
        })?;
        (instance != own && port != 0).then_some(Heard::Answer(port))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> [Names; 3] {
        let (ours, theirs) = ("abcdefghijklmnop", "qrstuvwxyz234567");
        [
            Names::new(ours, "aa"),
            Names::new(ours, "bb"),
            Names::new(theirs, "cc"),
        ]
    }

    #[test]
    fn members_of_one_realm_hear_each_other_and_nobody_else() {
        let [one, two, stranger] = names();
        let addresses: Vec<IpAddr> = ["192.0.2.1", "2001:db8::1"]
            .map(|a| a.parse().unwrap())
            .into();
        let answer = one.answer(47_474, &addresses).unwrap();
        let question = one.question().unwrap();

        assert_eq!(two.read(&question), Some(Heard::Question));
        assert_eq!(two.read(&answer), Some(Heard::Answer(47_474)));
        assert_eq!(stranger.read(&question), None);
        assert_eq!(stranger.read(&answer), None);
        assert!(answer.len() < 300, "{}", answer.len());
    }

    #[test]
    fn an_anchor_does_not_hear_itself() {
        let [one, ..] = names();

        assert_eq!(one.read(&one.answer(47_474, &[]).unwrap()), None);
    }

    #[test]
    fn more_addresses_than_matter_are_left_out() {
        let [one, two, _] = names();
        let many: Vec<IpAddr> = (0..200)
            .map(|last| IpAddr::from([10, 0, 0, last]))
            .collect();

        let answer = one.answer(1, &many).unwrap();

        assert!(answer.len() < 400, "{}", answer.len());
        assert_eq!(two.read(&answer), Some(Heard::Answer(1)));
    }

    #[test]
    fn a_message_cut_short_says_nothing_false() {
        let [one, two, _] = names();
        let answer = one.answer(47_474, &["192.0.2.1".parse().unwrap()]).unwrap();

        for length in 0..answer.len() {
            let heard = two.read(&answer[..length]);
            assert!(matches!(heard, None | Some(Heard::Answer(47_474))));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_ignored(bytes: Vec<u8>) {
            let [one, ..] = names();
            let _ = one.read(&bytes);
        }

        #[test]
        fn a_message_with_a_changed_byte_is_read_or_ignored(place: prop::sample::Index, byte: u8) {
            let [one, two, _] = names();
            let mut answer = one.answer(47_474, &["192.0.2.1".parse().unwrap()]).unwrap();
            let place = place.index(answer.len());
            answer[place] = byte;
            let _ = two.read(&answer);
        }
    }
}
