//! Yes and a place, or no, the reason, and what would fit.
//!
//! Every pool's [`Standing`] is computed ahead; a decision asks each pool once, and takes, among those that admit a part, the
//! one whose free capacity points the way of the demand (on-line placement's `Score::Dot`). The parts of a striped disk go to
//! different nodes, all or none.

use crate::kept::{Kept, Requested, list, words};
use henge_admission::place::{Node, Score, Wish, score};
use henge_admission::{Part, Rejection, Specification, Standing};
use henge_core::{Duration, Refused};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A pool as admission sees it.
#[derive(Clone, Debug)]
pub(crate) struct PoolState {
    pub node: String,
    pub pool: String,
    pub copies: u32,
    pub capacity: u64,
    /// Bytes that disks have of it.
    pub used: u64,
    /// None without a profile: nothing can be promised there.
    pub standing: Option<Standing>,
    /// None where its node says nothing of its scheduler: the node is asked by the order.
    pub kept: Option<Kept>,
    /// Its node is here and takes new disks.
    pub open: bool,
    /// Other nodes reach its node.
    pub linked: bool,
    /// The name of storage that other nodes reach, too.
    pub shared: Option<String>,
    /// Periods since the last admission.
    pub since: usize,
}

impl PoolState {
    pub(crate) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }
}

/// A part's place.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chosen {
    pub node: String,
    pub pool: String,
    pub reserved_micro: u64,
    pub by_worst_case: bool,
}

/// Why not: never, not now, or nobody is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// No node could keep it even alone.
    Impossible,
    /// What is free does not do.
    Full,
    /// No node is connected.
    Nobody,
}

/// What would be admitted, each with everything else as it was asked.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Instead {
    /// The smallest latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "131ms")]
    pub latency: Option<String>,
    /// The largest rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "412/s")]
    pub rate: Option<String>,
    /// The largest capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "80GB")]
    pub capacity: Option<String>,
}

impl Instead {
    /// In words; empty if nothing would do.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.latency.as_ref().map(|l| format!("a latency of {l}")));
        words.extend(self.rate.as_ref().map(|r| format!("a rate of {r}")));
        words.extend(self.capacity.as_ref().map(|c| format!("a capacity of {c}")));
        words.join(", or ")
    }
}

/// No.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    /// Which kind of no.
    pub because: Because,
    /// For people.
    pub why: String,
    /// What would fit.
    pub instead: Instead,
}

/// Millionths of a request a second, rounded up.
fn micro(rate: f64) -> u64 {
    (rate * 1e6).ceil() as u64
}

/// What one pool says.
struct Offer<'a> {
    pool: &'a PoolState,
    reserved: f64,
    by_worst_case: bool,
    score: f64,
}

/// Places a disk. `pools` are those that may be used.
pub(crate) fn place<'a>(
    pools: impl Iterator<Item = &'a PoolState> + Clone,
    asked: &Specification,
    kept: &Requested,
    parts: u32,
) -> Result<Vec<Chosen>, Refusal> {
    let part = asked.part(parts);
    let best_effort = asked.is_best_effort();
    // All parts are given what the one takes that takes most: a pool that takes its own part, and not that, is left out.
    let mut most = 0;
    let offers = loop {
        let mut by_node: BTreeMap<&str, Offer<'a>> = BTreeMap::new();
        for pool in pools.clone().filter(|p| p.open && (parts == 1 || p.linked)) {
            let Some(offer) = offer(pool, &part, best_effort) else { continue };
            if kept.at(pool, most.max(micro(offer.reserved))).is_err() {
                continue;
            }
            match by_node.get(pool.node.as_str()) {
                Some(other) if other.score >= offer.score => {}
                _ => drop(by_node.insert(&pool.node, offer)),
            }
        }
        if by_node.len() < parts as usize {
            return Err(refuse(pools, asked, kept, &part, parts, by_node.len()));
        }
        let mut offers: Vec<Offer<'a>> = by_node.into_values().collect();
        offers.sort_by(|a, b| b.score.total_cmp(&a.score));
        offers.truncate(parts as usize);
        let takes = offers.iter().map(|o| micro(o.reserved)).max().unwrap_or(0);
        if takes <= most || offers.iter().all(|o| kept.at(o.pool, takes).is_ok()) {
            break offers;
        }
        most = takes;
    };
    let chosen = offers.into_iter().map(|o| Chosen {
        node: o.pool.node.clone(),
        pool: o.pool.pool.clone(),
        reserved_micro: micro(o.reserved),
        by_worst_case: o.by_worst_case,
    });
    let mut chosen: Vec<Chosen> = chosen.collect();
    chosen.sort_by(|a, b| a.node.cmp(&b.node));
    Ok(chosen)
}

