//! What a scheduler keeps of contracts, as data: whoever decides far from a gate refuses by it what the gate would refuse.
//!
//! A scheduler says it of itself ([`Scheduler::keeps`](crate::Scheduler::keeps)). Three things are in it: the terms that it keeps, the terms
//! that go with others there, and the most that it promises to all. What others are promised is summed up beside it ([`Promised`]).
//! For example, `pclock` keeps rate, burst and latency; a latency goes with a rate; and with a capacity of 900/s its rates are at
//! most 900/s together.

use crate::{Contract, Cost, CostUnit, Duration, Latency, Rate, Refused, Request, Term};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A term that another one goes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct With {
    /// Its key.
    pub term: &'static str,
    /// The one word that it is; none: whatever it says.
    pub word: Option<&'static str>,
}

impl With {
    /// The term, whatever it says.
    pub const fn any(term: &'static str) -> With {
        With { term, word: None }
    }
    /// The term, and it is this word.
    pub const fn word(term: &'static str, word: &'static str) -> With {
        With { term, word: Some(word) }
    }
    fn stated(&self, contract: &Contract) -> bool {
        match self.word {
            None => contract.states(self.term),
            Some(word) => contract.word(self.term) == Some(word),
        }
    }
    fn example(&self) -> String {
        let example = Term::of(self.term).map_or("…", |term| term.example);
        match (self.word, Term::of(self.term).is_some_and(|term| term.written.is_number())) {
            (Some(word), _) => format!("{} = \"{word}\"", self.term),
            (None, true) => format!("{} = {example}", self.term),
            (None, false) => format!("{} = \"{example}\"", self.term),
        }
    }
}

/// A term that goes with others at a scheduler: with any one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// Its key.
    pub term: &'static str,
    /// One of these is stated beside it.
    pub with: Cow<'static, [With]>,
}

impl Need {
    /// Written where a scheduler is.
    pub const fn of(term: &'static str, with: &'static [With]) -> Need {
        Need { term, with: Cow::Borrowed(with) }
    }
    /// Refuses a contract that has the term and nothing that it goes with.
    pub fn check(&self, scheduler: &str, contract: &Contract) -> Result<(), Refused> {
        if !contract.states(self.term) || self.with.iter().any(|with| with.stated(contract)) {
            return Ok(());
        }
        let term = self.term;
        let or = |texts: Vec<String>| texts.join(" or ");
        let with = or(self
            .with
            .iter()
            .map(|w| w.word.as_ref().map_or_else(|| format!("a {}", w.term), |_| w.example()))
            .collect());
        let add = or(self.with.iter().map(With::example).collect());
        Err(Refused {
            term,
            why: format!("a {term} goes with {with} at the scheduler {scheduler}, and there is none"),
            instead: format!("add {add}, or leave the {term} out"),
        })
    }
}

