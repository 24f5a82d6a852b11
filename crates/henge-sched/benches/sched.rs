//! What a scheduler costs: CPU time per request, per flow that becomes active, and memory per idle flow.
//!
//! `make bench-sched`, or `cargo bench -p henge-sched --bench sched -- [--json] [--quick] [NAME …]`.
//!
//! One step is what a request costs in all: the scheduler dispatches one, hears that it is complete, and takes in the
//! next of the same flow, so every flow always has two waiting. `HENGE_DMCLOCK_BENCH` may name a program that does the
//! same with Ceph's dmclock: it is run with the number of flows and of steps, prints the ns of one step, and is
//! interleaved with ours. CPU time, not time on the wall: others may use the machine.
//!
//! At the end: the way of a request through a whole gate, with what suits a device (time as the cost, learned, and a depth that follows
//! promises), and how much more that is than a stated depth and a cost that nobody learns.
#![allow(clippy::disallowed_methods)] // a bench is what measures real time

use henge_core::{
    Completion, Contract, Cost, CostUnit, Dispatch, Duration, FlowId, Gate, Instant, Op, Params, Rate,
    Request, RequestId, Scheduler, Slots, Value,
};
use henge_sched::{Entry, SCHEDULERS, build, charge_as, find, suit_device};
use rustix::time::{ClockId, clock_gettime};
use std::process::Command;

const FLOWS: [u32; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
/// What SFQ(D) and Virtual Clock are to keep within, in ns a request.
const TARGETS: [(&str, [f64; 6]); 2] =
    [("sfq", [40.0, 60.0, 100.0, 200.0, 450.0, 900.0]), ("vc", [40.0, 60.0, 100.0, 200.0, 450.0, 900.0])];
const SLOTS: Slots = Slots { in_flight: 0, depth: 1, spare: true };

fn cpu_ns() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}

fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells a process its size");
    let pages: f64 =
        statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("the second number is the set");
    pages * 4096.0
}

struct Bench {
    scheduler: Box<dyn Scheduler>,
    now: Instant,
    slots: u32,
    position: u64,
}

impl Bench {
    fn new(entry: &Entry, flows: u32) -> Self {
        let parts = build(entry.name, Params::new(entry.name)).expect("defaults are valid");
        let mut bench = Bench { scheduler: parts.scheduler, now: Instant::ZERO, slots: 0, position: 1 };
        let unit = parts.cost.unit();
        for flow in 0..flows {
            let contract = contract(entry, unit, flow, flows);
            bench.scheduler.set_flow(FlowId(flow), &contract, bench.now).expect("a contract that it keeps");
        }
        bench
    }

    /// A request of the flow, somewhere on the device, of 8 KiB on average.
    fn request(&mut self, id: RequestId, flow: FlowId) -> Request {
        self.position = self.position.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let offset = (self.position >> 30) & !4095;
        let request = Request::new(id, flow, Op::Read, offset, 4096, self.now);
        // Costs differ, so that flows do not go round in the order of their places in memory.
        Request { cost: Cost::new(1 + (self.position >> 50)), ..request }
    }

    fn put(&mut self, flow: u32) -> RequestId {
        let id = RequestId { slot: self.slots, generation: 0 };
        self.slots += 1;
        let request = self.request(id, FlowId(flow));
        self.scheduler.enqueue(request, self.now);
        id
    }

    fn fill(&mut self, flows: std::ops::Range<u32>, each: u32) {
        for _ in 0..each {
            for flow in flows.clone() {
                self.put(flow);
            }
        }
    }

    /// Dispatches and completes one request; what it was, for the next.
    fn serve(&mut self) -> Request {
        loop {
            match self.scheduler.dispatch(self.now, SLOTS) {
                Dispatch::Ready(request) => {
                    let dispatched = self.now;
                    self.now += Duration::from_micros(1);
                    let completion = Completion {
                        request,
                        actual: request.cost,
                        dispatched,
                        service: Duration::from_micros(1),
                        in_flight: 0,
                    };
                    self.scheduler.complete(&completion, self.now);
                    return request;
                }
                Dispatch::Wait { until, .. } => self.now = until.expect("nothing is in flight").max(self.now),
                Dispatch::Idle => unreachable!("every flow has something waiting"),
            }
        }
    }

