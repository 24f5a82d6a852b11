//! A pool as a directory: one sparse file per part, and a file that says which pool this is.
//!
//! A fresh file reads as zeroes, and a removed one is gone, so the file system sees to it that nobody reads
//! another's former data. The parts' lengths are the files' lengths, and their names say whose they are:
//!
//! | file | is |
//! |---|---|
//! | `NAME` | the part of a disk |
//! | `.NAME.new` | a part that is being made, or whose disk is not remembered yet: nobody's, and deleted at the next start |
//! | `.NAME.kept.ID` | a part that no disk has any more; kept until it is adopted or discarded |
//! | `.henge.pool` | which pool this is: [`identity`] |
//! | `.henge.lock` | locked by the node that serves it |
//!
//! Each step can fail and be done again: a part is made beside and renamed, so it is there whole or not at all; it grows by its
//! length, and what it grows by reads as zeroes; it is removed by its name.
//!
//! Every file that is written is locked by itself, too. The kernel keeps that lock for as long as a request of a killed node is under
//! way there, so no write of a former node ever lands among the writes of the next ([`open::lock`]).

pub(crate) mod identity;
mod maker;
pub(crate) mod manage;
mod steps;
mod stretch;

use crate::file::{Files, is_changing};
use crate::open::{self, Options, named};
use crate::space::{Space, check_name};
use crate::{Buffer, Step, Store};
use henge_core::{Backend, Done, Fault, Instant, Request, RequestId};
use maker::Maker;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LOCK: &str = ".henge.lock";

/// A directory of parts.
pub struct Directory {
    path: PathBuf,
    options: Options,
    space: Space,
    /// In the order of `space.extents()`; none where nothing is opened but looked at.
    /// Shared with the thread that lengthens one, and never duplicated, as on a device.
    parts: Vec<Option<Arc<File>>>,
    files: Files,
    notices: VecDeque<String>,
    /// What would be adopted, where nothing is but looked at.
    adopted: Vec<String>,
    /// A part that is being made, lengthened or removed by steps.
    half: Option<steps::Half>,
    /// Parts that steps have made and nobody has claimed.
    unclaimed: BTreeSet<String>,
    /// How it is found out which bytes take room.
    way: stretch::Way,
    _lock: Option<File>,
}

impl Directory {
    /// Opens, or makes, the directory as the pool `name` of `capacity` bytes.
    pub fn open(path: &Path, name: &str, capacity: u64, options: Options) -> io::Result<Self> {
        let room = identity::check_capacity(path, capacity, options.overcommit)?;
        let (lock, block) = if options.look {
            identity::check(path, name)?;
            (None, open::read_only(&path.join(LOCK), options.direct).map_or(1, |(_, block)| block))
        } else {
            let (lock, block) = begin(path, name, &options)?;
            (Some(lock), block)
        };
        let mut notices: VecDeque<String> = room.into_iter().collect();
        if block == 1 && options.direct && !options.look {
            notices.push_back(format!(
                "{} refuses O_DIRECT: it is served through the page cache",
                path.display()
            ));
        }
        let engine = crate::engine::open(&options, block)?;
        Ok(Directory {
            path: path.to_owned(),
            options,
            space: if options.apart { Space::apart(capacity) } else { Space::new(capacity) },
            parts: Vec::new(),
            files: Files::new(engine, block),
            notices,
            adopted: Vec::new(),
            half: None,
            unclaimed: BTreeSet::new(),
            way: lock.as_ref().map_or(stretch::Way::None, |lock| stretch::Way::of(lock, block == 1)),
            _lock: lock,
        })
    }

    /// Makes files, here or on another thread.
    fn maker(&self) -> Maker {
        let adopted = self.adopted.clone();
        Maker { path: self.path.clone(), options: self.options, block: self.files.block, adopted }
    }
}

/// Makes the directory a pool, or finds that it is this one; locked from now on. With the block of direct I/O.
fn begin(path: &Path, name: &str, options: &Options) -> io::Result<(File, u64)> {
    // What it is says more than that it is in use.
    identity::check(path, name)?;
    std::fs::create_dir_all(path).map_err(|e| named(path, &e))?;
    let (lock, block) = open::open(&path.join(LOCK), true, options.direct)?;
    open::lock(&lock, path, options.patience.min(open::REMAINS))?;
    identity::settle(path, name)?;
    manage::clear(path)?;
    Ok((lock, block))
}

