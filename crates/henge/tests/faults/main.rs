//! A campaign of faults: real nodes on a file system that fails, stalls, and forgets what was not synced, by seed.
//!
//! The node runs as users run it, and is judged by what users see: the control socket, NBD, iSCSI, NVMe, its exit and its words. Below it is
//! a file system of this test's own (FUSE), so that superblocks, tables, parts and `state_dir` all suffer, whatever their format,
//! and nothing in the node knows of it. Judged are: no byte lost that was acknowledged as durable; no byte of another tenant; no
//! acknowledged change forgotten; epochs that grow whatever the clock says (libfaketime, where it is installed); and that the node
//! serves again on storage that is well.
//!
//! A quarter as many schedules have two nodes, a disk over both, and a link between them that fails, too.
//!
//! `make test-faults` runs 1,000 and 250 schedules; `FAULTS=1 PAIRS=0 SEED=42` repeats one.

mod hung;
mod iscsi;
mod medium;
mod middle;
mod model;
mod mount;
mod nbd;
mod node;
mod nvme;
mod others;
mod pair;
mod plan;
mod schedule;
mod steps;

use schedule::Tally;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |v| v.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
#[ignore = "`make test-faults`"]
fn nothing_acknowledged_is_lost_and_nobody_reads_anothers_bytes() {
    let formats = node::henge().args(["pool", "--help"]).output();
    let formats = formats.expect("the command starts").status.success();
    campaign(number("HENGE_FAULTS", 100), "FAULTS=1 PAIRS=0", |seed| schedule::run(seed, formats));
}

#[test]
#[ignore = "`make test-faults`"]
fn two_nodes_keep_what_either_acknowledged() {
    campaign(number("HENGE_PAIRS", 25), "FAULTS=0 PAIRS=1", pair::run);
}

/// One campaign at a time: each judges how soon its nodes serve.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `count` schedules from the seed on.
fn campaign(count: u64, again: &str, run: impl Fn(u64) -> Tally + Sync) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seed = number("HENGE_SEED", 1);
    if node::clock().is_none() {
        println!("skipped: steps of the clock (no libfaketime)");
    }
    let (next, begun) = (AtomicU64::new(seed), Instant::now());
    let all: Mutex<BTreeMap<u64, Tally>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..number("HENGE_JOBS", 4).min(count) {
            scope.spawn(|| {
                loop {
                    let mine = next.fetch_add(1, Ordering::Relaxed);
                    if mine >= seed + count {
                        return;
                    }
                    let tally = run(mine);
                    for what in &tally.troubles {
                        println!("seed {mine}: {what}");
                    }
                    if !tally.troubles.is_empty() {
                        println!("  again: make test-faults {again} SEED={mine}");
                    }
                    all.lock().expect("nobody panics here").insert(mine, tally);
                }
            });
        }
    });
    let all = all.into_inner().expect("nobody panics here");
    tell(&all, begun.elapsed());
    if let Some(late) = late(&all) {
        panic!("{late}");
    }
    let failed: Vec<u64> =
        all.iter().filter(|(_, t)| !t.troubles.is_empty()).map(|(seed, _)| *seed).collect();
    assert!(failed.is_empty(), "{} of {count} schedules failed: {failed:?}", failed.len());
    assert_eq!(all.len() as u64, count);
}

/// Nodes serve within a second of their start. The machine may have others to serve: it has as long again, three times, as the slowest of
/// those took that began meanwhile where nothing ever went wrong.
fn late(all: &BTreeMap<u64, Tally>) -> Option<String> {
    let bare = all.values().flat_map(|t| t.bare.iter().copied()).max()?;
    let most = Duration::from_secs(1) + bare * 3;
    let slow = all.iter().flat_map(|(seed, t)| t.starts.iter().map(move |time| (*time, *seed))).max();
    let (time, seed) = slow.filter(|(time, _)| *time > most)?;
    Some(format!(
        "seed {seed}: a node served {time:.0?} after its restart and did not say why; a bare start took {bare:.0?} at most"
    ))
}

fn tell(all: &BTreeMap<u64, Tally>, time: Duration) {
    let sum = |of: fn(&Tally) -> u64| all.values().map(of).sum::<u64>();
    let failed = all.values().filter(|t| !t.troubles.is_empty()).count();
    println!(
        "{} schedules in {:.0} s: {} lives, {} ends without notice or in order, {} losses of power, {} faults, \
         {} changes of disks, {} visits by iSCSI and NVMe, {} devices formatted anew",
        all.len(),
        time.as_secs_f64(),
        sum(|t| t.lives),
        sum(|t| t.kills),
        sum(|t| t.cuts),
        sum(|t| t.faults),
        sum(|t| t.changes),
        sum(|t| t.visits),
        sum(|t| t.formats)
    );
    println!(
        "{} blocks compared after restarts and in between; schedules that failed: {failed}",
        sum(|t| t.blocks)
    );
    let mut starts: Vec<Duration> = all.values().flat_map(|t| t.starts.iter().copied()).collect();
    starts.sort();
    let at =
        |share: f64| starts.get(((starts.len() as f64 - 1.0) * share) as usize).copied().unwrap_or_default();
    let late = starts.iter().filter(|time| **time > Duration::from_secs(1)).count();
    let bare = all.values().flat_map(|t| t.bare.iter().copied()).max().unwrap_or_default();
    println!(
        "from start to serving: {} restarts, p50 {:.0?}, p99 {:.0?}, most {:.0?}; above 1 s: {late}; bare starts, most {bare:.0?}",
        starts.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
