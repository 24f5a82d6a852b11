//! Requests that await others of their file: syncs, and holes before them. They do so beside the depth, and a flow has a bounded number of them.

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
    fn awaits_others(&mut self) -> Option<RequestId> {
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
    assert_eq!((pipeline.gate().in_flight(), pipeline.gate().awaiting()), (0, 0));
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

/// The first durable write has gone, and told that there are syncs to await.
fn told(gate: &mut Gate, ids: &mut Pending<()>) -> RequestId {
    let first = asks(gate, ids);
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(_)) && gate.awaits_others(first, ms(0)));
    first
}

/// How many go, each of which awaits a sync at once.
fn goes(gate: &mut Gate, at: u64) -> u32 {
    let mut gone = 0;
    while let Dispatch::Ready(request) = gate.next(ms(at)) {
        assert!(gate.awaits_others(request.id, ms(at)));
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
    let first = told(&mut gate, &mut ids);
    let mut submit = |gate: &mut Gate| asks(gate, &mut ids);
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
    // Two go: the first tells that there are syncs, the second has the only slot.
    let first = told(&mut gate, &mut ids);
    let mut submit = |gate: &mut Gate| asks(gate, &mut ids);
    gate.complete(first, false, ms(0));
    let second = submit(&mut gate);
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(_)));
    let all: Vec<_> = (0..40).map(|_| submit(&mut gate)).collect();
    assert_eq!(goes(&mut gate, 1), 0, "the device is full");
    for id in &all[..31] {
        assert!(gate.cancel(*id, ms(2)).is_some(), "the scheduler has it");
    }
    assert!(gate.awaits_others(second, ms(3)));
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
    assert!(gate.awaits_others(third, ms(6)));
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
    assert!(gate.awaits_others(id, ms(1)) && !gate.awaits_others(id, ms(1)));
    assert_eq!(*told.0.lock().unwrap(), [1, 0, 0]);
    gate.complete(id, false, ms(2));
    assert_eq!(*told.0.lock().unwrap(), [1, 1, 0]);
}

/// A disk that has a thousand durable writes outstanding reads beside them: its reads pass the writes that are held.
#[test]
fn a_disks_own_reads_pass_its_held_durable_writes() {
    let mut gate = gate(1, &Contract::best_effort());
    let mut ids = Pending::new();
    let first = told(&mut gate, &mut ids);
    let writes: Vec<_> = (0..500).map(|_| asks(&mut gate, &mut ids)).collect();
    assert_eq!((goes(&mut gate, 0), gate.queued()), (31, 469));
    let read = ids.insert(());
    gate.submit(Request::new(read, FLOW, Op::Read, 0, 1, ms(1)), ms(1)).unwrap();
    assert!(matches!(gate.next(ms(1)), Dispatch::Ready(request) if request.id == read));
    gate.complete(read, false, ms(1));
    gate.complete(first, false, ms(2));
    assert!(
        matches!(gate.next(ms(2)), Dispatch::Ready(request) if request.id == writes[31]),
        "in their order"
    );
}

