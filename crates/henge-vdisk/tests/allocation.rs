//! No allocation per command once warm, and nothing leaks.
#![allow(unsafe_code, reason = "an allocator is unsafe to write; this one counts and passes on")]

use henge_core::{Fault, FlowId, Instant};
use henge_vdisk::{Command, Extent, GateId, Kind, Layout, Part, Settings, Target, VirtualDisk};
use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;

struct Counting;
thread_local! { static ALLOCATIONS: Cell<u64> = const { Cell::new(0) }; }

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(memory) }
    }
    unsafe fn dealloc(&self, at: *mut u8, memory: Memory) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, memory) }
    }
}
#[global_allocator]
static GLOBAL: Counting = Counting;

/// A million operations of all kinds, with faults and aborts: the second half allocates (next to) nothing, and at
/// the end nothing is pending.
#[test]
fn a_million_operations_allocate_nothing_and_leak_nothing() {
    let extent = |g| Extent { target: Target::Gate(GateId(g)), base: 0, len: 1 << 20 };
    let layout = Layout::new(1 << 20, 4096, (0..3).map(extent).collect()).unwrap();
    let settings = Settings { align: 512, commands_max: 64, ..Settings::default() };
    let mut disk = VirtualDisk::new(FlowId(0), layout, settings).unwrap();
    let mut outstanding: Vec<Part> = Vec::with_capacity(4096);
    let mut names = Vec::with_capacity(64);
    let mut random = 0x1234_5678_9abc_def1_u64;
    let (mut submitted, mut finished, mut allocations) = (0u64, 0u64, 0);
    const OPERATIONS: u64 = 1_000_000;
    while finished < OPERATIONS {
        if finished >= OPERATIONS / 2 && allocations == 0 {
            allocations = ALLOCATIONS.with(Cell::get);
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let kind = match random % 16 {
            0..6 => Kind::Read,
            6..12 => Kind::Write,
            12 => Kind::Flush,
            13 => Kind::Trim,
            14 => Kind::WriteZeroes { no_hole: true },
            _ => Kind::CompareAndWrite,
        };
        let offset = (random >> 8) % (1 << 20);
        // Most are aligned, some reach beyond the end.
        let (offset, len) = match random >> 40 & 3 {
            0 => (offset, (random >> 48) % 9000),
            _ => (offset & !511, ((random >> 48) % 9000) & !511),
        };
        if submitted < OPERATIONS
            && let Ok(id) = disk.submit(Command::new(kind, offset, len, Instant::ZERO, 0))
        {
            submitted += 1;
            if names.len() < names.capacity() {
                names.push(id);
            } else {
                names[(random >> 20) as usize % 64] = id;
            }
        }
        if random.is_multiple_of(50) && !names.is_empty() {
            disk.abort(names[(random >> 30) as usize % names.len()]);
        }
        while outstanding.len() < 100 {
            let Some(part) = disk.next_part(&mut ()) else { break };
            outstanding.push(part);
        }
        for _ in 0..(random >> 33) % 6 {
            if outstanding.is_empty() {
                break;
            }
            let part = outstanding.swap_remove((random >> 12) as usize % outstanding.len());
            let outcome = if random.is_multiple_of(31) { Err(Fault::Io.into()) } else { Ok(()) };
            disk.part_done(part.id, outcome);
        }
        while disk.next_finished().is_some() {
            finished += 1;
        }
    }
    // A table may still double once or twice at a new high-water mark, however late.
    let late = ALLOCATIONS.with(Cell::get) - allocations;
    assert!(late < 10, "{late} allocations in the second half million");
    assert_eq!((submitted, finished, outstanding.len(), disk.pending()), (OPERATIONS, OPERATIONS, 0, 0));
}