/// Refuses a rate or a limit that is counted in none of the units.
pub fn check_units(units: &[CostUnit], contract: &Contract) -> Result<(), Refused> {
    for (term, rate) in [("rate", contract.rate), ("limit", contract.limit)] {
        match (rate, units) {
            (Some(rate), [first, ..]) if !units.contains(&rate.unit) => {
                return Err(Refused::unit(term, rate.unit, *first));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses a bound that one request alone misses.
pub fn check_bound(latency: Latency, service: Duration) -> Result<(), Refused> {
    if latency.bound >= service {
        return Ok(());
    }
    let bound = latency.bound;
    Err(Refused {
        term: "latency",
        why: format!("a latency of {bound} is below the {service} that one request takes on this device"),
        instead: format!("state more than {service}, or use a faster device"),
    })
}

/// Refuses a share of the device's time beyond what others leave of `most`, all in millionths.
pub fn check_share(share: u64, others: u64, most: u64) -> Result<(), Refused> {
    if share > 0 && others.saturating_add(share) <= most {
        return Ok(());
    }
    let percent = |ppm: u64| ppm as f64 / 1e4;
    Err(Refused {
        term: "share",
        why: format!(
            "a share of {}% and the {}% promised already make {}%",
            percent(share),
            percent(others),
            percent(others.saturating_add(share))
        ),
        instead: format!("state a share above 0% and at most {}%", percent(most.saturating_sub(others))),
    })
}

/// Refuses a rate beyond what others leave of `capacity`, of which all count in one unit. What would be promised in all, otherwise.
pub fn check_rate(rate: Rate, others: u64, capacity: Rate) -> Result<u64, Refused> {
    let total = others.saturating_add(rate.per_second);
    if total <= capacity.per_second {
        return Ok(total);
    }
    let of = |per_second| Rate { per_second, unit: capacity.unit };
    Err(Refused {
        term: "rate",
        why: format!(
            "a rate of {rate} and the {} promised already make {}, above the capacity of {capacity}",
            of(others),
            of(total)
        ),
        instead: format!(
            "at most {} can still be promised; overbook = true promises more",
            of(capacity.per_second.saturating_sub(others))
        ),
    })
}

/// What may be due within one latency: at once, and what comes each second from then on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Due {
    /// Of all buckets.
    pub at_once: u128,
    /// Of all rates.
    pub rate: u128,
}

impl Due {
    /// Of one curve.
    pub fn of(rate: Rate, burst: Cost) -> Due {
        // Beside what the bucket holds, the one that it is paying.
        let one = if rate.unit == CostUnit::Requests { u64::from(Request::WHOLE) } else { 0 };
        Due { at_once: u128::from(burst.get()) + u128::from(one), rate: rate.per_second.into() }
    }
    /// Both.
    pub fn plus(self, other: Due) -> Due {
        Due { at_once: self.at_once + other.at_once, rate: self.rate + other.rate }
    }
}

/// Curves are feasible together when at every t what may be due by then, Σ max(0, σ + ρ·(t − δ)), can be done by then, C·t. The sum bends
/// at the latencies alone, so that is where it is looked at (its slope is the sum of rates). `within`: by latency, the shortest first.
pub fn check_curves(within: impl Iterator<Item = (Duration, Due)>, capacity: Rate) -> Result<(), Refused> {
    let (mut at_once, mut rate, mut before) = (0f64, 0f64, Duration::ZERO);
    for (latency, due) in within {
        at_once += rate * latency.saturating_sub(before).as_secs_f64();
        at_once += due.at_once as f64;
        rate += due.rate as f64;
        before = latency;
        let can = capacity.per_second as f64 * latency.as_secs_f64();
        if at_once > can {
            let cost = |units: f64| match capacity.unit {
                CostUnit::Requests => format!("{:.1} requests", units / 1e6),
                CostUnit::Bytes => format!("{units:.0} bytes"),
                CostUnit::DiskTime => format!("{:.1} ms of disk time", units / 1e6),
            };
            return Err(Refused {
                term: "burst",
                why: format!(
                    "with it {} may be due within {latency}, and a capacity of {capacity} does {} in that time",
                    cost(at_once),
                    cost(can)
                ),
                instead: "state a smaller burst or a longer latency; overbook = true promises more".into(),
            });
        }
    }
    Ok(())
}

/// What a scheduler keeps of contracts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keeps {
    /// Its name.
    pub scheduler: Cow<'static, str>,
    /// Keys of the terms that it keeps, of those that a scheduler has to keep.
    pub terms: Vec<&'static str>,
    /// Terms that go with others there.
    pub needs: Vec<Need>,
    /// In which units it counts rates and limits.
    pub units: Vec<CostUnit>,
    /// The most that rates may be together, where that is bounded; rates in other units are not summed.
    pub rate: Option<Rate>,
    /// The most that shares of the device's time may be together, in millionths.
    pub share: Option<u32>,
    /// Of so many millionths of the requests each takes at most so long on the device: no latency is below.
    pub service: Vec<(u32, Duration)>,
    /// Rate, burst and latency are a curve, and all curves together are held against `rate`. A rate without a latency has this one.
    pub curves: Option<Duration>,
}

impl Keeps {
    /// Refuses a contract with a term that it does not keep, whatever others are promised. `who` lists who keeps a term.
    pub fn check(&self, contract: &Contract, who: impl Fn(&'static str) -> String) -> Result<(), Refused> {
        let unkept = |term: &&Term| contract.states(term.key) && !self.terms.contains(&term.key);
        if let Some(term) = Term::kept().find(unkept) {
            return Err(Refused::unsupported(&self.scheduler, term.key, &who(term.key)));
        }
        self.needs.iter().try_for_each(|need| need.check(&self.scheduler, contract))?;
        check_units(&self.units, contract)
    }

    /// Refuses what cannot be promised beside what others are promised. A latency that the flow `has` already may stay.
    pub fn check_beside(
        &self,
        contract: &Contract,
        others: &Promised,
        has: Option<Latency>,
    ) -> Result<(), Refused> {
        if let Some(latency) = contract.latency.filter(|latency| has != Some(*latency)) {
            let at = self.service.iter().find(|(share, _)| *share >= latency.percentile);
            at.or(self.service.last()).map_or(Ok(()), |(_, service)| check_bound(latency, *service))?;
        }
        if let (Some(most), Some(time)) = (self.share, contract.disk_time) {
            check_share(time.share.into(), others.share, most.into())?;
        }
        let Some(capacity) = self.rate else { return Ok(()) };
        let Some(rate) = self.reserved(contract).filter(|rate| rate.unit == capacity.unit) else {
            return Ok(());
        };
        check_rate(rate, others.rate, capacity)?;
        let Some((latency, due)) = self.due(contract) else { return Ok(()) };
        let mut within = others.within.clone();
        let all = within.entry(latency).or_default();
        *all = all.plus(due);
        check_curves(within.into_iter(), capacity)
    }

    /// What it would reserve for a contract: the rate, or what a latency takes where that goes with pending requests alone.
    fn reserved(&self, contract: &Contract) -> Option<Rate> {
        let alone =
            |need: &Need| need.term == "latency" && need.with.iter().any(|with| with.term == "pending");
        contract.rate.or_else(|| self.needs.iter().any(alone).then(|| contract.rate_of_latency()).flatten())
    }

    fn due(&self, contract: &Contract) -> Option<(Duration, Due)> {
        let (alone, rate) = (self.curves?, contract.rate?);
        let latency = contract.latency.map_or(alone, |latency| latency.bound);
        Some((latency, Due::of(rate, contract.burst.unwrap_or_default())))
    }
}

/// What flows are promised together at a scheduler.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Promised {
    rate: u64,
    share: u64,
    within: BTreeMap<Duration, Due>,
}

impl Promised {
    /// One more.
    pub fn add(&mut self, keeps: &Keeps, contract: &Contract) {
        let unit = keeps.rate.map(|capacity| capacity.unit);
        let rate = keeps.reserved(contract).filter(|rate| Some(rate.unit) == unit);
        self.rate = self.rate.saturating_add(rate.map_or(0, |rate| rate.per_second));
        self.share = self.share.saturating_add(contract.disk_time.map_or(0, |time| time.share.into()));
        if let (Some((latency, due)), true) = (keeps.due(contract), rate.is_some()) {
            let all = self.within.entry(latency).or_default();
            *all = all.plus(due);
        }
    }

    /// What rates may still be together.
    pub fn rate_left(&self, keeps: &Keeps) -> Option<Rate> {
        keeps.rate.map(|most| Rate { per_second: most.per_second.saturating_sub(self.rate), unit: most.unit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps() -> Keeps {
        Keeps {
            scheduler: "some".into(),
            terms: vec!["rate", "latency", "burst"],
            needs: vec![Need::of("burst", const { &[With::any("rate"), With::any("limit")] })],
            units: vec![CostUnit::Requests],
            rate: Some(Rate::requests(100)),
            service: vec![(950_000, Duration::from_millis(5)), (1_000_000, Duration::from_millis(50))],
            ..Keeps::default()
        }
    }

    #[test]
    fn a_term_that_is_not_kept_is_named_with_who_keeps_it() {
        let refused =
            |contract: &Contract| keeps().check(contract, |term| format!("who keeps a {term}")).unwrap_err();
        let weight = refused(&Contract::weighted(2));
        assert_eq!(
            (weight.term, weight.instead.as_str()),
            ("weight", "schedulers that do: who keeps a weight")
        );
        let burst = refused(&Contract { burst: Some(Cost::new(7)), ..Contract::default() });
        assert_eq!(
            burst.to_string(),
            "a burst goes with a rate or a limit at the scheduler some, and there is none; add rate = \"500/s\" or limit = \
             \"900/s\", or leave the burst out"
        );
        assert_eq!(refused(&Contract::reserved(Rate::bytes(7))).term, "rate");
        assert_eq!(keeps().check(&Contract::weighted(1), |_| String::new()), Ok(()), "a weight of 1 is none");
    }

    #[test]
    fn what_others_have_is_not_promised_again() {
        let mut others = Promised::default();
        let sixty = Contract::reserved(Rate::requests(60));
        assert_eq!(keeps().check_beside(&sixty, &others, None), Ok(()));
        others.add(&keeps(), &sixty);
        others.add(&keeps(), &Contract::reserved(Rate::bytes(1_000_000_000)));
        assert_eq!(others.rate_left(&keeps()), Some(Rate::requests(40)));
        let why = keeps().check_beside(&sixty, &others, None).unwrap_err();
        assert!(why.instead.starts_with("at most 40/s can still be promised"), "{why}");
    }

    #[test]
    fn a_latency_is_held_against_its_percentile() {
        let of = |ms, percentile| {
            let latency = Some(Latency { bound: Duration::from_millis(ms), percentile });
            let contract = Contract { latency, ..Contract::default() };
            keeps().check_beside(&contract, &Promised::default(), latency.filter(|_| ms == 3)).is_ok()
        };
        assert!(of(5, 900_000) && of(5, 950_000) && !of(5, 950_001) && of(50, 1_000_000) && !of(4, 900_000));
        assert!(of(3, 900_000), "what it has already stays");
    }
}
