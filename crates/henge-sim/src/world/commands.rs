//! A client's command: cut into parts, submitted, answered when all are over.

use super::state::PartOf;
use super::{Command, Observer, SimEvent, World, waiting};
use crate::SimError;
use crate::meter::{Answered, Submitted};
use crate::net::Tag;
use henge_core::{Cost, Duration, Finished, FlowId, Instant, Op, Request, RequestId, RequestRow};
use henge_sched::foreign;
use henge_vdisk::{DeviceRange, GateId, Layout};
use henge_workload::{Next, Record};

impl World {
    /// Lets a client send whatever it may send now.
    pub(super) fn send(&mut self, c: u32, now: Instant) -> Result<(), SimError> {
        loop {
            let client = &mut self.clients[c as usize];
            if client.ended || !self.flows[client.flow].present {
                return Ok(());
            }
            match client
                .load
                .next(now)
                .map_err(|error| SimError::load(&self.flows[client.flow].name, &error))?
            {
                Next::Issue { record, thread } => self.issue(c, thread, record, now)?,
                Next::At(at) => {
                    // At the end of time nothing is sent any more.
                    let at = at.max(now + Duration::from_nanos(1));
                    if client.wake != Some(at) {
                        client.wake = Some(at);
                        self.agenda.enter(at, SimEvent::Client(c));
                    }
                    return Ok(());
                }
                Next::Full => return Ok(()),
                Next::End => {
                    client.ended = client.load.outstanding() == 0;
                    return Ok(());
                }
            }
        }
    }

    /// Cuts a command into parts and submits them.
    pub(super) fn issue(
        &mut self,
        c: u32,
        thread: u32,
        record: Record,
        now: Instant,
    ) -> Result<(), SimError> {
        let client = &self.clients[c as usize];
        let flow = client.flow;
        let Record { op, offset, len, .. } = record;
        if record.end() > client.layout.capacity() {
            return Err(SimError::beyond(&self.flows[flow].name, &record, client.layout.capacity()));
        }
        cut(&client.layout, op, offset, len, &mut self.commands.ranges);
        let gates = &self.gates;
        shorten(&mut self.commands.ranges, op, |gate| gates[gate.index()].quantum);
        let counts = len.div_ceil(self.commands.piece).max(1);
        let asked = Submitted {
            arrival: record.at,
            pending: 0,
            tag: None,
            bytes: len,
            read: op == Op::Read,
            commands: counts * u64::from(Request::WHOLE),
        };
        let asked = self.flows[flow].meter.submitted(asked, now);
        let parts = self.commands.ranges.len() as u32;
        let extent = foreign::Extent { offset, len };
        let command = self.commands.pending.insert(Command {
            client: c,
            thread,
            asked,
            extent,
            left: parts,
            failed: false,
        });
        let ranges = std::mem::take(&mut self.commands.ranges);
        for (i, extent) in ranges.iter().enumerate() {
            // The parts of a command are charged as one; what does not divide falls to the first.
            let whole = counts * u64::from(Request::WHOLE);
            let share = whole / u64::from(parts) + if i == 0 { whole % u64::from(parts) } else { 0 };
            let request = Request {
                commands: u32::try_from(share).expect("a command counts less than 4000 times"),
                ..Request::new(RequestId::default(), FlowId(flow as u32), op, extent.offset, extent.len, now)
            };
            self.submit(extent.gate.0, thread, request, command, parts, now);
        }
        self.commands.ranges = ranges;
        self.answer_if_over(command, Duration::ZERO, Duration::ZERO, now);
        Ok(())
    }

    pub(super) fn submit(
        &mut self,
        g: u32,
        thread: u32,
        mut request: Request,
        command: RequestId,
        parts: u32,
        now: Instant,
    ) {
        if let Some(rate) = self.flows[request.flow.index()].meter.outcome.contract.rate {
            self.components.came(g, &request, rate.unit, now);
        }
        let gate = &mut self.gates[g as usize];
        let unit = gate.pipeline.gate().cost_unit();
        let batch;
        (request.foreign, batch) = self.net.piggyback(thread, g, &request, unit);
        let client = self.commands.pending.get(command).expect("its command was just entered").client;
        let striping = self.clients[client as usize].striping.as_ref();
        self.net.arrived(g, &request, striping, now);
        request.id = gate.parts.insert(PartOf { command, seq: gate.seen, parts });
        gate.seen += 1;
        self.commands.requests += 1;
        if gate.pipeline.submit(request, (), now).is_err() {
            gate.parts.remove(request.id);
            self.lose(command);
        } else if let Some((at, tag)) = self.net.relay(g, &request, now) {
            match at > now {
                true => self.agenda.enter(at, SimEvent::Tag(self.net.send_tag(tag))),
                false => self.retag(tag, now),
            }
        }
        let waiting = waiting(self.gates[g as usize].pipeline.gate(), request.flow.0);
        self.watch.submitted(request.flow.0, waiting, batch);
        self.touch(g);
    }

