//! Whether a pool's scheduler takes a contract: by what its node says of it, before the node is asked.
//!
//! A node says of each pool which terms of a contract its scheduler keeps, which go with others there, and the most that is promised to
//! all ([`henge_api::Keeps`]). The machine sums up beside it what its disks and the node's own are promised there. So a disk is placed
//! where its whole contract is kept, and nowhere else. An earlier release says nothing, and its pools are taken for able: the node then
//! refuses the order, and the disk is taken back.

use crate::decide::PoolState;
use crate::model::{DiskRecord, DiskSpec, PartRecord, Terms, whole_of};
use henge_api::manager::Held;
use henge_core::{Contract, CostUnit, Duration, Keeps, Params, Promised, Rate, Refused, Term};

/// What a pool's scheduler keeps, and what is promised there.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub said: henge_api::Keeps,
    pub keeps: Keeps,
    pub promised: Promised,
}

impl Kept {
    pub(crate) fn new(said: &henge_api::Keeps) -> Kept {
        Kept { keeps: said.read(), said: said.clone(), promised: Promised::default() }
    }

    /// The same scheduler says something else now. `false`: what is promised there has to be summed up anew.
    pub(crate) fn hear(&mut self, says: &henge_api::Keeps) -> bool {
        let (before, now) = (&self.said, says);
        let sums = |said: &henge_api::Keeps| (said.rate.map(|most| most.unit), said.curves, said.gates);
        let alike = sums(before) == sums(now) && before.needs == now.needs;
        if self.said != *says {
            *self = Kept { promised: std::mem::take(&mut self.promised), ..Kept::new(says) };
        }
        alike
    }

    /// What one of the pool's gates is given of a disk in so many parts.
    fn part(&self, whole: &Contract, leeway: f64, parts: usize) -> Contract {
        let gates = u64::from(self.said.gates.max(1)) * parts.max(1) as u64;
        let leeway = if parts == 1 { 1_000_000 } else { (leeway * 1e6).round() as u64 };
        whole.part(leeway, gates)
    }

    /// One more disk that is promised something.
    pub(crate) fn promise(&mut self, whole: &Contract, leeway: f64, parts: usize) {
        let part = self.part(whole, leeway, parts);
        self.promised.add(&self.keeps, &part);
    }

    /// What a newcomer could be given a second, in millionths of a request, where the scheduler bounds it.
    pub(crate) fn rate_left(&self) -> Option<u64> {
        let left = self.promised.rate_left(&self.keeps).filter(|left| left.unit == CostUnit::Requests)?;
        Some(left.per_second.saturating_mul(self.said.gates.max(1).into()))
    }

    /// The shortest latency for so many millionths of the requests.
    pub(crate) fn shortest(&self, percentile: u32) -> Duration {
        let at = self.keeps.service.iter().find(|(share, _)| *share >= percentile);
        at.or(self.keeps.service.last()).map_or(Duration::ZERO, |(_, service)| *service)
    }
}

/// A disk that is asked for.
pub(crate) struct Requested<'a> {
    spec: &'a DiskSpec,
    contract: Contract,
    parts: usize,
    /// What it has there already, where it is changed.
    had: Option<Contract>,
}

impl Requested<'_> {
    pub(crate) fn new(spec: &DiskSpec) -> Requested<'_> {
        let contract = contract(&spec.terms(0)).unwrap_or_default();
        Requested { spec, contract, parts: spec.parts().unwrap_or(1) as usize, had: None }
    }

    /// The same disk with another contract.
    pub(crate) fn instead_of(self, before: &DiskSpec) -> Self {
        Requested { had: contract(&before.terms(0)), ..self }
    }

    /// With what is reserved for each part of it.
    fn reserving(&self, part_micro: u64) -> Contract {
        let whole = whole_of(self.spec, std::iter::once(part_micro), self.parts);
        let rate = Some(Rate::requests_micro(whole)).filter(|rate| rate.per_second > 0);
        Contract { rate, ..self.contract.clone() }
    }

    /// Refused for a term that the pool's scheduler does not keep, whatever is promised there.
    pub(crate) fn terms_at(&self, pool: &PoolState, part_micro: u64) -> Result<(), Refused> {
        let Some(kept) = &pool.kept else { return Ok(()) };
        let part = kept.part(&self.reserving(part_micro), self.spec.leeway.unwrap_or(1.0), self.parts);
        kept.keeps.check(&part, henge_sched::schedulers_that_keep)
    }

    /// The same, or since it is too much beside what others are promised.
    pub(crate) fn at(&self, pool: &PoolState, part_micro: u64) -> Result<(), Refused> {
        self.terms_at(pool, part_micro)?;
        let Some(kept) = &pool.kept else { return Ok(()) };
        let part = kept.part(&self.reserving(part_micro), self.spec.leeway.unwrap_or(1.0), self.parts);
        let has = self.had.as_ref().and_then(|had| had.latency);
        kept.keeps.check_beside(&part, &kept.promised, has)
    }
}

/// What pools say, each in its own words: those that say the same together.
pub(crate) fn words<'a>(refused: impl Iterator<Item = (&'a PoolState, Refused)>) -> String {
    const MOST: usize = 4;
    let mut by_text: Vec<(String, Vec<String>)> = Vec::new();
    for (pool, refused) in refused {
        let (name, text) = (format!("{}/{}", pool.node, pool.pool), refused.to_string());
        match by_text.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(name),
            None => by_text.push((text, vec![name])),
        }
    }
    let more = by_text.len().saturating_sub(MOST);
    let mut lines: Vec<String> =
        by_text.into_iter().take(MOST).map(|(text, names)| format!("{}: {text}", list(&names))).collect();
    lines.extend((more > 0).then(|| format!("and {more} other reasons")));
    lines.join("; ")
}

/// Some names, and how many more there are.
pub(crate) fn list(names: &[String]) -> String {
    const MOST: usize = 4;
    let first = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// A contract as it is written.
pub(crate) fn contract(terms: &Terms) -> Option<Contract> {
    let typed = |p: Params, (key, text): (&String, &String)| Some(p.with(key, Term::value(key, text).ok()?));
    let mut p = terms.iter().try_fold(Params::new("the disk"), typed)?;
    Contract::from_params(&mut p).ok()
}

/// What a disk's part holds at its scheduler: the stricter of what the manager wants and what the node still enforces.
pub(crate) fn promised(disk: &DiskRecord, part: &PartRecord) -> Contract {
    let wanted = contract(&disk.spec.terms(disk.whole_micro())).unwrap_or_default();
    let Some(held) = &part.held else { return wanted };
    let whole = whole_of(&held.spec, std::iter::once(held.reserved_micro), disk.divided());
    let held = contract(&held.spec.terms(whole)).unwrap_or_default();
    Contract {
        rate: [wanted.rate, held.rate].into_iter().flatten().max_by_key(|rate| rate.per_second),
        burst: wanted.burst.max(held.burst),
        latency: [wanted.latency, held.latency].into_iter().flatten().min_by_key(|latency| latency.bound),
        disk_time: [wanted.disk_time, held.disk_time].into_iter().flatten().max_by_key(|time| time.share),
        ..wanted
    }
}

/// What a disk of the node's own holds there, and over how many places.
pub(crate) fn own(held: &Held) -> (Contract, usize) {
    (contract(&held.contract).unwrap_or_default(), held.pools.len().max(1))
}

#[cfg(test)]
mod tests;
