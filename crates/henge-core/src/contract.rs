//! What a flow is promised. Nothing stated means best effort.

use crate::{Cost, Duration, ParamError, Params, Term, Value};
use std::collections::BTreeMap;
use std::fmt;

/// In which unit a gate charges.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CostUnit {
    /// Millionths of a client command (IOPS).
    Requests,
    /// Bytes, overhead bytes included where the model has them.
    Bytes,
    /// Nanoseconds during which the device was busy with it.
    DiskTime,
}

impl fmt::Display for CostUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CostUnit::Requests => "requests",
            CostUnit::Bytes => "bytes",
            CostUnit::DiskTime => "disk time",
        })
    }
}

/// Cost per second, with its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Cost units in one second.
    pub per_second: u64,
    /// What is counted.
    pub unit: CostUnit,
}

impl Rate {
    /// `n` client commands a second.
    pub const fn requests(n: u64) -> Self {
        Self::requests_micro(n * 1_000_000)
    }
    /// `n` millionths of a command a second.
    pub const fn requests_micro(n: u64) -> Self {
        Rate { per_second: n, unit: CostUnit::Requests }
    }
    /// `n` bytes a second.
    pub const fn bytes(n: u64) -> Self {
        Rate { per_second: n, unit: CostUnit::Bytes }
    }
    /// `ns` nanoseconds of disk time a second.
    pub const fn disk_time(ns: u64) -> Self {
        Rate { per_second: ns, unit: CostUnit::DiskTime }
    }
    /// How long `cost` takes at this rate, rounded up to the nanosecond.
    pub fn time_for(&self, cost: Cost) -> Duration {
        assert!(self.per_second > 0, "a rate of zero serves nothing");
        if let Some(ns) = cost.get().checked_mul(1_000_000_000) {
            return Duration::from_nanos(ns.div_ceil(self.per_second)); // a fraction of the time of 128 bits
        }
        let ns = (u128::from(cost.get()) * 1_000_000_000).div_ceil(u128::from(self.per_second));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
    /// What this rate yields in `time`, rounded down.
    pub fn cost_in(&self, time: Duration) -> Cost {
        if let Some(cost) = self.per_second.checked_mul(time.as_nanos()) {
            return Cost::new(cost / 1_000_000_000);
        }
        let cost = u128::from(self.per_second) * u128::from(time.as_nanos()) / 1_000_000_000;
        Cost::new(u64::try_from(cost).unwrap_or(u64::MAX))
    }
    /// This rate times `num / den`, rounded down.
    pub fn mul_ratio(&self, num: u64, den: u64) -> Rate {
        let scaled = u128::from(self.per_second) * u128::from(num) / u128::from(den);
        Rate { per_second: u64::try_from(scaled).unwrap_or(u64::MAX), unit: self.unit }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            CostUnit::Requests => write!(f, "{}/s", self.per_second as f64 / 1e6),
            CostUnit::Bytes => write!(f, "{}/s", crate::format_size(self.per_second)),
            CostUnit::DiskTime => write!(f, "{}/s", Duration::from_nanos(self.per_second)),
        }
    }
}

/// "`percentile` of the requests are answered within `bound`."
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    /// Longest latency that keeps the promise.
    pub bound: Duration,
    /// Share of the requests that must keep it, in millionths (950 000 = 95 %).
    pub percentile: u32,
}

/// Which of the three kinds of locality disk (`disk time` contracts) a flow has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskTimeKind {
    /// What a dedicated disk with this share of the peak bandwidth would deliver.
    RentADisk,
    /// The same, and within the latency bound whenever that dedicated disk would be.
    LatencyConscious,
    /// An average throughput, which may be overdrawn by the tolerance.
    ThroughputConscious {
        /// Average throughput promised, bytes or requests a second.
        throughput: Rate,
        /// How far below it lending may go, in millionths.
        tolerance: u32,
    },
}

/// A share of the disk's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskTime {
    /// Fraction of the device's time, in millionths.
    pub share: u32,
    /// What goes with it.
    pub kind: DiskTimeKind,
}