    /// A gate hears of a finish time that was made centrally.
    pub(super) fn retag(&mut self, tag: Tag, now: Instant) {
        let gate = self.gates[tag.gate as usize].pipeline.gate_mut();
        if gate.retag(tag.id, tag.lead, now) {
            self.touch(tag.gate);
        } else {
            self.net.traffic.tags_late += 1;
        }
    }

    /// A part will never be served.
    pub(super) fn lose(&mut self, command: RequestId) {
        let command = self.commands.pending.get_mut(command).expect("a part's command is pending");
        command.left -= 1;
        command.failed = true;
    }

    pub(super) fn part_done(
        &mut self,
        g: u32,
        finished: &Finished<()>,
        now: Instant,
        observer: &mut dyn Observer,
    ) -> Result<(), SimError> {
        let Finished { served, outcome, busy, .. } = finished;
        let request = &served.request;
        let gate = &mut self.gates[g as usize];
        let part = gate.parts.remove(request.id).expect("a request that is over was submitted here");
        gate.seen += 1;
        let service = now.since(served.dispatched);
        self.net.over(request);
        self.watch.served(g, request.flow.0, request.cost);
        let command = self.commands.pending.get(part.command).expect("a part's command is pending");
        let striping = self.clients[command.client as usize].striping.as_ref();
        let foreign = self.net.served(g, request, striping, command.extent, now);
        if foreign > Cost::ZERO {
            gate.pipeline.gate_mut().foreign(request.flow, foreign, now);
            self.watch.told(g, request.flow.0, foreign);
        }
        let flow = &mut self.flows[request.flow.index()];
        flow.meter.served(request, served.disk_time, *busy, now);
        if self.warm {
            gate.meter.served(request.flow.index(), request.len, service, busy.unwrap_or_default());
        }
        if observer.wants_rows() {
            observer.row(&RequestRow::new(&flow.name, served, g, part.seq, part.parts));
        }
        let wait = served.dispatched.since(request.arrival);
        let command = self.commands.pending.get_mut(part.command).expect("a part's command is pending");
        command.left -= 1;
        command.failed |= outcome.is_err();
        let client = command.client;
        if self.answer_if_over(part.command, wait, service, now) {
            self.send(client, now)?;
        }
        Ok(())
    }

    /// Answers a command whose parts are all over.
    pub(super) fn answer_if_over(
        &mut self,
        id: RequestId,
        wait: Duration,
        service: Duration,
        now: Instant,
    ) -> bool {
        if self.commands.pending.get(id).is_none_or(|command| command.left > 0) {
            return false;
        }
        let command = self.commands.pending.remove(id).expect("it was just seen");
        let client = &mut self.clients[command.client as usize];
        let answered = Answered { wait, service, failed: command.failed };
        self.flows[client.flow].meter.answered(&command.asked, answered, now);
        client.load.complete(command.thread, now);
        // Commands that fail at once are answered inside `send`, which goes on by itself.
        true
    }
}

/// The parts of a command: one contiguous extent per gate it touches, first touched first.
pub(super) fn cut(layout: &Layout, op: Op, offset: u64, len: u64, into: &mut Vec<DeviceRange>) {
    into.clear();
    if op == Op::Flush || len == 0 {
        let gates = layout.gates().iter();
        into.extend(gates.map(|&gate| DeviceRange { gate, offset: 0, len: 0 }));
        return;
    }
    for (_, piece) in layout.map(offset, len) {
        // Stripes that follow each other on one device are one part.
        match into.iter_mut().find(|e| e.gate == piece.gate && e.offset + e.len == piece.offset) {
            Some(extent) => extent.len += piece.len,
            None => into.push(piece),
        }
    }
}

/// Parts longer than their gate's device is to have at once are cut once more, as a node does; what moves no data goes as it is.
fn shorten(ranges: &mut Vec<DeviceRange>, op: Op, quantum: impl Fn(GateId) -> u64) {
    let moves = matches!(op, Op::Read | Op::Write);
    let mut i = 0;
    while moves && i < ranges.len() {
        let DeviceRange { gate, offset, len } = ranges[i];
        let most = quantum(gate);
        if len > most {
            ranges[i].len = most;
            ranges.insert(i + 1, DeviceRange { gate, offset: offset + most, len: len - most });
        }
        i += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_parts_are_cut_for_their_gates() {
        let part = |gate, offset, len| DeviceRange { gate: GateId(gate), offset, len };
        let quantum = |gate: GateId| if gate == GateId(0) { 100 } else { u64::MAX };
        let whole = [part(0, 50, 250), part(1, 0, 250), part(0, 0, 100), part(0, 7, 101)];
        let mut cut = whole.to_vec();
        shorten(&mut cut, Op::Write, quantum);
        let expected = [
            part(0, 50, 100),
            part(0, 150, 100),
            part(0, 250, 50),
            part(1, 0, 250),
            part(0, 0, 100),
            part(0, 7, 100),
            part(0, 107, 1),
        ];
        assert_eq!(cut, expected);
        let mut left = whole.to_vec();
        shorten(&mut left, Op::Trim, quantum);
        assert_eq!(left, whole);
    }
}
