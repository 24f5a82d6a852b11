//! The gate's own rules, with the plainest scheduler there is.

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

/// All steps of an exchange that come before the new scheduler takes over, and that.
fn exchange(gate: &mut Gate, parts: Assembly, step: usize, now: Instant) -> Result<(), (FlowId, Refused)> {
    gate.prepare(parts, step);
    while !gate.prepare_step(now)? {}
    gate.take_over(now);
    Ok(())
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
    assert!(!gate.has_room(FLOW));
    assert!(gate.cancel(first, ms(1)).is_some());
    assert!(gate.has_room(FLOW));
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
    assert_eq!((meters.completed, meters.faults, meters.late), (2, 1, 1));
    assert_eq!(meters.wait_time(), Duration::from_millis(2));
    assert_eq!(meters.service_time, Duration::from_millis(5 + 9));
    assert_eq!(meters.latency.max(), Some(Duration::from_millis(10)));
    assert_eq!(gate.meters(ms(20)).busy, Duration::from_millis(9));
}

#[test]
fn an_exchange_moves_what_waits_and_forgets_no_one_in_flight() {
    let (mut gate, mut ids) = (gate(1, &Contract::best_effort()), Pending::new());
    let running = submit(&mut gate, &mut ids, ms(0)).unwrap();
    let waiting = submit(&mut gate, &mut ids, ms(0)).unwrap();
    gate.next(ms(0));
    exchange(&mut gate, parts(1, false), 1, ms(1)).unwrap();
    assert_eq!((gate.queued(), gate.in_flight()), (1, 1));
    assert_eq!(gate.next(ms(1)), Dispatch::Wait { until: None, reason: WaitReason::DeviceBusy });
    gate.complete(running, false, ms(2));
    assert!(matches!(gate.next(ms(2)), Dispatch::Ready(r) if r.id == waiting));
}

#[test]
fn a_refused_exchange_leaves_the_old_scheduler_in_place() {
    let latency = Some(Latency { bound: Duration::from_millis(8), percentile: 950_000 });
    let (mut gate, mut ids) = (gate(1, &Contract { latency, ..Contract::default() }), Pending::new());
    let waiting = submit(&mut gate, &mut ids, ms(0)).unwrap();
    let (flow, refused) = exchange(&mut gate, parts(1, true), 1, ms(1)).unwrap_err();
    assert_eq!((flow, refused.term), (FLOW, "latency"));
    assert!(matches!(gate.next(ms(1)), Dispatch::Ready(r) if r.id == waiting));
}

/// A gate of a hundred flows with one request each.
fn hundred() -> (Gate, Pending<()>) {
    let (mut gate, mut ids) = (gate(1000, &Contract::best_effort()), Pending::new());
    for flow in 0..100 {
        gate.set_flow(FlowId(flow), &Contract::best_effort(), ms(0)).unwrap();
        let id = ids.insert(());
        gate.submit(Request::new(id, FlowId(flow), Op::Read, 0, 4096, ms(0)), ms(0)).unwrap();
    }
    (gate, ids)
}

#[test]
fn an_exchange_looks_at_so_many_flows_at_a_time_and_the_old_scheduler_goes_on() {
    let (mut gate, _) = hundred();
    gate.prepare(parts(1000, false), 10);
    for step in 1..=10 {
        assert_eq!(gate.prepare_step(ms(0)).unwrap(), step == 10, "100 flows in steps of 10");
    }
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(r) if r.flow == FlowId(0)));
    gate.take_over(ms(0));
    // Each time that it is asked, ten flows move, and one of the others leaves by the old scheduler: the first of those that
    // are left in it, which are in the order of their numbers.
    for moved in (10..100).step_by(10) {
        let old = gate.next(ms(0));
        assert!(matches!(old, Dispatch::Ready(r) if r.flow == FlowId(moved)), "{old:?} after {moved}");
        assert!(gate.is_exchanging() && gate.wake_at() == Some(ms(0)), "it asks to be asked again");
    }
    let new = gate.next(ms(0));
    assert!(matches!(new, Dispatch::Ready(r) if r.flow == FlowId(1)), "{new:?}: the first that moved");
    assert!(!gate.is_exchanging());
    let mut left = 0;
    while let Dispatch::Ready(_) = gate.next(ms(0)) {
        left += 1;
    }
    assert_eq!((left, gate.queued(), gate.in_flight()), (100 - 1 - 9 - 1, 0, 100));
}

