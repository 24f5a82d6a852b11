//! Where no promise is broken, or none can be kept, the default of a device costs nobody much.

use crate::isolation::{Got, Load, World, kept, kept_shares, load, text};
use henge_core::{Contract, Duration, Op, Rate, Value};

/// Who is there, and what each was promised.
struct Scene {
    name: &'static str,
    scheduler: &'static str,
    disks: Vec<(Load, Contract)>,
}

const READ_16K: &[(Op, u64)] = &[(Op::Read, 16 << 10)];
const READ_4K: &[(Op, u64)] = &[(Op::Read, 4 << 10)];
const READ_1M: &[(Op, u64)] = &[(Op::Read, 1 << 20)];
const WRITE_64K: &[(Op, u64)] = &[(Op::Write, 64 << 10)];
const WRITE_1M: &[(Op, u64)] = &[(Op::Write, 1 << 20)];
const FLUSHES: &[(Op, u64)] = &[(Op::Flush, 0)];
const BOTH: &[(Op, u64)] = &[(Op::Read, 16 << 10), (Op::Write, 16 << 10)];

fn scenes() -> Vec<Scene> {
    let weight = Contract::weighted;
    let rate = |n| Contract::reserved(Rate::requests(n));
    let mut all = Vec::new();
    for scheduler in ["sfq", "mclock"] {
        let mut add = |name, disks: Vec<(Load, Contract)>| all.push(Scene { name, scheduler, disks });
        let two = |kinds, a, b| vec![(load("a", kinds, a), weight(1)), (load("b", kinds, b), weight(1))];
        add("one reads", vec![(load("a", READ_16K, 32), weight(1))]);
        add("one writes", vec![(load("a", WRITE_1M, 32), weight(1))]);
        add("two read 16/16", two(READ_16K, 16, 16));
        add("two read 8/32", two(READ_16K, 8, 32));
        add("two read 8/64", two(READ_16K, 8, 64));
        add("two read 4/256", two(READ_16K, 4, 256));
        add("two write 4/4", two(WRITE_64K, 4, 4));
        add("two write 4/32", two(WRITE_64K, 4, 32));
        add("two both 16/16", two(BOTH, 16, 16));
        add("two both 8/64", two(BOTH, 8, 64));
        add("scan and reads", vec![(load("a", READ_16K, 8), weight(1)), (load("b", READ_1M, 4), weight(1))]);
        add("scan and 4k", vec![(load("a", READ_4K, 32), weight(1)), (load("b", READ_1M, 32), weight(1))]);
        add(
            "reads and writes",
            vec![(load("a", READ_16K, 8), weight(1)), (load("b", WRITE_1M, 32), weight(1))],
        );
        add(
            "reads and writes 16/16",
            vec![(load("a", READ_16K, 16), weight(1)), (load("b", WRITE_64K, 16), weight(1))],
        );
        add("32 of 1", (0..32).map(|_| (load("a", READ_4K, 1), weight(1))).collect());
        add("16 of both 4", (0..16).map(|_| (load("a", BOTH, 4), weight(1))).collect());
        add("16 of random 4", (0..16).map(|_| (Load { each: 0, ..load("a", BOTH, 4) }, weight(1))).collect());
        let random = |n| Load { each: 0, ..load("a", BOTH, n) };
        add("two random 8/64", vec![(random(8), weight(1)), (random(64), weight(1))]);
        add(
            "4:1 reads and writes",
            vec![(load("a", READ_16K, 8), weight(4)), (load("b", WRITE_1M, 32), weight(1))],
        );
        add(
            "10:1 reads and trims",
            vec![(load("a", READ_16K, 8), weight(10)), (load("b", &[(Op::Trim, 4096)], 64), weight(1))],
        );
        add(
            "1:1 reads and trims",
            vec![(load("a", READ_16K, 8), weight(1)), (load("b", &[(Op::Trim, 4096)], 64), weight(1))],
        );
        add(
            "4:1 reads and flushes",
            vec![(load("a", READ_16K, 8), weight(4)), (load("b", FLUSHES, 64), weight(1))],
        );
        add("4:1 random 8/64", vec![(random(8), weight(4)), (random(64), weight(1))]);
        let bursts = |n, burst| Load { burst, ..load("a", READ_16K, n) };
        add("bursts of 64/64", vec![(bursts(16, 64), weight(1)), (load("b", READ_16K, 64), weight(1))]);
        add("bursts of 1000/64", vec![(bursts(16, 1000), weight(1)), (load("b", READ_16K, 64), weight(1))]);
        add("bursts and writes", vec![(bursts(16, 300), weight(1)), (load("b", WRITE_1M, 32), weight(1))]);
        add(
            "4:1 bursts and writes",
            vec![(bursts(16, 300), weight(4)), (load("b", WRITE_1M, 32), weight(1))],
        );
        add("4:1 read 8/64", vec![(load("a", READ_16K, 8), weight(4)), (load("b", READ_16K, 64), weight(1))]);
        add("1:4 read 8/64", vec![(load("a", READ_16K, 8), weight(1)), (load("b", READ_16K, 64), weight(4))]);
        add(
            "8 small and 1 large",
            (0..9).map(|i| (load("a", READ_16K, if i == 8 { 64 } else { 2 }), weight(1))).collect(),
        );
    }
    for scheduler in ["mclock", "vc"] {
        let mut add = |name, disks: Vec<(Load, Contract)>| all.push(Scene { name, scheduler, disks });
        let two = |ar, a, br: Contract, b| vec![(load("a", READ_16K, a), ar), (load("b", READ_16K, b), br)];
        let none = Contract::best_effort;
        add("kept well", two(rate(100), 8, none(), 32));
        add("wants less", two(rate(200_000), 1, none(), 32));
        add("too much", two(rate(2_000_000), 8, none(), 32));
        add(
            "too much beside writes",
            vec![(load("a", READ_16K, 8), rate(2_000_000)), (load("b", WRITE_1M, 32), none())],
        );
        add(
            "wants less beside writes",
            vec![(load("a", READ_16K, 1), rate(100_000)), (load("b", WRITE_1M, 32), none())],
        );
        add(
            "too much and one not",
            vec![
                (load("a", READ_16K, 8), rate(if scheduler == "vc" { 5000 } else { 15_000 })),
                (load("x", READ_4K, 1), rate(1_000_000)),
                (load("b", WRITE_1M, 32), none()),
            ],
        );
        add("both too much", two(rate(2_000_000), 8, rate(2_000_000), 32));
        add("one with a rate", vec![(load("a", READ_16K, 32), rate(10_000_000))]);
    }
    all
}