/// What one flow is promised.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contract {
    /// Relative share φ, 1 … 10⁶; unstated is 1.
    pub weight: Option<u32>,
    /// Reserved: what it gets whatever the others do.
    pub rate: Option<Rate>,
    /// Where this is one gate's part of a contract ([`part`](Self::part)): the rate of the whole. What is spare is shared by it.
    pub whole: Option<Rate>,
    /// Highest: what it gets even when nobody else wants anything.
    pub limit: Option<Rate>,
    /// How much may come at once on top of rate or limit, in the unit of the rate.
    pub burst: Option<Cost>,
    /// Latency promised.
    pub latency: Option<Latency>,
    /// Most requests pending (waiting and in flight); the flow is not read further beyond it.
    pub pending: Option<u32>,
    /// Share of the disk's time, and the kind of promise.
    pub disk_time: Option<DiskTime>,
    /// Terms that are one amount, by key.
    pub amounts: BTreeMap<&'static str, u64>,
}

/// What terms say that are words.
pub const WORDS: [&str; 3] = ["rent", "latency", "throughput"];

impl Contract {
    /// The largest weight.
    pub const WEIGHT_MAX: u32 = 1_000_000;

    /// Nothing promised.
    pub fn best_effort() -> Self {
        Contract::default()
    }
    /// A relative share alone.
    pub fn weighted(weight: u32) -> Self {
        Contract { weight: Some(weight), ..Contract::default() }
    }
    /// A reservation alone.
    pub fn reserved(rate: Rate) -> Self {
        Contract { rate: Some(rate), ..Contract::default() }
    }
    /// φ, 1 where none is stated.
    pub fn weight(&self) -> u32 {
        self.weight.unwrap_or(1)
    }
    /// In which units its rate and its limit count.
    pub fn units(&self) -> impl Iterator<Item = CostUnit> {
        [self.rate, self.limit].into_iter().flatten().map(|r| r.unit)
    }
    /// Whether nothing is promised (a weight or a limit is no promise).
    pub fn is_best_effort(&self) -> bool {
        self.rate.is_none() && self.latency.is_none() && self.disk_time.is_none()
    }

    /// Whether it says anything by a term. A weight of 1 is what nobody states.
    pub fn states(&self, key: &str) -> bool {
        match key {
            "weight" => self.weight.is_some_and(|w| w != 1),
            "rate" => self.rate.is_some(),
            "limit" => self.limit.is_some(),
            "burst" => self.burst.is_some(),
            "latency" | "percentile" => self.latency.is_some(),
            "pending" => self.pending.is_some(),
            "share" | "kind" => self.disk_time.is_some(),
            "throughput" | "tolerance" => self.word("kind") == Some("throughput"),
            _ => self.amounts.contains_key(key),
        }
    }

    /// What a term says that is one amount: millionths of a share, nanoseconds, bytes, or how many.
    pub fn amount(&self, key: &str) -> Option<u64> {
        self.amounts.get(key).copied()
    }

    /// With a term that is one amount.
    pub fn with(mut self, key: &'static str, amount: u64) -> Contract {
        self.amounts.insert(key, amount);
        self
    }

