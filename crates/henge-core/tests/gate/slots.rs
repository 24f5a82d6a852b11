//! Who has slots of the depth, who is beside it, and who gives slots back.

use super::*;

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

/// Of FLUSHes beside it the depth controller hears as they go and as they are over, and of an administrator's work it does not.
#[test]
fn the_depth_hears_of_flushes_beside_it() {
    #[derive(Clone, Default)]
    struct Heard(std::sync::Arc<std::sync::Mutex<Vec<String>>>);
    impl DepthController for Heard {
        fn depth(&self) -> u32 {
            2
        }
        fn passed(&mut self, flow: FlowId) {
            self.0.lock().unwrap().push(format!("{} passed", flow.0));
        }
        fn went_beside(&mut self, flow: FlowId, wait: Duration, _: Instant) {
            self.0.lock().unwrap().push(format!("{} went after {wait}", flow.0));
        }
        fn completed_beside(&mut self, request: &Request, service: Duration, _: Instant) {
            self.0.lock().unwrap().push(format!("{:?} over after {service}", request.op));
        }
    }
    let heard = Heard::default();
    let mut gate = Gate::new(Assembly { depth: Box::new(heard.clone()), ..parts(2, false) });
    gate.set_flow(FLOW, &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    for (op, administration) in [(Op::Flush, false), (Op::WriteZeroes, true)] {
        let request = Request { administration, ..Request::new(ids.insert(()), FLOW, op, 0, 4096, ms(0)) };
        gate.submit(request, ms(0)).unwrap();
        assert!(matches!(gate.next(ms(3)), Dispatch::Ready(_)));
        gate.complete(request.id, false, ms(5));
    }
    let heard = heard.0.lock().unwrap();
    assert_eq!(*heard, ["0 went after 3ms", "Flush over after 2ms", "0 passed"]);
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
        self.ask(flow, |read| read)
    }
    fn ask(&mut self, flow: u32, what: impl Fn(Request) -> Request) -> RequestId {
        let id = RequestId { slot: self.next, generation: 0 };
        self.next += 1;
        let request = what(Request::new(id, FlowId(flow), Op::Read, 0, 4096, self.now));
        self.gate.submit(request, self.now).unwrap();
        id
    }
    /// Four requests hang, and somebody else wants one: after so many milliseconds it goes.
    fn waits_behind(&mut self, hang: impl Fn(Request) -> Request) -> u64 {
        let begun = self.now;
        (0..4).for_each(|_| _ = self.ask(0, &hang));
        assert_eq!(self.ready().len(), 4);
        let read = self.submit(1);
        for _ in 0..1000 {
            self.now += Duration::from_millis(50);
            if self.ready().contains(&read) {
                break;
            }
        }
        self.now.since(begun).as_nanos() / 1_000_000
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
    // The flow is known by now: its next ones are silent after a tenth of the patience. But nobody has overtaken.
    two.at(1300);
    assert!(two.ready().is_empty());
    two.at(1400);
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

/// What is slow for another reason than the device does not make the gate patient with what hangs.
#[test]
fn patience_is_learned_of_the_device_alone() {
    let hole = |request| Request { op: Op::Trim, ..request };
    let durable = |request| Request { op: Op::Write, fua: true, ..request };
    let write = |request| Request { op: Op::Write, ..request };
    // Four at once, 0.4 s each, and nobody else there.
    for (what, slow) in [(&hole as &dyn Fn(Request) -> Request, false), (&durable, false), (&write, true)] {
        let mut two = Two::new(4);
        for round in 0..100 {
            two.at(round * 400);
            (0..4).for_each(|_| _ = two.ask(0, what));
            let ready = two.ready();
            two.at(round * 400 + 400);
            ready.into_iter().for_each(|id| _ = two.gate.complete(id, false, two.now));
        }
        let waited = two.waits_behind(hole);
        assert_eq!(waited > 1200, slow, "{waited} ms");
    }
    // Writes of 0.4 s while another's reads take a millisecond.
    let mut two = Two::new(4);
    let mut writes = Vec::new();
    for ms in 0..20_000 {
        two.at(ms);
        if ms % 400 == 0 {
            writes.drain(..).for_each(|id| _ = two.gate.complete(id, false, two.now));
            writes = (0..2).map(|_| two.ask(0, write)).collect();
            assert_eq!(two.ready(), writes);
        }
        let read = two.submit(1);
        assert_eq!(two.ready(), [read]);
        two.gate.complete(read, false, two.now + Duration::from_micros(900));
    }
    writes.drain(..).for_each(|id| _ = two.gate.complete(id, false, two.now));
    let waited = two.waits_behind(write);
    assert!(waited <= 1200, "{waited} ms");
}

/// A thousand requests that hang, of one tenant and of eight: another one's reads, one at a time, wait for a look at first and not for the storage,
/// and there is always a place for one more that is silent.
#[test]
fn however_many_hang_others_go_on() {
    for (tenants, each) in [(1, 1000), (8, 200)] {
        let mut two = Two::new(4);
        for flow in 2..2 + tenants {
            two.gate.set_flow(FlowId(flow), &Contract::best_effort(), Instant::ZERO).unwrap();
        }
        let (mut hung, mut reads) = (Vec::new(), Vec::new());
        // As a fair scheduler would: a read of the first flow is the next but one, whatever waits.
        for n in 0..each {
            for flow in 2..2 + tenants {
                two.ask(flow, |read| Request { op: Op::Trim, ..read });
                if n % 10 == 0 {
                    reads.push(two.submit(1));
                }
            }
        }
        let (mut at, mut longest, mut served) = (0, 0, 0);
        for ms in (0..8000).step_by(5) {
            two.at(ms);
            for id in two.ready() {
                if reads.contains(&id) {
                    two.gate.complete(id, false, two.now);
                    (longest, at, served) = (longest.max(ms - at), ms, served + 1);
                } else {
                    hung.push(id);
                }
            }
            assert!(two.gate.silent() < Gate::SILENT);
        }
        // Four tenants that hang are found out in a patience; four more of their requests are silent a quarter of it later, at the next look.
        let most = 1000 * u64::from(tenants).div_ceil(4) + 350;
        assert!(longest <= most, "{tenants} tenants: {longest} ms");
        assert_eq!(served, each / 10 * tenants, "{tenants} tenants");
        // And at last all that hung is over, once.
        while let Some(id) = hung.pop() {
            two.gate.complete(id, false, two.now);
            hung.extend(two.ready());
        }
        assert_eq!(
            (two.gate.in_flight(), two.gate.silent(), two.gate.stalled(), two.gate.queued()),
            (0, 0, 0, 0)
        );
    }
}

/// What was stalled follows at last, hundreds of requests, and another's wait for one of them at most.
#[test]
fn what_was_stalled_goes_by_turns_with_others() {
    let mut two = Two::new(1);
    let mut all: Vec<RequestId> = (0..600).map(|_| two.submit(0)).collect();
    let mut flying = Vec::new();
    for ms in (0..4000).step_by(100) {
        two.at(ms);
        flying.extend(two.ready());
    }
    assert!(two.gate.stalled() > 500);
    // The hang is over. Each takes 20 ms from now on, and there is always one of somebody else's.
    let (mut ms, mut others, mut since) = (4000, Vec::new(), 0);
    while !flying.is_empty() {
        ms += 20;
        two.at(ms);
        let id = flying.remove(0);
        all.retain(|one| *one != id);
        two.gate.complete(id, false, two.now);
        if others.is_empty() {
            others.push(two.submit(1));
            since = 0;
        }
        for id in two.ready() {
            if others.contains(&id) {
                others.clear()
            } else {
                since += 1
            }
            flying.push(id);
        }
        assert!(since <= 2, "{since} of the other's went before, at {ms} ms");
        if all.is_empty() && others.is_empty() && flying.len() == 1 {
            break;
        }
    }
    assert_eq!((all.len(), two.gate.stalled()), (0, 0), "and all of it went");
}

/// A tenant is removed while its requests hang and others are stalled: all of them end, and nobody looks for it afterwards.
#[test]
fn a_tenant_that_hangs_can_be_removed() {
    let mut two = Two::new(4);
    (0..20).for_each(|_| _ = two.submit(0));
    let mut hung = Vec::new();
    for ms in (0..3000).step_by(100) {
        two.at(ms);
        hung.extend(two.ready());
    }
    assert_eq!((two.gate.silent(), two.gate.stalled()), (8, 12));
    let mut orphans = Vec::new();
    two.gate.remove_flow(FLOW, two.now, &mut orphans);
    assert_eq!(orphans, []);
    let mut over = 0;
    while let Some(id) = hung.pop() {
        two.gate.complete(id, false, two.now);
        (over, hung) = (over + 1, [hung, two.ready()].concat());
    }
    assert_eq!((over, two.gate.in_flight(), two.gate.stalled()), (20, 0, 0));
    assert!(two.gate.contract(FLOW).is_none());
    let other = two.submit(1);
    assert_eq!(two.ready(), [other]);
    two.gate.complete(other, false, two.now);
    assert!(two.ready().is_empty());
}

/// Reads that hung for eight seconds, many of them, while nobody else was there: patience is as long, not many times as long.
#[test]
fn who_hung_once_is_waited_for_as_long_at_most() {
    let mut two = Two::new(4);
    (0..64).for_each(|_| _ = two.submit(0));
    let mut hung = Vec::new();
    for ms in (0..=8000).step_by(100) {
        two.at(ms);
        hung.extend(two.ready());
    }
    while let Some(id) = hung.pop() {
        two.gate.complete(id, false, two.now);
        hung.extend(two.ready());
    }
    let waited = two.waits_behind(|read| read);
    assert!((7000..9000).contains(&waited), "{waited} ms");
    assert_eq!(two.gate.queued(), 0);
}

/// A device that pauses, or is slow and keeps to the order: it is given four requests more in a quarter of a patience, and none for its answers.
#[test]
fn a_slow_device_is_given_little_beyond_its_depth() {
    let mut two = Two::new(16);
    let mut flying: VecDeque<_> = (0..400).map(|_| two.submit(0)).collect();
    flying.truncate(two.ready().len());
    for quarter in 0..3 {
        two.at(1100 + 300 * quarter);
        let ready = two.ready();
        // Of one flow no more come where eight are silent and none is answered.
        assert_eq!(ready.len(), if quarter == 0 { 4 } else { 0 });
        flying.extend(ready);
        two.at(1200 + 300 * quarter);
        assert!(two.ready().is_empty());
    }
    assert_eq!((two.gate.silent(), two.gate.in_flight()), (8, 20));
    // From here on it answers one each 100 ms, the oldest or another: each takes seconds, which is soon known.
    let (mut most, mut seed) = (0, 7u64);
    for step in 0..300 {
        two.at(1900 + 100 * step);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let which = if seed >> 62 == 0 { (seed >> 32) as usize % flying.len() } else { 0 };
        two.gate.complete(flying.remove(which).unwrap(), false, two.now);
        flying.extend(two.ready());
        most = most.max(two.gate.in_flight());
    }
    assert!(most <= 28 + 48, "{most} in flight");
    assert_eq!(two.gate.silent(), 0, "nobody is by now");
}

/// Each answer that overtakes what hangs lets two more give their slots back.
#[test]
fn slots_come_back_as_fast_as_others_overtake() {
    let mut two = Two::new(16);
    let hung: Vec<_> = (0..20).map(|_| two.submit(0)).collect();
    assert_eq!(two.ready(), hung[..16]);
    for _ in 0..200 {
        two.submit(1);
    }
    two.at(1100);
    assert_eq!(two.ready(), hung[16..], "whose they are, nobody knows");
    let mut counts = Vec::new();
    for look in 0..5 {
        two.at(1400 + 100 * look);
        let ready = two.ready();
        counts.push(ready.len());
        for id in ready {
            two.gate.complete(id, false, two.now);
        }
    }
    assert_eq!(counts, [4, 12, 16, 16, 16], "four; their answers let eight more go; then all");
    assert_eq!(two.gate.silent(), 20);
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

/// Its client may be gone before it is at the device.
#[test]
fn what_is_stalled_can_be_cancelled() {
    let mut two = Two::new(1);
    let all: Vec<_> = (0..12).map(|_| two.submit(0)).collect();
    for (i, id) in all.iter().enumerate().take(8) {
        two.at(i as u64);
        assert_eq!(two.ready(), [*id]);
        assert!(two.gate.give_back(*id, two.now));
    }
    assert!(two.ready().is_empty());
    assert_eq!((two.gate.stalled(), two.gate.queued()), (4, 0));
    assert!(two.gate.cancel(all[0], two.now).is_none(), "it is at the device");
    assert_eq!(two.gate.cancel(all[9], two.now).map(|request| request.id), Some(all[9]));
    assert!(two.gate.cancel(all[9], two.now).is_none());
    two.gate.complete(all[0], false, two.now);
    assert_eq!(two.ready(), [all[8]], "the oldest");
    two.gate.complete(all[1], false, two.now);
    two.gate.complete(all[8], false, two.now);
    assert_eq!(two.ready(), [all[10]]);
    two.gate.complete(all[10], false, two.now);
    assert_eq!(two.ready(), [all[11]]);
    two.gate.complete(all[11], false, two.now);
    (2..8).for_each(|i| _ = two.gate.complete(all[i], false, two.now));
    let meters = two.gate.flow_meters(FlowId(0)).unwrap();
    assert_eq!((meters.pending, meters.in_flight, meters.cancelled, two.gate.stalled()), (0, 0, 1, 0));
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
    /// However slow a device is, and in whichever order it answers: it has little beyond its depth, and is known for slow in the end.
    #[test]
    fn a_slow_device_is_no_hung_one(depth in 1u32..33, each in 1u64..150, chance in 0u64..5, mut seed in proptest::prelude::any::<u64>()) {
        let mut two = Two::new(depth);
        let mut flying: Vec<RequestId> = Vec::new();
        let (mut most, mut silent) = (0, 0);
        for step in 1..=1200 {
            // Always as many outstanding as there may be.
            while two.gate.queued() + two.gate.stalled() as usize <= 700 {
                two.submit(step as u32 % 2);
            }
            two.at(step * each);
            flying.extend(two.ready());
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let which = if seed >> 62 < chance { (seed >> 32) as usize % flying.len() } else { 0 };
            two.gate.complete(flying.remove(which), false, two.now);
            most = most.max(two.gate.in_flight());
            silent = two.gate.silent();
        }
        proptest::prop_assert!(most <= depth + 128, "{} in flight, depth {}", most, depth);
        proptest::prop_assert_eq!(silent, 0);
    }
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
                    let before = two.gate.awaiting();
                    let left = two.gate.awaits_others(id, two.now);
                    proptest::prop_assert_eq!(two.gate.awaiting(), before + u32::from(left));
                    proptest::prop_assert!(!two.gate.awaits_others(id, two.now) && !two.gate.give_back(id, two.now));
                }
                _ => {}
            }
            let ready = two.ready();
            waiting -= ready.len();
            flying.extend(ready);
            proptest::prop_assert_eq!(two.gate.in_flight() as usize, flying.len());
            let slots = two.gate.in_flight() - two.gate.silent() - two.gate.awaiting();
            proptest::prop_assert!(slots <= depth);
            // Work conserving: nothing waits while a slot is free, but what others of its flow that are silent hold up.
            let stalled = two.gate.stalled() as usize;
            proptest::prop_assert!(waiting == stalled || slots == depth);
        }
        while !flying.is_empty() || waiting > 0 {
            let ready = two.ready();
            waiting -= ready.len();
            flying.extend(ready);
            two.gate.complete(flying.pop().unwrap(), false, two.now);
        }
        proptest::prop_assert_eq!((two.gate.silent(), two.gate.awaiting(), two.gate.in_flight()), (0, 0, 0));
    }
}

