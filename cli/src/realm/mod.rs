//! `realm export` and `realm import`: how the realm's key gets to another machine, so that the
//! loss of the first one loses nothing. Both read and write the state directory; a running daemon
//! takes an imported key up at once.

mod content;
mod passphrase;
mod sealed;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use conflux_anchor::files::{Layout, State, StateFile};
use conflux_core::identity::RealmSecret;
use conflux_proto::advert::SignedAdvert;
use conflux_proto::id::RealmKey;
use zeroize::Zeroizing;

use self::content::Content;
use self::sealed::{LOG_N, Lock, MAX_SEALED_BYTES};
use crate::args::{ExportFlags, ImportFlags};
use crate::client;
use crate::configure::needs_root;
use crate::exit::{Exit, Outcome, answer};

/// Prints the realm's key, encrypted.
pub(crate) fn export(layout: &Layout, flags: &ExportFlags) -> Outcome {
    needs_root()?;
    let state = State::open_if_present(layout)?
        .ok_or_else(|| Exit::NotConfigured.because("this machine is in no realm yet"))?;
    let Some(seed) = state.read_key(StateFile::RealmSecret)? else {
        return Err(Exit::Failed.because(
            "this machine does not hold the realm's key: run this on the realm's first machine, \
             or on one that imported the key",
        ));
    };
    let adverts = state
        .read_list(StateFile::Adverts)?
        .iter()
        .filter_map(|bytes| minicbor::decode::<SignedAdvert>(bytes).ok())
        .map(|signed| signed.advert)
        .collect();
    let content = Content {
        secret: RealmSecret::from_seed(&seed),
        adverts,
    };
    let passphrase = passphrase::choose(flags.passphrase_file.as_deref())?;
    let lock = Lock {
        passphrase: passphrase.as_bytes(),
        log_n: LOG_N,
    };
    answer(&sealed::seal(content.to_text().as_bytes(), &lock))
}

/// Takes the realm's key from an export.
pub(crate) fn import(layout: &Layout, flags: &ImportFlags) -> Outcome {
    needs_root()?;
    let name = flags.file.display();
    let text = read(&flags.file)
        .map_err(|error| Exit::Usage.because(format!("{name}: {error}; nothing was changed")))?;
    let passphrase = passphrase::ask(flags.passphrase_file.as_deref())?;
    let refused = |why: String| Exit::Usage.because(format!("{name}: {why}; nothing was changed"));
    let plain =
        sealed::open(&text, passphrase.as_bytes()).map_err(|error| refused(error.to_string()))?;
    let content = std::str::from_utf8(&plain)
        .map_err(|_| content::BadContent::NotAnExport)
        .and_then(Content::from_text)
        .map_err(|error| refused(error.to_string()))?;

    let realm = content.secret.key();
    refuse_other_realm(layout, realm)?;
    let state = State::open(layout)?;
    let was_member = state.read(StateFile::Credential)?.is_some();
    state.write(StateFile::Realm, &realm.0)?;
    state.write(StateFile::RealmSecret, content.secret.seed())?;
    if !was_member {
        write_adverts(&state, content)?;
    }
    let runs = state.is_locked()?;
    if runs {
        client::post(layout, "/v1/reload", &())?;
    }
    let next = match (was_member, runs) {
        (_, true) => "the running daemon uses it from now on",
        (true, false) => "`conflux start` uses it",
        (false, false) => "`conflux up` makes this machine a member",
    };
    answer(&format!(
        "this machine holds the key of realm {} now; {next}\n",
        realm.id()
    ))
}

fn refuse_other_realm(layout: &Layout, realm: RealmKey) -> Outcome {
    let state = State::open_if_present(layout)?;
    match state.as_ref().map(State::realm).transpose()?.flatten() {
        Some(known) if known != realm => Err(Exit::Usage.because(format!(
            "this machine belongs to realm {}, the export is of realm {}: nothing was changed; \
             `conflux uninstall` makes this machine forget the first",
            known.id(),
            realm.id()
        ))),
        Some(_) | None => Ok(()),
    }
}

/// A machine that knows nobody yet finds the others where they last were.
fn write_adverts(state: &State, content: Content) -> Outcome {
    let adverts: Vec<Vec<u8>> = content
        .adverts
        .into_iter()
        .filter_map(|advert| {
            minicbor::to_vec(SignedAdvert {
                advert,
                credential: None,
            })
            .ok()
        })
        .collect();
    Ok(state.write_list(StateFile::Adverts, adverts.iter().map(Vec::as_slice))?)
}

fn read(file: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    if file == Path::new("-") {
        io::stdin()
            .lock()
            .take(MAX_SEALED_BYTES)
            .read_to_end(&mut bytes)?;
    } else {
        File::open(file)?
            .take(MAX_SEALED_BYTES)
            .read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
