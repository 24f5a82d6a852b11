//! io_uring: requests are written into a ring and submitted together, one system call per wake-up.
//!
//! Price (4 KiB reads, ext4, O_DIRECT, depth 32): 6-8 us of CPU a request with sockets, where threads take 22-29.

#![allow(unsafe_code)] // the kernel reads and writes memory after the call has returned

use super::{Engine, Io, Kind};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};

/// So often the kernel is entered in a row while nothing comes back, before the rest of the loop has its turn.
const ROUNDS: usize = 4;

/// Workers of the kernel that a ring asks for besides its depth: as many as a pool's syncs and holes may keep.
const WORKERS: u32 = 16;

thread_local! {
    /// Asked for by all rings of this thread. They share them.
    static ASKED: Cell<u32> = const { Cell::new(0) };
}

/// The kernel gives a thread's rings four workers for each core, for files. It makes them as they are needed, and more are needed only while others wait.
/// So that a device that keeps all of its ring's waiting does not keep another's waiting, each ring brings its own.
fn ask_for_workers(ring: &IoUring, entries: u32) {
    let all = ASKED.with(|asked| {
        asked.set(asked.get().saturating_add(entries + WORKERS));
        asked.get()
    });
    // Linux before 5.15 keeps to its own number.
    let _ = ring.submitter().register_iowq_max_workers(&mut [all, 0]);
}

/// One ring.
pub struct Uring {
    ring: IoUring,
    /// Counts up when something is over. (The ring's own descriptor stays silent about deferred work.)
    event: OwnedFd,
    /// Written into the ring, not yet told to the kernel.
    unsubmitted: usize,
    in_flight: usize,
    /// What the ring had no place for, or is not to be told of yet.
    overflow: VecDeque<Io>,
    /// Bytes of what was written into the ring, and most that the kernel is told of at once.
    untold: u64,
    at_once: u64,
}

impl Uring {
    /// A ring for about `depth` at once; an error where the kernel or a sandbox forbids it.
    pub fn new(depth: u32) -> io::Result<Self> {
        let entries = depth.clamp(8, 4096).next_power_of_two();
        // The loop is the only thread that submits, and completions are only looked at when it asks; both
        // spare interrupts (Linux 6.1). An older kernel refuses the flags, and then gets a plain ring.
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        let ring = builder.build(entries).or_else(|_| IoUring::new(entries))?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        ask_for_workers(&ring, entries);
        let (overflow, at_once) = (VecDeque::new(), u64::MAX);
        Ok(Uring { ring, event, unsubmitted: 0, in_flight: 0, overflow, untold: 0, at_once })
    }

    /// The same where the kernel copies, while it is told, what it finds in the page cache: so many bytes at once, or one request that
    /// is longer. Between two such calls the loop may look after others.
    pub fn telling_at_most(self, bytes: u64) -> Self {
        Uring { at_once: bytes, ..self }
    }

    fn entry(io: &Io) -> squeue::Entry {
        let fd = types::Fd(io.fd);
        let len = u32::try_from(io.len).unwrap_or(u32::MAX);
        let entry = match io.kind {
            Kind::Read => opcode::Read::new(fd, io.memory.as_ptr(), len).offset(io.offset).build(),
            Kind::Write { durable } => opcode::Write::new(fd, io.memory.as_ptr(), len)
                .offset(io.offset)
                .rw_flags(if durable { libc::RWF_DSYNC } else { 0 })
                .build(),
            Kind::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Kind::Allocate { mode } => {
                opcode::Fallocate::new(fd, io.len).offset(io.offset).mode(mode).build()
            }
        };
        let flags = if io.aside { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        entry.user_data(u64::from(io.token)).flags(flags)
    }

    fn push(&mut self, io: Io) -> Result<(), Io> {
        let here = matches!(io.kind, Kind::Read | Kind::Write { .. }) && !io.aside;
        let bytes = if here { io.len } else { 0 };
        if self.untold > 0 && self.untold.saturating_add(bytes) > self.at_once {
            return Err(io);
        }
        let entry = Self::entry(&io);
        // SAFETY: the memory stays valid until this token is reaped, as `Engine::submit` demands of its caller.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            return Err(io);
        }
        self.unsubmitted += 1;
        self.untold += bytes;
        Ok(())
    }

