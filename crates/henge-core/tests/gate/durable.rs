//! Requests that are to be durable: they await syncs beside the depth, and a flow has a bounded number of them.

use super::*;

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

/// A durable write comes.
fn asks(gate: &mut Gate, ids: &mut Pending<()>) -> RequestId {
    let id = ids.insert(());
    let request = Request { fua: true, ..Request::new(id, FLOW, Op::Write, 0, 1, ms(0)) };
    gate.submit(request, ms(0)).unwrap();
    id
}

/// How many go, each of which awaits a sync at once.
fn goes(gate: &mut Gate, at: u64) -> u32 {
    let mut gone = 0;
    while let Dispatch::Ready(request) = gate.next(ms(at)) {
        assert!(gate.awaits_sync(request.id, ms(at)));
        gone += 1;
    }
    gone
}

/// What is given up, or whose flow ends, leaves room for others.
#[test]
fn a_durable_write_that_is_given_up_makes_room() {
    let mut gate = gate(1, &Contract::best_effort());
    gate.set_flow(FlowId(1), &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    let mut submit = |gate: &mut Gate| asks(gate, &mut ids);
    let first = submit(&mut gate);
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(_)) && gate.awaits_sync(first, ms(0)));
    let all: Vec<_> = (0..60).map(|_| submit(&mut gate)).collect();
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

/// The same of what the scheduler has: a full device, and whatever comes waits.
#[test]
fn a_durable_write_that_the_scheduler_gives_back_makes_room() {
    let mut gate = gate(1, &Contract::best_effort());
    let mut ids = Pending::new();
    let mut submit = |gate: &mut Gate| asks(gate, &mut ids);
    // Two go: the first tells that there are syncs, the second has the only slot.
    let first = submit(&mut gate);
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(_)) && gate.awaits_sync(first, ms(0)));
    gate.complete(first, false, ms(0));
    let second = submit(&mut gate);
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(_)));
    let all: Vec<_> = (0..40).map(|_| submit(&mut gate)).collect();
    assert_eq!(goes(&mut gate, 1), 0, "the device is full");
    for id in &all[..31] {
        assert!(gate.cancel(*id, ms(2)).is_some(), "the scheduler has it");
    }
    assert!(gate.awaits_sync(second, ms(3)));
    assert_eq!((goes(&mut gate, 3), gate.queued()), (9, 0), "all that was held");
    gate.complete(second, false, ms(4));
    // Ten in flight with this one, 22 in the scheduler, the rest held: the flow ends, and comes again.
    let third = submit(&mut gate);
    assert!(matches!(gate.next(ms(4)), Dispatch::Ready(_)));
    (0..40).for_each(|_| assert_ne!(submit(&mut gate), third));
    let mut orphans = Vec::new();
    gate.remove_flow(FLOW, ms(5), &mut orphans);
    assert_eq!(orphans.len(), 40);
    gate.set_flow(FLOW, &Contract::best_effort(), ms(5)).unwrap();
    for _ in 0..40 {
        submit(&mut gate);
    }
    assert!(gate.awaits_sync(third, ms(6)));
    assert_eq!(goes(&mut gate, 6), 22, "beside ten of its former life");
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