/// A disk that has hundreds of holes outstanding has eight at the storage, where they await each other. Its reads and durable writes pass
/// those that are held, and so do a neighbour's: there is one slot. What is given up, or whose flow ends, leaves room.
#[test]
fn of_a_disks_holes_a_few_are_at_the_storage_and_others_pass_the_rest() {
    let mut gate = gate(1, &Contract::best_effort());
    gate.set_flow(FlowId(1), &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    let mut ask = |gate: &mut Gate, flow, op, fua| {
        let request = Request { fua, ..Request::new(ids.insert(()), flow, op, 0, 1, ms(0)) };
        gate.submit(request, ms(0)).unwrap();
        request.id
    };
    // The first has the slot until it is told that it waits.
    let first = ask(&mut gate, FLOW, Op::Trim, false);
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(_)) && gate.awaits_others(first, ms(0)));
    let kind = |n: usize| (if n.is_multiple_of(2) { Op::Trim } else { Op::WriteZeroes }, n.is_multiple_of(3));
    let holes: Vec<_> = (0..500).map(kind).map(|(op, fua)| ask(&mut gate, FLOW, op, fua)).collect();
    let most = Gate::HOLES as usize;
    assert_eq!((goes(&mut gate, 1) as usize, gate.queued()), (most - 1, 501 - most));
    for (flow, op, fua) in [(FLOW, Op::Read, false), (FLOW, Op::Write, true), (FlowId(1), Op::Trim, false)] {
        let id = ask(&mut gate, flow, op, fua);
        assert!(matches!(gate.next(ms(1)), Dispatch::Ready(request) if request.id == id), "{op:?}");
        gate.complete(id, false, ms(1));
    }
    assert!(gate.cancel(holes[most - 1], ms(2)).is_some(), "it is not at the storage");
    gate.complete(first, false, ms(2));
    let next = |gate: &mut Gate, id| matches!(gate.next(ms(2)), Dispatch::Ready(hole) if hole.id == id);
    assert!(next(&mut gate, holes[most]), "in their order");
    assert!(gate.awaits_others(holes[most], ms(2)));
    let mut orphans = Vec::new();
    gate.remove_flow(FLOW, ms(3), &mut orphans);
    assert_eq!((orphans.len(), gate.queued()), (499 - most, 0));
    gate.set_flow(FLOW, &Contract::best_effort(), ms(3)).unwrap();
    for id in &holes[..most - 1] {
        gate.complete(*id, false, ms(4));
    }
    gate.complete(holes[most], false, ms(4));
    for _ in 0..20 {
        ask(&mut gate, FLOW, Op::Trim, false);
    }
    assert_eq!(goes(&mut gate, 5) as usize, most, "nothing of its former life is counted");
}

/// Lets nothing in before its moment.
struct Later(Instant);
impl DepthController for Later {
    fn depth(&self) -> u32 {
        1
    }
    fn admits(&mut self, _: &Request, now: Instant) -> Option<Instant> {
        (now < self.0).then_some(self.0)
    }
    fn completed(&mut self, _: &Request, _: Duration, _: u32, now: Instant) {
        self.0 = Instant::from_nanos(now.as_nanos() + 10_000_000);
    }
}

/// The same of what the depth controller holds.
#[test]
fn a_durable_write_that_the_depth_controller_gives_back_makes_room() {
    let mut gate = Gate::new(Assembly { depth: Box::new(Later(ms(0))), ..parts(1, false) });
    gate.set_flow(FLOW, &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    let first = told(&mut gate, &mut ids);
    gate.complete(first, false, ms(0)); // nothing is let in before 10 ms
    let all: Vec<_> = (0..50).map(|_| asks(&mut gate, &mut ids)).collect();
    all[..32].iter().for_each(|id| assert!(gate.cancel(*id, ms(1)).is_some()));
    assert_eq!((goes(&mut gate, 2), goes(&mut gate, 10)), (0, 18));
    all[33..].iter().for_each(|id| {
        gate.complete(*id, false, ms(20));
    }); // nor before 30 ms
    (0..50).for_each(|_| {
        asks(&mut gate, &mut ids);
    });
    let mut orphans = Vec::new();
    gate.remove_flow(FLOW, ms(21), &mut orphans);
    assert_eq!(orphans.len(), 50);
    gate.set_flow(FLOW, &Contract::best_effort(), ms(21)).unwrap();
    (0..50).for_each(|_| {
        asks(&mut gate, &mut ids);
    });
    assert_eq!((goes(&mut gate, 22), goes(&mut gate, 30)), (0, 31), "beside one of its former life");
}

/// Lets in what a seed says, the rest a millisecond later.
struct Now(u64);
impl DepthController for Now {
    fn depth(&self) -> u32 {
        4
    }
    fn admits(&mut self, _: &Request, now: Instant) -> Option<Instant> {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 62 == 0).then(|| now + Duration::from_millis(1))
    }
}

