//! What readers remember from line to line.

use super::error::{Bad, bad};
use henge_core::Duration;
use std::collections::BTreeMap;

/// What one step of each column is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    /// Nanoseconds.
    pub time: u64,
    /// Bytes.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// Wanted: every event or module.
pub(crate) const ANY: u8 = b'*';

/// Names that a trace may have: more would be a damaged or a hostile file.
const NAMES_MAX: usize = 1 << 20;

/// What readers remember.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Requests read so far.
    pub records: u64,
    /// Devices, files or volumes by name, numbered as they appear.
    names: BTreeMap<Vec<u8>, u32>,
    /// The device that was asked for last, since most lines repeat it.
    last: (Vec<u8>, u32, u32),
    /// The file that the records below belong to (DXT).
    pub file: u32,
    /// Whether the header line was seen.
    pub header: bool,
    /// What separates columns, once a line has shown it (comma-separated formats).
    pub separator: u8,
    /// Version of the format, where it has several.
    pub version: u32,
    /// Time that passed by `wait` lines (fio iolog v2), or since the time stamps began.
    pub clock: Duration,
    /// Which event or module counts, by its letter; [`ANY`] counts them all.
    pub wanted: u8,
    /// Letters of events or modules that were passed over, as bits from A on.
    pub others: u32,
    /// Reads that are marked as read-ahead.
    pub read_ahead: u64,
    /// Their bytes.
    pub read_ahead_bytes: u64,
    /// Lines that lack an operation or an address although the format lets them.
    pub incomplete: u64,
}

impl State {
    /// Nothing read yet; `wanted` chooses an event or a module.
    pub fn wanting(wanted: u8) -> State {
        State { wanted, ..State::default() }
    }

    /// Whether the event or module of this letter counts; if not, it is remembered.
    #[inline]
    pub fn wants(&mut self, letter: u8) -> bool {
        if self.wanted == letter || self.wanted == ANY {
            return true;
        }
        if letter.is_ascii_uppercase() {
            self.others |= 1 << (letter - b'A');
        }
        false
    }

    /// The letters that were passed over.
    pub fn passed_over(&self) -> String {
        let letters = (0..26).filter(|bit| self.others & 1 << bit != 0);
        letters.map(|bit| (b'A' + bit) as char).map(String::from).collect::<Vec<_>>().join(", ")
    }

    /// A read of `len` bytes is marked as read-ahead.
    #[inline]
    pub fn reads_ahead(&mut self, len: u64) {
        self.read_ahead += 1;
        self.read_ahead_bytes = self.read_ahead_bytes.saturating_add(len);
    }

    /// The number of device `number` on `host`.
    #[inline]
    pub fn device(&mut self, host: &[u8], number: u32) -> Result<u32, Bad> {
        if self.last.0 == host && self.last.1 == number && !self.last.0.is_empty() {
            return Ok(self.last.2);
        }
        let mut key = host.to_vec();
        key.push(0);
        key.extend(number.to_be_bytes());
        let device = self.name(&key)?;
        self.last = (host.to_vec(), number, device);
        Ok(device)
    }

    /// The number of a name, a new one when it is new.
    pub fn name(&mut self, name: &[u8]) -> Result<u32, Bad> {
        if let Some(known) = self.names.get(name) {
            return Ok(*known);
        }
        let number = self.names.len();
        if number >= NAMES_MAX {
            return Err(bad("name", "more than a million different ones"));
        }
        self.names.insert(name.to_vec(), number as u32);
        Ok(number as u32)
    }

    /// The number of a name that is known.
    pub fn known(&self, name: &[u8]) -> Option<u32> {
        self.names.get(name).copied()
    }
}
