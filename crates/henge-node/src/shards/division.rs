//! Which pool belongs to which shard.
//!
//! The rule: pools that one disk lies on belong together, unless they state different shards. So do pools that state the same `shard`. A group
//! that states none goes to the shard with the fewest pools, in the order of the file. There are as many shards as `cores` says, but none
//! without need: not more than the highest that has a pool, unless a pool's clients are served by every core, and not more than there is memory
//! for (each has room for two of the longest commands).
//!
//! Example: cores = 2 and pools a, b, c, d, with a disk over a and c. {a, c} goes to shard 0, b to shard 1, d to shard 1. A disk that is added
//! later to a and b concerns both shards (`spread/across.rs`).
//!
//! Links to other nodes belong to shard 0. It shows disks that other nodes know, and coordinates them; their extents here are at the shards of their
//! pools. Pools that several nodes share (Ceph) are shard 0's.
//!
//! Price: what clients and other nodes say of such a disk goes through shard 0, and only its gates, its storage and whatever they copy through others.

use super::leads::Leads;
use crate::config::{DiskConfig, NodeConfig, PoolConfig};
use henge_core::ParamError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A disk that ties pools together.
pub(crate) struct Tie {
    pub pools: Vec<usize>,
}

/// Which loop has which pool.
#[derive(Clone)]
pub(crate) struct Division {
    /// By pool.
    of: Vec<usize>,
    /// By pool: whether its clients are served by every shard.
    everywhere: Vec<bool>,
    count: usize,
    /// Who shows disks that every shard serves.
    leads: Arc<Leads>,
}

impl Default for Division {
    fn default() -> Division {
        Division::whole(0)
    }
}

/// Memory that a shard has at least: two of the longest commands.
const LEAST: usize = 2 * henge_backend::BUFFER_MAX;

impl Division {
    /// One shard has them all.
    pub(crate) fn whole(pools: usize) -> Division {
        Division {
            of: vec![0; pools],
            everywhere: vec![false; pools],
            count: 1,
            leads: Arc::new(Leads::new(1)),
        }
    }

    /// By the configuration. `remembered` are disks that are not in it and will be there.
    pub(crate) fn of(config: &NodeConfig, remembered: Vec<Tie>) -> Result<Division, ParamError> {
        let cores = config.loops.cores.min(config.bounds.buffers / LEAST).max(1);
        for pool in &config.pools {
            let Some(shard) = pool.shard else { continue };
            let why = if shard >= cores {
                format!(
                    "pool \"{}\" is on shard {shard}, and there are {cores}, counted from 0; write cores = {} or more{}",
                    pool.name,
                    shard + 1,
                    if config.loops.cores > cores { ", and more buffers" } else { "" }
                )
            } else if shard > 0 && is_shared(config, pool) {
                format!(
                    "pool \"{}\" is shared with other nodes, so it is on shard 0, which has their links",
                    pool.name
                )
            } else {
                continue;
            };
            return Err(ParamError { message: why, help: None, span: pool.spans.whole.clone() });
        }
        let own = config.disks.iter().filter(|disk| !disk.is_of_cluster());
        let own = own.map(|disk| Tie { pools: disk.pools.clone() });
        let stated = |pool: &PoolConfig| pool.shard.or(is_shared(config, pool).then_some(0));
        let stated: Vec<Option<usize>> = config.pools.iter().map(stated).collect();
        let division = divide(&config.pools, &stated, own.chain(remembered), cores);
        config.disks.iter().for_each(|disk| division.place(disk));
        Ok(division)
    }

    /// A disk comes. One that every shard serves is shown by one of them from now on.
    pub(crate) fn place(&self, disk: &DiskConfig) {
        if self.is_everywhere(disk) {
            self.leads.place(&disk.name, self.gate_of(disk));
        }
    }

