//! A recorded run, dispatched again.
//!
//! From *arrivals and completions* the gates must dispatch every request when they did: the device is replaced by
//! one that completes exactly when it was recorded to. From *arrivals alone* the device is the scenario's model,
//! and latencies can be compared. There are no clients in either: what they sent is what was recorded.
//!
//! A recording holds what was answered; a request that was still waiting when it ended had its effect and is not
//! there. So recordings that are to be repeated exactly let the load end before the recording does.
//!
//! Equal instants are settled by the order of rows (completions) and by `seq`: where it counts what its gate saw
//! before, completions included, the difference to the rank among submissions says how many of those; where it
//! counts submissions alone, submissions come first at equal instants, as both drivers do it.

use crate::interrupted::Interrupted;
use crate::{SimError, World};
use henge_core::{
    Contract, Cost, Dispatch, Finished, FlowId, Gate, Histogram, Instant, Op, Pending, Pipeline, Request,
    RequestId, RequestRow,
};
use std::collections::BTreeMap;

/// A row that owns its flow's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    flow: u32,
    op: Op,
    offset: u64,
    len: u64,
    arrival: Instant,
    dispatch: Instant,
    completion: Instant,
    seq: u64,
    parts: u32,
    foreign: u64,
}

/// What is fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feed {
    /// Arrivals; the scenario's devices serve them.
    Arrivals,
    /// Arrivals and completions.
    Completions,
}

/// One flow, then and now.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// Latencies as recorded.
    pub then: Histogram,
    /// Latencies here.
    pub now: Histogram,
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// Requests fed.
    pub requests: u64,
    /// Of them dispatched when they were.
    pub same: u64,
    /// The first that was not, in words.
    pub first: Option<String>,
    /// By flow.
    pub flows: Vec<Compared>,
    /// Every request as it went here, by gate in order of completion.
    pub rows: String,
}

/// Rows by gate, in the order of the file.
#[derive(Default)]
pub struct Recording {
    gates: BTreeMap<u32, Vec<Recorded>>,
    names: Vec<String>,
}

impl Recording {
    /// Adds a line of the file.
    pub fn push(&mut self, row: &RequestRow<'_>) {
        let flow = self.names.iter().position(|n| n == row.flow).unwrap_or_else(|| {
            self.names.push(row.flow.to_owned());
            self.names.len() - 1
        });
        let RequestRow { op, offset, len, arrival, dispatch, completion, seq, parts, foreign, .. } = *row;
        let recorded = Recorded {
            flow: flow as u32,
            op,
            offset,
            len,
            arrival,
            dispatch,
            completion,
            seq,
            parts,
            foreign,
        };
        self.gates.entry(row.gate).or_default().push(recorded);
    }
}

impl World {
    /// Dispatches a recording with this scenario's gates; its loads stay silent.
    pub fn replay(self, recording: &Recording, feed: Feed) -> Result<Replayed, SimError> {
        let mut flows = Vec::new();
        for name in &recording.names {
            let known = self.flows.iter().position(|f| f.name == *name);
            let why = || "it was recorded, but the scenario has no such flow".to_owned();
            flows.push(known.ok_or_else(|| SimError::Load { flow: name.clone(), why: why() })? as u32);
        }
        let mut replayed = Replayed {
            flows: self
                .flows
                .iter()
                .map(|f| Compared { name: f.name.clone(), ..Compared::default() })
                .collect(),
            ..Replayed::default()
        };
        let contracts: Vec<Contract> = self.flows.iter().map(|f| f.meter.outcome.contract.clone()).collect();
        let mut gates: Vec<Option<Pipeline<Interrupted>>> =
            self.gates.into_iter().map(|g| Some(g.pipeline)).collect();
        for (&number, rows) in &recording.gates {
            let pipeline = gates.get_mut(number as usize).and_then(Option::take);
            let Some(mut pipeline) = pipeline else {
                let why = format!("gate {number} was recorded, but the scenario has {}", gates.len());
                return Err(SimError::Load { flow: recording.names[0].clone(), why });
            };
            // A part of the rows is from a flow that lies elsewhere, if the recording is of another scenario.
            for row in rows {
                let flow = flows[row.flow as usize];
                if pipeline.gate().contract(FlowId(flow)).is_none() {
                    pipeline
                        .gate_mut()
                        .set_flow(FlowId(flow), &contracts[flow as usize], Instant::ZERO)
                        .map_err(|refused| SimError::Refused {
                            flow: recording.names[row.flow as usize].clone(),
                            refused,
                        })?;
                }
            }
            let mut again =
                Again { number, rows, flows: &flows, names: &recording.names, pending: Pending::new() };
            match feed {
                Feed::Arrivals => again.arrivals(&mut pipeline, &mut replayed),
                Feed::Completions => again.completions(pipeline.gate_mut(), &mut replayed),
            }
        }
        Ok(replayed)
    }
}

/// One gate's rows, going again.
struct Again<'a> {
    number: u32,
    rows: &'a [Recorded],
    flows: &'a [u32],
    names: &'a [String],
    /// Which row a request is.
    pending: Pending<usize>,
}