proptest::proptest! {
    /// Whatever comes, is given up or ends with its flow: each request leaves once, reads and durable writes each in their order, and no more
    /// durable writes than the bound are under way.
    #[test]
    fn each_leaves_once_and_no_more_durable_ones_than_the_bound_are_under_way(
        steps in proptest::collection::vec((0_u8..12, 0_usize..64), 1..400), seed in proptest::prelude::any::<u64>(),
    ) {
        let mut gate = Gate::new(Assembly { depth: Box::new(Now(seed)), ..parts(4, false) });
        gate.set_flow(FLOW, &Contract::best_effort(), ms(0)).unwrap();
        let mut ids = Pending::new();
        let (mut waiting, mut under_way): (Vec<Request>, Vec<Request>) = Default::default();
        // Nothing is bounded before the first has awaited a sync.
        let first = asks(&mut gate, &mut ids);
        let mut at = 0;
        while !matches!(gate.next(ms(at)), Dispatch::Ready(_)) {
            at += 1;
        }
        proptest::prop_assert!(gate.awaits_others(first, ms(at)));
        gate.complete(first, false, ms(at));
        ids.remove(first).expect("it was pending");
        for (what, which) in steps {
            let now = ms(at);
            match what {
                0..6 => {
                    let id = ids.insert(());
                    let (op, fua) = if what == 0 { (Op::Read, false) } else { (Op::Write, true) };
                    let request = Request { fua, ..Request::new(id, FLOW, op, 0, 1, now) };
                    gate.submit(request, now).unwrap();
                    waiting.push(request);
                }
                6..9 => {
                    at += 1;
                    while let Dispatch::Ready(request) = gate.next(ms(at)) {
                        let of = |r: &&Request| r.fua == request.fua;
                        proptest::prop_assert_eq!(waiting.iter().find(of).map(|r| r.id), Some(request.id));
                        waiting.retain(|r| r.id != request.id);
                        if request.fua {
                            proptest::prop_assert!(gate.awaits_others(request.id, ms(at)));
                        }
                        under_way.push(request);
                    }
                    let durable = under_way.iter().filter(|r| r.fua).count();
                    proptest::prop_assert!(durable <= Gate::DURABLE as usize, "{} under way", durable);
                }
                9 if !under_way.is_empty() => {
                    let over = under_way.swap_remove(which % under_way.len()).id;
                    gate.complete(over, false, now);
                    ids.remove(over).expect("it was pending");
                }
                10 if !waiting.is_empty() => {
                    let id = waiting.remove(which % waiting.len()).id;
                    proptest::prop_assert_eq!(gate.cancel(id, now).map(|r| r.id), Some(id));
                    ids.remove(id).expect("it was pending");
                }
                11 if which == 0 => {
                    let mut orphans = Vec::new();
                    gate.remove_flow(FLOW, now, &mut orphans);
                    proptest::prop_assert_eq!(orphans.len(), waiting.len());
                    waiting.drain(..).for_each(|r| { ids.remove(r.id).expect("it was pending"); });
                    gate.set_flow(FLOW, &Contract::best_effort(), now).unwrap();
                }
                _ => {}
            }
            proptest::prop_assert_eq!((gate.queued(), gate.in_flight() as usize), (waiting.len(), under_way.len()));
        }
        // At the end all go, however many are held.
        while !waiting.is_empty() || !under_way.is_empty() {
            at += 1;
            proptest::prop_assert!(at < 10_000, "{} wait for ever", waiting.len());
            while let Dispatch::Ready(request) = gate.next(ms(at)) {
                waiting.retain(|r| r.id != request.id);
                under_way.push(request);
            }
            under_way.drain(..).for_each(|r| { gate.complete(r.id, false, ms(at)); });
        }
    }
}
