//! The one suite that every scheduler of the registry passes. A new scheduler is picked up from there.
//!
//! Random calls go through a [`Gate`] (arrivals, completions in any order, cancels, adjusted costs, flows added,
//! changed and removed, schedulers exchanged, depths, foreign service, time), and a model beside it knows where every request
//! must be. Amounts are now and then all that a number can say. Nothing here knows what a scheduler is for; that is tested beside each of them.

use henge_core::{
    Assembly, Contract, Cost, CostUnit, DepthController, DiskTime, DiskTimeKind, Dispatch, Duration, FlowId,
    Gate, Instant, Latency, Op, Params, Pending, Rate, Request, RequestId, Value,
};
use henge_sched::{Entry, Order, SCHEDULERS, build, find};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const FLOWS: u32 = 5;

/// One call, its choices still numbers that are reduced to what is there.
#[derive(Clone, Debug)]
enum Call {
    Submit { flow: u32, op: u8, offset: u64, len: u64, foreign: u64 },
    Cancel { nth: usize },
    Complete { nth: usize, failed: bool },
    Adjust { nth: usize, cost: u64 },
    Sleep { us: u64 },
    SetFlow { flow: u32, terms: u8, size: u8 },
    RemoveFlow { flow: u32 },
    Foreign { flow: u32, cost: u64 },
    Retag { nth: usize, lead: u64 },
    Depth { to: u32 },
    Exchange,
}

/// An amount below `usual`; now and then nothing, or as much as `most`.
fn amount(usual: u64, most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![30 => 0..usual, 1 => Just(0), 1 => 0..=most, 1 => Just(most)].boxed()
}
/// The longest sleep, in µs, and the longest read.
const YEARS: u64 = 3 * 365 * 86_400 * 1_000_000;
const LEN_MAX: u64 = 1 << 40;
/// Sizes of contracts from here on are extremes.
const EXTREME: u8 = 254;

fn call() -> impl Strategy<Value = Call> {
    let flow = || 0..FLOWS;
    prop_oneof![
        12 => (flow(), 0u8..8, amount(1 << 34, u64::MAX), amount(1 << 20, LEN_MAX), amount(1 << 18, u64::MAX))
            .prop_map(|(flow, op, offset, len, foreign)| {
                let foreign = if op % 2 == 0 { foreign } else { 0 };
                Call::Submit { flow, op, offset, len, foreign }
            }),
        8 => (any::<usize>(), proptest::bool::weighted(0.1))
            .prop_map(|(nth, failed)| Call::Complete { nth, failed }),
        4 => amount(20_000, YEARS).prop_map(|us| Call::Sleep { us }),
        1 => any::<usize>().prop_map(|nth| Call::Cancel { nth }),
        1 => (any::<usize>(), amount(1 << 21, u64::MAX))
            .prop_map(|(nth, cost)| Call::Adjust { nth, cost: cost.max(1) }),
        1 => (flow(), any::<u8>(), prop_oneof![3 => any::<u8>(), 1 => EXTREME..=u8::MAX])
            .prop_map(|(flow, terms, size)| Call::SetFlow { flow, terms, size }),
        1 => (flow(), amount(1 << 24, u64::MAX)).prop_map(|(flow, cost)| Call::Foreign { flow, cost }),
        1 => (any::<usize>(), amount(1 << 24, u64::MAX)).prop_map(|(nth, lead)| Call::Retag { nth, lead }),
        1 => prop_oneof![1u32..10, Just(1), Just(u32::MAX)].prop_map(|to| Call::Depth { to }),
        1 => prop_oneof![
            2 => flow().prop_map(|flow| Call::RemoveFlow { flow }),
            1 => Just(Call::Exchange),
        ],
    ]
    .boxed() // a tree of all these is long, and is moved a few times
}

