//! What the manager places, the schedulers of nodes take: random contracts against every scheduler there is.

use super::*;
use crate::decide::Because;
use crate::machine::{Caller, Failure, Machine, Settings};
use henge_api::manager::{Order, Pool, Profile, Register};
use henge_core::{FlowId, Instant, Scheduler, Value};
use henge_sched::{SCHEDULERS, build};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const ADMIN: Caller = Caller::Administrator;
const NODES: [&str; 3] = ["a", "b", "c"];

/// Knobs that bound what schedulers promise, where they know them.
const KNOBS: &[&[(&str, &str)]] = &[
    &[],
    &[("cost", "requests")],
    &[("cost", "bytes")],
    &[("cost", "disk time")],
    &[("cost", "requests"), ("capacity", "300/s")],
    &[("cost", "requests"), ("capacity", "300/s"), ("service", "20ms")],
    &[("cost", "disk time"), ("service", "20ms")],
    &[("estimate", "40ms")],
    &[("foreign", "hybrid")],
];

/// A node with one pool: as many gates, each with a scheduler of its own.
struct Node {
    gates: Vec<Box<dyn Scheduler>>,
    flows: BTreeMap<String, FlowId>,
}

impl Node {
    fn new(name: &str, knobs: &[(&str, &str)], gates: usize) -> Option<Node> {
        let mut params = Params::new(name);
        knobs.iter().for_each(|(key, text)| params.set(key, Value::Text((*text).to_owned()), 0..0));
        let one = || Some(build(name, params.clone()).ok()?.scheduler);
        Some(Node { gates: (0..gates).map(|_| one()).collect::<Option<_>>()?, flows: BTreeMap::new() })
    }

    fn register(&self, name: &str) -> Register {
        let keeps = henge_api::Keeps::of(&self.gates[0].keeps(), self.gates.len());
        // By the wire.
        let keeps = serde_json::from_slice(&serde_json::to_vec(&keeps).unwrap()).unwrap();
        let pool = Pool {
            name: "p".into(),
            capacity: 1 << 50,
            copies: 1,
            scheduler: "as it says".into(),
            keeps: Some(keeps),
            profile: Some(Profile { iops: 900.0, service: 0.004 }),
            shared: None,
        };
        let link = Some(format!("{name}:10810"));
        Register {
            name: name.into(),
            addresses: Vec::new(),
            link,
            pools: vec![pool],
            disks: Vec::new(),
            speaks: henge_api::manager::speaks(),
        }
    }

