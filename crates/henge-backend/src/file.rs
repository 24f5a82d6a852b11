//! Requests on files: short transfers, durability and zeroes on top of an [`Engine`].
//!
//! With O_DIRECT the device takes whole blocks only, and so do these files: virtual disks read, modify and write
//! what is not aligned, under their range locks, so that it is done in one place.
//!
//! Syncs are shared, and one that fails poisons its file: see [`syncs`].
//!
//! Holes and zeroes of one file are made one after the other: see [`holes`].
//! They, and long reads through the page cache, each keep a worker of the kernel while they last, and a file system may let them wait for
//! seconds. So [`WORKERS`] of them are under way, and who comes then waits here: other requests have their workers.
//!
//! What is in the page cache is copied while its caller waits, one read after another. Of long ones, of [`COPIED_MAX`] and more, one is under way, to its end, and
//! the others wait here. A small read waits for a piece of it at most, and not for one of each. And the places of long reads are free one
//! after the other, not all at the end.

#![allow(unsafe_code)] // hands buffers to the engine by address

mod holes;
mod line;
mod syncs;

use crate::Buffer;
use crate::engine::{COPIED_MAX, Engine, Io, Kind, WRITTEN_MAX};
use henge_core::{Done, Fault, Instant, Op, Request, RequestId};
use holes::Holes;
use line::Line;
use rustix::fs::{FileType, SeekFrom};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use syncs::Syncs;

/// Longest stretch of zeroes written at once where the file cannot make zeroes by itself.
const ZEROES_MAX: u64 = 1 << 20;

/// A read through the page cache of at least so many bytes is done aside where not all of them are there. Who asks for them makes room
/// in the cache, and reads ahead, in his own time: of a hole, for example, 128 KiB are zeroed and then copied, which was seen to take
/// milliseconds. To hand it to somebody else takes about as long as copying so many.
const ASIDE_MIN: u64 = 32 << 10;

/// Most of those under way that keep a worker of the kernel, besides syncs.
const WORKERS: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Between the payload and the file.
    Move,
    /// fallocate, by the way of this number in `ways_to_zero`.
    Punch(usize),
    /// Zeroes into the file, where fallocate cannot.
    Zeroes,
    /// fdatasync.
    Sync,
}

/// How a file can be told to read as zeroes, the best first. Zeroes that are to keep their room are never made by a hole.
const fn ways_to_zero(op: Op) -> &'static [i32] {
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    match op {
        Op::Trim => &[PUNCH, ZERO],
        _ => &[ZERO],
    }
}

/// Most bytes of a transfer through the page cache at once.
const fn piece(op: Op) -> u64 {
    match op {
        Op::Read => COPIED_MAX,
        _ => WRITTEN_MAX,
    }
}

struct Running {
    id: RequestId,
    op: Op,
    /// It is to be durable before it is over.
    durable: bool,
    /// It sees to that by itself, in one step.
    alone: bool,
    payload: Buffer,
    fd: RawFd,
    /// The request's range in the file.
    from: u64,
    len: u64,
    step: Step,
    /// Bytes that the present step has moved.
    moved: u64,
    /// It keeps one of the [`WORKERS`].
    works: bool,
    /// It needs no slot, and is among those that are told of.
    told: bool,
}

/// How many keep a worker, and who waits until one is free.
#[derive(Default)]
struct Crowd {
    workers: u32,
    waiting: VecDeque<u32>,
}

/// The long read that is being copied, and those that come after it.
#[derive(Default)]
struct Long {
    copying: Option<u32>,
    waiting: VecDeque<u32>,
}

/// The requests under way on some files.
pub(crate) struct Files {
    engine: Box<dyn Engine>,
    /// What the device moves at least; 1 where it takes any range.
    pub(crate) block: u64,
    running: Vec<Option<Running>>,
    free: Vec<u32>,
    /// Made when first needed.
    zeroes: Buffer,
    done: VecDeque<Done<Buffer>>,
    /// Of the files that were synced.
    syncs: BTreeMap<RawFd, Syncs>,
    line: Line,
    crowd: Crowd,
    long: Long,
    holes: Holes,
    /// Requests that await others, which nobody was told of yet.
    awaiting: VecDeque<RequestId>,
    /// Files whose sync failed, which nobody was told of yet.
    failed: Vec<RawFd>,
    /// A piece of a longer request was copied, and its next is to wait until whoever reaps comes again.
    rests: bool,
    /// That piece, which nobody was told of yet.
    copied: Option<(RequestId, u64)>,
}

