//! From the table of an older version, which stood in a file beside the device, to a pool.
//!
//! # The problem
//! The older version had no superblock: parts began at the device's first byte, and `state_dir/POOL.extents` said who has what.
//!
//! # The rule
//! What stands where the superblocks and tables are to be is copied to free space first. Then the old table is replaced by one that
//! names the new places; then the superblocks and tables are written; then the old table is put aside.
//!
//! # When it is interrupted
//! The old table is right at every moment, so importing is done again: what was copied already stands where it may stay. Once
//! the last superblock is written the device is a pool, and `henge pool repair` finishes the first. Where there is no room for a
//! copy nothing is written.

use super::format::{claimed, plan, write_half};
use super::superblock::{Copy, Superblock};
use super::table::{Record, State, Table};
use super::{superblock, wrong};
use crate::open::named;
use crate::space::{Extent, GRAIN, Space, check_name};
use crate::{Buffer, open};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use uuid::Uuid;

const HEADER: &str = "henge extents 1";

/// One part of the older version.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Old {
    name: String,
    base: u64,
    len: u64,
}

impl Old {
    fn end(&self) -> u64 {
        self.base + self.len.next_multiple_of(GRAIN)
    }
}

/// Makes a pool of a device that an older version served, with all of its parts. What was done.
pub fn import(path: &Path, name: &str, table: &Path) -> io::Result<Vec<String>> {
    let (file, size) = claimed(path)?;
    for copy in superblock::copies(&file, size, path)? {
        match copy {
            // Torn is what an import left that was interrupted: the old table is still right.
            Copy::Foreign | Copy::Torn => {}
            Copy::Whole(of) => {
                let why = format!(
                    "is the pool \"{}\" already; `henge pool repair` finishes what was interrupted",
                    of.name
                );
                return Err(wrong(path, &why));
            }
            Copy::Newer(_) => return Err(wrong(path, "is a pool of a newer Henge; see `henge pool show`")),
        }
    }
    let text = std::fs::read_to_string(table).map_err(|e| named(table, &e))?;
    let old = parse(&text).map_err(|e| named(table, &e))?;
    let of = plan(size, name, path)?;
    let (new, moves) = arrange(&of, &old).map_err(|e| named(path, &e))?;
    let mut done = Vec::new();
    for (part, to) in &moves {
        copy(&file, part, of.data.start + to).map_err(|e| named(path, &e))?;
        done.push(format!("{} was moved from byte {} to {}", part.name, part.base, of.data.start + to));
    }
    file.sync_data().map_err(|e| named(path, &e))?;
    if !moves.is_empty() {
        rewrite(table, &new, of.data.start).map_err(|e| named(table, &e))?;
    }
    write_half(&file, &of, &new, 1)
        .and_then(|()| write_half(&file, &of, &new, 0))
        .map_err(|e| named(path, &e))?;
    let aside = table.with_extension("extents.imported");
    std::fs::rename(table, &aside).map_err(|e| named(table, &e))?;
    done.push(format!("{} parts; the old table is {} now", old.len(), aside.display()));
    Ok(done)
}

/// The older version's text. Parts that were never zeroed are nobody's.
fn parse(text: &str) -> io::Result<Vec<Old>> {
    let wrong =
        |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not understood: \"{line}\""));
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    if header != HEADER {
        return Err(wrong(header));
    }
    let mut parts: Vec<Old> = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [state, base, len, name] = words[..] else { return Err(wrong(line)) };
        let (Ok(base), Ok(len)) = (base.parse::<u64>(), len.parse::<u64>()) else { return Err(wrong(line)) };
        check_name(name)?;
        let fits =
            base.is_multiple_of(GRAIN) && base.checked_add(len).is_some_and(|end| end <= i64::MAX as u64);
        match state {
            "used" if fits => parts.push(Old { name: name.to_owned(), base, len }),
            "new" if fits => {}
            _ => return Err(wrong(line)),
        }
    }
    parts.sort_by_key(|p| p.base);
    if let Some(pair) = parts.windows(2).find(|pair| pair[0].end() > pair[1].base) {
        let why = format!("parts \"{}\" and \"{}\" overlap", pair[0].name, pair[1].name);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(parts)
}

/// The new table, and which parts go where, from the beginning of the data.
fn arrange<'a>(of: &Superblock, old: &'a [Old]) -> io::Result<(Table, Vec<(&'a Old, u64)>)> {
    let stays = |p: &&Old| p.base >= of.data.start && p.end() <= of.data.end;
    let mut space = Space::new(of.data.end - of.data.start);
    for part in old.iter().filter(stays) {
        space.restore(Extent { name: part.name.clone(), base: part.base - of.data.start, len: part.len })?;
    }
    // A part's new place must not lie where an old one stands that moves, too: until all is copied, that one is read.
    for (i, part) in old.iter().enumerate().filter(|(_, p)| !stays(p)) {
        let (from, to) = (part.base.max(of.data.start), part.end().min(of.data.end));
        if from < to {
            space.restore(Extent { name: format!("old{i}"), base: from - of.data.start, len: to - from })?;
        }
    }
    let mut moves = Vec::new();
    for part in old.iter().filter(|p| !stays(p)) {
        let at = space.allocate(&part.name, part.len).map_err(|e| {
            let why = format!(
                "\"{}\" stands where the superblock is to be, and must move: {e}; nothing was written",
                part.name
            );
            io::Error::new(e.kind(), why)
        })?;
        moves.push((part, space.extents()[at].base));
    }
    let mut table = Table::blank(of);
    for part in old {
        let moved = moves.iter().find(|(p, _)| *p == part).map(|(_, to)| *to);
        let base = moved.unwrap_or_else(|| part.base - of.data.start);
        let (name, len) = (part.name.clone(), part.len);
        let slot = table.free_slot()?;
        table.set(
            slot,
            Some(Record { id: Uuid::new_v4(), state: State::Used, name, base, len, before: len, told: 0 }),
        );
    }
    Ok((table, moves))
}

/// The old table with the new places.
fn rewrite(path: &Path, table: &Table, start: u64) -> io::Result<()> {
    let line = |(_, r): (usize, &Record)| format!("used {} {} {}\n", start + r.base, r.len, r.name);
    let text = format!("{HEADER}\n{}", table.records().map(line).collect::<String>());
    let beside = path.with_extension("tmp");
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    open::sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// A part's bytes, up to whole MiB, to another place.
fn copy(file: &File, part: &Old, to: u64) -> io::Result<()> {
    let mut bytes = Buffer::zeroed(GRAIN as usize);
    for at in (part.base..part.end()).step_by(GRAIN as usize) {
        file.read_exact_at(&mut bytes, at)?;
        file.write_all_at(&bytes, to + (at - part.base))?;
    }
    Ok(())
}
