//! Passphrases: from a file, or from the terminal without an echo. Never from the command line,
//! where others see them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::exit::{Exit, Outcome};

/// Whoever has the export can guess without end, at a fifth of a second each.
const SHORTEST_LETTERS: usize = 12;

/// More than anybody types.
const MAX_BYTES: u64 = 4096;

/// Returns a new passphrase: typed twice, or a file's.
pub(super) fn choose(file: Option<&Path>) -> Outcome<Zeroizing<String>> {
    let chosen = match file {
        Some(file) => from_file(file)?,
        None => {
            let chosen = typed("Passphrase for the export: ")?;
            if *typed("Once more: ")? != *chosen {
                return Err(Exit::Usage.because("the two passphrases differ; nothing was exported"));
            }
            chosen
        }
    };
    if chosen.chars().count() < SHORTEST_LETTERS {
        return Err(Exit::Usage.because(format!(
            "the passphrase is too short for the key of a realm: {SHORTEST_LETTERS} letters at \
             least; nothing was exported"
        )));
    }
    Ok(chosen)
}

/// Returns the passphrase of an export.
pub(super) fn ask(file: Option<&Path>) -> Outcome<Zeroizing<String>> {
    match file {
        Some(file) => from_file(file),
        None => typed("Passphrase of the export: "),
    }
}

/// The first line of a file.
fn from_file(file: &Path) -> Outcome<Zeroizing<String>> {
    let told = |error: io::Error| {
        Exit::Usage.because(format!("--passphrase-file {}: {error}", file.display()))
    };
    first_line(File::open(file).map_err(told)?).map_err(told)
}

fn typed(prompt: &str) -> Outcome<Zeroizing<String>> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty");
    let Ok(mut terminal) = terminal else {
        return Err(Exit::Usage.because(
            "there is no terminal to ask for the passphrase: name a file with --passphrase-file",
        ));
    };
    terminal.write_all(prompt.as_bytes())?;
    let shown = tcgetattr(&terminal).map_err(io::Error::from)?;
    let mut hidden = shown.clone();
    hidden.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(&terminal, SetArg::TCSAFLUSH, &hidden).map_err(io::Error::from)?;
    let line = terminal.try_clone().and_then(first_line);
    tcsetattr(&terminal, SetArg::TCSAFLUSH, &shown).map_err(io::Error::from)?;
    terminal.write_all(b"\n")?;
    Ok(line?)
}

fn first_line(reader: impl Read) -> io::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::with_capacity(
        usize::try_from(MAX_BYTES).unwrap_or(0),
    ));
    BufReader::new(reader.take(MAX_BYTES)).read_line(&mut line)?;
    let kept = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(kept);
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_first_line_is_the_passphrase() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("passphrase");
        for (text, passphrase) in [
            ("twelve letters\r\nmore\n", Some("twelve letters")),
            (" with spaces, no end ", Some(" with spaces, no end ")),
            ("short\n", None),
            ("", None),
        ] {
            std::fs::write(&file, text).unwrap();

            let chosen = choose(Some(&file)).ok();

            assert_eq!(
                chosen.as_ref().map(|it| it.as_str()),
                passphrase,
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_wrong_usage() {
        assert_eq!(
            ask(Some(Path::new("/nowhere"))).unwrap_err().exit,
            Exit::Usage
        );
    }
}