#[test]
fn a_contract_that_changes_during_an_exchange_reaches_both_schedulers() {
    let latency = Some(Latency { bound: Duration::from_millis(8), percentile: 950_000 });
    let wants = Contract { latency, ..Contract::default() };
    let (mut gate, mut ids) = hundred();
    gate.prepare(parts(1000, true), 10);
    assert!(!gate.prepare_step(ms(0)).unwrap());
    // The old scheduler takes it, the new one would not: it is the exchange that fails, not the contract.
    gate.set_flow(FlowId(3), &wants, ms(0)).unwrap();
    assert_eq!(gate.prepare_step(ms(0)).unwrap_err().0, FlowId(3));
    gate.set_flow(FlowId(3), &Contract::best_effort(), ms(0)).unwrap();
    exchange(&mut gate, parts(1000, true), 10, ms(0)).unwrap();
    // The new one decides now, also of flows that have not moved.
    assert!(gate.set_flow(FlowId(99), &wants, ms(0)).is_err());
    // One that comes meanwhile is with the new one from its beginning.
    gate.set_flow(FlowId(100), &Contract::best_effort(), ms(0)).unwrap();
    let id = ids.insert(());
    gate.submit(Request::new(id, FlowId(100), Op::Read, 0, 4096, ms(0)), ms(0)).unwrap();
    let mut seen = 0;
    while let Dispatch::Ready(_) = gate.next(ms(0)) {
        seen += 1;
    }
    assert_eq!((seen, gate.is_exchanging()), (101, false));
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

/// Ten journal commits and an administrator's zeroes leave both slots to reads; only what is beyond four FLUSHes and one piece of zeroes takes one.
#[test]
fn flushes_and_administration_have_slots_of_their_own() {
    let (mut gate, mut ids) = (gate(2, &Contract::best_effort()), Pending::new());
    let submit = |gate: &mut Gate, ids: &mut Pending<()>, op: Op, administration: bool| {
        let request = Request { administration, ..Request::new(ids.insert(()), FLOW, op, 0, 4096, ms(0)) };
        gate.submit(request, ms(0)).unwrap();
        request.id
    };
    let dispatched = |gate: &mut Gate| {
        let mut all = Vec::new();
        while let Dispatch::Ready(request) = gate.next(ms(0)) {
            all.push(request.id);
        }
        all
    };
    let flushes: Vec<_> = (0..4).map(|_| submit(&mut gate, &mut ids, Op::Flush, false)).collect();
    let zeroes = submit(&mut gate, &mut ids, Op::WriteZeroes, true);
    let reads: Vec<_> = (0..3).map(|_| submit(&mut gate, &mut ids, Op::Read, false)).collect();
    let gone = dispatched(&mut gate);
    assert_eq!(gone, [&flushes[..], &[zeroes], &reads[..2]].concat());
    assert_eq!((gate.in_flight(), gate.depth()), (7, 2));
    assert_eq!(gate.waiting(FLOW, ms(0)), Some(WaitReason::DeviceBusy));
    // A read's end makes room for a read, not for a fifth FLUSH and a second piece of zeroes besides.
    submit(&mut gate, &mut ids, Op::Flush, false);
    submit(&mut gate, &mut ids, Op::WriteZeroes, true);
    let last = submit(&mut gate, &mut ids, Op::Read, false);
    gate.complete(reads[0], false, ms(0));
    assert_eq!(dispatched(&mut gate), [reads[2]]);
    gate.complete(reads[1], false, ms(0));
    assert_eq!(dispatched(&mut gate).len(), 1, "the fifth has a slot as any other");
    // Ends of the first four leave that one its slot.
    for id in &flushes {
        gate.complete(*id, false, ms(0));
    }
    assert_eq!(dispatched(&mut gate), []);
    gate.complete(zeroes, false, ms(0));
    gate.complete(reads[2], false, ms(0));
    assert_eq!(dispatched(&mut gate).len(), 2, "zeroes in their own slot, and the read");
    gate.complete(last, false, ms(0));
    assert_eq!((gate.queued(), gate.in_flight()), (0, 2));
}

/// Storage that moves data at once, and syncs when the test says so.
#[derive(Default)]
struct Syncing {
    untold: VecDeque<RequestId>,
    waiting: Vec<RequestId>,
    over: VecDeque<RequestId>,
}

impl Backend for Syncing {
    type Payload = ();
    fn submit(&mut self, request: &Request, (): (), _: Instant) {
        if request.fua || request.op == Op::Flush {
            self.untold.push_back(request.id);
            self.waiting.push(request.id);
        } else {
            self.over.push_back(request.id);
        }
    }
    fn reap(&mut self, _: Instant) -> Option<Done<()>> {
        let id = self.over.pop_front()?;
        Some(Done { id, outcome: Ok(()), busy: None, payload: () })
    }
    fn awaits_sync(&mut self) -> Option<RequestId> {
        self.untold.pop_front()
    }
    fn wake_at(&self) -> Option<Instant> {
        None
    }
    fn capacity(&self) -> u64 {
        u64::MAX
    }
}

/// A crowd of durable writes and FLUSHes awaits a sync that does not end; with two slots a reader is served meanwhile, and so are they after.
#[test]
fn whoever_awaits_a_sync_keeps_no_slot_from_a_reader() {
    let mut gate = gate(2, &Contract::best_effort());
    gate.set_flow(FlowId(1), &Contract::best_effort(), ms(0)).unwrap();
    let (mut pipeline, mut ids) = (Pipeline::new(gate, Syncing::default()), Pending::new());
    for flow in 2..6 {
        pipeline.gate_mut().set_flow(FlowId(flow), &Contract::best_effort(), ms(0)).unwrap();
    }
    for i in 0..100 {
        let (op, flow) = (if i % 10 == 0 { Op::Flush } else { Op::Write }, FlowId(2 + i as u32 % 4));
        let request = Request { fua: op == Op::Write, ..Request::new(ids.insert(()), flow, op, i, 1, ms(0)) };
        pipeline.submit(request, (), ms(0)).unwrap();
    }
    let mut rounds = 0;
    while pipeline.gate().queued() > 0 {
        assert!(pipeline.poll(ms(0)).is_none());
        assert!(
            pipeline.gate().queued() == 0 || pipeline.wake_at() == Some(ms(0)),
            "it asks to be polled again"
        );
        rounds += 1;
    }
    assert!(rounds <= 50, "slots are filled in the round in which they become free: {rounds}");
    for n in 1..20 {
        let read = ids.insert(());
        pipeline.submit(Request::new(read, FlowId(1), Op::Read, 0, 1, ms(n)), (), ms(n)).unwrap();
        let over = pipeline.poll(ms(n)).map(|finished| finished.served.request.id);
        assert_eq!(over, Some(read), "at once");
    }
    let waiting = std::mem::take(&mut pipeline.backend_mut().waiting);
    assert_eq!((waiting.len(), pipeline.gate().in_flight()), (100, 100));
    pipeline.backend_mut().over.extend(waiting);
    assert_eq!(std::iter::from_fn(|| pipeline.poll(ms(30))).count(), 100);
    assert_eq!((pipeline.gate().in_flight(), pipeline.gate().syncing()), (0, 0));
}

/// Of a flow that has a thousand durable writes outstanding, 32 are let in once the first have awaited a sync, whatever the depth; another
/// flow's reader is served meanwhile; and each of them ends once, in their order.
#[test]
fn whoever_asks_for_durability_without_end_has_a_bounded_part_of_each_sync() {
    let mut gate = gate(2, &Contract::best_effort());
    gate.set_flow(FlowId(1), &Contract::best_effort(), ms(0)).unwrap();
    let (mut pipeline, mut ids) = (Pipeline::new(gate, Syncing::default()), Pending::new());
    let read = ids.insert(());
    let mut ask = |pipeline: &mut Pipeline<Syncing>, at| {
        let id = ids.insert(());
        let write = Request { fua: true, ..Request::new(id, FLOW, Op::Write, 0, 1, at) };
        pipeline.submit(write, (), at).unwrap();
        id
    };
    let mut asked: VecDeque<_> = (0..500).map(|_| ask(&mut pipeline, ms(0))).collect();
    for round in 0..200 {
        let now = ms(round);
        pipeline.submit(Request::new(read, FlowId(1), Op::Read, 0, 1, now), (), now).unwrap();
        let mut reads = 0;
        for _ in 0..600 {
            let Some(over) = pipeline.poll(now).map(|finished| finished.served.request.id) else { continue };
            if over == read {
                reads += 1;
                continue;
            }
            assert_eq!(Some(over), asked.pop_front(), "in their order");
            asked.push_back(ask(&mut pipeline, now));
        }
        assert_eq!(reads, 1, "the reader is served in its round");
        // One sync is for all that were there when it began.
        let waiting = std::mem::take(&mut pipeline.backend_mut().waiting);
        assert_eq!(waiting.len(), if round == 0 { 500 } else { Gate::DURABLE as usize }, "{round}");
        pipeline.backend_mut().over.extend(waiting);
    }
}

/// Where nothing awaits syncs beside the depth, what is to be durable is bounded by the depth alone.
#[test]
fn durable_writes_that_await_no_sync_are_not_held() {
    let mut gate = gate(64, &Contract::best_effort());
    let mut ids = Pending::new();
    for _ in 0..64 {
        let request = Request { fua: true, ..Request::new(ids.insert(()), FLOW, Op::Write, 0, 1, ms(0)) };
        gate.submit(request, ms(0)).unwrap();
    }
    let gone = std::iter::from_fn(|| matches!(gate.next(ms(0)), Dispatch::Ready(_)).then_some(()));
    assert_eq!(gone.count(), 64);
}

/// What is given up, or whose flow ends, leaves room for others.
#[test]
fn a_durable_write_that_is_given_up_makes_room() {
    let mut gate = gate(1, &Contract::best_effort());
    gate.set_flow(FlowId(1), &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    let mut submit = |gate: &mut Gate| {
        let id = ids.insert(());
        let request = Request { fua: true, ..Request::new(id, FLOW, Op::Write, 0, 1, ms(0)) };
        gate.submit(request, ms(0)).unwrap();
        id
    };
    let first = submit(&mut gate);
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(_)) && gate.awaits_sync(first, ms(0)));
    let all: Vec<_> = (0..60).map(|_| submit(&mut gate)).collect();
    let goes = |gate: &mut Gate, at| {
        let mut gone = 0;
        while let Dispatch::Ready(request) = gate.next(ms(at)) {
            assert!(gate.awaits_sync(request.id, ms(at)));
            gone += 1;
        }
        gone
    };
    assert_eq!((goes(&mut gate, 1), gate.queued()), (31, 29));
    // Held: the last and the first of them.
    assert!(gate.cancel(all[59], ms(2)).is_some() && gate.cancel(all[31], ms(2)).is_some());
    assert_eq!((goes(&mut gate, 2), gate.queued()), (0, 27));
    gate.complete(first, false, ms(3));
    assert_eq!((goes(&mut gate, 3), gate.queued()), (1, 26));
    let mut orphans = Vec::new();
    gate.remove_flow(FLOW, ms(4), &mut orphans);
    assert_eq!(orphans.len(), 26);
    gate.set_flow(FLOW, &Contract::best_effort(), ms(4)).unwrap();
    for _ in 0..3 {
        submit(&mut gate);
    }
    assert_eq!(goes(&mut gate, 4), 0, "32 of its former life await their sync");
    gate.complete(all[0], false, ms(5));
    assert_eq!(goes(&mut gate, 5), 1);
}

