//! Requests on files: short transfers, durability and zeroes on top of an [`Engine`].
//!
//! With O_DIRECT the device takes whole blocks only, and so do these files: virtual disks read, modify and write
//! what is not aligned, under their range locks, so that it is done in one place.
//!
//! A sync that fails poisons its file: see [`Syncs`].

#![allow(unsafe_code)] // hands buffers to the engine by address

use crate::Buffer;
use crate::engine::{Engine, Io, Kind};
use henge_core::{Done, Fault, Instant, Op, Request, RequestId};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;

/// Longest stretch of zeroes written at once where the file cannot make zeroes by itself.
const ZEROES_MAX: u64 = 1 << 20;
/// Longest write through the page cache at once. The kernel keeps what is written at once together in one folio, and ext4 looks
/// at every block of the folio at each later write into it: a random write of 4 KiB costs 54 us of CPU where the disk was filled
/// by writes of 1 MiB, and 17 us where it was by these. And a read of what is there copies while its caller waits, so that also
/// reads are cut, and whoever reaps has others' turns in between.
pub(crate) const CACHED_MAX: u64 = 128 << 10;

/// A read through the page cache of at least so many bytes is done aside where not all of them are there. Who asks for them makes room
/// in the cache, and reads ahead, in his own time: of a hole, for example, 128 KiB are zeroed and then copied, which was seen to take
/// milliseconds. To hand it to somebody else takes about as long as copying so many.
const ASIDE_MIN: u64 = 32 << 10;

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

/// The syncs of one file.
///
/// The kernel tells of data that it could not write back once per open file, to whichever sync ends next, and counts that data as
/// clean from then on. So two syncs at once could not tell whose data was lost, and a later one succeeds although it is. Therefore
/// one sync is under way at a time; who comes meanwhile waits for the next, which is one for all of them; and after one that
/// failed, all fail, until the file is opened anew.
///
/// An administrator's change syncs the same file on another thread. While that is under way, whatever would be called durable is held
/// back: the error may be told over there, and nobody knows until that thread is done.
#[derive(Default)]
struct Syncs {
    /// Changes under way elsewhere that sync the file.
    elsewhere: u32,
    /// What is durable unless one of those fails.
    held: Vec<u32>,
    /// Whose sync is under way.
    leader: Option<u32>,
    /// Who came before it began.
    riders: Vec<u32>,
    /// Who came after it began.
    waiting: Vec<u32>,
    failed: bool,
}

struct Running {
    id: RequestId,
    op: Op,
    fua: bool,
    payload: Buffer,
    fd: RawFd,
    /// The request's range in the file.
    from: u64,
    len: u64,
    step: Step,
    /// Bytes that the present step has moved.
    moved: u64,
}

