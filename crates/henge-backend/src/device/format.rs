//! What an administrator does with a device while no node serves it: make a pool of it, look at it, mend it, name it.

use super::superblock::{Copy, PAGE, Superblock};
use super::table::{RECORDS, Record, State, Table};
use super::{probe, read_superblock, superblock, wrong};
use crate::open::{self, named};
use crate::space::{GRAIN, check_name};
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use uuid::Uuid;

pub use super::import::import;

/// The most parts that a device has room for in its table.
const PARTS_MAX: u64 = 65_535;
/// The least that a pool has room for, in MiB.
const DATA_MIN: u64 = 1;

/// A part of a pool, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Of this part alone; parts in directories have one once no disk has them.
    pub id: String,
    /// Of the part: its disk's, and which of its places.
    pub name: String,
    /// Bytes.
    pub len: u64,
    /// Its first byte on the device; directories have none.
    pub at: Option<u64>,
    /// Whether a disk has it; else it is kept until it is adopted or discarded.
    pub used: bool,
}

/// A pool as it lies there, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// `device` or `directory`.
    pub kind: &'static str,
    /// Of the pool, since it was made.
    pub pool: String,
    /// As the configuration calls it.
    pub name: String,
    /// Of its format.
    pub version: u32,
    /// Bytes for disks; a directory has what its configuration says.
    pub capacity: Option<u64>,
    /// Its parts.
    pub parts: Vec<Part>,
    /// What is wrong with it, as far as it can be served.
    pub notes: Vec<String>,
}

/// Where everything lies on a device of `size` bytes.
pub(super) fn plan(size: u64, name: &str, path: &Path) -> io::Result<Superblock> {
    check_name(name)?;
    let device = size / PAGE * PAGE;
    // No part is shorter than a MiB, so no table is longer than that many records.
    let pages = (size / GRAIN).clamp(1, PARTS_MAX).div_ceil(RECORDS as u64);
    let table = pages * PAGE;
    let start = (PAGE + table).next_multiple_of(GRAIN);
    let end = device.saturating_sub(PAGE + table) / GRAIN * GRAIN;
    if end < start + DATA_MIN * GRAIN {
        return Err(wrong(path, &format!("has {size} bytes, too few for a pool; 4 MiB is the least")));
    }
    Ok(Superblock {
        pool: Uuid::new_v4(),
        name: name.to_owned(),
        device,
        data: start..end,
        table: [PAGE, device - PAGE - table],
        pages: pages as u32,
    })
}

pub(super) fn claimed(path: &Path) -> io::Result<(File, u64)> {
    let (file, _) = open::claim(path, true, open::REMAINS)?;
    let size = rustix::fs::seek(&file, SeekFrom::End(0))?;
    Ok((file, size))
}

/// Writes one half of a format: the table's copy, then the superblock's, each durable before the next.
pub(super) fn write_half(file: &File, of: &Superblock, table: &Table, half: usize) -> io::Result<()> {
    table.write_copy(file, half)?;
    file.write_all_at(&of.encode(), of.places()[half])?;
    file.sync_data()
}

/// Makes a pool of a device. What is not blank is refused, unless `force` says that it may be lost.
pub fn format(path: &Path, name: &str, force: bool) -> io::Result<String> {
    let (file, size) = claimed(path)?;
    let of = plan(size, name, path)?;
    if !force && let Some(what) = standing(&file, size, path)? {
        let why = format!("holds {what}; --force formats it all the same, and what it holds is lost");
        return Err(wrong(path, &why));
    }
    // Both old copies go first: a format that the power interrupts leaves no pool, and never half of two.
    let blank = crate::Buffer::zeroed(PAGE as usize);
    let write = || -> io::Result<()> {
        of.places().iter().try_for_each(|at| file.write_all_at(&blank, *at))?;
        file.sync_data()?;
        let table = Table::blank(&of);
        write_half(&file, &of, &table, 1)?;
        write_half(&file, &of, &table, 0)
    };
    write().map_err(|e| named(path, &e))?;
    Ok(of.pool.to_string())
}

/// What stands on a device, for whoever is about to overwrite it; nothing where it is blank.
fn standing(file: &File, size: u64, path: &Path) -> io::Result<Option<String>> {
    for copy in superblock::copies(file, size, path)? {
        match copy {
            Copy::Whole(of) => return Ok(Some(format!("the Henge pool \"{}\" ({})", of.name, of.pool))),
            Copy::Newer(version) => return Ok(Some(format!("a Henge pool of format {version}"))),
            Copy::Torn => return Ok(Some("a Henge pool with a wrong superblock".into())),
            Copy::Foreign => {}
        }
    }
    probe::what(file, size, path)
}

