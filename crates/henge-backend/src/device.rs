//! A pool as a block device (or one big file): superblocks, a table of parts, and the parts.
//!
//! ```text
//! │ superblock │ table │ … │ parts, each at whole MiB … │ table │ superblock │
//! 0            4 KiB       data.start                 data.end              end
//! ```
//!
//! The device itself says what it is ([`superblock`]) and who has which space ([`table`]), so neither another name in the
//! configuration nor another `state_dir` makes its data anybody's free space. A node serves what [`format`] has formatted, and
//! formats nothing.
//!
//! What was there before is not known: a part's space is written with zeroes before the part is anybody's, and so is the space
//! that it grows into. So nobody ever reads what another left behind. Each step of making and growing can fail and be done again:
//!
//! | step | if it fails, or the power goes |
//! |---|---|
//! | make: record `making` | there is no part |
//! | make: zero the space | a record `making`, freed at the next start, or when it is made again |
//! | make: its disk is remembered, by whoever asked | the same; a disk that is remembered has it made again |
//! | make: record `used` | the same; nobody has written to it before |
//! | grow: zero the new end | the part is as it was, and the end nobody's |
//! | grow: record the new length | the part is as long as it was, or as it is to be; both with zeroes there |
//! | remove: record free | the part is there, or not |

pub(crate) mod format;
mod import;
mod probe;
mod steps;
mod superblock;
mod table;

use crate::file::Files;
use crate::open::{self, Options, named};
use crate::space::{Extent, GRAIN, Space, check_name};
use crate::{Buffer, Growth, Step, Store};
use henge_core::{Backend, Done, Fault, Instant, Request, RequestId};
use rustix::fs::{FallocateFlags, SeekFrom};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use superblock::{Copy, PAGE, Superblock};
use table::{Record, State, Table};
use uuid::Uuid;

/// Space is zeroed in such pieces, between which others may have their turn.
const PIECE: u64 = 64 << 20;

/// A device of parts.
pub struct Device {
    path: PathBuf,
    options: Options,
    data: u64,
    table: Table,
    space: Space,
    /// The parts that disks have opened: the record, and the bytes that the disk has, or is about to have.
    open: BTreeMap<String, (usize, u64)>,
    /// The parts that steps have made and nobody has claimed: the record, still `making`, and the bytes.
    unclaimed: BTreeMap<String, (usize, u64)>,
    /// Shared with the thread that changes something beside, and never duplicated: whoever closes any descriptor of a file
    /// gives up the process's POSIX lock on it.
    file: Arc<File>,
    files: Files,
    notices: VecDeque<String>,
    /// A part that is being made, lengthened or removed by steps.
    half: Option<steps::Half>,
}

/// Space on its way to being zero.
pub(crate) struct Zeroing {
    at: u64,
    end: u64,
}

impl Zeroing {
    /// The next piece; whether that was the last. It can be done again.
    pub(crate) fn step(&mut self, file: &File) -> io::Result<bool> {
        let to = self.end.min(self.at + PIECE);
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        if self.at < to && rustix::fs::fallocate(file, flags, self.at, to - self.at).is_err() {
            let zeroes = Buffer::zeroed(GRAIN as usize);
            let mut at = self.at;
            while at < to {
                let len = GRAIN.min(to - at);
                file.write_all_at(&zeroes[..len as usize], at)?;
                at += len;
            }
        }
        self.at = to;
        if self.at == self.end {
            open::synced(file.sync_data())?;
        }
        Ok(self.at == self.end)
    }
}