impl Backend for Directory {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
        self.files.at(now);
        match self.space.locate(request.offset, request.len) {
            Some((i, part)) if self.parts[i].is_some() => {
                let fd = self.parts[i].as_ref().map_or(-1, AsRawFd::as_raw_fd);
                self.files.submit(request, payload, fd, request.offset - part.base);
            }
            _ => self.files.refuse(request.id, Fault::OutOfRange, payload),
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

impl Store for Directory {
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        check_name(name)?;
        if self.unclaimed.contains(name) {
            self.maker().claim(name)?;
            self.unclaimed.remove(name);
        }
        let open = self.space.extents().iter().position(|part| part.name == name);
        match open {
            Some(i) if self.space.extents()[i].len < len => {
                self.space.could_grow(name, len)?;
                if let Some(file) = &self.parts[i] {
                    let longer = self.maker().lengthen(file, name, len);
                    self.files.heed(file.as_raw_fd(), longer)?;
                }
                self.space.grow(name, len)?;
            }
            Some(_) => {}
            None => {
                let i = self.space.allocate(name, len)?;
                match self.maker().open_file(name, len) {
                    Ok(file) => self.parts.insert(i, file.map(Arc::new)),
                    Err(e) => {
                        self.space.free(name);
                        return Err(e);
                    }
                }
            }
        }
        Ok(self.space.find(name).expect("the part was just made").base)
    }
    fn could_grow(&self, name: &str, len: u64) -> io::Result<()> {
        self.space.could_grow(name, len)
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        manage::unlink(&self.path.join(name))?;
        manage::unlink(&manage::beside(&self.path, name))?;
        self.unclaimed.remove(name);
        for place in [name, &steps::remains(name)] {
            while let Some(i) = self.space.free(place) {
                if let Some(file) = self.parts.remove(i) {
                    self.files.forget(file.as_raw_fd());
                }
            }
        }
        open::sync_directory(&self.path)
    }
    fn begin_part(&mut self, name: &str, len: u64) -> io::Result<Step> {
        self.begin_steps(name, len)
    }
    fn begin_claim(&mut self, name: &str) -> io::Result<Step> {
        Ok(self.begin_naming(name))
    }
    fn begin_adoption(&mut self, name: &str) -> io::Result<Step> {
        self.begin_adopting(name)
    }
    fn begin_removal(&mut self, name: &str) -> io::Result<Step> {
        self.begin_removing(name)
    }
    fn begin_keeping(&mut self, disk: &str) -> io::Result<Step> {
        Ok(if self.options.look { Step::There(0) } else { self.begin_keeping_of(disk) })
    }
    fn go_on(&mut self, name: &str, outcome: io::Result<Option<File>>) -> io::Result<Step> {
        self.next_step(name, outcome)
    }
    fn has_part(&self, name: &str) -> bool {
        !self.unclaimed.contains(name) && self.space.find(name).is_some()
            || std::fs::symlink_metadata(self.path.join(name)).is_ok()
    }
    fn part_len(&self, name: &str) -> Option<u64> {
        let there = std::fs::symlink_metadata(self.path.join(name)).ok()?;
        there.is_file().then_some(there.len())
    }
    fn is_new(&self, name: &str) -> bool {
        self.unclaimed.contains(name)
    }
    fn adopt_part(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        if self.has_part(name) {
            return Ok(());
        }
        if !self.options.look {
            return manage::adopt_named(&self.path, name);
        }
        if manage::the_kept(&self.path, name)?.is_some() {
            self.adopted.push(name.to_owned());
        }
        Ok(())
    }
    fn settle(&mut self, is_spared: &dyn Fn(&str) -> bool) -> io::Result<Vec<String>> {
        if self.options.look {
            return Ok(Vec::new());
        }
        let is_claimed = |name: &str| self.space.find(name).is_some() || is_spared(name);
        manage::keep_unclaimed(&self.path, &is_claimed)
    }
    fn notice(&mut self) -> Option<String> {
        if let Some(fd) = self.files.failed() {
            let whose = self.parts.iter().position(|f| f.as_ref().is_some_and(|f| f.as_raw_fd() == fd));
            let name = whose.map_or("", |i| &self.space.extents()[i].name);
            let path = self.path.join(name);
            return Some(format!("{}: {}", path.display(), crate::store::SYNC_FAILED));
        }
        self.notices.pop_front()
    }
    fn block(&self) -> u64 {
        self.files.block
    }
    fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
        let Some((i, part)) = self.space.locate(offset, len) else { return (len, true) };
        let Some(file) = &self.parts[i] else { return (len, true) };
        // Whoever asks the system about a file while a hole is made there waits until that is done: seen, for minutes.
        match is_changing(&self.files, file.as_raw_fd()) {
            true => (len, true),
            false => stretch::stretch(file, offset - part.base, len, self.way),
        }
    }
    fn copied(&mut self) -> Option<(RequestId, u64)> {
        self.files.copied()
    }
    fn event_fd(&self) -> Option<RawFd> {
        Some(self.files.engine().event_fd())
    }
    fn describe(&self) -> String {
        if self.options.look && self.files.block == 1 {
            let (engine, path) = (self.files.engine().name(), self.path.display());
            let how = if self.options.direct {
                "O_DIRECT where its file system can"
            } else {
                "through the page cache"
            };
            return format!("directory {path}, {engine}, {how}");
        }
        let how = open::describe(self.files.engine().name(), self.files.block, self.options.direct);
        format!("directory {}, {how}", self.path.display())
    }
}