    /// As a node does: each gate is given its part, and asked first.
    fn obey(&mut self, order: &Order) -> Result<(), String> {
        let next = FlowId(self.flows.len() as u32);
        let Some(want) = order.want().unwrap() else {
            if let Some(flow) = self.flows.get(&order.name) {
                self.gates
                    .iter_mut()
                    .for_each(|gate| gate.remove_flow(*flow, Instant::ZERO, &mut Vec::new()));
            }
            return Ok(());
        };
        let flow = *self.flows.entry(order.name.clone()).or_insert(next);
        let whole = contract(&want.contract).expect("an order that can be read");
        let leeway = (want.leeway.unwrap_or(1.0) * 1e6).round() as u64;
        let part = whole.part(leeway, (self.gates.len() * want.pools.len()) as u64);
        for gate in &mut self.gates {
            gate.check(flow, &part).map_err(|why| format!("{} of {part:?}: {why}", order.name))?;
            gate.set_flow(flow, &part, Instant::ZERO).map_err(|why| why.to_string())?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Create(u8, DiskSpec),
    Change(u8, DiskSpec),
    Remove(u8),
    /// A node carries out the orders that have come, and says so.
    Obey,
}

fn specs() -> impl Strategy<Value = DiskSpec> {
    use prop::option::weighted;
    let rates =
        (weighted(0.5, 1u32..300), weighted(0.3, 1u32..500), weighted(0.3, 1u32..9), weighted(0.3, 1u32..30));
    let bounds = (weighted(0.4, 5u32..400), weighted(0.3, 1u32..=1000), weighted(0.4, 1u32..40));
    let share = (weighted(0.15, 1u32..=60), 0u8..3, weighted(0.1, 1u32..9));
    let where_ = (prop_oneof![4 => Just(1u32), 1 => Just(2u32)], weighted(0.3, 10u32..30));
    (rates, bounds, share, where_).prop_map(
        |(rates, (latency, tenths, pending), (share, kind, least), where_)| {
            let (rate, above, weight, burst) = rates;
            let mut spec = DiskSpec { capacity: "1GB".into(), weight, pending, ..DiskSpec::default() };
            let text = |n: Option<u32>, unit: &str| n.map(|n| format!("{n}{unit}"));
            spec.rate = text(rate, "/s");
            spec.limit = above.map(|n| format!("{}/s", n + rate.unwrap_or(0)));
            spec.burst = text(burst, "");
            spec.latency = text(latency, "ms");
            spec.percentile = tenths.filter(|_| latency.is_some()).map(|tenths| f64::from(tenths) / 10.0);
            spec.disk_time.share = text(share, "%");
            spec.disk_time.kind = (kind == 1).then(|| "latency".into()).filter(|_| share.is_some());
            spec.amounts.extend(text(least, "%").map(|text| ("min_share".to_owned(), text)));
            (spec.parts, spec.leeway) = (Some(where_.0), where_.1.map(|tenths| f64::from(tenths) / 10.0));
            spec
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u8..12, specs()).prop_map(|(disk, spec)| Step::Create(disk, spec)),
        3 => (0u8..12, specs()).prop_map(|(disk, spec)| Step::Change(disk, spec)),
        1 => (0u8..12).prop_map(Step::Remove),
        3 => Just(Step::Obey),
    ]
}

proptest! {
    /// Disks come, change and go, and nodes hear of it late: no order is refused. So what a node is asked for is what its scheduler promises.
    #[test]
    fn what_the_manager_places_the_node_s_scheduler_takes(
        pools in prop::collection::vec(
            (0..SCHEDULERS.len(), prop::sample::select(KNOBS), 1usize..4), 3..=3,
        ),
        steps in prop::collection::vec(steps(), 1..40),
    ) {
        let settings = Settings { rules: None, ..Settings::default() };
        let mut machine = Machine::load(settings, Vec::new()).unwrap();
        let mut nodes = BTreeMap::new();
        for (session, (name, (entry, knobs, gates))) in NODES.into_iter().zip(&pools).enumerate() {
            let entry = &SCHEDULERS[*entry];
            // A knob that a scheduler does not know is left out.
            let node = Node::new(entry.name, knobs, *gates).or_else(|| Node::new(entry.name, &[], *gates));
            let node = node.expect("every scheduler has defaults");
            machine.register(session as u64, node.register(name));
            nodes.insert(name, node);
        }
        let mut orders: VecDeque<(String, Order)> = VecDeque::new();
        for step in steps {
            let called = |disk: u8| format!("d{disk}");
            match step {
                Step::Create(disk, spec) => drop(machine.create(&ADMIN, &called(disk), &spec, None, None)),
                Step::Change(disk, spec) => {
                    let parts = machine.inventory.disk(&called(disk)).and_then(|disk| disk.spec.parts);
                    drop(machine.change(&ADMIN, &called(disk), &DiskSpec { parts, ..spec }, None));
                }
                Step::Remove(disk) => drop(machine.remove(&ADMIN, &called(disk), None, true)),
                Step::Obey => {
                    while let Some((node, order)) = orders.pop_front() {
                        let obeyed = nodes.get_mut(node.as_str()).unwrap().obey(&order);
                        prop_assert_eq!(&obeyed, &Ok(()), "{}", node);
                        machine.done(&node, &order.name, order.revision, None);
                    }
                }
            }
            orders.extend(machine.take_orders());
            machine.check().unwrap();
        }
    }
}

fn spec(terms: &[(&str, &str)]) -> DiskSpec {
    let mut spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
    terms.iter().for_each(|(key, text)| spec.set(key, text).unwrap());
    spec
}

fn cluster(schedulers: &[&str]) -> Machine {
    let mut machine = Machine::load(Settings { rules: None, ..Settings::default() }, Vec::new()).unwrap();
    for (session, (name, scheduler)) in NODES.iter().zip(schedulers).enumerate() {
        machine.register(session as u64, Node::new(scheduler, &[], 1).unwrap().register(name));
    }
    machine
}

fn refused(machine: &mut Machine, spec: &DiskSpec) -> crate::decide::Refusal {
    match machine.create(&ADMIN, "d", spec, None, None) {
        Err(Failure::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_names_the_term_and_who_would_keep_it() {
    let mut machine = cluster(&["cvc", "cvc", "vc"]);
    let (rated, limited) = (spec(&[("rate", "9/s"), ("weight", "3")]), [("rate", "9/s"), ("limit", "20/s")]);
    let no = refused(&mut machine, &rated);
    assert_eq!(no.because, Because::Impossible);
    let why = "no pool keeps all of its contract; a/p, b/p: the scheduler cvc does not promise a weight; schedulers that do: \
               sfq, mclock, pclock; c/p: the scheduler vc does not promise a weight; schedulers that do: sfq, mclock, pclock";
    assert_eq!(no.why, why);
    // One pool keeps it, and one part of two lies there: where the other would have to, is said.
    let no = refused(&mut machine, &spec(&[&limited[..], &[("parts", "2")]].concat()));
    assert!(
        no.why.starts_with("2 parts need as many nodes; 1 of 3 keep all of its contract; a/p, b/p: the"),
        "{}",
        no.why
    );
    // Where the one pool that keeps it is full, that is said of it alone.
    let large = DiskSpec { capacity: "2PB".into(), ..spec(&limited) };
    let no = refused(&mut machine, &large);
    assert!(no.why.ends_with("; only c/p would keep its limit"), "{}", no.why);
    // A change is refused in the scheduler's own words.
    machine.create(&ADMIN, "kept", &spec(&[("rate", "9/s")]), None, None).unwrap();
    let on = machine.inventory.disk("kept").unwrap().parts[0].node.clone();
    let changed =
        machine.change(&ADMIN, "kept", &spec(&[("rate", "9/s"), ("weight", "2")]), None).unwrap_err();
    assert!(changed.to_string().starts_with(&format!("{on}/p: the scheduler ")), "{changed}");
    // Where it is kept, it is placed.
    machine.create(&ADMIN, "d", &spec(&limited), None, None).unwrap();
    assert_eq!(machine.inventory.disk("d").unwrap().parts[0].node, "c");
}

#[test]
fn what_goes_with_another_term_is_said_with_that() {
    let mut machine = cluster(&["edf"]);
    let no = refused(&mut machine, &spec(&[("latency", "40ms"), ("burst", "7"), ("limit", "9/s")]));
    assert!(no.why.contains("the scheduler edf does not promise a limit"), "{}", no.why);
    let mut machine = cluster(&["locality"]);
    let no = refused(&mut machine, &spec(&[("share", "25%"), ("latency", "40ms")]));
    assert!(no.why.contains("add kind = \"latency\", or leave the latency out"), "{}", no.why);
}

#[test]
fn a_node_that_says_nothing_is_asked_by_an_order_and_one_that_changes_is_heard() {
    let mut machine = cluster(&["cvc"]);
    let mut register = Node::new("cvc", &[], 1).unwrap().register("a");
    register.pools[0].keeps = None;
    machine.register(7, register);
    machine.create(&ADMIN, "d", &spec(&[("limit", "9/s")]), None, None).unwrap();
    // Its status says more: another scheduler, which keeps no weight.
    let keeps = henge_api::Keeps::of(&Node::new("edf", &[], 1).unwrap().gates[0].keeps(), 1);
    let pool = henge_api::PoolStatus { name: "p".into(), keeps: Some(keeps), ..Default::default() };
    machine.stats("a", henge_api::Status { pools: vec![pool], ..Default::default() });
    let why = machine.create(&ADMIN, "e", &spec(&[("limit", "9/s")]), None, None).unwrap_err().to_string();
    assert!(why.contains("the scheduler edf does not promise a limit"), "{why}");
}
