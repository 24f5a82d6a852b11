//! Whose bytes the loop moves next: start-time fair queueing of the node's processor, with reserved turns.
//!
//! **Problem.** One thread moves the bytes of all disks. A tenant of a fast pool who reads 1 MiB at a time on many connections keeps it
//! busy for milliseconds a turn, and a tenant of another pool, whose gate knows nothing of this, waits with everything it has.
//!
//! **Rule.** A flow is a disk, whatever protocol and however many connections its clients use; node links are one flow, and
//! connections that have no disk yet another. Work is one connection's reading, or writing. It is done in pieces of at most
//! [`BYTES`] and [`COMMANDS`], and a round of the loop does about [`ROUND`] of them before it looks at its sockets again, with looks at
//! the gates between. What a piece
//! cost, c (ns), is estimated from its messages and bytes. A flow that begins to have work has the start tag S = max(v, F); after
//! each piece F = S + c/φ, φ its contract's weight, and the next piece has S = F; v is the start tag of the last piece (SFQ,
//! Goyal, Vin and Cheng 1996, section 2). The least start tag goes next, but before it any flow with a rate r whose next reserved turn d
//! has come: such a piece moves d = max(d, now − [`LATE`]) + a·4/(5r), where a is the cost it took of the rate, and leaves F as
//! it is. So turns by weight are no debt: they do not move d, and reserved turns do not move F. A command passes twice, in and out;
//! each way takes half of it.
//!
//! **Example.** Disks a and b, weights 3 and 1, and c comes for the first time when a's next start tag is 20 and b's 30, v = 20. c
//! begins at 20, as if it had always had its share and no more, and goes after at most one piece of a. Where c is promised 10,000
//! commands a second and takes 8 at a time, every 0.64 ms it goes first, whatever the weights of a and b.
//!
//! **Guarantee.** Of two flows that have work all the time, without rates: |W₁/φ₁ − W₂/φ₂| ≤ c₁/φ₁ + c₂/φ₂, W what they got, c their largest
//! piece (theorem 1 there). A flow that comes waits for one piece of each other flow at most, whatever it or they had before. A
//! flow with a rate has its turns at 5/4 of it, late by a piece at most, as long as all reserved turns together fit the processor:
//! nobody admits by processor time, so that is the operator's business (`henge vd show` says what each disk takes).
//!
//! **Price.** Two heaps, O(log n) of the flows that have work, for each piece; no clock: the loop's own two readings a round say how long
//! it took, and that is divided among its flows by the estimates ([`Turns::measured`]). Their ratio, smoothed, corrects later
//! estimates. A disk's share is thus as exact as the estimates of disks in the same round are alike, and exact in sum.
//!
//! **Departures.** What storage in memory copies, it copies by its gates, whose schedulers say for whom: among gates the same rule holds,
//! a gate's piece weighing as much as the disk that it was for, and its rate being that of all its disks (`Plane::poll`). It is
//! charged to the disk besides, whose other turns come later for it.

use henge_core::{Contract, CostUnit, Duration, Instant, Rate, RequestId};
use henge_sched::IndexedHeap;
use std::collections::VecDeque;

/// Most bytes of a piece. Some tens of microseconds of copying to or from a socket.
pub(crate) const BYTES: usize = 128 << 10;
/// Most commands of a piece: about as long.
pub(crate) const COMMANDS: u32 = 32;
/// Estimated nanoseconds of work between two looks at all sockets, which cost about one of them in twenty-five. Whoever comes meanwhile
/// waits for the rest: so this is what a busy loop adds to a small request of somebody else.
pub(crate) const ROUND: u64 = 32_000;
/// The same between two looks at the gates, and no more by the clock: who was read first does not wait for all who are read after it.
pub(crate) const STEP: u64 = 8_000;
/// Bytes that gates may copy in memory in a round: half as long.
pub(crate) const ROUND_BYTES: u64 = 64 << 10;
/// After which gates do nothing more in a round but finish what they are at, and the round ends at its next look at the gates, whatever was estimated:
/// a write through the page cache keeps the loop from its processor for as long as the kernel likes.
pub(crate) const ROUND_TIME: Duration = Duration::from_micros(64);
/// A reserved turn that could not be had is made up for, if it is not older.
const LATE: Duration = Duration::from_millis(10);
/// Bytes of which a command with a longer payload counts once for each, as a gate does.
const WHOLE: u64 = 256 << 10;

/// Before it is corrected: a piece's system call, …
const CALL: u64 = 1_000;
/// … a command on one way, or another message, …
const COMMAND: u64 = 1_000;
/// … and bytes moved in a nanosecond.
pub(crate) const BYTES_PER_NS: u64 = 4;
/// The correction, in parts of this; at most 16 times as much or as little.
const ONE: u64 = 1 << 10;

/// Tags are nanoseconds by weight, in fractions.
const FRACTION_BITS: u32 = 20;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    In,
    Out,
}