/// A contract of terms that `entry` keeps, chosen by the bits of `terms`.
fn contract(entry: &Entry, unit: CostUnit, terms: u8, size: u8, limits: bool) -> Contract {
    let mut contract = Contract::best_effort();
    let small = u64::from(size % 4) + 1;
    let extreme = size.checked_sub(EXTREME).map(|which| [1, u64::MAX][usize::from(which)]);
    let or = |usual: u64| extreme.unwrap_or(usual);
    let rate = |n: u64| match unit {
        CostUnit::Requests => Rate::requests_micro(or(40_000_000 * n)),
        CostUnit::Bytes => Rate::bytes(or(4_000_000 * n)),
        CostUnit::DiskTime => Rate::disk_time(or(60_000_000 * n)),
    };
    for (_, term) in entry.keeps.iter().enumerate().filter(|(i, _)| terms & (1 << i) != 0) {
        match *term {
            "weight" => contract.weight = Some(1 + u32::from(size)),
            "rate" => contract.rate = Some(rate(small)),
            "limit" if limits => contract.limit = Some(rate(small + 1)),
            "limit" => {}
            "burst" => contract.burst = Some(Cost::new(or(100_000 * small))),
            "latency" => {
                let bound = Duration::from_nanos(or(20_000_000 * small));
                contract.latency = Some(Latency { bound, percentile: 950_000 });
            }
            "share" => {
                let kind = match size % 3 {
                    0 => DiskTimeKind::RentADisk,
                    1 => DiskTimeKind::LatencyConscious,
                    _ => DiskTimeKind::ThroughputConscious { throughput: rate(1), tolerance: 100_000 },
                };
                contract.disk_time = Some(DiskTime { share: 50_000 * small as u32, kind });
                // A bound belongs to the latency-conscious alone.
                let latency = Latency { bound: Duration::from_millis(200), percentile: 950_000 };
                contract.latency = (kind == DiskTimeKind::LatencyConscious).then_some(latency);
            }
            other => contract = contract.with(other, 10_000 * small),
        }
    }
    contract
}

/// Settings that make another scheduler of a scheduler; each passes the suite as the defaults do.
const VARIANTS: &[(&str, &[(&str, &str)])] = &[
    ("sfq", &[("tag", "arrival"), ("memory", "forever")]),
    ("sfq", &[("foreign", "hybrid"), ("cost", "disk time")]),
    ("sfq", &[("foreign", "hybrid-memoryless"), ("tag", "arrival")]),
    ("sfq", &[("foreign", "single"), ("cost", "requests")]),
    ("sfq", &[("cost", "time"), ("depth", "kept")]),
    ("mclock", &[("cost", "time"), ("depth", "kept")]),
    ("sfq", &[("work_conserving", "false"), ("capacity", "50MB/s")]),
    ("sfq", &[("work_conserving", "false"), ("capacity", "measured")]),
    ("vc", &[("foreign", "total")]),
    ("sfq", &[("work_conserving", "false"), ("capacity", "50MB/s"), ("tag", "arrival")]),
    ("mclock", &[("cost", "disk time")]),
    ("vc", &[("lead", "none"), ("split", "false"), ("cost", "disk time")]),
    ("cvc", &[("soft_deadlines", "false"), ("lead", "none"), ("estimate", "predicted")]),
    ("cvc", &[("estimate", "13ms"), ("delta", "8ms"), ("cost", "bytes")]),
    ("edf", &[("deadline", "arrival"), ("cost", "disk time")]),
    ("two-level", &[("bound", "none"), ("deadline", "arrival"), ("tag", "arrival")]),
    ("locality", &[("turn", "0s"), ("think", "0s")]),
    ("locality", &[("work_conserving", "false"), ("urgency", "false"), ("cost", "bytes")]),
    ("pclock", &[("cost", "bytes")]),
    // Some of what is asked for is refused.
    ("vc", &[("capacity", "200/s"), ("cost", "requests")]),
    ("cvc", &[("capacity", "200/s"), ("cost", "requests"), ("estimate", "30ms")]),
    ("edf", &[("capacity", "20MB/s"), ("cost", "bytes"), ("service", "30ms")]),
    ("mclock", &[("capacity", "200/s"), ("cost", "requests")]),
    ("pclock", &[("capacity", "200/s"), ("cost", "requests")]),
    ("two-level", &[("capacity", "20MB/s"), ("cost", "bytes")]),
    ("locality", &[("service", "30ms")]),
];

/// A scheduler under test: how it is made, and what it claims.
#[derive(Clone)]
struct Subject {
    entry: &'static Entry,
    params: Params,
    work_conserving: bool,
    /// Its depth is not the test's.
    own_depth: bool,
}

/// A depth that the test says.
struct Said(Arc<AtomicU32>);