fn offer<'a>(pool: &'a PoolState, part: &Part, best_effort: bool) -> Option<Offer<'a>> {
    if pool.copies < part.copies || pool.free() < part.capacity {
        return None;
    }
    let (reserved, free, by_worst_case) = if best_effort {
        (0.0, pool.standing.as_ref().map_or(0.0, Standing::free), true)
    } else {
        let standing = pool.standing.as_ref()?;
        let entry = standing.admit(part).ok()?;
        let reserved = entry.reservation.rate();
        (reserved, entry.headroom + reserved, entry.by_worst_case)
    };
    // Shares of the whole, so that bytes and requests weigh alike.
    let whole = pool.standing.as_ref().map_or(1.0, |s| s.fixed().iops_max);
    let bytes = pool.capacity.max(1) as f64;
    let node = Node { free: vec![free / whole, pool.free() as f64 / bytes], copies: pool.copies };
    let wish =
        Wish { part: vec![reserved / whole, part.capacity as f64 / bytes], parts: 1, value: 1.0, copies: 1 };
    // Of nodes alike, the emptier one.
    let tie = 1e-6 * (node.free[0] + node.free[1]);
    Some(Offer { pool, reserved, by_worst_case, score: score(&node, &wish, Score::Dot) + tie })
}

/// Admits the part on one pool that it is on already: the new reservation.
pub(crate) fn again(pool: &PoolState, part: &Part, best_effort: bool) -> Result<Chosen, Refusal> {
    let chosen = |reserved: f64, by_worst_case| Chosen {
        node: pool.node.clone(),
        pool: pool.pool.clone(),
        reserved_micro: micro(reserved),
        by_worst_case,
    };
    if best_effort {
        return Ok(chosen(0.0, true));
    }
    let Some(standing) = &pool.standing else {
        let why = format!("{}/{} has no profile, so nothing can be promised there", pool.node, pool.pool);
        return Err(Refusal { because: Because::Impossible, why, instead: Instead::default() });
    };
    match standing.admit(part) {
        Ok(entry) => Ok(chosen(entry.reservation.rate(), entry.by_worst_case)),
        Err(rejection) => {
            let alone = Standing::new(*standing.fixed(), Vec::new(), None).admit(part).is_ok();
            let instead = Instead {
                latency: part
                    .delay
                    .and_then(|_| standing.smallest_delay(part))
                    .map(crate::model::duration_text),
                rate: standing.largest_rate_milli(part).map(|milli| crate::model::rate_text(milli * 1000)),
                capacity: None,
            };
            let because = if alone { Because::Full } else { Because::Impossible };
            Err(Refusal { because, why: format!("{}/{}: {rejection}", pool.node, pool.pool), instead })
        }
    }
}

/// A contract that a pool's scheduler does not take.
pub(crate) fn not_kept(pool: &PoolState, refused: Refused) -> Refusal {
    let why = words(std::iter::once((pool, refused)));
    Refusal { because: Because::Impossible, why, instead: Instead::default() }
}

/// A disk that begins as an image, where no pool has images.
pub(crate) fn no_images() -> Refusal {
    let why = "image and from are for pools of images (rbd), and no node has one; see docs/ceph.md".into();
    Refusal { because: Because::Impossible, why, instead: Instead::default() }
}

