//! From a command to its parts: which ranges are read first, which are then read or written, and in what pieces.
//!
//! A command has up to two phases. The first, *gathering*, reads blocks that the command covers only in part
//! (read-modify-write), or all of them (COMPARE AND WRITE); the second does the work. Each phase is a list of
//! runs, each run a range of the disk, which the layout cuts into parts.
//!
//! Example: align 4096, WRITE of 6000 bytes at 1000 covers blocks 0 and 1 in part. Phase one reads both; phase two
//! writes 8192 bytes at 0 from a buffer in which the client's bytes stand at 1000.

use crate::{Command, Data, DeviceRange, Frame, GateId, Kind, Layout, Patch, Settings};
use henge_core::{Op, Request};

/// How a run's parts are found and where their data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Piece by piece in the disk's order; data in the command's buffer.
    Frame,
    /// The same; data in a buffer of its own, then patched.
    Scratch,
    /// The same; data in the command's buffer, with the bytes to compare with.
    Compare,
    /// Once, at the first byte, for a command that asks nothing of the device: it is queued and charged, and takes its turn.
    Turn,
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

/// The slots of a plan where runs can stand, in their order: two that gather, two that write edges, the main one.
const SLOTS: u8 = 5;
/// The first slot of the second phase.
const SECOND: u8 = 2;

/// A command's runs. They are found anew at each step, since that is quicker than to store them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    /// `None` does nothing.
    kind: Option<Kind>,
    gathers: bool,
    /// The whole blocks that the command touches.
    pub start: u64,
    pub end: u64,
    /// The command's own bytes.
    from: u64,
    to: u64,
}

