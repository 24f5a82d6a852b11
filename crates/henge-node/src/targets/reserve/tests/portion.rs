//! A disk with a crowd that is registered, whose changes come one after another.

use super::*;

/// Asks that another port of the crowd be registered.
fn register(gateway: &mut Gateway, disk: &str, slot: u32) {
    let what = OwnerTask::Change(Change { port: format!("iqn.c,i,{slot}"), ..change(0, 0, 0, 0, 1) });
    let id = RequestId { slot, generation: 0 };
    assert!(gateway.tables.ask(disk, what, Asker::Here(id, id), &mut gateway.links).is_none());
}

/// Goes on with changes, as often as the loop does in a turn. How many of the disk's wait.
fn go_on(gateway: &mut Gateway, disk: &str) -> usize {
    for _ in 0..3 {
        let mut units = Units { targets: &mut gateway.targets, nvme: &mut gateway.nvme, disks: &[] };
        gateway.tables.settle(&mut units, &mut gateway.links, Instant::ZERO);
    }
    gateway.tables.tables[disk].queue.len()
}

#[test]
fn changes_of_a_crowd_take_a_portion_of_each_turn() {
    let mut gateway = Gateway::new(0, &Arc::default());
    gateway.tables.add("crowd", (gateway.target, 0, None));
    gateway.tables.add("other", (gateway.target, 1, None));
    (0..256).for_each(|slot| register(&mut gateway, "crowd", slot));
    gateway.tables.portion.begin();
    let left = go_on(&mut gateway, "crowd");
    assert!((240..256).contains(&left), "{left} are left, of 256");
    assert!(gateway.tables.goes_on());
    register(&mut gateway, "other", 0);
    gateway.tables.portion.begin();
    assert_eq!(go_on(&mut gateway, "other"), 0, "the crowd does not go first again");
    let mut most = 0;
    let turns = (0..512).take_while(|_| {
        gateway.tables.portion.begin();
        let left = go_on(&mut gateway, "crowd");
        let spent: Vec<(usize, u64)> = std::iter::from_fn(|| gateway.tables.portion.next_spent()).collect();
        most = most.max(spent.iter().map(|(_, nanoseconds)| nanoseconds).sum());
        left > 0
    });
    let turns = turns.count();
    assert!((100..256).contains(&turns), "{turns} turns");
    assert!(most < 40_000, "a turn's took {most} ns");
    gateway.tables.portion.begin();
    assert!(!gateway.tables.goes_on(), "nothing is left");
}