    /// It has gone from all shards.
    pub(crate) fn forget(&self, disk: &str) {
        self.leads.forget(disk);
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whose a pool is.
    pub(crate) fn shard(&self, pool: usize) -> usize {
        self.of[pool]
    }

    /// Whether each shard serves clients of a pool.
    pub(crate) fn is_hot(&self, pool: usize) -> bool {
        !self.is_whole() && self.everywhere[pool]
    }

    /// Whether one shard has everything.
    pub(crate) fn is_whole(&self) -> bool {
        self.count == 1
    }

    /// The shard that shows a disk to clients: that of its first pool; of a disk that other nodes know, the first, which has their links; of
    /// one that every shard serves, any (`leads.rs`).
    pub(crate) fn lead_of(&self, disk: &DiskConfig) -> usize {
        let shown = if self.is_everywhere(disk) { self.leads.of(&disk.name) } else { None };
        shown.unwrap_or_else(|| self.gate_of(disk))
    }

    /// The shard of a disk's first pool.
    pub(crate) fn gate_of(&self, disk: &DiskConfig) -> usize {
        self.gate(&disk.pools, disk.is_of_cluster())
    }

    /// Whether each shard serves NBD clients of a disk.
    pub(crate) fn is_everywhere(&self, disk: &DiskConfig) -> bool {
        !self.is_whole() && !disk.is_of_cluster() && disk.pools.iter().any(|pool| self.everywhere[*pool])
    }

    /// The shards that a disk concerns, the one that shows it first.
    pub(crate) fn shards_of(&self, disk: &DiskConfig) -> Vec<usize> {
        let mut all = self.shards(&disk.pools, disk.is_of_cluster(), self.is_everywhere(disk));
        let lead = self.lead_of(disk);
        all.retain(|shard| *shard != lead);
        all.insert(0, lead);
        all
    }

    fn gate(&self, pools: &[usize], cluster: bool) -> usize {
        pools.first().filter(|_| !cluster).map_or(0, |first| self.of[*first])
    }

    fn shards(&self, pools: &[usize], cluster: bool, everywhere: bool) -> Vec<usize> {
        let mut all = vec![self.gate(pools, cluster)];
        let others = pools.iter().map(|pool| self.of[*pool]);
        let every = if everywhere { 0..self.count } else { 0..0 };
        for shard in others.chain(every) {
            if !all.contains(&shard) {
                all.push(shard);
            }
        }
        all
    }

    /// For people: what each shard has.
    pub(crate) fn describe(&self, pools: &[PoolConfig]) -> String {
        let of = |shard: usize| {
            let here = pools.iter().zip(&self.of).filter(|(_, of)| **of == shard);
            let names: Vec<&str> = here.map(|(pool, _)| pool.name.as_str()).collect();
            if names.is_empty() {
                format!("{shard} has no pool")
            } else {
                format!("{shard} has {}", names.join(", "))
            }
        };
        let all: Vec<String> = (0..self.count).map(of).collect();
        let hot = pools.iter().zip(&self.everywhere).filter(|(_, everywhere)| **everywhere);
        let hot: Vec<&str> = hot.map(|(pool, _)| pool.name.as_str()).collect();
        let served = match hot[..] {
            [] => String::new(),
            _ => format!("; every one serves clients of {}", hot.join(", ")),
        };
        match self.count {
            1 => "1: one loop has all pools".to_owned(),
            n => format!("{n}: shard {}{served}", all.join("; shard ")),
        }
    }
}

/// Whether other nodes have the pool, too: whoever has a disk of it now is settled over links.
fn is_shared(config: &NodeConfig, pool: &PoolConfig) -> bool {
    config.link.is_some() && pool.medium.is_shared()
}

fn divide(
    pools: &[PoolConfig],
    stated: &[Option<usize>],
    ties: impl Iterator<Item = Tie>,
    cores: usize,
) -> Division {
    // By pool, the first pool of its group.
    let mut group: Vec<usize> = (0..pools.len()).collect();
    let join = |group: &mut Vec<usize>, a: usize, b: usize| {
        let (a, b) = (group[a].min(group[b]), group[a].max(group[b]));
        group.iter_mut().filter(|of| **of == b).for_each(|of| *of = a);
    };
    let mut wanted: BTreeMap<usize, usize> = BTreeMap::new();
    for (pool, shard) in stated.iter().enumerate() {
        let Some(shard) = shard else { continue };
        match wanted.get(shard) {
            Some(first) => join(&mut group, *first, pool),
            None => drop(wanted.insert(*shard, pool)),
        }
    }
    for tie in ties {
        for pair in tie.pools.windows(2) {
            // Two groups that state different shards stay apart.
            let stated = |pool: usize| {
                let together = (0..pools.len()).filter(|other| group[*other] == group[pool]);
                together.filter_map(|other| stated[other]).next()
            };
            if stated(pair[0]).zip(stated(pair[1])).is_none_or(|(one, other)| one == other) {
                join(&mut group, pair[0], pair[1]);
            }
        }
    }
    let mut of: Vec<Option<usize>> = vec![None; pools.len()];
    let mut load = vec![0; cores];
    for pool in 0..pools.len() {
        let mut together = (0..pools.len()).filter(|other| group[*other] == group[pool]);
        let Some(shard) = together.find_map(|other| stated[other]) else { continue };
        of[pool] = Some(shard);
        load[shard] += 1;
    }
    for first in 0..pools.len() {
        if of[first].is_some() {
            continue;
        }
        let (shard, _) = load.iter().enumerate().min_by_key(|(_, load)| **load).expect("there is a core");
        for pool in (first..pools.len()).filter(|pool| group[*pool] == group[first]) {
            of[pool] = Some(shard);
            load[shard] += 1;
        }
    }
    let of: Vec<usize> = of.into_iter().map(|shard| shard.expect("each pool has got a shard")).collect();
    let everywhere: Vec<bool> = pools.iter().map(|pool| pool.every_core).collect();
    let count = match everywhere.contains(&true) {
        true => cores,
        false => of.iter().max().map_or(1, |last| last + 1),
    };
    Division { of, everywhere, count, leads: Arc::new(Leads::new(count)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_config::Source;
    use proptest::prelude::*;

    fn config(head: &str, pools: &[(&str, &str)], disks: &[&str]) -> NodeConfig {
        let pool = |(name, more): &(&str, &str)| {
            format!("[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"64MiB\"\n{more}\n")
        };
        let pools: String = pools.iter().map(pool).collect();
        let disks = disks.iter().enumerate();
        let disks: String = disks
            .map(|(i, on)| format!("[[disk]]\nname = \"d{i}\"\ncapacity = \"1MiB\"\npools = [{on}]\n"))
            .collect();
        let text = format!("listen = \"nbd://127.0.0.1:0\"\n{head}\n{pools}{disks}");
        NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"))
    }

    fn divided(head: &str, pools: &[(&str, &str)], disks: &[&str]) -> Result<Division, String> {
        let config = config(head, pools, disks);
        Division::of(&config, Vec::new()).map_err(|e| config.source.point(e).to_string())
    }

    const ABCD: [(&str, &str); 4] = [("a", ""), ("b", ""), ("c", ""), ("d", "")];

    #[test]
    fn the_example_of_the_head() {
        let division = divided("cores = 2", &ABCD, &["\"a\", \"c\""]).unwrap();
        assert_eq!((&division.of[..], division.count), (&[0, 1, 0, 1][..], 2));
        assert_eq!(division.shards(&[0, 2], false, false), [0]);
        assert_eq!(division.shards(&[1, 3], false, false), [1]);
        assert_eq!(division.shards(&[1, 0, 3], false, false), [1, 0], "the first pool's shard leads");
        assert_eq!(division.shards(&[1, 3], true, false), [0, 1], "links are shard 0's");
        assert_eq!(division.shards(&[], false, false), [0]);
        let config = config("", &ABCD, &[]);
        assert_eq!(division.describe(&config.pools), "2: shard 0 has a, c; shard 1 has b, d");
    }

    #[test]
    fn there_are_no_more_shards_than_are_of_use() {
        let count = |head: &str, pools: &[_]| divided(head, pools, &[]).unwrap().count();
        assert_eq!(count("cores = 8", &ABCD), 4);
        assert_eq!(count("cores = 1", &ABCD), 1);
        let there = std::thread::available_parallelism().unwrap().get();
        assert_eq!(count("", &ABCD), (there - 1).clamp(1, 4), "all cores but one");
        let least = LEAST;
        assert_eq!(count(&format!("cores = 8\nbuffers = \"{}B\"", 3 * least), &ABCD), 3);
        assert_eq!(count("cores = 2", &[("a", "shard = 1")]), 2, "shard 0 accepts, and has no disk");
    }

    #[test]
    fn what_is_stated_holds_or_is_refused_with_what_would_be_right() {
        let stated = [("a", "shard = 1"), ("b", ""), ("c", "shard = 1"), ("d", "")];
        let division = divided("cores = 2", &stated, &[]).unwrap();
        assert_eq!(division.of, [1, 0, 1, 0]);
        let beyond = divided("cores = 2", &[("a", "shard = 2")], &[]).err().unwrap();
        assert!(beyond.contains("there are 2, counted from 0; write cores = 3"), "{beyond}");
        let apart = [("a", "shard = 0"), ("b", "shard = 1"), ("c", "")];
        let division = divided("cores = 2", &apart, &["\"a\", \"b\""]).unwrap();
        assert_eq!((division.shards(&[0, 1], false, false), division.of[2]), (vec![0, 1], 0));
        // What states none goes with whom it met first.
        let division = divided("cores = 2", &apart, &["\"a\", \"c\"", "\"c\", \"b\""]).unwrap();
        assert_eq!(
            (division.shards(&[0, 2], false, false), division.shards(&[2, 1], false, false)),
            (vec![0], vec![0, 1])
        );
    }

    #[test]
    fn every_core_serves_clients_of_a_pool_that_says_so() {
        let hot = [("a", "every_core = true"), ("b", "")];
        let division = divided("cores = 4\nbuffers = \"1GiB\"", &hot, &["\"a\""]).unwrap();
        assert_eq!(
            (division.count(), division.shards(&[0], false, true), division.gate(&[0], false)),
            (4, vec![0, 1, 2, 3], 0)
        );
        let disks = config("cores = 4", &hot, &["\"a\"", "\"b\""]).disks;
        assert_eq!([0, 1].map(|n| division.is_everywhere(&disks[n])), [true, false]);
        assert_eq!(division.shards_of(&disks[1]), [1]);
        let told = division.describe(&config("cores = 4", &hot, &[]).pools);
        assert!(told.ends_with("; every one serves clients of a"), "{told}");
        let alone = divided("cores = 1", &hot, &[]).unwrap();
        assert_eq!((alone.shards_of(&disks[0]), alone.is_everywhere(&disks[0])), (vec![0], false));
    }

    #[test]
    fn disks_that_are_remembered_keep_their_pools_together() {
        let config = config("cores = 4", &ABCD, &[]);
        let tie = Tie { pools: vec![3, 1] };
        let division = Division::of(&config, vec![tie]).unwrap();
        assert_eq!(division.of, [0, 1, 2, 1]);
    }

    proptest! {
        /// Whatever disks tie together, where no pool states its shard: no disk is torn, no shard is beyond the cores, and none is empty.
        #[test]
        fn no_disk_is_torn(cores in 1usize..9, ties in proptest::collection::vec(proptest::collection::vec(0usize..8, 1..4), 0..8)) {
            let names: Vec<String> = (0..8).map(|n| format!("p{n}")).collect();
            let pools: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
            let config = config("", &pools, &[]);
            let tie = |pools: &Vec<usize>| Tie { pools: pools.clone() };
            let division = divide(&config.pools, &[None; 8], ties.iter().map(tie), cores);
            prop_assert!(ties.iter().all(|pools| division.shards(pools, false, false).len() == 1));
            prop_assert!(division.count() <= cores);
            prop_assert!((0..division.count()).all(|shard| division.of.contains(&shard)));
        }
    }
}
