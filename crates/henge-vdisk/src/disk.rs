//! The virtual disk: commands in, parts out; parts done, answers out.
//!
//! Order. Parts are handed out in the order the commands came, except that a part whose gate has no room does not
//! stop those for other gates. A command is over when all its parts are; its first failure is its outcome, and its
//! parts not yet handed out are dropped then.
//!
//! FLUSH. A write is answered when its parts are done, and the parts of a FLUSH are handed out after it was submitted:
//! each gate's backend makes durable what it had completed by then, which includes every write answered before,
//! through this coordinator or another. That is why a FLUSH goes to every extent that holds bytes, written to or not,
//! addressed to the disk's first byte there, and is over only when the last one has answered.
//!
//! A disk has one FLUSH at its gates at a time. Those that come meanwhile are one more, together, when it is over: they ask for the same,
//! each counts as a command, and a client that sends hundreds of them holds one slot of the device. (A coordinator's are joined there; at
//! the owner of an extent each goes by itself.) So one part that is done may be the end of thousands of commands. Each stays pending until
//! it is taken ([`VirtualDisk::next_finished`]), and whoever takes them may do so in pieces.
//!
//! Price: about 70 ns for a read of one part, 45 ns for each further part (`cargo bench -p henge-vdisk`, shared machine).
//!
//! Locks (see `RangeLocks`) belong to one `VirtualDisk`. A disk that several coordinators serve at once has one for
//! each extent as well, its *owner* ([`Settings::owners`]): coordinators cut commands where the extents end and nowhere else,
//! and the owner of a part completes its blocks, compares, and holds the locks, for all coordinators alike. COMPARE AND WRITE
//! over two extents is refused, since nobody could hold both.

use crate::plan::{self, Cursor, Piece, Plan};
use crate::{
    Command, Failure, Finished, Frame, GateId, Kind, Layout, LayoutError, LockId, Part, PartId, RangeLocks,
    Settings,
};
use henge_core::{Cost, Fault, FlowId, Op, Pending, Request, RequestId};
use std::collections::VecDeque;
use std::fmt;

/// What a disk asks of the gates while it hands out parts. `()` always has room and knows no other node.
pub trait Gates {
    /// Whether `gate` would take another request of `flow` now.
    fn has_capacity(&mut self, _gate: GateId, _flow: FlowId) -> bool {
        true
    }
    /// `request` goes to `gate`: the service that its flow was sent elsewhere since its last request there
    /// (DSFQ's "delay"). A coordinator counts here.
    fn foreign(&mut self, _gate: GateId, _request: &Request) -> Cost {
        Cost::ZERO
    }
}
impl Gates for () {}

/// The disk has as many commands pending as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    /// The bound.
    pub commands_max: u32,
}

/// Why a disk cannot change its layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResizeError {
    /// The new layout puts existing bytes elsewhere.
    Moved,
    /// The capacity or an extent is not a multiple of the alignment.
    Unaligned,
    /// A pending command touches what would be cut off.
    InUse,
    /// The layout itself is wrong.
    Layout(LayoutError),
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResizeError::Moved => f.write_str("the new layout would put existing bytes elsewhere"),
            ResizeError::Unaligned => {
                f.write_str("capacity, unit or base is not a multiple of the alignment")
            }
            ResizeError::InUse => f.write_str("a pending command touches what would be cut off"),
            ResizeError::Layout(error) => error.fmt(f),
        }
    }
}
impl std::error::Error for ResizeError {}

#[derive(Debug)]
struct State {
    command: Command,
    plan: Plan,
    cursor: Cursor,
    /// Parts in all, handed out, and handed out but not done.
    parts: u32,
    given: u32,
    outstanding: u32,
    lock: Option<LockId>,
    failure: Option<Failure>,
    /// Among those with parts to hand out.
    ready: bool,
    /// Waits to be taken.
    over: bool,
}

/// One virtual disk at one coordinator.
#[derive(Debug)]
pub struct VirtualDisk {
    flow: FlowId,
    layout: Layout,
    settings: Settings,
    commands: Pending<State>,
    ready: VecDeque<RequestId>,
    locks: RangeLocks,
    woken: Vec<RequestId>,
    /// What is over, and was not taken yet.
    finished: VecDeque<RequestId>,
    /// Gates found without room while a part is looked for.
    blocked: Vec<GateId>,
    flushes: Flushes,
}