/// A disk that would grow beyond what its pool has besides it.
pub(crate) fn no_capacity(pool: &PoolState, part: &Part) -> Refusal {
    let because = if part.capacity > pool.capacity { Because::Impossible } else { Because::Full };
    let size = henge_core::format_size;
    let why = format!(
        "{}/{} has room for {} of it, not for {}",
        pool.node,
        pool.pool,
        size(pool.free()),
        size(part.capacity)
    );
    let instead = Instead { capacity: Some(capacity_text(pool.free())), ..Instead::default() };
    Refusal { because, why, instead }
}

fn refuse<'a>(
    pools: impl Iterator<Item = &'a PoolState> + Clone,
    asked: &Specification,
    kept: &Requested,
    part: &Part,
    parts: u32,
    fitting: usize,
) -> Refusal {
    let open = pools.filter(|p| p.open);
    // Whether a rate is stated is all that its terms say of it.
    let any = u64::from(!asked.is_best_effort());
    let here = open.clone().filter(|p| kept.terms_at(p, any).is_ok());
    let unkept = || open.clone().filter_map(|p| Some((p, kept.terms_at(p, any).err()?)));
    let (all, able) = (nodes_of(open.clone()), nodes_of(here.clone()));
    let no = |(because, why)| Refusal { because, why, instead: Instead::default() };
    if let Some(missing) = missing(open.clone(), all, part, parts) {
        return no(missing);
    }
    if able < parts as usize {
        let first = match able {
            0 => "no pool keeps all of its contract".to_owned(),
            able => format!("{parts} parts need as many nodes; {able} of {all} keep all of its contract"),
        };
        return no((Because::Impossible, format!("{first}; {}", words(unkept()))));
    }
    let mut refusal = refuse_at(here.clone(), asked, kept, part, parts, fitting);
    if let Some((_, refused)) = unkept().next() {
        let names: Vec<String> = here.map(|p| format!("{}/{}", p.node, p.pool)).collect();
        refusal.why = format!("{}; only {} would keep its {}", refusal.why, list(&names), refused.term);
    }
    refusal
}

fn nodes_of<'a>(pools: impl Iterator<Item = &'a PoolState>) -> usize {
    let mut names: Vec<&str> = pools.map(|p| p.node.as_str()).collect();
    names.dedup();
    names.len()
}

/// Why none of the pools that keep its terms takes it.
fn refuse_at<'a>(
    here: impl Iterator<Item = &'a PoolState> + Clone,
    asked: &Specification,
    kept: &Requested,
    part: &Part,
    parts: u32,
    fitting: usize,
) -> Refusal {
    let nodes = nodes_of(here.clone());
    let no = |(because, why)| Refusal { because, why, instead: Instead::default() };
    if let Some(missing) = missing(here.clone(), nodes, part, parts) {
        return no(missing);
    }
    let suits = here.filter(|p| p.copies >= part.copies);
    let with =
        |because, why| Refusal { because, why, instead: instead(suits.clone(), asked, kept, part, parts) };
    let largest = suits.clone().map(|p| p.capacity).max().unwrap_or(0);
    if largest < part.capacity {
        let why = format!(
            "a part of {} is larger than any pool ({}); take more parts",
            henge_core::format_size(part.capacity),
            henge_core::format_size(largest)
        );
        return with(Because::Impossible, why);
    }
    if !asked.is_best_effort() {
        if suits.clone().all(|p| p.standing.is_none()) {
            let why = "no pool has a profile, so nothing can be promised; measure with `henge profile` and write it \
                       into the nodes' configuration";
            return no((Because::Impossible, why.into()));
        }
        if let Some(refusal) = alone(suits.clone(), part) {
            return refusal;
        }
    }
    if fitting > 0 {
        let why = format!("{parts} parts need as many nodes; {fitting} of {nodes} could take one now");
        return with(Because::Full, why);
    }
    with(Because::Full, full(suits.clone(), kept, part))
}

