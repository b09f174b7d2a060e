//! What `--check` names: how this machine's own service is asked whether it works.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use super::settings::BadValue;

/// Much longer than any command line that is still readable.
const MAX_BYTES: usize = 4096;

/// A check of this machine's own service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckSpec {
    /// A TCP connection to this port of the shared address succeeds.
    Tcp(u16),
    /// A GET is answered with a status of 200 to 399.
    Http {
        /// Where to connect: a loopback address.
        address: SocketAddr,
        /// The path and query, from its slash on.
        path: String,
    },
    /// A program ends with exit code 0.
    Exec {
        /// An absolute path.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
}

impl FromStr for CheckSpec {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let told = |why: &str| {
            BadValue(format!(
                "\"{text}\" is not a check: {why}; it is tcp:PORT, http://127.0.0.1:PORT/path or \
                 exec:/path/of/program [argument]..."
            ))
        };
        if text.len() > MAX_BYTES {
            return Err(BadValue(format!(
                "the check has {} bytes, at most {MAX_BYTES} are taken: name a script",
                text.len()
            )));
        }
        if text.chars().any(char::is_control) {
            return Err(told("it has control characters"));
        }
        if let Some(port) = text.strip_prefix("tcp:") {
            return match port.parse() {
                Ok(0) | Err(_) => Err(told("a port is within 1 to 65535")),
                Ok(port) => Ok(Self::Tcp(port)),
            };
        }
        if let Some(rest) = text.strip_prefix("http://") {
            let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
            let address: SocketAddr = authority
                .parse()
                .map_err(|_| told("after http:// stand an address and a port"))?;
            if !address.ip().is_loopback() || address.port() == 0 {
                return Err(told("only a service of this machine can be checked"));
            }
            if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains('#') {
                return Err(told("its path has characters that must be escaped"));
            }
            let path = path.to_owned();
            return Ok(Self::Http { address, path });
        }
        if let Some(command) = text.strip_prefix("exec:") {
            let mut words = command.split_whitespace().map(str::to_owned);
            return match words.next() {
                Some(program) if program.starts_with('/') => Ok(Self::Exec {
                    program,
                    arguments: words.collect(),
                }),
                Some(_) => Err(told("the program is named by its absolute path")),
                None => Err(told("the program is missing")),
            };
        }
        Err(told("it is none of the known kinds"))
    }
}

impl fmt::Display for CheckSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(port) => write!(f, "tcp:{port}"),
            Self::Http { address, path } => write!(f, "http://{address}{path}"),
            Self::Exec { program, arguments } => {
                write!(f, "exec:{program}")?;
                arguments
                    .iter()
                    .try_for_each(|argument| write!(f, " {argument}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_read_and_written_alike() {
        for text in [
            "tcp:80",
            "http://127.0.0.1:8080/health?full=1",
            "http://[::1]:80/",
            "exec:/usr/local/bin/check --fast",
        ] {
            let spec: CheckSpec = text.parse().unwrap();

            assert_eq!(spec.to_string(), text);
        }
        let short: CheckSpec = "http://127.0.0.1:80".parse().unwrap();
        assert_eq!(short.to_string(), "http://127.0.0.1:80/");
    }

    #[test]
    fn what_is_no_check_is_told_why() {
        for (text, word) in [
            ("", "none of the known kinds"),
            ("80", "none of the known kinds"),
            ("tcp:", "1 to 65535"),
            ("tcp:0", "1 to 65535"),
            ("tcp:70000", "1 to 65535"),
            ("http://127.0.0.1/x", "address and a port"),
            ("http://10.0.0.1:80/", "of this machine"),
            ("http://localhost:80/", "address and a port"),
            ("http://127.0.0.1:80/a b", "escaped"),
            ("exec:", "missing"),
            ("exec:check", "absolute path"),
            ("exec:/bin/a\nb", "control characters"),
        ] {
            let refused = text.parse::<CheckSpec>().unwrap_err().to_string();

            assert!(refused.contains(word), "{refused}");
        }
        let long = format!("exec:/{}", "a".repeat(5000));
        assert!(long.parse::<CheckSpec>().is_err());
    }
}