/// FLUSH commands: the one that is at the gates, the others that it stands for, and the commands for the next one. Names of commands that were
/// given up meanwhile are passed over.
#[derive(Debug, Default)]
struct Flushes {
    leader: Option<RequestId>,
    joined: Vec<RequestId>,
    next: VecDeque<RequestId>,
    /// How many it stands for in all, once its first part is handed out.
    count: u64,
}

/// Most FLUSH commands that one stands for: what it counts has to fit 32 bits of millionths.
const JOINED_MAX: usize = 4000;

impl VirtualDisk {
    /// Longest command that moves data. Sessions have tighter bounds; this one keeps `submit` quick.
    pub const DATA_MAX: u64 = 1 << 30;
    /// Longest command that moves none.
    pub const RANGE_MAX: u64 = 1 << 40;

    /// A disk whose requests belong to `flow` at every gate.
    pub fn new(flow: FlowId, layout: Layout, settings: Settings) -> Result<Self, ResizeError> {
        assert_eq!(settings.fault(), None, "settings are checked where they are read");
        if !layout.is_aligned(settings.align) {
            return Err(ResizeError::Unaligned);
        }
        Ok(VirtualDisk {
            flow,
            layout,
            settings,
            commands: Pending::new(),
            ready: VecDeque::new(),
            locks: RangeLocks::new(),
            woken: Vec::new(),
            finished: VecDeque::new(),
            blocked: Vec::new(),
            flushes: Flushes::default(),
        })
    }

    /// Its flow.
    pub fn flow(&self) -> FlowId {
        self.flow
    }
    /// Bytes.
    pub fn capacity(&self) -> u64 {
        self.layout.capacity()
    }
    /// Where they are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
    /// Its knobs.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// Commands pending, those that are over and were not taken included.
    pub fn pending(&self) -> usize {
        self.commands.len()
    }
    /// Whether another command would be taken in.
    pub fn has_capacity(&self) -> bool {
        self.commands.len() < self.settings.commands_max as usize
    }

    /// The buffer that a command needs.
    ///
    /// # Panics
    /// When the range is beyond 64 bits; ranges are checked against the capacity first.
    pub fn frame(&self, kind: Kind, offset: u64, len: u64) -> Frame {
        self.settings.frame(kind, offset, len)
    }

    /// Takes a command in. It may be over at once (a range beyond the end fails): ask
    /// [`next_finished`](Self::next_finished).
    pub fn submit(&mut self, command: Command) -> Result<RequestId, Full> {
        if !self.has_capacity() {
            return Err(Full { commands_max: self.settings.commands_max });
        }
        let end = command.offset.checked_add(command.len);
        let within = command.kind == Kind::Flush || end.is_some_and(|end| end <= self.capacity());
        let longest = if command.kind.moves_data() { Self::DATA_MAX } else { Self::RANGE_MAX };
        let failure = match within {
            false => Some(Failure::Fault(Fault::OutOfRange)),
            true if command.kind != Kind::Flush && command.len > longest => {
                Some(Failure::Fault(Fault::Unsupported))
            }
            true => None,
        };
        let plan = if failure.is_none() { Plan::new(&command, &self.settings) } else { Plan::default() };
        let parts = plan.count(&self.layout, &self.settings);
        // Nobody holds the locks of two extents, so what is compared lies on one of them.
        let split = self.settings.owners && command.kind == Kind::CompareAndWrite && parts > 1;
        let failure = failure.or(split.then_some(Failure::Fault(Fault::Unsupported)));
        let (plan, parts) = if split { (Plan::default(), 0) } else { (plan, parts) };
        let (start, end, exclusive) = (plan.start, plan.end, plan.gathers());
        let id = self.commands.insert(State {
            command,
            cursor: plan.first(),
            plan,
            parts,
            given: 0,
            outstanding: 0,
            lock: None,
            failure,
            ready: false,
            over: false,
        });
        if parts == 0 {
            self.finish(id);
            return Ok(id);
        }
        let mut held = true;
        if command.kind.writes() && start < end {
            let (lock, now) = self.locks.acquire(start..end, exclusive, id);
            self.state(id).lock = Some(lock);
            held = now;
        }
        if command.kind == Kind::Flush && command.portion.is_none() {
            held = self.join_flush(id);
        }
        if held {
            self.make_ready(id);
        }
        Ok(id)
    }