impl Files {
    /// `block` is what the device moves at least; 1 where it takes any range.
    pub(crate) fn new(engine: Box<dyn Engine>, block: u64) -> Self {
        assert!(block.is_power_of_two() && block <= crate::ALIGN as u64, "blocks of at most a page");
        Files {
            engine,
            block,
            running: Vec::new(),
            free: Vec::new(),
            zeroes: Buffer::empty(),
            done: VecDeque::new(),
            syncs: BTreeMap::new(),
            line: Line::new(block == 1),
            crowd: Crowd::default(),
            long: Long::default(),
            holes: Holes::default(),
            awaiting: VecDeque::new(),
            failed: Vec::new(),
            rests: false,
            copied: None,
        }
    }
    /// When `reap` is to be called again without a signal.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        if self.rests { Some(Instant::ZERO) } else { self.line.wake_at() }
    }

    /// So late it is now: who has waited long enough for other files' syncs has its own.
    pub(crate) fn at(&mut self, now: Instant) {
        self.line.now = now;
        syncs::begin_next(self);
    }
    /// A file whose sync failed; each is told of once.
    pub(crate) fn failed(&mut self) -> Option<RawFd> {
        self.failed.pop()
    }
    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// A request that cannot even start.
    pub(crate) fn refuse(&mut self, id: RequestId, fault: Fault, payload: Buffer) {
        self.done.push_back(Done { id, outcome: Err(fault), busy: None, payload });
    }

    /// Starts `request` on `fd`, whose byte `from` is the request's first.
    pub(crate) fn submit(&mut self, request: &Request, payload: Buffer, fd: RawFd, from: u64) {
        let moves = matches!(request.op, Op::Read | Op::Write);
        assert!(!moves || payload.len() as u64 == request.len, "a payload as long as the request");
        if (from | request.len) & (self.block - 1) != 0 {
            return self.refuse(request.id, Fault::Unsupported, payload);
        }
        let step = match request.op {
            Op::Read | Op::Write => Step::Move,
            Op::Trim | Op::WriteZeroes => Step::Punch(0),
            Op::Flush => Step::Sync,
        };
        let durable = request.op == Op::Flush || request.fua && request.op != Op::Read;
        let running = Running {
            id: request.id,
            op: request.op,
            durable,
            alone: false,
            payload,
            fd,
            from,
            len: request.len,
            step,
            moved: 0,
            works: false,
            told: false,
        };
        let token = match self.free.pop() {
            Some(token) => {
                self.running[token as usize] = Some(running);
                token
            }
            None => {
                self.running.push(Some(running));
                (self.running.len() - 1) as u32
            }
        };
        if durable {
            // What claims durability that its file can no longer give does not begin.
            if self.syncs.get(&fd).is_some_and(|syncs| syncs.failed) {
                return self.end(token, Err(Fault::Io));
            }
            if step == Step::Sync {
                return self.waits(token);
            }
            self.get(token).alone = self.block > 1 && request.op == Op::Write && self.may_be_alone();
        }
        self.issue(token);
    }

    /// A request that waits for a sync only, or for others' holes; each told of once.
    pub(crate) fn awaits_others(&mut self) -> Option<RequestId> {
        self.awaiting.pop_front()
    }

    /// What was copied of the request that rests; said once.
    pub(crate) fn copied(&mut self) -> Option<(RequestId, u64)> {
        self.copied.take()
    }

    /// One that is over. Where there is none, [`wake_at`](Self::wake_at) says whether to ask again at once.
    pub(crate) fn reap(&mut self) -> Option<Done<Buffer>> {
        self.rests = false;
        loop {
            if let Some(done) = self.done.pop_front() {
                return Some(done);
            }
            if self.rests {
                return None;
            }
            let (token, result) = self.engine.reap()?;
            self.long.copying.take_if(|copying| *copying == token);
            let hole = holes::left(self, token);
            self.advance(token, result);
            hole.into_iter().for_each(|fd| holes::go_on(self, token, fd));
            while self.long.copying.is_none()
                && let Some(next) = self.long.waiting.pop_front()
            {
                self.issue(next);
            }
        }
    }

    fn get(&mut self, token: u32) -> &mut Running {
        self.running[token as usize].as_mut().expect("a token in use names a request under way")
    }

    /// Hands the present step, or what is left of it, to the engine.
    fn issue(&mut self, token: u32) {
        let (zeroes, cached) = (self.zeroes.address(), self.block == 1);
        let r = self.get(token);
        let (offset, rest) = (r.from + r.moved, r.len - r.moved);
        let durable = r.alone;
        let (kind, offset, len, memory) = match r.step {
            Step::Move => {
                let kind = if r.op == Op::Read { Kind::Read } else { Kind::Write { durable } };
                let rest = if cached { rest.min(piece(r.op)) } else { rest };
                // SAFETY: the payload is `r.len` bytes long (asserted in `submit`), and `moved` is less.
                let memory = unsafe { r.payload.address().add(r.moved as usize) };
                (kind, offset, rest, memory)
            }
            Step::Punch(way) => {
                (Kind::Allocate { mode: ways_to_zero(r.op)[way] }, offset, rest, NonNull::dangling())
            }
            Step::Zeroes => (Kind::Write { durable: false }, offset, rest.min(ZEROES_MAX), zeroes),
            Step::Sync => (Kind::Sync, 0, 0, NonNull::dangling()),
        };
        let fd = r.fd;
        let is_hole = matches!(kind, Kind::Allocate { .. });
        if is_hole && !holes::begins(self, token) {
            return;
        }
        let asks = cached && kind == Kind::Read && len >= ASIDE_MIN;
        let is_there = if asks { is_cached(fd, offset, len) } else { None };
        let aside = is_there == Some(false);
        let io = Io { token, kind, fd, offset, len, memory, aside };
        if aside || is_hole {
            if self.crowd.workers == WORKERS {
                if is_hole {
                    awaits(self, token);
                }
                return self.crowd.waiting.push_back(token);
            }
            self.crowd.workers += 1;
            self.get(token).works = true;
        } else if len >= COPIED_MAX && is_there == Some(true) {
            if self.long.copying.is_some() {
                return self.long.waiting.push_back(token);
            }
            self.long.copying = Some(token);
        }
        // SAFETY: the payload belongs to `running[token]` until the engine has returned the token, and the zeroes,
        // ZEROES_MAX of them, to us, who never change them; `Drop` leaks both if that never happens.
        unsafe { self.engine.submit(io) };
    }

    fn advance(&mut self, token: u32, result: i32) {
        if std::mem::take(&mut self.get(token).works) {
            self.crowd.workers -= 1;
        }
        // What was to be read aside may be in the page cache by now, and then needs no worker.
        while self.crowd.workers < WORKERS
            && let Some(next) = self.crowd.waiting.pop_front()
        {
            self.issue(next);
        }
        if result < 0 {
            return self.failed_step(token, -result);
        }
        let bytes = result as u64;
        let block = self.block;
        let r = self.get(token);
        match r.step {
            Step::Sync => self.synced(token),
            Step::Punch(_) => self.moved(token),
            Step::Move | Step::Zeroes => {
                let moved = (r.moved + bytes).min(r.len);
                // The rest of a short transfer begins at a block again.
                let moved = if moved == r.len { moved } else { moved & !(block - 1) };
                if moved == r.len {
                    self.moved(token);
                } else if moved > r.moved {
                    r.moved = moved;
                    if block == 1 && bytes >= piece(r.op) {
                        self.copied = Some((r.id, bytes));
                        self.rests = true;
                    }
                    self.issue(token);
                } else {
                    // A read, too: parts end within their file. One that ends before was cut off, or its device was pulled out.
                    self.finish(token, Err(Fault::Io));
                }
            }
        }
    }

    /// All of it is where it is to be; what is to be durable may not be yet.
    fn moved(&mut self, token: u32) {
        let r = self.get(token);
        if !r.durable {
            return self.finish(token, Ok(()));
        }
        if std::mem::take(&mut r.alone) {
            let fd = r.fd;
            self.led(fd);
            return self.durable(token);
        }
        r.step = Step::Sync;
        self.waits(token);
    }

    fn failed_step(&mut self, token: u32, error: i32) {
        let r = self.get(token);
        let (fd, alone) = (r.fd, r.alone);
        match (r.step, error) {
            (_, libc::EINTR | libc::EAGAIN) => self.issue(token),
            (Step::Sync, _) => {
                self.poison(fd);
                self.finish(token, Err(Fault::Io));
            }
            // Whether the write failed or its sync is not said. Only for want of room nothing was synced.
            (Step::Move, error) if alone && !matches!(error, libc::ENOSPC | libc::EDQUOT) => {
                self.poison(fd);
                self.finish(token, Err(Fault::Io));
            }
            (Step::Punch(way), libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::ENODEV) => {
                if way + 1 < ways_to_zero(r.op).len() {
                    r.step = Step::Punch(way + 1);
                } else {
                    r.step = Step::Zeroes;
                    if self.zeroes.is_empty() {
                        self.zeroes = Buffer::zeroed(ZEROES_MAX as usize);
                    }
                }
                self.issue(token);
            }
            // What has no room beyond its end was cut off, or pulled out.
            (_, libc::ENOSPC) if ends_before(fd, r.from + r.len) => self.finish(token, Err(Fault::Io)),
            (_, libc::ENOSPC | libc::EDQUOT) => self.finish(token, Err(Fault::NoSpace)),
            _ => self.finish(token, Err(Fault::Io)),
        }
    }

    /// A request is over, and nobody waits for it any longer.
    fn finish(&mut self, token: u32, outcome: Result<(), Fault>) {
        let r = self.get(token);
        let (fd, durable, alone) = (r.fd, r.durable, r.alone);
        self.end(token, outcome);
        if alone {
            self.led(fd);
        } else if durable {
            self.lets_go(token, fd);
        }
    }

    fn end(&mut self, token: u32, outcome: Result<(), Fault>) {
        let r = self.running[token as usize].take().expect("a token in use names a request under way");
        self.free.push(token);
        self.done.push_back(Done { id: r.id, outcome, busy: None, payload: r.payload });
    }
}