/// A file is looked at before all that its application reads: what goes in a turn is not what brought it.
#[test]
fn a_turn_costs_what_goes_in_it() {
    let mut two = Two::new(1);
    let long = two.ask(0, |read| Request { op: Op::Write, len: 4 << 20, ..read });
    two.at(5);
    let short = two.submit(0);
    let other = |id, len, at| {
        let arrival = Instant::ZERO + Duration::from_millis(at);
        Request::new(id, FlowId(0), Op::Read, 7, len, arrival)
    };
    assert_eq!(two.ready(), [long]);
    two.gate.goes_as(long, &other(short, 4096, 5), two.now);
    two.at(8);
    let served = two.gate.complete(long, false, two.now);
    let Request { op, len, offset, cost, .. } = served.request;
    assert_eq!((op, len, offset, cost), (Op::Read, 4096, 7, Cost::new(4096)));
    assert_eq!(two.ready(), [short]);
    let write = Request { op: Op::Write, ..other(long, 4 << 20, 0) };
    two.gate.goes_as(short, &write, two.now);
    two.at(20);
    assert_eq!(two.gate.complete(short, false, two.now).request.cost, Cost::new(4 << 20));
    let meters = two.gate.flow_meters(FlowId(0)).unwrap();
    assert_eq!((meters.completed.requests, meters.completed.service.get()), (2, (4 << 20) + 4096));
    assert!(meters.latency.quantile(1.0).unwrap() >= Duration::from_millis(19), "the write came first");
    // One that is over, or was never there, is nobody's turn.
    two.gate.goes_as(long, &write, two.now);
}

