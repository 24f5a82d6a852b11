//! The way of a command: cut into parts, which meet their gates and come back, and then answered.

#![allow(unsafe_code)] // lends parts of a command's buffer to stores

use super::disk::InFlight;
use super::pools::GateState;
use super::round::REQUEST;
use super::sub_request::SubRequest;
use super::{Answer, Plane, Submitter};
use crate::shards::across::shard_of;
use crate::shards::number::global;
use crate::spread::{INNER, across};
use henge_backend::Buffer;
use henge_core::{Cost, Fault, FlowId, Instant, Op, Request, RequestId};
use henge_vdisk::{Command, Data, Failure, GateId, Gates, Kind, Part};

/// Commands of a disk that are answered in one piece.
const PIECE: u64 = 16;
/// What it takes to look at a command whether it is to be given up, and at its requests: some nanoseconds, as bytes that are copied meanwhile.
const LOOK: u64 = 48;

struct Capacities<'a>(&'a [GateState]);

impl Gates for Capacities<'_> {
    fn has_capacity(&mut self, gate: GateId, flow: FlowId) -> bool {
        self.0[gate.index()].pipeline.gate().has_capacity(flow)
    }
}

impl Plane {
    /// Takes a command in; `has_capacity` was asked before. Its name at the disk.
    pub(crate) fn submit(
        &mut self,
        number: usize,
        command: Command,
        frame: Buffer,
        submitter: Submitter,
        now: Instant,
    ) {
        self.taken_in.commands = self.taken_in.commands.wrapping_add(1);
        let disk = self.disks[number].as_mut().expect("a disk in use is there");
        disk.meters.pending(disk.vdisk.pending(), now);
        let id = disk.vdisk.submit(command).expect("room was asked for before");
        let slot = id.index();
        if disk.in_flight.len() <= slot {
            disk.in_flight.resize_with(slot + 1, || None);
        }
        disk.in_flight[slot] = Some(InFlight { id, frame, submitter, cost: Cost::ZERO });
        self.hand_out(number, now);
        self.collect(number, now);
    }

    /// Hands the disk's parts to their gates, as long as there is room.
    fn hand_out(&mut self, number: usize, now: Instant) {
        let disk = self.disks[number].as_mut().expect("a disk in use is there");
        if disk.spread.is_some() {
            return self.hand_out_extents(number, now);
        }
        while let Some(part) = disk.vdisk.next_part(&mut Capacities(&self.pools.gates)) {
            let Part { id: part_id, gate, mut request, data, .. } = part;
            let g = gate.index();
            let state = &mut self.pools.gates[g];
            let mut copied = 0;
            let (payload, scratch) = match data {
                Data::None => (Buffer::empty(), None),
                Data::Frame { .. } if disk.is_read_elsewhere(part_id.command) => {
                    copied = request.len;
                    (Buffer::empty(), None)
                }
                Data::Frame { at } => {
                    let command = disk.in_flight[part_id.command.index()].as_mut();
                    let frame = &mut command.expect("a pending command has its buffer here").frame;
                    // SAFETY: the frame stays in `in_flight` until the command is finished, which is when all its
                    // parts are done and their loans returned; parts of one command do not overlap; nobody reads
                    // the frame meanwhile. A node that cannot wait for its stores leaks the frames (`abandon`).
                    (unsafe { frame.lend(at as usize, request.len as usize) }, None)
                }
                Data::Scratch(patch) => (Buffer::zeroed(request.len as usize), Some(patch)),
                Data::Compare { .. } => (Buffer::zeroed(request.len as usize), None),
            };
            let extra = if matches!(data, Data::None | Data::Frame { .. }) { 0 } else { payload.capacity() };
            self.memory.count_extra(disk, extra);
            if request.op == Op::Flush {
                let base = disk.bases.iter().find(|(on, _)| *on == gate);
                request.offset = base.expect("a disk knows its gates").1;
            }
            state.submitted += 1;
            let parts = (f64::from(Request::WHOLE) / f64::from(request.commands)).round().max(1.0) as u32;
            let (seq, older) = (state.submitted, disk.newest);
            let sub_request = SubRequest {
                disk: number as u32,
                part: part_id,
                scratch,
                extra,
                copied,
                parts,
                seq,
                older,
                newer: None,
            };
            request.id = state.sub_requests.insert(sub_request);
            disk.newest = Some((gate.0, request.id));
            let taken = state.pipeline.submit(request, payload, now);
            assert!(taken.is_ok(), "the gate said that it had room");
            if let Some(lead) = disk.lead(&request, now) {
                state.pipeline.gate_mut().retag(request.id, lead, now);
            }
            if disk.extent.disk.is_some() && disk.config.contract.rate.is_some() {
                let unit = state.pipeline.gate().cost_unit();
                self.tags.tell(&disk.told_as, global(self.across.here, g), &request, unit);
            }
            state.line_up(g, &mut self.pools.runnable);
            if let Some((g, id)) = older {
                let before = self.pools.gates[g as usize].sub_requests.get_mut(id);
                before.expect("a chain's sub-requests are at gates").newer = disk.newest;
            }
        }
    }

