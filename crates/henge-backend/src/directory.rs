//! A pool as a directory: one sparse file per part.
//!
//! A fresh file reads as zeroes, and a removed one is gone, so the file system sees to it that nobody reads
//! another's former data. The parts' lengths are the files' lengths; nothing else needs remembering.

use crate::file::Files;
use crate::open::{self, Options};
use crate::space::{Space, check_name};
use crate::{Buffer, Store};
use henge_core::{Backend, Done, Fault, Instant, Request};
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

const LOCK: &str = ".henge.lock";

/// A directory of parts.
pub struct Directory {
    path: PathBuf,
    options: Options,
    space: Space,
    /// In the order of `space.extents()`.
    parts: Vec<File>,
    files: Files,
    _lock: File,
}

impl Directory {
    /// Opens, or makes, the directory as a pool of `capacity` bytes.
    pub fn open(path: &Path, capacity: u64, options: Options) -> io::Result<Self> {
        std::fs::create_dir_all(path).map_err(|e| open::named(path, &e))?;
        let (lock, block) = open::open(&path.join(LOCK), true, options.direct)?;
        open::lock(&lock, path)?;
        let engine = crate::engine::open(&options, block)?;
        Ok(Directory {
            path: path.to_owned(),
            options,
            space: if options.apart { Space::apart(capacity) } else { Space::new(capacity) },
            parts: Vec::new(),
            files: Files::new(engine, block),
            _lock: lock,
        })
    }

    fn open_file(&self, name: &str, len: u64) -> io::Result<File> {
        let path = self.path.join(name);
        let (file, block) = open::open(&path, true, self.options.direct)?;
        if block > self.files.block() {
            return Err(open::named(
                &path,
                &io::Error::other(format!("needs blocks of {block} bytes, unlike the rest of the pool")),
            ));
        }
        // Whole pages, so that a window around the last bytes can be written.
        let whole = len.next_multiple_of(crate::ALIGN as u64);
        let present = file.metadata()?.len();
        if present > whole {
            return Err(open::named(
                &path,
                &io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("holds {present} bytes; a part is not shrunk to {len}, its end would be lost"),
                ),
            ));
        }
        if present < whole {
            file.set_len(whole).and_then(|()| file.sync_all()).map_err(|e| open::named(&path, &e))?;
            open::sync_directory(&self.path)?;
        }
        Ok(file)
    }
}

impl Backend for Directory {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, _now: Instant) {
        match self.space.locate(request.offset, request.len) {
            Some((i, part)) => {
                let fd = self.parts[i].as_raw_fd();
                self.files.submit(request, payload, fd, request.offset - part.base);
            }
            None => self.files.refuse(request.id, Fault::OutOfRange, payload),
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

impl Store for Directory {
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        check_name(name)?;
        match self.space.find(name) {
            Some(part) if part.len < len => {
                self.space.could_grow(name, len)?;
                self.open_file(name, len)?;
                self.space.grow(name, len)?;
            }
            Some(_) => {}
            None => {
                let i = self.space.allocate(name, len)?;
                match self.open_file(name, len) {
                    Ok(file) => self.parts.insert(i, file),
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
        if let Some(i) = self.space.free(name) {
            self.parts.remove(i);
        }
        match std::fs::remove_file(self.path.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(open::named(&self.path.join(name), &e)),
            _ => open::sync_directory(&self.path),
        }
    }
    fn block(&self) -> u64 {
        self.files.block()
    }
    fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
        let Some((i, part)) = self.space.locate(offset, len) else { return (len, true) };
        let (file, at) = (&self.parts[i], offset - part.base);
        // Requests carry their own offsets, so the file's is free to be moved.
        match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) if data > at => (len.min(data - at), false),
            Ok(_) => match rustix::fs::seek(file, SeekFrom::Hole(at)) {
                Ok(hole) => (len.min(hole - at).max(1), true),
                Err(_) => (len, true),
            },
            Err(rustix::io::Errno::NXIO) => (len, false),
            Err(_) => (len, true),
        }
    }
    fn event_fd(&self) -> Option<RawFd> {
        Some(self.files.engine().event_fd())
    }
    fn describe(&self) -> String {
        let how = open::describe(self.files.engine().name(), self.files.block());
        format!("directory {}, {how}", self.path.display())
    }
}