/// What a depth controller is told: of places that are free, of completions, of requests given up.
#[derive(Clone, Default)]
struct Told(std::sync::Arc<std::sync::Mutex<[u32; 3]>>);
impl Told {
    fn note(&self, which: usize) {
        self.0.lock().unwrap()[which] += 1;
    }
}
impl DepthController for Told {
    fn depth(&self) -> u32 {
        2
    }
    fn freed(&mut self, _: Cost, _: bool, _: Instant) {
        self.note(0);
    }
    fn completed(&mut self, _: &Request, _: Duration, _: u32, _: Instant) {
        self.note(1);
    }
    fn gave_back(&mut self, _: FlowId, _: Instant) {
        self.note(2);
    }
}

/// A promise is judged by completions, so whoever awaited a sync has one; its place is free before.
#[test]
fn the_depth_hears_once_of_whoever_awaits_a_sync() {
    let told = Told::default();
    let mut gate = Gate::new(Assembly { depth: Box::new(told.clone()), ..parts(2, false) });
    gate.set_flow(FLOW, &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    let id = submit(&mut gate, &mut ids, ms(0)).unwrap();
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(_)));
    assert!(gate.awaits_sync(id, ms(1)) && !gate.awaits_sync(id, ms(1)));
    assert_eq!(*told.0.lock().unwrap(), [1, 0, 0]);
    gate.complete(id, false, ms(2));
    assert_eq!(*told.0.lock().unwrap(), [1, 1, 0]);
}

