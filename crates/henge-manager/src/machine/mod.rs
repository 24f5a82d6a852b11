//! The manager's state and everything that changes it. Pure: no clock, no socket, no file; time is an argument.
//!
//! Every change goes through `put_…`, which changes the state and writes the same into the batch. Whoever runs the machine
//! takes the batch, stores it, and only then sends what lies in `orders` and lets the answers out. After a failed store
//! the machine is made anew from what is stored.
//!
//! # What must always hold (`Machine::check`)
//! - a disk holds its place from the moment it is admitted until every node has confirmed that it is gone;
//! - each pool's bytes are its disks' bytes, counted once; no pool has more promised than it has;
//! - every node that is here has been sent an order for whatever it has not confirmed.

mod admit;
mod answer;
mod caller;
mod change;
mod create;
mod gateways;
mod identities;
mod names;
mod quotas;
mod reconcile;
mod tenants;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;

pub(crate) use answer::shorten;
pub use answer::{Created, Decision, Failure, Place};
pub use caller::Caller;
pub use gateways::{Leaves, Leaving};
pub use identities::{Grant, Revoked};
pub use tenants::{Forgotten, Tenant};

use crate::decide::PoolState;
use crate::kept::{self, Kept};
use crate::measure::{Span, Window};
use crate::model::{DiskRecord, Event, KeyRecord, NodeRecord, PartRecord, TokenRecord};
use crate::store::Batch;
use crate::tenant::TenantRecord;
use henge_admission::{Fixed, Part, PromisedPart, Rules, Standing};
use henge_api::Status;
use henge_api::manager::{Held, Order};
use henge_core::Promised;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Knobs.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Rules of measured admission; none: worst-case arithmetic alone.
    pub rules: Option<Rules>,
    /// Milliseconds between two distributions of a node.
    pub period_ms: u64,
    /// Milliseconds that a measurement covers.
    pub window_ms: u64,
    /// Milliseconds after an admission before a pool's measurements are believed.
    pub settle_ms: u64,
    /// Events kept.
    pub events_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            rules: Some(Rules::OURS),
            period_ms: 60_000,
            window_ms: 86_400_000,
            settle_ms: 3_600_000,
            events_max: 10_000,
        }
    }
}

/// Idempotency keys kept.
const KEYS_MAX: usize = 10_000;
/// Failures of creations, kept for callers that wait for them.
const FAILURES_MAX: usize = 1_000;

/// A node now.
#[derive(Clone, Debug)]
pub struct NodeState {
    /// What is remembered.
    pub record: NodeRecord,
    /// The connection it is here by.
    pub session: Option<u64>,
    /// Its meters.
    pub status: Option<Arc<Status>>,
    /// When they came; milliseconds since 1970.
    pub seen: u64,
}

/// A pool's key: node and pool.
type PoolKey = (String, String);

/// The state.
pub struct Machine {
    settings: Settings,
    span: Span,
    now: u64,
    nodes: BTreeMap<String, NodeState>,
    disks: BTreeMap<String, DiskRecord>,
    tokens: BTreeMap<String, TokenRecord>,
    tenants: BTreeMap<String, TenantRecord>,
    keys: BTreeMap<String, KeyRecord>,
    identities: identities::Identities,
    events: VecDeque<Event>,
    revision: u64,
    pools: BTreeMap<PoolKey, PoolState>,
    /// Disks that have a part on a pool, the nodes' own not included.
    on: BTreeMap<PoolKey, BTreeSet<String>>,
    windows: BTreeMap<(String, String), Window>,
    /// Disk and the node that says that its promise is broken.
    broken: BTreeSet<(String, String)>,
    /// Why a disk's creation came to nothing, for who waits.
    failures: VecDeque<(String, u64, String)>,
    batch: Batch,
    orders: Vec<(String, Order)>,
    /// Nodes that are to hear whether they are drained.
    drains: Vec<(String, bool)>,
}

/// Something stored is not what this release stores.
#[derive(Debug, thiserror::Error)]
#[error("what is stored under \"{key}\" is not understood: {why}")]
pub struct BadState {
    /// Where.
    pub key: String,
    /// Why.
    pub why: String,
}