impl DepthController for Said {
    fn depth(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn subjects() -> Vec<Subject> {
    let plain = SCHEDULERS.iter().map(|entry| (entry.name, &[] as &[(&str, &str)]));
    let all = plain.chain(VARIANTS.iter().copied());
    all.map(|(name, settings)| {
        let entry = find(name).expect("a scheduler of the registry");
        let value = |text: &str| match text {
            "true" | "false" => Value::Bool(text == "true"),
            text => Value::Text(text.to_owned()),
        };
        let params = settings.iter().fold(Params::new(name), |p, (k, v)| p.with(k, value(v)));
        let own_depth = settings.iter().any(|(key, _)| *key == "depth");
        let work_conserving = entry.work_conserving && !settings.contains(&("work_conserving", "false"));
        Subject { entry, params, work_conserving: work_conserving && !own_depth, own_depth }
    })
    .collect()
}

impl Subject {
    fn parts(&self, depth: &Arc<AtomicU32>) -> Assembly {
        let parts = build(self.entry.name, self.params.clone());
        let parts = parts.unwrap_or_else(|e| panic!("{}: {e}", self.entry.name));
        if self.own_depth { parts } else { Assembly { depth: Box::new(Said(depth.clone())), ..parts } }
    }
}

/// What a run did, to compare two of them.
#[derive(Clone, PartialEq, Debug)]
enum Event {
    Dispatched(Instant, RequestId),
    Waited(Instant, Option<Instant>),
    GivenBack(RequestId),
}

struct Run<'a> {
    subject: &'a Subject,
    gate: Gate,
    depth: Arc<AtomicU32>,
    limits: bool,
    now: Instant,
    ids: Pending<()>,
    /// Waiting, in the order they came.
    waiting: Vec<Request>,
    in_flight: Vec<RequestId>,
    set: [bool; FLOWS as usize],
    /// Another scheduler of the kind is being prepared, a flow at a time.
    preparing: bool,
    events: Vec<Event>,
}

impl<'a> Run<'a> {
    fn new(subject: &'a Subject, limits: bool) -> Self {
        let depth = Arc::new(AtomicU32::new(4));
        let mut run = Run {
            subject,
            gate: Gate::new(subject.parts(&depth)),
            depth,
            limits,
            now: Instant::ZERO,
            ids: Pending::new(),
            waiting: Vec::new(),
            in_flight: Vec::new(),
            set: [false; FLOWS as usize],
            preparing: false,
            events: Vec::new(),
        };
        for flow in 0..FLOWS - 1 {
            run.set_flow(flow, 0, 0); // the last one is added by a random call, or never
        }
        run
    }

    fn set_flow(&mut self, flow: u32, terms: u8, size: u8) {
        let wanted = contract(self.subject.entry, self.gate.cost_unit(), terms, size, self.limits);
        let (checked, before) = (self.gate.check(FlowId(flow), &wanted), self.gate.queued());
        let taken = self.gate.set_flow(FlowId(flow), &wanted, self.now);
        assert_eq!((checked, before), (taken.clone(), self.gate.queued()), "checked and set: {wanted:?}");
        let mut taken = taken.is_ok();
        if !taken && !self.set[flow as usize] {
            // Refused for its numbers, perhaps; everybody takes best effort.
            self.gate.set_flow(FlowId(flow), &Contract::best_effort(), self.now).expect("best effort");
            taken = true;
        }
        self.set[flow as usize] |= taken;
    }

    fn apply(&mut self, call: &Call) -> Result<(), TestCaseError> {
        match *call {
            Call::Submit { flow, op, offset, len, foreign } if self.set[flow as usize] => {
                let op = [
                    Op::Read,
                    Op::Read,
                    Op::Read,
                    Op::Write,
                    Op::Write,
                    Op::Flush,
                    Op::Trim,
                    Op::WriteZeroes,
                ][usize::from(op)];
                let id = self.ids.insert(());
                // One in four was held before the scheduler, for up to 16 ms: its flow's later requests may have passed it.
                let held = if offset % 4 == 0 { len * 16 } else { 0 };
                let arrival = Instant::from_nanos(self.now.as_nanos().saturating_sub(held));
                let request = Request::new(id, FlowId(flow), op, offset, len, arrival);
                let request = Request { foreign: Cost::new(foreign), ..request };
                self.gate.submit(request, self.now).expect("far fewer than may be pending");
                self.waiting.push(request);
            }
            Call::Cancel { nth } if !self.waiting.is_empty() => self.cancel(nth % self.waiting.len())?,
            Call::Complete { nth, failed } if !self.in_flight.is_empty() => self.complete(nth, failed),
            Call::Adjust { nth, cost } if !self.in_flight.is_empty() => {
                let id = self.in_flight[nth % self.in_flight.len()];
                self.gate.adjust(id, Cost::new(cost), self.now);
            }
            Call::Sleep { us } => self.now += Duration::from_micros(us),
            Call::SetFlow { flow, terms, size } => self.set_flow(flow, terms, size),
            Call::RemoveFlow { flow } => self.remove_flow(FlowId(flow))?,
            Call::Foreign { flow, cost } if self.set[flow as usize] => {
                self.gate.foreign(FlowId(flow), Cost::new(cost), self.now);
            }
            Call::Retag { nth, lead } if !self.waiting.is_empty() => {
                let id = self.waiting[nth % self.waiting.len()].id;
                self.gate.retag(id, Duration::from_nanos(lead), self.now);
            }
            Call::Depth { to } => self.depth.store(to, Ordering::Relaxed),
            Call::Exchange if !self.preparing => {
                self.gate.prepare(self.subject.parts(&self.depth), 1);
                self.preparing = true;
            }
            _ => {}
        }
        self.go_on()?;
        self.dispatch()
    }