    /// Whether a FLUSH goes to the gates itself, now; otherwise another stands for it.
    fn join_flush(&mut self, id: RequestId) -> bool {
        let Some(leader) = self.flushes.leader else {
            self.flushes.leader = Some(id);
            return true;
        };
        // What was handed out may not cover what was answered since.
        let begun = self.state(leader).given > 0;
        if !begun && self.flushes.joined.len() < JOINED_MAX {
            self.flushes.joined.push(id);
            return false;
        }
        if self.flushes.next.len() >= 2 * self.settings.commands_max as usize {
            let commands = &self.commands;
            self.flushes.next.retain(|id| goes_on(commands, *id));
        }
        self.flushes.next.push_back(id);
        false
    }

    /// The FLUSH at the gates is over, and with it those that it stood for; the next one begins.
    fn flushed(&mut self, failure: Option<Failure>) {
        self.flushes.leader = None;
        let given_up = failure == Some(Failure::Fault(Fault::Cancelled));
        let mut joined = std::mem::take(&mut self.flushes.joined);
        if given_up {
            joined.drain(..).rev().for_each(|id| self.flushes.next.push_front(id)); // their clients still wait
        }
        for id in joined.drain(..) {
            if let Some(state) = self.commands.get_mut(id).filter(|state| !state.over) {
                (state.over, state.failure) = (true, failure);
                self.finished.push_back(id);
            }
        }
        self.flushes.joined = joined; // its memory is kept
        while self.flushes.joined.len() < JOINED_MAX
            && let Some(id) = self.flushes.next.pop_front()
        {
            match (goes_on(&self.commands, id), self.flushes.leader) {
                (false, _) => {}
                (true, Some(_)) => self.flushes.joined.push(id),
                (true, None) => self.flushes.leader = Some(id),
            }
        }
        if let Some(leader) = self.flushes.leader {
            self.make_ready(leader);
        }
    }

    /// The next part that may go to its gate, if any has room.
    pub fn next_part(&mut self, gates: &mut impl Gates) -> Option<Part> {
        self.blocked.clear();
        let mut i = 0;
        while let Some(&id) = self.ready.get(i) {
            let state = self.commands.get_mut(id).expect("a ready command is pending");
            let (piece, next) = state
                .plan
                .peek(state.cursor, &self.layout, &self.settings)
                .expect("a ready command has a part to hand out");
            let known = self.blocked.contains(&piece.gate);
            if known || !gates.has_capacity(piece.gate, self.flow) {
                if !known {
                    self.blocked.push(piece.gate);
                }
                // Once no gate has room, the rest of a long backlog need not be looked at.
                if self.blocked.len() == self.layout.gates().len() {
                    return None;
                }
                i += 1;
                continue;
            }
            return Some(self.hand_out(i, piece, next, gates));
        }
        None
    }

    /// Of the `i`-th ready command, the part that was looked at: the next one begins at `next`.
    fn hand_out(&mut self, i: usize, piece: Piece, next: Cursor, gates: &mut impl Gates) -> Part {
        let id = *self.ready.get(i).expect("a part of a ready command");
        let leads = self.flushes.leader == Some(id);
        if leads && self.commands.get(id).is_some_and(|state| state.given == 0) {
            let others = self.flushes.joined.iter().filter(|id| goes_on(&self.commands, **id));
            self.flushes.count = 1 + others.count() as u64;
        }
        let state = self.commands.get_mut(id).expect("a ready command is pending");
        let index = state.given;
        state.cursor = next;
        state.given += 1;
        state.outstanding += 1;
        if state.given == state.parts || state.plan.must_wait(next) {
            state.ready = false;
            self.ready.remove(i);
        }
        let command = &state.command;
        let portion = command.portion;
        let total = match portion {
            Some(portion) => u64::from(portion.commands),
            None if leads => plan::commands(command, &self.settings) * self.flushes.count,
            None => plan::commands(command, &self.settings),
        };
        let Piece { gate, op, offset, len, data } = piece;
        let mut request = Request::new(RequestId::default(), self.flow, op, offset, len, command.arrival);
        request.fua = command.fua && !matches!(op, Op::Read | Op::Flush);
        request.commands = plan::share(total, index, state.parts);
        request.foreign = gates.foreign(gate, &request);
        if let Some(portion) = portion.filter(|_| index == 0) {
            request.foreign += portion.foreign;
        }
        Part { id: PartId { command: id, index }, gate, request, kind: command.kind, data }
    }

