//! Short transfers, holes, and when a request may be called durable.

mod holes;
mod power;

use super::*;
use crate::engine::Kind;
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
}

/// Whoever read zeroes there would take a disk that was pulled out for an empty one.
#[test]
fn what_the_medium_does_not_have_any_more_is_an_error_and_no_zeroes() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(20_000).unwrap();
    let mut files = Files::new(Box::new(Halting { done: VecDeque::new(), calls: 0 }), 1);
    for (from, whole) in [(15_904, true), (18_000, false), (20_000, false), (30_000, false)] {
        let done = one(&mut files, Op::Read, from, Buffer::zeroed(4_096), 4_096, file.as_raw_fd());
        assert_eq!(done.outcome, if whole { Ok(()) } else { Err(Fault::Io) }, "from {from}");
    }
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
    let (cut, whole) = (vec![WRITTEN_MAX, WRITTEN_MAX, 5], 2 * WRITTEN_MAX + 5);
    let direct = 2 * WRITTEN_MAX + 4096;
    // What is to be durable is synced at the end, among the others.
    let synced = [&cut[..], &[0]].concat();
    for (op, block, fua, len, want, turns) in [
        (Op::Write, 1, false, whole, cut.clone(), 3),
        (Op::Write, 1, true, whole, synced, 3),
        (Op::Read, 1, false, 2 * COPIED_MAX + 5, vec![COPIED_MAX, COPIED_MAX, 5], 3),
        (Op::Read, 1, false, COPIED_MAX, vec![COPIED_MAX], 1),
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
            assert_eq!(files.copied().map(|(_, bytes)| bytes), Some(want[0]));
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
    fn end_last(&self, result: i32) {
        self.0.borrow_mut().0.rotate_right(1);
        self.end(result);
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
    let moves = matches!(op, Op::Read | Op::Write);
    let payload = if moves { Buffer::zeroed(4096) } else { Buffer::empty() };
    files.submit(&request, payload, fd, 0);
}

fn over(files: &mut Files) -> Vec<(u32, bool)> {
    std::iter::from_fn(|| files.reap()).map(|done| (done.id.slot, done.outcome.is_ok())).collect()
}

fn waiting(files: &mut Files) -> Vec<u32> {
    std::iter::from_fn(|| files.awaits_others()).map(|id| id.slot).collect()
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
    let eio = || crate::open::synced(Err(std::io::Error::from_raw_os_error(libc::EIO)));
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
    // A flush that a path lost, that took too long, or that found a bad medium is another error of the block layer.
    for error in [libc::EIO, libc::ETIMEDOUT, libc::ENOLINK, libc::ENODATA] {
        let (engine, mut files) = told(512);
        ask(&mut files, 1, Op::Write, false, 7);
        engine.end(-error);
        ask(&mut files, 2, Op::Flush, false, 7);
        engine.end(0);
        assert_eq!(over(&mut files), [(1, false), (2, true)], "it said itself what was lost");
        ask(&mut files, 3, Op::Write, true, 7);
        ask(&mut files, 5, Op::Write, true, 7);
        assert_eq!(engine.end(-error), Kind::Write { durable: true });
        ask(&mut files, 4, Op::Flush, false, 7);
        assert_eq!(over(&mut files), [(3, false)]);
        assert_eq!(engine.end(0), Kind::Write { durable: true });
        assert_eq!(engine.end(0), Kind::Sync);
        assert_eq!(over(&mut files), [(5, false), (4, false)]);
    }
}

/// Past the page cache the first few sync by themselves. Those that come meanwhile have one sync, which begins when their data is there.
#[test]
fn durable_writes_share_a_sync_that_began_when_their_data_was_there() {
    let (plain, alone) = (Kind::Write { durable: false }, Kind::Write { durable: true });
    for block in [1, 512] {
        let (engine, mut files) = told(block);
        let few = if block == 1 { 0 } else { line::SYNCS };
        (0..few).for_each(|slot| ask(&mut files, 100 + slot, Op::Write, true, 7));
        (1..=3).for_each(|slot| ask(&mut files, slot, Op::Write, true, 7));
        assert_eq!(engine.under_way(), [vec![alone; few as usize], vec![plain; 3]].concat());
        engine.end_last(0);
        assert_eq!((over(&mut files), waiting(&mut files)), (vec![], vec![3]));
        if few > 0 {
            assert!(!engine.under_way().contains(&Kind::Sync), "there are enough under way");
            assert_eq!(engine.end(0), alone);
            assert_eq!(over(&mut files), [(100, true)]);
        }
        assert_eq!(engine.under_way().last(), Some(&Kind::Sync));
        (1..few).for_each(|_| assert_eq!(engine.end(0), alone));
        assert_eq!(over(&mut files).len() as u32, few.saturating_sub(1));
        // The others' data comes while that is under way, and so do zeroes.
        ask(&mut files, 4, Op::WriteZeroes, true, 7);
        (0..2).for_each(|_| assert_eq!(engine.end(0), plain));
        engine.end_last(0);
        assert_eq!((over(&mut files), waiting(&mut files)), (vec![], vec![1, 2, 4]));
        assert_eq!(engine.under_way(), [Kind::Sync], "one at a time");
        engine.end(0);
        assert_eq!(over(&mut files), [(3, true)], "nobody whose data came after it had begun");
        assert_eq!(engine.under_way(), [Kind::Sync], "one for all of them");
        engine.end(0);
        let mut all = over(&mut files);
        all.sort_unstable();
        assert_eq!(all, [(1, true), (2, true), (4, true)]);
        assert_eq!((engine.under_way(), files.line.under_way), (vec![], 0));
    }
}

/// Through the page cache quick syncs go one after the other, and slow ones side by side. Past it they always do. One that hangs holds up nobody.
#[test]
fn quick_syncs_through_the_page_cache_are_one_at_a_time() {
    let ms = |ms| henge_core::Duration::from_millis(ms);
    for (block, takes, most) in [(1, 10, line::SYNCS), (1, 0, 1), (4096, 0, line::SYNCS)] {
        let (engine, mut files) = told(block);
        let mut now = Instant::ZERO;
        let flush = |files: &mut Files| (0..8).for_each(|fd| ask(files, fd, Op::Flush, false, fd as RawFd));
        let mut end_all = |files: &mut Files, takes, most: u32| {
            while !engine.under_way().is_empty() {
                assert!(engine.under_way().len() as u32 <= most);
                now += ms(takes);
                files.line.now = now;
                engine.end(0);
                over(files);
            }
            assert_eq!(files.line.under_way, 0);
        };
        flush(&mut files);
        assert_eq!(engine.under_way().len() as u32, line::SYNCS, "nothing is known at first");
        end_all(&mut files, takes, line::SYNCS);
        flush(&mut files);
        assert_eq!(engine.under_way().len() as u32, most);
        end_all(&mut files, takes, most);
        // The next one hangs: others begin beside it, one after the other.
        flush(&mut files);
        for beside in most..=line::SYNCS {
            assert_eq!(engine.under_way().len() as u32, beside);
            let due = files.wake_at();
            assert_eq!(due.is_some(), beside < line::SYNCS);
            files.at(due.unwrap_or(files.line.now + ms(1000)));
        }
        assert_eq!(engine.under_way().len() as u32, line::SYNCS);
    }
}

#[test]
fn files_have_their_syncs_in_turns_and_no_more_than_a_few_at_once() {
    let (engine, mut files) = told(1);
    let fds = 2 * line::SYNCS + 1;
    for fd in 0..fds {
        ask(&mut files, fd, Op::Flush, false, fd as RawFd);
        ask(&mut files, fds + fd, Op::Flush, false, fd as RawFd);
    }
    let mut order = Vec::new();
    while !engine.under_way().is_empty() {
        assert!(engine.under_way().len() as u32 <= line::SYNCS);
        engine.end(0);
        order.extend(over(&mut files));
    }
    assert!(order.iter().all(|(_, good)| *good));
    // A file that has had its sync is behind those that had none. (The first few had begun when their second came.)
    let files_of: Vec<u32> = order.iter().map(|(slot, _)| slot % fds).collect();
    let twice = |fd: u32| if fd < line::SYNCS { vec![fd] } else { vec![fd, fd] };
    let want = (0..fds).flat_map(twice).chain(0..line::SYNCS).collect::<Vec<_>>();
    assert_eq!(files_of, want);
    files.forget(0);
    ask(&mut files, 0, Op::Flush, false, 0);
    files.forget(0);
    assert_eq!(files.line.under_way, 0, "no place is left behind");
    engine.end(0);
    assert_eq!((over(&mut files), files.line.under_way), (vec![(0, true)], 0));
}

#[test]
fn a_durable_write_without_room_keeps_nobody_waiting() {
    for block in [1, 512] {
        let (engine, mut files) = told(block);
        (0..=line::SYNCS).for_each(|slot| ask(&mut files, slot, Op::Write, true, 7));
        ask(&mut files, 50, Op::Flush, false, 7);
        let mut ended = Vec::new();
        while let Some(next) = engine.under_way().first() {
            engine.end(if *next == Kind::Sync { 0 } else { -libc::ENOSPC });
            ended.extend(over(&mut files));
        }
        assert_eq!(ended.len() as u32, line::SYNCS + 2);
        assert!(ended.iter().all(|(slot, good)| *good == (*slot == 50)), "{ended:?}");
        assert_eq!(files.line.under_way, 0);
    }
}

#[test]
fn zeroes_that_keep_their_room_are_never_a_hole() {
    let (engine, mut files) = told(1);
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    ask(&mut files, 1, Op::WriteZeroes, false, file.as_raw_fd());
    let kept = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    assert_eq!(engine.end(-libc::EOPNOTSUPP), Kind::Allocate { mode: kept });
    assert_eq!(over(&mut files), []);
    assert_eq!(engine.end(-libc::ENOSPC), Kind::Write { durable: false });
    assert_eq!(files.reap().map(|done| done.outcome), Some(Err(Fault::NoSpace)));
}

/// Linux says of a write beyond a device's end, which is nowhere once the device was pulled out, that there is no room.
#[test]
fn no_room_beyond_the_end_is_an_error() {
    let file = tempfile::tempfile().unwrap();
    for (len, fault) in [(4096, Fault::NoSpace), (2048, Fault::Io), (0, Fault::Io)] {
        file.set_len(len).unwrap();
        for op in [Op::Write, Op::Trim] {
            let (engine, mut files) = told(1);
            ask(&mut files, 1, op, false, file.as_raw_fd());
            engine.end(-libc::ENOSPC);
            assert_eq!(files.reap().map(|done| done.outcome), Some(Err(fault)), "{op:?} of {len} bytes");
        }
    }
}

/// Holes of twenty files, of which none ends: eight are under way, the others need no slots, and a read, a write and a sync have workers left.
#[test]
fn holes_that_do_not_end_leave_workers_to_others() {
    let (engine, mut files) = told(4096);
    (0..20).for_each(|slot| ask(&mut files, slot, Op::Trim, false, 7 + slot as RawFd));
    assert_eq!(engine.under_way().len(), WORKERS as usize);
    assert_eq!((over(&mut files), waiting(&mut files)), (vec![], (WORKERS..20).collect()));
    for (slot, op) in [(20, Op::Read), (21, Op::Write), (22, Op::Flush)] {
        ask(&mut files, slot, op, false, 6);
        engine.end_last(0);
        assert_eq!(over(&mut files), [(slot, true)]);
    }
    // One that ends, and one that has to be done in another way, leave their workers to the next; all end once.
    engine.end(0);
    engine.end(-libc::EINTR);
    assert_eq!(over(&mut files), [(0, true)]);
    assert_eq!(engine.under_way().len(), WORKERS as usize);
    let mut ended = vec![0];
    while !engine.under_way().is_empty() {
        engine.end(0);
        ended.extend(over(&mut files).iter().map(|(slot, _)| *slot));
        assert!(engine.under_way().len() <= WORKERS as usize);
    }
    ended.sort_unstable();
    assert_eq!(ended, (0..20).collect::<Vec<_>>());
    assert_eq!((files.crowd.workers, files.crowd.waiting.len()), (0, 0));
}

/// Reads wait for a worker, and need none when one is free: what they read has come into the page cache meanwhile.
#[test]
fn reads_that_need_no_worker_any_more_wait_for_none() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(64 * ASIDE_MIN).unwrap();
    let fd = file.as_raw_fd();
    let (engine, mut files) = told(1);
    for slot in 0..40 {
        let id = RequestId { slot, generation: 0 };
        let offset = u64::from(slot) * ASIDE_MIN;
        let request = Request::new(id, FlowId(0), Op::Read, offset, ASIDE_MIN, Instant::ZERO);
        files.submit(&request, Buffer::zeroed(ASIDE_MIN as usize), fd, offset);
    }
    if is_cached(fd, 0, ASIDE_MIN) != Some(false) {
        println!("skipped: reads_that_need_no_worker_any_more_wait_for_none (no cachestat)");
        return;
    }
    assert_eq!(engine.under_way().len(), WORKERS as usize);
    file.read_exact_at(&mut vec![0; 64 * ASIDE_MIN as usize], 0).unwrap();
    let mut ended = 0;
    while !engine.under_way().is_empty() {
        engine.end(0);
        ended += over(&mut files).len();
    }
    assert_eq!((ended, files.crowd.workers), (40, 0));
}

