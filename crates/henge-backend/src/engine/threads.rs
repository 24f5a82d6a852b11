//! Threads that do one system call at a time: for kernels and sandboxes that forbid io_uring.

#![allow(unsafe_code)] // workers get memory by address, as the kernel would

use super::{Engine, Io, Kind};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Io>,
    over: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    done: Mutex<VecDeque<(u32, i32)>>,
    event: OwnedFd,
}

/// A fixed number of workers around one queue.
pub struct Threads {
    shared: Arc<Shared>,
    workers: Vec<std::thread::JoinHandle<()>>,
    reaped: VecDeque<(u32, i32)>,
    in_flight: usize,
}

/// A worker never panics while it holds a lock, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    /// `workers` of them.
    pub fn new(workers: u32) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            done: Mutex::default(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let mut threads = Threads { shared, workers: Vec::new(), reaped: VecDeque::new(), in_flight: 0 };
        for i in 0..workers {
            let shared = Arc::clone(&threads.shared);
            let worker = std::thread::Builder::new().name(format!("henge-io-{i}"));
            threads.workers.push(worker.spawn(move || work(&shared))?);
        }
        Ok(threads)
    }
}

fn work(shared: &Shared) {
    loop {
        let mut queue = lock(&shared.queue);
        let io = loop {
            if let Some(io) = queue.waiting.pop_front() {
                break io;
            }
            if queue.over {
                return;
            }
            queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        let result = perform(&io);
        let mut done = lock(&shared.done);
        let first = done.is_empty();
        done.push_back((io.token, result));
        drop(done);
        if first {
            // It can only fail when the counter is at its end, and then the loop is awake.
            let _ = rustix::io::write(&shared.event, &1u64.to_ne_bytes());
        }
    }
}

/// One system call; bytes moved or the negative error number.
fn perform(io: &Io) -> i32 {
    // SAFETY: the store keeps its files open until their requests are over.
    let fd = unsafe { BorrowedFd::borrow_raw(io.fd) };
    let len = usize::try_from(io.len).unwrap_or(usize::MAX);
    let moved = match io.kind {
        Kind::Read => {
            // SAFETY: valid and ours alone until the token is reaped, as `Engine::submit` demands.
            let memory = unsafe { std::slice::from_raw_parts_mut(io.memory.as_ptr(), len) };
            rustix::io::pread(fd, memory, io.offset)
        }
        Kind::Write { durable } => {
            // SAFETY: as above.
            let memory = unsafe { std::slice::from_raw_parts(io.memory.as_ptr(), len) };
            let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            rustix::io::pwritev2(fd, &[IoSlice::new(memory)], io.offset, flags)
        }
        Kind::Sync => rustix::fs::fdatasync(fd).map(|()| 0),
        Kind::Allocate { mode } => {
            let flags = FallocateFlags::from_bits_retain(mode as u32);
            rustix::fs::fallocate(fd, flags, io.offset, io.len).map(|()| 0)
        }
    };
    match moved {
        Ok(moved) => i32::try_from(moved).unwrap_or(i32::MAX),
        Err(error) => -Errno::raw_os_error(error),
    }
}

impl Engine for Threads {
    unsafe fn submit(&mut self, io: Io) {
        self.in_flight += 1;
        lock(&self.shared.queue).waiting.push_back(io);
        self.shared.work.notify_one();
    }

    fn reap(&mut self) -> Option<(u32, i32)> {
        if self.reaped.is_empty() && self.in_flight > 0 {
            std::mem::swap(&mut self.reaped, &mut *lock(&self.shared.done));
        }
        let done = self.reaped.pop_front()?;
        self.in_flight -= 1;
        Some(done)
    }

    fn idle(&self) -> bool {
        self.in_flight == 0
    }

    fn event_fd(&self) -> RawFd {
        self.shared.event.as_raw_fd()
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        // Nobody asks for it any more, and its file may be closed before a worker comes to it.
        queue.waiting.clear();
        queue.over = true;
        drop(queue);
        self.shared.work.notify_all();
        // With something under way (a device that hangs) nobody waits: the store leaves its memory alone.
        if self.in_flight == 0 {
            for worker in self.workers.drain(..) {
                let _ = worker.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;

    #[test]
    fn what_no_worker_has_come_to_is_left_undone_at_the_end() {
        let mut threads = Threads::new(0).unwrap();
        let shared = Arc::clone(&threads.shared);
        let io = Io {
            token: 0,
            kind: Kind::Sync,
            fd: -1,
            offset: 0,
            len: 0,
            memory: NonNull::dangling(),
            aside: false,
        };
        // SAFETY: it moves nothing.
        unsafe { threads.submit(io) };
        assert_eq!(lock(&shared.queue).waiting.len(), 1);
        drop(threads);
        assert!(lock(&shared.queue).waiting.is_empty());
    }
}
