use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[test]
fn a_flow_keeps_its_holder_until_it_is_set_anew() {
    let mut flows = Flows::new(8, 1);
    let id = flows.insert(at(0), key(1), 32, Some(PeerIx(4)), Reason::New);

    flows.note(at(5), id, 100, Direction::FromHost);
    flows.note(at(6), id, 50, Direction::ToHost);

    let flow = flows.get(id).unwrap();
    assert_eq!(flow.holder, Some(PeerIx(4)));
    assert_eq!(
        flow.sent,
        Volume {
            packets: 1,
            bytes: 100
        }
    );
    assert_eq!(
        flow.received,
        Volume {
            packets: 1,
            bytes: 50
        }
    );
    assert_eq!(flow.last, at(6));
}

#[test]
fn the_longest_idle_flow_is_found_first() {
    let mut flows = Flows::new(8, 1);
    let first = flows.insert(at(0), key(1), 32, None, Reason::New);
    let second = flows.insert(at(1), key(2), 32, None, Reason::New);

    flows.note(at(31), first, 1, Direction::ToHost);

    assert_eq!(flows.longest_idle(), Some(second));
}

#[test]
fn keys_of_one_hash_are_told_apart() {
    let mut flows = Flows::new(8, 1);
    let addresses: [IpAddr; 2] = ["10.0.0.9", "::a00:9"].map(|text| text.parse().unwrap());
    let zeros: [IpAddr; 2] = ["0.0.0.0", "::"].map(|text| text.parse().unwrap());
    let hosts = [Host::Own, Host::Behind(zeros[0]), Host::Behind(zeros[1])];
    let keys: Vec<_> = hosts
        .into_iter()
        .flat_map(|host| addresses.map(|destination| FlowKey { host, destination }))
        .collect();
    let put = |flows: &mut Flows, key| flows.insert(at(0), key, 32, None, Reason::New);
    let ids: Vec<_> = keys.iter().map(|&key| put(&mut flows, key)).collect();

    for (key, &id) in keys.iter().zip(&ids) {
        assert_eq!(flows.tag(key), flows.tag(&keys[0]), "{key:?}");
        assert_eq!(flows.find(key), Some(id), "{key:?}");
    }
    flows.remove(ids[0]);
    assert_eq!(flows.find(&keys[0]), None);
    for (key, &id) in keys.iter().zip(&ids).skip(1) {
        assert_eq!(flows.find(key), Some(id), "{key:?}");
    }
}

#[test]
fn a_parked_flow_comes_back_with_its_next_packet() {
    let mut flows = Flows::new(8, 1);
    let first = flows.insert(at(0), key(1), 32, None, Reason::New);
    let second = flows.insert(at(1), key(2), 32, None, Reason::New);

    flows.park(first);
    assert_eq!(flows.longest_unparked(), Some(second));
    assert_eq!(flows.longest_parked(), Some(first));
    flows.note(at(1), first, 1, Direction::FromHost);

    assert_eq!(flows.longest_parked(), None);
    assert_eq!(flows.longest_unparked(), Some(second));
}

#[test]
fn a_million_flows_fit_in_their_stated_size() {
    const { assert!(FLOW_BYTES <= 152) };
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u8, u8),
    Remove(u8),
    Move(u8, u8),
    Note(u8),
    Park(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..12, 0_u8..4).prop_map(|(key, holder)| Step::Insert(key, holder)),
        (0_u8..12).prop_map(Step::Remove),
        (0_u8..12, 0_u8..4).prop_map(|(key, holder)| Step::Move(key, holder)),
        (0_u8..12).prop_map(Step::Note),
        (0_u8..12).prop_map(Step::Park),
    ]
}

proptest! {
    #[test]
    fn table_agrees_with_a_plain_map(steps in proptest::collection::vec(step(), 1..120)) {
        let mut flows = Flows::new(64, 7);
        let mut model: BTreeMap<u8, (Option<PeerIx>, u64)> = BTreeMap::new();
        for (second, step) in steps.into_iter().enumerate() {
            let second = second as u64 * 2;
            match step {
                Step::Insert(name, holder) if !model.contains_key(&name) => {
                    flows.insert(at(second), key(name), 32, peer(holder), Reason::New);
                    model.insert(name, (peer(holder), second));
                }
                Step::Insert(..) => {}
                Step::Remove(name) => {
                    if let Some(id) = flows.find(&key(name)) {
                        flows.remove(id);
                    }
                    model.remove(&name);
                }
                Step::Move(name, holder) => {
                    if let Some(id) = flows.find(&key(name)) {
                        flows.set_holder(at(second), id, peer(holder), Reason::Left);
                    }
                    if let Some(entry) = model.get_mut(&name) {
                        entry.0 = peer(holder);
                    }
                }
                Step::Note(name) => {
                    if let Some(id) = flows.find(&key(name)) {
                        flows.note(at(second), id, 10, Direction::FromHost);
                    }
                    if let Some(entry) = model.get_mut(&name) {
                        entry.1 = second;
                    }
                }
                Step::Park(name) => {
                    if let Some(id) = flows.find(&key(name)) {
                        flows.park(id);
                    }
                }
            }
            check(&flows, &model)?;
        }
    }
}

fn check(flows: &Flows, model: &BTreeMap<u8, (Option<PeerIx>, u64)>) -> Result<(), TestCaseError> {
    prop_assert_eq!(flows.len(), model.len());
    for (&name, &(holder, last)) in model {
        let flow = flows
            .get(flows.find(&key(name)).expect("in the model"))
            .expect("found");
        prop_assert_eq!(flow.holder, holder);
        prop_assert_eq!(flow.last, at(last));
    }
    for number in 0..4 {
        let mut on_holder = 0;
        let mut next = flows.first_on_holder(PeerIx(number));
        while let Some(id) = next {
            on_holder += 1;
            prop_assert_eq!(
                flows.get(id).map(|flow| flow.holder),
                Some(Some(PeerIx(number)))
            );
            next = flows.next_on_holder(id);
        }
        let expected = model
            .values()
            .filter(|(holder, _)| *holder == Some(PeerIx(number)))
            .count();
        prop_assert_eq!(on_holder, expected);
    }
    Ok(())
}

fn key(name: u8) -> FlowKey {
    FlowKey {
        host: Host::Own,
        destination: IpAddr::from([10, 128, 0, name]),
    }
}

fn peer(number: u8) -> Option<PeerIx> {
    (number > 0).then_some(PeerIx(u32::from(number)))
}

fn at(seconds: u64) -> Boot {
    Boot::from_nanos(seconds * 1_000_000_000)
}
