//! From a command to its parts: which ranges are read first, which are then read or written, and in what pieces.
//!
//! A command has up to two phases. The first, *gathering*, reads blocks that the command covers only in part
//! (read-modify-write), or all of them (COMPARE AND WRITE); the second does the work. Each phase is a list of
//! runs, each run a range of the disk, which the layout cuts into parts.
//!
//! Example: align 4096, WRITE of 6000 bytes at 1000 covers blocks 0 and 1 in part. Phase one reads both; phase two
//! writes 8192 bytes at 0 from a buffer in which the client's bytes stand at 1000.

use crate::{Command, Data, Extent, Frame, GateId, Kind, Layout, Patch, Settings};
use henge_core::{Op, Request};

/// How a run's parts are found and where their data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Piece by piece in the disk's order; data in the command's buffer.
    Frame,
    /// The same; data in a buffer of its own, then patched.
    Scratch,
    /// The same; data dropped.
    Discard,
    /// Device by device, for what moves no data.
    Legs,
    /// Once per leg that holds bytes, at its first one.
    Everywhere,
}

/// A range of the disk and what is done to it.
#[derive(Clone, Copy, Debug)]
struct Run {
    mode: Mode,
    op: Op,
    start: u64,
    end: u64,
    /// Where `start` is in the command's buffer.
    at: u64,
}

const NOTHING: Run = Run { mode: Mode::Discard, op: Op::Read, start: 0, end: 0, at: 0 };

/// A command's runs.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    runs: [Run; 5],
    len: u8,
    /// How many of them gather.
    gather: u8,
    /// The whole blocks that the command touches.
    pub start: u64,
    pub end: u64,
    /// The command's own bytes.
    from: u64,
    to: u64,
    verify: Option<u64>,
}

/// Where a plan's execution stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor {
    run: u8,
    /// Bytes of the run that are done, or the leg or gate that is next.
    done: u64,
    /// Bytes of the leg that are done.
    within: u64,
}

/// A part before it has a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub gate: GateId,
    pub op: Op,
    pub offset: u64,
    pub len: u64,
    pub data: Data,
}

fn down(x: u64, align: u64) -> u64 {
    x & !(align - 1)
}
fn up(x: u64, align: u64) -> u64 {
    // The capacity is a multiple of `align`, so this stays within 64 bits.
    down(x + (align - 1), align)
}

/// The buffer that a command needs.
pub(crate) fn frame(kind: Kind, offset: u64, len: u64, align: u64) -> Frame {
    let (start, end) = (down(offset, align), up(offset + len, align));
    let lead = offset - start;
    match kind {
        _ if len == 0 => Frame::default(),
        Kind::Read | Kind::Write => Frame { len: end - start, lead, verify: None, zeroed: false },
        Kind::CompareAndWrite => {
            Frame { len: end - start + len, lead, verify: Some(end - start), zeroed: false }
        }
        Kind::WriteZeroes { .. } => {
            let edges = edges(offset, offset + len, align);
            Frame { len: edges.iter().flatten().count() as u64 * align, lead: 0, verify: None, zeroed: true }
        }
        Kind::Flush | Kind::Trim | Kind::Cache => Frame::default(),
    }
}

/// The blocks that [from, to) covers only in part: at most the first and the last.
fn edges(from: u64, to: u64, align: u64) -> [Option<u64>; 2] {
    let (first, last) = (down(from, align), down(to, align));
    let head = (first != from).then_some(first);
    // A last block that is cut off, unless it is the first one again.
    let tail = (last != to && head != Some(last)).then_some(last);
    [head, tail]
}

impl Plan {
    /// Of a command that does nothing.
    pub(crate) fn empty() -> Plan {
        Plan { runs: [NOTHING; 5], len: 0, gather: 0, start: 0, end: 0, from: 0, to: 0, verify: None }
    }

    pub(crate) fn new(command: &Command, settings: &Settings) -> Plan {
        let align = settings.align;
        let mut plan = Plan::empty();
        if command.kind == Kind::Flush {
            plan.push(Mode::Everywhere, Op::Flush, 0, 0, 0);
            return plan;
        }
        if command.len == 0 {
            return plan;
        }
        let (from, to) = (command.offset, command.offset + command.len);
        let (start, end) = (down(from, align), up(to, align));
        (plan.start, plan.end, plan.from, plan.to) = (start, end, from, to);
        match command.kind {
            Kind::Flush => {}
            Kind::Read => plan.push(Mode::Frame, Op::Read, start, end, 0),
            Kind::Write => {
                for block in edges(from, to, align).into_iter().flatten() {
                    plan.push(Mode::Scratch, Op::Read, block, block + align, block - start);
                }
                plan.gather = plan.len;
                plan.push(Mode::Frame, Op::Write, start, end, 0);
            }
            Kind::CompareAndWrite => {
                plan.verify = Some(end - start);
                plan.push(Mode::Scratch, Op::Read, start, end, 0);
                plan.gather = plan.len;
                plan.push(Mode::Frame, Op::Write, start, end, 0);
            }
            Kind::Trim => plan.push(Mode::Legs, Op::Trim, up(from, align), down(to, align), 0),
            Kind::WriteZeroes { no_hole } => plan.zeroes(no_hole, settings),
            Kind::Cache if settings.prefetch => plan.push(Mode::Discard, Op::Read, start, end, 0),
            Kind::Cache => {}
        }
        plan
    }