/// The requests under way on some files.
pub(crate) struct Files {
    engine: Box<dyn Engine>,
    block: u64,
    running: Vec<Option<Running>>,
    free: Vec<u32>,
    /// Made when first needed.
    zeroes: Buffer,
    done: VecDeque<Done<Buffer>>,
    /// Of the files that were synced.
    syncs: BTreeMap<RawFd, Syncs>,
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
            failed: Vec::new(),
            rests: false,
            copied: None,
        }
    }
    /// When `reap` is to be called again without a signal.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.rests.then_some(Instant::ZERO)
    }
    /// A file whose sync failed; each is told of once.
    pub(crate) fn failed(&mut self) -> Option<RawFd> {
        self.failed.pop()
    }
    /// That descriptor was closed; the next file of that number is another.
    pub(crate) fn forget(&mut self, fd: RawFd) {
        self.syncs.remove(&fd);
        self.failed.retain(|failed| *failed != fd);
    }
    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }
    pub(crate) fn block(&self) -> u64 {
        self.block
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
        let running = Running {
            id: request.id,
            op: request.op,
            fua: request.fua,
            payload,
            fd,
            from,
            len: request.len,
            step,
            moved: 0,
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
        if running_fails(&self.syncs, request, fd) {
            return self.finish(token, Err(Fault::Io));
        }
        self.issue(token);
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
            self.advance(token, result);
        }
    }

    fn get(&mut self, token: u32) -> &mut Running {
        self.running[token as usize].as_mut().expect("a token in use names a request under way")
    }

    /// Hands the present step, or what is left of it, to the engine.
    fn issue(&mut self, token: u32) {
        let (zeroes, cached) = (self.zeroes.address(), self.block == 1);
        if self.get(token).step == Step::Sync && !self.may_sync(token) {
            return;
        }
        let r = self.get(token);
        let (offset, rest) = (r.from + r.moved, r.len - r.moved);
        // Through the page cache a write is made durable by a sync of its own, among the others: see `Syncs`.
        let durable = r.fua && !cached;
        let (kind, offset, len, memory) = match r.step {
            Step::Move => {
                let kind = if r.op == Op::Read { Kind::Read } else { Kind::Write { durable } };
                let rest = if cached { rest.min(CACHED_MAX) } else { rest };
                // SAFETY: the payload is `r.len` bytes long (asserted in `submit`), and `moved` is less.
                let memory = unsafe { r.payload.address().add(r.moved as usize) };
                (kind, offset, rest, memory)
            }
            Step::Punch(way) => {
                (Kind::Allocate { mode: ways_to_zero(r.op)[way] }, offset, rest, NonNull::dangling())
            }
            Step::Zeroes => (Kind::Write { durable }, offset, rest.min(ZEROES_MAX), zeroes),
            Step::Sync => (Kind::Sync, 0, 0, NonNull::dangling()),
        };
        let aside = cached && kind == Kind::Read && len >= ASIDE_MIN && !is_cached(r.fd, offset, len);
        let io = Io { token, kind, fd: r.fd, offset, len, memory, aside };
        // SAFETY: the payload belongs to `running[token]` until the engine has returned the token, and the zeroes,
        // ZEROES_MAX of them, to us, who never change them; `Drop` leaks both if that never happens.
        unsafe { self.engine.submit(io) };
    }

    fn advance(&mut self, token: u32, result: i32) {
        if result < 0 {
            return self.failed_step(token, -result);
        }
        let block = self.block;
        let r = self.get(token);
        match r.step {
            Step::Sync => self.synced(token),
            Step::Punch(_) => self.moved(token),
            Step::Move | Step::Zeroes => {
                let moved = (r.moved + result as u64).min(r.len);
                // The rest of a short transfer begins at a block again.
                let moved = if moved == r.len { moved } else { moved & !(block - 1) };
                if moved == r.len {
                    self.moved(token);
                } else if moved > r.moved {
                    r.moved = moved;
                    if block == 1 && result as u64 >= CACHED_MAX {
                        self.copied = Some((r.id, result as u64));
                        self.rests = true;
                    }
                    self.issue(token);
                } else if r.op == Op::Read {
                    // The file ends here; what it does not have reads as zeroes.
                    let rest = r.moved as usize;
                    r.payload[rest..].fill(0);
                    self.finish(token, Ok(()));
                } else {
                    self.finish(token, Err(Fault::Io));
                }
            }
        }
    }

    /// All of it is where it is to be; what is to be durable may not be yet.
    fn moved(&mut self, token: u32) {
        let block = self.block;
        let r = self.get(token);
        let is_durable = block > 1 && matches!(r.step, Step::Move | Step::Zeroes);
        if r.fua && r.op != Op::Read && !is_durable {
            r.step = Step::Sync;
            return self.issue(token);
        }
        let (fd, claims) = (r.fd, r.fua && r.op != Op::Read);
        match self.syncs.get_mut(&fd).filter(|_| claims) {
            Some(syncs) if syncs.failed => self.finish(token, Err(Fault::Io)),
            Some(syncs) if syncs.elsewhere > 0 => syncs.held.push(token),
            _ => self.finish(token, Ok(())),
        }
    }

    /// Whether a sync is to begin for it; else it waits for one, or has failed.
    fn may_sync(&mut self, token: u32) -> bool {
        let fd = self.get(token).fd;
        let syncs = self.syncs.entry(fd).or_default();
        if syncs.failed {
            self.finish(token, Err(Fault::Io));
            return false;
        }
        match syncs.leader {
            Some(leader) if leader != token => {
                syncs.waiting.push(token);
                false
            }
            _ => {
                syncs.leader = Some(token);
                true
            }
        }
    }

    /// A sync is over, and was good, unless something else has shown meanwhile that it cannot be trusted.
    fn synced(&mut self, token: u32) {
        let fd = self.get(token).fd;
        let syncs = self.syncs.entry(fd).or_default();
        if syncs.failed {
            return self.finish(token, Err(Fault::Io));
        }
        let riders = std::mem::replace(&mut syncs.riders, std::mem::take(&mut syncs.waiting));
        syncs.leader = syncs.riders.pop();
        let next = syncs.leader;
        let good = [token].into_iter().chain(riders);
        if syncs.elsewhere > 0 {
            syncs.held.extend(good);
        } else {
            good.for_each(|token| self.finish(token, Ok(())));
        }
        if let Some(next) = next {
            self.issue(next);
        }
    }

    /// Somebody else is about to change a file that is served, and to sync it: [`heed_elsewhere`](Self::heed_elsewhere) says how it went.
    pub(crate) fn elsewhere(&mut self, fd: RawFd) {
        self.syncs.entry(fd).or_default().elsewhere += 1;
    }

    /// How that went: what was held back is durable, or not.
    pub(crate) fn heed_elsewhere<T>(&mut self, fd: RawFd, outcome: io::Result<T>) -> io::Result<T> {
        let syncs = self.syncs.entry(fd).or_default();
        syncs.elsewhere = syncs.elsewhere.saturating_sub(1);
        let outcome = self.heed(fd, outcome);
        let syncs = self.syncs.entry(fd).or_default();
        if syncs.elsewhere == 0 && !syncs.failed {
            std::mem::take(&mut syncs.held).into_iter().for_each(|token| self.finish(token, Ok(())));
        }
        outcome
    }

    /// What somebody else did with a file that is served. A failed sync is everybody's: the system has said so once, and says it to
    /// no FLUSH that follows.
    pub(crate) fn heed<T>(&mut self, fd: RawFd, outcome: io::Result<T>) -> io::Result<T> {
        if outcome.as_ref().is_err_and(crate::open::is_failed_sync) {
            self.poison(fd);
        }
        outcome
    }

    /// From now on nothing on this file can be called durable.
    fn poison(&mut self, fd: RawFd) {
        let syncs = self.syncs.entry(fd).or_default();
        if std::mem::replace(&mut syncs.failed, true) {
            return;
        }
        self.failed.push(fd);
        let mut others = std::mem::take(&mut syncs.riders);
        others.append(&mut syncs.waiting);
        others.append(&mut syncs.held);
        others.into_iter().for_each(|other| self.finish(other, Err(Fault::Io)));
    }

    fn failed_step(&mut self, token: u32, error: i32) {
        let (block, r) = (self.block, self.get(token));
        let (fd, durable) = (r.fd, r.fua && block > 1 && r.op != Op::Read);
        match (r.step, error) {
            (_, libc::EINTR | libc::EAGAIN) => self.issue(token),
            (Step::Sync, _) => {
                self.poison(fd);
                self.finish(token, Err(Fault::Io));
            }
            // Whether the write failed or its sync is not said.
            (Step::Move | Step::Zeroes, libc::EIO) if durable => {
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
            (_, libc::ENOSPC | libc::EDQUOT) => self.finish(token, Err(Fault::NoSpace)),
            _ => self.finish(token, Err(Fault::Io)),
        }
    }

    fn finish(&mut self, token: u32, outcome: Result<(), Fault>) {
        let r = self.running[token as usize].take().expect("a token in use names a request under way");
        self.free.push(token);
        self.done.push_back(Done { id: r.id, outcome, busy: None, payload: r.payload });
    }
}