impl Machine {
    /// From what is stored.
    pub fn load(settings: Settings, stored: Vec<(String, Vec<u8>)>) -> Result<Machine, BadState> {
        let span = Span::new(settings.window_ms, settings.settle_ms, settings.period_ms);
        let mut machine = Machine {
            settings,
            span,
            now: 0,
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            tokens: BTreeMap::new(),
            tenants: BTreeMap::new(),
            keys: BTreeMap::new(),
            identities: identities::Identities::default(),
            events: VecDeque::new(),
            revision: 0,
            pools: BTreeMap::new(),
            on: BTreeMap::new(),
            windows: BTreeMap::new(),
            broken: BTreeSet::new(),
            failures: VecDeque::new(),
            batch: Batch::default(),
            orders: Vec::new(),
            drains: Vec::new(),
        };
        for (key, value) in stored {
            machine.restore(&key, &value).map_err(|why| BadState { key, why })?;
        }
        for key in machine.pools.keys().cloned().collect::<Vec<_>>() {
            machine.refresh(&key);
        }
        Ok(machine)
    }

    fn restore(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        let (kind, name) = key.split_once('/').ok_or("it is of no kind")?;
        let wrong = |e: serde_json::Error| e.to_string();
        match kind {
            "disk" => {
                let disk: DiskRecord = serde_json::from_slice(value).map_err(wrong)?;
                for part in &disk.parts {
                    self.on.entry(place(part)).or_default().insert(disk.name.clone());
                }
                self.disks.insert(name.to_owned(), disk);
            }
            "node" => {
                let record: NodeRecord = serde_json::from_slice(value).map_err(wrong)?;
                self.install(NodeState { record, session: None, status: None, seen: 0 });
            }
            "token" => {
                self.tokens.insert(name.to_owned(), serde_json::from_slice(value).map_err(wrong)?);
            }
            "tenant" => {
                let tenant: TenantRecord = serde_json::from_slice(value).map_err(wrong)?;
                for quota in [&tenant.ceiling, &tenant.own] {
                    quota.read().map_err(|e| e.0)?;
                }
                self.tenants.insert(name.to_owned(), tenant);
            }
            "event" => self.events.push_back(serde_json::from_slice(value).map_err(wrong)?),
            "key" => {
                self.keys.insert(name.to_owned(), serde_json::from_slice(value).map_err(wrong)?);
            }
            "authority" | "invitation" | "certificate" => {
                self.identities.restore(kind, name, value).map_err(wrong)?;
            }
            "meta" => self.revision = serde_json::from_slice(value).map_err(wrong)?,
            _ => return Err("this release knows no such kind".into()),
        }
        Ok(())
    }

    /// What time it is, in milliseconds since 1970; called before anything is asked.
    pub fn at(&mut self, now: u64) -> &mut Self {
        self.now = self.now.max(now);
        self
    }

    /// What is to be stored now.
    pub fn take_batch(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }

    /// What is to be sent once that is stored.
    pub fn take_orders(&mut self) -> Vec<(String, Order)> {
        std::mem::take(&mut self.orders)
    }