/// A request waits for others, and needs no slot for that.
fn awaits(files: &mut Files, token: u32) {
    if files.awaiting.len() >= files.running.len() {
        files.awaiting.clear(); // nobody asks
    }
    let r = files.get(token);
    if !std::mem::replace(&mut r.told, true) {
        let id = r.id;
        files.awaiting.push_back(id);
    }
}

/// Whether something under way holds up whoever asks the system about a file: zeroes, holes, and what is written by way of the page cache. The kernel
/// has the file to itself for them.
pub(crate) fn is_changing(files: &Files, fd: RawFd) -> bool {
    let cached = files.block == 1;
    files.running.iter().flatten().filter(|r| r.fd == fd).any(|r| match r.step {
        Step::Punch(_) | Step::Zeroes => true,
        Step::Move => cached && r.op == Op::Write,
        Step::Sync => false,
    })
}

/// Whether a file or a device is shorter than that.
fn ends_before(fd: RawFd, end: u64) -> bool {
    // SAFETY: the store keeps its files open until their requests are over.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let size = rustix::fs::fstat(file).and_then(|found| match FileType::from_raw_mode(found.st_mode) {
        FileType::BlockDevice => rustix::fs::seek(file, SeekFrom::End(0)),
        _ => Ok(found.st_size as u64),
    });
    size.is_ok_and(|size| size < end)
}