    fn cancel(&mut self, at: usize) -> Result<(), TestCaseError> {
        let request = self.waiting.remove(at);
        let given = self.gate.cancel(request.id, self.now);
        prop_assert_eq!(given.map(|r| r.id), Some(request.id), "cancelled");
        prop_assert!(self.gate.cancel(request.id, self.now).is_none(), "cancelled twice");
        self.over(request.id);
        Ok(())
    }

    /// A step of an exchange that is being prepared.
    fn go_on(&mut self) -> Result<(), TestCaseError> {
        if !self.preparing {
            return Ok(());
        }
        let ready = self.gate.prepare_step(self.now).map_err(|(flow, refused)| {
            TestCaseError::fail(format!("an equal scheduler refused {flow:?}: {refused}"))
        })?;
        if ready {
            self.gate.take_over(self.now);
            self.preparing = false;
        }
        Ok(())
    }

    fn over(&mut self, id: RequestId) {
        self.ids.remove(id).expect("a request is over once");
        self.events.push(Event::GivenBack(id));
    }

    fn complete(&mut self, nth: usize, failed: bool) {
        let id = self.in_flight.remove(nth % self.in_flight.len());
        self.now += Duration::from_nanos(1);
        let served = self.gate.complete(id, failed, self.now);
        assert_eq!(served.request.id, id);
        self.ids.remove(id).expect("a request is over once");
    }

    fn remove_flow(&mut self, flow: FlowId) -> Result<(), TestCaseError> {
        let mut orphans = Vec::new();
        self.gate.remove_flow(flow, self.now, &mut orphans);
        let mut given: Vec<_> = orphans.iter().map(|r| r.id).collect();
        let mut expected: Vec<_> = self.waiting.iter().filter(|r| r.flow == flow).map(|r| r.id).collect();
        given.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(&given, &expected, "orphans of {:?}", flow);
        self.waiting.retain(|r| r.flow != flow);
        self.set[flow.index()] = false;
        given.into_iter().for_each(|id| self.over(id));
        Ok(())
    }

    /// Dispatches all that may go.
    fn dispatch(&mut self) -> Result<(), TestCaseError> {
        let name = self.subject.entry.name;
        prop_assert_eq!(self.gate.queued(), self.waiting.len(), "{} lost count", name);
        loop {
            match self.gate.next(self.now) {
                Dispatch::Ready(request) => {
                    let at = self.waiting.iter().position(|r| r.id == request.id);
                    let Some(at) = at else {
                        return Err(TestCaseError::fail(format!("{name}: {:?} did not wait", request.id)));
                    };
                    let first = self.waiting.iter().position(|r| r.flow == request.flow);
                    prop_assert!(
                        self.subject.entry.order == Order::Position || first == Some(at),
                        "{name}: not its flow's first"
                    );
                    self.waiting.remove(at);
                    self.in_flight.push(request.id);
                    self.events.push(Event::Dispatched(self.now, request.id));
                }
                Dispatch::Wait { until, .. } => {
                    self.events.push(Event::Waited(self.now, until));
                    prop_assert!(!self.waiting.is_empty(), "{name} waits with nothing waiting");
                    let room = self.gate.in_flight() < self.gate.depth();
                    let may_wait = self.limits || !self.subject.work_conserving || !room;
                    prop_assert!(may_wait, "{name} claims to be work conserving, and waits");
                    let wake = self.gate.wake_at();
                    let ahead = self.gate.is_exchanging() || wake.is_none_or(|at| at > self.now);
                    prop_assert!(ahead, "{name} is to be woken at {wake:?}, and nothing may go");
                    return Ok(());
                }
                Dispatch::Idle => {
                    prop_assert!(self.waiting.is_empty(), "{name} is idle with a backlog");
                    return Ok(());
                }
            }
        }
    }

