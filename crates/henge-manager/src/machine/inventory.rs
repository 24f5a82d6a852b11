//! Nodes with their pools, and the disks that lie there: what each pool has promised, and what was seen of it.

use super::watch::Broken;
use super::{Journal, NodeState, Settings};
use crate::decide::PoolState;
use crate::kept::{self, Kept};
use crate::measure::{Measurements, Span};
use crate::model::{DiskRecord, NodeRecord, PartRecord};
use henge_admission::{Fixed, Part, PromisedPart, Rules, Standing};
use henge_api::Status;
use henge_api::manager::{Held, Seen};
use henge_core::Promised;
use std::collections::{BTreeMap, BTreeSet};

/// A pool's key: node and pool.
pub(super) type PoolKey = (String, String);

/// All nodes, pools and disks.
pub(crate) struct Inventory {
    /// Rules of measured admission; none: worst-case arithmetic alone.
    pub(super) rules: Option<Rules>,
    pub(super) nodes: BTreeMap<String, NodeState>,
    pub(super) disks: BTreeMap<String, DiskRecord>,
    pub(super) pools: BTreeMap<PoolKey, PoolState>,
    /// Disks that have a part on a pool, the nodes' own not included.
    pub(super) on: BTreeMap<PoolKey, BTreeSet<String>>,
    pub(super) measured: Measurements,
    pub(super) broken: Broken,
}

impl Inventory {
    pub(super) fn new(settings: &Settings) -> Inventory {
        let span = Span::new(settings.window_ms, settings.settle_ms, settings.period_ms);
        Inventory {
            rules: settings.rules,
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            pools: BTreeMap::new(),
            on: BTreeMap::new(),
            measured: Measurements::new(span),
            broken: Broken::default(),
        }
    }

    pub(super) fn restore(&mut self, kind: &str, name: &str, value: &[u8]) -> serde_json::Result<()> {
        if kind == "disk" {
            let disk: DiskRecord = serde_json::from_slice(value)?;
            for part in &disk.parts {
                self.on.entry(place(part)).or_default().insert(disk.name.clone());
            }
            self.disks.insert(name.to_owned(), disk);
        } else {
            let record: NodeRecord = serde_json::from_slice(value)?;
            self.install(NodeState {
                record,
                session: None,
                status: None,
                seen: 0,
                found: Default::default(),
            });
        }
        Ok(())
    }

    /// Sums up every pool, once everything is restored.
    pub(super) fn refresh_all(&mut self) {
        for key in self.pools.keys().cloned().collect::<Vec<_>>() {
            self.refresh(&key);
        }
    }