/// Whether the page cache has all of a range; `None` where the kernel (before Linux 6.5) does not say.
fn is_cached(fd: RawFd, offset: u64, len: u64) -> Option<bool> {
    /// cachestat(2): the number on all architectures but Alpha.
    const CACHESTAT: libc::c_long = 451;
    let page = crate::ALIGN as u64;
    let pages = (offset + len).div_ceil(page) - offset / page;
    let range = [offset, len];
    // How many pages are there; dirty, in writeback, evicted, recently evicted.
    let mut found = [0u64; 5];
    // SAFETY: the kernel reads two numbers and writes five, where these are; it changes nothing else.
    let outcome =
        unsafe { libc::syscall(CACHESTAT, fd, range.as_ptr(), found.as_mut_ptr(), 0 as libc::c_uint) };
    (outcome == 0).then_some(found[0] >= pages)
}

impl Drop for Files {
    fn drop(&mut self) {
        // The files may be closed by now, and their numbers others': nothing more is begun.
        while let Some((token, _)) = self.engine.reap() {
            self.running[token as usize] = None;
        }
        if !self.engine.idle() {
            // The kernel may still use the memory of what is under way: it stays, whoever else goes.
            for running in self.running.iter_mut().filter_map(Option::take) {
                std::mem::forget(running);
            }
            std::mem::forget(std::mem::take(&mut self.zeroes));
        }
    }
}

#[cfg(test)]
mod tests;
