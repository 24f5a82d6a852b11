//! Storage that is forgotten at the end: for tests, demos and scratch disks.
//!
//! One private mapping of the whole capacity; the kernel gives pages when they are first written, and takes them
//! back when they are trimmed. Untouched memory reads as zeroes, so a fresh disk does.

#![allow(unsafe_code)] // a mapping, because a Vec would touch all of its pages to read as zeroes

use crate::space::{Space, check_name};
use crate::{Buffer, Store};
use henge_core::{Backend, Done, Fault, Instant, Op, Request};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;

const PAGE: usize = 4096;

/// A private anonymous mapping.
pub(crate) struct Map {
    at: NonNull<u8>,
    len: usize,
}

impl Map {
    pub(crate) fn new(len: u64) -> io::Result<Map> {
        let len = usize::try_from(len)
            .ok()
            .and_then(|len| len.checked_next_multiple_of(PAGE))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "more than memory can address"))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let at = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len.max(PAGE),
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?
        };
        let at = NonNull::new(at.cast()).expect("a mapping is never at address zero");
        Ok(Map { at, len: len.max(PAGE) })
    }
    pub(crate) fn slice(&mut self) -> &mut [u8] {
        // SAFETY: the whole mapping is readable and writable, initialized to zero by the kernel, and only
        // reachable through this `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
    /// Makes a range read as zeroes; whole pages go back to the kernel.
    pub(crate) fn zero(&mut self, from: usize, len: usize) {
        let (first, last) = (from.next_multiple_of(PAGE), (from + len) / PAGE * PAGE);
        if first >= last {
            return self.slice()[from..from + len].fill(0);
        }
        self.slice()[from..first].fill(0);
        self.slice()[last..from + len].fill(0);
        // SAFETY: whole pages inside our own mapping, which no reference points into now; private anonymous
        // pages read as zeroes after MADV_DONTNEED.
        let dropped = unsafe {
            rustix::mm::madvise(self.at.as_ptr().add(first).cast(), last - first, Advice::LinuxDontNeed)
        };
        if dropped.is_err() {
            self.slice()[first..last].fill(0);
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length; nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}

/// A store in memory. Requests are over as soon as they are submitted.
pub struct Memory {
    map: Map,
    space: Space,
    done: VecDeque<Done<Buffer>>,
}

impl Memory {
    /// `capacity` bytes of zeroes.
    pub fn new(capacity: u64) -> io::Result<Self> {
        Ok(Memory { map: Map::new(capacity)?, space: Space::new(capacity), done: VecDeque::new() })
    }

    fn serve(&mut self, request: &Request, data: &mut [u8]) -> Result<(), Fault> {
        if request.op == Op::Flush {
            return Ok(());
        }
        if request.offset.checked_add(request.len).is_none_or(|end| end > self.space.capacity()) {
            return Err(Fault::OutOfRange);
        }
        let (from, len) = (request.offset as usize, request.len as usize);
        match request.op {
            Op::Read => data.copy_from_slice(&self.map.slice()[from..from + len]),
            Op::Write => self.map.slice()[from..from + len].copy_from_slice(data),
            Op::Trim | Op::WriteZeroes => self.map.zero(from, len),
            Op::Flush => {}
        }
        Ok(())
    }
}

impl Backend for Memory {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, mut payload: Buffer, _now: Instant) {
        let outcome = self.serve(request, &mut payload);
        self.done.push_back(Done { id: request.id, outcome, busy: None, payload });
    }
    fn reap(&mut self, _now: Instant) -> Option<Done<Buffer>> {
        self.done.pop_front()
    }
    fn wake_at(&self) -> Option<Instant> {
        if self.done.is_empty() { None } else { Some(Instant::ZERO) }
    }
    fn capacity(&self) -> u64 {
        self.space.capacity()
    }
}

impl Store for Memory {
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        check_name(name)?;
        match self.space.find(name) {
            Some(part) if part.len < len => self.space.grow(name, len)?,
            Some(_) => {}
            None => drop(self.space.allocate(name, len)?),
        }
        Ok(self.space.find(name).expect("the part was just made").base)
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        if let Some(part) = self.space.find(name).cloned() {
            self.map.zero(part.base as usize, part.len as usize);
            self.space.free(name);
        }
        Ok(())
    }
    fn describe(&self) -> String {
        "memory, forgotten when the node ends".into()
    }
}
