//! A pcap file of every frame that enters the switch, readable by tcpdump and wireshark.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// An open capture file.
pub(crate) struct Capture {
    file: BufWriter<File>,
}

impl Capture {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        // Magic for nanoseconds, version 2.4, no zone, snap length, Ethernet.
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, 1] {
            file.write_all(&word.to_ne_bytes())?;
        }
        Ok(Self { file })
    }

    pub(crate) fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let length = frame.len() as u32;
        for word in [now.as_secs() as u32, now.subsec_nanos(), length, length] {
            self.file.write_all(&word.to_ne_bytes())?;
        }
        self.file.write_all(frame)
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}
