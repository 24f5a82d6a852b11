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
    /// Whether the header line was seen (blkreplay).
    pub header: bool,
    /// Version of the format, where it has several.
    pub version: u32,
    /// Time that passed by `wait` lines (fio iolog v2), or since the time stamps began.
    pub clock: Duration,
    /// Which event or module counts; see the readers.
    pub wanted: u8,
}

impl State {
    /// Nothing read yet; `wanted` chooses an event or a module.
    pub fn wanting(wanted: u8) -> State {
        State { wanted, ..State::default() }
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