/// Whether the page cache has all of a range. Where the kernel (before Linux 6.5) does not say: yes.
fn is_cached(fd: RawFd, offset: u64, len: u64) -> bool {
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
    outcome != 0 || found[0] >= pages
}

/// Whether a request claims durability that its file can no longer give.
fn running_fails(syncs: &BTreeMap<RawFd, Syncs>, request: &Request, fd: RawFd) -> bool {
    let claims = request.op == Op::Flush || (request.fua && request.op != Op::Read);
    claims && syncs.get(&fd).is_some_and(|syncs| syncs.failed)
}

impl Drop for Files {
    fn drop(&mut self) {
        while let Some((token, result)) = self.engine.reap() {
            self.advance(token, result);
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
mod tests {
    use super::*;
    use henge_core::FlowId;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    /// An engine that moves at most 1000 bytes at a time, forgets how to make holes, and is interrupted.
    struct Halting {
        done: VecDeque<(u32, i32)>,
        calls: u32,
    }

    impl Engine for Halting {
        unsafe fn submit(&mut self, io: Io) {
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return self.done.push_back((io.token, -libc::EINTR));
            }
            let len = io.len.min(1000) as usize;
            // SAFETY: the tests keep the files open until everything is over.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(io.fd) };
            let moved = match io.kind {
                Kind::Read => {
                    // SAFETY: `Engine::submit` promises `io.len` valid bytes.
                    let memory = unsafe { std::slice::from_raw_parts_mut(io.memory.as_ptr(), len) };
                    rustix::io::pread(fd, memory, io.offset).map_or(-libc::EIO, |n| n as i32)
                }
                Kind::Write { .. } => {
                    // SAFETY: as above.
                    let memory = unsafe { std::slice::from_raw_parts(io.memory.as_ptr(), len) };
                    rustix::io::pwrite(fd, memory, io.offset).map_or(-libc::EIO, |n| n as i32)
                }
                Kind::Sync => 0,
                Kind::Allocate { .. } => -libc::EOPNOTSUPP,
            };
            self.done.push_back((io.token, moved));
        }
        fn reap(&mut self) -> Option<(u32, i32)> {
            self.done.pop_front()
        }
        fn idle(&self) -> bool {
            self.done.is_empty()
        }
        fn event_fd(&self) -> RawFd {
            -1
        }
        fn name(&self) -> &'static str {
            "halting"
        }
    }

    fn one(files: &mut Files, op: Op, from: u64, payload: Buffer, len: u64, fd: RawFd) -> Done<Buffer> {
        let request = Request::new(RequestId::default(), FlowId(0), op, from, len, Instant::ZERO);
        files.submit(&request, payload, fd, from);
        files.reap().expect("this engine is always done")
    }

    #[test]
    fn short_transfers_are_gone_on_with() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(20_000).unwrap();
        let mut files = Files::new(Box::new(Halting { done: VecDeque::new(), calls: 0 }), 1);
        let fd = file.as_raw_fd();
        let mut data = Buffer::zeroed(10_000);
        for (i, byte) in data.iter_mut().enumerate() {
            *byte = (i % 251) as u8 + 1;
        }
        let want = data.to_vec();
        assert_eq!(one(&mut files, Op::Write, 5_000, data, 10_000, fd).outcome, Ok(()));
        let done = one(&mut files, Op::Read, 5_000, Buffer::zeroed(10_000), 10_000, fd);
        assert_eq!(&done.payload[..], &want[..]);
        // A hole that cannot be made is written, and only where it should be.
        assert_eq!(one(&mut files, Op::WriteZeroes, 6_000, Buffer::empty(), 8_000, fd).outcome, Ok(()));
        let mut all = vec![0; 20_000];
        file.read_exact_at(&mut all, 0).unwrap();
        assert!(all[..5_000].iter().all(|b| *b == 0) && all[6_000..14_000].iter().all(|b| *b == 0));
        assert_eq!((&all[5_000..6_000], &all[14_000..15_000]), (&want[..1_000], &want[9_000..]));
        // Beyond the end of the file there are zeroes, whatever the buffer held.
        let mut stale = Buffer::zeroed(4_096);
        stale.fill(7);
        let done = one(&mut files, Op::Read, 18_000, stale, 4_096, fd);
        assert!(done.outcome.is_ok() && done.payload.iter().all(|b| *b == 0));
    }