/// Nobody sees its end: no time is known of it, and its neighbours' time stays theirs.
#[test]
fn what_nobody_sees_the_end_of_costs_its_estimate() {
    let mut gate = Gate::new(Assembly { cost: Box::new(Time), ..parts(2, false) });
    gate.set_flow(FLOW, &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    let submit = |gate: &mut Gate, ids: &mut Pending<()>| {
        let id = ids.insert(());
        gate.submit(Request::new(id, FLOW, Op::Read, 0, 4096, ms(0)), ms(0)).unwrap();
        id
    };
    let (seen, unseen) = (submit(&mut gate, &mut ids), submit(&mut gate, &mut ids));
    while let Dispatch::Ready(_) = gate.next(ms(0)) {}
    let over = gate.complete_unseen(unseen, ms(3));
    assert_eq!((over.request.cost, gate.in_flight()), (Cost::new(1_000_000), 1));
    let over = gate.complete(seen, false, ms(8));
    assert_eq!(over.request.cost, Cost::new(8_000_000), "from its dispatch on");
}

/// A millisecond, and then what it took.
struct Time;

impl CostModel for Time {
    fn unit(&self) -> CostUnit {
        CostUnit::DiskTime
    }
    fn estimate(&mut self, _: &Request) -> Cost {
        Cost::new(1_000_000)
    }
    fn actual(&mut self, _: &Request, time: Duration) -> Cost {
        Cost::new(time.as_nanos())
    }
}