/// Where a plan's execution stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor {
    slot: u8,
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
pub(crate) fn frame(kind: Kind, offset: u64, len: u64, settings: &Settings) -> Frame {
    let align = settings.align;
    let (start, end) = (down(offset, align), up(offset + len, align));
    let lead = offset - start;
    match kind {
        _ if len == 0 => Frame::default(),
        Kind::Cache if !settings.prefetch => Frame::default(),
        Kind::Read | Kind::Write | Kind::Cache => {
            Frame { len: end - start, lead, verify: None, zeroed: false }
        }
        Kind::CompareAndWrite => {
            Frame { len: end - start + len, lead, verify: Some(end - start), zeroed: false }
        }
        // Extents find room for the edges themselves.
        Kind::WriteZeroes { .. } if settings.owners => Frame::default(),
        Kind::WriteZeroes { .. } => {
            let edges = edges(offset, offset + len, align);
            Frame { len: edges.iter().flatten().count() as u64 * align, lead: 0, verify: None, zeroed: true }
        }
        Kind::Flush | Kind::Trim | Kind::Status => Frame::default(),
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
    pub(crate) fn new(command: &Command, settings: &Settings) -> Plan {
        let kind = Some(command.kind);
        if command.kind == Kind::Flush {
            return Plan { kind, ..Plan::default() };
        }
        let (from, to) = (command.offset, command.offset + command.len);
        let idle = command.kind == Kind::Cache && !settings.prefetch || command.kind == Kind::Status;
        if command.len == 0 || idle {
            return Plan { kind, gathers: false, start: from, end: from, from, to: from };
        }
        let (start, end) = (down(from, settings.align), up(to, settings.align));
        let mut plan = Plan { kind, gathers: false, start, end, from, to };
        plan.gathers = plan.run(0, settings).or(plan.run(1, settings)).is_some();
        plan
    }

    /// The run at `slot`, if there is one.
    fn run(&self, slot: u8, settings: &Settings) -> Option<Run> {
        let kind = self.kind?;
        let main = slot == SLOTS - 1;
        if kind != Kind::Flush && self.from == self.to {
            return main.then_some(self.turn(kind));
        }
        if settings.owners {
            return if main { self.for_owners(kind, settings.align) } else { None };
        }
        let whole = |mode, op| Some(Run { mode, op, start: self.start, end: self.end, at: 0 });
        match kind {
            Kind::Write | Kind::WriteZeroes { .. } if !main => self.edge(slot, settings.align),
            Kind::CompareAndWrite if slot == 0 => whole(Mode::Scratch, Op::Read),
            _ if !main => None,
            Kind::Flush => whole(Mode::Everywhere, Op::Flush),
            Kind::Read | Kind::Cache | Kind::Status => whole(Mode::Frame, Op::Read),
            Kind::Write | Kind::CompareAndWrite => whole(Mode::Frame, Op::Write),
            // A hint about less than a block still takes its turn.
            Kind::Trim => self.inside(Op::Trim, settings.align).or(Some(self.turn(kind))),
            Kind::WriteZeroes { no_hole: false } if settings.holes => self.inside(Op::Trim, settings.align),
            Kind::WriteZeroes { .. } => self.inside(Op::WriteZeroes, settings.align),
        }
    }

    /// A request without bytes: what an empty command comes to.
    fn turn(&self, kind: Kind) -> Run {
        let op = match kind {
            Kind::Write | Kind::CompareAndWrite => Op::Write,
            Kind::Trim => Op::Trim,
            Kind::WriteZeroes { .. } => Op::WriteZeroes,
            Kind::Read | Kind::Cache | Kind::Status | Kind::Flush => Op::Read,
        };
        Run { mode: Mode::Turn, op, start: self.from, end: self.from, at: 0 }
    }

    /// What the extents are asked for that see to blocks themselves: the command's own bytes, as they are.
    fn for_owners(&self, kind: Kind, align: u64) -> Option<Run> {
        let (mode, op) = match kind {
            Kind::Flush => (Mode::Everywhere, Op::Flush),
            Kind::Read | Kind::Cache | Kind::Status => (Mode::Frame, Op::Read),
            Kind::Write => (Mode::Frame, Op::Write),
            Kind::CompareAndWrite => (Mode::Compare, Op::Write),
            Kind::Trim => (Mode::Legs, Op::Trim),
            Kind::WriteZeroes { .. } => (Mode::Legs, Op::WriteZeroes),
        };
        Some(Run { mode, op, start: self.from, end: self.to, at: self.from % align })
    }

    /// The blocks that lie wholly within the command.
    fn inside(&self, op: Op, align: u64) -> Option<Run> {
        let (start, end) = (up(self.from, align), down(self.to, align));
        (start < end).then_some(Run { mode: Mode::Legs, op, start, end, at: 0 })
    }

    /// An edge to be read, or, of zeroes, to be written by itself.
    fn edge(&self, slot: u8, align: u64) -> Option<Run> {
        let edges = edges(self.from, self.to, align);
        let tail = slot % 2 == 1;
        let start = edges[usize::from(tail)]?;
        let zeroes = self.kind != Some(Kind::Write);
        let (mode, op) = match slot < SECOND {
            true => (Mode::Scratch, Op::Read),
            false if zeroes => (Mode::Frame, Op::Write),
            false => return None, // a write's edges go with the rest
        };
        // Zeroes have nothing but their edges in the buffer, one behind the other.
        let at = match zeroes {
            true if tail && edges[0].is_some() => align,
            true => 0,
            false => start - self.start,
        };
        Some(Run { mode, op, start, end: start + align, at })
    }

    /// Where it begins. Without blocks to gather there are no edges either.
    pub(crate) fn first(&self) -> Cursor {
        Cursor { slot: if self.gathers { 0 } else { SLOTS - 1 }, ..Cursor::default() }
    }

    /// Whether it reads before it writes, so that nobody may write there meanwhile.
    pub(crate) fn gathers(&self) -> bool {
        self.gathers
    }

    /// How many parts it has in all.
    pub(crate) fn count(&self, layout: &Layout, settings: &Settings) -> u32 {
        let mut cursor = self.first();
        let mut parts = 0;
        while let Some((_, next)) = self.peek(cursor, layout, settings) {
            cursor = next;
            parts += 1;
        }
        parts
    }

    /// Whether the parts from `cursor` on must wait until all before it are done.
    pub(crate) fn must_wait(&self, cursor: Cursor) -> bool {
        self.gathers && cursor == Cursor { slot: SECOND, ..Cursor::default() }
    }

    /// The part at `cursor`, and where the next one is.
    pub(crate) fn peek(&self, from: Cursor, layout: &Layout, settings: &Settings) -> Option<(Piece, Cursor)> {
        let mut cursor = from;
        while cursor.slot < SLOTS {
            let Some(run) = &self.run(cursor.slot, settings) else {
                cursor.slot += 1;
                continue;
            };
            let found = match run.mode {
                Mode::Frame | Mode::Scratch | Mode::Compare => {
                    Some(self.in_order(run, &mut cursor, layout, settings))
                }
                Mode::Turn => Some(at_once(run, layout)),
                Mode::Legs => by_leg(run, &mut cursor, layout, settings),
                Mode::Everywhere => everywhere(run, &mut cursor, layout),
            };
            let over = match run.mode {
                Mode::Frame | Mode::Scratch | Mode::Compare => cursor.done == run.end - run.start,
                Mode::Turn => true,
                Mode::Legs | Mode::Everywhere => cursor.done == layout.legs() as u64,
            };
            if over {
                let both = cursor.slot == 0 && self.run(1, settings).is_some();
                let slot = if both || cursor.slot > 0 { cursor.slot + 1 } else { SECOND };
                cursor = Cursor { slot, ..Cursor::default() };
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
        // Cut at whole blocks, so that no two parts have to complete the same one.
        let len = spot.run.min(run.end - start).min(settings.quantum - start % settings.align);
        let at = run.at + cursor.done;
        cursor.done += len;
        let data = match run.mode {
            Mode::Frame => Data::Frame { at },
            Mode::Compare => Data::Compare { at, verify: self.end - self.start + (start - self.from) },
            _ => {
                let (head, tail) = (self.from.max(start) - start, self.to.min(start + len) - start);
                let compares = self.kind == Some(Kind::CompareAndWrite);
                let verify = compares.then(|| self.end - self.start + (start + head - self.from));
                Data::Scratch(Patch { at, head, tail, verify })
            }
        };
        Piece { gate: spot.gate, op: run.op, offset: spot.offset, len, data }
    }
}

/// At the first byte, or the disk's last one where the command begins at its end.
fn at_once(run: &Run, layout: &Layout) -> Piece {
    let spot = layout.locate(run.start.min(layout.capacity() - 1));
    Piece { gate: spot.gate, op: run.op, offset: spot.offset, len: 0, data: Data::None }
}

fn by_leg(run: &Run, cursor: &mut Cursor, layout: &Layout, settings: &Settings) -> Option<Piece> {
    let Some(DeviceRange { gate, offset, len }) = layout.leg(cursor.done as usize, run.start, run.end) else {
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
        Kind::Flush | Kind::Status => 1,
        Kind::Cache if !settings.prefetch => 1,
        Kind::Trim | Kind::WriteZeroes { .. } => command.len.div_ceil(settings.span),
        _ => command.len.div_ceil(settings.command_bytes),
    };
    u64::from(Request::WHOLE) * started.max(1)
}

/// The share of part `index` of `parts`: all shares together are exactly `total`.
pub(crate) fn share(total: u64, index: u32, parts: u32) -> u32 {
    let (parts, index) = (u64::from(parts), u64::from(index));
    let upto = |n: u64| match total.checked_mul(n) {
        Some(product) => product / parts,
        None => (u128::from(total) * u128::from(n) / u128::from(parts)) as u64,
    };
    let share = if parts == 1 { total } else { upto(index + 1) - upto(index) };
    u32::try_from(share).expect("the settings bound what one part counts")
}