    /// Notes how much it is asked to move at once, and does nothing.
    struct Noting(VecDeque<(u32, i32)>, std::rc::Rc<std::cell::RefCell<Vec<u64>>>);

    impl Engine for Noting {
        unsafe fn submit(&mut self, io: Io) {
            self.1.borrow_mut().push(io.len);
            self.0.push_back((io.token, io.len as i32));
        }
        fn reap(&mut self) -> Option<(u32, i32)> {
            self.0.pop_front()
        }
        fn idle(&self) -> bool {
            self.0.is_empty()
        }
        fn event_fd(&self) -> RawFd {
            -1
        }
        fn name(&self) -> &'static str {
            "noting"
        }
    }

    #[test]
    fn long_transfers_through_the_page_cache_are_cut_and_each_piece_is_a_turn() {
        let (cut, whole) = (vec![CACHED_MAX, CACHED_MAX, 5], 2 * CACHED_MAX + 5);
        let direct = 2 * CACHED_MAX + 4096;
        // What is to be durable is synced at the end, among the others.
        let synced = [&cut[..], &[0]].concat();
        for (op, block, fua, len, want, turns) in [
            (Op::Write, 1, false, whole, cut.clone(), 3),
            (Op::Write, 1, true, whole, synced, 3),
            (Op::Read, 1, false, whole, cut, 3),
            (Op::Read, 1, false, CACHED_MAX, vec![CACHED_MAX], 1),
            (Op::Write, 4096, false, direct, vec![direct], 1),
            (Op::Read, 4096, false, direct, vec![direct], 1),
        ] {
            let asked = std::rc::Rc::default();
            let mut files = Files::new(Box::new(Noting(VecDeque::new(), std::rc::Rc::clone(&asked))), block);
            let mut request = Request::new(RequestId::default(), FlowId(0), op, 0, len, Instant::ZERO);
            request.fua = fua;
            files.submit(&request, Buffer::zeroed(len as usize), -1, 0);
            for _ in 1..turns {
                assert!(files.reap().is_none() && files.wake_at().is_some(), "{op:?} of {len} bytes");
                assert_eq!(files.copied().map(|(_, bytes)| bytes), Some(CACHED_MAX));
            }
            assert_eq!(files.reap().map(|done| done.outcome), Some(Ok(())));
            assert!(files.reap().is_none() && files.wake_at().is_none() && files.copied().is_none());
            assert_eq!(*asked.borrow(), want, "{op:?} of {len} bytes, blocks of {block}, FUA {fua}");
        }
    }

    /// An engine whose steps are over when the test says so, and how.
    #[derive(Clone, Default)]
    struct Told(std::rc::Rc<std::cell::RefCell<Steps>>);

    /// What is under way, and what is over.
    type Steps = (Vec<Io>, VecDeque<(u32, i32)>);

    impl Told {
        /// Ends the first that is under way; what it was.
        fn end(&self, result: i32) -> Kind {
            let mut told = self.0.borrow_mut();
            let io = told.0.remove(0);
            told.1.push_back((io.token, if result == 0 { io.len as i32 } else { result }));
            io.kind
        }
        fn under_way(&self) -> Vec<Kind> {
            self.0.borrow().0.iter().map(|io| io.kind).collect()
        }
    }

    impl Engine for Told {
        unsafe fn submit(&mut self, io: Io) {
            self.0.borrow_mut().0.push(io);
        }
        fn reap(&mut self) -> Option<(u32, i32)> {
            self.0.borrow_mut().1.pop_front()
        }
        fn idle(&self) -> bool {
            self.0.borrow().0.is_empty()
        }
        fn event_fd(&self) -> RawFd {
            -1
        }
        fn name(&self) -> &'static str {
            "told"
        }
    }

    fn told(block: u64) -> (Told, Files) {
        let told = Told::default();
        (told.clone(), Files::new(Box::new(told), block))
    }

    fn ask(files: &mut Files, slot: u32, op: Op, fua: bool, fd: RawFd) {
        let id = RequestId { slot, generation: 0 };
        let len = if op == Op::Flush { 0 } else { 4096 };
        let mut request = Request::new(id, FlowId(0), op, 0, len, Instant::ZERO);
        request.fua = fua;
        let payload = if op == Op::Write { Buffer::zeroed(4096) } else { Buffer::empty() };
        files.submit(&request, payload, fd, 0);
    }

    fn over(files: &mut Files) -> Vec<(u32, bool)> {
        std::iter::from_fn(|| files.reap()).map(|done| (done.id.slot, done.outcome.is_ok())).collect()
    }

    #[test]
    fn after_a_failed_sync_nothing_is_called_durable() {
        let (engine, mut files) = told(1);
        ask(&mut files, 1, Op::Flush, false, 7);
        ask(&mut files, 2, Op::Flush, false, 7);
        ask(&mut files, 3, Op::Write, true, 7);
        ask(&mut files, 4, Op::Flush, false, 8);
        engine.end(-libc::EIO);
        // The second was to be synced after it, and cannot be told from those whose data was lost.
        assert_eq!(over(&mut files), [(2, false), (1, false)]);
        assert_eq!(engine.end(0), Kind::Write { durable: false });
        assert_eq!(over(&mut files), [(3, false)]);
        assert_eq!(engine.end(0), Kind::Sync);
        assert_eq!(over(&mut files), [(4, true)], "another file");
        // The kernel would say that all is well now: it has forgotten.
        for (slot, op, fua) in [(5, Op::Flush, false), (6, Op::Write, true), (7, Op::WriteZeroes, true)] {
            ask(&mut files, slot, op, fua, 7);
            assert_eq!(over(&mut files), [(slot, false)]);
        }
        ask(&mut files, 8, Op::Write, false, 7);
        engine.end(0);
        assert_eq!(over(&mut files), [(8, true)], "what claims nothing is done");
        assert_eq!((files.failed(), files.failed()), (Some(7), None), "said once");
        files.forget(7);
        ask(&mut files, 9, Op::Flush, false, 7);
        engine.end(0);
        assert_eq!(over(&mut files), [(9, true)], "opened anew");
    }

    #[test]
    fn one_sync_at_a_time_and_none_covers_what_came_after_it_began() {
        let (engine, mut files) = told(1);
        (1..=3).for_each(|slot| ask(&mut files, slot, Op::Flush, false, 7));
        assert_eq!(engine.under_way(), [Kind::Sync]);
        engine.end(0);
        assert_eq!(over(&mut files), [(1, true)]);
        assert_eq!(engine.under_way(), [Kind::Sync], "one for both");
        ask(&mut files, 4, Op::Flush, false, 7);
        engine.end(-libc::EINTR);
        assert_eq!(over(&mut files), [], "it is begun again");
        engine.end(0);
        let mut both = over(&mut files);
        both.sort_unstable();
        assert_eq!(both, [(2, true), (3, true)]);
        engine.end(-libc::EIO);
        assert_eq!(over(&mut files), [(4, false)]);
    }

    /// A change elsewhere syncs the same file, and its sync is told the error: whatever a client's sync says meanwhile.
    #[test]
    fn nothing_is_called_durable_before_a_sync_elsewhere_is_known() {
        let eio = || crate::open::synced(Err(io::Error::from_raw_os_error(libc::EIO)));
        for fails in [true, false] {
            for block in [1, 512] {
                let (engine, mut files) = told(block);
                ask(&mut files, 1, Op::Flush, false, 7);
                files.elsewhere(7);
                engine.end(0);
                ask(&mut files, 2, Op::Flush, false, 7);
                ask(&mut files, 3, Op::Write, true, 7);
                ask(&mut files, 4, Op::Write, false, 7);
                ask(&mut files, 5, Op::Flush, false, 8);
                let mut others = Vec::new();
                while !engine.under_way().is_empty() {
                    engine.end(0);
                    others.append(&mut over(&mut files));
                }
                others.sort_unstable();
                assert_eq!(others, [(4, true), (5, true)], "they claim nothing of that file");
                let heard = files.heed_elsewhere(7, if fails { eio() } else { Ok(()) });
                assert_eq!(heard.is_err(), fails);
                let mut held = over(&mut files);
                held.sort_unstable();
                assert_eq!(held, [(1, !fails), (2, !fails), (3, !fails)]);
                assert_eq!(files.failed().is_some(), fails);
            }
        }
    }

    #[test]
    fn past_the_page_cache_a_write_that_was_to_be_durable_may_have_failed_in_its_sync() {
        let (engine, mut files) = told(512);
        ask(&mut files, 1, Op::Write, false, 7);
        engine.end(-libc::EIO);
        ask(&mut files, 2, Op::Flush, false, 7);
        engine.end(0);
        assert_eq!(over(&mut files), [(1, false), (2, true)], "it said itself what was lost");
        ask(&mut files, 3, Op::Write, true, 7);
        assert_eq!(engine.end(-libc::EIO), Kind::Write { durable: true });
        ask(&mut files, 4, Op::Flush, false, 7);
        assert_eq!(engine.under_way(), [Kind::Sync]);
        engine.end(0);
        assert_eq!(over(&mut files), [(3, false), (4, false)]);
    }

    #[test]
    fn zeroes_that_keep_their_room_are_never_a_hole() {
        let (engine, mut files) = told(1);
        ask(&mut files, 1, Op::WriteZeroes, false, 7);
        let kept = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(engine.end(-libc::EOPNOTSUPP), Kind::Allocate { mode: kept });
        assert_eq!(over(&mut files), []);
        assert_eq!(engine.end(-libc::ENOSPC), Kind::Write { durable: false });
        assert_eq!(files.reap().map(|done| done.outcome), Some(Err(Fault::NoSpace)));
    }

    #[test]
    fn long_reads_of_what_is_not_in_the_page_cache_are_done_aside() {
        let file = tempfile::tempfile().unwrap();
        let len = 4 * ASIDE_MIN;
        file.set_len(len).unwrap();
        file.write_all_at(&vec![7; ASIDE_MIN as usize], 0).unwrap();
        let fd = file.as_raw_fd();
        let known = is_cached(fd, 0, ASIDE_MIN) && !is_cached(fd, 2 * ASIDE_MIN, ASIDE_MIN);
        if !known {
            println!("skipped: long_reads_of_what_is_not_in_the_page_cache_are_done_aside (no cachestat)");
            return;
        }
        for (offset, len, block, want) in [
            (0, ASIDE_MIN, 1, false),
            (2 * ASIDE_MIN, ASIDE_MIN, 1, true),
            // The half of it is there.
            (ASIDE_MIN / 2, ASIDE_MIN, 1, true),
            // As quick as it would be to hand it over; and past the page cache nothing is copied.
            (2 * ASIDE_MIN, ASIDE_MIN - 4096, 1, false),
            (2 * ASIDE_MIN, ASIDE_MIN, 4096, false),
        ] {
            let (engine, mut files) = told(block);
            let request = Request::new(RequestId::default(), FlowId(0), Op::Read, offset, len, Instant::ZERO);
            files.submit(&request, Buffer::zeroed(len as usize), fd, offset);
            assert_eq!(engine.0.borrow().0[0].aside, want, "{len} bytes at {offset}, blocks of {block}");
            engine.end(0);
            assert_eq!(over(&mut files), [(0, true)]);
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let mut files = Files::new(Box::new(Halting { done: VecDeque::new(), calls: 0 }), 512);
        let done = one(&mut files, Op::Read, 100, Buffer::zeroed(512), 512, -1);
        assert_eq!(done.outcome, Err(Fault::Unsupported));
    }
}
