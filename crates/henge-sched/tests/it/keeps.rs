//! What a scheduler says that it keeps is what it takes, and nothing else: a manager decides by it.

use henge_core::{
    Contract, Cost, CostUnit, DiskTime, DiskTimeKind, Duration, FlowId, Instant, Latency, Params, Promised,
    Rate, Scheduler, Value,
};
use henge_sched::{SCHEDULERS, build};
use proptest::prelude::*;

/// Knobs that bound what is promised, for every scheduler that knows them.
const KNOBS: &[&[(&str, &str)]] = &[
    &[],
    &[("cost", "bytes")],
    &[("cost", "disk time")],
    &[("cost", "requests"), ("capacity", "500/s")],
    &[("cost", "requests"), ("capacity", "500/s"), ("service", "30ms")],
    &[("capacity", "20MB/s"), ("cost", "bytes")],
    &[("cost", "disk time"), ("service", "30ms")],
    &[("estimate", "40ms")],
    &[("foreign", "hybrid")],
    &[("cost", "disk time"), ("capacity", "900ms/s")],
];

fn made(name: &str, knobs: &[(&str, &str)], overbook: bool) -> Option<Box<dyn Scheduler>> {
    let mut params = Params::new(name);
    for (key, value) in knobs {
        params.set(key, Value::Text((*value).to_owned()), 0..0);
    }
    if overbook {
        params.set("overbook", Value::Bool(true), 0..0);
    }
    build(name, params).ok().map(|assembly| assembly.scheduler)
}

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![
        4 => (1u64..400).prop_map(Rate::requests),
        1 => (1u64..20).prop_map(|mb| Rate::bytes(mb * 1_000_000)),
        1 => (1u64..900).prop_map(|ms| Rate::disk_time(ms * 1_000_000)),
    ]
}

fn contracts() -> impl Strategy<Value = Contract> {
    use prop::option::{of, weighted};
    let latency = (1u64..120, 1u32..=1_000_000)
        .prop_map(|(ms, percentile)| Latency { bound: Duration::from_millis(ms), percentile });
    let rates = (of(rate()), weighted(0.3, rate()), weighted(0.3, 1u64..40), weighted(0.2, 1u32..9));
    let rest = (
        of(latency),
        weighted(0.5, 1u32..40),
        weighted(0.2, (1u32..=1_000_000, 0u8..3)),
        weighted(0.1, 1u32..9),
    );
    (rates, rest, 1u64..4).prop_map(
        |((rate, limit, burst, weight), (latency, pending, share, least), gates)| {
            let kind = |kind| match (kind, latency) {
                (0, _) => DiskTimeKind::RentADisk,
                (1, Some(_)) => DiskTimeKind::LatencyConscious,
                _ => DiskTimeKind::ThroughputConscious { throughput: Rate::requests(9), tolerance: 10 },
            };
            let whole = Contract {
                weight,
                rate,
                limit,
                burst: burst.map(|n| Cost::new(n * 1_000_000)),
                latency,
                pending,
                disk_time: share.map(|(share, k)| DiskTime { share, kind: kind(k) }),
                ..Contract::default()
            };
            let whole = least.into_iter().fold(whole, |whole, n| whole.with("min_share", n.into()));
            whole.part(1_000_000, gates)
        },
    )
}

proptest! {
    /// Flows come one after another, and some change; whoever holds what a scheduler says against what others were promised says yes and no
    /// as the scheduler does.
    #[test]
    fn who_decides_by_what_a_scheduler_says_decides_as_it_does(
        entry in 0..SCHEDULERS.len(),
        knobs in prop::sample::select(KNOBS),
        overbook in prop::bool::weighted(0.2),
        asked in prop::collection::vec((0usize..6, contracts()), 1..16),
    ) {
        let entry = &SCHEDULERS[entry];
        let Some(mut scheduler) = made(entry.name, knobs, overbook) else { return Ok(()) };
        let mut flows: [Option<Contract>; 6] = Default::default();
        for (flow, contract) in asked {
            let keeps = scheduler.keeps();
            prop_assert_eq!(&keeps.scheduler, entry.name);
            let mut others = Promised::default();
            let beside = flows.iter().enumerate().filter(|(other, _)| *other != flow);
            beside.filter_map(|(_, contract)| contract.as_ref()).for_each(|has| others.add(&keeps, has));
            let has = flows[flow].as_ref().and_then(|has| has.latency);
            let said = keeps.check(&contract, henge_sched::schedulers_that_keep);
            let said = said.and_then(|()| keeps.check_beside(&contract, &others, has));
            let id = FlowId(flow as u32);
            let does = scheduler.check(id, &contract);
            prop_assert_eq!(said.is_ok(), does.is_ok(), "{:?}: {:?} and {:?} of {:?}", keeps, said, does, contract);
            // Of the term alone both say the same words.
            if let (Err(said), Err(does)) = (keeps.check(&contract, henge_sched::schedulers_that_keep), &does) {
                prop_assert_eq!(said.term, does.term);
            }
            if scheduler.set_flow(id, &contract, Instant::ZERO).is_ok() {
                flows[flow] = Some(contract);
            }
        }
    }
}

/// Units are what the property stands on: a gate that charges time counts rates in units of their own at some schedulers alone.
#[test]
fn who_charges_time_says_which_units_it_counts() {
    let units = |name: &str| made(name, &[("cost", "disk time")], false).unwrap().keeps().units.len();
    assert_eq!((units("sfq"), units("mclock"), units("vc"), units("two-level")), (3, 3, 1, 1));
    let first = |name: &str| made(name, &[], false).unwrap().keeps().units[0];
    assert_eq!((first("cvc"), first("sfq")), (CostUnit::Requests, CostUnit::Bytes));
}
