//! What a victim keeps beside an attacker on emulated devices, by promise: `tools/bench-isolation` without its processor.

use henge_core::{
    Contract, Dispatch, Duration, FlowId, Gate, Instant, Latency, Model, Op, Params, Pending, Rate, Request,
    RequestId, Value,
};
use henge_device::{DeviceSpec, no_files};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex, OnceLock};

const DISK: u64 = 256 << 20;
/// Disks of addresses that are written before anybody comes.
const DISKS: u64 = 5;
const SECOND: u64 = 1_000_000_000;

/// A closed loop: so many commands outstanding, each the next of `kinds`, a change of kind after so many commands, at random if after none; after `burst` commands it
/// rests for 200 ms.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub name: &'static str,
    pub kinds: &'static [(Op, u64)],
    pub outstanding: u32,
    pub each: u64,
    pub burst: u64,
    pub sequential: bool,
}

pub const fn load(name: &'static str, kinds: &'static [(Op, u64)], outstanding: u32) -> Load {
    Load { name, kinds, outstanding, each: 1, burst: 0, sequential: false }
}

impl Load {
    /// Of a command, on average.
    pub fn bytes(&self) -> f64 {
        self.kinds.iter().map(|(_, len)| *len as f64).sum::<f64>() / self.kinds.len() as f64
    }
}

pub const VICTIMS: &[Load] = &[
    load("reads-16k-8", &[(Op::Read, 16 << 10)], 8),
    load("reads-4k-1", &[(Op::Read, 4 << 10)], 1),
    load("writes-64k-4", &[(Op::Write, 64 << 10)], 4),
];

pub const ATTACKERS: &[Load] = &[
    load("reads-512-64", &[(Op::Read, 512)], 64),
    load("reads-4k-64", &[(Op::Read, 4 << 10)], 64),
    load("reads-1m-32", &[(Op::Read, 1 << 20)], 32),
    Load { burst: 256, ..load("bursts", &[(Op::Read, 64 << 10)], 128) },
    load(
        "mixed",
        &[(Op::Read, 4 << 10), (Op::Write, 64 << 10), (Op::Read, 1 << 20), (Op::Read, 64 << 10)],
        32,
    ),
    load("writes-4k-64", &[(Op::Write, 4 << 10)], 64),
    Load { sequential: true, ..load("writes-sequential", &[(Op::Write, 128 << 10)], 16) },
    load("writes-1m-32", &[(Op::Write, 1 << 20)], 32),
    load("writes-32m-4", &[(Op::Write, 32 << 20)], 4),
    load("flushes", &[(Op::Flush, 0)], 64),
    load("trims-4k-64", &[(Op::Trim, 4 << 10)], 64),
    load("zeroes-1m-16", &[(Op::WriteZeroes, 1 << 20)], 16),
    Load {
        each: 4000,
        ..load("alternating", &[(Op::Write, 128 << 10), (Op::Trim, 4 << 10), (Op::Read, 4 << 10)], 64)
    },
    Load {
        each: 50,
        ..load("alternating-fast", &[(Op::Write, 128 << 10), (Op::Write, 512), (Op::Read, 1 << 20)], 64)
    },
];

struct Part {
    client: usize,
    command: usize,
}

struct Command {
    left: u64,
    arrival: Instant,
}

struct Client {
    load: Load,
    flow: u32,
    sent: u64,
    rests_until: Instant,
    /// Outstanding and due.
    slots: u32,
    due: BinaryHeap<Reverse<Instant>>,
    latencies: Vec<u64>,
    /// By second.
    over: Vec<u64>,
}

pub struct World {
    gate: Gate,
    model: Model,
    quantum: u64,
    now: Instant,
    ids: Pending<Part>,
    commands: Vec<Option<Command>>,
    free: Vec<usize>,
    clients: Vec<Client>,
    rng: Pcg64Mcg,
    measured_from: Instant,
    think: Duration,
}

impl World {
    pub fn new(device: &str, scheduler: &str, settings: &[(&str, Value)], seed: u64) -> Self {
        let mut params = Params::new("node").with("device", Value::Text(device.into()));
        let spec = DeviceSpec::from_params(&mut params, "device", &no_files).unwrap().unwrap();
        let params = settings.iter().fold(Params::new(scheduler), |p, (k, v)| p.with(k, v.clone()));
        let gate = Gate::new(henge_sched::build(scheduler, params).unwrap_or_else(|e| panic!("{e}")));
        let mut model = spec.build().into_model();
        let mut now = Instant::ZERO;
        if matches!(device, "nvme-dc" | "sata-ssd") {
            now = fill(&mut model);
        }
        let quantum = model.quantum();
        let mut gate = gate;
        gate.set_pending_max(1 << 20);
        gate.leave_pending();
        World {
            gate,
            model,
            quantum,
            now,
            ids: Pending::new(),
            commands: Vec::new(),
            free: Vec::new(),
            clients: Vec::new(),
            rng: Pcg64Mcg::seed_from_u64(seed),
            measured_from: now,
            think: Duration::from_micros(20),
        }
    }