impl Device {
    /// Opens the pool `name` on the device at `path`. `capacity` 0 takes all of it.
    pub fn open(path: &Path, name: &str, capacity: u64, options: Options) -> io::Result<Self> {
        let (file, block) = if options.look {
            open::read_only(path, options.direct)?
        } else {
            // What it is says more than that it is in use, and nobody waits for a device that is not ours.
            // Closed again before the device is claimed: whoever closes a file gives up the process's POSIX locks on it.
            identify(&open::read_only(path, options.direct)?.0, path, name)?;
            open::claim(path, options.direct, options.patience)?
        };
        let (of, mut notices) = identify(&file, path, name)?;
        let room = of.data.end - of.data.start;
        if capacity > room {
            return Err(wrong(
                path,
                &format!("holds {room} bytes of disks, less than the capacity of {capacity}"),
            ));
        }
        let (mut table, wrong) = Table::load(&file, &of, path)?;
        if !wrong.is_empty() {
            let mended = if options.look { Ok(()) } else { table.mend(&file, &wrong) };
            let not = mended.err().map_or(String::new(), |e| format!(", and cannot be written again: {e}"));
            let (path, pages) = (path.display(), wrong.len());
            notices.push(format!(
                "{path}: {pages} pages of the table had one wrong copy, the other is used{not}"
            ));
        }
        let mut space = Space::new(if capacity == 0 { room } else { capacity });
        let unmade: Vec<usize> =
            table.records().filter(|(_, r)| r.state == State::Making).map(|(slot, _)| slot).collect();
        for slot in unmade {
            if options.look {
                table.set(slot, None);
            } else {
                table.put(&file, slot, None).map_err(|e| named(path, &e))?;
            }
        }
        for (_, record) in table.records() {
            space.restore(extent(record)).map_err(|e| named(path, &e))?;
        }
        if block == 1 && !options.look {
            open::forget_cache(&file);
        }
        if block == 1 && options.direct {
            notices.push(format!("{} refuses O_DIRECT: it is served through the page cache", path.display()));
        }
        let engine = crate::engine::open(&options, block)?;
        Ok(Device {
            path: path.to_owned(),
            options,
            data: of.data.start,
            table,
            space,
            open: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            file: Arc::new(file),
            files: Files::new(engine, block),
            notices: notices.into(),
            half: None,
        })
    }

    fn put(&mut self, slot: usize, record: Option<Record>) -> io::Result<()> {
        if self.options.look {
            self.table.set(slot, record);
            return Ok(());
        }
        let put = self.table.put(&self.file, slot, record);
        self.files.heed(self.file.as_raw_fd(), put).map_err(|e| named(&self.path, &e))
    }

