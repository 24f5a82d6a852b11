//! A change of one record whose writing is somebody else's: decided in memory at once, written by a [`Chore`] that may block.

use super::super::superblock::PAGE;
use super::{RECORDS, Record, Table};
use crate::Buffer;
use crate::store::Chore;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A change on its way to the device.
pub struct Change {
    slot: usize,
    before: Option<Record>,
    /// Neither the change nor what was there before could be written.
    lost: Arc<AtomicBool>,
}

/// A page and its two places.
struct Page {
    bytes: Buffer,
    at: [u64; 2],
}

impl Page {
    fn write(&self, file: &File) -> io::Result<()> {
        for at in self.at {
            file.write_all_at(&self.bytes, at)?;
            crate::open::synced(file.sync_data())?;
        }
        Ok(())
    }
}

impl Table {
    /// Changes a record as [`put`](Table::put) does, but for the writing, which the chore does after `first`. Whoever has had it done says
    /// so to [`end`](Table::end), before any other change.
    pub fn begin(
        &mut self,
        file: Arc<File>,
        slot: usize,
        record: Option<Record>,
        first: impl FnOnce(&File) -> io::Result<()> + Send + 'static,
    ) -> io::Result<(Change, Chore)> {
        self.check_whole()?;
        let page = slot / RECORDS;
        let at = self.at.map(|copy| copy + page as u64 * PAGE);
        // Written again in case the change cannot be; so its number is the higher one.
        let before = self.records[slot].clone();
        let numbers = self.sequences[page];
        self.sequences[page] = numbers + 2;
        let old = Page { bytes: self.encode(page), at };
        self.records[slot] = record;
        self.sequences[page] = numbers + 1;
        let new = Page { bytes: self.encode(page), at };
        self.sequences[page] = numbers + 2;
        let lost = Arc::new(AtomicBool::new(false));
        let change = Change { slot, before, lost: Arc::clone(&lost) };
        let chore = move || {
            first(&file)?;
            let Err(error) = new.write(&file) else { return Ok(None) };
            let taken_back = old.write(&file);
            lost.store(taken_back.is_err(), Ordering::Relaxed);
            Err(super::unwritten(&error, taken_back.err()))
        };
        Ok((change, Box::new(chore)))
    }

    /// The chore of a change is done. After an error the record is as it was, or no more changes are made.
    pub fn end(&mut self, change: Change, outcome: Result<(), &io::Error>) {
        let Err(error) = outcome else { return };
        self.records[change.slot] = change.before;
        if change.lost.load(Ordering::Relaxed) {
            self.broken = Some(error.to_string());
        }
    }
}
