//! A contract that promises more holds at once: what a flow was served by the one before makes it wait no longer.
//!
//! A flow has next to nothing by its contract, takes what is spare, and meets another that wants all. Then its contract promises as much as the
//! other's. In any second from there it has that, whether it has much waiting or one request at a time.

use crate::no_debt::{CAPACITY, Client, World};
use henge_core::{
    Contract, DiskTime, DiskTimeKind, Dispatch, Duration, FlowId, Gate, Instant, Latency, Op, Params,
    Pending, Rate, Request, Value,
};
use henge_sched::{Entry, SCHEDULERS, build, find};

/// Settings that count in other ways.
const VARIANTS: &[(&str, &str, &str)] =
    &[("sfq", "tag", "arrival"), ("vc", "lead", "none"), ("vc", "lead", "0s"), ("vc", "foreign", "total")];

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Next to nothing by a term, as much as the other flow, and how many requests a second that is at least.
fn contracts(entry: &Entry, term: &str) -> [Contract; 2] {
    let rate = |micro| Contract::reserved(Rate::requests_micro(micro));
    let limited = |micro| {
        let rate = entry.keeps.contains(&"rate").then(|| Rate::requests(300));
        Contract { rate, limit: Some(Rate::requests_micro(micro)), ..Contract::default() }
    };
    let share = |share| {
        let disk_time = Some(DiskTime { share, kind: DiskTimeKind::RentADisk });
        Contract { disk_time, ..Contract::default() }
    };
    match term {
        "rate" => [rate(10_000), rate(300_000_000)],
        "limit" => [limited(10_000), limited(400_000_000)],
        "weight" => [Contract::weighted(1), Contract::weighted(100_000)],
        _ => [share(100), share(300_000)],
    }
}

fn try_one(entry: &Entry, setting: Option<(&str, &str)>, term: &str, outstanding: u32) -> Option<String> {
    let text = |text: &str| Value::Text(text.into());
    let unit = if entry.name == "locality" { ("turn", "10ms") } else { ("cost", "requests") };
    let params = Params::new(entry.name).with(unit.0, text(unit.1)).with("depth", Value::Integer(2));
    let params = setting.iter().fold(params, |params, (key, value)| params.with(key, text(value)));
    let mut world = World::new(Gate::new(build(entry.name, params).unwrap_or_else(|e| panic!("{e}"))));
    let [little, much] = contracts(entry, term);
    let set = |world: &mut World, flow, contract: &Contract, now| {
        world.gate.set_flow(FlowId(flow), contract, now).unwrap_or_else(|e| panic!("{e}"));
    };
    set(&mut world, 0, &little, at(0));
    set(&mut world, 1, &much, at(0));
    let client = |flow, outstanding, ms| Client { flow, outstanding, from: at(ms) };
    world.run(&[client(0, outstanding, 0), client(1, 16, 200)], at(1000));
    set(&mut world, 0, &much, at(1000));
    world.run(&[], at(3000));
    let got =
        |begin| world.over[0].iter().filter(|t| **t > at(begin) && **t <= at(begin + 1000)).count() as u64;
    let (least, name) = (CAPACITY * 3 / 10 - 12, entry.name);
    let short = [1000, 1500, 2000].map(got).into_iter().find(|got| *got < least)?;
    Some(format!("{name} {setting:?} {term}, {outstanding} outstanding: {short} of {least}"))
}

#[test]
fn a_contract_that_promises_more_holds_at_once() {
    let plain = SCHEDULERS.iter().map(|entry| (entry, None));
    let variants =
        VARIANTS.iter().map(|(name, key, value)| (find(name).expect("one of them"), Some((*key, *value))));
    let (mut tried, mut short) = (0, Vec::new());
    for (entry, setting) in plain.chain(variants) {
        let terms =
            ["rate", "limit", "weight", "share"].into_iter().filter(|term| entry.keeps.contains(term));
        for (term, outstanding) in terms.flat_map(|term| [(term, 1), (term, 8)]) {
            short.extend(try_one(entry, setting, term, outstanding));
            tried += 1;
        }
    }
    assert!(tried >= 30 && short.is_empty(), "{tried}: {short:#?}");
}