    fn steps(&mut self, n: u32) {
        for _ in 0..n {
            let over = self.serve();
            let id = RequestId { generation: over.id.generation + 1, ..over.id };
            let next = self.request(id, over.flow);
            self.scheduler.enqueue(next, self.now);
        }
    }
}

/// A weight where the scheduler knows weights, a reservation where it does not.
fn contract(entry: &Entry, unit: CostUnit, flow: u32, flows: u32) -> Contract {
    let keeps = |term| entry.keeps.contains(&term);
    if keeps("weight") {
        Contract::weighted(1 + flow % 7)
    } else if keeps("rate") {
        // Together what the bench serves: a cost of 8192 every microsecond.
        let per_second = 8_192_000_000 / u64::from(flows) * u64::from(1 + flow % 7) / 4;
        Contract::reserved(Rate { per_second: per_second.max(1), unit })
    } else {
        Contract::best_effort()
    }
}

/// CPU ns of one step, the least of five rounds; `None` beyond 100 µs a step.
fn step_ns(bench: &mut Bench, flows: u32, round: f64) -> Option<f64> {
    let begin = cpu_ns();
    bench.steps(32);
    let guess = (cpu_ns() - begin) / 32.0;
    if guess > 100_000.0 {
        return None;
    }
    let steps = (round / guess).clamp(1_000.0, 2_000_000.0) as u32;
    bench.steps(steps.max(6 * flows)); // until the order of the flows is as mixed as it will be
    let mut rounds = [0.0; 5].map(|_: f64| {
        let begin = cpu_ns();
        bench.steps(steps);
        (cpu_ns() - begin) / f64::from(steps)
    });
    rounds.sort_by(f64::total_cmp);
    Some(rounds[0])
}

/// CPU ns for a flow to become active among so many that are.
fn activate_ns(entry: &Entry, flows: u32) -> f64 {
    let idle = flows / 100;
    let mut bench = Bench::new(entry, flows);
    bench.fill(0..flows - idle, 1);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let begin = cpu_ns();
        let ids: Vec<_> = (flows - idle..flows).map(|flow| bench.put(flow)).collect();
        best = best.min((cpu_ns() - begin) / f64::from(idle));
        for id in ids {
            bench.scheduler.cancel(id, bench.now).expect("it waits");
            bench.slots -= 1;
        }
    }
    best
}

/// Resident bytes per flow that had a request once, and has none.
fn idle_bytes(entry: &Entry, flows: u32) -> f64 {
    let before = resident_bytes();
    let mut bench = Bench::new(entry, flows);
    for flow in 0..flows {
        bench.put(flow);
        bench.slots = 0;
        bench.serve();
    }
    (resident_bytes() - before) / f64::from(flows)
}