/// Nodes, links or copies that it asks for and that are not there, however small it were.
fn missing<'a>(
    here: impl Iterator<Item = &'a PoolState> + Clone,
    nodes: usize,
    part: &Part,
    parts: u32,
) -> Option<(Because, String)> {
    if nodes == 0 {
        return Some((Because::Nobody, "no node is connected that takes new disks".into()));
    }
    if nodes < parts as usize {
        let why = format!("{parts} parts need as many nodes; {nodes} are here and take new disks");
        return Some((Because::Full, why));
    }
    if parts > 1 && here.clone().filter(|p| p.linked).count() < parts as usize {
        let why =
            "a disk over several nodes needs [link] in their configuration, so that they reach each other";
        return Some((Because::Impossible, why.into()));
    }
    let most_copies = here.map(|p| p.copies).max().unwrap_or(0);
    (most_copies < part.copies).then(|| {
        let why = format!(
            "it asks for {} copies, and no pool's storage keeps more than {most_copies}; Henge does not replicate data itself",
            part.copies
        );
        (Because::Impossible, why)
    })
}

/// What is short on the pools that could keep it.
fn full<'a>(suits: impl Iterator<Item = &'a PoolState> + Clone, kept: &Requested, part: &Part) -> String {
    if suits.clone().all(|p| p.free() < part.capacity) {
        let most = suits.map(PoolState::free).max().unwrap_or(0);
        return format!(
            "{} are not free on any pool; the most that is: {}",
            henge_core::format_size(part.capacity),
            henge_core::format_size(most)
        );
    }
    // What a scheduler has promised already, where the pool could do it.
    let spacious = suits.clone().filter(|p| p.free() >= part.capacity);
    let promised = spacious.filter_map(|p| {
        let reserved =
            p.standing.as_ref().map_or(Some(0.0), |s| Some(s.admit(part).ok()?.reservation.rate()));
        Some((p, kept.at(p, micro(reserved?)).err()?))
    });
    let promised = words(promised);
    if !promised.is_empty() {
        return promised;
    }
    // The pool that comes nearest says why.
    let nearest = suits.filter(|p| p.free() >= part.capacity).filter_map(|p| {
        let standing = p.standing.as_ref()?;
        let rejection = standing.admit(part).err()?;
        let short = match &rejection {
            Rejection::Bandwidth { needed, available, .. } => needed - available,
            _ => f64::MAX,
        };
        Some((short, p, rejection))
    });
    match nearest.min_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, pool, rejection)) => format!("nearest is {}/{}: {rejection}", pool.node, pool.pool),
        None => "no pool has both the space and the bandwidth".into(),
    }
}

/// If no pool could keep the part even alone: that, with the smallest bound that could be.
fn alone<'a>(pools: impl Iterator<Item = &'a PoolState> + Clone, part: &Part) -> Option<Refusal> {
    let mut smallest: Option<Duration> = None;
    let mut largest: Option<u64> = None;
    let mut reason = None;
    for pool in pools.filter(|p| p.capacity >= part.capacity) {
        let Some(standing) = &pool.standing else { continue };
        let empty = Standing::new(*standing.fixed(), Vec::new(), None);
        match empty.admit(part) {
            Ok(_) => return None,
            Err(rejection) => reason = reason.or(Some(rejection)),
        }
        if part.delay.is_some() {
            let delay = empty.smallest_delay(part);
            smallest = [smallest, delay].into_iter().flatten().min();
        }
        largest = largest.max(empty.largest_rate_milli(part));
    }
    let reason = reason?;
    let instead = Instead {
        latency: smallest.map(crate::model::duration_text),
        rate: largest.map(|milli| crate::model::rate_text(milli * 1000)),
        capacity: None,
    };
    let why = format!("no node could keep it even alone: {reason}");
    Some(Refusal { because: Because::Impossible, why, instead })
}