/// Patience of a second, and requests of two flows, as they come.
struct Two {
    gate: Gate,
    now: Instant,
    next: u32,
}

impl Two {
    fn new(depth: u32) -> Two {
        let mut gate = gate(depth, &Contract::best_effort());
        gate.set_flow(FlowId(1), &Contract::best_effort(), Instant::ZERO).unwrap();
        gate.set_patience(Some(Duration::from_secs(1)));
        Two { gate, now: Instant::ZERO, next: 0 }
    }
    fn at(&mut self, ms: u64) {
        self.now = Instant::ZERO + Duration::from_millis(ms);
    }
    fn submit(&mut self, flow: u32) -> RequestId {
        let id = RequestId { slot: self.next, generation: 0 };
        self.next += 1;
        let request = Request::new(id, FlowId(flow), Op::Read, 0, 4096, self.now);
        self.gate.submit(request, self.now).unwrap();
        id
    }
    fn ready(&mut self) -> Vec<RequestId> {
        let next = || match self.gate.next(self.now) {
            Dispatch::Ready(request) => Some(request.id),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }
}

#[test]
fn silent_requests_give_their_slots_to_others_and_complete_as_usual() {
    let mut two = Two::new(4);
    let hung: Vec<_> = (0..8).map(|_| two.submit(0)).collect();
    assert_eq!(two.ready(), hung[..4]);
    let well: Vec<_> = (0..6).map(|_| two.submit(1)).collect();
    two.at(999);
    assert!(two.ready().is_empty(), "not yet");
    // Whoever sleeps until the gate's hour is there in time: looks are a tenth of a second apart.
    assert!(two.gate.wake_at().unwrap() <= Instant::ZERO + Duration::from_millis(1100));
    two.at(1100);
    assert_eq!(two.ready(), hung[4..], "four slots are free again");
    assert_eq!((two.gate.silent(), two.gate.in_flight()), (4, 8));
    // The flow is known by now: its next ones are silent after a tenth of the patience.
    two.at(1300);
    assert_eq!(two.ready(), well[..4]);
    assert_eq!(two.gate.silent(), 8);
    two.gate.complete(well[0], false, two.now);
    assert_eq!(two.ready(), [well[4]], "others have the whole depth");
    for id in hung {
        assert!(!two.gate.complete(id, false, two.now).completed.since(two.now).as_nanos().gt(&0));
        assert!(two.ready().is_empty(), "what was given back is not given twice");
    }
    assert_eq!((two.gate.silent(), two.gate.in_flight()), (0, 4));
    two.gate.complete(well[1], false, two.now);
    assert_eq!(two.ready(), [well[5]]);
}

#[test]
fn nothing_gives_back_while_there_is_room_or_nobody_waits() {
    let mut two = Two::new(2);
    let first = two.submit(0);
    assert_eq!(two.ready(), [first]);
    two.at(60_000);
    let second = two.submit(1);
    assert_eq!(two.ready(), [second]);
    assert_eq!(two.gate.silent(), 0, "there was room");
    two.at(120_000);
    assert!(two.ready().is_empty());
    assert_eq!(two.gate.silent(), 0, "nobody waits");
    assert!(two.gate.give_back(first, two.now) && !two.gate.give_back(first, two.now));
    assert!(!two.gate.give_back(RequestId { slot: first.slot, generation: 1 }, two.now));
    assert!(!two.gate.give_back(RequestId { slot: 99, generation: 0 }, two.now));
}

#[test]
fn without_patience_everybody_waits() {
    let mut two = Two::new(1);
    two.gate.set_patience(None);
    two.submit(0);
    two.submit(1);
    assert_eq!(two.ready().len(), 1);
    two.at(1_000_000);
    assert!(two.ready().is_empty() && two.gate.silent() == 0);
}

proptest::proptest! {
    /// Whatever comes, ends, and is silent: no more than the depth has slots, no more than the bound is silent, all complete once, and
    /// nothing is left at the end.
    #[test]
    fn slots_are_counted_right(
        depth in 1u32..5,
        steps in proptest::collection::vec((0u8..5, 0u32..3, 0usize..64, 0u64..400), 1..200),
    ) {
        let mut two = Two::new(depth);
        two.gate.set_flow(FlowId(2), &Contract::best_effort(), Instant::ZERO).unwrap();
        let mut flying: Vec<RequestId> = Vec::new();
        let (mut ms, mut waiting) = (0, 0usize);
        for (what, flow, which, passed) in steps {
            ms += passed;
            two.at(ms);
            match what {
                0 | 1 => {
                    two.submit(flow);
                    waiting += 1;
                }
                2 if !flying.is_empty() => {
                    let id = flying.swap_remove(which % flying.len());
                    two.gate.complete(id, false, two.now);
                }
                3 if !flying.is_empty() => {
                    let id = flying[which % flying.len()];
                    let before = two.gate.silent();
                    let gave = two.gate.give_back(id, two.now);
                    proptest::prop_assert_eq!(two.gate.silent(), before + u32::from(gave));
                }
                4 if !flying.is_empty() => {
                    let id = flying[which % flying.len()];
                    let before = two.gate.syncing();
                    let left = two.gate.awaits_sync(id, two.now);
                    proptest::prop_assert_eq!(two.gate.syncing(), before + u32::from(left));
                    proptest::prop_assert!(!two.gate.awaits_sync(id, two.now) && !two.gate.give_back(id, two.now));
                }
                _ => {}
            }
            let ready = two.ready();
            waiting -= ready.len();
            flying.extend(ready);
            proptest::prop_assert_eq!(two.gate.in_flight() as usize, flying.len());
            let slots = two.gate.in_flight() - two.gate.silent() - two.gate.syncing();
            proptest::prop_assert!(slots <= depth);
            // Work conserving: nothing waits while a slot is free.
            proptest::prop_assert!(waiting == 0 || slots == depth);
        }
        while !flying.is_empty() || waiting > 0 {
            let ready = two.ready();
            waiting -= ready.len();
            flying.extend(ready);
            two.gate.complete(flying.pop().unwrap(), false, two.now);
        }
        proptest::prop_assert_eq!((two.gate.silent(), two.gate.syncing(), two.gate.in_flight()), (0, 0, 0));
    }
}

/// Lets in one request each ten milliseconds.
struct Pace(Instant);
impl DepthController for Pace {
    fn depth(&self) -> u32 {
        8
    }
    fn admits(&mut self, _: &Request, now: Instant) -> Option<Instant> {
        if now < self.0 {
            return Some(self.0);
        }
        self.0 = now + Duration::from_millis(10);
        None
    }
}

#[test]
fn what_is_not_let_in_waits_in_its_order_and_comes_back_once() {
    let mut gate = Gate::new(Assembly { depth: Box::new(Pace(ms(0))), ..parts(8, false) });
    gate.set_flow(FLOW, &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    let all: Vec<_> = (0..5).map(|_| submit(&mut gate, &mut ids, ms(0)).unwrap()).collect();
    let goes = |gate: &mut Gate, at| match gate.next(at) {
        Dispatch::Ready(request) => Some(request.id),
        _ => None,
    };
    assert_eq!((gate.queued(), goes(&mut gate, ms(0))), (5, Some(all[0])));
    assert_eq!(gate.next(ms(0)), Dispatch::Wait { until: Some(ms(10)), reason: WaitReason::Depth });
    assert_eq!((gate.waiting(FLOW, ms(0)), gate.wake_at()), (Some(WaitReason::Depth), Some(ms(10))));
    assert_eq!(goes(&mut gate, ms(10)), Some(all[1]));
    // Given up while it is held: the next one takes its turn.
    assert_eq!(gate.cancel(all[2], ms(11)).map(|r| r.id), Some(all[2]));
    assert_eq!(gate.cancel(all[2], ms(11)), None);
    assert_eq!((goes(&mut gate, ms(19)), goes(&mut gate, ms(20))), (None, Some(all[3])));
    // The flow ends: what is held is given back.
    let mut orphans = Vec::new();
    gate.remove_flow(FLOW, ms(21), &mut orphans);
    assert_eq!(orphans.iter().map(|r| r.id).collect::<Vec<_>>(), [all[4]]);
    for id in [all[0], all[1], all[3]] {
        gate.complete(id, false, ms(22));
    }
    assert_eq!((gate.queued(), gate.next(ms(40))), (0, Dispatch::Idle));
}

#[test]
fn an_administrators_work_is_never_held() {
    let mut gate = Gate::new(Assembly { depth: Box::new(Pace(ms(1000))), ..parts(8, false) });
    gate.set_flow(FLOW, &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    submit(&mut gate, &mut ids, ms(0)).unwrap();
    let zeroing = ids.insert(());
    let mut request = Request::new(zeroing, FLOW, Op::WriteZeroes, 0, 4096, ms(0));
    request.administration = true;
    gate.submit(request, ms(0)).unwrap();
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(request) if request.id == zeroing));
    assert!(matches!(gate.next(ms(0)), Dispatch::Wait { .. }));
}
