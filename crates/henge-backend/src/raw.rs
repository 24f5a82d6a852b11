//! A file or a device as it is, without parts: for whoever measures it. Opened for reading alone unless asked otherwise.

use crate::Buffer;
use crate::file::Files;
use crate::open::{self, Options};
use henge_core::{Backend, Done, Fault, Instant, Op, Request};
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

/// All bytes of a file or a device.
pub struct Raw {
    capacity: u64,
    /// Bytes that take room; fewer than the capacity in a file with holes.
    allocated: u64,
    writable: bool,
    files: Files,
    file: File,
}

impl Raw {
    /// Opens what stands at `path`. While it is open no node can serve it, and none may be serving it.
    pub fn open(path: &Path, writable: bool, options: Options) -> io::Result<Self> {
        let (file, block) = if writable {
            open::claim(path, options.direct, options.patience)?
        } else {
            let (file, block) = open::read_only(path, options.direct)?;
            open::flock(&file, path, options.patience)?;
            (file, block)
        };
        let capacity = rustix::fs::seek(&file, SeekFrom::End(0))?;
        let stat = rustix::fs::fstat(&file)?;
        let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        let allocated = if regular { (stat.st_blocks as u64 * 512).min(capacity) } else { capacity };
        let engine = crate::engine::open(&options, block)?;
        Ok(Raw { capacity, allocated, writable, files: Files::new(engine, block), file })
    }
    /// Requests begin and end at multiples of it.
    pub fn block(&self) -> u64 {
        self.files.block
    }
    /// Bytes that take room on the medium.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }
    /// Signals an edge when `reap` has something.
    pub fn event_fd(&self) -> RawFd {
        self.files.engine().event_fd()
    }
    /// How it does its work, for people.
    pub fn describe(&self) -> String {
        open::describe(self.files.engine().name(), self.files.block, false)
    }
}

impl Backend for Raw {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
        self.files.at(now);
        if request.end() > self.capacity {
            self.files.refuse(request.id, Fault::OutOfRange, payload);
        } else if request.op != Op::Read && !self.writable {
            self.files.refuse(request.id, Fault::Unsupported, payload);
        } else {
            self.files.submit(request, payload, self.file.as_raw_fd(), request.offset);
        }
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        self.files.at(now);
        loop {
            // Whoever measures serves nobody else meanwhile.
            match self.files.reap() {
                None if self.files.wake_at().is_some() => {}
                done => return done,
            }
        }
    }
    fn wake_at(&self) -> Option<Instant> {
        None
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
    fn quantum(&self) -> u64 {
        henge_core::DEVICE_QUANTUM
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{FlowId, RequestId};

    fn one(raw: &mut Raw, op: Op, offset: u64, payload: Buffer) -> Done<Buffer> {
        let request =
            Request::new(RequestId::default(), FlowId(0), op, offset, payload.len() as u64, Instant::ZERO);
        raw.submit(&request, payload, Instant::ZERO);
        loop {
            if let Some(done) = raw.reap(Instant::ZERO) {
                return done;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn it_reads_and_does_not_write_unless_asked_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, vec![7; 8192]).unwrap();
        let mut raw = Raw::open(&path, false, Options::default()).unwrap();
        assert_eq!(raw.capacity(), 8192);
        let done = one(&mut raw, Op::Read, 4096, Buffer::zeroed(4096));
        assert!(done.outcome.is_ok() && done.payload.iter().all(|b| *b == 7));
        assert_eq!(one(&mut raw, Op::Write, 0, Buffer::zeroed(4096)).outcome, Err(Fault::Unsupported));
        assert_eq!(one(&mut raw, Op::Read, 8192, Buffer::zeroed(4096)).outcome, Err(Fault::OutOfRange));
        let at_once = Options { patience: std::time::Duration::ZERO, ..Options::default() };
        assert!(Raw::open(&path, true, at_once).is_err(), "it is in use");
        drop(raw);
        let mut raw = Raw::open(&path, true, Options::default()).unwrap();
        assert!(one(&mut raw, Op::Write, 0, Buffer::zeroed(4096)).outcome.is_ok());
        drop(raw);
        assert_eq!(std::fs::read(&path).unwrap()[..4097], [&[0; 4096][..], &[7]].concat());
    }
}