/// What would fit: of each node the best pool, and of the nodes the `parts`-th best.
fn instead<'a>(
    pools: impl Iterator<Item = &'a PoolState> + Clone,
    asked: &Specification,
    kept: &Requested,
    part: &Part,
    parts: u32,
) -> Instead {
    let spacious = || pools.clone().filter(|p| p.free() >= part.capacity);
    let delay = asked.delay.and_then(|_| {
        let offers = spacious().filter_map(|p| Some((p, shortest(p, part)?.as_nanos())));
        nth(offers.map(|(p, ns)| (p, u64::MAX - ns)), parts).map(|ns| u64::MAX - ns)
    });
    let rate = if asked.rate.is_some() {
        let offers = spacious().filter_map(|p| Some((p, largest_milli(p, part)?)));
        // A part's rate is f·B/N; back to the whole.
        let leeway = if parts == 1 { 1.0 } else { asked.leeway };
        nth(offers, parts).map(|milli| (milli as f64 * f64::from(parts) / leeway).floor() as u64)
    } else {
        None
    };
    let promised = |p: &PoolState| reserved(p, asked, part).is_some_and(|micro| kept.at(p, micro).is_ok());
    let room = pools.clone().filter(|p| promised(p) && p.free() > 0).map(|p| (p, p.free()));
    let capacity = nth(room, parts).filter(|free| *free < part.capacity);
    Instead {
        latency: delay.map(|ns| crate::model::duration_text(Duration::from_nanos(ns))),
        rate: rate.filter(|milli| *milli > 0).map(|milli| crate::model::rate_text(milli * 1000)),
        capacity: capacity.map(|bytes| capacity_text(bytes.saturating_mul(u64::from(parts)))),
    }
}

/// What a part would reserve on a pool, if it is admitted there.
fn reserved(pool: &PoolState, asked: &Specification, part: &Part) -> Option<u64> {
    if asked.is_best_effort() {
        return Some(0);
    }
    Some(micro(pool.standing.as_ref()?.admit(part).ok()?.reservation.rate()))
}

/// The shortest latency that a pool and its scheduler keep. Where curves are held against each other there is none that holds alone.
fn shortest(pool: &PoolState, part: &Part) -> Option<Duration> {
    let delay = pool.standing.as_ref()?.smallest_delay(part)?;
    match &pool.kept {
        Some(kept) if kept.keeps.curves.is_some() => None,
        Some(kept) => {
            let delay = delay.max(kept.shortest((part.elasticity * 1e6).ceil() as u32));
            let entry = pool.standing.as_ref()?.admit(&Part { delay: Some(delay), ..*part }).ok()?;
            kept.rate_left().is_none_or(|left| micro(entry.reservation.rate()) <= left).then_some(delay)
        }
        None => Some(delay),
    }
}

/// The same of the largest rate, in thousandths of a request a second.
fn largest_milli(pool: &PoolState, part: &Part) -> Option<u64> {
    let milli = pool.standing.as_ref()?.largest_rate_milli(part)?;
    match &pool.kept {
        Some(kept) if kept.keeps.curves.is_some() => None,
        Some(kept) => Some(kept.rate_left().map_or(milli, |micro| milli.min(micro / 1000))),
        None => Some(milli),
    }
}

/// Bytes as a text that a specification can state: exactly, or a little less.
fn capacity_text(bytes: u64) -> String {
    match bytes {
        0..10_000_000 => format!("{bytes}B"),
        10_000_000..10_000_000_000 => format!("{}MB", bytes / 1_000_000),
        _ => format!("{}GB", bytes / 1_000_000_000),
    }
}

/// Of each node its largest value, and of those the n-th largest.
fn nth<'a>(values: impl Iterator<Item = (&'a PoolState, u64)>, n: u32) -> Option<u64> {
    let mut best: BTreeMap<&str, u64> = BTreeMap::new();
    for (pool, value) in values {
        let entry = best.entry(&pool.node).or_default();
        *entry = (*entry).max(value);
    }
    let mut values: Vec<u64> = best.into_values().collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.get(n as usize - 1).copied()
}