/// The flow of a disk; of links; of connections that have no disk yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    Newcomers,
    Links,
    Disk(usize),
}

impl Of {
    fn index(self) -> usize {
        match self {
            Of::Newcomers => 0,
            Of::Links => 1,
            Of::Disk(number) => number + 2,
        }
    }
}

/// The terms of a contract that concern the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    weight: u32,
    /// 5/4 of the rate, so that the processor is not what a promise fails by.
    pace: Option<Rate>,
}

impl Terms {
    pub(crate) fn weighted(weight: u32) -> Terms {
        Terms { weight: weight.max(1), pace: None }
    }
    pub(crate) fn of(contract: &Contract) -> Terms {
        let counted = |rate: &Rate| rate.unit != CostUnit::DiskTime;
        let pace = contract.rate.filter(counted).map(|rate| rate.mul_ratio(5, 4));
        Terms { weight: contract.weight(), pace: pace.filter(|rate| rate.per_second > 0) }
    }
    /// Of a gate: the weight of whom it served last, and what it promises in all.
    pub(crate) fn gate(weight: u32, promised: Option<Rate>) -> Terms {
        let pace = promised.map(|rate| rate.mul_ratio(5, 2)).filter(|rate| rate.per_second > 0);
        Terms { weight: weight.max(1), pace }
    }
}

/// What was done in a piece.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Done {
    pub commands: u32,
    /// Messages that were no command: options, questions, pieces of data.
    pub others: u32,
    pub bytes: u64,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    pub connection: RequestId,
    pub way: Way,
    flow: usize,
    reserved: bool,
}

struct Flow {
    terms: Terms,
    start: u128,
    finish: u128,
    /// When its next reserved turn is due.
    due: Instant,
    /// Answers first: they give memory back.
    out: VecDeque<RequestId>,
    into: VecDeque<RequestId>,
    /// Estimated in this round.
    estimated: u64,
    /// Nanoseconds of the processor that it took.
    used: u64,
}

