use super::*;

const START: Mono = Mono::from_nanos(1_000_000_000_000);

const KEY: AnchorKey = AnchorKey([1; 32]);

/// A peer with these connections, each by the number of its start.
fn peers(conns: &[(u64, u64)]) -> (Peers, PeerIx) {
    let mut peers = Peers::default();
    let peer = peers.number(KEY, START);
    for (number, epoch) in conns {
        peers.add_conn(Conn {
            id: ConnId::numbered(*number),
            key: KEY,
            outgoing: false,
            psk: Psk::sample(),
            remote: SocketAddr::from(([192, 0, 2, 1], 1)),
            accepted: true,
            epoch: *epoch,
            member: None,
        });
    }
    (peers, peer)
}

fn late(peers: &Peers, conn: u64, seconds: u64) -> bool {
    peers.speaks_from_before(ConnId::numbered(conn), START + Duration::from_secs(seconds))
}

#[test]
fn a_start_that_goes_back_is_another_machines() {
    let (mut peers, peer) = peers(&[]);

    assert!(!peers.goes_back(peer, 3, START));
    assert!(!peers.goes_back(peer, 3, START));
    assert!(!peers.goes_back(peer, 4, START));
    assert!(peers.goes_back(peer, 3, START));
}

#[test]
fn a_start_before_one_that_an_advert_told_of_goes_back_too() {
    let (mut peers, peer) = peers(&[(1, 3)]);
    assert!(!peers.goes_back(peer, 3, START));

    // By another anchor, which has met the other machine.
    peers.note_advert(ConnId::numbered(9), &KEY, 7, START);

    assert!(peers.goes_back(peer, 6, START));
}

#[test]
fn a_connection_that_lives_on_beside_a_later_start_is_another_machines() {
    let (mut peers, peer) = peers(&[(1, 3), (2, 4)]);
    peers.goes_back(peer, 3, START);
    assert!(!late(&peers, 1, 100));

    peers.goes_back(peer, 4, START);

    // What a machine sent before it started again may still be under way.
    assert!(!late(&peers, 1, 4));
    assert!(late(&peers, 1, 5));
    assert!(!late(&peers, 2, 100));
}

#[test]
fn a_machine_that_goes_on_as_a_later_start_is_no_clone_of_itself() {
    let (mut peers, peer) = peers(&[(1, 3), (2, 3)]);
    peers.goes_back(peer, 3, START);

    // First told by another anchor, then by itself on one of its connections.
    peers.note_advert(ConnId::numbered(9), &KEY, 8, START);
    peers.note_advert(
        ConnId::numbered(1),
        &KEY,
        8,
        START + Duration::from_millis(5),
    );

    assert!(!late(&peers, 1, 100));
    assert!(!late(&peers, 2, 100));
    assert!(!peers.goes_back(peer, 8, START));
}

#[test]
fn a_clone_that_goes_on_as_a_later_start_does_not_speak_for_the_other_one() {
    let (mut peers, peer) = peers(&[(1, 3), (2, 4)]);
    peers.goes_back(peer, 4, START);

    peers.note_advert(ConnId::numbered(1), &KEY, 5, START);

    assert!(!late(&peers, 1, 100));
    assert!(late(&peers, 2, 5));
}

#[test]
fn nobody_makes_a_start_of_another_anchor_late() {
    let (mut peers, _) = peers(&[(1, 3)]);

    peers.note_advert(ConnId::numbered(1), &AnchorKey([2; 32]), 9, START);

    assert!(!late(&peers, 1, 100));
}
