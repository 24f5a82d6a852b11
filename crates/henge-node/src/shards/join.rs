//! What several shards say, as one answer.

use super::number::{SHIFT, global};
use henge_api::{AtGates, Buckets, CommandMeters, DiskStatus, Latencies, Status, Taken};
use henge_core::Histogram;
use std::collections::BTreeMap;

/// The meters of all. Gates are counted through in the order of `pools`, as with one shard. A disk that concerns several shards is said once.
pub(super) fn statuses(mut parts: Vec<Status>, pools: &[String]) -> Option<Status> {
    if parts.len() < 2 {
        return parts.pop();
    }
    let order: BTreeMap<&str, usize> = pools.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
    let place = |name: &str| order.get(name).copied().unwrap_or(usize::MAX);
    let mut all = Status { uptime: parts[0].uptime, ..Status::default() };
    // By shard, the pools of which each of its gates is one, and which of the pool's.
    let mut gates: Vec<Vec<(String, u32)>> = Vec::new();
    for part in &mut parts {
        let of = |pool: &henge_api::PoolStatus| {
            let name = pool.name.clone();
            (0..pool.gates.len() as u32).map(move |gate| (name.clone(), gate)).collect::<Vec<_>>()
        };
        gates.push(part.pools.iter().flat_map(of).collect());
        all.pools.append(&mut part.pools);
    }
    all.pools.sort_by_key(|pool| place(&pool.name));
    let mut first = 0;
    let mut starts: BTreeMap<&str, u32> = BTreeMap::new();
    for pool in &all.pools {
        starts.insert(&pool.name, first);
        first += pool.gates.len() as u32;
    }
    for (part, gates) in parts.iter_mut().zip(&gates) {
        for at in part.disks.iter_mut().flat_map(|disk| &mut disk.flow.gates) {
            if let Some((pool, gate)) = gates.get(at.gate as usize) {
                at.gate = starts[pool.as_str()] + gate;
            }
        }
    }
    let lead = parts.remove(0);
    (all.node, all.tags, all.peers) = (lead.node, lead.tags, lead.peers);
    (all.connections, all.buffers, all.buffers_out) = (lead.connections, lead.buffers, lead.buffers_out);
    (all.disks, all.failed) = (lead.disks, lead.failed);
    for part in parts {
        all.connections += part.connections;
        all.buffers += part.buffers;
        all.buffers_out += part.buffers_out;
        all.tags.asked += part.tags.asked;
        all.tags.taken += part.tags.taken;
        all.tags.late += part.tags.late;
        all.tags.untold += part.tags.untold;
        all.disks.extend(part.disks);
        all.failed.extend(part.failed);
    }
    all.disks = joined(all.disks);
    all.failed.sort_by(|a, b| a.name.cmp(&b.name));
    all.failed.dedup_by(|a, b| a.name == b.name);
    Some(all)
}

/// What shards say of one disk, as one: what clients of each saw, and what each of its gates did.
fn joined(disks: Vec<DiskStatus>) -> Vec<DiskStatus> {
    let mut all: Vec<DiskStatus> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for disk in disks {
        match known.get(&disk.name) {
            Some(&at) => add(&mut all[at], disk),
            None => {
                known.insert(disk.name.clone(), all.len());
                all.push(disk);
            }
        }
    }
    all
}

fn add(all: &mut DiskStatus, other: DiskStatus) {
    all.connections += other.connections;
    all.processor += other.processor;
    add_meters(&mut all.meters, &other.meters);
    add_flow(&mut all.flow, other.flow);
    all.layout.trouble.extend(other.layout.trouble);
}

fn add_meters(all: &mut CommandMeters, other: &CommandMeters) {
    all.metered = all.metered.max(other.metered);
    all.commands += other.commands;
    all.reads += other.reads;
    all.bytes += other.bytes;
    all.failed += other.failed;
    all.late += other.late;
    all.pending += other.pending;
    // Nobody saw when several had something pending at once: it is at least as long as the longest.
    all.busy = all.busy.max(other.busy);
    all.outstanding_us += other.outstanding_us;
    if let (Some(one), Some(more)) = (&all.histogram, &other.histogram) {
        let mut both = Histogram::from(one);
        both.merge(&Histogram::from(more));
        (all.latency, all.histogram) = (Latencies::of(&both), Some(Buckets::from(&both)));
    }
}

fn add_flow(all: &mut AtGates, other: AtGates) {
    all.waiting = all.waiting.take().or(other.waiting);
    all.wait += other.wait;
    all.service += other.service;
    all.disk_time += other.disk_time;
    if let Some(more) = other.all {
        let all = all.all.get_or_insert_default();
        all.commands += more.commands;
        all.bytes += more.bytes;
    }
    for (reason, time) in other.waits {
        *all.waits.entry(reason).or_default() += time;
    }
    all.gates.extend(other.gates);
}