    /// Tells the kernel what is new, and lets it finish what is ready.
    fn enter(&mut self) {
        // EBUSY and EAGAIN mean "reap first", EINTR "again"; the entries stay in the ring until next time.
        if let Ok(taken) = self.ring.submit() {
            self.unsubmitted -= taken.min(self.unsubmitted);
        }
        if self.unsubmitted == 0 {
            self.untold = 0;
        }
        while let Some(io) = self.overflow.pop_front() {
            if let Err(io) = self.push(io) {
                self.overflow.push_front(io);
                break;
            }
        }
    }

    /// The same without a signal: what that finishes at once (a read of what is in the page cache) is reaped next, so nobody is to
    /// be woken for it, which would cost whoever waits for it one more turn.
    fn enter_quietly(&mut self) {
        self.ring.completion().disable_eventfd();
        self.enter();
        self.ring.completion().enable_eventfd();
        // What was finished elsewhere in between gave no signal: it is there, or noted as deferred work, which `reap` looks at
        // after this. The kernel notes first and looks for the flag then; we the other way round, and nothing may overtake.
        fence(Ordering::SeqCst);
    }

    /// Whether the kernel has noted deferred work. It notes it after it has queued it, and we may have come between: then the note
    /// stays although the work is done, until there is more.
    fn noted(&mut self) -> bool {
        self.ring.submission().taskrun()
    }

    /// Whether there is deferred work, or something that is over. Where there is work nobody is told of more; and the kernel leaves
    /// some when it is entered: after 20 pieces it stops, and one may have ended in a wait for another page.
    fn has_work(&self) -> bool {
        let here = Timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the ring, and with it its descriptor, is there.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        poll(&mut [PollFd::new(&ring, PollFlags::IN)], Some(&here)) != Ok(0)
    }

    fn completed(&mut self) -> Option<(u32, i32)> {
        let entry = self.ring.completion().next()?;
        self.in_flight -= 1;
        Some((entry.user_data() as u32, entry.result()))
    }
}

impl Engine for Uring {
    unsafe fn submit(&mut self, io: Io) {
        self.in_flight += 1;
        if !self.overflow.is_empty() {
            return self.overflow.push_back(io);
        }
        if let Err(io) = self.push(io) {
            self.overflow.push_back(io);
            if self.at_once == u64::MAX {
                self.enter_quietly();
            }
        }
    }

    fn reap(&mut self) -> Option<(u32, i32)> {
        if let Some(done) = self.completed() {
            return Some(done);
        }
        let new = self.unsubmitted > 0 || !self.overflow.is_empty();
        for round in 0..ROUNDS {
            let call = match round {
                0 => new || self.noted(),
                _ => self.unsubmitted > 0 || self.noted() && self.has_work(),
            };
            if !call {
                return None;
            }
            self.enter_quietly();
            if let Some(done) = self.completed() {
                return Some(done);
            }
        }
        // Of what is left no signal comes but this.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        None
    }

    fn idle(&self) -> bool {
        self.in_flight == 0
    }