/// What a pool has that states nothing, in memory and on a device.
fn settings(scheduler: &str, device: bool) -> Vec<(&'static str, Value)> {
    match (scheduler, device) {
        ("sfq", false) => vec![("depth", Value::Integer(32)), ("cost", text("bytes"))],
        ("sfq", true) => vec![("depth", kept_shares()), ("cost", text("bytes"))],
        ("mclock", true) => vec![("depth", kept_shares()), ("cost", text("time"))],
        (_, true) => vec![("depth", kept()), ("cost", text("requests"))],
        (_, false) => vec![("depth", Value::Integer(32)), ("cost", text("requests"))],
    }
}

/// Commands of each a second, over so many seconds after the first, and by second.
fn ran(device: &str, scene: &Scene, by_default: bool, seed: u64, seconds: u64) -> Vec<Got> {
    let mut world = World::new(device, scene.scheduler, &settings(scene.scheduler, by_default), seed);
    for (load, contract) in &scene.disks {
        world.add(*load, contract, Duration::ZERO);
    }
    world.run(Duration::from_secs(1), seconds);
    (0..scene.disks.len()).map(|disk| world.of(disk)).collect()
}

fn scene(scheduler: &str, name: &str) -> Scene {
    scenes().into_iter().find(|s| s.scheduler == scheduler && s.name == name).expect("it is in the list")
}

/// Tenants who are alone, alike, many, or merely have more outstanding than others have what a depth of 32 gives them.
fn all_lose_nothing(device: &str, seconds: u64, scenes: &[(&str, &str)]) {
    for (scheduler, name) in scenes {
        let scene = scene(scheduler, name);
        let seed = 1 + name.len() as u64;
        let (plain, ours) =
            (ran(device, &scene, false, seed, seconds), ran(device, &scene, true, seed, seconds));
        let all =
            |got: &[Got]| got.iter().zip(&scene.disks).map(|(g, (l, _))| g.rate * l.bytes()).sum::<f64>();
        let (before, after) = (all(&plain), all(&ours));
        assert!(after >= 0.97 * before, "{device} {scheduler} {name}: {after} of {before} bytes/s");
        for (disk, (plain, ours)) in plain.iter().zip(&ours).enumerate() {
            let (before, after) = (plain.rate, ours.rate);
            assert!(
                after >= 0.94 * before,
                "{device} {scheduler} {name}, disk {disk}: {after} of {before}/s"
            );
        }
    }
}

#[test]
fn who_breaks_no_promise_by_weights_loses_nothing() {
    let names = ["one reads", "two read 8/64", "two random 8/64"];
    all_lose_nothing("nvme-dc", 1, &names.map(|name| ("sfq", name)));
    // Flushes are millions in one second.
    all_lose_nothing("nvme-dc", 1, &[("sfq", "4:1 reads and flushes")]);
}

#[test]
fn who_breaks_no_promise_by_rates_loses_nothing() {
    all_lose_nothing("nvme-dc", 2, &[("mclock", "32 of 1"), ("mclock", "kept well")]);
}

#[test]
fn who_breaks_no_promise_on_slow_flash_loses_nothing() {
    let (shares, rates) = (["two both 16/16", "8 small and 1 large", "bursts of 1000/64"], "16 of random 4");
    all_lose_nothing("sata-ssd", 2, &shares.map(|name| ("sfq", name)));
    all_lose_nothing("sata-ssd", 2, &[("mclock", rates)]);
}

#[test]
fn who_breaks_no_promise_on_a_hard_disk_loses_nothing() {
    all_lose_nothing("dtla-307075", 16, &[("sfq", "two both 16/16"), ("mclock", "two read 16/16")]);
}