/// What the taps of all have taken; disks have their numbers among all shards.
pub(super) fn taps(parts: Vec<Taken>) -> Option<Taken> {
    let mut parts = parts.into_iter().enumerate();
    let (_, mut all) = parts.next()?;
    for (shard, mut part) in parts {
        let base = global(shard, 0) as u32;
        debug_assert!(shard < 1 << (u32::BITS - SHIFT));
        part.disks.iter_mut().for_each(|(number, _)| *number |= base);
        part.commands.iter_mut().for_each(|command| command.0 |= base);
        all.now = all.now.max(part.now);
        all.lost += part.lost;
        all.disks.append(&mut part.disks);
        all.commands.append(&mut part.commands);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_api::{AtGate, GateStatus, PoolStatus, Tapped};

    fn pool(name: &str, gates: usize) -> PoolStatus {
        let gate = |n| GateStatus { name: format!("{name}/{n}"), ..GateStatus::default() };
        PoolStatus { name: name.into(), gates: (0..gates).map(gate).collect(), ..PoolStatus::default() }
    }

    fn disk(name: &str, gates: &[u32]) -> DiskStatus {
        let at = |gate: &u32| AtGate { gate: *gate, ..AtGate::default() };
        let flow = AtGates { gates: gates.iter().map(at).collect(), ..AtGates::default() };
        DiskStatus { name: name.into(), flow, ..DiskStatus::default() }
    }

    #[test]
    fn gates_are_counted_through_in_the_order_of_the_pools() {
        let one = Status {
            uptime: 9,
            connections: 2,
            buffers: 10,
            pools: vec![pool("a", 2), pool("c", 1)],
            disks: vec![disk("x", &[0, 1]), disk("z", &[2])],
            ..Status::default()
        };
        let other = Status {
            connections: 3,
            buffers: 10,
            buffers_out: 4,
            pools: vec![pool("b", 3), pool("d", 1)],
            disks: vec![disk("y", &[1, 2]), disk("w", &[3])],
            ..Status::default()
        };
        let order = ["a", "b", "c", "d"].map(str::to_owned);
        let all = statuses(vec![one, other], &order).unwrap();
        let names: Vec<&str> = all.pools.iter().map(|pool| pool.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        // Each disk's gate has the name of its own pool's.
        let gates: Vec<&str> =
            all.pools.iter().flat_map(|p| &p.gates).map(|gate| gate.name.as_str()).collect();
        let at =
            |disk: &DiskStatus| disk.flow.gates.iter().map(|at| gates[at.gate as usize]).collect::<Vec<_>>();
        let on: Vec<_> = all.disks.iter().map(|disk| (disk.name.as_str(), at(disk))).collect();
        let expected =
            [("x", vec!["a/0", "a/1"]), ("z", vec!["c/0"]), ("y", vec!["b/1", "b/2"]), ("w", vec!["d/0"])];
        assert_eq!(on, expected);
        assert_eq!((all.uptime, all.connections, all.buffers, all.buffers_out), (9, 5, 20, 4));
    }

    #[test]
    fn a_disk_that_two_shards_know_is_one() {
        let seen = |ms: u64, commands: u64| {
            let mut histogram = Histogram::default();
            (0..commands).for_each(|_| histogram.record(henge_core::Duration::from_millis(ms)));
            let mut disk = DiskStatus { connections: 1, ..disk("x", &[0]) };
            disk.meters = CommandMeters {
                commands,
                busy: ms,
                latency: Latencies::of(&histogram),
                histogram: Some(Buckets::from(&histogram)),
                ..CommandMeters::default()
            };
            disk.flow.waits = BTreeMap::from([("share".to_owned(), ms)]);
            disk
        };
        let part =
            |pool_of, disk| Status { pools: vec![pool(pool_of, 1)], disks: vec![disk], ..Status::default() };
        let order = ["a", "b"].map(str::to_owned);
        let all = statuses(vec![part("a", seen(1, 3)), part("b", seen(9, 1))], &order).unwrap();
        let [x] = &all.disks[..] else { panic!("{:?}", all.disks) };
        assert_eq!((x.meters.commands, x.connections, x.meters.busy, x.flow.waits["share"]), (4, 2, 9, 10));
        assert_eq!(x.flow.gates.iter().map(|at| at.gate).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(
            (x.meters.latency.mean, x.meters.latency.max),
            (3_000_000, 9_000_000),
            "of all commands, not of one shard's"
        );
    }

    #[test]
    fn taps_of_several_shards_do_not_confuse_their_disks() {
        let taken = |name: &str, at| Taken {
            now: at,
            lost: 1,
            disks: vec![(0, name.to_owned())],
            commands: vec![Tapped(0, 0, 0, 4096, at, 1)],
        };
        let all = taps(vec![taken("x", 5), taken("y", 7)]).unwrap();
        assert_eq!((all.now, all.lost), (7, 2));
        let name = |number| all.disks.iter().find(|(n, _)| *n == number).map(|(_, name)| name.as_str());
        let names: Vec<_> = all.commands.iter().map(|command| name(command.0)).collect();
        assert_eq!(names, [Some("x"), Some("y")]);
    }
}