    /// Zeroes what lies between two addresses, up to whole MiB.
    fn zero(&mut self, from: u64, to: u64) -> io::Result<()> {
        let mut zeroing = Zeroing { at: self.data + from, end: self.data + to.next_multiple_of(GRAIN) };
        while !self.options.look {
            let step = zeroing.step(&self.file);
            if self.files.heed(self.file.as_raw_fd(), step).map_err(|e| named(&self.path, &e))? {
                break;
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, len: u64) -> io::Result<usize> {
        let slot = self.table.free_slot()?;
        let i = self.space.allocate(name, len)?;
        let base = self.space.extents()[i].base;
        let id = Uuid::new_v4();
        let record =
            Record { id, state: State::Making, name: name.to_owned(), base, len, before: len, told: 0 };
        let used = Record { state: State::Used, ..record.clone() };
        let made = self
            .put(slot, Some(record))
            .and_then(|()| self.zero(base, base + len))
            .and_then(|()| self.put(slot, Some(used)));
        if let Err(e) = made {
            // Where even this fails, the record stays `making`, which is nobody's at the next start; so does its space.
            self.space.free(name);
            if self.put(slot, None).is_err() && self.table.records().any(|(s, _)| s == slot) {
                self.space.restore(extent(self.table.get(slot)))?;
            }
            return Err(e);
        }
        Ok(slot)
    }

    /// Opens a disk's part as it is, or longer.
    fn reopen(&mut self, slot: usize, len: u64) -> io::Result<()> {
        let record = self.table.get(slot).clone();
        let seen = self.open.get(&record.name).map(|(_, len)| *len);
        let before = seen.unwrap_or(record.before.min(len));
        if seen.is_none() && record.len > len && [record.before, record.told].contains(&len) {
            // It grew, and the power went before anybody was told, or nobody was ever told of so much. What it grew by stays its own.
            return Ok(());
        }
        let has = seen.unwrap_or(record.len);
        if has > len {
            let why = format!(
                "\"{}\" has {has} bytes; a part is not shrunk to {len}, its end would be lost",
                record.name
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if has == len || record.len == len {
            return Ok(());
        }
        if record.len > len {
            // Shorter than an earlier growth that was never acknowledged: what lies between was never anybody's.
            self.put(slot, Some(Record { len, before, told: 0, ..record }))?;
            return self.place_again(slot);
        }
        self.lengthen(slot, record, before, len)
    }

    /// The space of a record that was changed.
    fn place_again(&mut self, slot: usize) -> io::Result<()> {
        let record = self.table.get(slot);
        self.space.free(&record.name);
        self.space.free(&record.id.to_string());
        self.space.restore(extent(record))
    }

    fn lengthen(&mut self, slot: usize, record: Record, before: u64, len: u64) -> io::Result<()> {
        self.space.could_grow(&record.name, len)?;
        // What lies between its end and the next MiB may hold what an unacknowledged growth left there.
        let from = record.base + record.len.next_multiple_of(PAGE);
        self.zero(from, record.base + len)?;
        let name = record.name.clone();
        self.put(slot, Some(Record { len, before, told: 0, ..record }))?;
        self.space.grow(&name, len)
    }

    /// The record of a part that a disk has, or is to have.
    fn slot_of(&self, name: &str) -> Option<usize> {
        self.table.find(name).or_else(|| self.unclaimed.get(name).map(|(slot, _)| *slot))
    }

    fn kept(&self, name: &str) -> Vec<(usize, Uuid, u64)> {
        let of = |(slot, r): (usize, &Record)| {
            (r.state == State::Kept && r.name == name).then_some((slot, r.id, r.len))
        };
        self.table.records().filter_map(of).collect()
    }
}

/// A part's place. One that no disk has goes by its own id, for its name may be another's: it is kept, or could not be given back.
fn extent(record: &Record) -> Extent {
    let name = if record.state == State::Used { record.name.clone() } else { record.id.to_string() };
    Extent { name, base: record.base, len: record.len }
}

fn wrong(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} {why}", path.display()))
}

/// The pool's own description, where it is the pool of that name; and what is to be said of it.
fn identify(file: &File, path: &Path, name: &str) -> io::Result<(Superblock, Vec<String>)> {
    let size = rustix::fs::seek(file, SeekFrom::End(0))?;
    let (of, notices) = read_superblock(file, size, path)?;
    if of.name == name {
        return Ok((of, notices));
    }
    let why = format!(
        "is the pool \"{}\" ({}), not \"{name}\"; name it so, or `henge pool rename` it",
        of.name, of.pool
    );
    Err(wrong(path, &why))
}

/// The superblock that can be believed, and what is to be said of the other; or why there is none.
fn read_superblock(file: &File, size: u64, path: &Path) -> io::Result<(Superblock, Vec<String>)> {
    let copies = superblock::copies(file, size, path)?;
    let newer = copies.iter().find_map(|c| if let Copy::Newer(v) = c { Some(*v) } else { None });
    if let Some(version) = newer {
        let known = superblock::VERSION;
        return Err(wrong(
            path,
            &format!("is a pool of format {version}, made by a newer Henge; this one knows {known}"),
        ));
    }
    let whole = |found: &Superblock, notes| {
        if size < found.device {
            let was = found.device;
            return Err(wrong(
                path,
                &format!("has {size} bytes; the pool on it was made on {was}: its end is missing"),
            ));
        }
        Ok((found.clone(), notes))
    };
    match &copies {
        [Copy::Whole(first), Copy::Whole(last)] if first == last => whole(first, Vec::new()),
        [Copy::Whole(first), Copy::Foreign] if size > first.device => whole(first, Vec::new()),
        [Copy::Whole(first), _] => {
            let note = format!(
                "{}: the superblock's second copy is wrong; `henge pool repair` writes it again",
                path.display()
            );
            whole(first, vec![note])
        }
        [Copy::Torn, Copy::Whole(last)] => {
            let note = format!(
                "{}: the superblock's first copy is wrong; `henge pool repair` writes it again",
                path.display()
            );
            whole(last, vec![note])
        }
        [Copy::Foreign, Copy::Whole(last)] => {
            let found = probe::what(file, size, path)?.unwrap_or_else(|| "zeroes".into());
            Err(wrong(
                path,
                &format!(
                    "was the pool \"{}\" ({}), as its end says, but begins with {found} now; \
                     `henge pool repair` makes it that pool again, `henge pool format` a new one",
                    last.name, last.pool
                ),
            ))
        }
        [Copy::Torn, _] | [_, Copy::Torn] => Err(wrong(
            path,
            "is a pool whose superblocks are both wrong (torn or overwritten); nothing was written. `henge pool show` says more",
        )),
        _ => {
            let found = match probe::what(file, size, path)? {
                Some(what) => format!("holds {what}, not a pool"),
                None => "is blank, not a pool".into(),
            };
            let how = format!("{found}; `henge pool format {}` makes it one", path.display());
            Err(io::Error::new(io::ErrorKind::NotFound, format!("{} {how}", path.display())))
        }
    }
}

impl Backend for Device {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
        self.files.at(now);
        if self.space.locate(request.offset, request.len).is_some() {
            self.files.submit(request, payload, self.file.as_raw_fd(), self.data + request.offset);
        } else {
            self.files.refuse(request.id, Fault::OutOfRange, payload);
        }
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        self.files.at(now);
        self.files.reap()
    }
    fn awaits_others(&mut self) -> Option<RequestId> {
        self.files.awaits_others()
    }
    fn wake_at(&self) -> Option<Instant> {
        self.files.wake_at()
    }
    fn capacity(&self) -> u64 {
        self.space.capacity()
    }
    fn quantum(&self) -> u64 {
        henge_core::DEVICE_QUANTUM
    }
}

impl Store for Device {
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        check_name(name)?;
        if let Some(&(slot, _)) = self.unclaimed.get(name) {
            self.put(slot, Some(Record { state: State::Used, ..self.table.get(slot).clone() }))?;
            self.unclaimed.remove(name);
        }
        let slot = match self.table.find(name) {
            Some(slot) => {
                self.reopen(slot, len)?;
                slot
            }
            None => {
                if let Some((_, id, len)) = self.kept(name).first() {
                    return Err(crate::store::kept(name, &id.to_string(), *len));
                }
                self.add(name, len)?
            }
        };
        self.open.insert(name.to_owned(), (slot, len));
        Ok(self.table.get(slot).base)
    }
    fn could_grow(&self, name: &str, len: u64) -> io::Result<()> {
        self.space.could_grow(name, len)
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        if let Some(slot) = self.slot_of(name) {
            self.put(slot, None)?;
            self.space.free(name);
        }
        self.open.remove(name);
        self.unclaimed.remove(name);
        Ok(())
    }
    fn begin_part(&mut self, name: &str, len: u64) -> io::Result<Step> {
        self.begin_steps(name, len)
    }
    fn begin_growth(&mut self, name: &str, to: Growth) -> io::Result<Step> {
        self.begin_growing(name, to)
    }
    fn begin_claim(&mut self, name: &str) -> io::Result<Step> {
        self.begin_using(name)
    }
    fn begin_adoption(&mut self, name: &str) -> io::Result<Step> {
        self.begin_adopting(name)
    }
    fn begin_removal(&mut self, name: &str) -> io::Result<Step> {
        self.begin_freeing(name)
    }
    fn begin_keeping(&mut self, disk: &str) -> io::Result<Step> {
        self.begin_keeping_of(disk)
    }
    fn go_on(&mut self, name: &str, outcome: io::Result<Option<File>>) -> io::Result<Step> {
        self.next_step(name, outcome)
    }
    fn has_part(&self, name: &str) -> bool {
        self.table.find(name).is_some()
    }
    fn part_len(&self, name: &str) -> Option<u64> {
        self.table.find(name).map(|slot| self.table.get(slot).len)
    }
    fn is_new(&self, name: &str) -> bool {
        self.unclaimed.contains_key(name)
    }
    fn adopt_part(&mut self, name: &str) -> io::Result<()> {
        match self.kept(name)[..] {
            _ if self.has_part(name) => Ok(()),
            [] => Ok(()),
            [(slot, ..)] => {
                let record = Record { state: State::Used, ..self.table.get(slot).clone() };
                self.put(slot, Some(record))?;
                self.place_again(slot)
            }
            _ => Err(crate::store::several(name)),
        }
    }
    fn settle(&mut self, is_spared: &dyn Fn(&str) -> bool) -> io::Result<Vec<String>> {
        let unclaimed = self.table.records().filter(|(_, r)| {
            r.state == State::Used && !self.open.contains_key(&r.name) && !is_spared(&r.name)
        });
        let unclaimed: Vec<(usize, Record)> = unclaimed.map(|(slot, r)| (slot, r.clone())).collect();
        let mut names = Vec::new();
        for (slot, record) in unclaimed {
            self.put(slot, Some(Record { state: State::Kept, ..record.clone() }))?;
            self.place_again(slot)?;
            names.push(record.name);
        }
        Ok(names)
    }
    fn notice(&mut self) -> Option<String> {
        if let Some(fd) = self.files.failed() {
            debug_assert_eq!(fd, self.file.as_raw_fd());
            let path = self.path.display();
            return Some(format!("{path}: {}", crate::store::SYNC_FAILED));
        }
        self.notices.pop_front()
    }
    fn block(&self) -> u64 {
        self.files.block
    }
    fn copied(&mut self) -> Option<(RequestId, u64)> {
        self.files.copied()
    }
    fn event_fd(&self) -> Option<RawFd> {
        Some(self.files.engine().event_fd())
    }
    fn describe(&self) -> String {
        let how = open::describe(self.files.engine().name(), self.files.block, self.options.direct);
        format!("device {}, {how}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = 3 << 20;

    /// On a device full of somebody's bytes.
    fn device(dir: &Path) -> Device {
        let path = dir.join("device");
        std::fs::write(&path, vec![0xdd; 16 << 20]).unwrap();
        format::format(&path, "p", true).unwrap();
        again(dir)
    }

    fn again(dir: &Path) -> Device {
        let options = Options { direct: false, patience: std::time::Duration::ZERO, ..Options::default() };
        Device::open(&dir.join("device"), "p", 0, options).unwrap()
    }

    fn bytes(device: &Device, base: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        device.file.read_exact_at(&mut bytes, device.data + base).unwrap();
        bytes
    }

    /// Does `work` with a file that cannot be written.
    fn failing<T>(device: &mut Device, work: impl FnOnce(&mut Device) -> io::Result<T>) {
        let good = std::mem::replace(&mut device.file, File::open(&device.path).unwrap().into());
        assert!(work(device).is_err());
        device.file = good;
    }

    /// A device that is not this pool is said to be what it is, also while somebody else has it: nobody waits for it.
    #[test]
    fn what_it_is_says_more_than_that_it_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let _served = device(dir.path());
        let patience = std::time::Duration::from_secs(3600);
        let options = Options { direct: false, patience, ..Options::default() };
        let why = Device::open(&dir.path().join("device"), "q", 0, options).err().unwrap().to_string();
        assert!(why.contains("is the pool \"p\""), "{why}");
    }

    /// Zeroing fails, and the growth is asked for again: what was removed there never shows, also after the node began again.
    #[test]
    fn a_growth_that_failed_and_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = device(dir.path());
        let base = d.open_part("a", PART).unwrap();
        let old = d.open_part("removed", PART).unwrap();
        d.file.write_all_at(&[7; PART as usize], d.data + base).unwrap();
        d.file.write_all_at(&[9; PART as usize], d.data + old).unwrap();
        d.remove_part("removed").unwrap();
        // What could be recorded all the same, the table's own file being well, is what was done.
        failing(&mut d, |d| {
            let (slot, record) =
                (d.table.find("a").unwrap(), d.table.get(d.table.find("a").unwrap()).clone());
            d.lengthen(slot, record, PART, 2 * PART)
        });
        assert_eq!(d.space.find("a").unwrap().len, PART, "it is as it was");
        d.open_part("a", 2 * PART).unwrap();
        drop(d);
        let mut d = again(dir.path());
        assert_eq!(d.open_part("a", 2 * PART).unwrap(), base);
        assert!(bytes(&d, base, PART).iter().all(|b| *b == 7), "what it had is as it was");
        assert!(bytes(&d, base + PART, PART).iter().all(|b| *b == 0), "what it grew by is zero");
    }

    /// Making fails at each of its steps; repeated, the part is there, zero, and nobody else's.
    #[test]
    fn making_that_failed_and_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = device(dir.path());
        failing(&mut d, |d| d.add("a", PART));
        drop(d);
        let mut d = again(dir.path());
        let other = d.open_part("b", PART).unwrap();
        // Recorded, and then the power went.
        let slot = d.table.free_slot().unwrap();
        let at = d.space.allocate("a", PART).unwrap();
        let base = d.space.extents()[at].base;
        let half = Record {
            id: Uuid::new_v4(),
            state: State::Making,
            name: "a".into(),
            base,
            len: PART,
            before: PART,
            told: 0,
        };
        d.put(slot, Some(half)).unwrap();
        drop(d);
        let mut d = again(dir.path());
        assert!(!d.has_part("a"));
        assert_eq!(d.open_part("b", PART).unwrap(), other);
        let base = d.open_part("a", PART).unwrap();
        assert!(base >= other + PART || other >= base + PART);
        assert!(bytes(&d, base, PART).iter().all(|b| *b == 0));
    }

    /// An unacknowledged growth, and then a smaller one: what lies between is zeroed when it is anybody's again.
    #[test]
    fn a_growth_that_nobody_was_told_of_is_taken_back_by_another() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = device(dir.path());
        let base = d.open_part("a", PART).unwrap();
        d.open_part("a", 3 * PART).unwrap();
        drop(d);
        let mut d = again(dir.path());
        d.open_part("a", PART).unwrap();
        d.file.write_all_at(&[9; PART as usize], d.data + base + 2 * PART).unwrap();
        d.open_part("a", 2 * PART).unwrap();
        d.open_part("a", 3 * PART).unwrap();
        assert!(bytes(&d, base + 2 * PART, PART).iter().all(|b| *b == 0));
        drop(d);
        // Still the last that was acknowledged, at most.
        again(dir.path()).open_part("a", 2 * PART).unwrap();
        assert!(again(dir.path()).open_part("a", PART).is_err());
    }
}
