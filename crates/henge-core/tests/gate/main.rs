//! The gate's own rules, with the plainest scheduler there is.

mod demand;
mod durable;
mod exchange;
mod idle;
mod passing;
mod pen;
mod slots;

use henge_core::*;
use std::collections::VecDeque;

#[derive(Default)]
struct Plain {
    queue: VecDeque<Request>,
    refuse: bool,
    corrected: u64,
}

impl Scheduler for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }
    fn keeps(&self) -> Keeps {
        Keeps::default()
    }
    fn check(&self, _: FlowId, contract: &Contract) -> Result<(), Refused> {
        if self.refuse && contract.latency.is_some() {
            return Err(Refused::unsupported("plain", "latency", "edf"));
        }
        Ok(())
    }
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, _: Instant) -> Result<(), Refused> {
        self.check(flow, contract)
    }
    fn remove_flow(&mut self, flow: FlowId, _: Instant, orphans: &mut Vec<Request>) {
        orphans.extend(self.queue.iter().filter(|r| r.flow == flow));
        self.queue.retain(|r| r.flow != flow);
    }
    fn enqueue(&mut self, request: Request, _: Instant) {
        self.queue.push_back(request);
    }
    fn cancel(&mut self, id: RequestId, _: Instant) -> Option<Request> {
        let at = self.queue.iter().position(|r| r.id == id)?;
        self.queue.remove(at)
    }
    fn dispatch(&mut self, _: Instant, _: Slots) -> Dispatch {
        self.queue.pop_front().map_or(Dispatch::Idle, Dispatch::Ready)
    }
    fn complete(&mut self, completion: &Completion, _: Instant) {
        self.corrected += completion.actual.get();
    }
    fn adjust(&mut self, _: &Request, _: Cost, _: Instant) {}
    fn queued(&self) -> usize {
        self.queue.len()
    }
    fn drain(&mut self, into: &mut Vec<Request>) {
        into.extend(self.queue.drain(..));
    }
}

struct Bytes;
impl CostModel for Bytes {
    fn unit(&self) -> CostUnit {
        CostUnit::Bytes
    }
    fn estimate(&mut self, request: &Request) -> Cost {
        Cost::new(request.len.max(1))
    }
}

struct Fixed(u32);
impl DepthController for Fixed {
    fn depth(&self) -> u32 {
        self.0
    }
}

const FLOW: FlowId = FlowId(0);

fn parts(depth: u32, refuse: bool) -> Assembly {
    let scheduler = Box::new(Plain { refuse, ..Plain::default() });
    Assembly { cost: Box::new(Bytes), scheduler, depth: Box::new(Fixed(depth)) }
}

fn gate(depth: u32, contract: &Contract) -> Gate {
    let mut gate = Gate::new(parts(depth, false));
    gate.set_flow(FLOW, contract, Instant::ZERO).unwrap();
    gate
}

fn ms(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}

fn submit(gate: &mut Gate, ids: &mut Pending<()>, now: Instant) -> Result<RequestId, Full> {
    let id = ids.insert(());
    gate.submit(Request::new(id, FLOW, Op::Read, 0, 4096, now), now).map(|()| id)
}

#[test]
fn no_more_than_the_depth_is_in_flight() {
    let (mut gate, mut ids) = (gate(2, &Contract::best_effort()), Pending::new());
    let first = submit(&mut gate, &mut ids, ms(0)).unwrap();
    submit(&mut gate, &mut ids, ms(0)).unwrap();
    submit(&mut gate, &mut ids, ms(0)).unwrap();
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(r) if r.id == first));
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(_)));
    assert_eq!(gate.next(ms(0)), Dispatch::Wait { until: None, reason: WaitReason::DeviceBusy });
    assert_eq!(gate.waiting(FLOW, ms(0)), Some(WaitReason::DeviceBusy));
    gate.complete(first, false, ms(3));
    assert!(matches!(gate.next(ms(3)), Dispatch::Ready(_)));
    assert_eq!(gate.next(ms(3)), Dispatch::Idle);
    assert_eq!(gate.waiting(FLOW, ms(3)), None);
}

