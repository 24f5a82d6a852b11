//! Who has which bytes of a device: a table on the device itself.
//!
//! # The problem
//! Parts are made, grow and go while others are served, and the power may go at any moment. The table must be right afterwards:
//! space that two parts have is data lost.
//!
//! # The rule
//! The table is pages of 4 KiB, each with a sequence number, a checksum and 15 records; a record is one part. Every change is one
//! record, so it is one page. Each page has two copies, one behind the first superblock and one before the last. A change writes
//! the page with the next number to the first copy, syncs, then to the second, and syncs. The reader takes the copy with
//! the higher number of those whose checksum is right.
//!
//! # Why that is enough
//! A crash while the first copy is written leaves the second as it was: the change did not happen, and nobody was told that it
//! did. A crash while the second is written leaves the first: it happened. Once both are written, either may rot. Where both
//! are wrong the table is not believed, and the pool not served.
//!
//! # When a change cannot be written
//! Then nobody knows what the copies hold. The page as it was is written again, with a higher number. Where that fails, too, no
//! further change is made until the device was opened anew: what is there is read then, and either is right.
//!
//! # Price
//! Two writes and two syncs a change, whatever the number of parts.

mod change;

pub use change::Change;

use super::superblock::{PAGE, Superblock, u32_at, u64_at};
use crate::Buffer;
use crate::open::named;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use uuid::Uuid;

/// Records of a page; its head takes the place of one.
pub const RECORDS: usize = 15;
const RECORD: usize = 256;
const NAME: usize = 64;
/// Longest name of a part.
const NAME_MAX: usize = 128;
const MAGIC: [u8; 8] = *b"HENGETBL";

/// Whose a part is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nobody's yet: its space is not zeroed, and nobody was told of it.
    Making = 1,
    /// A disk's.
    Used = 2,
    /// No disk's any more, and kept until somebody says otherwise.
    Kept = 3,
}

/// One part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Of this part alone: another of the same name has another.
    pub id: Uuid,
    /// Whose.
    pub state: State,
    /// Of the part.
    pub name: String,
    /// Its first byte, from the beginning of the data.
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// Bytes that its disk had when it grew the last time: what it has if the growth was never acknowledged.
    pub before: u64,
    /// Bytes that its disk is about to have, where that is less than was made; else none.
    pub told: u64,
}

/// A copy of a page that cannot be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wrong {
    page: usize,
    copy: usize,
}

/// The table in memory, as it is on the device.
pub struct Table {
    pool: Uuid,
    at: [u64; 2],
    sequences: Vec<u64>,
    records: Vec<Option<Record>>,
    /// Why no change can be made.
    broken: Option<String>,
}

impl Table {
    /// An empty one, which is not written yet.
    pub fn blank(of: &Superblock) -> Table {
        let pages = of.pages as usize;
        let records = vec![None; pages * RECORDS];
        Table { pool: of.pool, at: of.table, sequences: vec![0; pages], records, broken: None }
    }

    /// Reads it; and which copies of which pages are wrong, or old.
    pub fn load(file: &File, of: &Superblock, path: &Path) -> io::Result<(Table, Vec<Wrong>)> {
        let mut table = Table::blank(of);
        let copies = of.table.map(|at| read_copy(at, of.pages, |bytes, at| file.read_exact_at(bytes, at)));
        let mut wrong = Vec::new();
        for page in 0..of.pages as usize {
            let bytes = |i: usize| &copies[i][page * PAGE as usize..][..PAGE as usize];
            let numbers = [0, 1].map(|i| table.number(bytes(i), page));
            let best = usize::from(numbers[1] > numbers[0]);
            let Some(sequence) = numbers[best] else {
                let why = format!(
                    "both copies of page {page} of the pool's table are wrong: it is not known who has which space. \
                     `henge pool show` shows what can be read"
                );
                return Err(named(path, &io::Error::new(io::ErrorKind::InvalidData, why)));
            };
            table.sequences[page] = sequence;
            for (i, record) in bytes(best).chunks(RECORD).skip(1).enumerate() {
                table.records[page * RECORDS + i] = decode(record).map_err(|why| {
                    named(path, &io::Error::new(io::ErrorKind::InvalidData, format!("page {page}: {why}")))
                })?;
            }
            if numbers[0] != numbers[1] {
                wrong.push(Wrong { page, copy: 1 - best });
            }
        }
        Ok((table, wrong))
    }

    /// Writes copies that were wrong again, from the right ones.
    pub fn mend(&self, file: &File, wrong: &[Wrong]) -> io::Result<()> {
        if wrong.is_empty() {
            return Ok(());
        }
        let write = |wrong: &Wrong| {
            let place = self.at[wrong.copy] + wrong.page as u64 * PAGE;
            file.write_all_at(&self.encode(wrong.page), place)
        };
        // One that cannot be written keeps no other from being mended.
        let written = wrong.iter().map(write).fold(Ok(()), Result::and);
        let synced = file.sync_data();
        written.and(synced)
    }

    /// The sequence number of a page that can be believed.
    fn number(&self, page: &[u8], index: usize) -> Option<u64> {
        let ours = page[..8] == MAGIC
            && u32_at(page, 8) as usize == index
            && page[24..40] == *self.pool.as_bytes()
            && is_sealed_head(page);
        ours.then(|| u64_at(page, 16))
    }

