//! Bad networks that must move nothing: what was open and flowing before, and what is still there
//! afterwards.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::realm::{Client, Realm, at, port};
use crate::wait;
use crate::work::{Download, OneWay};

/// A download and a one-way sender on the first client, and where its flows were.
pub struct Staying {
    download: Download,
    one_way: OneWay,
    flows: BTreeMap<Option<IpAddr>, Option<String>>,
}

/// What became of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Stayed {
    /// Whether every flow has the holder it had.
    pub nothing_moved: bool,
    /// Whether the download is the same connection still.
    pub download_lives: bool,
    /// Bytes it brought meanwhile.
    pub bytes: u64,
    /// Datagrams of the one-way sender that were refused by its own host.
    pub refused: u64,
    /// Datagrams sent, and those that reached a holder, by holder name.
    pub sent: u64,
    /// How many reached each holder.
    pub arrived: BTreeMap<String, usize>,
}

impl Staying {
    /// Starts both on the first client.
    ///
    /// # Panics
    ///
    /// When they do not run.
    pub fn start(realm: &Realm) -> Self {
        let client = &realm.clients[0];
        let download = Download::start(&client.host, at(port::ENDLESS))
            .unwrap_or_else(|error| panic!("no download: {error}"));
        let one_way = OneWay::start(&client.host, at(port::SINK), Duration::from_millis(20));
        wait::until(Duration::from_secs(5), "both to run", || {
            let arrived = arrived(realm).values().sum::<usize>();
            download.bytes() > 100_000 && arrived > 10
        });
        Self {
            download,
            one_way,
            flows: client.holders_of_flows(),
        }
    }

    /// Returns what has become of them.
    pub fn look(&self, realm: &Realm) -> Stayed {
        let client: &Client = &realm.clients[0];
        Stayed {
            nothing_moved: client.holders_of_flows() == self.flows,
            download_lives: self.download.ended().is_none(),
            bytes: self.download.bytes(),
            refused: self.one_way.errors(),
            sent: self.one_way.sent(),
            arrived: arrived(realm),
        }
    }
}

impl Stayed {
    /// Returns whether nothing moved, broke or was refused.
    pub fn is_calm(&self) -> bool {
        let met = self.arrived.values().filter(|count| **count > 0).count();
        self.nothing_moved && self.download_lives && self.refused == 0 && met == 1
    }
}

impl fmt::Debug for Stayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "flows kept: {}, download lives: {} ({} bytes), {} sent one way, {} refused, arrived: {:?}",
            self.nothing_moved,
            self.download_lives,
            self.bytes,
            self.sent,
            self.refused,
            self.arrived
        )
    }
}

fn arrived(realm: &Realm) -> BTreeMap<String, usize> {
    let holders = realm.holders.iter();
    holders
        .map(|holder| (holder.host.name().to_owned(), holder.sink.arrived().len()))
        .collect()
}