    /// Completes and waits until nothing is left; every wait must lead somewhere.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        let mut waits = 0;
        while !(self.waiting.is_empty() && self.in_flight.is_empty()) {
            let before = self.waiting.len();
            self.dispatch()?;
            if self.in_flight.is_empty() && !self.waiting.is_empty() {
                let until = self.gate.wake_at();
                // While flows move, the gate wants to be asked again at once.
                let moves = self.gate.is_exchanging();
                let Some(until) = until.filter(|&t| t > self.now || moves) else {
                    return Err(TestCaseError::fail(format!(
                        "{} waits for {until:?}",
                        self.subject.entry.name
                    )));
                };
                if until.since(self.now) > Duration::from_micros(10 * YEARS) {
                    prop_assert!(self.limits || !self.subject.work_conserving, "it waits for decades");
                    (0..self.waiting.len()).try_for_each(|_| self.cancel(0))?;
                    break;
                }
                self.now = until;
            } else if !self.in_flight.is_empty() {
                self.now += Duration::from_micros(100);
                self.complete(0, false);
            }
            waits = if self.waiting.len() < before { 0 } else { waits + 1 };
            prop_assert!(waits < 1000, "{}: no progress", self.subject.entry.name);
        }
        prop_assert_eq!(self.gate.in_flight(), 0);
        prop_assert_eq!(self.gate.next(self.now), Dispatch::Idle);
        prop_assert!(self.ids.is_empty(), "each request was over once");
        Ok(())
    }
}

fn play(subject: &Subject, limits: bool, calls: &[Call]) -> Result<Vec<Event>, TestCaseError> {
    let mut run = Run::new(subject, limits);
    for call in calls {
        run.apply(call)?;
    }
    run.finish()?;
    Ok(run.events)
}

fn for_each_scheduler(limits: bool) {
    for subject in subjects() {
        let config = Config { cases: 150, failure_persistence: None, ..Config::default() };
        let calls = proptest::collection::vec(call(), 1..250);
        let result = TestRunner::new(config).run(&calls, |calls| {
            let first = play(&subject, limits, &calls)?;
            prop_assert_eq!(first, play(&subject, limits, &calls)?, "equal runs differ");
            Ok(())
        });
        result.unwrap_or_else(|e| panic!("{:?}: {e}", subject.params));
    }
}

#[test]
fn every_request_leaves_once_in_order_and_equal_runs_are_equal() {
    for_each_scheduler(true);
}

#[test]
fn work_is_conserved_where_claimed() {
    for_each_scheduler(false);
}

/// Four flows flood the gate, completing one request keeps it full; the fifth has one request at a time. Each of
/// its requests leaves before the flood has had 2000.
#[test]
fn nobody_starves() {
    // A depth that gives way to promises searches for longer.
    for subject in subjects().into_iter().filter(|subject| !subject.own_depth) {
        for (terms, size) in [(0, 0), (1, 3), (0xff, 2)] {
            let mut run = Run::new(&subject, false);
            run.set_flow(FLOWS - 1, 0, 0);
            (0..FLOWS - 1).for_each(|flow| run.set_flow(flow, terms, size));
            let submit = |run: &mut Run<'_>, flow: u32, n: u64| {
                let (offset, len) = (n * 7_919 * 4096 % (1 << 33), 4096);
                run.apply(&Call::Submit { flow, op: 0, offset, len, foreign: 0 }).unwrap();
            };
            let (mut served, mut since) = (0, 0);
            submit(&mut run, FLOWS - 1, 1);
            for n in 0..8_000 {
                while run.waiting.len() < 40 {
                    submit(&mut run, (n % u64::from(FLOWS - 1)) as u32, n);
                }
                if run.in_flight.is_empty() {
                    run.now =
                        run.gate.wake_at().expect("it says when").max(run.now + Duration::from_nanos(1));
                    run.dispatch().unwrap();
                    continue;
                }
                run.now += Duration::from_millis(1);
                run.complete(0, false);
                run.dispatch().unwrap();
                since += 1;
                if !run.waiting.iter().any(|r| r.flow == FlowId(FLOWS - 1)) {
                    submit(&mut run, FLOWS - 1, n);
                    (served, since) = (served + 1, 0);
                }
                assert!(
                    since < 2_000,
                    "{}: a flow starves behind others with terms {terms:#x}",
                    subject.entry.name
                );
            }
            assert!(served > 0);
        }
    }
}
