//! A pool as a block device (or one big file) with a table of extents.
//!
//! The device has no names and no file system, so the pool remembers who has which addresses in a small text
//! file, replaced as a whole. What was there before is not known: a new part's addresses are written with
//! zeroes before the part exists, and the table says `new` until that is done; a crash in between does it again.
//! So nobody ever reads what another left behind.

use crate::file::Files;
use crate::open::{self, Options};
use crate::space::{Extent, GRAIN, Space, check_name};
use crate::{Buffer, Store};
use henge_core::{Backend, Done, Fault, Instant, Request};
use rustix::fs::{FallocateFlags, SeekFrom};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const HEADER: &str = "henge extents 1";

/// A device of extents.
pub struct Device {
    path: PathBuf,
    table: PathBuf,
    space: Space,
    file: File,
    files: Files,
}

impl Device {
    /// Opens the device at `path`, whose table of extents is at `table`. `capacity` 0 takes all of it.
    pub fn open(path: &Path, table: &Path, capacity: u64, options: Options) -> io::Result<Self> {
        let (file, block) = open::open(path, false, options.direct)?;
        open::lock(&file, path)?;
        let size = rustix::fs::seek(&file, SeekFrom::End(0))? / GRAIN * GRAIN;
        if capacity > size {
            return Err(open::named(
                path,
                &io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("holds {size} bytes (in whole MiB), less than the capacity of {capacity}"),
                ),
            ));
        }
        let capacity = if capacity == 0 { size } else { capacity };
        let engine = crate::engine::open(&options, block)?;
        let mut device = Device {
            path: path.to_owned(),
            table: table.to_owned(),
            space: Space::new(capacity),
            file,
            files: Files::new(engine, block),
        };
        for unzeroed in device.load()? {
            device.make_zero(&unzeroed)?;
        }
        device.save(None)?;
        Ok(device)
    }

    /// Reads the table; the extents that were still to be zeroed.
    fn load(&mut self) -> io::Result<Vec<Extent>> {
        let text = match std::fs::read_to_string(&self.table) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(open::named(&self.table, &e)),
        };
        let wrong = |line: &str| {
            let what = format!("not understood: \"{line}\"");
            open::named(&self.table, &io::Error::new(io::ErrorKind::InvalidData, what))
        };
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default();
        if header != HEADER {
            return Err(wrong(header));
        }
        let mut unzeroed = Vec::new();
        for line in lines {
            let mut words = line.split(' ');
            let (state, base, len, name) = (words.next(), words.next(), words.next(), words.next());
            let (Some(base), Some(len), Some(name)) = (number(base), number(len), name) else {
                return Err(wrong(line));
            };
            check_name(name)?;
            let extent = Extent { name: name.to_owned(), base, len };
            self.space.restore(extent.clone()).map_err(|e| open::named(&self.table, &e))?;
            match state {
                Some("new") => unzeroed.push(extent),
                Some("used") => {}
                _ => return Err(wrong(line)),
            }
        }
        Ok(unzeroed)
    }

    /// Replaces the table; `new` is the part that is not zeroed yet.
    fn save(&self, new: Option<&str>) -> io::Result<()> {
        let mut text = format!("{HEADER}\n");
        for e in self.space.extents() {
            let state = if new == Some(&e.name) { "new" } else { "used" };
            text.push_str(&format!("{state} {} {} {}\n", e.base, e.len, e.name));
        }
        let beside = self.table.with_extension("tmp");
        let write = || -> io::Result<()> {
            let mut file = File::create(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&beside, &self.table)?;
            open::sync_directory(self.table.parent().unwrap_or(Path::new(".")))
        };
        write().map_err(|e| open::named(&self.table, &e))
    }

    /// Zeroes up to the whole MiB that an extent takes, so that what it grows into is clean as well.
    fn make_zero(&self, extent: &Extent) -> io::Result<()> {
        let end = extent.base + extent.len.next_multiple_of(GRAIN);
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.file, flags, extent.base, end - extent.base).is_err() {
            let zeroes = Buffer::zeroed(GRAIN as usize);
            let mut at = extent.base;
            while at < end {
                // Extents begin at whole MiB and the device ends at one, so this stays among this part's own.
                self.file.write_all_at(&zeroes, at).map_err(|e| open::named(&self.path, &e))?;
                at += GRAIN;
            }
        }
        self.file.sync_all().map_err(|e| open::named(&self.path, &e))
    }

    fn add(&mut self, name: &str, len: u64) -> io::Result<()> {
        let i = self.space.allocate(name, len)?;
        let extent = self.space.extents()[i].clone();
        let made =
            self.save(Some(name)).and_then(|()| self.make_zero(&extent)).and_then(|()| self.save(None));
        if made.is_err() {
            self.space.free(name);
        }
        made
    }

    fn lengthen(&mut self, part: &Extent, len: u64) -> io::Result<()> {
        self.space.grow(&part.name, len)?;
        // The whole last MiB of what it had was zeroed with it.
        let from = part.base + part.len.next_multiple_of(GRAIN);
        let to = part.base + len.next_multiple_of(GRAIN);
        // Zero first: until the table says so, the new end is nobody's.
        if from < to {
            self.make_zero(&Extent { name: part.name.clone(), base: from, len: to - from })?;
        }
        self.save(None)
    }
}

fn number(word: Option<&str>) -> Option<u64> {
    word?.parse().ok()
}

impl Backend for Device {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, _now: Instant) {
        if self.space.locate(request.offset, request.len).is_some() {
            self.files.submit(request, payload, self.file.as_raw_fd(), request.offset);
        } else {
            self.files.refuse(request.id, Fault::OutOfRange, payload);
        }
    }
    fn reap(&mut self, _now: Instant) -> Option<Done<Buffer>> {
        self.files.reap()
    }
    fn wake_at(&self) -> Option<Instant> {
        None
    }
    fn capacity(&self) -> u64 {
        self.space.capacity()
    }
}

impl Store for Device {
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        check_name(name)?;
        match self.space.find(name).cloned() {
            Some(part) if part.len < len => self.lengthen(&part, len)?,
            Some(part) if part.len > len => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "\"{name}\" has {} bytes; a part is not shrunk to {len}, its end would be lost",
                        part.len
                    ),
                ));
            }
            Some(_) => {}
            None => self.add(name, len)?,
        }
        Ok(self.space.find(name).expect("the part was just made").base)
    }
    fn could_grow(&self, name: &str, len: u64) -> io::Result<()> {
        self.space.could_grow(name, len)
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        if self.space.free(name).is_some() {
            self.save(None)?;
        }
        Ok(())
    }
    fn block(&self) -> u64 {
        self.files.block()
    }
    fn event_fd(&self) -> Option<RawFd> {
        Some(self.files.engine().event_fd())
    }
    fn describe(&self) -> String {
        let how = open::describe(self.files.engine().name(), self.files.block());
        format!("device {}, {how}", self.path.display())
    }
}
