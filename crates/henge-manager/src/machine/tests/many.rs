//! What a manager of many nodes takes.

use super::*;
use crate::store::suite::stores;
use crate::store::{MemoryStore, Store};
use henge_api::manager::Seen;

/// Prints what a manager of 1,000 nodes and 10,000 disks takes: `make bench-manager`.
#[test]
#[ignore = "prints figures; run it optimized and alone"]
fn ten_thousand_disks_on_a_thousand_nodes() {
    let clock = std::time::Instant::now;
    let mut machine =
        Machine::load(Settings { events_max: 10_000, ..Settings::default() }, Vec::new()).unwrap();
    let mut disk = MemoryStore::default();
    for i in 0..1000u64 {
        machine.register(i, FakeNode::default().register(&format!("n{i}")));
    }
    disk.commit(&machine.take_batch()).unwrap();
    let asked =
        |i: u64| spec(10 + i % 15, Some(10 + (i * 7 % 40) as u32), i.is_multiple_of(3).then_some(150));
    let mut times: Vec<_> = (0..10_000u64)
        .map(|i| {
            let began = clock();
            machine.create(&ADMIN, &format!("d{i}"), &asked(i), None, None).unwrap();
            let batch = machine.take_batch();
            let time = began.elapsed();
            disk.commit(&batch).unwrap();
            for (node, order) in machine.take_orders() {
                machine.done(&node, &order.name, order.revision, None);
            }
            disk.commit(&machine.take_batch()).unwrap();
            time
        })
        .collect();
    // A day of minutes of every disk, so that measurement has something to look at.
    let on: BTreeMap<String, Vec<String>> = machine
        .inventory
        .on
        .iter()
        .map(|(key, names)| (key.0.clone(), names.iter().cloned().collect()))
        .collect();
    let latency: Vec<(u64, u64)> = (0..60).map(|i| (1_000_000 + i * 400_000, 3)).collect();
    let periods = std::env::var("HENGE_PERIODS").ok().and_then(|p| p.parse().ok()).unwrap_or(1500);
    let began = clock();
    for _ in 0..periods {
        for (node, names) in &on {
            let seen = names.iter().map(|name| Seen {
                name: name.clone(),
                commands: 180,
                peak: 9,
                latency: latency.clone(),
            });
            machine.period(node, 60.0, &seen.collect::<Vec<_>>());
        }
    }
    println!("{periods} periods of all disks were taken in within {:.1?} each", began.elapsed() / periods);
    let mut measured: Vec<_> = (0..200u64)
        .map(|i| {
            let began = clock();
            machine.preview(&ADMIN, &asked(i)).unwrap();
            began.elapsed()
        })
        .collect();
    let began = clock();
    let refusal = machine.preview(&ADMIN, &spec(10, Some(499), Some(31))).unwrap();
    let refused = began.elapsed();
    times.sort();
    measured.sort();
    let bytes = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak =
        bytes.lines().find(|l| l.starts_with("VmHWM")).unwrap().replace("VmHWM:", "").trim().to_owned();
    println!("creation: median {:.2?}, longest {:.2?}", times[5000], times[9999]);
    println!("decision with a day measured: median {:.2?}, longest {:.2?}", measured[100], measured[199]);
    println!("refusal with what would fit ({}): {refused:.2?}", refusal.why);
    println!("memory at its largest: {peak}");
    let began = clock();
    let again = Machine::load(Settings::default(), disk.load().unwrap()).unwrap();
    println!("restart: {:.2?} for {} disks", began.elapsed(), again.disks().count());
    let changes: Vec<_> = disk.load().unwrap().into_iter().map(|(key, value)| (key, Some(value))).collect();
    for (name, mut open, _keep) in stores("bench-manager").into_iter().skip(1) {
        let began = clock();
        open().commit(&crate::store::Batch { changes: changes.clone() }).unwrap();
        let wrote = began.elapsed();
        let began = clock();
        let again = Machine::load(Settings::default(), open().load().unwrap()).unwrap();
        let took = began.elapsed();
        println!(
            "restart from {name}: {took:.2?} for {} disks (written in {wrote:.2?})",
            again.disks().count()
        );
    }
}