    /// Nodes that are to hear whether they are drained, once that is stored.
    pub fn take_drains(&mut self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.drains)
    }

    /// A disk.
    pub fn disk(&self, name: &str) -> Option<&DiskRecord> {
        self.disks.get(name)
    }
    /// All disks by name.
    pub fn disks(&self) -> impl Iterator<Item = &DiskRecord> {
        self.disks.values()
    }
    /// All nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.nodes.values()
    }
    /// A node.
    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }
    /// Events after one, the oldest first.
    pub fn events(&self, after: u64) -> impl Iterator<Item = &Event> {
        let from = self.events.partition_point(|e| e.id <= after);
        self.events.range(from..)
    }
    /// Tokens.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenRecord> {
        self.tokens.values()
    }
    pub(crate) fn pool(&self, node: &str, pool: &str) -> Option<&PoolState> {
        self.pools.get(&(node.to_owned(), pool.to_owned()))
    }
    /// The knobs.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// The time it was told last.
    pub fn now(&self) -> u64 {
        self.now
    }

    fn put<T: Serialize>(&mut self, key: String, value: Option<&T>) {
        let bytes = value.map(|v| serde_json::to_vec(v).expect("our records have keys that are texts"));
        self.batch.changes.push((key, bytes));
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        let revision = self.revision;
        self.put("meta/revision".into(), Some(&revision));
        revision
    }

    /// Remembers a disk with a new revision, or forgets it.
    fn put_disk(&mut self, name: &str, disk: Option<DiskRecord>) -> u64 {
        let revision = self.next_revision();
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
        self.put(format!("disk/{name}"), disk.as_ref());
        if let Some(disk) = disk {
            for key in disk.parts.iter().map(place) {
                self.on.entry(key.clone()).or_default().insert(name.to_owned());
                touched.insert(key);
            }
            self.disks.insert(name.to_owned(), disk);
        } else {
            self.windows.retain(|(disk, _), _| disk != name);
            self.broken.retain(|(disk, _)| disk != name);
        }
        for key in touched {
            self.refresh(&key);
        }
        revision
    }

    fn put_node(&mut self, name: &str, node: Option<NodeState>) {
        let revision = self.next_revision();
        let node = node.map(|mut node| {
            node.record.revision = revision;
            node
        });
        self.put(format!("node/{name}"), node.as_ref().map(|n| &n.record));
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

    fn put_event(&mut self, kind: &str, disk: Option<&DiskRecord>, node: Option<&str>, text: String) {
        let event = Event {
            id: self.events.back().map_or(1, |e| e.id + 1),
            time: self.now,
            kind: kind.to_owned(),
            disk: disk.map(|d| d.name.clone()),
            node: node.map(str::to_owned),
            tenant: disk.and_then(|d| d.tenant.clone()),
            text,
        };
        self.put(format!("event/{:020}", event.id), Some(&event));
        self.events.push_back(event);
        while self.events.len() > self.settings.events_max {
            if let Some(oldest) = self.events.pop_front() {
                self.put::<Event>(format!("event/{:020}", oldest.id), None);
            }
        }
    }

    /// Computes a pool's state of promises anew.
    fn refresh(&mut self, key: &PoolKey) {
        let (disks, used) = self.on_pool(key, None);
        let rules = self.settings.rules;
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
    fn on_pool(&self, key: &PoolKey, without: Option<&str>) -> (Vec<PromisedPart>, u64) {
        let mut disks = Vec::new();
        let mut used = 0u64;
        let since = self.pools.get(key).map_or(0, |p| p.since);
        for name in self.on.get(key).into_iter().flatten().filter(|n| Some(n.as_str()) != without) {
            let disk = &self.disks[name];
            let part = disk.parts.iter().find(|p| place(p) == *key).expect("a disk is on the pools it names");
            let promised = effective(disk, part);
            used = used.saturating_add(promised.capacity);
            let window = self.windows.get(&(name.clone(), key.0.clone()));
            let measured = window.map(|w| w.measured(self.span, since));
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
    fn kept_on(&self, key: &PoolKey, kept: &Kept, without: Option<&str>) -> Kept {
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

    /// What must always hold; for tests.
    pub fn check(&self) -> Result<(), String> {
        for (key, pool) in &self.pools {
            let (_, used) = self.on_pool(key, None);
            if used != pool.used {
                return Err(format!("{key:?}: {} bytes are counted, {used} are used", pool.used));
            }
            if used > pool.capacity {
                return Err(format!("{key:?}: {used} bytes of {} are promised", pool.capacity));
            }
            let reserved: f64 = self
                .on
                .get(key)
                .into_iter()
                .flatten()
                .flat_map(|name| self.disks[name].parts.iter().filter(|p| place(p) == *key))
                .map(|p| p.reserved_micro as f64 / 1e6)
                .sum();
            let most = pool.standing.as_ref().map_or(0.0, |s| s.fixed().iops_max);
            if self.settings.rules.is_none() && reserved > most + 0.001 {
                return Err(format!("{key:?}: {reserved}/s of {most}/s are promised"));
            }
        }
        for (key, names) in &self.on {
            for name in names {
                let there = self.disks.get(name).is_some_and(|d| d.parts.iter().any(|p| place(p) == *key));
                if !there {
                    return Err(format!("{key:?} has a place for \"{name}\", which is not there"));
                }
            }
        }
        let parts: usize = self.disks.values().map(|d| d.parts.len()).sum();
        let places: usize = self.on.values().map(BTreeSet::len).sum();
        if parts != places {
            return Err(format!("{parts} parts have {places} places"));
        }
        Ok(())
    }
}

fn place(part: &PartRecord) -> PoolKey {
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