/// Who has work, and who is next.
pub(crate) struct Turns {
    flows: Vec<Flow>,
    /// Flows with work, by their start tags …
    shares: IndexedHeap<u128>,
    /// … and those with rates, by when they are due.
    reserved: IndexedHeap<Instant>,
    virtual_time: u128,
    /// Flows that worked in this round, and all they did.
    worked: Vec<usize>,
    estimated: u64,
    correction: u64,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns {
            flows: Vec::new(),
            shares: IndexedHeap::new(),
            reserved: IndexedHeap::new(),
            virtual_time: 0,
            worked: Vec::new(),
            estimated: 0,
            correction: ONE,
        }
    }

    /// Whether nobody has work.
    pub(crate) fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    /// Whether this round has done its part.
    pub(crate) fn is_over(&self) -> bool {
        self.estimated >= ROUND
    }

    /// Until which estimate of this round bytes move before gates are looked at.
    pub(crate) fn step(&self) -> u64 {
        self.estimated + STEP
    }

    /// What this round has cost so far, by estimate.
    pub(crate) fn estimated(&self) -> u64 {
        self.estimated
    }

    /// Nanoseconds of the processor that a disk took.
    pub(crate) fn used(&self, of: Of) -> u64 {
        self.flows.get(of.index()).map_or(0, |flow| flow.used)
    }

    /// A disk of that number begins anew.
    pub(crate) fn forget(&mut self, of: Of) {
        if let Some(flow) = self.flows.get_mut(of.index()) {
            (flow.used, flow.finish, flow.due) = (0, 0, Instant::ZERO);
            self.place(of.index());
        }
    }

    fn flow(&mut self, of: Of) -> &mut Flow {
        let index = of.index();
        while self.flows.len() <= index {
            self.flows.push(Flow {
                terms: Terms::weighted(1),
                start: 0,
                finish: 0,
                due: Instant::ZERO,
                out: VecDeque::new(),
                into: VecDeque::new(),
                estimated: 0,
                used: 0,
            });
        }
        &mut self.flows[index]
    }

    /// A connection has something to be done. It must not be there already, for that way.
    pub(crate) fn put(&mut self, of: Of, terms: Terms, connection: RequestId, way: Way) {
        let virtual_time = self.virtual_time;
        let flow = self.flow(of);
        if flow.terms.pace != terms.pace {
            flow.due = Instant::ZERO; // another rate holds at once
        }
        flow.terms = terms;
        if flow.is_idle() {
            flow.start = virtual_time.max(flow.finish);
        }
        match way {
            Way::In => flow.into.push_back(connection),
            Way::Out => flow.out.push_back(connection),
        }
        self.place(of.index());
    }

    /// Puts a flow where it belongs.
    fn place(&mut self, index: usize) {
        let flow = &self.flows[index];
        let slot = index as u32;
        if flow.is_idle() {
            self.shares.remove(slot);
            self.reserved.remove(slot);
            return;
        }
        self.shares.set(slot, flow.start);
        match flow.terms.pace {
            Some(_) => self.reserved.set(slot, flow.due),
            None => drop(self.reserved.remove(slot)),
        }
    }

    /// Whose turn it is; [`Turns::done`] must follow.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Turn> {
        let due = self.reserved.peek().filter(|(_, due)| *due <= now).map(|(slot, _)| slot);
        let slot = due.or_else(|| self.shares.peek().map(|(slot, _)| slot))?;
        let index = slot as usize;
        let flow = &mut self.flows[index];
        let (way, connection) = match flow.out.pop_front() {
            Some(connection) => (Way::Out, connection),
            None => (Way::In, flow.into.pop_front().expect("a flow with a place has work")),
        };
        Some(Turn { connection, way, flow: index, reserved: due.is_some() })
    }

    /// What came of a turn.
    pub(crate) fn done(&mut self, turn: Turn, done: Done, now: Instant) {
        let cost = self.cost(done);
        self.spend(turn.flow, cost);
        let flow = &mut self.flows[turn.flow];
        match (turn.reserved, flow.terms.pace) {
            (true, Some(pace)) => {
                let late = Instant::from_nanos(now.as_nanos().saturating_sub(LATE.as_nanos()));
                flow.due = flow.due.max(late) + pace.time_for(taken(done, pace.unit));
            }
            _ => {
                self.virtual_time = self.virtual_time.max(flow.start);
                flow.finish = flow.start + tag(cost, flow.terms.weight);
                flow.start = flow.finish;
            }
        }
        self.place(turn.flow);
    }

    /// Work that was done for a disk in somebody else's order: copying in memory. It counts for the disk's next turns.
    pub(crate) fn charge(&mut self, of: Of, bytes: u64) {
        let cost = self.corrected(bytes / BYTES_PER_NS);
        let virtual_time = self.virtual_time;
        self.flow(of);
        let index = of.index();
        self.spend(index, cost);
        let flow = &mut self.flows[index];
        if flow.is_idle() {
            flow.finish = virtual_time.max(flow.finish) + tag(cost, flow.terms.weight);
        } else {
            flow.start += tag(cost, flow.terms.weight);
            flow.finish = flow.finish.max(flow.start);
            self.place(index);
        }
    }

    fn cost(&self, done: Done) -> u64 {
        let messages = u64::from(done.commands) + u64::from(done.others);
        let estimate = CALL + messages * COMMAND + done.bytes / BYTES_PER_NS;
        self.corrected(estimate)
    }

    /// An estimate as this machine was seen to take; work is never free, so that each flow that worked has a part of its round.
    fn corrected(&self, estimate: u64) -> u64 {
        (estimate * self.correction / ONE).max(1)
    }

    fn spend(&mut self, index: usize, cost: u64) {
        let flow = &mut self.flows[index];
        if flow.estimated == 0 {
            self.worked.push(index);
        }
        flow.estimated += cost;
        self.estimated += cost;
    }

    /// The round took so long: each flow has its part of it, and the estimates learn.
    pub(crate) fn measured(&mut self, took: Duration) {
        let (took, estimated) = (took.as_nanos(), std::mem::take(&mut self.estimated));
        for index in self.worked.drain(..) {
            let flow = &mut self.flows[index];
            let part = std::mem::take(&mut flow.estimated);
            flow.used +=
                u64::try_from(u128::from(took) * u128::from(part) / u128::from(estimated)).unwrap_or(0);
        }
        // Short rounds are mostly the waking up; and a thread that lost its processor for a while teaches little.
        if estimated >= ROUND / 2 {
            let ratio = (took * ONE / estimated).clamp(ONE / 2, 2 * ONE);
            let correction = (15 * self.correction + self.correction * ratio / ONE) / 16;
            self.correction = correction.clamp(ONE / 16, 16 * ONE);
        }
    }
}

impl Flow {
    fn is_idle(&self) -> bool {
        self.out.is_empty() && self.into.is_empty()
    }
}

fn tag(cost: u64, weight: u32) -> u128 {
    (u128::from(cost) << FRACTION_BITS) / u128::from(weight.max(1))
}

/// The part of its rate that a piece took: a command counts half on its way in and half on its way out, and so do a payload's bytes, which
/// pass once, but of a long one as many commands as a gate counts.
fn taken(done: Done, unit: CostUnit) -> henge_core::Cost {
    henge_core::Cost::new(match unit {
        CostUnit::Requests => {
            let by_bytes = done.bytes.saturating_mul(1_000_000) / WHOLE;
            (u64::from(done.commands) * 500_000).max(by_bytes).max(1)
        }
        CostUnit::Bytes | CostUnit::DiskTime => done.bytes.max(1),
    })
}

#[cfg(test)]
mod tests;