/// Of two equals the one with small requests has no less than by a depth of 32, where learned time once took it for the dearer one.
#[test]
fn small_reads_lose_nothing_beside_long_ones() {
    for device in ["nvme-dc", "sata-ssd"] {
        let scene = scene("sfq", "scan and 4k");
        let (plain, ours) = (ran(device, &scene, false, 1, 3), ran(device, &scene, true, 1, 3));
        assert!(ours[0].rate >= 0.95 * plain[0].rate, "{device}: {} of {}/s", ours[0].rate, plain[0].rate);
    }
}

/// A promise that nothing keeps, or of more than its owner's few requests can be, costs the others a search of 14 turns in each 64 at first.
#[test]
fn a_promise_that_nothing_keeps_costs_the_others_little() {
    for (device, scheduler, name) in [
        ("nvme-dc", "mclock", "wants less"),
        ("nvme-dc", "vc", "too much beside writes"),
        ("sata-ssd", "mclock", "wants less"),
        ("sata-ssd", "vc", "wants less beside writes"),
        ("sata-ssd", "mclock", "too much"),
    ] {
        let scene = scene(scheduler, name);
        let (plain, ours) = (ran(device, &scene, false, 1, 6), ran(device, &scene, true, 1, 6));
        let (before, after) = (plain[1].rate, ours[1].rate);
        assert!(after >= (1.0 - 14.0 / 64.0) * before, "{device} {scheduler} {name}: {after} of {before}/s");
    }
}

/// Nor does it break the promises that can be kept.
#[test]
fn a_promise_that_nothing_keeps_leaves_the_others_promises_alone() {
    for (device, seed) in [("nvme-dc", 1), ("nvme-dc", 2), ("sata-ssd", 1)] {
        let scene = scene("mclock", "too much and one not");
        let rate = 15_000.0; // by its contract
        let (plain, ours) = (ran(device, &scene, false, seed, 5), ran(device, &scene, true, seed, 5));
        assert!(
            plain[0].rate < 0.7 * rate,
            "{device}: {} of {rate} by a depth alone: nothing to keep",
            plain[0].rate
        );
        let (got, seconds) = (ours[0].rate, &ours[0].seconds);
        assert!(got >= 0.99 * rate, "{device}, seed {seed}: {got} of {rate}, {seconds:?}");
    }
}

/// `HENGE_CELLS=device,scheduler,scene` picks.
#[test]
#[ignore = "a table for people"]
fn calm_table() {
    let pick = std::env::var("HENGE_CELLS").unwrap_or_default();
    let seeds: u64 = std::env::var("HENGE_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let picked =
        |name: &str, i: usize| pick.split(',').nth(i).is_none_or(|p| p.is_empty() || p == "*" || p == name);
    for device in ["nvme-dc", "sata-ssd", "dtla-307075"].into_iter().filter(|d| picked(d, 0)) {
        for scene in scenes().iter().filter(|s| picked(s.scheduler, 1) && picked(s.name, 2)) {
            for seed in 1..=seeds {
                let plain = if scene.scheduler == "sfq" { "bytes" } else { "requests" };
                let ours = if scene.scheduler == "vc" { kept() } else { kept_shares() };
                let mut first: Vec<(f64, f64)> = Vec::new();
                for (depth, cost) in [
                    (Value::Integer(32), plain),
                    (Value::Integer(32), "time"),
                    (ours.clone(), plain),
                    (ours.clone(), "time"),
                ] {
                    if scene.scheduler == "vc" && cost == "time" {
                        continue;
                    }
                    let name = if matches!(depth, Value::Integer(_)) { "fixed" } else { "kept" };
                    let mut world =
                        World::new(device, scene.scheduler, &[("depth", depth), ("cost", text(cost))], seed);
                    for (load, contract) in &scene.disks {
                        world.add(*load, contract, Duration::ZERO);
                    }
                    world.run(Duration::from_secs(1), 3);
                    let got: Vec<(f64, f64)> = (0..scene.disks.len())
                        .map(|i| {
                            let g = world.of(i);
                            (g.rate, g.p999)
                        })
                        .collect();
                    let n = got.len();
                    let bytes = |got: &[(f64, f64)]| {
                        got.iter().zip(&scene.disks).map(|((r, _), (l, _))| r * l.bytes()).sum::<f64>()
                    };
                    if first.is_empty() {
                        first = got.clone();
                    }
                    let of = |i: usize| {
                        format!(
                            "{:>8.0}/s {:>5.2} p999 {:>7.0} {:>5.2}",
                            got[i].0,
                            got[i].0 / first[i].0,
                            got[i].1,
                            got[i].1 / first[i].1
                        )
                    };
                    println!(
                        "{device:<11} {:<7} {:<22} {seed} {name:<5} {cost:<8} bytes {:>4.2} | {} | {}",
                        scene.scheduler,
                        scene.name,
                        bytes(&got) / bytes(&first),
                        of(0),
                        if n > 1 { of(n - 1) } else { String::new() }
                    );
                }
            }
        }
    }
}
