//! A device that serves several requests at once, behind a gate, with closed loops: for the tests of depths.

use crate::trial::text;
use henge_core::{Contract, Dispatch, FlowId, Gate, Instant, Op, Params, Pending, Request, RequestId, Value};
use std::collections::{BTreeSet, VecDeque};

/// Weights alone.
pub(super) fn weighted(weights: &[u32]) -> Vec<Contract> {
    weights.iter().map(|weight| Contract::weighted(*weight)).collect()
}

/// Serves `parallel` at once, each in its time; more wait at the device, first come first served.
pub(super) struct Device {
    pub parallel: usize,
    pub time: fn(Op, u64) -> u64,
    queue: VecDeque<(RequestId, u64)>,
    serving: BTreeSet<(u64, RequestId)>,
}

/// A flow that always has so many outstanding of this kind.
pub(super) type Client = (u32, usize, Op, u64);

/// By flow: how many were over in the second half, and the latencies of those in ns, ascending.
pub(super) fn run(
    scheduler: &str,
    settings: &[(&str, &str)],
    contracts: &[Contract],
    device: Device,
    clients: &[Client],
    ms: u64,
) -> Vec<(usize, Vec<u64>)> {
    let params = settings.iter().fold(Params::new(scheduler), |p, (key, value)| match value.parse() {
        Ok(n) => p.with(key, Value::Integer(n)),
        Err(_) if *value == "kept with shares" => {
            let shares = Params::new("kept").with("shares", Value::Bool(true));
            p.with(key, Value::Table(Params::new("depth").with("kept", Value::Table(shares))))
        }
        Err(_) => p.with(key, text(value)),
    });
    let mut gate = Gate::new(crate::build(scheduler, params).unwrap_or_else(|e| panic!("{e}")));
    for (flow, contract) in contracts.iter().enumerate() {
        gate.set_flow(FlowId(flow as u32), contract, Instant::ZERO).unwrap_or_else(|e| panic!("{e}"));
    }
    let (mut device, mut ids, mut now) = (device, Pending::new(), 0u64);
    let mut over = vec![(0, Vec::new()); contracts.len()];
    let at = Instant::from_nanos;
    let submit = |gate: &mut Gate, ids: &mut Pending<Client>, client: Client, now: u64| {
        let id = ids.insert(client);
        let request = Request::new(id, FlowId(client.0), client.2, 0, client.3, at(now));
        gate.submit(request, at(now)).unwrap();
    };
    for client in clients {
        (0..client.1).for_each(|_| submit(&mut gate, &mut ids, *client, 0));
    }
    while now < ms * 1_000_000 {
        while let Dispatch::Ready(request) = gate.next(at(now)) {
            device.queue.push_back((request.id, (device.time)(request.op, request.len)));
        }
        while device.serving.len() < device.parallel && !device.queue.is_empty() {
            let (id, time) = device.queue.pop_front().unwrap();
            device.serving.insert((now + time, id));
        }
        let Some((done, id)) = device.serving.pop_first() else {
            // All that is wanted is held back.
            now = gate.wake_at().expect("clients always want something").as_nanos().max(now + 1);
            continue;
        };
        now = done;
        let served = gate.complete(id, false, at(now));
        let client = ids.remove(id).unwrap();
        if now > ms * 500_000 {
            let (count, latencies) = &mut over[client.0 as usize];
            *count += 1;
            latencies.push(now - served.request.arrival.as_nanos());
        }
        submit(&mut gate, &mut ids, client, now);
    }
    over.iter_mut().for_each(|(_, latencies)| latencies.sort_unstable());
    over
}

pub(super) fn device(parallel: usize, time: fn(Op, u64) -> u64) -> Device {
    Device { parallel, time, queue: Default::default(), serving: BTreeSet::new() }
}

/// Flash-like: a read takes 80 us, a write of 128 KiB (what commands are cut to) 250 us, a trim 2 ms.
pub(super) fn flash(op: Op, len: u64) -> u64 {
    match op {
        Op::Trim => 2_000_000,
        Op::Write => 30_000 + len * 7 / 4,
        _ => 60_000 + len * 5,
    }
}
