//! Parts of disks are made, lengthened and removed beside the data path.
//!
//! # The problem
//! A new part of 2 GiB on a device is written with zeroes, a removed one is a file of many extents to be unlinked, and every record of it
//! is synced. Done in the loop, that stops everybody.
//!
//! # The rule
//! A *ticket* is a list of parts to be made or removed for one disk, and is worked through part by part. The store names the next
//! [`Step`]; the loop carries it out and waits for nothing:
//!
//! | step | who does it |
//! |---|---|
//! | a record to be written and synced, a file to be made or unlinked | a thread of its own ([`Tickets::next_chore`], [`Tickets::chore_done`]) |
//! | addresses to be zeroed | WRITE ZEROES requests of 64 KiB, one after the other, through the pool's own gate |
//!
//! The zeroing is a flow like any other, of weight 1 and without a promise. So the scheduler decides what it may take from tenants, and
//! charges it for what it takes; a tenant finds at most one piece of it before its own request at the device.
//!
//! Tickets go on side by side, but never two at one gate, nor two of one disk: the earlier goes first.
//!
//! # Example
//! `add` of a disk of 2 GiB beside a tenant of weight 4: one chore (the record "making"), 32768 pieces, which get a fifth of the device while
//! the tenant wants all of it, one chore (sync). The disk is remembered; one chore (the record "used"). Then the disk itself is added, which finds its parts.
//!
//! # Price
//! A piece a turn of the loop: about as much as a request of a client. While something is zeroed, one number of a disk is taken.

use super::disks::Disks;
use super::part::PartOf;
use super::pools::Pools;
use super::sub_request::SubRequest;
use henge_backend::{Buffer, Chore, Growth, Step, Store};
use henge_core::{Contract, Fault, FlowId, Instant, Op, Request, RequestId};
use henge_vdisk::PartId;
use std::collections::VecDeque;
use std::fs::File;
use std::io;

/// Bytes zeroed by one request: of a longer one a cost model charges no more (`henge_sched::cost`), since most devices do it at once.
/// Some write every byte, so what is charged is what the slowest of them moves.
const PIECE: u64 = 64 << 10;

/// What is to be done with a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// What a former disk left becomes the disk's, if there is something.
    Adopt(PartOf),
    /// Made, or found.
    Make(PartOf),
    /// Given to its disk, which is remembered by now.
    Claim(PartOf),
    /// Made longer.
    Lengthen(PartOf, Growth),
    /// Looked at where another node has it: whether it is that long.
    Look(PartOf),
    /// Removed.
    Remove(PartOf),
    /// Closed, and left to other nodes.
    Release(PartOf),
    /// What nobody has opened of the disk is put aside, whichever parts that are. It goes by the disk's name.
    Keep(PartOf),
}

impl Work {
    pub(crate) fn part(&self) -> &PartOf {
        match self {
            Work::Adopt(part)
            | Work::Make(part)
            | Work::Claim(part)
            | Work::Lengthen(part, _)
            | Work::Look(part)
            | Work::Remove(part)
            | Work::Release(part)
            | Work::Keep(part) => part,
        }
    }
}

/// How a ticket ended: the parts that it made and that were not there before, or why it did not go on.
pub(crate) type Worked = Result<Vec<PartOf>, String>;

/// What a ticket waits for.
enum State {
    /// Its gate, or an earlier ticket.
    Waiting,
    /// A chore that nobody has taken yet.
    Chore(Chore),
    /// A chore that somebody does.
    Away,
    /// The addresses from `at` on are still to be zeroed, by the flow of this number.
    Zeroing {
        at: u64,
        end: u64,
        flow: usize,
    },
    /// The next step is asked for.
    Asking(io::Result<Option<File>>),
    Over(Worked),
}