#[test]
fn a_full_flow_gets_its_request_back_and_room_when_one_is_over() {
    let contract = Contract { pending: Some(2), ..Contract::best_effort() };
    let (mut gate, mut ids) = (gate(1, &contract), Pending::new());
    let first = submit(&mut gate, &mut ids, ms(0)).unwrap();
    submit(&mut gate, &mut ids, ms(0)).unwrap();
    let full = submit(&mut gate, &mut ids, ms(0)).unwrap_err();
    assert_eq!(full.pending, 2);
    assert!(!gate.has_capacity(FLOW));
    assert!(gate.cancel(first, ms(1)).is_some());
    assert!(gate.has_capacity(FLOW));
    assert!(gate.cancel(first, ms(1)).is_none(), "it is gone already");
    assert_eq!(gate.flow_meters(FLOW).unwrap().full, 1);
    assert_eq!(gate.flow_meters(FLOW).unwrap().cancelled, 1);
}

#[test]
fn latency_is_wait_plus_service_and_disk_time_is_the_interval() {
    let contract = Contract {
        latency: Some(Latency { bound: Duration::from_millis(8), percentile: 950_000 }),
        ..Contract::best_effort()
    };
    let (mut gate, mut ids) = (gate(2, &contract), Pending::new());
    let a = submit(&mut gate, &mut ids, ms(0)).unwrap();
    let b = submit(&mut gate, &mut ids, ms(0)).unwrap();
    while let Dispatch::Ready(_) = gate.next(ms(1)) {}
    assert_eq!(gate.complete(a, false, ms(6)).disk_time, Duration::from_millis(5));
    let served = gate.complete(b, true, ms(10));
    assert_eq!(served.disk_time, Duration::from_millis(4), "since the completion before it");
    let meters = gate.flow_meters(FLOW).unwrap();
    assert_eq!((meters.completed.requests, meters.faults, meters.late), (2, 1, 1));
    assert_eq!(meters.wait_time(), Duration::from_millis(2));
    assert_eq!(meters.completed.service_time, Duration::from_millis(5 + 9));
    assert_eq!(meters.latency.max(), Some(Duration::from_millis(10)));
    assert_eq!(gate.meters(ms(20)).busy, Duration::from_millis(9));
}

#[test]
fn a_removed_flow_gives_back_what_waits_and_ends_when_its_last_request_is_over() {
    let (mut gate, mut ids) = (gate(1, &Contract::best_effort()), Pending::new());
    let running = submit(&mut gate, &mut ids, ms(0)).unwrap();
    let waiting = submit(&mut gate, &mut ids, ms(0)).unwrap();
    gate.next(ms(0));
    let mut orphans = Vec::new();
    gate.remove_flow(FLOW, ms(1), &mut orphans);
    assert_eq!(orphans.iter().map(|r| r.id).collect::<Vec<_>>(), [waiting]);
    assert_eq!(gate.flows().count(), 0);
    assert!(gate.flow_meters(FLOW).is_some(), "one is still in flight");
    gate.complete(running, false, ms(2));
    assert!(gate.flow_meters(FLOW).is_none());
}

#[test]
#[should_panic(expected = "not in flight")]
fn completing_twice_is_the_callers_error() {
    let (mut gate, mut ids) = (gate(1, &Contract::best_effort()), Pending::new());
    let id = submit(&mut gate, &mut ids, ms(0)).unwrap();
    gate.next(ms(0));
    gate.complete(id, false, ms(1));
    gate.complete(id, false, ms(1));
}

#[test]
fn whoever_begins_or_ceases_to_wait_is_dirty() {
    let (mut gate, mut ids) = (gate(1, &Contract::best_effort()), Pending::new());
    let is_dirty = |gate: &mut Gate| gate.take_dirty().may_have(FLOW);
    assert!(!is_dirty(&mut gate));
    let first = submit(&mut gate, &mut ids, ms(0)).unwrap();
    assert!(is_dirty(&mut gate), "it began to wait");
    assert!(!is_dirty(&mut gate), "that was said");
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(_)));
    assert!(is_dirty(&mut gate), "it ceased");
    submit(&mut gate, &mut ids, ms(1)).unwrap();
    assert!(is_dirty(&mut gate));
    let third = submit(&mut gate, &mut ids, ms(1)).unwrap();
    assert!(!is_dirty(&mut gate), "it waited before");
    gate.complete(first, false, ms(2));
    assert!(!is_dirty(&mut gate), "what is over did not wait");
    assert!(matches!(gate.next(ms(2)), Dispatch::Ready(_)));
    assert!(!is_dirty(&mut gate), "another one of its waits");
    assert!(gate.cancel(third, ms(3)).is_some());
    assert!(is_dirty(&mut gate));
    assert!(!gate.take_dirty().may_have(FlowId(1)));
}