/// The same in a process of its own, whose memory nobody used before.
fn idle_bytes_alone(entry: &Entry) -> Option<f64> {
    let output = Command::new(std::env::current_exe().ok()?).args(["--idle", entry.name]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// `--steps STEPS FLOWS NAME`: nothing but that, for tools that count instructions: the difference of two such runs,
/// divided by the difference of their steps, is what a request costs. `--gate STEPS FLOWS NAME plain|device` is the same of a whole gate.
fn only_steps(entry: &Entry, steps: u32, flows: u32) {
    let mut bench = Bench::new(entry, flows);
    bench.fill(0..flows, 2);
    bench.steps(steps);
}

/// A gate with so many flows, each of which has two requests waiting and the gate 32 in flight.
struct Whole {
    gate: Gate,
    now: Instant,
    flying: std::collections::VecDeque<Request>,
}

/// What learning and promises may cost a request, in ns.
const LEARNING: f64 = 100.0;

impl Whole {
    fn new(entry: &Entry, flows: u32, device: bool) -> Self {
        let mut knobs = Params::new(entry.name);
        let contracts: Vec<_> = (0..flows).map(|flow| gate_contract(entry, flow, flows)).collect();
        if device {
            suit_device(entry.name, &mut knobs);
        } else {
            knobs.set("depth", Value::Integer(32), 0..0);
        }
        charge_as(&mut knobs, &contracts);
        let mut gate = Gate::new(build(entry.name, knobs).expect("defaults are valid"));
        for (flow, contract) in contracts.iter().enumerate() {
            gate.set_flow(FlowId(flow as u32), contract, Instant::ZERO).expect("a contract that it keeps");
        }
        let mut whole = Whole { gate, now: Instant::ZERO, flying: std::collections::VecDeque::new() };
        for n in 0..2 * flows + 32 {
            whole.submit(RequestId { slot: n, generation: 0 }, FlowId(n % flows));
        }
        whole.dispatch();
        whole
    }

    fn submit(&mut self, id: RequestId, flow: FlowId) {
        let (op, len) = if id.slot.is_multiple_of(3) { (Op::Write, 64 << 10) } else { (Op::Read, 4096) };
        let request = Request::new(id, flow, op, 0, len, self.now);
        self.gate.submit(request, self.now).expect("few are pending");
    }

    fn dispatch(&mut self) {
        while let Dispatch::Ready(request) = self.gate.next(self.now) {
            self.flying.push_back(request);
        }
    }

    fn steps(&mut self, n: u32) {
        for _ in 0..n {
            self.now += Duration::from_micros(10);
            let over = loop {
                if let Some(over) = self.flying.pop_front() {
                    break over;
                }
                // Whoever waits is held to a pace.
                let wake = self.gate.wake_at().expect("those who wait are asked again");
                self.now = wake.max(self.now + Duration::from_nanos(1));
                self.dispatch();
            };
            self.gate.complete(over.id, false, self.now);
            self.submit(RequestId { generation: over.id.generation + 1, ..over.id }, over.flow);
            self.dispatch();
        }
    }

    /// CPU ns of one step, the least of five rounds.
    fn step_ns(&mut self, steps: u32) -> f64 {
        self.steps(steps / 4);
        (0..5)
            .map(|_| {
                let begin = cpu_ns();
                self.steps(steps);
                (cpu_ns() - begin) / f64::from(steps)
            })
            .fold(f64::INFINITY, f64::min)
    }
}

/// A weight, or a part of 100,000 commands a second.
fn gate_contract(entry: &Entry, flow: u32, flows: u32) -> Contract {
    let per_second = 80_000_000_000 / u64::from(flows);
    match entry.keeps.contains(&"rate") {
        true => Contract::reserved(Rate::requests_micro(per_second)),
        false => Contract::weighted(1 + flow % 7),
    }
}

/// What learning and promises cost a request, for people; whether all is within the target.
fn learning(wanted: impl Fn(&&Entry) -> bool, steps: u32) {
    println!(
        "\nCPU ns a request of a whole gate with 100 flows: with a stated depth, and with what suits a device"
    );
    for entry in
        SCHEDULERS.iter().filter(wanted).filter(|entry| entry.on_device.kept || entry.on_device.shares)
    {
        let plain = Whole::new(entry, 100, false).step_ns(steps);
        let device = Whole::new(entry, 100, true).step_ns(steps);
        let verdict = if device - plain <= LEARNING { "within" } else { "beyond" };
        println!(
            "{:<14}{plain:>10.0}{device:>10.0}   {:+.0} ns, {verdict} {LEARNING}",
            entry.name,
            device - plain
        );
    }
}

fn dmclock_ns(program: &str, flows: u32, steps: u32) -> Option<f64> {
    let output = Command::new(program).args([flows.to_string(), steps.to_string()]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|a| a == flag);
    let (json, quick) = (has("--json"), has("--quick"));
    let names: Vec<_> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    let wanted = |e: &&Entry| names.is_empty() || names.iter().any(|n| *n == e.name);
    let round = if quick { 5e6 } else { 50e6 };
    if let Some(at) = arguments.iter().position(|a| a == "--steps") {
        let number = |n: usize| arguments[at + n].parse::<u32>().expect("--steps STEPS FLOWS");
        return only_steps(find(&arguments[at + 3]).expect("a scheduler"), number(1), number(2));
    }
    if let Some(at) = arguments.iter().position(|a| a == "--gate") {
        let number =
            |n: usize| arguments[at + n].parse::<u32>().expect("--gate STEPS FLOWS NAME plain|device");
        let device = arguments[at + 4] == "device";
        return Whole::new(find(&arguments[at + 3]).expect("a scheduler"), number(2), device)
            .steps(number(1));
    }
    if has("--idle") {
        SCHEDULERS.iter().filter(wanted).for_each(|entry| println!("{:.1}", idle_bytes(entry, 200_000)));
        return;
    }
    let peer = std::env::var("HENGE_DMCLOCK_BENCH").ok();
    let line = |name: &str, value: f64, unit: &str, peer: Option<f64>| {
        let peer_name = peer.map_or("null".to_owned(), |_| "\"dmclock\"".to_owned());
        let ratio = peer.map_or("null".to_owned(), |p| format!("{:.3}", value / p));
        println!(
            "{{\"name\":\"sched/{name}\",\"value\":{value:.1},\"unit\":\"{unit}\",\"peer\":{peer_name},\"ratio\":{ratio}}}"
        );
    };

    if !json {
        println!("CPU ns a request (enqueue + dispatch + complete), by flows that have something waiting");
        println!("{:<14}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}", "", 1, 10, 100, "1k", "10k", "100k");
    }
    let mut peers = [None; 6];
    if let Some(program) = &peer {
        // Not 100k: a flow becomes active there in time linear in their number, 15 ms each.
        for (at, flows) in FLOWS.into_iter().enumerate().take(5) {
            peers[at] = dmclock_ns(program, flows, if quick { 50_000 } else { 300_000 });
        }
        let cells: String =
            peers.iter().map(|p| p.map_or(format!("{:>10}", "-"), |p| format!("{p:>10.0}"))).collect();
        if json {
            for (p, flows) in peers.iter().zip(FLOWS) {
                line(&format!("dmclock/{flows}"), p.unwrap_or(f64::NAN), "ns", None);
            }
        } else {
            println!("{:<14}{cells}   {program}", "dmclock");
        }
    }
    for entry in SCHEDULERS.iter().filter(wanted) {
        let target = TARGETS.iter().find(|(name, _)| *name == entry.name).map(|(_, t)| t);
        let (mut cells, mut missed) = (String::new(), 0);
        for (at, flows) in FLOWS.into_iter().enumerate() {
            let mut bench = Bench::new(entry, flows);
            bench.fill(0..flows, 2);
            let ns = step_ns(&mut bench, flows, round);
            let half = peers[at].map_or(0.0, |p| p / 2.0);
            missed += u32::from(target.is_some_and(|t| ns.is_none_or(|ns| ns > t[at].max(half))));
            cells += &ns.map_or(format!("{:>10}", "-"), |ns| format!("{ns:>10.0}"));
            if let (true, Some(ns)) = (json, ns) {
                line(&format!("{}/{flows}", entry.name), ns, "ns", peers[at]);
            }
        }
        if !json {
            let verdict = match (target, missed) {
                (None, _) => String::new(),
                (Some(_), 0) => "   within its targets".to_owned(),
                (Some(_), n) => format!("   beyond {n} of its 6 targets"),
            };
            println!("{:<14}{cells}{verdict}", entry.name);
        }
    }
    if !json {
        println!("\n{:<14}{:>24}{:>24}", "", "ns to become active", "bytes an idle flow");
    }
    for entry in SCHEDULERS.iter().filter(wanted) {
        let flows = if quick { 10_000 } else { 100_000 };
        let (active, idle) = (activate_ns(entry, flows), idle_bytes_alone(entry).unwrap_or(f64::NAN));
        if json {
            line(&format!("{}/activate/{flows}", entry.name), active, "ns", None);
            line(&format!("{}/idle", entry.name), idle, "bytes", None);
        } else {
            println!("{:<14}{active:>24.0}{idle:>24.0}", entry.name);
        }
    }
    if !json {
        learning(wanted, if quick { 200_000 } else { 2_000_000 });
    }
}