/// Parts to be made or removed for one disk.
struct Ticket {
    id: u64,
    disk: String,
    works: VecDeque<Work>,
    made: Vec<PartOf>,
    /// The first of its works has begun: the store had something to do.
    begun: bool,
    /// Why it failed: what it has made is removed now.
    failed: Option<String>,
    state: State,
}

/// The tickets that are not over, in the order in which they came.
#[derive(Default)]
pub(crate) struct Tickets {
    all: Vec<Ticket>,
    last: u64,
    /// Parts of disks that were removed; somebody makes a ticket of them.
    retired: Vec<PartOf>,
    /// No more is begun: the node ends.
    closed: bool,
}

impl Ticket {
    /// Its first work is over. A part that was made in it goes if the ticket fails later. One that was there may be a disk's, with all that was
    /// ever written.
    fn over(&mut self, is_new: bool) {
        let work = self.works.pop_front().expect("a step belongs to a work");
        if let (Work::Make(part), true) = (work, self.begun && is_new) {
            self.made.push(part);
        }
    }

    /// Nothing that it made is left; what it found, lengthened or removed stays so. What is still to be removed is, whatever becomes of one part.
    /// `is_new`: what its work concerned was made, and is nobody's.
    fn fail(&mut self, why: &io::Error, is_new: bool) {
        let removes = matches!(self.works.front(), Some(Work::Remove(_) | Work::Keep(_)));
        self.over(is_new);
        if !removes {
            self.works = self.made.drain(..).map(Work::Remove).collect();
        }
        // What was wrong first says more than what was wrong with cleaning up.
        self.failed.get_or_insert(why.to_string());
        self.state = State::Waiting;
    }
}

impl Tickets {
    /// Begins a ticket; its number, by which [`next_worked`](Self::next_worked) names it.
    pub(crate) fn begin(
        &mut self,
        pools: &mut Pools,
        disks: &mut Disks,
        disk: &str,
        works: Vec<Work>,
        now: Instant,
    ) -> u64 {
        self.last += 1;
        let id = self.last;
        let (works, disk) = (works.into(), disk.to_owned());
        let ticket =
            Ticket { id, disk, works, made: Vec::new(), begun: false, failed: None, state: State::Waiting };
        self.all.push(ticket);
        self.work_on(pools, disks, now);
        id
    }

    /// A part of a disk that is removed: nobody uses it any more.
    pub(crate) fn retire(&mut self, part: PartOf) {
        self.retired.push(part);
    }

    /// The parts that were retired since the last time.
    pub(crate) fn retired(&mut self) -> Vec<PartOf> {
        std::mem::take(&mut self.retired)
    }

    /// Something to be done on another thread, and the ticket to name when it is done.
    pub(crate) fn next_chore(&mut self) -> Option<(u64, Chore)> {
        let ticket = self.all.iter_mut().find(|t| matches!(t.state, State::Chore(_)))?;
        let State::Chore(chore) = std::mem::replace(&mut ticket.state, State::Away) else { return None };
        Some((ticket.id, chore))
    }

    /// A ticket's chore is done.
    pub(crate) fn chore_done(
        &mut self,
        pools: &mut Pools,
        disks: &mut Disks,
        id: u64,
        outcome: io::Result<Option<File>>,
        now: Instant,
    ) {
        if let Some(ticket) = self.all.iter_mut().find(|t| t.id == id) {
            ticket.state = State::Asking(outcome);
        }
        self.work_on(pools, disks, now);
    }

    /// A ticket that is over.
    pub(crate) fn next_worked(&mut self) -> Option<(u64, Worked)> {
        let i = self.all.iter().position(|t| matches!(t.state, State::Over(_)))?;
        let ticket = self.all.remove(i);
        let State::Over(worked) = ticket.state else { unreachable!("looked for") };
        Some((ticket.id, worked))
    }