    pub fn add(&mut self, load: Load, contract: &Contract, from: Duration) {
        let flow = self.clients.len() as u32;
        self.gate.set_flow(FlowId(flow), contract, self.now).unwrap_or_else(|e| panic!("{e}"));
        let due = std::iter::repeat_n(Reverse(self.now + from), load.outstanding as usize).collect();
        let (latencies, over) = (Vec::new(), Vec::new());
        let slots = load.outstanding;
        self.clients.push(Client {
            load,
            flow,
            sent: 0,
            rests_until: Instant::ZERO,
            slots,
            due,
            latencies,
            over,
        });
    }

    fn send(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let load = client.load;
        let kind = client.sent.checked_div(load.each).unwrap_or_else(|| self.rng.random_range(0..1 << 20));
        let (op, len) = load.kinds[kind as usize % load.kinds.len()];
        client.sent += 1;
        if load.burst > 0 && client.sent.is_multiple_of(load.burst) {
            client.rests_until = self.now + Duration::from_millis(200);
        }
        let room = (DISK - len) / len.max(512);
        let at =
            if load.sequential { client.sent % room } else { self.rng.random_range(0..room) } * len.max(512);
        let offset = addresses_of(client.flow) * DISK + at;
        let moves = matches!(op, Op::Read | Op::Write | Op::WriteZeroes);
        let quantum = if moves { self.quantum } else { u64::MAX };
        let parts = len.div_ceil(quantum).max(1);
        let command = self.free.pop().unwrap_or_else(|| {
            self.commands.push(None);
            self.commands.len() - 1
        });
        self.commands[command] = Some(Command { left: parts, arrival: self.now });
        for part in 0..parts {
            let begin = part * quantum.min(len.max(1));
            let id = self.ids.insert(Part { client: c, command });
            let flow = FlowId(client.flow);
            let mut request =
                Request::new(id, flow, op, offset + begin, (len - begin).min(quantum), self.now);
            request.commands = Request::WHOLE / parts as u32;
            self.gate.submit(request, self.now).expect("the bound is far");
        }
    }

    fn complete(&mut self, id: RequestId) {
        self.gate.complete(id, false, self.now);
        self.part_over(id);
    }

    fn part_over(&mut self, id: RequestId) {
        let Part { client, command } = self.ids.remove(id).unwrap();
        let state = self.commands[command].as_mut().unwrap();
        state.left -= 1;
        let client = &mut self.clients[client];
        if state.left > 0 {
            return;
        }
        let arrival = state.arrival;
        self.commands[command] = None;
        self.free.push(command);
        if self.now >= self.measured_from {
            client.latencies.push(self.now.since(arrival).as_nanos());
            let second = (self.now.since(self.measured_from).as_nanos() / SECOND) as usize;
            client.over.resize(client.over.len().max(second + 1), 0);
            client.over[second] += 1;
        }
        if client.slots > client.load.outstanding {
            client.slots -= 1;
        } else {
            client.due.push(Reverse((self.now + self.think).max(client.rests_until)));
        }
    }

    /// Runs for `warm`, and then for whole seconds that are measured.
    pub fn run(&mut self, warm: Duration, seconds: u64) {
        self.measure(warm);
        self.run_to(self.measured_from + Duration::from_secs(seconds));
        self.measured(seconds);
    }

    /// What is over from now + `warm` on counts.
    pub fn measure(&mut self, warm: Duration) {
        self.measured_from = self.now + warm;
    }

    /// So many seconds were measured.
    pub fn measured(&mut self, seconds: u64) {
        self.clients.iter_mut().for_each(|c| {
            c.over.resize(seconds as usize, 0);
            c.latencies.sort_unstable();
        });
    }

