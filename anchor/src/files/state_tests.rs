//! The state directory, through its public edge.

use super::*;

#[test]
fn the_directory_is_the_owners_alone() {
    let (_directory, layout, _state) = fresh();

    let mode = fs::metadata(&layout.state).unwrap().permissions().mode();

    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_directory_open_to_others_is_closed() {
    let (_directory, layout, _state) = fresh();
    fs::set_permissions(&layout.state, fs::Permissions::from_mode(0o755)).unwrap();

    State::open(&layout).unwrap();

    assert_eq!(
        fs::metadata(&layout.state).unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let (_directory, layout, _state) = fresh();
    std::os::unix::fs::chown(&layout.state, Some(12345), None).unwrap();

    let error = State::open(&layout).unwrap_err();

    assert!(
        error
            .to_string()
            .contains("belongs to user 12345, not to user 0"),
        "{error}"
    );
}

#[test]
fn a_file_open_to_others_is_closed_and_one_of_another_user_refused() {
    let (_directory, layout, state) = fresh();
    state.write(StateFile::RealmSecret, &[7; 32]).unwrap();
    let path = layout.state.join("realm.seed");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4644)).unwrap();

    State::open(&layout).unwrap();

    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
    let error = State::open(&layout).unwrap_err().to_string();
    assert!(
        error.contains("realm.seed belongs to user 12345"),
        "{error}"
    );
}

#[test]
fn a_link_in_place_of_a_file_is_refused() {
    let (_directory, layout, _state) = fresh();
    std::os::unix::fs::symlink("/dev/zero", layout.state.join("identity.seed")).unwrap();

    let error = State::open(&layout).unwrap_err().to_string();

    assert!(error.contains("not a plain file"), "{error}");
}

#[test]
fn secrets_are_read_back_and_nobody_else_may_read_them() {
    let (_directory, layout, state) = fresh();

    assert!(state.read_key(StateFile::Identity).unwrap().is_none());
    state.write(StateFile::Identity, &[7; 32]).unwrap();

    assert_eq!(
        *state.read_key(StateFile::Identity).unwrap().unwrap(),
        [7; 32]
    );
    let metadata = fs::metadata(layout.state.join("identity.seed")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_damaged_file_is_told_and_kept() {
    let (_directory, layout, state) = fresh();
    let path = layout.state.join("identity.seed");

    for content in [
        &b"x"[..],
        b"garbage\n",
        b"conflux identity.seed 1\nshort",
        b"conflux epoch 1\n",
    ] {
        fs::write(&path, content).unwrap();

        let error = state.read_key(StateFile::Identity).unwrap_err();

        assert!(matches!(error, StateError::Damaged { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

#[test]
fn a_newer_file_is_neither_read_nor_overwritten() {
    let (_directory, layout, state) = fresh();
    let path = layout.state.join("epoch");
    fs::write(&path, "conflux epoch 2\n{later}").unwrap();

    assert!(matches!(
        state.next_epoch(),
        Err(StateError::Newer { found: 2, .. })
    ));
    assert!(matches!(
        state.write(StateFile::Epoch, b"1"),
        Err(StateError::Newer { .. })
    ));
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "conflux epoch 2\n{later}"
    );
}

#[test]
fn epochs_only_grow_also_when_the_clock_was_ahead() {
    let (_directory, _layout, state) = fresh();

    let first = state.next_epoch().unwrap();
    state.write(StateFile::Epoch, b"99999999999").unwrap();
    let second = state.next_epoch().unwrap();

    assert!(first > 1_000_000_000);
    assert_eq!(second, 100_000_000_000);
}

#[test]
fn one_daemon_at_a_time_holds_the_lock() {
    let (_directory, _layout, state) = fresh();

    let held = state.lock().unwrap();

    assert!(state.is_locked().unwrap());
    assert!(matches!(state.lock(), Err(StateError::Locked { .. })));
    drop(held);
    assert!(!state.is_locked().unwrap());
}

#[test]
fn a_waiting_ticket_is_kept_until_it_is_removed() {
    let (_directory, _layout, state) = fresh();

    state.write(StateFile::Ticket, b"conflux1abc\n").unwrap();

    assert_eq!(*state.ticket().unwrap().unwrap(), "conflux1abc");
    state.remove(StateFile::Ticket).unwrap();
    state.remove(StateFile::Ticket).unwrap();
    assert_eq!(state.ticket().unwrap(), None);
}

proptest::proptest! {
    #[test]
    fn a_list_is_read_back(list: Vec<Vec<u8>>) {
        let (_directory, _layout, state) = fresh();

        state.write_list(StateFile::Adverts, list.iter().map(Vec::as_slice)).unwrap();

        proptest::prop_assert_eq!(state.read_list(StateFile::Adverts).unwrap(), list);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes: Vec<u8>) {
        let (_directory, layout, state) = fresh();
        let mut content = b"conflux adverts 1\n".to_vec();
        content.extend_from_slice(&bytes);
        fs::write(layout.state.join("adverts"), content).unwrap();

        let _ = state.read_list(StateFile::Adverts);
    }
}

fn fresh() -> (tempfile::TempDir, Layout, State) {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::below(directory.path()).unwrap();
    let state = State::open(&layout).unwrap();
    (directory, layout, state)
}