/// The clock of a disk over several gates says when its requests are owed. They wait like any other once the disk is promised no rate.
#[test]
fn who_is_promised_no_rate_any_more_is_owed_nothing() {
    for entry in SCHEDULERS.iter().filter(|entry| entry.keeps.contains(&"rate")) {
        let params = Params::new(entry.name).with("cost", Value::Text("requests".into()));
        let mut gate = Gate::new(build(entry.name, params).unwrap_or_else(|e| panic!("{e}")));
        let (mut ids, mut flows) = (Pending::new(), Vec::new());
        let promised =
            Contract { whole: Some(Rate::requests(200)), ..Contract::reserved(Rate::requests(100)) };
        for flow in [0, 1] {
            gate.set_flow(FlowId(flow), &promised, at(0)).unwrap_or_else(|e| panic!("{e}"));
        }
        for flow in [0, 1, 0, 1] {
            let id = ids.insert(());
            gate.submit(Request::new(id, FlowId(flow), Op::Read, 0, 4096, at(0)), at(0)).expect("few wait");
            if flow == 0 {
                assert!(gate.retag(id, Duration::from_millis(1), at(0)), "{}", entry.name);
            }
        }
        gate.set_flow(FlowId(0), &Contract::best_effort(), at(0)).unwrap_or_else(|e| panic!("{e}"));
        while let Dispatch::Ready(request) = gate.next(at(50)) {
            flows.push(request.flow.0);
            gate.complete(request.id, false, at(50));
        }
        assert_eq!(flows, [1, 1, 0, 0], "{}", entry.name);
    }
}

/// Six neighbours change their contracts every 20 ms, a little or from nothing to all. They gain nothing: another has its rate.
#[test]
fn who_changes_its_contract_over_and_over_gains_nothing() {
    let mut short = Vec::new();
    for entry in SCHEDULERS.iter().filter(|entry| entry.keeps.contains(&"rate")) {
        for other in [false, true] {
            let params = Params::new(entry.name).with("cost", Value::Text("requests".into()));
            let params = params.with("depth", Value::Integer(2));
            let mut world =
                World::new(Gate::new(build(entry.name, params).unwrap_or_else(|e| panic!("{e}"))));
            let promised = |rate, ms| {
                let bound = Latency { bound: Duration::from_millis(ms), percentile: 950_000 };
                let latency = entry.keeps.contains(&"latency").then_some(bound);
                Contract { latency, ..Contract::reserved(Rate::requests(rate)) }
            };
            let clients = |flow| Client { flow, outstanding: if flow == 0 { 16 } else { 64 }, from: at(0) };
            let set = |world: &mut World, flow, contract: &Contract, now| {
                world.gate.set_flow(FlowId(flow), contract, now).unwrap_or_else(|e| panic!("{e}"));
            };
            set(&mut world, 0, &promised(300, 100), at(0));
            (1..7).for_each(|flow| set(&mut world, flow, &promised(100, 20), at(0)));
            world.run(&(0..7).map(clients).collect::<Vec<_>>(), at(20));
            for step in 1..200 {
                let contract = match (step % 2, other) {
                    (0, _) => promised(100, 20),
                    (_, true) => promised(99, 20),
                    _ => Contract::best_effort(),
                };
                (1..7).for_each(|flow| set(&mut world, flow, &contract, at(20 * step)));
                world.run(&[], at(20 * (step + 1)));
            }
            let got = world.over[0].iter().filter(|t| **t > at(1000) && **t <= at(4000)).count();
            if got < 870 {
                short.push(format!("{} beside {other:?}: {got} of 900", entry.name));
            }
        }
    }
    assert!(short.is_empty(), "{short:#?}");
}