    /// Begins nothing more. What is half made is made anew, or freed, when the node begins again.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Lets every ticket go on that may.
    fn work_on(&mut self, pools: &mut Pools, disks: &mut Disks, now: Instant) {
        let mut i = 0;
        while i < self.all.len() {
            let ticket = &mut self.all[i];
            if let State::Asking(outcome) = &mut ticket.state {
                let outcome = std::mem::replace(outcome, Ok(None));
                let PartOf { gate, name, .. } = ticket.works[0].part();
                let step = pools.gates[*gate].pipeline.backend_mut().go_on(name, outcome);
                self.take_step(pools, disks, i, step, now);
            } else if matches!(ticket.state, State::Waiting) && self.may_begin(i) {
                self.begin_work(pools, disks, i, now);
            } else {
                i += 1;
            }
        }
    }

    /// Whether a ticket's next work is at a gate where no other is under way, and no earlier one is of the same disk.
    fn may_begin(&self, i: usize) -> bool {
        if self.closed {
            return false;
        }
        let ticket = &self.all[i];
        let Some(work) = ticket.works.front() else { return true };
        let others =
            self.all.iter().enumerate().filter(|(n, t)| *n != i && !matches!(t.state, State::Over(_)));
        others.into_iter().all(|(n, other)| {
            let at_gate =
                !matches!(other.state, State::Waiting) && other.works[0].part().gate == work.part().gate;
            !(at_gate || n < i && other.disk == ticket.disk)
        })
    }

    fn begin_work(&mut self, pools: &mut Pools, disks: &mut Disks, i: usize, now: Instant) {
        let ticket = &mut self.all[i];
        let Some(work) = ticket.works.front().cloned() else {
            let made = std::mem::take(&mut ticket.made);
            ticket.state = State::Over(ticket.failed.take().map_or(Ok(made), Err));
            return;
        };
        ticket.begun = false;
        let store = pools.gates[work.part().gate].pipeline.backend_mut();
        let step = match &work {
            Work::Adopt(part) => store.begin_adoption(&part.name),
            Work::Make(part) => begin_part(store, part),
            Work::Lengthen(part, to) => store.begin_growth(&part.name, *to),
            Work::Look(part) => begin_look(store, part),
            Work::Claim(part) => store.begin_claim(&part.name),
            Work::Remove(part) => store.begin_removal(&part.name),
            Work::Release(part) => store.begin_release(&part.name),
            Work::Keep(part) => store.begin_keeping(&part.name),
        };
        self.take_step(pools, disks, i, step, now);
    }

    fn take_step(
        &mut self,
        pools: &mut Pools,
        disks: &mut Disks,
        i: usize,
        step: io::Result<Step>,
        now: Instant,
    ) {
        let work = &self.all[i].works[0];
        let store = pools.gates[work.part().gate].pipeline.backend_mut();
        let is_new = store.is_new(&work.part().name);
        if let (Work::Make(part), true) = (work, step.is_err() && !is_new) {
            store.forget_part(&part.name);
        }
        let ticket = &mut self.all[i];
        match step {
            Ok(Step::There(_)) => {
                ticket.over(is_new);
                ticket.state = State::Waiting;
            }
            Ok(Step::Run(chore)) => {
                (ticket.begun, ticket.state) = (true, State::Chore(chore));
            }
            Ok(Step::Zero { from, len }) => {
                ticket.begun = true;
                self.begin_zeroing(pools, disks, i, from, len, now);
            }
            Err(e) => ticket.fail(&e, is_new),
        }
    }

    fn begin_zeroing(
        &mut self,
        pools: &mut Pools,
        disks: &mut Disks,
        i: usize,
        from: u64,
        len: u64,
        now: Instant,
    ) {
        let gate = self.all[i].works[0].part().gate;
        let flow = disks.take_number();
        let known =
            pools.gates[gate].pipeline.gate_mut().set_flow(flow_of(flow), &Contract::weighted(1), now);
        let known = known.or_else(|_| {
            pools.gates[gate].pipeline.gate_mut().set_flow(flow_of(flow), &Contract::best_effort(), now)
        });
        if let Err(refused) = known {
            disks.give_number(flow);
            self.all[i].state = State::Asking(Err(io::Error::other(refused.to_string())));
            return;
        }
        self.all[i].state = State::Zeroing { at: from, end: from + len, flow };
        self.zero_piece(pools, disks, i, now);
    }

