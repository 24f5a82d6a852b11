//! Nobody owes anything for what nobody else wanted: every scheduler of the registry that promises a rate, a share of the
//! disk's time, or a share by weight, passes this, at a fixed depth and at one that follows promises.
//!
//! A flow is alone for seconds and takes all; then others come, one with a promise and one without, and ask for more than there is.
//! One bound's time later the flow has its whole promise, from whichever moment on one looks: in any stretch that begins there it
//! gets its rate, but for a few requests.

use henge_core::{
    Contract, DiskTime, DiskTimeKind, Dispatch, Duration, FlowId, Gate, Instant, Latency, Op, Params,
    Pending, Rate, Request, Value,
};
use henge_sched::{Entry, SCHEDULERS, build};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;

/// Commands a second that the device does.
pub(crate) const CAPACITY: u64 = 1000;
/// Within which a flow has its promise where its contract says no latency.
const BOUND: Duration = Duration::from_millis(100);

/// A flow that always has so many outstanding.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub flow: u32,
    pub outstanding: u32,
    pub from: Instant,
}

/// One device behind a gate; it takes 1 ms for a request, one after the other.
pub(crate) struct World {
    pub gate: Gate,
    now: Instant,
    ids: Pending<()>,
    flying: VecDeque<(Instant, henge_core::RequestId)>,
    /// When each request was over, by flow.
    pub over: Vec<Vec<Instant>>,
}

impl World {
    pub fn new(gate: Gate) -> Self {
        World {
            gate,
            now: Instant::ZERO,
            ids: Pending::new(),
            flying: VecDeque::new(),
            over: vec![Vec::new(); 8],
        }
    }

    fn submit(&mut self, flow: u32) {
        let id = self.ids.insert(());
        let request = Request::new(id, FlowId(flow), Op::Read, 0, 4096, self.now);
        self.gate.submit(request, self.now).expect("few are outstanding");
    }

    pub fn run(&mut self, clients: &[Client], end: Instant) {
        let mut waiting: Vec<_> = clients.iter().filter(|c| c.from >= self.now).copied().collect();
        while self.now < end {
            waiting.retain(|client| {
                let comes = client.from <= self.now;
                (0..if comes { client.outstanding } else { 0 }).for_each(|_| self.submit(client.flow));
                !comes
            });
            while let Dispatch::Ready(request) = self.gate.next(self.now) {
                let free = self.flying.back().map_or(self.now, |f| f.0);
                self.flying.push_back((free + Duration::from_nanos(1_000_000_000 / CAPACITY), request.id));
            }
            let begin = waiting.iter().map(|c| c.from).min();
            let over = self.flying.front().map(|f| f.0);
            let wake = self.gate.wake_at().filter(|t| *t > self.now);
            self.now = [begin, over, wake, Some(end)].into_iter().flatten().min().expect("the end");
            while self.flying.front().is_some_and(|f| f.0 <= self.now) {
                let (_, id) = self.flying.pop_front().expect("it was just seen");
                let served = self.gate.complete(id, false, self.now);
                self.ids.remove(id);
                self.over[served.request.flow.index()].push(self.now);
                self.submit(served.request.flow.0);
            }
        }
    }
}

/// What a flow is promised: `rate` of the device's commands a second, as the scheduler says such things.
fn promise(entry: &Entry, rate: u64, bound: Option<Duration>) -> Contract {
    if !entry.keeps.contains(&"rate") {
        let disk_time =
            DiskTime { share: (rate * 1_000_000 / CAPACITY) as u32, kind: DiskTimeKind::RentADisk };
        return Contract { disk_time: Some(disk_time), ..Contract::best_effort() };
    }
    let latency = bound.map(|bound| Latency { bound, percentile: 950_000 });
    let latency = latency.filter(|_| entry.keeps.contains(&"latency"));
    Contract { latency, ..Contract::reserved(Rate::requests(rate)) }
}

/// How a gate is set beside its scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setting {
    /// A depth, and what contracts count.
    Plain,
    /// The same, but less deep where a promise is broken.
    Kept,
    /// And time as the cost, learned.
    Device,
    /// Weights are promises as well.
    Shares,
}