#[test]
fn long_reads_of_what_is_not_in_the_page_cache_are_done_aside() {
    let file = tempfile::tempfile().unwrap();
    let len = 4 * ASIDE_MIN;
    file.set_len(len).unwrap();
    file.write_all_at(&vec![7; ASIDE_MIN as usize], 0).unwrap();
    let fd = file.as_raw_fd();
    let there = [0, 2 * ASIDE_MIN].map(|at| is_cached(fd, at, ASIDE_MIN));
    if there != [Some(true), Some(false)] {
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

/// Three reads of two pieces each, which the page cache has, and a small one that comes after them.
#[test]
fn of_long_reads_of_what_is_in_the_page_cache_one_is_under_way() {
    let file = tempfile::tempfile().unwrap();
    let len = 2 * COPIED_MAX;
    file.write_all_at(&vec![7; len as usize], 0).unwrap();
    let fd = file.as_raw_fd();
    if is_cached(fd, 0, len) != Some(true) {
        println!("skipped: of_long_reads_of_what_is_in_the_page_cache_one_is_under_way (no cachestat)");
        return;
    }
    let (engine, mut files) = told(1);
    for (slot, len) in [(0, len), (1, len), (2, len), (3, 4096)] {
        let id = RequestId { slot, generation: 0 };
        let request = Request::new(id, FlowId(0), Op::Read, 0, len, Instant::ZERO);
        files.submit(&request, Buffer::zeroed(len as usize), fd, 0);
    }
    let under_way = || engine.0.borrow().0.iter().map(|io| io.len).collect::<Vec<_>>();
    assert_eq!(under_way(), [COPIED_MAX, 4096], "the small one waits for a piece, not for one of each");
    // One is read to its end before the next begins, also where it fails there.
    let mut order = Vec::new();
    for result in [0, 0, 0, -libc::EIO, 0, 0] {
        engine.end(result);
        order.extend(over(&mut files));
    }
    assert_eq!(order, [(3, true), (0, true), (1, false), (2, true)]);
    assert_eq!((files.long.copying, files.long.waiting.len(), under_way().len()), (None, 0, 0));
}

#[test]
fn what_is_no_block_is_refused() {
    let mut files = Files::new(Box::new(Halting { done: VecDeque::new(), calls: 0 }), 512);
    let done = one(&mut files, Op::Read, 100, Buffer::zeroed(512), 512, -1);
    assert_eq!(done.outcome, Err(Fault::Unsupported));
}

/// The number of a closed file may be another file's by then.
#[test]
fn nothing_is_begun_at_the_end() {
    let (engine, mut files) = told(1);
    let len = 2 * WRITTEN_MAX;
    let request = Request::new(RequestId::default(), FlowId(0), Op::Write, 0, len, Instant::ZERO);
    files.submit(&request, Buffer::zeroed(len as usize), 7, 0);
    ask(&mut files, 1, Op::Flush, false, 7);
    ask(&mut files, 2, Op::Flush, false, 7);
    engine.end(0);
    engine.end(0);
    drop(files);
    assert_eq!(engine.under_way(), [], "neither the other half nor the next sync");
}