    fn zeroes(&mut self, no_hole: bool, settings: &Settings) {
        let align = settings.align;
        let blocks = edges(self.from, self.to, align);
        // Both edges stand one behind the other in the buffer.
        for op in [Op::Read, Op::Write] {
            for (i, block) in blocks.into_iter().flatten().enumerate() {
                let mode = if op == Op::Read { Mode::Scratch } else { Mode::Frame };
                self.push(mode, op, block, block + align, i as u64 * align);
            }
            if op == Op::Read {
                self.gather = self.len;
            }
        }
        let op = if settings.holes && !no_hole { Op::Trim } else { Op::WriteZeroes };
        self.push(Mode::Legs, op, up(self.from, align), down(self.to, align), 0);
    }

    fn push(&mut self, mode: Mode, op: Op, start: u64, end: u64, at: u64) {
        if mode != Mode::Everywhere && start >= end {
            return;
        }
        self.runs[usize::from(self.len)] = Run { mode, op, start, end, at };
        self.len += 1;
    }

    /// Whether it reads before it writes, so that nobody may write there meanwhile.
    pub(crate) fn gathers(&self) -> bool {
        self.gather > 0
    }

    /// How many parts it has in all.
    pub(crate) fn count(&self, layout: &Layout, settings: &Settings) -> u32 {
        let mut cursor = Cursor::default();
        let mut parts = 0;
        while let Some((_, next)) = self.peek(cursor, layout, settings) {
            cursor = next;
            parts += 1;
        }
        parts
    }

    /// Whether the parts from `cursor` on must wait until all before it are done.
    pub(crate) fn must_wait(&self, cursor: Cursor) -> bool {
        self.gather > 0 && cursor == Cursor { run: self.gather, ..Cursor::default() }
    }

    /// The part at `cursor`, and where the next one is.
    pub(crate) fn peek(&self, from: Cursor, layout: &Layout, settings: &Settings) -> Option<(Piece, Cursor)> {
        let mut cursor = from;
        while cursor.run < self.len {
            let run = &self.runs[usize::from(cursor.run)];
            let found = match run.mode {
                Mode::Frame | Mode::Scratch | Mode::Discard => {
                    Some(self.in_order(run, &mut cursor, layout, settings))
                }
                Mode::Legs => by_leg(run, &mut cursor, layout, settings),
                Mode::Everywhere => everywhere(run, &mut cursor, layout),
            };
            let over = match run.mode {
                Mode::Frame | Mode::Scratch | Mode::Discard => cursor.done == run.end - run.start,
                Mode::Legs | Mode::Everywhere => cursor.done == layout.legs() as u64,
            };
            if over {
                cursor = Cursor { run: cursor.run + 1, ..Cursor::default() };
            }
            if let Some(piece) = found {
                return Some((piece, cursor));
            }
        }
        None
    }

    fn in_order(&self, run: &Run, cursor: &mut Cursor, layout: &Layout, settings: &Settings) -> Piece {
        let start = run.start + cursor.done;
        let spot = layout.locate(start);
        let len = spot.run.min(run.end - start).min(settings.quantum);
        let at = run.at + cursor.done;
        cursor.done += len;
        let data = match run.mode {
            Mode::Frame => Data::Frame { at },
            Mode::Discard => Data::Discard,
            _ => {
                let (head, tail) = (self.from.max(start) - start, self.to.min(start + len) - start);
                let verify = self.verify.map(|v| v + (start + head - self.from));
                Data::Scratch(Patch { at, head, tail, verify })
            }
        };
        Piece { gate: spot.gate, op: run.op, offset: spot.offset, len, data }
    }
}

fn by_leg(run: &Run, cursor: &mut Cursor, layout: &Layout, settings: &Settings) -> Option<Piece> {
    let Some(Extent { gate, offset, len }) = layout.leg(cursor.done as usize, run.start, run.end) else {
        cursor.done += 1;
        return None;
    };
    let piece = (len - cursor.within).min(settings.span);
    let offset = offset + cursor.within;
    cursor.within += piece;
    if cursor.within == len {
        (cursor.done, cursor.within) = (cursor.done + 1, 0);
    }
    Some(Piece { gate, op: run.op, offset, len: piece, data: Data::None })
}

/// Two legs may lie behind one gate in different files, so each has its own; the address says which is meant.
fn everywhere(run: &Run, cursor: &mut Cursor, layout: &Layout) -> Option<Piece> {
    let leg = layout.leg(cursor.done as usize, 0, layout.capacity());
    cursor.done += 1;
    leg.map(|leg| Piece { gate: leg.gate, op: run.op, offset: leg.offset, len: 0, data: Data::None })
}

/// What a command counts in all, in millionths of a command.
pub(crate) fn commands(command: &Command, settings: &Settings) -> u64 {
    let started = match command.kind {
        Kind::Flush => 1,
        Kind::Trim | Kind::WriteZeroes { .. } => command.len.div_ceil(settings.span),
        _ => command.len.div_ceil(settings.command_bytes),
    };
    u64::from(Request::WHOLE) * started
}

/// The share of part `index` of `parts`: all shares together are exactly `total`.
pub(crate) fn share(total: u64, index: u32, parts: u32) -> u32 {
    let upto = |n: u64| (u128::from(total) * u128::from(n) / u128::from(parts)) as u64;
    let share = upto(u64::from(index) + 1) - upto(u64::from(index));
    u32::try_from(share).expect("the settings bound what one part counts")
}