impl Again<'_> {
    fn request(&mut self, i: usize) -> Request {
        let row = &self.rows[i];
        let flow = FlowId(self.flows[row.flow as usize]);
        let id = self.pending.insert(i);
        let commands = (Request::WHOLE / row.parts).max(1);
        let foreign = Cost::new(row.foreign);
        Request { commands, foreign, ..Request::new(id, flow, row.op, row.offset, row.len, row.arrival) }
    }

    /// Row numbers in order of submission.
    fn submissions(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by_key(|&i| (self.rows[i].arrival, self.rows[i].seq, i));
        order
    }

    fn note(&self, i: usize, dispatch: Instant, completion: Instant, into: &mut Replayed) {
        let row = &self.rows[i];
        let flow = &mut into.flows[self.flows[row.flow as usize] as usize];
        flow.then.record(row.completion.since(row.arrival));
        flow.now.record(completion.since(row.arrival));
        into.requests += 1;
        into.same += u64::from(dispatch == row.dispatch);
        if dispatch != row.dispatch && into.first.is_none() {
            into.first = Some(format!(
                "gate {}, request {} of {}: dispatched at {dispatch:?}, recorded {:?}",
                self.number, row.seq, self.names[row.flow as usize], row.dispatch
            ));
        }
        RequestRow {
            flow: &self.names[row.flow as usize],
            op: row.op,
            offset: row.offset,
            len: row.len,
            arrival: row.arrival,
            dispatch,
            completion,
            gate: self.number,
            seq: row.seq,
            parts: row.parts,
            foreign: row.foreign,
        }
        .write(&mut into.rows);
    }

    /// The device is the model.
    fn arrivals(&mut self, pipeline: &mut Pipeline<Interrupted>, into: &mut Replayed) {
        let order = self.submissions();
        let mut next = order.iter().copied().peekable();
        loop {
            let arrival = next.peek().map(|&i| self.rows[i].arrival);
            let Some(now) = [arrival, pipeline.wake_at()].into_iter().flatten().min() else { return };
            while let Some(i) = next.next_if(|&i| self.rows[i].arrival <= now) {
                let request = self.request(i);
                if let Err(rejected) = pipeline.submit(request, (), now) {
                    self.pending.remove(rejected.request.id);
                }
            }
            while let Some(Finished { served, .. }) = pipeline.poll(now) {
                let i = self.pending.remove(served.request.id).expect("it was submitted here");
                self.note(i, served.dispatched, now, into);
            }
        }
    }

    /// The device completes when it did.
    fn completions(&mut self, gate: &mut Gate, into: &mut Replayed) {
        let order = self.submissions();
        // Counted alone, submissions reach little beyond the number of rows (a few may be missing); with completions,
        // twice as far.
        let most = order.iter().map(|&i| self.rows[i].seq).max().unwrap_or(0);
        let counts_completions = most > self.rows.len() as u64 * 5 / 4;
        // Where a request is: not dispatched yet, or in flight under an id since an instant.
        let mut flight: Vec<Option<(RequestId, Instant)>> = vec![None; self.rows.len()];
        let (mut submitted, mut completed) = (0, 0);
        let mut now = Instant::ZERO;
        while completed < self.rows.len() {
            let submission = order.get(submitted).map(|&i| (i, &self.rows[i]));
            let completion = &self.rows[completed];
            let submit = submission.is_some_and(|(_, row)| match counts_completions {
                true => row.seq - submitted as u64 <= completed as u64,
                false => row.arrival <= completion.completion,
            });
            let at = if submit { self.rows[order[submitted]].arrival } else { completion.completion };
            // What the gate does by itself in between (limits, windows).
            while let Some(wake) = gate.wake_at().filter(|wake| *wake > now && *wake < at) {
                now = wake;
                self.dispatch(gate, now, &mut flight);
            }
            now = now.max(at);
            if submit {
                let i = order[submitted];
                submitted += 1;
                let request = self.request(i);
                if let Err(full) = gate.submit(request, now) {
                    self.pending.remove(full.request.id);
                }
            } else if let Some((id, dispatched)) = flight[completed] {
                gate.complete(id, false, now);
                self.pending.remove(id);
                self.note(completed, dispatched, now, into);
                completed += 1;
            } else {
                // It was not even dispatched when it was recorded to be over: from here on nothing agrees.
                self.note(completed, now, now, into);
                into.requests += (self.rows.len() - completed - 1) as u64;
                return;
            }
            // All that come at one instant are in the queue before the first is chosen.
            let more = order.get(submitted).is_some_and(|&j| {
                let row = &self.rows[j];
                row.arrival == now && (!counts_completions || row.seq - submitted as u64 <= completed as u64)
            });
            if !more {
                self.dispatch(gate, now, &mut flight);
            }
        }
    }

    fn dispatch(&self, gate: &mut Gate, now: Instant, flight: &mut [Option<(RequestId, Instant)>]) {
        while let Dispatch::Ready(request) = gate.next(now) {
            let i = *self.pending.get(request.id).expect("it was submitted here");
            flight[i] = Some((request.id, now));
        }
    }
}