impl Setting {
    const ALL: [Setting; 4] = [Setting::Plain, Setting::Kept, Setting::Device, Setting::Shares];

    fn suits(self, entry: &Entry) -> bool {
        match self {
            Setting::Plain => true,
            Setting::Kept => entry.on_device.kept,
            Setting::Device => entry.on_device.time,
            Setting::Shares => entry.on_device.shares,
        }
    }
}

fn settings(entry: &Entry, setting: Setting, depth: u64) -> Params {
    let text = |text: &str| Value::Text(text.into());
    let fixed = Value::Integer(depth as i64);
    let kept = Params::new("kept").with("most", fixed.clone());
    let kept = if setting == Setting::Shares { kept.with("shares", Value::Bool(true)) } else { kept };
    let kept = Params::new("depth").with("kept", Value::Table(kept));
    let depth = if setting == Setting::Plain { fixed } else { Value::Table(kept) };
    let params = Params::new(entry.name).with("depth", depth);
    if entry.name == "locality" {
        return params.with("turn", text("10ms"));
    }
    if setting == Setting::Device {
        return params.with("cost", text("time"));
    }
    if !entry.keeps.contains(&"rate") {
        return params.with("cost", text("requests"));
    }
    let params = params.with("cost", text("requests")).with("capacity", text("1000/s"));
    match entry.name {
        // What may come at once is no debt; without it the stretches can be short.
        "edf" | "two-level" => params.with("bucket", text("3ms")),
        _ => params,
    }
}

#[test]
fn what_nobody_else_wanted_is_not_held_against_a_flow() {
    let promising = |entry: &&Entry| entry.keeps.contains(&"rate") || entry.keeps.contains(&"share");
    let mut tried = 0;
    for entry in SCHEDULERS.iter().filter(promising) {
        for setting in Setting::ALL.into_iter().filter(|setting| setting.suits(entry)) {
            for seed in 0..12 {
                try_one(entry, setting, seed, true);
                tried += 1;
            }
        }
    }
    assert!(tried >= 12 * 12, "{tried}");
}

/// A rate without a latency is no rate of some seconds' mean: `cvc` had left a flow nothing for two seconds that had the device alone before.
#[test]
fn a_rate_alone_is_there_as_soon_as_what_is_outstanding_takes_at_it() {
    let both = |entry: &&Entry| entry.keeps.contains(&"rate") && entry.keeps.contains(&"latency");
    let mut tried = 0;
    for entry in SCHEDULERS.iter().filter(both) {
        for setting in Setting::ALL.into_iter().filter(|setting| setting.suits(entry)) {
            for seed in 0..6 {
                try_one(entry, setting, seed, false);
                tried += 1;
            }
        }
    }
    assert!(tried >= 4 * 6, "{tried}");
}

/// By weight: a flow that was alone has its share of the device from the moment on in which others come.
#[test]
fn no_share_is_smaller_for_what_nobody_else_wanted() {
    let mut tried = 0;
    for entry in SCHEDULERS.iter().filter(|entry| entry.keeps.contains(&"weight")) {
        for setting in Setting::ALL.into_iter().filter(|setting| setting.suits(entry)) {
            for seed in 0..12 {
                share(entry, setting, seed);
                tried += 1;
            }
        }
    }
    assert!(tried >= 2 * 3 * 12, "{tried}");
}