    pub fn run_to(&mut self, end: Instant) {
        while self.now < end {
            for c in 0..self.clients.len() {
                while self.clients[c].due.peek().is_some_and(|t| t.0 <= self.now) {
                    self.clients[c].due.pop();
                    self.send(c);
                }
            }
            while let Dispatch::Ready(request) = self.gate.next(self.now) {
                self.model.submit(&request, (), self.now);
            }
            let mut any = false;
            while let Some(done) = self.model.reap(self.now) {
                self.complete(done.id);
                any = true;
            }
            if any {
                continue;
            }
            let due = self.clients.iter().filter_map(|c| c.due.peek()).map(|t| t.0).min();
            let wake = self.gate.wake_at().filter(|t| *t > self.now);
            let next =
                [self.model.wake_at(), due, wake, Some(end)].into_iter().flatten().min().expect("the end");
            self.now = next.max(self.now + Duration::from_nanos(1));
        }
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// The client does something else from now on.
    pub fn turn_to(&mut self, client: usize, load: Load) {
        let now = self.now;
        let c = &mut self.clients[client];
        c.load = load;
        while c.slots < load.outstanding {
            c.slots += 1;
            c.due.push(Reverse(now));
        }
        while c.slots > load.outstanding && c.due.pop().is_some() {
            c.slots -= 1;
        }
    }

    pub fn promise(&mut self, client: usize, contract: &Contract) {
        let flow = FlowId(self.clients[client].flow);
        self.gate.set_flow(flow, contract, self.now).unwrap_or_else(|e| panic!("{e}"));
    }

    /// The client's disk is removed, and made anew under another contract.
    pub fn anew(&mut self, client: usize, contract: &Contract) {
        let mut orphans = Vec::new();
        self.gate.remove_flow(FlowId(self.clients[client].flow), self.now, &mut orphans);
        orphans.iter().for_each(|orphan| self.part_over(orphan.id));
        self.promise(client, contract);
    }

    /// The client's commands a second, and by second; its 99.9th percentile in us.
    pub fn of(&self, client: usize) -> Got {
        let c = &self.clients[client];
        let seconds = c.over.len().max(1) as f64;
        Got {
            rate: c.over.iter().sum::<u64>() as f64 / seconds,
            seconds: c.over.clone(),
            p999: c
                .latencies
                .get(c.latencies.len().saturating_sub(1) * 999 / 1000)
                .map_or(0.0, |ns| *ns as f64 / 1e3),
        }
    }

    pub fn depth(&self) -> u32 {
        self.gate.depth()
    }
}

#[derive(Clone)]
pub struct Got {
    pub rate: f64,
    pub seconds: Vec<u64>,
    pub p999: f64,
}

/// Nobody else has the addresses of the first disk: whoever writes 4 KiB at a time over another's data scatters it over dies, and whoever trims it makes its reads
/// cost nothing. Of many disks some share.
fn addresses_of(flow: u32) -> u64 {
    u64::from(flow).checked_sub(1).map_or(0, |other| 1 + other % (DISKS - 1))
}

/// All disks are written once.
fn fill(model: &mut Model) -> Instant {
    let (mut now, mut ids, mut at) = (Instant::ZERO, Pending::new(), 0);
    let piece = 128 << 10;
    while at < DISKS * DISK || !ids.is_empty() {
        while at < DISKS * DISK && ids.len() < 16 {
            let id = ids.insert(());
            model.submit(&Request::new(id, FlowId(0), Op::Write, at, piece, now), (), now);
            at += piece;
        }
        while let Some(done) = model.reap(now) {
            ids.remove(done.id);
        }
        now = model.wake_at().unwrap_or(now).max(now + Duration::from_nanos(1));
    }
    now + Duration::from_secs(1)
}

pub fn text(s: &str) -> Value {
    Value::Text(s.into())
}

/// What a load has of a device that it does not share. Most tests here ask, of few loads, and two equal runs are equal: each is run once.
pub fn alone(device: &str, load: Load) -> Got {
    static KNOWN: Mutex<BTreeMap<String, Arc<OnceLock<Got>>>> = Mutex::new(BTreeMap::new());
    let run = || {
        let settings = [("depth", Value::Integer(256)), ("cost", text("bytes"))];
        let mut world = World::new(device, "fifo", &settings, 1);
        world.add(load, &Contract::best_effort(), Duration::ZERO);
        world.run(Duration::from_millis(500), 2);
        world.of(0)
    };
    let known = Arc::clone(
        KNOWN.lock().expect("nothing panics in here").entry(format!("{device} {load:?}")).or_default(),
    );
    known.get_or_init(run).clone()
}

pub fn kept() -> Value {
    controller(Params::new("kept"))
}

/// Shares by weight are promises, too.
pub fn kept_shares() -> Value {
    controller(Params::new("kept").with("shares", Value::Bool(true)))
}

fn controller(kept: Params) -> Value {
    Value::Table(Params::new("depth").with("kept", Value::Table(kept)))
}

/// What a neighbour wrote, whichever disk is its, is nothing that the victim reads: it has what it has alone once that one rests.
#[test]
fn nobody_writes_where_the_victim_reads() {
    for disk in 1..5 {
        let mut world =
            World::new("sata-ssd", "sfq", &[("depth", kept_shares()), ("cost", text("bytes"))], 1);
        world.add(VICTIMS[0], &Contract::weighted(4), Duration::ZERO);
        let idle = load("idle", &[(Op::Write, 4 << 10)], 0);
        (1..5).for_each(|_| world.add(idle, &Contract::best_effort(), Duration::ZERO));
        world.turn_to(disk, Load { outstanding: 128, ..idle });
        let start = world.now();
        world.measure(Duration::from_millis(1500));
        world.run_to(start + Duration::from_secs(1));
        world.turn_to(disk, idle);
        world.run_to(start + Duration::from_millis(2500));
        world.measured(1);
        let (got, alone) = (world.of(0).rate, alone("sata-ssd", VICTIMS[0]).rate);
        assert!(got >= 0.99 * alone, "disk {disk}: {got} of {alone}");
    }
}

/// A third of what the victim has alone is kept in each second, whatever the attacker, where it is not by a depth alone.
#[test]
fn a_rate_is_kept_in_each_second() {
    for (device, scheduler, attacker) in [("nvme-dc", "mclock", "writes-1m-32"), ("sata-ssd", "edf", "mixed")]
    {
        let attacker = ATTACKERS.iter().find(|a| a.name == attacker).unwrap();
        let rate = alone(device, VICTIMS[0]).rate / 3.0;
        let latency =
            (scheduler == "edf").then_some(Latency { bound: Duration::from_millis(2), percentile: 950_000 });
        let contract = Contract { latency, ..Contract::reserved(Rate::requests_micro((rate * 1e6) as u64)) };
        let beside = |depth| {
            let mut world = World::new(device, scheduler, &[("depth", depth), ("cost", text("requests"))], 1);
            world.add(VICTIMS[0], &contract, Duration::ZERO);
            world.add(*attacker, &Contract::best_effort(), Duration::from_millis(200));
            world.run(Duration::from_secs(1), 3);
            world.of(0)
        };
        let fixed = beside(Value::Integer(32));
        assert!(
            fixed.rate < 0.7 * rate,
            "{device}: {} of {rate} by a depth alone: nothing to keep",
            fixed.rate
        );
        let got = beside(kept());
        assert!(
            got.seconds.iter().all(|n| *n as f64 >= 0.99 * rate),
            "{device}, {scheduler}: {:?} of {rate}",
            got.seconds
        );
    }
}

/// At 4 : 1 a reader that never waits at the gate has its share of what it has alone in each second, and its neighbour keeps nearly its own.
#[test]
fn a_share_is_kept_in_each_second() {
    for (device, attacker) in
        [("nvme-dc", "writes-1m-32"), ("nvme-dc", "mixed"), ("sata-ssd", "writes-1m-32")]
    {
        let attacker = ATTACKERS.iter().find(|a| a.name == attacker).unwrap();
        let (reads, theirs) = (alone(device, VICTIMS[0]).rate, alone(device, *attacker).rate);
        for seed in 1..4 {
            let settings = [("depth", kept_shares()), ("cost", text("bytes"))];
            let mut world = World::new(device, "sfq", &settings, seed);
            world.add(VICTIMS[0], &Contract::weighted(4), Duration::ZERO);
            world.add(*attacker, &Contract::best_effort(), Duration::from_millis(200));
            world.run(Duration::from_secs(2), 3);
            let (got, other) = (world.of(0), world.of(1).rate);
            let due = 0.8 * reads;
            assert!(
                got.seconds.iter().all(|n| *n as f64 >= 0.95 * due),
                "{device}, {}, {seed}: {:?} of {due}",
                attacker.name,
                got.seconds
            );
            assert!(other >= 0.1 * theirs, "{device}, {}, {seed}: {other} of {theirs}", attacker.name);
        }
    }
}

/// Whoever comes while others are held back for somebody else's sake is looked at as well.
#[test]
fn who_comes_later_has_a_share_too() {
    let writes = *ATTACKERS.iter().find(|a| a.name == "writes-1m-32").unwrap();
    let reads = alone("nvme-dc", VICTIMS[0]).rate;
    let beside = |depth| {
        let mut world = World::new("nvme-dc", "sfq", &[("depth", depth), ("cost", text("bytes"))], 1);
        world.add(VICTIMS[0], &Contract::weighted(4), Duration::ZERO);
        world.add(writes, &Contract::best_effort(), Duration::from_millis(200));
        world.add(VICTIMS[0], &Contract::weighted(4), Duration::from_secs(3));
        world.run(Duration::from_secs(9), 3);
        [world.of(0).rate, world.of(2).rate]
    };
    let (fixed, ours) = (beside(Value::Integer(32)), beside(kept_shares()));
    for (disk, (fixed, ours)) in fixed.into_iter().zip(ours).enumerate() {
        let due = reads * 4.0 / 9.0;
        assert!(fixed < 0.7 * due, "disk {disk}: {fixed} of {due} by a depth alone: nothing to keep");
        assert!(ours >= due, "disk {disk}: {ours} of {due}");
    }
}

/// `HENGE_CELLS=device,scheduler,victim,attacker` picks.
#[test]
#[ignore = "a table for people"]
fn table() {
    let pick = std::env::var("HENGE_CELLS").unwrap_or_default();
    let warm = std::env::var("HENGE_WARM_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(1200);
    let seed = std::env::var("HENGE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let picked =
        |name: &str, i: usize| pick.split(',').nth(i).is_none_or(|p| p.is_empty() || p == "*" || p == name);
    for device in ["nvme-dc", "sata-ssd", "dtla-307075"].into_iter().filter(|d| picked(d, 0)) {
        for victim in VICTIMS.iter().filter(|v| picked(v.name, 2)) {
            let by_itself = alone(device, *victim);
            println!(
                "{device} {}: alone {:.0}/s, p99.9 {:.0} us",
                victim.name, by_itself.rate, by_itself.p999
            );
            for attacker in ATTACKERS.iter().filter(|a| picked(a.name, 3)) {
                let theirs = alone(device, *attacker);
                for scheduler in ["sfq", "mclock", "vc", "cvc", "edf", "pclock", "two-level"]
                    .into_iter()
                    .filter(|s| picked(s, 1))
                {
                    let (rate, weight) = (by_itself.rate / 3.0, 4);
                    let bound = Duration::from_micros(((4.0 * by_itself.p999) as u64).max(1000));
                    let latency = Some(Latency { bound, percentile: 950_000 });
                    let rated = Contract::reserved(Rate::requests_micro((rate * 1e6) as u64));
                    let contract = match scheduler {
                        "sfq" => Contract::weighted(weight),
                        "mclock" | "vc" | "cvc" => rated,
                        "pclock" => {
                            Contract { latency, burst: Some(henge_core::Cost::new(32_000_000)), ..rated }
                        }
                        _ => Contract { latency, ..rated },
                    };
                    let time = matches!(scheduler, "sfq" | "mclock");
                    let kept = if scheduler == "sfq" { kept_shares() } else { kept() };
                    let plain = if scheduler == "sfq" { "bytes" } else { "requests" };
                    let fixed = Some(Value::Integer(32));
                    // As a pool has it that states nothing, in memory and on a device; and between.
                    let mut variants = vec![
                        ("own", None, plain),
                        ("fixed", fixed.clone(), plain),
                        ("kept", Some(kept.clone()), plain),
                    ];
                    if time {
                        variants.extend([("fixed", fixed, "time"), ("kept", Some(kept), "time")]);
                    }
                    for (name, depth, cost) in variants {
                        let mut settings = vec![("cost", text(cost))];
                        settings.extend(depth.map(|depth| ("depth", depth)));
                        let mut world = World::new(device, scheduler, &settings, seed);
                        world.add(*victim, &contract, Duration::ZERO);
                        world.add(*attacker, &Contract::best_effort(), Duration::from_millis(200));
                        world.run(Duration::from_millis(warm), 3);
                        let (v, a) = (world.of(0), world.of(1));
                        let due = if scheduler == "sfq" { by_itself.rate * 0.8 } else { rate };
                        let least = *v.seconds.iter().min().unwrap() as f64;
                        println!(
                            "  {:<16} {scheduler:<9} {name:<6} {cost:<9} victim {:>7.0}/s, of due {:>5.2}, least {:>5.2}, \
                             p99.9 x{:<5.1} attacker {:>5.2} of alone; depth {}",
                            attacker.name,
                            v.rate,
                            v.rate / due,
                            least / due,
                            v.p999 / by_itself.p999,
                            a.rate / theirs.rate,
                            world.depth()
                        );
                    }
                }
            }
        }
    }
}