/// Writes a superblock's wrong copy again, from the right one; and the table's copies alike. What was done.
pub fn repair(path: &Path) -> io::Result<Vec<String>> {
    let (file, size) = claimed(path)?;
    let copies = superblock::copies(&file, size, path)?;
    let (of, half) = match &copies {
        [Copy::Newer(_), _] | [_, Copy::Newer(_)] => {
            return read_superblock(&file, size, path).map(|_| Vec::new());
        }
        [Copy::Whole(of), Copy::Whole(last)] if of == last => (of.clone(), None),
        [Copy::Whole(of), _] => (of.clone(), Some(1)),
        [_, Copy::Whole(of)] => (of.clone(), Some(0)),
        _ => return Err(wrong(path, "has no superblock that could be copied")),
    };
    if size < of.device {
        return Err(wrong(path, &format!("has {size} bytes; the pool on it was made on {}", of.device)));
    }
    // The table first: without one that can be believed there is nothing to mend.
    let (table, wrong) = Table::load(&file, &of, path)?;
    table.mend(&file, &wrong).map_err(|e| named(path, &e))?;
    let mut done = Vec::new();
    if !wrong.is_empty() {
        done.push(format!("{} pages of the table had one wrong copy; it was written again", wrong.len()));
    }
    if let Some(half) = half {
        let place = of.places()[half];
        file.write_all_at(&of.encode(), place)
            .and_then(|()| file.sync_data())
            .map_err(|e| named(path, &e))?;
        done.push(format!("the superblock at byte {place} was written again"));
    }
    Ok(done)
}

/// Another name for a pool, as its configuration is to call it.
pub fn rename(path: &Path, name: &str) -> io::Result<()> {
    check_name(name)?;
    let (file, size) = claimed(path)?;
    let (of, _) = read_superblock(&file, size, path)?;
    let of = Superblock { name: name.to_owned(), ..of };
    let write = |at: &u64| file.write_all_at(&of.encode(), *at).and_then(|()| file.sync_data());
    // The second first: until the first is written, too, the pool has its old name.
    of.places().iter().rev().try_for_each(write).map_err(|e| named(path, &e))
}

/// What is there. Nothing is changed, and it may be in use.
pub fn show(path: &Path) -> io::Result<Shown> {
    let (file, _) = open::read_only(path, true)?;
    let size = rustix::fs::seek(&file, SeekFrom::End(0))?;
    let (of, mut notes) = read_superblock(&file, size, path)?;
    let (table, wrong) = Table::load(&file, &of, path)?;
    if !wrong.is_empty() {
        notes.push(format!(
            "{} pages of the table have one copy that is wrong, or being written",
            wrong.len()
        ));
    }
    let part = |(_, r): (usize, &Record)| Part {
        id: r.id.to_string(),
        name: r.name.clone(),
        len: r.len,
        at: Some(of.data.start + r.base),
        used: r.state == State::Used,
    };
    Ok(Shown {
        kind: "device",
        pool: of.pool.to_string(),
        name: of.name.clone(),
        version: superblock::VERSION,
        capacity: Some(of.data.end - of.data.start),
        parts: table.records().filter(|(_, r)| r.state != State::Making).map(part).collect(),
        notes,
    })
}

/// A kept part becomes a disk's again.
pub fn adopt(path: &Path, id: &str) -> io::Result<String> {
    change(path, id, |table, slot| {
        let record = table.get(slot).clone();
        if table.find(&record.name).is_some() {
            let why =
                format!("there is a part \"{}\" in use already; only one can have the name", record.name);
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Ok(Some(Record { state: State::Used, ..record }))
    })
}

/// A kept part's space is given back.
pub fn discard(path: &Path, id: &str) -> io::Result<String> {
    change(path, id, |_, _| Ok(None))
}

fn change(
    path: &Path,
    id: &str,
    to: impl FnOnce(&Table, usize) -> io::Result<Option<Record>>,
) -> io::Result<String> {
    let (file, size) = claimed(path)?;
    let (of, _) = read_superblock(&file, size, path)?;
    let (mut table, _) = Table::load(&file, &of, path)?;
    let kept = table.records().filter(|(_, r)| r.state == State::Kept && r.id.to_string().starts_with(id));
    let found: Vec<usize> = kept.map(|(slot, _)| slot).collect();
    let [slot] = found[..] else { return Err(wrong(path, &crate::store::not_one(found.len(), id))) };
    let name = table.get(slot).name.clone();
    let record = to(&table, slot).map_err(|e| named(path, &e))?;
    table.put(&file, slot, record).map_err(|e| named(path, &e))?;
    Ok(name)
}