fn share(entry: &Entry, setting: Setting, seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let depth = rng.random_range(1..6);
    let weights: [u64; 3] = [rng.random_range(1..9), rng.random_range(1..9), rng.random_range(1..9)];
    let alone = Instant::ZERO + Duration::from_millis(rng.random_range(1000..8000));
    let parts = build(entry.name, settings(entry, setting, depth)).unwrap_or_else(|e| panic!("{e}"));
    let mut world = World::new(Gate::new(parts));
    for (flow, weight) in weights.iter().enumerate() {
        let contract = Contract::weighted(*weight as u32);
        world.gate.set_flow(FlowId(flow as u32), &contract, Instant::ZERO).unwrap_or_else(|e| panic!("{e}"));
    }
    let clients = [
        Client { flow: 0, outstanding: rng.random_range(1..40) + 8, from: Instant::ZERO },
        Client { flow: 1, outstanding: rng.random_range(8..80), from: alone },
        Client { flow: 2, outstanding: rng.random_range(8..80), from: alone },
    ];
    let end = alone + Duration::from_secs(4);
    world.run(&clients, end);
    // SFQ's theorem allows D + 1 requests of each (the file's head); a request's time is what is learned of it, to a percent.
    let slack = (depth + 1) * (weights[0] + 1) + 2;
    let over: Vec<_> = world.over[0].iter().copied().filter(|t| *t > alone).collect();
    for (n, t) in over.iter().chain([&end]).enumerate() {
        let owed =
            CAPACITY * weights[0] * t.since(alone).as_nanos() / weights.iter().sum::<u64>() / 1_000_000_000;
        assert!(
            n as u64 + slack + owed / 100 >= owed,
            "{} {setting:?} seed {seed}: {n} of {owed} at {:?} (weights {weights:?}, depth {depth})",
            entry.name,
            t.since(alone),
        );
    }
}

fn try_one(entry: &Entry, setting: Setting, seed: u64, with_latency: bool) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let (rate, depth) = (rng.random_range(30..600), rng.random_range(1..6));
    let other = rng.random_range(30..CAPACITY * 95 / 100 - rate);
    let bound = Duration::from_millis(rng.random_range(60..400));
    let alone = Instant::ZERO + Duration::from_millis(rng.random_range(1000..8000));
    let parts = build(entry.name, settings(entry, setting, depth)).unwrap_or_else(|e| panic!("{e}"));
    let mut world = World::new(Gate::new(parts));
    let set = |world: &mut World, flow, contract: &Contract| {
        world.gate.set_flow(FlowId(flow), contract, Instant::ZERO).unwrap_or_else(|e| panic!("{e}"));
    };
    set(&mut world, 0, &promise(entry, rate, with_latency.then_some(bound)));
    let others = Duration::from_millis(rng.random_range(60..400));
    set(&mut world, 1, &promise(entry, other, with_latency.then_some(others)));
    set(&mut world, 2, &Contract::best_effort());
    let clients = [
        Client { flow: 0, outstanding: rng.random_range(1..40) + 8, from: Instant::ZERO },
        Client { flow: 1, outstanding: rng.random_range(8..80), from: alone },
        Client { flow: 2, outstanding: rng.random_range(8..80), from: alone },
    ];
    let end = alone + Duration::from_secs(4);
    world.run(&clients, end);
    let before = world.over[0].iter().filter(|t| **t <= alone).count() as u64;
    let ms = alone.since(Instant::ZERO).as_nanos() / 1_000_000;
    assert!(
        before + 2 >= ms * CAPACITY / 1000,
        "{}: alone it has the device: {before} in {ms} ms",
        entry.name
    );

    // What is in flight, the one being served, and turns that have begun.
    let slack = depth
        + match entry.name {
            "locality" => 14 + 2 * rate * 10 / 1000,
            "cvc" => 24, // "one is late by as many δ as others have requests in that stretch" (`cvc.rs`)
            _ => 4,
        };
    let from = alone
        + match entry.keeps.contains(&"latency") {
            true if with_latency => bound,
            true => BOUND + Duration::from_nanos(u64::from(clients[0].outstanding) * 1_000_000_000 / rate),
            false => BOUND,
        };
    let over: Vec<_> = world.over[0].iter().copied().filter(|t| *t > from).collect();
    for (n, t) in over.iter().chain([&end]).enumerate() {
        let owed = rate * t.since(from).as_nanos() / 1_000_000_000;
        assert!(
            n as u64 + slack >= owed,
            "{} {setting:?} seed {seed}: {n} of {owed} at {:?} ({rate}/s beside {other}/s, {bound}, depth {depth})",
            entry.name,
            t.since(alone),
        );
    }
    for (flow, rate) in [(1, other), (2, 15)] {
        let got = world.over[flow].iter().filter(|t| **t > from).count() as u64;
        let owed = rate * end.since(from).as_nanos() / 1_000_000_000;
        let name = entry.name;
        assert!(
            got + slack + owed / 100 >= owed,
            "{name} {setting:?} seed {seed}: flow {flow} has {got} of {owed}"
        );
    }
}