    /// A part is over. Scratch data was patched before ([`Patch::apply`](crate::Patch::apply)).
    ///
    /// # Panics
    /// When it is not outstanding: a part is done once.
    pub fn part_done(&mut self, id: PartId, outcome: Result<(), Failure>) {
        let state = self.commands.get_mut(id.command).expect("a command with outstanding parts is pending");
        assert!(id.index < state.given && state.outstanding > 0, "{id:?} is done twice");
        state.outstanding -= 1;
        if let Err(failure) = outcome {
            self.fail(id.command, failure);
        } else {
            self.go_on(id.command);
        }
    }

    /// Gives a command up: parts not yet handed out never will be, and it fails as cancelled (if nothing failed
    /// before) when those outstanding are done. False when it is over already.
    pub fn abort(&mut self, id: RequestId) -> bool {
        if !goes_on(&self.commands, id) {
            return false;
        }
        self.fail(id, Failure::Fault(Fault::Cancelled));
        true
    }

    /// Whether a command has failed already, or is over: nothing more is to be done for it.
    pub fn is_given_up(&self, id: RequestId) -> bool {
        self.commands.get(id).is_none_or(|state| state.over || state.failure.is_some())
    }

    /// The next command that is over. Its outcome is a read's permission to deliver bytes.
    pub fn next_finished(&mut self) -> Option<Finished> {
        let id = self.finished.pop_front()?;
        let State { command, failure, .. } = self.commands.remove(id).expect("what is over stays until here");
        Some(Finished { id, command, outcome: failure.map_or(Ok(()), Err) })
    }

    /// Whether a command is over that was not taken.
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Grows or shrinks the disk: the same extents in the same order, longer or shorter.
    pub fn resize(&mut self, layout: Layout) -> Result<(), ResizeError> {
        if !layout.is_aligned(self.settings.align) {
            return Err(ResizeError::Unaligned);
        }
        let (old, new) = (self.layout.extents(), layout.extents());
        let same = old.len() == new.len()
            && (old.len() == 1 || self.layout.unit() == layout.unit())
            && old.iter().zip(new).all(|(a, b)| a.target == b.target && a.base == b.base);
        if !same {
            return Err(ResizeError::Moved);
        }
        if self.commands.iter().any(|(_, state)| !state.over && state.plan.end > layout.capacity()) {
            return Err(ResizeError::InUse);
        }
        self.layout = layout;
        Ok(())
    }

    fn state(&mut self, id: RequestId) -> &mut State {
        self.commands.get_mut(id).expect("a command that is pending")
    }

    fn make_ready(&mut self, id: RequestId) {
        let state = self.state(id);
        debug_assert!(!state.ready, "a command is ready once");
        state.ready = true;
        self.ready.push_back(id);
    }

    fn fail(&mut self, id: RequestId, failure: Failure) {
        let state = self.state(id);
        state.failure.get_or_insert(failure);
        if std::mem::take(&mut state.ready) {
            self.ready.retain(|other| *other != id);
        }
        if self.state(id).outstanding == 0 {
            self.finish(id);
        }
    }

    /// After a part went well: the next phase, or the end.
    fn go_on(&mut self, id: RequestId) {
        let state = self.state(id);
        if state.outstanding > 0 || state.ready {
            return;
        }
        if state.failure.is_some() || state.given == state.parts {
            self.finish(id);
        } else {
            self.make_ready(id);
        }
    }

    fn finish(&mut self, id: RequestId) {
        let state = self.state(id);
        debug_assert!(!state.over, "a command is over once");
        state.over = true;
        let failure = state.failure;
        if let Some(lock) = state.lock {
            self.locks.release(lock, &mut self.woken);
            let mut woken = std::mem::take(&mut self.woken);
            woken.drain(..).for_each(|id| self.make_ready(id));
            self.woken = woken; // its memory is kept
        }
        self.finished.push_back(id);
        if self.flushes.leader == Some(id) {
            self.flushed(failure);
        }
    }
}

/// Whether a command is pending and not over.
fn goes_on(commands: &Pending<State>, id: RequestId) -> bool {
    commands.get(id).is_some_and(|state| !state.over)
}