    /// A disk.
    pub(crate) fn disk(&self, name: &str) -> Option<&DiskRecord> {
        self.disks.get(name)
    }
    /// All disks by name.
    pub(crate) fn disks(&self) -> impl Iterator<Item = &DiskRecord> {
        self.disks.values()
    }
    /// All nodes by name.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.nodes.values()
    }
    /// A node.
    pub(crate) fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }
    pub(crate) fn pool(&self, node: &str, pool: &str) -> Option<&PoolState> {
        self.pools.get(&(node.to_owned(), pool.to_owned()))
    }

    /// Clients connected to a disk, as its nodes said last.
    pub(crate) fn clients(&self, name: &str) -> usize {
        let Some(disk) = self.disks.get(name) else { return 0 };
        let on = disk.parts.iter().filter_map(|p| self.nodes.get(&p.node)?.status.as_ref()?.disk(name));
        on.map(|d| d.connections).sum()
    }

    /// Remembers a disk with a new revision, or forgets it.
    pub(super) fn put_disk(&mut self, journal: &mut Journal, name: &str, disk: Option<DiskRecord>) {
        let revision = journal.next_revision();
        let mut touched: BTreeSet<PoolKey> = BTreeSet::new();
        if let Some(old) = self.disks.remove(name) {
            touched.extend(old.parts.iter().map(place));
        }
        for key in &touched {
            if let Some(names) = self.on.get_mut(key) {
                names.remove(name);
            }
        }
        let disk = disk.map(|disk| DiskRecord { revision, ..disk });
        journal.put(format!("disk/{name}"), disk.as_ref());
        if let Some(disk) = disk {
            for key in disk.parts.iter().map(place) {
                self.on.entry(key.clone()).or_default().insert(name.to_owned());
                touched.insert(key);
            }
            self.disks.insert(name.to_owned(), disk);
        } else {
            self.measured.forget(name);
            self.broken.forget(name);
        }
        for key in touched {
            self.refresh(&key);
        }
    }

    /// Remembers a disk without a new revision: nothing that its nodes should do has changed.
    pub(super) fn keep_disk(&mut self, journal: &mut Journal, disk: DiskRecord) {
        journal.put(format!("disk/{}", disk.name), Some(&disk));
        let keys: Vec<_> = disk.parts.iter().map(place).collect();
        self.disks.insert(disk.name.clone(), disk);
        keys.iter().for_each(|key| self.refresh(key));
    }

    /// Remembers a node with a new revision, or forgets it.
    pub(super) fn put_node(&mut self, journal: &mut Journal, name: &str, node: Option<NodeState>) {
        let revision = journal.next_revision();
        let node = node.map(|mut node| {
            node.record.revision = revision;
            node
        });
        journal.put(format!("node/{name}"), node.as_ref().map(|n| &n.record));
        self.pools.retain(|(on, _), _| on != name);
        self.nodes.remove(name);
        let Some(node) = node else { return };
        let keys: Vec<PoolKey> =
            node.record.pools.iter().map(|p| (name.to_owned(), p.name.clone())).collect();
        self.install(node);
        keys.iter().for_each(|key| self.refresh(key));
    }

    /// Puts a node and its pools into the state.
    fn install(&mut self, node: NodeState) {
        let says = |pool: &str| node.status.as_ref()?.pools.iter().find(|p| p.name == pool)?.keeps.as_ref();
        for pool in &node.record.pools {
            let fixed = pool.profile.map(|p| Fixed { iops_max: p.iops, service: p.service });
            let state = PoolState {
                node: node.record.name.clone(),
                pool: pool.name.clone(),
                copies: pool.copies,
                capacity: pool.capacity,
                used: 0,
                standing: fixed.map(|fixed| Standing::new(fixed, Vec::new(), None)),
                kept: says(&pool.name).or(pool.keeps.as_ref()).map(Kept::new),
                open: node.session.is_some() && !node.record.draining,
                linked: node.record.link.is_some(),
                shared: pool.shared.clone(),
                since: 0,
            };
            self.pools.insert((node.record.name.clone(), pool.name.clone()), state);
        }
        self.nodes.insert(node.record.name.clone(), node);
    }

    /// Computes a pool's state of promises anew.
    pub(super) fn refresh(&mut self, key: &PoolKey) {
        let (disks, used) = self.on_pool(key, None);
        let rules = self.rules;
        let kept = self.pools.get(key).and_then(|pool| pool.kept.as_ref());
        let kept = kept.map(|kept| self.kept_on(key, kept, None));
        if let Some(pool) = self.pools.get_mut(key) {
            pool.used = used;
            pool.kept = kept;
            let fixed = pool.standing.as_ref().map(|s| *s.fixed());
            pool.standing = fixed.map(|fixed| Standing::new(fixed, disks, rules));
        }
    }

    /// What is on a pool, but for one disk: what each part is promised, with what was seen of it, and bytes in all.
    pub(super) fn on_pool(&self, key: &PoolKey, without: Option<&str>) -> (Vec<PromisedPart>, u64) {
        let mut disks = Vec::new();
        let mut used = 0u64;
        let since = self.pools.get(key).map_or(0, |p| p.since);
        for name in self.on.get(key).into_iter().flatten().filter(|n| Some(n.as_str()) != without) {
            let disk = &self.disks[name];
            let part = disk.parts.iter().find(|p| place(p) == *key).expect("a disk is on the pools it names");
            let promised = effective(disk, part);
            used = used.saturating_add(promised.capacity);
            let measured = self.measured.of(name, &key.0, since);
            disks.push(PromisedPart { part: promised, measured });
        }
        for held in self.own_on(key) {
            let part = own_part(held);
            used = used.saturating_add(part.capacity);
            disks.push(PromisedPart { part, measured: None });
        }
        (disks, used)
    }

    /// What the scheduler of a pool has promised, but for one disk.
    pub(super) fn kept_on(&self, key: &PoolKey, kept: &Kept, without: Option<&str>) -> Kept {
        let mut kept = Kept { promised: Promised::default(), ..kept.clone() };
        for name in self.on.get(key).into_iter().flatten().filter(|n| Some(n.as_str()) != without) {
            let disk = &self.disks[name];
            let part = disk.parts.iter().find(|p| place(p) == *key).expect("a disk is on the pools it names");
            let leeway = disk.spec.leeway.unwrap_or(1.0);
            kept.promise(&kept::promised(disk, part), leeway, disk.divided());
        }
        for held in self.own_on(key) {
            let (contract, places) = kept::own(held);
            kept.promise(&contract, 1.0, places);
        }
        kept
    }

    /// Disks of a node's own on one of its pools.
    fn own_on(&self, key: &PoolKey) -> impl Iterator<Item = &Held> {
        let own = self.nodes.get(&key.0).into_iter().flat_map(|node| &node.record.own);
        let place = format!("{}/{}", key.0, key.1);
        let pool = key.1.clone();
        // The place of a disk of several gateways names the first of them.
        let is_of = move |held: &&Held, at: &String| match held.gateways.is_empty() {
            true => *at == pool || *at == place,
            false => at.split_once('/').map_or(at.as_str(), |(_, pool)| pool) == pool,
        };
        own.filter(move |held| held.pools.iter().any(|at| is_of(held, at)))
    }

    /// A node's pools take disks as it is here and not draining.
    pub(super) fn open(&mut self, name: &str) {
        let open = self.nodes.get(name).is_some_and(|n| n.session.is_some() && !n.record.draining);
        self.pools.values_mut().filter(|p| p.node == name).for_each(|p| p.open = open);
    }

    /// Whether this connection is the node's present one.
    pub(crate) fn is_current(&self, name: &str, session: u64) -> bool {
        self.nodes.get(name).is_some_and(|n| n.session == Some(session))
    }

    /// Its pools' schedulers as they are now: they learn, and somebody may exchange them.
    pub(super) fn hear_keeps(&mut self, node: &str, status: &Status) {
        for said in &status.pools {
            let key = (node.to_owned(), said.name.clone());
            let Some((pool, says)) = self.pools.get_mut(&key).zip(said.keeps.as_ref()) else { continue };
            if !pool.kept.get_or_insert_with(|| Kept::new(says)).hear(says) {
                self.refresh(&key);
            }
        }
    }

    /// Distributions of a node over one period.
    pub(super) fn period(&mut self, node: &str, seconds: f64, seen: &[Seen]) {
        for seen in seen {
            let ours = self.disks.get(&seen.name).is_some_and(|d| d.parts.iter().any(|p| p.node == node));
            if ours {
                self.measured.add(node, seconds, seen);
            }
        }
        let keys: Vec<_> = self.pools.keys().filter(|(on, _)| on == node).cloned().collect();
        for key in keys {
            if let Some(pool) = self.pools.get_mut(&key) {
                pool.since += 1;
            }
            self.refresh(&key);
        }
    }
}