    /// What a term that is a word says.
    pub fn word(&self, key: &str) -> Option<&'static str> {
        Some(match self.disk_time.filter(|_| key == "kind")?.kind {
            DiskTimeKind::RentADisk => "rent",
            DiskTimeKind::LatencyConscious => "latency",
            DiskTimeKind::ThroughputConscious { .. } => "throughput",
        })
    }

    /// Takes back what it says by a term that schedulers keep.
    pub fn strike(&mut self, key: &str) {
        match key {
            "weight" => self.weight = None,
            "rate" => self.rate = None,
            "limit" => self.limit = None,
            "burst" => self.burst = None,
            "latency" => self.latency = None,
            "share" => self.disk_time = None,
            _ => drop(self.amounts.remove(key)),
        }
    }

    /// The rate that its latency takes for its pending requests. Stonehenge, equation (10), the device's own time left out:
    /// D = (pending + 1)/IOPS.
    pub fn rate_of_latency(&self) -> Option<Rate> {
        let (latency, pending) = (self.latency?, self.pending?);
        let micro = (u128::from(pending) + 1) * 1_000_000 * 1_000_000_000;
        let rate = micro.div_ceil(u128::from(latency.bound.as_nanos().max(1)));
        Some(Rate::requests_micro(u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    /// What each of the `gates` that a flow lies on owes it: f · B / n of the rate (f is the leeway, in millionths),
    /// an n-th of limit and burst, ⌈f · pending / n⌉ of the pending requests that its latency holds for. Where commands are
    /// cut, their number is bounded before ([`Gate::leave_pending`](crate::Gate::leave_pending)), not part by part.
    /// A part is never zero, nor more than the whole.
    ///
    /// ```
    /// use henge_core::{Contract, Rate};
    /// let part = Contract::reserved(Rate::requests(600)).part(1_100_000, 4);
    /// assert_eq!(part.rate, Some(Rate::requests(165))); // 1.1 · 600 / 4
    /// ```
    pub fn part(&self, leeway: u64, gates: u64) -> Contract {
        let gates = gates.max(1);
        let part = |whole: Rate, num: u64, den: u64| {
            let per_second = whole.mul_ratio(num, den).per_second.min(whole.per_second).max(1);
            Rate { per_second, ..whole }
        };
        Contract {
            rate: self.rate.map(|rate| part(rate, leeway, gates.saturating_mul(1_000_000))),
            whole: self.whole.or(self.rate).filter(|_| gates > 1),
            limit: self.limit.map(|limit| part(limit, 1, gates)),
            burst: self.burst.map(|burst| Cost::new(burst.get().div_ceil(gates))),
            pending: self.pending.map(|n| {
                let part = (u64::from(n) * leeway).div_ceil(gates.saturating_mul(1_000_000));
                u32::try_from(part).unwrap_or(u32::MAX).min(n).max(1)
            }),
            amounts: {
                let part = |key: &str, amount: u64| match Term::of(key).is_some_and(|term| term.divided) {
                    true => amount.div_ceil(gates),
                    false => amount,
                };
                self.amounts.iter().map(|(key, amount)| (*key, part(key, *amount))).collect()
            },
            ..self.clone()
        }
    }

    /// Reads the table `contract = { … }`; every key is optional.
    ///
    /// Keys: `weight`, `rate`, `limit`, `burst`, `latency`, `percentile`, `pending`, for disk time `share`,
    /// `kind = "rent" | "latency" | "throughput"`, `throughput`, `tolerance`, and those of [`Term::plain`].
    pub fn from_params(p: &mut Params) -> Result<Contract, ParamError> {
        let weight = p.integer("weight", 1, u64::from(Self::WEIGHT_MAX))?.map(|w| w as u32);
        let rate = positive(p, "rate")?;
        let limit = positive(p, "limit")?;
        if let (Some(r), Some(l)) = (rate, limit)
            && r.unit == l.unit
            && r.per_second > l.per_second
        {
            return Err(p.error(
                "rate",
                format!("the rate {r} is above the limit {l}; lower one or raise the other"),
            ));
        }
        // A number of requests is a burst, quoted or not.
        if let Some(value @ Value::Integer(_)) = p.get_mut("burst")
            && let Value::Integer(n) = *value
        {
            *value = Value::Text(n.to_string());
        }
        let burst = match p.text("burst")? {
            None => None,
            Some(text) => Some(parse_burst(p, &text, rate.or(limit))?),
        };
        let latency = latency_from(p)?;
        let pending = p.integer("pending", 1, 1 << 20)?.map(|n| n as u32);
        let disk_time = disk_time_from(p, latency)?;
        let mut amounts = BTreeMap::new();
        for term in Term::plain() {
            amounts.extend(term.amount_in(p)?.map(|amount| (term.key, amount)));
        }
        Ok(Contract { weight, rate, whole: None, limit, burst, latency, pending, disk_time, amounts })
    }
}

fn positive(p: &mut Params, key: &str) -> Result<Option<Rate>, ParamError> {
    match p.rate(key)? {
        Some(r) if r.per_second == 0 => {
            Err(p.error(key, format!("a {key} of zero serves nothing; leave it out")))
        }
        r => Ok(r),
    }
}

/// `"7"` requests, or `"64KiB"`, or `"5ms"` of disk time.
fn parse_burst(p: &Params, text: &str, on_top_of: Option<Rate>) -> Result<Cost, ParamError> {
    let burst = crate::parse_rate(&format!("{text}/s")).map_err(|_| {
        p.error(
            "burst",
            format!("\"{text}\" is not a burst; write \"7\" (requests), \"1MB\" or \"5ms\" (disk time)"),
        )
    })?;
    match on_top_of {
        Some(rate) if rate.unit != burst.unit => Err(p.error(
            "burst",
            format!("a burst of {text} counts {}, and {rate} counts {}", burst.unit, rate.unit),
        )),
        _ => Ok(Cost::new(burst.per_second)),
    }
}

fn latency_from(p: &mut Params) -> Result<Option<Latency>, ParamError> {
    let bound = p.duration("latency")?;
    let percentile = p.number("percentile")?;
    match (bound, percentile) {
        (None, None) => Ok(None),
        (None, Some(_)) => {
            Err(p.error("percentile", "a percentile needs a latency; add latency = \"120ms\"".into()))
        }
        (Some(Duration::ZERO), _) => Err(p.error("latency", "no request is answered within 0s".into())),
        (Some(bound), percentile) => {
            let percentile = percentile.unwrap_or(95.0);
            if !(percentile > 0.0 && percentile <= 100.0) {
                return Err(
                    p.error("percentile", format!("{percentile} is not a percentile; write it like 95"))
                );
            }
            Ok(Some(Latency { bound, percentile: (percentile * 10_000.0).round() as u32 }))
        }
    }
}

fn disk_time_from(p: &mut Params, latency: Option<Latency>) -> Result<Option<DiskTime>, ParamError> {
    let share = p.share("share")?;
    let kind = p.text("kind")?;
    let throughput = positive(p, "throughput")?;
    let tolerance = p.share("tolerance")?;
    let Some(share) = share else {
        for (key, given) in [
            ("kind", kind.is_some()),
            ("throughput", throughput.is_some()),
            ("tolerance", tolerance.is_some()),
        ] {
            if given {
                return Err(
                    p.error(key, format!("{key} belongs to a share of disk time; add share = \"25%\""))
                );
            }
        }
        return Ok(None);
    };
    if share == 0 {
        return Err(p.error("share", "a share of 0% serves nothing; leave it out".into()));
    }
    let kind = match kind.as_deref() {
        None | Some("rent") => DiskTimeKind::RentADisk,
        Some("latency") if latency.is_some() => DiskTimeKind::LatencyConscious,
        Some("latency") => {
            return Err(
                p.error("kind", "a latency-conscious disk states its bound; add latency = \"200ms\"".into())
            );
        }
        Some("throughput") => {
            let Some(throughput) = throughput else {
                return Err(p.error(
                    "kind",
                    "a throughput-conscious disk states it; add throughput = \"900/s\"".into(),
                ));
            };
            let tolerance = tolerance.unwrap_or(0);
            if tolerance >= 1_000_000 {
                return Err(p.error(
                    "tolerance",
                    "a tolerance of 100% leaves nothing to promise; it is from 0% to below 100%".into(),
                ));
            }
            DiskTimeKind::ThroughputConscious { throughput, tolerance }
        }
        Some(other) => {
            return Err(p.error(
                "kind",
                format!("\"{other}\" is not a kind; there are \"rent\", \"latency\", \"throughput\""),
            ));
        }
    };
    if !matches!(kind, DiskTimeKind::ThroughputConscious { .. })
        && (throughput.is_some() || tolerance.is_some())
    {
        return Err(p.error("kind", "throughput and tolerance go with kind = \"throughput\"".into()));
    }
    Ok(Some(DiskTime { share, kind }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of all lengths, where 64 bits are enough and where they are not.
    fn any_length() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(n, shift)| n >> shift)
    }

    proptest! {
        /// A time is the first in which the rate yields the cost; what a rate yields is the most that takes no longer.
        #[test]
        fn times_are_rounded_up_and_costs_down(rate in any_length(), cost in any_length(), time in any_length()) {
            let rate = Rate::bytes(rate.max(1));
            let takes = rate.time_for(Cost::new(cost));
            if takes < Duration::MAX {
                prop_assert!(rate.cost_in(takes) >= Cost::new(cost));
                let before = takes.saturating_sub(Duration::from_nanos(1));
                prop_assert!(takes == Duration::ZERO || rate.cost_in(before) < Cost::new(cost));
            }
            let yields = rate.cost_in(Duration::from_nanos(time));
            if yields.get() < u64::MAX {
                prop_assert!(rate.time_for(yields).as_nanos() <= time);
                prop_assert!(rate.time_for(Cost::new(yields.get() + 1)).as_nanos() > time);
            }
        }
    }

    #[test]
    fn a_part_is_neither_nothing_nor_more_than_the_whole() {
        let of = |n: u64, leeway: u64, gates: u64| {
            let whole = Contract { limit: Some(Rate::bytes(n)), ..Contract::reserved(Rate::bytes(n)) };
            let part = Contract { pending: Some(n as u32), ..whole }.part(leeway, gates);
            (part.rate.unwrap().per_second, part.limit.unwrap().per_second, part.pending.unwrap())
        };
        assert_eq!(of(1, 1_000_000, 4), (1, 1, 1), "a rate of zero serves nothing");
        assert_eq!(of(600, 1_500_000, 4), (225, 150, 225));
        assert_eq!(of(600, 100_000_000, 4), (600, 150, 600));
        assert_eq!(of(600, 1_500_000, 1), (600, 600, 600));
    }
}