    fn encode(&self, index: usize) -> Buffer {
        let mut page = Buffer::zeroed(PAGE as usize);
        page[..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&(index as u32).to_le_bytes());
        page[16..24].copy_from_slice(&self.sequences[index].to_le_bytes());
        page[24..40].copy_from_slice(self.pool.as_bytes());
        for (i, record) in self.records[index * RECORDS..][..RECORDS].iter().enumerate() {
            if let Some(record) = record {
                encode(record, &mut page[(i + 1) * RECORD..][..RECORD]);
            }
        }
        seal_head(&mut page);
        page
    }

    /// Every page, into one of the two copies.
    pub fn write_copy(&self, file: &File, copy: usize) -> io::Result<()> {
        for page in 0..self.sequences.len() {
            file.write_all_at(&self.encode(page), self.at[copy] + page as u64 * PAGE)?;
        }
        file.sync_data()
    }

    /// The parts, with the number of the record of each.
    pub fn records(&self) -> impl Iterator<Item = (usize, &Record)> {
        self.records.iter().enumerate().filter_map(|(slot, record)| record.as_ref().map(|r| (slot, r)))
    }

    /// The record of that number.
    pub fn get(&self, slot: usize) -> &Record {
        self.records[slot].as_ref().expect("a record in use")
    }

    /// The part of a disk by its name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.records().find(|(_, r)| r.state == State::Used && r.name == name).map(|(slot, _)| slot)
    }

    /// A record that nobody uses.
    pub fn free_slot(&self) -> io::Result<usize> {
        self.records.iter().position(Option::is_none).ok_or_else(|| {
            let why = format!("the pool's table has room for {} parts, and has them", self.records.len());
            io::Error::new(io::ErrorKind::StorageFull, why)
        })
    }

    /// Puts a record in memory alone; the caller writes the whole table.
    pub fn set(&mut self, slot: usize, record: Option<Record>) {
        self.records[slot] = record;
    }

    /// Changes one record, on the device and then in memory. After an error both are as they were, or no more changes are made.
    pub fn put(&mut self, file: &File, slot: usize, record: Option<Record>) -> io::Result<()> {
        self.check_whole()?;
        let page = slot / RECORDS;
        let before = std::mem::replace(&mut self.records[slot], record);
        let Err(error) = self.write(file, page) else { return Ok(()) };
        self.records[slot] = before;
        let taken_back = self.write(file, page);
        if taken_back.is_err() {
            self.broken = Some(error.to_string());
        }
        Err(unwritten(&error, taken_back.err()))
    }

    fn check_whole(&self) -> io::Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(io::Error::other(format!(
                "the pool's table could not be written ({why}); nothing is changed until the node begins again"
            ))),
        }
    }

    fn write(&mut self, file: &File, page: usize) -> io::Result<()> {
        self.sequences[page] += 1;
        let bytes = self.encode(page);
        for copy in self.at {
            file.write_all_at(&bytes, copy + page as u64 * PAGE)?;
            crate::open::synced(file.sync_data())?;
        }
        Ok(())
    }
}

/// A change could not be written, nor perhaps what was there before. Where either was a sync that failed, so is this: no other sync will be told.
fn unwritten(error: &io::Error, again: Option<io::Error>) -> io::Error {
    let sync = again.filter(crate::open::is_failed_sync);
    let text = format!("the pool's table cannot be written: {error}");
    crate::open::reworded(sync.as_ref().unwrap_or(error), text)
}

/// All pages of a copy. Those that cannot be read stay zero, which is no page.
fn read_copy(at: u64, pages: u32, read: impl Fn(&mut [u8], u64) -> io::Result<()>) -> Buffer {
    let mut copy = Buffer::zeroed(pages as usize * PAGE as usize);
    if read(&mut copy, at).is_err() {
        for (page, at) in copy.chunks_mut(PAGE as usize).zip((at..).step_by(PAGE as usize)) {
            if read(page, at).is_err() {
                page.fill(0);
            }
        }
    }
    copy
}

/// A page's checksum stands in its head, so that the last record is whole: it is reckoned with that place zero.
fn seal_head(page: &mut [u8]) {
    page[12..16].fill(0);
    let sum = crc32c::crc32c(page);
    page[12..16].copy_from_slice(&sum.to_le_bytes());
}

fn is_sealed_head(page: &[u8]) -> bool {
    let sum = crc32c::crc32c(&page[..12]);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    crc32c::crc32c_append(sum, &page[16..]) == u32_at(page, 12)
}

fn encode(record: &Record, into: &mut [u8]) {
    into[0] = record.state as u8;
    into[1] = record.name.len() as u8;
    into[16..32].copy_from_slice(record.id.as_bytes());
    for (at, n) in (32..).step_by(8).zip([record.base, record.len, record.before, record.told]) {
        into[at..at + 8].copy_from_slice(&n.to_le_bytes());
    }
    into[NAME..NAME + record.name.len()].copy_from_slice(record.name.as_bytes());
}

/// The checksum was right; what cannot be is our own error, or somebody's who made the checksum fit.
fn decode(bytes: &[u8]) -> Result<Option<Record>, String> {
    let state = match bytes[0] {
        0 => return Ok(None),
        1 => State::Making,
        2 => State::Used,
        3 => State::Kept,
        n => return Err(format!("a part in the unknown state {n}")),
    };
    let name = bytes.get(NAME..NAME + bytes[1] as usize).filter(|name| name.len() <= NAME_MAX);
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    let name = name.filter(|name| crate::space::check_name(name).is_ok()).ok_or("a part without a name")?;
    let id = Uuid::from_bytes(bytes[16..32].try_into().expect("sixteen bytes"));
    let n = |i: usize| u64_at(bytes, 32 + 8 * i);
    Ok(Some(Record { id, state, name: name.to_owned(), base: n(0), len: n(1), before: n(2), told: n(3) }))
}

#[cfg(test)]
mod tests;