pub(super) fn place(part: &PartRecord) -> PoolKey {
    (part.node.clone(), part.pool.clone())
}

/// The promise that a part's place must hold: the stricter of what the manager wants and what the node still enforces.
fn effective(disk: &DiskRecord, part: &PartRecord) -> Part {
    let read = |spec: &crate::model::DiskSpec| {
        let specification = spec.read().expect("only specifications that were read are stored");
        specification.part(disk.divided() as u32)
    };
    let mut wanted = read(&disk.spec);
    if let Some(room) = disk.room {
        wanted.capacity = wanted.capacity.max(room.div_ceil(disk.divided() as u64));
    }
    let Some(held) = &part.held else { return wanted };
    let held = read(&held.spec);
    Part {
        rate: wanted.rate.max(held.rate),
        capacity: wanted.capacity.max(held.capacity),
        pending: wanted.pending.max(held.pending),
        delay: [wanted.delay, held.delay].into_iter().flatten().min(),
        elasticity: wanted.elasticity.max(held.elasticity),
        copies: wanted.copies.max(held.copies),
    }
}

/// What a disk of the node's own takes of one of its pools.
fn own_part(held: &Held) -> Part {
    use henge_core::{CostUnit, parse_duration, parse_rate};
    let n = held.pools.len().max(1) as u64;
    let term = |key: &str| held.contract.get(key);
    let rate = term("rate").and_then(|t| parse_rate(t).ok()).filter(|r| r.unit == CostUnit::Requests);
    let percentile: f64 = term("percentile").and_then(|t| t.parse().ok()).unwrap_or(95.0);
    Part {
        rate: rate.map_or(0.0, |r| r.per_second as f64 / 1e6 / n as f64),
        capacity: held.capacity.div_ceil(n),
        pending: term("pending").and_then(|t| t.parse().ok()).unwrap_or(16),
        delay: term("latency")
            .and_then(|t| parse_duration(t).ok())
            .filter(|d| *d > henge_core::Duration::ZERO),
        elasticity: (percentile / 100.0).clamp(0.000_001, 1.0),
        copies: 1,
    }
}