    /// Moves what the disk has finished to the answers. One FLUSH may have been for thousands: they are answered in pieces, in later turns,
    /// and whatever is over meanwhile comes after them.
    pub(crate) fn collect(&mut self, number: usize, now: Instant) {
        if self.round.is_unanswered(number) {
            return;
        }
        let mut disk = self.disks[number].as_mut().expect("a disk in use is there");
        let mut taken = 0;
        while taken < PIECE
            && let Some(finished) = disk.vdisk.next_finished()
        {
            taken += 1;
            let command = disk.in_flight[finished.id.index()].take().expect("a command is finished once");
            let InFlight { frame, submitter, cost, .. } = command;
            if submitter.connection == INNER {
                self.inner_done(submitter.command, finished.outcome, frame, cost);
                disk = self.disks[number].as_mut().expect("a disk in use is there");
                continue;
            }
            if let Some(shard) = shard_of(submitter.connection) {
                across::answer_across(self, shard, submitter.command, finished.outcome, frame, cost);
                disk = self.disks[number].as_mut().expect("a disk in use is there");
                continue;
            }
            disk.meters.not_before(self.observers.metered_since);
            disk.meters.finished(&finished, &disk.config.contract, now);
            if let Some(tap) = &mut self.observers.tap
                && !tap.note(number, &disk.config.name, &finished, now)
            {
                self.observers.tap = None;
            }
            let lead = finished.command.offset % disk.vdisk.settings().align;
            let (at, mut outcome) = (finished.command.offset, finished.outcome);
            if finished.command.kind == Kind::Flush && disk.doubts.connections.remove(&submitter.connection) {
                outcome = outcome.and(Err(Failure::Fault(Fault::Io)));
            }
            self.answers.push(Answer { disk: number, submitter, outcome, frame, lead, at, cost });
        }
        disk.meters.pending(disk.vdisk.pending(), now);
        // The first is what it was called for, and was counted.
        if taken > 1 {
            self.round.spend(REQUEST * (taken - 1));
        }
        if disk.vdisk.has_finished() {
            self.round.put_unanswered(number);
        }
    }

    pub(super) fn done(
        &mut self,
        sub_request: &SubRequest,
        outcome: Result<(), Fault>,
        payload: &Buffer,
        cost: Cost,
        now: Instant,
    ) {
        let number = sub_request.disk as usize;
        self.memory.uncount_extra(self.disks[number].as_mut(), sub_request.extra);
        let disk = self.disks[number].as_mut().expect("a disk in use is there");
        if disk.extent.disk.is_some() {
            let command = disk.in_flight[sub_request.part.command.index()].as_mut();
            command.expect("a pending command has its buffer here").cost += cost;
        }
        let mut outcome = outcome.map_err(Failure::from);
        if let (Some(patch), Ok(())) = (&sub_request.scratch, outcome) {
            let command = disk.in_flight[sub_request.part.command.index()].as_mut();
            let frame = &mut command.expect("a pending command has its buffer here").frame;
            outcome = patch.apply(payload, frame);
        }
        disk.vdisk.part_done(sub_request.part, outcome);
        self.hand_out(number, now);
        self.collect(number, now);
    }

    /// Gives up what a connection has pending at a disk, or one command of it: what waits is cancelled, what is
    /// in flight is over when the storage says so. Each is answered as all commands are.
    pub(crate) fn abort(
        &mut self,
        number: usize,
        connection: RequestId,
        command: Option<RequestId>,
        now: Instant,
    ) {
        let theirs = |submitter: &Submitter| {
            submitter.connection == connection && command.is_none_or(|command| command == submitter.command)
        };
        self.abort_those(number, theirs, now);
    }

    /// The same of commands of these submitters.
    pub(crate) fn abort_those(&mut self, number: usize, theirs: impl Fn(&Submitter) -> bool, now: Instant) {
        let Some(disk) = self.disks.get_mut(number).and_then(Option::as_mut) else { return };
        // No gate sees it, so it counts for the disk's turns.
        self.round.note(number, LOOK * disk.in_flight.len() as u64);
        let in_flight = disk.in_flight.iter().flatten();
        // In the order of their slots, which is theirs.
        let theirs: Vec<RequestId> = in_flight.filter(|f| theirs(&f.submitter)).map(|f| f.id).collect();
        if theirs.is_empty() {
            return;
        }
        for id in &theirs {
            disk.vdisk.abort(*id);
        }
        if disk.spread.is_some() {
            self.abort_parts(number, &theirs, now);
            return self.collect(number, now);
        }
        for (g, id) in self.pools.sub_requests_of(disk, &theirs) {
            // What is in flight stays so, and is over when the storage says it.
            let g = g as usize;
            let Some((request, payload)) = self.pools.gates[g].pipeline.cancel(id, now) else { continue };
            self.disks.of(number).over(&request);
            let sub_request = self.pools.gates[g].sub_requests.remove(id).expect("what waits was submitted");
            self.pools.unchain(&mut self.disks, &sub_request);
            self.pools.list(g);
            self.done(&sub_request, Err(Fault::Cancelled), &payload, Cost::ZERO, now);
        }
        self.hand_out(number, now);
        self.collect(number, now);
    }
}