    /// Hands the next piece to the gate, or goes on when there is none.
    fn zero_piece(&mut self, pools: &mut Pools, disks: &mut Disks, i: usize, now: Instant) {
        let ticket = &mut self.all[i];
        let State::Zeroing { at, end, flow } = &mut ticket.state else { return };
        let (gate, flow) = (ticket.works[0].part().gate, *flow);
        if *at == *end {
            ticket.state = State::Asking(Ok(None));
            return self.end_zeroing(pools, disks, gate, flow, now);
        }
        let len = PIECE.min(*end - *at);
        let mut request = Request::new(RequestId::default(), flow_of(flow), Op::WriteZeroes, *at, len, now);
        request.administration = true;
        *at += len;
        let state = &mut pools.gates[gate];
        let part = PartId { command: RequestId::default(), index: 0 };
        let sub_request = SubRequest {
            disk: flow as u32,
            part,
            scratch: None,
            extra: 0,
            copied: 0,
            parts: 1,
            seq: 0,
            older: None,
            newer: None,
        };
        state.submitted += 1;
        request.id = state.sub_requests.insert(sub_request);
        let taken = state.pipeline.submit(request, Buffer::empty(), now);
        assert!(taken.is_ok(), "one request of a flow is never too much");
        pools.list(gate);
    }

    fn end_zeroing(&mut self, pools: &mut Pools, disks: &mut Disks, gate: usize, flow: usize, now: Instant) {
        let mut orphans = Vec::new();
        pools.gates[gate].pipeline.gate_mut().remove_flow(flow_of(flow), now, &mut orphans);
        assert!(orphans.is_empty(), "its last piece is over");
        disks.give_number(flow);
    }

    /// A request is over; whether it was a piece of some zeroing, which then has gone on.
    pub(super) fn zeroed(
        &mut self,
        pools: &mut Pools,
        disks: &mut Disks,
        gate: usize,
        disk: u32,
        outcome: Result<(), Fault>,
        now: Instant,
    ) -> bool {
        let of = |t: &Ticket| matches!(t.state, State::Zeroing { flow, .. } if flow == disk as usize);
        let Some(i) = self.all.iter().position(of) else { return false };
        match outcome {
            Ok(()) if self.closed => self.all[i].state = State::Away,
            Ok(()) => self.zero_piece(pools, disks, i, now),
            Err(fault) => {
                self.end_zeroing(pools, disks, gate, disk as usize, now);
                self.all[i].state = State::Asking(Err(io::Error::other(format!("zeroing failed: {fault}"))));
            }
        }
        self.work_on(pools, disks, now);
        true
    }
}

fn begin_part(store: &mut dyn Store, part: &PartOf) -> io::Result<Step> {
    // Where it is kept is looked for when it is opened. Elsewhere it was adopted before.
    if part.adopt && store.opens_elsewhere() {
        store.adopt_part(&part.name)?;
    }
    if !part.origin.is_default() {
        store.set_origin(&part.name, &part.origin)?;
    }
    if let Some(claim) = &part.claim {
        store.claim_part(&part.name, claim)?;
    }
    store.begin_part(&part.name, part.len)
}

fn begin_look(store: &mut dyn Store, part: &PartOf) -> io::Result<Step> {
    if !part.origin.is_default() {
        store.set_origin(&part.name, &part.origin)?;
    }
    store.begin_look(&part.name, part.len)
}

fn flow_of(number: usize) -> FlowId {
    FlowId(number as u32)
}

#[cfg(test)]
mod tests;
