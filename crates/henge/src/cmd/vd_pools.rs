//! `henge vd pools`: gates, what is at their devices, and what requests cost there.

use super::vd::time;
use comfy_table::{Table, presets};
use henge_api::{GateStatus, PoolStatus};
use henge_core::format_size;

/// Prints both tables.
pub fn show(pools: &[PoolStatus]) {
    let (gates, costs) = tables(pools);
    println!("{gates}");
    match costs {
        Some(costs) => println!("\n{costs}"),
        None => println!("\nno costs are learned; `cost = \"time\"` on a pool learns them"),
    }
    short(pools).iter().for_each(|line| println!("\n{line}"));
}

/// What a gate has at its device, of what it may have; and of what all gateways of its storage may have together.
fn under_way(gate: &GateStatus) -> String {
    match (gate.work, gate.depth_of_all) {
        (Some([under_way, most]), _) => format!("{} of {}", time(under_way), time(most)),
        (None, None) => format!("{} of {}", gate.in_flight, gate.depth),
        (None, Some(all)) => format!("{} of {}, {all} for all gateways", gate.in_flight, gate.depth),
    }
}

/// Pools that give less than is promised on them.
fn short(pools: &[PoolStatus]) -> Vec<String> {
    let line = |pool: &PoolStatus| Some(format!("pool {} {}", pool.name, pool.short.as_ref()?));
    pools.iter().filter_map(line).collect()
}

fn tables(pools: &[PoolStatus]) -> (Table, Option<Table>) {
    let mut gates = Table::new();
    gates.load_style(presets::NOTHING).set_header([
        "GATE",
        "SCHEDULER",
        "CHARGES",
        "AT ONCE",
        "UNDER WAY",
        "WAITING",
        "PROMISED",
        "OF",
    ]);
    let mut costs = Table::new();
    costs.load_style(presets::NOTHING).set_header([
        "GATE",
        "KIND",
        "A REQUEST",
        "EACH MIB",
        "OFF BY",
        "DRIFT",
    ]);
    for pool in pools {
        for gate in &pool.gates {
            gates.add_row([
                gate.name.clone(),
                pool.scheduler.clone(),
                pool.unit.clone(),
                format_size(pool.quantum),
                under_way(gate),
                gate.queued.to_string(),
                format_size(pool.promised),
                format_size(pool.capacity),
            ]);
            for cost in &gate.learned {
                costs.add_row([
                    gate.name.clone(),
                    cost.kind.clone(),
                    time(cost.fixed),
                    time(cost.per_mib),
                    format!("{:.0} %", cost.error),
                    cost.drift.map_or("-".into(), |drift| format!("{drift:.2}")),
                ]);
            }
        }
    }
    let any = costs.row_count() > 0;
    (gates, any.then_some(costs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_api::LearnedCost;

    #[test]
    fn gates_and_what_they_learned() {
        let plain = GateStatus { name: "hd".into(), in_flight: 3, depth: 8, ..GateStatus::default() };
        let cost = LearnedCost {
            kind: "write".into(),
            fixed: 40_000,
            per_mib: 1_500_000,
            error: 3.4,
            drift: Some(1.25),
        };
        let learns = GateStatus {
            name: "ssd".into(),
            work: Some([150_000, 400_000]),
            learned: vec![cost],
            ..GateStatus::default()
        };
        let pool = |gate| PoolStatus { gates: vec![gate], quantum: 131_072, ..PoolStatus::default() };
        let (gates, costs) = tables(&[pool(plain.clone()), pool(learns)]);
        let gates = gates.to_string();
        assert!(
            gates.contains("3 of 8") && gates.contains("150us of 400us") && gates.contains("128KiB"),
            "{gates}"
        );
        let costs = costs.expect("one is learned").to_string();
        let row = costs.lines().nth(1).expect("a row");
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["ssd", "write", "40us", "1.5ms", "3", "%", "1.25"]);
        let shared = GateStatus { depth_of_all: Some(16), ..plain.clone() };
        let shared = tables(&[pool(shared)]).0.to_string();
        assert!(shared.contains("3 of 8, 16 for all gateways"), "{shared}");
        assert!(tables(&[pool(plain.clone())]).1.is_none());
        let slow =
            PoolStatus { name: "hd".into(), short: Some("gives little".into()), ..pool(plain.clone()) };
        assert_eq!(short(&[pool(plain), slow]), ["pool hd gives little"]);
    }
}