    fn event_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Advice, fadvise};
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    const FILE: u64 = 64 << 20;
    const DEPTH: usize = 128;
    /// So often in a row the cache is emptied.
    const DROPS: usize = 200;

    impl Uring {
        fn completion_count(&mut self) -> usize {
            self.ring.completion().len()
        }
    }

    /// Reads `count` blocks, and waits as the loop does. Tells how many came back, now and then and at the end; fewer when one is never told of.
    fn read_blocks(file: &std::fs::File, count: usize, tell: &Sender<usize>) {
        let mut ring = Uring::new(DEPTH as u32).expect("a ring");
        let mut memory = vec![0u8; DEPTH * 4096];
        let (mut free, mut begun, mut over): (Vec<u32>, _, _) = ((0..DEPTH as u32).collect(), 0, 0);
        let mut at = 1u64;
        while over < count {
            while begun < count
                && let Some(token) = free.pop()
            {
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let to = NonNull::new(memory[token as usize * 4096..].as_mut_ptr()).expect("an address");
                let offset = (at >> 33) % (FILE / 4096) * 4096;
                let fd = file.as_raw_fd();
                let io = Io { token, kind: Kind::Read, fd, offset, len: 4096, memory: to, aside: false };
                // SAFETY: the token's block of `memory` is touched by nobody until it is reaped.
                unsafe { ring.submit(io) };
                begun += 1;
            }
            let before = over;
            while let Some((token, result)) = ring.reap() {
                assert_eq!(result, 4096);
                free.push(token);
                over += 1;
                if over.is_multiple_of(100) {
                    let _ = tell.send(over);
                }
            }
            if over == before {
                // SAFETY: the ring, and with it its descriptor, is there.
                let event = unsafe { BorrowedFd::borrow_raw(ring.event_fd()) };
                let told = poll(
                    &mut [PollFd::new(&event, PollFlags::IN)],
                    Some(&Timespec { tv_sec: 20, tv_nsec: 0 }),
                );
                if told == Ok(0) {
                    break;
                }
                let _ = rustix::io::read(event, &mut [0; 8]);
            }
        }
        // What is still under way uses the memory.
        std::mem::forget(memory);
        let _ = tell.send(over);
    }

    /// Whether what is in the page cache is read while the kernel is asked: tmpfs knows no RWF_NOWAIT.
    fn reads_at_once(file: &std::fs::File) -> bool {
        let mut byte = [0];
        let mut to = [std::io::IoSliceMut::new(&mut byte)];
        rustix::io::preadv2(file, &mut to, 0, rustix::io::ReadWriteFlags::NOWAIT) == Ok(1)
    }

    /// A ring, where this machine lets programs have one.
    fn ring(test: &str, depth: u32) -> Option<Uring> {
        match Uring::new(depth) {
            Ok(ring) => Some(ring),
            Err(why) => {
                println!("skipped: {test}: {why}");
                None
            }
        }
    }

    /// What the kernel copies while it is told is told of by so many bytes at a time, whatever waits; the rest comes by itself.
    #[test]
    fn no_call_copies_more_than_it_may() {
        const LEN: usize = 64 << 10;
        let file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut &file, &vec![7; 8 * LEN]).expect("written");
        let mut memory = vec![0u8; 8 * LEN];
        let Some(ring) = ring("no_call_copies_more_than_it_may", 8) else { return };
        if !reads_at_once(&file) {
            return println!(
                "skipped: no_call_copies_more_than_it_may: this file system reads nothing at once"
            );
        }
        let mut ring = ring.telling_at_most(2 * LEN as u64);
        for (token, block) in memory.chunks_mut(LEN).enumerate() {
            let to = NonNull::new(block.as_mut_ptr()).expect("an address");
            let (fd, offset, len) = (file.as_raw_fd(), (token * LEN) as u64, LEN as u64);
            let io = Io { token: token as u32, kind: Kind::Read, fd, offset, len, memory: to, aside: false };
            // SAFETY: the block is touched by nobody until it is reaped.
            unsafe { ring.submit(io) };
        }
        for call in 1..=4 {
            ring.enter_quietly();
            assert_eq!(ring.completion_count(), 2, "call {call}");
            while ring.completed().is_some() {}
        }
        assert!(ring.idle() && ring.reap().is_none() && memory.iter().all(|byte| *byte == 7));
    }

    /// Blocks that are in the page cache come back at once, the others from another thread, which may note that there is work just
    /// after we did it; and what was read is gone again before it was looked at, so that the kernel does much for nothing.
    /// `HENGE_READS` makes it longer.
    #[test]
    fn reads_through_a_page_cache_that_comes_and_goes_all_come_back() {
        if ring("reads_through_a_page_cache_that_comes_and_goes", DEPTH as u32).is_none() {
            return;
        }
        let count = std::env::var("HENGE_READS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
        let file = tempfile::tempfile().expect("a file");
        let chunk = vec![7u8; 1 << 20];
        (0..FILE >> 20).for_each(|_| std::io::Write::write_all(&mut &file, &chunk).expect("written"));
        file.sync_all().expect("synced");
        let (file, stop) = (Arc::new(file), Arc::new(AtomicBool::new(false)));
        let (dropped, stopped) = (Arc::clone(&file), Arc::clone(&stop));
        let dropper = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..DROPS {
                    let _ = fadvise(&*dropped, 0, None, Advice::DontNeed);
                    std::thread::yield_now();
                }
                // In between what was read stays until it is looked at: otherwise luck alone would bring it back.
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let (tell, told) = channel();
        std::thread::spawn(move || read_blocks(&file, count, &tell));
        let mut over = 0;
        while let Ok(more) = told.recv_timeout(Duration::from_secs(60)) {
            over = more;
        }
        stop.store(true, Ordering::Relaxed);
        dropper.join().expect("it only drops");
        assert_eq!(over, count);
    }
}
